-- gpt: a character GPT: pre-norm transformer blocks (Radford et al., 2019), learned positions,
-- GELU. Called with a table of sizes it returns another one: loadfile(...)(nil, { layers = 4, width
-- = 128 }).
local neap = require "neap"
local nn, init = neap.nn, neap.init

local o = { layers = 6, width = 384, heads = 6, length = 256, vocabulary = 65, batch = 8 }
local given = select(2, ...) or {}
for key, default in pairs(o) do o[key] = given[key] or default end

local small = init.normal { 0, 0.02 }
-- The two projections into the residual stream start smaller, by the square root of their number.
local into_stream = init.normal { 0, 0.02 / math.sqrt(2 * o.layers) }

local Positions = nn.module { "Positions",
  init = function(self) self:param("weight", { o.length, o.width }, small) end,
  forward = function(self, x) return x + self.weight end }

local function block()
  local attention = nn.SelfAttention { o.width, heads = o.heads, causal = true, init = small }
  return nn.Sequential {
    nn.Residual { nn.LayerNorm { o.width }, attention },
    nn.Residual {
      nn.LayerNorm { o.width }, nn.Linear { o.width, 4 * o.width, init = small }, nn.GELU(),
      nn.Linear { 4 * o.width, o.width, init = into_stream },
    },
  }
end

local layers = {
  input = { o.length }, dtype = "i64",
  nn.Embedding { o.vocabulary, o.width, init = small }, Positions {},
}
for _ = 1, o.layers do layers[#layers + 1] = block() end
layers[#layers + 1] = nn.LayerNorm { o.width }
layers[#layers + 1] = nn.Linear { o.width, o.vocabulary, init = small }

return { model = nn.Sequential(layers), batch = o.batch, n_class = o.vocabulary }
