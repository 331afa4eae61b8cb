--- A data set: rows of tensors as batches, shuffled per epoch from a seed; and where its files lie.
--
-- The sources beside this file make sets: images, text, csv, rows. A batch is read ahead by threads
-- in C (core.batch_reader), into buffers that the next one overwrites.
-- @module neap.data.set
local core = require "neap.core"
local exists = require("neap.inner.files").exists
local options = require "neap.inner.options"
local record = require "neap.inner.record"
local transforms = require "neap.data.transforms"
local fail = core.fail
local set = {}

local Data = {}
Data.__index = Data

-- ---- looking for files --------------------------------------------------------------------------

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
  -- By halves: `low` is never behind the place that is looked for, `high` never before it.
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
    -- Each epoch has a seed of its own, and each exchange a number of it.
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

-- What sources of rows of one shape take, too.
local of_rows = {
  { "transform", "table", unset = "none", says = "a list of transforms such as neap.data.flip()",
    doc = [[what is done to the rows of x, or of another field, { of = "image", .. }, in the threads
      that read; set:plain() is the set without what is drawn]] },
  { "threads", "integer", 1, min = 1, max = 64, doc = "threads that read ahead" } }

--- The record of a source: its own options, and those that all take.
-- @param name string "mnist"
-- @param spec table as of record.declare; `is_rows`: its rows have one shape
function set.declare(name, spec)
  for _, field in ipairs(common) do spec[#spec + 1] = field end
  for _, field in ipairs(spec.is_rows and of_rows or {}) do
    local own = false -- a source may say it otherwise
    for _, other in ipairs(spec) do own = own or other[1] == field[1] end
    if not own then spec[#spec + 1] = field end
  end
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
  for _, list in ipairs { common, of_rows } do
    for _, field in ipairs(list) do
      if field[1] == name then return true end
    end
  end
  return false
end

--- How many labels a field of whole numbers has: one more than its largest.
local function count_classes(self, name)
  local f = self.fields[name]
  if f == nil or f.source == nil or f.source:dim() ~= 1 or #f.source == 0 or self.get
      or f.dtype ~= "i64" then
    fail(("%s: rows are mixed with their labels, and there is no y of one whole number a \z
      row"):format(self.who))
  end
  return self.n_class or math.tointeger(f.source:to("i64"):max():item()) + 1
end

--- The transforms of a set: which field they are of, and the rows that come of them. With mixed
-- rows the label's field gets its classes.
local function transformed(self, given)
  -- The field that is transformed must be of floats: what is drawn is added and scaled.
  local list, name = transforms.list(self.who, given), type(given) == "table" and given.of or "x"
  local f = self.fields[name]
  if f == nil then
    local near = options.nearest(tostring(name), self.names)
    fail(('%s: transform is of the field "%s", and the set has %s; say { of = "%s", .. }'):format(
      self.who, tostring(name), table.concat(self.names, ", "), near or self.names[1]))
  end
  if f.dtype ~= "f32" and f.dtype ~= "f64" then
    fail(("%s: transforms are of floats, and %s is %s; give x as f32"):format(self.who, name,
      f.dtype))
  end
  self.transform, self.of = list, name
  self.row_shape = core.transform_shape(list, f.shape or table.move(f.source.shape, 2,
    f.source:dim(), 1, {}))
  if transforms.is_mixing(list) then self.n_mixed = count_classes(self, "y") end
end

set.transformed = transformed

--- The options that make the same rows another set.
function set.settings()
  local list = table.move(common, 1, #common, 1, {})
  for i, field in ipairs(list) do
    local other = {}
    for key, value in pairs(field) do other[key] = value end
    other[3] = nil -- no default: what is not given stays
    other.unset = "as it is"
    list[i] = other
  end
  return table.move(of_rows, 1, #of_rows, #list + 1, list)
end

--- The set's fields as a batch reader takes them.
local function reader_fields(self)
  local list = {}
  for i, name in ipairs(self.names) do
    local f = self.fields[name]
    -- Mixed labels are shares of classes: a row of y has one for each.
    if self.n_mixed and name == "y" then
      f = { source = f.source, dtype = "f32", n_class = self.n_mixed }
    end
    list[i] = f
  end
  return list
end

--- Where in the names of fields one is.
local function place_of(self, name)
  for i, own in ipairs(self.names) do
    if own == name then return i end
  end
end

--- A reader of rows, which are those from place `first` of epoch k on.
local function reader_of(self, fields, rows, k, first)
  return core.batch_reader(fields, rows, {
    batch = self.batch, drop = self.last == "drop", threads = self.threads, seed = self.seed,
    epoch = k, first = first, transforms = self.transform,
    field = self.transform and place_of(self, self.of),
    label = self.n_mixed and place_of(self, "y"),
  })
end

--- fields: {name = {source = tensor, dtype =, scale =, shift =, window =, offset =}}, or {files =
-- paths, shape = {channels, height, width}, fit =, ..}; rows: row numbers from 0.
function set.new(o, fields, rows, extra)
  local self = extra or {}
  self.who = record.name_of(o)
  self.fields, self.names, self.rows = fields, {}, rows
  -- Names in an order of their own, which is that of tensors in a batch: pairs has none.
  for name in pairs(fields) do self.names[#self.names + 1] = name end
  table.sort(self.names)
  self.batch, self.seed, self.last, self.map = o.batch, o.seed, o.last, o.map
  if o.shuffle == nil then self.shuffle = o.split == "train" else self.shuffle = o.shuffle end
  self.threads = o.threads
  if o.transform then transformed(self, o.transform) end
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
    -- A window cuts rows out of one long source; files have the shape that pictures are brought to.
    local shape = f.window and { f.window } or f.shape or table.move(f.source.shape, 2,
      f.source:dim(), 1, {})
    if name == self.of then shape = self.row_shape end
    local is_mixed = self.n_mixed and name == "y"
    if is_mixed then shape = { self.n_mixed } end
    local dtype = is_mixed and "f32" or f.dtype
    spec[name] = { shape = { self.batch, table.unpack(shape) }, dtype = dtype }
  end
  return spec
end

local function mapped(self, batch)
  if not self.map then return batch end

  -- map may change the batch that it gets, or give another one.
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

  -- The order is that of the whole epoch, so that a run that is resumed sees the same batches.
  local rows, from = order(self, k), (first - 1) * self.batch
  if from > 0 then rows = table.move(rows, from + 1, math.max(#rows, from), 1, {}) end
  local reader = reader_of(self, reader_fields(self), rows, k, from + 1)
  local function next_batch()
    local n, tensors = reader:next()
    if n == nil then return nil end
    local batch = { n = n }
    for i, name in ipairs(self.names) do batch[name] = tensors[i] end
    return mapped(self, batch)
  end
  return next_batch, nil, nil, reader -- the threads end with the loop, however that ends
end

--- Row numbers from 0, n of them.
function set.range(n)
  local rows = {}
  for i = 1, n do rows[i] = i - 1 end
  return rows
end

--- The rows of n that a source's `split` has: all in order, or a share drawn by the seed, of which
-- "valid" has the last `holdout`.
function set.held_out(o, n)
  local rows = set.range(n)
  if o.split == "all" then return rows end

  -- Epoch 0 is nobody's: this draw is the same whatever epochs are run.
  rows = order({ rows = rows, shuffle = true, seed = o.seed }, 0)
  local cut = math.floor(n * (1 - o.holdout) + 0.5)
  if o.split == "train" then return table.move(rows, 1, cut, 1, {}) end
  return table.move(rows, cut + 1, n, 1, {})
end

set.reader_of = reader_of
set.Data, set.exists, set.order, set.mapped, set.epoch_arguments = Data, exists, order, mapped,
  epoch_arguments
set.drawn_place, set.share_drawn = drawn_place, share_drawn
return set
