--- Layers of SSD.
-- @module neap.caffe.detection
local core = require "neap.core"

--- Widths and heights, in pixels, of the boxes around each place: squares of the sizes, one between
-- each smallest and largest, and others by their ratios.
local function box_sizes(n, p)
  local least, most = p:numbers "min_size", p:numbers "max_size"
  if #least == 0 then n:fail "min_size is missing" end
  if #most > 0 and #most ~= #least then n:fail("%d min_size, %d max_size", #least, #most) end
  local flip, ratios = p:flag("flip", true), {}
  for _, ratio in ipairs(p:numbers "aspect_ratio") do
    if ratio <= 0 then n:fail("an aspect_ratio of %g", ratio) end
    local known = math.abs(ratio - 1) < 1e-6
    for _, other in ipairs(ratios) do known = known or math.abs(ratio - other) < 1e-6 end
    if not known then
      ratios[#ratios + 1] = ratio
      if flip then ratios[#ratios + 1] = 1 / ratio end
    end
  end
  local boxes = {}
  for i, size in ipairs(least) do
    boxes[#boxes + 1] = { size, size }
    if most[i] then
      if most[i] <= size then n:fail("max_size %g, min_size %g", most[i], size) end
      local between = math.sqrt(size * most[i])
      boxes[#boxes + 1] = { between, between }
    end
    for _, ratio in ipairs(ratios) do
      boxes[#boxes + 1] = { size * math.sqrt(ratio), size / math.sqrt(ratio) }
    end
  end
  return boxes
end

--- Boxes (1, 2, 4 n) around each place of the first bottom, in shares of the second, and their
-- variances: what shapes say, so that it is a constant.
local function prior_box(n, x, image)
  n:expect(2, 2)
  local p = n:options "prior_box_param"
  local boxes, clip, offset = box_sizes(n, p), p:flag("clip", false), p:number("offset", 0.5)
  local variance = p:numbers "variance"
  if #variance == 0 then variance = { 0.1 } end
  if #variance ~= 1 and #variance ~= 4 then n:fail("%d variances, 1 or 4", #variance) end
  local height = p:size("img_h", p:size "img_size") or image.shape[3]
  local width = p:size("img_w", p:int "img_size") or image.shape[4]
  local step_h = p:number("step_h", p:number "step") or height / x.shape[3]
  local step_w = p:number("step_w", p:number "step") or width / x.shape[4]
  if x.shape[3] * x.shape[4] * #boxes > 1 << 20 then n:fail "more than a million boxes" end
  local places, variances = {}, {}
  for row = 0, x.shape[3] - 1 do
    for column = 0, x.shape[4] - 1 do
      local cx, cy = (column + offset) * step_w, (row + offset) * step_h
      for _, box in ipairs(boxes) do
        local w, h = box[1] / 2, box[2] / 2
        local corners = { (cx - w) / width, (cy - h) / height, (cx + w) / width, (cy + h) / height }
        for i = 1, 4 do
          local v = corners[i]
          places[#places + 1] = clip and math.min(math.max(v, 0), 1) or v
          variances[#variances + 1] = variance[#variance == 1 and 1 or i]
        end
      end
    end
  end
  return n.state.net:const(core.tensor({ { places, variances } }, "f32"))
end

return function(layer) layer.PriorBox = prior_box end
