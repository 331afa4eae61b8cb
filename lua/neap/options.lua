--- Options tables: one table of named fields, whose array part holds the one or two obvious things.
-- An unknown field is an error that names the nearest known one.
-- @module neap.options
local options = {}

--- Edit distance between two words, for "did you mean".
local function distance(a, b)
  local row = {}
  for j = 0, #b do row[j] = j end
  for i = 1, #a do
    local corner = row[0]
    row[0] = i
    for j = 1, #b do
      local swap = corner + (a:byte(i) == b:byte(j) and 0 or 1)
      corner = row[j]
      row[j] = math.min(swap, row[j] + 1, row[j - 1] + 1)
    end
  end
  return row[#b]
end

--- The word of `list` nearest to `word`, or nil when none is near.
-- @param word string
-- @param list string[]
-- @return string|nil
function options.nearest(word, list)
  local best, least = nil, 1 + #word // 3
  for _, candidate in ipairs(list) do
    local d = distance(word:lower(), candidate:lower())
    if d <= least and (best == nil or d < least) then best, least = candidate, d end
  end
  return best
end

--- Checks `given` against `spec` and returns a new table with positions named and defaults filled in.
-- @param who string for messages, e.g. "nn.Conv2d"
-- @param spec table `positions` = names of the array part, every other key a field with its default (`options.none` for
--   a field without one)
-- @param given table|nil
-- @param level integer|nil stack level of the error, as for `error`
-- @return table
function options.read(who, spec, given, level)
  level = (level or 1) + 1
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
      error(("%s: takes %d positional value%s, got one at position %s"):format(who, #(spec.positions or {}),
        #(spec.positions or {}) == 1 and "" or "s", tostring(key)), level)
    end
    if spec[name] == nil then
      local near = options.nearest(name, names)
      error(("%s: unknown field \"%s\"%s"):format(who, name, near and (", did you mean \"" .. near .. "\"?")
        or ("; it takes " .. table.concat(names, ", "))), level)
    end
    out[name] = value
  end
  return out
end

--- A list, a name or a set (name = true) as a list of names, sorted; nil stays nil. Things with a name stand for it.
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

--- Marks a field without a default.
options.none = setmetatable({}, { __tostring = function() return "none" end })

return options
