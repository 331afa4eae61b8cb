-- A run of the trainer that was stopped goes on with the same bits.
local neap = require "neap"
local core = require "neap.core"
local nn, optim, data = neap.nn, neap.optim, neap.data
local raises = require("support").raises
local kit = require "train_kit"
local points, make, with = kit.points, kit.make, kit.with
local assert_same_bits, losses = kit.assert_same_bits, kit.losses

describe("a run that was stopped", function()
  local function check(stop_at, o)
    local path = os.tmpname() .. ".safetensors"
    local straight <close> = make(o)
    local expected = losses(straight, points(), with {})
    local first <close> = make(o)
    local got = losses(first, points(), { steps = stop_at, checkpoint = path, verbose = 0 })
    local second <close> = make(o) -- as in a new process: nothing but the file is shared
    for _, loss in ipairs(losses(second, points(), with { checkpoint = path, resume = true })) do
      got[#got + 1] = loss
    end
    assert.are.same(expected, got)
    assert_same_bits(straight, second)
    local a, b = straight:history(), second:history()
    assert.are.equal(a[#a].loss, b[#b].loss)
    assert.are.equal(a[#a].accuracy, b[#b].accuracy)
    os.remove(path)
  end
  it("goes on from the file with the same bits, inside an epoch", function() check(3) end)
  it("goes on with the rate and seed of its file, whatever the trainer was made with, until \z
      it is given others", function()
    local path = os.tmpname() .. ".safetensors"
    local function own(lr, seed)
      local model = nn.Sequential {
        input = { 3 }, nn.Linear { 3, 8 }, nn.Dropout { 0.3 }, nn.Linear { 8, 2 },
      }
      return neap.trainer { model = model, seed = seed, optimizer = optim.Adam { lr = lr } }
    end
    local straight <close> = own(0.02, 5)
    local expected = losses(straight, points(), with {})
    local first <close> = own(0.02, 5)
    local before = losses(first, points(), { steps = 4, checkpoint = path, verbose = 0 })
    local other <close> = own(0.5, 77)
    local got = table.move(before, 1, #before, 1, {})
    for _, loss in ipairs(losses(other, points(), with { checkpoint = path, resume = true })) do
      got[#got + 1] = loss
    end
    assert.are.same(expected, got)
    assert.are.equal(0.02, other.optimizer.lr)
    assert.are.equal(5, other.model:workspace():seed())
    local slower <close> = own(0.5, 77)
    assert(slower:load(path))
    slower.optimizer.lr = 0.001
    slower:fit(points(), with {
      resume = true, on_step = function(r) assert.are.equal(0.001, r.lr) end,
    })
    os.remove(path)
    for _, name in ipairs { "trainer:fit", "trainer:load" } do
      local text = tostring(neap.help(name)):gsub("%s+", " ") -- lines are wrapped
      assert.is_truthy(text:find("learning rate and seed", 1, true), name)
    end
  end)
  it("after the last, smaller batch", function() check(6) end)
  it("in a later epoch, with momentum", function()
    check(8, { optimizer = optim.SGD { lr = 0.05, momentum = 0.9, clip = 1 } })
  end)
  it("by an error goes on with the same bits", function()
    local straight <close> = make()
    local broken <close> = make()
    local expected, got = losses(straight, points(), with {}), {}
    raises("enough", broken.fit, broken, points(), with { on_step = function(r)
      got[#got + 1] = r.loss
      if r.step == 4 then error "enough" end
    end })
    for _, loss in ipairs(losses(broken, points(), with { resume = true })) do
      got[#got + 1] = loss
    end
    assert.are.same(expected, got)
    assert_same_bits(straight, broken)
    assert.are.equal(straight:history()[2].loss, broken:history()[2].loss)
  end)
  it("between a step and its count loses nothing", function()
    -- As by Ctrl-C that comes while the engine ends a step: the run is over, the error comes before
    -- anything is counted.
    local straight <close> = make()
    local broken <close> = make()
    losses(straight, points(), with {})
    broken:program(4)
    local run, n = core.Program.run, 0
    core.Program.run = function(p, ...)
      run(p, ...)
      n = n + 1
      if n == 3 then error(core.error { code = "interrupted", message = "interrupted" }, 0) end
    end
    local ok, err = pcall(broken.fit, broken, points(), with {})
    core.Program.run = run
    assert.is_false(ok)
    assert.are.equal("interrupted", err.code)
    assert.are.equal(3, broken.position.step)
    broken:fit(points(), with { resume = true })
    assert_same_bits(straight, broken)
  end)
  it("by Ctrl-C writes its checkpoint", function()
    local path = os.tmpname() .. ".safetensors"
    local straight <close> = make()
    local broken <close> = make()
    local later <close> = make()
    losses(straight, points(), with {})
    local ok = pcall(broken.fit, broken, points(), with { checkpoint = path, on_step = function(r)
      if r.step == 5 then error(core.error { code = "interrupted", message = "interrupted" }, 0) end
    end })
    assert.is_false(ok)
    later:fit(points(), with { checkpoint = path, resume = true })
    assert_same_bits(straight, later)
    os.remove(path)
  end)
  it("saves every so many steps when asked", function()
    local path = os.tmpname() .. ".safetensors"
    local t <close> = make()
    pcall(t.fit, t, points(), with {
      checkpoint = { path, every = 2 },
      on_step = function(r) if r.step == 3 then error "stop" end end,
    })
    local _, meta = neap.load(path)
    assert.are.equal("2", meta["trainer.step"])
    os.remove(path)
  end)
  it("says when the file is no checkpoint, or of another kind of optimizer, \z
      and changes nothing", function()
    local path = os.tmpname() .. ".safetensors"
    neap.save(path, { zzz = neap.ones(3) })
    local t <close> = make()
    raises("no trainer has written this", t.load, t, path)
    raises("no trainer has written this", t.fit, t, points(),
      with { checkpoint = path, resume = true })
    t:fit(points(), with { checkpoint = path })
    local other <close> = neap.trainer { model = t.model, optimizer = optim.SGD { lr = 0.1 } }
    local a = points():epoch(1)()
    other:step { x = a.x, y = a.y }
    local before = t.model:state_dict()["linear1.weight"]
    local fresh <close> = make { optimizer = optim.SGD { lr = 0.1 } }
    fresh:step { x = a.x, y = a.y }
    raises("neither the model nor its optimizer has", fresh.load, fresh, path)
    assert.is_true(t.model:state_dict()["linear1.weight"]:equal(before))
    os.remove(path)
  end)
  it("says so also before a first step, and of gradients that it could not hold", function()
    local path = os.tmpname() .. ".safetensors"
    local function of(optimizer, input, o)
      o = o or {}
      o.model, o.optimizer = nn.Sequential {
        input = input, seed = 3, nn.Linear { 3, 4 }, nn.Tanh(), nn.Linear { 4, 2 },
      }, optimizer
      return neap.trainer(o)
    end
    local kinds = {
      function() return optim.Adam { lr = 0.1 } end, function() return optim.SGD { lr = 0.1 } end,
      function() return optim.SGD { lr = 0.1, momentum = 0.9 } end,
    }
    local batch = { x = neap.ones(2, 3), y = neap.tensor({ 1, 0 }, "i64") }
    for i, write in ipairs(kinds) do
      local t <close> = of(write())
      t:step(batch)
      t:save(path)
      for k, read in ipairs(kinds) do
        for _, input in ipairs { { 3 }, false } do
          for _, accumulate in ipairs { 2, false } do
            local fresh <close> = of(read(), input or nil, { accumulate = accumulate or nil })
            if i == k and not accumulate then
              fresh:load(path)
              assert.are.equal(t:step(batch).loss, fresh:step(batch).loss)
              t:load(path)
            elseif i ~= k then
              local lr = fresh.optimizer.lr
              raises("one kind of optimizer", fresh.load, fresh, path)
              assert.are.equal(lr, fresh.optimizer.lr)
              assert.are.equal(1, fresh:step(batch).step + (accumulate and 1 or 0))
            end
          end
        end
      end
    end
    local holds <close> = of(kinds[2](), { 3 }, { accumulate = 3 })
    holds:step(batch)
    holds:save(path)
    local plain <close> = of(kinds[2](), { 3 })
    local err = raises("holds the gradients of 1 batch", plain.load, plain, path)
    assert.is_truthy(err.hint:find("accumulate", 1, true))
    local same <close> = of(kinds[2](), { 3 }, { accumulate = 3 })
    same:load(path)
    assert.are.equal(4, same:step(batch).accumulated)
    os.remove(path)
  end)
  it("is saved whole before a first step, or not at all", function()
    local path = os.tmpname() .. ".safetensors"
    local batch = { x = neap.ones(2, 3), y = neap.tensor({ 1, 0 }, "i64") }
    local optimizers = { function() return optim.Adam { lr = 0.1 } end,
      function() return optim.SGD { lr = 0.1, momentum = 0.9 } end,
      function() return optim.SGD { lr = 0.1 } end }
    local n_saved = 0
    local function try(i, input, width, accumulate)
      local function of()
        local layer = nn.Linear(width and { width, 4 } or { 4 })
        local model = nn.Sequential { input = input, seed = 3, layer, nn.Linear { 4, 2 } }
        return neap.trainer { model = model, optimizer = optimizers[i](), accumulate = accumulate }
      end
      local t <close> = of()
      local stepped <close> = of()
      local fresh <close> = of()
      if input == nil and (i < 3 or width == nil or accumulate) then
        raises("trainer:save: nothing has been trained on yet", t.save, t, path)
        return
      end
      n_saved = n_saved + 1
      assert(t:save(path))
      for _ = 1, 3 do stepped:step(batch) end
      fresh:load(path)
      stepped:load(path)
      for _ = 1, 3 do
        local want = t:step(batch)
        for _, other in ipairs { stepped, fresh } do
          local got = other:step(batch)
          assert.are.equal(want.loss, got.loss)
          assert.are.equal(want.step, got.step)
        end
      end
    end
    for i = 1, #optimizers do
      for _, width in ipairs { 3, false } do
        for _, accumulate in ipairs { 2, false } do
          try(i, { 3 }, width or nil, accumulate or nil)
          try(i, nil, width or nil, accumulate or nil)
        end
      end
    end
    assert.are.equal(13, n_saved)
    os.remove(path)
  end)
  it("says when the file is another model's", function()
    local path = os.tmpname() .. ".safetensors"
    local t <close> = make()
    t:fit(points(), with { checkpoint = path })
    local other <close> = neap.trainer {
      model = nn.Sequential { input = { 3 }, nn.Linear { 3, 2 } },
      optimizer = optim.SGD { lr = 0.1 },
    }
    other:step { x = neap.ones(1, 3), y = neap.tensor({ 1 }, "i64") }
    local before = other.model:state_dict()["linear1.weight"]
    raises("expects f32 (2,3)", other.load, other, path)
    assert.is_true(other.model.linear1.weight.data:equal(before))
    os.remove(path)
  end)
end)

describe("a run that was stopped in an epoch", function()
  it("is not resumed on batches of another order, but may begin an epoch on them", function()
    local path = os.tmpname() .. ".safetensors"
    local function rows(n, o)
      o.x, o.y = neap.ones(n, 3), neap.zeros { n, dtype = "i64" }
      return data.tensors(o)
    end
    local function set() return rows(20, { batch = 4, shuffle = true, seed = 3 }) end
    local others = {
      rows(16, { batch = 4, shuffle = true, seed = 3 }),
      rows(20, { batch = 5, shuffle = true, seed = 3 }),
      rows(20, { batch = 4, shuffle = true, seed = 4 }), rows(20, { batch = 4 }),
    }
    local first <close> = make()
    first:fit(set(), with { checkpoint = path, on_step = function(r) return r.step < 7 end })
    for _, other in ipairs(others) do
      local later <close> = make()
      local err = raises({
        "stopped in an epoch of 20 rows in 5 batches of 4, shuffled by seed 3", "is resumed on",
      }, later.fit, later, other, with { checkpoint = path, resume = true })
      assert.are.equal("data", err.code)
      raises("is resumed on", first.fit, first, other, with { resume = true })
      assert.are.equal(7,
        first:step { x = neap.ones(2, 3), y = neap.zeros { 2, dtype = "i64" } }.step - 1)
      first:load(path)
      -- nothing was loaded
      assert.are.equal(1,
        later:step { x = neap.ones(2, 3), y = neap.zeros { 2, dtype = "i64" } }.step)
      later:load(path)
      later:fit(other, { epochs = 1, verbose = 0 })
    end
    local later <close> = make()
    later:fit(set(), with { checkpoint = path, resume = true })
    assert.is_truthy(tostring(later):find("step 10", 1, true))
    -- at the end of an epoch
    later:fit(others[2], { epochs = 3, verbose = 0, checkpoint = path, resume = true })
    os.remove(path)
  end)
end)

describe("another optimizer on the same model", function()
  local function set()
    neap.seed(1)
    return data.tensors { x = neap.randn(40, 8), y = neap.rand_int { shape = { 40 }, low = 0,
      high = 4 }, batch = 20, shuffle = false }
  end
  local function model() return nn.Sequential { input = { 8 }, nn.Linear { 8, 4 } } end
  local points_of_8, start = set(), model():state_dict()
  local makers = {
    function() return optim.SGD { lr = 0.1, momentum = 0.9 } end,
    function() return optim.Adam { lr = 0.1, average = 0.9 } end,
    function() return optim.Lamb { lr = 0.1 } end,
    function() return optim.Adagrad { lr = 0.1, start = 0.5 } end,
    function() return optim.SGD { lr = 0.1 } end,
  }
  local function train(m, optimizer, o)
    m:load_state_dict(start)
    local t = neap.trainer { model = m, optimizer = optimizer, accumulate = o and o.accumulate }
    t:fit(points_of_8, { epochs = 2, verbose = 0 })
    return m:state_dict()["linear1.weight"], t
  end
  local function far(a, b) return (a - b):abs():max():item() end

  it("starts afresh, whatever the one before was", function()
    for _, o in ipairs { {}, { accumulate = 2 } } do
      for _, before in ipairs(makers) do
        for _, make_one in ipairs(makers) do
          local m, alone = model(), model()
          train(m, before(), o)
          assert.are.equal(0, far(train(alone, make_one(), o), (train(m, make_one(), o))))
        end
      end
    end
  end)
  it("leaves a checkpoint of its own blobs alone", function()
    local path, m, optimizer = os.tmpname() .. ".safetensors", model(), makers[1]()
    train(m, makers[2]())
    local w, t = train(m, optimizer)
    assert.is_true(t:save(path))
    local other = neap.trainer { model = model(), optimizer = makers[1]() }
    other:load(path)
    t:fit(points_of_8, { epochs = 4, verbose = 0 })
    other:fit(points_of_8, { epochs = 4, verbose = 0 })
    assert.are.equal(0, far(m:state_dict()["linear1.weight"],
      other.model:state_dict()["linear1.weight"]))
    assert.is_true(far(w, m:state_dict()["linear1.weight"]) > 0)
    os.remove(path)
  end)
  it("is not the same one in another trainer, which goes on; nor one of other parameters",
    function()
      local deep
      local function run(again)
        local m = nn.Sequential { input = { 8 }, nn.Linear { 8, 8 }, nn.Linear { 8, 4 } }
        deep = deep or m:state_dict()
        m:load_state_dict(deep)
        local a, b = makers[1](), makers[2]()
        local function of(o, glob)
          return neap.trainer { model = m, optimizer = o, train = glob }
        end
        local ta, tb = of(a, "linear1*"), of(b, "linear2*")
        for i = 1, 4 do
          if again and i == 3 then ta, tb = of(a, "linear1*"), of(b, "linear2*") end
          for batch in points_of_8:epoch(1) do
            ta:step(batch)
            tb:step(batch)
          end
        end
        return m:state_dict()["linear1.weight"]
      end
      assert.are.equal(0, far(run(false), run(true)))
    end)
  it("gives the bytes of the one before back: a total of its own forecast will do", function()
    local m = nn.Sequential { input = { 8 }, nn.Linear { 8, 512 }, nn.BatchNorm1d { 512 },
      nn.Linear { 512, 4 } }
    local function of(optimizer, total)
      return neap.trainer { model = m, optimizer = optimizer, memory = { total = total } }
    end
    local adam <close> = of(optim.Adam {})
    adam:fit(points_of_8, { epochs = 1, verbose = 0 })
    adam:close()
    local total = of(optim.RmsProp {}):forecast(20, { x = neap.randn(20, 8),
      y = neap.rand_int { shape = { 20 }, low = 0, high = 4 } }).total_bytes
    local t <close> = of(optim.RmsProp {}, total)
    t:fit(points_of_8, { epochs = 1, verbose = 0 })
  end)
  it("gives the first one's trainer a new start, too, when that steps again", function()
    local m, alone = model(), model()
    local _, first = train(m, makers[2]())
    train(m, makers[5]())
    m:load_state_dict(start)
    first:fit(points_of_8, { epochs = 2, verbose = 0 })
    assert.are.equal(0, far(m:state_dict()["linear1.weight"], (train(alone, makers[2]()))))
  end)
end)
