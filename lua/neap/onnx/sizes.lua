--- An imported net at other sizes than those that it was built with: where the file leaves a
-- dimension open, what comes in says its size. What the file computes of its sizes (shapes, first
-- states, masks) is numbers in a net, so there is a net for each. All run in the workspace of the
-- function, with the same weights and in one arena; numbers that another size has otherwise lie
-- there under names of their own, "mask@3x16".
--
-- A dimension with a range, dims = { batch = { 1, 32 } }, is planned once, with all ranges at their
-- ends: the nets of what lies within run by that plan's choices and addresses, in its bytes.
--
-- `nets` maps sizes, "3x16_3", to { net =, read = variants of numbers, range = that of others
-- within }; `order` has those that may go; `variants` lists, by name, numbers that its own are not.
-- @module neap.onnx.sizes
local core = require "neap.core"
local options = require "neap.inner.options"
local state = require "neap.workspace.state"

--- Nets of so many sizes are kept, and those used last stay.
local MOST_NETS = 64

local function text_of(shapes)
  local texts = {}
  for i, shape in ipairs(shapes) do texts[i] = table.concat(shape, "x") end
  return table.concat(texts, "_")
end

--- The sizes that tensors bring: the shape of each input, in the file's order, and {name = size} of
-- the open dimensions; nil where one has a size that the file fixes otherwise, which is the net's
-- business.
local function sizes_of(inputs, names, own, feeds)
  local dims, shapes, said = {}, {}, {}
  for i, input in ipairs(inputs) do
    local t = feeds[names[i]]
    local shape = t and t.shape
    if not shape or #shape ~= #own[i] then return nil end

    -- A size that the file fixes must be that one; one that it leaves open has a name, and all
    -- inputs that name it must bring the same.
    for d, size in ipairs(input.dims or own[i]) do
      if math.type(size) == "integer" and shape[d] ~= own[i][d] then return nil end
      if type(size) == "string" then
        if dims[size] and dims[size] ~= shape[d] then
          core.fail(("dimension \"%s\" is %d in \"%s\" and %d in \"%s\""):format(size, dims[size],
            said[size], shape[d], names[i]))
        end
        dims[size], said[size] = shape[d], said[size] or names[i]
      end
    end
    shapes[i] = shape
  end
  return shapes, dims
end

--- Raises for a size that lies in no range that was asked for.
local function check_ranges(ranges, dims)
  for name, range in pairs(ranges) do
    local size = dims[name]
    if size and (size < range[1] or size > range[2]) then
      core.fail(("dimension \"%s\" is %d, the function was imported for %d to %d: \z
        dims = { %s = { .. } } says the range"):format(name, size, range[1], range[2], name))
    end
  end
end

--- Whether the workspace has these numbers under the name. Weights may have been trained since, and
-- are the same at all sizes; what was computed of sizes may not be.
local function has(ws, name, t, is_sized)
  if not ws:has(name) then return false end

  local own = ws:view(name)
  local is_like = own.dtype == t.dtype
    and table.concat(own.shape, ",") == table.concat(t.shape, ",")
  return is_like and (not is_sized or own:equal(t))
end

--- The numbers of a name that its own are not, as some net has them already or as they come.
-- @param variants {name = list of { name =, of =, n_net = nets that read it }}
local function variant_of(ws, variants, name, t, key)
  variants[name] = variants[name] or {}
  for _, variant in ipairs(variants[name]) do
    if has(ws, variant.name, t, true) then return variant end
  end
  local variant = { name = ("%s@%s"):format(name, key), of = name, n_net = 0 }
  ws:feed(variant.name, t, { share = true })
  table.insert(variants[name], variant)
  return variant
end

--- Gives the workspace what it lacks of a net that was built for other sizes.
-- @return the net, and a list of the variants that it reads
local function settle(ws, variants, built, key)
  local renames, read = {}, {}

  -- Numbers that the workspace has already are shared; others lie under a name of their own, which
  -- the net reads instead.
  for _, name in ipairs(options.keys(built.weights)) do
    local t = built.weights[name]
    if not has(ws, name, t, built.sized[name]) then
      local variant = variant_of(ws, variants, name, t, key)
      variant.n_net, renames[name], read[#read + 1] = variant.n_net + 1, variant.name, variant
    end
  end
  return next(renames) and built.net:rename(renames) or built.net, read
end

--- Lets go of what a net read and no other does.
local function unsettle(ws, variants, read)
  for _, variant in ipairs(read) do
    variant.n_net = variant.n_net - 1
    -- Variants that no net reads go.
    local list = variants[variant.of]
    for i = #list, 1, -1 do
      if list[i].n_net == 0 then ws:remove(table.remove(list, i).name) end
    end
  end
end

--- for_feeds(feeds by the inputs' names) -> net, and the range that it runs in, if any
-- @param f {net =, workspace =}
-- @tparam function build_at options -> what onnx.build gives, or nil, message, code
-- @param o the options that f was imported with
-- @param inputs of the file, in order; names: what the net calls them
return function(f, build_at, o, inputs, names)
  local ws, own, by_name, ranges = f.workspace, {}, {}, {}
  for _, input in ipairs(f.net:inputs()) do by_name[input.name] = input.shape end
  for i, name in ipairs(names) do own[i] = by_name[name] end
  for name, size in pairs(o.dims or {}) do
    if type(size) == "table" then ranges[name] = size end
  end
  local nets, order, variants = { [text_of(own)] = { net = f.net, read = {} } }, {}, {}

  --- Sizes with all ranges at their ends.
  local function ends_of(shapes, dims)
    local out, at = {}, setmetatable({}, { __index = dims })
    for name, range in pairs(ranges) do at[name] = range[2] end
    for i, input in ipairs(inputs) do
      out[i] = table.move(shapes[i], 1, #shapes[i], 1, {})
      for d, size in ipairs(input.dims or {}) do
        if ranges[size] then out[i][d] = ranges[size][2] end
      end
    end
    return out, at
  end

  --- The net is built of the file, which is read again.
  local function build(shapes, dims, key)
    local by_input = {}
    for i, input in ipairs(inputs) do by_input[input.name] = shapes[i] end
    local given = setmetatable({ dims = dims, shapes = by_input }, { __index = o })
    local built, message, code = build_at(given)
    if not built then
      error(core.error { code = code, message = ("%s; this is at other sizes than those that it \z
        was imported with"):format(message) }, 0)
    end
    local entry = {}
    entry.net, entry.read = settle(ws, variants, built, key)
    return entry
  end

  --- Lets go of the net that was used longest ago.
  local function drop_one()
    local key = table.remove(order, 1)
    local entry = nets[key]
    nets[key] = nil
    state.forget_programs(ws, entry.net)
    unsettle(ws, variants, entry.read)
  end

  --- Puts a net behind all others; the function's own is not among them.
  local function note_use(key)
    for i, other in ipairs(order) do
      if other == key then
        return table.insert(order, table.remove(order, i))
      end
    end
  end

  local function net_for(shapes, dims)
    local key = text_of(shapes)
    if not nets[key] then
      if #order >= MOST_NETS then drop_one() end
      nets[key] = build(shapes, dims, key)
      order[#order + 1] = key
    end
    note_use(key)
    return nets[key]
  end

  --- The plan of an entry's net, for itself and all below.
  local function range_of(entry)
    local memory = state.with_defaults(ws, nil, entry.net)
    if memory.executor == "dynamic" then return nil end -- runs any size, and plans none
    entry.range = entry.range or core.new_range(entry.net, memory)
    return entry.range
  end

  return function(feeds)
    local shapes, dims
    if type(feeds) == "table" then shapes, dims = sizes_of(inputs, names, own, feeds) end
    if not shapes then return f.net end
    check_ranges(ranges, dims)

    -- With ranges: the net at their ends gives the plan, within which the net at these sizes runs.
    if not next(ranges) then return net_for(shapes, dims).net end
    local range = range_of(net_for(ends_of(shapes, dims)))
    return net_for(shapes, dims).net, range
  end
end
