--- ONNX's Fourier transforms and windows. A transform is a product with a matrix of cosines and
-- sines: exact for any length, of n^2 work.
-- @module neap.onnx.signal
local core = require "neap.core"
local kit = require "neap.onnx.kit"
local F = kit.F

--- The matrix (n, m) of cos and sin of 2 pi j k / n, for j < n and k < m.
local function waves(n, m, dtype)
  local function range(count)
    return core.eager("Range", {}, { stop = count, dtype = "i64" })
  end
  local turns = F.Mod { F.Mul { kit.unsqueeze(range(n), { 2 }), range(m) }, kit.number(n, "i64") }
  local angle = F.Mul { kit.cast(turns, "f64"), kit.number(2 * math.pi / n, "f64") }
  return kit.cast(F.Cos(angle), dtype), kit.cast(F.Sin(angle), dtype)
end

--- x (.., n, 1 or 2) with n or half of it transformed, as (.., m, 2).
local function transform(node, x, inverse, m)
  local rank = #x.shape
  local n = x.shape[rank - 1]
  node:check_room({ n, m }, true)
  local c, s = waves(n, m, x.dtype)

  local function column(i) return F.Squeeze(kit.part(x, rank, i, 1), { axes = { -1 } }) end
  local function times(a, w) return F.MatMul { a, w } end
  -- Without a second column the signal is real, and half the products are spared.
  local real = column(1)
  local imag = x.shape[rank] == 2 and column(2)
  -- Forward e^(-i a) = c - i s; backward e^(i a) / n.
  local sign = inverse and 1 or -1

  local re, im = times(real, c), times(real, s)
  if sign < 0 then im = F.Neg(im) end
  if imag then
    local other = times(imag, s)
    re = sign < 0 and F.Add { re, other } or F.Sub { re, other }
    im = F.Add { im, times(imag, c) }
  end
  if inverse then
    local share = kit.number(1 / n, x.dtype)
    re, im = F.Mul { re, share }, F.Mul { im, share }
  end
  return F.Stack({ re, im }, { axis = -1 })
end

--- The other half of a spectrum (.., k, 2) of n real numbers: the first one's mirror, conjugate.
local function whole_spectrum(x, n)
  local rank = #x.shape
  local k, at = x.shape[rank - 1], rank - 1
  if k >= n then return kit.part(x, at, 1, n) end
  local mirror = F.Flip(kit.part(x, at, 2, n - k), { axes = { at } })
  local conjugate = F.Mul { mirror, core.tensor({ 1, -1 }, x.dtype) }
  return kit.concat({ x, conjugate }, at)
end

--- The signal cut or filled with zeros to n positions of dimension d.
local function of_length(x, d, n)
  local have = x.shape[d]
  if n < have then return kit.part(x, d, 1, n) end
  return n > have and F.Pad(x, { pads = { 0, n - have }, axes = { d } }) or x
end

local function dft(n, x)
  local rank = #x.shape
  local axis = n:int("axis", n.version < 20 and 1 or -2)
  if n.version >= 20 and n:given(3) then axis = n:integer(3) end
  local d = n:axis(axis, rank)
  local inverse, half = n:flag "inverse", n:flag "onesided"

  -- The dimension that is transformed goes before the last, of real and imaginary part.
  local order = {}
  for i = 1, rank do
    if i ~= d and i ~= rank then order[#order + 1] = i end
  end
  order[#order + 1], order[#order + 2] = d, rank
  x = kit.permute(x, order)
  local y
  if inverse and half then
    -- Real numbers from half a spectrum.
    local length = n:given(2) and n:integer(2) or 2 * (x.shape[rank - 1] - 1)
    x = whole_spectrum(of_length(x, rank - 1, length // 2 + 1), length)
    y = kit.part(transform(n, x, true, length), rank, 1, 1)
  else
    local length = n:given(2) and n:integer(2) or x.shape[rank - 1]
    x = of_length(x, rank - 1, length)
    y = transform(n, x, inverse, half and length // 2 + 1 or length)
  end

  local back = {}
  for i, at in ipairs(order) do back[at] = i end
  return kit.permute(y, back)
end

--- Frames of the signal, a step apart, each weighed by the window and transformed.
local function stft(n, x)
  local step, window = n:integer(2), n:x(3)
  local length = n:given(4) and n:integer(4) or window and window.shape[1]
  local samples = x.shape[2]
  if not samples or not length or length < 1 or length > samples or step < 1 then
    n:fail("frames of %s, %s apart, x is (%s)", length, step, table.concat(x.shape, ","))
  end

  local channels = #x.shape == 3 and x.shape[3] or 1
  local count = (samples - length) // step + 1
  n:check_room({ count, length }, true)
  local function range(size, by)
    return F.Mul { core.eager("Range", {}, { stop = size, dtype = "i64" }), kit.number(by, "i64") }
  end

  -- Positions of all frames, (count, length): they are read in one Gather.
  local at = F.Add { kit.unsqueeze(range(count, step), { 2 }), range(length, 1) }
  local signal = kit.reshape(x, { x.shape[1], samples, channels })
  local frames = F.Gather({ signal, at }, { axis = 2 })
  if window then
    local short = length - window.shape[1]
    if short > 0 then -- a shorter window stands in the middle
      window = F.Pad(window, { pads = { short // 2, short - short // 2 } })
    end
    frames = F.Mul { frames, kit.reshape(kit.cast(window, x.dtype), { length, 1 }) }
  end
  return transform(n, frames, false, n:flag("onesided", true) and length // 2 + 1 or length)
end

--- a0 - a1 cos(2 pi i / N) + a2 cos(4 pi i / N), N the size, or one less where it is symmetric.
local function window(a0, a1, a2)
  return function(n)
    local size, row = n:integer(1), kit.types[n:int("output_datatype", 1)]
    local dtype = row and row.dtype or n:fail("elements of type %d", n:int "output_datatype")
    n:check_room({ size }, true)
    local span = n:flag("periodic", true) and size or size - 1
    local i = core.eager("Range", {}, { stop = size, dtype = "f64" })
    local function wave(k, a)
      return F.Mul { F.Cos(F.Mul { i, kit.number(2 * k * math.pi / span, "f64") }),
        kit.number(a, "f64") }
    end
    local y = F.Sub { kit.number(a0, "f64"), wave(1, a1) }
    if a2 ~= 0 then y = F.Add { y, wave(2, a2) } end
    return { x = kit.cast(y, dtype), elem = n:int("output_datatype", 1) }
  end
end

return function(op)
  op.DFT, op.STFT = dft, stft
  op.HannWindow = window(0.5, 0.5, 0)
  op.HammingWindow = window(25 / 46, 21 / 46, 0)
  op.BlackmanWindow = window(0.42, 0.5, 0.08)
end
