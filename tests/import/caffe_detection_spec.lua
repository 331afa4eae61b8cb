-- Caffe's layers of detectors: the loss of SSD against loops that say what its authors' Caffe does,
-- the judging of detections against a case worked out by hand, and the collection's detector
-- trained.
local neap = require "neap"
local kit = require "import.caffe_kit"

local folder = "../shared/data/caffe-prototxt/mobilenet-ssd/"

-- ---- the loss, in loops -------------------------------------------------------------------------

local function area(b) return math.max(b[3] - b[1], 0) * math.max(b[4] - b[2], 0) end

--- What two boxes have in common over what both cover.
local function jaccard(a, b)
  local w = math.min(a[3], b[3]) - math.max(a[1], b[1])
  local h = math.min(a[4], b[4]) - math.max(a[2], b[2])
  if w <= 0 or h <= 0 then return 0 end
  return w * h / (area(a) + area(b) - w * h)
end

--- The box of each prior, or nil: the best pairs first, then whatever overlaps enough.
-- @return matches by prior, the largest overlap of each prior
local function match(boxes, priors, o)
  local of, overlap, most, free = {}, {}, {}, {}
  for p, prior in ipairs(priors) do
    overlap[p], most[p] = {}, 0
    local crosses = false
    for k = 1, 4 do crosses = crosses or prior[k] < 0 or prior[k] > 1 end
    for b, box in ipairs(boxes) do
      local v = jaccard(prior, box)
      if o.inside_only and crosses then v, of[p] = 0, false end
      overlap[p][b], most[p] = v > 1e-6 and v or 0, math.max(most[p], v > 1e-6 and v or 0)
    end
  end

  for b in ipairs(boxes) do free[b] = true end
  for _ = 1, #boxes do
    local best, at, its = 0, nil, nil
    for p in ipairs(priors) do
      for b in ipairs(boxes) do
        if of[p] == nil and free[b] and overlap[p][b] > best then
          best, at, its = overlap[p][b], p, b
        end
      end
    end
    if at then of[at], free[its] = its, nil end
  end
  for p in ipairs(o.match ~= "BIPARTITE" and priors or {}) do
    local best = -1
    for b in ipairs(of[p] == nil and boxes or {}) do
      if overlap[p][b] > best and overlap[p][b] >= (o.threshold or 0.5) and overlap[p][b] > 0 then
        best, of[p] = overlap[p][b], b
      end
    end
  end
  return of, most
end

--- What would have to be said of a prior, in units of its variances.
local function encode(code, box, prior, variance)
  local w, h = prior[3] - prior[1], prior[4] - prior[2]
  local sides, t = { w, h, w, h }, {}
  for k = 1, 4 do
    if code == "CENTER_SIZE" then
      local d = (k - 1) % 2 + 1
      local middle = (box[d] + box[d + 2] - prior[d] - prior[d + 2]) / 2 / sides[d]
      t[k] = k <= 2 and middle or math.log((box[d + 2] - box[d]) / sides[d])
    else
      t[k] = (box[k] - prior[k]) / (code == "CORNER_SIZE" and sides[k] or 1)
    end
    t[k] = t[k] / variance[k]
  end
  return t
end

local function class_loss(scores, class, is_logistic)
  local sum = 0
  if is_logistic then
    for c, v in ipairs(scores) do
      sum = sum + math.log(1 + math.exp(-math.abs(v))) + math.max(v, 0)
        - (c - 1 == class and v or 0)
    end
    return sum
  end
  for _, v in ipairs(scores) do sum = sum + math.exp(v) end
  return math.log(sum) - scores[class + 1]
end

local function distance(d, is_l2)
  if is_l2 then return 0.5 * d * d end
  return math.abs(d) < 1 and 0.5 * d * d or math.abs(d) - 0.5
end

--- The corners that a prior becomes by what is said of it; CORNER alone.
local function decode(said, prior, variance)
  local out = {}
  for k = 1, 4 do out[k] = prior[k] + said[k] * variance[k] end
  return out
end

--- Of candidates {loss, prior}, best first, those without what a better one covers.
local function without_covered(list, corners, o)
  local left = {}
  for i, row in ipairs(list) do
    local keep = (not o.top or i <= o.top) and area(corners[row[2]]) >= 1e-5
    for _, other in ipairs(left) do
      keep = keep and jaccard(corners[row[2]], corners[other[2]]) <= o.nms
    end
    if keep then left[#left + 1] = row end
  end
  return left
end

--- What the sum takes of one image by mining: {[prior] = true}.
local function mine(image, priors, variances, of, most, boxes, loss, o)
  local list, own, selected, corners = {}, 0, {}, {}
  for p in ipairs(priors) do
    own = own + (of[p] and 1 or 0)
    corners[p] = o.by_prior and priors[p] or decode(image.loc[p], priors[p], variances[p])
    local may = of[p] == nil and most[p] < (o.neg_overlap or 0.5)
    if o.hard then may = #boxes > 0 end
    if may then list[#list + 1] = { loss[p], p } end
  end
  table.sort(list, function(a, b) return a[1] > b[1] end)
  if o.nms then list = without_covered(list, corners, o) end
  local count = o.hard and (o.sample or 64) or math.floor(own * (o.ratio or 3))
  for k = 1, math.min(#list, count) do selected[list[k][2]] = true end
  return selected
end

--- The loss of images {loc = {P of 4}, conf = {P of C}, boxes = rows of 8}.
local function reference(images, priors, variances, o)
  local place, class, n_pos, background = 0, 0, 0, o.background or 0
  for _, image in ipairs(images) do
    local boxes = {}
    for _, row in ipairs(image.boxes) do
      local is_hard = row[8] ~= 0 and o.difficult == false
      if row[1] >= 0 and not is_hard then
        boxes[#boxes + 1] = { row[4], row[5], row[6], row[7], class = row[2] }
      end
    end

    local of, most = match(boxes, priors, o)
    local own, loss, places = 0, {}, {}
    for p in ipairs(priors) do
      local box = of[p] and boxes[of[p]]
      -- Independent classes that are not mined: what has no box is of no class.
      local class_without = o.mines == false and o.logistic and -1 or background
      loss[p] = class_loss(image.conf[p], box and box.class or class_without, o.logistic)
      places[p] = 0
      if box then
        local t = encode(o.code or "CORNER", box, priors[p], variances[p])
        local said = o.apart and image.loc[p][box.class + 1] or image.loc[p]
        for k = 1, 4 do
          local d = said[k] / (o.exact and variances[p][k] or 1) - t[k]
          places[p] = places[p] + distance(d, o.l2)
        end
      end
    end
    local both = {}
    for p in ipairs(priors) do both[p] = loss[p] + (o.hard and places[p] or 0) end
    local selected = o.mines ~= false and mine(image, priors, variances, of, most, boxes, both, o)
    for p in ipairs(priors) do
      local is_own = of[p] and (not o.hard or selected[p])
      if is_own then own, place = own + 1, place + places[p] end
      if is_own or not selected or of[p] == nil and selected[p] then class = class + loss[p] end
    end
    n_pos = n_pos + own
  end
  local over = ({ FULL = #images * #priors, BATCH_SIZE = #images, NONE = 1 })[o.norm]
    or math.max(n_pos, 1)
  return (place * (o.weight or 1) + class) / over, n_pos
end

-- ---- cases --------------------------------------------------------------------------------------

local N, P, C, R = 3, 12, 4, 5

--- Three pictures with two, no and five boxes, some of which hardly overlap a prior, and what a net
-- says; the same each time.
local function case(seed)
  neap.seed(seed)
  local function draw(n) return neap.rand(n, 4):totable() end
  local priors, variances, images = {}, {}, {}
  for p, v in ipairs(draw(P)) do
    local x, y, side = v[1] * 0.9, v[2] * 0.9, 0.15 + 0.3 * v[3]
    priors[p] = { x - side / 2, y - side / 2, x + side / 2, y + side / 2 * (0.5 + v[4]) }
    variances[p] = { 0.1, 0.1, 0.2, 0.2 }
  end
  for i, count in ipairs { 2, 0, 5 } do
    local boxes = {}
    for b, v in ipairs(draw(R)) do
      -- Near a prior, or anywhere.
      local near = priors[(b * 3 + i) % P + 1]
      local box = b <= 3 and { near[1] + 0.05 * v[1], near[2] + 0.05 * v[2], near[3], near[4] }
        or { v[1] * 0.7, v[2] * 0.7, v[1] * 0.7 + 0.2, v[2] * 0.7 + 0.3 * v[3] + 0.02 }
      boxes[b] = { b <= count and 7 or -1, (b + i) % (C - 1) + 1, 0, box[1], box[2], box[3], box[4],
        b == 2 and 1 or 0 }
    end
    images[i] = { boxes = boxes, loc = (neap.randn(P, 4) * 0.7):totable(),
      conf = (neap.randn(P, C) * 2):totable() }
  end
  return images, priors, variances
end

local function flat(list)
  local out = {}
  for _, row in ipairs(list) do table.move(row, 1, #row, #out + 1, out) end
  return out
end

--- The layer's text and its bottoms as tensors.
local function bottoms(images, priors, variances)
  local loc, conf, label = {}, {}, {}
  for i, image in ipairs(images) do
    loc[i], conf[i], label[i] = flat(image.loc), flat(image.conf), { image.boxes }
  end
  return neap.tensor(loc), neap.tensor(conf), neap.tensor { { flat(priors), flat(variances) } },
    neap.tensor(label)
end

local function text(more, norm)
  return ([[type: "MultiBoxLoss" %s multibox_loss_param { num_classes: %d %s }]]):format(
    norm and ("loss_param { %s }"):format(norm) or "", C, more or "")
end

local function loss_of(words, norm, ...)
  return kit.layer(text(words, norm), { bottoms(...) })
end

local function near(want, got, what)
  assert.is_true(math.abs(want - got) <= 2e-5 * math.max(1, math.abs(want)),
    ("%.7g, expected %.7g %s"):format(got, want, what or ""))
end

describe("the loss of SSD", function()
  it("is what its authors' loops compute, whatever the parameters", function()
    local list = {
      { "", {} }, { "code_type: CENTER_SIZE", { code = "CENTER_SIZE" } },
      { "code_type: CORNER_SIZE loc_weight: 2.5", { code = "CORNER_SIZE", weight = 2.5 } },
      { "code_type: CENTER_SIZE encode_variance_in_target: true",
        { code = "CENTER_SIZE", exact = true } },
      { "loc_loss_type: L2", { l2 = true } },
      { "conf_loss_type: LOGISTIC", { logistic = true } },
      { "match_type: BIPARTITE", { match = "BIPARTITE" } },
      { "overlap_threshold: 0.2 neg_overlap: 0.1", { threshold = 0.2, neg_overlap = 0.1 } },
      { "neg_pos_ratio: 0.7", { ratio = 0.7 } },
      { "mining_type: NONE", { mines = false } },
      { "do_neg_mining: true", {} },
      { "use_difficult_gt: false", { difficult = false } },
      { "ignore_cross_boundary_bbox: true", { inside_only = true } },
      { "background_label_id: 0", { norm = "FULL" }, "normalization: FULL" },
      { "", { norm = "BATCH_SIZE" }, "normalize: false" },
      { "", { norm = "NONE" }, "normalization: NONE" },
      { "", {}, "normalization: VALID" },
      { "mining_type: NONE conf_loss_type: LOGISTIC", { mines = false, logistic = true } },
      { "mining_type: HARD_EXAMPLE sample_size: 4", { hard = true, sample = 4 } },
      { "mining_type: HARD_EXAMPLE", { hard = true } },
      { "mining_type: HARD_EXAMPLE sample_size: 5 ignore_cross_boundary_bbox: true loc_weight: 2",
        { hard = true, sample = 5, inside_only = true, weight = 2 } },
      { "mining_type: HARD_EXAMPLE sample_size: 6 nms_param { nms_threshold: 0.1 }",
        { hard = true, sample = 6, nms = 0.1 } },
      { "nms_param { nms_threshold: 0.05 }", { nms = 0.05 } },
      { "nms_param { nms_threshold: 0.05 top_k: 4 } use_prior_for_nms: true",
        { nms = 0.05, top = 4, by_prior = true } },
      { "nms_param { nms_threshold: 0.1 } use_prior_for_nms: true neg_pos_ratio: 1.5",
        { nms = 0.1, ratio = 1.5, by_prior = true } },
    }
    for seed = 1, 3 do
      local images, priors, variances = case(seed)
      for _, row in ipairs(list) do
        local want, n_pos = reference(images, priors, variances, row[2])
        assert.is_true(n_pos > (row[2].hard and 0 or 2))
        near(want, loss_of(row[1], row[3], images, priors, variances), row[1])
      end
    end
  end)

  it("matches the first of pairs that are equally good, prior before box", function()
    -- Nine priors of half the picture, and boxes of an eighth that lie in four of them each.
    local images, priors, variances = case(9)
    for p = 1, P do
      local x, y = (p - 1) % 3 * 0.25, (p - 1) // 3 % 3 * 0.25
      priors[p] = { x, y, x + 0.5, y + 0.5 }
    end
    for _, image in ipairs(images) do
      for b, row in ipairs(image.boxes) do
        local x, y = 0.25 + (b - 1) % 2 * 0.375, 0.25 + (b - 1) // 2 * 0.125
        row[4], row[5], row[6], row[7] = x, y, x + 0.125, y + 0.125
      end
    end
    for _, row in ipairs { { "match_type: BIPARTITE", { match = "BIPARTITE" } },
      { "overlap_threshold: 0.0625", { threshold = 0.0625 } } } do
      near(reference(images, priors, variances, row[2]),
        loss_of(row[1], nil, images, priors, variances))
    end
  end)

  it("matches what the net makes of priors, where that is asked for", function()
    local images, priors, variances = case(4)
    -- Nothing said is the prior itself; a box said exactly is one that is matched.
    for _, image in ipairs(images) do
      for p in ipairs(priors) do image.loc[p] = { 0, 0, 0, 0 } end
    end
    near(loss_of("", nil, images, priors, variances),
      loss_of("use_prior_for_matching: false", nil, images, priors, variances))
    local far = { priors = {}, said = {} }
    for p, prior in ipairs(priors) do
      far.priors[p] = { prior[1] - 1, prior[2] - 1, prior[3] - 1, prior[4] - 1 }
    end
    assert.equal(0, loss_of("match_type: BIPARTITE", nil, images, far.priors, variances))
    for _, image in ipairs(images) do
      for p in ipairs(priors) do image.loc[p] = { 10, 10, 5, 5 } end
    end
    -- By the moved priors: the classes of those that are matched are what counts in both.
    local moved = loss_of("use_prior_for_matching: false loc_weight: 0", nil, images, far.priors,
      variances)
    near(loss_of("loc_weight: 0", nil, images, priors, variances), moved)
  end)

  it("has one class of things where that is asked for, and no gradient outside", function()
    local images, priors, variances = case(5)
    for _, image in ipairs(images) do
      for _, row in ipairs(image.conf) do row[3], row[4] = nil, nil end
    end
    local function run(words)
      local parts = { bottoms(images, priors, variances) }
      return kit.layer(([[type: "MultiBoxLoss" multibox_loss_param { num_classes: 2 %s }]]):format(
        words), parts)
    end
    local agnostic = run "map_object_to_agnostic: true"
    for _, image in ipairs(images) do
      for _, row in ipairs(image.boxes) do row[2] = 1 end
    end
    near(run "", agnostic)
    -- Priors that leave the picture learn no corner there: a shift of what is said is for nothing.
    for p in ipairs(priors) do
      priors[p] = { priors[p][1] - 2, priors[p][2] - 2, priors[p][3], priors[p][4] }
    end
    local before = run "bp_inside: true overlap_threshold: 0.001"
    for _, image in ipairs(images) do
      for p in ipairs(priors) do image.loc[p][1] = image.loc[p][1] + 3 end
    end
    near(before, run "bp_inside: true overlap_threshold: 0.001")
  end)

  it("takes labels by image or, as Caffe has them, of all images in a row", function()
    local images, priors, variances = case(6)
    local parts = { bottoms(images, priors, variances) }
    local want = kit.layer(text "", parts)
    local rows = {}
    for i, image in ipairs(images) do
      for _, row in ipairs(image.boxes) do
        rows[#rows + 1] = table.move(row, 2, 8, 2, { row[1] >= 0 and i - 1 or -1 })
      end
    end
    parts[4] = neap.tensor { { rows } }
    near(want, kit.layer(text "", parts))
    parts[4] = parts[4]:reshape(N * R, 8)
    assert.error_matches(function() kit.layer(text "", parts) end, "rows of 8 are expected")
  end)

  it("has locations for each class, where classes share none", function()
    local images, priors, variances = case(10)
    for _, image in ipairs(images) do
      for p in ipairs(priors) do image.loc[p] = (neap.randn(C, 4) * 0.7):totable() end
    end
    local function run(words, some)
      local loc = {}
      for i, image in ipairs(images) do
        loc[i] = {}
        for _, of_class in ipairs(image.loc) do
          table.move(flat(of_class), 1, 4 * C, #loc[i] + 1, loc[i])
        end
      end
      local flat_images = {}
      for i, image in ipairs(images) do
        flat_images[i] = { loc = { { 0 } }, conf = image.conf, boxes = image.boxes }
      end
      local parts = { bottoms(some or flat_images, priors, variances) }
      parts[1] = neap.tensor(loc)
      return kit.layer(text("share_location: false mining_type: NONE " .. words), parts)
    end
    for words, o in pairs { [""] = {}, ["code_type: CENTER_SIZE"] = { code = "CENTER_SIZE" },
      ["conf_loss_type: LOGISTIC"] = { logistic = true } } do
      o.mines, o.apart = false, true
      near(reference(images, priors, variances, o), run(words))
    end

    -- Matched by what the net says, each class with its own boxes: nothing said, it is the prior.
    for _, image in ipairs(images) do
      for p in ipairs(priors) do
        for c = 1, C do image.loc[p][c] = { 0, 0, 0, 0 } end
      end
    end
    local place, class, n_pos = 0, 0, 0
    for _, image in ipairs(images) do
      local label = {}
      for c = 0, C - 1 do
        local boxes = {}
        for _, row in ipairs(image.boxes) do
          if row[1] >= 0 and row[2] == c then
            boxes[#boxes + 1] = { row[4], row[5], row[6], row[7] }
          end
        end
        for p, b in pairs((match(boxes, priors, {}))) do
          local t = encode("CORNER", boxes[b], priors[p], variances[p])
          for k = 1, 4 do place = place + distance(t[k]) end
          label[p], n_pos = c, n_pos + 1
        end
      end
      for p in ipairs(priors) do class = class + class_loss(image.conf[p], label[p] or 0) end
    end
    near((place + class) / n_pos, run "use_prior_for_matching: false")
  end)

  it("has the gradient of its differences", function()
    local images, priors, variances = case(7)
    local parts = { bottoms(images, priors, variances) }
    local source = {}
    for i, x in ipairs(parts) do
      source[i] = kit.input("in" .. i, table.unpack(x.shape))
    end
    source[5] = ('layer { name: "it" bottom: "in1" bottom: "in2" bottom: "in3" bottom: "in4" '
      .. 'top: "loss" %s }'):format(text "code_type: CENTER_SIZE")
    local f = assert(kit.import(table.concat(source)))
    local net = f.net:clone()
    local grads = net:gradient("loss", { wrt = { "in1", "in2" } })
    net:outputs { "loss", grads.in1, grads.in2 }
    local feeds = { in1 = parts[1], in2 = parts[2], in3 = parts[3], in4 = parts[4] }
    local out = f.workspace:run(net, feeds)
    local moved = 0
    for name, grad in pairs { in1 = out[grads.in1.name], in2 = out[grads.in2.name] } do
      local x, eps = feeds[name], 1e-3
      for j = 1, x.shape[2], 5 do
        local function at(d)
          local y = x:clone()
          y:set(y:at(3, j) + d, 3, j)
          feeds[name] = y
          return f.workspace:run(f.net, feeds).loss:item()
        end
        local slope = (at(eps) - at(-eps)) / (2 * eps)
        feeds[name] = x
        assert.is_true(math.abs(slope - grad:at(3, j)) < 5e-3,
          ("%s %d: %g, %g"):format(name, j, slope, grad:at(3, j)))
        moved = moved + (slope ~= 0 and 1 or 0)
      end
    end
    assert.is_true(moved > 4)
  end)

  it("is refused what it does not read, and boxes of the background", function()
    local images, priors, variances = case(8)
    local function refused(why, words)
      local ok, err = pcall(loss_of, words, nil, images, priors, variances)
      assert.is_false(ok)
      assert.matches(why, tostring(err))
    end
    refused("a sample_size of 0", "mining_type: HARD_EXAMPLE sample_size: 0")
    refused("share_location: false goes with mining_type: NONE alone, got MAX_NEGATIVE",
      "share_location: false")
    refused("16 and 4 of each are expected", "share_location: false mining_type: NONE")
    refused("top_k of 0", "nms_param { nms_threshold: 0.5 top_k: 0 }")
    refused("contradict", "do_neg_mining: false")
    refused("background_label_id is 9", "background_label_id: 9")
    refused("2 classes", "map_object_to_agnostic: true")
    refused("nothing reads overlap_treshold .* did you mean \"overlap_threshold\"",
      "overlap_treshold: 0.5")
    for _, row in ipairs(images[1].boxes) do row[2] = 0 end
    refused("4", "")
  end)
end)

describe("Caffe's boxes of detections", function()
  --- Rows (class, score, corners), best first, of one image.
  local function found(conf, corners_of, o)
    local rows = {}
    for c = 1, C - 1 do
      local list, left, most = {}, {}, o.most
      for p = 1, P do
        if conf[p][c + 1] > 0.1 then list[#list + 1] = { conf[p][c + 1], corners_of(p, c) } end
      end
      table.sort(list, function(a, b) return a[1] > b[1] end)
      for k = 1, math.min(#list, o.top or P) do
        local stays = true
        for _, other in ipairs(left) do
          stays = stays and jaccard(list[k][2], other[2]) <= most
        end
        if stays then
          left[#left + 1] = list[k]
          if (o.eta or 1) < 1 and most > 0.5 then most = most * o.eta end
          rows[#rows + 1] = { c, list[k][1], table.unpack(list[k][2]) }
        end
      end
    end
    table.sort(rows, function(a, b) return a[2] > b[2] end)
    return rows
  end

  it("are what loops find, with a threshold that falls and with locations by class", function()
    local n_gone = 0
    for seed = 1, 4 do
      local images, priors, variances = case(seed)
      -- Boxes near each other, some of them on each other.
      for p = 2, P do
        for k = 1, 4 do priors[p][k] = priors[p][k] * 0.3 + priors[1][k] * 0.7 end
      end
      local conf, loc, shared = {}, {}, {}
      for i, image in ipairs(images) do
        conf[i] = (neap.rand(P, C)):totable()
        loc[i] = (neap.randn(P, C, 4) * 0.2):totable()
        shared[i] = image.loc
      end
      local prior = neap.tensor { { flat(priors), flat(variances) } }
      for _, o in ipairs { { most = 0.6 }, { most = 0.9, eta = 0.8 },
        { most = 0.7, eta = 0.6, top = 7 }, { most = 0.6, apart = true },
        { most = 0.8, eta = 0.9, apart = true } } do
        local said = neap.tensor(o.apart and loc or shared):reshape(N, -1)
        local rows = kit.layer(([[type: "DetectionOutput" detection_output_param { num_classes: %d
          share_location: %s confidence_threshold: 0.1 code_type: CORNER
          nms_param { nms_threshold: %g eta: %g top_k: %d } }]]):format(C, not o.apart, o.most,
          o.eta or 1, o.top or -1), { said, neap.tensor(conf):reshape(N, -1), prior })[1][1]
        local all = #rows // N
        for i = 1, N do
          local want = found(conf[i], function(p, c)
            return decode(o.apart and loc[i][p][c + 1] or shared[i][p], priors[p], variances[p])
          end, o)
          for k = 1, all do
            local row = rows[(i - 1) * all + k]
            if want[k] then
              assert.equal(i - 1, row[1])
              for j = 1, 6 do near(want[k][j], row[j + 1]) end
            else
              assert.equal(-1, row[1])
              n_gone = n_gone + 1
            end
          end
        end
      end
    end
    assert.is_true(n_gone > 100)
  end)
end)

describe("Caffe's judging of detections", function()
  it("tells right from wrong ones, and counts what there was to find", function()
    -- Two pictures: the first has two boxes of class 1, one of them hard to see, and one of 2; the
    -- second has one of class 2.
    local label = neap.tensor { {
      { { 0, 1, 0, 0, 0, 0.5, 0.5, 0 }, { 0, 1, 0, 0.5, 0.5, 1, 1, 1 },
        { 0, 2, 0, 0.5, 0, 1, 0.5, 0 } } }, {
      { { 0, 2, 0, 0.1, 0.1, 0.3, 0.3, 0 }, { -1, 0, 0, 0, 0, 0, 0, 0 },
        { -1, 0, 0, 0, 0, 0, 0, 0 } } } }
    local found = neap.tensor { { {
      { 0, 1, 0.9, 0, 0, 0.5, 0.45 },     -- the first box
      { 0, 1, 0.8, 0, 0.05, 0.5, 0.5 },   -- the same one again
      { 0, 1, 0.7, 0.5, 0.5, 1, 0.95 },   -- the hard one
      { 0, 2, 0.6, 0, 0, 0.5, 0.5 },      -- of another class
      { -1, -1, -1, -1, -1, -1, -1 },
      { 1, 2, 0.5, 0.1, 0.1, 0.3, 0.25 }, -- right
      { 1, 1, 0.4, 0.1, 0.1, 0.3, 0.3 },  -- no box of its class
      { 0, 1, 0.95, 0, 0, 0.45, 0.5 } } } } -- the first box, better than all
    local function judged(words)
      return kit.layer(([[type: "DetectionEvaluate" detection_evaluate_param { num_classes: 3
        %s }]]):format(words), { found, label })[1][1]
    end
    local function marks(rows)
      local list = {}
      for i = 1, 8 do list[i] = ("%d%d"):format(rows[i + 2][4], rows[i + 2][5]) end
      return table.concat(list, " ")
    end
    local all = judged ""
    assert.equal(10, #all)
    assert.same({ { -1, 1, 2, -1, -1 }, { -1, 2, 2, -1, -1 } }, { all[1], all[2] })
    assert.equal("01 01 10 01 -1-1 10 01 10", marks(all))
    local easy = judged "evaluate_difficult_gt: false overlap_threshold: 0.8"
    assert.same({ { -1, 1, 1, -1, -1 }, { -1, 2, 2, -1, -1 } }, { easy[1], easy[2] })
    assert.equal("01 01 00 01 -1-1 01 01 10", marks(easy))
  end)

  it("judges by boxes of its picture that are there, and well enough met", function()
    -- The first picture has a box that is hard to see, one that is not, and a row that is none
    -- though it says a class; the second has one box.
    local label = neap.tensor { {
      { { 0, 1, 0, 0.5, 0.5, 1, 1, 1 }, { 0, 1, 0, 0, 0, 0.5, 0.5, 0 },
        { -1, 1, 0, 0, 0.6, 0.3, 1, 0 } } }, {
      { { 0, 1, 0, 0.6, 0, 1, 0.4, 0 }, { -1, 0, 0, 0, 0, 0, 0, 0 },
        { -1, 0, 0, 0, 0, 0, 0, 0 } } } }
    local found = neap.tensor { { {
      { 0, 1, 0.9, 0, 0.6, 0.3, 1 },     -- where no box is: counts, whichever box is the nearest
      { 0, 1, 0.8, 0, 0, 0.5, 0.2 },     -- too little of the second box
      { 0, 1, 0.5, 0, 0, 0.5, 0.45 },    -- the second box, be it with a lower score
      { 1, 1, 0.95, 0, 0, 0.5, 0.5 },    -- the second box, but in the other picture
      { 1, 1, 0.3, 0.6, 0, 1, 0.4 } } } } -- right
    local rows = kit.layer([[type: "DetectionEvaluate" detection_evaluate_param { num_classes: 2
      evaluate_difficult_gt: false }]], { found, label })[1][1]
    assert.same({ -1, 1, 2, -1, -1 }, rows[1])
    for i, want in ipairs { "01", "01", "10", "01", "10" } do
      assert.equal(want, ("%d%d"):format(rows[i + 1][4], rows[i + 1][5]), "detection " .. i)
    end
  end)
end)

describe("data of a detector", function()
  local text = [[layer { name: "data" type: "AnnotatedData" top: "data" top: "label"
      transform_param { %s resize_param { height: 30 width: 40 } }
      data_param { source: "some_lmdb" batch_size: 2 } }
    layer { name: "c" type: "Pooling" bottom: "data" top: "c"
      pooling_param { pool: AVE global_pooling: true } }
    layer { name: "quiet" type: "Silence" bottom: "label" }]]

  it("has the size that pictures are brought to, and boxes", function()
    local f = assert(kit.import(text:format "mean_value: 1 mean_value: 2 mean_value: 3"))
    local inputs = f.net:inputs()
    assert.same({ 2, 3, 30, 40 }, inputs[1].shape)
    assert.same({ { 2, 1, 64, 8 }, "f32" }, { inputs[2].shape, inputs[2].dtype })
    assert.matches('"label": up to 64 boxes a picture are taken for granted', f.notes[1])
    f = assert(kit.import(text:format "", { shapes = { label = { 2, 1, 9, 8 } } }))
    assert.same({ { 2, 1, 9, 8 }, "f32" }, { f.net:inputs()[2].shape, f.net:inputs()[2].dtype })
  end)

  it("is scaled, and not moved away from its boxes", function()
    local m = assert(kit.import(text:format "scale: 0.5 mean_value: 2", { model = true }))
    assert.equal(3, m:transform "TRAIN" (neap.ones(1, 3, 2, 2) * 8)[1][1][1][1])
    m = assert(kit.import(text:format "mirror: true", { model = true }))
    assert.error_matches(function() m:transform "TRAIN" end, "mirrors or cuts pictures whose label")
  end)

  it("of each place has the largest pictures of its set", function()
    local function sizes(kind, more)
      local f = assert(kit.import(([[layer { name: "data" type: "%s" top: "data" top: "label" %s }
        layer { name: "c" type: "Pooling" bottom: "data" top: "c" pooling_param { kernel_size: 1 } }
        layer { name: "quiet" type: "Silence" bottom: "label" }]]):format(kind, more)))
      return { f.net:inputs()[1].shape, f.net:inputs()[2].shape, f.net:inputs()[2].dtype }
    end
    assert.same({ { 1, 3, 500, 500 }, { 1, 1, 500, 500 }, "i64" }, sizes("Python",
      'python_param { module: "voc_layers" layer: "SBDDSegDataLayer" }'))
    assert.same({ { 1, 3, 608, 608 }, { 1, 1, 608, 608 }, "i64" }, sizes("SegData",
      'seg_data_param { source: "VOC_arg/train.txt" } transform_param { stride: 32 '
      .. 'scale_ratios: 0.8 scale_ratios: 1.2 }'))
  end)
end)

describe("the collection's SSD", function()
  local file = io.open(folder .. "solver.prototxt")
  if not file then
    pending(folder .. " is not there")
    return
  end
  file:close()

  it("trains by its solver, at a small size, and is judged", function()
    local t = assert(neap.import(folder .. "solver.prototxt", { shapes = {
      data = { 2, 3, 64, 64 }, label = { 2, 1, 3, 8 } } }))
    neap.seed(3)
    local x, label = neap.rand(2, 3, 64, 64) * 2 - 1, neap.zeros(2, 1, 3, 8)
    for i = 1, 2 do
      for b, row in ipairs { { 0, i, 0, 0.1, 0.1, 0.6, 0.7, 0 }, { 0, 20, 0, 0.5, 0.4, 0.9, 1, 0 },
        { -1, 0, 0, 0, 0, 0, 0, 0 } } do
        for k, v in ipairs(row) do label:set(v, i, 1, b, k) end
      end
    end
    local before = t.model:param "conv11_mbox_conf.weight".data:clone()
    for _ = 1, 2 do
      local row = t:step { data = x, label = label }
      assert.is_true(row.loss > 0 and row.loss < 100, tostring(row.loss))
    end
    assert.is_false(before:equal(t.model:param "conv11_mbox_conf.weight".data))

    -- Rows of the twenty classes, then of 200 detections of each picture.
    local judged = t:predict(x, label)
    assert.same({ 1, 1, 20 + 2 * 200, 5 }, judged.shape)
    assert.same({ -1, 20, 2, -1, -1 }, judged[1][1][20]:totable())
    assert.error_matches(function()
      t:evaluate(neap.data.tensors { data = x, label = label, batch = 2 })
    end, 'no loss in this phase, and gives "detection_eval" of %(1,1,420,5%)')
    t:close()
  end)
end)
