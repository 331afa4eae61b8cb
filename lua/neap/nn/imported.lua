--- Models of other programs' files as modules: the tree of parameters that names with dots or
-- slashes are put into.
-- @module neap.nn.imported
local core = require "neap.core"
local module = require "neap.nn.module"
local names = require "neap.nn.names"

local imported = {}

--- A place in the tree of parameters: what stands between dots in a weight's name.
local Part = module.class { "Part", name = "part", init = function() end,
  forward = function() core.fail "a part of an imported model has no forward of its own" end }

--- The part of `self` at a path, made where it is missing.
local function part_at(self, path)
  local at = self
  for _, name in ipairs(path) do
    local child = at._children[name]
    if not child then child = module.Module.add(at, name, Part {}) end
    at = child
  end
  return at
end

--- "layer1.0.conv1.weight" as { "layer1", "0", "conv1" }, "weight": a name that a module may have.
local function place_of(name)
  local path = {}
  for part in name:gmatch "[^./]+" do
    -- A character that no name may have becomes _; a leading _ is Neap's own.
    part = part:gsub("[^%w_-]", "_")
    path[#path + 1] = part:match "^_" and "w" .. part or part
  end
  return path, table.remove(path) or "weight"
end

--- Declares a parameter, or state, of `self` at the place that its name says; the place's own where
-- the module has something of that name already.
-- @param w {name =, shape =, dtype =, init =, parameter = bool, trainable = bool|nil}
-- @return its record
function imported.declare(self, w)
  local path, name = place_of(w.name)
  local owner = part_at(self, path)
  -- A word of modules', or what is there already, gets a _ behind it.
  while owner._params[name] or owner._children[name] or module.Module[name] do
    name = name .. "_"
  end
  if w.parameter then
    owner:param(name, w.shape, w.init, { dtype = w.dtype, trainable = w.trainable })
  else
    owner:buffer(name, w.shape, w.init, { dtype = w.dtype })
  end
  return owner._params[name]
end

--- The dotted name of a record, as state_dict has it.
function imported.name_of(self, record)
  return names.dotted(record, require("neap.nn.tree").of(self))
end

return imported
