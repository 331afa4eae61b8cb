-- LSTM where the generic tests of records can't look: what lengths, directions and orders of gates
-- mean.
local neap = require "neap"
local support = require "support"

local T, N, D, H = 7, 3, 4, 5

local function operands()
  neap.seed(3)
  local function draw(...) return neap.randn { ... } end
  return {
    x = draw(T, N, D),
    w = draw(4 * H, D),
    r = draw(4 * H, H),
    b = draw(4 * H),
    h0 = draw(N, H),
    c0 = draw(N, H),
  }
end

--- y, h, c of the op run at once.
local function lstm(o, attrs)
  return neap.lstm(o.x, o.w, o.r, o.b, o.h0, o.c0, o.lengths, attrs or {})
end

local function close(want, got) assert.is_true(want:close(got, { rtol = 1e-5, atol = 1e-6 })) end

describe("LSTM", function()
  for _, reverse in ipairs { false, true } do
    it("gives each sequence what it would get alone at its length, "
      .. (reverse and "from the last step" or "from the first"), function()
      local o = operands()
      local lengths = { 4, 7, 0 }
      o.lengths = neap.tensor(lengths, "i64")
      local y, h, c = lstm(o, { reverse = reverse })
      for i, n in ipairs(lengths) do
        for t = n + 1, T do assert.are.equal(0, y[{ t, i, {} }]:abs():sum():item()) end
        if n > 0 then
          local own = {
            x = o.x[{ { 1, n }, { i, i }, {} }]:clone(), w = o.w, r = o.r, b = o.b,
            h0 = o.h0[{ { i, i }, {} }]:clone(),
            c0 = o.c0[{ { i, i }, {} }]:clone(),
          }
          local own_y, own_h, own_c = lstm(own, { reverse = reverse })
          close(own_y, y[{ { 1, n }, { i, i }, {} }]:clone())
          close(own_h, h[{ { i, i }, {} }]:clone())
          close(own_c, c[{ { i, i }, {} }]:clone())
        else
          assert.is_true(h[i]:equal(o.h0[i]))
          assert.is_true(c[i]:equal(o.c0[i]))
        end
      end
    end)
  end

  it("from the last step is LSTM of the steps turned round, turned round", function()
    local o = operands()
    local function turned(x)
      return neap.slice(x, { starts = { -1 }, ends = { 1 }, steps = { -1 } })
    end
    local y, h = lstm(o, { reverse = true })
    o.x = turned(o.x)
    local want, want_h = lstm(o)
    close(turned(want), y)
    close(want_h, h)
  end)

  it("reads the gates in the order of PyTorch, ONNX or Caffe2", function()
    local o = operands()
    local want = { lstm(o) }
    for order, places in pairs { iofg = { 1, 4, 2, 3 }, ifog = { 1, 2, 4, 3 } } do
      local other = { x = o.x, h0 = o.h0, c0 = o.c0 }
      for _, name in ipairs { "w", "r", "b" } do
        local parts = {}
        for k, from in ipairs(places) do
          parts[k] = neap.slice(o[name], { starts = { (from - 1) * H + 1 }, ends = { from * H } })
        end
        other[name] = neap.concat(parts, { axis = 1 })
      end
      for k, got in ipairs { lstm(other, { order = order }) } do close(want[k], got) end
    end
  end)

  it("gives the same whether the gates are kept for a backward or made a \z
      few steps at a time", function()
    local function run(train)
      local net = neap.net "n"
      local x = net:input("x", { 9, 100, 6 })
      local w = net:param("w", { 32, 6 }, neap.init.normal { 0, 0.3 })
      local r = net:param("r", { 32, 8 }, neap.init.normal { 0, 0.3 })
      local y = net:LSTM({ x, w, r }, { "y", "h", "c" })
      net:outputs { y }
      if train then net:gradient(net:Sum({ y }, "loss"), { wrt = { w, r } }) end
      local ws <close> = neap.workspace { seed = 5, store = false }
      ws:init(net)
      neap.seed(8)
      ws:feed("x", neap.randn { 9, 100, 6 })
      local program <close> = ws:compile(net, { engine = "ref" })
      program:run()
      return ws:fetch "y"
    end
    assert.is_true(run(false):equal(run(true)))
  end)

  --- y, h, c of N sequences by an engine, with a weight that fills whole panels, from a net that
  -- does not train; and the types of what runs.
  local function by_panels(o, first, last, engine)
    local function part(x, axis)
      return neap.slice(x, { axes = { axis }, starts = { first }, ends = { last } })
    end
    local net = neap.net "n"
    local feeds = { x = part(o.x, 2), h0 = part(o.h0, 1), lengths = part(o.lengths, 1) }
    local x, h0 = net:input("x", feeds.x.shape), net:input("h0", feeds.h0.shape)
    local lengths = net:input("lengths", feeds.lengths.shape, "i64")
    local w, r, b = net:param("w", o.w.shape), net:param("r", o.r.shape), net:param("b", o.b.shape)
    local y, h, c = net:LSTM({ x, w, r, b, h0, nil, lengths }, { "y", "h", "c" },
      { reverse = o.reverse })
    net:outputs { y, h, c }
    local ws <close> = neap.workspace { store = false }
    ws:init(net)
    for _, name in ipairs { "w", "r", "b" } do ws:feed(name, o[name]) end
    for name, value in pairs(feeds) do ws:feed(name, value) end
    local program <close> = ws:compile(net, { engine = engine })
    program:run()
    local types = {}
    for k, row in ipairs(program.plan:ops()) do types[k] = row.type end
    return { ws:fetch "y", ws:fetch "h", ws:fetch "c" }, table.concat(types, " ")
  end

  for _, reverse in ipairs { false, true } do
    it("gives a sequence the same bits among few and among many, "
      .. (reverse and "from the last step" or "from the first"), function()
      neap.seed(4)
      local n, steps, width, units = 61, 11, 5, 32
      local o = {
        x = neap.randn { steps, n, width }, w = neap.randn { 4 * units, width },
        r = neap.randn { 4 * units, units } * 0.2,
        b = neap.randn { 4 * units }, h0 = neap.randn { n, units },
        lengths = neap.zeros { n, dtype = "i64" }, reverse = reverse,
      }
      for i = 1, n do o.lengths:set(i * 7 % (steps + 1), i) end
      local want = by_panels(o, 1, n, "ref")
      for _, engine in ipairs(support.engines "ref") do
        local all, types = by_panels(o, 1, n, engine)
        assert.are.equal("Reorder Reorder LSTM", types)
        for k = 1, 3 do close(want[k], all[k]) end
        for _, range in ipairs { { 1, 1 }, { 2, 20 }, { 21, 61 } } do
          for k, got in ipairs(by_panels(o, range[1], range[2], engine)) do
            assert.is_true(got:equal(neap.slice(all[k], {
              axes = { k == 1 and 2 or 1 }, starts = { range[1] }, ends = { range[2] },
            })))
          end
        end
      end
    end)
  end

  for _, executor in ipairs { "simple", "dag" } do
    it("computes in planned bytes what it computes in bytes of its own, and allocates nothing, "
      .. executor, function()
      local nn = neap.nn
      for _, batch in ipairs { 3, 40 } do -- units shared out, then sequences
        local file = {
          batch = batch,
          n_class = 4,
          model = nn.Sequential {
            input = { 9, 5 }, nn.LSTM { 5, 16, layers = 2 },
            nn.Lambda(function(x) return x:select(2, 9) end), nn.Linear { 16, 4 },
          },
        }
        for _, train in ipairs { true, false } do
          local r = neap.check.plan(file, {
            train = train, executor = executor, poison = true, steps = 2, count_steps = 3,
          })
          assert.is_true(r.same and r.same_choices)
          assert.are.equal(0, r.allocations)
        end
      end
    end)
  end

  it("names a length that no sequence can have", function()
    local o = operands()
    o.lengths = neap.tensor({ 1, 8, 2 }, "i64")
    local good, err = pcall(lstm, o)
    assert.is_false(good)
    assert.matches("length 8 of sequence 2 is out of range for 7 steps", tostring(err), 1, true)
  end)

  it("as a layer stacks, turns batch first, and learns", function()
    local nn = neap.nn
    local model = nn.Sequential {
      input = { 5, 3 }, seed = 1,
      nn.LSTM { 3, 6, layers = 2 }, nn.Lambda(function(x) return x:select(2, 5) end),
      nn.Linear { 6, 2 },
    }
    local t = neap.trainer {
      model = model,
      loss = nn.CrossEntropyLoss(),
      optimizer = neap.optim.Adam { lr = 0.02 },
      memory = { },
    }
    neap.seed(2)
    local x, y = neap.randn { 16, 5, 3 }, neap.zeros { 16, dtype = "i64" }
    -- what the first step said, asked after the last
    for i = 1, 16 do y:set(x:at(i, 1, 1) > 0 and 1 or 0, i) end
    local first, last = t:step({ x = x, y = y }).loss, nil
    for _ = 1, 120 do last = t:step({ x = x, y = y }).loss end
    assert.is_true(last < 0.2 * first, ("%g to %g"):format(first, last))
    assert.are.same({ 16, 5, 6 }, nn.LSTM({ 3, 6 })(x).shape)
  end)
end)
