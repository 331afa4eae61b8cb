--- The zoo: nets that come with Neap, each a function that builds its model.
--
-- `neap.zoo.NAME { classes = .. }` gives the model, untrained, and the table of its net file: what
-- else `neap plan NAME` and `neap bench NAME` use (loss, optimizer, batch). A file NAME.lua in the
-- folder $NEAP_NETS is a net of the zoo too, and comes first. `neap.zoo.names()` lists those that
-- are always there.
-- @module neap.zoo
-- @usage local model = neap.zoo.resnet50 { classes = 10 }
-- print(model:forecast { batch = 16, train = true })
local fail = require("neap.core").fail
local guard = require "neap.inner.guard"
local netfile = require "neap.net.file"
local options = require "neap.inner.options"

local zoo = {}

--- Names of the nets, sorted.
-- @return string[]
function zoo.names() return netfile.names() end

--- A table of the same fields that remembers whether anybody has looked at each: what no one reads
-- is an error.
local function watched(given)
  local seen = {}
  return setmetatable({}, {
    __index = function(_, key)
      seen[key] = true
      return given[key]
    end,
    __pairs = function()
      for key in pairs(given) do seen[key] = true end
      return pairs(given)
    end,
  }), seen
end

local function build(name, given)
  if given ~= nil and type(given) ~= "table" then
    fail(("neap.zoo.%s takes a table of options, got a %s"):format(name, type(given)))
  end
  local o, seen = watched(given or {})
  local file = netfile.load(name, nil, o)

  -- A net file may read any option: what it has not looked at is unknown to it.
  for key in pairs(given or {}) do
    if not seen[key] then
      fail(("neap.zoo.%s takes no option \"%s\""):format(name, tostring(key)))
    end
  end
  return file.model or file.net, file
end

-- The functions by name, so that help knows them.
local made = {}

return setmetatable(guard.functions(zoo, "neap.zoo."), {
  __index = function(_, name)
    if type(name) ~= "string" then return nil end
    if not netfile.find(name) then
      local near = options.nearest(name, netfile.names())
      fail(("the zoo has no net \"%s\"%s"):format(
        name,
        near and (", did you mean \"" .. near .. "\"?")
          or "; it has " .. table.concat(netfile.names(), ", ")))
    end
    made[name] = made[name] or guard.functions({ [name] = function(given)
      return build(name, given)
    end }, "neap.zoo.")[name]
    return made[name]
  end,
  __names = function() return netfile.names() end, -- for completion
})
