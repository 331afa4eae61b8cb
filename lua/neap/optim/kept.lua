--- What optimizers keep beside parameters: state blobs of a net, and whose they are in a workspace.
--
-- A blob is found again by its name, so that a run goes on where it stood: with the same optimizer,
-- in another trainer too, or from a checkpoint. Another optimizer starts afresh, as in PyTorch.
-- `notes` has what a net's updates declare, { [net] = { blobs = { [name] = { parameter, value } },
-- trained = { [parameter] = true } } }, `owners` whose it is in a workspace, { [ws] = { last =
-- optimizer, of = { [name] = { optimizer, parameter } } } }.
--
-- INVARIANT: what has no owner (a file has just been read, a net of the user's own has run) belongs
-- to the first optimizer that steps with it, as it is.
-- @module neap.optim.kept
local kept = {}

local notes = setmetatable({}, { __mode = "k" })
local owners = setmetatable({}, { __mode = "k" })

local function note_of(net)
  notes[net] = notes[net] or { blobs = {}, trained = {} }
  return notes[net]
end

--- Notes which parameters the updates of a net train.
function kept.note(net, list)
  local trained = note_of(net).trained
  for _, pair in ipairs(list) do trained[pair[1].name] = true end
end

--- A state blob beside a parameter, of `value` at first (0); part of every checkpoint.
function kept.state(net, parameter, suffix, shape, dtype, value)
  local name = parameter.name .. "." .. suffix
  note_of(net).blobs[name] = { parameter = parameter.name, value = value or 0 }
  return net:declare(name, "state", shape or parameter.shape, dtype or parameter.dtype,
    { op = "Constant", value = value or 0 }, false)
end

--- The update's net, split off from another, keeps what that kept.
function kept.pass(net, update) notes[update] = notes[net] end

local function owners_of(ws)
  owners[ws] = owners[ws] or { of = {} }
  return owners[ws]
end

--- Writes down that what a net keeps is the optimizer's.
local function own_all(own, optimizer, note)
  for name, blob in pairs(note.blobs) do
    own.of[name] = { optimizer = optimizer, parameter = blob.parameter }
  end
  own.last = optimizer
end

--- Whether another optimizer has taken something of what `optimizer` kept by a net.
function kept.is_lost(ws, optimizer, net)
  local own, note = owners_of(ws), notes[net]
  if own.last == optimizer or note == nil then return false end
  for name in pairs(note.blobs) do
    local owner = own.of[name]
    if owner and owner.optimizer ~= optimizer or not ws:has(name) then return true end
  end
  own_all(own, optimizer, note)
  return false
end

--- Whether a blob of the workspace has the type that a net declares.
local function is_same_type(ws, net, name)
  local there = ws:view(name)
  return there.dtype == net:_type(name)
    and table.concat(there.shape, ",") == table.concat(net:blob(name).shape, ",")
end

--- Makes what a net keeps the optimizer's own, before the net is initialized. What another one had
-- beside the parameters that this one trains begins anew, or goes.
function kept.claim(ws, optimizer, net)
  local own, note = owners_of(ws), notes[net]
  if note == nil then return end
  for name, owner in pairs(own.of) do
    if owner.optimizer ~= optimizer and note.trained[owner.parameter] then
      -- In place where it can be: bytes of one segment go together, so that others of it would
      -- keep those of a blob that is made again.
      local blob = note.blobs[name]
      if blob and ws:has(name) and is_same_type(ws, net, name) then
        ws:view(name):fill_(blob.value)
      else
        ws:remove(name)
      end
      own.of[name] = nil
    end
  end
  own_all(own, optimizer, note)
end

--- A file has just been read into the workspace: what it kept goes on with whoever steps next.
function kept.release(ws) owners[ws] = nil end

return kept
