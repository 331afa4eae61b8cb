--- Checkpoints: parameters, optimizer state, what is held for an update and where the run stands,
-- as one safetensors file.
--
-- Blobs lie in the file under their own names, the best parameters so far under "@best/NAME";
-- numbers of the position are its metadata, "trainer.NAME", floats as "%a" so that they come back
-- to the bit.
--
-- INVARIANT: a file is compared with the trainer before anything is read from it: one of another
-- model or kind of optimizer raises, and changes nothing.
-- @module neap.train.checkpoint
local core = require "neap.core"
local kept = require "neap.optim.kept"
local micro = require "neap.train.micro"
local forward = require "neap.nn.forward"
local net_module = require "neap.net"
local options = require "neap.inner.options"
local programs = require "neap.train.programs"
local state = require "neap.train.state"
local tree = require "neap.nn.tree"
local fail = core.fail
local Trainer, attempt, settle, find_workspace, start_position = state.Trainer, state.attempt,
  state.settle, state.find_workspace, state.start_position
local net_of, is_split, drop_held = programs.net_of, programs.is_split, programs.drop_held

local position_numbers = {
  "step", "batches", "epoch", "in_epoch", "rows", "counted", "first_epoch", "first_step", "best",
  "since", "held_batches", "held_rows", "held_count", "loss_scale", "scaled",
}

local function write_number(value)
  return math.type(value) == "integer" and tostring(value) or ("%a"):format(value)
end

--- %a of what is not finite is "inf" or "nan", which tonumber does not read.
local function read_number(text)
  if text == "inf" then return math.huge end
  if text == "-inf" then return -math.huge end
  if text:find "nan" then return 0 / 0 end
  return tonumber(text)
end

-- Epochs of the history lie in the metadata as "trainer.record.1" .., a line "NAME=NUMBER" for each
-- number.

local function write_record(record)
  local lines = {}
  for _, name in ipairs(options.keys(record)) do
    if type(record[name]) == "number" then
      lines[#lines + 1] = name .. "=" .. write_number(record[name])
    end
  end
  if record.valid then lines[#lines + 1] = "valid=" .. write_number(record.valid.n) end
  return table.concat(lines, "\n")
end

local function read_record(text)
  local record = {}
  for name, number in text:gmatch "([^\n]*)=([^=\n]*)" do record[name] = read_number(number) end

  -- valid is a record of its own, whose fields lie among the others with a prefix.
  if record.valid == nil then return record end
  local valid = { n = record.valid }
  for name, value in pairs(record) do
    if name:find "^valid_" then valid[name:sub(7)] = value end
  end
  record.valid = valid
  return record
end

--- The history in a file's metadata; nil: it was written without one.
local function read_records(meta)
  local n = math.tointeger(tonumber(meta["trainer.records"] or ""))
  if not n then return nil end
  local records = {}
  for i = 1, n do records[i] = read_record(meta["trainer.record." .. i] or "") end
  return records
end

--- Makes what a step keeps, and with it the names of all that a checkpoint holds.
local function prepare(self)
  local net, _, update = net_of(self, is_split(self) and "micro" or "train", self.batch or 1)
  find_workspace(self)
  kept.claim(self.ws, self.optimizer, update or net)
  self.ws:init(net)
  if update then self.ws:init(update) end
  if update and self.accumulate then
    local hold = micro.hold_nets(update)
    drop_held(self, hold)
    self.ws:init(hold)
  end
end

--- What patience goes back to lies beside what training changes, under these names.
local best_prefix = "@best/"

local function is_best(name) return name:sub(1, #best_prefix) == best_prefix end

--- Raises for a file that no trainer of this model and optimizer has written.
-- @param has bool whether the workspace has all that such a file holds
local function check_file(self, path, has)
  local t, meta = core.load(path, { map = "r" })
  if t == nil then return end -- ws:load says why
  local function refuse(message, hint)
    error(core.error { code = "data", message = path .. ": " .. message, hint = hint })
  end
  if type(t) ~= "table" or not meta["trainer.step"] then
    refuse("no trainer has written this", "m:load(path) reads parameters alone")
  end

  -- Gradients held are worth nothing to a trainer that never joins them.
  local held = tonumber(meta["trainer.held_batches"] or "0")
  if held > 0 and not self.accumulate then
    refuse(("holds the gradients of %d batch%s, which a trainer without accumulate would \z
      drop"):format(
        held, held == 1 and "" or "es"),
      "make the trainer with accumulate, or save after t:update()")
  end

  -- Without a net the workspace has no names to compare with: the kind of optimizer is all that can
  -- be checked.
  if not has then return end
  local names = options.keys(t)
  for _, name in ipairs(names) do
    local there = self.ws:has(name) and self.ws:view(name)
    -- ws:load says it
    if there and table.concat(there.shape, ",") ~= table.concat(t[name].shape, ",") then return end
  end
  local hint = "a checkpoint is of one model and one kind of optimizer"

  -- The file's names first, then the workspace's: neither may have one that the other lacks. The
  -- best parameters come and go with patience.
  local n = 0
  for _, name in ipairs(names) do
    if not is_best(name) then
      if not self.ws:has(name) then
        refuse(("holds \"%s\", which neither the model nor its optimizer has"):format(name), hint)
      end
      n = n + 1
    end
  end
  for _, row in ipairs(self.ws:_blobs()) do
    local is_saved = not row.borrowed
      and row.kind == "tensor"
      and (row.role == "parameter" or row.role == "state")
    if is_saved and not is_best(row.name) and t[row.name] == nil and n > 0 then
      refuse(("\"%s\" is missing"):format(row.name), hint)
    end
  end
end

--- What an optimizer keeps beside a parameter, by what stands behind the parameter's name in a list
-- of names.
local function kept_beside(names)
  local is_there, found = {}, {}
  for _, name in ipairs(names) do is_there[name] = true end
  -- A suffix counts where the stem is in the list, too: "fc1.weight.momentum" beside "fc1.weight".
  for _, name in ipairs(names) do
    local stem, suffix = name:match "^(.+)(%.[^./]+)$"
    if stem and is_there[stem] and not name:find("^@") then found[suffix] = true end
  end
  return table.concat(options.keys(found), ", ")
end

--- The same of this trainer's optimizer, by a net of parameters of some shapes. nil: such a net
-- can't be made.
local function kept_by(optimizer, shapes)
  local net, grads, loss = net_module.new "kind", {}, nil

  -- A net of made-up parameters, with gradients that are parameters: what apply declares is what
  -- the optimizer keeps.
  for i, shape in ipairs(shapes) do
    local w = net:param("w" .. i, shape, { op = "Constant", value = 0 })
    grads[w] = net:param("g" .. i, shape, { op = "Constant", value = 0 })
    loss = w:sum()
  end
  if not pcall(optimizer.apply, optimizer, net, grads, loss) then return nil end
  local names = {}
  for _, row in ipairs(net:_blobs()) do
    if row.role == "parameter" or row.role == "state" then names[#names + 1] = row.name end
  end
  return kept_beside(names)
end

--- Raises for a file of another kind of optimizer, where the model's own names are not known yet.
local function check_kind(self, path)
  local t = core.load(path, { map = "r" })
  if type(t) ~= "table" then return end
  local there, own = kept_beside(options.keys(t)), nil
  -- What is kept of a vector may be other things than of a matrix: a model has one or both.
  for _, shapes in ipairs { { { 2, 2 } }, { { 2 } }, { { 2, 2 }, { 2 } } } do
    own = kept_by(self.optimizer, shapes)
    if own == nil or own == there then return end
  end
  error(core.error {
    code = "data",
    message = ("%s: holds %s beside a parameter, optim.%s keeps %s"):format(
      path, there == "" and "nothing" or there, self.optimizer.name,
      own == "" and "nothing" or own),
    hint = "a checkpoint is of one model and one kind of optimizer",
  })
end

--- Whether the model's parameters are all there without a batch: no layer
-- learns its shape from one, and none is met in a forward.
local function knows_parameters(model)
  local _, its_tree = tree.home(model)
  for _, m in ipairs(its_tree.list) do
    if m._lazy or forward.runs_own_code(m) then return false end
  end
  return true
end

--- Before a first step nothing has made what a step keeps: it is made, so that the file holds all
-- that a trainer which has stepped looks for. Raises where it can't be made and would be missing.
local function complete(self)
  -- Three ways to know: a batch or its look, the model's input, or that nothing is kept at all.
  local is_known = self.batch or self.fields or self.model.input_shape
  if is_known and pcall(prepare, self) then return end
  local keeps_nothing = not self.accumulate and kept_by(self.optimizer, { { 2, 2 }, { 2 } }) == ""
  if keeps_nothing and knows_parameters(self.model) then return end
  error(core.error { code = "argument",
    message = "trainer:save: nothing has been trained on yet, and what a step keeps is not known",
    hint = "give the model input = {..}, or train on a batch first" })
end

--- Writes parameters, optimizer state, the history and where the run stands, mid-epoch sums
-- included, as one safetensors file.
-- @return true, or nil, message, code
function Trainer:save(path)
  find_workspace(self)
  settle(self)

  -- A step makes what it keeps: before one the file would lack it.
  if self.position.batches == 0 then complete(self) end
  local meta = { ["trainer.lr"] = ("%a"):format(self.optimizer.lr) }
  for _, name in ipairs(position_numbers) do
    meta["trainer." .. name] = write_number(self.position[name])
  end
  meta["trainer.order"] = self.position.order
  for name, sum in pairs(self.position.sums) do
    meta["trainer.sum." .. name] = ("%a"):format(sum)
  end
  for i, record in ipairs(self.records) do meta["trainer.record." .. i] = write_record(record) end
  meta["trainer.records"] = tostring(#self.records)
  return self.ws:save(path, meta)
end

local function load(self, path)
  local is_known = self.batch or self.fields
  if is_known then prepare(self) end -- so that names and shapes are compared with the model's
  if not is_known and self.model.input_shape then is_known = pcall(prepare, self) end

  -- Everything is compared before the workspace reads a byte.
  check_file(self, path, is_known)
  if not is_known then check_kind(self, path) end
  local ok, meta, message, code = pcall(self.ws.load, self.ws, path)
  if not ok then
    if type(meta) == "table" then meta.message = ("%s: %s"):format(path, meta.message) end
    error(meta, 0)
  end
  if meta == nil then return nil, message, code end
  kept.release(self.ws)

  -- Numbers that an older file lacks have their value at a start.
  local position = start_position()
  for _, name in ipairs(position_numbers) do
    position[name] = read_number(meta["trainer." .. name] or "") or position[name]
  end
  -- written before labels that don't count were told apart
  if meta["trainer.counted"] == nil then position.counted = position.rows end
  position.order = meta["trainer.order"]
  for key, text in pairs(meta) do
    local name = key:match "^trainer%.sum%.(.+)$"
    if name then position.sums[name] = read_number(text) end
  end
  self.position = position
  self.records = read_records(meta) or self.records
  if meta["trainer.lr"] then self.optimizer.lr = tonumber(meta["trainer.lr"]) end
  return self.handle
end

--- Goes back to a saved state: parameters, what the optimizer keeps, the history, and the run with
-- its learning rate and seed, which take the place of those that this trainer was made with (as an
-- optimizer's load_state_dict does in PyTorch). For another rate set t.optimizer.lr afterwards. The
-- optimizer's other settings (momentum, clip ..) are this trainer's. Names and shapes that are not
-- this trainer's raise, and change nothing.
-- @return self, or nil, message, code when the file can't be read
function Trainer:load(path)
  if type(path) ~= "string" then fail("trainer:load expects a path, got a " .. type(path)) end
  state.check_not_averaged(self, "load")
  return attempt(self, nil, find_workspace(self), load, path)
end

return { best_prefix = best_prefix }
