--- Data sets: rows of tensors as batches {x =, y =}, shuffled per epoch from a seed, read ahead by a thread in C.
--
-- A data set is a table with `epoch(k)`, an iterator over batches; the buffers are reused by the next batch, so clone what
-- you keep. Files are looked for in $NEAP_DATA, ./data and ../shared/data/datasets.
-- @module neap.data
local core = require "neap.core"
local options = require "neap.options"
local none = options.none
local data = {}

local Data = {}
Data.__index = Data

-- ---- looking for files ---------------------------------------------------------------------------------------------------

local function exists(path)
  local file = io.open(path, "rb")
  if file then file:close() end
  return file ~= nil
end

--- Folders that are searched, in order.
function data.folders()
  local list = {}
  local asked = os.getenv "NEAP_DATA"
  if asked and asked ~= "" then list[1] = asked end
  list[#list + 1] = "data"
  list[#list + 1] = "../shared/data/datasets"
  return list
end

--- The path of the first of `names` that exists, or nil and the list of places looked at.
function data.find(...)
  local looked = {}
  for _, folder in ipairs(data.folders()) do
    for _, name in ipairs { ... } do
      local path = folder .. "/" .. name
      if exists(path) then return path end
      looked[#looked + 1] = path
    end
  end
  return nil, looked
end

local function must_find(what, source, ...)
  local path, looked = data.find(...)
  if path then return path end
  error(("%s is missing; looked for %s. Get it from %s, and set NEAP_DATA to its folder"):format(what, table.concat(looked, ", "), source), 4)
end

-- ---- the data set --------------------------------------------------------------------------------------------------------------

--- One number in [0, 2^32) from a seed and a counter: a 64-bit mix (Steele et al., SplitMix, OOPSLA 2014).
local function mix(seed, i)
  local z = seed + i * 0x9E3779B97F4A7C15
  z = (z ~ (z >> 30)) * 0xBF58476D1CE4E5B9
  z = (z ~ (z >> 27)) * 0x94D049BB133111EB
  return (z ~ (z >> 31)) >> 32
end

--- The order of epoch k: row numbers from 0. Fisher and Yates, from the data set's seed and the epoch.
local function order(self, k)
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

local base_options = { batch = 1, shuffle = none, seed = 1, last = "run", map = none }

local function with_base(spec)
  for key, value in pairs(base_options) do spec[key] = value end
  return spec
end

--- fields: {name = {source = tensor, dtype =, scale =, shift =, window =, offset =}}; rows: row numbers from 0.
local function new(o, fields, rows, extra)
  local names = {}
  for name in pairs(fields) do names[#names + 1] = name end
  table.sort(names)
  local self = extra or {}
  self.fields, self.names, self.rows = fields, names, rows
  self.batch, self.seed, self.last, self.map = o.batch, o.seed, o.last, o.map
  self.shuffle = o.shuffle ~= false and o.shuffle ~= none and (o.shuffle or o.split == "train")
  return setmetatable(self, Data)
end

--- Batches of one epoch.
function Data:__len()
  return self.last == "drop" and #self.rows // self.batch or (#self.rows + self.batch - 1) // self.batch
end

--- What a batch looks like: {x = {shape =, dtype =}, y = ..., n = rows, batch = rows a batch}.
function Data:spec()
  local spec = { n = #self.rows, batch = self.batch }
  for name, f in pairs(self.fields) do
    local shape = { self.batch }
    if f.window then
      shape[2] = f.window
    else
      for d = 2, #f.source.shape do shape[d] = f.source.shape[d] end
    end
    spec[name] = { shape = shape, dtype = f.dtype }
  end
  return spec
end

--- Iterator over the batches of epoch k (from 1); the same k gives the same batches. `from` skips batches before it.
-- @return iterator of {x = tensor, y = tensor, n = rows}
function Data:epoch(k, from)
  local rows = order(self, k or 1)
  if from and from > 1 then rows = table.move(rows, (from - 1) * self.batch + 1, #rows, 1, {}) end
  local list = {}
  for i, name in ipairs(self.names) do list[i] = self.fields[name] end
  local reader = core.batch_reader(list, self.batch, rows, self.last == "drop")
  local names, map = self.names, self.map
  return function()
    local n, tensors = reader:next()
    if n == nil then return nil end
    local batch = { n = n }
    for i, name in ipairs(names) do batch[name] = tensors[i] end
    return map and map(batch) or batch
  end
end

local function range(n)
  local rows = {}
  for i = 1, n do rows[i] = i - 1 end
  return rows
end

-- ---- sources ----------------------------------------------------------------------------------------------------------------

--- MNIST (LeCun et al., 1998): x (N,1,28,28) in 0..1, y (N) digits.
-- @usage for batch in neap.data.mnist { split = "train", batch = 64 }:epoch(1) do ... end
function data.mnist(given)
  local o = options.read("neap.data.mnist", with_base { split = "train", limit = none }, given, 2)
  local stem = o.split == "train" and "train" or "t10k"
  local function part(kind)
    local file = stem .. "-" .. kind
    return must_find("MNIST", "yann.lecun.com/exdb/mnist", "mnist/" .. file .. ".gz", "mnist/" .. file, file .. ".gz", file)
  end
  local images = assert(core.read_idx(part "images-idx3-ubyte"))
  local labels = assert(core.read_idx(part "labels-idx1-ubyte"))
  local n = #images
  images = images:view(n, 1, images:size(2), images:size(3))
  return new(o, { x = { source = images, dtype = "f32", scale = 1 / 255 }, y = { source = labels, dtype = "i64" } },
    range(math.min(n, o.limit or n)), { n_class = 10 })
end

--- CIFAR-10 in its binary format (Krizhevsky, 2009): x (N,3,32,32) in -1..1, y (N). The whole set or a sample of it.
function data.cifar10(given)
  local o = options.read("neap.data.cifar10", with_base { split = "train", limit = none, path = none }, given, 2)
  local sample = o.split == "train" and "cifar10/cifar10_train_first2000.bin" or "cifar10/cifar10_test_first1000.bin"
  local path = o.path or must_find("CIFAR-10", "www.cs.toronto.edu/~kriz/cifar.html", sample .. ".gz", sample)
  local bytes = assert(core.read_bytes(path)) -- records of 1 + 3072 bytes
  local n = #bytes // 3073
  local records = bytes:view(n, 3073)
  local images = records:narrow(2, 2, 3072):clone():view(n, 3, 32, 32)
  local labels = records:select(2, 1):clone()
  return new(o, { x = { source = images, dtype = "f32", scale = 2 / 255, shift = -1 }, y = { source = labels, dtype = "i64" } },
    range(math.min(n, o.limit or n)), { n_class = 10 })
end

--- The characters of a text file (or several) by number: x (B,length), y the same one character later.
-- `split` = "train" takes the first part, "valid" the last `holdout` of it. `vocabulary` of one set fits the other.
-- @field path string|string[]
-- @field length integer characters a row
-- @field stride integer distance of rows' starts; length when nil
-- @return data set with `chars` (number from 0 -> character), `n_class`, `encode(text)`, `decode(numbers)`
function data.text(given)
  local o = options.read("neap.data.text", with_base { path = none, length = 64, stride = none, split = "all", holdout = 0.1, vocabulary = none },
    given, 2)
  local parts = {}
  for _, path in ipairs(type(o.path) == "table" and o.path or { o.path }) do parts[#parts + 1] = assert(core.read_text(path)) end
  local text = table.concat(parts)
  local number, chars = {}, o.vocabulary
  if not chars then
    local seen = {}
    for c in text:gmatch "." do seen[c] = true end
    seen["\n"] = true
    chars = {}
    for c in pairs(seen) do chars[#chars + 1] = c end
    table.sort(chars)
  end
  for i, c in ipairs(chars) do number[c] = i - 1 end
  local cut = math.floor(#text * (1 - o.holdout))
  if o.split == "train" then text = text:sub(1, cut) elseif o.split == "valid" then text = text:sub(cut + 1) end
  local ids = core.encode_bytes(text, number) -- u8 (n)
  local rows, stride = {}, o.stride or o.length
  for start = 0, #text - o.length - 1, stride do rows[#rows + 1] = start end
  local self = new(o, { x = { source = ids, dtype = "i64", window = o.length }, y = { source = ids, dtype = "i64", window = o.length, offset = 1 } },
    rows, { n_class = #chars, chars = chars })
  function self.encode(s)
    local list = {}
    for c in s:gmatch "." do list[#list + 1] = number[c] or 0 end
    return list
  end
  function self.decode(list)
    local out = {}
    for i, id in ipairs(list) do out[i] = chars[id + 1] or "?" end
    return table.concat(out)
  end
  return self
end

--- Tensors already in memory: x (N, ...), y (N, ...).
function data.tensors(given)
  local o = options.read("neap.data.tensors", with_base { x = none, y = none }, given, 2)
  local fields = {}
  for _, name in ipairs { "x", "y" } do
    local t = o[name]
    if t then fields[name] = { source = t:contiguous(), dtype = t.dtype } end
  end
  if not fields.x then error("neap.data.tensors takes { x = tensor, y = tensor }", 2) end
  return new(o, fields, range(#o.x))
end

--- Rows made by a Lua function, between steps: get(i, slot) fills slot.x and slot.y (views of the batch) for row i.
-- @field n integer rows
-- @field x table {shape of one row, dtype =}; y the same
function data.from(given)
  local o = options.read("neap.data.from", with_base { n = none, x = none, y = none, get = none }, given, 2)
  local spec = { x = o.x, y = o.y }
  local self = new(o, {}, range(o.n))
  local function whole(part, n)
    local shape = { n, table.unpack(part) }
    shape.dtype = part.dtype
    return core.zeros(shape)
  end
  function self.spec()
    local out = { n = o.n, batch = o.batch }
    for name, part in pairs(spec) do out[name] = { shape = { o.batch, table.unpack(part) }, dtype = part.dtype or "f32" } end
    return out
  end
  function self.epoch(_, k, first)
    local rows, at = order(self, k or 1), ((first or 1) - 1) * o.batch
    return function()
      local n = math.min(o.batch, #rows - at)
      if n <= 0 or (n < o.batch and o.last == "drop") then return nil end
      local batch = { n = n }
      for name, part in pairs(spec) do batch[name] = whole(part, n) end
      for i = 1, n do
        local slot = {}
        for name in pairs(spec) do slot[name] = batch[name]:select(1, i) end
        o.get(rows[at + i] + 1, slot)
      end
      at = at + n
      return batch
    end
  end
  return self
end

return data
