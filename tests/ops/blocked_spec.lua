-- Ops that take the blocked layout of convolutions as it is, against the plain layout of `ref`:
-- nets between two convolutions, with channels that fill their blocks and channels that do not.
local neap = require "neap"
local nn = neap.nn

--- Output and gradients of a training step by one engine; whether a layout of channel blocks
-- reached an op of `type`.
local function step(model, engine, type)
  local net = model:net {
    batch = 2, train = true, loss = nn.MseLoss(), target = { shape = { 8, 9, 9 }, dtype = "f32" },
  }
  local ws <close> = neap.workspace { seed = 4, store = false }
  ws:init(net)
  neap.seed(6)
  ws:feed("x", neap.randn { 2, 3, 9, 9 })
  ws:feed("y", neap.randn { 2, 8, 9, 9 })
  local program <close> = ws:compile(net, { engine = engine })
  program:run()
  local results, blocked = {}, false
  for _, blob in ipairs(ws:_blobs()) do
    if blob.name:match "grad$" or blob.name == "loss" then
      results[blob.name] = ws:fetch(blob.name)
    end
  end
  local made = {}
  for _, op in ipairs(program.plan:_ops()) do
    if op.type == type then made[op.outputs[1]] = true end
  end
  for _, v in ipairs(program.plan:_values()) do
    blocked = blocked or made[v.blob] and v.layout ~= "plain"
  end
  return results, blocked
end

local function conv(n_in, n_out) return nn.Conv2d { n_in, n_out, kernel = 3, pad = 1 } end

describe("between blocked convolutions", function()
  local cases = {
    { "LRN of 32 channels", "LRN", function() return nn.LRN { 5, alpha = 0.5 } end, 32, 32 },
    {
      "LRN of 20 channels", "LRN", function() return nn.LRN { 3, alpha = 0.5, beta = 0.6 } end, 20,
      20,
    },
    { "Tanh of 32 channels, elementwise,", "Tanh", function() return nn.Tanh() end, 32, 32 },
    {
      "Concat of 32 and 16 channels", "Concat",
      function() return nn.Concat { conv(32, 32), conv(32, 16) } end, 32, 48,
    },
    {
      "Concat of 32 and 10 channels", nil,
      function() return nn.Concat { conv(32, 32), conv(32, 10) } end, 32, 42,
    },
  }
  for _, case in ipairs(cases) do
    it(case[1] .. " gives what ref gives, backward too", function()
      local function model()
        return nn.Sequential { input = { 3, 9, 9 }, conv(3, case[4]), case[3](), conv(case[5], 8) }
      end
      local want = step(model(), "ref", case[2])
      local got, blocked = step(model(), nil, case[2])
      local n = 0
      for name, t in pairs(want) do
        n = n + 1
        assert.is_true(t:close(got[name], { rtol = 1e-4, atol = 1e-5 }), name)
      end
      assert.is_true(n > 4)
      if case[2] and tostring(neap.config()):find "dnnl %d" then
        assert.is_true(blocked, "no blocked layout reached it")
      end
    end)
  end
end)
