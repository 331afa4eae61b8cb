--- How far the numbers of a value go, from batches of a data set: what its scale is made of. Each
-- is a number: what visits has been looked at for NaN and infinity (neap.quantize).
-- @module neap.quantize.range
local range = {}

local BINS <const> = 2048

--- The largest magnitude of each value over all batches: by name.
-- @param each f(visit): calls visit(name, tensor) for every value of every batch
function range.minmax(each)
  local most = {}
  each(function(name, x)
    most[name] = math.max(most[name] or 0, x:abs():max():item())
  end)
  return most
end

--- The magnitude below which `percent` of a value's numbers lie: from a histogram of all batches.
function range.percentile(each, percent)
  -- Twice over the data: the bins need the largest magnitude of all batches before any is counted.
  local most, counts = range.minmax(each), {}
  each(function(name, x)
    if most[name] > 0 then
      local more = x:abs():histogram { bins = BINS, min = 0, max = most[name] }
      counts[name] = counts[name] and counts[name] + more or more
    end
  end)
  for name, histogram in pairs(counts) do
    -- The first bin at which so many of the numbers lie at or below it; its upper end is the range.
    local list, sum, seen = histogram:totable(), 0, 0
    for _, n in ipairs(list) do sum = sum + n end
    for b, n in ipairs(list) do
      seen = seen + n
      if seen >= sum * percent / 100 then
        most[name] = most[name] * b / BINS
        break
      end
    end
  end
  return most
end

return range
