-- Modules of ONNX files in training: what is trained and what is not, statistics, loops without a
-- number of turns, and what a batch's fields are called.
local neap = require "neap"
local core = require "neap.core"
local kit = require "import.onnx_kit"
local support = require "support"

local function import(g, o, opset)
  local folder <close> = kit.folder()
  return neap.import(folder:write("m.onnx", kit.model(g, opset)), o or { model = true })
end

--- The module of a file of these bytes.
local function import_of(bytes)
  local folder <close> = kit.folder()
  return neap.import(folder:write("m.onnx", bytes), { model = true })
end

local function floats(name, dims, list)
  return kit.tensor { name = name, dims = dims, floats = list }
end

--- A node that holds floats.
local function constant(name, dims, list)
  return kit.node("Constant", {}, { name },
    { value = { kind = "tensor", kit.tensor { dims = dims, floats = list } } })
end

local function names_of(m)
  local out = {}
  for name, p in m:parameters() do out[#out + 1] = name .. (p.trainable and "" or " fixed") end
  return table.concat(out, ", ")
end

--- A step of plain gradient descent on the mean of the squares of what comes out.
local function step(m, x, lr)
  local t = neap.trainer { model = m, loss = function(y) return (y * y):mean() end,
    optimizer = neap.optim.SGD { lr = lr or 0.1 } }
  return t:step { x = x }
end

describe("a module of an ONNX file in training", function()
  it("leaves what Constant nodes hold as it is", function()
    -- An attention's scale and its mask, as PyTorch writes them, beside a weight.
    local hidden = {}
    for i = 1, 81 do hidden[i] = i % 2 == 0 and -math.huge or 0 end
    local m = assert(import { nodes = { kit.node("MatMul", { "x", "w" }, { "h" }),
      constant("scale", { 1 }, { 0.5 }), kit.node("Mul", { "h", "scale" }, { "s" }),
      constant("mask", { 9, 9 }, hidden), kit.node("Add", { "s", "mask" }, { "a" }),
      kit.node("Softmax", { "a" }, { "y" }, { axis = 1 }) },
      tensors = { floats("w", { 2, 9 }, { 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 0, 1, 0, 1, 0, 1, 0, 1 }) },
      inputs = { kit.value("x", { 9, 2 }) }, outputs = { kit.value("y", { 9, 9 }) } })
    assert.equal("w, mask fixed", names_of(m))
    local w = m:param("w").data:clone()
    for _ = 1, 3 do assert.is_true(step(m, neap.ones(9, 2)).loss < 1) end
    assert.is_false(w:equal(m:param("w").data))
    assert.equal(-math.huge, m:param("mask").data[{ 1, 2 }])
  end)

  --- An initializer and what PyTorch's exporter says of it: what it was to the program, or what it
  -- has been computed of.
  local function said(name, kind, from)
    local key = kind and "pkg.torch.export.graph_signature.InputSpec.kind"
      or from and "pkg.onnxscript.optimizer.folded_from"
    return kit.value(name, { 80 }, 1, { key and { key, kind or from } })
  end

  it("trains what PyTorch's exporter says is a parameter, and nothing else", function()
    local list = { { "w", "PARAMETER" }, { "position", "BUFFER" }, { "c", "CONSTANT_TENSOR" },
      { "mask", nil, "['mask_buffer', 'triu']" }, { "turned", nil, "['v', 'norm']" }, { "val_3" } }
    local function model(signature, values)
      local nodes, tensors, at = {}, {}, "x"
      for i, row in ipairs(list) do
        nodes[i] = kit.node(i % 2 == 0 and "Add" or "Mul", { at, row[1] }, { "h" .. i })
        at = "h" .. i
        local numbers = {}
        for k = 1, 80 do numbers[k] = k * i % 17 / 16 end
        tensors[i] = floats(row[1], { 80 }, numbers)
      end
      return { nodes = nodes, tensors = tensors, inputs = { kit.value("x", { 2, 80 }) },
        outputs = { kit.value(at, { 2, 80 }) }, values = values, meta = signature and {
          { "pkg.torch.export.ExportedProgram.graph_signature", signature } } }
    end
    local values = {}
    for i, row in ipairs(list) do values[i] = said(table.unpack(row, 1, 3)) end
    local signature = "\n# inputs\np_w: PARAMETER target='w'\np_v: PARAMETER target='v'\n\z
      b_mask_buffer: BUFFER target='mask_buffer' persistent=True\n\z
      b_position: BUFFER target='position' persistent=True\nx: USER_INPUT\n"
    local trained = "w, position fixed, c fixed, mask fixed, turned, val_3 fixed"
    local m = assert(import(model(signature, values)))
    assert.equal(trained, names_of(m))

    -- What is not trained is there, computed with and saved, and stays.
    local before = m:state_dict()
    for name, t in pairs(before) do before[name] = t:clone() end
    step(m, neap.ones(2, 80))
    local moved = {}
    for name, t in pairs(m:state_dict()) do
      if not t:equal(before[name]) then moved[#moved + 1] = name end
    end
    table.sort(moved)
    assert.same({ "turned", "w" }, moved)

    -- The graph's list alone has the names of those that no tool has renamed.
    assert.equal("w, position fixed, c fixed, mask fixed, turned fixed, val_3 fixed",
      names_of(assert(import(model(signature)))))
    local all = "w, position, c, mask, turned, val_3"
    assert.equal(all, names_of(assert(import(model()))))
    assert.equal(all, names_of(assert(import(model "p_other: PARAMETER target='other'"))))
    -- Pairs that are none.
    local folder <close> = kit.folder()
    local bad = kit.graph(model()) .. kit.field(16, "\10\200no")
    local file = folder:write("bad.onnx", kit.message { { 1, 8 }, { 7, bad },
      { 8, kit.message { { 1, "" }, { 2, 17 } } } })
    local _, err = neap.import(file)
    assert.matches("metadata are no pair of texts", tostring(err))
  end)

  --- Two norms behind each other, which read `names` beside what comes in.
  local function norms(first, second, more)
    local g = { nodes = {}, tensors = { floats("one", { 3 }, { 1, 1, 1 }),
      floats("nought", { 3 }, { 0, 0, 0 }) }, inputs = { kit.value("x", { 4, 3 }) },
      outputs = { kit.value("y", { 4, 3 }) } }
    for i, names in ipairs { first, second } do
      g.nodes[i] = kit.node("BatchNormalization", { i == 1 and "x" or "h", table.unpack(names) },
        { i == 1 and "h" or "y" }, { training_mode = 1 })
    end
    for key, v in pairs(more or {}) do g[key] = v end
    return g
  end

  it("moves statistics alone that an exporter has merged with weights", function()
    local m = assert(import(norms({ "one", "nought", "nought", "one" },
      { "one", "nought", "nought", "one" })))
    assert.equal("one, nought", names_of(m))
    local x = neap.tensor { { 1, 2, 30 }, { 3, 2, 10 }, { 5, 2, 20 }, { 7, 6, 40 } }
    m:train()
    local t = neap.trainer { model = m, loss = function(y) return (y * y):sum() * 0 end,
      optimizer = neap.optim.SGD { lr = 0.1 } }
    t:step { x = x }
    -- The first norm's mean is a tenth of its batch's, the second's of what the first has made: 0.
    local seen = {}
    for name, v in pairs(m:state_dict()) do
      if #v.shape == 1 then seen[#seen + 1] = ("%s %.3f"):format(name, v[{ 1 }]) end
    end
    table.sort(seen)
    assert.same({ "nought 0.000", "nought_2 0.400", "nought_3 0.000", "one 1.000", "one_2 1.400",
      "one_3 1.000" }, seen)
  end)

  --- Files of PyTorch's exporters: by tracing, and with a graph signature and a call at each node.
  local function traced(g) return import_of(kit.model(g, 17, { { 2, "pytorch" } })) end

  it("has weights of each layer's own where an exporter has merged equal ones", function()
    -- As the tracing exporter writes it, by Identity, of a file that says it is PyTorch's.
    local copied = norms({ "one", "nought", "m1", "v1" }, { "b.weight", "b.bias", "m2", "v2" })
    for i, name in ipairs { "m1", "v1", "m2", "v2" } do
      copied.tensors[2 + i] = floats(name, { 3 }, { i, 1, 2 })
    end
    table.insert(copied.nodes, 1, kit.node("Identity", { "one" }, { "b.weight" }))
    table.insert(copied.nodes, 1, kit.node("Identity", { "nought" }, { "b.bias" }))
    assert.equal("one, nought, b.weight, b.bias", names_of(assert(traced(copied))))
    assert.equal("one, nought", names_of(assert(import(copied))))

    -- What it has computed has names of no module: calls of one share it, other modules don't.
    local function computed(second)
      local nodes = { kit.node("Identity", { "onnx::MatMul_7" }, { "onnx::MatMul_9" }) }
      for i, path in ipairs { "/a/q/MatMul", second } do
        nodes[1 + i] = kit.node("MatMul", i == 1 and { "x", "onnx::MatMul_7" }
          or { "h", "onnx::MatMul_9" }, { i == 1 and "h" or "y" }, nil, path)
      end
      return names_of(assert(traced { nodes = nodes,
        tensors = { floats("onnx::MatMul_7", { 2, 2 }, { 1, 2, 3, 4 }) },
        inputs = { kit.value("x", { 4, 2 }) }, outputs = { kit.value("y", { 4, 2 }) } }))
    end
    assert.equal("onnx__MatMul_7", computed "/a/q_1/MatMul")
    assert.equal("onnx__MatMul_7, onnx__MatMul_9", computed "/b/q/MatMul")
  end)

  it("has the weights that a call had, where the file keeps equal ones once", function()
    -- The first two layers had weights of their own that were equal, the third one the first's.
    local calls = { "%p_a_w, %p_a_b", "%p_b_w, %p_b_b", "%p_a_w, %p_a_b", "%p_a_w, %p_b_b" }
    local function model(signature)
      local nodes = {}
      for i, call in ipairs(calls) do
        local fields = { { 1, i == 1 and "x" or "h" .. i - 1 }, { 1, "a.w" }, { 1, "a.b" },
          { 2, i == #calls and "y" or "h" .. i }, { 4, "Gemm" } }
        for _, f in ipairs(kit.pairs(9, { { "pkg.torch.onnx.stack_trace", "File .." },
          { "pkg.torch.onnx.fx_node", ("%%l = call_function[..](args = (%%h, %s), kwargs = {})")
            :format(call) } })) do
          fields[#fields + 1] = f
        end
        nodes[i] = kit.message(fields)
      end
      return { nodes = nodes, tensors = { floats("a.w", { 2, 2 }, { 1, 0, 0.5, 1 }),
        floats("a.b", { 2 }, { 1, 1 }) }, inputs = { kit.value("x", { 3, 2 }) },
        outputs = { kit.value("y", { 3, 2 }) }, meta = {
          { "pkg.torch.export.ExportedProgram.graph_signature", signature } } }
    end
    local own, other = "p_a_w: PARAMETER target='a.w'\np_a_b: PARAMETER target='a.b'\n",
      "p_b_w: PARAMETER target='b.w'\np_b_b: PARAMETER target='b.b'\n"
    -- The second layer's two have no names apart; the last has a bias that is said.
    assert.equal("a.w, a.b, a.w_2, a.b_2, b.b", names_of(assert(import(model(own .. other)))))
    assert.equal("a.w, a.b", names_of(assert(import(model(own)))))
  end)

  it("has one row of a parameter that the file has for each example", function()
    local function model(numbers, more)
      return { nodes = { kit.node("Add", { "x", "expand" }, { "y" }) },
        tensors = { floats("expand", { 3, 2 }, numbers), table.unpack(more or {}) },
        values = { said("expand", nil, "['cls', 'val_3']") },
        meta = { { "pkg.torch.export.ExportedProgram.graph_signature",
          "p_cls: PARAMETER target='cls'\n" } },
        inputs = { kit.value("x", { 3, 2 }) }, outputs = { kit.value("y", { 3, 2 }) } }
    end
    local m = assert(import(model { 1, 2, 1, 2, 1, 2 }))
    assert.equal("cls", names_of(m))
    local t = neap.trainer { model = m, loss = function(y) return y:sum() end,
      optimizer = neap.optim.SGD { lr = 0.1 } }
    t:step { x = neap.zeros(3, 2) }
    assert.is_true(m:param("cls").data:close(neap.tensor { { 0.7, 1.7 } }))
    -- Rows that differ, numbers that are all one, a parameter that the file has itself.
    assert.equal("expand", names_of(assert(import(model { 1, 2, 1, 2, 1, 3 }))))
    assert.equal("expand", names_of(assert(import(model { 1, 1, 1, 1, 1, 1 }))))
    local own = model({ 1, 2, 1, 2, 1, 2 }, { floats("cls", { 2 }, { 1, 2 }) })
    own.nodes[2] = kit.node("Mul", { "y", "cls" }, { "z" })
    own.outputs = { kit.value("z", { 3, 2 }) }
    assert.equal("expand, cls", names_of(assert(import(own))))
  end)

  it("has a table that is multiplied with, too, once", function()
    local function model(name, values)
      return { nodes = { kit.node("Gather", { "table", "ids" }, { "rows" }),
        kit.node("MatMul", { "rows", name }, { "y" }) },
        tensors = { floats("table", { 3, 2 }, { 1, 2, 3, 4, 5, 6 }),
          floats(name, { 2, 3 }, { 1, 3, 5, 2, 4, 6 }) }, values = values,
        inputs = { kit.value("ids", { 4 }, 7) }, outputs = { kit.value("y", { 4, 3 }) } }
    end
    local values = { said("table", "PARAMETER"), said("val_2", nil, "['table']") }
    for _, m in ipairs { assert(traced(model("onnx::MatMul_12"))),
      assert(import(model("val_2", values))) } do
      assert.equal("table", names_of(m))
      local ids = neap.tensor({ 0, 1, 2, 2 }, "i64")
      local before = m(ids)
      assert.same({ 5, 11, 17 }, before[1]:totable())
      local t = neap.trainer { model = m, loss = function(y) return y:mean() end,
        optimizer = neap.optim.SGD { lr = 0.1 } }
      t:step { ids = ids }
      local w = m:param("table").data
      local rows = w:totable()
      assert.is_false(rows[1][1] == 1)
      rows[4] = rows[3]
      assert.is_true(m(ids):close(neap.tensor(rows):matmul(w:transpose(1, 2))))
      t:close()
    end
    -- Other names are weights of their own, whatever they equal.
    assert.equal("table, head", names_of(assert(traced(model "head"))))
  end)

  it("leaves a mask among the weights as it is", function()
    local m = assert(import { nodes = { kit.node("Mul", { "x", "w" }, { "h" }),
      kit.node("Add", { "h", "mask" }, { "a" }), kit.node("Softmax", { "a" }, { "y" },
        { axis = 1 }) },
      tensors = { floats("w", { 2 }, { 1, 2 }), floats("mask", { 2, 2 }, { 0, -math.huge, 0, 0 }) },
      inputs = { kit.value("x", { 2, 2 }) }, outputs = { kit.value("y", { 2, 2 }) } })
    assert.equal("w, mask fixed", names_of(m))
    for _ = 1, 2 do step(m, neap.ones(2, 2)) end
    assert.same({ { 0, -math.huge }, { 0, 0 } }, m:param("mask").data:totable())
  end)

  it("leaves first states of zeros as they are, and trains those that were learnt", function()
    local function states(name, value)
      local list = {}
      for i = 1, 70 do list[i] = value end
      return floats(name, { 1, 1, 70 }, list)
    end
    local function many(n)
      local list = {}
      for i = 1, n do list[i] = (i * 37 % 19 - 9) / 100 end
      return list
    end
    local m = assert(import { nodes = {
      kit.node("LSTM", { "x", "w", "r", "", "", "h", "c" }, { "y" }, { hidden_size = 70 }) },
      tensors = { floats("w", { 1, 280, 1 }, many(280)), floats("r", { 1, 280, 70 }, many(19600)),
        states("h", 0), states("c", 0.1) },
      inputs = { kit.value("x", { 2, 1, 1 }) }, outputs = { kit.value("y", { 2, 1, 1, 70 }) } })
    local names = names_of(m)
    assert.matches("h fixed", names)
    assert.is_nil(names:find("c fixed", 1, true), names)
    step(m, neap.ones(2, 1, 1), 1)
    assert.equal(70, m:param("h").data:stats().zero)
    assert.is_true(m:param("c").data:stats().std > 0)
  end)

  it("trains Constant nodes of a file that has its weights there", function()
    local m = assert(import { nodes = { constant("w", { 2, 1 }, { 1, 2 }),
      kit.node("MatMul", { "x", "w" }, { "y" }) },
      inputs = { kit.value("x", { 1, 2 }) }, outputs = { kit.value("y", { 1, 1 }) } })
    assert.equal("w", names_of(m))
    step(m, neap.ones(1, 2))
    assert.is_true(m:param("w").data:close(neap.tensor { { 0.4 }, { 1.4 } }))
  end)

  it("has no second weight of one that a product turns", function()
    -- A table that is looked up in and multiplied with, as of a language model whose ends are tied.
    local m = assert(import { nodes = { kit.node("Gather", { "e", "x" }, { "h" }),
      kit.node("Transpose", { "e" }, { "t" }, { perm = { 1, 0 } }),
      kit.node("MatMul", { "h", "t" }, { "y" }) },
      tensors = { floats("e", { 3, 2 }, { 1, 2, 3, 4, 5, 6 }) },
      inputs = { kit.value("x", { "batch", 4 }, 7) },
      outputs = { kit.value("y", { "batch", 4, 3 }) } })
    assert.equal("e", names_of(m))
    assert.equal(6, m:summary().parameters)
  end)

  it("makes anew in each run what nodes make of weights", function()
    -- A weight by its direction and its length, and a bias that a step of zeros reads, too.
    local m = assert(import { nodes = { kit.node("ReduceL2", { "v" }, { "n" }, { axes = { 1 } }),
      kit.node("Div", { "v", "n" }, { "d" }), kit.node("Mul", { "d", "g" }, { "w" }),
      kit.node("Gemm", { "zeros", "w", "b" }, { "first" }),
      kit.node("Gemm", { "x", "w", "b" }, { "h" }), kit.node("Add", { "h", "first" }, { "y" }) },
      tensors = { floats("v", { 2, 2 }, { 3, 4, 6, 8 }), floats("g", { 2, 1 }, { 1, 2 }),
        floats("b", { 2 }, { 0.5, -0.5 }), floats("zeros", { 1, 2 }, { 0, 0 }) },
      inputs = { kit.value("x", { 1, 2 }) }, outputs = { kit.value("y", { 1, 2 }) } })
    assert.equal("v, g, zeros, b", names_of(m))
    m:freeze "zeros"
    local x = neap.tensor { { 1, -1 } }
    local function y() -- by hand, of the parameters
      local v, g, b = m:param("v").data, m:param("g").data, m:param("b").data
      local w = v / (v * v):sum { axes = { 2 }, keepdim = true }:sqrt() * g
      return x:matmul(w) + b * 2
    end
    assert.is_true(m(x):close(y()))
    step(m, x)
    assert.is_true(m(x):close(y(), { atol = 1e-6 }))
    assert.is_false(m:param("v").data:close(neap.tensor { { 3, 4 }, { 6, 8 } }))
  end)

  it("has no statistics among its weights, whatever they are made of", function()
    local function net(mean)
      return assert(import { nodes = { kit.node("Mul", { "x", "w" }, { "h" }),
        kit.node("ReduceMean", { "h" }, { "own" }, { axes = { 0, 2 }, keepdims = 0 }),
        kit.node("Add", { "m", "one" }, { "moved" }),
        kit.node("BatchNormalization", { "h", "s", "s", mean, "v" }, { "y" }) },
        tensors = { floats("w", { 1 }, { 2 }), floats("m", { 1 }, { 3 }), floats("v", { 1 }, { 4 }),
          floats("s", { 1 }, { 1 }), floats("one", { 1 }, { 1 }) },
        inputs = { kit.value("x", { 2, 1, 2 }) }, outputs = { kit.value("y", { 2, 1, 2 }) } })
    end
    assert.equal("w, s", names_of(net "moved"))
    assert.equal("w, s", (names_of(net "own"):gsub(", m, one", "")))
  end)

  it("takes fields by the names of the file's inputs", function()
    local m = assert(import { nodes = { kit.node("MatMul", { "left.in", "w" }, { "h" }),
      kit.node("Add", { "h", "right" }, { "y" }) }, tensors = { floats("w", { 2, 1 }, { 1, 2 }) },
      inputs = { kit.value("left.in", { "batch", 2 }), kit.value("right", { "batch", 1 }) },
      outputs = { kit.value("y", { "batch", 1 }) } })
    local function trainer(model)
      return neap.trainer { model = model, loss = function(y) return y:mean() end,
        optimizer = neap.optim.SGD { lr = 0 } }
    end
    local a, b = neap.ones(3, 2), neap.ones(3, 1)
    assert.equal(4, trainer(m):step({ ["left.in"] = a, right = b }).loss)
    assert.equal(4, trainer(m):step({ x1 = a, x2 = b }).loss)
    local t = trainer(m)
    support.raises("did you mean \"right\"?", t.step, t, { ["left.in"] = a, rigth = b })

    -- y is a batch's target, whatever a file calls so.
    local both = assert(import { nodes = { kit.node("Sub", { "y", "z:0" }, { "d" }) },
      inputs = { kit.value("y", { "batch", 2 }), kit.value("z:0", { "batch", 2 }) },
      outputs = { kit.value("d", { "batch", 2 }) } })
    assert.equal("x1 z:0", both:net { batch = 1 }:inputs()[1].name .. " "
      .. both:net { batch = 1 }:inputs()[2].name)
    assert.same({ { 1, 1 } }, both(neap.ones(1, 2) * 3, neap.ones(1, 2) * 2):totable())

    local one = assert(import { nodes = { kit.node("Relu", { "ids" }, { "y" }) },
      inputs = { kit.value("ids", { "batch", 2 }) }, outputs = { kit.value("y", { "batch", 2 }) } })
    local folder <close> = kit.folder()
    assert(neap.export(one, folder.path .. "/m.onnx", { batch = "batch" }))
    assert.equal("ids", core.read_onnx(folder.path .. "/m.onnx").graph.inputs[1].name)
    local model = neap.nn.Sequential { one, neap.nn.Linear { 2, 1 } }
    assert.equal(trainer(model):step({ ids = a }).loss, trainer(model):step({ x = a }).loss)
  end)

  it("loops as long as a condition holds, which PyTorch writes with a number beyond all", function()
    local body = kit.graph { nodes = { kit.node("Mul", { "v", "half" }, { "w" }),
      kit.node("Greater", { "w", "half" }, { "go" }) },
      inputs = { kit.value("i", {}, 7), kit.value("c", {}, 9), kit.value("v", {}) },
      outputs = { kit.value("go", {}, 9), kit.value("w", {}) } }
    local f = assert(import({ nodes = { kit.node("Greater", { "x", "half" }, { "first" }),
      kit.node("Loop", { "most", "first", "x" }, { "y" }, { body = { kind = "graph", body } }) },
      tensors = { floats("half", {}, { 0.5 }),
        kit.tensor { name = "most", elem = 7, dims = {}, ints = { math.maxinteger } } },
      inputs = { kit.value("x", {}) }, outputs = { kit.value("y", {}) } }, {}))
    assert.equal(0.375, f(neap.tensor(6)):item())
    assert.equal(0.25, f(neap.tensor(0.25)):item())
  end)

  it("moves statistics while it trains alone, of a file that was written in training", function()
    local function norm()
      return assert(import { nodes = { kit.node("Mul", { "x", "w" }, { "h" }),
        kit.node("BatchNormalization", { "h", "s", "b", "mean", "var" }, { "n", "mean2", "var2" },
          { training_mode = 1, momentum = 0.75 }),
        kit.node("Dropout", { "n", "rate", "on" }, { "y" }) },
        tensors = { floats("w", { 1 }, { 1 }), floats("s", { 1 }, { 1 }), floats("b", { 1 }, { 0 }),
          floats("mean", { 1 }, { 8 }), floats("var", { 1 }, { 4 }), floats("rate", {}, { 0.5 }),
          kit.tensor { name = "on", elem = 9, dims = {}, raw = "\1" } },
        inputs = { kit.value("x", { "batch", 1 }) }, outputs = { kit.value("y", { "batch", 1 }) } })
    end
    local m, x = norm(), neap.tensor { { 2 }, { 6 } }
    -- Statistics of the file: (2 - 8) / 2, (6 - 8) / 2; and nothing is dropped.
    assert.is_true(m(x):close(neap.tensor { { -3 }, { -1 } }, { atol = 1e-4 }))
    assert.equal(8, m:state_dict().mean[1])

    m:train()
    step(m, x, 0)
    -- 0.75 of what was and a quarter of the batch's mean 4 and variance 4.
    assert.equal(7, m:state_dict().mean[1])
    assert.equal(4, m:state_dict().var[1])
    m:eval()
    assert.is_true(m(x):close(neap.tensor { { -2.5 }, { -0.5 } }, { atol = 1e-4 }))
  end)
end)
