--- A loop keeps in its frames what a gradient that somebody reads needs, and nothing else: a
-- state's gradient is passed from iteration to iteration only where it is asked for or leads to one
-- that is, and a loop whose backward nobody needs keeps nothing.
local neap = require "neap"

local T, C = 5, 16
local head, row = 64, 64 -- bytes of the frames' head, and of C floats

--- Bytes of all frames in the net's plan, and whether a backward loop is in it.
local function frames(net)
  local plan, bytes, backward = net:plan { store = false }, 0, false
  for _, value in ipairs(plan:values()) do
    if value.blob:match "frames$" then bytes = bytes + value.bytes end
  end
  for _, op in ipairs(plan:ops()) do backward = backward or op.type == "LoopGradient" end
  return bytes, backward
end

--- A workspace in which the net has run, for inputs that are the same in each call.
local function run(net, policy)
  neap.seed(7)
  local ws = neap.workspace { policy = policy }
  ws:feed("x", neap.randn(T, C))
  ws:feed("a0", neap.randn(C))
  ws:feed("b0", neap.randn(C))
  ws:run(net)
  return ws
end

--- The loss of y, the last thing that `step(b, state.., x)` gives, over all rows of x: by a
-- Recurrent whose states begin as `init`, or written out.
local function steps(looped, init, step)
  local net = neap.net(looped and "looped" or "written")
  net:input("x", { T, C })
  net:input("a0", { C })
  net:input("b0", { C })
  net:param("w", { C }, 0.5)
  net:param("v", { C }, -0.75)
  local n, y = #init, nil
  if looped then
    y = select(n + 1, net:Recurrent { seq = { "x" }, init = init, step = step })
  else
    local state = {}
    for i, name in ipairs(init) do state[i] = net:blob(name) end
    for t = 1, T do
      state[n + 1] = net:blob("x"):narrow(1, t, 1):reshape { C }
      local made = { step(net, table.unpack(state, 1, n + 1)) }
      for i = 1, n do state[i] = made[i] end
      y = y and y + made[n + 1] or made[n + 1]
    end
  end
  return net, net:Sum(y, "loss")
end

--- Looped and written out, the net has these gradients alike.
local function check(init, step, wrt)
  local results = {}
  for i = 1, 2 do
    local net, loss = steps(i == 1, init, step)
    local grads, outputs = net:gradient(loss, { wrt = wrt }), { loss }
    for _, gradient in pairs(grads) do outputs[#outputs + 1] = gradient end
    net:outputs(outputs)
    for _, policy in ipairs { "offset", "pool", "none" } do
      local ws = run(net, policy)
      results[#results + 1] = { loss = ws:fetch(loss) }
      for x, gradient in pairs(grads) do results[#results][x.name] = ws:fetch(gradient) end
    end
  end
  for _, r in ipairs(results) do
    for name, t in pairs(results[1]) do
      assert.is_true(r[name]:close(t, { rtol = 1e-5, atol = 1e-6 }), name)
    end
  end
  local net, loss = steps(true, init, step)
  net:gradient(loss, { wrt = wrt })
  net:outputs { loss }
  return frames(net)
end

describe("frames of a loop", function()
  it("hold of a state that no wanted input reaches its values, and nothing of how they were \z
      made", function()
    -- The gradient of w reads the state; that of the state nobody asks for.
    local bytes = check({ "a0" }, function(b, a, x)
      local made = b:Tanh(b:Sigmoid(b:Tanh(a + x)))
      return made, b:Mul { made, "w" }
    end, { "w" })
    assert.are.equal(head + (T + 1) * row, bytes)
  end)

  it("hold nothing of a state that the loss does not read", function()
    local bytes = check({ "a0", "b0" }, function(b, a, c, x)
      return b:Tanh(a * x), c * 0.5, b:Mul { b:Tanh(c), "w" }
    end, { "w" })
    assert.are.equal(head + T * row, bytes) -- tanh(c), of each iteration
  end)

  it("hold what a gradient takes that reaches the wanted one by way of other states", function()
    -- w is read where a is made; the loss reads what b has taken from a two iterations later.
    check({ "a0", "b0" }, function(b, a, c, x)
      return b:Tanh(b:Mul { x, "w" }), b:Sigmoid(c * a), b:Mul { c, "v" }
    end, { "w" })
    check({ "a0", "b0" }, function(b, a, c, x)
      return b:Tanh(b:Mul { x, "w" }), b:Sigmoid(c * a), b:Mul { c, "v" }
    end, { "v" })
    check({ "a0", "b0" }, function(b, a, c, x)
      return b:Tanh(c * x), b:Sigmoid(c + a), b:Tanh(b:Mul { a, "v" })
    end, { "a0" })
    check({ "a0", "b0" }, function(b, a, c, x)
      return b:Tanh(c * x), b:Sigmoid(c + a), b:Tanh(b:Mul { a, "v" })
    end, { "b0", "v" })
  end)

  it("hold nothing of a While's state that no wanted input reaches", function()
    local net = neap.net "while"
    net:input("x", { T, C })
    net:input("a0", { C })
    net:input("b0", { C })
    net:param("w", { C }, 0.5)
    local _, _, y = net:While { init = { net:const(0), "a0", "w" }, max = 20,
      cond = function(_, i) return i:lt(7) end,
      body = function(b, i, z, y) return i + 1, b:Tanh(b:Sigmoid(z)), y * 0.5 end }
    local grad = net:gradient(net:Sum(y, "loss"), { wrt = { "w" } }).w
    net:outputs { "loss" }
    assert.are.equal(head, (frames(net)))
    assert.is_true(run(net):fetch(grad):equal(neap.full { C, value = 0.5 ^ 7 }))
  end)

  it("are none where nobody reads the gradients, and none are taken", function()
    --- `wanted`: what the loss is differentiated by: nothing, or rows that are only computed.
    local function net_of(wanted, max)
      local net = neap.net "dead"
      net:input("x", { T, C })
      net:input("a0", { C })
      net:input("b0", { C })
      net:param("w", { C }, 0.5)
      local x = net:Tanh "x"
      local y
      if max == nil then
        local _, rows = net:Recurrent { seq = { x }, init = { "a0" }, step = function(b, a, row)
          local made = b:Tanh(b:Mul { a + row, "w" })
          return made, b:Sigmoid(made)
        end }
        y = rows
      else
        local _, last = net:While { init = { net:const(0), x }, max = max > 0 and max or nil,
          cond = function(_, i) return i:lt(3) end,
          body = function(b, i, z) return i + 1, b:Tanh(b:Sigmoid(b:Mul { z, "w" })) end }
        y = last
      end
      net:Sum(y, "loss")
      if wanted then net:gradient("loss", { wrt = { x } }) end
      return net:outputs { "loss" }
    end
    for _, max in ipairs { false, 7, 0 } do
      max = max or nil
      local bytes, backward = frames(net_of(true, max))
      assert.are.equal(0, bytes)
      assert.is_false(backward)
      assert.are.equal(0, net_of(true, max):plan({ store = false }).regions.frames or 0)
      assert.is_true(
        run(net_of(true, max)):fetch("loss"):equal(run(net_of(false, max)):fetch "loss"))
      local r = neap.check.plan(net_of(true, max), { poison = true, steps = 2 })
      assert.is_true(r.same, r.different)
      assert.are.equal(r.forecast_bytes, r.held_bytes)
    end
  end)
end)
