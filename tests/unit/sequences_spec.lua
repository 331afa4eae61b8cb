--- Rows of different lengths: padded, in buckets, trained on.
local neap = require "neap"
local nn, data = neap.nn, neap.data
local raises = require("support").raises

--- n rows of 1 to 11 items: item j of row i is i * 100 + j.
local function rows_of(n)
  local rows = {}
  for i = 1, n do
    rows[i] = {}
    for j = 1, 1 + (i * 7) % 11 do rows[i][j] = i * 100 + j end
  end
  return rows
end

local function set_of(o)
  o.ids, o.batch = o.ids or rows_of(23), o.batch or 4
  return data.sequences(o)
end

--- What an epoch's batches have: all items by row, and the batches' sizes.
local function content(set, k)
  local items, sizes = {}, {}
  for batch in set:epoch(k or 1) do
    sizes[#sizes + 1] = table.concat(batch.ids.shape, "x")
    for r = 1, batch.n do
      local length = batch.lengths:at(r)
      local list = {}
      for j = 1, batch.ids:size(2) do
        local value = batch.ids:at(r, j)
        assert.are.equal(j > length and 0 or value, value)
        if j <= length then list[j] = math.tointeger(value) end
      end
      items[list[1] // 100] = list
    end
  end
  return items, sizes
end

describe("rows of different lengths", function()
  it("come whole, each once an epoch, padded to their bucket", function()
    for _, bucket in ipairs { 1, 3, { 4, 8, 12 }, { 20 } } do
      local set = set_of { bucket = bucket, shuffle = true }
      for k = 1, 2 do
        local items, sizes = content(set, k)
        assert.are.same(rows_of(23), items)
        assert.are.equal(#set, #sizes)
      end
    end
    local _, sizes = content(set_of { bucket = { 4, 8, 12 }, batch = 23 })
    table.sort(sizes)
    assert.are.same({ "6x12", "8x4", "9x8" }, sizes)
  end)

  it("have the same order for the same epoch, from any batch on", function()
    local set = set_of { bucket = 3, shuffle = true, seed = 5 }
    local all = {}
    for batch in set:epoch(2) do all[#all + 1] = batch.ids:clone() end
    for first = 1, #set do
      local at = first
      for batch in set:epoch(2, first) do
        assert.is_true(batch.ids:equal(all[at]))
        at = at + 1
      end
      assert.are.equal(#all + 1, at)
    end
    local other = set_of { bucket = 3, shuffle = true, seed = 5 }
    local first = other:epoch(1)().ids
    local is_alike = table.concat(first.shape, "x") == table.concat(all[1].shape, "x")
    assert.is_false(is_alike and first:equal(all[1]))
  end)

  it("stand beside fields of one item a row, and tensors of more dimensions", function()
    local rows, ids = {}, rows_of(5)
    for i = 1, 5 do rows[i] = neap.full { #ids[i], 2, value = i } end
    local set = data.sequences { ids = ids, x = rows, y = neap.arange(1, 6):to "i64",
      pad = { x = -1 }, bucket = 2, lengths = "n_item", batch = 2 }
    local n = 0
    for batch in set:epoch(1) do
      for r = 1, batch.n do
        local i = batch.y:at(r)
        assert.are.equal(i, batch.x:at(r, 1, 2))
        assert.are.equal(#ids[i], batch.n_item:at(r))
        if #ids[i] < batch.x:size(2) then assert.are.equal(-1, batch.x:at(r, -1, 1)) end
        n = n + 1
      end
    end
    assert.are.equal(5, n)
  end)

  it("that do not fit are refused, with the row", function()
    raises("row 2 of tags has a length of 1, that of ids 2", data.sequences,
      { ids = { { 1 }, { 1, 2 } }, tags = { { 1 }, { 1 } } })
    raises("ids has 2 rows, y 3", data.sequences, { ids = { { 1 }, { 2 } }, y = neap.zeros(3) })
    raises("a row has a length of 2, the last bucket is for 1", data.sequences,
      { ids = { { 1 }, { 1, 2 } }, bucket = { 1 } })
    raises("ascending lengths", data.sequences, { ids = { { 1 } }, bucket = { 4, 2 } })
    raises("row 2 expects a list of numbers or a tensor, got 3", data.sequences,
      { ids = { { 1 }, 3 } })
    raises('pad has "tags"', data.sequences, { ids = { { 1 } }, pad = { tags = 1 } })
    raises('"ids" is a field already', data.sequences, { ids = { { 1 } }, lengths = "ids" })
    raises("expects a list of rows", data.sequences, { y = neap.zeros(3) })
    raises("row 1 has a length of 3, at most 2 are taken", data.pad, { { 1, 2, 3 } },
      { length = 2 })
  end)

  it("are one tensor and their lengths by pad", function()
    local t, lengths = data.pad({ { 1, 2, 3 }, {}, { 4 } }, { value = -1 })
    assert.are.same({ { 1, 2, 3 }, { -1, -1, -1 }, { 4, -1, -1 } }, t:totable())
    assert.are.same({ 3, 0, 1 }, lengths:totable())
    assert.are.equal("i64", t.dtype)
    assert.are.equal("f32", data.pad({ { 0.5 } }).dtype)
  end)

  it("train a tagger in the bytes of the longest, whatever comes first", function()
    local Tagger = nn.module {
      "Tagger",
      init = function(self)
        self.embed, self.rnn = nn.Embedding { 12, 8 }, nn.GRU { 8, 8, bidirectional = true }
        self.out = nn.Linear { 16, 2 }
      end,
      forward = function(self, ids, lengths)
        return self.out(self.rnn(self.embed(ids), lengths))
      end,
    }
    local ids, tags = {}, {} -- a tag says whether the next item is even
    for i = 1, 60 do
      ids[i], tags[i] = {}, {}
      for j = 1, 2 + (i * 5) % 9 do ids[i][j] = (i * i + j * j * 3) % 12 end
      for j = 1, #ids[i] do tags[i][j] = ids[i][j + 1] and ids[i][j + 1] % 2 or 0 end
    end
    local set = data.sequences { ids = ids, y = tags, pad = { y = -1 }, bucket = 3, batch = 12,
      shuffle = true }
    local t <close> = neap.trainer { model = Tagger {}, optimizer = neap.optim.Adam { lr = 0.02 },
      loss = nn.CrossEntropyLoss { ignore_index = -1 }, metrics = "accuracy", seed = 1 }
    t:fit(set, { epochs = 30, verbose = 0 })
    assert.is_true(t:evaluate(set).accuracy > 0.9)
    local n = 0
    for _ in pairs(t.programs) do n = n + 1 end
    assert.is_true(n <= 2 * 2 * 3) -- of a whole and a last batch, for training and not, by bucket
  end)
end)
