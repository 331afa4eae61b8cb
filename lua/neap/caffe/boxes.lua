--- Boxes of SSD's layers: corners, how much of each other they cover, and what a net says of one,
-- beside the prior box of its place.
--
-- Corners are lists of four blobs of one shape: the least x and y, the greatest x and y, in shares
-- of the picture.
-- @module neap.caffe.boxes
local kit = require "neap.caffe.kit"
local F = kit.F

local boxes = {}

--- Item k of the last dimension of (.., n), without it.
function boxes.part(x, k)
  local last = #x.shape
  return F.Squeeze(F.Slice(x, { axes = { last }, starts = { k }, ends = { k } }),
    { axes = { last } })
end
local part = boxes.part

--- 0, 1, .. n - 1.
function boxes.count(net, n, dtype)
  return net:op("Range", {}, 1, { stop = n, dtype = dtype or "f32" })
end

--- Corners and variances, each four of (1,P), of the priors (1, 2, 4 P).
function boxes.priors(prior)
  prior = kit.reshape(prior, { 2, prior.shape[3] // 4, 4 })
  local corners, variances = {}, {}
  for k = 1, 4 do
    local both = part(prior, k)
    local function row(i) return F.Slice(both, { axes = { 1 }, starts = { i }, ends = { i } }) end
    corners[k], variances[k] = row(1), row(2)
  end
  return corners, variances
end

--- f(x) of each of four.
function boxes.map(list, f)
  local out = {}
  for k = 1, 4 do out[k] = f(list[k], k) end
  return out
end

-- ---- overlaps -----------------------------------------------------------------------------------

--- What each of A boxes has in common with each of B, and what each covers: blobs whose last two
-- dimensions are (A,B), (A,1), (1,B), of corners (..,A) and (..,B).
function boxes.areas(a, b)
  local last = #a[1].shape
  local function rows(x) return F.Unsqueeze(x, { axes = { last + 1 } }) end
  local function columns(x) return F.Unsqueeze(x, { axes = { last } }) end

  -- A side below 0, of boxes that don't meet or of one that is turned, is none.
  local common, of_a, of_b = {}, {}, {}
  for d = 1, 2 do
    local low = F.Maximum { rows(a[d]), columns(b[d]) }
    local high = F.Minimum { rows(a[d + 2]), columns(b[d + 2]) }
    common[d] = F.Relu(F.Sub { high, low })
    of_a[d] = F.Relu(F.Sub { a[d + 2], a[d] })
    of_b[d] = a == b and of_a[d] or F.Relu(F.Sub { b[d + 2], b[d] })
  end
  return F.Mul(common), rows(F.Mul(of_a)), columns(F.Mul(of_b))
end

--- The part that boxes have in common over all that both cover, 0 to 1: (..,A,B).
function boxes.overlap(net, a, b)
  local common, of_a, of_b = boxes.areas(a, b)
  local both = F.Sub { F.Add { of_a, of_b }, common }
  -- Boxes without an area have nothing in common: 0 over little.
  return F.Div { common, F.Maximum { both, net:const(1e-30) } }
end

-- ---- codes --------------------------------------------------------------------------------------

local codes = { "NONE", "CORNER", "CENTER_SIZE", "CORNER_SIZE" }

--- How a layer's net says boxes, by its parameters.
function boxes.code(n, p)
  local code = p:word("code_type", codes, "CORNER")
  if code == "NONE" then n:fail "code_type is none of CORNER, CENTER_SIZE, CORNER_SIZE" end
  return code
end

--- The sides of the priors in the order of corners, and their middles.
local function sides_of(prior)
  local width, height = F.Sub { prior[3], prior[1] }, F.Sub { prior[4], prior[2] }
  return { width, height, width, height }
end

local function middle(corners, k) return kit.times(F.Add { corners[k], corners[k + 2] }, 0.5) end

--- Corners (N,P) of the boxes that `said`, four of (N,P), says of the priors.
-- CENTER_SIZE says the middle and the logarithm of each side, the others say corners; but for
-- CORNER all is in units of the prior's sides.
function boxes.decoded(code, said, prior)
  if code == "CORNER" then
    return boxes.map(prior, function(v, k) return F.Add { v, said[k] } end)
  end
  local sides, corners = sides_of(prior), {}
  if code == "CORNER_SIZE" then
    return boxes.map(prior, function(v, k) return F.Add { v, F.Mul { said[k], sides[k] } } end)
  end

  for k = 1, 2 do
    local at = F.Add { F.Mul { said[k], sides[k] }, middle(prior, k) }
    local half = kit.times(F.Mul { F.Exp(said[k + 2]), sides[k] }, 0.5)
    corners[k], corners[k + 2] = F.Sub { at, half }, F.Add { at, half }
  end
  return corners
end

--- The way back: what would have to be said of the priors, so that boxes of these corners come out.
function boxes.encoded(code, corners, prior)
  if code == "CORNER" then
    return boxes.map(prior, function(v, k) return F.Sub { corners[k], v } end)
  end
  local sides, said = sides_of(prior), {}
  if code == "CORNER_SIZE" then
    return boxes.map(prior, function(v, k) return F.Div { F.Sub { corners[k], v }, sides[k] } end)
  end

  local own = sides_of(corners)
  for k = 1, 2 do
    said[k] = F.Div { F.Sub { middle(corners, k), middle(prior, k) }, sides[k] }
    said[k + 2] = F.Log(F.Div { own[k], sides[k] })
  end
  return said
end

-- ---- boxes of a label ---------------------------------------------------------------------------

--- Raises where a label is none of boxes.
local function check_label(n, label)
  local shape = label.shape
  local rank = #shape
  if rank < 3 or rank > 4 or shape[rank] ~= 8 or rank == 4 and shape[2] ~= 1 then
    n:fail("a label of (%s): rows of 8 are expected, (1,1,rows,8) of all images or \z
      (images,1,rows,8)", table.concat(shape, ","))
  end
end

--- The boxes that pictures have, of rows (item, class, instance, corners, difficult). Caffe has
-- rows (1,1,R,8) of all images, of which each names its own by item; here they may stand by image
-- as well, (N,1,R,8), as a batch of data has them: item then says only whether there is a box. An
-- item of -1 is a row without a box.
-- @param images number of images
-- @return {corners = four of (N,R), class = (N,R), difficult, valid = bool (N,R)}
function boxes.of_label(n, label, images)
  check_label(n, label)
  local shape, net = label.shape, n.state.net
  local first, rows = shape[1], shape[#shape - 1]
  if first ~= images and first ~= 1 then
    n:fail("a label of (%s) for %d images", table.concat(shape, ","), images)
  end
  label = kit.reshape(kit.cast(label, "f32"), { first, rows, 8 })
  local item = part(label, 1)

  -- By image, or of the only one: any item. Else each image asks for its own.
  local valid = first == images and F.Ge { item, net:const(0.0) }
    or F.Eq { item, F.Unsqueeze(boxes.count(net, images), { axes = { 2 } }) }
  local function all(k)
    local x = part(label, k)
    return first == images and x or F.Expand(x, { shape = { images, rows } })
  end
  return { corners = { all(4), all(5), all(6), all(7) }, class = all(2), valid = valid,
    difficult = F.Ne { all(8), net:const(0.0) } }
end

return boxes
