--- Sets of rows that are in memory already, or made by a Lua function.
-- @module neap.data.rows
local core = require "neap.core"
local options = require "neap.inner.options"
local set = require "neap.data.set"
local fail = core.fail
local rows = {}

local options_of_tensors = set.declare("tensors", {
  is_rows = true,
  doc = [[Tensors already in memory: x (N, ...), y (N, ...). Of a model with several inputs each has
    a field, by the name of forward's argument: image = t. A list for x is x1, x2, ..]],
  { "x", "tensors", unset = "fields of other names", doc = "the input, rows first" },
  { "y", "tensor", unset = "none", doc = "the target, rows first" },
  example = "neap.data.tensors { x = neap.rand(8, 4), y = neap.rand(8, 2), batch = 4 }",
})

local row = "the shape of one row, e.g. { 28, 28, dtype = \"u8\" }"
local options_of_from = set.declare("from", {
  is_rows = true,
  doc = [[Rows made by a Lua function, between steps. Of a model with several inputs each has a
    field, as in neap.data.tensors.]],
  { "n", "integer", min = 1, required = true, doc = "how many rows there are" },
  { "x", "table", says = row, unset = "fields of other names", doc = "the input" },
  { "y", "table", says = row, unset = "none", doc = "the target; {} for one number" },
  {
    "get", "function",
    required = true,
    doc = [[get(i, slot): writes row i, from 1, into slot.x and
    slot.y, views of the batch; it returns nothing and sets no field of the slot]],
  },
  example = [[neap.data.from { n = 1000, batch = 10, x = { 2 }, y = { dtype = "i64" },
  get = function(i, slot) slot.x:fill_(i); slot.y:fill_(i % 2) end }]],
})

local taken = { n = "rows", batch = "rows a batch", lr = "the learning rate" }

--- Fields of batches apart from options: x and y, those of other names for which is_field holds,
-- and x = { a, b } as x1 and x2.
-- @return {name = value}, the options: x and y are among them, too
local function fields_apart(who, given, is_field)
  local found, rest = {}, {}

  -- What is a field by its value is one, unless an option is called so.
  for key, value in pairs(type(given) == "table" and given or { given }) do
    local is_option = key == "x" or key == "y" or set.is_common(key) or not is_field(value)
    if is_option then rest[key] = value end

    -- A list for x is inputs in order: x1, x2, ..
    if key == "x" and type(value) == "table" and is_field(value[1]) then
      for i, part in ipairs(value) do found["x" .. i] = part end
    elseif key == "x" or key == "y" or type(key) == "string" and not is_option then
      found[key] = value
    end
  end
  for name in pairs(found) do
    if taken[name] then
      fail(("neap.data.%s: a field can't be called \"%s\", which is %s"):format(
        who, name, taken[name]))
    end
  end
  return found, rest
end

local function is_tensor(t) return type(t) == "userdata" end

--- Tensors as a set: see the record.
function rows.tensors(given)
  local found, rest = fields_apart("tensors", given, is_tensor)
  local o, fields, first = options_of_tensors:read(rest), {}, nil
  for _, name in ipairs(options.keys(found)) do
    local t = found[name]
    if not is_tensor(t) or t:dim() < 1 then
      fail(("neap.data.tensors: %s expects a tensor of rows"):format(name))
    end
    fields[name] = { source = t:contiguous(), dtype = t.dtype }
    if name ~= "y" then first = first or name end
  end
  if not first then fail("neap.data.tensors takes { x = tensor, y = tensor }") end
  for _, name in ipairs(options.keys(found)) do
    if #found[name] ~= #found[first] then
      fail(("neap.data.tensors: %s has %d rows, %s %d"):format(
        first, #found[first], name, #found[name]))
    end
  end
  return set.new(o, fields, set.range(#found[first]))
end

-- ---- rows from Lua ------------------------------------------------------------------------------

--- get's slot for row i of a batch: its tensors, views of the batch. Setting a field would leave
-- the batch as it is, and raises.
-- Views of the batch: what get writes into them is in the batch.
local function slot_of(names, batch, i)
  local views = {}
  for _, name in ipairs(names) do views[name] = batch[name]:select(1, i) end
  return setmetatable({}, {
    __index = views,
    __pairs = function() return next, views end,
    __newindex = function(_, key)
      fail(views[key] ~= nil
          and ("neap.data.from: get sets slot.%s, which the batch does not see; write into it: \z
              slot.%s:copy_(tensor), "
            .. "slot.%s:fill_(number)"):format(key, key, key)
        or ("neap.data.from: get sets slot.%s, and a row has %s; write into these, \z
          slot.x:copy_(tensor)"):format(tostring(key), table.concat(names, ", ")))
    end,
  })
end

--- What get has returned, which nobody reads: nothing, or a tensor of the slot, as methods that
-- write into it return it.
local function check_returned(slot, value)
  for _, view in pairs(slot) do
    if rawequal(view, value) then return end
  end
  if value == nil then return end
  fail(("neap.data.from: get returned a %s, which nobody reads; it writes into its slot: \z
    slot.x:copy_(tensor), slot.y:fill_(number)"):format(type(value)))
end

--- A batch that has been made through the set's transforms.
local function transformed(self, batch, k, first)
  local fields, out = {}, { n = batch.n }
  for i, name in ipairs(self.names) do
    fields[i] = { source = batch[name], dtype = batch[name].dtype }
  end

  -- The same reader as for rows in memory, over the rows of this one batch.
  local reader <close> = set.reader_of(self, fields, set.range(batch.n), k, first)
  local _, tensors = reader:next()
  for i, name in ipairs(self.names) do out[name] = tensors[i] end
  return out
end

--- Rows that a function makes: see the record.
function rows.from(given)
  local found, rest = fields_apart("from", given, function(part) return type(part) == "table" end)
  local o, has_input = options_of_from:read(rest), false
  for name, part in pairs(found) do
    if type(part) ~= "table" then
      fail(("neap.data.from: %s expects the shape of one row, got a %s"):format(name, type(part)))
    end
    has_input = has_input or name ~= "y"
  end
  if math.type(o.n) ~= "integer" or o.n < 1 or type(o.get) ~= "function" or not has_input then
    fail("neap.data.from takes { n = rows, x = {shape of one row}, y = {..}, get = function(i, \z
      slot) .. end }")
  end

  -- One batch's memory for each field, written over by every batch.
  local fields = {}
  for name, part in pairs(found) do
    local shape = { o.batch, table.unpack(part) }
    shape.dtype = part.dtype or "f32"
    -- the batch that every batch is made in
    fields[name] = { source = core.zeros(shape), dtype = shape.dtype }
  end
  local self = set.new(o, fields, set.range(o.n), { get = o.get })
  function self.epoch(own, k, first)
    k, first = set.epoch_arguments(k, first)
    local rows, at = set.order(own, k), (first - 1) * o.batch
    return function()
      local n = math.min(o.batch, #rows - at)
      if n <= 0 or (n < o.batch and o.last == "drop") then return nil end
      local batch = { n = n }
      for _, name in ipairs(self.names) do batch[name] = fields[name].source:narrow(1, 1, n) end
      for i = 1, n do
        local slot = slot_of(self.names, batch, i)
        check_returned(slot, o.get(rows[at + i] + 1, slot))
      end
      if own.transform then batch = transformed(own, batch, k, at + 1) end
      at = at + n
      return set.mapped(own, batch)
    end
  end
  return self
end

return rows
