--- Which of a file's initializers are weights, where the file says it.
--
-- PyTorch's newer exporter writes what a program reads besides its inputs as initializers, masks,
-- tables and buffers too, and says of each in metadata what it was: a parameter, a buffer, a
-- constant (torch.export's graph signature, in the metadata of values and of the graph). What its
-- optimizer has computed of several has their names.
-- @module neap.onnx.signature
local KIND = "pkg.torch.export.graph_signature.InputSpec.kind"
local FOLDED = "pkg.onnxscript.optimizer.folded_from"
local SIGNATURE = "pkg.torch.export.ExportedProgram.graph_signature"

--- Kinds by name, of all that the exported program read: a line says both the name that it had
-- there and the one of the module, "p_l_weight: PARAMETER target='l.weight'".
-- @return kinds, the module's names of parameters
local function signed(text)
  local kinds, targets = {}, {}
  for name, kind, target in text:gmatch "([^%s:]+): (%u[%u_]+) target='([^']*)'" do
    kinds[name], kinds[target] = kind, kind
    if kind == "PARAMETER" then targets[#targets + 1] = target end
  end
  return kinds, targets
end

--- {kind_of =, merges =}: kind_of(name) says whether that initializer of the graph is a weight:
-- true, or "fixed" of one that no training moves; of a file that says nothing all are weights.
-- `merges` tells that parameters of the program are missing among the initializers, since others
-- had the same numbers.
return function(g)
  local kinds, targets = signed(g.meta and g.meta[SIGNATURE] or "")
  local folded, says = {}, false
  for _, v in ipairs(g.values or {}) do -- other formats describe none
    if v.meta then
      kinds[v.name], folded[v.name] = v.meta[KIND] or kinds[v.name], v.meta[FOLDED]
    end
  end

  -- A tool that has been at the file since may have given others names, or all of them.
  local there, merges = {}, false
  for _, t in ipairs(g.initializers) do
    says, there[t.name] = says or kinds[t.name] or folded[t.name], true
    for from in (folded[t.name] or ""):gmatch "'([^']*)'" do there[from] = true end
  end
  if not says then return { kind_of = function() return true end } end
  for _, target in ipairs(targets) do merges = merges or not there[target] end

  return { merges = merges, kind_of = function(name)
    if kinds[name] == "PARAMETER" then return true end
    for from in (folded[name] or ""):gmatch "'([^']*)'" do
      if kinds[from] == "PARAMETER" then return true end
    end
    return "fixed"
  end }
end
