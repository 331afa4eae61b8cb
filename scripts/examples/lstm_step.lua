-- lstm_step: an LSTM written as a step net, beside the LSTM op: the same numbers, and what each
-- keeps for the gradient. neap run scripts/examples/lstm_step.lua [--quick]
local neap = require "neap"

local quick = ... == "--quick"
local T, N, D, H = quick and 8 or 64, 4, 16, 32

--- kind: "op", "step" or "recompute"; the gates' order is that of the op: input, forget, cell,
-- output.
local function build(kind, steps)
  local net = neap.net(kind)
  net:input("x", { steps, N, D })
  net:param("w", { 4 * H, D }, neap.init.normal { std = 0.2 })
  net:param("r", { 4 * H, H }, neap.init.normal { std = 0.2 })
  net:param("b", { 4 * H }, 0)
  net:input("h0", { N, H })
  net:input("c0", { N, H })
  local y
  if kind == "op" then
    y = net:LSTM({ "x", "w", "r", "b", "h0", "c0" }, 3)
  else
    local _
    _, _, y = net:Recurrent {
      seq = { "x" }, init = { "h0", "c0" },
      -- What is recomputed starts from what is kept: the inputs of every listed op are kept or
      -- listed.
      recompute = kind == "recompute"
        and { "from_x", "from_h", "pre", "pre_i", "pre_f", "pre_g", "pre_o", "i", "f", "g", "o" }
        or nil,
      step = function(s, h, c, x)
        s:Add({ s:FC({ x, "w", "b" }, "from_x"), s:FC({ h, "r" }, "from_h") }, "pre")
        s:Split("pre", { "pre_i", "pre_f", "pre_g", "pre_o" }, { axis = 2 })
        local i, f = s:Sigmoid("pre_i", "i"), s:Sigmoid("pre_f", "f")
        local g, o = s:Tanh("pre_g", "g"), s:Sigmoid("pre_o", "o")
        local c1 = f * c + i * g
        local h1 = o * c1:tanh()
        return h1, c1, h1
      end,
    }
  end
  net:Mean(y * y, "loss")
  net:gradient "loss"
  net:outputs { "loss", "w_grad", "r_grad" }
  return net
end

local feeds = { x = neap.randn { T, N, D }, h0 = neap.zeros { N, H }, c0 = neap.zeros { N, H } }
local reference
for _, kind in ipairs { "op", "step", "recompute" } do
  local net = build(kind, T)
  local ws <close> = neap.workspace { seed = 1, store = false }
  local r = ws:run(net, feeds)
  reference = reference or r
  print(("%-10s loss %.7f, gradients equal: %s; arena %s for %d steps"):format(kind, r.loss:item(),
    tostring(r.w_grad:close(reference.w_grad, { rtol = 1e-3, atol = 1e-6 })
      and r.r_grad:close(reference.r_grad, { rtol = 1e-3, atol = 1e-6 })),
    neap.bytes(net:plan({}).arena_bytes), T))
end

-- Forward only, two buffers of each state serve any number of steps.
local function forward(steps)
  local net = neap.net "forward"
  net:input("x", { steps, N, H })
  net:input("h0", { N, H })
  net:outputs {
    (net:Recurrent {
      seq = { "x" }, init = { "h0" }, step = function(b, h, x) return b:Tanh(h + x) end,
    }),
  }
  return net:plan({}).arena_bytes
end
print(("forward only: arena %s for 10 steps, %s for 1000"):format(neap.bytes(forward(10)),
  neap.bytes(forward(1000))))
