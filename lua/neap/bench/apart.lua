--- One measurement in a process of its own: this program is started with the words of a command
-- line that prints JSON, so that its peak of resident bytes is that of one net, and what ends it
-- ends nobody else.
-- @module neap.bench.apart
local core = require "neap.core"

local function quote(text) return "'" .. text:gsub("'", "'\\''") .. "'" end

--- JSON knows no integers: numbers that are whole are made so again, at any depth.
local function with_integers(value)
  if type(value) == "number" then return math.tointeger(value) or value end
  if type(value) ~= "table" then return value end
  for key, item in pairs(value) do value[key] = with_integers(item) end
  return value
end

--- Runs `program` and gives what it prints.
-- @param program path of neap
-- @param words string[] of its command line
-- @return what its JSON says, and its exit code; nil and the reason where it ended without having
--   printed JSON. Raises `interrupted` where the user has ended it.
return function(program, words)
  local command = { quote(program) }
  for i, word in ipairs(words) do command[i + 1] = quote(word) end
  local pipe = assert(io.popen(table.concat(command, " ")))
  local text = pipe:read "a"
  local _, how, code = pipe:close()

  -- 130 is what a process leaves that Ctrl-C has ended; the terminal sends it to this one, too.
  if code == 130 then
    error(core.error { code = "interrupted", message = "interrupted" }, 0)
  end
  -- A shell between the two says 128 more than the signal's number.
  if how == "signal" or code > 128 then
    return nil, ("ended by signal %d"):format(how == "signal" and code or code - 128)
  end
  local good, value = pcall(require("cjson").decode, text)
  if not good then return nil, "ended without a result" end
  return with_integers(value), code
end
