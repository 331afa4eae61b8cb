--- Sets of labelled images.
-- @module neap.data.images
local core = require "neap.core"
local set = require "neap.data.set"
local images = {}

local options_of_mnist = set.declare("mnist", {
  doc = "MNIST (LeCun et al., 1998): x (N,1,28,28) in 0..1, y (N) digits.",
  set.split("train", { "train", "test" }), set.limit,
  example = 'neap.data.mnist { split = "train", batch = 64 }' })

--- MNIST: see the record.
function images.mnist(given)
  local o = options_of_mnist:read(given)
  local stem = o.split == "train" and "train" or "t10k"
  local function part(kind)
    local file = stem .. "-" .. kind
    return set.must_find("MNIST",
      "https://github.com/cvdfoundation/mnist or yann.lecun.com/exdb/mnist",
      "mnist/" .. file .. ".gz", "mnist/" .. file, file .. ".gz", file)
  end
  local images = set.must(core.read_idx(part "images-idx3-ubyte"))
  local labels = set.must(core.read_idx(part "labels-idx1-ubyte"))
  local n = #images
  if #labels ~= n then
    error(core.error {
      code = "data",
      message = ("MNIST: %d images, %d labels"):format(n, #labels),
    })
  end
  images = images:view(n, 1, images:size(2), images:size(3))
  return set.new(o,
    {
      x = { source = images, dtype = "f32", scale = 1 / 255 },
      y = { source = labels, dtype = "i64" },
    },
    set.range(math.min(n, o.limit or n)), { n_class = 10 })
end

local options_of_cifar10 = set.declare("cifar10", {
  doc = [[CIFAR-10 in its binary format (Krizhevsky, 2009): x (N,3,32,32) in -1..1, y (N). The whole
    set, or a sample of it where only that is there.]],
  set.split("train", { "train", "test" }), set.limit,
  { "path", "paths", unset = "looked for", doc = "the binary files" },
  example = 'neap.data.cifar10 { split = "test", batch = 64 }' })

--- The whole set's files where they all are, else the sample of it.
local function cifar_paths(names, split)
  local paths = {}
  for i, name in ipairs(names) do
    paths[i] = set.find("cifar-10-batches-bin/" .. name, "cifar10/" .. name .. ".gz",
      "cifar10/" .. name)
    if not paths[i] then
      local sample = split == "train" and "cifar10/cifar10_train_first2000.bin"
        or "cifar10/cifar10_test_first1000.bin"
      return {
        set.must_find("CIFAR-10", "https://www.cs.toronto.edu/~kriz/cifar.html (binary version)",
          "cifar-10-batches-bin/" .. name, sample .. ".gz", sample),
      }
    end
  end
  return paths
end

--- CIFAR-10: see the record.
function images.cifar10(given)
  local o = options_of_cifar10:read(given)
  local names = o.split == "test" and { "test_batch.bin" }
    or {
      "data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
      "data_batch_5.bin",
    }
  local paths = o.path and (type(o.path) == "table" and o.path or { o.path })
    or cifar_paths(names, o.split)
  local parts = {}
  for i, path in ipairs(paths) do
    parts[i] = set.must(core.read_bytes(path)) -- records of 1 + 3072 bytes
    if #parts[i] == 0 or #parts[i] % 3073 ~= 0 then
      error(core.error {
        code = "data",
        message = ("%s: %d bytes are no whole number of records of 3073"):format(path, #parts[i]),
      })
    end
  end
  local bytes = #parts == 1 and parts[1] or parts[1].concat(parts, { axis = 1 })
  local n = #bytes // 3073
  local records = bytes:view(n, 3073)
  local images = records:narrow(2, 2, 3072):clone():view(n, 3, 32, 32)
  local labels = records:select(2, 1):clone()
  return set.new(o,
    {
      x = { source = images, dtype = "f32", scale = 2 / 255, shift = -1 },
      y = { source = labels, dtype = "i64" },
    },
    set.range(math.min(n, o.limit or n)), { n_class = 10 })
end

return images
