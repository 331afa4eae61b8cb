--- Why a kernel was taken, in time: each kernel that could run an op of a plan is run on operands
-- of the op's sizes, when somebody asks for it.
-- @module neap.plan.kernels
local core = require "neap.core"
local options = require "neap.inner.options"
local report = require "neap.report"

local Plan = core.Plan
local kernels = {}

--- Steps whose times are asked for: those of the ops with that name, or all. Raises with the
-- nearest name.
local function steps_of(plan, name)
  local steps, names = {}, {}
  for i, o in ipairs(plan:_ops()) do
    names[#names + 1] = o.name
    if name == nil or o.name == name then steps[#steps + 1] = i end
  end
  if #steps == 0 and name ~= nil then
    local near = options.nearest(name, names)
    error(core.error {
      code = "name",
      message = ("the plan of \"%s\" has no op \"%s\""):format(plan.net, name),
      hint = near and ("did you mean \"%s\"?"):format(near) or "plan:ops() lists them",
    })
  end
  return steps
end

--- plan:kernels([op]) -> Report: for each op, or for those of one name, every kernel that could run
-- it, with the time of its fastest call and the scratch that it would take: of each engine, and of
-- both algorithms where an engine has two, as "direct" and "winograd". `taken` is the plan's own.
-- Measured now, on operands made for it, without the copies that another layout would take; ops
-- that have one kernel are left out. The database keeps the times beside the plan: neap sql choices
-- and plan:explain have them from then on. Totals: n_op, and the sums taken_ns and fastest_ns.
-- @usage print(neap.zoo.lenet():plan({ batch = 64, train = true }):kernels "conv_1")
function Plan:kernels(op)
  if op ~= nil and type(op) ~= "string" then
    core.fail(("plan:kernels expects the name of an op, got %s"):format(options.shown(op)))
  end
  local rows = {}
  local totals = { net = self.net, mode = self.mode, batch = self.batch, n_op = 0, taken_ns = 0,
    fastest_ns = 0 }
  for _, step in ipairs(steps_of(self, op)) do
    local taken, fastest
    for _, row in ipairs(self:_kernels(step)) do
      rows[#rows + 1] = row
      taken = row.taken and row.min_ns or taken
      fastest = math.min(fastest or row.min_ns or math.maxinteger, row.min_ns or math.maxinteger)
    end
    if taken then
      totals.n_op = totals.n_op + 1
      totals.taken_ns, totals.fastest_ns = totals.taken_ns + taken, totals.fastest_ns + fastest
    end
  end
  return report.of("kernel", {
    rows = rows, totals = totals, order = { "n_op", "taken_ns", "fastest_ns" },
  })
end

--- Which kernel runs an op and why, as a line of an explanation; nil where there was no choice of
-- an algorithm and nothing was measured.
-- @param op a row of plan:_ops
function kernels.line(plan, op)
  local db = plan.plan_id ~= 0 and core.used_db()
  local rows = db and db:_query("select why, measured from v_choice \z
    where plan_id = :plan and step = :step", { plan = plan.plan_id, step = op.step })
  local stored = rows and rows[1] or {}
  if not op.algorithm and not stored.measured then return nil end
  return ("Kernel of %s: %s, %s."):format(op.name, op.kernel,
    stored.why or ("%s: %s"):format(op.algorithm, op.choice_reason))
end

return kernels
