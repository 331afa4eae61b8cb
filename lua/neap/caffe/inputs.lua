--- Caffe's layers that give data: what others read from files is an input of the net.
-- @module neap.caffe.inputs
local fillers = require "neap.caffe.fillers"
local known = require "neap.caffe.inputs_known"

--- The blobs of the net's inputs, which are declared before the layers run.
local function given(n)
  local out = {}
  for k, top in ipairs(n.row.tops) do
    out[k] = n.state.env_given[top] or n:fail("no shape is known of its top \"%s\"", top)
  end
  return table.unpack(out)
end

--- Shapes of DummyData: one for all tops, or one each; four sizes each in old files.
local function dummy_shape(n, p, k)
  local function pick(list) return list[#list == 1 and 1 or k] end
  local shapes = p:messages "shape"
  local old = { p:ints "num", p:ints "channels", p:ints "height", p:ints "width" }

  local shape = shapes[1] and (pick(shapes) or n:fail("it has %d shapes", #shapes)):ints "dim"
    or { pick(old[1]), pick(old[2]), pick(old[3]), pick(old[4]) }
  if #shape == 0 then n:fail "it says no shape" end
  for _, size in ipairs(shape) do
    if size < 1 then n:fail("a size of %d", size) end
  end
  return shape
end

return function(layer)
  layer.Input = given

  --- What a layer of data says of files, threads and order is the data set's to know.
  local function data(n)
    local m, own = n.row.message, known.readers[n.row.type]
    -- The messages count as read, whatever is in them.
    for _, part in ipairs { own, "transform_param", "annotated_data_param" } do
      m:messages(part)
      m.inner[part] = nil
    end
    return given(n)
  end
  for name in pairs(known.readers) do layer[name] = name ~= "Python" and data or nil end

  --- Numbers of the net's own: constants, or drawn anew in each run.
  function layer.DummyData(n)
    local p, out = n:options "dummy_data_param", {}
    local list = p:messages "data_filler"
    for k in ipairs(n.row.tops) do
      local shape = dummy_shape(n, p, k)
      local filler = list[#list == 1 and 1 or k]
      local init = filler and fillers.read(filler, shape).init or { op = "Constant", value = 0 }
      local attrs = { shape = shape }
      for key, value in pairs(init) do attrs[key] = key ~= "op" and value or nil end
      out[k] = n.state.net:op(init.op, {}, 1, attrs)
    end
    return table.unpack(out)
  end
end
