--- neap.export to a path that ends in .onnx: which net, which outputs, which batch.
-- @module neap.onnx.export
local core = require "neap.core"
local out = require "neap.onnx.out"
local fail = core.fail

--- Whether a name is written twice, or over what is declared: then the net is written out anew.
local function has_versions(net)
  local seen = {}
  for _, row in ipairs(net:_blobs()) do seen[row.name] = row.role ~= "activation" end
  for _, row in ipairs(net:_ops()) do
    for _, name in ipairs(row.outputs) do
      if name and seen[name] then return true end
      if name then seen[name] = true end
    end
  end
  return false
end

local no_rewrites = { fuse = false }

--- Shapes of the inputs with `times` the batch.
local function with_batch(net, times)
  local o = { fuse = false }

  for _, input in ipairs(net:inputs()) do
    local shape = table.move(input.shape, 1, #input.shape, 1, {})
    if shape[1] then shape[1] = shape[1] * times end
    o[input.name] = shape
  end
  return o
end

-- ---- outputs ------------------------------------------------------------------------------------

--- What a loss is of, where one op says it; nil where it is made of several.
local function prediction(net, loss)
  for _, row in ipairs(net:_ops()) do
    if row.outputs[1] == loss then
      local is_loss = row.type:match "Loss$" or row.type == "SoftmaxCrossEntropy"
      return is_loss and row.inputs[1] or nil
    end
  end
end

--- The names that the file gives: those asked for, or the net's. A net that trains gives what its
-- loss is of in the place of the loss.
local function outputs_of(net, o)
  local given = o.outputs
  if type(given) == "string" or type(given) == "table" and given.name then given = { given } end
  local names = {}
  for i, name in ipairs(given or net:outputs()) do
    name = type(name) == "table" and name.name or name
    if type(name) ~= "string" or not net:_blob(name) then
      fail(("neap.export: outputs: the net has no blob \"%s\""):format(tostring(name)))
    end
    names[i] = name
  end

  -- What a net trains for is no result: without other outputs the file gives what the loss is of.
  if given or not net:_is_train() then return names end
  local is_loss, kept = {}, {}
  for _, row in ipairs(net:_ops()) do
    if row.type == "Gradient" then is_loss[row.inputs[1]] = true end
  end
  for _, name in ipairs(names) do
    if not is_loss[name] then kept[#kept + 1] = name end
  end
  if #kept > 0 then return kept end
  local of = names[1] and prediction(net, names[1])
  if not of then
    fail "neap.export: the net trains and gives its loss alone; say what the file is to give: \z
      outputs = { \"y\" }"
  end
  return { of }
end

-- ---- the way out --------------------------------------------------------------------------------

local function lacking_text(path, lacking)
  local texts = {}
  for i, row in ipairs(lacking) do
    texts[i] = ("%s (op \"%s\"%s)"):format(row.op, row.node,
      row.why ~= true and ": " .. row.why or "")
  end
  return ("%s: ONNX has no %s"):format(path, table.concat(texts, ", "))
end

--- Writes the net to the file: true, or nil, message, code, and the list of what ONNX lacks.
-- @param what the model or net, @param o the options, @param net at the batch of the file
return function(what, path, o, net, ws)
  -- With a name for the batch the net is written at two batches: what doubles with it depends on
  -- it. A net says its batch by its inputs; a model is asked for another net.
  local named, outputs = type(o.batch) == "string" and o.batch, outputs_of(net, o)
  local twice
  if named and net == what then
    twice = net:expand(with_batch(net, 2))
    net = net:expand(no_rewrites)
  else
    if named then
      twice = what:net { batch = 4, input = o.input, input_dtype = o.input_dtype }
    end
    -- Names that are written again get one for each version.
    if has_versions(net) then
      net, twice = net:expand(no_rewrites), twice and twice:expand(no_rewrites)
    end
  end

  local first = net:inputs()[1]
  if named and (not first or #first.shape == 0) then
    fail "neap.export: no input of the net begins with a batch"
  end
  local model, lacking = out.model { net = net, twice = twice, batch = named or nil,
    unit = named and first.shape[1], outputs = outputs, opset = o.opset,
    fetch = function(name) return ws:fetch(name) end }
  if not model then return nil, lacking_text(path, lacking), "data", lacking end
  return core.write_onnx(path, model)
end
