-- Autoencoders of digits, 784 numbers. autoencoder: Hinton and Salakhutdinov, Science 2006:
-- 784-1000-500-250-30 and back, 2,837,314 parameters. vae: Kingma and Welling, ICLR 2014, in the
-- sizes of PyTorch's example, 784-400-20-400-784, 652,824 parameters; its loss is the bound on the
-- likelihood. Both are trained to give what they are given, by pixels from 0 to 1.
local neap = require "neap"
local parts = require "neap.zoo.parts"
local nn, add = neap.nn, parts.add

local function autoencoder(o)
  local widths, layers = { 784, table.unpack(o.widths) }, { input = { 784 } }
  for i = 2, #widths do
    add(layers, nn.Linear { widths[i - 1], widths[i] })
    if i < #widths then add(layers, nn.Sigmoid()) end
  end
  for i = #widths, 2, -1 do add(layers, nn.Linear { widths[i], widths[i - 1] }, nn.Sigmoid()) end
  return nn.Sequential(layers), function(y, x) return (y:bce_loss(x)) end
end

local Vae = nn.module { "VAE",
  options = {
    { "hidden", "integer", required = true, doc = "width of the layers between" },
    { "latent", "integer", required = true, doc = "numbers of the code" },
  },
  init = function(self, o)
    self.up, self.mean = nn.Linear { 784, o.hidden }, nn.Linear { o.hidden, o.latent }
    self.log_var = nn.Linear { o.hidden, o.latent }
    self.down, self.out = nn.Linear { o.latent, o.hidden }, nn.Linear { o.hidden, 784 }
  end,
  forward = function(self, x)
    local h = self.up(x):relu()
    local mean, log_var = self.mean(h), self.log_var(h)
    local z = mean
    if self.training then
      local noise = x.net:op("Gaussian", {}, { x.net:fresh_name "noise" }, { shape = mean.shape })
      z = mean + (log_var * 0.5):exp() * noise
    end
    return self.out(self.down(z):relu()), mean, log_var
  end }

local function vae(o)
  local model = Vae { hidden = o.widths[1], latent = o.widths[2], input = { 784 } }
  return model, function(y, mean, log_var, x)
    local far = (mean * mean + log_var:exp() - log_var - 1) * 0.5
    return y:bce_with_logits_loss(x) + far:sum { axes = { 2 } }:mean() * (1 / 784)
  end
end

local function build(o)
  local model, loss = (o.form == "vae" and vae or autoencoder)(o)
  return { model = model, loss = loss, batch = o.batch }
end

return {
  options = {
    doc = "An autoencoder of digits.",
    { "form", "choice", "plain", choices = { "plain", "vae" }, doc = "whether the code is drawn" },
    { "widths", "shape", { 1000, 500, 250, 30 },
      doc = "widths of the layers down to the code; two of a vae" },
    parts.batch(128),
  },
  nets = { autoencoder = {}, vae = { form = "vae", widths = { 400, 20 } } },
  published = { autoencoder = 2837314, vae = 652824 },
  build = build,
}
