--- Memory banks: bytes of one kind, of which programs may take so many and no more.
--
-- A bank is given with memory options, `banks = { neap.bank { "fast", bytes = "2MiB" } }`; a net
-- says what belongs to it, `net:bank("fast", ..)`. Where the memory options have no banks, what a
-- net says of them means nothing, so that one net serves machines with and without.
-- @module neap.memory.bank
local core = require "neap.core"
local naming = require "neap.net.naming"
local op = require "neap.op"
local record = require "neap.inner.record"
local fail = core.fail

local bank = {}

local Bank = { __name = "neap.bank" }
Bank.__tostring = function(b)
  return ("bank \"%s\", %s%s"):format(
    b.name, b.kind, b.bytes > 0 and ", " .. core.bytes_text(b.bytes) or "")
end

local bank_options = record.declare("neap.bank", {
  doc = [[A memory bank, for memory options: bytes of one kind, of which programs take so many and
    no more. The bank "main" is what all has that is assigned to none; it may be given too, to limit
    it. neap.bank(name, f, ..) -> f's results: the ops that f adds belong to the bank, in the net
    being built; eagerly it calls f and no more.]],
  positions = { "name" },
  { "name", "name", required = true, doc = "what a net's blobs are assigned to" },
  {
    "bytes", "bytes", 0,
    doc = [[at most so many for all programs of a workspace, 0 for no limit; a
      net that needs more is refused, by the bank's name]],
  },
  {
    "kind", "choice", "ordinary",
    choices = { "huge", "ordinary" },
    doc = "\"huge\" asks the kernel for huge pages",
  },
  example = 'neap.bank { "fast", bytes = "2MiB" }',
})

--- neap.bank { name, bytes = capacity, kind = "ordinary" | "huge" } -> a bank for memory options.
-- bytes: a number or "2MiB", at most so many for all programs of a workspace, 0 for no limit; a net
-- that needs more is refused, by the bank's name. kind "huge" asks the kernel for huge pages. The
-- bank "main" is what all has that is assigned to none; it may be given too, to limit it.
--
-- neap.bank(name, f, ...) -> f's results: the ops that f adds belong to the bank, in the net being
-- built (a module's forward, a scope). Eagerly it calls f(...) and no more.
-- @usage local fast = neap.bank { "fast", bytes = "2MiB" }
-- ws:run(net, { x = x }, { banks = { fast } })
-- @usage nn.Lambda(function(x) return neap.bank("fast", function() return x:relu() end) end)
function bank.new(given, f, ...)
  -- Two calls in one: with a function the ops that it adds, with a table a bank.
  if type(given) == "string" and f ~= nil then
    local net = naming.current[coroutine.running()]
    if net then return net:bank(given, f, ...) end
    if type(f) ~= "function" and not (getmetatable(f) or {}).__call then
      fail(("neap.bank(name, f, ...) outside of a net expects a function, got a %s"):format(
          type(f)))
    end
    return f(...)
  end
  if type(given) ~= "table" or f ~= nil then
    fail(("neap.bank expects { \"fast\", bytes = \"2MiB\" }, or a name and a function, got a \z
      %s"):format(
        type(given)))
  end
  local o = bank_options:read(given)
  o.bytes = core.parse_bytes(o.bytes)
  return setmetatable(record.note(o, o), Bank)
end

local Net = core.Net

--- Assigns one blob, by its handle or name.
local function assign(net, x, name)
  if type(x) ~= "string" and not op.is_blob(x) then
    fail(("net:bank expects blobs, names of blobs, a list of them, or a function that adds ops, \z
      got a %s"):format(type(x)))
  end
  net:_assign(naming.reader(net, x, "bank"), name)
end

--- net:bank(name, blobs) -> net: the blobs, a handle, a name or a list, lie in the memory bank.
-- Parameters and others with bytes of their own are copied there for as long as a run uses them.
--
-- net:bank(name, f, ...) -> f's results: the ops that f adds work on bytes of the bank alone. What
-- they read from elsewhere is copied there first, what they make lies there; the backward pass
-- follows. Copies are ops of the plan, and counted as such.
-- @usage net:bank("fast", { "h1", "h2" })
-- @usage local y = net:bank("fast", function() return net:Relu(net:FC({ "x", "w", "b" })) end)
function Net:bank(name, what, ...)
  if type(name) ~= "string" or name == "" then
    fail(("net:bank expects the name of a bank first, got a %s"):format(type(name)))
  end

  -- A function, or what can be called as one (a module): its ops belong to the bank.
  if type(what) == "function"
      or (type(what) == "table" and not op.is_blob(what) and (getmetatable(what) or {}).__call) then
    return self:device(name, function(...) return what(...) end, ...)
  end
  if select("#", ...) > 0 then fail "net:bank(name, blobs) takes the blobs as one list" end

  -- The list is counted by its keys, since # stops at a hole: assign then refuses the nil in it.
  if type(what) == "table" and not op.is_blob(what) then
    local n = naming.count(what, "net:bank")
    if n == 0 then fail "net:bank(name, blobs) expects at least one blob" end
    for i = 1, n do assign(self, what[i], name) end
  else
    assign(self, what, name)
  end
  return self
end

return bank
