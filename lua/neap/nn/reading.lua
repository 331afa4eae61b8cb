--- Reading a text piece by piece: what layers do when a net is built to go on where it stopped.
--
-- A build may have a `reading`: { position = blob (B), the rows read so far; length = N, the rows
-- that its caches hold; caches = their names }. Layers that mix the rows of a text then look at
-- what they have kept of the rows before: causal attention at its keys and values, positions at the
-- row's own number.
-- Everything else works row by row, and needs to know nothing.
--
-- INVARIANT: a cache is state of the net, named after its layer, "block1/attn.keys"; each call of a
-- layer in a forward has one of its own.
-- @module neap.nn.reading
local context = require "neap.nn.context"
local core = require "neap.core"
local kit = require "neap.ops.kit"
local naming = require "neap.net.naming"
local op = require "neap.op"

local reading = {}

--- What is read so far, while such a net is built; else nil.
function reading.now()
  local build = context.building()
  return build and build.reading
end

--- The numbers of the rows of x (B,T,..), as the text counts them, from 0: (1,T), or (B,T) where
-- the sequences have read different lengths.
-- @param dtype string of the numbers
function reading.positions(x, dtype)
  local here, length = reading.now(), x.shape[2]

  -- The op gives 0 .. T-1 on tensors and blobs alike.
  local rows = kit.range(x, length, dtype):reshape(1, length)
  if not here then return rows end
  return rows + op.apply("Cast", { here.position }, { to = dtype }):reshape(x.shape[1], 1)
end

--- A name for a cache of layer `m`: that of an earlier call of it has another.
local function cache_name(here, m, what)
  local path = context.building().tree.path[m]

  -- A layer called twice in a forward reads two texts: each call has a cache.
  local name = (path ~= "" and path or m._base) .. "." .. what
  here.n_named[name] = (here.n_named[name] or 0) + 1
  return here.n_named[name] == 1 and name or name .. here.n_named[name]
end

--- Causal attention of the rows at hand to all rows read, in the build's reading.
-- @param m module whose attention it is
-- @param q blob (B,T,H D)
-- @param k blob (B,T,G D)
-- @param v blob (B,T,G E)
-- @param heads integer H
-- @return blob (B,T,H E)
function reading.attend(m, q, k, v, heads)
  local here, net = reading.now(), context.building().net
  local function cache(what, rows)
    local name = cache_name(here, m, what)
    local blob = net:declare(name, "state", { rows.shape[1], here.length, rows.shape[3] },
      rows.dtype, { op = "Constant", value = 0 }, false)
    naming.keep_to_layer(net, name)
    table.insert(here.caches, name)
    return blob
  end

  -- The op writes the new rows behind the old ones, in place: outputs with the caches' names.
  local keys, values = cache("keys", k), cache("values", v)
  local y = net:fresh_name(m._base)
  return (net:op("CachedAttention", { q, k, v, keys, values, here.position },
    { y, keys.name, values.name }, { heads = heads }))
end

--- Raises where a layer looks at rows that come later: those are not there yet.
function reading.check_causal(m)
  if reading.now() and not m.causal then
    core.fail(("nn.%s: a text is read piece by piece, and this attention looks at rows that come \z
      later; one that can be read so has causal = true"):format(m._class))
  end
end

return reading
