--- Layers of SSD.
-- @module neap.caffe.detection
local boxes = require "neap.caffe.boxes"
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
  local list = {}
  for i, size in ipairs(least) do
    list[#list + 1] = { size, size }
    if most[i] then
      if most[i] <= size then n:fail("max_size %g, min_size %g", most[i], size) end
      local between = math.sqrt(size * most[i])
      list[#list + 1] = { between, between }
    end
    for _, ratio in ipairs(ratios) do
      list[#list + 1] = { size * math.sqrt(ratio), size / math.sqrt(ratio) }
    end
  end
  return list
end

--- Boxes (1, 2, 4 n) around each place of the first bottom, in shares of the second, and their
-- variances: what shapes say, so that it is a constant.
local function prior_box(n, x, image)
  n:expect(2, 2)
  n:check_rank(1, x, 4)
  n:check_rank(2, image, 4)
  local p = n:options "prior_box_param"
  local sizes, clip, offset = box_sizes(n, p), p:flag("clip", false), p:number("offset", 0.5)
  local variance = p:numbers "variance"
  if #variance == 0 then variance = { 0.1 } end
  if #variance ~= 1 and #variance ~= 4 then n:fail("%d variances, 1 or 4", #variance) end

  -- Sizes come of the message or else of the image; steps are then the image's over the places'.
  local height = p:size("img_h", p:size "img_size") or image.shape[3]
  local width = p:size("img_w", p:int "img_size") or image.shape[4]
  local step_h = p:number("step_h", p:number "step") or height / x.shape[3]
  local step_w = p:number("step_w", p:number "step") or width / x.shape[4]
  if x.shape[3] * x.shape[4] * #sizes > 1 << 20 then n:fail "more than a million boxes" end

  -- Place by place and box by box, as the layers that say offsets and scores count them. Corners
  -- are shares of the image, so that its size drops out.
  local places, variances = {}, {}
  for row = 0, x.shape[3] - 1 do
    for column = 0, x.shape[4] - 1 do
      local cx, cy = (column + offset) * step_w, (row + offset) * step_h
      for _, box in ipairs(sizes) do
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

--- The classes but the background.
local function foreground(n, classes, background)
  local labels = {}
  for c = 0, classes - 1 do
    if c ~= background then labels[#labels + 1] = c end
  end
  if #labels == 0 then n:fail "it has no class but the background" end
  return labels
end

-- ---- DetectionOutput ----------------------------------------------------------------------------

--- Corners (N,L,P) of the boxes that `loc` (N, P 4 L) says of the priors (1, 2, 4 P): what it says
-- of each coordinate is in units of its variance. L is 1, or how many classes there are where each
-- has boxes of its own.
local function decoded(n, p, loc, prior, of)
  local code, exact = boxes.code(n, p), p:flag "variance_encoded_in_target"
  local corners, variances = boxes.priors(prior)
  loc = kit.reshape(loc, { loc.shape[1], prior.shape[3] // 4, of, 4 })
  loc = F.Permute(loc, { axes = { 1, 3, 2, 4 } })
  local said = boxes.map(variances, function(variance, k)
    local l = boxes.part(loc, k)
    return exact and l or F.Mul { l, variance }
  end)
  return boxes.decoded(code, said, corners)
end

--- What is left of boxes (N,C,K), best first, when each goes that has more than `most` in common
-- with one that is left before it: 1 or 0, box after box. Where eta is below 1, each one that is
-- left makes `most` eta of what it was, as long as that is above a half.
local function survivors(net, valid, corners, most, eta)
  local n_image, n_class, k = table.unpack(valid.shape)

  -- Box by box: what it has in common with all, and a row of ones and zeros that says which it is.
  local shared = F.Permute(boxes.overlap(net, corners, corners), { axes = { 3, 1, 2, 4 } })
  local own = net:const(core.eager("Eye", {}, { shape = { k, k } }))
  local none = F.Expand(kit.reshape(net:const(0.0), { 1, 1, 1 }), { shape = valid.shape })
  local first = F.Expand(kit.reshape(net:const(most), { 1, 1, 1 }),
    { shape = { n_image, n_class, 1 } })
  return (net:Recurrent { seq = { shared, own }, init = { none, first },
    step = function(b, left, may, common, this)
      local function of_all(f, x) return f(x, { axes = { 3 }, keepdim = true }) end
      local is_box = of_all(F.Sum, F.Mul { valid, this })
      local stays = F.LogicalAnd { F.Gt { is_box, b:const(0.0) },
        F.Le { of_all(F.Max, F.Mul { left, common }), may } }
      if eta < 1 then
        local less = F.LogicalAnd { stays, F.Gt { may, b:const(0.5) } }
        may = F.Where { less, kit.times(may, eta), may }
      end
      return F.Add { left, F.Mul { kit.cast(stays, "f32"), this } }, may
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
  local of, eta = p:flag("share_location", true) and 1 or classes, nms:number("eta", 1)
  if not (eta > 0 and eta <= 1) then n:fail("nms_param: an eta of %g, of 0 to 1", eta) end
  p:leave "save_output_param visualize visualize_threshold save_file"
  local count, images = prior.shape[3] // 4, loc.shape[1]
  if count < 1 or kit.product(loc.shape, 2) ~= 4 * of * count
      or kit.product(conf.shape, 2) ~= classes * count then
    n:fail("bottoms (%s), (%s) for %d boxes, %d and %d of each are expected",
      table.concat(loc.shape, ","), table.concat(conf.shape, ","), count, 4 * of, classes)
  end

  -- Of each class so many of the best are compared, each with each: K^2 numbers a class, which
  -- bounds K.
  local best, keep = nms:int("top_k", -1), p:int("keep_top_k", -1)
  best = best > 0 and math.min(best, count) or count
  if best > 1000 then n:fail("nms_param: top_k of %d, at most 1000", best) end

  -- Scores by class, without those of the background; the best of each with their boxes.
  local scores = F.Permute(kit.reshape(conf, { images, count, classes }), { axes = { 1, 3, 2 } })
  local labels = foreground(n, classes, background)
  local label = net:const(core.tensor(labels, "i64"))
  scores = F.Gather({ scores, label }, { axis = 2 })
  local values, at = F.TopK(scores, { k = best, axis = 3 }, 2)
  local corners, best_of = decoded(n, p, loc, prior, of), {}
  for k = 1, 4 do
    local all = of > 1 and F.Gather({ corners[k], label }, { axis = 2 })
      or F.Expand(corners[k], { shape = { images, #labels, count } })
    best_of[k] = F.GatherElements({ all, at }, { axis = 3 })
  end

  -- Which of these are boxes at all, and which are left when better ones have taken theirs.
  local least = net:const(threshold)
  local valid = kit.cast(F.Gt { values, least }, "f32")
  local alive = survivors(net, valid, best_of, nms:number("nms_threshold", 0.3), eta)

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
  local row = F.Stack({ net:const(core.tensor(image, "f32")), taken(class), score,
    taken(best_of[1]), taken(best_of[2]), taken(best_of[3]), taken(best_of[4]) }, { axis = 3 })
  local found = F.Unsqueeze(F.Gt { score, none }, { axes = { 3 } })
  return kit.reshape(F.Where { found, row, net:const(-1.0) }, { 1, 1, images * keep, 7 })
end

-- ---- DetectionEvaluate --------------------------------------------------------------------------

--- Boxes of a label, of whatever images, in one row of G: {corners = four of (G), image, class,
-- difficult, valid}. Of rows (images,1,R,8) the image is where they stand (neap.caffe.boxes).
local function boxes_in_row(n, label)
  local images, net = label.shape[1], n.state.net
  local own = boxes.of_label(n, label, images)
  local rows = label.shape[#label.shape - 1]
  local function flat(x) return kit.reshape(x, { images * rows }) end

  local image = images == 1 and boxes.part(kit.reshape(kit.cast(label, "f32"), { rows, 8 }), 1)
    or flat(F.Expand(F.Unsqueeze(boxes.count(net, images), { axes = { 2 } }),
      { shape = { images, rows } }))
  return { corners = boxes.map(own.corners, flat), image = image, class = flat(own.class),
    difficult = flat(own.difficult), valid = flat(own.valid) }
end

--- Of D detections (image, class, ..) the box that each is for, of G: {overlap = (D), best = index
-- (D)}; an overlap of -1 where its image has no box of its class.
local function box_of_each(net, found, own)
  local function same(a, b)
    return F.Eq { F.Unsqueeze(a, { axes = { 2 } }), F.Unsqueeze(b, { axes = { 1 } }) }
  end
  local comparable = F.LogicalAnd {
    F.LogicalAnd { same(found.image, own.image), same(found.class, own.class) },
    F.Unsqueeze(own.valid, { axes = { 1 } }) }
  local overlap = F.Where { comparable, boxes.overlap(net, found.corners, own.corners),
    net:const(-1.0) }
  return F.Max(overlap, { axes = { 2 } }), F.ArgMax(overlap, { axis = 2 })
end

--- Whether each of D detections is right, whether it is wrong, and which of G boxes count: of those
-- that hit one box the best is right, the others find it twice. Boxes that are hard to see count
-- neither way, unless they are asked for.
local function judged(net, found, own, threshold, with_difficult)
  local overlap, best = box_of_each(net, found, own)
  local hit = F.Ge { overlap, net:const(threshold) }
  local n_box, count = own.class.shape[1], best.shape[1]

  local its_own = F.Eq { F.Unsqueeze(best, { axes = { 2 } }),
    kit.reshape(boxes.count(net, n_box, "i64"), { 1, n_box }) }
  local claims = F.LogicalAnd { its_own, F.Unsqueeze(hit, { axes = { 2 } }) }
  local winner = F.ArgMax(F.Where { claims, F.Unsqueeze(found.score, { axes = { 2 } }),
    net:const(-math.huge) }, { axis = 1 })
  local is_first = F.Eq { F.Gather({ winner, best }, { axis = 1 }),
    boxes.count(net, count, "i64") }
  local is_right = F.LogicalAnd { hit, is_first }
  local is_wrong = F.LogicalNot(is_right)
  if with_difficult then return is_right, is_wrong, own.valid end

  local easy = F.LogicalNot(own.difficult)
  local counts = F.LogicalOr { F.LogicalNot(hit), F.Gather({ easy, best }, { axis = 1 }) }
  return F.LogicalAnd { is_right, counts }, F.LogicalAnd { is_wrong, counts },
    F.LogicalAnd { own.valid, easy }
end

--- Rows (-1, class, number of boxes that count, -1, -1) of each class.
local function rows_of_classes(net, labels, own, counted)
  local class = net:const(core.tensor(labels, "f32"))
  local is_of = F.LogicalAnd { F.Eq { F.Unsqueeze(own.class, { axes = { 2 } }),
    F.Unsqueeze(class, { axes = { 1 } }) }, F.Unsqueeze(counted, { axes = { 2 } }) }
  local none = net:const(core.full { #labels, value = -1, dtype = "f32" })
  return F.Stack({ none, class, F.Sum(kit.cast(is_of, "f32"), { axes = { 1 } }), none, none },
    { axis = 2 })
end

--- Rows (image, class, score, true positive, false positive), (1, 1, C + D, 5). As Caffe has them:
-- of each of C classes first (-1, class, number of boxes, -1, -1); then of each detection, in the
-- order in which they come. Caffe gives rows for those that are there; here one that is not is a
-- row of -1.
local function detection_evaluate(n, detections, label)
  n:expect(2, 2)
  local p, net, shape = n:options "detection_evaluate_param", n.state.net, detections.shape
  local classes = p:size "num_classes" or n:fail "num_classes is missing"
  local background, threshold = p:int("background_label_id", 0), p:number("overlap_threshold", 0.5)
  local with_difficult = p:flag("evaluate_difficult_gt", true)
  if p:has "name_size_file" then n:fail "name_size_file, boxes in pixels, is not read" end
  if shape[#shape] ~= 7 then
    n:fail("detections of (%s), rows of 7 are expected", table.concat(shape, ","))
  end
  local labels = foreground(n, classes, background)

  local own, column, count = boxes_in_row(n, label), {}, kit.product(shape, 1, #shape - 1)
  detections = kit.reshape(detections, { count, 7 })
  for k = 1, 7 do column[k] = boxes.part(detections, k) end
  local found = { image = column[1], class = column[2], score = column[3],
    corners = { column[4], column[5], column[6], column[7] } }
  local is_right, is_wrong, counted = judged(net, found, own, threshold, with_difficult)

  local rows = F.Stack({ found.image, found.class, found.score, kit.cast(is_right, "f32"),
    kit.cast(is_wrong, "f32") }, { axis = 2 })
  local is_there = F.Ge { F.Unsqueeze(found.image, { axes = { 2 } }), net:const(0.0) }
  rows = F.Where { is_there, rows, net:const(-1.0) }
  local head = rows_of_classes(net, labels, own, counted)
  return kit.reshape(F.Concat({ head, rows }, { axis = 1 }), { 1, 1, #labels + count, 5 })
end

return function(layer)
  layer.PriorBox, layer.DetectionOutput = prior_box, detection_output
  layer.DetectionEvaluate = detection_evaluate
end
