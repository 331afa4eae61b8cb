--- A test of ONNX's own layout: FOLDER/model.onnx, FOLDER/test_data_set_N/input_K.pb and
-- output_K.pb, each file one tensor; input_K is the model's K-th input, weights too.
--
-- Inputs are fed to the net, as a user's would be. Those whose values say what shape comes out (the
-- shape of a Reshape, the axes of a reduction) must be known when the net is built: they are bound
-- as constants when an op asks for them, and no others are.
local neap = require "neap"
local graph = require "neap.onnx.graph"
local onnx = require "neap.onnx"

local case = { rtol = 1e-3, atol = 1e-5 }

-- ---- files --------------------------------------------------------------------------------------

local function lines_of(command)
  local list = {}
  local pipe <close> = assert(io.popen(command))
  for line in pipe:lines() do list[#list + 1] = line end
  return list
end

local function quoted(path) return "'" .. path:gsub("'", "'\\''") .. "'" end

--- The models below a folder, in order: those that have data beside them, or all.
function case.models(folder)
  return lines_of(("find %s/ -name '*.onnx' | LC_ALL=C sort"):format(quoted(folder)))
end

--- The folders of data beside a model, in order.
function case.data_sets(model_path)
  local folder = model_path:match "^(.*)/" or "."
  return lines_of(("find %s -maxdepth 1 -name 'test_data_set_*' | LC_ALL=C sort -V"):format(
      quoted(folder)))
end

--- The tensors FOLDER/KIND_0.pb, KIND_1.pb .. as {tensor =, elem =}, by number from 0.
local function tensors_in(folder, kind)
  local out = {}
  for _, path in ipairs(lines_of(("find %s -name '%s_*.pb'"):format(quoted(folder), kind))) do
    out[math.tointeger(tonumber(path:match "_(%d+)%.pb$"))] = assert(onnx.read_tensor(path))
  end
  return out
end

-- ---- running ------------------------------------------------------------------------------------

--- Builds with what must be known bound, one input after the other.
local function build(model, inputs)
  local o = { shapes = {}, constants = {} }
  for name, t in pairs(inputs) do o.shapes[name] = t.shape end
  while true do
    local ok, built = pcall(onnx.build, model, o)
    if ok then return built, o.constants end
    if getmetatable(built) ~= graph.Need then error(built, 0) end
    local bound = false
    for _, name in ipairs(built.needs) do
      bound = bound or not o.constants[name]
      o.constants[name] = inputs[name]
    end
    if not bound then error(built, 0) end
  end
end

--- The outputs of a model for inputs by name, in order.
function case.run(model, inputs)
  local built, constants = build(model, inputs)
  local ws = neap.workspace { store = false }
  ws:init(built.net)
  for name, t in pairs(built.weights) do ws:feed(name, t) end
  local fed = {}
  for name, t in pairs(inputs) do
    if not constants[name] and not built.given[name] then fed[built.input_names[name]] = t end
  end
  local out = ws:run(built.net, fed)
  local results = {}
  for i, name in ipairs(built.outputs) do results[i] = out[name]:clone() end
  ws:close()
  return results, built
end

-- ---- comparing ----------------------------------------------------------------------------------

--- What is wrong with a result, nil where nothing is.
function case.difference(got, want, rtol, atol)
  local a, b = table.concat(got.shape, ","), table.concat(want.shape, ",")
  if a ~= b then return ("shape (%s), expected (%s)"):format(a, b), "shape" end
  if got.dtype ~= want.dtype then
    return ("dtype %s, expected %s"):format(got.dtype, want.dtype), "dtype"
  end
  local n = got:n_element()
  if n == 0 then return nil end
  local x, y = got:to("f64"):reshape(-1):totable(), want:to("f64"):reshape(-1):totable()
  local n_bad, worst, at = 0, 0, nil
  for i = 1, n do
    local g, w = x[i], y[i]
    if g ~= w and not (g ~= g and w ~= w) then
      local off = math.abs(g - w)
      if off ~= off or off > atol + rtol * math.abs(w) then
        n_bad = n_bad + 1
        if not at or off > worst then worst, at = off, i end
      end
    end
  end
  if n_bad == 0 then return nil end
  return ("%d of %d elements differ, element %d most: %.9g, expected %.9g"):format(
    n_bad, n, at - 1, x[at], y[at]), "value"
end

--- What a folder of data holds: tensors by the names of inputs, and {tensor =} by the number of the
-- output, from 0; nil where an input is of strings.
function case.tensors(model, folder)
  local given, inputs = tensors_in(folder, "input"), {}
  for i, input in ipairs(model.graph.inputs) do
    if given[i - 1] then
      if not given[i - 1].tensor then return nil end
      inputs[input.name] = given[i - 1].tensor
    end
  end
  return inputs, tensors_in(folder, "output")
end

--- Runs one folder of data: nil, or what went wrong and its kind: "value", "shape", "dtype" or
-- "error".
function case.check(model, folder, rtol, atol)
  local can_read, inputs, outputs = pcall(case.tensors, model, folder)
  if not can_read then return tostring(inputs), "error" end
  if not inputs then return "an input of strings", "text" end
  local ok, results = pcall(case.run, model, inputs)
  if not ok then
    return tostring(type(results) == "table" and results.message or results), "error"
  end
  for i, want in pairs(outputs) do
    if not want.tensor then return "an output of strings", "text" end
    if not results[i + 1] then return ("there is no output %d"):format(i), "error" end
    local wrong, kind = case.difference(results[i + 1], want.tensor, rtol or case.rtol,
      atol or case.atol)
    if wrong then return ("output %d: %s"):format(i, wrong), kind end
  end
end

return case
