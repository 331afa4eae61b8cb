--- Layers of SSD.
-- @module neap.caffe.detection
local core = require "neap.core"
local kit = require "neap.caffe.kit"
local F = kit.F

--- Widths and heights, in pixels, of the boxes around each place: squares of the sizes, one between
-- each smallest and largest, and others by their ratios.
local function box_sizes(n, p)
  local least, most = p:numbers "min_size", p:numbers "max_size"
  if #least == 0 then n:fail "min_size is missing" end
  if #most > 0 and #most ~= #least then n:fail("%d min_size, %d max_size", #least, #most) end

  -- A ratio that is 1, or comes twice, is the square or box that is there already.
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

  -- Caffe's order, which the net's other layers count on: for each size the square, the one
  -- between, the ratios.
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
  n:check_rank(1, x, 4)
  n:check_rank(2, image, 4)
  local p = n:options "prior_box_param"
  local boxes, clip, offset = box_sizes(n, p), p:flag("clip", false), p:number("offset", 0.5)
  local variance = p:numbers "variance"
  if #variance == 0 then variance = { 0.1 } end
  if #variance ~= 1 and #variance ~= 4 then n:fail("%d variances, 1 or 4", #variance) end

  -- Sizes come of the message or else of the image; steps are then the image's over the places'.
  local height = p:size("img_h", p:size "img_size") or image.shape[3]
  local width = p:size("img_w", p:int "img_size") or image.shape[4]
  local step_h = p:number("step_h", p:number "step") or height / x.shape[3]
  local step_w = p:number("step_w", p:number "step") or width / x.shape[4]
  if x.shape[3] * x.shape[4] * #boxes > 1 << 20 then n:fail "more than a million boxes" end

  -- Place by place and box by box, as the layers that say offsets and scores count them. Corners
  -- are shares of the image, so that its size drops out.
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

-- ---- DetectionOutput ----------------------------------------------------------------------------

--- Item k of the last dimension of (.., 4), without it.
local function part(x, k)
  local last = #x.shape
  return F.Squeeze(F.Slice(x, { axes = { last }, starts = { k }, ends = { k } }),
    { axes = { last } })
end

local codes = { "NONE", "CORNER", "CENTER_SIZE", "CORNER_SIZE" }

--- Corners (N,P) of the boxes that `loc` (N, 4 P) says of the priors (1, 2, 4 P): what it says of
-- each coordinate is in units of its variance.
local function decoded(n, p, loc, prior)
  local count = prior.shape[3] // 4
  local code, exact = p:word("code_type", codes, "CORNER"), p:flag "variance_encoded_in_target"

  loc = kit.reshape(loc, { loc.shape[1], count, 4 })
  prior = kit.reshape(prior, { 2, count, 4 })
  local box, variance = {}, {}
  for k = 1, 4 do
    local both = part(prior, k)
    local function row(i) return F.Slice(both, { axes = { 1 }, starts = { i }, ends = { i } }) end
    box[k], variance[k] = row(1), row(2)
  end
  local function said(k)
    local l = part(loc, k)
    return exact and l or F.Mul { l, variance[k] }
  end

  -- What is said is in units of the prior's sides, but for CORNER; CENTER_SIZE says the middle and
  -- the logarithm of each side.
  local width, height = F.Sub { box[3], box[1] }, F.Sub { box[4], box[2] }
  local sides, corners = { width, height, width, height }, {}
  if code ~= "CENTER_SIZE" then
    if code == "NONE" then n:fail "code_type is none of CORNER, CENTER_SIZE, CORNER_SIZE" end
    for k = 1, 4 do
      local by = said(k)
      corners[k] = F.Add { box[k], code == "CORNER" and by or F.Mul { by, sides[k] } }
    end
    return corners
  end

  for k = 1, 2 do
    local middle = kit.times(F.Add { box[k], box[k + 2] }, 0.5)
    local at = F.Add { F.Mul { said(k), sides[k] }, middle }
    local half = kit.times(F.Mul { F.Exp(said(k + 2)), sides[k] }, 0.5)
    corners[k], corners[k + 2] = F.Sub { at, half }, F.Add { at, half }
  end
  return corners
end

--- 1 where box i of (..,K) covers more than `most` of box j with it, as (..,i,j), j behind i.
local function covers(net, corners, most)
  local k = corners[1].shape[3]
  local function rows(x) return F.Unsqueeze(x, { axes = { 4 } }) end
  local function columns(x) return F.Unsqueeze(x, { axes = { 3 } }) end

  -- The part of both over the whole of both, without a quotient: both > most (a + b - both).
  local sides, areas = {}, {}
  for d = 1, 2 do
    local low = F.Maximum { rows(corners[d]), columns(corners[d]) }
    local high = F.Minimum { rows(corners[d + 2]), columns(corners[d + 2]) }
    sides[d] = F.Relu(F.Sub { high, low })
    areas[d] = F.Relu(F.Sub { corners[d + 2], corners[d] })
  end
  local both, area = F.Mul { sides[1], sides[2] }, F.Mul { areas[1], areas[2] }
  local whole = F.Sub { F.Add { rows(area), columns(area) }, both }
  local more = kit.cast(F.Gt { both, kit.times(whole, most) }, "f32")
  -- A box takes away worse ones alone: those behind it.
  local behind = core.eager("Triu", { core.eager("Constant", {}, { shape = { k, k }, value = 1 }) },
    { diagonal = 1 })
  return F.Mul { more, net:const(behind) }
end

--- What is left of boxes (N,C,K), best first, when each that is left takes those away that it
-- covers: 1 or 0, box after box.
local function survivors(net, valid, over)
  local k = valid.shape[3]

  -- Box by box: row k of `over` says whom box k covers, a row of ones and zeros says which it is.
  -- Only one that is still there takes others away.
  local own = net:const(core.eager("Eye", {}, { shape = { k, k } }))
  return (net:Recurrent { seq = { F.Permute(over, { axes = { 3, 1, 2, 4 } }), own },
    init = { valid }, step = function(_, alive, covered, this)
      local is_left = F.Sum(F.Mul { alive, this }, { axes = { 3 }, keepdim = true })
      return F.Sub { alive, F.Mul { F.Mul { is_left, covered }, alive } }
    end })
end

--- The best boxes of all classes, rows (image, label, score, corners), (1, 1, rows, 7). Caffe gives
-- as many rows as there are; here they are keep_top_k an image, best first, and -1 behind the last.
local function detection_output(n, loc, conf, prior)
  n:expect(3, 3)
  n:check_rank(3, prior, 3)
  local p, net = n:options "detection_output_param", n.state.net
  local nms = p:message "nms_param"
  local classes = p:size "num_classes" or n:fail "num_classes is missing"
  local background, threshold = p:int("background_label_id", 0),
    p:number("confidence_threshold", -math.huge)
  if not p:flag("share_location", true) then n:fail "share_location: false is not read" end
  if nms:number("eta", 1) ~= 1 then n:fail "an eta other than 1 is not read" end
  p:leave "save_output_param visualize visualize_threshold save_file"
  local count, images = prior.shape[3] // 4, loc.shape[1]
  if count < 1 or loc.shape[2] ~= 4 * count or kit.product(conf.shape, 2) ~= classes * count then
    n:fail("bottoms (%s), (%s) for %d boxes, 4 and %d of each are expected",
      table.concat(loc.shape, ","), table.concat(conf.shape, ","), count, classes)
  end

  -- Of each class so many of the best are compared, each with each: K^2 numbers a class, which
  -- bounds K.
  local best, keep = nms:int("top_k", -1), p:int("keep_top_k", -1)
  best = best > 0 and math.min(best, count) or count
  if best > 1000 then n:fail("nms_param: top_k of %d, at most 1000", best) end

  -- Scores by class, without those of the background; the best of each with their boxes.
  local scores = F.Permute(kit.reshape(conf, { images, count, classes }), { axes = { 1, 3, 2 } })
  local labels = {}
  for c = 0, classes - 1 do
    if c ~= background then labels[#labels + 1] = c end
  end
  local label = net:const(core.tensor(labels, "i64"))
  scores = F.Gather({ scores, label }, { axis = 2 })
  local values, at = F.TopK(scores, { k = best, axis = 3 }, 2)
  local corners, boxes = decoded(n, p, loc, prior), {}
  for k = 1, 4 do
    local all = F.Expand(F.Unsqueeze(corners[k], { axes = { 2 } }),
      { shape = { images, #labels, count } })
    boxes[k] = F.GatherElements({ all, at }, { axis = 3 })
  end

  -- Which of these are boxes at all, and which are left when better ones have taken theirs.
  local least = net:const(threshold)
  local valid = kit.cast(F.Gt { values, least }, "f32")
  local alive = survivors(net, valid, covers(net, boxes, nms:number("nms_threshold", 0.3)))

  -- The best of all classes.
  local all = #labels * best
  keep = keep > 0 and math.min(keep, all) or all
  local is_left = F.Gt { kit.reshape(alive, { images, all }), net:const(0.5) }
  local none = net:const(-math.huge)
  local score, place = F.TopK(F.Where { is_left, kit.reshape(values, { images, all }), none },
    { k = keep, axis = 2 }, 2)
  local function taken(x)
    return F.GatherElements({ kit.reshape(x, { images, all }), place }, { axis = 2 })
  end

  -- The columns of a row, each (images, keep), and -1 in all of them where no box is left.
  local image = {}
  for i = 1, images do image[i] = kit.fill(keep, i - 1) end
  local class = F.Expand(kit.reshape(kit.cast(label, "f32"), { 1, #labels, 1 }),
    { shape = { images, #labels, best } })
  local row = F.Stack({ net:const(core.tensor(image, "f32")), taken(class), score, taken(boxes[1]),
    taken(boxes[2]), taken(boxes[3]), taken(boxes[4]) }, { axis = 3 })
  local found = F.Unsqueeze(F.Gt { score, none }, { axes = { 3 } })
  return kit.reshape(F.Where { found, row, net:const(-1.0) }, { 1, 1, images * keep, 7 })
end

return function(layer)
  layer.PriorBox, layer.DetectionOutput = prior_box, detection_output
end
