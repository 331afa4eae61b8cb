--- Data sets: rows of tensors as batches {x =, y =}, shuffled per epoch from a seed, read ahead by a thread in C.
--
-- A data set is a table with `epoch(k)`, an iterator over batches; the buffers are reused by the next batch, so clone what
-- you keep. Files are looked for in $NEAP_DATA, ./data and ../shared/data/datasets.
-- @module neap.data
local core = require "neap.core"
local options = require "neap.inner.options"
local fail = core.fail
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
    for i, name in ipairs { ... } do
      if type(name) ~= "string" then fail(("neap.data.find expects names of files, got a %s at position %d"):format(type(name), i)) end
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
  error(core.error { code = "data", message = ("%s is missing; looked for %s"):format(what, table.concat(looked, ", ")),
    hint = ("get it from %s and set NEAP_DATA to the folder that holds it"):format(source) })
end

--- A value, or the error that a file gave.
local function must(value, message, code)
  if value == nil then error(core.error { code = code or "data", message = message }) end
  return value
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

--- Reads a data set's options with those that all take: batch, shuffle, seed, last = "run" | "drop", map = f(batch).
local function read_options(who, spec, given)
  for key, value in pairs(base_options) do spec[key] = value end
  local o = options.read("neap.data." .. who, spec, given)
  if math.type(o.batch) ~= "integer" or o.batch < 1 then
    fail(("neap.data.%s: batch expects a number of rows, got %s"):format(who, tostring(o.batch)))
  end
  if o.last ~= "run" and o.last ~= "drop" then
    fail(("neap.data.%s: last is \"run\" (the last, smaller batch runs) or \"drop\", not \"%s\""):format(who, tostring(o.last)))
  end
  if o.shuffle ~= nil and type(o.shuffle) ~= "boolean" then
    fail(("neap.data.%s: shuffle expects true or false, got %s"):format(who, type(o.shuffle) == "string" and ("%q"):format(o.shuffle) or tostring(o.shuffle)))
  end
  if math.type(o.seed) ~= "integer" then fail(("neap.data.%s: seed expects an integer, got %s"):format(who, tostring(o.seed))) end
  if o.map ~= nil and type(o.map) ~= "function" then fail(("neap.data.%s: map expects a function of a batch"):format(who)) end
  return o
end

local function one_of(who, field, value, ...)
  for _, known in ipairs { ... } do
    if value == known then return end
  end
  fail(("neap.data.%s: %s is one of %s, not \"%s\""):format(who, field, table.concat({ ... }, ", "), tostring(value)))
end

--- fields: {name = {source = tensor, dtype =, scale =, shift =, window =, offset =}}; rows: row numbers from 0.
local function new(o, fields, rows, extra)
  local self = extra or {}
  self.fields, self.names, self.rows = fields, {}, rows
  for name in pairs(fields) do self.names[#self.names + 1] = name end
  table.sort(self.names)
  self.batch, self.seed, self.last, self.map = o.batch, o.seed, o.last, o.map
  if o.shuffle == nil then self.shuffle = o.split == "train" else self.shuffle = o.shuffle end
  return setmetatable(self, Data)
end

--- Batches of one epoch.
function Data:__len()
  return self.last == "drop" and #self.rows // self.batch or (#self.rows + self.batch - 1) // self.batch
end

Data.__name = "neap.data"
Data.__tostring = function(self)
  local spec, parts = self:spec(), {}
  for _, name in ipairs(self.names) do parts[#parts + 1] = ("%s %s (%s)"):format(name, spec[name].dtype, table.concat(spec[name].shape, ",")) end
  return ("data: %d rows in %d batches, %s%s"):format(#self.rows, #self, table.concat(parts, ", "), self.shuffle and ", shuffled" or "")
end

--- What a batch looks like: {x = {shape =, dtype =}, y = ..., n = rows, batch = rows a batch}.
function Data:spec()
  local spec = { n = #self.rows, batch = self.batch }
  for name, f in pairs(self.fields) do
    local shape = f.window and { self.batch, f.window } or { self.batch, table.unpack(f.source.shape, 2) }
    spec[name] = { shape = shape, dtype = f.dtype }
  end
  return spec
end

local function mapped(self, batch)
  if not self.map then return batch end
  local out = self.map(batch) or batch
  out.n = out.n or batch.n
  return out
end

--- The number of an epoch and of its first batch, both from 1 on and 1 where they are not given.
local function epoch_arguments(k, first)
  k, first = k == nil and 1 or k, first == nil and 1 or first
  if math.type(k) ~= "integer" or k < 1 then fail(("data:epoch expects the epoch's number, from 1, got %s"):format(tostring(k))) end
  if math.type(first) ~= "integer" or first < 1 then
    fail(("data:epoch expects the number of its first batch, from 1, got %s"):format(tostring(first)))
  end
  return k, first
end

--- Iterator over the batches of epoch k (from 1); the same k gives the same batches. `first` begins at that batch, from 1. The
-- tensors of a batch are overwritten by the next one: clone what you keep.
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

local function range(n)
  local rows = {}
  for i = 1, n do rows[i] = i - 1 end
  return rows
end

-- ---- sources ----------------------------------------------------------------------------------------------------------------

--- MNIST (LeCun et al., 1998): x (N,1,28,28) in 0..1, y (N) digits.
-- @usage for batch in neap.data.mnist { split = "train", batch = 64 }:epoch(1) do ... end
function data.mnist(given)
  local o = read_options("mnist", { split = "train", limit = none }, given)
  one_of("mnist", "split", o.split, "train", "test")
  local stem = o.split == "train" and "train" or "t10k"
  local function part(kind)
    local file = stem .. "-" .. kind
    return must_find("MNIST", "https://github.com/cvdfoundation/mnist or yann.lecun.com/exdb/mnist",
      "mnist/" .. file .. ".gz", "mnist/" .. file, file .. ".gz", file)
  end
  local images = must(core.read_idx(part "images-idx3-ubyte"))
  local labels = must(core.read_idx(part "labels-idx1-ubyte"))
  local n = #images
  if #labels ~= n then error(core.error { code = "data", message = ("MNIST: %d images, %d labels"):format(n, #labels) }) end
  images = images:view(n, 1, images:size(2), images:size(3))
  return new(o, { x = { source = images, dtype = "f32", scale = 1 / 255 }, y = { source = labels, dtype = "i64" } },
    range(math.min(n, o.limit or n)), { n_class = 10 })
end

--- The whole set's files where they all are, else the sample of it.
local function cifar_paths(names, split)
  local paths = {}
  for i, name in ipairs(names) do
    paths[i] = data.find("cifar-10-batches-bin/" .. name, "cifar10/" .. name .. ".gz", "cifar10/" .. name)
    if not paths[i] then
      local sample = split == "train" and "cifar10/cifar10_train_first2000.bin" or "cifar10/cifar10_test_first1000.bin"
      return { must_find("CIFAR-10", "https://www.cs.toronto.edu/~kriz/cifar.html (binary version)",
        "cifar-10-batches-bin/" .. name, sample .. ".gz", sample) }
    end
  end
  return paths
end

--- CIFAR-10 in its binary format (Krizhevsky, 2009): x (N,3,32,32) in -1..1, y (N). The whole set or a sample of it.
function data.cifar10(given)
  local o = read_options("cifar10", { split = "train", limit = none, path = none }, given)
  one_of("cifar10", "split", o.split, "train", "test")
  local names = o.split == "test" and { "test_batch.bin" }
    or { "data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin" }
  local paths = o.path and (type(o.path) == "table" and o.path or { o.path }) or cifar_paths(names, o.split)
  local parts = {}
  for i, path in ipairs(paths) do
    parts[i] = must(core.read_bytes(path)) -- records of 1 + 3072 bytes
    if #parts[i] == 0 or #parts[i] % 3073 ~= 0 then
      error(core.error { code = "data", message = ("%s: %d bytes are no whole number of records of 3073"):format(path, #parts[i]) })
    end
  end
  local bytes = #parts == 1 and parts[1] or parts[1].concat(parts, { axis = 1 })
  local n = #bytes // 3073
  local records = bytes:view(n, 3073)
  local images = records:narrow(2, 2, 3072):clone():view(n, 3, 32, 32)
  local labels = records:select(2, 1):clone()
  return new(o, { x = { source = images, dtype = "f32", scale = 2 / 255, shift = -1 }, y = { source = labels, dtype = "i64" } },
    range(math.min(n, o.limit or n)), { n_class = 10 })
end

-- ---- characters by number -------------------------------------------------------------------------------------------------------

local function check_unknown(who, unknown, least, most)
  if unknown == nil or (math.type(unknown) == "integer" and unknown >= least and unknown <= most) then return end
  fail(("neap.data.%s: unknown expects a number of the vocabulary, %d to %d, got %s"):format(who, least, most, tostring(unknown)))
end

--- Raises for the character of a text that has no number.
local function fail_unknown(who, text, at)
  fail(("%s: the character %q at position %d is not in the vocabulary; the data set's unknown = NUMBER would stand for it"):format(who,
    text:sub(at, at), at))
end

--- The numbers of a text's characters. One without a number becomes `unknown`; where that is nil it is an error.
local function encode(who, text, number, unknown)
  if type(text) ~= "string" then fail(("%s expects a text, got a %s"):format(who, type(text))) end
  local list = {}
  for i = 1, #text do list[i] = number[text:sub(i, i)] or unknown or fail_unknown(who, text, i) end
  return list
end

--- The text of numbers, a list or a tensor. char_of(number) is nil for what is no number of a character.
local function decode(who, list, char_of, least, most)
  if type(list) == "userdata" then list = list:reshape(-1):totable() end
  if type(list) ~= "table" then fail(("%s expects a list of numbers, got a %s"):format(who, type(list))) end
  local out = {}
  for i, id in ipairs(list) do
    out[i] = char_of(id) or fail(("%s: %s at position %d is no character's number; these are %d to %d"):format(who, tostring(id), i, least, most))
  end
  return table.concat(out)
end

--- A text as a tensor of numbers (core.encode_bytes); unknown characters as in `encode`.
local function encode_text(who, text, number, unknown)
  local of_byte, strange = {}, {}
  for b = 0, 255 do
    local c = string.char(b)
    of_byte[c] = number[c] or unknown
    if not of_byte[c] then strange[#strange + 1] = c:gsub("%p", "%%%0") end
  end
  local at = #strange > 0 and text:find("[" .. table.concat(strange) .. "]")
  if at then fail_unknown(who, text, at) end
  return core.encode_bytes(text, of_byte)
end

--- The characters of a text file (or several) by number: x (B,length), y the same one character later.
-- `split` = "train" takes the first part, "valid" the last `holdout` of it. `vocabulary` of one set (its `chars`) fits the other; a
-- character that is not in it is an error, unless `unknown` says what number such characters get.
-- @field path string|string[]
-- @field length integer characters a row
-- @field stride integer distance of rows' starts; length when nil
-- @return data set with `chars` (number from 0 -> character), `n_class`, `encode(text)`, `decode(numbers)`
function data.text(given)
  local o = read_options("text", { path = none, length = 64, stride = none, split = "all", holdout = 0.1, vocabulary = none,
    unknown = none }, given)
  if o.path == nil then fail("neap.data.text takes { path = \"FILE\", length = characters a row }") end
  one_of("text", "split", o.split, "all", "train", "valid")
  local parts = {}
  for _, path in ipairs(type(o.path) == "table" and o.path or { o.path }) do parts[#parts + 1] = must(core.read_text(path)) end
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
  check_unknown("text", o.unknown, 0, #chars - 1)
  local cut = math.floor(#text * (1 - o.holdout))
  if o.split == "train" then text = text:sub(1, cut) elseif o.split == "valid" then text = text:sub(cut + 1) end
  local ids = encode_text("neap.data.text", text, number, o.unknown) -- u8 (n)
  local rows, stride = {}, o.stride or o.length
  for start = 0, #text - o.length - 1, stride do rows[#rows + 1] = start end
  if #rows == 0 then
    error(core.error { code = "data",
      message = ("neap.data.text: %d characters (split \"%s\") are too few for a row of %d"):format(#text, o.split, o.length) })
  end
  local self = new(o, { x = { source = ids, dtype = "i64", window = o.length }, y = { source = ids, dtype = "i64", window = o.length, offset = 1 } },
    rows, { n_class = #chars, chars = chars })
  function self.encode(s) return encode("text.encode", s, number, o.unknown) end
  function self.decode(list)
    return decode("text.decode", list, function(id) return math.type(id) == "integer" and chars[id + 1] or nil end, 0, #chars - 1)
  end
  return self
end

local taken = { n = "rows", batch = "rows a batch", lr = "the learning rate" }

--- Fields of batches apart from options: x and y, those of other names for which is_field holds, and x = { a, b } as x1 and x2.
-- @return {name = value}, the options that are left
local function fields_apart(who, given, is_field)
  local found, rest = {}, {}
  for key, value in pairs(type(given) == "table" and given or { given }) do
    if key == "x" and type(value) == "table" and is_field(value[1]) then
      for i, part in ipairs(value) do found["x" .. i] = part end
    elseif key == "x" or key == "y" or type(key) == "string" and base_options[key] == nil and is_field(value) then
      found[key] = value
    else
      rest[key] = value
    end
  end
  for name in pairs(found) do
    if taken[name] then fail(("neap.data.%s: a field can't be called \"%s\", which is %s"):format(who, name, taken[name])) end
  end
  return found, rest
end

local function is_tensor(t) return type(t) == "userdata" end

--- Tensors already in memory: x (N, ...), y (N, ...). Of a model with several inputs each has a field, by the name of forward's
-- argument; x = { a, b } are x1 and x2.
-- @usage neap.data.tensors { x = images, y = labels, batch = 32, shuffle = true }
-- neap.data.tensors { image = images, text = ids, y = labels, batch = 32 }
function data.tensors(given)
  local found, rest = fields_apart("tensors", given, is_tensor)
  local o, fields, first = read_options("tensors", { x = none, y = none }, rest), {}, nil
  for _, name in ipairs(options.keys(found)) do
    local t = found[name]
    if not is_tensor(t) or t:dim() < 1 then fail(("neap.data.tensors: %s expects a tensor of rows"):format(name)) end
    fields[name] = { source = t:contiguous(), dtype = t.dtype }
    if name ~= "y" then first = first or name end
  end
  if not first then fail("neap.data.tensors takes { x = tensor, y = tensor }") end
  for _, name in ipairs(options.keys(found)) do
    if #found[name] ~= #found[first] then fail(("neap.data.tensors: %s has %d rows, %s %d"):format(first, #found[first], name, #found[name])) end
  end
  return new(o, fields, range(#found[first]))
end

-- ---- tables of numbers -----------------------------------------------------------------------------------------------------------

local function split_line(line, separator)
  local cells = {}
  for cell in (line .. separator):gmatch("(.-)" .. separator:gsub("%p", "%%%0")) do
    cells[#cells + 1] = cell:match '^%s*"?(.-)"?%s*$'
  end
  return cells
end

--- Lines of a CSV file as lists of cells, and the header's names or nil. Without `header` given, a first line is one when none
-- of its cells is a number.
local function read_table(path, separator, header)
  local lines = {}
  for line in (must(core.read_text(path)):gsub("\r\n?", "\n")):gmatch "[^\n]+" do
    if line:match "%S" then lines[#lines + 1] = split_line(line, separator) end
  end
  local first = lines[1]
  if first and header == nil then
    header = true
    for _, cell in ipairs(first) do header = header and cell ~= "" and not tonumber(cell) end
  end
  local names = header and table.remove(lines, 1) or nil
  local width = #(names or first or {})
  for i, cells in ipairs(lines) do
    if #cells ~= width then
      error(core.error { code = "data", message = ("%s: line %d has %d cells, expected %d"):format(path, i + (names and 1 or 0), #cells, width) })
    end
  end
  if #lines == 0 then error(core.error { code = "data", message = path .. ": no rows" }) end
  return lines, names, width
end

--- A column by name, or by number from 1, negative from the end; as a number from 1.
local function column_number(column, names, width)
  if math.type(column) == "integer" then
    local k = column < 0 and width + 1 + column or column
    if k >= 1 and k <= width then return k end
    fail(("neap.data.csv: there is no column %d, there are %d"):format(column, width))
  end
  for k, name in ipairs(names or {}) do
    if name == column then return k end
  end
  local near = names and options.nearest(tostring(column), names)
  fail(("neap.data.csv: there is no column \"%s\"%s"):format(tostring(column), near and (", did you mean \"" .. near .. "\"?")
    or names and "; there are " .. table.concat(names, ", ") or "; the file has no header, columns go by number"))
end

--- Labels: whole numbers and fractions as they are, words as numbers from 0 in the order of the alphabet.
-- @return {numbers}, dtype, {words} or nil
local function read_labels(lines, k)
  local values, whole, words, seen = {}, true, nil, {}
  for i, cells in ipairs(lines) do
    values[i] = tonumber(cells[k])
    if not values[i] then words = words or {} end
    whole = whole and values[i] ~= nil and values[i] == math.floor(values[i])
    seen[cells[k]] = true
  end
  if not words then return values, whole and "i64" or "f32" end
  for word in pairs(seen) do words[#words + 1] = word end
  table.sort(words)
  for i, word in ipairs(words) do seen[word] = i - 1 end
  for i, cells in ipairs(lines) do values[i] = seen[cells[k]] end
  return values, "i64", words
end

--- Rows of a CSV file (gzip too): x (N, columns) f32, y (N). `y` names the label's column, by name or number, the last by
-- default, false for none; words become numbers from 0, listed in `classes`. `split` = "train" or "valid" takes part of the rows,
-- drawn by `seed`, `holdout` of them being "valid".
-- @usage neap.data.csv { path = "iris.csv", y = "species", batch = 16, shuffle = true }
-- @return data set with `columns` (names of x's), `classes`, `n_class`
function data.csv(given)
  local o = read_options("csv", { path = none, x = none, y = -1, header = none, separator = ",", split = "all", holdout = 0.2, dtype = none }, given)
  if type(o.path) ~= "string" then fail("neap.data.csv takes { path = \"FILE\" }") end
  one_of("csv", "split", o.split, "all", "train", "valid")
  local path = exists(o.path) and o.path or must_find(o.path, "where you have it", o.path)
  local lines, names, width = read_table(path, o.separator, o.header)
  local label = o.y and column_number(o.y, names, width) or nil
  local columns, titles = {}, {}
  if o.x then
    for i, column in ipairs(type(o.x) == "table" and o.x or { o.x }) do columns[i] = column_number(column, names, width) end
  else
    for k = 1, width do
      if k ~= label then columns[#columns + 1] = k end
    end
  end
  for i, k in ipairs(columns) do titles[i] = names and names[k] or tostring(k) end
  local flat = {}
  for i, cells in ipairs(lines) do
    for _, k in ipairs(columns) do
      local value = tonumber(cells[k])
      if not value then
        error(core.error { code = "data", message = ("%s: row %d, column %s: \"%s\" is not a number"):format(path, i, names and names[k] or k, cells[k]) })
      end
      flat[#flat + 1] = value
    end
  end
  local fields, extra = { x = { source = core.tensor(flat, "f32"):view(#lines, #columns), dtype = "f32" } }, { columns = titles }
  if label then
    local values, dtype, words = read_labels(lines, label)
    dtype = o.dtype or dtype
    fields.y = { source = core.tensor(values, dtype), dtype = dtype }
    extra.classes = words
    if dtype == "i64" then extra.n_class = math.tointeger(math.max(table.unpack(values, 1, math.min(#values, 200)))) + 1 end
    for _, v in ipairs(dtype == "i64" and values or {}) do extra.n_class = math.max(extra.n_class, math.tointeger(v) + 1) end
  end
  local rows = range(#lines)
  if o.split ~= "all" then
    rows = order({ rows = rows, shuffle = true, seed = o.seed }, 0)
    local cut = math.floor(#rows * (1 - o.holdout) + 0.5)
    rows = o.split == "train" and table.move(rows, 1, cut, 1, {}) or table.move(rows, cut + 1, #rows, 1, {})
  end
  return new(o, fields, rows, extra)
end

--- Lines of a text file, each an example of characters: x (N,length) = start, c1, c2 .., y = c1, c2 .., end; 0 is both start and
-- end, and stands after the end in x; in y that is `ignore_index` = -1. length is that of the longest line and its end. `unknown`
-- is the number of characters that `vocabulary` (another set's `chars`) does not have; without it they are an error.
-- @usage local names = neap.data.chars { path = "names.txt", batch = 32, split = "train" }
-- @return data set with `chars` (number from 1 -> character), `n_class`, `encode(text)`, `decode(numbers)`, `ignore_index`
function data.chars(given)
  local o = read_options("chars", { path = none, length = none, split = "all", holdout = 0.1, vocabulary = none, unknown = none }, given)
  if type(o.path) ~= "string" then fail("neap.data.chars takes { path = \"FILE\" }, a file of lines") end
  one_of("chars", "split", o.split, "all", "train", "valid")
  local path = exists(o.path) and o.path or must_find(o.path, "where you have it", o.path, "text/" .. o.path)
  local lines, longest, seen = {}, 0, {}
  for line in must(core.read_text(path)):gmatch "[^\r\n]+" do
    lines[#lines + 1] = line
    longest = math.max(longest, #line)
    for c in line:gmatch "." do seen[c] = true end
  end
  if #lines == 0 then error(core.error { code = "data", message = path .. ": no lines" }) end
  local length, chars, number = o.length or longest + 1, o.vocabulary, {}
  if not chars then
    chars = {}
    for c in pairs(seen) do chars[#chars + 1] = c end
    table.sort(chars)
  end
  for i, c in ipairs(chars) do number[c] = i end
  check_unknown("chars", o.unknown, 0, #chars)
  -- y is held one higher, so that bytes can say -1.
  local xs, ys, higher = {}, {}, { ["\0"] = 1, ["\1"] = 0 }
  for c, k in pairs(number) do higher[c] = k + 1 end
  for i, line in ipairs(lines) do
    line = line:sub(1, length - 1)
    xs[i] = "\0" .. line .. ("\0"):rep(length - 1 - #line)
    ys[i] = line .. "\0" .. ("\1"):rep(length - 1 - #line)
  end
  local ends = setmetatable({ ["\0"] = 0 }, { __index = number })
  local x = encode_text("neap.data.chars", table.concat(xs), ends, o.unknown):view(#lines, length)
  local y = encode_text("neap.data.chars", table.concat(ys), higher, o.unknown and o.unknown + 1):view(#lines, length)
  local rows = range(#lines)
  if o.split ~= "all" then
    rows = order({ rows = rows, shuffle = true, seed = o.seed }, 0)
    local cut = math.floor(#rows * (1 - o.holdout))
    rows = o.split == "train" and table.move(rows, 1, cut, 1, {}) or table.move(rows, cut + 1, #rows, 1, {})
  end
  local self = new(o, { x = { source = x, dtype = "i64" }, y = { source = y, dtype = "i64", shift = -1 } }, rows,
    { chars = chars, n_class = #chars + 1, ignore_index = -1, length = length })
  function self.encode(s) return encode("chars.encode", s, number, o.unknown) end
  function self.decode(list) -- start and end are no characters
    return decode("chars.decode", list, function(id) return id == 0 and "" or chars[id] end, 0, #chars)
  end
  return self
end

-- ---- rows from Lua -----------------------------------------------------------------------------------------------------------------

--- get's slot for row i of a batch: its tensors, views of the batch. Setting a field would leave the batch as it is, and raises.
local function slot_of(names, batch, i)
  local views = {}
  for _, name in ipairs(names) do views[name] = batch[name]:select(1, i) end
  return setmetatable({}, { __index = views, __pairs = function() return next, views end, __newindex = function(_, key)
    fail(views[key] ~= nil and ("neap.data.from: get sets slot.%s, which the batch does not see; write into it: slot.%s:copy_(tensor), "
      .. "slot.%s:fill_(number)"):format(key, key, key)
      or ("neap.data.from: get sets slot.%s, and a row has %s; write into these, slot.x:copy_(tensor)"):format(tostring(key), table.concat(names, ", ")))
  end })
end

--- What get has returned, which nobody reads: nothing, or a tensor of the slot, as methods that write into it return it.
local function check_returned(slot, value)
  for _, view in pairs(slot) do
    if rawequal(view, value) then return end
  end
  if value == nil then return end
  fail(("neap.data.from: get returned a %s, which nobody reads; it writes into its slot: slot.x:copy_(tensor), slot.y:fill_(number)")
    :format(type(value)))
end

--- Rows made by a Lua function, between steps: get(i, slot) writes into slot.x and slot.y, views of the batch, for row i, from 1. It
-- returns nothing and sets no field of the slot.
-- @field n integer rows
-- @field x table {shape of one row, dtype =}; y the same, {} for one number; and other inputs by name, as in data.tensors
-- @usage neap.data.from { n = 1000, batch = 10, x = { 2 }, y = { dtype = "i64" }, get = function(i, slot) slot.x:fill_(i); slot.y:fill_(i % 2) end }
function data.from(given)
  local found, rest = fields_apart("from", given, function(part) return type(part) == "table" end)
  local o, has_input = read_options("from", { n = none, x = none, y = none, get = none }, rest), false
  for name, part in pairs(found) do
    if type(part) ~= "table" then fail(("neap.data.from: %s expects the shape of one row, got a %s"):format(name, type(part))) end
    has_input = has_input or name ~= "y"
  end
  if math.type(o.n) ~= "integer" or o.n < 1 or type(o.get) ~= "function" or not has_input then
    fail("neap.data.from takes { n = rows, x = {shape of one row}, y = {..}, get = function(i, slot) .. end }")
  end
  local fields = {}
  for name, part in pairs(found) do
    local shape = { o.batch, table.unpack(part) }
    shape.dtype = part.dtype or "f32"
    fields[name] = { source = core.zeros(shape), dtype = shape.dtype } -- the batch that every batch is made in
  end
  local self = new(o, fields, range(o.n))
  function self.epoch(_, k, first)
    k, first = epoch_arguments(k, first)
    local rows, at = order(self, k), (first - 1) * o.batch
    return function()
      local n = math.min(o.batch, #rows - at)
      if n <= 0 or (n < o.batch and o.last == "drop") then return nil end
      local batch = { n = n }
      for _, name in ipairs(self.names) do batch[name] = fields[name].source:narrow(1, 1, n) end
      for i = 1, n do
        local slot = slot_of(self.names, batch, i)
        check_returned(slot, o.get(rows[at + i] + 1, slot))
      end
      at = at + n
      return mapped(self, batch)
    end
  end
  return self
end

require("neap.inner.guard").functions(Data, "data:")
return setmetatable(require("neap.inner.guard").functions(data, "neap.data."), { __index = function(_, key)
  local names = {}
  for name in pairs(data) do names[#names + 1] = name end
  local near = options.nearest(tostring(key), names)
  fail(("neap.data has no \"%s\"%s"):format(tostring(key), near and (", did you mean \"" .. near .. "\"?") or ""))
end })
