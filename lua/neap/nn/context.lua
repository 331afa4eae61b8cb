--- The build under way: the net that modules add to, and what is known while it is built.
--
-- A build is a plain table: { net, root, tree = that of root, train,
--   running = {modules whose forward runs, outermost first},
--   blobs = {storage record = its blob in the net}, masked = {net = {storage record = what is left
--   of a pruned one}}, watched = {what m:on "backward" waits for},
--   trace = list for m:summary or nil, claimed = {net = {position of an op = true}},
--   without = set of paths or nil, guest = f(record) -> blob of a parameter that is not the net's
--   own, or nil; depth = how many builds wait for this one, counted with itself }.
--
-- INVARIANT: a coroutine builds one net at a time, `context.building()`; leaving a build brings the
-- one around it back, also when a forward has raised.
-- @module neap.nn.context
local naming = require "neap.net.naming"
local net_module = require "neap.net"
local tree = require "neap.nn.tree"

--- The builds by the coroutine that builds. Weak, since a forward may yield and never be resumed.
local context, builds = {}, setmetatable({}, { __mode = "k" })

--- The build that this code is part of, or nil: its coroutine's, else that of a coroutine which
-- waits for this one.
function context.building()
  -- The usual case first: calls are frequent, and most coroutines build nothing.
  local found = builds[coroutine.running()]
  if found or next(builds) == nil then return found end

  -- A forward may run inside a coroutine of its own (an iterator of the user's, say). The
  -- coroutines that wait for this one have the status "normal", and of their builds the one entered
  -- last is the innermost: its depth is greatest.
  for thread, build in pairs(builds) do
    if coroutine.status(thread) == "normal" and (found == nil or build.depth > found.depth) then
      found = build
    end
  end
  return found
end

--- Makes `build` the one of this coroutine. @return leave(): the one before is again
function context.enter(build)
  local thread = coroutine.running()
  local outer, around = builds[thread], context.building()
  build.depth = around and around.depth + 1 or 1
  builds[thread] = build
  return function() builds[thread] = outer end
end

--- A build of `net` from modules of the tree of `root`; nothing has run yet.
-- @param o table {train =, traced =, without = set of paths with dots, guest = f}
function context.new(net, root, o)
  return {
    net = net,
    root = root,
    tree = tree.of(root),
    running = {},
    blobs = {},
    train = o.train,
    without = o.without,
    guest = o.guest,
    watched = {},
    claimed = {},
    masked = {},
    trace = o.traced and {} or nil,
  }
end

--- Calls f(build) with a fresh net as the one being built, of modules of the tree of `root`. When
-- it raises, the modules are as they were.
-- @param o table as context.new takes it
-- @return the build
function context.build(name, root, o, f)
  local build = context.new(net_module.new(name), root, o)

  -- Leaving is tied to the scope, so that a forward that raises leaves no build behind it.
  local leave = context.enter(build)
  local _ <close> = setmetatable({}, { __close = leave })
  tree.attempt(root, naming.inside, build.net, f, build)

  -- All modules have their places and widths now, so that eager calls need no way back any more.
  rawset(root, "_met", true)
  return build
end

return context
