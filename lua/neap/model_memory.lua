--- The memory of a chain of layers as four lists: params, outputs, inputs and caches.
--
-- For nets that are stepped through by hand, layer by layer: `forward` runs each layer and pushes what its backward needs on the
-- layer's cache; `backward` pops it in reverse. A model gives its lists as `model.params`, `model.outputs`, `model.inputs` and
-- `model.caches`. (Trainers and m:net run the whole net as one planned program; they have no use for caches.)
--
-- INVARIANT: an input is a view of the output of the layer below: one storage, counted once, which lives until the last of both
-- is dropped, in whatever order.
-- INVARIANT: a cache is a stack. What is popped is what was pushed last, or an error; after a backward it is empty.
-- @module neap.model_memory
local core = require "neap.core"
local module = require "neap.nn.module"
local op = require "neap.op"

local Module = module.Module
local model_memory = {}

local function fail(code, message, hint) error(core.error { code = code, message = message, hint = hint }, 0) end

-- ---- caches ---------------------------------------------------------------------------------------------------------

local Cache = { __name = "neap.cache" }
Cache.__index = Cache
Cache.__len = function(cache) return #cache.items end
Cache.__tostring = function(cache) return ("cache of %s: %d tensors"):format(cache.name, #cache.items) end

--- A stack of tensors that grows as needed.
-- @param name string of the layer, for messages
-- @usage local cache = neap.cache "fc1"; cache:push(x); cache:push(w); local w, x = cache:pop(), cache:pop()
function model_memory.cache(name) return setmetatable({ name = name or "?", items = {} }, Cache) end

--- Pushes a tensor; with a label that a pop can ask for.
-- @param label string|nil
-- @return self
function Cache:push(t, label)
  if not op.is_tensor(t) then fail("name", ("cache of %s: push expects a tensor, got a %s"):format(self.name, type(t))) end
  self.items[#self.items + 1] = { tensor = t, label = label }
  return self
end

--- Takes the tensor that was pushed last.
-- @param expected string|table|nil its label, or { label =, shape =, dtype = }: an error unless the top is that, and nothing is taken
-- @return tensor
function Cache:pop(expected)
  local top = self.items[#self.items]
  if top == nil then fail("released", ("cache of %s: nothing is left to pop"):format(self.name), "each pop needs a push before it") end
  local e = type(expected) == "table" and expected or { label = expected }
  if e.label ~= nil and top.label ~= e.label then
    fail("name", ("cache of %s: pop expects \"%s\", on top is \"%s\""):format(self.name, e.label, tostring(top.label)), "pops go in reverse of pushes")
  end
  if e.shape and table.concat(e.shape, ",") ~= table.concat(top.tensor.shape, ",") then
    fail("shape", ("cache of %s: pop expects (%s), on top is (%s)"):format(self.name, table.concat(e.shape, ","), table.concat(top.tensor.shape, ",")))
  end
  if e.dtype and e.dtype ~= top.tensor.dtype then
    fail("dtype", ("cache of %s: pop expects %s, on top is %s"):format(self.name, e.dtype, top.tensor.dtype))
  end
  self.items[#self.items] = nil
  return top.tensor
end

--- Drops everything.
function Cache:clear() self.items = {} end

-- ---- the four lists ---------------------------------------------------------------------------------------------------

local Memory = { __name = "neap.model_memory" }
Memory.__index = Memory

--- The layers of a chain: a Sequential's children, or the model itself.
local function layers_of(root)
  if root._class ~= "Sequential" then return { root } end
  local list = {}
  for i, name in ipairs(root._order) do list[i] = root._children[name] end
  return list
end

--- The memory of a model; one per model, made at its first use.
function model_memory.of(root)
  local memory = rawget(root, "_memory")
  if memory == nil then
    memory = setmetatable({ root = root, layers = layers_of(root), outputs = {}, inputs = {}, caches = {}, attached = {} }, Memory)
    for i, layer in ipairs(memory.layers) do
      local name = module.path_of(layer):gsub("/", ".")
      memory.caches[i] = model_memory.cache(name ~= "" and name or layer._class)
    end
    rawset(root, "_memory", memory)
  end
  return memory
end

--- Parameters in order of definition, then attached ones: {name, data, diff, velocity}; diff and velocity nil where there are none.
function Memory:params()
  local ws, list = Module.workspace(self.root), {}
  for name, p in Module.parameters(self.root) do
    local blob = module.blob_name(module.storage_record(rawget(p, "_record")))
    local velocity = blob .. ".momentum"
    list[#list + 1] = { name = name, data = p.data, diff = p.diff, velocity = ws:has(velocity) and ws:view(velocity) or nil }
    list[name] = list[#list]
  end
  for _, entry in ipairs(self.attached) do
    list[#list + 1] = entry
    list[entry.name] = entry
  end
  return list
end

--- Adds a parameter of the user's own to the list; the tensor is held by reference.
-- @return the entry {name, data, diff}; diff starts as nil and is the user's
function Memory:attach_param(name, tensor)
  if type(name) ~= "string" or name == "" then fail("name", "attach_param expects a name, got a " .. type(name)) end
  if not op.is_tensor(tensor) then fail("name", ("attach_param \"%s\": expects a tensor, got a %s"):format(name, type(tensor))) end
  if self:params()[name] then fail("name", ("attach_param: the model has a parameter \"%s\" already"):format(name), "names are of one parameter each") end
  local entry = { name = name, data = tensor }
  self.attached[#self.attached + 1] = entry
  return entry
end

--- A view of the same storage.
local function shadow(t) return t:view(table.unpack(t.shape)) end

local function clear(self)
  self.outputs, self.inputs = {}, {}
  for _, cache in ipairs(self.caches) do cache:clear() end
end

--- Runs the layers one by one and fills outputs and inputs. In training mode each layer's cache gets its input; in evaluation
-- mode no cache is passed.
-- @return the last output
function Memory:forward(x)
  if not op.is_tensor(x) then fail("name", "forward expects a tensor, got a " .. type(x)) end
  clear(self)
  local training, ws = Module.is_training(self.root), Module.workspace(self.root)
  self.step = ws:step()
  for i, layer in ipairs(self.layers) do
    local name = self.caches[i].name
    local below = self.outputs[i - 1]
    local input = { name = name, data = below and shadow(below.data) or x }
    if training then self.caches[i]:push(input.data, "x") end
    local y = layer(input.data)
    self.inputs[i], self.outputs[i] = input, { name = name, data = y }
  end
  return self.outputs[#self.outputs].data
end

--- Statistics of a layer (a batch norm's), which a second forward within its backward must not count twice.
local function statistics(ws, layer)
  local kept = {}
  for _, record in ipairs(module.records(layer)) do
    local name = module.blob_name(record)
    if record.role == "state" and ws:has(name) then kept[name] = ws:fetch(name) end
  end
  return kept
end

--- The layers in reverse: pops each cache, fills the diffs of outputs, inputs and parameters.
-- @param dy gradient of the last output
-- @return gradient of the input, nil for integer inputs
function Memory:backward(dy)
  local root, ws, gradients = self.root, Module.workspace(self.root), {}
  if self.outputs[1] == nil then fail("released", "backward: no forward has run", "memory:forward(x) in training mode comes before") end
  local step = ws:step()
  for i = #self.layers, 1, -1 do
    local layer, x = self.layers[i], self.caches[i]:pop("x")
    local kept = statistics(ws, layer)
    self.outputs[i].diff = dy
    ws:step(self.step) -- each layer draws the numbers of its forward
    dy = Module.backward(layer, x, dy)
    for name, t in pairs(kept) do ws:feed(name, t) end
    for name, t in pairs(rawget(root, "_gradients")) do
      if not name:match "^input%d+$" then gradients[name] = gradients[name] and gradients[name] + t or t end
    end
    self.inputs[i].diff = dy
  end
  ws:step(step + 1)
  rawset(root, "_gradients", gradients)
  return dy
end

--- Lets go of outputs, inputs and what caches hold; parameters stay.
function Memory:free() clear(self) end

return model_memory
