-- Refused memory in a training step, in feeding and fetching and in checkpoints: the n-th
-- allocation fails, then the next one, until the call passes. Each failure is reported as one,
-- leaves parameters, optimizer state and step counter as they were, and when all is closed and
-- collected as many blocks live as before.
local neap = require "neap"
local core = require "neap.core"
local nn, optim = neap.nn, neap.optim
local support = require "support"
local state_of, settle = support.state_of, support.settle

--- f() with the n-th allocation refused, n = 1, 2, .. until it passes; after each refusal
-- unchanged(n) looks at what must hold. `may_pass`: f may need no allocation at all, as a step of a
-- warm trainer does.
local function sweep(f, unchanged, may_pass)
  local n_refused = 0
  for n = 1, 3000 do
    core.fail_nth(n)
    local ok, err, message, code = pcall(f)
    local failed = core.failed()
    core.fail_nth(0)
    if ok and not failed then
      assert.is_true(n_refused > 0 or may_pass == true, "nothing was refused on the way")
      return n_refused
    end
    n_refused = n_refused + 1
    local got = not ok and (type(err) == "table" and err.code or tostring(err))
      or err == nil and message and code
    -- else the second try, after a collection, passed
    if got then assert.are.equal("memory", got) end
    unchanged(n, ok)
  end
  error "the call never passed"
end

local function new_trainer()
  local model = nn.Sequential {
    input = { 6 }, nn.Linear { 6, 5 }, nn.ReLU(), nn.Dropout { 0.2 }, nn.Linear { 5, 3 },
  }
  return neap.trainer {
    model = model,
    optimizer = optim.SGD { lr = 0.1, momentum = 0.9 },
    seed = 3,
    memory = { store = false },
  }
end

local function batch()
  local x = neap.zeros(4, 6)
  local at = 0
  x:apply_(function()
    at = at + 1
    return (at * 37 % 19) / 10 - 0.9
  end)
  return { x = x, y = neap.tensor({ 0, 1, 2, 0 }, "i64"), n = 4 }
end

--- Live blocks before and after body(), run once before to fill caches and tables of names.
local function leaves_nothing(body)
  body()
  settle()
  local live, held = core.memory().n_live, core.memory().held
  body()
  settle()
  assert.are.equal(held, core.memory().held)
  assert.is_true(core.memory().n_live <= live,
    ("%d blocks were left"):format(core.memory().n_live - live))
end

describe("refused memory", function()
  it("in a trainer's first step, compilation and all", function()
    leaves_nothing(function()
      local t = new_trainer()
      local b = batch()
      sweep(function() t:step(b) end, function(_, ok)
        if not ok then assert.are.equal(0, t.ws:step()) end
      end)
      for _, entry in pairs(t.programs) do entry.program:close() end
      t.ws:close()
    end)
  end)

  it("in a later step", function()
    leaves_nothing(function()
      local t, other = new_trainer(), new_trainer()
      local b = batch()
      for _ = 1, 2 do t:step(b) end
      local before = state_of(t.ws)
      local done = false
      sweep(function()
        t:step(b)
        done = true
      end, function()
        if done then return end
        assert.are.equal(before, state_of(t.ws))
      end, true)
      local steps = t.ws:step()
      for _ = 1, steps do other:step(b) end -- the same bits as without a refusal
      assert.are.equal(state_of(other.ws), state_of(t.ws))
      for _, trainer in ipairs { t, other } do
        for _, entry in pairs(trainer.programs) do entry.program:close() end
        trainer.ws:close()
      end
    end)
  end)

  it("in feeding, fetching and viewing", function()
    leaves_nothing(function()
      local ws <close> = neap.workspace { seed = 1, store = false }
      local x = neap.tensor { 1, 2, 3 }
      ws:feed("x", x)
      sweep(function() ws:feed("x", neap.tensor { 4, 5, 6, 7 }) end, function(_, ok)
        if not ok then assert.are.same({ 1, 2, 3 }, ws:fetch("x"):totable()) end
      end)
      assert.are.same({ 4, 5, 6, 7 }, ws:fetch("x"):totable())
      sweep(function() return ws:fetch "x", ws:view "x", ws:has "x" end, function() end)
      sweep(function() ws:feed("another_blob", neap.tensor { 1 }) end, function() end)
      assert.are.same({ 4, 5, 6, 7 }, ws:fetch("x"):totable())
    end)
  end)

  it("in saving and loading a checkpoint", function()
    local name = os.tmpname()
    local path = name .. ".safetensors"
    leaves_nothing(function()
      local t = new_trainer()
      local b = batch()
      for _ = 1, 2 do t:step(b) end
      local saved = state_of(t.ws)
      sweep(function() return t:save(path) end,
        function() assert.are.equal(saved, state_of(t.ws)) end)
      t:step(b)
      local later = state_of(t.ws)
      assert.are_not.equal(saved, later)
      sweep(function() return t:load(path) end, function(_, ok)
        local now = state_of(t.ws)
        assert.is_true(now == later or ok and now == saved, "a failed load changed the state")
        if now == saved then t:step(b) end
      end)
      assert.are.equal(saved, state_of(t.ws))
      for _, entry in pairs(t.programs) do entry.program:close() end
      t.ws:close()
    end)
    os.remove(path)
    os.remove(name)
  end)
end)
