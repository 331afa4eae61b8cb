--- What a file says of its initializers: which are weights, and which weights stand for several.
--
-- PyTorch's newer exporter writes what a program reads besides its inputs as initializers, masks,
-- tables and buffers too, and says of each in metadata what it was: a parameter, a buffer, a
-- constant (torch.export's graph signature, in the metadata of values and of the graph). What its
-- optimizer has computed of several has their names.
--
-- Its exporters keep equal tensors once: weights of layers that nobody has trained yet are one
-- initializer, though training would move them apart. The newer one says at each node which
-- parameters the program's call had; the tracing one puts an Identity between, which it does not
-- for a weight that layers really share. A weight that is read as it is and turned, as an embedding
-- that is the head, too, has a turned copy beside it.
-- @module neap.onnx.signature
local KIND = "pkg.torch.export.graph_signature.InputSpec.kind"
local FOLDED = "pkg.onnxscript.optimizer.folded_from"
local SIGNATURE = "pkg.torch.export.ExportedProgram.graph_signature"
local CALL = "pkg.torch.onnx.fx_node"

--- Names in a list as Python writes it.
local function each_name(text) return (text or ""):gmatch "'([^']*)'" end

--- What the exported program read: a line says both the name that it had there and the one of the
-- module, "p_l_weight: PARAMETER target='l.weight'".
-- @return kinds by both names, the module's names of parameters by those of the program
local function signed(text)
  local kinds, targets = {}, {}
  for name, kind, target in text:gmatch "([^%s:]+): (%u[%u_]+) target='([^']*)'" do
    kinds[name], kinds[target] = kind, kind
    if kind == "PARAMETER" then targets[name] = target end
  end
  return kinds, targets
end

--- The parameters that an initializer has the numbers of, as a set.
local function sources_of(name, kinds, folded)
  local set = {}
  if kinds[name] == "PARAMETER" then set[name] = true end
  for from in each_name(folded[name]) do
    if kinds[from] == "PARAMETER" then set[from] = true end
  end
  return set
end

--- f(row, name) -> the parameter that a node reads where the file has the initializer `name`, which
-- is of others; nil where it is that one's own.
local function reader(kinds, folded, targets, there)
  return function(row, name)
    local call, own, missing = row.meta and row.meta[CALL], sources_of(name, kinds, folded), {}
    if not call or not next(own) then return nil end
    for word in call:gmatch "%%([%w_]+)" do
      local target = targets[word]
      if own[target or ""] then return nil end
      if target and not there[target] then missing[#missing + 1] = target end
    end
    -- Of several, a weight and its bias, all nodes of the call have the same.
    return #missing > 0 and table.concat(missing, " ") or nil
  end
end

--- What the initializers of a graph are:
-- kind_of(name) says whether one is a weight: true, or "fixed" of one that no training moves; of a
-- file that says nothing all are.
-- owner_of(row, name), nil where no weight is missing, gives the parameter in whose place a node
-- reads another's numbers; a text that is the same for all nodes that read it.
-- turned_of(name) gives the initializer that one may be a turned copy of, spread_of(name) the
-- parameter, which the file does not have itself, that one alone was made of; `says` tells whether
-- the file says any of it.
return function(g)
  local kinds, targets = signed(g.meta and g.meta[SIGNATURE] or "")
  local folded, there, present, says = {}, {}, {}, false
  for _, v in ipairs(g.values or {}) do -- other formats describe none
    if v.meta then
      kinds[v.name], folded[v.name] = v.meta[KIND] or kinds[v.name], v.meta[FOLDED]
    end
  end

  -- A tool that has been at the file since may have given others names, or all of them.
  for _, t in ipairs(g.initializers) do
    says, there[t.name] = says or kinds[t.name] or folded[t.name], true
    present[t.name] = true
    for from in each_name(folded[t.name]) do there[from] = true end
  end
  local function turned_of(name)
    local first = each_name(folded[name])()
    return first and kinds[first] == "PARAMETER" and first or nil
  end
  if not says then
    return { kind_of = function() return true end, turned_of = turned_of,
      spread_of = function() end }
  end
  local function spread_of(name)
    local own = sources_of(name, kinds, folded)
    local first = next(own)
    return first and not next(own, first) and not present[first] and first or nil
  end

  local merges = false
  for _, target in pairs(targets) do merges = merges or not there[target] end
  local function kind_of(name)
    if next(sources_of(name, kinds, folded)) then return true end
    -- What a fusion has made of a norm behind a layer is called after the layer's weight.
    local layer = not kinds[name] and not folded[name] and name:match "^(.*)_bias$"
    return layer and kinds[layer] == "PARAMETER" or "fixed"
  end
  return { says = true, kind_of = kind_of, turned_of = turned_of, spread_of = spread_of,
    owner_of = merges and reader(kinds, folded, targets, there) or nil }
end
