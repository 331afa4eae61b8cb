--- neap.export to a path that ends in .onnx: which net, which outputs, which sizes are open.
--
-- What depends on a size that has a name is found out by building the net with that size doubled:
-- dimensions that double with it are so many times it.
-- @module neap.onnx.export
local core = require "neap.core"
local kit = require "neap.onnx.kit"
local options = require "neap.inner.options"
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

-- ---- sizes with names ---------------------------------------------------------------------------

--- The dimensions of a net's inputs that get names, {input = {name | false, ..}}: as `dims` says
-- them, with the first one's where `batch` is a name.
-- @param file inputs of an imported model, whose names `dims = true` asks for
local function named_dims(net, o, file)
  local out, own = {}, {}
  if o.dims == true then
    for i, input in ipairs(net:inputs()) do
      out[input.name] = kit.map(file and file[i].dims or {}, function(size)
        return type(size) == "string" and size
      end)
    end
    return out
  end
  for _, input in ipairs(net:inputs()) do
    own[input.name] = input.shape
    if type(o.batch) == "string" and #input.shape > 0 then out[input.name] = { o.batch } end
  end
  if type(o.batch) == "string" and not next(out) then
    fail "neap.export: no input of the net begins with a batch"
  end

  for _, name in ipairs(options.keys(o.dims or {})) do
    local list, shape = o.dims[name], own[name]
    if not shape then
      local near = options.nearest(tostring(name), options.keys(own))
      fail(("neap.export: dims has \"%s\", the net's inputs are %s%s"):format(tostring(name),
        table.concat(options.keys(own), ", "), near and (", did you mean \"%s\"?"):format(near)
          or ""))
    end
    if type(list) ~= "table" or #list > #shape then
      fail(("neap.export: dims.%s expects a list of at most %d names, false for a size that \z
        stays, got %s"):format(name, #shape, options.shown(list)))
    end
    local merged = out[name] or {}
    for d, word in ipairs(list) do
      if word and (type(word) ~= "string" or not word:find "%S") then
        fail(("neap.export: dims.%s: a name, or false, is expected, got %s"):format(name,
          options.shown(word)))
      end
      merged[d] = word or merged[d] or false
    end
    out[name] = merged
  end
  return out
end

--- The names of dimensions, in the order of the inputs.
local function names_in(inputs, dims)
  local names, seen = {}, {}
  for _, name in ipairs(inputs) do
    for _, word in ipairs(dims[name] or {}) do
      if type(word) == "string" and not seen[word] then
        seen[word], names[#names + 1] = true, word
      end
    end
  end
  return names
end

--- What the names stand for in a net: {name = size}. One name is one size.
local function sizes_in(net, dims)
  local sizes = {}
  for _, input in ipairs(net:inputs()) do
    for d, word in ipairs(dims[input.name] or {}) do
      local size = input.shape[d]
      if type(word) == "string" then
        if sizes[word] and sizes[word] ~= size then
          fail(("neap.export: \"%s\" is %d, and %d in \"%s\""):format(word, sizes[word], size,
            input.name))
        end
        sizes[word] = size
      end
    end
  end
  return sizes
end

--- Shapes of a net's inputs where names stand for other sizes.
local function shapes_at(net, dims, sizes)
  local out = {}
  for _, input in ipairs(net:inputs()) do
    local shape = table.move(input.shape, 1, #input.shape, 1, { dtype = input.dtype })
    for d, word in ipairs(dims[input.name] or {}) do shape[d] = sizes[word] or shape[d] end
    out[input.name] = shape
  end
  return out
end

--- f(sizes) -> {net =} for a net: with its inputs in other shapes.
local function of_net(net, dims)
  return function(sizes)
    local shapes = { fuse = false }
    for name, shape in pairs(shapes_at(net, dims, sizes)) do
      shape.dtype, shapes[name] = nil, shape
    end
    return { net = net:expand(shapes) }
  end
end

--- The same for a model: a net is asked of it, whose first dimension is the batch.
local function of_model(model, o, net, dims)
  return function(sizes)
    local input, batch = {}, nil
    local shapes = shapes_at(net, dims, sizes)
    for _, row in ipairs(net:inputs()) do
      local shape = shapes[row.name]
      batch = batch or shape[1]
      input[row.name] = table.move(shape, 2, #shape, 1, { dtype = shape.dtype })
    end
    local is_asked = o.dims ~= nil
    return { net = model:net { batch = batch, input = is_asked and input or o.input,
      input_dtype = o.input_dtype } }
  end
end

--- The net at sizes, and with each of them doubled.
-- @tparam function build {name = size} -> {net =, ..}
-- @return {net =, ..}, symbols as neap.onnx.out takes them; nil, why: an error, or {lacking = list}
-- where these are nets of other ops
local function nets_at(build, names, sizes)
  local ok, base = pcall(build, sizes)
  if not ok then return nil, base end

  local symbols = {}
  for k, name in ipairs(names) do
    local twice = setmetatable({ [name] = 2 * sizes[name] }, { __index = sizes })
    local built
    ok, built = pcall(build, twice)
    if not ok then return nil, built end
    local row = out.differs(base.net, built.net, name)
    if row then return nil, { lacking = { row } } end
    symbols[k] = { name = name, size = sizes[name], net = built.net, built = built }
  end
  return base, symbols
end

--- The first of several sizes at which nets can be built. Raises {why = an error | lacking = list}
-- where there is none.
local function first_nets(build, names, candidates)
  local first
  for _, sizes in ipairs(candidates) do
    local base, symbols = nets_at(build, names, sizes)
    if base then return base, symbols end
    first = first or symbols
  end
  error(type(first) == "table" and rawget(first, "lacking") and first or { why = first }, 0)
end

-- ---- numbers ------------------------------------------------------------------------------------

--- A workspace that has the numbers of a net's own, and the others of `ws`. Numbers that sizes
-- change lie in built.sized, and here under other names, since `ws` may have them of another size.
local function space_of(ws, built)
  local renames, net = {}, built.net
  for name in pairs(built.sized or {}) do renames[name] = name .. "@sized" end
  if next(renames) then net = net:rename(renames) end
  local space = ws:child {}
  space:init(net)
  return space
end

local function same_numbers(a, b)
  return a.dtype == b.dtype and table.concat(a.shape, ",") == table.concat(b.shape, ",")
    and a:equal(b)
end

--- f(name) -> numbers of the net; f(name) -> what neap.onnx.out asks of those that sizes change.
-- @param base {net =, sized = {name = tensor} | nil}, @param symbols of nets_at
local function numbers_of(ws, base, symbols)
  local all, spaces = { base }, {}
  for k, symbol in ipairs(symbols) do all[k + 1] = symbol.built end

  local function fetch_of(k, name)
    local own = (all[k].sized or {})[name]
    if own then return own end
    -- What the workspace lacks is numbers of the net's own at other sizes, and no parameter.
    local row = all[k].net:_blob(name)
    if #symbols == 0 or ws:has(name) or row and row.role == "parameter" then
      return ws:fetch(name)
    end
    spaces[k] = spaces[k] or space_of(ws, all[k])
    return spaces[k]:fetch(name)
  end
  local function is_sized(k, name) return all[k].sized ~= nil and all[k].sized[name] ~= nil end

  --- Numbers at all sizes, and a size that changes them; nil of those that none does.
  local function numbers_at(name, twins)
    local list
    for k, symbol in ipairs(symbols) do
      local other = twins[k] or name
      if other ~= name or is_sized(1, name) or is_sized(k + 1, other) then
        list = list or { fetch_of(1, name) }
        local t = fetch_of(k + 1, other)
        if not same_numbers(list[1], t) then list.symbol = list.symbol or symbol.name end
      end
    end
    if not list or not list.symbol then return nil end
    for k in ipairs(symbols) do list[k + 1] = fetch_of(k + 1, twins[k] or name) end
    return list
  end
  return function(name) return fetch_of(1, name) end, numbers_at
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

--- The net of an imported function's file, with the numbers that sizes change, and its symbols.
local function of_function(f)
  local open = f._open
  -- A size that was asked for is one that the file takes; its half is, mostly, too. Files with
  -- pools or strides want larger ones.
  local candidates = {}
  for i, least in ipairs { 2, 2, 16, 64 } do
    local sizes = {}
    for _, name in ipairs(open.names) do
      local asked = (open.asked or {})[name]
      if type(asked) == "table" then asked = asked[2] end
      local half = i == 1 and asked and asked >= 4 and asked // 2
      sizes[name] = half or least
    end
    candidates[i] = sizes
  end
  -- Numbers that sizes don't change are the function's, trained perhaps: those of the file go.
  local function build(sizes)
    local built, sized = open.build(sizes), {}
    for name in pairs(built.sized) do sized[name] = built.weights[name] end
    return { net = built.net, sized = sized }
  end
  return first_nets(build, open.names, candidates)
end

--- The net to write, and its symbols: of a net or model with names for its sizes.
local function of_names(what, o, net)
  local file = type(what) == "table" and rawget(what, "_onnx")
  if o.dims == true and not file then
    fail "neap.export: dims = true is for models of files that name their dimensions"
  end
  local dims, inputs = named_dims(net, o, file and file.inputs), {}
  for i, input in ipairs(net:inputs()) do inputs[i] = input.name end
  local names, own = names_in(inputs, dims), sizes_in(net, dims)

  -- A size of 1 is like no other: what stands beside it is spread over it.
  local sizes = {}
  for _, name in ipairs(names) do sizes[name] = math.max(own[name], net == what and 1 or 2) end
  if #names > 0 then
    local is_model = type(what) == "table" and rawget(what, "_is_module")
    local build = is_model and of_model(what, o, net, dims) or of_net(net, dims)
    return first_nets(build, names, { sizes })
  end
  return { net = net }, {}
end

--- Writes the net to the file: true, or nil, message, code, and the list of what ONNX lacks.
-- @param what the model, net or imported function, @param o the options, @param net at the batch of
--   the file
return function(what, path, o, net, ws)
  local base, symbols
  local is_table = type(what) == "table"
  local is_open = is_table and rawget(what, "_open") and #what._open.names > 0
  local by_file = is_open and not o.dims and not o.batch
  local ok
  ok, base, symbols = pcall(by_file and of_function or of_names, what, o, net)
  if not ok then
    local list = type(base) == "table" and rawget(base, "lacking")
    if list then return nil, lacking_text(path, list), "data", list end
    local err = type(base) == "table" and rawget(base, "why")
    if not err then error(base, 0) end
    -- A file's net is no caller's mistake.
    local is_file = is_table and what ~= net and not rawget(what, "_is_module")
    if not is_file or type(err) ~= "table" or not err.message then error(err, 0) end
    return nil, ("%s: %s"):format(path, err.message), "data"
  end
  local fetch, numbers_at = numbers_of(ws, base, symbols)

  -- Names that are written again get one for each version.
  net = base.net
  local outputs = outputs_of(net, o)
  for _, symbol in ipairs(symbols) do symbol.outputs = outputs_of(symbol.net, o) end
  if has_versions(net) then
    net = net:expand { fuse = false }
    for _, symbol in ipairs(symbols) do symbol.net = symbol.net:expand { fuse = false } end
  end
  local model, lacking = out.model { net = net, symbols = symbols, outputs = outputs,
    opset = o.opset, numbers_at = numbers_at, fetch = fetch }
  if not model then return nil, lacking_text(path, lacking), "data", lacking end
  return core.write_onnx(path, model)
end
