--- What Caffe's data layers do to pictures before the net sees them, and the data sets that they
-- name which Neap has, too.
-- @module neap.caffe.data
local core = require "neap.core"
local kit = require "neap.caffe.kit"
local known = require "neap.caffe.inputs_known"

local data = {}

--- The first layer of a phase that reads data from files.
local function layer_of(part, phase)
  for _, row in ipairs(part and part.rows or {}) do
    if known.readers[row.type] and #row.bottoms == 0 then return row end
  end
  core.fail(("phase %s of the net has no data layer"):format(phase))
end

-- ---- transformations ----------------------------------------------------------------------------

--- The mean of a file: (C,H,W).
local function mean_of(path)
  local file, message, code = core.read_binaryproto(path)
  if not file then kit.fail { code = code, message = message } end
  -- A mean of one picture, perhaps with a batch of 1 in front.
  local t = file.layers[1].blobs[1]:to "f32"
  return t:reshape(table.unpack(t.shape, math.max(#t.shape - 2, 1)))
end

--- What a layer's transform_param says.
local function settings_of(row)
  local t = row.message:message "transform_param"
  local s = { scale = t:number("scale", 1), crop = t:size("crop_size", 0, 0),
    mirror = t:flag("mirror", false), values = t:numbers "mean_value", file = t:text "mean_file" }
  if s.file and #s.values > 0 then t:fail "both mean_file and mean_value are given" end
  return s
end

--- The part of a picture (C,H,W), or of its mean, from a row and a column on.
local function part_of(x, top, left, size)
  return x:narrow(2, top, size):narrow(3, left, size)
end

--- One picture: random in TRAIN, the middle in TEST. `drawn` are three numbers from 0 to 1.
local function picture(x, s, mean, is_training, drawn)
  local size = s.crop

  -- A mean picture is cut at the same place; one number for each channel is not.
  if size > 0 then
    local rows, columns = x.shape[2] - size, x.shape[3] - size
    if rows < 0 or columns < 0 then
      core.fail(("a picture of (%s), of which %d by %d is cut out"):format(
        table.concat(x.shape, ","), size, size))
    end
    local top = 1 + (is_training and math.floor(drawn[1] * (rows + 1)) or rows // 2)
    local left = 1 + (is_training and math.floor(drawn[2] * (columns + 1)) or columns // 2)
    x = part_of(x, top, left, size)
    if mean and #mean.shape == 3 and mean.shape[2] ~= 1 then
      mean = part_of(mean, top, left, size)
    end
  end
  if mean then x = x - mean end
  if s.mirror and drawn[3] < 0.5 then x = x:flip { axes = { 3 } } end
  return s.scale == 1 and x or x * s.scale
end

--- f(pixels) -> pixels as the net takes them: (N,C,H,W) of 0 to 255. Random numbers follow
-- neap.seed.
function data.transform(part, phase)
  local row = layer_of(part, phase)
  local s, neap = settings_of(row), require "neap"
  -- Boxes would have to be moved with the pictures, which alone come here.
  if row.type == "AnnotatedData" and (s.crop > 0 or s.mirror) then
    kit.fail(("%s: %s mirrors or cuts pictures whose label says where things are: take mean and \z
      scale off by hand, and move boxes with them"):format(row.message.file, row.message.name))
  end
  local mean = s.file and mean_of(s.file)
  if #s.values > 0 then mean = core.tensor(s.values, "f32"):reshape(#s.values, 1, 1) end

  return function(pixels)
    if s.crop == 0 and not s.mirror and not mean then
      return s.scale == 1 and pixels or pixels * s.scale
    end
    local n = pixels.shape[1]
    -- Each picture has numbers of its own.
    local drawn, out = neap.rand(n, 3):totable(), {}
    for i = 1, n do out[i] = picture(pixels[i], s, mean, phase == "TRAIN", drawn[i]) end
    return neap.stack(out, { axis = 1 })
  end
end

-- ---- data sets ----------------------------------------------------------------------------------

--- MNIST and CIFAR-10 as bytes: Neap's sets have them from 0 to 1, and from -1 to 1.
local sources = {
  mnist = function(o) return require("neap").data.mnist(o) end,
  cifar10 = function(o) return require("neap").data.cifar10(o) end,
}
local as_bytes = { mnist = function(x) return x * 255 end,
  cifar10 = function(x) return (x + 1) * 127.5 end }

--- The data set of a phase's data layer.
-- @param rows integer|nil at most so many
function data.set(part, phase, rows)
  local row = layer_of(part, phase)
  local own = row.message:message(known.readers[row.type])
  local source = own:text "source"
  local set = known.set_of(source)
  if not set or not set.data then
    kit.fail { message = ("%s: %s reads \"%s\", which Neap does not have: give t:fit a data set \z
      with fields %s"):format(row.message.file, row.message.name, tostring(source),
      table.concat(row.tops, " and ")),
      hint = "m:transform(phase) makes of its pictures what the net takes" }
  end

  local change, bytes = data.transform(part, phase), as_bytes[set.data]
  return sources[set.data] { split = phase == "TRAIN" and "train" or "test",
    batch = known.batch(row) or 1, limit = rows, shuffle = phase == "TRAIN" or nil,
    map = function(b) return { x = change(bytes(b.x)), y = b.y } end }
end

return data
