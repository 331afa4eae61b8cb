--- Files as Lua has them: whether one is there, and all that is in it.
-- @module neap.inner.files
local files = {}

function files.exists(path)
  local file = io.open(path, "rb")
  if file then file:close() end
  return file ~= nil
end

--- The bytes of a file; nil and a message that names it.
function files.read(path)
  local file, message = io.open(path, "rb")
  if not file then return nil, message end
  local text, why = file:read "a"
  file:close()
  return text, why and path .. ": " .. why
end

return files
