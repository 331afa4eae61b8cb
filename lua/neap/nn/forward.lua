--- A module's forward while a net is built: its place in the tree, its parameters as blobs, its
-- hooks.
--
-- INVARIANT: every module with parameters that a net is built of has a path in that net's tree. One
-- that a forward meets and that lies in no slot (a closure's, a function's) gets one,
-- "block4/@linear1", below the module that ran it.
-- @module neap.nn.forward
local context = require "neap.nn.context"
local core = require "neap.core"
local names = require "neap.nn.names"
local naming = require "neap.net.naming"
local tree = require "neap.nn.tree"
local fail = core.fail

local forward = {}

--- The innermost module under way that has a path in the tree of the net being built.
local function running_in_tree(building)
  for i = #building.running, 1, -1 do
    if building.tree.path[building.running[i]] then return building.running[i] end
  end
  return building.root
end

--- A module without parameters and children, whose identity nobody can tell.
local function is_bare(m) return #m._params == 0 and not m._lazy and not tree.has_children(m) end

--- The net that a module adds to now: that being built, or the branch or body in it whose function
-- runs. Parameters are the outer net's.
function forward.net_here(self)
  return naming.net_within(context.building().net, "nn." .. self._class)
end

--- Gives a module that lies in no slot of the tree a place in it: below the module that runs it,
-- under a name that no user can write.
local function meet(m)
  local building = context.building()
  if building.tree.path[m] or is_bare(m) then return end

  -- Such a module would have new parameters in each net that is built, and nobody would train them.
  if m._made_in == building then
    fail(("nn.%s is made inside a forward, so that each net would have another one: make it once, \z
      in init or outside"):format(m._class))
  end

  -- It belongs to the module whose forward calls it. The note comes first: when the build fails,
  -- the tree is put back to what it was.
  local owner = running_in_tree(building)
  tree.note(m)
  tree.put(owner, tree.numbered(owner, "@" .. (m._wanted_name or m._base)), m)
  building.tree = tree.of(building.root)
end

--- The blob of a parameter record in the net being built; declared there at its first use.
function forward.blob_of(record)
  -- Tied parameters share a storage, hence a blob: their gradients are summed by the net itself.
  local building, storage = context.building(), names.storage_record(record)
  local blob = building.blobs[storage]
  if blob == nil then
    meet(record.owner)

    -- In a transform's net a parameter is an input, which holds what its own model has.
    if building.guest then
      blob = building.guest(storage)
      building.blobs[storage] = blob
      return blob
    end
    local name = names.blob_name(record, building.tree)
    blob = building.net:declare(name, storage.role, storage.shape, storage.dtype, storage.init,
      storage.trainable)

    -- A branch or a loop around the layer writes the statistic in place, and is not to hand it out
    -- as a result.
    if storage.role == "state" then naming.keep_to_layer(building.net, name) end
    building.blobs[storage] = blob
  end
  return blob
end

--- What a forward computes with where it reads a parameter: the parameter, or, where it is pruned,
-- its product with the mask (neap.prune). So no gradient reaches what is masked, whatever the
-- optimizer, and what an optimizer's old momentum does there is seen by nobody.
function forward.value_of(self, record)
  local blob, storage = forward.blob_of(record), names.storage_record(record)
  if not storage.mask then return blob end

  -- Once for each net, not for each build: a value of a loop's body can't be read outside of it.
  local building, net = context.building(), forward.net_here(self)
  local made = building.masked[net] or {}
  building.masked[net] = made
  if not made[storage] then
    local name = net:fresh_name((blob.name:gsub("^.*/", "")) .. ".masked")
    made[storage] = net:op("Mul", { blob, forward.blob_of(storage.mask) }, { name }, {})
  end
  return made[storage]
end

--- Which ops of the net a module added itself, for m:summary.
local function trace(self, net, n_before, output)
  local building = context.building()
  local all, own, claimed = net:_ops(), {}, building.claimed[net] or {}
  building.claimed[net] = claimed

  -- Modules inside this one have ended before it and claimed theirs; what is left is its own.
  for i = n_before + 1, #all do
    if not claimed[i] then
      claimed[i] = true
      own[#own + 1] = all[i].outputs[1]
    end
  end
  table.insert(building.trace, { module = self, ops = own, output = output })
end

--- How the names of Neap's own chunks begin.
local own_source = debug.getinfo(1, "S").source:match "^(.*)nn/forward"

--- Whether a function was written by the user, and not by Neap.
local function is_users(f) return debug.getinfo(f, "S").source:sub(1, #own_source) ~= own_source end

--- What ops of a layer are said to come from: the line that made the layer; nil, the line that
-- calls the op, where forward is the user's own.
local function line_of(self) return not is_users(self._methods.forward) and self._line or nil end

--- Whether a forward of the user's is behind the module: what it calls is not known before it has
-- run.
function forward.runs_own_code(m)
  local own = m._methods.forward
  return m._class == "Lambda" or own ~= nil and is_users(own)
end

--- One forward of a module while a net is built: its place in the tree, its hooks, its record for
-- m:summary.
local function forward_of(self, building, net, ...)
  local n_before, hooks, running = building.trace and #net:_ops(), self._hooks, building.running

  -- What is called from here on is met below this module.
  local depth = #running + 1
  running[depth] = self
  local out = table.pack(self._methods.forward(self, ...))
  -- a forward that was caught failing may have left some
  for i = #running, depth, -1 do running[i] = nil end
  if building.trace then trace(self, net, n_before, out[1]) end
  if hooks then
    for _, f in ipairs(hooks.forward) do f(self, table.unpack(out, 1, out.n)) end

    -- The gradient of a value inside a branch or a loop's body is no blob of the outer net.
    if #hooks.backward > 0 and net ~= building.net then
      fail(("nn.%s: m:on \"backward\" watches it, and it is called in a branch or a loop's body, \z
        whose gradients stay inside"):format(self._class))
    end
    for _, f in ipairs(hooks.backward) do
      table.insert(building.watched, { module = self, blob = out[1], f = f })
    end
  end
  return table.unpack(out, 1, out.n)
end

local own_function = { Lambda = true, Loss = true } -- what the user's f takes is what they take

--- Raises where a forward is given more than it takes: what nobody reads would be dropped.
function forward.check_arity(self, ...)
  local f = own_function[self._class] and self.f or self._methods.forward
  local info = f and debug.getinfo(f, "u")
  if f == nil or info.isvararg then return end

  -- A method has self before its inputs, the function of a Lambda or Loss has not.
  local most = info.nparams - (f == self._methods.forward and 1 or 0)
  local given = select("#", ...)
  for i = most + 1, given do
    if (select(i, ...)) ~= nil then
      fail(("%s takes %d input%s, got %d"):format(
        self._class == "Loss" and "the loss function" or "nn." .. self._class,
        most, most == 1 and "" or "s", given)
        .. (self._class == "Loss" and ": the model's outputs and the target"
          or most < 1 and not own_function[self._class] and "; forward(self, x) has self before it"
          or ""))
    end
  end

  -- A loss of Neap's takes output and target; without the latter it would learn nothing.
  if self.target and not is_users(f) and given < most then
    fail(("nn.%s takes %d inputs, the output and the target, got %d"):format(
      self._class, most, given))
  end
end

--- Raises where a layer of Neap's gets nothing at all; a forward of the user's may do without.
function forward.check_given(self, ...)
  local own = self._methods.forward
  if (...) == nil and own and not is_users(own) and not own_function[self._class] then
    fail(("nn.%s expects its input, a tensor: m(x) or m:forward(x), got nothing"):format(
      self._class))
  end
end

--- Whether the build leaves the module out: its first input goes through as it is.
local function is_left_out(building, self)
  local path = building.tree.path[self]
  return path ~= nil and building.without[path:gsub("/", ".")] ~= nil
end

--- Runs the forward of `self` in the build under way. @return what it gives
function forward.run(self, building, ...)
  if self._methods.forward == nil then fail(("nn.%s has no forward"):format(self._class)) end
  meet(self)
  if building.without and is_left_out(building, self) then return (...) end

  -- A module with parts opens a scope, by which ops that its own forward adds are named. A layer
  -- without parts needs none: Module.op names its blobs by its path.
  -- What a layer adds is of it; what a module with parts adds itself is of its scope.
  local net, has_parts = forward.net_here(self), tree.has_children(self)
  local path = not has_parts and building.tree.path[self] or ""
  local layer = path ~= "" and naming.written(net, path) or ""
  if not self._parent or not has_parts then
    return net:made_by(line_of(self), naming.in_layer, net, layer, forward_of, self, building, net,
      ...)
  end
  return net:made_by(line_of(self), naming.in_layer, net, "", net.scope, net,
    self._name or self._base, forward_of, self, building, net, ...)
end

return forward
