-- Data sets: what batches hold, orders that a seed fixes, files that are there, missing or wrong.
local neap = require "neap"
local raises = require("support").raises
local data = neap.data

local function write(text, ending)
  local path = os.tmpname()
  local file = assert(io.open(path .. (ending or ""), "wb"))
  file:write(text)
  file:close()
  if ending then os.remove(path) end
  return path .. (ending or "")
end

--- All values of y, batch by batch.
local function all(set, k, first)
  local list = {}
  for batch in set:epoch(k or 1, first) do
    for i = 1, batch.n do list[#list + 1] = batch.y[i] end
  end
  return list
end

local function counted(o)
  o.x, o.y = neap.arange(0, 20):to("f32"):view(10, 2), neap.arange(0, 10):to "i64"
  return data.tensors(o)
end

describe("a data set", function()
  it("gives every row once an epoch, in an order that seed and epoch fix", function()
    local a = counted { batch = 4, shuffle = true, seed = 5 }
    local b = counted { batch = 4, shuffle = true, seed = 5 }
    assert.are.same(all(a, 1), all(b, 1))
    assert.are_not.same(all(a, 1), all(a, 2))
    assert.are_not.same(all(a, 1), all(counted { batch = 4, shuffle = true, seed = 6 }, 1))
    local sorted = all(a, 3)
    table.sort(sorted)
    assert.are.same({ 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 }, sorted)
  end)
  it("can begin an epoch in its middle", function()
    local set = counted { batch = 4, shuffle = true }
    local whole = all(set, 2)
    assert.are.same(table.move(whole, 5, #whole, 1, {}), all(set, 2, 2))
    assert.are.same({}, all(set, 2, 4))
  end)
  it("runs or drops a last, smaller batch", function()
    local run, drop = counted { batch = 4 }, counted { batch = 4, last = "drop" }
    assert.are.equal(3, #run)
    assert.are.equal(2, #drop)
    assert.are.equal(10, #all(run))
    assert.are.equal(8, #all(drop))
  end)
  it("says what its batches look like", function()
    local spec = counted({ batch = 4 }):spec()
    assert.are.same({ shape = { 4, 2 }, dtype = "f32" }, spec.x)
    assert.are.same({ shape = { 4 }, dtype = "i64" }, spec.y)
    assert.are.equal(10, spec.n)
  end)
  it("maps batches", function()
    local set = counted { batch = 5, map = function(b) return { x = b.x * 2, y = b.y } end }
    for batch in set:epoch(1) do
      assert.are.equal(5, batch.n)
      assert.are.equal(2 * 2 * batch.y[1], batch.x[1][1])
    end
  end)
  it("ends its thread when a loop is left early", function()
    local set = counted { batch = 1 }
    for _ = 1, 200 do
      for _ in set:epoch(1) do break end -- luacheck: ignore
    end
  end)
  it("says what is wrong", function()
    raises('did you mean "shuffle"?', data.tensors, { x = neap.ones(2, 2), shufle = true })
    raises("batch expects", data.tensors, { x = neap.ones(2, 2), batch = 0 })
    raises('last expects "run" or "drop"', data.tensors, { x = neap.ones(2, 2), last = "keep" })
    raises("x has 2 rows, y 3", data.tensors, { x = neap.ones(2, 2), y = neap.ones(3) })
    raises('did you mean "mnist"?', function() return data.minst end)
    raises('shuffle expects true or false, got "yes"', data.tensors,
      { x = neap.ones(2, 2), shuffle = "yes" })
    raises("shuffle expects true or false, got 1", data.from,
      { n = 2, x = {}, get = print, shuffle = 1 })
  end)
  it("counts epochs and batches from 1", function()
    for _, set in ipairs {
      data.tensors { x = neap.ones(4, 2) }, data.from { n = 4, x = { 2 }, get = function() end },
    } do
      raises("epoch's number, from 1, got 0", function() set:epoch(0) end)
      raises("epoch's number, from 1, got 1.5", function() set:epoch(1.5) end)
      raises("epoch's number, from 1, got x", function() set:epoch "x" end)
      raises("first batch, from 1, got 0", function() set:epoch(1, 0) end)
      assert.is_truthy(set:epoch()())
    end
  end)
end)

describe("rows from Lua", function()
  it("are filled one by one in the batch", function()
    local set = data.from {
      n = 5,
      batch = 2,
      x = { 3 },
      y = { dtype = "i64" },
      get = function(i, slot)
        slot.x:fill_(i)
        slot.y:fill_(10 * i)
      end,
    }
    assert.are.equal(3, #set)
    assert.are.same({ 10, 20, 30, 40, 50 }, all(set))
    for batch in set:epoch(1) do assert.are.equal(batch.y[1], 10 * batch.x[1][3]) end
    assert.are.same({ shape = { 2, 3 }, dtype = "f32" }, set:spec().x)
  end)
end)

describe("a row's function", function()
  local function first(get)
    return function() data.from { n = 2, batch = 2, x = { 2 }, get = get }:epoch(1)() end
  end

  it("returns nothing", function()
    raises("returned a userdata", first(function() return neap.ones(2) end))
    raises("returned a table", first(function() return { x = { 1, 2 } } end))
  end)
  it("sets no field of its slot", function()
    raises("sets slot.x, which the batch does not see",
      first(function(_, slot) slot.x = neap.ones(2) end))
    raises("sets slot.z, and a row has x", first(function(_, slot) slot.z = 1 end))
    raises("write into it: slot.x:copy_", first(function(_, s) s.x = neap.ones(2) end))
  end)
  it("finds and writes what a row has", function()
    first(function(_, slot)
      assert.is_nil(slot.z)
      for name, view in pairs(slot) do assert.are.equal(slot[name], view) end
      return slot.x:copy_(neap.ones(2))
    end)()
  end)
end)

describe("characters that a vocabulary lacks", function()
  it("are an error that names them, or the number that `unknown` says", function()
    local path = write "hello world"
    local set = data.text { path = path, length = 5 }
    raises('the character "z" at position 3', function() set.encode "hez" end)
    raises("expects a text", function() set.encode() end)
    raises("999 at position 2", function() set.decode { 1, 999 } end)
    raises("-1 at position 1", function() set.decode { -1 } end)
    assert.are.equal("he", set.decode(neap.tensor(set.encode "he", "i64")))
    assert.are.equal("he", set:decode(set:encode "he"))
    assert.are.equal("he", (set:split { 0.5 }):decode(set.encode "he"))
    raises("decode takes one value, got 2", function() set.decode({ 1 }, { 2 }) end)
    raises('the character "w" at position 7', data.text, {
      path = path, length = 5, vocabulary = { "h", "e", "l", "o", " ", "]", "%", "^" },
    })
    local small = data.text {
      path = path, length = 5, vocabulary = { "?", "h", "e", "l", "o", " " }, unknown = 0,
    }
    assert.are.same({ 0, 2, 0 }, small.encode "wed")
    raises("unknown expects a number of the vocabulary, 0 to 0", data.text, {
      path = path, length = 5, vocabulary = { "h" }, unknown = 7,
    })
    local lines = data.chars { path = path }
    raises('the character "z" at position 1', function() lines.encode "z" end)
    raises("999 at position 1", function() lines.decode { 999 } end)
    assert.are.equal("he", lines.decode(lines.encode "he"))
    raises("is not in the vocabulary", data.chars, { path = path, vocabulary = { "h", "e" } })
    assert.are.equal(2,
      data.chars { path = path, vocabulary = { "h", "e" }, unknown = 2 }:epoch(1)().x[1][3])
    os.remove(path)
  end)
end)

describe("text", function()
  it("is windows of numbered characters, y one later", function()
    local path = write "hello world, hello again"
    local set = data.text { path = path, length = 5, batch = 2 }
    for batch in set:epoch(1) do
      for r = 1, batch.n do
        local x, y = batch.x[r]:totable(), batch.y[r]:totable()
        assert.are.same(table.move(x, 2, 5, 1, {}), table.move(y, 1, 4, 1, {}))
      end
    end
    assert.are.equal("hello", set.decode(set.encode "hello"))
    raises("too few", data.text, { path = path, length = 500 })
    os.remove(path)
    raises(path, data.text, { path = path, length = 5 })
  end)
  it("by lines begins with 0, ends with 0 and is ignored after", function()
    local path = write "ab\nc\nabc\n"
    local set = data.chars { path = path, batch = 3 }
    assert.are.equal(4, set.n_class)
    for batch in set:epoch(1) do
      assert.are.same({ { 0, 1, 2, 0 }, { 0, 3, 0, 0 }, { 0, 1, 2, 3 } }, batch.x:totable())
      assert.are.same({ { 1, 2, 0, -1 }, { 3, 0, -1, -1 }, { 1, 2, 3, 0 } }, batch.y:totable())
    end
    os.remove(path)
  end)
end)

describe("csv", function()
  it("reads numbers and words, with or without a header", function()
    local path = write("a,b,kind\n1,2.5,cat\n3,4,dog\n5,6,cat\n", ".csv")
    local set = data.csv { path = path, batch = 3 }
    assert.are.same({ "cat", "dog" }, set.classes)
    assert.are.same({ "a", "b" }, set.columns)
    assert.are.same({ 0, 1, 0 }, all(set))
    assert.are.same({ shape = { 3, 2 }, dtype = "f32" }, set:spec().x)
    local value = data.csv { path = path, x = "b", y = "a", dtype = "f32" }
    assert.are.same({ 1, 3, 5 }, all(value))
    raises('did you mean "kind"?', data.csv, { path = path, y = "knd" })
    raises('"cat" is not a number', data.csv, { path = path, y = "a" })
    os.remove(path)
    path = write("1,2\n3\n", ".csv")
    raises("line 2 has 1 cells, expected 2", data.csv, { path = path })
    os.remove(path)
    raises("looked for", data.csv, { path = "no/such.csv" })
  end)
  it("splits rows without losing any", function()
    local path = data.find "tabular/iris.csv"
    if not path then return pending "iris.csv is absent" end
    local train = data.csv { path = path, split = "train" }
    local valid = data.csv { path = path, split = "valid" }
    assert.are.equal(150, train:spec().n + valid:spec().n)
    assert.are.equal(3, train.n_class)
    local seen = {}
    for _, row in ipairs(train.rows) do seen[row] = true end
    for _, row in ipairs(valid.rows) do assert.is_nil(seen[row]) end
  end)
end)

describe("images", function()
  it("of MNIST are in 0..1 with their digits", function()
    if not data.find "mnist/t10k-images-idx3-ubyte.gz" then return pending "MNIST is absent" end
    local set = data.mnist { split = "test", batch = 100, limit = 250 }
    assert.are.equal(3, #set)
    for batch in set:epoch(1) do
      local s = batch.x:stats()
      assert.is_true(s.min >= 0 and s.max <= 1 and s.max > 0.9)
      assert.is_true(batch.y:max():item() <= 9)
    end
    assert.are.same({ 7, 2, 1, 0, 4 }, table.move(all(set), 1, 5, 1, {})) -- how the test set begins
  end)
  it("of CIFAR-10 are in -1..1", function()
    if not data.find "cifar10/cifar10_test_first1000.bin.gz" then
      return pending "CIFAR-10 is absent"
    end
    local set = data.cifar10 { split = "test", batch = 50, limit = 100 }
    assert.are.same({ 50, 3, 32, 32 }, set:spec().x.shape)
    assert.are.equal(3, all(set)[1]) -- a cat
    raises('split expects "train" or "test"', data.cifar10, { split = "valid" })
  end)
  it("that are missing say where they were looked for", function()
    local sets = require "neap.data.set"
    local find = sets.find
    local guard <close> = setmetatable({}, { __close = function() sets.find = find end })
    sets.find = function() return nil, { "data/mnist/x" } end
    raises("MNIST is missing; looked for data/mnist/x", data.mnist, {})
    raises("NEAP_DATA", data.mnist, {})
  end)
end)
