--- A mixture of experts: a gate chooses two of four for each row; a second loss keeps them busy.
--
--   build/neap run scripts/examples/moe.lua [--quick]
local neap = require "neap"
local nn, optim = neap.nn, neap.optim
local quick = arg and arg[1] == "--quick"
neap.seed(1)

local Moe = nn.module {
  "Moe",
  init = function(self, o)
    self.gate, self.experts = nn.Linear { 2, o.experts }, nn.ModuleList {}
    for _ = 1, o.experts do
      self.experts:append(nn.Sequential { nn.Linear { 2, 8 }, nn.Tanh(), nn.Linear { 8, 1 } })
    end
    self.n = o.experts
  end,
  forward = function(self, x)
    local share = self.gate(x):softmax()
    local best = share:top_k { k = 2 } -- those that are not among the two best count nothing
    local chosen = share:ge(best:narrow(2, 2, 1)):to "f32" * share
    chosen = chosen / chosen:sum { axes = { 2 }, keepdim = true }
    local y
    for i, expert in ipairs(self.experts) do
      local part = expert(x) * chosen:narrow(2, i, 1)
      y = y and y + part or part
    end
    return y, share
  end,
}

-- Each quarter of the plane has a function of its own.
local x = neap.rand(512, 2) * 2 - 1
local a, b = x:narrow(2, 1, 1), x:narrow(2, 2, 1)
local function sign(v) return v:gt(0):to "f32" * 2 - 1 end
local y = sign(a) * b * 2 + sign(b) * a * a

local t <close> = neap.trainer {
  model = Moe { experts = 4 },
  losses = {
    { nn.MseLoss(), output = 1, name = "error" },
    { function(_, share) return share:mean({ axes = { 1 } }):square():sum() end, weight = 0.02,
      name = "balance" },
  },
  reduces = "mean", optimizer = optim.Adam { lr = 0.02 }, seed = 4,
}
local set = neap.data.tensors { x = x, y = y, batch = 64, shuffle = true }
local first = t:evaluate(set).error
t:fit(set, { epochs = quick and 60 or 300, verbose = 0 })
local _, share = t:predict(x)
print(("error %.3f at first, %.3f at last"):format(first, t:evaluate(set).error))
print("share of each expert: " .. tostring(share:mean { axes = { 1 } }))
