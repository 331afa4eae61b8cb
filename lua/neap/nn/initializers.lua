--- How parameters start: each initialiser is a table {op = fill op, its attributes}, which a net keeps beside the
-- parameter and a workspace runs when it initialises the net. Same seed and parameter name, same numbers.
-- @module neap.init
local fail = require("neap.core").fail
local options = require "neap.inner.options"
local init = {}

local function maker(who, op, spec, attrs)
  return function(given)
    local o = options.read("neap.init." .. who, spec, given)
    local out = { op = op }
    for name, value in pairs(o) do out[name] = value end
    for name, value in pairs(attrs or {}) do out[name] = value end
    return out
  end
end

--- Uniform in +-sqrt(3 * gain^2 / fan_in): He et al., ICCV 2015. `gain` sqrt(2) suits ReLU; sqrt(1/3) is Torch's default
-- for layers without a statement about what follows.
init.kaiming = maker("kaiming", "Kaiming", { gain = options.none })
--- Uniform in +-sqrt(6 / (fan_in + fan_out)): Glorot and Bengio, AISTATS 2010.
init.xavier = maker("xavier", "Xavier", { gain = options.none })
--- Gaussian with mean and standard deviation.
init.normal = maker("normal", "Gaussian", { positions = { "mean", "std" }, mean = 0, std = 1 })
--- Uniform in low..high.
init.uniform = maker("uniform", "Uniform", { positions = { "low", "high" }, low = 0, high = 1 })

--- Every element `value`: neap.init.constant(0.1), or { value = 0.1 }.
function init.constant(value)
  if type(value) == "table" then value = options.read("neap.init.constant", { positions = { "value" }, value = options.none }, value).value end
  if type(value) ~= "number" then fail("neap.init.constant expects a number, got a " .. type(value)) end
  return { op = "Constant", value = value }
end
init.zeros = init.constant(0)
init.ones = init.constant(1)

return require("neap.inner.guard").functions(init, "neap.init.")
