--- Options tables: one table of named fields, whose array part holds the one or two obvious things.
-- An unknown field is an error that names the nearest known one.
-- @module neap.inner.options
local core = require "neap.core"
local fail = core.fail
local options = {}

--- The word of a list nearest to another word, or nil when none is near.
-- @function options.nearest
-- @tparam string word
-- @tparam {string,..} list
options.nearest = core.nearest

--- The keys of a table, as a sorted list; those that are no text stand where their text would.
function options.keys(t)
  local keys = {}
  for key in pairs(t) do keys[#keys + 1] = key end
  table.sort(keys, function(a, b) return tostring(a) < tostring(b) end)
  return keys
end

--- Checks `given` against `spec` and returns a new table with positions named and defaults filled
-- in.
-- @param who string for messages, e.g. "nn.Conv2d"
-- @param spec table `positions` = names of the array part, every other key a field with its default
--   (`options.none` for a field without one)
-- @param given table|nil
-- @return table
function options.read(who, spec, given)
  local out, names = {}, {}
  if given ~= nil and type(given) ~= "table" then given = { given } end
  for name, default in pairs(spec) do
    if name ~= "positions" then
      names[#names + 1] = name
      if default ~= options.none then out[name] = default end
    end
  end
  table.sort(names)
  for key, value in pairs(given or {}) do
    local name = type(key) == "number" and (spec.positions or {})[key] or key
    if type(name) ~= "string" then
      fail(("%s: takes %d positional value%s, got one at position %s"):format(
        who, #(spec.positions or {}), #(spec.positions or {}) == 1 and "" or "s", tostring(key)))
    end
    if spec[name] == nil then
      local near = options.nearest(name, names)
      fail(("%s: unknown field \"%s\"%s"):format(
        who, name,
        near and (", did you mean \"" .. near .. "\"?")
          or ("; it takes " .. table.concat(names, ", "))))
    end
    out[name] = value
  end
  return out
end

--- A list, a name or a set (name = true) as a list of names, sorted; nil stays nil. Things with a
-- name stand for it.
function options.names(names)
  if names == nil then return nil end
  if type(names) == "string" then return { names } end
  local list = {}
  for key, value in pairs(names) do
    local name = value
    if type(key) ~= "number" then name = value and key end
    if type(name) == "table" then name = name.name end
    if name then list[#list + 1] = name end
  end
  table.sort(list)
  return list
end

--- Appends to `list` the items of one that a user gave, and returns it. By raw access: a metatable
-- may promise a length that has no end.
function options.append(list, given)
  for i = 1, rawlen(given) do list[#list + 1] = rawget(given, i) end
  return list
end

--- The field `fold` of a picture's options: how many parts of a scope's path stay; 0 folds nothing.
function options.fold_of(who, given)
  local fold = options.read(who, { fold = 0 }, given).fold
  if math.type(fold) ~= "integer" or fold < 0 or fold > 1000 then
    fail(("%s: fold expects a number of parts of a scope's path, got %s"):format(
      who, tostring(fold)))
  end
  return fold
end

--- A value as messages show it: numbers, texts and booleans themselves, others by their type.
function options.shown(value)
  if type(value) == "string" then return '"' .. value .. '"' end
  if type(value) == "number" or type(value) == "boolean" then return tostring(value) end
  return value == nil and "nothing" or "a " .. type(value)
end

--- Marks a field without a default.
options.none = setmetatable({}, { __tostring = function() return "none" end })

return options
