--- Records: what a function that takes a table of options takes, said once.
--
--   local step = record.declare("optim.step", { doc = "The base rate times a factor.",
--     positions = { "every" },
--     { "every", "integer", min = 1, required = true, doc = "steps from one change to the next" },
--     { "factor", "number", 0.1, doc = "what the rate is multiplied by" },
--     example = "optim.step { 1000, factor = 0.5 }" })
--   function optim.step(given)
--     local o = step:read(given)
--
-- The constructor reads its table by the record; neap.help, completion, editor stubs and the pages
-- of `make doc` are made from it. A new option is one line here and the code that obeys it.
--
-- A field is { name, type, default, doc = text } and as it needs
--   required = true     leaving it out is an error
--   says = text         what it expects, in other words than the type's
--   unset = text        what holds where it is left out and there is no default: "the kernel"
--   min, max            bounds of a number, or of each number of a list
--   above, below        bounds that the number itself does not reach
--   choices = {..}      the words, or numbers, of a "choice"
--   n = 2               how many numbers a list of "sizes" has; most_n where it may have more
--   of = "Conv.stride"  the op's attribute that it sets: what the field does not say of type,
--                       default, bounds, choices and meaning is as in the op's record
-- A type is one of those below, or several of them: "integer|choice".
--
-- Where the table is not all that the function takes, `call` says how it is called, the table as
-- {}: "(path, {})". A method's record has the method's name: "net:param".
--
-- Positions are the fields that go without names, in order. The first may stand in brackets,
-- "[n_in]": it is left out where fewer values are given. A record with `items`, a text, has no
-- positions: what goes without a name is an item (a module of a container) for the constructor.
-- @module neap.inner.record
local core = require "neap.core"
local dtypes = require "neap.inner.dtypes"
local op = require "neap.op"
local options = require "neap.inner.options"
local fail = core.fail

local record = { all = {} }

local Record = {}
Record.__index = Record

-- ---- types -------------------------------------------------------------------------------------

local function in_range(f, v)
  return v == v and not (f.min and v < f.min or f.max and v > f.max or f.above and v <= f.above
    or f.below and v >= f.below)
end

local function number_text(v)
  return math.tointeger(v) and ("%d"):format(math.tointeger(v)) or ("%g"):format(v)
end

--- The bounds of a field as text: " of at least 1", " from 0 to below 1".
local function range_text(f)
  local low, high = f.min or f.above, f.max or f.below
  low, high = low and number_text(low), high and number_text(high)
  if low and high then
    return (" from %s%s to %s%s"):format(f.above and "above " or "", low,
      f.below and "below " or "", high)
  end
  if low then return (f.min and " of at least " or " above ") .. low end
  if high then return (f.max and " of at most " or " below ") .. high end
  return ""
end

--- "a", "a or b", "a, b or c".
local function either(list)
  if #list < 2 then return list[1] or "" end
  return table.concat(list, ", ", 1, #list - 1) .. " or " .. list[#list]
end

local function choices_text(f)
  local words = {}
  for i, word in ipairs(f.choices) do
    words[i] = type(word) == "string" and ('"%s"'):format(word) or tostring(word)
  end
  return words
end

local function class_of(v) return (debug.getmetatable(v) or {}).__name end

local function is_integer(v, f) return math.type(v) == "integer" and in_range(f, v) end

local function is_plain(v) return type(v) == "table" and getmetatable(v) == nil end

--- Whether v is a list of values for which `is` holds, perhaps an empty one.
local function is_list(v, is, f)
  if not is_plain(v) then return false end
  for key, item in pairs(v) do
    if math.type(key) ~= "integer" or key < 1 or key > #v or not is(item, f) then return false end
  end
  return true
end

local function is_string(v) return type(v) == "string" end

local function is_column(v) return is_string(v) or math.type(v) == "integer" end

local function is_shape(v)
  return is_list(v, function(n) return math.type(n) == "integer" and n >= 0 end)
end

--- A shape, with or without a field dtype, { 64, dtype = "i64" }; whether there is a dtype of that
-- name is the net's to say.
local function is_typed_shape(v)
  local sizes = {}

  -- What is no table has no sizes: `false` stands for it, and is no size.
  for k, n in pairs(is_plain(v) and v or { false }) do
    if k ~= "dtype" then sizes[k] = n end
  end
  return is_shape(sizes)
end

local function is_module(v) return type(v) == "table" and rawget(v, "_is_module") == true end

local function says(text) return function() return text end end

local function of_type(name) return function(v) return type(v) == name end end

local function of_class(name) return function(v) return class_of(v) == name end end

-- By name: `is(value, field)`, `says(field)` for people, `lua` for editors.
local types = {
  integer = {
    lua = "integer",
    is = is_integer,
    says = function(f) return "an integer" .. range_text(f) end,
  },
  number = {
    lua = "number",
    is = function(v, f)
      return type(v) == "number" and v - v == 0 and in_range(f, v) -- no NaN, nothing infinite
    end,
    says = function(f) return "a number" .. range_text(f) end,
  },
  boolean = { lua = "boolean", is = of_type "boolean", says = says "true or false" },
  string = { lua = "string", is = is_string, says = says "a text" },
  name = {
    lua = "string",
    says = says "a name",
    is = function(v) return is_string(v) and v ~= "" end,
  },
  ["function"] = { lua = "function", is = of_type "function", says = says "a function" },
  table = { lua = "table", is = of_type "table", says = says "a table" },
  choice = {
    says = function(f) return either(choices_text(f)) end,
    lua = function(f) return table.concat(choices_text(f), "|") end,
    is = function(v, f)
      for _, word in ipairs(f.choices) do
        if v == word then return true end
      end
      return false
    end,
  },
  names = {
    lua = "string|string[]",
    says = says "a name or a list of names",
    is = function(v) return is_string(v) or is_list(v, is_string) end,
  },
  paths = {
    lua = "string|string[]",
    says = says "a path or a list of paths",
    is = function(v) return is_string(v) or is_list(v, is_string) and #v > 0 end,
  },
  sizes = {
    lua = "integer|integer[]",
    says = function(f)
      return ("an integer%s, or a list of %d%s"):format(range_text(f), f.n,
        f.most_n and (" or %d"):format(f.most_n) or "")
    end,
    is = function(v, f)
      if is_integer(v, f) then return true end
      return is_list(v, is_integer, f) and (#v == f.n or #v == 1 or #v == f.most_n)
    end,
  },
  axis = {
    lua = "integer",
    is = function(v) return math.type(v) == "integer" and v ~= 0 end,
    says = says "a dimension, from 1, or from -1 at the end",
  },
  axes = {
    lua = "integer|integer[]",
    says = says "dimensions, from 1, or from -1 at the end",
    is = function(v)
      local function is_axis(d) return math.type(d) == "integer" and d ~= 0 end
      return is_axis(v) or is_list(v, is_axis)
    end,
  },
  shape = { lua = "integer[]", says = says "a shape such as { 3, 32, 32 }", is = is_shape },
  shapes = {
    lua = "table",
    says = says "a shape such as { 3, 32, 32 }, or one for each input",
    is = function(v)
      -- One shape; else each item must be one. A field dtype beside several shapes would be
      -- nobody's.
      if is_typed_shape(v) then return true end
      for key, shape in pairs(is_plain(v) and v or { false }) do
        if not is_typed_shape(shape) or key == "dtype" then return false end
      end
      return is_plain(v)
    end,
  },
  dtype = {
    lua = "string",
    says = says 'a dtype such as "f32"',
    is = function(v) return dtypes.bytes[v] ~= nil end,
  },
  bytes = {
    lua = "integer|string",
    says = says 'bytes, a number or "64MiB"',
    is = function(v)
      if is_string(v) then return (pcall(core.parse_bytes, v)) end
      return type(v) == "number" and v >= 0
    end,
  },
  characters = {
    lua = "string[]",
    says = says "a list of characters",
    is = function(v) return is_list(v, is_string) end,
  },
  column = { lua = "string|integer", says = says "a column's name or number", is = is_column },
  columns = {
    lua = "string|integer|(string|integer)[]",
    says = says "a column's name or number, or a list of them",
    is = function(v) return is_column(v) or is_list(v, is_column) end,
  },
  module = { lua = "neap.Module", says = says "a module", is = is_module },
  optimizer = {
    lua = "neap.Optimizer",
    says = says "an optimizer such as optim.SGD { lr = 0.1 }",
    is = function(v)
      return type(v) == "table" and getmetatable(v) and type(v.apply) == "function"
    end,
  },
  data = {
    lua = "neap.Data",
    says = says "a data set",
    is = function(v)
      return type(v) == "table" and type(v.epoch) == "function" and type(v.spec) == "function"
    end,
  },
  workspace = { lua = "neap.Workspace", says = says "a workspace", is = of_class "neap.workspace" },
  net = { lua = "neap.Net", says = says "a net", is = of_class "neap.net" },
  database = { lua = "neap.Db", says = says "a database", is = of_class "neap.db" },
  modules = {
    lua = "neap.Module[]",
    says = says "modules",
    is = function(v) return is_list(v, is_module) end,
  },
  tensor = { lua = "neap.Tensor", says = says "a tensor", is = of_class "neap.tensor" },
  tensors = {
    lua = "neap.Tensor|neap.Tensor[]",
    says = says "a tensor, or a list of tensors",
    is = function(v)
      return class_of(v) == "neap.tensor" or is_list(v, of_class "neap.tensor") and #v > 0
    end,
  },
  initial = {
    lua = "table|number",
    says = says "an initialiser such as neap.init.zeros, or a number",
    is = function(v) return type(v) == "number" or is_plain(v) and is_string(v.op) end,
  },
  any = { lua = "any", says = says "a value", is = function(v) return v ~= nil end },
}

--- The types of a field, in order.
local function types_of(f)
  local list = {}
  for name in f.type:gmatch "[^|]+" do
    list[#list + 1] = types[name] or error("no type of options is called " .. name)
  end
  return list
end

-- ---- values ------------------------------------------------------------------------------------

--- A value as messages and help show it; of a list its items.
local function shown(v)
  local class = type(v) == "table" and rawget(v, "_class_name")
  if class then return ("the class nn.%s: call it, nn.%s { .. }"):format(class, class) end
  if not is_list(v, function(x) return type(x) ~= "table" end) then return options.shown(v) end
  local items = {}
  for i = 1, math.min(#v, 8) do items[i] = options.shown(v[i]) end
  return "{ " .. table.concat(items, ", ") .. (#v > 8 and ", .." or "") .. " }"
end

--- What a field takes, for people: 'an integer of at least 1 or "fit"'.
function record.expectation(f)
  if f.says then return f.says end
  local list = {}
  for i, t in ipairs(types_of(f)) do list[i] = t.says(f) end
  return either(list)
end

--- What a field takes, for editors: 'integer|"fit"'.
function record.annotation(f)
  local list = {}
  for i, t in ipairs(types_of(f)) do list[i] = type(t.lua) == "function" and t.lua(f) or t.lua end
  return table.concat(list, "|")
end

--- Whether a value is of a type, with no bounds.
function record.is(type_name, value) return types[type_name].is(value, {}) end

--- Raises unless the value is one that the field takes.
local function check(who, f, value)
  -- One of the types is enough.
  for _, t in ipairs(types_of(f)) do
    if t.is(value, f) then return end
  end

  -- A word that is nearly a choice gets the choice for a hint; a number that is not finite is told
  -- so, since its type is right.
  local near = f.choices and is_string(value) and options.nearest(value, f.choices)
  local expected = record.expectation(f)
  if type(value) == "number" and value - value ~= 0 then
    expected = expected:gsub("a number", "a finite number")
  end
  fail(("%s: %s expects %s, got %s%s"):format(who, f.name, expected, shown(value),
    near and (', did you mean "%s"?'):format(near) or ""))
end

-- ---- reading -----------------------------------------------------------------------------------

--- How many of the positions at the front are left out: the bracketed first one, where the last has
-- no value.
local function n_left_out(self, given)
  local n = #self.positions
  if not self.may_skip or given[n] ~= nil or given[self.positions[n]] ~= nil then return 0 end
  return 1
end

-- What other libraries call what these names say here: for hints alone.
local known_elsewhere = {
  padding = "pad", kernel_size = "kernel", in_channels = "n_in", out_channels = "n_out",
  in_features = "n_in", out_features = "n_out", input_size = "n_in", hidden_size = "n_out",
  num_layers = "layers", num_heads = "heads", nhead = "heads", embed_dim = "width",
  d_model = "width", dim_feedforward = "hidden", num_embeddings = "n_row", embedding_dim = "width",
  num_features = "channels", num_channels = "channels", num_groups = "groups",
  normalized_shape = "width", dim = "axis", start_dim = "axis", end_dim = "last",
  negative_slope = "slope", scale_factor = "scale", upscale_factor = "factor", p = "rate",
  batch_size = "batch", learning_rate = "lr", unflattened_size = "sizes",
}

--- The name that a key of the given table stands for; raises for one that stands for none.
local function name_of(self, who, key, skip)
  local n = #self.positions
  if self.items and math.type(key) == "integer" then return key end

  -- A position stands for the field there; the bracketed first one may be left out.
  local name = math.type(key) == "integer" and self.positions[key + skip] or key
  if type(name) ~= "string" then
    fail(("%s: takes %d positional value%s, got one at position %s"):format(who, n,
      n == 1 and "" or "s", tostring(key)))
  end
  if self.fields[name] then return name end
  local names = self:names()

  -- What other libraries call it, if the field is one of this record; else the nearest name.
  local near = known_elsewhere[name]
  if not (near and self.fields[near]) then near = options.nearest(name, names) end
  fail(('%s: unknown field "%s"%s'):format(who, name, near and (', did you mean "%s"?'):format(near)
    or #names > 0 and "; it takes " .. table.concat(names, ", ") or "; it takes none"))
end

--- The values given, by name and checked.
local function named(self, who, given)
  if self.items and type(given) ~= "table" then
    fail(("%s takes a table: %s"):format(who, self.example))
  end
  if given == nil then return {} end
  if type(given) ~= "table" then given = { given } end

  -- In the order of the keys, so that of several mistakes the same one is told each time.
  local out, skip = {}, n_left_out(self, given)
  for _, key in ipairs(options.keys(given)) do
    local name = name_of(self, who, key, skip)
    if out[name] ~= nil then fail(("%s: %s is given twice"):format(who, name)) end
    out[name] = given[key]
  end
  -- In the record's order, whatever the table's.
  for _, f in ipairs(self.fields) do
    if out[f.name] ~= nil then check(who, f, out[f.name]) end
  end
  return out
end

-- By what was made, { record, values }; and by what was read, its record. Both go with the key.
local made, read_by = setmetatable({}, { __mode = "k" }), setmetatable({}, { __mode = "k" })

--- The options that a table gives: checked, by name, defaults filled in.
-- @param given table|nil; what is no table stands at the first position
-- @param who string|nil for messages; the record's name
-- @return table, a new one
function Record:read(given, who)
  who = who or self.name
  local out = named(self, who, given)
  for _, f in ipairs(self.fields) do
    if out[f.name] == nil then
      if f.required then
        fail(("%s: %s expects %s, got nothing%s"):format(who, f.name, record.expectation(f),
          self.example and "; e.g. " .. self.example:match "^[^\n]*" or ""))
      end
      out[f.name] = f.default
    end
  end
  read_by[out] = self
  return out
end

--- The same without defaults, nothing being required: what a table says and no more.
function Record:read_given(given, who) return named(self, who or self.name, given) end

--- The name of the record that options were read by.
function record.name_of(o) return read_by[o].name end

--- Notes which options a thing was made with, for help. Items are not noted: they may be let go.
-- @param thing table or function
-- @param o table of Record:read
-- @return thing
function record.note(thing, o)
  local r, noted = read_by[o], {}
  -- Items are left out: noted here they would be kept alive.
  for _, f in ipairs(r.fields) do noted[f.name] = o[f.name] end
  made[thing] = { r, noted }
  return thing
end

--- The record of a thing that was made by one, and a copy of the options that it was made with.
function record.of(thing)
  if made[thing] == nil then return nil end
  local values = {}
  for key, value in pairs(made[thing][2]) do values[key] = value end
  return made[thing][1], values
end

--- Names of all fields, sorted.
function Record:names()
  local names = {}
  for i, f in ipairs(self.fields) do names[i] = f.name end
  table.sort(names)
  return names
end

-- ---- for people --------------------------------------------------------------------------------

-- The modules that declare records.
local homes = { "nn", "nn.initializers", "nn.module", "nn.state", "optim", "data", "train",
  "workspace", "net", "net.scope", "plan", "db", "model", "memonger", "tensor.picture",
  "memory.bank", "memory.mem_param", "memory.fit_batch", "memory.count", "check", "generate",
  "generate.bpe", "transform", "ops.define", "quantize", "prune" }

--- All records, those of modules that nobody has used yet too; in the order of their names.
-- @return list of records, by name too
function record.everything()
  for _, home in ipairs(homes) do require("neap." .. home) end

  -- Declaring is what loading a module does: those that nobody has used yet are loaded now.
  table.sort(record.all, function(a, b) return a.name < b.name end)
  return record.all
end

--- The record of a name as people write it: "neap.nn.Conv2d", "nn.Conv2d", "Conv2d", "data.text",
-- "net:param", "t:fit"; nil where there is none. A name alone is a method's where nothing else is
-- called so.
function record.find(name)
  local short, method = name:gsub("^neap%.", ""):gsub("^t:", "trainer:"), nil
  -- Whole names first: neap.sparse is no initialiser, though there is neap.init.sparse.
  for _, r in ipairs(record.everything()) do
    if r.name:gsub("^neap%.", "") == short then return r end
  end
  for _, r in ipairs(record.everything()) do
    local own = r.name:gsub("^neap%.", "")
    if own:match "[%w_]+$" == short then
      if not own:find(":", 1, true) then return r end
      method = method or r
    end
  end
  return method
end

--- The text in lines of at most 100 letters, the first after `head`, the others after `indent`.
local function wrapped(text, head, indent)
  local lines, line = {}, head
  for word in text:gmatch "%S+" do
    -- A word that is longer than a line stands alone on it.
    if #line > #indent and #line + 1 + #word > 100 then
      lines[#lines + 1], line = line, indent
    end
    line = line .. (line:find "%S$" and " " or "") .. word
  end
  lines[#lines + 1] = line
  return table.concat(lines, "\n")
end
record.wrapped = wrapped

--- What holds where a field is left out: "required", "default 1", "default: the kernel".
function record.otherwise(f)
  if f.required then return "required" end
  if f.default ~= nil then return "default " .. shown(f.default) end
  return f.unset and "default: " .. f.unset or "optional"
end

--- "nn.Conv2d { [n_in,] n_out, kernel =, stride = 1, .. }", or as the call is, "neap.import(path,
-- { map = })", in lines of at most 100 letters.
function Record:signature()
  local parts, stands = {}, {}
  local function add(text) parts[#parts + 1] = text:gsub(" ", "\1") end -- not to be broken
  for i, name in ipairs(self.positions) do
    stands[name] = true
    add(i == 1 and self.may_skip and ("[%s,]"):format(name) or name .. ",")
  end
  if self.items then add(self.items .. ",") end
  for _, f in ipairs(self.fields) do
    if not stands[f.name] then
      add(f.name .. " =" .. (f.default ~= nil and " " .. shown(f.default) or "") .. ",")
    end
  end
  local text = table.concat(parts, " "):gsub(",$", "")
  text = text == "" and "{}" or "{ " .. text .. "\1}"
  if self.call then
    local before, after = self.call:match "^(.*){}(.*)$"
    return (wrapped(self.name .. before .. text .. after, "", "  "):gsub("\1", " "))
  end
  return (wrapped(text, self.name .. " ", "  "):gsub("\1", " "))
end

--- All of it: signature, what it is, every option with type, default and meaning, the example.
-- @param values table|nil of a thing that was made: its options are shown, too
function Record:text(values)
  local lines, width = { self:signature() }, 10
  if self.doc then lines[#lines + 1] = wrapped(self.doc, "", "") end
  for _, f in ipairs(self.fields) do width = math.max(width, #f.name) end
  local indent = (" "):rep(width + 4)
  for _, f in ipairs(self.fields) do
    local now = values and values[f.name] ~= nil and "; here " .. shown(values[f.name]) or ""
    local head = "  " .. f.name .. (" "):rep(width + 2 - #f.name)
    lines[#lines + 1] = wrapped(f.doc, head, indent)
    lines[#lines + 1] = wrapped(("(%s; %s%s)"):format(record.expectation(f), record.otherwise(f),
      now), indent, indent)
  end
  if self.example then
    lines[#lines + 1] = "example: " .. self.example:gsub("\n", "\n         ")
  end
  return table.concat(lines, "\n")
end

-- ---- making ------------------------------------------------------------------------------------

-- Types of options by those of attributes.
local type_of_attribute = { float = "number", int = "integer", axis = "integer", bool = "boolean",
  enum = "choice", ints = "sizes", string = "string" }

--- A bound of an attribute as one of an option: an integer where it is whole, nil for none.
local function bound(v)
  if v == nil or math.abs(v) >= 1e30 then return nil end
  return math.tointeger(v) or v
end

--- Fills in what a field leaves to the op's attribute "Conv.stride".
local function take_attribute(f, path)
  local op_name, attr_name = path:match "^(%w+)%.([%w_]+)$"
  for _, a in ipairs(op.records[op_name].attrs) do
    if a.name == attr_name then
      f.name, f.type = f.name or a.name, f.type or type_of_attribute[a.type]

      -- What the field says itself stands, the rest comes from the op: type, default, whether it
      -- must be given, bounds, choices, meaning.
      if f.default == nil and type(a.default) ~= "table" and not f.required and not f.unset then
        f.default = a.default
      end
      if a.required and f.default == nil and not f.unset then f.required = true end
      if not (f.min or f.above) then f.min = bound(a.least) end
      if not (f.max or f.below) then f.max = bound(a.most) end
      if a.choices and not f.choices then
        f.choices = {}
        for word in a.choices:gmatch "[^|]+" do f.choices[#f.choices + 1] = word end
      end
      f.doc = f.doc or a.doc
      return
    end
  end
  error("no op has the attribute " .. path)
end

--- One field, from { name, type, default, doc =, .. }.
local function new_field(who, spec)
  -- A copy, since records share fields with each other.
  local f = { name = spec[1], type = spec[2], default = spec[3] }
  for key, value in pairs(spec) do
    if type(key) == "string" then f[key] = value end
  end
  if f.of then take_attribute(f, f.of) end
  if type(f.name) ~= "string" or type(f.type) ~= "string" then
    fail(("%s: an option is { name, type, default, doc = text }, with a name and a type of text")
      :format(who))
  end
  f.doc = (f.doc or ""):gsub("%s+", " ")
  f.says, f.unset = f.says and f.says:gsub("%s+", " "), f.unset and f.unset:gsub("%s+", " ")
  for name in f.type:gmatch "[^|]+" do
    if not types[name] then
      fail(('%s: option %s: no type is called "%s"; there are %s'):format(who, f.name, name,
        table.concat(options.keys(types), ", ")))
    end
  end
  if f.default ~= nil then check(who, f, f.default) end
  return f
end

--- A record.
-- @param name string what messages call it: "nn.Conv2d"
-- @param spec table { doc =, example =, call =, positions =, items =, fields .. }
function record.new(name, spec)
  local self = setmetatable({ name = name, doc = spec.doc and spec.doc:gsub("%s+", " ") or nil,
    example = spec.example, call = spec.call, items = spec.items, fields = {}, positions = {} },
    Record)
  for _, field in ipairs(spec) do
    local f = new_field(name, field)
    if self.fields[f.name] then fail(("%s: two options are called %s"):format(name, f.name)) end
    self.fields[#self.fields + 1], self.fields[f.name] = f, f
  end

  -- Positions name fields that are there; brackets mean something at the first one alone.
  for i, position in ipairs(spec.positions or {}) do
    local bracketed = position:match "^%[(.*)%]$"
    self.may_skip = self.may_skip or bracketed ~= nil and i == 1
    self.positions[i] = bracketed or position
    if not self.fields[self.positions[i]] then
      fail(("%s: position %d is no option: %s"):format(name, i, position))
    end
  end
  return self
end

--- Makes a record known to help, completion, stubs and pages.
function record.publish(r)
  if not record.all[r.name] then record.all[#record.all + 1] = r end
  record.all[r.name] = r
  return r
end

--- A record that is known.
function record.declare(name, spec) return record.publish(record.new(name, spec)) end

return record
