-- What a plan is made of, as the database tells it: to which layer each op and value belongs, what
-- it is for, who reads it, why its kernel was taken, and what lies inside control ops.
local neap = require "neap"
local support = require "support"

describe("the structure of a plan", function()
  local db, path

  setup(function()
    db, path = support.open_db()
  end)
  teardown(function()
    support.close_db(db, path)
  end)

  local function rows(sql, params) return assert(db:sql(sql, params)) end
  local function training()
    return neap.zoo.lenet():plan { batch = 4, train = true, loss = neap.nn.CrossEntropyLoss(),
      optimizer = neap.optim.SGD { lr = 0.1, momentum = 0.9 } }
  end

  it("has the layers that were written, and what was made for them belongs to them", function()
    local plan = training()
    local written = {}
    for _, r in ipairs(rows([[select layer from plan_op where plan_id = ? and phase = 'forward'
      and type <> 'Reorder']], { plan.plan_id })) do
      written[r.layer] = true
    end
    for _, t in ipairs { "plan_op", "plan_value" } do
      for _, r in ipairs(rows(("select distinct layer from %s where plan_id = ?"):format(t),
        { plan.plan_id })) do
        assert.is_true(written[r.layer], t .. " has a layer \"" .. r.layer .. "\"")
      end
    end
    -- of a layer with parameters, all their bytes, their momentum and gradients
    local sizes = { conv1 = 520, conv2 = 25050, linear1 = 400500, linear2 = 5010 }
    for _, role in ipairs { "parameter", "gradient", "state" } do
      local n = 0
      for _, r in ipairs(rows([[select layer, sum(bytes) as bytes from plan_value
        where plan_id = ? and role = ? and value_no = storage_no group by layer]],
        { plan.plan_id, role })) do
        assert.equal(4 * sizes[r.layer], r.bytes, r.layer .. " " .. role)
        n = n + 1
      end
      assert.equal(4, n)
    end
  end)

  it("has the leaf of each op as its layer, and modules are their sums", function()
    local model = neap.zoo.resnet18c()
    local plan = model:plan { batch = 2, train = true, optimizer = neap.optim.SGD { lr = 0.1 } }
    local found = rows([[select name, type, layer, module from plan_op where plan_id = ?
      and type in ('Conv', 'BatchNorm', 'ConvGradWeight', 'BatchNormGrad', 'FC')]],
      { plan.plan_id })
    assert.is_true(#found > 60)
    for _, r in ipairs(found) do
      local last = r.layer:match "[^/]+$"
      local want = r.type:find "Conv" and "^conv%d+$" or r.type == "FC" and "^linear%d*$"
        or "^norm%d+$"
      assert.is_truthy(last:find(want), r.name .. " is of layer " .. r.layer)
      assert.equal(r.module and r.module .. "/" .. last or last, r.layer)
    end

    -- each module has what the layers below it have
    local layers = rows("select * from v_layer where plan_id = ?", { plan.plan_id })
    local modules = rows("select * from v_module where plan_id = ?", { plan.plan_id })
    assert.is_true(#modules > #layers)
    for _, m in ipairs(modules) do
      local n, sum = 0, { bytes = 0, parameter_bytes = 0, peak_bytes = 0 }
      for _, l in ipairs(layers) do
        if l.layer == m.module or l.layer:sub(1, #m.module + 1) == m.module .. "/" then
          n = n + 1
          for key in pairs(sum) do sum[key] = sum[key] + l[key] end
        end
      end
      assert.equal(n, m.n_layer, m.module)
      for key, want in pairs(sum) do assert.equal(want, m[key], m.module .. " " .. key) end
    end
    local asked = db:query("module", { plan = plan.plan_id })
    assert.equal(#modules, #asked)
    assert.equal(1, asked[1].depth)
  end)

  it("names what a module makes by its path, which is said once", function()
    local gpt = neap.zoo.gpt { layers = 1, width = 32, heads = 2, length = 16, vocabulary = 50 }
    local plan, seen = gpt:plan { batch = 2, train = true }, {}
    for _, v in ipairs(rows("select blob, module from plan_value where plan_id = ? and module \z
      is not null", { plan.plan_id })) do
      assert.is_nil(v.blob:find(v.module .. "/" .. v.module, 1, true), v.blob)
      seen[v.blob] = true
    end
    assert.is_true(seen["block1/residual1/attn1/attn"])
  end)

  it("counts the sum of a value's gradients to the layer that made the value", function()
    local net = neap.net "sum"
    local x = net:input("x", { 4, 8 })
    local w = net:param("w", { 8, 8 }, { "Xavier" })
    local h = net:op("FC", { x, w }, { "h" }, {}, "first")
    local a = net:op("Tanh", { h }, { "a" }, {}, "left")
    local b = net:op("Sigmoid", { h }, { "b" }, {}, "right")
    net:gradient((a + b):sum())
    local plan = net:plan {}
    local found = rows("select layer from plan_op where plan_id = ? and type = 'AddN'",
      { plan.plan_id })
    assert.equal(1, #found)
    assert.equal("first", found[1].layer)
  end)

  it("says what each value is for, scratch too", function()
    local plan, seen = training(), {}
    for _, v in ipairs(rows("select * from plan_value where plan_id = ?", { plan.plan_id })) do
      local of_role = { input = 1, parameter = 1, gradient = 1, state = 1, output = 1 }
      if of_role[v.role] then assert.equal(v.role, v.category) end
      if v.blob:match "%.reorder$" or v.blob:match "%.blocked$" then
        assert.equal("reorder", v.category)
      elseif v.blob:match "%.stash$" then
        assert.equal("stash", v.category)
      elseif v.blob:match "%.grad$" then
        assert.equal("gradient", v.category)
      end
      seen[v.category] = true
    end
    for _, name in ipairs { "activation", "gradient", "parameter", "state", "input", "output" } do
      assert.is_true(seen[name], name)
    end
    -- what is live at the peak, storages in steps of 64 bytes
    local live = rows([[select o.live_bytes as n, o.scratch_bytes as scratch from plan_op o
      join plan p using (plan_id) where plan_id = ? and step = p.peak_step]], { plan.plan_id })[1]
    local sum, n = 0, 0
    for _, r in ipairs(rows("select * from v_category where plan_id = ?", { plan.plan_id })) do
      sum, n = sum + r.bytes, n + r.n_storage
      if r.category == "scratch" then assert.equal(live.scratch, r.bytes) end
    end
    assert.is_true(sum <= live.n and live.n < sum + 64 * n, sum .. " of " .. live.n)
  end)

  it("says who reads a value and which step writes it", function()
    local plan = training()
    local want, got = {}, {}
    for _, op in ipairs(plan:_ops()) do
      for k, v in ipairs(op.ins) do want[#want + 1] = ("%d %d %d"):format(v, op.step, k) end
      for _, v in ipairs(op.outs) do
        local value = plan:_values()[v]
        assert.equal(op.step, value.first_step, value.blob)
      end
    end
    for _, r in ipairs(rows([[select value_no, step, position from plan_read where plan_id = ?]],
      { plan.plan_id })) do
      got[#got + 1] = ("%d %d %d"):format(r.value_no, r.step, r.position)
    end
    table.sort(want)
    table.sort(got)
    assert.same(want, got)
    local readers = rows([[select reader, written_step, step from v_reader where net = 'lenet' and
      newest and blob = 'fc_none']])
    assert.equal(0, #readers)
    local first = rows([[select reader, type from v_reader where plan_id = ? and blob = 'relu1'
      order by step]], { plan.plan_id })
    assert.equal("fc_2", first[1].reader)
    assert.is_true(#first >= 2, "the backward reads it too")
  end)

  it("says why a Reorder is there, and why a kernel was taken before others", function()
    local plan = training()
    local n = 0
    for _, r in ipairs(rows("select * from v_choice where plan_id = ?", { plan.plan_id })) do
      if r.type == "Reorder" then
        assert.matches("^%S+ reads %S+, there is %S+$", (r.why:gsub("writes", "reads")
          :gsub("wanted", "there")))
        n = n + 1
      elseif r.type == "FC" or r.type == "Relu" then
        assert.is_string(r.why, r.name)
      end
    end
    local reorders = rows(
      "select count(*) as n from plan_op where plan_id = ? and type = 'Reorder'",
      { plan.plan_id })[1].n
    assert.equal(reorders, n)
  end)

  it("names the algorithm of a convolution, and what speaks against another", function()
    if not support.has_winograd() then
      return pending "needs a processor with AVX-512, where oneDNN has Winograd's algorithm"
    end
    local why = {}
    for _, c in ipairs { { 64, 28, 3 }, { 64, 28, 5 }, { 64, 4, 3 } } do
      local net = neap.net "conv"
      local x = net:input("x", { 8, c[1], c[2], c[2] })
      local w = net:param("w", { c[1], c[1], c[3], c[3] }, { "Xavier" })
      net:outputs(net:op("Conv", { x, w }, { "y" }, { pad = c[3] // 2 }))
      local plan = net:plan { engine = "dnnl", fuse = false }
      local r = rows("select * from v_choice where plan_id = ? and type = 'Conv'",
        { plan.plan_id })[1]
      why[#why + 1] = r.why
      local is_winograd = r.algorithm == "winograd"
      assert.equal(c[2] == 28 and c[3] == 3, is_winograd)
      if is_winograd then assert.matches("MiB scratch; direct: 4 times the work", r.why) end
    end
    assert.matches("^winograd: .*multiplications", why[1])
    assert.matches("^direct: Winograd needs a window of 3 x 3", why[2])
    assert.matches("^direct: fewer tiles", why[3])
  end)

  it("has the nets inside control ops, and leaves them out where the net is asked", function()
    local net = neap.net "outer"
    local x = net:input("x", { 4, 8 })
    local _, h = net:While { init = { net:const(0), x }, max = 3,
      cond = function(_, i) return i:lt(3) end,
      body = function(_, i, y) return i + 1, y:tanh() end }
    net:outputs(h)
    local plan = net:plan {}
    local subnets = rows("select * from plan_subnet where plan_id = ? order by subnet_no",
      { plan.plan_id })
    assert.equal(2, #subnets)
    assert.equal(2, subnets[2].position)
    local op = rows("select * from plan_op where plan_id = ? and step = ?",
      { plan.plan_id, subnets[1].step })[1]
    assert.equal(0, subnets[1].outer_no)
    assert.is_true(subnets[1].arena_bytes <= op.scratch_bytes)
    assert.equal(plan.n_op,
      rows("select count(*) as n from plan_op where plan_id = ?", { plan.plan_id })[1].n)
    local inner = rows([[select type from subnet_op where plan_id = ? and subnet_no = 2
      order by type]], { plan.plan_id })
    assert.equal("Tanh", inner[#inner].type)
    assert.is_true(rows([[select count(*) as n from subnet_value where plan_id = ?
      and subnet_no = 2]], { plan.plan_id })[1].n >= 2)
  end)
end)
