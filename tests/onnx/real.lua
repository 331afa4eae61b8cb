--- real.lua DIR [DIR ..]: nets as people have them, held against recorded outputs: largest
-- difference at most 1e-4 of the largest value. Below each folder are models with folders of data
-- beside them, in the layout of tests/onnx/case.lua, and light models: NAME.onnx with
-- NAME_output_0.pb beside it, whose input is 0, 1/n .. (n-1)/n, and whose weights are constants;
-- seeded/NAME.json says other weights for light_NAME.onnx, NAME.output.npy what comes out then.
-- The last line is `N passed, N failed, N skipped`; skipped is what has no recorded output.
local neap = require "neap"
local core = require "neap.core"
local here = arg[0]:match "^(.*/)" or "./"
local case = dofile(here .. "case.lua")
local onnx = require "neap.onnx"

local limit = 1e-4
local n = { passed = 0, failed = 0, skipped = 0 }

local function exists(path)
  local file <close> = io.open(path, "rb")
  return file ~= nil
end

--- Counts one comparison and says what came out.
local function compare(name, got, want)
  local worst, most = 0, 0
  local a, b = table.concat(got.shape, ","), table.concat(want.shape, ",")
  local ok = a == b
  if ok and want:n_element() > 0 then
    got, want = got:to "f64", want:to "f64"
    worst, most = (got - want):abs():max():item(), want:abs():max():item()
    ok = worst <= limit * most
  end
  n[ok and "passed" or "failed"] = n[ok and "passed" or "failed"] + 1
  print(("%-6s %-50s %s"):format(ok and "ok" or "FAILED", name, a ~= b
    and ("shape (%s), expected (%s)"):format(a, b)
    or ("off by %.2g of %.4g"):format(worst, most)))
end

--- Runs f, which calls compare; what it raises is a failure.
local function attempt(name, f)
  local ok, err = pcall(f)
  if ok then return end
  n.failed = n.failed + 1
  print(("FAILED %s: %s"):format(name, tostring(type(err) == "table" and err.message or err)))
end

--- The one input of a light model: i / n * scale + shift.
local function ramp(model, scale, shift)
  local input = onnx.open_inputs(model)[1]
  local shape = onnx.shape_of(input, {}, {})
  local size = 1
  for _, d in ipairs(shape) do size = size * d end
  local x = core.arange(0, size, 1, "f64") / size
  return { [input.name] = (x:to "f32" * scale + shift):reshape(table.unpack(shape)) }
end

-- ---- seeded weights -----------------------------------------------------------------------------

local u32 = neap.tensor(0xffffffff, "i64")
local function times(h, factor) -- of 32 bits, in two halves so that nothing overflows
  local low, high = h:bitwise_and(neap.tensor(0xffff, "i64")), h:shift_right(neap.tensor(16, "i64"))
  return (low * factor + (high * factor):bitwise_and(neap.tensor(0xffff, "i64")) * 65536)
    :bitwise_and(u32)
end
local function mixed(h, places)
  return h:bitwise_xor(h:shift_right(neap.tensor(places, "i64")))
end

--- The numbers of the k-th weight, as its README says them.
local function seeded(k, shape, kind)
  local size = 1
  for _, d in ipairs(shape) do size = size * d end
  local h = times(core.arange(0, size, 1, "i64"), 2654435761)
  h = (h + (k * 2246822519 & 0xffffffff)):bitwise_and(u32)
  h = mixed(times(mixed(h, 15), 2246822507), 13)
  local r = h:to "f64" * (2 / 2^32) - 1
  local fan = 1
  for d = 2, #shape do fan = fan * shape[d] end
  local of = {
    weight = function() return r:to "f32":to "f64" * math.sqrt(6 / fan) end,
    scale = function() return r * 0.2 + 1 end,
    var = function() return r * 0.3 + 1 end,
  }
  local values = of[kind] and of[kind]() or r * 0.1
  return values:to("f32"):reshape(table.unpack(shape))
end

--- Puts the seeded weights in the place of the model's ConstantOfShape nodes.
local function seed(model, fills)
  local k = 0
  for _, node in ipairs(model.graph.nodes) do
    if node.op == "ConstantOfShape" then
      local fill = fills[k + 1]
      node.op, node.inputs = "Constant", {}
      node.attrs = { value = { kind = "tensor",
        value = { elem = 1, tensor = seeded(k, fill.shape, fill.kind) } } }
      k = k + 1
    end
  end
end

-- ---- the models ---------------------------------------------------------------------------------

local function light(path, folder, name)
  local output = path:gsub("%.onnx$", "_output_0.pb")
  attempt(name, function()
    local model = assert(onnx.read(path))
    compare(name, case.run(model, ramp(model, 1, 0))[1], assert(onnx.read_tensor(output)).tensor)
  end)
  local base = folder .. "seeded/" .. name:gsub("^light_", "")
  if not exists(base .. ".json") then return end
  attempt(name .. " seeded", function()
    local file <close> = assert(io.open(base .. ".json"))
    local said = require "cjson".decode(file:read "a")
    local model = assert(onnx.read(path))
    seed(model, said.fills)
    -- What goes into the last softmax says more than what comes out.
    local last = model.graph.nodes[#model.graph.nodes]
    if exists(base .. ".logits.npy") then
      table.insert(model.graph.outputs, { name = last.inputs[1] })
    end
    local results = case.run(model, ramp(model, 2, -1))
    compare(name .. " seeded", results[1], assert(neap.load(base .. ".output.npy")))
    if results[2] then
      compare(name .. " logits", results[2], assert(neap.load(base .. ".logits.npy")))
    end
  end)
end

local function with_data(path, name)
  attempt(name, function()
    local model = assert(onnx.read(path))
    for _, folder in ipairs(case.data_sets(path)) do
      local inputs, outputs = case.tensors(model, folder)
      local results = case.run(model, inputs)
      for i, want in pairs(outputs) do compare(name, results[i + 1], want.tensor) end
    end
  end)
end

if #arg == 0 then error "real.lua expects folders of models" end
for _, top in ipairs(arg) do
  for _, path in ipairs(case.models(top)) do
    local folder, stem = path:match "^(.*/)(.-)%.onnx$"
    local name = stem == "model" and folder:match "([^/]+)/$" or stem
    if exists((path:gsub("%.onnx$", "_output_0.pb"))) then
      light(path, folder, name)
    elseif #case.data_sets(path) > 0 then
      with_data(path, name)
    else
      n.skipped = n.skipped + 1
      print(("%-6s %s: there is no recorded output"):format("skip", name))
    end
    collectgarbage()
  end
end
print(("%d passed, %d failed, %d skipped"):format(n.passed, n.failed, n.skipped))
if n.failed > 0 then os.exit(1) end
