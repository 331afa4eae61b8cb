--- Control flow on nets: builders of ops that own subnets.
--
-- A branch, condition or body is a Lua function that runs once, when the net is built, on a subnet. Outer blobs that it reads
-- are captured; outer blobs that it writes by name are written outside too.
-- INVARIANT: a subnet's declared interface is (captures, results) in the order of the owner's operands.
-- @module neap.control
local core = require "neap.core"
local naming = require("neap.net").naming

local Net = core.Net
local state_of, scope_of, handle = naming.state_of, naming.scope_of, naming.handle
local written, is_known, reader, current = naming.written, naming.is_known, naming.reader, naming.current

-- ---- subnets -----------------------------------------------------------------------------------------------------------------

--- Builds a subnet by running f once on it. Returns the subnet and the names f returned.
local function build_branch(outer, name, f)
  local sub = outer:_sub(name)
  state_of(sub).outer = outer
  local thread = coroutine.running()
  local before = current[thread]
  current[thread] = sub
  local _ <close> = setmetatable({}, { __close = function() current[thread] = before end })
  local results = table.pack(f(sub))
  local names = {}
  for i = 1, results.n do names[i] = reader(sub, results[i], "a branch") end
  return sub, names
end

--- What a subnet reads from around it, and what it writes: lists in order of first appearance.
local function uses(sub)
  local reads, writes, defined, seen = {}, {}, {}, {}
  for _, row in ipairs(sub:_ops()) do
    for _, name in ipairs(row.inputs) do
      if name and not defined[name] and not seen[name] then
        seen[name] = true
        reads[#reads + 1] = name
      end
    end
    for _, name in ipairs(row.outputs) do
      if name and not defined[name] then
        defined[name] = true
        writes[#writes + 1] = name
      end
    end
  end
  return reads, writes, defined
end

local function append(to, seen, names, accept)
  for _, name in ipairs(names) do
    if not seen[name] and accept(name) then
      seen[name] = true
      to[#to + 1] = name
    end
  end
end

--- net:If(cond, f [, g]) -> blobs: f(sub) builds the branch taken when cond is not zero, g(sub) the other one. What the
-- functions return are the results, equally many; outer blobs that a branch writes by name are written outside too. Without
-- results and with both branches, a name that both write is a result as well.
-- @usage net:If("cond", function(b) return b:Relu "x" end, function(b) return b:Copy "x" end)
function Net:If(cond, f, g)
  if type(f) ~= "function" or (g ~= nil and type(g) ~= "function") then error("net:If expects (cond, f [, g]), functions that build the branches", 2) end
  local branches = {}
  local branch_name = self:fresh_name "branch"
  local function build(builder, which)
    local sub, results = build_branch(self, branch_name .. "." .. which, builder)
    local reads, writes, defined = uses(sub)
    branches[#branches + 1] = { sub = sub, results = results, reads = reads, writes = writes, defined = defined }
  end
  build(f, "then")
  if g then build(g, "else") end
  local first, second = branches[1], branches[2]
  if second and #first.results ~= #second.results then
    error(("net:If: the branches return %d and %d blobs"):format(#first.results, #second.results), 2)
  end
  if not second and #first.results > 0 then error("net:If: a branch that returns blobs needs another one for when the condition is false", 2) end
  local function outside(name) return is_known(self, name) end
  -- Written by name: outer blobs in any branch; without results also what both branches define.
  local written_names, seen = {}, {}
  for _, b in ipairs(branches) do append(written_names, seen, b.writes, outside) end
  if second and #first.results == 0 then append(written_names, seen, first.writes, function(name) return second.defined[name] end) end
  -- Captured: what is read, results that come from outside, and the old values of what may stay as it is.
  local captures, taken = {}, {}
  for _, b in ipairs(branches) do
    append(captures, taken, b.reads, outside)
    append(captures, taken, b.results, function(name) return not b.defined[name] end)
  end
  append(captures, taken, written_names, outside)
  local outs = {}
  for i = 1, #first.results do outs[i] = self:fresh_name "if" end
  for _, name in ipairs(written_names) do outs[#outs + 1] = name end
  for _, b in ipairs(branches) do
    local names = table.move(b.results, 1, #b.results, 1, {})
    table.move(written_names, 1, #written_names, #names + 1, names)
    b.sub:_interface(captures, names)
  end
  local out_names = {}
  for i, name in ipairs(outs) do out_names[i] = i <= #first.results and written(self, name) or name end
  local ins = { reader(self, cond, "If"), table.unpack(captures) }
  local names = self:_add("If", ins, out_names, { then_net = first.sub, else_net = second and second.sub or nil }, nil, scope_of(self))
  state_of(self).branches = state_of(self).branches or {}
  for _, b in ipairs(branches) do table.insert(state_of(self).branches, b.sub) end
  local blobs = {}
  for i, name in ipairs(names) do blobs[i] = handle(self, name) end
  return table.unpack(blobs)
end

return {}
