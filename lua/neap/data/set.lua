--- A data set: rows of tensors as batches, shuffled per epoch from a seed; and where its files lie.
--
-- The sources beside this file make sets: images, text, csv, rows. A batch is read ahead by a
-- thread in C (core.batch_reader), into buffers that the next one overwrites.
-- @module neap.data.set
local core = require "neap.core"
local options = require "neap.inner.options"
local record = require "neap.inner.record"
local fail = core.fail
local set = {}

local Data = {}
Data.__index = Data

-- ---- looking for files --------------------------------------------------------------------------

local function exists(path)
  local file = io.open(path, "rb")
  if file then file:close() end
  return file ~= nil
end

--- neap.data.folders() -> the folders that are searched for files, in order.
function set.folders()
  local list = {}
  local asked = os.getenv "NEAP_DATA"
  if asked and asked ~= "" then list[1] = asked end
  list[#list + 1] = "data"
  list[#list + 1] = "../shared/data/datasets"
  return list
end

--- neap.data.find(name, ..) -> the path of the first of these files that exists, or nil and the
-- list of places looked at.
function set.find(...)
  local looked = {}
  for _, folder in ipairs(set.folders()) do
    for i, name in ipairs { ... } do
      if type(name) ~= "string" then
        fail(("neap.data.find expects names of files, got a %s at position %d"):format(
          type(name), i))
      end
      local path = folder .. "/" .. name
      if exists(path) then return path end
      looked[#looked + 1] = path
    end
  end
  return nil, looked
end

--- The path of one of the files; raises, with where they can be had, when there is none.
function set.must_find(what, source, ...)
  local path, looked = set.find(...)
  if path then return path end
  error(core.error {
    code = "data",
    message = ("%s is missing; looked for %s"):format(what, table.concat(looked, ", ")),
    hint = ("get it from %s and set NEAP_DATA to the folder that holds it"):format(source),
  })
end

--- A value, or the error that a file gave.
function set.must(value, message, code)
  if value == nil then error(core.error { code = code or "data", message = message }) end
  return value
end

-- ---- the data set -------------------------------------------------------------------------------

--- One number in [0, 2^32) from a seed and a counter: a 64-bit mix (Steele et al., SplitMix, OOPSLA
-- 2014).
local function mix(seed, i)
  local z = seed + i * 0x9E3779B97F4A7C15
  z = (z ~ (z >> 30)) * 0xBF58476D1CE4E5B9
  z = (z ~ (z >> 27)) * 0x94D049BB133111EB
  return (z ~ (z >> 31)) >> 32
end

--- The first of ascending sums that is above a share, in [0, 1), of the last.
local function drawn_place(sums, share)
  local at, low, high = share * sums[#sums], 1, #sums
  while low < high do
    local middle = (low + high) // 2
    if sums[middle] > at then high = middle else low = middle + 1 end
  end
  return low
end

--- Number i in [0, 1) of epoch k.
local function share_drawn(self, k, i) return mix(mix(self.seed, k) << 16, i) / 2.0 ^ 32 end

--- The rows that epoch k draws by weights, again and again from the same ones.
local function drawn(self, k)
  local list = {}
  for i = 1, self.n_drawn do
    list[i] = self.rows[drawn_place(self.sums, share_drawn(self, k, i))]
  end
  return list
end

--- The order of epoch k: row numbers from 0. Fisher and Yates, from the data set's seed and the
-- epoch.
local function order(self, k)
  if self.sums then return drawn(self, k) end
  local list = table.move(self.rows, 1, #self.rows, 1, {})
  if self.shuffle then
    local seed = mix(self.seed, k) << 16
    for i = #list, 2, -1 do
      local j = mix(seed, i) % i + 1
      list[i], list[j] = list[j], list[i]
    end
  end
  return list
end

-- What every source takes besides its own options.
local common = {
  { "batch", "integer", 1, min = 1, doc = "rows a batch" },
  { "shuffle", "boolean", unset = 'true where split is "train"',
    doc = "whether each epoch has an order of its own" },
  { "seed", "integer", 1, doc = "what orders, and the rows of a split, are drawn from" },
  { "last", "choice", "run", choices = { "run", "drop" },
    doc = "what is done with a last batch that is smaller" },
  { "map", "function", doc = "f(batch): changes each batch, or gives another in its place" } }

--- The record of a source: its own options, and those that all take.
-- @param name string "mnist"
-- @param spec table as of record.declare
function set.declare(name, spec)
  for _, field in ipairs(common) do spec[#spec + 1] = field end
  return record.declare("neap.data." .. name, spec)
end

--- The option `split` of a source.
function set.split(default, choices)
  return { "split", "choice", default, choices = choices, doc = "which part of the rows" }
end

-- The option of sources that divide the rows themselves.
set.holdout = { "holdout", "number", 0.1, min = 0, max = 1,
  doc = 'share of the rows that split = "valid" has' }
set.limit = { "limit", "integer", min = 0, unset = "all", doc = "rows that are taken at most" }

--- Whether options name what a set is made of, its batches or its rows, and no field of a batch.
function set.is_common(name)
  for _, field in ipairs(common) do
    if field[1] == name then return true end
  end
  return false
end

--- fields: {name = {source = tensor, dtype =, scale =, shift =, window =, offset =}}; rows: row
-- numbers from 0.
function set.new(o, fields, rows, extra)
  local self = extra or {}
  self.fields, self.names, self.rows = fields, {}, rows
  for name in pairs(fields) do self.names[#self.names + 1] = name end
  table.sort(self.names)
  self.batch, self.seed, self.last, self.map = o.batch, o.seed, o.last, o.map
  if o.shuffle == nil then self.shuffle = o.split == "train" else self.shuffle = o.shuffle end
  return record.note(setmetatable(self, Data), o)
end

--- Batches of one epoch.
function Data:__len()
  local own = rawget(self, "n_batch") -- where batches are not cut from one list
  if own then return own end
  local n = self.n_drawn or #self.rows
  return self.last == "drop" and n // self.batch or (n + self.batch - 1) // self.batch
end

Data.__name = "neap.data"
Data.__tostring = function(self)
  local spec, parts = self:spec(), {}
  for _, name in ipairs(self.names) do
    parts[#parts + 1] = ("%s %s (%s)"):format(
      name, spec[name].dtype, table.concat(spec[name].shape, ","))
  end
  return ("data: %d rows in %d batches, %s%s"):format(
    spec.n, #self, table.concat(parts, ", "), self.shuffle and ", shuffled" or "")
end

--- What a batch looks like: {x = {shape =, dtype =}, y = ..., n = rows, batch = rows a batch}.
function Data:spec()
  local spec = { n = self.n_drawn or #self.rows, batch = self.batch }
  for name, f in pairs(self.fields) do
    local shape = f.window and { self.batch, f.window }
      or { self.batch, table.unpack(f.source.shape, 2) }
    spec[name] = { shape = shape, dtype = f.dtype }
  end
  return spec
end

local function mapped(self, batch)
  if not self.map then return batch end
  local out = self.map(batch)
  if out == nil then out = batch end
  if type(out) ~= "table" then
    fail(("neap.data: map expects to give a batch, a table such as { x =, y = }, or nothing where \z
      it changed the one that it got; it gave %s"):format(options.shown(out)))
  end
  out.n = out.n or batch.n
  return out
end

--- The number of an epoch and of its first batch, both from 1 on and 1 where they are not given.
local function epoch_arguments(k, first)
  k, first = k == nil and 1 or k, first == nil and 1 or first
  if math.type(k) ~= "integer" or k < 1 then
    fail(("data:epoch expects the epoch's number, from 1, got %s"):format(tostring(k)))
  end
  if math.type(first) ~= "integer" or first < 1 then
    fail(("data:epoch expects the number of its first batch, from 1, got %s"):format(
        tostring(first)))
  end
  return k, first
end

--- Iterator over the batches of epoch k (from 1); the same k gives the same batches. `first` begins
-- at that batch, from 1. The tensors of a batch are overwritten by the next one: clone what you
-- keep.
-- @return iterator of {x = tensor, y = tensor, n = rows}
-- @usage for batch in set:epoch(1) do print(batch.x.shape[1]) end
function Data:epoch(k, first)
  k, first = epoch_arguments(k, first)
  local rows, from = order(self, k), (first - 1) * self.batch
  if from > 0 then rows = table.move(rows, from + 1, math.max(#rows, from), 1, {}) end
  local list = {}
  for i, name in ipairs(self.names) do list[i] = self.fields[name] end
  local reader = core.batch_reader(list, self.batch, rows, self.last == "drop")
  local function next_batch()
    local n, tensors = reader:next()
    if n == nil then return nil end
    local batch = { n = n }
    for i, name in ipairs(self.names) do batch[name] = tensors[i] end
    return mapped(self, batch)
  end
  return next_batch, nil, nil, reader -- the thread ends with the loop, however that ends
end

--- Row numbers from 0, n of them.
function set.range(n)
  local rows = {}
  for i = 1, n do rows[i] = i - 1 end
  return rows
end

set.Data, set.exists, set.order, set.mapped, set.epoch_arguments = Data, exists, order, mapped,
  epoch_arguments
set.drawn_place, set.share_drawn = drawn_place, share_drawn
return set
