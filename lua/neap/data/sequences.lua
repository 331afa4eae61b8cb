--- Sets of rows of different lengths, padded to one length a batch.
--
-- Rows of a like length are put into one bucket, and a batch has rows of one bucket: its fields are
-- as long as the bucket's bound, and a field `lengths` says how much of each row counts. A trainer
-- makes one plan for each bound, in the bytes of the longest.
-- @module neap.data.sequences
local core = require "neap.core"
local options = require "neap.inner.options"
local record = require "neap.inner.record"
local set = require "neap.data.set"
local fail = core.fail
local sequences = {}

-- ---- padding ------------------------------------------------------------------------------------

--- How many items a row has: numbers of a list, or what a tensor's first dimension counts.
local function length_of(row) return #row end

local function is_row(row)
  return type(row) == "userdata" or type(row) == "table" and (#row > 0 or next(row) == nil)
end

--- The rows as one tensor (n, length, ..), filled up with `value`.
local function padded(who, rows, length, value, dtype)
  -- A row that is a tensor says dtype and shape of all; of lists the numbers do: i64, unless one is
  -- a fraction.
  local rest = {}
  for _, row in ipairs(rows) do
    if type(row) == "userdata" then
      rest, dtype = table.move(row.shape, 2, #row.shape, 1, {}), dtype or row.dtype
      break
    end
  end
  if not dtype then
    dtype = "i64"
    for _, row in ipairs(rows) do
      for _, item in ipairs(row) do
        if type(item) == "number" and math.type(item) ~= "integer" then dtype = "f32" end
      end
    end
  end

  -- The tensor is full of the value, and rows are copied over its beginning.
  local t = core.full { #rows, length, table.unpack(rest), value = value, dtype = dtype }
  for i, row in ipairs(rows) do
    local n = length_of(row)
    if n > length then
      fail(("%s: row %d has a length of %d, at most %d are taken"):format(who, i, n, length))
    end
    if n > 0 then
      local values = type(row) == "userdata" and row or core.tensor(row, dtype)
      if table.concat(values.shape, ",", 2) ~= table.concat(rest, ",") then
        fail(("%s: an item of row %d has the shape (%s), those before (%s)"):format(
          who, i, table.concat(values.shape, ",", 2), table.concat(rest, ",")))
      end
      t:select(1, i):narrow(1, 1, n):copy_(values)
    end
  end
  return t
end

--- The lengths of rows as i64, and the largest.
local function lengths_of(rows)
  local list, most = {}, 0
  for i, row in ipairs(rows) do
    list[i] = length_of(row)
    most = math.max(most, list[i])
  end
  return list, most
end

local function check_rows(who, rows)
  for i = 1, type(rows) == "table" and #rows or 0 do
    if not is_row(rows[i]) then
      fail(("%s: row %d expects a list of numbers or a tensor, got %s"):format(
        who, i, options.shown(rows[i])))
    end
  end
  if type(rows) ~= "table" or #rows == 0 then
    fail(("%s expects a list of rows, e.g. { { 1, 2, 3 }, { 4 } }, got %s"):format(
      who, options.shown(rows)))
  end
end

local options_of_pad = record.declare("neap.data.pad", { call = "(rows, {})",
  doc = [[neap.data.pad(rows, { .. }) -> tensor, lengths: rows of different lengths, lists of
    numbers or tensors, as one tensor (n, length, ..).]],
  { "value", "number", 0, doc = "what stands behind a row's end" },
  { "length", "integer", min = 1, unset = "that of the longest row",
    doc = "what they are padded to" },
  { "dtype", "dtype", unset = "i64 of whole numbers, else f32", doc = "dtype of the tensor" },
  example = "neap.data.pad({ { 1, 2, 3 }, { 4 } }, { value = -1 })" })

--- neap.data.pad(rows, { .. }) -> tensor, lengths: see the record.
function sequences.pad(rows, given)
  check_rows("neap.data.pad", rows)
  local o = options_of_pad:read(given)
  local list, most = lengths_of(rows)
  local t = padded("neap.data.pad", rows, o.length or math.max(most, 1), o.value, o.dtype)
  return t, core.tensor(list, "i64")
end

-- ---- the set ------------------------------------------------------------------------------------

local options_of_sequences = set.declare("sequences", {
  doc = [[Rows of different lengths: fields that are lists of rows, each a list of numbers or a
    tensor, are padded; a field that is a tensor has one item a row. A batch has rows of one bucket,
    padded to its bound, and a field `lengths`, unless the bound is all that counts.]],
  { "pad", "number|table", 0, says = "a number, or { field = number }",
    doc = "what stands behind a row's end" },
  { "bucket", "integer|table", 1, min = 1, says = "a number of buckets, or a list of bounds",
    doc = [[rows of a length up to a bound are padded to that bound; of a number of buckets each has
      as many rows]] },
  { "lengths", "name|boolean", "lengths", says = "a name, or false",
    doc = "the field that says how long each row is; false: none" },
  example = [[neap.data.sequences { ids = { { 1, 2, 3 }, { 4 } }, y = { { 0, 1, 1 }, { 0 } },
  pad = { y = -1 }, bucket = { 2, 4 }, batch = 16 }]] })

--- The fields of a set apart from its options: lists of rows, and tensors of one item a row.
local function fields_apart(given)
  local ragged, flat, rest, n, first = {}, {}, {}, nil, nil
  if type(given) ~= "table" then
    fail("neap.data.sequences takes a table, e.g. { ids = rows, y = tensor }")
  end
  for _, key in ipairs(options.keys(given)) do
    local value = given[key]
    -- Lists of rows that are no option are fields of rows of any length, tensors fields of one item
    -- a row; what is left the options' record looks at.
    local is_option = set.is_common(key) or options_of_sequences.fields[key]
    local is_list = not is_option and type(value) == "table"
    if is_list then
      check_rows(("neap.data.sequences: %s"):format(key), value)
      ragged[key] = value
    elseif not is_option and type(value) == "userdata" then
      flat[key] = value
    else
      rest[key] = value
    end
    if is_list or flat[key] then
      if n and #value ~= n then
        fail(("neap.data.sequences: %s has %d rows, %s %d"):format(first, n, key, #value))
      end
      n, first = #value, first or key
    end
  end
  if next(ragged) == nil then
    fail("neap.data.sequences expects a list of rows for at least one field, e.g. { ids = \z
      { { 1, 2 }, { 3 } } }")
  end
  return ragged, flat, rest, n
end

--- The length of each row: those of all ragged fields are the same.
local function row_lengths(ragged)
  local names = options.keys(ragged)
  local lengths, most = lengths_of(ragged[names[1]])
  for _, name in ipairs(names) do
    for i, row in ipairs(ragged[name]) do
      if length_of(row) ~= lengths[i] then
        fail(("neap.data.sequences: row %d of %s has a length of %d, that of %s %d"):format(
          i, name, length_of(row), names[1], lengths[i]))
      end
    end
  end
  return lengths, most
end

--- The bounds of the buckets, ascending.
local function bounds_of(bucket, lengths, most)
  local bounds = {}
  if type(bucket) == "number" then
    -- Bounds at even shares of the rows' lengths: each bucket has as many rows. Equal bounds are
    -- one.
    local sorted = table.move(lengths, 1, #lengths, 1, {})
    table.sort(sorted)
    for k = 1, bucket do
      local bound = math.max(sorted[math.max((#sorted * k) // bucket, 1)], 1)
      if bound ~= bounds[#bounds] then bounds[#bounds + 1] = bound end
    end
    return bounds
  end
  for i, bound in ipairs(bucket) do
    if math.type(bound) ~= "integer" or bound < 1 or i > 1 and bound <= bucket[i - 1] then
      fail("neap.data.sequences: bucket expects ascending lengths, e.g. { 8, 16, 32 }")
    end
    bounds[i] = bound
  end
  if #bounds == 0 or bounds[#bounds] < most then
    fail(("neap.data.sequences: a row has a length of %d, the last bucket is for %s"):format(
      most, tostring(bounds[#bounds])))
  end
  return bounds
end

--- Puts rows into buckets: { bound =, rows = {numbers from 0}, at = {[number] = place from 0} }
local function buckets_of(bounds, lengths)
  local buckets = {}
  for i, bound in ipairs(bounds) do buckets[i] = { bound = bound, rows = {}, at = {} } end
  for row, length in ipairs(lengths) do
    local k = 1
    while length > bounds[k] do k = k + 1 end

    -- Places within the bucket are what its reader counts by.
    local b = buckets[k]
    b.at[row - 1] = #b.rows
    b.rows[#b.rows + 1] = row - 1
  end

  -- A bucket without rows would be a plan for nothing.
  for i = #buckets, 1, -1 do
    if #buckets[i].rows == 0 then table.remove(buckets, i) end
  end
  return buckets
end

--- The padded fields of a bucket, as a batch reader takes them, by the order of names.
local function sources_of(self, bucket, ragged, flat, lengths, o)
  local list = {}

  -- Fields of one item a row follow the bucket's rows.
  local index = core.tensor(bucket.rows, "i64")
  for i, name in ipairs(self.names) do
    local source
    if ragged[name] then
      local rows = {}
      for k, row in ipairs(bucket.rows) do rows[k] = ragged[name][row + 1] end
      local value = type(o.pad) == "table" and (o.pad[name] or 0) or o.pad
      source = padded("neap.data.sequences: " .. name, rows, bucket.bound, value, self.dtypes[name])
    elseif name == o.lengths then
      local own = {}
      for k, row in ipairs(bucket.rows) do own[k] = lengths[row + 1] end
      source = core.tensor(own, "i64")
    else
      source = flat[name]:contiguous():gather(index)
    end
    list[i] = { source = source, dtype = source.dtype }
  end
  return list
end

--- Batches of epoch k of rows drawn by weights. INVARIANT: every epoch has as many, so that #set is
-- true of each: a batch's bucket is drawn first, by the weights of its rows, then rows from it.
local function plan_drawn(self, k)
  -- The weights of a bucket's rows, summed up within it; and the buckets' own sums.
  local sums, places, bucket_sums, total = {}, {}, {}, 0
  for i = 1, #self.buckets do sums[i], places[i] = {}, {} end
  for at, row in ipairs(self.rows) do
    local i = self.bucket_of[row]
    local own, weight = sums[i], self.sums[at] - (self.sums[at - 1] or 0)
    own[#own + 1] = (own[#own] or 0) + weight
    table.insert(places[i], self.buckets[i].at[row])
  end
  for i, own in ipairs(sums) do
    total = total + (own[#own] or 0)
    bucket_sums[i] = total
  end
  -- Buckets at even steps from a random start: each has its share of the batches, nearly.
  local n_batch = (self.n_drawn + self.batch - 1) // self.batch
  local of_batch, start = {}, set.share_drawn(self, k, 0)
  for b = 1, n_batch do
    of_batch[b] = set.drawn_place(bucket_sums, (b - 1 + start) / n_batch)
  end
  local list, i_row = {}, n_batch -- numbers up to there are those of the order

  -- The batches in an order of their own, since the steps above come bucket by bucket.
  for b, i in ipairs(set.order({ rows = of_batch, shuffle = true, seed = self.seed }, k)) do
    local own = {}
    for r = 1, math.min(self.batch, self.n_drawn - (b - 1) * self.batch) do
      i_row = i_row + 1
      own[r] = places[i][set.drawn_place(sums[i], set.share_drawn(self, k, i_row))]
    end
    if #own == self.batch or self.last ~= "drop" then list[#list + 1] = { i, own } end
  end
  return list
end

--- Batches of epoch k, { bucket's number, {places from 0} } each: rows come in the epoch's order,
-- and a batch where its bucket has enough of them; what is left over comes last.
local function plan_epoch(self, k)
  if self.sums then return plan_drawn(self, k) end
  local open, list = {}, {}
  for _, row in ipairs(set.order(self, k)) do
    local i = self.bucket_of[row]

    -- An open batch for each bucket; a full one closes in its turn.
    local places = open[i] or {}
    open[i] = places
    places[#places + 1] = self.buckets[i].at[row]
    if #places == self.batch then list[#list + 1], open[i] = { i, places }, nil end
  end
  for i = 1, #self.buckets do
    if open[i] and self.last ~= "drop" then list[#list + 1] = { i, open[i] } end
  end
  return list
end

--- One reader for each bucket, of its places from the batch `first` on.
local function readers_of(self, list, first)
  local places, readers = {}, {}

  -- Each reader reads ahead the places of its own batches, in their order.
  for k = first, #list do
    local i, own = list[k][1], list[k][2]
    places[i] = places[i] or {}
    table.move(own, 1, #own, #places[i] + 1, places[i])
  end
  for i, own in pairs(places) do
    readers[i] = core.batch_reader(self.buckets[i].sources, own, { batch = self.batch })
  end
  return readers
end

--- As Data:epoch.
local function epoch(self, k, first)
  k, first = set.epoch_arguments(k, first)
  local list = plan_epoch(self, k)

  -- Which bucket each batch is of is planned for the whole epoch, so that readers know what to read
  -- ahead; each step then asks the reader whose turn it is.
  local readers, at = readers_of(self, list, first), first - 1
  local function next_batch()
    at = at + 1
    if list[at] == nil then return nil end
    local n, tensors = readers[list[at][1]]:next()
    local batch = { n = n }
    for i, name in ipairs(self.names) do batch[name] = tensors[i] end
    return set.mapped(self, batch)
  end
  return next_batch, nil, nil, setmetatable({}, { __close = function()
    for _, reader in pairs(readers) do
      local _ <close> = reader
    end
  end })
end

--- Rows of different lengths: see the record.
function sequences.sequences(given)
  local ragged, flat, rest, n = fields_apart(given)
  local o = options_of_sequences:read(rest)
  local lengths, most = row_lengths(ragged)
  local fields = {}
  for name in pairs(ragged) do fields[name] = {} end
  for name in pairs(flat) do fields[name] = {} end
  for name in pairs(type(o.pad) == "table" and o.pad or {}) do
    if not ragged[name] then
      fail(("neap.data.sequences: pad has \"%s\", and there are no rows of that name"):format(
        tostring(name)))
    end
  end
  if o.lengths and fields[o.lengths] then
    fail(("neap.data.sequences: \"%s\" is a field already: give lengths another name, or \z
      false"):format(o.lengths))
  end
  if o.lengths then fields[o.lengths] = {} end
  local self = set.new(o, fields, set.range(n))

  -- One dtype for a field in all buckets, as the whole of its rows says.
  self.dtypes = {}
  for name, rows in pairs(ragged) do
    self.dtypes[name] = padded("neap.data.sequences: " .. name, rows, math.max(most, 1), 0).dtype
  end
  self.buckets = buckets_of(bounds_of(o.bucket, lengths, most), lengths)
  for _, bucket in ipairs(self.buckets) do
    bucket.sources = sources_of(self, bucket, ragged, flat, lengths, o)
  end

  -- To the set a field looks as in its widest bucket.
  local widest = self.buckets[#self.buckets]
  for i, name in ipairs(self.names) do
    self.fields[name] = widest.sources[i]
    self.fields[name].flat = flat[name] -- by the set's own rows
  end

  -- Which bucket a row is in, for the order of an epoch.
  self.bucket_of = {}
  for i, bucket in ipairs(self.buckets) do
    for _, row in ipairs(bucket.rows) do self.bucket_of[row] = i end
  end
  self.epoch, self.count = epoch, function(own) return #plan_epoch(own, 1) end
  self.n_batch = self:count()
  return self
end

return sequences
