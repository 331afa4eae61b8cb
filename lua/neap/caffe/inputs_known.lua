--- What is known of the data that layers read from files: batch, channels and sizes, from the
-- layer's own message or from the name of a data set that everybody has.
--
-- INVARIANT: a shape is never guessed: what is not known is asked for. Of pictures whose size is
-- known 3 channels are assumed, of pictures with boxes how many those are at most, and a note says
-- so.
-- @module neap.caffe.inputs_known
local core = require "neap.core"

local known = {}

-- The message of each type that says how many examples a batch has, and how it is called there.
known.readers = { Data = "data_param", ImageData = "image_data_param",
  HDF5Data = "hdf5_data_param", MemoryData = "memory_data_param", WindowData = "window_data_param",
  VideoData = "video_data_param", SegData = "seg_data_param", AnnotatedData = "data_param",
  Python = "python_param", DenseImageData = "dense_image_data_param" }

-- Data sets that are known by the names of their files, and the shape of one example. Where each
-- place has a label, pictures are of any size, and the shape is that of the largest.
local sets = {
  { pattern = "siamese", shape = { 2, 28, 28 }, name = "pairs of MNIST" },
  { pattern = "mnist", shape = { 1, 28, 28 }, name = "MNIST", data = "mnist" },
  { pattern = "cifar10", shape = { 3, 32, 32 }, name = "CIFAR-10", data = "cifar10" },
  { pattern = "hdf5_classification", shape = { 4 }, name = "the four numbers of Caffe's example" },
  { pattern = "voc_arg", layer = "^%u+SegDataLayer$", shape = { 3, 500, 500 }, is_map = true,
    name = "the largest pictures of PASCAL VOC" },
}

--- The known data set of a source, nil where it is none.
function known.set_of(source)
  for _, set in ipairs(sets) do
    if source and source:lower():match(set.pattern) then return set end
  end
end

--- The set that a layer written in Python reads, by the name of its class.
local function set_of_class(class)
  for _, set in ipairs(sets) do
    if class and set.layer and class:match(set.layer) then return set end
  end
end

--- What a transformation says of sizes and channels: height and width, nil where it says none.
local function of_transform(t)
  local size = t:size("crop_size", 0, 0)
  local channels = t:flag "force_color" and 3 or t:flag "force_gray" and 1 or nil
  local means = #t:numbers "mean_value"
  if means > 1 then channels = channels or means end
  -- What is cut out comes of what was made larger or smaller before.
  local resized = t:message "resize_param"
  local height, width = resized:size "height", resized:size "width"
  if size > 0 then height, width = size, size end
  return height and width and { height, width } or nil, channels
end

--- The shape of a set's example as a transformation makes it.
local function of_set(set, crop, t)
  local shape = { table.unpack(set.shape) }
  if crop then shape[2], shape[3] = crop[1], crop[2] end
  if not set.is_map then return shape end

  -- Pictures are made larger by the greatest of the ratios, and a multiple of the stride.
  local ratio, stride = math.max(1, table.unpack(t:numbers "scale_ratios")), t:size("stride", 1)
  for d = 2, 3 do
    if not crop then shape[d] = math.ceil(shape[d] * ratio / stride) * stride end
  end
  return shape
end

--- Frames of a video: channels of one example.
local function video_channels(p)
  local flow = p:word("modality", { "RGB", "FLOW", "BOTH", "DIFF" }, "FLOW") == "FLOW"
  return (flow and 2 or 3) * p:size("new_length", 1) * p:size("num_segments", 1)
end

--- The shape of one example of the first top, why it is known, and the set; nil where it is not.
local function example(row)
  local m = row.message
  local p, t = m:message(known.readers[row.type]), m:message "transform_param"
  local crop, channels = of_transform(t)
  if row.type == "MemoryData" then
    local c, h, w = p:size "channels", p:size "height", p:size "width"
    return c and h and w and { c, h, w } or nil
  end

  -- A source that has the name of a known set is of its size, whatever a crop leaves of that.
  local set = known.set_of(p:text "source")
  if row.type == "Python" then set = set_of_class(p:text "layer") end
  if set then
    return of_set(set, crop, t), ("as of %s, after the name of its source"):format(set.name), set
  end
  if row.type == "VideoData" then channels = video_channels(p) end
  -- A crop says both sides. HDF5 and Python layers do not apply one.
  if crop and (row.type ~= "HDF5Data" and row.type ~= "Python") then
    return { channels or 3, crop[1], crop[2] },
      not channels and "3 channels are taken for granted" or nil
  end
end

-- Boxes that a picture has at most where nobody says how many.
local BOXES = 64

--- The shape of a top behind the first, batch first, and a note: of labels one for each example,
-- or for each place, or boxes.
local function label_shape(row, first, set)
  if row.type == "AnnotatedData" then
    return { first[1], 1, BOXES, 8, dtype = "f32" }, ("up to %d boxes a picture are taken for \z
      granted, rows (item or -1, class, instance, corners, difficult)"):format(BOXES)
  end
  return set and set.is_map and { first[1], 1, first[3], first[4] } or { first[1] }
end

--- The batch that the layer asks for, nil where it says none.
function known.batch(row)
  local p = known.readers[row.type] and row.message:message(known.readers[row.type])
  return p and p:size("batch_size", p:int "batchsize")
end

--- Shapes of a data layer's tops, batch first, and notes of what was assumed.
-- @param given {top = shape} of the user's
-- @return {top = {sizes, dtype =}}, notes
function known.shapes(row, given)
  local batch, out, notes = known.batch(row) or 1, {}, {}
  local own, why, set = example(row)
  local function note(top, text)
    if text then notes[#notes + 1] = ("input \"%s\": %s"):format(top, text) end
  end

  for k, top in ipairs(row.tops) do
    if given[top] then
      out[top] = table.move(given[top], 1, #given[top], 1, { dtype = given[top].dtype })
      if row.type == "AnnotatedData" then out[top].dtype = out[top].dtype or "f32" end
    elseif k == 1 then
      if not own then
        row.message:fail("%s: the file does not say what its examples look like: give shapes = { \z
          [\"%s\"] = { batch, channels, height, width } }", row.message.name, top)
      end
      out[top] = { batch, table.unpack(own) }
      note(top, why)
    else
      local text
      out[top], text = label_shape(row, out[row.tops[1]], set)
      note(top, text)
    end
    -- Labels are whole numbers.
    if k > 1 then out[top].dtype = out[top].dtype or "i64" end
  end
  return out, notes
end

--- Raises for shapes of tops that no data layer has.
function known.check_names(names, given)
  local options = require "neap.inner.options"
  for _, name in ipairs(options.keys(given)) do
    if not names[name] then
      local near = options.nearest(tostring(name), options.keys(names))
      core.fail(("neap.import: shapes has \"%s\", the file's inputs are %s%s"):format(
        tostring(name), table.concat(options.keys(names), ", "),
        near and (", did you mean \"" .. near .. "\"?") or ""))
    end
  end
end

return known
