-- memonger: names recycled net to net, in order and for the dag executor. Every planned net is run
-- under policy `name` and compared, bit for bit, with the unplanned run of the net it came from:
-- losses, outputs, parameters after updates and their gradients.
local neap = require "neap"
local M = neap.memonger
local support = require "support"
local kit = require "memonger_kit"
local assert_same_run, n_names, has_name = kit.assert_same_run, kit.n_names, kit.has_name
local arena, fc, chain = kit.arena, kit.fc, kit.chain

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

describe("a chain of layers with its gradient", function()
  for _, algo in ipairs { "greedy", "exact" } do
    it("gives the same loss and gradients after planning by " .. algo
      .. ", in fewer bytes", function()
      local net = chain(3)
      local planned, slots, canonical = M.optimize_interference(net, nil, nil, nil, algo, 100000)
      assert.is_true(n_names(planned) < n_names(net:expand {}))
      assert_same_run(net, planned, { "loss", "fc1_w_grad", "fc1_w" })
      assert.is_true(M.verify_assignments(slots))
      local s = M.compute_statistics(slots)
      assert.is_true(
        s.optimized_bytes < s.baseline_bytes and s.lower_bound_bytes <= s.optimized_bytes)
      assert.are.equal("fc1_w", canonical.fc1_w)
      assert.is_true(arena(planned, "name") < arena(net, "none"))
      -- Planned again with sizes: what is given instead of the real bytes is used.
      local again, slots2 = M.optimize_interference(net, nil, nil, M.collect_blob_sizes(net), algo,
        100000)
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
    for _, name in ipairs { "x", "fc1_w", "fc3", "loss" } do
      assert.is_true(has_name(planned, name), name)
    end
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

  it("gives an output that nobody reads its bytes for one op only: 13 ops, \z
      two slots a size", function()
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
    -- Relu reads its input after Tanh has written what nobody reads: at most three are alive, and
    -- three names remain.
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

describe("shared gradients", function()
  it("take fewer names, fewer still with activations; the last \z
      activation keeps its name", function()
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
      local shared = M.share_grad_blobs(net, { "loss" }, nil, "",
        { share_activations = true, keep_last = k })
      for i = 1, 8 do
        assert.are.equal(i > 8 - k, has_name(shared, "fc" .. i),
          ("fc%d with keep_last = %d"):format(i, k))
      end
    end
    local by_default = M.share_grad_blobs(net, { "loss" }, nil, "", { share_activations = true })
    assert.are.equal(
      M.share_grad_blobs(net, { "loss" }, nil, "",
        { share_activations = true, keep_last = 2 }):text(), by_default:text())
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
    for _, name in ipairs { "split_grad_info", "user_grad", "out_grad" } do
      assert.is_true(has_name(shared, name), name)
    end
    assert_same_run(net, shared, { "loss", "out_grad_w_grad" })
    assert.are.equal(e:text(), neap.net_from(e:text()):text())
    assert.are.equal(e:text(), e:clone():text())
  end)

  it("over a tree with two losses: kept activations stay, a scope may end \z
      in a slash or not", function()
    local net = tree { train = true }
    local shared = M.share_grad_blobs(net, { "loss1", "loss2" }, nil, "scope/", {
      share_activations = true, dont_share = { "fc6", "right1" },
    })
    assert.is_true(n_names(shared) < n_names(net:expand {}))
    assert.is_true(has_name(shared, "fc6") and has_name(shared, "right1"))
    assert_same_run(net, shared, { "loss1", "loss2", "fc1_w_grad" }, "dag")
    local other = M.share_grad_blobs(net, { "loss1", "loss2" }, nil, "scope", {
      share_activations = true, dont_share = { "fc6", "right1" },
    })
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
      net:LSTM({ at, "w_" .. layer, "r_" .. layer, "b_" .. layer }, {
        "h_" .. layer, "last_h" .. layer, "last_c" .. layer,
      })
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

--- What must have run before op i of a net: {op = true}, from the blobs alone, each of which is
-- written once.
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

--- Of a net and its planned one: pairs of blobs that share a name, and pairs of which neither is
-- done with, by the net's own dependencies, when the other is written. An op that reads the one and
-- writes the other is done with it.
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
      if not uses[b].writer or i ~= uses[b].writer and not before[uses[b].writer][i] then
        return false
      end
    end
    return true
  end
  local n, bad = 0, {}
  for name, list in pairs(blobs_of) do
    for i, a in ipairs(list) do
      for k = i + 1, #list do
        n = n + 1
        if not done_before(a, list[k]) and not done_before(list[k], a) then
          bad[#bad + 1] = ("%s: %s and %s"):format(name, a, list[k])
        end
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
      return net:expand {},
        (M.share_grad_blobs(net, { "loss" }, nil, "", { share_activations = true, dag = dag }))
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
  it("is a label: what is not one is refused in those words, and the ops \z
      run as without it", function()
    local net = neap.net "labelled"
    net:input("x", { 4 })
    support.raises("label", net.device, net, 1, function() end)
    support.raises("label", net.device, net, "a b", function() net:Relu("x", "y") end)
    net:device("anywhere:7", function() net:Relu("x", "y") end)
    local ws <close> = neap.workspace { store = false }
    assert.are.same({ 0, 1 }, {
      ws:run(net, { x = neap.tensor { -1, 1, -2, 2 } }).y:at(1), ws:fetch("y"):at(2),
    })
  end)
end)

describe("forks and joins", function()
  it("share along paths only: both losses are as before in a dag", function()
    local net = tree()
    local planned = M.compute_blob_recycling_for_dag(net, { "x" })
    assert.is_true(n_names(planned) < n_names(net))
    assert_same_run(net, planned, { "loss1", "loss2" }, "dag")
    local function arena_of_dag(n, policy)
      return
        n:plan({ policy = policy, engine = "ref", executor = "dag", store = false }).arena_bytes
    end
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

  it("respects the ops that take part, what may be shared, and what may \z
      neither give nor take", function()
    local net = chain(8, { train = false })
    local planned = M.compute_blob_recycling_for_dag(net, { "x" }, { 1, 2, 3, 4 })
    assert.is_true(
      has_name(planned, "fc5") and has_name(planned, "fc6") and not has_name(planned, "fc1"))
    planned = M.compute_blob_recycling_for_dag(net, { "x" }, nil, { "fc1", "fc3", "fc5" }, "few")
    assert.is_true(has_name(planned, "fc2") and has_name(planned, "few/shared_1") and not has_name(
      planned, "fc1"))
    planned = M.compute_blob_recycling_for_dag(net, { "x" }, nil, nil, "", { "fc1", "fc7" })
    assert.is_true(has_name(planned, "fc1") and has_name(planned, "fc7"))
    assert_same_run(net, planned, { "loss" })
    assert.has_error(function() M.compute_blob_recycling_for_dag(net, { "nothing" }) end)
  end)

  it("gives the same names in every run", function()
    local a = M.compute_blob_recycling_for_dag(tree { train = true }):text()
    for _ = 1, 3 do
      assert.are.equal(a, M.compute_blob_recycling_for_dag(tree { train = true }):text())
    end
  end)

  it("refuses a backward pass where inference was asked for", function()
    assert.has_error(function() M.optimize_inference_for_dag(chain(2)) end)
    assert.has_error(function() M.optimize_inference_for_dag(chain(2):expand {}) end)
    local planned = M.optimize_inference_for_dag(chain(6, { train = false }), { "x" }, "inference")
    assert.is_true(has_name(planned, "inference/shared_1"))
  end)
end)
