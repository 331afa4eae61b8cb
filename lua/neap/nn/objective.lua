--- What a net is trained by: a loss, or several with weights, and metrics beside them.
--
-- Each is called with the model's outputs, and behind them with the fields of the batch that its
-- function names: function(recon, mu, logvar, x) of a model of three outputs gets the field x. An
-- argument that no field is called after is the target, the field y. Neap's own losses take the
-- target alone: their arguments' names say nothing of anybody's data.
--
-- INVARIANT: `loss` is the sum of the terms, each times its weight; the terms have values of their
-- own where there are several.
-- @module neap.nn.objective
local forward = require "neap.nn.forward"
local fail = require("neap.core").fail
local is_blob = require("neap.op").is_blob
local module = require "neap.nn.module"
local options = require "neap.inner.options"
local record = require "neap.inner.record"

local objective = {}
local Objective = {}
Objective.__index = Objective

local term_options = record.new("neap.trainer: losses", { positions = { "f" },
  { "f", "module|function", required = true,
    says = "a loss such as nn.MseLoss(), or a function of the outputs and of fields",
    doc = "the loss" },
  { "weight", "number", 1, doc = "what it counts in the sum" },
  { "name", "name", unset = "loss1, loss2, ..", doc = "what its value is called in results" },
  { "output", "integer", min = 1, unset = "all of them",
    doc = "which of the model's outputs it is of" },
  { "target", "name", "y", doc = "the field that is its target" },
  example = "losses = { { nn.MseLoss(), weight = 0.5 }, { nn.CrossEntropyLoss(), output = 2 } }" })

--- A loss given as a function is a module, whose target looks like the data's.
local function as_module(f)
  if type(f) ~= "function" then return f end
  return module.class {
    "Loss",
    name = "loss",
    init = function(self) self.f = f end,
    forward = function(self, ...) return self.f(...) end,
  } {}
end

--- The objective of one loss, or of a list of { loss, weight =, .. }; nil where neither is given.
function objective.of(who, loss, losses)
  if getmetatable(losses) == Objective then return losses end
  if loss ~= nil and losses ~= nil then
    fail(("%s takes a loss, or a list of losses, and not both"):format(who))
  end
  if loss == nil and losses == nil then return nil end
  local self, own = setmetatable({ terms = {} }, Objective), {}

  -- Every loss as a term with a name; fields left out get their defaults by the record.
  for i, given in ipairs(losses or { { loss } }) do
    if module.is_module(given) or type(given) == "function" then given = { given } end
    local term = {}
    for key, value in pairs(term_options:read(given, ("losses[%d]"):format(i))) do
      term[key] = value
    end
    term.is_function = type(term.f) == "function"
    term.module = as_module(term.f)
    term.is_named = term.name ~= nil
    term.name = term.name or "loss" .. i
    if own[term.name] then fail(("%s: two losses are called \"%s\""):format(who, term.name)) end
    own[term.name] = true
    self.terms[i] = term
  end
  if #self.terms == 0 then fail(who .. ": losses expects a list of at least one loss") end
  -- ipairs has passed over holes and names: nothing may be dropped.
  for key in pairs(losses or {}) do
    if math.type(key) ~= "integer" or key < 1 or key > #self.terms then
      fail(("%s: losses expects a list, nothing reads its field \"%s\""):format(
        who, tostring(key)))
    end
  end
  return self
end

--- Whether a term's own value is told: a single loss is the loss, unless it has a name of its own.
function Objective:tells(term) return #self.terms > 1 or term.is_named end

--- Names under which the terms' own values are told.
function Objective:names()
  local names = {}
  for i, term in ipairs(self.terms) do names[i] = self:tells(term) and term.name or nil end
  return names
end

--- What all terms say of how they reduce rows, "mean" or "sum"; nil where they don't, or differ.
function Objective:reduces()
  local word = self.terms[1].module.reduces
  for _, term in ipairs(self.terms) do
    if term.module.reduces ~= word then return nil end
  end
  return word
end

--- A loss of the data's own for messages: its class, or "the loss".
function Objective:class() return self.terms[1].module._class end

-- ---- arguments ----------------------------------------------------------------------------------

--- The function of the user behind a loss or a metric, and how many of its arguments are not the
-- call's; nil for Neap's own.
local function users_function(term)
  if term.is_function then return term.f, 0 end
  if type(term.module) == "table" and forward.runs_own_code(term.module) then
    return term.module._methods.forward, 1
  end
end

--- Names of what a user's function takes, and whether more can follow.
local function parameters(f, skip)
  local info, names = debug.getinfo(f, "u"), {}
  for i = skip + 1, info.nparams do names[#names + 1] = debug.getlocal(f, i) or "" end
  return names, info.isvararg
end

--- Names of fields that losses and metrics may take: {name = true}.
function Objective:fields(metrics)
  local names = {}
  local function add(f, skip)
    for _, name in ipairs(f and parameters(f, skip) or {}) do names[name] = true end
  end
  for _, term in ipairs(self.terms) do
    names[term.target] = true
    add(users_function(term))
  end
  for _, metric in pairs(metrics or {}) do
    if type(metric) == "function" then add(metric, 0) end
  end
  return names
end

--- The outputs and the fields as the arguments of a call.
-- @param f function|nil of the user's
-- @param outs list of outputs, n of them
-- @param field f(name) -> blob or nil
-- @param target f() -> the target's blob, or nil
-- @param own_name string what the target is called in a batch
local function arguments(f, skip, outs, field, target, own_name)
  -- The outputs come first, whatever the loss; what follows depends on who wrote it.
  local args = table.move(outs, 1, outs.n, 1, { n = outs.n })
  local function add(value)
    args.n = args.n + 1
    args[args.n] = value
  end
  -- Neap's own loss takes (output, target).
  if f == nil then
    add(target())
    return args
  end
  local names, has_more = parameters(f, skip)
  -- The target is what is called y or as its field; else the one argument that names no field, `t`
  -- say.
  local function is_target(name) return name == "y" or name == own_name end
  local has_target = false
  for i = outs.n + 1, #names do has_target = has_target or is_target(names[i]) end
  for i = outs.n + 1, #names do
    local found = field(is_target(names[i]) and own_name or names[i])
    if not found and is_target(names[i]) then found = target() end
    if not found and not has_target then
      found, has_target = target(), true
    elseif not found then
      fail(("the loss or metric takes \"%s\", and a batch has no field of that name"):format(
        names[i]))
    end
    add(found)
  end
  -- more outputs than it takes are its caller's to refuse, as with the target behind them
  if outs.n > #names or outs.n == #names and has_more then add(target()) end
  return args
end

--- One of a model's outputs, or all of them; a function among several losses takes as many as it
-- has arguments for.
local function outputs_of(self, term, outs)
  -- A function beside other losses takes the first outputs, as many as it names. Alone it gets all,
  -- and refuses itself what it does not take.
  local f, skip = users_function(term)
  if f and term.output == nil and #self.terms > 1 then
    local names, has_more = parameters(f, skip)
    return { n = has_more and outs.n or math.min(outs.n, #names), table.unpack(outs, 1, outs.n) }
  end
  if term.output == nil then return outs end
  if term.output > outs.n then
    fail(("losses: \"%s\" is of output %d, and the model gives %d"):format(
      term.name, term.output, outs.n))
  end
  return { outs[term.output], n = 1 }
end

--- The blob of one loss.
local function term_of(self, term, outs, field, target)
  local own = outputs_of(self, term, outs)
  local f, skip = users_function(term)
  -- of as many outputs as it takes operands there is no target
  local is_complete = not f and (term.module.operands or math.huge) <= own.n
  local args = is_complete and own or arguments(f, skip, own, field, function()
    return target(term, own[1])
  end, term.target)
  local values = table.pack(term.module(table.unpack(args, 1, args.n)))
  if values.n ~= 1 or not is_blob(values[1]) then
    fail(("the loss gives %s; one blob of one number is expected"):format(
      values.n == 1 and "a " .. type(values[1]) or values.n .. " values"))
  end
  return values[1]
end

--- The loss in the net being built.
-- @param outs the model's outputs, n of them
-- @param field f(name) -> the blob of a batch's field, or nil
-- @param target f(term, output) -> the blob of a loss's target, or nil
-- @return blob, {name = blob of a term}
function Objective:apply(outs, field, target)
  local total, values = nil, {}
  for _, term in ipairs(self.terms) do
    local value = term_of(self, term, outs, field, target)

    -- A term that is told must be one number, as the loss is.
    if self:tells(term) then
      if value.shape and #value.shape > 0 then value = value:reshape {} end
      values[term.name] = value
    end
    -- Times 1 would be an op for nothing.
    local weighted = term.weight == 1 and value or value * term.weight
    total = total and total + weighted or weighted
  end
  return total, values
end

--- Raises where a function takes as many arguments as there are outputs, and a batch has a target
-- for one more.
function Objective:refuse_target(outs, name)
  local term = self.terms[1]
  local f, skip = users_function(term)
  local names = f and parameters(f, skip) or {}
  if #self.terms > 1 or term.target ~= name or #names < outs.n then return end
  fail(("the loss function takes %d input%s, got %d: the model's outputs and the target"):format(
    #names, #names == 1 and "" or "s", outs.n + 1))
end

--- The blob of a metric: a function of the first output and of fields, or what a loss knows by
-- name.
function Objective:metric(name, f, outs, field, target)
  -- A metric sees the first output alone: it measures what the model answers.
  local first = { outs[1], n = 1 }
  if type(f) == "function" then
    local args = arguments(f, 0, first, field, function()
      return target(self.terms[1], outs[1])
    end, self.terms[1].target)
    return f(table.unpack(args, 1, args.n))
  end
  for _, term in ipairs(self.terms) do
    if term.module.metric then
      local own = outputs_of(self, term, outs)
      return term.module:metric(name, own[1], target(term, own[1]))
    end
  end
  fail(("%s has no metric \"%s\"; give a function: metrics = { %s = function(y, t) .. end \z
    }"):format(self:class(), name, name))
end

-- ---- what means count ---------------------------------------------------------------------------

-- Ops that give labels another look, and leave their number.
local same_labels = { Reshape = true, Flatten = true, Cast = true, Alias = true, Copy = true }

--- What the means of cross entropy in a loss count, where they count labels of a field: { field =
-- its name, ignored = the label that does not count, weighted = whether by class weights, alone =
-- whether nothing else is in the loss }; nil where each row counts as one.
-- @param fields {name = blob}
function Objective:count(net, loss, fields)
  -- Which blobs hold labels of which field, through the ops that only change their look.
  local labels, counts = {}, nil
  for _, name in ipairs(options.keys(fields)) do labels[fields[name].name] = name end
  for i, row in ipairs(net:_ops()) do
    local from = labels[row.inputs[1]]
    if same_labels[row.type] and from then labels[row.outputs[1]] = from end

    -- The last cross entropy counts; two of them are not `alone`.
    local field = row.type == "SoftmaxCrossEntropy" and labels[row.inputs[2]]
    local attrs = field and net:_attrs(i)
    if attrs and attrs.reduction == "mean" then
      counts = {
        field = field,
        ignored = attrs.ignore_index,
        weighted = row.inputs[3] or false,
        alone = not counts and row.outputs[1] == loss.name,
      }
    end
  end
  -- NllLoss is made of ops that say nothing of labels: the loss itself does.
  for _, term in ipairs(self.terms) do
    local own = term.module.counts and term.module:counts()
    if own and fields[term.target] then
      counts = { field = term.target, ignored = own.ignored, weighted = own.weighted,
        alone = #self.terms == 1 }
    end
  end
  self.counts = counts
end

return objective
