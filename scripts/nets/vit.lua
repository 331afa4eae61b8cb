-- Nets of patches of images. ViT: Dosovitskiy et al., ICLR 2021, table 1; parameters are those of
-- torchvision's models of the same names. MLP-Mixer: Tolstikhin et al., NeurIPS 2021, table 1: 18
-- million (S/16) and 59 million (B/16).
local neap = require "neap"
local parts = require "neap.zoo.parts"
local nn, init, add = neap.nn, neap.init, parts.add

-- Images to rows of patches: (N,3,H,W) to (N,T,width).
local Patches = nn.module { "Patches",
  options = {
    { "width", "integer", required = true, doc = "numbers that stand for a patch" },
    { "patch", "integer", required = true, doc = "height and width of a patch" },
  },
  init = function(self, o)
    self.conv = nn.Conv2d { 3, o.width, kernel = o.patch, stride = o.patch }
  end,
  forward = function(self, x)
    local y = self.conv(x)
    return y:reshape(y.shape[1], y.shape[2], y.shape[3] * y.shape[4]):transpose(2, 3)
  end }

-- A learned row for the class before the patches, and learned positions.
local Positions = nn.module { "Positions",
  options = {
    { "width", "integer", required = true, doc = "length of a row" },
    { "rows", "integer", required = true, doc = "patches of an image" },
  },
  init = function(self, o)
    self:param("class", { 1, 1, o.width })
    self:param("weight", { o.rows + 1, o.width }, init.normal { 0, 0.02 })
  end,
  forward = function(self, x)
    local class = self.class:expand { x.shape[1], 1, x.shape[3] }
    return class:concat(x, { axis = 2 }) + self.weight
  end }

local function two_linears(width, hidden)
  return nn.Linear { width, hidden }, nn.GELU(), nn.Linear { hidden, width }
end

local function transposed() return nn.Lambda(function(x) return x:transpose(2, 3) end) end

local blocks = {}

function blocks.attention(o)
  return nn.Sequential {
    nn.Residual { nn.LayerNorm { o.width, eps = 1e-6 },
      nn.MultiheadAttention { o.width, o.heads } },
    nn.Residual { nn.LayerNorm { o.width, eps = 1e-6 }, two_linears(o.width, 4 * o.width) },
  }
end

-- Linears over the patches of each channel, then over the channels of each patch.
function blocks.mixer(o, n_row)
  local across = add({ nn.LayerNorm { o.width, eps = 1e-6 }, transposed() },
    two_linears(n_row, o.width // 2))
  return nn.Sequential {
    nn.Residual(add(across, transposed())),
    nn.Residual { nn.LayerNorm { o.width, eps = 1e-6 }, two_linears(o.width, 4 * o.width) },
  }
end

local function build(o)
  local n_row = (o.image // o.patch) * (o.image // o.patch)
  local layers = { input = { 3, o.image, o.image }, Patches { width = o.width, patch = o.patch } }
  if o.mix == "attention" then add(layers, Positions { width = o.width, rows = n_row }) end
  for _ = 1, o.layers do add(layers, blocks[o.mix](o, n_row)) end
  add(layers, nn.LayerNorm { o.width, eps = 1e-6 }, nn.Lambda(function(x)
    if o.mix == "mixer" then return x:mean { axes = { 2 } } end
    return x:select(2, 1) -- the row of the class
  end), nn.Linear { o.width, o.classes })
  return { model = nn.Sequential(layers), batch = o.batch, n_class = o.classes }
end

-- Names in torchvision's files.
local function weights()
  local function of(ours, theirs)
    return { "^block(%d+)%." .. ours .. "$", function(i, what)
      return ("encoder.layers.encoder_layer_%d.%s"):format(i - 1, theirs:format(what))
    end }
  end
  return {
    -- older files say linear_1 and linear_2
    theirs = { { "%.mlp%.linear_1%.", ".mlp.0." }, { "%.mlp%.linear_2%.", ".mlp.3." } },
    { "^patches1%.conv%.(%a+)$", "conv_proj.%1" }, { "^positions1%.class$", "class_token" },
    { "^positions1%.weight$", "encoder.pos_embedding" },
    of("residual1%.norm1%.(%a+)", "ln_1.%s"), of("residual2%.norm1%.(%a+)", "ln_2.%s"),
    of("residual1%.attn1%.(in_proj_%a+)", "self_attention.%s"),
    of("residual1%.attn1%.out_proj%.(%a+)", "self_attention.out_proj.%s"),
    of("residual2%.linear1%.(%a+)", "mlp.0.%s"), of("residual2%.linear2%.(%a+)", "mlp.3.%s"),
    { "^norm1%.(%a+)$", "encoder.ln.%1" }, { "^linear1%.(%a+)$", "heads.head.%1" },
  }
end

return {
  options = {
    doc = "A net of patches of images, mixed by attention (ViT) or by linear layers (Mixer).",
    { "mix", "choice", "attention", choices = { "attention", "mixer" },
      doc = "what mixes patches" },
    { "width", "integer", 768, min = 2, doc = "channels of a patch" },
    { "layers", "integer", 12, min = 1, doc = "blocks" },
    { "heads", "integer", 12, min = 1, doc = "heads of attention, which divide width" },
    { "patch", "integer", 16, min = 1, doc = "height and width of a patch" },
    parts.classes(), parts.image(224, 1), parts.batch(8),
  },
  nets = {
    vit_b_16 = {}, vit_b_32 = { patch = 32 },
    vit_l_16 = { width = 1024, layers = 24, heads = 16 },
    mixer_s16 = { mix = "mixer", width = 512, layers = 8 }, mixer_b16 = { mix = "mixer" },
  },
  published = {
    vit_b_16 = 86567656, vit_b_32 = 88224232, vit_l_16 = 304326632, mixer_s16 = 18528264,
    mixer_b16 = 59880472,
  },
  build = build, weights = weights, weights_of = "torchvision",
}
