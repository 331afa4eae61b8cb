--- What a refused limit could still do: `err.batch`, the largest batch that keeps it.
--
-- An error of code "budget" has the figures of the refusal in its fields (src/lua/check.c). The
-- batch takes several plans to find, so it is looked for when it is asked for, once: of the net and
-- the options as they were when they were refused.
-- @module neap.memory.refusal
local core = require "neap.core"

local refusal = {}

--- By error object: a function that gives the batch. Goes with the object.
local finders = setmetatable({}, { __mode = "k" })

--- The batch, or nil where none fits or there is no batch to make smaller.
local function batch_of(err)
  local find = finders[err]
  if find == nil then return nil end
  local ok, n = pcall(find)
  if not ok
      and type(n) == "table"
      and (rawget(n, "code") == "memory" or rawget(n, "code") == "interrupted") then
    error(n, 0)
  end
  finders[err] = nil
  n = ok and n or nil
  rawset(err, "batch", n)
  return n
end

getmetatable(core.error { code = "internal", message = "" }).__index = function(err, key)
  if key == "batch" then return batch_of(err) end
end

--- Calls f(...). An error that refuses a limit of the plan gets a batch: `prepare`() gives the
-- function that finds it, with whatever it needs of now. Around a call of its own kind it has the
-- last word, since it knows more: a model is built anew for each batch.
-- @tparam function prepare
-- @tparam function f
-- @return what f returns
function refusal.around(prepare, f, ...)
  local function done(ok, ...)
    if ok then return ... end
    local err = ...
    if type(err) == "table"
        and rawget(err, "code") == "budget"
        and not rawget(err, "held_bytes") then
      finders[err] = prepare()
    end
    error(err, 0)
  end
  return done(pcall(f, ...))
end

local function copy(t)
  local out = {}
  for key, value in pairs(t or {}) do out[key] = value end
  return out
end

--- The same for a net whose declared inputs have the batch.
function refusal.around_net(net, memory, f, ...)
  return refusal.around(function()
    local same, all = net:clone(), copy(memory)
    return function()
      return (core.fit_batch(function(n)
        local given, inputs = copy(all), copy(all.inputs)
        for name, shape in pairs(core.batch_inputs(same, n)) do
          inputs[name], given[name] = shape, nil
        end
        given.inputs = inputs
        return same, given
      end, refusal.most))
    end
  end, f, ...)
end

--- The same for nets that a function builds for each batch: net_of(n) -> net, memory options.
function refusal.around_model(net_of, f, ...)
  return refusal.around(function()
    return function() return (core.fit_batch(net_of, refusal.most)) end
  end, f, ...)
end

--- Batches that are tried at most.
refusal.most = 65536

return refusal
