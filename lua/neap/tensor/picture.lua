--- Pictures of tensors: `x:plot()` in the terminal or as SVG, `x:image(path)` as PNG or JPEG.
-- @module neap.tensor.picture
local core = require "neap.core"
local pointed = require "neap.inner.pointed"
local record = require "neap.inner.record"
local report = require "neap.report"
local fail = core.fail

local Tensor = core.Tensor
local blocks = { "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█" }

--- The series of a tensor: (n) is one, (k,n) are k.
local function series_of(x)
  if x:dim() == 1 then return { x:to("f64"):totable() } end
  if x:dim() == 2 then return x:to("f64"):totable() end
  fail(("plot expects 1 or 2 dimensions, got (%s)"):format(table.concat(x.shape, ",")))
end

local function range_of(list)
  local low, high = math.huge, -math.huge
  for _, series in ipairs(list) do
    for _, v in ipairs(series) do
      if v == v and math.abs(v) ~= math.huge then
        low, high = math.min(low, v), math.max(high, v)
      end
    end
  end

  -- Nothing finite: any range will do. A constant gets a range of 1, so that nobody divides by 0.
  if low > high then return 0, 1 end
  return low, high > low and high or low + 1
end

--- One series as columns of eighths, `rows` lines high; long series are averaged down to `width`
-- columns.
local function chart(series, low, high, width, rows)
  local n = math.min(width, #series)
  local lines = {}
  for r = 1, rows do lines[r] = {} end
  for c = 1, n do
    local sum, count = 0, 0
    -- The mean of what the column stands for; NaN counts as nothing.
    for i = (c - 1) * #series // n + 1, c * #series // n do
      if series[i] == series[i] then sum, count = sum + series[i], count + 1 end
    end

    -- The height in eighths of a line, 1 at the least, cut into lines from the top.
    local eighths = count > 0
        and math.floor((sum / count - low) / (high - low) * (8 * rows - 1) + 1.5)
      or 0
    for r = 1, rows do
      local part = eighths - 8 * (rows - r)
      lines[r][c] = part >= 8 and "█" or part >= 1 and blocks[part] or " "
    end
  end
  for r = 1, rows do lines[r] = table.concat(lines[r]) end
  return lines
end

local colours = { "#4063d8", "#d84040", "#389826", "#9558b2", "#d8932a", "#2aa6b8" }

local function svg(list, low, high)
  local w, h, pad = 720, 320, 40
  local out = {
    ('<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" \z
      font-size="11">'):format(w, h),
    ('<rect width="%d" height="%d" fill="white"/>'):format(w, h),
    ('<text x="4" y="%d">%s</text><text x="4" y="%d">%s</text>'):format(
      pad, pointed("%.4g", high), h - pad, pointed("%.4g", low)),
    ('<path d="M%d %dH%dM%d %dH%d" stroke="#ccc"/>'):format(
      pad, pad, w - pad, pad, h - pad, w - pad),
  }

  -- Points that are no number are left out, and the line goes on behind them. The picture's y grows
  -- downward.
  for k, series in ipairs(list) do
    local points = {}
    for i, v in ipairs(series) do
      if v == v and math.abs(v) ~= math.huge then
        local x = pad + (i - 1) / math.max(1, #series - 1) * (w - 2 * pad)
        local y = h - pad - (v - low) / (high - low) * (h - 2 * pad)
        points[#points + 1] = pointed("%.1f", x) .. "," .. pointed("%.1f", y)
      end
    end
    out[#out + 1] = ('<polyline fill="none" stroke="%s" stroke-width="1.5" points="%s"/>'):format(
      colours[(k - 1) % #colours + 1], table.concat(points, " "))
  end
  out[#out + 1] = "</svg>\n"
  return table.concat(out, "\n")
end

--- x:plot([path]): (n) or (k,n) as a chart; with a path ending in .svg, a file of it.
-- @return Report of text, or true; nil, message, code when the file can't be written
-- @usage print(neap.linspace(0, 6.28, 60):sin():plot())
function Tensor.plot(x, path)
  local list = series_of(x)
  local low, high = range_of(list)
  if path then return core.write_text(path, svg(list, low, high)) end
  local lines = {}
  for _, series in ipairs(list) do
    for r, line in ipairs(chart(series, low, high, 80, 8)) do
      lines[#lines + 1] = ("%10s │%s"):format(
        r == 1 and ("%.4g"):format(high) or r == 8 and ("%.4g"):format(low) or "", line)
    end
  end
  return report.new {
    text = table.concat(lines, "\n"),
    totals = { min = low, max = high },
    order = {},
  }
end

--- Pictures side by side: x (n,H,W,c) to one of `columns` a row, with a margin of one pixel.
local function grid_of(x, columns)
  local n, h, w, c = table.unpack(x.shape)

  -- Pictures lie on black, one pixel apart.
  columns = math.min(columns, n)
  local rows = (n + columns - 1) // columns
  local out = core.zeros { rows * (h + 1) + 1, columns * (w + 1) + 1, c, dtype = "u8" }
  for i = 1, n do
    local r, k = (i - 1) // columns, (i - 1) % columns
    out:narrow(1, r * (h + 1) + 2, h):narrow(2, k * (w + 1) + 2, w):copy_(x[i])
  end
  return out
end

local image_options = record.declare("tensor:image", { call = "(path, {})",
  doc = [[(H,W), (C,H,W) or (N,C,H,W) with 1 or 3 channels as a PNG file, or JPEG where the path
    ends in .jpg or .jpeg: true, or nil, message, code. u8 is taken as it is; other dtypes are
    stretched so that the smallest value is black and the largest white. neap.load reads it again,
    as u8 (C,H,W).]],
  { "grid", "integer", min = 1, unset = "as many as make a square",
    doc = "how many pictures stand in a row" },
  { "quality", "integer", 92, min = 1, max = 100, doc = "of a JPEG file" },
  example = 'neap.rand(8, 3, 4, 4):image("batch.png", { grid = 4 })' })

--- x:image(path [, { .. }]) -> true, or nil, message, code: see the record.
function Tensor.image(x, path, o)
  local own = image_options:read(o, "image")
  local columns = own.grid
  local n_dim = x:dim()
  if n_dim < 2 or n_dim > 4 or x:n_element() == 0 then
    fail(("image expects (H,W), (C,H,W) or (N,C,H,W), got (%s)"):format(table.concat(x.shape, ",")))
  end

  -- As (N,C,H,W), whatever was given.
  local y = x:contiguous()
  if n_dim == 2 then
    y = y:view(1, 1, x:size(1), x:size(2))
  elseif n_dim == 3 then
    y = y:view(1, x:size(1), x:size(2), x:size(3))
  end
  local channels = y:size(2)
  if channels ~= 1 and channels ~= 3 then
    fail(("image expects 1 or 3 channels, got %d"):format(channels))
  end

  -- Stretched to black and white; a constant picture is black.
  if y.dtype ~= "u8" then
    local s = y:to("f32"):stats()
    y = ((y:to "f32" - s.min) * (255 / math.max(s.max - s.min, 1e-30))):to "u8"
  end

  -- Files have the channels last.
  y = y:permute({ 1, 3, 4, 2 }):contiguous()
  local picture = y:size(1) == 1 and y[1] or grid_of(y, columns or math.ceil(math.sqrt(y:size(1))))
  if channels == 1 then picture = picture:select(3, 1) end
  return core.write_picture(path, picture:contiguous(), own.quality)
end

return Tensor
