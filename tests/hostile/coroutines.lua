-- Coroutines, hooks, errors and yields across everything of Neap's that calls a user's function: an
-- error comes out as it went in, what was under way is as before, and the engine works afterwards.
local neap = require "neap"
local core = require "neap.core"
local nets = dofile "tests/hostile/nets.lua"

local function fails(f, ...)
  local ok, err = pcall(f, ...)
  assert(not ok, "an error was swallowed")
  return err
end

-- A net that is built in a coroutine which dies, at each of its steps; built on by others; and by
-- several at a time.
do
  local function build(net, stop)
    local at = 0
    local function step()
      at = at + 1
      if at == stop then coroutine.yield() end
      if at == -stop then error "stopped" end
    end
    net:scope("a", function()
      step()
      local x = net:input("x", { 2, 3 })
      step()
      net:scope("b", function()
        step()
        local y = net:FC({ x, net:param("w", { 4, 3 }, { "Xavier" }) }, "y")
        step()
        net:outputs { y:relu() }
      end)
    end)
    step()
  end
  for stop = -5, 5 do
    local net = neap.net "dies"
    local co = coroutine.create(build)
    coroutine.resume(co, net, stop)
    if stop % 2 == 0 then coroutine.close(co) end
    co = nil -- luacheck: ignore 311
    collectgarbage()
    assert(type(net:text()) == "string")
    net:input("z" .. stop + 5, { 1 })
  end
  local built, threads = {}, {}
  for i = 1, 4 do
    built[i] = neap.net("n" .. i)
    threads[i] = coroutine.wrap(function()
      build(built[i], 2)
      return true
    end)
  end
  for _ = 1, 2 do for i = 1, 4 do threads[i]() end end
  for i = 2, 4 do
    assert(
      built[i]:text():gsub("n" .. i, "n1"):gsub(":%d+", "") == built[1]:text():gsub(":%d+", ""))
  end
end

-- Runs in coroutines, taking turns; one that is closed between two runs; one that dies of an error
-- with everything open.
do
  local net = nets.small "turns"
  local function work(n)
    local ws <close> = neap.workspace { seed = 1, store = false }
    ws:feed("x", neap.ones(2, 3))
    ws:init(net)
    local program <close> = ws:compile(net, { store = false })
    local sum = 0
    for _ = 1, n do
      program:run()
      sum = sum + ws:fetch "loss":item()
      coroutine.yield(sum)
    end
    error { sum = sum }
  end
  local threads = {}
  for i = 1, 3 do threads[i] = coroutine.create(work) end
  for _ = 1, 3 do for i = 1, 3 do assert(coroutine.resume(threads[i], 3)) end end
  local ok, err = coroutine.resume(threads[1])
  assert(not ok and err.sum)
  assert(coroutine.close(threads[2]))
  threads = nil -- luacheck: ignore 311
  for _ = 1, 3 do collectgarbage() end
end

-- Yields and errors across C: apply_, map_, fit_batch. The error object itself comes out; a yield
-- is a clear error.
do
  local x, mark = neap.ones(5), { "mark" }
  assert(fails(x.apply_, x, function() error(mark) end) == mark)
  assert(fails(x.map_, x, x, function() error(mark) end) == mark)
  assert(fails(core.fit_batch, function() error(mark) end, 4) == mark)
  for _, f in ipairs {
    function() x:apply_(coroutine.yield) end, function() x:map_(x, coroutine.yield) end,
    function() core.fit_batch(coroutine.yield, 4) end,
  } do
    local ok, err = coroutine.resume(coroutine.create(f))
    assert(not ok and tostring(err):find "yield across a C%-call boundary", tostring(err))
  end
  assert(x:equal(neap.ones(5)))
  -- What they work on is closed, collected, or given to themselves again.
  local close = debug.getmetatable(x).__gc
  local function closed(f)
    local t = neap.ones(4)
    local ok, err = pcall(f, t)
    assert(not ok and tostring(err):find "closed", tostring(err))
  end
  closed(function(t) t:apply_(function() close(t) end) end)
  closed(function(t) t:map_(t, function() close(t) end) end)
  closed(function(t) neap.ones(4):map_(t, function() close(t) end) end)
  closed(function(t)
    t:apply_(function()
      local _ <close> = t
      return 1
    end)
  end)
  local depth = 0
  local function again()
    depth = depth + 1
    collectgarbage()
    if depth < 30 then x:apply_(again) end
    return 2
  end
  x:apply_(again)
  assert(x:equal(neap.full { 5, value = 2 }))
  local function without_end() return x:apply_(without_end) end
  assert(tostring(fails(without_end)):find "stack overflow", tostring(fails(without_end)))
  -- Contents from proxies, which may close what they go to.
  local ws = neap.workspace { seed = 1, store = false }
  local function proxy(evil)
    return setmetatable({}, {
      __len = function() return 2 end, __index = function(_, i) evil() return i end,
    })
  end
  closed(function() ws:feed("q", proxy(function() close(ws) end)) ws:has "q" end)
  closed(function(t)
    t[{ { 1, 2 } }] = proxy(function() close(t) end)
    t:sum()
  end)
  assert(fails(neap.tensor, proxy(function() error(mark) end)) == mark)
  assert(neap.tensor(proxy(function() end)):equal(neap.tensor { 1, 2 }))
  -- The nets of a search.
  local net = nets.small "fit"
  local n = 0
  pcall(core.fit_batch, function(rows)
    n = n + 1
    local answer = net
    if n > 2 then close(net) end
    collectgarbage()
    return answer, { inputs = { x = { rows, 3 } } }
  end, 64)
  assert(n > 2)
end

-- Hooks that raise, yield, run and collect, on every call and line.
do
  local net = nets.small "hooked"
  local ws = neap.workspace { seed = 1, store = false }
  ws:feed("x", neap.ones(2, 3))
  ws:init(net)
  local program = ws:compile(net, { store = false })
  program:run()
  local want = ws:fetch "loss":item()
  local function use()
    local t = neap.tensor { 1, 2, 3 }
    t:apply_(function(v) return v + 1 end)
    core.memonger.share(net, {}, { heads = { "loss" } })
    core.fit_batch(function(n) return net, { inputs = { x = { n, 3 } } } end, 4)
    program:run()
    return net:plan { store = false }:ops()
  end
  for at = 1, 60 do
    local n = 0
    local ok, err = pcall(function()
      debug.sethook(function()
        n = n + 1
        if n == at * 7 then error("hook", 0) end
      end, "crl")
      use()
      debug.sethook() -- in here, where the hook may still raise
    end)
    debug.sethook()
    assert(ok or tostring(err):find "hook", tostring(err))
  end
  local inside = false
  debug.sethook(function()
    if inside then return end
    inside = true
    pcall(function()
      program:run()
      collectgarbage "step"
      net:_ops()
    end)
    inside = false
  end, "c")
  use()
  debug.sethook()
  program:run()
  assert(ws:fetch "loss":item() == want)
end

-- Callbacks of a trainer, and losses of one's own, that raise, yield, run the same trainer, or
-- close it.
do
  local nn = neap.nn
  local function trainer(loss)
    return neap.trainer {
      model = nn.Linear { 3, 2 },
      loss = loss or nn.CrossEntropyLoss {},
      optimizer = neap.optim.SGD { lr = 0.1 },
    }
  end
  local batch = { x = neap.ones(4, 3), y = neap.zeros { 4, dtype = "i64" } }
  local mark = { "mark" }
  local t = trainer()
  t:step(batch)
  local data = neap.data.tensors(batch)
  for _, evil in ipairs {
    function() error(mark) end, function() coroutine.yield() end, function() t:step(batch) end,
    function() t:close() end,
    function() collectgarbage() end,
  } do
    t = trainer()
    t:step(batch)
    local co = coroutine.create(function()
      t:fit(data, { epochs = 1, verbose = 0, on_step = evil, on_epoch = evil })
    end)
    coroutine.resume(co)
    coroutine.close(co)
    collectgarbage()
  end
  local function own(evil)
    return function(out, y)
      evil()
      return nn.CrossEntropyLoss {}(out, y)
    end
  end
  for _, evil in ipairs {
    function() error(mark) end, function() collectgarbage() end,
    function() trainer():step(batch) end,
  } do
    pcall(function() trainer(own(evil)):step(batch) end)
  end
  local last = trainer()
  assert(last:step(batch))
end

assert((neap.ones(2) * neap.tensor { 2, 4 }):equal(neap.tensor { 2, 4 }))
print "held"
