-- What the tests of scopes share.
local neap = require "neap"

--- Runs a net on fresh bytes, without the database.
local function run(net, feeds, o)
  local ws <close> = neap.workspace {
    store = false, policy = o and o.policy, executor = o and o.executor,
  }
  return ws:run(net, feeds)
end

local feeds = { a = neap.tensor { 1, 2 }, b = neap.tensor { 3, 4 } }

return { run = run, feeds = feeds }
