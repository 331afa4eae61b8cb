--- Weights of a net of Caffe's: what fillers make that are no initialisers, and .caffemodel files.
--
-- A file's layers and the net's meet by their names, as in Caffe: layers that only one of them has
-- keep what they have. The blobs of a layer go to its parameters and statistics in order.
-- @module neap.caffe.weights
local core = require "neap.core"
local imported = require "neap.nn.imported"
local kit = require "neap.caffe.kit"

local weights = {}

--- Whether shapes are equal, or were written with four dimensions by an old version.
local function is_same(have, want)
  local a, b = table.concat(have, ","), table.concat(want, ",")
  if a == b then return true end
  -- Old files have ones in front: (1,1,1,n).
  local padded = table.move(want, 1, #want, math.max(4 - #want, 0) + 1, {})
  for d = 1, 4 - #want do padded[d] = 1 end
  return #have == 4 and a == table.concat(padded, ",")
    or #have == 1 and have[1] == 1 and #want == 0
end

--- Caffe keeps sums of statistics and what they are over; Neap their quotients.
local function of_batch_norm(list)
  local count = list[3]:reshape(1):item()
  if count == 0 then return list end
  return { list[1] / count, list[2] / count, list[3] }
end

--- The tensors of a file by the specs of parameters.
-- @return {{spec, tensor}, ..}, notes
local function matched(path, specs)
  local file, message, code = core.read_caffemodel(path)
  if not file then kit.fail { code = code, message = message } end

  local by_layer, of_net, out, unknown = {}, {}, {}, {}
  for _, layer in ipairs(file.layers) do by_layer[layer.name] = layer.blobs end
  for _, spec in ipairs(specs) do
    local name = spec.row.name
    of_net[name] = of_net[name] or {}
    table.insert(of_net[name], spec)
  end
  for _, layer in ipairs(file.layers) do
    if not of_net[layer.name] then unknown[#unknown + 1] = layer.name end
  end

  -- Layers meet by name, their blobs by order. A file with more blobs is of another layer, unless
  -- some are shared by name.
  for name, list in pairs(of_net) do
    local blobs = by_layer[name]
    for _, spec in ipairs(blobs and list or {}) do
      local t = blobs[spec.k]
      if not t or #blobs > #list and not spec.name then
        kit.fail { message = ("%s: layer \"%s\" has %d blobs, the net's %d"):format(
          path, name, #blobs, #list) }
      end
      if not is_same(t.shape, spec.shape) then
        kit.fail { message = ("%s: layer \"%s\", blob %d has shape (%s), the net's \z
          \"%s\" (%s)"):format(path, name, spec.k - 1, table.concat(t.shape, ","), spec.suffix,
          table.concat(spec.shape, ",")) }
      end
    end

    if blobs and list[1].row.type == "BatchNorm" then blobs = of_batch_norm(blobs) end
    for _, spec in ipairs(blobs and list or {}) do
      local t = blobs[spec.k]:to "f32"
      out[#out + 1] = { spec, #spec.shape == 0 and t:reshape {} or t:reshape(
        table.unpack(spec.shape)) }
    end
  end

  if #unknown == 0 then return out, {} end
  return out, { ("%s has weights of layers that the net has not: %s"):format(path,
    table.concat(unknown, ", ")) }
end

-- ---- modules ------------------------------------------------------------------------------------

local function put(self, list)
  local by_name = {}
  for _, pair in ipairs(list) do
    by_name[imported.name_of(self, self._caffe.records[pair[1].key])] = pair[2]
  end
  if next(by_name) then self:load_state_dict(by_name, { strict = false }) end
end

--- What fillers make that are no initialisers.
function weights.fill(self, specs)
  local list = {}
  for _, spec in ipairs(specs) do
    if spec.filler.numbers then list[#list + 1] = { spec, spec.filler.numbers() } end
  end
  put(self, list)
end

--- The weights of a file.
function weights.load(self, path)
  local list, notes = matched(path, self._caffe.specs)
  put(self, list)
  table.move(notes, 1, #notes, #self.notes + 1, self.notes)
end

-- ---- nets ---------------------------------------------------------------------------------------

--- The same for a net in a workspace.
function weights.fill_net(ws, part, path)
  local function feed(list)
    for _, pair in ipairs(list) do ws:feed(part.run.shared[pair[1].key].blob.name, pair[2]) end
  end
  for _, spec in ipairs(part.found) do
    if spec.filler.numbers then feed { { spec, spec.filler.numbers() } } end
  end
  if not path then return end

  local list, notes = matched(path, part.found)
  feed(list)
  table.move(notes, 1, #notes, #part.notes + 1, part.notes)
end

return weights
