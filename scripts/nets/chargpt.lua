-- chargpt: gpt.lua at a size that learns on two cores while one watches: the net of `make demo`.
-- Its characters are 97: new line, the printable ones of ASCII, and one for any other byte.
local neap = require "neap"
local netfile = require "neap.net.file"

local sizes = { layers = 4, width = 128, heads = 4, length = 64, vocabulary = 97, batch = 32 }
local gpt = netfile.load("gpt", nil, sizes)

return {
  model = gpt.model, batch = sizes.batch, length = sizes.length, n_class = sizes.vocabulary,
  loss = neap.nn.CrossEntropyLoss(),
  optimizer = neap.optim.AdamW { lr = 3e-3, weight_decay = 0.1, beta2 = 0.99 },
}
