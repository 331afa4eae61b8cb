-- memonger and subnets: names recycled in and around If, While and Recurrent.
local neap = require "neap"
local M = neap.memonger
local kit = require "memonger_kit"
local bits, assert_same_run, n_names = kit.bits, kit.assert_same_run, kit.n_names
local has_name, chain = kit.has_name, kit.chain

describe("subnets", function()
  --- Chains that end in a sequence "seq" (5,2,3), a state "h0" (2,3) and a matrix "w" (3,3), none
  -- of which is declared.
  local function prelude(name)
    local net = neap.net(name)
    net:input("x", { 5, 2, 3 })
    net:input("c", { 1 })
    net:input("v", { 3, 3 })
    for i, op in ipairs {
      { "Relu", "x", "a" }, { "Tanh", "a", "b" }, { "Sigmoid", "b", "d" }, { "Tanh", "d", "seq" },
      { "Copy", "v", "w1" },
      { "Tanh", "w1", "w2" }, { "Sigmoid", "w2", "w" }, { "Sum", "seq", "h1", { axes = { 1 } } },
      { "Tanh", "h1", "h2" }, { "Sigmoid", "h2", "h0" },
    } do
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
      return finish(net, (net:If("c", function(s) return s:Tanh(s:Relu "h0") end,
        function(s) return s:Sigmoid(s:MatMul { "h0", "w" }) end)))
    end,
    AsyncIf = function()
      local net = prelude "async"
      return finish(net, (net:AsyncIf("c", function(s) return s:Tanh(s:Relu "h0") end,
        function(s) return s:Sigmoid(s:MatMul { "h0", "w" }) end)))
    end,
    While = function()
      local net = prelude "while"
      local _, y, rows = net:While {
        init = { net:const(0), "h0" }, max = 4, cond = function(b, i) return (three(b, i)) end,
        body = function(b, i, h) return i + 1, b:Tanh(b:MatMul { h, "w" }), h * h end,
      }
      return stack(net, y, rows)
    end,
    Loop = function()
      local net = prelude "loop"
      return finish(net, (net:Loop {
        trip = 3,
        init = { "h0" },
        body = function(b, _, h) return true, b:Tanh(b:MatMul { h, "w" }) end,
      }))
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
      local _, y = net:While {
        init = { net:const(0), "h0" },
        max = 4,
        cond = function(b, i) return (three(b, i)) end,
        body = function(b, i, h)
          return i + 1, (b:If("c", function(s) return s:Tanh(s:MatMul { h, "w" }) end,
            function(s) return s:Sigmoid(h) end))
        end,
      }
      return finish(net, y)
    end,
    ["Recurrent in If"] = function()
      local net = prelude "inner"
      local function step(s)
        return s:Recurrent {
          seq = { "seq" },
          init = { "h0" },
          step = function(b, h, x) return b:Tanh(b:MatMul { h, "w" } + x) end,
        }
      end
      return finish(net, (net:If("c", step, function(s) return s:Tanh "h0" end)))
    end,
  }

  for kind, build in pairs(builders) do
    it("of " .. kind .. " are renamed with what they take and give; the planned net is run and \z
        gives the same bits", function()
      local net = build()
      for _, executor in ipairs { "simple", "dag" } do
        local planned, slots = M.optimize_net(net, { executor = executor })
        assert.is_true(slots.n_shared >= 1 and n_names(planned) < n_names(net))
        assert.is_true(
          M.verify_graph_equality(net, planned) and M.verify_inplace_blobs(net, planned))
        local text, taken = planned:text(), 0
        for takes in text:gmatch "\n%s*takes ([^\n]*)" do
          if takes:find "shared_" then taken = taken + 1 end
          for name in takes:gmatch "[%w_]+" do
            assert.is_true(name ~= "w" and name ~= "seq" and name ~= "h0", takes)
          end
        end
        assert.is_true(taken >= 1, text)
        assert_same_run(net, planned, { "out" }, executor)
        assert.are.equal(text, neap.net_from(text):text())
      end
    end)
  end

  --- A small network with a loss behind `middle`, which builds from sequence "seq", state "h0" and
  -- matrix "w".
  local function trained(name, middle)
    local net = neap.net(name)
    net:input("x", { 5, 2, 3 })
    net:input("label", { 2 }, "i64")
    net:input("c", { 1 })
    net:param("w", { 3, 3 }, neap.init.xavier())
    net:param("h0", { 2, 3 }, neap.init.xavier())
    net:Relu("x", "x1")
    for i, type in ipairs { "Tanh", "Copy", "Tanh", "Relu" } do
      net:op(type, "x" .. i, "x" .. i + 1)
    end
    net:Copy("x5", "seq")
    net:Copy(middle(net), "e1")
    for i, type in ipairs { "Copy", "Tanh", "Copy", "Relu" } do
      net:op(type, "e" .. i, "e" .. i + 1)
    end
    net:SoftmaxCrossEntropy({ "e5", "label" }, "loss")
    net:outputs { "loss" }
    net:gradient "loss"
    return net
  end
  local trainings = {
    Recurrent = function(net)
      return (net:Recurrent {
        seq = { "seq" },
        init = { "h0" },
        step = function(b, h, x) return b:Tanh(b:MatMul { h, "w" } + x) end,
      })
    end,
    While = function(net)
      local _, y = net:While {
        init = { net:const(0), "h0" }, max = 4, cond = function(b, i) return (three(b, i)) end,
        body = function(b, i, h) return i + 1, b:Tanh(b:MatMul { h, "w" }) end,
      }
      return y
    end,
    If = function(net)
      return (net:If("c", function(s) return s:Tanh(s:MatMul { "h0", "w" }) end,
        function(s) return s:MatMul { s:Tanh "h0", "w" } end))
    end,
  }
  for kind, middle in pairs(trainings) do
    it("of " .. kind .. " in training: the planned net is run, with the same loss and \z
        gradients, in fewer names", function()
      local net = trained("train_" .. kind:lower(), middle)
      local written = net:expand {}
      for _, executor in ipairs { "simple", "dag" } do
        local plans = {
          M.optimize_net(net, { executor = executor }),
          (M.share_grad_blobs(net, { "loss" }, nil, "", {
            share_activations = true, dag = executor == "dag",
          })),
        }
        for _, planned in ipairs(plans) do
          assert.is_true(n_names(planned) < n_names(net))
          assert.is_true(
            M.verify_graph_equality(written, planned) and M.verify_inplace_blobs(written, planned))
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
          local _, slots = M.share_grad_blobs(net, { "loss" }, nil, "",
            { share_activations = activations, dag = dag })
          assert.is_true(slots.lower_bound_bytes <= slots.planned_bytes
            and slots.planned_bytes <= slots.baseline_bytes)
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
      return (net:If("c", function(s)
        return s:If(cond, no, function(t) return t:Relu(t:MatMul { "h0", "w" }) end)
      end, no))
    end,
    ["an If with random numbers"] = function(net)
      return (net:If("c", function(s)
        return s:Dropout(s:MatMul { s:Dropout("h0", nil, { rate = 0.3 }), "w" }, nil,
          { rate = 0.5 })
      end, no))
    end,
    ["an If that writes a resident blob"] = function(net)
      net:param("mean", { 2, 3 }, 0, { trainable = false })
      return (net:If("c", function(s)
        s:Sgd({ "mean", "h0", s:const(-0.1) }, "mean")
        return yes(s)
      end, no))
    end,
    ["an If beside a loop without gradient"] = function(net)
      local _, n = net:While {
        init = { net:const(0), "c" }, max = 4, cond = function(b, i) return (three(b, i)) end,
        body = function(b, i, h) return i + 1, b:Tanh(h) end,
      }
      return (net:If(n, yes, no))
    end,
    ["a Recurrent"] = function(net)
      return (net:Recurrent {
        seq = { "seq" },
        init = { "h0" },
        step = function(b, h, x) return b:Tanh(b:MatMul { h, "w" } + x) end,
      })
    end,
    ["a Recurrent whose rows and last state are read"] = function(net)
      local last, rows = net:Recurrent { seq = { "seq" }, init = { "h0" }, step = function(b, h, x)
        local n = b:Sigmoid(b:MatMul { h, "w" } * x)
        return n, n
      end }
      return net:Add { last, net:Sum(rows, "summed", { axes = { 1 } }) }
    end,
    ["a Recurrent that repeats ops in its backward"] = function(net)
      return (net:Recurrent {
        seq = { "seq" },
        init = { "h0" },
        recompute = { "kept" },
        step = function(b, h, x)
          return b:Tanh(b:Sigmoid(b:MatMul { h, "w" } + x, "kept"))
        end,
      })
    end,
    ["a Recurrent with random numbers"] = function(net)
      return (net:Recurrent { seq = { "seq" }, init = { "h0" }, step = function(b, h, x)
        return b:Tanh(b:Dropout(b:MatMul { h, "w" } + x, nil, { rate = 0.4 }))
      end })
    end,
    ["a While with a maximum"] = function(net)
      local _, y = net:While {
        init = { net:const(0), "h0" }, max = 4, cond = function(b, i) return (three(b, i)) end,
        body = function(b, i, h) return i + 1, b:Tanh(b:MatMul { h, "w" }) end,
      }
      return y
    end,
    ["a While without one"] = function(net)
      local _, y = net:While {
        init = { net:const(0), "h0" }, cond = function(b, i) return (three(b, i)) end,
        body = function(b, i, h) return i + 1, b:Tanh(b:MatMul { h, "w" }) end,
      }
      return y
    end,
    ["an If in a While"] = function(net)
      local _, y = net:While {
        init = { net:const(0), "h0" },
        max = 4,
        cond = function(b, i) return (three(b, i)) end,
        body = function(b, i, h)
          return i + 1, (b:If("c", function(s) return s:Tanh(s:MatMul { h, "w" }) end,
            function(s) return s:Sigmoid(h) end))
        end,
      }
      return y
    end,
    ["a Recurrent in an If"] = function(net)
      local function step(s)
        return s:Recurrent {
          seq = { "seq" },
          init = { "h0" },
          step = function(b, h, x) return b:Tanh(b:MatMul { h, "w" } + x) end,
        }
      end
      return (net:If("c", step, no))
    end,
    ["a Recurrent in a Recurrent"] = function(net)
      return (net:Recurrent { seq = { "seq" }, init = { "h0" }, step = function(b, h)
        return b:Tanh((b:Recurrent {
          seq = { "seq" },
          init = { h },
          step = function(d, g, y) return d:Tanh(d:MatMul { g, "w" } + y) end,
        }))
      end })
    end,
    ["an If beside a Do"] = function(net)
      net:CreateScope({}, "s")
      net:Do {
        bindings = { p = "h0", q = "d" }, scope = "s", body = function(d) d:Tanh("p", "q") end,
      }
      return (net:If("c", function(s) return s:Tanh(s:MatMul { "d", "w" }) end, no))
    end,
  }
  for kind, middle in pairs(written_out) do
    it("are written out in the backward pass of " .. kind
      .. ": the same graph, the same bits, and names that are shared", function()
      local net = trained("written", middle)
      local e = net:expand {}
      -- But that a branch which hands on what it got is written out too, and what no branch of the
      -- backward reads is not taken.
      if not kind:find "resident" then
        assert.are.equal((net:_graph({}, "canonical"):gsub("else_net=none", "else_net=net")),
          e:_graph({}, "canonical"))
      end
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
            for _, name in ipairs {
              "loss", "w_grad", "h0_grad", "w", want.mean and "mean" or "w",
            } do
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
    If = function(net)
      return (net:If("c", function(s) return long(s, "h0") end,
        function(s) return long(s, s:MatMul { "h0", "w" }) end))
    end,
    AsyncIf = function(net)
      return (net:AsyncIf("c", function(s) return long(s, "h0") end,
        function(s) return s:Copy "h0" end))
    end,
    Recurrent = function(net)
      return (net:Recurrent {
        seq = { "seq" },
        init = { "h0" },
        step = function(b, h, x) return long(b, b:MatMul { h, "w" } + x) end,
      })
    end,
    While = function(net)
      local _, y = net:While {
        init = { net:const(0), "h0" },
        max = 4,
        cond = function(b, i) return (three(b, i)) end,
        body = function(b, i, h)
          local local_name = long(b, h)
          local inner = b:If("c", function(s) return long(s, s:MatMul { local_name, "w" }) end,
            function(s) return s:Tanh(local_name) end)
          return i + 1, (long(b, inner))
        end,
      }
      return y
    end,
  }
  for kind, middle in pairs(deep) do
    it("of " .. kind .. " recycle their own names too: fewer remain inside, and the planned net \z
        gives the same bits", function()
      local net = prelude("deep_" .. kind:lower())
      finish(net, middle(net))
      for _, executor in ipairs { "simple", "dag" } do
        local planned = M.optimize_net(net, { executor = executor })
        assert.is_true(n_inner(planned) <= n_inner(net) - 2, planned:text())
        assert.is_true(
          M.verify_graph_equality(net, planned) and M.verify_inplace_blobs(net, planned))
        assert_same_run(net, planned, { "out" }, executor)
        assert.are.equal(planned:text(), neap.net_from(planned:text()):text())
      end
      local once = M.optimize_net(net)
      local twice = M.optimize_net(once)
      -- A name that a subnet further in has too stays the first time, so nested subnets may find
      -- more to share when planned again.
      if kind == "While" then
        assert.is_true(n_inner(twice) <= n_inner(once))
      else
        assert.are.equal(once:text(), twice:text())
      end
      assert_same_run(net, twice, { "out" })
      -- Where names are listed, nobody else's are touched.
      assert.are.equal(n_inner(net),
        n_inner((M.compute_blob_recycling_for_dag(net, nil, nil, { "a", "d" }))))
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
    for _, name in ipairs { "p", "s" } do
      assert.is_truthy(planned:text():find("\n" .. name .. " = ", 1, true), name)
    end
    assert_same_run(net, planned, { "o" })
  end)

  it("inside a subnet last as long as its ops name them, be it a Do that does not \z
      read what it takes", function()
    local net = neap.net "f"
    net:input("c", { 1 })
    net:input("x", { 4, 8 })
    local y = net:If("c", function(t)
      t:CreateScope({}, "s")
      t:Relu(t:Exp(t:Tanh("x", "a"), "b"), "e")
      t:Do {
        bindings = { p = "e", q = "g", unread = "a" },
        scope = "s",
        copy = false,
        body = function(d) d:Tanh("p", "q") end,
      }
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

  it("of AsyncIf and Recurrent are renamed by their own functions, which say how \z
      operands are called now", function()
    for kind, apply in pairs {
      AsyncIf = M.apply_asyncif_blob_assignments, Recurrent = M.apply_recurrent_blob_assignments,
    } do
      local net = builders[kind]()
      local renamed, tables = apply(net, { w = "w_new", h0 = "h_new", e = "e_new" })
      local at, changed = next(tables)
      assert.are.same({ w = "w_new", h0 = "h_new" }, changed)
      assert.is_nil(next(tables, at))
      assert.is_true(
        has_name(renamed, "w_new") and has_name(renamed, "e_new") and not has_name(renamed, "h0"))
      assert.is_truthy(renamed:text():find "takes [^\n]*w_new")
      assert.is_truthy(renamed:text():find "MatMul%([%w_]+, w_new%)")
      for _, executor in ipairs { "simple", "dag" } do
        assert_same_run(net, renamed, { "out" }, executor)
      end
      -- Slots as planners give them do as well.
      local again = apply(net, { { { name = "w1" }, { name = "w" } } })
      assert.is_true(M.verify_graph_equality(net, again) and not has_name(again, "w1"))
    end
  end)

  it("of AsyncIf and Recurrent are missed where there are none", function()
    for kind, apply in pairs {
      AsyncIf = M.apply_asyncif_blob_assignments, Recurrent = M.apply_recurrent_blob_assignments,
    } do
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
