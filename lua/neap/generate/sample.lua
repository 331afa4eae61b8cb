--- The next token of a text, drawn from the model's scores by ops of the net.
-- @module neap.generate.sample
local kit = require "neap.ops.kit"
local op = require "neap.op"
local record = require "neap.inner.record"

local sample = {}

-- How a token is drawn, as the generator's calls take it.
local fields = {
  { "temperature", "number", 1, min = 0,
    doc = "scores are divided by it; 0 takes the best token, always" },
  { "top_k", "integer", min = 1, unset = "all", doc = [[so many of the best tokens are drawn from,
      and those that are as good as the last of them]] },
  { "top_p", "number", above = 0, max = 1, unset = "1", doc = [[the best tokens are drawn from,
      whose shares add up to this (Holtzman et al., ICLR 2020)]] },
}

--- The record of a call that draws tokens: these fields behind its own.
function sample.declare(name, spec)
  return record.declare(name, table.move(fields, 1, #fields, #spec + 1, spec))
end

-- Below these numbers f32 has too little room: a score divided by the one is infinite, the other is
-- zero.
local least_temperature, least_share = 1e-30, 1e-30

--- Is the best token taken, and none drawn?
local function takes_best(o) return o.temperature < least_temperature end

--- What of the options is built into a net: nets are kept by this.
function sample.kind(o)
  if takes_best(o) then return "best" end
  return ("top_k=%s top_p=%s"):format(o.top_k or "all", o.top_p and "yes" or "no")
end

--- The least score that is drawn from, of each row of scores (B,V); nil where all are.
local function least_of(net, scores, o)
  if not (o.top_k or o.top_p) then return nil end
  local n = scores.shape[2]

  -- TopK gives them in order, the best first; without top_k all of them.
  local best = op.apply("TopK", { scores }, { k = math.min(o.top_k or n, n), axis = 2 }, 2)
  if not o.top_p then return best:narrow(2, best.shape[2], 1) end
  -- Within a part, shares are to each other as they are in all. What stands before a token has less
  -- than p together: the first one always stays.
  local shares = best:softmax { axis = 2 }
  local before = shares:cum_sum { axis = 2, exclusive = true }
  return kit.where(before:lt(net:input("@top_p", { 1 })), best, math.huge)
    :min { axes = { 2 }, keepdim = true }
end

--- Adds what draws one token of each row. Of scores with noise of Gumbel's distribution the largest
-- stands at a token as often as its share of the softmax says (Maddison et al., NeurIPS 2014); and
-- no op of it can stop a run, by which caches have been written.
-- @param net
-- @param scores blob (B,V)
-- @param o table options
-- @return blob (B,1) i64
function sample.add(net, scores, o)
  if not takes_best(o) then
    -- Temperature and top_p are inputs, so that other values need no other net.
    scores = scores / net:input("@temperature", { 1 })
    local least = least_of(net, scores, o)
    -- Gumbel noise is -log(-log u), u uniform.
    local uniform = net:op("Uniform", {}, 1, { shape = scores.shape, low = 0, high = 1 })
    local noisy = scores - (-uniform:log()):log()
    scores = least and kit.where(scores:ge(least), noisy, -math.huge) or noisy
  end
  return (op.apply("ArgMax", { scores }, { axis = 2, keepdim = true }))
end

--- Puts the numbers of the options where the net reads them.
function sample.feed(ws, o)
  if takes_best(o) then return end
  ws:feed("@temperature", { o.temperature })
  if o.top_p then ws:feed("@top_p", { math.max(o.top_p, least_share) }) end
end

return sample
