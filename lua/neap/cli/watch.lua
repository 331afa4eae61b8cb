--- neap watch [RUN]: a training of another process, as it goes on: one line that renews itself,
-- until the run ends.
--
-- Each look opens the file anew: nothing is held between two, and a process that was killed in the
-- meantime is found out.
-- @module neap.cli.watch

--- The run with its newest step times.
local query = [[
select run_id, net, mode, batch, n_step, status, error ->> 'message' as error, seen_at,
  unixepoch() - started_at as seconds, step_median_ns,
  (select max(at_step) from run_time t where t.run_id = r.run_id) as step,
  (select median_ns from run_time t where t.run_id = r.run_id order by at_step desc limit 1)
    as median_ns,
  (select held_bytes from run_time t where t.run_id = r.run_id order by at_step desc limit 1)
    as held_bytes
from run r where r.run_id = :id]]

--- Without a number: the newest that is running, else the newest of all.
local find = [[select run_id from run where :id in (0, run_id)
  order by status = 'running' desc, uuid desc limit 1]]

--- The newest value of each name; the key of the table makes each a search.
local figures = [[
with recursive name (name) as (
  select min(name) from run_metric where run_id = :id
  union all
  select (select min(m.name) from run_metric m where m.run_id = :id and m.name > name.name)
  from name where name.name is not null)
select name, (select value from run_metric m where m.run_id = :id and m.name = n.name
  order by at_step desc limit 1) as value
from name n where name is not null]]

--- The last losses, oldest first.
local losses = [[select value from (select at_step, value from run_metric where run_id = :id
  and name = 'loss' order by at_step desc limit 4000) order by at_step]]

--- A line of blocks of at most 24, the mean of what falls into each; nil for fewer than two values.
local function line_of_blocks(values)
  local n, means = math.min(#values, 24), {}
  if #values < 2 then return nil end
  local low, high = math.huge, -math.huge
  for k = 1, n do
    local from, to = (k - 1) * #values // n + 1, k * #values // n
    local sum = 0
    for i = from, to do sum = sum + values[i] end
    means[k] = sum / (to - from + 1)
    low, high = math.min(low, means[k]), math.max(high, means[k])
  end
  return require("neap.report").sparkline(means, low, high)
end

--- @param id of the run; 0: find it
-- @return the run's row with `metrics`, or nil where there is none
local function look(path, id)
  local cli = require "neap.cli"
  local db <close> = cli.need(require("neap").db(path))

  -- Found anew at each look: without a number it may be another run by now.
  local found = cli.need(db:sql(find, { id = id }))[1]
  if found == nil then return nil end
  id = found.run_id

  local row = cli.need(db:sql(query, { id = id }))[1]
  row.metrics = {}
  for _, m in ipairs(cli.need(db:sql(figures, { id = id }))) do row.metrics[m.name] = m.value end

  local values = {}
  for i, m in ipairs(cli.need(db:sql(losses, { id = id }))) do values[i] = m.value end
  row.curve = line_of_blocks(values)
  return row
end

--- One line for people.
local function line_of(row)
  local core, options = require "neap.core", require "neap.inner.options"
  local parts = {
    ("run %d"):format(row.run_id), row.net, ("step %d"):format(row.step or row.n_step),
  }
  local names = options.keys(row.metrics)
  table.sort(names, function(a, b) -- the loss first
    if (a == "loss") ~= (b == "loss") then return a == "loss" end
    return a < b
  end)
  for _, name in ipairs(names) do
    parts[#parts + 1] = ("%s %.4f%s"):format(name, row.metrics[name],
      name == "loss" and row.curve and " " .. row.curve or "")
  end
  -- Times of the last stretch, or of the whole run where it keeps none.
  local ns = row.median_ns or row.step_median_ns
  if ns then parts[#parts + 1] = ("%.3g ms a step"):format(ns / 1e6) end
  if row.held_bytes then parts[#parts + 1] = core.bytes_text(row.held_bytes) end
  parts[#parts + 1] = row.status .. (row.error and ": " .. row.error or "")
  return table.concat(parts, "  ")
end

--- The same for programs: one object a line.
local function json_of(row)
  return require("neap.report").new { totals = row }:json()
end

return {
  name = "watch", summary = "See a running training from another process.",
  define = function(command)
    command:argument "run":args "?"
      :description "The run's number; the newest that is running without, else the newest."
    command:option "--db":argname "<file>":description "The database file; the default one without."
    command:flag "--once":description "Print one line, and do not wait for more."
  end,
  run = function(args)
    local cli, core = require "neap.cli", require "neap.core"
    local id = args.run and math.tointeger(tonumber(args.run)) or 0
    if args.run and id < 1 then
      cli.usage(("watch takes a run's number, got \"%s\""):format(args.run))
    end
    if args.db then
      local _ <close> = cli.database(args) -- a file that is not there is an error, not made
    end

    local renews = core.is_terminal(1) and not args.json
    local last, has_ended
    while true do
      local row = look(args.db, id)
      if row == nil then
        error(id > 0 and ("there is no run %d; neap profile list shows which there are"):format(id)
            or "no run is stored yet", 0)
      end
      -- From now on this run, even where a newer one begins.
      id = row.run_id
      local text = args.json and json_of(row) or line_of(row)
      -- A terminal's line is written over; elsewhere a line is new only if it says something else.
      if renews then
        io.stdout:write("\r\27[K", text)
      elseif text ~= last then
        io.stdout:write(text, "\n")
      end
      io.stdout:flush()
      last = text
      -- A training of several fits ends for a moment between two of them.
      local is_over = row.status ~= "running"
      if args.once or (is_over and has_ended) then break end
      has_ended = is_over
      core.sleep(1)
    end
    if renews then io.stdout:write "\n" end
    return 0
  end,
}
