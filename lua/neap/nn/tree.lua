--- The tree of a model: which module lies where.
--
-- A module's slots are the keys under which it has been given modules, in the order of the first
-- giving: `self.head = nn.Linear{..}` is a slot with one module, `self.blocks = {Block(), Block()}`
-- one with a list of them, called "blocks/1" and "blocks/2". Lists stay the user's own tables: what
-- is added to them later is found when the tree is walked the next time.
--
-- A module may be given to several others, or twice to one: it is shared. The first of them that
-- still has it is its parent, and the chain of parents ends at its root, where its parameters live
-- (neap.nn.state). Seen from another root, it has another path.
--
-- INVARIANT: identity decides. A module has one path in a tree, and no other module has that path.
-- INVARIANT: `parent` is one of `hosts`, and the graph of hosts has no cycle.
-- @module neap.nn.tree
local core = require "neap.core"
local fail = core.fail

local tree = {}

local weak_keys = { __mode = "k" }

--- Whether x is a module.
function tree.is_module(x) return type(x) == "table" and rawget(x, "_is_module") == true end
function tree.is_class(x) return type(x) == "table" and rawget(x, "_class_name") ~= nil end
local is_module, is_class = tree.is_module, tree.is_class

--- What a new module has of the tree: what lies in its slots, who has it, and what is known of the
-- walks so far. All fields are set, so that nobody's `__index` is asked for them.
function tree.fields()
  return {
    _children = {}, -- by key: the module in the slot, where it is one
    _lists = {},    -- by key: true, where the slot is a list (which lies in `_fields`)
    _order = {},    -- keys of the slots, in the order of the first giving
    _counts = {},   -- by base: the last number that `numbered` gave
    _hosts = setmetatable({}, weak_keys), -- modules that have this one in a slot
    _parent = false, -- one of them
    _name = false,   -- in the parent
    _had = {},       -- what the last walk met here
    -- Of a root:
    _tree = false, -- its last walk
    _nets = {},    -- by kind of call: nets and programs that were built of it
    _version = 0,  -- see tree.changed
    -- Of a layer:
    _lazy = false,        -- it waits for its width (neap.nn.widths)
    _hooks = false,       -- {forward =, backward =}, where there are any
    _wanted_name = false, -- the name that it was given, for a container to use
  }
end

function tree.root_of(m)
  while m._parent do m = m._parent end
  return m
end

-- ---- versions -----------------------------------------------------------------------------------

--- Nets and programs built from the roots above m are old.
function tree.changed(m, seen)
  seen = seen or {}
  -- Hosts form a graph, not a tree: each is told once.
  if seen[m] then return end
  seen[m] = true
  rawset(m, "_nets", {})
  rawset(m, "_version", m._version + 1)
  rawset(m, "_met", false)
  for host in pairs(m._hosts) do tree.changed(host, seen) end
end

-- ---- lists of modules ---------------------------------------------------------------------------

local function is_plain(x) return type(x) == "table" and getmetatable(x) == nil end

--- Raises for a class that was not called.
-- @param what string what was expected, for the message
function tree.check_called(x, what)
  if is_class(x) then
    fail(("%s is the class nn.%s: call it, nn.%s { .. } or nn.%s()"):format(
      what, x._class_name, x._class_name, x._class_name))
  end
end

--- Keys of a list: positions first, then names.
local function sorted_keys(list, what)
  local keys = {}
  for key in pairs(list) do
    if math.type(key) ~= "integer" and (type(key) ~= "string" or not key:match "^[%w_%-]+$") then
      fail(("%s: modules in a table have positions or names of letters, digits, _ and - as keys, \z
        got \"%s\""):format(what, tostring(key)))
    end
    keys[#keys + 1] = key
  end

  -- Lua compares no numbers with strings: positions in their order, then names in theirs.
  table.sort(keys, function(a, b)
    if type(a) ~= type(b) then return type(a) == "number" end
    return a < b
  end)
  return keys
end

--- Whether a plain table may come to hold modules: it has one, or is empty, or a table in it is so.
local function may_hold(list, seen)
  -- An empty table may be filled later, without anybody noticing: it is watched.
  if next(list) == nil then return true end
  seen = seen or {}
  if seen[list] then return false end
  seen[list] = true
  for _, x in pairs(list) do
    if is_module(x) or is_class(x) or is_plain(x) and may_hold(x, seen) then return true end
  end
  return false
end

--- Calls visit(name, module) for the modules of a list in order, "blocks/1", "blocks/2".
local function spread(list, name, what, visit, seen)
  -- A list may hold itself.
  if seen[list] then return end
  seen[list] = true
  for _, key in ipairs(sorted_keys(list, what)) do
    local x, full = list[key], name .. "/" .. key
    tree.check_called(x, ("%s, item %s"):format(what, key))
    if is_module(x) then
      visit(full, x)
    elseif is_plain(x) and may_hold(x) then
      spread(x, full, what, visit, seen)
    end
  end
end

--- Says that field `key` of m holds a plain table now. @return whether it is a list of modules
function tree.note_list(m, key, list)
  if not is_plain(list) or not may_hold(list) then return false end

  -- A walk that visits nothing: it raises here, where the line is the user's, for keys that no name
  -- can be made of.
  spread(list, key, ("nn.%s: field \"%s\""):format(m._class, key), function() end, {})
  if not m._children[key] and not m._lists[key] then m._order[#m._order + 1] = key end
  m._lists[key] = true
  return true
end

-- ---- slots --------------------------------------------------------------------------------------

--- Calls visit(name, child) for m's modules in order. A list that was filled with other things is
-- no list of modules.
local function each_child(m, visit)
  for _, key in ipairs(m._order) do
    if m._children[key] then
      visit(key, m._children[key])
    else
      spread(m._fields[key], key, ("nn.%s: field \"%s\""):format(m._class, key), visit, {})
    end
  end
end

--- m's modules in order. @return list, names
function tree.children(m)
  local list, names = {}, {}
  each_child(m, function(name, child) list[#list + 1], names[#names + 1] = child, name end)
  return list, names
end

--- Those that were given to m. What only a forward met ("@linear1") is m's to keep, and no part of
-- what a container runs.
function tree.layers(m)
  local list, names = {}, {}
  each_child(m, function(name, child)
    if name:sub(1, 1) ~= "@" then list[#list + 1], names[#names + 1] = child, name end
  end)
  return list, names
end

--- Whether there are any.
function tree.has_children(m)
  return #m._order > 0 and #tree.children(m) > 0
end

--- Whether `above` is m or a host of it, or of those.
local function is_below(m, above)
  if m == above then return true end
  for host in pairs(m._hosts) do
    if is_below(host, above) then return true end
  end
  return false
end

--- The child belongs to m from now on: m is one of its hosts, and its parent if it has none.
local function adopt(m, name, child)
  -- Whoever undoes a failed call wants to know how the child was.
  tree.note_one(child)
  if not child._hosts[m] then
    -- A cycle would have neither a root nor paths.
    if is_below(m, child) then fail(("%s can't be its own child \"%s\""):format(m._class, name)) end
    child._hosts[m] = true
  end
  if not child._parent then
    rawset(child, "_parent", m)
    rawset(child, "_name", name)
    tree.changed(child) -- what was built of it as a root
  end
end

--- The child is no longer in any slot of m. Another host becomes its parent; without one it is a
-- root of its own.
local function release(m, child)
  child._hosts[m] = nil
  if child._parent ~= m then return end

  -- Any other host will do: the next walk from its root gives the name.
  local heir = next(child._hosts)
  rawset(child, "_parent", heir or false)
  rawset(child, "_name", false)
  if heir then rawset(tree.root_of(heir), "_tree", false) end -- its next walk gives the name
  tree.changed(child)
end

--- Next name of the kind base1, base2, .. below a module that none of its children has.
function tree.numbered(m, base)
  local counts = m._counts
  repeat counts[base] = (counts[base] or 0) + 1 until m._children[base .. counts[base]] == nil
  return base .. counts[base]
end

--- Whether m has the child in some slot.
local function has(m, child)
  local found = false
  each_child(m, function(_, x) found = found or x == child end)
  return found
end

--- Puts a module, or nothing, under `key`, in the place of what was there.
function tree.put(m, key, child)
  local old = m._children[key]
  if old == child and not m._lists[key] then return end
  if child then adopt(m, key, child) end
  local is_slot = old ~= nil or m._lists[key]
  m._children[key], m._lists[key] = child, nil
  if child and not is_slot then m._order[#m._order + 1] = key end

  -- A slot that is emptied loses its place; one that is filled again keeps it, and with it the
  -- numbers of names.
  for i = #m._order, 1, -1 do
    if not child and m._order[i] == key then table.remove(m._order, i) end
  end

  -- It may lie in another slot of m still.
  if old and not has(m, old) then release(m, old) end
  tree.changed(m)
end

-- ---- walking ------------------------------------------------------------------------------------

--- All modules from m down, parents first, each once.
function tree.modules(m)
  local list, seen = {}, {}
  local function walk(x)
    if seen[x] then return end
    seen[x] = true
    list[#list + 1] = x
    each_child(x, function(_, child) walk(child) end)
  end
  walk(m)
  return list
end

--- Walks one root: adopts what lies in slots, lets go of what no longer does.
-- @return {list = modules, path = {[module] = "block1/fc"}, lists = whether a list can change
--   unseen, version =}
local function walk_root(root)
  local t = { list = {}, path = {}, lists = false }
  local function walk(m, path)
    t.path[m] = path
    t.list[#t.list + 1] = m
    t.lists = t.lists or next(m._lists) ~= nil
    local here = {}
    each_child(m, function(name, child)
      adopt(m, name, child)
      here[child] = true
      if t.path[child] == nil then
        if child._parent == m then rawset(child, "_name", name) end
        walk(child, path == "" and name or path .. "/" .. name)
      end
    end)

    -- Lists are the user's tables, changed without a word: what was here at the last walk and is
    -- not now has left.
    for child in pairs(m._had) do
      if not here[child] then release(m, child) end
    end
    rawset(m, "_had", here)
  end
  walk(root, "")
  return t
end

local function is_same(a, b)
  if #a.list ~= #b.list then return false end
  for i, m in ipairs(a.list) do
    if b.list[i] ~= m or b.path[m] ~= a.path[m] then return false end
  end
  return true
end

--- The tree of a root as it is now, from its last walk where nothing can have changed since.
function tree.of(root)
  local known = root._tree

  -- A list can change unseen; a tree without lists can't.
  if known and known.version == root._version and not known.lists then return known end
  local t = walk_root(root)

  -- A list has changed: nets of the old tree are old.
  if known and not is_same(known, t) then tree.changed(root) end
  t.version = root._version
  rawset(root, "_tree", t)
  return t
end

--- The root that m belongs to, and its tree. A module that has been taken out of a list is a root
-- again.
function tree.home(m)
  local root = tree.root_of(m)
  local t = tree.of(root)

  -- The walk may just have found that m is in no slot any more.
  if t.path[m] then return root, t end
  root = tree.root_of(m)
  return root, tree.of(root)
end

-- ---- calls that fail ----------------------------------------------------------------------------

local plain_fields = {
  "_parent", "_name", "_tree", "_nets", "_version", "_lazy", "_met", "_ensured", "_had",
  "_seen",
}
local own_tables = { "_children", "_order", "_lists", "_counts", "_hosts", "_params", "_fields" }

local function copied(t)
  local out = {}
  for key, value in pairs(t) do out[key] = value end
  return out
end

--- Puts what m is now into `notes`, unless it is there.
local function note(notes, m)
  if notes[m] then return end
  local was = {}
  for _, key in ipairs(plain_fields) do was[key] = rawget(m, key) end
  for _, key in ipairs(own_tables) do was[key] = copied(rawget(m, key)) end
  notes[m] = was
end

local function put_back(m, was)
  for _, key in ipairs(plain_fields) do rawset(m, key, was[key]) end
  for _, key in ipairs(own_tables) do
    -- The tables stay the same objects, since others hold them; only what is in them goes back.
    local t = rawget(m, key)
    for k in pairs(t) do t[k] = nil end
    for k, value in pairs(was[key]) do t[k] = value end
  end
end

--- The notes of the calls under way: weak, since one may be in a coroutine that nobody resumes.
local under_way = setmetatable({}, { __mode = "k" })

--- m, with all below it, is about to become a part of a tree that is being built.
function tree.note(m)
  for notes in pairs(under_way) do
    for _, x in ipairs(tree.modules(m)) do note(notes, x) end
  end
end

--- m is about to get another host.
function tree.note_one(m)
  for notes in pairs(under_way) do note(notes, m) end
end

--- Begins a call that may fail. `root` nil: one that makes a module of others.
-- @return finish(keep): without `keep` the modules of the tree are as they were: which there are,
--   their names, parameters and the
-- widths they have learnt
function tree.mark(root)
  local notes = {}
  for _, m in ipairs(root and tree.modules(root) or {}) do note(notes, m) end
  under_way[notes] = true
  return function(keep)
    under_way[notes] = nil
    if keep then return end
    for m, was in pairs(notes) do put_back(m, was) end
  end
end

--- f(...) -> f's results; when it raises, the modules of the tree are as they were.
-- @param root module, or nil where f makes a module of others
function tree.attempt(root, f, ...)
  -- __close runs however f ends; `done` says whether it has returned.
  local finish, done = tree.mark(root), false
  local _ <close> = setmetatable({}, { __close = function() finish(done) end })
  return (function(...)
    done = true
    return ...
  end)(f(...))
end

return tree
