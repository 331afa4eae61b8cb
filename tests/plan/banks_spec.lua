--- Memory banks: ops and blobs assigned to them, copies between them, a bound and a limit of each,
-- and the bits of a net without.
local neap = require "neap"
local nn = neap.nn
local support = require "support"

local function fast(bytes) return neap.bank { "fast", bytes = bytes or "4MiB" } end

--- A small training net; `place(net, name, f)` says where a group of ops goes.
local function mlp(place)
  local net = neap.net "mlp"
  local x = net:input("x", { 32, 64 })
  local w1 = net:param("w1", { 128, 64 }, { op = "Xavier" })
  local w2 = net:param("w2", { 10, 128 }, { op = "Xavier" })
  local h = place(net, "first", function() return net:FC({ x, w1 }, "h") end)
  local r = place(net, "middle", function() return net:Tanh(net:Relu(h, "r"), "t") end)
  local y = place(net, "last", function() return net:FC({ r, w2 }, "y") end)
  local loss = net:Mean(net:Square(y, "sq"), "loss")
  net:gradient(loss)
  net:outputs { "loss" }
  return net
end

local function nowhere(_, _, f) return f() end
local function in_bank(which)
  return function(net, name, f) return which[name] and net:bank(which[name], f) or f() end
end

--- All numbers of the named blobs after `steps` runs.
local function results(net, memory, feeds, names)
  local ws <close> = neap.workspace { seed = 7, store = false }
  ws:poison(true)
  for _ = 1, 2 do ws:run(net, feeds, memory) end
  local out = {}
  for _, name in ipairs(names) do out[name] = ws:fetch(name):to "f64":totable() end
  return out
end

local x = neap.randn(32, 64)

describe("a net in banks", function()
  it("has the bits of the net without, in every bank and under every policy", function()
    local names = { "loss", "w1_grad", "w2_grad" }
    local expected = results(mlp(nowhere), {}, { x = x }, names)
    for _, which in ipairs {
      { middle = "fast" },
      { first = "fast", last = "fast" },
      { first = "fast", middle = "slow", last = "main" },
    } do
      local net = mlp(in_bank(which))
      for _, memory in ipairs {
        {}, { policy = "none" }, { policy = "name" }, { in_place = false },
        { executor = "dag", threads = 1 },
      } do
        memory.banks, memory.threads = { fast(), neap.bank { "slow", kind = "huge" } }, 1
        assert.same(results(mlp(nowhere), { threads = 1 }, { x = x }, names),
          results(net, memory, { x = x }, names))
      end
      -- without banks in the options the labels mean nothing
      assert.same(expected, results(net, {}, { x = x }, names))
    end
  end)

  it("has them with blocked layouts, fused ops, normalisation and \z
      running statistics too", function()
    local function conv(bank)
      local function on(f) return bank and neap.bank(bank, f) or f() end
      local m = nn.module { "Net",
        init = function(self)
          self.a, self.n, self.b = nn.Conv2d { 16, kernel = 3, pad = 1 }, nn.BatchNorm2d {},
            nn.Conv2d { 16, kernel = 3 }
          self.pool, self.c = nn.MaxPool2d { 2 }, nn.Linear { 4 }
        end,
        forward = function(self, t)
          t = self.b(on(function() return self.n(self.a(t)):relu() end)):relu()
          return self.c(on(function() return self.pool(t) end):flatten())
        end }
      return m()
    end
    local data = { x = neap.randn(4, 3, 12, 12), y = neap.zeros { 4, dtype = "i64" } }
    local function numbers(bank, memory)
      local model = conv(bank)
      local t = neap.trainer {
        model = model,
        loss = nn.CrossEntropyLoss {},
        optimizer = neap.optim.SGD { lr = 0.1 },
        memory = memory,
        seed = 3,
      }
      local out = {}
      for i = 1, 3 do out[i] = t:step(data).loss end
      local net, blobs = model:net { batch = 4, input = { 3, 12, 12 } }
      model:workspace():run(net, { x = data.x }, memory)
      out[4] = model:workspace():fetch(blobs.output):totable()
      return out
    end
    local expected = numbers(nil, {})
    assert.same(expected, numbers("fast", { banks = { fast() } }))
    assert.same(expected, numbers("main", { banks = { fast() } }))
  end)

  it("has copies where an op of a bank reads what lies elsewhere, forward and backward, and none \z
      where nothing moves", function()
    local function copies(which)
      local n = 0
      for _, op in ipairs(mlp(in_bank(which)):plan({ banks = { fast() } }):ops()) do
        if op.type == "Reorder" and op.bank == "fast" and op.name:find "%.fast$" then n = n + 1 end
      end
      return n
    end
    assert.equal(0, copies {})
    assert.equal(2, copies { middle = "fast" }) -- h, and the gradient of t
    -- x and w1; in the backward x again, and the gradient of h
    assert.equal(4, copies { first = "fast" })
  end)

  it("keeps an op in its bank that reads what an op without an effect has passed on", function()
    local net = neap.net "passed"
    net:param("w", { 8, 8 }, 0.1)
    net:FC({ net:input("x", { 8, 8 }), "w" }, "h")
    net:bank("fast", function()
      net:Reshape("h", "same", { shape = { 8, 8 } })
      net:Relu("same", "y")
    end)
    net:outputs { "y" }
    local banks = {}
    for _, op in ipairs(net:plan({ banks = { fast() }, store = false }):ops()) do
      banks[op.type] = op.bank
    end
    assert.same({ "main", "fast" }, { banks.FC, banks.Relu })
  end)

  it("keeps each op of a bank to its bytes, and tells them apart in its reports", function()
    local plan = mlp(in_bank { middle = "fast" }):plan {
      banks = { fast(), neap.bank { "spare", bytes = 1024 } },
    }
    local of, rows = {}, plan:banks()
    for _, v in ipairs(plan:values()) do of[v.blob] = v end
    for _, op in ipairs(plan:ops()) do
      if op.bank == "fast" and op.type ~= "Reorder" then
        for _, name in ipairs(op.inputs) do
          assert.equal("fast", of[name].bank, op.name .. " reads " .. name)
        end
        for _, name in ipairs(op.outputs) do
          assert.equal("fast", of[name].bank, op.name .. " makes " .. name)
        end
      end
    end
    assert.same({ "main", "fast", "spare" }, { rows[1].bank, rows[2].bank, rows[3].bank })
    assert.equal(plan.arena_bytes, rows[1].arena_bytes + rows[2].arena_bytes + rows[3].arena_bytes)
    assert.equal(plan.lower_bound_bytes, rows[1].lower_bound_bytes + rows[2].lower_bound_bytes)
    assert.equal(0, rows[3].arena_bytes)
    for _, v in pairs(of) do -- every value of the arena lies in the part that its bank has
      if v.region == "arena" then
        local row = v.bank == "main" and rows[1] or rows[2]
        assert.is_true(
          v.offset_bytes >= row.begin_offset
            and v.offset_bytes + v.bytes <= row.begin_offset + row.arena_bytes, v.blob)
      end
    end
    -- The least of a bank, counted another way: the most of its bytes that live at once.
    local live, most = {}, 0
    local seen = {}
    for _, v in pairs(of) do
      if v.region == "arena" and v.bank == "fast" then
        local s = seen[v.storage_no] or { from = v.first_step, to = v.last_step, bytes = 0 }
        s.from, s.to, s.bytes = math.min(s.from, v.first_step), math.max(s.to, v.last_step),
          math.max(s.bytes, (v.bytes + 63) // 64 * 64)
        seen[v.storage_no] = s
      end
    end
    for _, s in pairs(seen) do
      for step = s.from, s.to do live[step] = (live[step] or 0) + s.bytes end
    end
    for _, n in pairs(live) do most = math.max(most, n) end
    assert.equal(most, rows[2].lower_bound_bytes)
    assert.truthy(tostring(plan:explain()):find("bank fast", 1, true))
  end)

  it("is refused by the bank that it exceeds, main among them, and runs at the \z
      least that was named", function()
    local net = mlp(in_bank { middle = "fast" })
    for _, name in ipairs { "fast", "main" } do
      local function banks(bytes)
        if name == "main" then
          return { banks = { neap.bank { "main", bytes = bytes }, fast() } }
        end
        return { banks = { fast(bytes) } }
      end
      local ok, e = pcall(net.plan, net, banks(64))
      assert.is_false(ok)
      assert.equal("budget", e.code)
      assert.truthy(e.message:find('bank "' .. name .. '" has 64 B', 1, true), e.message)
      assert.truthy(e.hint:find(
        ("bytes = %d would do, or assign fewer ops or blobs to \"%s\""):format(e.least_bytes, name),
        1, true), e.hint)
      assert.equal(e.least_bytes,
        net:plan(banks(e.least_bytes)):banks()[name == "main" and 1 or 2].arena_bytes)
      assert.is_false((pcall(net.plan, net, banks(e.least_bytes - 64))))
    end
  end)

  it("refuses what contradicts itself, with the place", function()
    local net = mlp(in_bank { middle = "fast" })
    local function refused(memory, text)
      local ok, e = pcall(net.plan, net, memory)
      assert.is_false(ok)
      assert.truthy(tostring(e):find(text, 1, true), tostring(e))
    end
    refused({ banks = { neap.bank { "fats" } } },
      'op "relu_1" is assigned to bank "fast", and the memory options give main, fats')
    refused({ banks = { fast(), fast() } }, 'bank "fast" is given twice')
    refused({ banks = { neap.bank { "main" }, neap.bank { "main" }, fast() } },
      'bank "main" is given twice')
    refused({ banks = { fast() }, executor = "dynamic" }, "policy pool takes bytes while it runs")
    refused({ banks = { 3 } }, "banks expects a list of neap.bank")
    refused({ banks = "fast" }, "banks expects a list of neap.bank")
    refused({ banks = { { "fast" } } }, "without a name")
    for _, wrong in ipairs {
      {}, { "b", bytes = -1 }, { "b", kind = "hugh" }, { "b", size = 3 }, { 3 },
    } do
      assert.is_false((pcall(neap.bank, wrong)))
    end
    for _, wrong in ipairs { 3, "b" } do assert.is_false((pcall(neap.bank, wrong))) end
    assert.is_false((pcall(net.bank, net, "fast", "no such blob")))
    assert.is_false((pcall(net.bank, net, "fast", { 3 })))
    assert.is_false((pcall(net.bank, net, "a bank", "h")))
    assert.equal(net:text(), mlp(in_bank { middle = "fast" }):text()) -- nothing of it stays
  end)

  it("takes at most 64 banks, main among them, and no list with anything else in it", function()
    local net = mlp(in_bank { middle = "fast" })
    local function list(n, main)
      local out = { fast() }
      for i = 2, n do out[i] = neap.bank { "b" .. i } end
      if main then out[n] = neap.bank { "main" } end
      return out
    end
    local ws <close> = neap.workspace { store = false }
    ws:run(net, { x = x }, { banks = list(63) })
    assert.equal(64, #net:plan({ banks = list(64, true) }):banks())
    for _, wrong in ipairs {
      list(64), list(65), { fast = fast() }, { fast(), other = fast() },
      { { name = "fast", byte = 64 } }, { nil, fast() },
    } do
      assert.is_false((pcall(net.plan, net, { banks = wrong })))
      assert.is_false((pcall(ws.run, ws, net, { x = x }, { banks = wrong })))
    end
    for _, wrong in ipairs { 3, { fast = fast() }, { 3 }, "fast" } do
      assert.is_false((pcall(neap.workspace, { banks = wrong })))
    end
    assert.equal(2, #net:plan({ banks = fast() }):banks()) -- one alone is a list of it
    for _, wrong in ipairs { {}, { h = "h" }, { "h", [3] = "r" } } do
      assert.is_false((pcall(net.bank, net, "fast", wrong)))
    end
    assert.is_false((pcall(net.keep, net, { h = true })))
    assert.is_false((pcall(net.plan, net, { keep = { h = true } })))
  end)

  it("is not fused across banks, nor out of a bank; in main without a word it \z
      is fused as ever", function()
    local function fused(place)
      local net = neap.net "n"
      local h = place(net, "first", function()
        return net:FC({ net:input("x", { 4, 8 }), net:param("w", { 8, 8 }, { op = "Xavier" }) },
          "h")
      end)
      local y = place(net, "last", function() return net:Relu(h, "y") end)
      net:outputs { y }
      return net
    end
    local function n_op(net) return net:plan({ banks = { fast() } }).n_op end
    local plain = n_op(fused(nowhere))
    assert.equal(plain, n_op(fused(in_bank { first = "main" })))
    assert.is_true(n_op(fused(in_bank { first = "fast" })) > plain)
    -- x and w in, y out
    assert.equal(n_op(fused(in_bank { first = "fast", last = "fast" })), plain + 3)
    local net = fused(nowhere)
    net:bank("fast", "h")
    assert.is_true(n_op(net) > plain)
    assert.equal(1, net:plan({ banks = { fast() } }):banks()[2].n_value)
  end)

  it("lies whole in one bank with its branches and bodies", function()
    local function build(inner, outer)
      local net = neap.net "n"
      local h = net:input("x", { 4, 8 })
      local function loop()
        return (net:Loop { trip = 3, init = { h }, body = function(b, _, y)
          if inner then return true, b:bank(inner, function() return b:Relu(y) end) end
          return true, b:Relu(y)
        end })
      end
      local y = outer and net:bank(outer, loop) or loop()
      net:Sum(y, "s")
      net:outputs { "s" }
      return net
    end
    local feeds = { x = neap.randn(4, 8) }
    local ok, expected = pcall(results, build(), {}, feeds, { "s" })
    assert(ok, expected)
    assert.same(expected, results(build(nil, "fast"), { banks = { fast() } }, feeds, { "s" }))
    assert.same(expected, results(build("fast", "fast"), { banks = { fast() } }, feeds, { "s" }))
    local net = neap.net "n"
    local t = net:input("x", { 2 })
    net:If(net:Gt { net:Sum(t), net:const(0) }, function(b)
      local y = b:Relu(t)
      local done, wrong = pcall(b.bank, b, "fast", y)
      assert.is_false(done)
      assert.truthy(tostring(wrong):find("a subnet lies whole in the bank of its op", 1, true),
        tostring(wrong))
      return y
    end, function(b) return b:Neg(t) end)
    net = build "fast"
    local e
    ok, e = pcall(net.plan, net, { banks = { fast() } })
    assert.is_false(ok)
    assert.truthy(tostring(e):find("a subnet lies whole in one bank", 1, true), tostring(e))
  end)
end)

describe("a blob in a bank", function()
  it("lies there whoever makes it; one with bytes of its own is there for as \z
      long as it is used", function()
    local net = mlp(nowhere)
    net:bank("fast", { net:blob "h", "w1" })
    net:bank("fast", "loss")
    local plan = net:plan { banks = { fast() } }
    local of = {}
    for _, v in ipairs(plan:values()) do of[v.blob] = v end
    assert.equal("fast", of.h.bank)
    assert.equal("main", of.w1.bank)
    assert.equal("fast", of["w1.fast"].bank) -- copied in for its readers
    assert.is_true(of["w1.fast"].last_step < plan.n_op)
    assert.equal("fast", of["loss.fast"].bank) -- and out from its maker
    local names = { "loss", "w1_grad", "w2_grad" }
    assert.same(results(mlp(nowhere), {}, { x = x }, names),
      results(net, { banks = { fast() } }, { x = x }, names))
  end)

  it("shares no name with a blob of another bank when names are recycled", function()
    local function chain(bank)
      local net = neap.net "chain"
      local h = net:input("x", { 4, 8 })
      for i = 1, 6 do
        h = i % 2 == 0 and net:Relu(h, "h" .. i) or net:Exp(h, "h" .. i)
        if bank and i % 3 == 0 then net:bank(bank, h) end
      end
      net:outputs { h }
      return neap.memonger.optimize_inference_net(net)
    end
    local function names(net)
      local seen, n = {}, 0
      for _, row in ipairs(net:_blobs()) do
        if row.role == "activation" and not seen[row.name] then seen[row.name], n = true, n + 1 end
      end
      return n
    end
    assert.equal(names(chain()) + 1, names(chain "fast"))
  end)

  it("stays assigned in the net's text, its copies, its expansion and its parts", function()
    local net = mlp(in_bank { middle = "fast" })
    net:bank("slow", { "h", "w2" })
    local text = net:text()
    assert.truthy(text:find("bank slow h", 1, true))
    assert.equal(text, neap.net_from(text):text())
    local expanded = net:expand()
    assert.truthy(expanded:text():find("bank slow h", 1, true))
    local memory = { banks = { fast(), neap.bank { "slow" } }, threads = 1 }
    local names = { "loss", "w1_grad", "w2_grad" }
    assert.same(results(net, memory, { x = x }, names), results(expanded, memory, { x = x }, names))
  end)
end)

describe("banks of a workspace", function()
  it("are shared by its programs, each as large as the largest needs", function()
    local ws <close> = neap.workspace { seed = 1, store = false, banks = { fast "1MiB" } }
    local a, b = mlp(in_bank { middle = "fast" }), mlp(in_bank { last = "fast" })
    local pa, pb = ws:compile(a), ws:compile(b)
    local function part(p, i) return p.plan:banks()[i].arena_bytes end
    assert.equal(math.max(part(pa, 1), part(pb, 1)) + math.max(part(pa, 2), part(pb, 2)),
      ws:arena_bytes())
  end)

  it("mean the same to all its nets, and a net that is refused leaves them as they were", function()
    local ws <close> = neap.workspace { seed = 1, store = false }
    local net = mlp(in_bank { middle = "fast" })
    ws:run(net, { x = x }, { banks = { fast "1MiB" } })
    local held = ws:held_bytes()
    local ok, e = pcall(ws.run, ws, net, { x = x }, { banks = { fast "2MiB" } })
    assert.is_false(ok)
    assert.truthy(
      tostring(e):find('bank "fast" is ordinary of 1.0 MiB in this workspace already', 1, true),
      tostring(e))
    assert.equal(held, ws:held_bytes())
    ws:run(net, { x = x }, { banks = { fast "1MiB" } })
  end)

  it("say once what main may hold, and all programs keep to it, those without banks too", function()
    local small = neap.bank { "main", bytes = "64KiB" }
    local net = mlp(in_bank { middle = "fast" })
    local big = { x = neap.randn(640, 64) }
    local ws <close> = neap.workspace { store = false }
    ws:run(net, { x = x }, { banks = { small, fast() } })
    for _, memory in ipairs { { banks = { fast() } }, {}, { banks = { small, fast() } } } do
      local ok, e = pcall(ws.run, ws, net, big, memory)
      assert.is_false(ok)
      assert.truthy(tostring(e):find('bank "main" has 64.0 KiB', 1, true), tostring(e))
    end
    ws:run(net, { x = x }, { banks = { fast() } })
    local other <close> = neap.workspace { store = false }
    other:run(net, big, {})
    -- the arena is larger already
    assert.is_false((pcall(other.run, other, net, { x = x }, { banks = { small, fast() } })))
  end)

  it("are counted by its budget and its total", function()
    local net = mlp(in_bank { middle = "fast" })
    local plan = net:plan { banks = { fast() } }
    local function fits(bytes)
      local ws <close> = neap.workspace { seed = 1, store = false, budget = bytes }
      return pcall(ws.run, ws, net, { x = x }, { banks = { fast() } })
    end
    assert.is_true((fits(plan.arena_bytes)))
    assert.is_false((fits(plan.arena_bytes - 1)))
  end)

  it("hold what a fetch reads after the run", function()
    local ws <close> = neap.workspace { seed = 1, store = false }
    local net = neap.net "n"
    local h = net:bank("fast", function() return net:Exp(net:input("x", { 8 }), "h") end)
    net:Sum(h, "s")
    local t = neap.randn(8)
    ws:run(net, { x = t }, { banks = { fast() } })
    assert.same(t:exp():totable(), ws:fetch("h"):totable())
  end)
end)

describe("a blob assigned in a workspace", function()
  local names = { "loss", "w1_grad", "w2_grad" }
  local function opened(banks)
    local ws = neap.workspace { seed = 7, store = false, banks = banks }
    local net = mlp(in_bank { first = "fast" })
    ws:run(net, { x = x })
    return ws, net
  end
  local function all(ws)
    local out = {}
    for _, name in ipairs(names) do out[name] = ws:fetch(name):totable() end
    return out
  end
  local function rows(ws)
    local out = {}
    for _, row in ipairs(ws:blobs()) do out[row.name] = row end
    return out
  end

  it("keeps what it holds, there and back, at once and on a thread", function()
    for _, async in ipairs { false, true } do
      local ws, net = opened { fast(), neap.bank { "huge", kind = "huge" } }
      local before, expected, held = ws:fetch("w1"):totable(), all(ws), ws:held_bytes()
      for _, bank in ipairs { "fast", "huge", "fast", "main" } do
        ws:assign({ "w1", "x", "w1" }, bank, { async = async })
        assert.is_true(ws:held_bytes() >= held)
        assert.same(before, ws:fetch("w1"):totable())
        assert.equal(bank ~= "main" and bank or nil, rows(ws).w1.bank)
        ws:run(net, { x = x })
        assert.same(expected, all(ws))
      end
      ws:wait()
      assert.equal(held, ws:held_bytes()) -- the place in its segment was kept
    end
  end)

  it("is read where it lies by programs compiled afterwards, without a copy", function()
    local ws, net = opened { fast() }
    local function copies()
      local n = 0
      for _, op in ipairs(ws:compile(net).plan:ops()) do
        if op.type == "Reorder" and op.inputs[1] == "w1" then n = n + 1 end
      end
      return n
    end
    assert.equal(1, copies())
    local expected = all(ws)
    ws:assign("w1", "fast")
    assert.equal(0, copies())
    ws:compile(net):run()
    assert.same(expected, all(ws))
    for _, v in ipairs(ws:compile(net).plan:values()) do
      if v.blob == "w1" then assert.equal("fast", v.bank) end
    end
    ws:assign("w1", "main")
    assert.equal(1, copies())
  end)

  it("gives its segment back with the last blob that leaves it", function()
    local ws = opened { fast(), neap.bank { "huge", kind = "huge" } }
    local held = ws:held_bytes()
    ws:assign("w1", "huge")
    local with_one = ws:held_bytes()
    assert.is_true(with_one > held)
    ws:assign("w2", "huge")
    ws:assign({ "w1", "w2" }, "main")
    ws:run(mlp(in_bank { first = "fast" }), { x = x })
    assert.equal(held, ws:held_bytes())
  end)

  it("is refused by a bank that would hold too much, for blobs and programs together, and \z
      nothing has moved", function()
    local plan = mlp(in_bank { first = "fast" }):plan { banks = { fast() } }
    local part = plan:banks()[2].arena_bytes
    local ws, net = opened { fast(part + 5120) }
    local held = ws:held_bytes()
    local ok, e = pcall(ws.assign, ws, { "w2", "w1" }, "fast")
    assert.is_false(ok)
    assert.equal("budget", e.code)
    assert.truthy(e.message:find('bank "fast" has', 1, true))
    assert.equal(held, ws:held_bytes())
    assert.is_nil(rows(ws).w2.bank)
    ws:assign("w2", "fast")
    ok, e = pcall(ws.run, ws, net, { x = neap.randn(64, 64) })
    assert.is_false(ok)
    assert.truthy(tostring(e):find('bank "fast"', 1, true), tostring(e))
    ws:run(net, { x = x })
  end)

  it("refuses what can't move, with its name", function()
    local ws = opened { fast() }
    ws:feed("text", "hello")
    local child = ws:child()
    for text, f in pairs {
      ["no such blob"] = function() ws:assign("w3", "fast") end,
      ["holds a string"] = function() ws:assign("text", "fast") end,
      ["it is the parent's"] = function() child:assign("w1", fast()) end,
      ["got \"slow\""] = function() ws:assign("w1", "slow") end,
      ["got a number"] = function() ws:assign("w1", 3) end,
      ["async expects"] = function() ws:assign("w1", "fast", { async = 1 }) end,
      ["unknown field"] = function() ws:assign("w1", "fast", { later = true }) end,
      ["in this workspace already"] = function()
        ws:assign("w1", neap.bank { "fast", bytes = 3 })
      end,
    } do
      local ok, e = pcall(f)
      assert.is_false(ok, text)
      assert.truthy(tostring(e):find(text, 1, true), tostring(e))
    end
  end)

  it("leaves a bank unknown to the workspace that refused to put anything there", function()
    local ws = opened { fast() }
    for blob, bytes in pairs { w3 = 4096, w1 = 64 } do
      assert.is_false((pcall(ws.assign, ws, blob, neap.bank { "late", bytes = bytes })))
    end
    ws:assign("w1", neap.bank { "late", bytes = "1MiB" })
    assert.equal("late", rows(ws).w1.bank)
  end)

  it("can be fed, removed, renamed and marked while it is on its way", function()
    local big = neap.randn(1 << 20)
    for _, use in ipairs {
      function(ws) ws:feed("b", big * 2) return "b", big * 2 end, function(ws) ws:remove "b" end,
      function(ws) ws:rename("b", "c") return "c", big end,
      function(ws) ws:view("b"):fill_(1) return "b", neap.ones(1 << 20) end,
      function(ws) ws:feed("b", neap.ones(3)) return "b", neap.ones(3) end,
      function() return "b", big end,
    } do
      local ws <close> = neap.workspace { store = false }
      ws:feed("b", big)
      ws:assign("b", fast "64MiB", { async = true })
      local name, expected = use(ws)
      ws:wait()
      if name then
        assert.is_true(ws:fetch(name):equal(expected))
      else
        assert.is_false(ws:has "b")
      end
    end
  end)

  --- The bytes that blobs and programs have of a bank: what it lacks of a claim of all its bytes.
  local function room_of(ws, bank)
    ws:feed("probe", neap.zeros(1 << 20))
    local ok, e = pcall(ws.assign, ws, "probe", bank)
    ws:remove "probe"
    assert.is_false(ok)
    return e.least_bytes - (4 << 20)
  end

  it("stays there when it is fed another shape, and is refused by the bank's \z
      limit with its name", function()
    local ws <close> = neap.workspace { store = false, seed = 7, banks = { fast "1MiB" } }
    local small, large = neap.randn(64, 64), neap.randn(128, 64)
    ws:feed("b", small)
    ws:assign("b", "fast")
    for _, t in ipairs { large, small, large } do
      ws:feed("b", t)
      assert.equal("fast", rows(ws).b.bank)
      assert.is_true(ws:fetch("b"):equal(t))
      assert.equal(4 * t.shape[1] * 64, room_of(ws, "fast"))
    end
    local held = ws:held_bytes()
    local ok, e = pcall(ws.feed, ws, "b", neap.zeros(1 << 18))
    assert.is_false(ok)
    assert.equal("budget", e.code)
    assert.truthy(tostring(e):find('feed "b": bank "fast" has 1.0', 1, true), tostring(e))
    assert.is_true(ws:fetch("b"):equal(large)) -- nothing is lost
    assert.equal(held, ws:held_bytes())
    ws:feed("b", large, { share = true }) -- the user's own bytes are where the user has them
    assert.is_nil(rows(ws).b.bank)
    assert.equal(0, room_of(ws, "fast"))
  end)

  it("stays there when programs of other shapes write it, and they read it there", function()
    local function doubled()
      local net = neap.net "doubled"
      net:outputs { net:Mul({ net:input("x", { 4, 8 }), net:const(2) }, "y") }
      return net
    end
    for _, executor in ipairs { "simple", "dynamic" } do
      local ws <close> = neap.workspace {
        store = false, executor = executor, banks = executor == "simple" and { fast() } or nil,
      }
      local net, t = doubled(), nil
      ws:run(net, { x = neap.rand(4, 8) })
      ws:assign({ "x", "y" }, fast())
      for _, n in ipairs { 4, 9, 4, 9, 700, 4 } do
        t = neap.rand(n, 8)
        assert.is_true(ws:run(net, { x = t }).y:equal(t * 2))
        assert.equal("fast", rows(ws).x.bank)
        assert.equal("fast", rows(ws).y.bank)
        assert.is_true(ws:fetch("y"):equal(t * 2))
      end
      local ok, e = pcall(ws.run, ws, net, { x = neap.rand(70000, 8) })
      assert.is_false(ok)
      assert.truthy(tostring(e):find('bank "fast" has 4', 1, true), tostring(e))
      assert.is_true(ws:run(net, { x = t }).y:equal(t * 2))
      assert.equal("fast", rows(ws).y.bank)
    end
  end)

  it("is saved and loaded like any other, by other programs too", function()
    local ws, net = opened { fast() }
    ws:assign({ "w1", "w2" }, "fast", { async = true })
    local base = os.tmpname()
    local path = base .. ".safetensors"
    ws:save(path)
    local other <close> = neap.workspace { seed = 1, store = false, banks = { fast() } }
    other:init(net)
    other:assign("w1", "fast")
    other:load(path)
    os.remove(path)
    os.remove(base)
    assert.same(ws:fetch("w1"):totable(), other:fetch("w1"):totable())
    assert.equal("fast", rows(other).w1.bank)
  end)
end)

describe("banks of a model", function()
  local function model()
    local middle = nn.Lambda(function(t)
      return neap.bank("fast", function() return t:tanh() end)
    end)
    return nn.Sequential { nn.Linear { 32 }, nn.ReLU {}, middle, nn.Linear { 10 } }
  end
  it("train to the same numbers, in micro-batches and ranges too, and are counted", function()
    local data = { x = neap.randn(12, 16), y = neap.zeros(12):to "i64" }
    local function losses(memory, more)
      neap.seed(5)
      local o = {
        model = model(),
        loss = nn.CrossEntropyLoss {},
        optimizer = neap.optim.SGD { lr = 0.1 },
        memory = memory,
        seed = 5,
      }
      for key, value in pairs(more or {}) do o[key] = value end
      local t = neap.trainer(o)
      local out = {}
      for i = 1, 3 do out[i] = t:step({ x = data.x, y = data.y }).loss end
      return out
    end
    local banks = { fast() }
    assert.same(losses {}, losses { banks = banks })
    assert.same(losses({}, { micro = 4 }), losses({ banks = banks }, { micro = 4 }))
    assert.same(losses { max_batch = 16 }, losses { banks = banks, max_batch = 16 })
    local ok, e = pcall(losses, { banks = { neap.bank { "fast", bytes = 64 } } })
    assert.is_false(ok)
    assert.truthy(tostring(e):find('bank "fast" has 64 B', 1, true), tostring(e))
  end)
  it("runs eagerly as if there were none", function()
    local t = neap.randn(3)
    assert.same(t:exp():totable(), neap.bank("fast", function(a) return a:exp() end, t):totable())
  end)
end)

describe("neap plan --bank", function()
  it("plans a net file's banks, and is refused by name", function()
    local base = os.tmpname()
    local path = base .. ".lua"
    local file <close> = assert(io.open(path, "w"))
    file:write [[
      local neap = require "neap"
      local net = neap.net "n"
      local h = net:bank("fast", function() return net:Exp(net:input("x", { 8 }), "h") end)
      net:Sum(h, "s")
      return net]]
    file:close()
    local function run(bank)
      local pipe <close> = assert(
        io.popen(("NEAP_DB=off %s plan %s --banks %s 2>&1"):format(support.program, path, bank)))
      return pipe:read "a"
    end
    assert.truthy(
      run("fast=1KiB"):find("bank       fast: 64 B of 1.0 KiB, least 64 B; 2 ops, 2 values", 1,
        true), run "fast=1KiB")
    assert.truthy(
      run("fast=16"):find('bank "fast" has 16 B, "n" needs at least 64 B of it', 1, true),
      run "fast=16")
    assert.truthy(run("fast=x"):find("x", 1, true))
    os.remove(path)
    os.remove(base)
  end)
end)

describe("stored plans", function()
  it("are the same ones with the same banks, and not with others", function()
    local path = os.tmpname()
    local net = mlp(in_bank { middle = "fast" })
    local db <close> = neap.db(path)
    neap.use_db(db)
    local function id(banks) return net:plan({ banks = banks }).plan_id end
    local found = {
      id { fast() }, id { fast() }, id { fast "2MiB" }, id { fast(), neap.bank { "other" } },
      id(nil), id { fast() },
    }
    neap.use_db(false)
    os.remove(path)
    assert.same({ 1, 1, 2, 3, 4, 1 }, found)
  end)
end)
