--- Parts of a data set, and draws from it: d:split, d:folds, d:weighted, d:plain, d:with. All give
-- sets of the same kind, over rows of the one that they came of; and d:moments, which measures one.
-- @module neap.data.parts
local core = require "neap.core"
local options = require "neap.inner.options"
local record = require "neap.inner.record"
local set = require "neap.data.set"
local transforms = require "neap.data.transforms"
local fail = core.fail
local Data = set.Data

--- The set with other rows, of which n are drawn by the sums of their weights.
local function with_rows(self, rows, sums, n)
  local out = {}
  for key, value in pairs(self) do out[key] = value end
  out.rows, out.sums, out.n_drawn = rows, sums, n
  if out.count then out.n_batch = out:count() end
  return setmetatable(out, Data)
end

--- The values of a field of one number a row, by the set's row numbers from 0.
local function values_of(self, name, who)
  local f = self.fields[name]
  if f == nil then
    -- A field that is padded by bucket has its values by the set's rows beside.
    local near = options.nearest(tostring(name), self.names)
    fail(("%s: there is no field \"%s\"%s"):format(who, tostring(name),
      near and (", did you mean \"%s\"?"):format(near) or ""))
  end
  local source = f.flat or f.source
  if f.window or self.get or source == nil or source:dim() ~= 1 then
    fail(("%s expects a field of one number a row, and %s is of another kind"):format(who, name))
  end
  return source:totable()
end

--- The rows in groups of one label, or all as one.
local function groups_of(self, name, who)
  if name == nil then return { self.rows } end
  local values, groups, labels = values_of(self, name, who), {}, {}
  for _, row in ipairs(self.rows) do
    local label = values[row + 1]
    if groups[label] == nil then
      groups[label] = {}
      labels[#labels + 1] = label
    end
    table.insert(groups[label], row)
  end

  -- Labels in order, so that the same seed deals the same rows.
  table.sort(labels)
  local list = {}
  for i, label in ipairs(labels) do list[i] = groups[label] end
  return list
end

--- A list in an order of a seed, one of many by k.
local function drawn_order(list, seed, k)
  return set.order({ rows = list, shuffle = true, seed = seed }, k)
end

--- Deals rows to parts one by one: of the parts that lag behind their share enough to take this
-- row, to the one that must take one soonest. INVARIANT: after each row every part has less than
-- one row more or fewer than its share of the rows so far (Tijdeman, The chairman assignment
-- problem, Discrete Mathematics, 1980); so no label's remainder is lost, the next label has it.
-- @param shares number[] that add up to 1
local function dealt(rows, shares)
  local parts, least = {}, #shares > 1 and 1 / (2 * #shares - 2) or 0
  for i = 1, #shares do parts[i] = {} end

  -- `lag` is what a part lacks of its share so far; `due` is the step by which it would be a row
  -- short. Of those that may take a row, the one due first gets it.
  for k, row in ipairs(rows) do
    local best, soonest
    for i, share in ipairs(shares) do
      local lag = share * k - #parts[i]
      local due = (1 - least - lag) / share
      if lag >= least - 1e-6 and (best == nil or due < soonest) then best, soonest = i, due end
    end
    table.insert(parts[best], row)
  end
  return parts
end

--- The rows in an order of a seed, label by label where a field of them is named; and how many
-- labels there are. What is over is a part too.
local function shuffled(self, name, seed, who)
  -- Labels in an order of the seed, so that none has every remainder.
  local groups, rows = groups_of(self, name, who), {}
  for _, i in ipairs(drawn_order(set.range(#groups), seed, 0)) do
    table.move(drawn_order(groups[i + 1], seed, i), 1, #groups[i + 1], #rows + 1, rows)
  end
  return rows, #groups
end

local split_options = record.declare("data:split", { call = "({ 0.8, 0.2 }, {})",
  doc = [[d:split({ 0.8, 0.2 }, { .. }) -> as many sets as there are shares, whose rows are drawn by
    a seed: no row is in two of them.]],
  { "stratify", "name", unset = "none",
    doc = "a field of labels, each of which has its share in every part" },
  { "seed", "integer", unset = "the set's", doc = "what the rows are drawn by" },
  example = 'set:split({ 0.8, 0.2 }, { stratify = "y" })' })

--- d:split({ shares }, { .. }) -> sets: see the record.
-- @usage local train, valid = set:split({ 0.9, 0.1 }, { stratify = "y" })
function Data:split(shares, given)
  local o, sum = split_options:read(given), 0
  for i, share in ipairs(type(shares) == "table" and shares or {}) do
    if type(share) ~= "number" or share <= 0 or share > 1 then
      fail(("data:split: share %d expects a number from above 0 to 1, got %s"):format(
        i, options.shown(share)))
    end
    sum = sum + share
  end
  if sum == 0 or sum > 1 + 1e-9 then
    fail("data:split expects shares that add up to 1 at most, e.g. { 0.8, 0.2 }")
  end

  -- Shares that add up to 1 but for rounding have no rest; else the rest is a part of its own,
  -- which nobody gets.
  local seed, all, whole = o.seed or self.seed, {}, 1
  local rows, n_group = shuffled(self, o.stratify, seed, "data:split: stratify")
  if sum > 1 - 1e-9 then whole = sum end
  for i, share in ipairs(shares) do all[i] = share / whole end
  if whole ~= sum then all[#all + 1] = 1 - sum end
  local parts = dealt(rows, all)
  for i, share in ipairs(shares) do
    if #parts[i] == 0 then
      fail(("data:split: part %d would be empty: a share of %g of %d rows; give it a larger \z
        share, or the set more rows"):format(i, share, #rows))
    end

    -- Dealt label by label, the rows of a part are put into an order again.
    parts[i] = with_rows(self, drawn_order(parts[i], seed, n_group))
  end
  return table.unpack(parts, 1, #shares)
end

local fold_options = record.declare("data:folds", { call = "(5, {})",
  doc = [[d:folds(k, { .. }) -> list of k pairs { train, valid }: each row is in the valid set of
    one of them, and in the train sets of the others. For cross-validation.]],
  { "stratify", "name", unset = "none",
    doc = "a field of labels, each of which has its share in every part" },
  { "seed", "integer", unset = "the set's", doc = "what the rows are drawn by" },
  example = "set:folds(2, { seed = 3 })" })

--- d:folds(k, { .. }) -> list of { train, valid }: see the record.
-- @usage for _, fold in ipairs(set:folds(5, { stratify = "y" })) do print(fold[1], fold[2]) end
function Data:folds(k, given)
  local o = fold_options:read(given)
  if math.type(k) ~= "integer" or k < 2 or k > #self.rows then
    fail(("data:folds expects a number of parts, 2 to the %d rows, got %s"):format(#self.rows,
      options.shown(k)))
  end

  -- The rows are dealt into k parts once; each is left out of one fold's training, so that every
  -- row is validated exactly once.
  local shares, seed, folds = {}, o.seed or self.seed, {}
  for i = 1, k do shares[i] = 1 / k end
  local rows, n_group = shuffled(self, o.stratify, seed, "data:folds: stratify")
  local parts = dealt(rows, shares)
  for i = 1, k do
    local rest = {}
    for j = 1, k do
      if j ~= i then table.move(parts[j], 1, #parts[j], #rest + 1, rest) end
    end
    folds[i] = { with_rows(self, drawn_order(rest, seed, n_group)),
      with_rows(self, drawn_order(parts[i], seed, n_group)) }
  end
  return folds
end

local with_spec = { call = "({})", doc = "The same rows as a set of other settings.",
  example = "set:with { batch = 64, shuffle = true }" }
for i, field in ipairs(set.settings()) do with_spec[i] = field end
local with_options = record.declare("data:with", with_spec)

--- d:with { batch =, shuffle =, transform =, .. } -> the same rows with other settings: see the
-- record.
-- @usage local scaled = set:with { transform = { neap.data.normalise(set:moments()) } }
function Data:with(given)
  local o = with_options:read(given)
  if self.threads == nil and (o.transform or o.threads) then
    fail("data:with: transforms and threads are for rows of one shape, which this set's are not")
  end
  local out = with_rows(self, self.rows, self.sums, self.n_drawn)

  -- What is given, and no defaults: all else stays as it is.
  for _, name in ipairs { "batch", "shuffle", "seed", "last", "map", "threads" } do
    if given[name] ~= nil then out[name] = o[name] end
  end
  if out.count then out.n_batch = out:count() end
  if given.transform ~= nil then
    out.transform, out.of, out.row_shape, out.n_mixed = nil, nil, nil, nil
    set.transformed(out, o.transform)
  end
  return out
end

--- Weights by which each label of a field is drawn as often as the others.
local function evened(self, name)
  local at, weights = {}, {}
  for i, row in ipairs(self.rows) do at[row] = i end
  for _, group in ipairs(groups_of(self, name, "data:weighted")) do
    for _, row in ipairs(group) do weights[at[row]] = 1 / #group end
  end
  return weights
end

--- d:weighted(weights [, n]) -> a set whose epochs draw n rows, as many as there are where n is not
-- given, again and again from the same ones: each by its weight, a number of a list or a tensor; or
-- by the name of a field of labels, all of which are drawn as often.
-- @usage local even = set:weighted "y"
function Data:weighted(weights, n)
  if type(weights) == "string" then weights = evened(self, weights) end
  if type(weights) == "userdata" then weights = weights:reshape(-1):totable() end
  if type(weights) ~= "table" or #weights ~= #self.rows then
    fail(("data:weighted expects a weight for each of %d rows, got %s"):format(#self.rows,
      type(weights) == "table" and #weights or options.shown(weights)))
  end
  if n ~= nil and (math.type(n) ~= "integer" or n < 1) then
    fail(("data:weighted expects a number of rows from 1, got %s"):format(options.shown(n)))
  end

  -- Sums of the weights, in which a share drawn finds its row.
  local sums, sum = {}, 0
  for i, w in ipairs(weights) do
    if type(w) ~= "number" or w < 0 or w - w ~= 0 then
      fail(("data:weighted: weight %d expects a finite number of at least 0, got %s"):format(
        i, tostring(w)))
    end
    sum = sum + w
    sums[i] = sum
  end
  if sum == math.huge then
    fail("data:weighted: the sum of the weights is above the largest number: divide them all by \z
      one number")
  end
  if sum <= 0 then fail("data:weighted: all weights are 0") end
  return with_rows(self, self.rows, sums, n or #self.rows)
end

--- d:plain() -> the same rows in their order, and nothing drawn: random crops become those of the
-- middle, flips, turns, colours and mixes are left out, though y stays a probability of each class
-- where it was mixed. What a trained net is measured on.
-- @usage local train, valid = set:split { 0.9, 0.1 }
-- print(train, valid:plain())
function Data:plain()
  local out = with_rows(self, self.rows)
  out.shuffle = false
  if self.transform then out.transform = transforms.plain(self.transform) end
  return out
end

local moments_options = record.declare("data:moments", { call = "({})",
  doc = [[d:moments() -> { mean =, std = }, lists with a number for each channel of a field, as
    neap.data.normalise takes them; nothing drawn.]],
  positions = { "field" },
  { "field", "name", "x", doc = "the field" },
  example = "neap.data.normalise(set:moments())" })

--- d:moments() -> { mean =, std = }: see the record. Sums in f64, batch by batch.
function Data:moments(given)
  local name = moments_options:read(given).field
  if self.fields[name] == nil then
    fail(('data:moments: there is no field "%s", the set has %s'):format(name,
      table.concat(self.names, ", ")))
  end

  -- (N,C,..): all dimensions but the channels are summed. Pictures (N,H,W) have one channel, which
  -- is put in; of rows of numbers (N,n) each number is a channel.
  local sum, square, count, others = nil, nil, 0, { 1 }
  for batch in self:plain():epoch(1) do
    local x = batch[name]:to "f64"
    if x:dim() == 3 then x = x:unsqueeze(2) end
    for d = 3, x:dim() do others[d - 1] = d end
    local a, b = x:sum { axes = others }, (x * x):sum { axes = others }
    sum, square = sum and sum + a or a, square and square + b or b
    count = count + x:n_element() / a:n_element()
  end

  -- The variance as the mean of squares less the square of the mean, in f64; rounding may take it
  -- below 0.
  local mean = sum / count
  local std = (square / count - mean * mean):clamp({ min = 0 }):sqrt()
  return { mean = mean:totable(), std = std:totable() }
end

require("neap.inner.guard").functions(Data, "data:") -- which are complete now
return {}
