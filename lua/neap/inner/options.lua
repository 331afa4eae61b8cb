--- What all who read tables of options need: near words, sorted keys, lists of names, values as
-- messages show them. The tables themselves are read by records (neap.inner.record).
-- @module neap.inner.options
local core = require "neap.core"
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

--- A value as messages show it: numbers, texts and booleans themselves, others by their type.
function options.shown(value)
  if type(value) == "string" then return '"' .. value .. '"' end
  if type(value) == "number" or type(value) == "boolean" then return tostring(value) end
  return value == nil and "nothing" or "a " .. type(value)
end

return options
