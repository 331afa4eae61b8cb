-- Finalisers that do their worst in the midst of C's work: the collector is set so that every
-- allocation of Lua's is a whole cycle, and each cycle may close, change, run or collect what the
-- call at hand works on. NEAP_FUZZ_SEED, NEAP_FUZZ_ROUNDS.
local neap = require "neap"
local core = require "neap.core"
local nets = dofile "tests/hostile/nets.lua"

local seed = math.tointeger(tonumber(os.getenv "NEAP_FUZZ_SEED" or "")) or 1
local rounds = tonumber(os.getenv "NEAP_FUZZ_ROUNDS" or "") or 12

local function random(n)
  seed = (seed * 6364136223846793005 + 1442695040888963407) & 0x7fffffffffffffff
  return (seed >> 33) % n + 1
end

local function pick(list) return list[random(#list)] end

local S -- what calls and finalisers work on
local db, folder = neap.db(os.tmpname()), os.tmpname()
os.remove(folder)
assert(core.make_folder(folder))

local function workspace(net, memory)
  local ws = neap.workspace { seed = 1, store = false }
  ws:feed("x", neap.ones(2, 3))
  ws:init(net)
  local program = ws:compile(net, memory)
  program:run()
  return ws, program
end

local function renew()
  S = { net = nets.small "f", dnet = nets.small "d", db = db }
  S.ws, S.program = workspace(S.net, { store = false })
  S.dws, S.dprogram = workspace(S.dnet, { store = false, executor = "dynamic" })
  S.ws:feed("text", "hello")
  S.plan, S.pplan, S.dplan = S.net:plan { store = false }, S.program.plan, S.dprogram.plan
  S.t, S.b, S.view = neap.arange(24):view(2, 3, 4), neap.ones { 2, 3, 4, dtype = "bool" },
    S.ws:view "w"
  S.scope, S.cache, S.sub = S.ws:create_scope "s", core.new_cache "c", core.Net._sub(S.net, "inner")
  S.recycle, S.range = core.memonger.recycle(S.net, {}, {}), core.new_range(S.net, {})
  S.reader = core.batch_reader({ { source = neap.ones(50, 3) } }, { 0, 1, 2, 3, 4, 5 }, {})
  S.mark = S.ws:_mark(true, { "x" })
  S.cache:push(neap.ones(3), "l")
  local of_chain = neap.workspace { store = false, seed = 1 }
  of_chain:feed("x", neap.ones(2, 3))
  S.chain = core.new_chain(of_chain, { nets.layer "a", nets.layer "b" }, 2, {})
end

local kinds = {
  "net", "dnet", "ws", "dws", "program", "dprogram", "plan", "pplan", "dplan", "t", "b", "view",
  "scope", "cache", "sub", "recycle", "range",
  "reader", "mark", "chain",
}
local close = debug.getmetatable(neap.ones(1)).__gc

local evils = {
  function() close(S[pick(kinds)]) end,
  function()
    local kind = pick(kinds)
    close(S[kind])
    S[kind] = nil
  end,
  function() S[pick(kinds)] = nil end,
  function() for _ = 1, random(20) do S.net:Relu("x") end end,
  function() S.net:_end_mark(S.net:_mark(), false) end,
  function() S.ws:remove(pick { "x", "w", "y", "text", "s", "loss" }) end,
  function() S.ws:feed("n" .. random(100), neap.ones(random(50))) end,
  function() S.ws:rename("w", "w2") end,
  function() S.ws:create_scope "s" end,
  function() S.ws:_delete_net "f" end,
  function() S.ws:_end_mark(S.mark, false, { "x" }) end,
  function() S.program:run() end,
  function()
    S.dws:feed("x", neap.ones(random(5), 3))
    S.dprogram:run()
  end,
  function() S.program:close() end,
  function() S.ws:close() end,
  function() S.cache:push(neap.ones(3), "l" .. random(9)) end,
  function() S.cache:pop() end,
  function() S.cache:clear() end,
  function() S.scope:_push(S.ws, {}) end,
  function() S.scope:clear() end,
  function() S.reader:next() end,
  function() S.b:fill_(random(2) == 1) end,
  function() return tostring(S.t) end,
  function() -- a coroutine that ends with it
    local co = coroutine.create(function()
      local _ <close> = S.ws
      coroutine.yield()
    end)
    coroutine.resume(co)
    coroutine.close(co)
  end,
}

local on, busy, n_evil = false, false, 0

local function evil()
  if not on or busy then return end
  busy = true
  n_evil = n_evil + 1
  if random(3) == 1 then pcall(pick(evils)) end
  busy = false
end

local function again()
  setmetatable({}, { __gc = function()
    evil()
    if on then again() end
  end })
end

local calls = {
  function() return S.net:_ops() end,
  function() return S.net:_blobs() end,
  function() return S.net:text() end,
  function() return S.net:_dot(0) end,
  function() return S.net:_output_names() end,
  function() return S.net:clone() end,
  function() return S.net:rename { x = "z" } end,
  function() return core.Net._add(S.net, "Relu", { "x" }) end,
  function()
    -- of a copy: the range of the net itself knows no such parameter
    return core.Net._declare(S.net:clone(), "q" .. random(1000), "parameter", { 2, 3 }, "f32",
      { op = "Constant", value = 1 }, true)
  end,
  function() return core.Net._type(S.net, "y") end,
  function() return core.Net._gradient(S.dnet, "loss", { "w" }) end,
  function()
    return core.Net._plan(S.net, { keep = { "y" }, inputs = { x = { 5, 3 } }, budget = "100%" })
  end,
  function() return core.Net._plan(S.net, {}, S.range) end,
  function() return core.Net._graph(S.net, {}, pick { "canonical", "people", "hash", "net" }) end,
  function() return S.net:_count {} end,
  function() return S.net:_blob "x" end,
  function() return core.read_net(S.net:text()) end,
  function() return S.sub:_add("Relu", { "y" }) end,
  function() return S.sub:_type "y" end,
  function() return S.ws:_blobs(true) end,
  function() return S.ws:_svg() end,
  function() return S.ws:feed("x", { { 1, 2, 3 }, { 4, 5, 6 } }) end,
  function() return S.ws:feed("shared", S.t, { share = true }) end,
  function() return S.ws:fetch(pick { "w", "text", "s" }) end,
  function() return S.ws:view "w" end,
  function() return S.ws:nets() end,
  function() return S.ws:_add_net(S.net, true) end,
  function() return S.ws:_net "f" end,
  function() return S.ws:init(S.net) end,
  function() return S.ws:_compile(S.net, { store = false, keep = { "y" } }) end,
  function() return S.ws:save(folder .. "/s.safetensors", { a = "b", c = "d" }) end,
  function() return S.ws:_mark(true, { "x", "w" }) end,
  function() return S.ws:create_scope "s2" end,
  function() return core.new_workspace { parent = S.ws, forward = { "x", q = "w" }, seed = 1 } end,
  function() return core.workspaces() end,
  function() return S.scope:_push(S.ws, { a = "x", b = "w" }) end,
  function() return S.scope:_reuse_last(S.ws, { a = "x" }) end,
  function() return S.program:run() end,
  function() return S.program:stats() end,
  function() return S.program:times() end,
  function() return S.program:pool() end,
  function() return S.dprogram:stats() end,
  function() return S.dprogram:pool() end,
  function() return S.dprogram.plan end,
  function() return S[pick { "plan", "pplan", "dplan" }]:_ops() end,
  function() return S[pick { "plan", "pplan", "dplan" }]:_values() end,
  function() return S[pick { "plan", "pplan", "dplan" }]:_tree() end,
  function() return S[pick { "plan", "pplan", "dplan" }]:_figures() end,
  function() return S[pick { "plan", "pplan", "dplan" }]:_explain() end,
  function() return S[pick { "plan", "pplan", "dplan" }]:_svg() end,
  function() return S[pick { "plan", "pplan", "dplan" }]:text() end,
  function() return S.pplan:_dry_run(S.net) end,
  function() return S.t:totable() end,
  function() return tostring(S.t) end,
  function() return S.t:apply_(function(x) return x + 1 end) end,
  function()
    return S.t:map_(S.t, function(x, y)
      evil()
      return x + y
    end)
  end,
  function() return S.t:clone() end,
  function() return S.t[{ 1, { 1, 2 } }] end,
  function() return S.t[S.b] end,
  function() S.t[S.b] = neap.ones(24) end,
  function() S.t[S.t:gt(3)] = 5 end,
  function() S.t[{ 1, 1 }] = { 1, 2, 3, 4 } end,
  function() return S.t:reshape(4, 6) end,
  function() return S.t:permute(3, 1, 2) end,
  function() return S.t:to "f64" end,
  function() return S.t:close(S.t, { rtol = 1 }) end,
  function() return S.view:clone() end,
  function() return core.stats_of(S.t) end,
  function() return core.eager("Add", { S.t, S.t }, {}) end,
  function() return core.eager("Sum", { S.t }, { axes = { 1, 2 }, keepdim = true }) end,
  function() return S.cache:labels() end,
  function() return S.cache:push(neap.ones(3), "l") end,
  function() return S.cache:pop { label = "l", shape = { 3 } } end,
  function() return tostring(S.cache) end,
  function() return S.recycle:blobs() end,
  function() return S.recycle:conflict(1, 2) end,
  function() return core.memonger.recycle(S.net, {}, {}) end,
  function() return core.memonger.share(S.net, {}, { heads = { "loss" } }) end,
  function() return core.memonger.estimate({ S.net }, {}) end,
  function() return core.memonger.interference(S.net) end,
  function() return core.memonger.release(S.net, { "y" }) end,
  function() return core.memonger.same_graph(S.net, S.net) end,
  function() return core.memonger.sort(S.net, "plain") end,
  function() return core.memonger.written_out(S.net, {}) end,
  function() return core.new_range(S.net, { inputs = { x = { 9, 3 } } }) end,
  function() return core.batch_inputs(S.net, 5) end,
  function()
    return core.fit_batch(function(n)
      evil()
      return S.net, { inputs = { x = { n, 3 } } }
    end, 16)
  end,
  function()
    return core.batch_reader({ { source = S.t, dtype = "f64" }, { source = S.t } }, { 0, 1 }, {})
  end,
  function() return S.reader:next() end,
  function()
    return core.save(folder .. "/t.safetensors", { a = S.t, c = S.b }, { meta = { x = "y" } })
  end,
  function() return core.load(folder .. "/t.safetensors") end,
  function() return S.db:_query("select :a as a, :b as b", { a = "text", b = 3 }) end,
  function() return S.db:_check() end,
  function() return S.chain:cache(1):labels() end,
  function() return S.chain:item("params", 1) end,
  function() return S.chain:forward(true) end,
  function()
    return core.run_steps(S.ws,
      { nets = { "f" }, given = { S.net }, steps = {}, iterations = 1, instances = 1 }, S.net, {})
  end,
  function() return core.run_once(S.ws, S.net, {}) end,
  function() return core.run_op(S.ws, "Relu", { "x" }, { "xr" }, {}) end,
  function() return core.encode_bytes("abc", { a = 1, b = 2, c = 3 }) end,
}

-- Each call once in peace: the list is right.
renew()
core.save(folder .. "/t.safetensors", { a = S.t }, { meta = { x = "y" } })
for i, call in ipairs(calls) do
  local ok, err = pcall(call)
  assert(ok, ("call %d: %s"):format(i, err))
end

for _ = 1, rounds do
  renew()
  on = true
  collectgarbage("incremental", 1, 1000, 20)
  collectgarbage "restart" -- at once
  for _ = 1, 2 do again() end
  for _ = 1, 4 do pcall(pick(calls)) end
  on = false
  collectgarbage("incremental", 200, 100, 13)
end
assert(n_evil > 0 or rounds == 0)

S = nil
db:close()
os.execute("rm -r " .. folder)
for _ = 1, 4 do collectgarbage() end
local held = neap.memory().held
assert(held == 0, held .. " bytes are still held")
print "held"
