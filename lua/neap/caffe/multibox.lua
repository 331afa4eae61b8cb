--- MultiBoxLoss: the loss of SSD (Liu et al., SSD: Single Shot MultiBox Detector, section 2.2), as
-- the Caffe of its authors computes it.
--
-- Each picture has R boxes and P priors. A prior that is matched with a box learns its class and
-- its corners; of the priors that are matched with none, those that look least like background
-- learn that they are. Letters: N pictures, R boxes, P priors, C classes.
--
-- Where classes share no locations and what the net says is matched, a prior is one box for each
-- class, matched with boxes of that class alone: the matching then has N C pictures, a class of a
-- picture each.
--
-- INVARIANT: gradients reach what the net says of boxes and classes by the last sums alone: matches
-- and the choice of negatives are indices and truth values, which have none.
-- @module neap.caffe.multibox
local boxes = require "neap.caffe.boxes"
local core = require "neap.core"
local kit = require "neap.caffe.kit"
local F = kit.F

-- An overlap that is not above it is none.
local LEAST = 1e-6

-- ---- what the layer says ------------------------------------------------------------------------

--- The layer's parameters, all of them read.
local function settings_of(n)
  local p = n:options "multibox_loss_param"
  local s = { code = boxes.code(n, p), classes = p:size "num_classes"
    or n:fail "num_classes is missing", background = p:int("background_label_id", 0),
    agnostic = p:flag("map_object_to_agnostic", false) }
  s.loc_loss = p:word("loc_loss_type", { "L2", "SMOOTH_L1" }, "SMOOTH_L1")
  s.conf_loss = p:word("conf_loss_type", { "SOFTMAX", "LOGISTIC" }, "SOFTMAX")
  s.weight = p:number("loc_weight", 1)

  -- Which priors are matched, and with what.
  s.match = p:word("match_type", { "BIPARTITE", "PER_PREDICTION" }, "PER_PREDICTION")
  s.threshold = p:number("overlap_threshold", 0.5)
  s.by_prior = p:flag("use_prior_for_matching", true)
  s.inside_only = p:flag("ignore_cross_boundary_bbox", false)
  s.difficult = p:flag("use_difficult_gt", true)
  s.exact = p:flag("encode_variance_in_target", false)
  s.learns_inside = p:flag("bp_inside", false)

  -- Which of the others are negatives. An older field says the same as a flag.
  local mining = p:word("mining_type", { "NONE", "MAX_NEGATIVE", "HARD_EXAMPLE" }, "MAX_NEGATIVE")
  local old = p:flag "do_neg_mining"
  if old ~= nil and old ~= (mining ~= "NONE") then
    n:fail("do_neg_mining and mining_type %s contradict each other", mining)
  end
  s.mines, s.is_hard = mining ~= "NONE", mining == "HARD_EXAMPLE"
  s.ratio, s.sample = p:number("neg_pos_ratio", 3), p:int("sample_size", 64)
  s.neg_overlap = p:number("neg_overlap", 0.5)
  if s.is_hard and s.sample < 1 then n:fail("a sample_size of %d", s.sample) end
  -- Of those that cover each other one alone is chosen.
  s.nms_by_prior = p:flag("use_prior_for_nms", false)
  if p:has "nms_param" then
    local nms = p:message "nms_param"
    local most, top = nms:number("nms_threshold", 0.3), nms:int("top_k", -1)
    nms:leave "eta"
    if top == 0 then n:fail "nms_param: top_k of 0" end
    if most > 0 then s.nms = { most = most, top = top } end
  end

  s.shares = p:flag("share_location", true)
  if not s.shares and s.mines then
    n:fail("share_location: false goes with mining_type: NONE alone, got %s", mining)
  end
  if s.background < 0 or s.background >= s.classes then
    n:fail("background_label_id is %d of %d classes", s.background, s.classes)
  end
  if s.agnostic and (s.classes ~= 2 or s.background ~= 0) then
    n:fail "map_object_to_agnostic asks for 2 classes, of which 0 is the background"
  end
  return s
end

--- What the sum is divided by: a number, or of VALID the blob of how many priors are matched.
local function divisor_of(n, count, n_image, n_prior)
  local p = n:options "loss_param"
  local by = p:word("normalization", { "FULL", "VALID", "BATCH_SIZE", "NONE" })
  local old = p:flag "normalize"
  if not by then by = old == false and "BATCH_SIZE" or "VALID" end
  -- Where nothing is matched the sum is 0 already.
  if by == "VALID" then return F.Maximum { kit.sum(count), n.state.net:const(1.0) } end
  return by == "FULL" and n_image * n_prior or by == "BATCH_SIZE" and n_image or 1
end

-- ---- matching -----------------------------------------------------------------------------------

--- Gives each box the prior that overlaps it most, the best pair of all first; then neither is free
-- any more. `match` (N,P) gets the box's number where that is so.
--
-- A box's prior is among the R that overlap it most, since at most R - 1 have gone to others: so
-- steps look at (N, R R) pairs instead of (N, R P).
local function match_best(net, overlap, match)
  local n_image, n_box, n_prior = table.unpack(overlap.shape)
  local k = math.min(n_box, n_prior)
  local best, prior = F.TopK(overlap, { k = k, axis = 3 }, 2)
  local pairs_shape = { n_image, n_box * k }
  best, prior = kit.reshape(best, pairs_shape), kit.reshape(prior, pairs_shape)
  local owner = F.FloorDiv { boxes.count(net, n_box * k, "i64"), net:const(k, "i64") }

  -- Of equal pairs that of the first prior is taken, and of its boxes the first: one number has
  -- both in that order.
  local code = F.Add { F.Mul { prior, net:const(n_box, "i64") }, owner }
  local last = net:const(n_prior * n_box, "i64")
  local all_priors, steps = boxes.count(net, n_prior, "i64"), boxes.count(net, n_box)

  local _, matched = net:Recurrent { seq = { steps }, init = { best, match },
    step = function(b, free, done, _)
      local most = F.Max(free, { axes = { 2 }, keepdim = true })
      local first = F.Min(F.Where { F.Eq { free, most }, code, last },
        { axes = { 2 }, keepdim = true })
      local count = b:const(n_box, "i64")
      local its_prior, its_box = F.FloorDiv { first, count }, F.Mod { first, count }
      -- What is left has nothing in common: nobody is matched any more.
      local is_pair = F.Gt { most, b:const(LEAST) }
      local here = F.LogicalAnd { F.Eq { all_priors, its_prior }, is_pair }
      local is_taken = F.LogicalOr { F.Eq { prior, its_prior }, F.Eq { owner, its_box } }
      return F.Where { is_taken, b:const(-1.0), free }, F.Where { here, its_box, done }
    end }
  return matched
end

--- The number of the box that each prior is matched with, from 0, or -1; (N,P).
local function matches(n, s, overlap)
  local net, n_image, n_prior = n.state.net, overlap.shape[1], overlap.shape[3]
  local none = net:const(-1, "i64")
  local match = F.Expand(kit.reshape(none, { 1, 1 }), { shape = { n_image, n_prior } })
  -- A prior that overlaps a box enough is matched with that of which it covers most; pairs that are
  -- each other's best go before.
  if s.match == "PER_PREDICTION" then
    local most = F.Max(overlap, { axes = { 2 } })
    local enough = F.LogicalAnd { F.Ge { most, net:const(s.threshold) },
      F.Gt { most, net:const(LEAST) } }
    match = F.Where { enough, F.ArgMax(overlap, { axis = 2 }), match }
  end
  return match_best(net, overlap, match)
end

--- True where a box lies in the picture with all its corners.
local function is_inside(net, corners)
  local all
  for k = 1, 4 do
    local within = F.LogicalAnd { F.Ge { corners[k], net:const(0.0) },
      F.Le { corners[k], net:const(1.0) } }
    all = all and F.LogicalAnd { all, within } or within
  end
  return all
end

--- The order (N,P) in which candidates are chosen, best first from 0, so that of those that cover
-- each other the best alone is: all others come last. As Caffe does, boxes of next to no area are
-- never chosen, and of many candidates the first `top`.
-- @param steps how many are chosen at most
local function order_without_covered(net, s, score, corners, steps)
  local n_prior, none = score.shape[2], net:const(-math.huge)
  local nms = s.nms
  if nms.top > 0 then
    local rank = F.ArgSort(F.ArgSort(score, { axis = 2, descending = true }), { axis = 2 })
    score = F.Where { F.Lt { rank, net:const(nms.top, "i64") }, score, none }
    steps = math.min(steps, nms.top)
  end
  local area = F.Mul { F.Relu(F.Sub { corners[3], corners[1] }),
    F.Relu(F.Sub { corners[4], corners[2] }) }
  score = F.Where { F.Ge { area, net:const(1e-5) }, score, none }

  local all_priors = boxes.count(net, n_prior, "i64")
  -- Beyond any count that is asked for.
  local last = F.Expand(kit.reshape(net:const(math.huge), { 1, 1 }), { shape = score.shape })
  local _, order = net:Recurrent { seq = { boxes.count(net, math.min(steps, n_prior)) },
    init = { F.StopGradient(score), last }, step = function(b, free, done, i)
      local out = b:const(-math.huge)
      local most = F.Max(free, { axes = { 2 }, keepdim = true })
      local at = F.Unsqueeze(F.ArgMax(free, { axis = 2 }), { axes = { 2 } })
      local here = F.LogicalAnd { F.Eq { all_priors, at }, F.Gt { most, out } }
      local its = boxes.map(corners, function(x)
        return F.Sum(F.Where { here, x, b:const(0.0) }, { axes = { 2 }, keepdim = true })
      end)
      local shared = F.Squeeze(boxes.overlap(b, its, corners), { axes = { 2 } })
      local gone = F.LogicalOr { here, F.Gt { shared, b:const(nms.most) } }
      return F.Where { gone, out, free }, F.Where { here, i, done }
    end }
  return order
end

--- Of the priors that are eligible those whose loss is largest, so many of each picture.
-- @param corners the boxes that may cover each other
-- @param count blob (N,1) or number
-- @param steps `count` at most
local function chosen(net, s, loss, eligible, corners, count, steps)
  if type(count) == "number" then count = net:const(count) end
  local order = F.Where { eligible, loss, net:const(-math.huge) }
  if s.nms then
    order = order_without_covered(net, s, order, corners, steps)
  else
    -- The order of an order is each element's rank.
    order = kit.cast(F.ArgSort(F.ArgSort(order, { axis = 2, descending = true }), { axis = 2 }),
      "f32")
  end
  return F.LogicalAnd { eligible, F.Lt { order, count } }
end

-- ---- the two sums -------------------------------------------------------------------------------

--- The loss of each prior's class (N,P): of a label (N,P), of what the net says (N,P,C).
-- @param hot which classes it is, (N,P,C); nil: that of the label
local function class_losses(s, conf, label, hot)
  if s.conf_loss == "SOFTMAX" then
    return F.SoftmaxCrossEntropy({ conf, label }, { axis = 3, reduction = "none" })
  end
  hot = hot or F.OneHot(label, { depth = s.classes, dtype = conf.dtype })
  return F.Sum(F.BceWithLogitsLoss({ conf, hot }, { reduction = "none" }), { axes = { 3 } })
end

--- The loss of the corners of priors that are matched, (N,P,4); 0 of others.
-- @param said four of (N,P), in units of the variances
local function place_losses(s, said, target, is_pos)
  local function all(list) return F.Stack(list, { axis = 3 }) end
  -- Where no box is, what is said is what is wanted: a difference of 0, which no gradient passes.
  local want = all(target)
  local got = F.Where { F.Unsqueeze(is_pos, { axes = { 3 } }), all(said), want }
  if s.loc_loss == "SMOOTH_L1" then
    return F.SmoothL1Loss({ got, want }, { reduction = "none" })
  end
  return kit.times(F.MseLoss({ got, want }, { reduction = "none" }), 0.5)
end

--- Checks bottoms against each other. @return N, P
local function sizes_of(n, s, loc, conf, prior)
  n:check_rank(3, prior, 3)
  local n_image, n_prior = loc.shape[1], prior.shape[3] // 4
  local each = s.shares and 4 or 4 * s.classes
  if n_prior < 1 or kit.product(prior.shape) ~= 8 * n_prior
      or kit.product(loc.shape) ~= n_image * each * n_prior
      or kit.product(conf.shape) ~= n_image * s.classes * n_prior then
    n:fail("bottoms (%s), (%s) for %d boxes, %d and %d of each are expected",
      table.concat(loc.shape, ","), table.concat(conf.shape, ","), n_prior, each, s.classes)
  end
  return n_image, n_prior
end

-- ---- the layer ----------------------------------------------------------------------------------

--- Overlaps (N,R,P) of the boxes that count with the priors, or with what the net makes of them;
-- and where only priors within the picture take part, which those are.
local function overlaps(n, s, own, compared)
  local net, counts = n.state.net, own.valid
  local zero, inside = net:const(0.0), nil

  if not s.difficult then counts = F.LogicalAnd { counts, F.LogicalNot(own.difficult) } end
  own.counts = counts
  local overlap = boxes.overlap(net, own.corners, compared)
  overlap = F.Where { F.Unsqueeze(counts, { axes = { 3 } }), overlap, zero }
  if s.inside_only then
    inside = is_inside(net, compared)
    overlap = F.Where { F.Unsqueeze(inside, { axes = { 2 } }), overlap, zero }
  end
  return overlap, inside
end

--- What the net makes of the priors: corners, which no gradient reaches.
local function predicted(s, loc, place, variance)
  local said = boxes.map(variance, function(v, k)
    local x = boxes.part(loc, k)
    return s.exact and x or F.Mul { x, v }
  end)
  return boxes.map(boxes.decoded(s.code, said, place), function(x) return F.StopGradient(x) end)
end

--- The class that each prior learns, (N,P) of i64.
local function labels_of(n, s, own, match, is_pos)
  local net = n.state.net
  local background = net:const(s.background, "i64")
  local class = kit.cast(F.GatherElements({ own.class, match }, { axis = 2 }), "i64")
  if s.agnostic then class = net:const(1, "i64") end
  -- A box of the background is none that Caffe takes: it gets a class that no net has, which the
  -- loss refuses.
  class = F.Where { F.Eq { class, background }, net:const(s.classes, "i64"), class }
  return F.Where { is_pos, class, background }
end

--- What the classes of each prior cost, (N,P).
local function each_class_loss(n, s, conf, own, match, by)
  local net, is_pos = n.state.net, by.is_pos
  if not by.by_class then
    local label, hot = labels_of(n, s, own, match, is_pos), nil
    -- Independent classes of all priors: one without a box is of none, the background included.
    if not s.mines then
      hot = F.Mul { F.OneHot(label, { depth = s.classes, dtype = conf.dtype }),
        F.Unsqueeze(kit.cast(is_pos, "f32"), { axes = { 3 } }) }
    end
    return class_losses(s, conf, label, hot)
  end

  -- Each class has matches of its own; a label is the last of those that a prior is matched in.
  local apart = kit.reshape(is_pos, { conf.shape[1], s.classes, conf.shape[2] })
  local class = kit.reshape(boxes.count(net, s.classes, "i64"), { 1, s.classes, 1 })
  local label = F.Max(F.Where { apart, class, net:const(-1, "i64") }, { axes = { 2 } })
  label = F.Where { F.Ge { label, net:const(0, "i64") }, label, net:const(s.background, "i64") }
  return class_losses(s, conf, label,
    kit.cast(F.Permute(apart, { axes = { 1, 3, 2 } }), "f32"))
end

--- Of priors that are mined, which are negatives; of hard examples also which of the others stay
-- what they are.
-- @param loss (N,P)
-- @return bool (N,P)
local function mined(n, s, own, loss, place, variance, loc, by)
  local net, free = n.state.net, F.LogicalNot(by.is_pos)
  if by.inside then free = F.LogicalAnd { free, by.inside } end
  local corners = s.nms and (s.nms_by_prior and place or predicted(s, loc, place, variance))

  if not s.is_hard then
    local most = F.Max(by.overlap, { axes = { 2 } })
    local eligible = F.LogicalAnd { free, F.Lt { most, net:const(s.neg_overlap) } }
    return chosen(net, s, loss, eligible, corners, F.Floor(kit.times(by.n_pos, s.ratio)),
      loss.shape[2])
  end

  -- All priors of a picture that has a box.
  local has_box = F.Max(kit.cast(own.counts, "f32"), { axes = { 2 }, keepdim = true })
  local eligible = F.Expand(F.Gt { has_box, net:const(0.0) }, { shape = loss.shape })
  local selected = chosen(net, s, loss, eligible, corners, s.sample, s.sample)
  by.is_pos = F.LogicalAnd { by.is_pos, selected }
  return F.LogicalAnd { free, selected }
end

--- What the net says of corners and what is wanted, four of (N,P) each, in units of the variances,
-- whichever the net says.
local function said_and_target(n, s, loc, place, variance, own, match, by)
  local net = n.state.net
  local corners = boxes.map(own.corners, function(x, k)
    return F.Where { by.is_pos, F.GatherElements({ x, match }, { axis = 2 }), place[k] }
  end)
  local target = boxes.map(boxes.encoded(s.code, corners, place), function(t, k)
    return F.Div { t, variance[k] }
  end)

  -- Of locations by class those of the class that is matched; of a class that is none, any.
  if not s.shares and not by.by_class then
    local class = F.GatherElements({ own.class, match }, { axis = 2 })
    class = kit.cast(F.Clamp(class, { min = 0, max = s.classes - 1 }), "i64")
    local shape = { loc.shape[1], loc.shape[2], 1, 4 }
    class = F.Expand(kit.reshape(class, { shape[1], shape[2], 1, 1 }), { shape = shape })
    loc = F.Squeeze(F.GatherElements({ loc, class }, { axis = 3 }), { axes = { 3 } })
  end
  local said = boxes.map(variance, function(v, k)
    local x = boxes.part(loc, k)
    if s.exact then x = F.Div { x, v } end
    if not s.learns_inside then return x end
    -- A coordinate outside of the picture says what is wanted already.
    local within = F.LogicalAnd { F.Ge { by.compared[k], net:const(0.0) },
      F.Le { by.compared[k], net:const(1.0) } }
    return F.Where { within, x, target[k] }
  end)
  return said, target
end

--- Boxes and locations of each class as those of a picture of its own: (N C,R), (N C,P,4). A class
-- has the boxes that are of it, the background has none.
local function apart_by_class(n, s, own, loc)
  local net, classes = n.state.net, s.classes
  local n_image, n_box, n_prior = own.class.shape[1], own.class.shape[2], loc.shape[2]
  local function each(x)
    x = F.Expand(F.Unsqueeze(x, { axes = { 2 } }), { shape = { n_image, classes, n_box } })
    return kit.reshape(x, { n_image * classes, n_box })
  end
  local list = {}
  for c = 0, classes - 1 do list[c + 1] = c == s.background and -2 or c end
  local class = F.Expand(net:const(core.tensor({ list }, "f32")), { shape = { n_image, classes } })
  local is_own = F.Eq { each(own.class), kit.reshape(class, { n_image * classes, 1 }) }
  loc = kit.reshape(F.Permute(loc, { axes = { 1, 3, 2, 4 } }), { n_image * classes, n_prior, 4 })
  return { corners = boxes.map(own.corners, each), class = each(own.class),
    difficult = each(own.difficult), valid = F.LogicalAnd { each(own.valid), is_own } }, loc
end

local function multibox_loss(n, loc, conf, prior, label)
  n:expect(4, 4)
  local s, net, by = settings_of(n), n.state.net, {}
  local n_image, n_prior = sizes_of(n, s, loc, conf, prior)
  local own = boxes.of_label(n, label, n_image)
  local place, variance = boxes.priors(prior)
  conf = kit.reshape(conf, { n_image, n_prior, s.classes })
  if s.shares then
    loc = kit.reshape(loc, { n_image, n_prior, 4 })
  else
    loc = kit.reshape(loc, { n_image, n_prior, s.classes, 4 })
    by.by_class = not s.by_prior
    if by.by_class then own, loc = apart_by_class(n, s, own, loc) end
  end

  by.compared = s.by_prior and place or predicted(s, loc, place, variance)
  by.overlap, by.inside = overlaps(n, s, own, by.compared)
  local match = matches(n, s, by.overlap)
  by.is_pos = F.Ge { match, net:const(0, "i64") }
  local function count()
    return F.Sum(kit.cast(by.is_pos, "f32"), { axes = { 2 }, keepdim = true })
  end
  by.n_pos = count()
  -- From here on an index, of any box where none is.
  match = F.Maximum { match, net:const(0, "i64") }

  local function places()
    local said, target = said_and_target(n, s, loc, place, variance, own, match, by)
    return place_losses(s, said, target, by.is_pos)
  end
  local each, learns = each_class_loss(n, s, conf, own, match, by), nil
  if s.mines then
    local loss = s.is_hard and F.Add { each, F.Sum(places(), { axes = { 3 } }) } or each
    local negative = mined(n, s, own, loss, place, variance, loc, by)
    learns = F.LogicalOr { by.is_pos, negative }
    if s.is_hard then by.n_pos = count() end
  end

  local parts, down = {}, n.row.message:flags "propagate_down"
  if down[1] ~= false then parts[1] = kit.times(kit.sum(places()), s.weight) end
  if down[2] ~= false then
    parts[#parts + 1] = kit.sum(learns and F.Where { learns, each, net:const(0.0) } or each)
  end
  local total = #parts == 2 and F.Add(parts) or parts[1]
    or n:fail "propagate_down leaves neither part of the loss"

  local over = divisor_of(n, by.n_pos, n_image, n_prior)
  if type(over) == "number" then return n:times(total, 1 / over) end
  return n:gives("Div", { total, over })
end

return function(layer) layer.MultiBoxLoss = multibox_loss end
