--- ONNX files written by tests: messages of the schema, field by field, whether sound or not.
local M = {}

-- ---- the wire format ----------------------------------------------------------------------------

function M.varint(n)
  local bytes = {}
  repeat
    local low = n & 127
    n = n >> 7
    bytes[#bytes + 1] = string.char(n ~= 0 and low | 128 or low)
  until n == 0
  return table.concat(bytes)
end

--- A field: an integer as a number, a text or message by its length.
function M.field(tag, value)
  if math.type(value) == "integer" then return M.varint(tag << 3) .. M.varint(value) end
  if type(value) == "number" then return M.varint(tag << 3 | 5) .. string.pack("<f", value) end
  return M.varint(tag << 3 | 2) .. M.varint(#value) .. value
end

--- Fields {tag, value} one after the other.
function M.message(fields)
  local parts = {}
  for i, f in ipairs(fields) do parts[i] = M.field(f[1], f[2]) end
  return table.concat(parts)
end

-- ---- ONNX ---------------------------------------------------------------------------------------

--- A TensorProto: {name =, dims =, elem = 1, raw = bytes | floats = {..} | ints = {..}, more =
-- fields}
function M.tensor(t)
  local fields = {}
  for _, d in ipairs(t.dims or {}) do fields[#fields + 1] = { 1, d } end
  fields[#fields + 1] = { 2, t.elem or 1 }
  if t.name then fields[#fields + 1] = { 8, t.name } end
  local raw = t.raw
  if t.floats then raw = string.pack("<" .. ("f"):rep(#t.floats), table.unpack(t.floats)) end
  if t.ints then raw = string.pack("<" .. ("i8"):rep(#t.ints), table.unpack(t.ints)) end
  if raw then fields[#fields + 1] = { 9, raw } end
  for _, f in ipairs(t.more or {}) do fields[#fields + 1] = f end
  return M.message(fields)
end

--- StringStringEntryProtos of a list {{key, value}, ..}, as fields `tag`.
function M.pairs(tag, list)
  local fields = {}
  for i, p in ipairs(list or {}) do
    fields[i] = { tag, M.message { { 1, p[1] }, { 2, p[2] } } }
  end
  return fields
end

--- A ValueInfoProto of a tensor; dims are sizes or names, meta a list {{key, value}, ..}.
function M.value(name, dims, elem, meta)
  local shape = {}
  for i, d in ipairs(dims or {}) do
    shape[i] = { 1, M.message { { math.type(d) == "integer" and 1 or 2, d } } }
  end
  local tensor = M.message { { 1, elem or 1 }, { 2, M.message(shape) } }
  return M.message { { 1, name }, { 2, M.message { { 1, tensor } } },
    table.unpack(M.pairs(4, meta)) }
end

--- An AttributeProto by the type of its value: integer, float, text, list of integers, or a message
-- { kind = "tensor" | "graph", message }.
function M.attribute(name, value)
  local fields = { { 1, name } }
  local function add(tag, v, kind)
    fields[#fields + 1] = { tag, v }
    fields[#fields + 1] = { 20, kind }
  end
  if math.type(value) == "integer" then add(3, value, 2)
  elseif type(value) == "number" then add(2, value, 1)
  elseif type(value) == "string" then add(4, value, 3)
  elseif value.kind == "tensor" then add(5, value[1], 4)
  elseif value.kind == "graph" then add(6, value[1], 5)
  else
    -- A list: of floats, of texts, else of integers.
    local kind = math.type(value[1]) == "float" and 6 or type(value[1]) == "string" and 8 or 7
    local tag = ({ [6] = 7, [7] = 8, [8] = 9 })[kind]
    for _, item in ipairs(value) do fields[#fields + 1] = { tag, item } end
    fields[#fields + 1] = { 20, kind }
  end
  return M.message(fields)
end

--- A NodeProto: M.node("Add", {"a", "b"}, {"y"} [, attributes [, name]]).
function M.node(op, ins, outs, attrs, name)
  local fields = {}
  for _, x in ipairs(ins) do fields[#fields + 1] = { 1, x } end
  for _, y in ipairs(outs) do fields[#fields + 1] = { 2, y } end
  if name then fields[#fields + 1] = { 3, name } end
  fields[#fields + 1] = { 4, op }
  local keys = {}
  for key in pairs(attrs or {}) do keys[#keys + 1] = key end
  table.sort(keys)
  for _, key in ipairs(keys) do fields[#fields + 1] = { 5, M.attribute(key, attrs[key]) } end
  return M.message(fields)
end

--- A GraphProto: {nodes =, tensors =, inputs =, outputs =}, lists of messages.
function M.graph(g)
  local fields = {}
  for _, node in ipairs(g.nodes or {}) do fields[#fields + 1] = { 1, node } end
  fields[#fields + 1] = { 2, g.name or "graph" }
  for _, t in ipairs(g.tensors or {}) do fields[#fields + 1] = { 5, t } end
  for _, v in ipairs(g.inputs or {}) do fields[#fields + 1] = { 11, v } end
  for _, v in ipairs(g.outputs or {}) do fields[#fields + 1] = { 12, v } end
  for _, v in ipairs(g.values or {}) do fields[#fields + 1] = { 13, v } end
  for _, f in ipairs(M.pairs(16, g.meta)) do fields[#fields + 1] = f end
  return M.message(fields)
end

--- A ModelProto of a graph.
function M.model(g, opset, more)
  local fields = { { 1, 8 }, { 7, M.graph(g) },
    { 8, M.message { { 1, "" }, { 2, opset or 17 } } } }
  for _, f in ipairs(more or {}) do fields[#fields + 1] = f end
  return M.message(fields)
end

-- ---- files --------------------------------------------------------------------------------------

--- A folder that goes when the test has run: folder.path, folder:write(name, bytes) -> path.
function M.folder()
  local path = os.tmpname()
  os.remove(path)
  assert(os.execute("mkdir -p " .. path))
  return setmetatable({ path = path }, { __index = { write = function(self, name, bytes)
    local full = self.path .. "/" .. name
    local file <close> = assert(io.open(full, "wb"))
    file:write(bytes)
    return full
  end }, __close = function(self) os.execute("rm -rf " .. self.path) end })
end

return M
