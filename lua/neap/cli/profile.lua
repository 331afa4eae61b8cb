--- neap profile list|show|run: measured runs.
-- @module neap.cli.profile
local netfile = require "neap.netfile"

return {
  name = "profile", summary = "Measured runs: list them, show one op by op, or make one.",
  define = function(command)
    command:argument "action":choices { "list", "show", "run" }
    command:argument "what":args "?":description "show: a run's number (the newest without); run: a net file."
    command:option "--db":description "The database file."
    command:option "--steps":convert(math.tointeger):default "10"
    command:flag "--train"
    command:option "--batch":convert(math.tointeger)
  end,
  run = function(args)
    local neap, cli = require "neap", require "neap.cli"
    local db <close> = assert(neap.db(args.db))
    if args.action == "list" then
      cli.show(db:sql [[select run_id, net, mode, batch, n_step as steps, step_median_ns / 1000 as median_us, held_bytes, status,
        datetime(started_at, 'unixepoch') as started from v_run order by run_id desc limit 30]], args)
    elseif args.action == "show" then
      local id = args.what and math.tointeger(args.what) or db:sql("select max(run_id) as id from run_op")[1].id
      if not id then error("no run with op times is stored; make one: neap profile run NET", 0) end
      cli.show(db:sql([[select step, name as op, phase, kernel, n_call, median_ns / 1000 as median_us, percent, gflop_per_s, live_bytes
        from v_op_time where run_id = :id order by median_ns desc limit 40]], { id = id }), args)
    else
      if not args.what then error("profile run needs a net file", 0) end
      local bench = require "neap.bench"
      cli.show(bench.profile(netfile.load(args.what), { train = args.train, batch = args.batch, steps = args.steps }), args)
    end
  end,
}
