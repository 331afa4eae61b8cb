-- memonger: interference graphs, orders of ops, assignments of names, nets compared, and nets that
-- people know.
local neap = require "neap"
local netfile = require "neap.net.file"
local M = neap.memonger
local support = require "support"
local kit = require "memonger_kit"
local bits, assert_same_run = kit.bits, kit.assert_same_run
local n_names, arena, chain = kit.n_names, kit.arena, kit.chain

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
    local mixed = of_copies({ "w", "w2" }, { "w", "w0" }, { "data", "w0", "c1" },
      { "c1", "w2", "c2" })
    assert.are.same({ 2, 3, 1, 4 }, M.topological_sort_traversal_longest_path(mixed))
  end)
  it("takes the longer of several targets first", function()
    local net = of_copies({ "w", "w4" }, { "data", "w4", "c4" }, { "w", "w2" }, { "w", "w0" },
      { "data", "w0", "c1" }, { "c1", "w2", "c2" })
    assert.are.same({ 4, 5, 3, 6, 1, 2 }, M.topological_sort_traversal_longest_path(net))
    local sorted = of_copies({ "w", "w0" }, { "data", "w0", "c1" }, { "w", "w2" },
      { "c1", "w2", "c2" }, { "w", "w4" }, { "data", "w4", "c4" })
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
  it("keeps a declared blob that is written again behind the readers of \z
      what it was at first", function()
    local made = {
      state = function(net)
        net:declare("m", "state", { 2 }, "f32", { op = "Constant", value = 1 })
      end,
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
  it("of least memory is never worse than as defined, and the reordered net \z
      computes the same", function()
    local net = neap.net "wide"
    net:input("x", { 64 })
    -- none is another's duplicate
    for i, type in ipairs { "Relu", "Tanh", "Sigmoid", "Exp" } do net:op(type, "x", "wide" .. i) end
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

describe("an assignment", function()
  local ranges = {
    { name = "b1", defined = 1, used = 3, size = 10 },
    { name = "b2", defined = 3, used = 4, size = 1 },
    { name = "b3", defined = 5, used = 6, size = 1 },
    { name = "b4", defined = 5, used = 7, size = 10 },
  }
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
    local list = {
      { name = "a", defined = 4, used = 7, size = 4 },
      { name = "b", defined = 6, used = 6, size = 2 },
      { name = "c", defined = 2, used = 5, size = 7 },
      { name = "d", defined = 2, used = 3, size = 8 },
      { name = "e", defined = 6, used = 8, size = 5 },
    }
    local _, s = M.compute_assignments(list)
    assert.are.equal(select(2, M.compute_assignments(list, nil, "exact")).optimized_bytes,
      s.optimized_bytes)
    assert.are.equal(17, s.optimized_bytes)
  end)
  it("searched exactly, cost 11", function()
    local slots, s = M.compute_assignments(ranges, nil, "exact")
    assert.are.equal(11, s.optimized_bytes)
    assert.is_true(s.proved)
    assert.is_true(M.verify_assignments(slots))
  end)
  it("searched exactly, costs what the best of all partitions does", function()
    -- bytes of the cheapest way to put list[k], list[k + 1], .. into these slots or new ones
    local function best(list, k, slots)
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
        for _, r in ipairs(slot) do
          free = free and (r.used < list[k].defined or list[k].used < r.defined)
        end
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
      if s.optimized_bytes < select(2, M.compute_assignments(list)).optimized_bytes then
        n_better = n_better + 1
      end
    end
    assert.is_true(n_better > 0) -- the greedy order is not always as good
  end)
  it("avoids the trap of the order of definition, cost 11", function()
    local trap = {
      { name = "b1", defined = 1, used = 2, size = 10 },
      { name = "b2", defined = 4, used = 6, size = 1 },
      { name = "b3", defined = 5, used = 6, size = 10 },
    }
    for _, algo in ipairs { "greedy", "exact" } do
      assert.are.equal(11, select(2, M.compute_assignments(trap, nil, algo)).optimized_bytes)
    end
  end)
  it("gives a static blob a slot of its own, and sizes of more than 32 bits", function()
    local slots = M.compute_assignments(ranges, { "b1" })
    for _, slot in ipairs(slots) do
      assert.is_true(#slot == 1 or (slot[1].name ~= "b1" and slot[2].name ~= "b1"))
    end
    local _, s = M.compute_assignments {
      { name = "a", defined = 1, used = 2, size = 1 << 40 },
      { name = "b", defined = 3, used = 4, size = 1 << 41 },
    }
    assert.are.equal(1 << 41, s.optimized_bytes)
  end)
  it("says what it expects when it gets something else", function()
    local r = ranges[1]
    for _, case in ipairs {
      { M.compute_assignments, "x", "list of ranges, got a string" },
      { M.compute_assignments, { r, 5 }, "got a number at 2" },
      { M.compute_statistics, 5, "list of slots, got a number" },
      { M.compute_statistics, { r, { r } }, "which are lists of ranges, got" },
      { M.verify_assignments, "x", "list of slots, got a string" },
      { M.verify_assignments, { { r, false } }, "got a boolean at 2" },
    } do
      local ok, err = pcall(case[1], case[2])
      assert.is_false(ok)
      assert.is_truthy(tostring(err):find(case[3], 1, true), tostring(err))
      assert.is_truthy(tostring(err):find("06_memonger_graph_spec", 1, true), tostring(err))
    end
  end)
  it("knows its algorithms", function()
    assert.has_error(function() M.compute_assignments(ranges, nil, "dynamic") end)
  end)
  it("is stopped after so many steps with the best so far, the same in every run", function()
    local many = {}
    for i = 1, 120 do
      many[i] = {
        name = "r" .. i, defined = i, used = i + (i * 7919) % 23, size = 1 + (i * 104729) % 97,
      }
    end
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

describe("two nets", function()
  --- Ops are called o1, o2 .., since two of them may write one blob.
  local function net_of(text)
    local i = 0
    return neap.net_from("net f\ninput x f32 (2)\n"
      .. text:gsub("(%b())([^\n]*)\n", function(operands, rest)
        i = i + 1
        return operands .. " as o" .. i .. rest .. "\n"
      end))
  end
  it("are equal when only names differ", function()
    assert.is_true(M.verify_graph_equality(net_of "a = Relu(x)\nb = Tanh(a)\n",
      net_of "p = Relu(x)\nq = Tanh(p)\n"))
  end)
  it("are equal when names are used again down two branches, safely", function()
    local a = net_of "a = Relu(x)\n\z
      b1 = Tanh(a)\n\z
      b2 = Relu(b1)\n\z
      c1 = Relu(a)\n\z
      c2 = Tanh(c1)\n\z
      y = Add(b2, c2)\n"
    local b =
      net_of "a = Relu(x)\ny = Tanh(a)\nz = Relu(y)\ny = Relu(a)\nu = Tanh(y)\nv = Add(z, u)\n"
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
    assert.is_false((M.verify_inplace_blobs(net_of "a = Tanh(x)\nb = Relu(a)\n",
      net_of "a = Tanh(x)\na = Relu(a)\n")))
    local function branchy(f)
      local net = neap.net "f"
      net:input("c", { 1 })
      net:input("x", { 2 })
      net:outputs { net:If("c", f, function(sub) return sub:Tanh "x" end) }
      return net
    end
    assert.is_false((M.verify_graph_equality(branchy(function(sub) return sub:Relu "x" end),
      branchy(function(sub) return sub:Sigmoid "x" end))))
    assert.is_true((M.verify_graph_equality(branchy(function(sub) return sub:Relu "x" end),
      branchy(function(sub) return sub:Relu("x", "other") end))))
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
    local ok, e = pcall(M.run_schema_check, {
      inputs = { x = { 2 } }, { "Relu", "x", "y" }, { "Softmax", {}, "z" },
    })
    assert.is_false(ok)
    assert.is_truthy(tostring(e):find "op 2" and tostring(e):find "Softmax")
    ok, e = pcall(M.run_schema_check, { inputs = { x = { 2 } }, { "Rleu", "x", "y" } })
    assert.is_false(ok)
    assert.is_truthy(tostring(e):find "op 1")
    assert.has_error(function() M.run_schema_check "net f\ninput x f32 (2)\ny = FC(x)\n" end)
    assert.has_error(function()
      M.run_schema_check "net f\ninput x f32 (2)\ninput z f32 (2)\nFree(x) \n"
    end)
  end)
end)

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
    refused('executor expects "simple" or "dag", by which names are shared, got "dagg"',
      "optimize_net", { executor = "dagg" })
    refused("got 3", "optimize_net", { executor = 3 })
    refused('got "dynamic"', "optimize_net", { executor = "dynamic" })
    refused("shapes expects a table, got 3", "optimize_net", { shapes = 3 })
    refused("shapes expects { input = { 16, 32 } }, got 3 at x", "optimize_net",
      { shapes = { x = 3 } })
    refused("namescope expects a string, got 3", "optimize_net", { namescope = 3 })
    refused("dont_share expects a name", "optimize_net", { dont_share = 3 })
    refused('order expects "longest_path" or "least_memory", got 3', "optimize_net", { order = 3 })
    refused("most_steps", "optimize_net", { algo = "exact", most_steps = -1 })
    refused("algo expects", "optimize_net", { algo = 3 })
  end)

  it("of the other planners is refused, too", function()
    refused("item 1 expects a name or a blob, got a table", "share_grad_blobs",
      { { nonsense = 1 } })
    refused('unknown field "nonsense"', "share_grad_blobs", { nonsense = 1 })
    refused("dag expects true or false, got", "share_grad_blobs", { "sum_1" }, nil, nil,
      { dag = "yes" })
    refused("share_activations expects true or false, got", "share_grad_blobs", { "sum_1" }, nil,
      nil, { share_activations = 1 })
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
    refused("expects { old = new } or a list of slots, got 3 at exp_1", "apply_assignments",
      { exp_1 = 3 })
    refused("dag expects true or false, got", "recycler", { dag = 1 })
  end)

  it("is not a blob where its name would do", function()
    assert.equal(M.share_grad_blobs(net, { loss.name }):text(),
      M.share_grad_blobs(net, loss):text())
    assert.equal(M.share_grad_blobs(net, loss.name):text(),
      M.share_grad_blobs(net, { loss }):text())
  end)
end)

describe("ResNet-50", function()
  it("forward by name: at most five shared blobs in a dag, three in a row, \z
      and the same output", function()
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
  it("training, batch 32: shared gradients and activations save at least 42 % of all \z
      bytes without reuse", function()
    local net = netfile.build(netfile.load "resnet50:32", { train = true })
    local none = net:plan { policy = "none", engine = "ref", store = false }
    local with = {}
    for _, activations in ipairs { false, true } do
      local planned = M.share_grad_blobs(net, { "loss" }, nil, "",
        { share_activations = activations, dag = false })
      with[activations] = 1 - planned:plan(
        { policy = "name", engine = "ref", store = false }).total_bytes / none.total_bytes
    end
    assert.is_true(with[true] >= 0.42, with[true])
    assert.is_true(with[true] >= with[false] and with[false] >= 0.33, with[false])
  end)
  it("training: shared names give the bits of the unplanned step", function()
    local net = netfile.build(netfile.load "resnet18c:2", { train = true })
    for _, activations in ipairs { false, true } do
      local planned = M.share_grad_blobs(net, { "loss" }, nil, "",
        { share_activations = activations, dag = false })
      assert.is_true(n_names(planned) < n_names(net:expand {}))
      local a = bits(net, { policy = "none", engine = support.last_engine() })
      local b = bits(planned, { policy = "name", engine = support.last_engine() })
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
        local out =
          draw(4) == 1 and #names > 3 and names[#names] ~= "x0" and names[1 + draw(#names - 1)]
            or "v" .. i
        local known = false
        for _, name in ipairs(names) do known = known or name == out end
        if draw(2) == 1 then net:Add({ a, b }, out) else net:Tanh(a, out) end
        if not known then names[#names + 1] = out end
      end
      net:Copy(names[#names], "y")
      net:outputs { "y" }
      for _, dag in ipairs { false, true } do
        local planned = M.optimize_net(net, {
          executor = dag and "dag" or "simple",
          order = not dag and round % 3 == 0 and "least_memory" or nil,
        })
        assert_same_run(net, planned, { "y", "x0" }, dag and "dag" or "simple")
      end
    end
  end)
end)
