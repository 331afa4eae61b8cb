--- What a refused limit could still do: `err.batch`, the largest batch that keeps it.
--
-- An error of code "budget" has the figures of the refusal in its fields (src/lua/check.c); where
-- the system had less memory than was asked of it, what it has is the limit. The batch takes
-- several plans to find, so it is looked for when it is asked for, once: of the net and the options
-- as they were when they were refused.
-- @module neap.memory.refusal
local core = require "neap.core"

local refusal = {}

--- By error object: a function that gives the batch, and one that gives the net and the memory
-- options which were refused. Both go with the object.
local finders = setmetatable({}, { __mode = "k" })
local makers = setmetatable({}, { __mode = "k" })

--- The batch, or nil where none fits or there is no batch to make smaller.
local function batch_of(err)
  local find = finders[err]
  if find == nil then return nil end

  -- Looking for it may fail for any reason, and then there is no batch to name. Two are about the
  -- search itself.
  local ok, n = pcall(find)
  if not ok
      and type(n) == "table"
      and (rawget(n, "code") == "memory" or rawget(n, "code") == "interrupted") then
    error(n, 0)
  end
  -- Once: what was found stands in the error from now on, and the nets it holds can go.
  finders[err] = nil
  n = ok and n or nil
  rawset(err, "batch", n)
  return n
end

getmetatable(core.error { code = "internal", message = "" }).__index = function(err, key)
  if key == "batch" then return batch_of(err) end
end

--- Whether the system refused more than it has. (Less than that is refused where memory is in
-- pieces, and says nothing of batches.)
local function is_of_system(err)
  local request, available = rawget(err, "request_bytes"), rawget(err, "available_bytes")
  return rawget(err, "code") == "memory" and request ~= nil and available ~= nil
    and request > available
end

--- Whether less memory than what was asked for could do.
local function is_refusal(err)
  return type(err) == "table" and (rawget(err, "code") == "budget" or is_of_system(err))
end

--- Calls f(...). An error that refuses a limit of the plan, or the memory, gets a batch:
-- `prepare`() gives the function that finds it, with whatever it needs of now. Around a call of its
-- own kind it has the last word, since it knows more: a model is built anew for each batch.
-- @tparam function prepare
-- @tparam function f
-- @return what f returns
function refusal.around(prepare, f, ...)
  -- pcall and not __close: the error is changed before it goes on.
  local function done(ok, ...)
    if ok then return ... end
    local err = ...
    if is_refusal(err) then finders[err], makers[err] = prepare(err) end
    error(err, 0)
  end
  return done(pcall(f, ...))
end

--- Whether the same net fits in bf16.
local function fits_in_halves(err)
  local make = makers[err]
  if not make then return false end
  local ok, plan = pcall(function()
    -- What is set above stays, whatever the options say of it; all else is theirs.
    local net, memory = make()
    local given = { store = false, dtype = "bf16" }
    for key, value in pairs(memory or {}) do
      if given[key] == nil then given[key] = value end
    end
    return net:plan(given)
  end)
  return ok and plan ~= nil
end

--- Looks for what would fit in place of what was refused, and says it in the error's hint, beside
-- the limit that would do: the largest batch, and whether the net does in bf16. Plans it takes are
-- not stored. Once for an error; for others nothing happens.
function refusal.say_fits(err)
  if not is_refusal(err) or rawget(err, "fits") then return end
  local said, fits = { rawget(err, "hint") }, { budget = rawget(err, "least_bytes") }
  fits.batch = err.batch
  if fits.batch then said[#said + 1] = ("a batch of %d fits"):format(fits.batch) end
  if fits_in_halves(err) then
    fits.dtype = "bf16"
    said[#said + 1] = "in bf16 it fits"
  end
  rawset(err, "fits", fits)
  rawset(err, "hint", table.concat(said, "; "))
end

local function copy(t)
  local out = {}
  for key, value in pairs(t or {}) do out[key] = value end
  return out
end

--- Of what the system has: seven eighths, as neap.fit_batch takes of free memory, and what the
-- libraries need for themselves: stacks of threads, generated code and the rooms in which matrices
-- are packed, which no plan counts and whose refusal oneDNN does not survive.
function refusal.system_limit(available_bytes)
  local of_all, of_thread = 32 << 20, 16 << 20
  local own = of_all + of_thread * core.threads()
  return math.max(math.min(available_bytes // 8 * 7, available_bytes - own), 1)
end

--- What a refusal by a workspace's own limit leaves its net, as limits of plans: others hold what
-- the refusal counts and the net's plan does not. A refusal by a plan leaves the options' limits,
-- one by the system what `refusal.system_limit` says.
-- @param net neap.net as it was refused
-- @param memory table of its memory options
-- @return f(memory options) -> the same within these limits; nil where nothing is left
local function left_by(err, net, memory)
  local held, fixed = rawget(err, "held_bytes"), rawget(err, "fixed")
  if is_of_system(err) then
    -- The system refused: a plan within what it has, unless the options ask for less already.
    local most = refusal.system_limit(rawget(err, "available_bytes"))
    return function(given)
      local out = copy(given)
      if math.type(out.total) ~= "integer" or out.total > most then out.total = most end
      return out
    end
  end

  -- The plan alone refused: its limits are in the options, and hold for other batches as they are.
  if held == nil then return function(given) return given end end
  local limits = {}
  if err.limit == "budget" then
    limits.budget = err.limit_bytes
    -- The arena may take what is left beside what is fixed, such as arenas of programs that stay.
    for _, bytes in pairs(fixed) do limits.budget = limits.budget - bytes end
    if limits.budget < 1 then return nil end
  elseif err.limit == "total" then
    -- Of what is held already the net's own blobs are in its plan, too: `known` bytes would be
    -- counted twice.
    local free = copy(memory)
    free.budget, free.total, free._beside = nil, nil, nil
    local plan = net:_plan(free)
    local known = plan.total_bytes - plan.arena_bytes - (fixed["the net's own blobs"] or 0)
    local others = fixed["held already"] or 0
    limits.total = err.limit_bytes
    limits._beside = { math.max(others - known, 0), held - others }
  else
    return nil
  end
  return function(given)
    local out = copy(given)
    for key, value in pairs(limits) do out[key] = value end
    return out
  end
end

--- The same for a net whose declared inputs have the batch.
function refusal.around_net(net, memory, f, ...)
  return refusal.around(function(err)
    -- The search runs when its answer is asked for, not before: on a copy, since the caller may
    -- have changed the net by then.
    local same, all = net:clone(), copy(memory)
    return function()
      local within = left_by(err, same, all)
      if within == nil then return nil end
      return (core.fit_batch(function(n)
        local given, inputs = copy(all), copy(all.inputs)
        for name, shape in pairs(core.batch_inputs(same, n)) do
          inputs[name], given[name] = shape, nil
        end
        given.inputs = inputs
        return same, within(given)
      end, refusal.most))
    end, function()
      local within = left_by(err, same, all)
      return same, within and within(all)
    end
  end, f, ...)
end

--- The same for nets that a function builds for each batch: net_of(n) -> net, memory options.
-- @param try function|nil f(n) -> the error of making the program of n rows where it will run: what
--   a plan allows may be refused there, since others hold bytes
-- @param rows integer|nil the batch that is asked for
function refusal.around_model(net_of, try, rows, f, ...)
  return refusal.around(function(first)
    -- Others may hold more than a plan counts, so that each refusal leaves fewer rows.
    local function fitting(err, most)
      local within = left_by(err, net_of(most or rows or 1))
      return within and core.fit_batch(function(fewer)
        local net, memory = net_of(fewer)
        return net, within(memory)
      end, most or refusal.most)
    end
    return function()
      local n = is_of_system(first) and fitting(first) or core.fit_batch(net_of, refusal.most)
      local err = try and try(n)
      while err ~= nil and n > 1 do
        n = fitting(err, n - 1)
        if n == nil then return nil end
        err = try(n)
      end
      return err == nil and n or nil
    end, rows and function()
      local net, memory = net_of(rows)
      local within = is_of_system(first) and left_by(first, net, memory)
      return net, within and within(memory) or memory
    end
  end, f, ...)
end

--- Batches that are tried at most.
refusal.most = 65536

return refusal
