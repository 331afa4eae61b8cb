--- Values as text for the prompt: tables as Lua writes them, nets as they are written, Neap's parts
-- by what help says of them, functions by their names, everything else as it prints itself.
-- @module neap.repl.show
local core = require "neap.core"
local show = {}

--- Items of one table that are shown, levels of tables within tables, and columns of a line.
local most_items, most_depth, width = 40, 4, 100

--- Lines of a net's text that are shown.
local most_lines = 30

local function is_word(key) return type(key) == "string" and key:match "^[%a_][%w_]*$" ~= nil end

--- Positions first, then names in order, then the rest by its text.
local function sorted_keys(t)
  local keys = {}
  for key in pairs(t) do keys[#keys + 1] = key end
  table.sort(keys, function(a, b)
    if type(a) == "number" and type(b) == "number" then return a < b end
    if type(a) == "number" or type(b) == "number" then return type(a) == "number" end
    return tostring(a) < tostring(b)
  end)
  return keys
end

--- A value inside a table, on one line: of what prints itself over several the last, where tensors
-- say what they are; of a model the first.
local function inner_text(value)
  if type(value) == "string" then return ("%q"):format(value):gsub("\\\n", "\\n") end
  if math.type(value) == "float" then return ("%.7g"):format(value) end
  local name = type(value) == "function" and core.function_name(value)
  if name then return "function " .. name end
  local text = tostring(value)
  if type(value) == "table" and rawget(value, "_is_module") then return text:match "[^\n]*" end
  return text:match "([^\n]*)%s*$"
end

local text_of

local function table_text(t, depth, seen)
  if seen[t] then return "{..}" end
  if depth > most_depth then return "{ .. }" end
  seen[t] = true
  local parts, n = {}, 0
  local length = #t

  -- Positions stand without a name, all else as a constructor would have it.
  for _, key in ipairs(sorted_keys(t)) do
    n = n + 1
    if n <= most_items then
      local value = text_of(t[key], depth + 1, seen)
      local is_item = math.type(key) == "integer" and key >= 1 and key <= length
      parts[#parts + 1] = is_item and value
        or (is_word(key) and key or "[" .. inner_text(key) .. "]") .. " = " .. value
    end
  end
  if n > most_items then parts[#parts + 1] = (".. %d more"):format(n - most_items) end
  seen[t] = nil
  if n == 0 then return "{}" end

  -- One line where it fits, else one item a line.
  local line = "{ " .. table.concat(parts, ", ") .. " }"
  if #line + 2 * depth <= width and not line:find "\n" then return line end
  local indent = ("  "):rep(depth + 1)
  return "{\n" .. indent .. table.concat(parts, ",\n" .. indent) .. "\n" .. ("  "):rep(depth) .. "}"
end

function text_of(value, depth, seen)
  local meta = type(value) == "table" and getmetatable(value)
  if type(value) == "table" and not (type(meta) == "table" and meta.__tostring) then
    return table_text(value, depth, seen)
  end
  return inner_text(value)
end

--- A net's text, cut where it is long.
local function net_text(net)
  local lines = { tostring(net) }
  for line in net:text():gmatch "[^\n]+" do lines[#lines + 1] = "  " .. line end
  table.remove(lines, 2) -- "net NAME"
  if #lines > most_lines then
    lines[most_lines + 1] = ("  .. %d more lines: print(net:text())"):format(#lines - most_lines)
  end
  return table.concat(lines, "\n", 1, math.min(#lines, most_lines + 1))
end

--- Whether a table is one of Neap's parts, such as neap.data.
local function is_part(value)
  for name, loaded in pairs(package.loaded) do
    if rawequal(loaded, value) then return name == "neap" or name:find "^neap%." ~= nil end
  end
  return false
end

--- The text of one value at the prompt.
-- @return string
function show.text(value)
  if (debug.getmetatable(value) or {}).__name == "neap.net" then return net_text(value) end
  if type(value) == "table" and is_part(value) then
    return tostring(require("neap").help(value))
  end
  if type(value) == "table" then
    local meta = getmetatable(value)
    if not (type(meta) == "table" and meta.__tostring) then return table_text(value, 0, {}) end
  end
  if type(value) == "string" or type(value) == "function" then return (inner_text(value)) end
  return tostring(value)
end

return show
