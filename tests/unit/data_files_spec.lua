-- Data sets from files of people: pictures in folders, sounds, quoted tables, JSON lines; what is
-- damaged or hostile is an error that names the file and where, and is refused before memory is
-- taken for it.
local neap = require "neap"
local support = require "support"
local raises = support.raises
local data = neap.data

local folder = os.tmpname()
os.remove(folder)
os.execute(("mkdir -p %s/set/cat %s/set/dog"):format(folder, folder))

local function write(name, text)
  local file = assert(io.open(folder .. "/" .. name, "wb"))
  file:write(text)
  file:close()
  return folder .. "/" .. name
end

local function read(path)
  local file <close> = assert(io.open(path, "rb"))
  return file:read "a"
end

--- A picture whose left half is dark and whose right half is bright, of one colour in `channel`.
local function halves(height, width, channel)
  local x = neap.zeros { 3, height, width, dtype = "u8" }
  x[channel]:narrow(2, width // 2 + 1, width - width // 2):fill_(200)
  return x
end

for i = 1, 4 do
  assert(neap.save(("%s/set/cat/%d.png"):format(folder, i), halves(10 + i, 20, 1)))
  assert(neap.save(("%s/set/dog/%d.jpg"):format(folder, i), halves(16, 16 + 2 * i, 3)))
end
write("set/dog/notes.txt", "no picture")

--- All x and y of an epoch.
local function all(set, k)
  local list = {}
  for batch in set:epoch(k or 1) do
    list[#list + 1], list[#list + 2] = batch.x:clone(), batch.y:clone()
  end
  return list
end

local function same(a, b)
  assert.are.equal(#a, #b)
  for i, t in ipairs(a) do assert.is_true(t:equal(b[i]), "tensor " .. i) end
end

-- The last one removes the folder that all of them write to.
describe("a picture", function()
  it("is written and read again, PNG to the bit and JPEG nearly", function()
    for _, shape in ipairs { { 1, 5, 7 }, { 3, 8, 16 } } do
      local x = (neap.rand(table.unpack(shape)) * 255):to "u8"
      local path = folder .. "/x.png"
      assert(neap.save(path, x))
      assert.is_true(neap.load(path):equal(x))
    end
    local smooth = halves(32, 32, 2)
    local path = folder .. "/x.jpg"
    assert(neap.save(path, smooth))
    local back = neap.load(path)
    assert.are.same({ 3, 32, 32 }, back.shape)
    assert.is_true((back:to "f32" - smooth:to "f32"):abs():mean():item() < 6)
    assert(smooth:image(folder .. "/small.jpeg", { quality = 5 }))
    assert.is_true(#read(folder .. "/small.jpeg") < #read(path))
  end)
  it("is told by its bytes, whatever its name", function()
    local path = write("named.bin", read(folder .. "/set/cat/1.png"))
    assert.are.same({ 3, 11, 20 }, neap.load(path).shape)
    local t, message, code = neap.load(write("empty.png", "no picture at all"))
    assert.is_nil(t)
    assert.are.equal("data", code)
    assert.is_truthy(message:find("neither a PNG nor a JPEG", 1, true), message)
  end)
  it("that is cut short anywhere is an error", function()
    for _, name in ipairs { "set/cat/1.png", "set/dog/1.jpg" } do
      local whole = read(folder .. "/" .. name)
      for _, n in ipairs { 3, 4, 20, 60, #whole // 2, #whole - 20 } do
        local t, message = neap.load(write("cut" .. name:match "%.%w+$", whole:sub(1, n)))
        assert.is_nil(t, n)
        assert.is_string(message)
      end
    end
  end)
  it("that says it is larger than its bytes can be is refused before memory is taken", function()
    local whole = read(folder .. "/set/cat/1.png")
    local huge = string.pack(">I4I4", 60000, 60000)
    local header = "IHDR" .. huge .. whole:sub(25, 29)
    local crc = 0xffffffff
    for i = 1, #header do
      crc = crc ~ header:byte(i)
      for _ = 1, 8 do crc = crc & 1 == 1 and (crc >> 1) ~ 0xedb88320 or crc >> 1 end
    end
    local text = whole:sub(1, 12) .. header .. string.pack(">I4", crc ~ 0xffffffff)
      .. whole:sub(34)
    local t, message = neap.load(write("huge.png", text))
    assert.is_nil(t)
    assert.is_truthy(message:find("at most 2^28 pixels", 1, true)
      or message:find("hold no picture", 1, true), message)
    local jpeg = read(folder .. "/set/dog/1.jpg")
    local at = jpeg:find("\xff\xc0", 1, true)
    jpeg = jpeg:sub(1, at + 4) .. string.pack(">I2I2", 16000, 16000) .. jpeg:sub(at + 9)
    t, message = neap.load(write("huge.jpg", jpeg))
    assert.is_nil(t)
    assert.is_truthy(message:find("hold no picture", 1, true), message)
  end)
  it("says what it is made of", function()
    raises("a picture is a u8 tensor", neap.save, folder .. "/x.png", neap.rand(3, 4, 4))
    raises("a picture is a u8 tensor", neap.save, folder .. "/x.png",
      neap.zeros { 4, 4, 4, dtype = "u8" })
    raises("quality expects an integer from 1 to 100", function()
      neap.rand(2, 2):image(folder .. "/x.jpg", { quality = 0 })
    end)
    raises("only a .safetensors file holds metadata", neap.save, folder .. "/x.png",
      neap.zeros { 4, 4, dtype = "u8" }, { meta = { a = "b" } })
  end)
end)

describe("a folder of pictures", function()
  it("is a set of classes, the same on any number of threads", function()
    local function set(threads)
      return data.image_folder { path = folder .. "/set/", size = { 6, 8 }, batch = 3,
        shuffle = true, threads = threads, transform = {
          data.random_crop { { 6, 8 }, pad = 2 }, data.flip(), data.rotate(), data.jitter(),
          data.mixup { 0.4 }, data.cutmix() } }
    end
    local one = set(1)
    assert.are.same({ "cat", "dog" }, one.classes)
    assert.are.same({ 3, 3, 6, 8 }, one:spec().x.shape)
    assert.are.same({ shape = { 3, 2 }, dtype = "f32" }, one:spec().y)
    assert.are.equal(8, one:spec().n)
    for _, threads in ipairs { 2, 5 } do same(all(one, 2), all(set(threads), 2)) end
    local batches = all(one, 2)
    local rest = {}
    for batch in one:epoch(2, 2) do
      rest[#rest + 1], rest[#rest + 2] = batch.x:clone(), batch.y:clone()
    end
    same(table.move(batches, 3, 6, 1, {}), rest)
    assert.is_false(batches[1]:equal(all(one, 1)[1]))
  end)
  it("fits pictures into rows as it is told", function()
    local function first(fit, channels)
      local set = data.image_folder { path = folder .. "/set", size = 8, batch = 8, fit = fit,
        channels = channels }
      local x = all(set)[1]
      return x[1]
    end
    local crop, stretch, pad = first "crop", first "stretch", first "pad"
    assert.is_true(crop[1][4][1] == 0 and math.abs(crop[1][4][8] - 200 / 255) < 1e-5)
    assert.is_true(math.abs(stretch[1][8][8] - 200 / 255) < 1e-5)
    assert.are.equal(0, pad[1][1][8]) -- the margin above
    assert.is_true(math.abs(pad[1][4][8] - 200 / 255) < 1e-5)
    -- red is 0.299 of grey
    assert.is_true(math.abs(first("crop", 1)[1][4][8] - 200 * 0.299 / 255) < 0.003)
  end)
  it("names the file that is damaged, and goes on to nothing", function()
    write("set/dog/9.png", "no picture")
    local set = data.image_folder { path = folder .. "/set", size = 8, batch = 2, threads = 3 }
    local seen = 0
    raises("set/dog/9.png: is neither", function()
      for _ in set:epoch(1) do seen = seen + 1 end
    end)
    assert.are.equal(4, seen)
    os.remove(folder .. "/set/dog/9.png")
  end)
  it("has parts, and says what is wrong with it", function()
    local o = { path = folder .. "/set", size = 8, split = "train", holdout = 0.25 }
    assert.are.equal(6, data.image_folder(o):spec().n)
    o.split = "valid"
    assert.are.equal(2, data.image_folder(o):spec().n)
    local train, valid = data.image_folder { path = folder .. "/set", size = 8 }
      :split({ 0.5, 0.5 }, { stratify = "y" })
    assert.are.equal(4, train:spec().n)
    assert.are.equal(4, valid:spec().n)
    raises("there are no pictures in its folders", data.image_folder, { path = "src", size = 8 })
    raises("no folder that can be read", data.image_folder, { path = folder .. "/none", size = 8 })
    raises("size expects", data.image_folder, { path = folder })
  end)
end)

describe("a transform", function()
  local x = neap.arange(0, 2 * 3 * 4 * 4):to("f32"):view(2, 3, 4, 4)
  local function rows(list, o)
    o = o or {}
    o.x, o.batch, o.transform = x, 2, list
    return data.tensors(o)
  end
  local function first(list, o) return rows(list, o):epoch(1)().x:clone() end

  it("does what it says, to the value", function()
    assert.is_true(first { data.crop { 2 } }:equal(x:narrow(3, 2, 2):narrow(4, 2, 2)))
    assert.is_true(first { data.flip { 1 } }:equal(x:flip { axes = { 4 } }))
    assert.is_true(first { data.flip { 0, 1 } }:equal(x:flip { axes = { 3 } }))
    assert.is_true(first { data.resize { 4 } }:equal(x))
    -- triangles over four pixels each, cut off at the sides: 3/7, 3/7, 1/7
    local weights = neap.tensor { { 3 / 7, 3 / 7, 1 / 7, 0 }, { 0, 1 / 7, 3 / 7, 3 / 7 } }
    local small = weights:matmul(x):matmul(weights:transpose(1, 2))
    assert.is_true(first { data.resize { 2 } }:close(small, { atol = 1e-4 }))
    assert.is_true(first { data.rotate { 0 } }:close(x, { atol = 1e-4 }))
    assert.is_true(first { data.jitter { 0, 0, 0 } }:close(x, { atol = 1e-4 }))
    assert.is_true(first { data.random_crop { 4 } }:equal(x))
    assert.is_true(first { data.normalise { 1, 2 } }:close((x - 1) / 2, { atol = 1e-6 }))
    local moments = rows({}):moments()
    local y = first { data.normalise(moments) }
    assert.is_true(y:mean { axes = { 1, 3, 4 } }:abs():max():item() < 1e-5)
    assert.is_true((y:square():mean { axes = { 1, 3, 4 } } - 1):abs():max():item() < 1e-5)
  end)
  it("keeps a constant picture as it is, however it is resized or turned", function()
    local set = data.tensors { x = neap.full { 1, 2, 13, 9, value = 3 }, transform = {
      data.random_resized_crop { { 7, 11 } }, data.rotate { 45, fill = 3 }, data.resize { 5 } } }
    for k = 1, 5 do
      local s = set:epoch(k)().x:stats()
      assert.is_true(math.abs(s.min - 3) < 1e-5 and math.abs(s.max - 3) < 1e-5)
    end
  end)
  it("mixes targets as it mixes rows", function()
    local pictures = neap.zeros(6, 1, 8, 8)
    for i = 1, 6 do pictures[i]:fill_(i - 1) end
    for _, mix in ipairs { data.mixup { 1 }, data.cutmix { 1 } } do
      local set = data.tensors { x = pictures, y = neap.arange(0, 6):to "i64", batch = 6,
        transform = { mix } }
      for k = 1, 4 do
        local batch = set:epoch(k)()
        -- a row's mean is what its probabilities say
        local expected = batch.y:matmul(neap.arange(0, 6):to("f32"):view(6, 1)):view(6)
        assert.is_true(batch.x:mean({ axes = { 2, 3, 4 } }):close(expected, { atol = 1e-4 }))
        assert.is_true(batch.y:sum({ axes = { 2 } }):close(neap.ones(6), { atol = 1e-6 }))
      end
      assert.are.same({ shape = { 6, 6 }, dtype = "f32" }, set:plain():spec().y)
      assert.are.same({ 0, 0, 1, 0, 0, 0 }, set:plain():epoch(1)().y[3]:totable())
      local model = neap.nn.Sequential { neap.nn.Flatten(), neap.nn.Linear { 64, 6 } }
      local t <close> = neap.trainer { model = model, metrics = "accuracy",
        optimizer = neap.optim.SGD { lr = 0.001 } }
      t:fit(set, { verbose = 0, valid = set:plain() })
    end
  end)
  it("is drawn anew each epoch, follows the seed, and is not drawn by plain()", function()
    local function epochs(set) return { set:epoch(1)().x:clone(), set:epoch(2)().x:clone() } end
    local list = { data.random_crop { 4, pad = 3 } }
    local a, b = epochs(rows(list)), epochs(rows(list))
    same(a, b)
    assert.is_false(a[1]:equal(a[2]))
    assert.is_false(a[1]:equal(epochs(rows(list, { seed = 2 }))[1]))
    local plain = rows({ data.random_crop { 2 }, data.flip() }):plain()
    assert.is_true(plain:epoch(1)().x:equal(x:narrow(3, 2, 2):narrow(4, 2, 2)))
  end)
  it("is of rows that a function makes, too", function()
    local set = data.from { n = 4, batch = 3, x = { 1, 2, 2 }, transform = { data.flip { 1 } },
      get = function(i, slot) slot.x:copy_(neap.arange(0, 4):to("f32"):view(1, 2, 2) + i) end }
    local list = {}
    for batch in set:epoch(1) do list[#list + 1] = batch.x:clone() end
    assert.are.same({ 2, 1, 4, 3 }, list[1][1]:reshape(-1):totable())
    assert.are.same({ 5, 4, 7, 6 }, list[2]:reshape(-1):totable())
  end)
  it("says what is wrong", function()
    raises("can't be had from", rows, { data.crop { 5 } })
    raises("can't be had from", rows, { data.random_crop { 9, pad = 2 } })
    for _, t in ipairs { data.flip { across = 1 }, data.rotate(), data.crop { 1 },
      data.random_crop { 2 }, data.resize { 1 }, data.random_resized_crop { 1 } } do
      raises("got rows (4), which have no sides", data.tensors,
        { x = neap.zeros(2, 4), batch = 2, transform = { t } })
    end
    raises("transform expects transforms", rows, { "flip" })
    raises("transform expects transforms", rows, { data.flip })
    raises("rows are mixed last", rows, { data.mixup(), data.flip() },
      { y = neap.zeros { 2, dtype = "i64" } })
    raises("there is no y", rows, { data.mixup() })
    raises('say { of = "x"', rows, { data.flip(), of = "image" })
    raises("2 means and 1 dev", function() data.normalise { { 1, 2 }, std = 3 } end)
    raises("expects 6 numbers for rows of 3 channels", rows,
      { data.normalise { { 1, 2 }, { 3, 4 } } })
    raises("can't be 0", rows, { data.normalise { 1, 0 } })
    raises("transforms are of floats", data.tensors, { x = neap.zeros { 2, 2, dtype = "i64" },
      transform = { data.flip() } })
    raises('unknown field "transform"', data.chars, { path = "x", transform = {} })
    raises("labels are 0 to 9", data.cifar10, { path = write("c.bin", "\200" .. ("x"):rep(3072)) })
  end)
end)

describe("CIFAR-100", function()
  it("has fine and coarse labels", function()
    local path = write("c100.bin",
      "\3\77" .. ("\0"):rep(3072) .. "\19\99" .. ("\255"):rep(3072))
    local fine = data.cifar100 { path = path, batch = 2, shuffle = false }:epoch(1)()
    assert.are.same({ 77, 99 }, fine.y:totable())
    assert.are.equal(-1, fine.x[1][1][1][1])
    assert.are.equal(1, fine.x[2][3][32][32])
    local coarse = data.cifar100 { path = path, labels = "coarse", shuffle = false }
    assert.are.equal(3, coarse:epoch(1)().y[1])
    assert.are.equal(20, coarse.n_class)
    raises("no whole number of records of 3074", data.cifar100, { path = write("c.bin", "123") })
  end)
end)

describe("a sound", function()
  it("is written and read again in every depth", function()
    local x = (neap.rand(2, 100) * 2 - 1)
    local path = folder .. "/a.wav"
    local depths = { ["8"] = 0.008, ["16"] = 4e-5, ["24"] = 2e-7, ["32"] = 1e-7, float = 0 }
    for bits, most in pairs(depths) do
      assert(neap.save(path, x, { meta = { rate = "16000", bits = bits } }))
      local y, meta = neap.load(path)
      assert.are.equal("16000", meta.rate)
      assert.are.same({ 2, 100 }, y.shape)
      assert.is_true((x - y):abs():max():item() <= most, bits)
    end
    local whole = read(path)
    for _, n in ipairs { 13, 30, 43, #whole - 8 } do
      assert.is_nil((neap.load(write("cut.wav", whole:sub(1, n)))), n)
    end
    raises("needs its rate", neap.save, path, x)
    raises('bits expects "8"', neap.save, path, x, { meta = { rate = "8000", bits = "12" } })
    raises('not "title"', neap.save, path, x, { meta = { rate = "8000", title = "x" } })
    raises("a sound is an f32 tensor", neap.save, path, x:to "i64", { meta = { rate = "8000" } })
  end)
end)

describe("a table with quotes", function()
  it("is read as RFC 4180 says", function()
    local set = data.csv { path = write("q.csv",
      'name,"a ""x"", b",c\r\n"two\nlines",1,2\r\n"say ""hi""", 3 ,4\r\n,5,6'), y = "name" }
    assert.are.same({ "", 'say "hi"', "two\nlines" }, set.classes)
    assert.are.same({ 'a "x", b', "c" }, set.columns)
    assert.are.same({ 1, 2 }, set:epoch(1)().x[1]:totable())
    assert.are.equal(3, set:spec().n)
    assert.are.equal(1, #data.csv { path = write("t.csv", "1\t2\n"), separator = "\t" })
    raises({ "is the only one, separated by \",\"", 'separator = ";"' }, data.csv,
      { path = write("t.csv", "a;b;c\n1;2;3\n") })
    raises("y = false", data.csv, { path = write("t.csv", "1\n2\n") })
    assert.are.equal(2, data.csv { path = write("t.csv", "1\n2\n"), y = false }:spec().n)
  end)
  it("says where a quote is wrong", function()
    raises("line 2: a quote within a cell", data.csv, { path = write("q.csv", '1,2\n3,4"5\n') })
    raises("the file ends within quotes", data.csv, { path = write("q.csv", '1,2\n"3,4\n') })
    raises("line 4 has 1 cells, expected 2", data.csv, { path = write("q.csv", '"1\n\n2",2\n3\n') })
    raises("one character", data.csv, { path = write("q.csv", "1,2\n"), separator = ", " })
    raises("not separated by quotes", data.csv, { path = write("q.csv", "1,2\n"), separator = '"' })
  end)
end)

describe("JSON lines", function()
  it("are rows of named fields", function()
    local path = write("a.jsonl",
      '{"id":1,"v":[1,2.5],"kind":"b","on":true}\n\n{"on":false,"id":2,"v":[3,4],"kind":"a"}\n')
    local set = data.jsonl { path = path, batch = 2, fields = { x = "v", y = "kind", "id", "on" } }
    local batch = set:epoch(1)()
    assert.are.same({ { 1, 2.5 }, { 3, 4 } }, batch.x:totable())
    assert.are.same({ 1, 0 }, batch.y:totable())
    assert.are.same({ 1, 2 }, batch.id:totable())
    assert.are.same({ 1, 0 }, batch.on:totable())
    assert.are.equal("i64", batch.id.dtype)
    assert.are.same({ "a", "b" }, set.classes.y)
    assert.are.equal(2, set.n_class)
    path = write("b.jsonl", '{"ids":[1,2,3],"y":0}\n{"ids":[4],"y":1}\n')
    batch = data.jsonl { path = path, batch = 2, pad = 9 }:epoch(1)()
    assert.are.same({ { 1, 2, 3 }, { 4, 9, 9 } }, batch.ids:totable())
    assert.are.same({ 3, 1 }, batch.lengths:totable())
  end)
  it("say the line that is wrong", function()
    local function fails(words, text, o)
      o = o or {}
      o.path = write("w.jsonl", text)
      raises(words, data.jsonl, o)
    end
    fails("line 2: ", '{"x":[1]}\n{"x":[1}\n')
    fails('line 2: there is no "value", did you mean "valu"', '{"value":1}\n{"valu":1}\n')
    fails('line 2: "x" is a word here', '{"x":1}\n{"x":"a"}\n')
    fails("line 1: expects an object", '3\n')
    fails("is null", '{"x":null}\n')
    fails("no rows", "\n\n")
  end)
  teardown(function() os.execute("rm -r " .. folder) end)
end)
