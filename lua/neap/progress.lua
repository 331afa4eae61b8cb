--- Progress: a bar that redraws itself ten times a second on a terminal, one line an epoch
-- elsewhere.
-- @module neap.progress
local core = require "neap.core"
local options = require "neap.inner.options"
local progress = {}

local Bar = {}
Bar.__index = Bar

local function fields(values)
  local parts = {}
  for _, name in ipairs(options.keys(values or {})) do
    local v = values[name]
    if name:match "accuracy" then
      parts[#parts + 1] = ("%s %.2f %%"):format(name, 100 * v)
    else
      parts[#parts + 1] = type(v) == "number" and ("%s %.4f"):format(name, v)
        or name .. " " .. tostring(v)
    end
  end
  return table.concat(parts, "  ")
end

local function clock_text(seconds)
  if seconds < 60 then return ("%.0f s"):format(seconds) end
  return ("%d:%02d"):format(seconds // 60, math.floor(seconds % 60))
end

--- A bar that is closed without `finish` wipes itself off the terminal.
Bar.__close = function(self)
  if self.tty and self.is_drawn then io.stderr:write "\r\27[K" end
end

--- @param o table { title =, total =, first = done before, verbose = 0 (silent) | 1 (bar on a
--   terminal, a line at the end) | 2 (lines only) }
function progress.new(o)
  return setmetatable({
    title = o.title or "",
    total = o.total or 0,
    first = o.first or 0,
    verbose = o.verbose or 1,
    start = core.clock(),
    shown = 0,
    tty = core.is_terminal() and (o.verbose or 1) == 1,
  }, Bar)
end

function Bar:update(i, values)
  local now = core.clock()
  self.i = i
  -- Ten times a second: a terminal that is slow would hold up the training.
  if not self.tty or now - self.shown < 0.1 then return end
  self.shown, self.is_drawn = now, true
  local width, share = 24, self.total > 0 and math.min(1, i / self.total) or 0
  local done = math.floor(width * share)

  -- As fast as so far, counted from where this run began.
  local left = i > self.first and (now - self.start) * (self.total - i) / (i - self.first) or 0
  io.stderr:write(("\r\27[K%s %d/%d %s%s %s left  %s"):format(
    self.title, i, self.total, ("█"):rep(done), ("░"):rep(width - done),
    clock_text(math.max(0, left)), fields(values)))
  io.stderr:flush()
end

function Bar:finish(values)
  if self.tty then io.stderr:write "\r\27[K" end
  self.is_drawn = false
  if self.verbose == 0 then return end
  local seconds = core.clock() - self.start
  print(("%s  %s  %s"):format(self.title, clock_text(seconds), fields(values)))
  io.stdout:flush() -- who reads a log wants the line when the epoch ends
end

--- neap.progress(i, n, {loss = ..}): a bar of one's own loop.
local current
function progress.show(i, n, values)
  if type(i) ~= "number" or type(n) ~= "number" then
    core.fail(("neap.progress expects (step, number of steps, { loss = .. }), got a %s and a \z
      %s"):format(
        type(i), type(n)))
  end
  if current == nil or i <= 1 then current = progress.new { title = "step", total = n } end
  current:update(i, values)
  if i >= n then
    current:finish(values)
    current = nil
  end
end

require("neap.inner.guard").functions(Bar, "bar:")
return require("neap.inner.guard").functions(progress, "neap.progress.")
