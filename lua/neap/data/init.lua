--- Data sets: rows of tensors as batches {x =, y =}, shuffled per epoch from a seed, read ahead by
-- a thread in C.
--
-- Transforms (neap.data.flip, ..) change rows while they are read.
--
-- A data set is a table with `epoch(k)`, an iterator over batches; the buffers are reused by the
-- next batch, so clone what you keep. Files are looked for in $NEAP_DATA, ./data and
-- ../shared/data/datasets.
-- @module neap.data
local missing = require "neap.inner.missing"
local set = require "neap.data.set"
require "neap.data.parts"
local data = { find = set.find, folders = set.folders }

for name, make in pairs(require("neap.data.transforms").make) do data[name] = make end
for _, part in ipairs { "images", "text", "csv", "rows", "sequences", "json" } do
  for name, source in pairs(require("neap.data." .. part)) do data[name] = source end
end

local guarded = require("neap.inner.guard").functions(data, "neap.data.")
return setmetatable(guarded, { __index = function(_, key)
  missing.fail("neap.data", key, missing.names(data))
end })
