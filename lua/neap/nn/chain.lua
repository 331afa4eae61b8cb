--- The memory of a chain of layers as four lists: params, outputs, inputs and caches.
--
-- For nets that are stepped through by hand, layer by layer: `forward` runs each layer and leaves
-- on the layer's cache what its backward will read; `backward` pops it in reverse. A model gives
-- its lists as `model.params`, `model.outputs`, `model.inputs` and `model.caches`. (Trainers and
-- m:net run the whole net as one planned program; they have no use for caches.)
--
-- The chain itself is the engine's (neap.h, "layer by layer"), the same that C programs have: here
-- a model's layers become nets. Nothing that a cache holds is computed again in the backward.
--
-- INVARIANT: an input is a view of the output of the layer below: one storage, counted once, which
-- lives until the last of both is dropped, in whatever order. INVARIANT: a cache is a stack. What
-- is popped is what was pushed last, or an error; after a backward it is empty.
-- @module neap.nn.chain
local build = require "neap.nn.build"
local core = require "neap.core"
local count_memory = require "neap.memory.count"
local memory_options = require "neap.memory.options"
local module = require "neap.nn.module"
local names = require "neap.nn.names"
local op = require "neap.op"
local range = require "neap.memory.range"
local report = require "neap.report"
local tree = require "neap.nn.tree"

local Module = module.Module
local model_memory = {}

local function refuse(code, message, hint)
  error(core.error { code = code, message = message, hint = hint })
end

--- A stack of tensors that grows as needed: cache:push(t [, label]), cache:pop([label | {label =,
-- shape =, dtype =}]), #cache, cache:labels(), cache:clear(). A refused pop takes nothing.
-- @param name string of the layer, for messages
-- @usage local cache = neap.cache "fc1"; cache:push(x); cache:push(w); local w, x = cache:pop(),
--   cache:pop()
function model_memory.cache(name) return core.new_cache(name) end

local Memory = { __name = "neap.model_memory" }
Memory.__index = Memory

--- The layers of a chain: a Sequential's children, those of the Sequentials among them in their
-- place; or the model itself.
local function layers_of(root, list)
  list = list or {}
  if root._class == "Sequential" then
    for _, child in ipairs(tree.layers(root)) do layers_of(child, list) end
  else
    list[#list + 1] = root
  end
  return list
end

--- Names the layers and gives each a cache; again when the model has changed.
local function look_at_layers(memory)
  local root = memory.root
  local t = tree.of(root)

  -- The layers are part of what a version stands for; caches of another version would hold tensors
  -- of layers that are gone.
  if memory.version == root._version then return end
  memory.version, memory.layers, memory.names, memory.caches = root._version, layers_of(root), {},
    {}
  for i, layer in ipairs(memory.layers) do
    local path = t.path[layer]
    memory.names[i] = path ~= "" and path:gsub("/", ".") or layer._class
    memory.caches[i] = model_memory.cache(memory.names[i])
  end
end

--- The memory of a model; one per model, made at its first use.
-- @param options table|nil { max_batch = the most rows that a forward may have, memory options as
--   in net:plan }: how the next forward plans
function model_memory.of(root, options)
  local memory = rawget(root, "_memory")
  if memory == nil then
    memory = setmetatable({ root = root, outputs = {}, inputs = {}, attached = {} }, Memory)
    rawset(root, "_memory", memory)
  end
  look_at_layers(memory)
  if options then
    memory.options, memory.max_batch = range.apart(
      memory_options.check("m:memory", options, "layers"))
  end
  return memory
end

-- ---- params -------------------------------------------------------------------------------------

--- Parameters in order of definition, then attached ones: {name, data, diff, velocity}; diff and
-- velocity nil where there are none.
function Memory:params()
  local ws, list = Module.workspace(self.root), {}
  local iterate = Module.parameters(self.root) -- a first look at the parameters may meet layers
  local t = tree.of(self.root)
  for name, p in iterate do
    local blob = names.blob_name(rawget(p, "_record"), t)
    local velocity = blob .. ".momentum"
    list[#list + 1] = {
      name = name,
      data = p.data,
      diff = p.diff,
      velocity = ws:has(velocity) and ws:view(velocity) or nil,
    }
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
  if type(name) ~= "string" or name == "" then
    refuse("name", "attach_param expects a name, got a " .. type(name))
  end
  if not op.is_tensor(tensor) then
    refuse("name", ("attach_param \"%s\": expects a tensor, got a %s"):format(name, type(tensor)))
  end
  if self:params()[name] then
    refuse("name", ("attach_param: the model has a parameter \"%s\" already"):format(name),
      "names are of one parameter each")
  end
  local entry = { name = name, data = tensor }
  self.attached[#self.attached + 1] = entry
  return entry
end

-- ---- the chain ----------------------------------------------------------------------------------

--- The layers as nets of one batch.
local function nets_of(self, shape, dtype)
  local nets = {}
  for i, layer in ipairs(self.layers) do
    local y
    nets[i], y = build.layer_net(layer, self.names[i], shape, dtype)
    shape, dtype = y.shape, y.dtype
  end
  return nets
end

--- The chain for inputs like x, in the mode set; kept with the model's nets, and dropped when these
-- change. Smaller batches run in the memory of the largest, which is the one declared, or, where
-- none is, the largest so far. One above a declared one is refused.
local function chain_for(self, x)
  local training = Module.is_training(self.root)
  local n = x.shape[1]
  if n == nil then refuse("shape", "forward expects a batch as the first dimension, got ()") end
  if self.max_batch and n > self.max_batch then
    refuse("shape",
      ("forward expects 1 to %d rows, as max_batch says, got %d"):format(self.max_batch, n),
      "give model:memory a larger max_batch")
  end

  -- One chain for each kind of input: all that its nets depend on but the number of rows.
  local id = table.concat({
    "memory",
    tostring(training),
    x.dtype,
    table.concat(x.shape, ",", 2),
    range.text_of(self.options or {}),
  }, " ")
  local entry = self.root._nets[id]
  if entry and entry.chain:has_batch(n) then return entry.chain, training end

  -- Nets of the batch at hand, and of the largest, in whose memory it runs: a chain plans once, for
  -- the most rows.
  local nets = nets_of(self, x.shape, x.dtype)
  if entry == nil or entry.most < n then
    local most = math.max(n, self.max_batch or 1)
    local largest = most == n and nets or nets_of(self, { most, table.unpack(x.shape, 2) }, x.dtype)
    if entry then entry.chain:clear() end

    -- A copy, since something is added: plans of single layers, many and short-lived, are not for
    -- the database.
    local memory = { store = false }
    for key, value in pairs(self.options or {}) do memory[key] = value end
    entry = {
      most = most,
      chain = core.new_chain(Module.workspace(self.root), largest, most, memory),
    }
    self.root._nets[id] = entry -- a layer that has just learnt its width has emptied the table
  end
  if not entry.chain:has_batch(n) then entry.chain:add_batch(n, nets) end
  return entry.chain, training
end

--- Views of what the chain's list holds, as {name, data, diff}.
local function read(chain, list)
  local out = {}
  for i = 1, chain:n(list) do out[i] = chain:item(list, i) end
  return out
end

--- Runs the layers one by one and fills outputs and inputs, whose data are views until the next
-- forward. In training mode each layer's cache gets what its backward reads; in evaluation mode no
-- cache is passed.
-- @return a copy of the last output
function Memory:forward(x)
  if not op.is_tensor(x) then refuse("name", "forward expects a tensor, got a " .. type(x)) end

  -- What is known before, to be put back: a forward that raises leaves the chain and the nets as
  -- they were.
  local before, nets, done = self.chain, {}, false
  for id, entry in pairs(self.root._nets) do nets[id] = entry end
  -- A batch that is too large leaves the chain that smaller ones run in.
  local _ <close> = setmetatable({}, { __close = function()
    if done then return end
    self.chain = before
    for id, entry in pairs(self.root._nets) do
      if entry.chain and nets[id] ~= entry then self.root._nets[id] = nets[id] end
    end
  end })
  local chain, training = chain_for(self, x)

  -- Outputs of another chain's last forward are let go: their bytes belong to the workspace.
  if before and before ~= chain then before:clear() end
  self.chain = chain
  Module.workspace(self.root):feed("input", x)
  chain:forward(training)
  done = true

  -- Copies of nothing: entries are views, and the caches are the chain's own stacks.
  self.outputs, self.inputs = read(chain, "outputs"), read(chain, "inputs")
  for i in ipairs(self.layers) do self.caches[i] = chain:cache(i) end
  return self.outputs[#self.outputs].data:clone()
end

--- The layers in reverse: pops each cache, fills the diffs of outputs, inputs and parameters.
-- @param dy gradient of the last output
-- @return gradient of the input, nil for integer inputs
function Memory:backward(dy)
  count_memory.check_gradients(self.root, "memory:backward")
  local chain, ws, gradients = self.chain, Module.workspace(self.root), {}
  if chain == nil or self.outputs[1] == nil then
    refuse("released", "backward: no forward has run",
      "memory:forward(x) in training mode comes before")
  end
  if not op.is_tensor(dy) then refuse("name", "backward expects a tensor, got a " .. type(dy)) end

  -- The gradient of the last output is a blob of its own; the chain then goes down layer by layer.
  ws:feed(self.outputs[#self.outputs].diff_blob, dy)
  chain:backward()
  for _, list in ipairs { "outputs", "inputs" } do
    -- An output that was dropped has no gradient to show.
    for i, entry in ipairs(self[list]) do
      if entry.data then entry.diff = chain:item(list, i).diff end
    end
  end

  -- As after m:backward: m:param(name).grad reads from here.
  for _, entry in ipairs(read(chain, "params")) do gradients[entry.blob] = entry.diff end
  rawset(self.root, "_gradients", gradients)
  local dx = self.inputs[1].diff
  return dx and dx:clone()
end

--- Lets go of one entry of "outputs" or "inputs", in any order; the bytes return with the last
-- entry that shares them, once no tensor of them is held. Twice is an error.
-- @param list "outputs" or "inputs"
-- @param i integer
function Memory:drop(list, i)
  if self.chain == nil then refuse("released", "drop: no forward has run") end
  self.chain:drop(list, i)
  local entry = self[list][i]
  entry.data, entry.diff = nil, nil
end

--- Lets go of outputs, inputs and what caches hold; parameters stay.
function Memory:free()
  self.outputs, self.inputs = {}, {}
  for _, cache in ipairs(self.caches) do cache:clear() end
  if self.chain then self.chain:clear() end
end

--- Tensors of a list and their bytes. A view has bytes of another list, which are counted there.
local function row_of(name, tensors, what)
  local bytes = 0
  for _, t in ipairs(tensors) do bytes = bytes + t:n_bytes() end
  return { list = name, tensors = #tensors, bytes = bytes, what = what }
end

--- The four lists as a table: what each of them has now.
function Memory:__tostring()
  local data, diffs, outputs, inputs, n_cached = {}, {}, {}, {}, 0
  for _, p in ipairs(self:params()) do
    data[#data + 1], diffs[#diffs + 1] = p.data, p.diff
  end
  for _, o in ipairs(self.outputs) do outputs[#outputs + 1] = o.data end
  for _, i in ipairs(self.inputs) do inputs[#inputs + 1] = i.data end
  for _, cache in ipairs(self.caches) do n_cached = n_cached + #cache end
  return tostring(report.new {
    rows = {
      row_of("params", data, "parameters"),
      row_of("params", diffs, "their gradients"),
      row_of("outputs", outputs, "of layers, of the last forward"),
      row_of("inputs", inputs, "of layers: the model's, and views of the outputs below"),
      { list = "caches", tensors = n_cached, what = "what backward will pop" },
    },
    columns = { "list", "tensors", "bytes", "what" },
    title = ("memory of %s, %d layer%s"):format(self.root._class, #self.layers,
      #self.layers == 1 and "" or "s"),
  })
end

require("neap.inner.guard").functions(Memory, "memory:")
return model_memory
