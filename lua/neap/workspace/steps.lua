--- Step trees: nets run in an order, some of them often, some side by side.
-- @module neap.workspace.steps
local core = require "neap.core"
local nets = require "neap.workspace.nets"
local record = require "neap.inner.record"
local state = require "neap.workspace.state"

local Workspace = core.Workspace
local fail = core.fail

local step_options = record.declare("ws:run_steps", { call = "({}, memory)",
  items = "nets, their names, or steps",
  doc = [[Runs nets in an order. A step's list holds nets or steps within it, not both; its options
    say how often it runs, what beside what. What is wrong with a tree of steps is said before
    anything runs; later the first failure stops the rest: the run of the net that failed has not
    been, those before it have, as if the tree had ended there. Gives the workspace, and a warning
    where the tree is empty.]],
  { "name", "name", unset = "that of its first net", doc = "of the step, in messages" },
  { "iterations", "integer", min = 1, unset = "1",
    doc = "how often it runs; a step that is not to run is left out" },
  { "stop", "name", unset = "none",
    doc = "blob, one bool that exists: the step is repeated until it is true" },
  { "concurrent", "boolean", false, doc = [[whether the steps within it run side by side, each on a
      thread and in a child workspace of its own; results land here; steps that would write what
      another one reads or writes are refused]] },
  { "instances", "integer", min = 1, max = 2147483647, unset = "1",
    doc = "how many of the step run side by side" },
  { "create_workspace", "boolean", false,
    doc = "whether it runs in a child workspace that ends with each execution" },
  { "report", "any", unset = "none", says = "a net or its name",
    doc = "net that runs between iterations, and at the end" },
  { "report_every_ms", "integer", 0, min = 0, doc = "how often the report runs" },
  { "run_every_ms", "integer", 0, min = 0, doc = "how often an iteration begins" },
  { "nets", "table", unset = "none", says = "a list of nets",
    doc = "of the first step: nets that steps name" },
  example = 'ws:run_steps { { "load", "train", iterations = 10 }, { "test" } }' })

--- The net that a tree means by a handle or a name, nil for a name that nobody knows. `found` is
-- {first = net, by_name = {}} of the tree so far.
local function net_of(ws, found, item)
  local name = type(item) == "string" and item or item:name()

  -- A tree names nets; each name is one net in all of it, whether it came as a handle or is stored.
  local known = found.by_name[name]
  local net = item
  if type(item) == "string" then net = known or nets.find(ws, name) end
  if known and known ~= net then
    error(core.error {
      code = "name",
      message = ("run_steps: two nets are named \"%s\""):format(name),
    })
  end
  found.first, found.by_name[name] = found.first or net, net
  return net, name
end

--- A step as C takes it: `nets` names, `given` the nets of those names or false, `steps` steps.
local function plain_step(ws, given, found)
  -- The record reads the named fields; positions are the step's content.
  local fields, step = {}, { nets = {}, given = {}, steps = {} }
  for key, value in pairs(given) do
    if math.type(key) ~= "integer" then fields[key] = value end
  end
  for key, value in pairs(step_options:read(fields)) do
    if key ~= "nets" then step[key] = value end
  end

  -- In order: steps within it and nets are told apart by what they are, and C refuses a mix.
  for _, item in ipairs(given) do
    if type(item) == "table" then
      step.steps[#step.steps + 1] = plain_step(ws, item, found)
    elseif type(item) == "string" or type(item) == "userdata" then
      local net, name = net_of(ws, found, item)
      step.nets[#step.nets + 1], step.given[#step.given + 1] = name, net or false
    else
      fail(("ws:run_steps: a step holds nets, their names, or steps, got a %s"):format(type(item)))
    end
  end
  if step.report then step.given_report, step.report = net_of(ws, found, step.report) end
  return step
end

--- ws:run_steps({ .. } [, memory]) -> ws, or ws and a warning when the tree is empty: see the
-- record.
function Workspace:run_steps(tree, memory)
  if type(tree) ~= "table" then
    fail("ws:run_steps expects a step, { \"net\", iterations = 10 }, got a " .. type(tree))
  end

  -- Nets of the list `nets` are known by name before the tree is read, and the first net of all is
  -- the one whose inputs the options may name.
  local found = { by_name = {} }
  local listed = type(tree.nets) == "table" and tree.nets or {}
  for _, net in ipairs(listed) do net_of(self, found, net) end
  local step = plain_step(self, tree, found)
  local is_empty = core.run_steps(self, step, found.first, state.alone(self, memory))
  if is_empty then return self, "run_steps: the tree is empty, nothing was run" end
  return self
end
