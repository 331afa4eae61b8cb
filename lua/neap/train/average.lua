--- Averages of parameters: what an optimizer made with `average` keeps beside them, in use.
--
-- Training goes on from the parameters themselves; evaluation, prediction and files use them too,
-- but within t:averaged(f), where each parameter has the average's numbers.
-- INVARIANT: behind it, whatever f did, parameters have the bits that they had before.
-- @module neap.train.average
local core = require "neap.core"
local state = require "neap.train.state"
local fail = core.fail
local Trainer, find_workspace = state.Trainer, state.find_workspace

--- Parameters and their averages in the workspace: { parameter, average } each.
local function pairs_of(self, ws)
  local list = {}

  -- A blob NAME.average belongs to NAME; NAME.averaged counts the updates that are in it.
  for _, row in ipairs(ws:_blobs()) do
    local name = row.name:match "^(.*)%.average$"
    if name and ws:has(name) and ws:has(name .. ".averaged") then
      list[#list + 1] = { name, row.name }
    end
  end
  if #list == 0 then
    fail(("trainer:averaged: there is no average yet: optim.%s { average = 0.999 } keeps one, \z
      from the first step on"):format(self.optimizer.name))
  end
  return list
end

--- t:averaged(f, ..) -> f's results: calls f while the model's parameters have the averages that
-- its optimizer keeps (optim.Adam { average = 0.999 }); afterwards they are as before. f may use
-- the model and save it, but not train it.
-- @usage local t = neap.trainer { model = nn.Linear { 3, 2 }, loss = nn.MseLoss(),
--   optimizer = optim.SGD { lr = 0.1, average = 0.9 } }
-- t:step { x = x, y = neap.rand(2, 2) }
-- print(t:averaged(t.predict, t, x))
function Trainer:averaged(f, ...)
  if type(f) ~= "function" then
    fail(("trainer:averaged expects (function, ..), got a %s"):format(type(f)))
  end
  if self.in_average then fail "trainer:averaged: the averages are in use already" end
  local ws = find_workspace(self)

  -- Copies of the parameters, to be put back whatever f does.
  local list, kept = pairs_of(self, ws), {}
  for i, pair in ipairs(list) do kept[i] = ws:fetch(pair[1]) end
  local _ <close> = setmetatable({}, { __close = function()
    for i, pair in ipairs(list) do ws:feed(pair[1], kept[i]) end
    self.in_average = nil
  end })
  self.in_average = true
  for _, pair in ipairs(list) do ws:feed(pair[1], ws:fetch(pair[2])) end
  return (function(...) return ... end)(f(...))
end
