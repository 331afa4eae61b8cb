--- Beam search with cached keys and values: a small GPT learns sums such as "07+15=22." and writes
-- them out. Several beginnings are kept side by side, each step goes on with the best of all.
--
--   build/neap run scripts/examples/beam_search.lua [--quick]
local neap = require "neap"
local optim = neap.optim
local quick = ... == "--quick"
neap.seed(1)

local plus, equals, stop = 10, 11, 12 -- behind the digits
local function digits(list, n) return table.move({ n // 10, n % 10 }, 1, 2, #list + 1, list) end
local rows, most = {}, quick and 4 or 10
for i = 0, most * most - 1 do
  local row, a, b = {}, i // most, i % most
  digits(row, a)[3] = plus
  digits(row, b)[6] = equals
  digits(row, a + b)[9] = stop
  rows[i + 1] = row
end
local all = neap.tensor(rows, "i64")
local model = neap.zoo.gpt { layers = 2, width = 32, heads = 2, length = 16, vocabulary = 13 }
local t <close> = neap.trainer { model = model, optimizer = optim.AdamW { lr = 5e-3 }, seed = 2,
  loss = function(y, target) return y:softmax_cross_entropy(target) end }
for _ = 1, quick and 120 or 600 do t:step { x = all:narrow(2, 1, 8), y = all:narrow(2, 2, 8) } end

--- The likeliest texts behind a prompt, of at most n tokens: {logarithm of the share, tokens ..},
-- the best first.
local function beams(prompt, width, n)
  local g <close> = neap.generator { model, batch = width, seed = 1 }
  g:read(prompt)
  local kept, done = { { share = 0 } }, {}
  for _ = 1, n do
    g:next()
    local scores, found = g:scores():log_softmax():totable(), {}
    for b, old in ipairs(kept) do -- at first there is one beginning, whatever the width
      for token, share in ipairs(scores[b]) do
        found[#found + 1] = { share = old.share + share, from = b, next = token - 1, before = old }
      end
    end
    table.sort(found, function(x, y) return x.share > y.share end)
    kept = {}
    for _, beam in ipairs(found) do
      if #kept == width then break end
      beam.tokens = table.move(beam.before.tokens or {}, 1, 99, 1, {})
      table.insert(beam.tokens, beam.next)
      table.insert(beam.next == stop and done or kept, beam)
    end
    if #done >= width then break end
    local texts, tokens = {}, {}
    for b, beam in ipairs(kept) do texts[b], tokens[b] = beam.from, beam.next end
    g:choose(texts, tokens)
  end
  table.sort(done, function(x, y) return x.share > y.share end)
  return done
end

for i, beam in ipairs(beams({ 0, 2, plus, 0, 3, equals }, 3, 4)) do
  print(("%d. 02+03=%s  share %.4f"):format(i, table.concat(beam.tokens):gsub("12$", "."),
    math.exp(beam.share)))
end
