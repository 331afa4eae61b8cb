--- neap profile list|show|run|kernels: measured runs, and kernels that could run an op.
-- @module neap.cli.profile

local fail = require("neap.core").fail
local list_sql = [[
select run_id, net, mode, batch, n_step as steps, round(step_median_ns / 1e6, 3) as median_ms,
  held_bytes, status, exists (select 1 from run_op o where o.run_id = v_run.run_id) as ops,
  datetime(started_at, 'unixepoch', 'localtime') as started
from v_run order by uuid desc limit :most]]

local show_sql = [[
select step, name as op, phase, kernel, n_call, round(median_ns / 1e3, 1) as median_us, percent,
  gflop_per_s, live_bytes, line
from v_op_time where run_id = :id order by once, median_ns desc limit :most]]

--- Rows that a table has at most; programs, which ask for JSON, get all.
local most_rows = 40

--- The rows of a query, with the number of all rows of `from` where the table has not all of them.
local function shown(db, sql, from, id, args)
  local need = require("neap.cli").need
  local rows = need(db:sql(sql, { id = id, most = args.json and -1 or most_rows }))
  local n = need(db:sql("select count(*) as n from " .. from, { id = id }))[1].n
  if n > #rows then require("neap.report").add_total(rows, "rows_in_all", n) end
  return rows
end

return {
  name = "profile",
  summary = "Measured runs: list them, show one op by op, or make one; kernels side by side.",
  define = function(command)
    local whole = require("neap.cli").whole
    command:argument "action":choices { "list", "show", "run", "kernels" }
    command:argument "what":args "?"
      :description "show: a run's number (the newest with op times without); run, kernels: a \z
        net file or zoo name."
    command:option "--db":argname "<file>"
      :description "list, show: the database file; the default one without."
    command:option "--steps":argname "<n>":convert(whole(1))
      :description "run: steps timed; 10 without."
    command:flag "--train":description "run, kernels: the training step."
    command:option "--batch":argname "<n>":convert(whole(1)):description "run, kernels: batch size."
    command:option "--trace":argname "<file>"
      :description "run: write the last steps, call by call, for other programs to show."
    command:option "--format":choices(require("neap.report.trace").formats)
      :description "--trace: for ui.perfetto.dev and chrome://tracing, speedscope, or PyTorch's \z
        memory_viz (a pickle); perfetto without."
    require("neap.memory.options").define(command)
  end,
  run = function(args)
    local cli = require "neap.cli"
    if args.trace and args.action ~= "run" then
      cli.usage "profile: --trace is for profile run NET: calls are not stored one by one"
    end
    if args.format and not args.trace then cli.usage "profile: --format is for --trace FILE" end
    -- Options of one action are refused with the others: they would be passed over in silence.
    local has_net = args.action == "run" or args.action == "kernels"
    if args.steps and args.action ~= "run" then
      cli.usage "profile: --steps is for profile run NET"
    end
    if args.db and has_net then
      cli.usage "profile: --db is for list and show; run and kernels keep in the file that \z
        NEAP_DB says"
    end
    if has_net and not args.what then
      cli.usage(("profile %s needs a net: a file, or a name of the zoo"):format(args.action))
    end
    if args.action == "kernels" then
      local netfile = require "neap.net.file"
      local file = netfile.load(args.what)
      local memory = netfile.memory(file, require("neap.memory.options").of_command(args))
      local plan = netfile.plan(file, { train = args.train, batch = args.batch }, memory)
      return cli.show(plan:kernels(), args)
    end
    if args.action == "run" then
      local file = require("neap.net.file").load(args.what)
      return cli.show(require("neap.bench").profile(file, {
        train = args.train,
        batch = args.batch,
        steps = args.steps or 10,
        trace = args.trace,
        format = args.format,
        limit = args.json and math.maxinteger or most_rows,
        memory = require("neap.memory.options").of_command(args),
      }), args)
    end
    local db <close> = cli.database(args)
    if args.action == "list" then
      return cli.show(shown(db, list_sql, "run", nil, args), args)
    end
    -- Without a number the newest run that was measured op by op: uuids grow with time, run numbers
    -- of merged files need not.
    local id = args.what and math.tointeger(tonumber(args.what))
    if args.what and not id then
      cli.usage(("profile show takes a run's number, got \"%s\""):format(args.what))
    end
    id = id or cli.need(db:sql [[select run_id as id, max(uuid) from run
      where exists (select 1 from run_op o where o.run_id = run.run_id)]])[1].id
    if not id then
      fail("no run with op times is stored; make one: neap profile run NET, or NEAP_PROFILE=1")
    end
    local report = shown(db, show_sql, "v_op_time where run_id = :id", id, args)
    if #report == 0 then
      fail(("run %d has no op times; neap profile list shows which have"):format(id))
    end
    cli.show(report, args)
  end,
}
