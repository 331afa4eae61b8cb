--- An imported net at other sizes than those that it was built with: where the file leaves a
-- dimension open, what comes in says its size. What the file computes of its sizes (shapes, first
-- states, masks) is numbers in a net, so there is a net for each; they share the weights.
-- @module neap.onnx.sizes
local core = require "neap.core"
local options = require "neap.inner.options"

--- Nets of so many sizes are kept, and those used last stay.
local MOST_NETS = 16

--- The sizes of the file's open dimensions as the tensors `feeds` have them, {dims = {name = size},
-- shapes = {input = sizes}}; nil where they have none but the net's own. Sizes that the file fixes
-- are the net's business.
local function sizes_of(inputs, names, net_inputs, feeds)
  local dims, shapes, differs, said = {}, {}, false, {}
  for i, input in ipairs(inputs) do
    local t, own = feeds[names[i]], net_inputs[names[i]]
    local shape = t and t.shape
    if not shape or #shape ~= #own or not input.dims then return nil end
    for d, size in ipairs(input.dims) do
      local open = math.type(size) ~= "integer"
      if not open and shape[d] ~= own[d] then return nil end
      differs = differs or shape[d] ~= own[d]
      if type(size) == "string" then
        if dims[size] and dims[size] ~= shape[d] then
          core.fail(("dimension \"%s\" is %d in \"%s\" and %d in \"%s\""):format(size, dims[size],
            said[size], shape[d], names[i]))
        end
        dims[size], said[size] = shape[d], said[size] or names[i]
      end
    end
    shapes[input.name] = shape
  end
  return differs and { dims = dims, shapes = shapes } or nil
end

--- Whether the workspace has these numbers under the name: weights may have been trained since,
-- what has been computed of sizes may not.
local function has(ws, net, name, t)
  if not ws:has(name) then return false end
  local own = ws:view(name)
  if own.dtype ~= t.dtype or table.concat(own.shape, ",") ~= table.concat(t.shape, ",") then
    return false
  end
  return net:blob(name).role == "parameter" or own:equal(t)
end

--- The workspace that the net runs in: a child that sees the function's weights, and has those of
-- its own where the file has other numbers at these sizes.
local function workspace_for(ws, built)
  local shared = {}
  for name, t in pairs(built.weights) do
    if has(ws, built.net, name, t) then shared[name] = name end
  end
  local child = ws:child { forward = shared }
  for _, name in ipairs(options.keys(built.weights)) do
    if not shared[name] then child:feed(name, built.weights[name], { share = true }) end
  end
  return child
end

--- for_feeds(feeds by the inputs' names) -> net, workspace
-- @param f {net =, workspace =}
-- @tparam function build_at options -> what onnx.build gives, or nil, message, code
-- @param o the options that f was imported with
-- @param inputs of the file, in order; names: what the net calls them
return function(f, build_at, o, inputs, names)
  local nets, order, own = {}, {}, {}
  for _, input in ipairs(f.net:inputs()) do own[input.name] = input.shape end

  --- The net is built of the file, which is read again.
  local function build(sizes)
    local given = setmetatable({ dims = sizes.dims, shapes = sizes.shapes }, { __index = o })
    local built, message, code = build_at(given)
    if not built then
      error(core.error { code = code, message = ("%s; this is at other sizes than those that it \z
        was imported with"):format(message) }, 0)
    end
    return { net = built.net, workspace = workspace_for(f.workspace, built) }
  end

  return function(feeds)
    local sizes = type(feeds) == "table" and sizes_of(inputs, names, own, feeds)
    if not sizes then return f.net, f.workspace end
    local texts = {}
    for i, input in ipairs(inputs) do texts[i] = table.concat(sizes.shapes[input.name], ",") end
    local key = table.concat(texts, ";")
    if not nets[key] then
      nets[key] = build(sizes)
      table.insert(order, key)
      if #order > MOST_NETS then nets[table.remove(order, 1)] = nil end
    end
    return nets[key].net, nets[key].workspace
  end
end
