--- What is known of the data that layers read from files: batch, channels and sizes, from the
-- layer's own message or from the name of a data set that everybody has.
--
-- INVARIANT: a shape is never guessed: what is not known is asked for. Of pictures whose size is
-- known 3 channels are assumed, and a note says so.
-- @module neap.caffe.inputs_known
local core = require "neap.core"

local known = {}

-- The message of each type that says how many examples a batch has, and how it is called there.
known.readers = { Data = "data_param", ImageData = "image_data_param",
  HDF5Data = "hdf5_data_param", MemoryData = "memory_data_param", WindowData = "window_data_param",
  VideoData = "video_data_param", SegData = "seg_data_param", AnnotatedData = "data_param",
  Python = "python_param", DenseImageData = "dense_image_data_param" }

-- Data sets that are known by the names of their files, and the shape of one example.
local sets = {
  { pattern = "siamese", shape = { 2, 28, 28 }, name = "pairs of MNIST" },
  { pattern = "mnist", shape = { 1, 28, 28 }, name = "MNIST", data = "mnist" },
  { pattern = "cifar10", shape = { 3, 32, 32 }, name = "CIFAR-10", data = "cifar10" },
}

--- The known data set of a source, nil where it is none.
function known.set_of(source)
  for _, set in ipairs(sets) do
    if source and source:lower():match(set.pattern) then return set end
  end
end

--- What a transformation says of channels and sizes.
local function of_transform(t)
  local size = t:size("crop_size", 0, 0)
  local channels = t:flag "force_color" and 3 or t:flag "force_gray" and 1 or nil
  local means = #t:numbers "mean_value"
  if means > 1 then channels = channels or means end
  return size > 0 and size or nil, channels
end

--- Frames of a video: channels of one example.
local function video_channels(p)
  local flow = p:word("modality", { "RGB", "FLOW", "BOTH", "DIFF" }, "FLOW") == "FLOW"
  return (flow and 2 or 3) * p:size("new_length", 1) * p:size("num_segments", 1)
end

--- The shape of one example of the first top and why it is known; nil and what is missing.
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
  if set then
    local shape = { table.unpack(set.shape) }
    if crop then shape[2], shape[3] = crop, crop end
    return shape, ("as of %s, after its source's name"):format(set.name)
  end
  if row.type == "VideoData" then channels = video_channels(p) end
  -- A crop says both sides. HDF5 and Python layers do not apply one.
  if crop and (row.type ~= "HDF5Data" and row.type ~= "Python") then
    return { channels or 3, crop, crop }, not channels and "3 channels are taken for granted" or nil
  end
end

--- The batch that the layer asks for, nil where it says none.
function known.batch(row)
  local p = known.readers[row.type] and row.message:message(known.readers[row.type])
  return p and p:size("batch_size", p:int "batchsize")
end

--- Shapes of a data layer's tops, batch first, and a note of what was assumed.
-- @param given {top = shape} of the user's
-- @return {top = {sizes, dtype =}}, note | nil
function known.shapes(row, given)
  local note

  local batch = known.batch(row) or 1
  local out = {}
  for k, top in ipairs(row.tops) do
    if given[top] then
      out[top] = table.move(given[top], 1, #given[top], 1, { dtype = given[top].dtype })
    elseif k == 1 then
      local own
      own, note = example(row)
      if not own then
        row.message:fail("%s: the file does not say what its examples look like: give shapes = { \z
          [\"%s\"] = { batch, channels, height, width } }", row.message.name, top)
      end
      out[top] = { batch, table.unpack(own) }
    else
      -- Labels: one for each example.
      local first = out[row.tops[1]]
      out[top] = { first[1] }
    end
    if k > 1 and not (given[top] and given[top].dtype) then out[top].dtype = "i64" end
  end
  return out, note and ("input \"%s\": %s"):format(row.tops[1], note) or nil
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
