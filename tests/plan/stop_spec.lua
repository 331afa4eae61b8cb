-- A step that is stopped, by Ctrl-C or by data that no op can take, leaves everything as it was
-- before the step.
local neap = require "neap"
local core = require "neap.core"
local state_of = require("support").state_of

--- ids (n) -> Embedding -> FC -> loss against labels, with momentum
local function net_of(n)
  local net = neap.net "words"
  local ids, t = net:input("ids", { n }, "i64"), net:input("t", { n }, "i64")
  local e = net:Embedding({ ids, net:param("table", { 7, 4 }, neap.init.xavier {}) }, "e")
  local y = net:FC({ e, net:param("w", { 3, 4 }, neap.init.xavier {}) }, "y")
  local loss = net:SoftmaxCrossEntropy({ y, t }, "loss")
  neap.optim.SGD { lr = 0.1, momentum = 0.9 }:apply(net, net:gradient(loss))
  net:outputs { loss }
  return net
end

for _, memory in ipairs {
  { policy = "offset" }, { policy = "none" }, { policy = "name" }, { executor = "dag" },
} do
  local title = memory.executor or memory.policy
  describe("a stopped step (" .. title .. ")", function()
    local ws, program

    before_each(function()
      local net = net_of(4)
      ws = neap.workspace { seed = 2, store = false }
      ws:poison(true)
      ws:init(net)
      program = ws:compile(net, {
        store = false, policy = memory.policy, executor = memory.executor,
      })
      ws:feed("lr", 0.1)
      ws:feed("ids", neap.tensor({ 0, 6, 2, 1 }, "i64"))
      ws:feed("t", neap.tensor({ 0, 1, 2, 0 }, "i64"))
      program:run(2)
    end)

    after_each(function()
      program:close()
      ws:close()
    end)

    --- Runs with one bad input; the next good step gives what it would have given without it.
    local function faults(input, bad, good, op, words)
      local before = state_of(ws)
      ws:feed(input, neap.tensor(bad, "i64"))
      local ok, err = pcall(program.run, program)
      assert.is_false(ok)
      assert.are.equal("data", err.code)
      assert.are.equal(before, state_of(ws))
      for _, word in ipairs { op, words } do
        assert.is_truthy(tostring(err):find(word, 1, true),
          ("%q is not in %q"):format(word, tostring(err)))
      end
      assert.is_truthy(err.op and err.op ~= "", "the error names no op")
      assert.is_truthy(err.blob and err.blob ~= "", "the error names no blob")
      ws:feed(input, neap.tensor(good, "i64"))
      program:run()
      assert.are_not.equal(before, state_of(ws))
      assert.are.equal(3, ws:step())
    end

    it("by a label out of range", function()
      faults("t", { 0, 3, 1, 1 }, { 0, 1, 2, 0 }, "SoftmaxCrossEntropy", "3")
    end)
    it("by a negative label", function()
      faults("t", { 0, -5, 1, 1 }, { 0, 1, 2, 0 }, "SoftmaxCrossEntropy", "-5")
    end)
    it("by an index out of range", function()
      faults("ids", { 0, 7, 2, 1 }, { 0, 6, 2, 1 }, "Embedding", "7")
    end)
    it("by an index below 0", function()
      faults("ids", { 0, -1, 2, 1 }, { 0, 6, 2, 1 }, "Embedding", "-1")
    end)

    it("by Ctrl-C", function()
      local before = state_of(ws)
      core.interrupt()
      local ok, err = pcall(program.run, program)
      assert.is_false(ok)
      assert.are.equal("interrupted", err.code)
      assert.are.equal(before, state_of(ws))
      program:run()
      assert.are.equal(3, ws:step())
    end)
  end)
end
