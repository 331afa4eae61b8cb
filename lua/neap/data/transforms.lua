--- What is done to rows while they are read: pictures moved, cut, turned and recoloured, numbers
-- brought to a mean of 0, rows mixed with each other.
--
--   neap.data.cifar10 { transform = { neap.data.random_crop { 32, pad = 4 }, neap.data.flip() } }
--
-- A transform is a plain table, its name and numbers as src/io/transform.c lists them. The threads
-- that read carry it out. What it draws follows the set's seed, the epoch and the row's place in
-- it: the same on any number of threads, and in a run that is resumed.
-- @module neap.data.transforms
local core = require "neap.core"
local record = require "neap.inner.record"
local fail = core.fail
local transforms = { make = {} } -- by name, those that users call

local side = { "size", "sizes", n = 2, min = 1, max = 32768, required = true,
  doc = "height and width, one number for both" }

local function sides(size)
  if type(size) == "number" then return size, size end
  return size[1], size[2] or size[1]
end

-- By name: what takes its place where nothing is to be drawn, f(transform); false: it goes.
local plain = {}

local Transform = { __name = "neap.transform" }
Transform.__tostring = function(t)
  return ("data.%s { %s }"):format(t[1], table.concat(t, ", ", 2))
end

--- A transform: its record, the numbers of its options, and what stands for it where nothing is
-- drawn.
local function declare(name, spec, numbers, instead)
  local own = record.declare("neap.data." .. name, spec)
  plain[name] = instead
  transforms.make[name] = function(given)
    local o = own:read(given)
    return record.note(setmetatable({ name, numbers(o) }, Transform), o)
  end
end

declare("crop", { doc = "The middle of a picture.", positions = { "size" }, side,
  example = "neap.data.crop { 28 }" },
  function(o) return sides(o.size) end)

declare("random_crop", {
  doc = "A part of a picture, anywhere in it, with a margin of `pad` pixels around.",
  positions = { "size" }, side,
  { "pad", "integer", 0, min = 0, max = 32768, doc = "pixels on each side" },
  { "fill", "number", 0, doc = "their value, in the units of the set's rows" },
  example = "neap.data.random_crop { 32, pad = 4 }" },
  function(o)
    local h, w = sides(o.size)
    return h, w, o.pad, o.fill
  end,
  function(t) return { "crop", t[2], t[3] } end)

declare("resize", {
  doc = "A picture of another size: linear, each pixel the mean of what it covers.",
  positions = { "size" }, side, example = "neap.data.resize { 64 }" },
  function(o) return sides(o.size) end)

local function is_range(v, most)
  return type(v) == "table" and #v == 2 and type(v[1]) == "number" and type(v[2]) == "number"
    and v[1] > 0 and v[1] <= v[2] and v[2] <= most
end

declare("random_resized_crop", {
  doc = "A part of a picture of any place, size and shape, resized.",
  positions = { "size" }, side,
  { "area", "table", says = "its least and most share, { 0.25, 1 }", unset = "{ 0.25, 1 }",
    doc = "share of the picture" },
  { "ratio", "table", says = "least and most width by height, { 0.75, 1.3333 }",
    unset = "{ 3 / 4, 4 / 3 }", doc = "width by height of the part" },
  example = "neap.data.random_resized_crop { 64, area = { 0.5, 1 } }" },
  function(o)
    local h, w = sides(o.size)
    local area, ratio = o.area or { 0.25, 1 }, o.ratio or { 3 / 4, 4 / 3 }
    if not is_range(area, 1) or not is_range(ratio, math.huge) then
      fail "neap.data.random_resized_crop: area and ratio expect { least, most }, above 0, and an \z
        area at most 1"
    end
    return h, w, area[1], area[2], ratio[1], ratio[2]
  end,
  function(t) return { "resize", t[2], t[3] } end)

local function share(name, default, doc)
  return { name, "number", default, min = 0, max = 1, doc = doc }
end

declare("flip", { doc = "Left and right change places, or top and bottom.",
  positions = { "across", "down" },
  share("across", 0.5, "how often left and right do"),
  share("down", 0, "how often top and bottom do"),
  example = "neap.data.flip()" },
  function(o) return o.across, o.down end, false)

declare("rotate", {
  doc = "A picture turned about its middle, either way.", positions = { "degrees" },
  { "degrees", "number", 15, min = 0, max = 180, doc = "at most" },
  { "fill", "number", 0, doc = "what comes in at the corners, in the units of the set's rows" },
  example = "neap.data.rotate { 10 }" },
  function(o) return o.degrees, o.fill end, false)

declare("jitter", {
  doc = [[Colours changed: a factor from 1 - b to 1 + b of each pixel's distance from black
    (brightness), from the picture's mean (contrast) and from its own grey (saturation).]],
  positions = { "brightness", "contrast", "saturation" },
  share("brightness", 0.2, "how far brightness goes from 1, either way"),
  share("contrast", 0.2, "how far contrast goes from 1, either way"),
  share("saturation", 0.2, "how far saturation goes from 1, either way"),
  { "black", "number", 0, doc = "the value of black: -1 in CIFAR's sets" },
  example = "neap.data.jitter { brightness = 0.4, black = -1 }" },
  function(o) return o.brightness, o.contrast, o.saturation, o.black end, false)

local function numbers_of(who, v)
  v = type(v) == "table" and v or { v }
  for i = 1, math.max(#v, 1) do
    if type(v[i]) ~= "number" then
      fail(("neap.data.normalise: %s expects a number, or one for each channel"):format(who))
    end
  end
  return v
end

declare("normalise", {
  doc = [[Numbers less a mean, by a deviation: one of each for all, or one for each channel (of rows
    of numbers, for each number); set:moments() measures them.]],
  positions = { "mean", "std" },
  { "mean", "number|table", required = true, says = "a number, or one for each channel",
    doc = "what is taken away" },
  { "std", "number|table", required = true, says = "a number above 0, or one for each channel",
    doc = "what the rest is divided by" },
  example = "neap.data.normalise { mean = 0.13, std = 0.31 }" },
  function(o)
    local mean, std = numbers_of("mean", o.mean), numbers_of("std", o.std)
    if #mean ~= #std then
      fail(("neap.data.normalise: %d means and %d deviations"):format(#mean, #std))
    end
    local all = table.move(mean, 1, #mean, 1, {})
    return table.unpack(table.move(std, 1, #std, #all + 1, all))
  end)

local function mix(name, doc)
  declare(name, {
    doc = doc .. [[ The target y becomes a probability of each class, so mixed as the rows are:
      nn.CrossEntropyLoss takes it. It comes last in a list of transforms.]],
    positions = { "alpha" },
    { "alpha", "number", 1, above = 0, doc = "of Beta(alpha, alpha), which shares are drawn from" },
    share("rate", 1, "how often: the share of batches"),
    example = ("neap.data.%s { 0.4 }"):format(name) },
    function(o) return o.alpha, o.rate end, false)
end

mix("mixup", "Each row of a batch is a mean of itself and another one.")
mix("cutmix", "Each row of a batch has a part that is another one's.")

-- ---- lists of them, for sets --------------------------------------------------------------------

--- Raises for what is no list of transforms. @return list
function transforms.list(who, given)
  if getmetatable(given) == Transform then given = { given } end
  local n = 0
  for key in pairs(type(given) == "table" and given or {}) do
    if key ~= "of" then n = n + 1 end
  end

  -- Where nothing is given at all, the message is of position 1.
  for i = 1, math.max(n, type(given) == "table" and 0 or 1) do
    if type(given) ~= "table" or getmetatable(given[i]) ~= Transform then
      fail(("%s: transform expects transforms such as neap.data.flip(), got %s at position %d")
        :format(who, type(given[i]), i))
    end
  end
  return given
end

--- Whether a list mixes rows.
function transforms.is_mixing(list)
  for _, t in ipairs(list) do
    if t[1] == "mixup" or t[1] == "cutmix" then return true end
  end
  return false
end

--- The list with nothing drawn: what is left out, or stands in the place of what draws.
function transforms.plain(list)
  local out = {}
  -- false leaves it out; a function gives what stands for it; nil leaves it as it is.
  for _, t in ipairs(list) do
    local instead = plain[t[1]]
    if instead then t = setmetatable(instead(t), Transform) end
    if instead ~= false then out[#out + 1] = t end
  end
  return out
end

return transforms
