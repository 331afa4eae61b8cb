--- What users hold of a trainer: its methods, and its fields to read.
--
-- A trainer is a table that the files of this folder work in; users get a handle of it, an empty
-- table, so that a field which is set reaches __newindex and is refused: nothing would read it.
-- INVARIANT: methods are called with the trainer itself, and give a handle where they give the
-- trainer.
-- @module neap.train.handle
local core = require "neap.core"
local guard = require "neap.inner.guard"
local Trainer = require("neap.train.state").Trainer
local fail = core.fail
local handles = {}

local Handle = { __name = Trainer.__name }
local trainer_of = setmetatable({}, { __mode = "k" })

--- The handle of a trainer, made once.
function handles.new(trainer)
  local handle = setmetatable({}, Handle)
  trainer_of[handle] = trainer
  return handle
end

--- The trainer of a handle, for Neap's own files.
function handles.behind(handle) return trainer_of[handle] end

local function trainer_behind(handle, name)
  return trainer_of[handle]
    or fail(("trainer:%s is a method: t:%s(..), with a colon"):format(name, name))
end

local function method(name, f)
  local function call(handle, ...) return f(trainer_behind(handle, name), ...) end
  core.name_function(call, "trainer:" .. name)
  guard.original[call] = f
  return call
end

Handle.__index = function(handle, key)
  -- Methods first, then the fields of the trainer behind.
  local own = type(key) == "string" and key:sub(1, 1) ~= "_" and Handle[key] or nil
  if own ~= nil then return own end
  return trainer_of[handle][key]
end

--- Says where what someone set is said instead.
local function refuse(options, key)
  local hint = "nothing would read it"
  if key == "lr" then
    hint = "the rate is t.optimizer.lr, or what the trainer's schedule gives for a step"
  elseif key == "seed" then
    hint = "a model is seeded by m:seed(n), or when the trainer is made"
  elseif options[key] ~= nil then
    hint = ("it is given when the trainer is made: neap.trainer { %s = .. }"):format(key)
  end
  error(core.error {
    code = "argument",
    message = ("trainer: \"%s\" can't be set"):format(tostring(key)),
    hint = hint,
  })
end

--- Gives handles the methods of the class, which is complete now.
-- @param options table by name of what neap.trainer takes
function handles.complete(options)
  local names = {}
  for name, f in next, Trainer do
    -- Names with an underscore are between Neap's own files.
    if type(f) == "function" and name:sub(1, 1) ~= "_" then
      Handle[name] = method(name, f)
      names[#names + 1] = name
    end
  end
  Handle.__close = function(handle) Trainer.close(trainer_of[handle]) end
  Handle.__tostring = function(handle) return Trainer.__tostring(trainer_of[handle]) end
  Handle.__newindex = function(_, key) refuse(options, key) end
  Handle.__names = function(handle)
    local all = table.move(names, 1, #names, 1, {})
    for key in next, handle and trainer_of[handle] or {} do all[#all + 1] = key end
    return all
  end
end

return handles
