-- Point 11, working within memory: micro-batches by nets alone, in frames of a scope or by
-- two halves of one net.
local neap = require "neap"
local nn, optim = neap.nn, neap.optim
local support = require "support"
local raises = support.raises

describe("gradient accumulation by scopes", function()
  local parameters = { "linear1.weight", "linear1.bias", "linear2.weight", "linear2.bias" }
  local function model()
    return nn.Sequential { input = { 12 }, nn.Linear { 12, 16 }, nn.Tanh(), nn.Linear { 16, 4 } }
  end
  local function net_of(rows)
    neap.seed(6)
    return (model():net {
      batch = rows,
      train = true,
      loss = nn.CrossEntropyLoss {},
      optimizer = optim.SGD { lr = 0.1, momentum = 0.9, clip = 0.2 },
    })
  end

  it("runs each micro-batch in a frame that sees parameters and sums, and \z
      equals the large batch", function()
    for _, executor in ipairs { "simple", "dag" } do
      local whole <close> = neap.workspace { store = false, executor = executor, seed = 4 }
      local ws <close> = neap.workspace { store = false, executor = executor, seed = 4 }
      local net, micro, update = net_of(12), net_of(4):split_micro()
      ws:init(micro)
      ws:init(update)
      ws:feed("lr", neap.tensor(0.1))
      local bindings, scope = {}, ws:create_scope "parts"
      for _, name in ipairs(parameters) do
        bindings[name], bindings[name .. "_grad"] = name, name .. "_grad"
      end
      local part, finish = nil, ws:compile(update)
      for k = 1, 3 do
        local x, y = support.batch({ 12, 12 }, 4, 0.37 * k)
        whole:run(net, { x = x, y = y, lr = neap.tensor(0.1) })
        for p = 1, 3 do
          local frame = scope:push(ws, bindings)
          frame:feed("x", x:narrow(1, 4 * p - 3, 4))
          frame:feed("y", y:narrow(1, 4 * p - 3, 4))
          frame:feed("micro.weight", neap.tensor(1 / 3))
          frame:feed("micro.keep", neap.tensor(p > 1 and 1.0 or 0.0))
          part = part or frame:compile(micro)
          part:run()
          scope:clear() -- the next micro-batch finds this frame again, memory and all
        end
        finish:run()
      end
      for _, name in ipairs(parameters) do
        assert.is_true(ws:fetch(name):close(whole:fetch(name), { rtol = 1e-4, atol = 1e-5 }), name)
        assert.is_true(
          ws:fetch(name .. "_grad"):close(whole:fetch(name .. "_grad"),
            { rtol = 1e-4, atol = 1e-5 }), name)
      end
      assert.are.equal(3, ws:fetch("micro.steps"):item())
    end
  end)

  it("sums the gradients of the frames of one net: a Do for each micro-batch", function()
    local function net_with(n_part)
      local net = neap.net "frames"
      local x, y = net:input("x", { 12, 5 }), net:input("y", { 12 }, "i32")
      local w = net:param("w", { 3, 5 }, neap.init.xavier {})
      local losses, rows = {}, 12 // n_part
      net:CreateScope({}, "s")
      for p = 1, n_part do
        local range = { axes = { 1 }, starts = { (p - 1) * rows + 1 }, ends = { p * rows } }
        local xs, ys = net:Slice(x, "x" .. p, range), net:Slice(y, "y" .. p, range)
        losses[p] = net:Do { bindings = { x = xs, y = ys, w = w }, scope = "s", body = function(d)
          return d:SoftmaxCrossEntropy({ d:Tanh(d:FC { "x", "w" }), "y" })
        end }
      end
      local loss = losses[1]
      for p = 2, n_part do loss = net:Add { loss, losses[p] } end
      net:gradient(net:Mul({ loss, net:const(1 / n_part) }, "loss"))
      return net:outputs { "loss", "w_grad" }
    end
    local x = neap.randn(12, 5)
    local feeds = { x = x, y = neap.tensor({ 0, 1, 2, 0, 1, 2, 2, 1, 0, 0, 0, 1 }, "i32") }
    for _, executor in ipairs { "simple", "dag" } do
      local outs = {}
      for _, n_part in ipairs { 1, 3 } do
        local ws <close> = neap.workspace { store = false, executor = executor, seed = 2 }
        local out = ws:run(net_with(n_part), feeds)
        outs[#outs + 1] = { loss = out.loss:clone(), w_grad = out.w_grad:clone() }
      end
      assert.is_true(outs[1].w_grad:close(outs[2].w_grad, { rtol = 1e-4, atol = 1e-6 }))
      assert.is_true(math.abs(outs[1].loss:item() - outs[2].loss:item()) < 1e-5)
    end
  end)
end)

describe("net:split_micro", function()
  it("refuses an op between gradients and activations, by name, and a net \z
      without gradients", function()
    local net = neap.net "n"
    local x, w = net:input("x", { 4, 3 }), net:param("w", { 2, 3 }, neap.init.xavier {})
    local loss = net:Mean(net:FC { x, w }, "loss")
    raises("has no Gradient op", net.split_micro, net)
    local g = net:gradient(loss)
    net:Mul({ g[w], loss }, "scaled")
    local err = raises("reads \"loss\", which every micro-batch makes anew", net.split_micro, net)
    assert.are.equal("graph", err.code)
    assert.are.equal("Mul", err.op)
    assert.is_truthy(err.line:find("11_split_micro_spec", 1, true))
  end)

  it("lets both halves read what comes of parameters alone", function()
    local net = neap.net "n"
    local x = net:input("x", { 4, 3 })
    local w = net:param("w", { 2, 3 }, neap.init.xavier {})
    local lr = net:input("lr", {})
    local t = net:Tanh(w, "t")
    local g = net:gradient(net:Mean(net:FC { x, t }, "loss"))
    net:Sgd({ w, net:Mul { g[w], t }, lr }, "w")
    local micro, update = net:split_micro()
    for _, half in ipairs { micro, update } do
      local n = 0
      for _, op in ipairs(half:ops()) do
        if op.type == "Tanh" then n = n + 1 end
      end
      assert.are.equal(1, n)
    end
  end)

  it("gives every output in the half that makes it, that of the first op too", function()
    local net = neap.net "n"
    local x = net:input("x", { 4, 3 })
    local w = net:param("w", { 2, 3 }, neap.init.xavier {})
    local lr = net:input("lr", {})
    local first = net:Tanh(x, "first")
    local g = net:gradient(net:Mean(net:FC { first, w }, "loss"))
    net:GradNorm(g[w], "norm")
    net:Sgd({ w, g[w], lr }, "w")
    net:outputs { "first", "loss", "norm" }
    local micro, update = net:split_micro()
    local of_micro = table.concat(micro:outputs(), " ")
    local of_update = table.concat(update:outputs(), " ")
    assert.is_truthy(of_micro:find("first", 1, true) and of_micro:find("loss", 1, true), of_micro)
    assert.is_truthy(of_update:find("norm", 1, true), of_update)
  end)

  it("takes what follows from gradients into the update, whatever it is: branches too", function()
    local net = neap.net "n"
    local x = net:input("x", { 4, 3 })
    local w = net:param("w", { 2, 3 }, neap.init.xavier {})
    local lr = net:input("lr", {})
    local loss = net:Mean(net:Tanh(net:FC { x, w }), "loss")
    local g = net:gradient(loss)[w]
    local norm = net:GradNorm(g)
    local large = net:Reshape(net:Gt { norm, net:const(0.01) }, "large", { shape = { 1 } })
    local clipped = net:If(large,
      function() return net:ClipByNorm({ g, norm }, "clipped", { max = 0.01 }) end,
      function() return net:Copy(g) end)
    net:Sgd({ w, clipped, lr }, { w })
    net:outputs { "loss", norm }
    local micro, update = net:split_micro()
    assert.are.equal(micro:text(), neap.net_from(micro:text()):text())
    assert.are.equal(update:text(), neap.net_from(update:text()):text())
    assert.is_nil(micro:text():find("ClipByNorm", 1, true))
    assert.is_nil(update:text():find("FC(", 1, true))
    local feeds = { x = neap.randn(4, 3), lr = neap.tensor(0.1) }
    for _, executor in ipairs { "simple", "dag" } do
      local one <close> = neap.workspace { store = false, executor = executor, seed = 2 }
      local two <close> = neap.workspace { store = false, executor = executor, seed = 2 }
      one:init(net)
      local w0 = one:fetch "w"
      one:run(net, feeds)
      two:run(micro, {
        x = feeds.x, ["micro.weight"] = neap.tensor(1.0), ["micro.keep"] = neap.tensor(0.0),
      })
      two:run(update, { lr = feeds.lr })
      assert.is_false(one:fetch("w"):equal(w0))
      assert.is_true(one:fetch("w"):close(two:fetch "w", { rtol = 1e-5, atol = 1e-6 }))
    end
  end)
end)
