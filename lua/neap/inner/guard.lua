--- Nothing that is given is dropped: the functions of the public tables raise for an argument that
-- they do not have.
--
-- Lua itself lets a call give more arguments than a function has parameters. Here that is an error,
-- unless the further ones are nil. Functions of C say how many they read where they are registered
-- (src/lua/handle.c); those of Lua are wrapped here, once, when their table is complete. INVARIANT:
-- a wrapper ends in a tail call, so that it is on nobody's stack.
--
-- The functions get their names here, too, by which errors about arguments and neap.help know them
-- (core.name_function).
-- @module neap.inner.guard
local core = require "neap.core"

-- `original`: the function behind each checked one, for neap.help.
local guard = { original = setmetatable({}, { __mode = "k" }) }

--- f, but with at most `most` arguments that are not nil. `n_self` of them nobody counts: 1 for a
-- method, for its object.
local function checked(f, name, most, n_self)
  return function(...)
    for i = most + 1, select("#", ...) do
      if (select(i, ...)) ~= nil then
        core.fail(("%s takes %d argument%s, got %d"):format(
          name, most - n_self, most - n_self == 1 and "" or "s", i - n_self))
      end
    end
    return f(...)
  end
end

--- Puts checked functions in the place of those of a table. Names that begin with `_` are Neap's
-- own; functions with `...` look at their arguments themselves, and so do those of C.
-- @param t table
-- @param prefix string that stands before names in messages: "neap.", "net:"
-- @return t
function guard.functions(t, prefix)
  local n_self = prefix:sub(-1) == ":" and 1 or 0
  for name, f in next, t do
    if type(f) == "function" and type(name) == "string" and name:sub(1, 1) ~= "_" then
      core.name_function(f, prefix .. name)
      local info = debug.getinfo(f, "Su")
      if info.what == "Lua" and not info.isvararg then
        local g = checked(f, prefix .. name, info.nparams, n_self)
        core.name_function(g, prefix .. name)
        guard.original[g] = f
        rawset(t, name, g)
      end
    end
  end
  return t
end

return guard
