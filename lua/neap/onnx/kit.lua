--- What the builders of ONNX's ops need. They work on tensors and blobs alike: on tensors an op
-- runs at once, which is how what is known at import is folded.
-- @module neap.onnx.kit
local core = require "neap.core"
local dtypes = require "neap.inner.dtypes"
local lists = require "neap.inner.lists"
local op = require "neap.op"

local kit = { types = core.onnx_types }

--- ONNX's number of the element type that a dtype has by itself, and the dtype of a number.
kit.elem_of = {}
for number, row in pairs(core.onnx_types) do
  if row.dtype and not (kit.elem_of[row.dtype] and kit.elem_of[row.dtype] < number) then
    kit.elem_of[row.dtype] = number
  end
end
kit.U32, kit.U64 = 12, 13

--- An error that says where it is: the innermost place stays.
function kit.located(code, message)
  local err = core.error { code = code, message = message }
  rawset(err, "located", true)
  return err
end

--- Raises one, of the file and no node.
function kit.fail(format, ...) error(kit.located("data", format:format(...))) end

function kit.is_known(x) return op.is_tensor(x) end

--- f(x, i) of each item, in a list.
function kit.map(list, f)
  local out = {}
  for i, x in ipairs(list) do out[i] = f(x, i) end
  return out
end

kit.copy, kit.fill, kit.product = lists.copy, lists.fill, lists.product

--- f of each argument behind it.
function kit.unpack_map(f, ...)
  local list = table.pack(...)
  for i = 1, list.n do list[i] = list[i] and f(list[i]) end
  return table.unpack(list, 1, list.n)
end

--- "a b" as { a = "a", b = "b" }.
function kit.words(text)
  local out = {}
  for word in text:gmatch "%S+" do out[word] = word end
  return out
end

--- A tensor of one number.
function kit.full(shape, value, dtype)
  return (core.eager("Constant", {}, { shape = shape, value = value, dtype = dtype }))
end

--- Whether so many elements may be made while a file is read: a few bytes of it can ask for any
-- number. Those of a mask of 8,192 by 8,192 may, more than 2^27 never, whatever the machine has.
function kit.has_room(n)
  return n <= 2^24 or n <= 2^27 and n * 8 <= core.memory().available
end

--- 1 .. n as a list.
function kit.count(n)
  local out = {}
  for i = 1, n do out[i] = i end
  return out
end

-- ---- ops ----------------------------------------------------------------------------------------

local wider = {
  f16 = { "f32" }, bf16 = { "f32" },
  i8 = { "i32", "i64", "f32" }, u8 = { "i32", "i64", "f32" }, i16 = { "i32", "i64", "f32" },
  u16 = { "i32", "i64", "f32" }, i32 = { "i64", "f64", "f32" }, i64 = { "f64", "i32" },
  bool = { "u8", "i32", "f32" },
}

local function contains(list, x)
  for _, y in ipairs(list) do
    if x == y then return true end
  end
  return false
end

--- The dtype to compute in where an op does not admit x's; nil where there is none.
local function admitted(taken, dtype)
  for _, wide in ipairs(wider[dtype] or {}) do
    if contains(taken, wide) then return wide end
  end
end

--- Operands of dtypes that the record does not admit in one that it does, and the dtype that the
-- result is to be brought back to.
local function admit(record, ins)
  local back, through
  for i, x in ipairs(ins) do
    local spec = record.inputs[math.min(i, #record.inputs)]
    if x and type(x) ~= "number" and spec and not contains(spec.dtypes, x.dtype) then
      back, through = x.dtype, admitted(spec.dtypes, x.dtype)
    end
  end
  if not through then return ins end
  local out = {}
  for i, x in ipairs(ins) do
    out[i] = x and type(x) ~= "number" and x.dtype == back and x:to(through) or x
  end
  return out, back, through
end

--- kit.F.Name(x, attributes) or F.Name({x, y, ..}, attributes [, n]): an op of Neap's, in a wider
-- dtype where it does not admit the operands' own.
kit.F = setmetatable({}, { __index = function(F, name)
  local function call(ins, attrs, n_out)
    local record = op.records[name]
    if type(ins) ~= "table" or op.is_blob(ins) then ins = { ins } end
    local back, through
    ins, back, through = admit(record, ins)
    local results = table.pack(op.apply(name, ins, attrs or {}, n_out))
    for i = 1, results.n do
      local y = results[i]
      if back and y and y.dtype == through then results[i] = y:to(back) end
    end
    return table.unpack(results, 1, results.n)
  end
  F[name] = call
  return call
end })
local F = kit.F

--- x in another dtype; itself where it has it.
function kit.cast(x, dtype)
  if x.dtype == dtype then return x end
  return F.Cast(x, { to = dtype })
end

--- A size of 0 is one.
function kit.reshape(x, shape) return F.Reshape(x, { shape = shape, allow_zero = true }) end

--- Dimensions in another order, from 1; itself where that is the same.
function kit.permute(x, order)
  for i, d in ipairs(order) do
    if i ~= d then return F.Permute(x, { axes = order }) end
  end
  return x
end

--- n positions of dimension d from `from` on, both from 1.
function kit.part(x, d, from, n)
  if from == 1 and n == x.shape[d] then return x end
  return F.Slice(x, { axes = { d }, starts = { n == 0 and 1 or from },
    ends = { n == 0 and 0 or from + n - 1 } })
end

--- The tensor expanded to `shape`, itself where it has it.
function kit.expand(x, shape)
  local same = #shape == #x.shape
  for d, size in ipairs(shape) do same = same and x.shape[d] == size end
  return same and x or F.Expand(x, { shape = shape })
end

--- The sizes that shapes broadcast to.
function kit.broadcast(a, b) return require("neap.ops.kit").broadcast("broadcasting", a, b) end

function kit.unsqueeze(x, axes) return F.Unsqueeze(x, { axes = axes }) end

function kit.concat(parts, axis)
  return #parts == 1 and parts[1] or F.Concat(parts, { axis = axis })
end

function kit.is_float(x) return dtypes.is_float[x.dtype] or false end

local integer_bits = { i8 = 8, u8 = 8, i16 = 16, u16 = 16, i32 = 32 }

--- Integers in a type of fewer bits: the low ones are kept, as in C.
function kit.narrow(x, to)
  local n = integer_bits[to]
  if not n or x.dtype == "bool" then return kit.cast(x, to) end
  local wide = kit.cast(x, "i64")
  local low = F.BitwiseAnd { wide, core.tensor((1 << n) - 1, "i64") }
  if to:match "^i" then -- the upper half stands for what is below 0
    local half = core.tensor(1 << (n - 1), "i64")
    low = F.Sub { F.BitwiseXor { low, half }, half }
  end
  return kit.cast(low, to)
end

--- Casts to floats of 8 bits or fewer, which lie in f32, by element type: none as yet.
kit.small_floats = {}

--- Pads that make `ceil(n / stride)` positions of a window { kernel, stride, dilation } over sizes:
-- begins, then ends. Of an odd number the larger half is behind with `upper`, else in front.
function kit.same_pads(sizes, w, upper)
  local begins, ends = {}, {}
  for d, size in ipairs(sizes) do
    local reach = (w.kernel[d] - 1) * w.dilation[d] + 1
    local count = -(-size // w.stride[d])
    local total = math.max((count - 1) * w.stride[d] + reach - size, 0)
    begins[d] = upper and total // 2 or total - total // 2
    ends[d] = total - begins[d]
  end
  return table.move(ends, 1, #ends, #begins + 1, begins)
end

--- kit.conv_attrs(n, x, w): the attributes of Neap's convolutions, as a node has them (vision).

--- A number beside x, of its dtype.
function kit.number(value, dtype) return core.tensor(value, dtype) end

--- Where c holds a, else b.
function kit.where(c, a, b) return F.Where { c, a, b } end

return kit
