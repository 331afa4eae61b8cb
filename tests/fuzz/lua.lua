-- What fuzz_lua.c makes of bytes: a few calls of Neap's surface, whose tables have metamethods and
-- whose functions are callbacks that do what they must not: raise, yield, close, collect or change
-- what is at work, call again. Each call may run in a coroutine that is abandoned, and with an
-- allocation refused. `folder` is there to be written to.
--
-- Returns try(bytes) -> bytes of tensors that are held when all has been collected. Objects are
-- made when they are first asked for, so that an input costs what it uses. Collection happens where
-- the bytes say so: the same bytes do the same.
local folder = ...
local neap = require "neap"
local core = require "neap.core"
local nets = dofile "tests/hostile/nets.lua"
local nn, optim, memonger = neap.nn, neap.optim, neap.memonger

local most_calls, most_evils = 8, 60

-- ---- decisions ----------------------------------------------------------------------------------

local bytes, at, n_evil, depth

local function byte()
  at = at + 1
  return bytes:byte(at) or 0
end
local function below(n) return byte() % n + 1 end
local function pick(list) return list[below(#list)] end

-- ---- objects ------------------------------------------------------------------------------------

local function learning_net()
  local net = neap.net "learn"
  local h = net:FC({ net:input("x", { 4, 3 }), net:param("w", { 3, 3 }, { "Xavier" }) }, "y"):relu()
  local loss = net:SoftmaxCrossEntropy({ h, net:input("t", { 4 }, "i64") }, "loss")
  optim.SGD { lr = 0.1, momentum = 0.9 }:apply(net, net:gradient(loss))
  net:outputs { loss }
  return net
end

local S -- what calls and callbacks work on
local make = {
  net = function() return nets.small "f" end,
  learn = learning_net,
  ws = function()
    local ws = neap.workspace { seed = 1, store = false }
    ws:feed("x", neap.ones(2, 3))
    ws:feed("text", "hello")
    return ws
  end,
  child = function() return S.ws:child { forward = { q = "x" } } end,
  program = function()
    local program = S.ws:compile(S.net, { store = false })
    program:run()
    return program
  end,
  dws = function()
    local ws = neap.workspace { seed = 1, store = false }
    ws:feed("x", neap.ones(2, 3))
    return ws
  end,
  dynamic = function() return S.dws:compile(S.net, { store = false, executor = "dynamic" }) end,
  plan = function() return S.net:plan { store = false } end,
  t = function() return neap.arange(24):view(2, 3, 4) end,
  b = function() return neap.ones { 2, 3, 4, dtype = "bool" } end,
  view = function() return S.ws:init(S.net):view "w" end,
  scope = function() return S.ws:create_scope "s" end,
  cache = function()
    local cache = neap.cache "c"
    for i = 1, 3 do cache:push(neap.ones(3), "l" .. i) end
    return cache
  end,
  range = function() return core.new_range(S.net, {}) end,
  recycle = function() return core.memonger.recycle(S.net, {}, {}) end,
  reader = function()
    return core.batch_reader({ { source = neap.ones(50, 3) } }, { 0, 1, 2, 3, 4, 5 }, { batch = 1 })
  end,
  mark = function() return S.ws:_mark(true, { "x" }) end,
  chain = function()
    local ws = neap.workspace { store = false, seed = 1 }
    ws:feed("x", neap.ones(2, 3))
    return core.new_chain(ws, { nets.layer "a", nets.layer "b" }, 2, {})
  end,
  model = function()
    return nn.Sequential {
      input = { 3 }, seed = 1,
      nn.Linear { 3, 4 }, nn.ReLU(), nn.Dropout { 0.5 }, nn.Linear { 4, 2 },
    }
  end,
  memory = function() return S.model:memory() end,
  trainer = function()
    return neap.trainer {
      model = S.model,
      optimizer = optim.SGD { lr = 0.1, momentum = 0.9 },
      seed = 3,
      memory = { store = false },
    }
  end,
  micro = function()
    local model = nn.Sequential { input = { 3 }, seed = 1, nn.Linear { 3, 2 } }
    return neap.trainer {
      model = model,
      optimizer = optim.SGD { lr = 0.1 },
      seed = 3,
      micro = 2,
      accumulate = 2,
      memory = { store = false },
    }
  end,
  batch = function() return { x = neap.ones(4, 3), y = neap.tensor({ 0, 1, 0, 1 }, "i64") } end,
  data = function()
    return neap.data.tensors {
      x = neap.ones(6, 3), y = neap.zeros { 6, dtype = "i64" }, batch = 2, seed = 1,
    }
  end,
}
local kinds = {}
for kind in pairs(make) do kinds[#kinds + 1] = kind end
table.sort(kinds)

local function renew()
  S = setmetatable({}, { __index = function(t, kind)
    local f = make[kind]
    if f == nil then return nil end
    local object = f()
    rawset(t, kind, object)
    return object
  end })
end

-- ---- what callbacks and metamethods do ----------------------------------------------------------

local close = debug.getmetatable(neap.ones(1)).__gc
local calls -- below

local function call_again()
  if depth > 3 then return end
  depth = depth + 1
  pcall(pick(calls))
  depth = depth - 1
end

local evils = {
  function() error { "a table" } end,
  function() error "a string" end,
  function() error(nil) end,
  function() coroutine.yield(1) end,
  function() collectgarbage() end,
  function() close(S[pick(kinds)]) end,
  function()
    local kind = pick(kinds)
    pcall(close, rawget(S, kind))
    S[kind] = nil
  end,
  function() S[pick(kinds)] = nil end,
  function() for _ = 1, below(9) do S.net:Relu "x" end end,
  function() S.ws:remove(pick { "x", "w", "y", "text", "s", "loss" }) end,
  function() S.ws:feed(pick { "x", "w", "n", "text" }, neap.ones(below(5), 3)) end,
  function() S.ws:rename("w", "w2") end,
  function() S.ws:create_scope "s" end,
  function() S.program:run() end,
  function() S.program:close() end,
  function() S.ws:close() end,
  function() S.dws:feed("x", neap.ones(below(4), 3)) S.dynamic:run() end,
  function() S.trainer:step(S.batch) end,
  function() S.chain:forward(below(2) == 1) end,
  function() S.cache:pop() end,
  function() S.cache:push(S.t, "l") end,
  function() S.scope:_push(S.ws, {}) end,
  function() S.scope:clear() end,
  function() S.t:fill_(below(9)) end,
  function() return tostring(S[pick(kinds)]) end,
  function() call_again() end,
  function()
    setmetatable({}, { __gc = function() pcall(close, rawget(S, "ws")) end })
    collectgarbage()
  end,
  function()
    local _ <close> = setmetatable({}, { __close = function() error "in closing" end })
    coroutine.yield()
  end,
  function() core.fail_nth(below(40)) end,
}

local scalars = {
  0, 1, 2, 3, 4, -1, -2, 0.5, 1e300, -1e300, 0 / 0, 1 / 0, 2 ^ 53, math.maxinteger, math.mininteger,
  true, false, "", "x", "y", "w",
  "f32", "i64", "loss", "Relu", "none", "dag", "dynamic", "pool", "8MiB", "60%", "\0", "1e400",
  "a b",
}

--- One evil, at most so many; then an answer.
local function evil()
  n_evil = n_evil + 1
  if n_evil > most_evils then error "enough" end
  if below(3) > 1 then pick(evils)() end
  return pick(scalars)
end

local events = {
  "__index", "__newindex", "__len", "__pairs", "__eq", "__lt", "__le", "__concat", "__call",
  "__add", "__unm", "__close", "__tostring",
  "__name", "__gc", "__mode",
}

--- A table of these contents, some of whose metamethods are evil.
local function hostile(content)
  local meta, first = {}, below(#events)
  for i = 0, below(5) do meta[events[(first + i * 3) % #events + 1]] = evil end
  if meta.__gc then meta.__gc = function() pcall(evil) end end
  if meta.__mode then meta.__mode = "k" end
  return setmetatable(content, meta)
end

--- Empty itself; what it is asked for is in `content`, and asking is evil.
local function proxy(content)
  local function asked(_, key)
    evil()
    return content[key]
  end
  return setmetatable({}, {
    __index = asked,
    __len = function() evil() return #content end,
    __pairs = function() evil() return next, content end,
  })
end

local function odd() return below(4) == 1 and S[pick(kinds)] or pick(scalars) end

local function keys_of(t)
  local keys = {}
  for key in pairs(t) do keys[#keys + 1] = key end
  table.sort(keys, function(a, b) return tostring(a) < tostring(b) end)
  return keys
end

--- An argument: the right one mostly; else what a program might have made of it.
local function a(right)
  local how = byte()
  if how < 150 then return right end
  if type(right) == "function" then
    if how < 230 then return evil end
    return function(...)
      pcall(evil)
      return right(...)
    end
  end
  if type(right) ~= "table" then
    return how < 220 and odd() or how < 240 and hostile { right } or evil
  end
  if how >= 235 then return odd() end
  local copy = {}
  for key, value in pairs(right) do copy[key] = value end
  if how < 180 then return hostile(copy) end
  if how < 195 then return proxy(copy) end
  local keys = keys_of(copy)
  local key = #keys > 0 and pick(keys) or "x"
  if how < 205 then
    copy[odd() or 1] = odd() -- a field more
  elseif how < 215 then
    copy[key] = nil
  elseif how < 225 then
    copy[key] = odd()
  else
    copy[key] = type(copy[key]) == "table" and hostile(copy[key]) or hostile {}
  end
  return copy
end

--- A function, which the bytes may make evil.
local function callback(f) return a(f) end

-- ---- calls --------------------------------------------------------------------------------------

local one = function(x) return x end

calls = {
  function() return neap.workspace(a { seed = 1, store = false, budget = "1MiB" }) end,
  function()
    return neap.workspace(a { parent = S.ws, forward = a { "x", q = "text" }, store = false })
  end,
  function() return S.ws:child(a { forward = a { q = "x" } }) end,
  function() return S.ws:feed(a "x", a { { 1, 2, 3 }, { 4, 5, 6 } }) end,
  function() return S.ws:feed("shared", S.t, a { share = true }) end,
  function()
    return S.ws:run(S.net, a { x = a(neap.ones(2, 3)) }, a { store = false, keep = a { "y" } })
  end,
  function() return S.ws:run(a(S.net), a { x = a { { 1, 2, 3 }, { 4, 5, 6 } } }) end,
  function()
    return S.ws:compile(S.net, a {
      store = false,
      budget = "1MiB",
      executor = "dag",
      banks = a { a(neap.bank { "fast", bytes = 4096 }) },
    })
  end,
  function()
    return S.ws:compile(S.net, a { store = false, mem_param = a { exclude_blob = a { "y" } } })
  end,
  function() return S.ws:compile_within(S.net, a(S.range), a { store = false }) end,
  function()
    return S.ws:assign(a { "x" }, a(neap.bank { "fast", bytes = 4096 }), a { async = true })
  end,
  function() return S.ws:run_op("Relu", a { "x" }, a { "z" }, a {}) end,
  function()
    return S.ws:run_op("Split", a { "x" }, a { "p", "q" }, a { axis = 2, sizes = a { 1, 2 } })
  end,
  function()
    return S.ws:run_steps(a { a { S.net, iterations = 2 }, a { S.net, create_workspace = true } },
      a { store = false })
  end,
  function() return S.ws:run_once(a(S.net), a { store = false }) end,
  function() return S.ws:rename(a "x", a "other"), S.ws:remove(a "text") end,
  function()
    return S.ws:save(folder .. "/w.safetensors", a { note = "text" }),
      S.ws:load(folder .. "/w.safetensors", a {})
  end,
  function()
    return S.net:plan(a { store = false, x = a { 5, 3 }, policy = "name", keep = a { "y" } })
  end,
  function()
    return S.net:plan(a { store = false, inputs = a { x = a { 5, 3 } }, total = "1MiB" })
  end,
  function() return S.net:expand(a { x = a { 5, 3 } }), S.net:infer(a { x = a { 5, 3 } }) end,
  function()
    return S.net:dry_run(a {
      store = false, mem_param = a { exclude_blob = a { "y", "loss.diff" } },
    })
  end,
  function() return S.net:_count(a { store = false }) end,
  function() return S.net:rename(a { x = "z" }) end,
  function() return S.net:gradient(a "loss", a { wrt = a { "w" } }) end,
  function() return S.net:op("FC", a { "x", "w" }, a { "fresh" }, a {}) end,
  function()
    return S.net:param(a "p", a { 2, 3 }, a { "Gaussian", std = 0.5 }, a { trainable = true })
  end,
  function() return S.net:const(a { { 1, 2 }, { 3, 4 } }, a "f32") end,
  function() return S.net:outputs(a { "loss", "y" }), S.net:keep(a "y") end,
  function() return S.net:scope(a "inner", callback(function() return S.net:Relu "x" end)) end,
  function() return S.net:device(a "cpu:1", callback(function() return S.net:Relu "x" end)) end,
  function()
    return S.net:If(S.net:input("c", {}, "bool"), callback(function(n) return n:Relu "x" end),
      callback(function(n) return n:Neg "x" end))
  end,
  function()
    return S.net:While(a {
      init = a { "x" }, max = 3, cond = callback(function(_, x) return x:sum():lt(3) end),
      body = callback(function(_, x) return x + 1 end),
    })
  end,
  function()
    return S.net:Recurrent(a {
      seq = a { "x" }, init = a { 0 }, step = callback(function(_, h, x) return h + x:sum(), h end),
    })
  end,
  function() return S.learn:split_micro() end,
  function() return neap.net_from(S.net:text()), S.net:clone(), S.net:hash(a {}) end,
  function() return neap.tensor(a { a { 1, 2 }, a { 3, 4 } }, a "f64") end,
  function() return neap.zeros(a { 2, 3, dtype = "i64" }), neap.full(a { 2, value = 3 }) end,
  function() return S.t:apply_(callback(one)) end,
  function() return S.t:map_(a(S.t), callback(one)) end,
  function() return S.t[a { a { 1, 2 }, a {}, -1 }] end,
  function() S.t[a { 1, a { 1, 2 } }] = a { { 1, 2, 3, 4 }, { 5, 6, 7, 8 } } end,
  function() S.t[a(S.b)] = a(neap.ones(24)) end,
  function()
    return S.t:sum(a { axes = a { 1, 2 }, keepdim = true }), S.t:permute(a { 3, 1, 2 })
  end,
  function() return S.t:softmax(a { axis = 2 }), S.t + a(S.t), S.t * a(2) end,
  function() return neap.concat and neap.concat(a { S.t, S.t }, a { axis = 1 }) end,
  function() return S.t:close(a(S.t), a { rtol = 1 }), S.view:clone() end,
  function()
    return neap.fit_batch(a(S.model), a {
      total = "1MiB", max = 8, train = true, loss = nn.CrossEntropyLoss(),
    })
  end,
  function()
    return core.fit_batch(callback(function(n) return S.net, { inputs = { x = { n, 3 } } } end),
      a(4))
  end,
  function()
    return S.trainer:step(a { x = a(neap.ones(4, 3)), y = a(neap.tensor({ 0, 1, 0, 1 }, "i64")) })
  end,
  function()
    return S.trainer:fit(a(S.data), a {
      epochs = 1, verbose = 0, on_step = callback(one), on_epoch = callback(one),
    })
  end,
  function() return S.micro:step(a(S.batch)), S.micro:evaluate(a(S.data)) end,
  function()
    return neap.trainer(a {
      model = S.model, optimizer = optim.Adam(a { lr = 0.1, weight_decay = 0.1 }),
      memory = a { store = false },
      metrics = a { most = callback(function(y) return y:sum() end) }, schedule = callback(one),
      seed = 1,
    }):step(S.batch)
  end,
  function()
    return neap.trainer {
      model = S.model, loss = callback(function(y, t) return nn.CrossEntropyLoss()(y, t) end),
      optimizer = optim.SGD { lr = 1 },
      memory = { store = false },
    }:step(a(S.batch))
  end,
  function()
    return S.trainer:step(S.batch), S.trainer:save(folder .. "/t.safetensors"),
      S.trainer:load(folder .. "/t.safetensors")
  end,
  function() return neap.export(S.model, folder .. "/m.safetensors", a { batch = 2 }) end,
  function()
    assert(neap.export(S.model, folder .. "/m.safetensors"))
    return assert(neap.import(folder .. "/m.safetensors", a {}))(a(neap.ones(2, 3)))
  end,
  function()
    return neap.save(folder .. "/a.safetensors", a { p = a(S.t) }, a { meta = a { k = "v" } })
  end,
  function() return neap.load(folder .. "/a.safetensors", a { map = "r" }) end,
  function()
    return nn.Sequential(a {
      input = a { 3 }, nn.Linear(a { 3, 4 }), callback(nn.ReLU()),
    })(a(neap.ones(2, 3)))
  end,
  function() return nn.Lambda(callback(function(x) return x:relu() end))(a(neap.ones(2, 3))) end,
  function() S.model:on("*", "forward", callback(one)) return S.model:forward(neap.ones(2, 3)) end,
  function() return S.model:load_state_dict(a(S.model:state_dict()), a { strict = false }) end,
  function() return S.model:net(a { batch = 2, train = true, loss = nn.CrossEntropyLoss() }) end,
  function() return S.memory:forward(a(neap.ones(5, 3))), S.memory:backward(a(neap.ones(5, 2))) end,
  function() return S.chain:forward(a(true)), S.chain:item(a "params", a(1)) end,
  function()
    return S.cache:push(a(S.t), a "l"), S.cache:pop(a { label = "l", shape = a { 2, 3, 4 } })
  end,
  function()
    return S.scope:_push(S.ws, a { a = "x" }), S.scope:_reuse_last(S.ws, a { a = "x" })
  end,
  function()
    return core.run_micro(S.ws, a { x = neap.ones(2, 3) },
      a { a { program = S.program, n = 2, weight = 1 } }, S.program)
  end,
  function()
    local function get(_, slot)
      slot.x:fill_(1)
      slot.y:fill_(0)
    end
    return neap.data.from(a {
      n = 4, batch = 2, x = a { 3 }, y = a { dtype = "i64" }, get = callback(get),
    }):epoch(1)()
  end,
  function()
    return neap.data.tensors(a {
      x = a(neap.ones(6, 3)), batch = 2, shuffle = true, seed = 1, map = callback(one),
    }):epoch(1)()
  end,
  function()
    return S.reader:next(),
      core.batch_reader(a { a { source = S.t, dtype = a "f64" } }, a { 0, 1 }, a { batch = 1 })
  end,
  function()
    return memonger.share_grad_blobs(S.net, a { "loss" }, a { w_grad = true }, a "scope", a {})
  end,
  function() return memonger.optimize_inference_net(S.net, a { "x" }) end,
  function()
    return memonger.compute_blob_recycling_for_dag(S.net, a { "x" }, a { 1, 2 }, a { "y" }, "s",
      a { "loss" }, a { x = a { 2, 3 } })
  end,
  function()
    return memonger.optimize_net(S.net, a { dont_share = a { "y" }, shapes = a { x = a { 2, 3 } } })
  end,
  function()
    return memonger.optimize_interference(S.net, a { "x" },
      callback(memonger.topological_sort_traversal), a { y = 4 })
  end,
  function()
    return memonger.verify_assignments(a(memonger.compute_ranges(S.net, a { x = a { 2, 3 } })),
      S.net)
  end,
  function() return memonger.apply_assignments(S.net, a { a { "y" } }) end,
  function()
    return memonger.estimate_memory_usage(a { S.net, S.net }, a { x = a { 2, 3 } }, a "cpu")
  end,
  function()
    return memonger.release_blobs_when_used(S.net, a { "y" }, callback(function() return true end))
  end,
  function() return core.memonger.assign(a { a { bytes = 64, defined = 1, used = 2 } }, a {}) end,
  function() return core.memonger.reorder(S.net, a { 1, 2, 3, 4 }) end,
  function() return neap.with(a { seed = 1 }, callback(one)) end,
  function()
    return core.error(a { code = "name", message = "no" }), core.nearest("wrod", a { "word" })
  end,
}

-- ---- trying -------------------------------------------------------------------------------------

-- Made once: it runs after every input as before.
local calm_ws, calm_net = neap.workspace { seed = 1, store = false }, nets.small "calm"
calm_ws:feed("x", neap.ones(2, 3))
local calm = calm_ws:compile(calm_net, { store = false })
calm:run()
local calm_loss = calm_ws:fetch "loss":item()

local function is_text(err)
  local ok, text = pcall(tostring, err)
  return ok and type(text) == "string"
end

--- One call, as the bytes say: straight, or in a coroutine that is resumed some times, closed or
-- forgotten.
local function run_one()
  local how, call = byte(), pick(calls)
  if how % 16 == 15 then core.fail_nth(1 + byte() + (how // 16) * 40) end
  if how // 16 < 10 then
    local ok, err = pcall(call)
    core.fail_nth(0)
    assert(ok or is_text(err) or getmetatable(err) == nil or getmetatable(err).__tostring == evil,
      "an error without words")
    return
  end
  local co = coroutine.create(call)
  for _ = 1, how // 16 - 9 do
    if coroutine.status(co) == "suspended" then coroutine.resume(co) end
  end
  core.fail_nth(0)
  if how % 2 == 0 then pcall(coroutine.close, co) end
end

local function settle()
  for _ = 1, 4 do collectgarbage() end
  return neap.memory().held
end

return function(given)
  bytes, at, n_evil, depth = given, 0, 0, 0
  collectgarbage "stop"
  renew()
  for _ = 1, most_calls do
    if at >= #bytes then break end
    run_one()
  end
  n_evil = most_evils -- finalisers from here on raise
  S = nil
  local held = settle()
  calm:run()
  assert(calm_ws:fetch "loss":item() == calm_loss, "a net of its own gives another loss")
  return held
end
