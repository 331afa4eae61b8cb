--- TFLite files written by tests: FlatBuffers, table by table, whether sound or not.
local M = {}

-- ---- the format ---------------------------------------------------------------------------------

local packs = { i8 = "<i1", u8 = "<I1", i16 = "<i2", i32 = "<i4", u32 = "<I4", i64 = "<i8",
  f32 = "<f" }

local Writer = {}
Writer.__index = Writer

function Writer:put(bytes)
  self.parts[#self.parts + 1] = bytes
  self.n = self.n + #bytes
  return #self.parts
end

--- Zeros until what is `ahead` bytes from here stands at a multiple of `to`.
function Writer:align(to, ahead) self:put(("\0"):rep(-(self.n + ahead) % to)) end

--- Fields {kind, value, ..} by number from 1, false for one that is left out: numbers as in
-- `packs`, {"text", s}, {"list", kind, numbers}, {"bytes", s}, {"table", fields}, {"tables", list
-- of fields}. What is no number stands behind the table, and its place leads there.
-- @return where the table is
function Writer:table(fields)
  local n, at, size = 0, {}, 4
  for k in pairs(fields) do n = math.max(n, k) end
  for _, width in ipairs { 8, 4, 2, 1 } do
    for k = 1, n do
      local f = fields[k]
      local own = f and (packs[f[1]] and string.packsize(packs[f[1]]) or 4)
      if own == width then
        size = size + -size % width
        at[k], size = size, size + width
      end
    end
  end
  local words = {}
  for k = 1, n do words[k] = string.pack("<I2", at[k] or 0) end
  self:align(8, 4 + 2 * n)
  local vtable = self.n
  self:put(string.pack("<I2I2", 4 + 2 * n, size) .. table.concat(words))
  local start, children, order = self.n, {}, {}
  self:put(string.pack("<i4", start - vtable))
  for k in pairs(at) do order[#order + 1] = k end
  table.sort(order, function(a, b) return at[a] < at[b] end)
  for _, k in ipairs(order) do
    local f = fields[k]
    self:put(("\0"):rep(start + at[k] - self.n))
    local place = self:put(packs[f[1]] and string.pack(packs[f[1]], f[2]) or "    ")
    if not packs[f[1]] then
      children[#children + 1] = { place = place, from = start + at[k], field = f }
    end
  end
  self:put(("\0"):rep(start + size - self.n))
  for _, c in ipairs(children) do
    self.parts[c.place] = string.pack("<I4", self:child(c.field) - c.from)
  end
  return start
end

local function written(kind, list)
  local out = {}
  for i, x in ipairs(list) do out[i] = string.pack(packs[kind], x) end
  return table.concat(out)
end

function Writer:child(f)
  local kind = f[1]
  if kind == "table" then return self:table(f[2]) end
  if kind == "tables" then
    self:align(4, 0)
    local at, places = self.n, {}
    self:put(string.pack("<I4", #f[2]))
    for i in ipairs(f[2]) do places[i] = { place = self:put "    ", from = self.n - 4 } end
    local last, at_last
    for i, t in ipairs(f[2]) do
      if t ~= last then last, at_last = t, self:table(t) end
      self.parts[places[i].place] = string.pack("<I4", at_last - places[i].from)
    end
    return at
  end
  local bytes = kind == "list" and written(f[2], f[3]) or f[2]
  local width = kind == "list" and string.packsize(packs[f[2]]) or kind == "bytes" and 16 or 1
  self:align(math.max(width, 4), 4)
  local at = self.n
  local n = kind == "list" and #f[3] or #bytes
  self:put(string.pack("<I4", n) .. bytes .. (kind == "text" and "\0" or ""))
  return at
end

--- A file whose root is the table of these fields.
function M.file(fields)
  local w = setmetatable({ parts = {}, n = 0 }, Writer)
  local root = w:put "    "
  w:put "TFL3"
  w.parts[root] = string.pack("<I4", w:table(fields))
  return table.concat(w.parts)
end

-- ---- TFLite -------------------------------------------------------------------------------------

local types = { f32 = 0, f16 = 1, i32 = 2, u8 = 3, i64 = 4, string = 5, bool = 6, i16 = 7, i8 = 9,
  i4 = 17, u32 = 15 }
M.types = types

-- Codes of the operators that the tests use (BuiltinOperator of the schema).
M.codes = {}
for code, names in pairs {
  [0] = "ADD AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D DEPTH_TO_SPACE DEQUANTIZE \z
    EMBEDDING_LOOKUP FLOOR FULLY_CONNECTED HASHTABLE_LOOKUP L2_NORMALIZATION L2_POOL_2D \z
    LOCAL_RESPONSE_NORMALIZATION LOGISTIC LSH_PROJECTION LSTM MAX_POOL_2D MUL RELU RELU_N1_TO_1 \z
    RELU6 RESHAPE RESIZE_BILINEAR RNN SOFTMAX SPACE_TO_DEPTH SVDF TANH",
  [32] = "CUSTOM", [34] = "PAD UNIDIRECTIONAL_SEQUENCE_RNN GATHER BATCH_TO_SPACE_ND \z
    SPACE_TO_BATCH_ND TRANSPOSE MEAN SUB DIV SQUEEZE UNIDIRECTIONAL_SEQUENCE_LSTM STRIDED_SLICE \z
    BIDIRECTIONAL_SEQUENCE_RNN EXP TOPK_V2 SPLIT LOG_SOFTMAX DELEGATE \z
    BIDIRECTIONAL_SEQUENCE_LSTM CAST PRELU MAXIMUM ARG_MAX MINIMUM LESS NEG PADV2 GREATER \z
    GREATER_EQUAL LESS_EQUAL SELECT SLICE SIN TRANSPOSE_CONV SPARSE_TO_DENSE \z
    TILE EXPAND_DIMS EQUAL NOT_EQUAL LOG SUM SQRT RSQRT \z
    SHAPE POW ARG_MIN FAKE_QUANT REDUCE_PROD REDUCE_MAX PACK LOGICAL_OR ONE_HOT LOGICAL_AND \z
    LOGICAL_NOT UNPACK REDUCE_MIN FLOOR_DIV REDUCE_ANY SQUARE ZEROS_LIKE FILL FLOOR_MOD RANGE \z
    RESIZE_NEAREST_NEIGHBOR LEAKY_RELU SQUARED_DIFFERENCE MIRROR_PAD ABS SPLIT_V UNIQUE CEIL \z
    REVERSE_V2 ADD_N GATHER_ND COS WHERE RANK ELU REVERSE_SEQUENCE MATRIX_DIAG QUANTIZE \z
    MATRIX_SET_DIAG ROUND HARD_SWISH IF WHILE NON_MAX_SUPPRESSION_V4 NON_MAX_SUPPRESSION_V5 \z
    SCATTER_ND SELECT_V2 DENSIFY SEGMENT_SUM BATCH_MATMUL PLACEHOLDER CUMSUM CALL_ONCE \z
    BROADCAST_TO RFFT2D CONV_3D IMAG REAL COMPLEX_ABS HASHTABLE HASHTABLE_FIND HASHTABLE_IMPORT \z
    HASHTABLE_SIZE REDUCE_ALL CONV_3D_TRANSPOSE VAR_HANDLE READ_VARIABLE ASSIGN_VARIABLE \z
    BROADCAST_ARGS RANDOM_STANDARD_NORMAL BUCKETIZE RANDOM_UNIFORM MULTINOMIAL GELU \z
    DYNAMIC_UPDATE_SLICE RELU_0_TO_1 UNSORTED_SEGMENT_PROD UNSORTED_SEGMENT_MAX \z
    UNSORTED_SEGMENT_SUM ATAN2 UNSORTED_SEGMENT_MIN SIGN",
} do
  for name in names:gmatch "%S+" do
    M.codes[name], code = code, code + 1
  end
end

local element = { f32 = "f32", i32 = "i32", i64 = "i64", i16 = "i16", i8 = "i8", u8 = "u8",
  bool = "u8" }

--- The fields of a tensor: {name =, type = "f32", shape =, data = numbers or bytes, scale =,
-- zero =, axis =, signature =, variable =}; `buffer` is the number of its buffer, 0 for none.
local function tensor_fields(t, buffer)
  local q
  if t.scale then
    local zero = t.zero or {}
    for i = #zero + 1, t.zero and 0 or #t.scale do zero[i] = 0 end
    q = { false, false, { "list", "f32", t.scale }, { "list", "i64", zero }, false, false,
      { "i32", t.axis or 0 } }
  end
  return { { "list", "i32", t.shape or {} }, { "i8", types[t.type or "f32"] or t.type },
    { "u32", buffer }, { "text", t.name or "" }, q and { "table", q } or false,
    { "u8", t.variable and 1 or 0 }, false,
    t.signature and { "list", "i32", t.signature } or false }
end

--- A subgraph: {tensors =, ops = {{"ADD", inputs, outputs, options, times}, ..}, inputs =,
-- outputs =, name =}. Options are {type of the union, field, field, ..}; the same operator `times`
-- over is one table that is named so often.
local function graph_fields(g, buffers, codes)
  local tensors, ops = {}, {}
  for i, t in ipairs(g.tensors) do
    if t.data then
      buffers[#buffers + 1] = { { "bytes", type(t.data) == "string" and t.data
        or written(element[t.type or "f32"], t.data) } }
    end
    tensors[i] = tensor_fields(t, t.buffer or t.data and #buffers - 1 or 0)
  end
  for _, o in ipairs(g.ops) do
    local options = o[4] and table.move(o[4], 2, #o[4], 1, {})
    codes[#codes + 1] = o[1]
    local fields = { { "u32", #codes - 1 }, { "list", "i32", o[2] }, { "list", "i32", o[3] },
      { "u8", o[4] and o[4][1] or 0 }, options and { "table", options } or false }
    for _ = 1, o[5] or 1 do ops[#ops + 1] = fields end
  end
  return { { "tables", tensors }, { "list", "i32", g.inputs }, { "list", "i32", g.outputs },
    { "tables", ops }, { "text", g.name or "main" } }
end

--- The bytes of a model: a subgraph, or a list of them; of `more`, fields of the root are replaced.
function M.model(g, more)
  local buffers, codes, graphs = { {} }, {}, {}
  for i, one in ipairs(g.tensors and { g } or g) do
    graphs[i] = graph_fields(one, buffers, codes)
  end
  for i, name in ipairs(codes) do
    local code = type(name) == "number" and name or M.codes[name]
    codes[i] = code and { { "i8", math.min(code, 127) }, false, { "i32", 1 }, { "i32", code } }
      or { { "i8", 32 }, { "text", name }, { "i32", 1 }, { "i32", 32 } }
  end
  local root = { { "u32", 3 }, { "tables", codes }, { "tables", graphs }, { "text", "a test" },
    { "tables", buffers } }
  for k, f in pairs(more or {}) do root[k] = f end
  return M.file(root)
end

--- A folder of its own, which goes with the variable.
function M.folder() return require("import.onnx_kit").folder() end

--- Imports the model of a file in a folder of its own.
function M.import(g, o)
  local folder <close> = M.folder()
  local bytes = type(g) == "string" and g or M.model(g)
  return require("neap").import(folder:write("m.tflite", bytes), o)
end

return M
