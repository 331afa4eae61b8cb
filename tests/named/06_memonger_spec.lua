-- memonger: names recycled net to net. Every planned net is run under policy `name` and compared, bit for bit, with the
-- unplanned run of the net it came from: losses, outputs, parameters after updates and their gradients.
local neap = require "neap"
local netfile = require "neap.net.file"
local M = neap.memonger
local support = require "support"
local filler = support.filler

-- ---- helpers ---------------------------------------------------------------------------------------------------------------------

--- The same numbers for everybody: floats from -1 to 1, integers 0 and 1.
local function numbers(shape, dtype, seed)
  if #shape == 0 then return neap.tensor(0.05, dtype) end
  return filler(seed)(neap.zeros { dtype = dtype, table.unpack(shape) }, dtype ~= "f32" and dtype ~= "f64" and 2 or nil)
end

--- Bits of all blobs that stay, after two steps.
local function bits(net, memory)
  memory.store, memory.engine = false, memory.engine or "ref"
  local ws <close> = neap.workspace { seed = 3, store = false }
  ws:poison(memory.policy == "name")
  ws:init(net)
  local program <close> = ws:compile(net, memory)
  for step = 1, 2 do
    for i, input in ipairs(net:inputs()) do ws:feed(input.name, numbers(input.shape, input.dtype, 0.3 * i + 0.07 * step)) end
    program:run()
  end
  local found = {}
  for _, row in ipairs(ws:_blobs()) do
    if row.kind == "tensor" and not row.shares then found[row.name] = ws:view(row.name):hash() end
  end
  return found
end

--- Runs both nets and compares what both have; `names` must be among it.
local function assert_same_run(net, planned, names, executor)
  executor = executor or "simple"
  local threads = executor == "dag" and 2 or nil
  local a = bits(net, { policy = "none", executor = executor, threads = threads })
  local b = bits(planned, { policy = "name", executor = executor, threads = threads })
  local n = 0
  for name, hash in pairs(a) do
    if b[name] then
      n = n + 1
      assert.are.equal(hash, b[name], name)
    end
  end
  assert.is_true(n > 1)
  for _, name in ipairs(names) do assert.is_truthy(a[name] and b[name], name .. " is not in both runs") end
end

local function n_names(net)
  local seen, n = {}, 0
  for _, op in ipairs(net:_ops()) do
    for _, list in ipairs { op.inputs, op.outputs } do
      for _, name in ipairs(list) do
        if name and not seen[name] then
          seen[name] = true
          n = n + 1
        end
      end
    end
  end
  return n
end

local function has_name(net, name)
  for _, op in ipairs(net:_ops()) do
    for _, list in ipairs { op.inputs, op.outputs } do
      for _, other in ipairs(list) do
        if other == name then return true end
      end
    end
  end
  return false
end

--- Sum over names of the bytes a plan by name gives to the arena.
local function arena(net, policy) return net:plan({ policy = policy, engine = "ref", store = false }).arena_bytes end

local function fc(net, x, y, n_out, n_in)
  net:param(y .. "_w", { n_out, n_in }, neap.init.xavier())
  net:param(y .. "_b", { n_out })
  return net:FC({ x, y .. "_w", y .. "_b" }, y)
end

--- x -> n layers of width 8 -> softmax loss.
local function chain(n, o)
  o = o or {}
  local net = neap.net "chain"
  net:input("x", { 4, 8 })
  net:input("label", { 4 }, "i64")
  local at = "x"
  for i = 1, n do
    fc(net, at, "fc" .. i, 8, 8)
    at = "fc" .. i
  end
  net:SoftmaxCrossEntropy({ at, "label" }, "loss")
  net:outputs { "loss" }
  if o.train ~= false then net:gradient "loss" end
  return net
end

--- A trunk, two branches that meet, two losses.
local function tree(o)
  o = o or {}
  local net = neap.net "tree"
  net:input("x", { 4, 8 })
  net:input("label", { 4 }, "i64")
  fc(net, "x", "fc1", 8, 8)
  fc(net, "fc1", "fc2", 8, 8)
  fc(net, "fc2", "left1", 8, 8)
  fc(net, "left1", "left2", 8, 8)
  fc(net, "fc2", "right1", 8, 8)
  fc(net, "right1", "right2", 8, 8)
  net:Add({ "left2", "right2" }, "join")
  fc(net, "join", "fc5", 8, 8)
  fc(net, "fc5", "fc6", 8, 8)
  net:SoftmaxCrossEntropy({ "fc6", "label" }, "loss1")
  if o.side then
    fc(net, "join", "side1", 8, 8)
    fc(net, "side1", "side2", 8, 8)
    net:SoftmaxCrossEntropy({ "side2", "label" }, "loss2")
  else
    net:SoftmaxCrossEntropy({ "right2", "label" }, "loss2")
  end
  net:Add({ "loss1", "loss2" }, "loss")
  net:outputs { "loss1", "loss2", "loss" }
  if o.train then net:gradient "loss" end
  return net
end

-- ---- the linear planner -------------------------------------------------------------------------------------------------------------

describe("a chain of layers with its gradient", function()
  for _, algo in ipairs { "greedy", "exact" } do
    it("gives the same loss and gradients after planning by " .. algo .. ", in fewer bytes", function()
      local net = chain(3)
      local planned, slots, canonical = M.optimize_interference(net, nil, nil, nil, algo, 100000)
      assert.is_true(n_names(planned) < n_names(net:expand {}))
      assert_same_run(net, planned, { "loss", "fc1_w_grad", "fc1_w" })
      assert.is_true(M.verify_assignments(slots))
      local s = M.compute_statistics(slots)
      assert.is_true(s.optimized_bytes < s.baseline_bytes and s.lower_bound_bytes <= s.optimized_bytes)
      assert.are.equal("fc1_w", canonical.fc1_w)
      assert.is_true(arena(planned, "name") < arena(net, "none"))
      -- Planned again with sizes: what is given instead of the real bytes is used.
      local again, slots2 = M.optimize_interference(net, nil, nil, M.collect_blob_sizes(net), algo, 100000)
      assert.is_true(M.compute_statistics(slots2).optimized_bytes <= s.baseline_bytes)
      assert_same_run(net, again, { "loss", "fc1_w_grad" })
    end)
  end

  it("loses names in the linear planner and keeps its numbers", function()
    local net = chain(3)
    local planned, slots = M.optimize_inference_net(net)
    assert.is_true(n_names(planned) < n_names(net:expand {}))
    assert.is_true(slots.saved > 0 and slots.planned_bytes < slots.baseline_bytes)
    assert.are.equal(1 - slots.planned_bytes / slots.baseline_bytes, slots.saved)
    assert_same_run(net, planned, { "loss", "fc1_w_grad" })
  end)

  it("keeps all outputs apart when an op reads one input twice", function()
    local net = neap.net "twice"
    net:input("x", { 4, 8 })
    local at = "x"
    for i = 1, 6 do at = net:Add({ at, at }, "s" .. i).name end
    net:outputs { "s6" }
    local planned = M.optimize_inference_net(net)
    for _, op in ipairs(planned:_ops()) do
      local seen = {}
      for _, name in ipairs(op.outputs) do
        assert.is_nil(seen[name])
        seen[name] = true
      end
    end
    assert.is_true(n_names(planned) < n_names(net))
    assert_same_run(net, planned, { "s6" })
  end)
end)

describe("the linear planner", function()
  it("leaves outputs, kept and declared blobs their names without being told", function()
    local net = chain(5, { train = false })
    net:keep "fc3"
    local planned = M.optimize_inference_net(net)
    for _, name in ipairs { "x", "fc1_w", "fc3", "loss" } do assert.is_true(has_name(planned, name), name) end
    assert_same_run(net, planned, { "loss", "fc3" })
  end)

  it("does nothing to a net that it has planned", function()
    for _, net in ipairs { chain(5), tree { train = true } } do
      local once = M.optimize_inference_net(net)
      local twice, slots = M.optimize_inference_net(once)
      assert.are.equal(once:text(), twice:text())
      assert.are.equal(0, slots.n_shared)
      local dag = M.compute_blob_recycling_for_dag(net)
      assert.are.equal(dag:text(), M.compute_blob_recycling_for_dag(dag):text())
    end
  end)

  it("never makes an op work in place that did not", function()
    local net = neap.net "again"
    net:input("x", { 4 })
    net:Relu("x", "a")
    net:Tanh("a", "b")
    net:Relu("b", "c")
    net:Tanh("c", "a")
    net:Copy("a", "y")
    net:outputs { "y" }
    local planned = M.optimize_inference_net(net)
    for _, op in ipairs(planned:_ops()) do assert.are_not.equal(op.inputs[1], op.outputs[1]) end
    assert.is_true(M.verify_inplace_blobs(net, planned))
    assert_same_run(net, planned, { "y" })
  end)

  it("gives an output that nobody reads its bytes for one op only: 13 ops, two slots a size", function()
    local net = neap.net "unread"
    net:input("x", { 4, 8 })
    local at = "x"
    for i = 1, 13 do
      net:Tanh(at, "unread" .. i)
      net:Relu(at, "y" .. i)
      at = "y" .. i
    end
    net:outputs { "y13" }
    local planned, slots = M.optimize_inference_net(net)
    -- Relu reads its input after Tanh has written what nobody reads: at most three are alive, and three names remain.
    assert.is_true(slots.n_shared <= 3)
    assert_same_run(net, planned, { "y13" })
    local pool = neap.net "window"
    pool:input("x", { 1, 1, 8, 8 })
    at = "x"
    for i = 1, 13 do
      pool:Dropout(at, { "d" .. i, "mask" .. i }, { rate = 0.5 })
      at = "d" .. i
    end
    pool:outputs { at }
    local _, few = M.optimize_inference_net(pool)
    local f32 = 0
    for i = 1, #few do
      if few[i].blobs:find "d%d" then f32 = f32 + 1 end
    end
    assert.is_true(f32 <= 2, "slots of the chain: " .. f32)
  end)

  it("chooses sizes without regard to the order in which they came", function()
    local bytes = { 100, 12, 4, 9 }
    local native = require("neap.core").memonger
    assert.are.equal(2, native.best_slot({ 100, 12 }, 10))
    assert.are.equal(1, native.best_slot({ 12, 100 }, 10))
    assert.are.equal(2, native.best_slot({ 4, 9 }, 10))
    assert.are.equal(1, native.best_slot({ 9, 4 }, 10))
    assert.are.equal(2, native.best_slot(bytes, 10))
    assert.is_nil(native.best_slot({ false, false }, 10))
  end)
end)

-- ---- gradients ------------------------------------------------------------------------------------------------------------------------

describe("shared gradients", function()
  it("take fewer names, fewer still with activations; the last activation keeps its name", function()
    local net = chain(5)
    local e = net:expand {}
    local shared = M.share_grad_blobs(net, { "loss" }, nil, "name_x")
    local more = M.share_grad_blobs(net, { "loss" }, nil, "name_x", { share_activations = true })
    assert.is_true(n_names(shared) < n_names(e))
    assert.is_true(n_names(more) <= n_names(shared))
    assert.is_true(has_name(shared, "fc5") and has_name(more, "fc5"))
    assert.is_truthy(shared:text():find("name_x/shared_1", 1, true))
    assert_same_run(net, shared, { "loss", "fc1_w_grad" }, "dag")
    assert_same_run(net, more, { "loss", "fc1_w_grad" }, "dag")
    assert_same_run(net, more, { "loss", "fc1_w_grad" })
  end)

  it("leave alone the last activations that keep_last counts, and no other", function()
    local net, at = neap.net "stack", "x"
    net:input("x", { 4, 8 })
    for i = 1, 8 do at = net:Relu(fc(net, at, "fc" .. i, 8, 8)).name end
    net:Sum(at, "loss")
    net:outputs { "loss" }
    net:gradient "loss"
    for k = 0, 9 do
      local shared = M.share_grad_blobs(net, { "loss" }, nil, "", { share_activations = true, keep_last = k })
      for i = 1, 8 do assert.are.equal(i > 8 - k, has_name(shared, "fc" .. i), ("fc%d with keep_last = %d"):format(i, k)) end
    end
    local by_default = M.share_grad_blobs(net, { "loss" }, nil, "", { share_activations = true })
    assert.are.equal(M.share_grad_blobs(net, { "loss" }, nil, "", { share_activations = true, keep_last = 2 }):text(), by_default:text())
  end)

  it("know gradients by what the net says of them, not by how a name ends", function()
    local net = neap.net "names"
    net:input("x_grad", { 4, 8 })
    net:input("label", { 4 }, "i64")
    fc(net, "x_grad", "split_grad_info", 8, 8)
    net:Relu("split_grad_info", "user_grad")
    fc(net, "user_grad", "out_grad", 8, 8)
    net:SoftmaxCrossEntropy({ "out_grad", "label" }, "loss")
    net:outputs { "loss" }
    net:gradient "loss"
    local e = net:expand {}
    assert.is_nil(e:_blob("user_grad").gradient_of)
    assert.are.equal("gradient", e:_blob("out_grad_w_grad").role)
    assert.are.equal("out_grad_w", e:_blob("out_grad_w_grad").gradient_of)
    local marked = 0
    for _, row in ipairs(e:_blobs()) do
      if row.gradient_of == "user_grad" then marked = marked + 1 end
    end
    assert.is_true(marked >= 1)
    local shared = M.share_grad_blobs(net, { "loss" })
    for _, name in ipairs { "split_grad_info", "user_grad", "out_grad" } do assert.is_true(has_name(shared, name), name) end
    assert_same_run(net, shared, { "loss", "out_grad_w_grad" })
    assert.are.equal(e:text(), neap.net_from(e:text()):text())
    assert.are.equal(e:text(), e:clone():text())
  end)

  it("over a tree with two losses: kept activations stay, a scope may end in a slash or not", function()
    local net = tree { train = true }
    local shared = M.share_grad_blobs(net, { "loss1", "loss2" }, nil, "scope/", { share_activations = true, dont_share = { "fc6", "right1" } })
    assert.is_true(n_names(shared) < n_names(net:expand {}))
    assert.is_true(has_name(shared, "fc6") and has_name(shared, "right1"))
    assert_same_run(net, shared, { "loss1", "loss2", "fc1_w_grad" }, "dag")
    local other = M.share_grad_blobs(net, { "loss1", "loss2" }, nil, "scope", { share_activations = true, dont_share = { "fc6", "right1" } })
    assert.are.equal(shared:text(), other:text())
  end)

  it("of an LSTM network: the planned net is the one that is run", function()
    local net = neap.net "rnn"
    net:input("x", { 5, 2, 4 })
    net:input("label", { 10 }, "i64")
    local at, width = "x", 4
    for layer = 1, 2 do
      net:param("w_" .. layer, { 24, width }, neap.init.xavier())
      net:param("r_" .. layer, { 24, 6 }, neap.init.xavier())
      net:param("b_" .. layer, { 24 })
      net:LSTM({ at, "w_" .. layer, "r_" .. layer, "b_" .. layer }, { "h_" .. layer, "last_h" .. layer, "last_c" .. layer })
      at, width = "h_" .. layer, 6
    end
    net:Reshape(at, "flat", { shape = { 10, 6 } })
    fc(net, "flat", "score", 3, 6)
    net:SoftmaxCrossEntropy({ "score", "label" }, "loss")
    net:outputs { "loss" }
    net:gradient "loss"
    local shared = M.share_grad_blobs(net, { "loss" }, nil, "", { share_activations = true })
    assert.is_true(n_names(shared) < n_names(net:expand {}))
    assert_same_run(net, shared, { "loss", "r_1_grad" })
  end)
end)

-- ---- any order that the dag allows --------------------------------------------------------------------------------------------------------

--- What must have run before op i of a net: {op = true}, from the blobs alone, each of which is written once.
local function ancestors_of(net)
  local ops, writer, before = net:_ops(), {}, {}
  for i, op in ipairs(ops) do
    before[i] = {}
    for _, name in ipairs(op.inputs) do
      local w = name and writer[name]
      if w then
        before[i][w] = true
        for a in pairs(before[w]) do before[i][a] = true end
      end
    end
    for _, name in ipairs(op.outputs) do
      if name then
        assert.is_nil(writer[name], name .. " is written twice")
        writer[name] = i
      end
    end
  end
  return before
end

--- Of a net and its planned one: pairs of blobs that share a name, and pairs of which neither is done with, by the net's own
-- dependencies, when the other is written. An op that reads the one and writes the other is done with it.
local function sharing_pairs(net, planned)
  local before, ops, renamed = ancestors_of(net), net:_ops(), planned:_ops()
  assert.are.equal(#ops, #renamed)
  local uses, blobs_of = {}, {}
  for i, op in ipairs(ops) do
    for _, side in ipairs { "inputs", "outputs" } do
      for k, name in ipairs(op[side]) do
        if name then
          if not uses[name] then
            local list = blobs_of[renamed[i][side][k]] or {}
            blobs_of[renamed[i][side][k]] = list
            list[#list + 1], uses[name] = name, {}
          end
          if side == "outputs" then uses[name].writer = i end
          table.insert(uses[name], i)
        end
      end
    end
  end
  local function done_before(a, b)
    for _, i in ipairs(uses[a]) do
      if not uses[b].writer or i ~= uses[b].writer and not before[uses[b].writer][i] then return false end
    end
    return true
  end
  local n, bad = 0, {}
  for name, list in pairs(blobs_of) do
    for i, a in ipairs(list) do
      for k = i + 1, #list do
        n = n + 1
        if not done_before(a, list[k]) and not done_before(list[k], a) then bad[#bad + 1] = ("%s: %s and %s"):format(name, a, list[k]) end
      end
    end
  end
  return n, bad
end

--- n ops over earlier blobs, mostly the newest ones, so that branches run side by side.
local function random_branches(n, draw)
  local net = neap.net "branches"
  local list = { net:input("x", { 4, 6 }).name }
  for i = 1, n do
    local function earlier() return list[math.max(1, #list - draw(5))] end
    local a, b, name = earlier(), earlier(), "b" .. i
    if i == 1 or draw(3) == 0 then
      net:param("w" .. i, { 6, 6 }, neap.init.xavier())
      net:MatMul({ a, "w" .. i }, name)
    elseif a ~= b and draw(2) == 0 then
      net:Add({ a, b }, name)
    else
      net:Tanh(a, name)
    end
    list[#list + 1] = name
  end
  net:Sum(list[#list], "loss")
  net:outputs { "loss" }
  return net
end

describe("names shared for the dag executor", function()
  local function sweep(recycle)
    local state = 7
    local function draw(n)
      state = (state * 1103515245 + 12345) % 2147483648
      return state // 65536 % n
    end
    local n, bad = 0, {}
    for round = 1, 40 do
      local net = random_branches(6 + round % 12, draw)
      local e, planned = recycle(net)
      local pairs_, unsafe = sharing_pairs(e, planned)
      n = n + pairs_
      for _, what in ipairs(unsafe) do bad[#bad + 1] = round .. " " .. what end
    end
    return n, bad
  end
  local function of_inference(executor)
    return function(net) return net, (M.optimize_net(net, { executor = executor })) end
  end
  local function of_training(dag)
    return function(net)
      net:gradient "loss"
      return net:expand {}, (M.share_grad_blobs(net, { "loss" }, nil, "", { share_activations = true, dag = dag }))
    end
  end

  it("are free in every order that the net allows, forward and with a backward pass", function()
    for what, recycle in pairs { inference = of_inference "dag", training = of_training(true) } do
      local n, bad = sweep(recycle)
      assert.is_true(n > 40, ("only %d pairs share a name in %s"):format(n, what))
      assert.are.same({}, bad)
    end
    local net = random_branches(12, function(k) return k - 1 end)
    local safe = select(2, sharing_pairs(net, (M.optimize_inference_for_dag(net, { "x" }))))
    assert.are.same({}, safe)
  end)
  it("are more than those: names for one order are not, which this check sees", function()
    for _, recycle in ipairs { of_inference "simple", of_training(false) } do
      local _, bad = sweep(recycle)
      assert.is_true(#bad > 0)
    end
  end)
end)

-- ---- devices ---------------------------------------------------------------------------------------------------------------------------

describe("devices", function()
  it("never mix: no blob but a copy's is touched on both", function()
    local net = neap.net "mixed"
    net:input("x", { 4, 8 })
    net:input("label", { 4 }, "i64")
    fc(net, "x", "fc1", 8, 8)
    fc(net, "fc1", "fc2", 8, 8)
    net:device("cpu:1", function()
      net:Copy("fc2", "over")
      fc(net, "over", "fc3", 8, 8)
      fc(net, "fc3", "fc4", 8, 8)
    end)
    net:Copy("fc4", "back")
    net:SoftmaxCrossEntropy({ "back", "label" }, "loss")
    net:outputs { "loss" }
    net:gradient "loss"
    local planned = M.optimize_net(net)
    assert.is_true(n_names(planned) < n_names(net:expand {}))
    local device = {}
    for _, op in ipairs(planned:_ops()) do
      for _, name in ipairs(op.outputs) do
        if name then
          assert.is_true(device[name] == nil or device[name] == (op.device or ""), name)
          device[name] = op.device or ""
        end
      end
    end
    local there = 0
    for _, d in pairs(device) do there = there + (d == "cpu:1" and 1 or 0) end
    assert.is_true(there >= 3, "the backward pass follows its forward ops")
    assert_same_run(net, planned, { "loss", "fc3_w_grad" })
    assert.are.equal(planned:text(), neap.net_from(planned:text()):text())
  end)
end)

describe("a device", function()
  it("is a label: what is not one is refused in those words, and the ops run as without it", function()
    local net = neap.net "labelled"
    net:input("x", { 4 })
    support.raises("label", net.device, net, 1, function() end)
    support.raises("label", net.device, net, "a b", function() net:Relu("x", "y") end)
    net:device("anywhere:7", function() net:Relu("x", "y") end)
    local ws <close> = neap.workspace { store = false }
    assert.are.same({ 0, 1 }, { ws:run(net, { x = neap.tensor { -1, 1, -2, 2 } }).y:at(1), ws:fetch("y"):at(2) })
  end)
end)

-- ---- forks and joins --------------------------------------------------------------------------------------------------------------------

describe("forks and joins", function()
  it("share along paths only: both losses are as before in a dag", function()
    local net = tree()
    local planned = M.compute_blob_recycling_for_dag(net, { "x" })
    assert.is_true(n_names(planned) < n_names(net))
    assert_same_run(net, planned, { "loss1", "loss2" }, "dag")
    local function arena_of_dag(n, policy) return n:plan({ policy = policy, engine = "ref", executor = "dag", store = false }).arena_bytes end
    assert.is_true(arena_of_dag(planned, "name") < arena_of_dag(net, "none"))
  end)

  it("do not let two branches share before they join", function()
    local net = tree()
    local planned, slots = M.compute_blob_recycling_for_dag(net)
    for i = 1, #slots do
      local text = slots[i].blobs
      assert.is_false(text:find "left" ~= nil and text:find "right" ~= nil, text)
    end
    assert.is_true(#slots >= 1)
    assert_same_run(net, planned, { "loss" }, "dag")
  end)

  it("with a side branch behind the join: a parameter as one more head changes nothing", function()
    local net = tree { side = true }
    local one, a = M.compute_blob_recycling_for_dag(net, { "x" })
    local two, b = M.compute_blob_recycling_for_dag(net, { "x", "fc1_w" })
    assert.are.equal(n_names(one), n_names(two))
    assert.are.equal(a.n_shared, b.n_shared)
    assert.is_true(n_names(one) < n_names(net))
    assert_same_run(net, one, { "loss1", "loss2" }, "dag")
  end)

  it("respects the ops that take part, what may be shared, and what may neither give nor take", function()
    local net = chain(8, { train = false })
    local planned = M.compute_blob_recycling_for_dag(net, { "x" }, { 1, 2, 3, 4 })
    assert.is_true(has_name(planned, "fc5") and has_name(planned, "fc6") and not has_name(planned, "fc1"))
    planned = M.compute_blob_recycling_for_dag(net, { "x" }, nil, { "fc1", "fc3", "fc5" }, "few")
    assert.is_true(has_name(planned, "fc2") and has_name(planned, "few/shared_1") and not has_name(planned, "fc1"))
    planned = M.compute_blob_recycling_for_dag(net, { "x" }, nil, nil, "", { "fc1", "fc7" })
    assert.is_true(has_name(planned, "fc1") and has_name(planned, "fc7"))
    assert_same_run(net, planned, { "loss" })
    assert.has_error(function() M.compute_blob_recycling_for_dag(net, { "nothing" }) end)
  end)

  it("gives the same names in every run", function()
    local a = M.compute_blob_recycling_for_dag(tree { train = true }):text()
    for _ = 1, 3 do assert.are.equal(a, M.compute_blob_recycling_for_dag(tree { train = true }):text()) end
  end)

  it("refuses a backward pass where inference was asked for", function()
    assert.has_error(function() M.optimize_inference_for_dag(chain(2)) end)
    assert.has_error(function() M.optimize_inference_for_dag(chain(2):expand {}) end)
    local planned = M.optimize_inference_for_dag(chain(6, { train = false }), { "x" }, "inference")
    assert.is_true(has_name(planned, "inference/shared_1"))
  end)
end)

-- ---- orders ------------------------------------------------------------------------------------------------------------------------------

local function of_copies(...)
  local net = neap.net "copies"
  net:input("data", { 2 })
  net:input("w", { 2 })
  for _, op in ipairs { ... } do
    if #op == 3 then net:Add({ op[1], op[2] }, op[3]) else net:Copy(op[1], op[2]) end
  end
  return net
end

describe("the interference graph", function()
  it("of three copies in place is a chain with all its shortcuts", function()
    local net = of_copies({ "data", "x" }, { "x", "x" }, { "x", "x" })
    assert.are.same({ { 1, 2 }, { 1, 3 }, { 2, 3 } }, M.compute_interference_graph(net))
  end)
end)

describe("an order of ops", function()
  local two_chains = { { "w", "w0" }, { "data", "w0", "c1" }, { "w", "w2" }, { "c1", "w2", "c2" } }
  it("is a valid one; by the longest path each op comes right before it is needed", function()
    local net = of_copies(table.unpack(two_chains))
    assert.are.same({ 1, 2, 3, 4 }, M.topological_sort_traversal(net))
    assert.are.same({ 1, 2, 3, 4 }, M.topological_sort_traversal_longest_path(net))
    local mixed = of_copies({ "w", "w2" }, { "w", "w0" }, { "data", "w0", "c1" }, { "c1", "w2", "c2" })
    assert.are.same({ 2, 3, 1, 4 }, M.topological_sort_traversal_longest_path(mixed))
  end)
  it("takes the longer of several targets first", function()
    local net = of_copies({ "w", "w4" }, { "data", "w4", "c4" }, { "w", "w2" }, { "w", "w0" }, { "data", "w0", "c1" }, { "c1", "w2", "c2" })
    assert.are.same({ 4, 5, 3, 6, 1, 2 }, M.topological_sort_traversal_longest_path(net))
    local sorted = of_copies({ "w", "w0" }, { "data", "w0", "c1" }, { "w", "w2" }, { "c1", "w2", "c2" }, { "w", "w4" }, { "data", "w4", "c4" })
    assert.are.same({ 1, 2, 3, 4, 5, 6 }, M.topological_sort_traversal_longest_path(sorted))
  end)
  it("of one op is that op", function()
    for _, kind in ipairs { "plain", "longest_path", "least_memory" } do
      assert.are.same({ 1 }, M.topological_sort_traversal(of_copies { "data", "y" }, kind))
    end
  end)
  it("keeps a name that is written again behind the readers of what it was", function()
    local net = of_copies({ "data", "a" }, { "a", "b" }, { "w", "a" }, { "a", "b", "c" })
    for _, kind in ipairs { "plain", "longest_path", "least_memory" } do
      local at = {}
      for i, op in ipairs(M.topological_sort_traversal(net, kind)) do at[op] = i end
      assert.is_true(at[1] < at[2] and at[2] < at[3] and at[3] < at[4], kind)
    end
  end)
  it("keeps a declared blob that is written again behind the readers of what it was at first", function()
    local made = {
      state = function(net) net:declare("m", "state", { 2 }, "f32", { op = "Constant", value = 1 }) end,
      input = function(net) net:input("m", { 2 }) end,
      parameter = function(net) net:param("m", { 2 }, 1) end,
    }
    for what, declare in pairs(made) do
      local net = neap.net "again"
      net:input("x", { 2 })
      declare(net)
      net:Neg("m", "v")
      net:Exp("x", "a")
      net:Mul({ "a", "x" }, "m")
      net:Add({ "m", "a" }, "b")
      net:Relu("b", "c")
      net:Add({ "c", "v" }, "y")
      net:outputs { "y" }
      for _, kind in ipairs { "plain", "longest_path", "least_memory" } do
        local at = {}
        for i, op in ipairs(M.topological_sort_traversal(net, kind)) do at[op] = i end
        assert.is_true(at[1] < at[3] and at[2] < at[3], what .. ", " .. kind)
        assert_same_run(net, M.optimize_net(net, { order = kind }), { "y" })
        assert_same_run(net, (M.optimize_interference(net, nil, kind)), { "y" })
      end
    end
  end)
  it("draws the random numbers that were drawn as defined, in subnets too", function()
    local net = neap.net_from [[
net drawn
input x f32 (64)
input c bool (1)
subnet yes
  n1 = Dropout(x)
  n2 = Dropout(x)
  s = Add(n1, n2)
  takes x
  gives s
end
subnet no
  r = Dropout(x)
  takes x
  gives r
end
early = Dropout(x)
b = Exp(x)
late = Dropout(b)
picked = If(c, x) { then_net = yes, else_net = no }
last = Dropout(x)
d = Sin(late)
e = Add(early, d)
f = Add(e, picked)
y = Add(f, last)
outputs y]]
    local order = M.topological_sort_traversal(net, "longest_path")
    assert.are_not.same(M.topological_sort_traversal(net, "plain"), order)
    local planned = M.optimize_net(net, { order = "longest_path" })
    assert_same_run(net, planned, { "y" })
    assert_same_run(net, neap.net_from(planned:text()), { "y" })
    assert_same_run(net, (M.optimize_interference(net)), { "y" })
    local freed, names = M.release_blobs_when_used(net)
    assert.is_true(#names >= 4)
    assert_same_run(net, freed, { "y" })
  end)
  it("of least memory is never worse than as defined, and the reordered net computes the same", function()
    local net = neap.net "wide"
    net:input("x", { 64 })
    for i, type in ipairs { "Relu", "Tanh", "Sigmoid", "Exp" } do net:op(type, "x", "wide" .. i) end -- none is another's duplicate
    for i = 1, 4 do net:Sum("wide" .. i, "small" .. i, { axes = { 1 } }) end
    net:Add({ "small1", "small2" }, "a")
    net:Add({ "small3", "small4" }, "b")
    net:Add({ "a", "b" }, "y")
    net:outputs { "y" }
    local plain, least = M.optimize_net(net), M.optimize_net(net, { order = "least_memory" })
    assert.is_true(arena(least, "name") < arena(plain, "name"))
    assert_same_run(net, least, { "y", "x" })
    local _, slots = M.optimize_interference(net, nil, "least_memory")
    assert.is_true(M.verify_assignments(slots))
  end)
end)

-- ---- assignments ----------------------------------------------------------------------------------------------------------------------------

describe("an assignment", function()
  local ranges = { { name = "b1", defined = 1, used = 3, size = 10 }, { name = "b2", defined = 3, used = 4, size = 1 },
    { name = "b3", defined = 5, used = 6, size = 1 }, { name = "b4", defined = 5, used = 7, size = 10 } }
  local function names(slots)
    local out = {}
    for i, slot in ipairs(slots) do
      out[i] = {}
      for k, range in ipairs(slot) do out[i][k] = range.name end
    end
    return out
  end
  it("puts large with large: greedy, cost 11", function()
    local slots, s = M.compute_assignments(ranges)
    assert.are.same({ { "b1", "b4" }, { "b2", "b3" } }, names(slots))
    assert.are.equal(11, s.optimized_bytes)
    assert.are.equal(22, s.baseline_bytes)
    assert.are.equal(11, s.lower_bound_bytes)
    assert.are.equal(0.5, s.saved)
  end)
  it("is of ranges that say what each blob is", function()
    local net, role = chain(2), {}
    for _, range in ipairs(M.compute_ranges(net)) do
      role[range.role] = (role[range.role] or 0) + 1
      local blob = net:_blob(range.name)
      if blob then assert.are.equal(blob.role, range.role, range.name) end
    end
    assert.is_true(role.parameter >= 2 and role.activation >= 2)
  end)
  it("joins the slot that fits best, not the first that is free", function()
    local list = { { name = "a", defined = 4, used = 7, size = 4 }, { name = "b", defined = 6, used = 6, size = 2 },
      { name = "c", defined = 2, used = 5, size = 7 }, { name = "d", defined = 2, used = 3, size = 8 },
      { name = "e", defined = 6, used = 8, size = 5 } }
    local _, s = M.compute_assignments(list)
    assert.are.equal(select(2, M.compute_assignments(list, nil, "exact")).optimized_bytes, s.optimized_bytes)
    assert.are.equal(17, s.optimized_bytes)
  end)
  it("searched exactly, cost 11", function()
    local slots, s = M.compute_assignments(ranges, nil, "exact")
    assert.are.equal(11, s.optimized_bytes)
    assert.is_true(s.proved)
    assert.is_true(M.verify_assignments(slots))
  end)
  it("searched exactly, costs what the best of all partitions does", function()
    local function best(list, k, slots) -- bytes of the cheapest way to put list[k], list[k + 1], .. into these slots or new ones
      if k > #list then
        local total = 0
        for _, slot in ipairs(slots) do
          local size = 0
          for _, r in ipairs(slot) do size = math.max(size, r.size) end
          total = total + size
        end
        return total
      end
      local least = math.huge
      for s = 1, #slots + 1 do
        local slot, free = slots[s] or {}, true
        for _, r in ipairs(slot) do free = free and (r.used < list[k].defined or list[k].used < r.defined) end
        if free then
          slots[s] = slot
          slot[#slot + 1] = list[k]
          least = math.min(least, best(list, k + 1, slots))
          slot[#slot] = nil
          if #slot == 0 then slots[s] = nil end
        end
      end
      return least
    end
    local state = 7
    local function below(n)
      state = (state * 1103515245 + 12345) % 2 ^ 31
      return math.floor(state / 65536) % n
    end
    local n_better = 0
    for _ = 1, 150 do
      local list = {}
      for i = 1, 5 + below(3) do
        local from = 1 + below(10)
        list[i] = { name = "r" .. i, defined = from, used = from + below(5), size = 1 + below(12) }
      end
      local _, s = M.compute_assignments(list, nil, "exact")
      assert.is_true(s.proved)
      assert.are.equal(best(list, 1, {}), s.optimized_bytes)
      if s.optimized_bytes < select(2, M.compute_assignments(list)).optimized_bytes then n_better = n_better + 1 end
    end
    assert.is_true(n_better > 0) -- the greedy order is not always as good
  end)
  it("avoids the trap of the order of definition, cost 11", function()
    local trap = { { name = "b1", defined = 1, used = 2, size = 10 }, { name = "b2", defined = 4, used = 6, size = 1 },
      { name = "b3", defined = 5, used = 6, size = 10 } }
    for _, algo in ipairs { "greedy", "exact" } do
      assert.are.equal(11, select(2, M.compute_assignments(trap, nil, algo)).optimized_bytes)
    end
  end)
  it("gives a static blob a slot of its own, and sizes of more than 32 bits", function()
    local slots = M.compute_assignments(ranges, { "b1" })
    for _, slot in ipairs(slots) do assert.is_true(#slot == 1 or (slot[1].name ~= "b1" and slot[2].name ~= "b1")) end
    local _, s = M.compute_assignments { { name = "a", defined = 1, used = 2, size = 1 << 40 }, { name = "b", defined = 3, used = 4, size = 1 << 41 } }
    assert.are.equal(1 << 41, s.optimized_bytes)
  end)
  it("says what it expects when it gets something else", function()
    local r = ranges[1]
    for _, case in ipairs { { M.compute_assignments, "x", "list of ranges, got a string" }, { M.compute_assignments, { r, 5 }, "got a number at 2" },
      { M.compute_statistics, 5, "list of slots, got a number" }, { M.compute_statistics, { r, { r } }, "which are lists of ranges, got" },
      { M.verify_assignments, "x", "list of slots, got a string" }, { M.verify_assignments, { { r, false } }, "got a boolean at 2" } } do
      local ok, err = pcall(case[1], case[2])
      assert.is_false(ok)
      assert.is_truthy(tostring(err):find(case[3], 1, true), tostring(err))
      assert.is_truthy(tostring(err):find("06_memonger_spec", 1, true), tostring(err))
    end
  end)
  it("knows its algorithms", function()
    assert.has_error(function() M.compute_assignments(ranges, nil, "dynamic") end)
  end)
  it("is stopped after so many steps with the best so far, the same in every run", function()
    local many = {}
    for i = 1, 120 do many[i] = { name = "r" .. i, defined = i, used = i + (i * 7919) % 23, size = 1 + (i * 104729) % 97 } end
    local slots, s = M.compute_assignments(many, nil, "exact", 100000)
    assert.is_true(M.verify_assignments(slots))
    assert.is_true(s.optimized_bytes <= select(2, M.compute_assignments(many)).optimized_bytes)
    assert.is_true(s.lower_bound_bytes <= s.optimized_bytes)
    assert.are.same(s, select(2, M.compute_assignments(many, nil, "exact", 100000)))
    assert.has_error(function() M.compute_assignments(many, nil, "exact", 0.05) end)
  end)
  it("that lets two lives overlap is refused, with both names", function()
    local ok, e = pcall(M.verify_assignments, { { ranges[1], ranges[2] } })
    assert.is_false(ok)
    assert.is_truthy(tostring(e):find "b1" and tostring(e):find "b2")
  end)
end)

-- ---- comparing --------------------------------------------------------------------------------------------------------------------------------

describe("two nets", function()
  --- Ops are called o1, o2 .., since two of them may write one blob.
  local function net_of(text)
    local i = 0
    return neap.net_from("net f\ninput x f32 (2)\n" .. text:gsub("(%b())([^\n]*)\n", function(operands, rest)
      i = i + 1
      return operands .. " as o" .. i .. rest .. "\n"
    end))
  end
  it("are equal when only names differ", function()
    assert.is_true(M.verify_graph_equality(net_of "a = Relu(x)\nb = Tanh(a)\n", net_of "p = Relu(x)\nq = Tanh(p)\n"))
  end)
  it("are equal when names are used again down two branches, safely", function()
    local a = net_of "a = Relu(x)\nb1 = Tanh(a)\nb2 = Relu(b1)\nc1 = Relu(a)\nc2 = Tanh(c1)\ny = Add(b2, c2)\n"
    local b = net_of "a = Relu(x)\ny = Tanh(a)\nz = Relu(y)\ny = Relu(a)\nu = Tanh(y)\nv = Add(z, u)\n"
    assert.is_true(M.verify_graph_equality(a, b))
  end)
  it("differ when two branches write one name", function()
    local a = net_of "b = Relu(x)\nc = Tanh(x)\ny = Add(b, c)\n"
    local b = net_of "b = Relu(x)\nb = Tanh(x)\ny = Add(b, b)\n"
    local same, where = M.verify_graph_equality(a, b)
    assert.is_false(same)
    assert.is_truthy(where:find "op 3")
  end)
  it("differ when they do so one level deeper", function()
    local a = net_of "b1 = Relu(x)\nc1 = Tanh(x)\nb2 = Relu(b1)\nc2 = Tanh(c1)\ny = Add(b2, c2)\n"
    local b = net_of "m = Relu(x)\nm = Tanh(x)\nb2 = Relu(m)\nc2 = Tanh(m)\ny = Add(b2, c2)\n"
    assert.is_false((M.verify_graph_equality(a, b)))
  end)
  it("differ by device, by working in place, and inside subnets", function()
    local a, b = net_of "y = Relu(x)\n", net_of "y = Relu(x) on cpu:1\n"
    assert.is_false((M.verify_graph_equality(a, b)))
    assert.is_false((M.verify_inplace_blobs(net_of "a = Tanh(x)\nb = Relu(a)\n", net_of "a = Tanh(x)\na = Relu(a)\n")))
    local function branchy(f)
      local net = neap.net "f"
      net:input("c", { 1 })
      net:input("x", { 2 })
      net:outputs { net:If("c", f, function(sub) return sub:Tanh "x" end) }
      return net
    end
    assert.is_false((M.verify_graph_equality(branchy(function(sub) return sub:Relu "x" end), branchy(function(sub) return sub:Sigmoid "x" end))))
    assert.is_true((M.verify_graph_equality(branchy(function(sub) return sub:Relu "x" end), branchy(function(sub) return sub:Relu("x", "other") end))))
  end)
  it("differ when a subnet swaps what it is given", function()
    local function of(order)
      return neap.net_from(([[
net f
input x f32 (2)
c = Sum(x) { axes = {0} }
p = Relu(x)
q = Tanh(x)
subnet yes
  r = Sub(%s)
  takes p, q
  gives r
end
subnet no
  r = Copy(p)
  takes p, q
  gives r
end
y = If(c, p, q) { then_net = yes, else_net = no }
outputs y
]]):format(order))
    end
    assert.is_true((M.verify_graph_equality(of "p, q", of "p, q")))
    local same, where = M.verify_graph_equality(of "p, q", of "q, p")
    assert.is_false(same)
    assert.is_truthy(where:find "Sub")
  end)
end)

-- ---- subnets ---------------------------------------------------------------------------------------------------------------------------------

describe("subnets", function()
  --- Chains that end in a sequence "seq" (5,2,3), a state "h0" (2,3) and a matrix "w" (3,3), none of which is declared.
  local function prelude(name)
    local net = neap.net(name)
    net:input("x", { 5, 2, 3 })
    net:input("c", { 1 })
    net:input("v", { 3, 3 })
    for i, op in ipairs { { "Relu", "x", "a" }, { "Tanh", "a", "b" }, { "Sigmoid", "b", "d" }, { "Tanh", "d", "seq" }, { "Copy", "v", "w1" },
      { "Tanh", "w1", "w2" }, { "Sigmoid", "w2", "w" }, { "Sum", "seq", "h1", { axes = { 1 } } }, { "Tanh", "h1", "h2" }, { "Sigmoid", "h2", "h0" } } do
      assert(net:op(op[1], op[2], op[3], op[4]), i)
    end
    return net
  end
  local function finish(net, y)
    net:Sigmoid(y, "e")
    net:Tanh("e", "f")
    net:Copy("f", "out")
    net:outputs { "out" }
    return net
  end
  local function stack(net, y, rows)
    net:Sum(rows, "summed", { axes = { 1 } })
    return finish(net, net:Add({ y, "summed" }, "both"))
  end
  local function three(b, i) return i:lt(3), b end
  local builders = {
    If = function()
      local net = prelude "if"
      return finish(net, (net:If("c", function(s) return s:Tanh(s:Relu "h0") end, function(s) return s:Sigmoid(s:MatMul { "h0", "w" }) end)))
    end,
    AsyncIf = function()
      local net = prelude "async"
      return finish(net, (net:AsyncIf("c", function(s) return s:Tanh(s:Relu "h0") end, function(s) return s:Sigmoid(s:MatMul { "h0", "w" }) end)))
    end,
    While = function()
      local net = prelude "while"
      local _, y, rows = net:While { init = { net:const(0), "h0" }, max = 4, cond = function(b, i) return (three(b, i)) end,
        body = function(b, i, h) return i + 1, b:Tanh(b:MatMul { h, "w" }), h * h end }
      return stack(net, y, rows)
    end,
    Loop = function()
      local net = prelude "loop"
      return finish(net, (net:Loop { trip = 3, init = { "h0" }, body = function(b, _, h) return true, b:Tanh(b:MatMul { h, "w" }) end }))
    end,
    Recurrent = function()
      local net = prelude "recurrent"
      return stack(net, net:Recurrent { seq = { "seq" }, init = { "h0" }, step = function(b, h, x)
        local n = b:Tanh(b:MatMul { h, "w" } + x)
        return n, n
      end })
    end,
    Scan = function()
      local net = prelude "scan"
      return stack(net, net:Scan { seq = { "seq" }, init = { "h0" }, body = function(b, h, x)
        local n = h + b:MatMul { x, "w" }
        return n, n
      end })
    end,
    ["If in While"] = function()
      local net = prelude "nested"
      local _, y = net:While { init = { net:const(0), "h0" }, max = 4, cond = function(b, i) return (three(b, i)) end, body = function(b, i, h)
        return i + 1, (b:If("c", function(s) return s:Tanh(s:MatMul { h, "w" }) end, function(s) return s:Sigmoid(h) end))
      end }
      return finish(net, y)
    end,
    ["Recurrent in If"] = function()
      local net = prelude "inner"
      local function step(s) return s:Recurrent { seq = { "seq" }, init = { "h0" }, step = function(b, h, x) return b:Tanh(b:MatMul { h, "w" } + x) end } end
      return finish(net, (net:If("c", step, function(s) return s:Tanh "h0" end)))
    end,
  }

  for kind, build in pairs(builders) do
    it("of " .. kind .. " are renamed with what they take and give; the planned net is run and gives the same bits", function()
      local net = build()
      for _, executor in ipairs { "simple", "dag" } do
        local planned, slots = M.optimize_net(net, { executor = executor })
        assert.is_true(slots.n_shared >= 1 and n_names(planned) < n_names(net))
        assert.is_true(M.verify_graph_equality(net, planned) and M.verify_inplace_blobs(net, planned))
        local text, taken = planned:text(), 0
        for takes in text:gmatch "\n%s*takes ([^\n]*)" do
          if takes:find "shared_" then taken = taken + 1 end
          for name in takes:gmatch "[%w_]+" do assert.is_true(name ~= "w" and name ~= "seq" and name ~= "h0", takes) end
        end
        assert.is_true(taken >= 1, text)
        assert_same_run(net, planned, { "out" }, executor)
        assert.are.equal(text, neap.net_from(text):text())
      end
    end)
  end

  --- A small network with a loss behind `middle`, which builds from sequence "seq", state "h0" and matrix "w".
  local function trained(name, middle)
    local net = neap.net(name)
    net:input("x", { 5, 2, 3 })
    net:input("label", { 2 }, "i64")
    net:input("c", { 1 })
    net:param("w", { 3, 3 }, neap.init.xavier())
    net:param("h0", { 2, 3 }, neap.init.xavier())
    net:Relu("x", "x1")
    for i, type in ipairs { "Tanh", "Copy", "Tanh", "Relu" } do net:op(type, "x" .. i, "x" .. i + 1) end
    net:Copy("x5", "seq")
    net:Copy(middle(net), "e1")
    for i, type in ipairs { "Copy", "Tanh", "Copy", "Relu" } do net:op(type, "e" .. i, "e" .. i + 1) end
    net:SoftmaxCrossEntropy({ "e5", "label" }, "loss")
    net:outputs { "loss" }
    net:gradient "loss"
    return net
  end
  local trainings = {
    Recurrent = function(net)
      return (net:Recurrent { seq = { "seq" }, init = { "h0" }, step = function(b, h, x) return b:Tanh(b:MatMul { h, "w" } + x) end })
    end,
    While = function(net)
      local _, y = net:While { init = { net:const(0), "h0" }, max = 4, cond = function(b, i) return (three(b, i)) end,
        body = function(b, i, h) return i + 1, b:Tanh(b:MatMul { h, "w" }) end }
      return y
    end,
    If = function(net)
      return (net:If("c", function(s) return s:Tanh(s:MatMul { "h0", "w" }) end, function(s) return s:MatMul { s:Tanh "h0", "w" } end))
    end,
  }
  for kind, middle in pairs(trainings) do
    it("of " .. kind .. " in training: the planned net is run, with the same loss and gradients, in fewer names", function()
      local net = trained("train_" .. kind:lower(), middle)
      local written = net:expand {}
      for _, executor in ipairs { "simple", "dag" } do
        local plans = { M.optimize_net(net, { executor = executor }),
          (M.share_grad_blobs(net, { "loss" }, nil, "", { share_activations = true, dag = executor == "dag" })) }
        for _, planned in ipairs(plans) do
          assert.is_true(n_names(planned) < n_names(net))
          assert.is_true(M.verify_graph_equality(written, planned) and M.verify_inplace_blobs(written, planned))
          assert_same_run(net, planned, { "loss", "w_grad", "h0_grad", "w" }, executor)
        end
      end
      -- What counts ops has them all, and the net is as before.
      local text = net:text()
      for _, other in ipairs { (M.release_blobs_when_used(net)), (M.optimize_interference(net)) } do
        assert_same_run(net, other, { "loss", "w_grad", "h0_grad" })
      end
      assert.is_true(M.estimate_memory_usage(net).total_bytes > 0)
      assert.are.equal(text, net:text())
    end)

    it("of " .. kind .. " in training: the bound is never above what is planned", function()
      local net = trained("bound_" .. kind:lower(), middle)
      for _, dag in ipairs { false, true } do
        for _, activations in ipairs { false, true } do
          local _, slots = M.share_grad_blobs(net, { "loss" }, nil, "", { share_activations = activations, dag = dag })
          assert.is_true(slots.lower_bound_bytes <= slots.planned_bytes and slots.planned_bytes <= slots.baseline_bytes)
        end
      end
    end)
  end

  --- The condition c for a branch, and its opposite.
  local function never(net) return net:Lt { "c", net:const(-10) } end
  local function yes(s) return s:Tanh(s:MatMul { "h0", "w" }) end
  local function no(s) return s:MatMul { s:Sigmoid "h0", "w" } end
  local written_out = {
    ["an If"] = function(net) return (net:If("c", yes, no)) end,
    ["an If whose branch is not taken"] = function(net) return (net:If(never(net), yes, no)) end,
    ["an AsyncIf"] = function(net) return (net:AsyncIf("c", yes, no)) end,
    ["an If without else"] = function(net)
      net:Copy("h0", "h9")
      net:If("c", function(s) s:Tanh(s:MatMul { "h9", "w" }, "h9") end)
      return "h9"
    end,
    ["an If in an If"] = function(net)
      local cond = never(net)
      return (net:If("c", function(s) return s:If(cond, no, function(t) return t:Relu(t:MatMul { "h0", "w" }) end) end, no))
    end,
    ["an If with random numbers"] = function(net)
      return (net:If("c", function(s) return s:Dropout(s:MatMul { s:Dropout("h0", nil, { rate = 0.3 }), "w" }, nil, { rate = 0.5 }) end, no))
    end,
    ["an If that writes a resident blob"] = function(net)
      net:param("mean", { 2, 3 }, 0, { trainable = false })
      return (net:If("c", function(s)
        s:Sgd({ "mean", "h0", s:const(-0.1) }, "mean")
        return yes(s)
      end, no))
    end,
    ["an If beside a loop without gradient"] = function(net)
      local _, n = net:While { init = { net:const(0), "c" }, max = 4, cond = function(b, i) return (three(b, i)) end,
        body = function(b, i, h) return i + 1, b:Tanh(h) end }
      return (net:If(n, yes, no))
    end,
    ["a Recurrent"] = function(net)
      return (net:Recurrent { seq = { "seq" }, init = { "h0" }, step = function(b, h, x) return b:Tanh(b:MatMul { h, "w" } + x) end })
    end,
    ["a Recurrent whose rows and last state are read"] = function(net)
      local last, rows = net:Recurrent { seq = { "seq" }, init = { "h0" }, step = function(b, h, x)
        local n = b:Sigmoid(b:MatMul { h, "w" } * x)
        return n, n
      end }
      return net:Add { last, net:Sum(rows, "summed", { axes = { 1 } }) }
    end,
    ["a Recurrent that repeats ops in its backward"] = function(net)
      return (net:Recurrent { seq = { "seq" }, init = { "h0" }, recompute = { "kept" }, step = function(b, h, x)
        return b:Tanh(b:Sigmoid(b:MatMul { h, "w" } + x, "kept"))
      end })
    end,
    ["a Recurrent with random numbers"] = function(net)
      return (net:Recurrent { seq = { "seq" }, init = { "h0" }, step = function(b, h, x)
        return b:Tanh(b:Dropout(b:MatMul { h, "w" } + x, nil, { rate = 0.4 }))
      end })
    end,
    ["a While with a maximum"] = function(net)
      local _, y = net:While { init = { net:const(0), "h0" }, max = 4, cond = function(b, i) return (three(b, i)) end,
        body = function(b, i, h) return i + 1, b:Tanh(b:MatMul { h, "w" }) end }
      return y
    end,
    ["a While without one"] = function(net)
      local _, y = net:While { init = { net:const(0), "h0" }, cond = function(b, i) return (three(b, i)) end,
        body = function(b, i, h) return i + 1, b:Tanh(b:MatMul { h, "w" }) end }
      return y
    end,
    ["an If in a While"] = function(net)
      local _, y = net:While { init = { net:const(0), "h0" }, max = 4, cond = function(b, i) return (three(b, i)) end, body = function(b, i, h)
        return i + 1, (b:If("c", function(s) return s:Tanh(s:MatMul { h, "w" }) end, function(s) return s:Sigmoid(h) end))
      end }
      return y
    end,
    ["a Recurrent in an If"] = function(net)
      local function step(s) return s:Recurrent { seq = { "seq" }, init = { "h0" }, step = function(b, h, x) return b:Tanh(b:MatMul { h, "w" } + x) end } end
      return (net:If("c", step, no))
    end,
    ["a Recurrent in a Recurrent"] = function(net)
      return (net:Recurrent { seq = { "seq" }, init = { "h0" }, step = function(b, h)
        return b:Tanh((b:Recurrent { seq = { "seq" }, init = { h }, step = function(d, g, y) return d:Tanh(d:MatMul { g, "w" } + y) end }))
      end })
    end,
    ["an If beside a Do"] = function(net)
      net:CreateScope({}, "s")
      net:Do { bindings = { p = "h0", q = "d" }, scope = "s", body = function(d) d:Tanh("p", "q") end }
      return (net:If("c", function(s) return s:Tanh(s:MatMul { "d", "w" }) end, no))
    end,
  }
  for kind, middle in pairs(written_out) do
    it("are written out in the backward pass of " .. kind .. ": the same graph, the same bits, and names that are shared", function()
      local net = trained("written", middle)
      local e = net:expand {}
      -- But that a branch which hands on what it got is written out too, and what no branch of the backward reads is not taken.
      if not kind:find "resident" then assert.are.equal((net:_graph({}, "canonical"):gsub("else_net=none", "else_net=net")), e:_graph({}, "canonical")) end
      assert.are.equal(e:text(), neap.net_from(e:text()):text())
      assert.are.equal(e:text(), e:clone():text())
      assert.are.equal(e:text(), e:expand({}):text())
      for _, executor in ipairs { "simple", "dag" } do
        local threads = executor == "dag" and 2 or nil
        local want = bits(net, { policy = "none", executor = executor, threads = threads })
        local planned, slots = M.optimize_net(net, { executor = executor })
        assert.is_true(slots.n_shared >= 1 and n_names(planned) < n_names(e))
        assert.is_true(M.verify_graph_equality(e, planned) and M.verify_inplace_blobs(e, planned))
        for _, policy in ipairs { "none", "name", "offset" } do
          for _, other in ipairs { e, planned } do
            local got = bits(other, { policy = policy, executor = executor, threads = threads })
            for _, name in ipairs { "loss", "w_grad", "h0_grad", "w", want.mean and "mean" or "w" } do
              assert.are.equal(want[name], got[name], name .. " under " .. policy)
            end
          end
        end
      end
      assert.is_true(M.estimate_memory_usage(net).total_bytes > 0)
      local released = M.release_blobs_when_used(net)
      assert_same_run(net, released, { "loss", "w_grad", "h0_grad" })
    end)
  end

  --- How many names ops inside subnets write, counted subnet by subnet.
  local function n_inner(net)
    local subnets, n = {}, 0
    for line in (net:text() .. "\n"):gmatch "([^\n]*)\n" do
      if line:find "^%s*subnet " then subnets[#subnets + 1] = {} end
      if line:find "^%s*end%s*$" then subnets[#subnets] = nil end
      local seen, name = subnets[#subnets], line:match "^%s*([%w_/.]+) = "
      if seen and name and not seen[name] then seen[name], n = true, n + 1 end
    end
    return n
  end
  local function long(b, x)
    for _, type in ipairs { "Tanh", "Sigmoid", "Relu", "Tanh", "Sigmoid" } do x = b:op(type, x) end
    return x
  end
  local deep = {
    If = function(net) return (net:If("c", function(s) return long(s, "h0") end, function(s) return long(s, s:MatMul { "h0", "w" }) end)) end,
    AsyncIf = function(net) return (net:AsyncIf("c", function(s) return long(s, "h0") end, function(s) return s:Copy "h0" end)) end,
    Recurrent = function(net)
      return (net:Recurrent { seq = { "seq" }, init = { "h0" }, step = function(b, h, x) return long(b, b:MatMul { h, "w" } + x) end })
    end,
    While = function(net)
      local _, y = net:While { init = { net:const(0), "h0" }, max = 4, cond = function(b, i) return (three(b, i)) end, body = function(b, i, h)
        local local_name = long(b, h)
        local inner = b:If("c", function(s) return long(s, s:MatMul { local_name, "w" }) end, function(s) return s:Tanh(local_name) end)
        return i + 1, (long(b, inner))
      end }
      return y
    end,
  }
  for kind, middle in pairs(deep) do
    it("of " .. kind .. " recycle their own names too: fewer remain inside, and the planned net gives the same bits", function()
      local net = prelude("deep_" .. kind:lower())
      finish(net, middle(net))
      for _, executor in ipairs { "simple", "dag" } do
        local planned = M.optimize_net(net, { executor = executor })
        assert.is_true(n_inner(planned) <= n_inner(net) - 2, planned:text())
        assert.is_true(M.verify_graph_equality(net, planned) and M.verify_inplace_blobs(net, planned))
        assert_same_run(net, planned, { "out" }, executor)
        assert.are.equal(planned:text(), neap.net_from(planned:text()):text())
      end
      local once = M.optimize_net(net)
      local twice = M.optimize_net(once)
      -- A name that a subnet further in has too stays the first time, so nested subnets may find more to share when planned again.
      if kind == "While" then assert.is_true(n_inner(twice) <= n_inner(once)) else assert.are.equal(once:text(), twice:text()) end
      assert_same_run(net, twice, { "out" })
      -- Where names are listed, nobody else's are touched.
      assert.are.equal(n_inner(net), n_inner((M.compute_blob_recycling_for_dag(net, nil, nil, { "a", "d" }))))
      local training = trained("deep_train", middle)
      assert_same_run(training, (M.optimize_net(training)), { "loss", "w_grad", "h0_grad" })
    end)
  end

  it("keep the names that a subnet further in has to itself, be it that of the first op", function()
    local net = neap.net_from [[
      net f
      input c f32 (1)
      input x f32 (4,8)
      a = Tanh(x)
      b = Relu(a)
      subnet yes
        subnet inner
          p = Tanh(b)
          s = Sigmoid(p)
          takes b
          gives s
        end
        subnet other
          s = Relu(b)
          takes b
          gives s
        end
        y = If(c, b) { then_net = inner, else_net = other }
        z = Relu(y)
        takes c, b
        gives z
      end
      subnet no
        z = Relu(b)
        takes c, b
        gives z
      end
      m = If(c, c, b) { then_net = yes, else_net = no }
      n = Tanh(m)
      p = Relu(n)
      q = Tanh(p)
      s = Sigmoid(q)
      o = Tanh(s)
      outputs o
    ]]
    local planned, slots = M.optimize_net(net)
    assert.is_true(slots.n_shared >= 1)
    for _, name in ipairs { "p", "s" } do assert.is_truthy(planned:text():find("\n" .. name .. " = ", 1, true), name) end
    assert_same_run(net, planned, { "o" })
  end)

  it("inside a subnet last as long as its ops name them, be it a Do that does not read what it takes", function()
    local net = neap.net "f"
    net:input("c", { 1 })
    net:input("x", { 4, 8 })
    local y = net:If("c", function(t)
      t:CreateScope({}, "s")
      t:Relu(t:Exp(t:Tanh("x", "a"), "b"), "e")
      t:Do { bindings = { p = "e", q = "g", unread = "a" }, scope = "s", copy = false, body = function(d) d:Tanh("p", "q") end }
      return t:Add({ "g", "e" }, "r")
    end, function(e) return e:Relu "x" end)
    net:outputs { y }
    local planned = M.optimize_net(net)
    local text = planned:text()
    assert.is_truthy(text:find("shared_1 = Exp(a)", 1, true), text) -- whose name g takes
    assert.is_truthy(text:find("shared_1, s = Do(e, a, s)", 1, true), text)
    assert_same_run(net, planned, { y.name })
  end)

  it("of Do are written out, so that their blobs take part", function()
    local net = prelude "do"
    net:CreateScope({}, "s")
    net:Do { bindings = { p = "h0", q = "y" }, scope = "s", body = function(d)
      d:Tanh("p", "t1")
      d:Sigmoid("t1", "t2")
      d:Tanh("t2", "q")
    end }
    finish(net, "y")
    local planned, slots = M.optimize_net(net)
    assert.is_true(slots.n_shared >= 1 and n_names(planned) < n_names(net:expand {}))
    for _, op in ipairs(planned:_ops()) do assert.are_not.equal("Do", op.type) end
    for _, executor in ipairs { "simple", "dag" } do
      assert_same_run(net, M.optimize_net(net, { executor = executor }), { "out" }, executor)
    end
  end)

  it("of AsyncIf and Recurrent are renamed by their own functions, which say how operands are called now", function()
    for kind, apply in pairs { AsyncIf = M.apply_asyncif_blob_assignments, Recurrent = M.apply_recurrent_blob_assignments } do
      local net = builders[kind]()
      local renamed, tables = apply(net, { w = "w_new", h0 = "h_new", e = "e_new" })
      local at, changed = next(tables)
      assert.are.same({ w = "w_new", h0 = "h_new" }, changed)
      assert.is_nil(next(tables, at))
      assert.is_true(has_name(renamed, "w_new") and has_name(renamed, "e_new") and not has_name(renamed, "h0"))
      assert.is_truthy(renamed:text():find "takes [^\n]*w_new")
      assert.is_truthy(renamed:text():find "MatMul%([%w_]+, w_new%)")
      for _, executor in ipairs { "simple", "dag" } do assert_same_run(net, renamed, { "out" }, executor) end
      -- Slots as planners give them do as well.
      local again = apply(net, { { { name = "w1" }, { name = "w" } } })
      assert.is_true(M.verify_graph_equality(net, again) and not has_name(again, "w1"))
    end
  end)

  it("of AsyncIf and Recurrent are missed where there are none", function()
    for kind, apply in pairs { AsyncIf = M.apply_asyncif_blob_assignments, Recurrent = M.apply_recurrent_blob_assignments } do
      local ok, e = pcall(apply, chain(2, { train = false }), { fc1 = "other" })
      assert.is_false(ok)
      assert.is_truthy(tostring(e):find(kind, 1, true))
    end
  end)

  it("may call a parameter like a dead blob outside: they are told apart", function()
    local net = neap.net_from [[
net parameter
input x f32 (3,4)
input h f32 (4)
s = Relu(h)
t = Tanh(s)
u = Sigmoid(t)
v = Tanh(u)
subnet step
  input s f32 (4)
  input r f32 (4)
  m = Mul(s, u)
  n = Add(m, v)
  o = Add(n, r)
  takes s, r, u, v
  gives o
end
y = Recurrent(h, x, u, v) { step_net = step, n_state = 1, n_seq = 1 }
z = Tanh(y)
out = Copy(z)
outputs out
]]
    for _, executor in ipairs { "simple", "dag" } do
      local planned, slots = M.optimize_net(net, { executor = executor })
      assert.is_true(slots.n_shared >= 1)
      assert_same_run(net, planned, { "out" }, executor)
    end
  end)

  it("may overwrite what they take: neither the name nor its bytes become another's", function()
    local net = neap.net_from [[
net overwrites
input c f32 (1)
input x f32 (4)
h = Relu(x)
subnet then
  h = Tanh(h)
  p = Sigmoid(h)
  q = Relu(p)
  r = Tanh(q)
  y = Sigmoid(r)
  takes h
  gives y
end
subnet else
  y = Relu(h)
  takes h
  gives y
end
y = If(c, h) { then_net = then, else_net = else }
z = Tanh(h)
out = Add(y, z)
outputs out
]]
    for _, executor in ipairs { "simple", "dag" } do
      local planned = M.optimize_net(net, { executor = executor })
      assert.is_true(n_inner(planned) < n_inner(net))
      assert.is_true(M.verify_graph_equality(net, planned))
      assert_same_run(net, planned, { "out" }, executor)
    end
  end)

  it("may have a name that means something else outside: it stays apart", function()
    local text = [[
net shadow
input c f32 (1)
input x f32 (4)
p = Relu(x)
q = Tanh(p)
r = Sigmoid(q)
subnet then
  p = Tanh(r)
  q = Sigmoid(p)
  takes r
  gives q
end
subnet else
  p = Relu(r)
  takes r
  gives p
end
y = If(c, r) { then_net = then, else_net = else }
z = Tanh(y)
out = Copy(z)
outputs out
]]
    local net = neap.net_from(text)
    for _, executor in ipairs { "simple", "dag" } do
      local planned = M.optimize_net(net, { executor = executor })
      assert.is_true(M.verify_graph_equality(net, planned))
      assert_same_run(net, planned, { "out" }, executor)
    end
  end)
end)

-- ---- Free and estimates ----------------------------------------------------------------------------------------------------------------------

local function frees_of(net)
  local freed, at, used_after = {}, {}, {}
  for _, op in ipairs(net:_ops()) do
    if op.type == "Free" then
      freed[#freed + 1] = op.inputs[1]
      at[op.inputs[1]] = true
    else
      for _, name in ipairs(op.inputs) do
        if at[name] then used_after[name] = true end
      end
    end
  end
  table.sort(freed)
  return freed, used_after
end

describe("release_blobs_when_used", function()
  local function net_of()
    local net = neap.net "release"
    net:input("data", { 4 })
    net:Copy("data", "x")
    net:Copy("x", "y")
    net:Copy("y", "z")
    net:Add({ "x", "z" }, "u")
    net:Alias("u", "alias")
    net:Relu("alias", "out")
    net:outputs { "out" }
    return net
  end
  it("frees each blob once, after its last reader: x, y, z, not the output, not what is aliased", function()
    local net = net_of()
    local released, names = M.release_blobs_when_used(net)
    local freed, used_after = frees_of(released)
    assert.are.same({ "x", "y", "z" }, freed)
    assert.are.same({}, used_after)
    assert.are.equal(3, #names)
    local again = M.release_blobs_when_used(released)
    assert.are.same({ "x", "y", "z" }, frees_of(again))
    local a, b = bits(net, { policy = "none" }), bits(released, { policy = "offset" })
    assert.are.equal(a.out, b.out)
  end)
  it("leaves what is kept and what is not selected", function()
    assert.are.same({ "x", "z" }, (frees_of(M.release_blobs_when_used(net_of(), { "y" }))))
    assert.are.same({ "y" }, (frees_of(M.release_blobs_when_used(net_of(), nil, function(name) return name == "y" end))))
    local first = neap.net_from "net f\na = Constant() { shape = {4} }\nb = Relu(a)\nout = Tanh(b)\noutputs out\n"
    assert.are.same({ "a", "b" }, (frees_of(M.release_blobs_when_used(first))))
    assert.are.same({ "b" }, (frees_of(M.release_blobs_when_used(first, { "a" }))))
  end)
  it("takes nobody's name: a net that frees already, and ops that are called so", function()
    local net = neap.net_from "net f\nstate m f32 (2) = Constant\nv2 = Neg(m)\nv6 = LogSoftmax(v2)\nFree(v6)\ny = Relu(m)\nz = Sin(y) as free_2\noutputs z\n"
    local released, names = M.release_blobs_when_used(net)
    assert.are.same({ "v2", "y" }, names)
    assert.are.same({ "v2", "v6", "y" }, (frees_of(released)))
    assert.are.equal(bits(net, { policy = "none" }).z, bits(released, { policy = "pool" }).z)
  end)
  it("works on a backward pass", function()
    local net = chain(3)
    local released, names = M.release_blobs_when_used(net)
    assert.is_true(#names > 4)
    local a, b = bits(net, { policy = "none" }), bits(released, { policy = "offset" })
    assert.are.equal(a.loss, b.loss)
    assert.are.equal(a.fc1_w_grad, b.fc1_w_grad)
  end)
end)

describe("released blobs", function()
  it("really leave the pool: nothing is held at the end, and less at once than all that was made", function()
    local net = chain(6, { train = false })
    local released, names = M.release_blobs_when_used(net)
    assert.is_true(#names >= 5)
    local ws <close> = neap.workspace { seed = 1, store = false }
    ws:init(released)
    local program <close> = ws:compile(released, { policy = "pool", in_place = false, engine = "ref", store = false })
    for i, input in ipairs(net:inputs()) do ws:feed(input.name, numbers(input.shape, input.dtype, 0.3 * i)) end
    program:run()
    local pool, freed_at = program:pool(), 0
    for i, op in ipairs(program.plan:_ops()) do
      if op.type == "Free" and i > 1 and i < #pool.curve then
        freed_at = freed_at + 1
        assert.is_true(pool.curve[i] < M.estimate_memory_usage(net).total_bytes)
      end
    end
    assert.is_true(freed_at >= 4)
    assert.are.equal(0, pool.used)
    assert.are.equal(bits(net, { policy = "none" }).loss, bits(released, { policy = "pool" }).loss)
  end)
end)

describe("an estimate", function()
  it("counts what ops make and what Free gives back, and changes nothing", function()
    local net = neap.net "estimate"
    net:input("x", { 16 })
    net:Relu("x", "a")
    net:Tanh("a", "b")
    net:Relu("b", "y")
    net:outputs { "y" }
    local before = net:text()
    local plain = M.estimate_memory_usage(net)
    assert.are.equal(3 * 64, plain.total_bytes)
    assert.are.equal(3 * 64, plain.high_water_bytes)
    local released = M.release_blobs_when_used(net)
    local freed = M.estimate_memory_usage(released)
    assert.are.equal(3 * 64, freed.total_bytes)
    assert.are.equal(2 * 64, freed.high_water_bytes)
    assert.are.equal("Relu", plain[1].type)
    assert.are.equal(128, plain[1].bytes)
    assert.are.equal(before, net:text())
    assert.are.equal(0, M.estimate_memory_usage(net, nil, "cpu:1").total_bytes)
    local big = M.estimate_memory_usage(net, { x = { 1 << 31 } })
    assert.are.equal(3 * (1 << 33), big.total_bytes)
  end)

  it("lists the types that make most first", function()
    local net = neap.net "types"
    net:input("x", { 1, 16 })
    net:outputs { net:Tanh(net:Relu(net:Tanh(net:Relu("x")))), net:Concat { "x", "x", "x" }, net:Exp "x" }
    local list, told = M.estimate_memory_usage(net), {}
    for i, row in ipairs(list) do told[i] = row.type .. " " .. row.bytes end
    assert.are.same({ "Concat 192", "Relu 128", "Tanh 128", "Exp 64" }, told)
  end)
end)

describe("small helpers", function()
  it("work one op at a time", function()
    local net = chain(6, { train = false })
    local r = M.recycler(net)
    for i = 1, #net:_ops() do M.process_op(r, i) end
    assert.are.equal(2, #r.slots)
    assert.is_false(M.can_use_blob(r, { "fc1" }, "fc2"))
    assert.is_true(M.can_use_blob(r, { "fc1" }, "fc3"))
    assert.is_false(M.can_use_blob(r, r.slots[1], "fc2") and M.can_use_blob(r, r.slots[2], "fc2"))
    assert.is_truthy(M.get_free_blob(r, "fc6"))
    assert.are.equal("b", M.get_blob_or_mapped_blob({ a = "b" }, "a"))
    assert.are.equal("c", M.get_blob_or_mapped_blob({ a = "b" }, "c"))
    assert.is_true(M.has_key_in_map({ a = 1 }, "a") and not M.has_key_in_map({ a = 1 }, "b"))
    assert.is_true(M.has_key_in_set({ "a" }, "a") and not M.has_key_in_set({ "a" }, "b"))
    assert.are.equal(4 * 8 * 4, M.infer_blob_size(net, "fc1"))
    assert.are.equal(4 * 8, M.infer_blob_size(net, "label"))
    assert.has_error(function() M.can_use_blob(r, { "fc1" }, "nothing") end)
  end)
  it("check a net against its ops' records, naming number and op", function()
    assert.is_true(M.run_schema_check(chain(2)))
    local ok, e = pcall(M.run_schema_check, { inputs = { x = { 2 } }, { "Relu", "x", "y" }, { "Softmax", {}, "z" } })
    assert.is_false(ok)
    assert.is_truthy(tostring(e):find "op 2" and tostring(e):find "Softmax")
    ok, e = pcall(M.run_schema_check, { inputs = { x = { 2 } }, { "Rleu", "x", "y" } })
    assert.is_false(ok)
    assert.is_truthy(tostring(e):find "op 1")
    assert.has_error(function() M.run_schema_check "net f\ninput x f32 (2)\ny = FC(x)\n" end)
    assert.has_error(function() M.run_schema_check "net f\ninput x f32 (2)\ninput z f32 (2)\nFree(x) \n" end)
  end)
end)

-- ---- nets that people know ------------------------------------------------------------------------------------------------------------------------

describe("an option that means nothing", function()
  local net = neap.net "m"
  local x = net:input("x", { 4, 8 })
  local loss = net:Sum(net:Tanh(net:Exp(x)))
  net:gradient(loss, { wrt = { x } })
  net:outputs { loss, "x_grad" }

  --- Calls M[name](net, ...), which must raise with `text` in its message, at this file's line.
  local function refused(text, name, ...)
    local ok, err = pcall(M[name], net, ...)
    assert.is_false(ok, name .. " took it: " .. text)
    assert.is_truthy(tostring(err):find(text, 1, true), tostring(err))
    assert.is_nil(tostring(err):find("neap:", 1, true), tostring(err))
  end

  it("of optimize_net is refused by value and type", function()
    refused('executor expects "simple" or "dag", by which names are shared, got "dagg"', "optimize_net", { executor = "dagg" })
    refused("got 3", "optimize_net", { executor = 3 })
    refused('got "dynamic"', "optimize_net", { executor = "dynamic" })
    refused("shapes expects a table, got 3", "optimize_net", { shapes = 3 })
    refused("shapes expects { input = { 16, 32 } }, got 3 at x", "optimize_net", { shapes = { x = 3 } })
    refused("namescope expects a string, got 3", "optimize_net", { namescope = 3 })
    refused("dont_share expects a name", "optimize_net", { dont_share = 3 })
    refused("order expects a string", "optimize_net", { order = 3 })
    refused("most_steps", "optimize_net", { algo = "exact", most_steps = -1 })
    refused("algo expects", "optimize_net", { algo = 3 })
  end)

  it("of the other planners is refused, too", function()
    refused("item 1 expects a name or a blob, got a table", "share_grad_blobs", { { nonsense = 1 } })
    refused('unknown field "nonsense"', "share_grad_blobs", { nonsense = 1 })
    refused("dag expects a boolean", "share_grad_blobs", { "sum_1" }, nil, nil, { dag = "yes" })
    refused("share_activations expects a boolean", "share_grad_blobs", { "sum_1" }, nil, nil, { share_activations = 1 })
    refused("param_grads expects", "share_grad_blobs", { "sum_1" }, 3)
    refused("namescope expects", "share_grad_blobs", { "sum_1" }, nil, {})
    refused("heads: item 1", "compute_blob_recycling_for_dag", { 3 })
    refused("op_indices expects a table", "compute_blob_recycling_for_dag", nil, 3)
    refused("shareable expects", "compute_blob_recycling_for_dag", nil, nil, true)
    refused("static_blobs: item 1", "optimize_inference_net", { {} })
    refused("namescope expects", "compute_blob_recycling_for_dag", nil, nil, nil, false)
    refused("ordering_function expects a string, got 3", "optimize_interference", nil, 3)
    refused("blob_sizes expects a table", "optimize_interference", nil, nil, 3)
    refused('"exp_1" expects a number', "optimize_interference", nil, nil, { exp_1 = "large" })
    refused("selector expects a function", "release_blobs_when_used", nil, 3)
    refused("keep: item 1", "release_blobs_when_used", { { nonsense = 1 } })
    refused("device expects a string", "estimate_memory_usage", nil, 3)
    refused("kind expects a string", "topological_sort_traversal", 3)
    refused("shapes expects a table", "compute_ranges", 3)
    refused("shapes expects a table", "collect_blob_sizes", "x")
    refused("shapes expects a table", "infer_blob_size", "exp_1", 3)
    refused("expects { old = new } or a list of slots", "apply_assignments", 3)
    refused("expects { old = new } or a list of slots, got 3 at exp_1", "apply_assignments", { exp_1 = 3 })
    refused("dag expects a boolean", "recycler", { dag = 1 })
  end)

  it("is not a blob where its name would do", function()
    assert.equal(M.share_grad_blobs(net, { loss.name }):text(), M.share_grad_blobs(net, loss):text())
    assert.equal(M.share_grad_blobs(net, loss.name):text(), M.share_grad_blobs(net, { loss }):text())
  end)
end)

describe("ResNet-50", function()
  it("forward by name: at most five shared blobs in a dag, three in a row, and the same output", function()
    local net = netfile.build(netfile.load "resnet50:1", { train = false })
    local dag, d = M.optimize_inference_for_dag(net)
    local row, r = M.optimize_inference_net(net)
    assert.is_true(d.n_shared >= 1 and d.n_shared <= 5, "dag: " .. d.n_shared)
    assert.is_true(r.n_shared >= 1 and r.n_shared <= 3, "row: " .. r.n_shared)
    assert.is_true(n_names(dag) < n_names(net) and n_names(row) < n_names(net))
    assert.are.equal(r.lower_bound_bytes, r.planned_bytes)
    assert.is_true(M.verify_graph_equality(net, dag) and M.verify_graph_equality(net, row))
    local a = bits(net, { policy = "none", engine = support.last_engine() })
    for _, planned in ipairs { dag, row } do
      local b = bits(planned, { policy = "name", engine = support.last_engine() })
      for _, name in ipairs(net:outputs()) do assert.are.equal(a[name], b[name]) end
    end
  end)
  it("training, batch 32: shared gradients and activations save at least 42 % of all bytes without reuse", function()
    local net = netfile.build(netfile.load "resnet50:32", { train = true })
    local none = net:plan { policy = "none", engine = "ref", store = false }
    local with = {}
    for _, activations in ipairs { false, true } do
      local planned = M.share_grad_blobs(net, { "loss" }, nil, "", { share_activations = activations, dag = false })
      with[activations] = 1 - planned:plan({ policy = "name", engine = "ref", store = false }).total_bytes / none.total_bytes
    end
    assert.is_true(with[true] >= 0.42, with[true])
    assert.is_true(with[true] >= with[false] and with[false] >= 0.33, with[false])
  end)
  it("training: shared names give the bits of the unplanned step", function()
    local net = netfile.build(netfile.load "resnet18c:2", { train = true })
    for _, activations in ipairs { false, true } do
      local planned = M.share_grad_blobs(net, { "loss" }, nil, "", { share_activations = activations, dag = false })
      assert.is_true(n_names(planned) < n_names(net:expand {}))
      local a, b = bits(net, { policy = "none", engine = support.last_engine() }), bits(planned, { policy = "name", engine = support.last_engine() })
      local n = 0
      for name, hash in pairs(a) do
        assert.are.equal(hash, b[name], name)
        n = n + 1
      end
      assert.is_true(n > 50)
    end
  end)
end)

describe("random nets", function()
  it("compute the same after planning, in a row and in a dag", function()
    local state = 12345
    local function draw(n)
      state = (1103515245 * state + 12345) % (1 << 31)
      return state // 65536 % n + 1
    end
    for round = 1, 25 do
      local net = neap.net "random"
      net:input("x0", { 2, 3 })
      local names = { "x0" }
      for i = 1, 20 do
        local a, b = names[draw(#names)], names[draw(#names)]
        local out = draw(4) == 1 and #names > 3 and names[#names] ~= "x0" and names[1 + draw(#names - 1)] or "v" .. i
        local known = false
        for _, name in ipairs(names) do known = known or name == out end
        if draw(2) == 1 then net:Add({ a, b }, out) else net:Tanh(a, out) end
        if not known then names[#names + 1] = out end
      end
      net:Copy(names[#names], "y")
      net:outputs { "y" }
      for _, dag in ipairs { false, true } do
        local planned = M.optimize_net(net, { executor = dag and "dag" or "simple", order = not dag and round % 3 == 0 and "least_memory" or nil })
        assert_same_run(net, planned, { "y", "x0" }, dag and "dag" or "simple")
      end
    end
  end)
end)
