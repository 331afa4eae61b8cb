--- Names of parameters: in a net "block4/mlp/fc1.weight", to users "block4.mlp.fc1.weight", and
-- globs that match them.
--
-- A parameter or statistic is a record of its module: { name, shape, init, owner, trainable,
-- dtype, role = "parameter" or "state", tied = the record that it became, .. }. Its name follows
-- from where the module lies in a tree, so that it is made from the tree at hand and kept nowhere.
--
-- INVARIANT: ties form chains without cycles, and end at the record that owns the storage.
-- @module neap.nn.names
local fail = require("neap.core").fail
local tree = require "neap.nn.tree"

local names = {}

--- Follows ties to the record that owns the storage.
function names.storage_record(record)
  while record.tied do record = record.tied end
  return record
end

local function joined(path, name) return path == "" and name or path .. "." .. name end

--- The blob name that the storage of a record has in a tree. Storage of a module that is not in the
-- tree goes by the first name tied to it.
function names.blob_name(record, t)
  local storage = names.storage_record(record)
  local path = t.path[storage.owner]
  if path then return joined(path, storage.name) end

  -- The module that declared it is in another tree: a tied parameter shares storage across models.
  for _, m in ipairs(t.list) do
    for _, other in ipairs(m._params) do
      if names.storage_record(other) == storage then return joined(t.path[m], other.name) end
    end
  end
end

--- The record's own name in a tree, as users write it.
function names.dotted(record, t)
  return (joined(t.path[record.owner], record.name):gsub("/", "."))
end

--- Parameter and statistic records below and including this module, in order of definition.
function names.records(self)
  local list = {}
  for _, m in ipairs(tree.modules(self)) do
    for _, record in ipairs(m._params) do list[#list + 1] = record end
  end
  return list
end

--- The dotted name of a record as `self` calls it: without the path of self, where the record lies
-- below it.
function names.name_in(self, record, t)
  local full, above = names.dotted(record, t), t.path[self]:gsub("/", ".") .. "."
  return above ~= "." and full:sub(1, #above) == above and full:sub(#above + 1) or full
end

--- "*" stands for any text, "?" for one character.
function names.glob_to_pattern(glob, who)
  if type(glob) ~= "string" then
    fail(("%s expects a name or a glob such as \"block*\", got a %s"):format(who, type(glob)))
  end

  -- What Lua's patterns read as magic is escaped first, so that only * and ? mean anything.
  return "^" .. glob:gsub("[%^%$%(%)%%%.%[%]%+%-]", "%%%0"):gsub("%*", ".*"):gsub("%?", ".") .. "$"
end

--- Whether the pattern matches the dotted name of a record, or the path of a module that it lies
-- in.
function names.matches(self, pattern, record, t)
  if names.dotted(record, t):match(pattern) or names.name_in(self, record, t):match(pattern) then
    return true
  end

  -- A glob that names a module stands for all that lies below it.
  local above = t.path[record.owner]:gsub("/", ".")
  while above ~= "" do
    if above:match(pattern) then return true end
    above = above:match "^(.*)%.[^.]*$" or ""
  end
  return false
end

--- The storage records of the trainable parameters that globs name, as a set.
-- @param globs string or list
function names.matching_storage(self, globs, who)
  local set, _, t = {}, tree.home(self)
  for _, glob in ipairs(type(globs) == "string" and { globs } or globs) do
    local pattern, found = names.glob_to_pattern(glob, who), false
    for _, own in ipairs(names.records(self)) do
      local storage = names.storage_record(own)
      if own.role == "parameter" and storage.trainable and names.matches(self, pattern, own, t) then
        set[storage], found = true, true
      end
    end
    -- A glob that matches nothing is a slip of the pen, and would train less than was meant.
    if not found then fail(("%s: no trainable parameter matches \"%s\""):format(who, glob)) end
  end
  return set
end

return names
