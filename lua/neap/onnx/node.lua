--- A node of an ONNX graph as its builder sees it: what it was given, what it must give, and its
-- attributes, each asked for by its kind.
-- @module neap.onnx.node
local core = require "neap.core"
local kit = require "neap.onnx.kit"
local op = require "neap.op"
local options = require "neap.inner.options"

local Node = {}
Node.__index = Node

--- "node "conv1" (Conv)", for messages; in a format without names what the row says.
function Node:place()
  if self.row.place then return self.row.place end
  local name = self.row.name ~= "" and self.row.name or self.row.outputs[1] or ""
  return ("node \"%s\" (%s)"):format(name, self.row.op)
end

--- Raises: what is wrong with this node, formatted.
function Node:fail(format, ...)
  error(core.error { code = "data", message = format:format(...) }, 0)
end

-- ---- attributes ---------------------------------------------------------------------------------

local function attribute(self, name, kind, missing)
  local attr = self.row.attrs[name]
  if attr and attr.kind == "ref" then attr = self.state.attrs and self.state.attrs[attr.value] end
  if attr == nil then return missing end
  if attr.kind ~= kind then
    self:fail("attribute \"%s\" is of kind %s, expected %s", name, attr.kind, kind)
  end
  return attr.value
end

-- n:int("axis", 0), and so on: the attribute, or what is given for one that is left out.
for _, kind in ipairs { "int", "float", "text", "tensor", "graph", "ints", "floats", "texts" } do
  Node[kind] = function(self, name, missing) return attribute(self, name, kind, missing) end
end

--- What the text attribute stands for: `words` are those of the standard, "LEFT RIGHT", or a table
-- that says what each means; another is an error. An empty text is as good as none.
function Node:word(name, words, missing)
  if type(words) == "string" then words = kit.words(words) end
  local text = self:text(name, "")
  if text == "" then text = missing or self:fail("attribute \"%s\" is missing", name) end
  local value = words[text]
  if value == nil then
    self:fail("attribute \"%s\" is \"%s\", expected %s", name, text,
      table.concat(options.keys(words), ", "))
  end
  return value
end

--- The shortest number that is the same f32 as the attribute: what was meant by 1e-05.
function Node:float(name, missing)
  local value = attribute(self, name, "float")
  if value == nil then return missing end
  for digits = 6, 8 do
    local short = tonumber(("%%.%dg"):format(digits):format(value))
    if short and string.pack("<f", short) == string.pack("<f", value) then return short + 0.0 end
  end
  return value
end

--- What a number other than 0 and 1 means runtimes don't agree on.
function Node:flag(name, missing)
  local value = self:int(name, missing and 1 or 0)
  if value ~= 0 and value ~= 1 then
    self:fail("attribute \"%s\" is %d, expected 0 or 1", name, value)
  end
  return value == 1
end

function Node:has(name) return self.row.attrs[name] ~= nil end

-- ---- operands -----------------------------------------------------------------------------------

--- Input i as an operand: a tensor where all that the node reads is known; nil where it is left
-- out.
function Node:x(i)
  local v = self.inputs[i]
  if not v then return nil end
  if v.list then self:fail("input %d is a sequence, expected a tensor", i) end
  if self.folds then return v.x end
  return self.state:operand(v)
end

--- Input i, whose values must be known to say what comes out, as a tensor; nil where it is left
-- out.
function Node:known(i)
  local v = self.inputs[i]
  if not v then return nil end
  if v.list then self:fail("input %d is a sequence, expected a tensor", i) end
  if kit.is_known(v.x) then return v.x end
  self.state:need(self, i, v)
end

--- The same as a list of numbers, in their order; a scalar as a list of one.
function Node:list(i)
  local t = self:known(i)
  if not t then return nil end
  if t:n_element() == 0 then return {} end
  local list = kit.reshape(t, { -1 }):totable()
  for k, value in ipairs(list) do list[k] = math.tointeger(value) or value end
  return list
end

local function check_each(self, i, list, kind, is_kind)
  for _, x in ipairs(list or {}) do
    if not is_kind(x) then self:fail("input %d has %s, expected %s", i, tostring(x), kind) end
  end
  return list
end

--- The same of sizes, axes and positions: integers; and of numbers, which no booleans are.
function Node:integers(i)
  return check_each(self, i, self:list(i), "integers", function(x)
    return math.type(x) == "integer"
  end)
end
function Node:numbers(i) return check_each(self, i, self:list(i), "numbers", math.type) end

local function one(self, i, list)
  if list and #list ~= 1 then self:fail("input %d has %d elements, expected 1", i, #list) end
  return list and list[1]
end

--- The same as one number or boolean, as one integer, as one number.
function Node:scalar(i) return one(self, i, self:list(i)) end
function Node:integer(i) return one(self, i, self:integers(i)) end
function Node:number(i) return one(self, i, self:numbers(i)) end

function Node:given(i) return self.inputs[i] ~= nil end

--- What a version of the op that has it cannot do without, "input 2" for messages.
function Node:needed(value, what) return value or self:fail("%s is missing", what) end

--- Raises where operand x, input i, has not `least` to `most` dimensions: without `most` just as
-- many, with math.huge as many or more.
function Node:check_rank(i, x, least, most)
  local rank = #x.shape
  if rank < least or rank > (most or least) then
    local expected = most == math.huge and ("at least %d"):format(least)
      or most and ("%d to %d"):format(least, most) or least
    self:fail("input %d has %d dimensions, expected %s", i, rank, expected)
  end
end

--- ONNX's element type of input i.
function Node:elem(i) return self.inputs[i] and self.inputs[i].elem end

--- The node that alone reads the first output, where it is of the op `name`, and the value of its
-- other operand, as far as that is known; nil where it is not so.
function Node:sole_reader(name)
  local output = self.row.outputs[1]
  local list = self.state.readers and self.state.readers[output]
  local reader = list and #list == 1 and list[1]
  if not reader or reader.op ~= name or reader.domain ~= "" or #reader.inputs ~= 2 then
    return nil
  end
  local other = reader.inputs[1] == output and reader.inputs[2] or reader.inputs[1]
  return reader, self.env[other]
end

--- The node that made input i, where it is of the op `name`.
function Node:maker(i, name)
  local by = self.inputs[i] and self.inputs[i].made_by
  return by and by.row.op == name and by.row.domain == "" and by or nil
end

--- Whether output i is read by anybody.
function Node:wants(i) return (self.row.outputs[i] or "") ~= "" end

-- ---- dimensions ---------------------------------------------------------------------------------

--- A dimension as ONNX counts it, from 0 or -1 at the end, as Neap does, from 1, of `rank`.
function Node:axis(axis, rank)
  local at = axis < 0 and axis + rank + 1 or axis + 1
  if at < 1 or at > rank then self:fail("axis %d is out of range, there are %d", axis, rank) end
  return at
end

--- The same of a list, each once.
function Node:axes(list, rank)
  local seen = {}
  return kit.map(list, function(axis)
    local at = self:axis(axis, rank)
    if seen[at] then self:fail("axis %d is named twice", axis) end
    seen[at] = true
    return at
  end)
end

--- An attribute that later versions have as input `i`: a list of integers, nil where neither is
-- there.
function Node:ints_or_input(name, i)
  return self:given(i) and self:integers(i) or self:ints(name)
end

--- Raises where a tensor of so many elements, which is to be made at once, is more than the machine
-- has room for. `now`: it is made when the net is built, even where the node runs later.
function Node:check_room(shape, now)
  local n = 1
  for _, size in ipairs(shape) do
    if size ~= size or size < 0 then self:fail("a size of %.15g", size) end
    n = n * math.max(size, 1) + 0.0
  end
  if (now or self.folds) and not kit.has_room(n) then
    self:fail("%.3g elements are asked for, more than there is memory for", n)
  end
end

--- An op that draws random numbers or has no inputs, beside what the node reads.
function Node:make(name, attrs)
  if self.folds and not op.records[name].random then return (core.eager(name, {}, attrs)) end
  return (self.state.net:op(name, {}, 1, attrs))
end

return Node
