-- chargpt: gpt.lua at a size that learns on two cores while one watches: the net of `make demo`.
-- Its characters are 97: new line, the printable ones of ASCII, and one for any other byte.
local neap = require "neap"
local folder = debug.getinfo(1, "S").source:match "^@(.*/)" or "./"

local sizes = { layers = 4, width = 128, heads = 4, length = 64, vocabulary = 97, batch = 32 }
local net = assert(loadfile(folder .. "gpt.lua"))(nil, sizes)

net.length = sizes.length
net.loss = neap.nn.CrossEntropyLoss()
net.optimizer = neap.optim.AdamW { lr = 3e-3, weight_decay = 0.1, beta2 = 0.99 }
return net
