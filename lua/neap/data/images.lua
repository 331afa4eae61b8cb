--- Sets of labelled images.
-- @module neap.data.images
local core = require "neap.core"
local set = require "neap.data.set"
local images = {}

local options_of_mnist = set.declare("mnist", {
  is_rows = true,
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

local cifar_paths_option = { "path", "paths", unset = "looked for", doc = "the binary files" }

local options_of_cifar10 = set.declare("cifar10", {
  is_rows = true,
  doc = [[CIFAR-10 in its binary format (Krizhevsky, 2009): x (N,3,32,32) in -1..1, y (N). The whole
    set, or a sample of it where only that is there.]],
  set.split("train", { "train", "test" }), set.limit, cifar_paths_option,
  example = 'neap.data.cifar10 { split = "test", batch = 64 }' })

local options_of_cifar100 = set.declare("cifar100", {
  is_rows = true,
  doc = [[CIFAR-100 in its binary format (Krizhevsky, 2009): x (N,3,32,32) in -1..1, y (N), of 100
    classes, or of the 20 groups of them.]],
  set.split("train", { "train", "test" }), set.limit, cifar_paths_option,
  { "labels", "choice", "fine", choices = { "fine", "coarse" }, doc = "which labels are y" },
  example = 'neap.data.cifar100 { labels = "coarse", batch = 64 }' })

--- The whole set's files where they all are, else the sample of it.
local function cifar10_paths(split)
  -- The test set is one file, the training set five; where one of them is missing, the sample is
  -- taken.
  local names, paths = { "test_batch.bin" }, {}
  for i = 1, split == "train" and 5 or 0 do names[i] = ("data_batch_%d.bin"):format(i) end
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

--- A set of records of `n_label` bytes and 3072 of a picture.
-- @param at integer which of those bytes is the label, from 1
local function cifar(o, paths, n_label, at, n_class)
  local parts, size = {}, n_label + 3072
  for i, path in ipairs(paths) do
    parts[i] = set.must(core.read_bytes(path))
    -- A record is labels and three planes of 32 x 32 bytes.
    if #parts[i] == 0 or #parts[i] % size ~= 0 then
      error(core.error {
        code = "data",
        message = ("%s: %d bytes are no whole number of records of %d"):format(path, #parts[i],
          size),
      })
    end
  end
  local bytes = #parts == 1 and parts[1] or parts[1].concat(parts, { axis = 1 })
  local n = #bytes // size
  local records = bytes:view(n, size)

  -- Copies: the records themselves are not kept.
  local pictures = records:narrow(2, n_label + 1, 3072):clone():view(n, 3, 32, 32)
  local labels = records:select(2, at):clone()
  local most = labels:max():item()
  if most >= n_class then
    error(core.error {
      code = "data",
      message = ("%s: a label of %d, and labels are 0 to %d"):format(paths[1], most, n_class - 1),
    })
  end
  return set.new(o,
    {
      x = { source = pictures, dtype = "f32", scale = 2 / 255, shift = -1 },
      y = { source = labels, dtype = "i64" },
    },
    set.range(math.min(n, o.limit or n)), { n_class = n_class })
end

local function given_paths(o) return type(o.path) == "table" and o.path or { o.path } end

--- CIFAR-10: see the record.
function images.cifar10(given)
  local o = options_of_cifar10:read(given)
  return cifar(o, o.path and given_paths(o) or cifar10_paths(o.split), 1, 1, 10)
end

--- CIFAR-100: see the record.
function images.cifar100(given)
  local o = options_of_cifar100:read(given)
  local name = o.split .. ".bin"
  local paths = o.path and given_paths(o) or {
    set.must_find("CIFAR-100", "https://www.cs.toronto.edu/~kriz/cifar.html (binary version)",
      "cifar-100-binary/" .. name, "cifar100/" .. name .. ".gz", "cifar100/" .. name),
  }
  return cifar(o, paths, 2, o.labels == "fine" and 2 or 1, o.labels == "fine" and 100 or 20)
end

-- ---- folders of pictures ------------------------------------------------------------------------

local options_of_folder = set.declare("image_folder", {
  is_rows = true,
  doc = [[Pictures (PNG, JPEG) in folders, each folder a class: x (N,channels,height,width) in 0..1,
    y (N) the class by the folders' names in order, listed in the set's `classes`. Files are read
    and decoded by the threads that read ahead; one that is damaged is an error that names it.]],
  { "path", "string", required = true, doc = "the folder of the classes' folders" },
  { "size", "sizes", n = 2, min = 1, max = 32768, required = true,
    doc = "height and width of a row, one number for both" },
  { "channels", "choice", 3, choices = { 1, 3 }, doc = "1 grey, 3 colours" },
  { "fit", "choice", "crop", choices = { "crop", "stretch", "pad" },
    doc = [[how a picture of another shape fits: what is over is cut off, each side is scaled for
      itself, or what is missing is black]] },
  set.split("all", { "all", "train", "valid" }), set.holdout,
  { "threads", "integer", unset = "those of Neap, 4 at most", min = 1, max = 64,
    doc = "threads that read ahead" },
  example = 'neap.data.image_folder { path = "pictures", size = 64, batch = 32 }' })

local fits = { crop = 0, stretch = 1, pad = 2 }

--- Paths of the pictures in a folder's folders, the class of each from 0, and the classes' names.
local function list_pictures(path)
  local files, labels, classes = {}, {}, {}
  path = path:gsub("/+$", "")
  local names, message = core.list_folder(path)
  for _, name in ipairs(set.must(names, message)) do
    -- core.list_folder sorts, and marks folders by a slash: so classes have the same numbers on
    -- every machine.
    local class = name:match "^(.*)/$"
    if class then
      classes[#classes + 1] = class
      for _, file in ipairs(set.must(core.list_folder(path .. "/" .. class))) do
        local ending = file:lower():match "%.(%a+)$"
        if ending == "png" or ending == "jpg" or ending == "jpeg" then
          files[#files + 1] = ("%s/%s/%s"):format(path, class, file)
          labels[#labels + 1] = #classes - 1
        end
      end
    end
  end
  if #files == 0 then
    error(core.error {
      code = "data",
      message = path .. ": there are no pictures in its folders",
      expected = "one folder for each class, with .png, .jpg or .jpeg files in it",
    })
  end
  return files, labels, classes
end

--- A folder of pictures: see the record.
-- @return data set with `classes`, `n_class`, `files` (path of each row)
function images.image_folder(given)
  local o = options_of_folder:read(given)
  local files, labels, classes = list_pictures(o.path)
  local height = type(o.size) == "table" and o.size[1] or o.size
  local width = type(o.size) == "table" and (o.size[2] or o.size[1]) or o.size
  o.threads = o.threads or math.min(core.threads(), 4)
  return set.new(o,
    {
      x = { files = files, shape = { o.channels, height, width }, fit = fits[o.fit], dtype = "f32",
        scale = 1 / 255 },
      y = { source = core.tensor(labels, "i64"), dtype = "i64" },
    },
    set.held_out(o, #files), { n_class = #classes, classes = classes, files = files })
end

return images
