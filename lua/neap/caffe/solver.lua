--- Caffe's solver files as trainers: the net's phases, the optimizer with its rate's policy, and
-- what t:fit takes.
--
-- Steps of Caffe count from 0, Neap's schedules from 1.
-- @module neap.caffe.solver
local caffe = require "neap.caffe"
local core = require "neap.core"
local exists = require("neap.inner.files").exists
local imported = require "neap.nn.imported"
local kit = require "neap.caffe.kit"
local optim = require "neap.optim"

local solver = {}

local types = { "SGD", "Nesterov", "AdaGrad", "RMSProp", "AdaDelta", "Adam" }
local old_types = { "SGD", "NESTEROV", "ADAGRAD", "RMSPROP", "ADADELTA", "ADAM" }

-- ---- the net ------------------------------------------------------------------------------------

--- Where a file may be that is called so beside the solver: whatever folder it is said to be in; or
-- in a collection of several folders' files in one, whose names have the folder in front:
-- "mnist__lenet.prototxt", beside "mnist__lenet_solver.prototxt" or by the folder of its path.
local function places_beside(m, path)
  -- In order: the plain name, the one with what stands before the solver's own, those with the
  -- folder of the path in front.
  local folder, own = m.file:match "^(.*/)" or "", m.file:match "[^/]*$"
  local name, within = path:match "[^/]*$", path:match "([^/]+)/[^/]*$"
  local names = { name }
  local before = own:match "^(.*)__"
  if before then names[#names + 1] = ("%s__%s"):format(before, name) end
  for _, between in ipairs(within and { "__", "_" } or {}) do
    names[#names + 1] = within .. between .. name
  end
  for i, each in ipairs(names) do names[i] = folder .. each end
  return names
end

--- A file that a solver names: as Caffe looks for it, from the folder one works in, or else beside
-- the solver.
-- @param option of neap.import that says another
local function find(m, field, path, option)
  local places = places_beside(m, path)
  local beside, found = places[1], exists(path) and path
  for _, place in ipairs(places) do found = found or exists(place) and place end
  if not found then
    m:fail_at(m:line_of(field), "%s is \"%s\", which is neither there nor \"%s\": give \z
      neap.import(path, { %s = \"..\" })", field, path, beside, option)
  end
  return found
end

local function read_net(m, field, path)
  local text, message, code = caffe.read_text(find(m, field, path, "net"))
  if not text then kit.fail { code = code, message = message } end
  return text
end

--- The messages of the nets that are trained and tested; the second is nil where they are one.
local function nets_of(m, o, notes)
  local tests = m:texts "test_net"
  local test_params = m:messages "test_net_param"
  local whole, train = m:text "net", m:text "train_net"
  local whole_param, train_param = m:messages "net_param", m:messages "train_net_param"
  if #tests + #test_params > 1 then notes[#notes + 1] = "of the test nets the first is taken" end

  local test = test_params[1] or tests[1] and not o.net and read_net(m, "test_net", tests[1])
  -- A net that the caller gives stands for both.
  if o.net then
    local text, message, code = caffe.read_text(o.net)
    if not text then kit.fail { code = code, message = message } end
    return text, nil
  end
  if whole_param[1] or train_param[1] then return whole_param[1] or train_param[1], test or nil end
  local path = whole or train or m:fail "a solver names no net: net, train_net or net_param"
  return read_net(m, whole and "net" or "train_net", path), test or nil
end

--- Rules of layers are asked in the state that the solver says: of several test states the first.
local function states_of(m, notes)
  local train, tests = m:message "train_state", m:messages "test_state"
  local stages = train:texts "stage"
  local level = train:int "level"
  train:leave "phase"

  -- Stages of training and of the first test are taken together: a module has one state.
  for i, test in ipairs(tests) do
    test:leave "phase"
    local own, own_level = test:texts "stage", test:int "level"
    if i == 1 then
      for _, stage in ipairs(own) do stages[#stages + 1] = stage end
      level = level or own_level
    end
  end
  if #tests > 1 then notes[#notes + 1] = "of the test states the first is taken" end
  return #stages > 0 and stages or nil, level
end

-- ---- the rate -----------------------------------------------------------------------------------

-- What each policy makes of its numbers: a schedule, nil for a fixed rate.
local policies = {
  fixed = function() return nil end,
  step = function(m, need) return optim.step { need "stepsize", factor = need "gamma" } end,
  exp = function(_, need) return optim.exponential { need "gamma" } end,
  inv = function(_, need) return optim.inverse { need "gamma", power = need "power" } end,
  multistep = function(m, need)
    return optim.multistep { m:ints "stepvalue", factor = need "gamma" }
  end,
  poly = function(_, need, steps) return optim.polynomial { steps, power = need "power" } end,
  sigmoid = function(_, need)
    return optim.sigmoid { need "stepsize", gamma = need "gamma" }
  end,
}

local function schedule_of(m, steps)
  local policy = m:text("lr_policy", "fixed")
  if not policies[policy] then
    m:fail_at(m:line_of "lr_policy", "there is no lr_policy \"%s\"", policy)
  end

  -- All numbers are read, whichever the policy needs: none is passed over as unknown.
  local values = { gamma = m:number "gamma", power = m:number "power",
    stepsize = m:int "stepsize" }
  local function need(name)
    return values[name] or m:fail("lr_policy \"%s\" needs %s", policy, name)
  end
  m:leave "stepvalue"
  return policies[policy](m, need, steps)
end

-- ---- the optimizer ------------------------------------------------------------------------------

--- The optimizer of a solver's type, as Caffe computes it.
local function optimizer_of(m, settings)
  local word = m:has "type" and m:text "type" or nil
  local old = m:word("solver_type", old_types)
  for i, name in ipairs(old_types) do
    if name == old and not word then word = types[i] end
  end

  word = word or "SGD"
  local momentum, delta = m:number("momentum", 0), m:number("delta", 1e-8)
  local beta2, rho = m:number("momentum2", 0.999), m:number("rms_decay", 0.99)

  -- The solver's words for the numbers differ: AdaDelta's rho and Adam's beta1 stand as `momentum`,
  -- all small terms as `delta`.
  local s = settings
  if word == "SGD" or word == "Nesterov" then
    s.momentum, s.nesterov = momentum, word == "Nesterov" or nil
    -- Caffe's momentum holds steps with their rates; Neap's by itself holds gradients.
    s.rate_inside = momentum > 0 or nil
    if word == "Nesterov" and momentum == 0 then s.nesterov = nil end
    return optim.SGD(s)
  elseif word == "Adam" then
    s.beta1, s.beta2, s.eps, s.eps_hat = momentum, beta2, delta, true
    return optim.Adam(s)
  elseif word == "AdaDelta" then
    s.rho, s.eps = momentum, delta
    return optim.Adadelta(s)
  elseif word == "AdaGrad" or word == "RMSProp" then
    if momentum ~= 0 then
      m:fail_at(m:line_of "momentum", "momentum can't be used with %s", word)
    end
    s.eps = delta
    if word == "AdaGrad" then return optim.Adagrad(s) end
    s.alpha = rho
    return optim.RmsProp(s)
  end
  m:fail_at(m:line_of "type", "there is no solver of type \"%s\"; there are %s", word,
    table.concat(types, ", "))
end

--- A group for each parameter whose rate or decay is another than the solver's.
local function add_groups(model, settings, rate, decay, field)
  for _, spec in ipairs(model._caffe.phases.TRAIN.found) do
    -- What is as the solver says it needs no group.
    local is_trained = spec.role == "parameter" and spec.lr_mult ~= 0
    if is_trained and (spec.lr_mult ~= 1 or spec.decay_mult ~= 1 and decay ~= 0) then
      settings[#settings + 1] = { imported.name_of(model, model._caffe.records[spec.key]),
        lr = rate * spec.lr_mult, [field] = decay * spec.decay_mult }
    end
  end
end

-- ---- trainers -----------------------------------------------------------------------------------

--- Tops of the TEST phase that are no losses and one number each: metrics.
local function metrics_of(model)
  local test, out = model._caffe.phases.TEST, {}
  local is_loss = {}
  for _, term in ipairs(test and test.run.losses or {}) do is_loss[term.name] = true end
  for _, top in ipairs(test and test.run.outputs or {}) do
    if not is_loss[top] and #test.run.env[top].shape == 0 then
      out[top] = function(_) return model:top(top) end
    end
  end
  return next(out) and out or nil
end

--- What t:fit takes: steps, looks at the test set, snapshots.
local function fit_of(m, notes)
  local steps = m:size("max_iter") or m:fail "max_iter is missing"
  local fit = { steps = steps }

  -- Snapshots go where the file says, or nowhere: no folder is made for them.
  local every, snapshot = m:size("snapshot", 0, 0), m:text "snapshot_prefix"
  local folder = snapshot and (snapshot:match "^(.*)/[^/]*$" or ".")
  if every > 0 and snapshot and exists(folder) then
    fit.checkpoint = { snapshot .. ".safetensors", every = every }
  elseif every > 0 then
    notes[#notes + 1] = ("no snapshots: there is no folder \"%s\""):format(folder or "")
  end

  -- What only Caffe's log, devices or threads are told by has no meaning here.
  local test = m:ints "test_iter"
  local interval = m:size("test_interval", 0, 0)
  m:leave [[display average_loss debug_info snapshot_diff snapshot_format snapshot_after_train
    test_initialization test_compute_loss device_id layer_wise_reduce eval_type ap_version
    richness]]
  m:word("solver_mode", { "CPU", "GPU" })
  if m:has "solver_mode" then notes[#notes + 1] = "solver_mode: Neap computes on the CPU" end
  return fit, test[1], interval > 0 and interval or nil
end

--- The net of a solver: what neap.caffe.module makes, and the notes.
local function model_of(m, o, bare)
  local notes, own = {}, {}
  for key, value in pairs(o) do own[key] = value end
  if o.model ~= nil and o.model ~= false then
    core.fail "neap.import: a solver gives a trainer, whose field model is the module"
  end

  local stages, level = states_of(m, notes)
  own.stages, own.level = o.stages or stages, o.level or level
  local train, test = nets_of(m, o, notes)
  local weights = m:texts "weights"
  if #weights > 1 then m:fail_at(m:line_of "weights", "%d files of weights", #weights) end
  if weights[1] and not o.weights and not bare then
    own.weights = find(m, "weights", weights[1], "weights")
  end
  -- Nets within the solver are checked as nets, and are no fields of the solver's own.
  for _, name in ipairs { "net_param", "train_net_param", "test_net_param" } do
    if m.inner then m.inner[name] = nil end
  end

  local model = caffe.module(train, own, test, bare)
  table.move(notes, 1, #notes, #model.notes + 1, model.notes)
  return model
end

--- The trainer of a solver's file, and what t:fit takes: steps, valid_every, checkpoint; its field
-- model is the net, and model.notes what was assumed.
function solver.trainer(m, o, bare)
  local model = model_of(m, o, bare)
  local part = model._caffe.phases.TRAIN
  if not part or #part.run.losses == 0 then
    m:fail "its net has no loss in phase TRAIN: there is nothing to train"
  end

  local fit, test_iter, every = fit_of(m, model.notes)
  local rate = m:number "base_lr" or m:fail "base_lr is missing"
  if rate <= 0 then m:fail_at(m:line_of "base_lr", "a base_lr of %g", rate) end
  local decay, parts = m:number("weight_decay", 0), m:size("iter_size", 1)
  local kind = m:text("regularization_type", "L2")
  if kind ~= "L1" and kind ~= "L2" then
    m:fail_at(m:line_of "regularization_type", "regularization_type is \"%s\", expected L1, L2",
      kind)
  end
  local field = kind == "L1" and "l1_decay" or "weight_decay"
  local settings = { lr = rate, [field] = decay }
  -- Caffe bounds the sum of iter_size gradients, Neap their mean.
  local bound = m:number("clip_gradients", -1)
  if bound > 0 then settings.clip = bound / parts end

  add_groups(model, settings, rate, decay, field)
  local optimizer, schedule = optimizer_of(m, settings), schedule_of(m, fit.steps)
  local seed = m:int("random_seed", -1)
  -- All that a solver can say has been asked for by now.
  m:check_read()
  local t = require("neap").trainer { model = model,
    loss = require("neap.caffe.module").Loss {}, optimizer = optimizer, schedule = schedule,
    metrics = metrics_of(model), reduces = "mean",
    accumulate = parts > 1 and parts or nil, seed = seed >= 0 and seed or nil,
    mem_param = rawget(model, "mem_param") }

  solver.test_rows[t] = test_iter and model._caffe.phases.TEST
    and test_iter * (model._caffe.phases.TEST.batch or 1)
  solver.test_every[t] = every
  return t, fit
end

--- Rows that a test of a trainer's solver sees, and steps from one test to the next.
solver.test_rows, solver.test_every = setmetatable({}, { __mode = "k" }),
  setmetatable({}, { __mode = "k" })

--- The net of a solver's file as a net file's table, with the solver's optimizer.
-- @param o table of neap.import's options
function solver.net_file(m, batch, o)
  local t = solver.trainer(m, o, true)
  local file = caffe.as_file(t.model, batch)
  file.optimizer = t.optimizer
  return file
end

--- Trains as the solver says, on the data that its net names: `neap run solver.prototxt`.
-- @param o of neap.import
-- @param steps integer|nil in the place of max_iter
-- @return t, or nil, message, code
function solver.solve(path, o, steps)
  local t, fit, code = require("neap").import(path, o)
  if not t then return nil, fit, code end
  fit.steps = steps or fit.steps
  local every = solver.test_every[t]

  if every then
    fit.valid = t.model:data("TEST", solver.test_rows[t] or nil)
    fit.valid_every = math.min(every, fit.steps)
  end
  t:fit(t.model:data "TRAIN", fit)
  return t
end

return solver
