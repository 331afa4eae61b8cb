--- A mixture of experts with routing: a gate sends each row to two of eight experts, and an expert
-- computes what is sent to it and no more: the batch's rows are gathered, and its answers are added
-- where they belong. Each has room for one and a half times its even share; a second loss keeps all
-- of them busy, so that hardly a row finds no room.
--
--   build/neap run scripts/examples/moe.lua [--quick]
local neap = require "neap"
local nn, optim = neap.nn, neap.optim
local quick = arg and arg[1] == "--quick"
neap.seed(1)

local Moe = nn.module { "Moe",
  init = function(self, o)
    self.gate, self.experts = nn.Linear { 2, o.experts }, nn.ModuleList {}
    for _ = 1, o.experts do
      self.experts:append(nn.Sequential { nn.Linear { 2, 8 }, nn.Tanh(), nn.Linear { 8, 1 } })
    end
    self.n = o.experts
  end,
  --- Rows of a batch of n that an expert computes.
  room = function(self, n) return math.ceil(1.5 * 2 * n / self.n) end,
  forward = function(self, x)
    local share, room = self.gate(x):softmax(), self:room(x.shape[1])
    local best = share:top_k { k = 2 } -- those that are not among the two best count nothing
    local chosen = share:ge(best:narrow(2, 2, 1)):to "f32" * share
    chosen = chosen / chosen:sum { axes = { 2 }, keepdim = true }
    local y, seated = x:narrow(2, 1, 1) * 0, x:sum() * 0
    for i, expert in ipairs(self.experts) do
      -- The rows that weigh most here: those sent to it, then, where there is room left, some that
      -- weigh nothing.
      local weight, rows = chosen:select(2, i):top_k { k = room }
      y = y:index_add(rows, expert(x:gather(rows)) * weight:reshape(room, 1))
      seated = seated + weight:sum()
    end
    return y, share, seated
  end,
}

-- Each quarter of the plane has a function of its own.
local x = neap.rand(512, 2) * 2 - 1
local a, b = x:narrow(2, 1, 1), x:narrow(2, 2, 1)
local function sign(v) return v:gt(0):to "f32" * 2 - 1 end
local y = sign(a) * b * 2 + sign(b) * a * a

local model = Moe { experts = 8 }
local t <close> = neap.trainer { model = model, losses = {
    { nn.MseLoss(), output = 1, name = "error" },
    { function(_, share) return share:mean({ axes = { 1 } }):square():sum() end, weight = 0.05,
      name = "balance" } },
  reduces = "mean", optimizer = optim.Adam { lr = 0.02 }, seed = 4 }
local set = neap.data.tensors { x = x, y = y, batch = 64, shuffle = true }
local first = t:evaluate(set).error
t:fit(set, { epochs = quick and 60 or 300, verbose = 0 })
local _, share, seated = t:predict(x)
print(("error %.3f at first, %.3f at last"):format(first, t:evaluate(set).error))
print("share of each expert: " .. tostring(share:mean { axes = { 1 } }))
print(("each computes %d of 64 rows; of what rows weigh, %.1f %% finds room"):format(
  model:room(64), 100 * seated:item() / 512))
