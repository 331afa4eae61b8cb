--- Gradients against differences: of an op by the `cases` of its record, once and twice.
-- @module neap.check.differences
local core = require "neap.core"
local cases = require "neap.check.cases"

local has, is_float, uses = cases.has, cases.is_float, cases.uses
local net_of, run, values_of, elements = cases.net_of, cases.run, cases.values_of, cases.elements

local M = {}

-- f64: the error of a central difference is near step^2
local difference_step, difference_tolerance = 1e-5, 1e-6

--- A net with loss = sum of out * c over the outputs, c fixed numbers, or of out^2 * c where
-- `squared`, and the gradients of the floating inputs. Returns net, loss, {input name = gradient
-- name}, feeds of the constants; nil when there is nothing to differentiate. What internal ops are
-- differentiated by holds for operands that a forward gives them: M.twice_net.
function M.loss_net(case, squared)
  local record = case.record
  if record.internal or not record.gradient or record.no_grad or not case.differentiable
    or #record.enforced > 0 then
    return nil
  end

  -- Inputs are parameters, so that gradients by them are taken.
  local net, outputs, ins = net_of(case, "parameter")
  local wrt, loss, feeds = {}, nil, {}
  for i, spec in ipairs(case.inputs) do
    if spec and is_float[spec.dtype] and (not case.wrt or has(case.wrt, spec.arg.name)) then
      wrt[#wrt + 1] = ins[i]
    end
  end
  for k, out in ipairs(outputs) do
    local arg = record.outputs[math.min(k, #record.outputs)]
    -- optional ones serve the backward or are statistics
    if is_float[out.dtype] and not arg.optional then
      local name = "c" .. k
      feeds[name] = core.eager("Uniform", {}, {
        shape = out.shape, low = 0.5, high = 1.5, dtype = "f64",
      }):to(out.dtype)
      local scaled = net:op("Mul", { out, net:declare(name, "input", out.shape, out.dtype) }, 1, {})
      if squared then scaled = net:op("Mul", { scaled, out }, 1, {}) end
      local term = net:op("Sum", { scaled }, 1, {})
      loss = loss and net:op("Add", { loss, term }, 1, {}) or term
    end
  end
  if #wrt == 0 or not loss then return nil end
  local grads = {}
  for x, gradient in pairs(net:gradient(loss, { wrt = wrt })) do grads[x.name] = gradient.name end
  local names = { loss }
  for _, out in ipairs(outputs) do names[#names + 1] = out end
  net:outputs(names)
  return net, loss.name, grads, feeds
end

--- Likewise of the gradients: loss = sum of gradient * k over those of squared outputs, so that
-- they depend on the inputs whatever the op, and the gradients of that.
function M.twice_net(case)
  local net, _, once, feeds = M.loss_net(case, true)
  if not net then return nil end

  -- The first gradients, weighed and added up, are a loss again.
  local names, wrt, loss = {}, {}, nil
  for x in pairs(once) do names[#names + 1] = x end
  table.sort(names)
  for _, x in ipairs(names) do
    local input = net:blob(x)
    wrt[#wrt + 1] = input
    feeds["k" .. x] = core.eager("Uniform", {}, {
      shape = input.shape, low = 0.5, high = 1.5, dtype = "f64",
    }):to(input.dtype)
    local k = net:declare("k" .. x, "input", input.shape, input.dtype)
    local term = net:op("Sum", { net:op("Mul", { net:blob(once[x]), k }, 1, {}) }, 1, {})
    loss = loss and net:op("Add", { loss, term }, 1, {}) or term
  end
  local twice = {}
  for x, gradient in pairs(net:gradient(loss, { wrt = wrt, allow_unused = true })) do
    twice[x.name] = gradient.name
  end
  net:outputs { loss }
  return net, loss.name, twice, feeds
end

function M.merged(a, b)
  local out = {}
  for key, value in pairs(a) do out[key] = value end
  for key, value in pairs(b) do out[key] = value end
  return out
end

--- sum of a * b
local function dot(a, b)
  local x, y, sum = elements(a), elements(b), 0
  for i = 1, #x do sum = sum + x[i] * y[i] end
  return sum
end

--- The derivative along a random direction of each input, by the backward and by a central
-- difference of the forward. make_net: M.loss_net or M.twice_net. Returns how many were compared.
function M.check(case, engine, make_net)
  local net, loss, grads, constants = make_net(case)
  if not net then return end
  local feeds = M.merged(values_of(case), constants)
  local ws <close>, program = run(net, feeds, { engine = engine })
  if engine ~= "ref" and not uses(program, engine) then return end

  -- An op that draws needs a fresh workspace for each value, which draws the same again.
  local function loss_at(name, x)
    if case.record.random then
      local fresh <close> = run(net, M.merged(feeds, { [name] = x }), { engine = engine })
      return fresh:fetch(loss):item()
    end
    ws:feed(name, x)
    program:run()
    return ws:fetch(loss):item()
  end
  local names = {}
  for name in pairs(grads) do names[#names + 1] = name end
  table.sort(names)
  local analytic, direction = {}, {}
  for _, name in ipairs(names) do -- fetched before another run overwrites them
    direction[name] = core.eager("Uniform", {}, {
      shape = feeds[name].shape, low = -1, high = 1, dtype = "f64",
    })
    analytic[name] = { dot(ws:fetch(grads[name]), direction[name]), ws:fetch(grads[name]) }
  end

  -- A step to either side of each input, which is then put back.
  local scale = math.abs(ws:fetch(loss):item())
  for _, name in ipairs(names) do
    local step = direction[name] * difference_step
    local numeric = (loss_at(name, feeds[name] + step) - loss_at(name, feeds[name] - step))
      / (2 * difference_step)
    loss_at(name, feeds[name])
    local largest = math.sqrt(dot(analytic[name][2], analytic[name][2]))
    local limit = difference_tolerance * math.max(largest, scale, 1e-3)
    local difference = math.abs(numeric - analytic[name][1])
    if difference ~= difference or difference > limit then
      error(
        ("gradient of %s by %s: along a direction %.9g, differences say %.9g, allowed %.2g"):format(
          case.inputs[tonumber(name:sub(3))].arg.name, engine, analytic[name][1], numeric, limit),
        2)
    end
  end
  return #names
end

return M
