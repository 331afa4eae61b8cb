-- The command line as users meet it: build/neap in a process of its own, its output and its exit
-- code.
local cjson = require "cjson"

local support = require "support"
local program = support.program
local folder

--- Runs `neap WORDS`. @return standard output, exit code, standard error
local function neap(words, environment)
  local out, code = support.shell(
    ("cd %s && env -u NEAP_PROFILE NEAP_DB=%s/cli.db %s %s %s 2>stderr </dev/null"):format(folder,
      folder, environment or "", program, words))
  return out, code, support.read_file(folder .. "/stderr")
end

local function write(name, text) support.write_file(folder .. "/" .. name, text) end

describe("the command line", function()
  setup(function()
    local pipe = assert(io.popen(("mktemp -d; realpath %s"):format(program)))
    folder, program = pipe:read "l", pipe:read "l"
    pipe:close()
  end)
  teardown(function() os.execute("rm -rf " .. folder) end)

  it("report writes one HTML file, beside another plan if asked, and refuses what nothing reads",
    function()
      local out, code = neap "report lenet --train -o lenet.html"
      assert.equal(0, code)
      assert.matches("lenet.html: .*%d+ ops, %d+ values", out)
      assert.matches("^<!doctype html>", support.read_file(folder .. "/lenet.html"))
      assert.matches("lenet.* against .*lenet", (neap "report lenet:4 --against lenet:8 -o -"))
      assert.equal(0, select(2, neap "report lenet")) -- lenet.html
      for _, words in ipairs { "report", "report lenet:4 --batch 8", "report run:x",
        "report plan:1 --train" } do
        assert.equal(2, select(2, neap(words)), words)
      end
      assert.equal(1, select(2, neap "report lenet -o nowhere/a.html"))
    end)

  it("gives every error as JSON, too, to who asked for JSON", function()
    for words, code in pairs {
      ["plan lenet --batch 0"] = "usage", ["plan lenett"] = "name", plan = "usage",
      ["plan lenet --budget 1"] = "budget", ["bench lenet:x"] = "error", ["db foo"] = "usage",
      ["diff run:99 run:98"] = "error", ["ops Conf"] = "name", ["profile show 99"] = "error",
      ["sql peek"] = "name", ["sql 'selec 1'"] = "error", ["watch 99"] = "error",
      ["plan lenet --jsn"] = "usage",
    } do
      local out, exit, err = neap(words .. " --json")
      assert.is_true(exit == 1 or exit == 2, words)
      assert.matches("^neap: ", err, nil, words)
      local said = cjson.decode(out).error
      assert.equal(code, said.code, words)
      assert.is_true(#said.message > 5, words)
    end
    assert.matches("option %-%-batch: \"0\" is not a whole number", (select(3,
      neap "plan lenet --batch 0")))
    assert.matches("behind the colon stands a batch", (select(3, neap "plan lenet:x")))
  end)

  it("takes sizes of an ONNX file's dimensions behind a colon", function()
    local kit = require "import.onnx_kit"
    write("open.onnx", kit.model { nodes = { kit.node("Reshape", { "x", "rows" }, { "y" }) },
      tensors = { kit.tensor { name = "rows", elem = 7, dims = { 2 }, ints = { 3, 8 } } },
      inputs = { kit.value("x", { "batch", "steps" }) }, outputs = { kit.value("y", { 3, 8 }) } })
    assert.matches("FILE:name=size on the command line", (select(3, neap "plan open.onnx")))
    local out, code, err = neap "plan open.onnx:batch=2,steps=12 --json"
    assert.equal(0, code, err)
    assert.equal(2, cjson.decode(out).batch)
    assert.equal(0, select(2, neap "bench open.onnx:batch=4,steps=6 --infer"))
    for words, said in pairs { ["open.onnx:step=12"] = "did you mean \"steps\"",
      ["open.onnx:steps=x"] = "expected name=size", ["lenet:steps=3"] = "those of an .onnx" } do
      assert.matches(said, (select(3, neap("plan " .. words))), nil, words)
    end
  end)

  it("prints version and help on standard output and ends with 0", function()
    for _, words in ipairs {
      "--version", "--help", "help", "help env", "help plan", "plan --help", "run --help", "sql -h",
    } do
      local out, code, err = neap(words)
      assert.equal(0, code, words)
      assert.equal("", err, words)
      assert.is_true(#out > 5, words)
    end
    assert.matches("^neap %d+%.%d+%.%d+\n$", (neap "--version"))
    assert.matches("NEAP_DB .*NEAP_NUM_THREADS .*NEAP_SEED", (neap "help env"))
  end)

  it("shares no bytes with NEAP_PLAN=off alone, where bytes are planned at all", function()
    local function arena(words, environment)
      local out, code = neap("plan lenet:8 --train --json " .. words, environment)
      assert.equal(0, code)
      return cjson.decode(out).arena_bytes
    end
    local planned, own = arena "", arena "--policy none"
    assert.is_true(planned < own)
    assert.equal(own, arena("", "NEAP_PLAN=off"))
    assert.equal(planned, arena("", "NEAP_PLAN=on"))
    assert.equal(arena "--policy pool", arena("--policy pool", "NEAP_PLAN=off"))
  end)

  it("has help and a summary for every verb", function()
    local all = neap "--help"
    for _, verb in ipairs {
      "bench", "db", "help", "ops", "plan", "profile", "repl", "run", "sql", "watch",
    } do
      assert.matches("\n +" .. verb .. " ", all)
      assert.matches("^Usage: neap " .. verb, (neap(verb .. " --help")))
    end
  end)

  it("ends with 2 and a word on help for wrong use", function()
    for _, words in ipairs {
      "frob", "plan", "plan lenet --frob", "plan lenet --batch 0", "plan lenet --policy worst",
      "run", "db frob", "db backup",
      "help frob", "sql plans net", "profile show x", "bench --steps 0",
      "profile kernels lenet --steps 9", "profile run lenet --db x.db",
    } do
      local out, code, err = neap(words)
      assert.equal(2, code, words)
      assert.equal("", out, words)
      assert.matches("^neap: ", err, words)
    end
  end)

  it("ends with 1 and the reason when it fails", function()
    for words, reason in pairs {
      ["plan nope"] = "no net \"nope\"", ["plan nope.lua"] = "nope.lua: No such file",
      ["ops Conx"] = "did you mean \"Conv\"",
      ["run nope.lua"] = "nope.lua", ["sql frobnicate"] = "no query",
      ["sql 'select frob from plan'"] = "frob", ["bench lenet:0"] = "at least 1",
      ["plan lenet --keep conb1"] = "did you mean \"conv1\"",
      ["plan lenet --train --budget 1KiB"] = "least arena", ["profile show 999"] = "no op times",
    } do
      local out, code, err = neap(words)
      assert.equal(1, code, words)
      assert.equal("", out, words)
      assert.matches(reason, err, 1, true)
      assert.is_nil(err:find("neap:cli", 1, true), err)
    end
  end)

  it("draws a plan into files, or for - to standard output", function()
    local out, code, err = neap "plan lenet --train --svg lenet.svg --dot lenet.dot"
    assert.equal(0, code, err)
    assert.equal("", out .. err)
    support.check_xml(support.read_file(folder .. "/lenet.svg"))
    support.render(support.read_file(folder .. "/lenet.dot"))
    assert.equal(support.read_file(folder .. "/lenet.svg"), (neap "plan lenet --train --svg -"))
    assert.matches("lenet.*, inference", (neap "plan lenet --svg -"))
    assert.equal(0, select(2, neap "plan lenet --svg lenet.svg")) -- takes the place of the old one
    assert.matches("inference", support.read_file(folder .. "/lenet.svg"))
  end)

  it("ends with 1 and one line when what it writes has no room: the file that was there stays, \z
      and no other is left", function()
    write("old.svg", "old")
    for _, words in ipairs {
      "plan lenet --svg nowhere/a.svg", "plan lenet --dot .", "plan lenet --svg ''",
      "plan lenet --svg /dev/full",
    } do
      local out, code, err = neap(words)
      assert.equal(1, code, words)
      assert.equal("", out, words)
      assert.matches("^neap: [^\n]*cannot be written[^\n]*\n$", err, words)
    end
    -- Of 160 KB, where no more than 64 KB fit: `make coverage` has smaller files to write as the
    -- program ends.
    local _, code = support.shell(("cd %s && (ulimit -f 128; NEAP_DB=off exec %s plan resnet18c \z
      --train --svg old.svg) 2>stderr"):format(folder, program))
    assert.equal(1, code)
    assert.equal("neap: old.svg: cannot be written: File too large\n",
      support.read_file(folder .. "/stderr"))
    assert.equal("old", support.read_file(folder .. "/old.svg"))
    assert.equal("", (support.shell("ls " .. folder .. " | grep tmp")))
    for _, words in ipairs {
      "plan lenet", "plan lenet --svg -", "ops Conv", "--help", "-e 'print(1)'",
    } do
      local _, failed, err = neap(words .. " >/dev/full")
      assert.equal(1, failed, words)
      assert.matches("^neap: standard output: cannot be written[^\n]*\n$", err, words)
    end
  end)

  it("runs scripts with their own arguments, options too", function()
    write("s.lua", "print(neap.version ~= nil, #arg, arg[0], ...)")
    assert.equal("true\t3\ts.lua\ta\t--help\t-e\n", (neap "s.lua a --help -e"))
    assert.equal("true\t1\ts.lua\t--json\n", (neap "run s.lua --json"))
    assert.equal("b\t--help\n", (neap "-e 'print(...)' b --help"))
    local pipe = assert(
      io.popen(("echo 'print(#arg, ...)' | NEAP_DB=off %s run - x"):format(program)))
    assert.equal("1\tx\n", pipe:read "a")
    pipe:close()
  end)

  it("gives a script's number as exit code, its error with the lines that led there", function()
    assert.equal(7, select(2, neap "-e 'return 7'"))
    assert.equal(5, select(2, neap "-e 'os.exit(5)'"))
    write("bad.lua",
      "local function f() error 'boom' end\nlocal function g() f() return 1 end\ng()\n")
    local _, code, err = neap "bad.lua"
    assert.equal(1, code)
    assert.matches(
      "^neap: bad.lua:1: boom\n  bad.lua:1: .*\n  bad.lua:2: .*\n  bad.lua:3: in main chunk\n$",
      err)
    assert.equal(1, select(2, neap "-e 'syntax error'"))
  end)

  it("ends with 130 on Ctrl-C", function()
    -- The chunk says when it runs, however long the start took; only then is Ctrl-C sent.
    local begun, said = os.tmpname(), os.tmpname()
    local pipe = assert(io.popen(
      ([[rm %s; NEAP_DB=off %s -e 'io.open(%q, "w"):close() while true do end' >%s 2>&1 &
      until [ -e %s ]; do sleep 0.05; done; kill -INT $!; wait $!; echo $?]]):format(begun, program,
        begun, said, begun)))
    local code = pipe:read "l"
    pipe:close()
    local file <close> = assert(io.open(said))
    assert.matches("neap: .*interrupted", file:read "a")
    os.remove(begun)
    os.remove(said)
    -- A shell without job control starts background programs deaf to Ctrl-C; ours asks for it
    -- again.
    assert.equal("130", code)
  end)

  it("plans a zoo net from any folder, and tells the same as tables and as JSON", function()
    local out = neap "plan lenet --train --batch 8"
    local plan = cjson.decode((neap "plan lenet:8 --train --json"))
    assert.equal(8, plan.batch)
    assert.equal("train", plan.mode)
    assert.is_true(plan.proved)
    local sum = 0
    for _, row in ipairs(plan.rows) do
      if row.region ~= "total" then sum = sum + row.bytes end
    end
    assert.equal(plan.total_bytes, sum)
    assert.matches(("total +[%%d.]+ %%a+ +%d\n"):format(math.tointeger(plan.total_bytes)), out)
    assert.matches("peak .* lenet.lua:%d+\n", out)
    assert.matches("assumed +cross%-entropy, SGD with momentum", out)
  end)

  it("plans within a budget, tells what that recomputes, and refuses when it must not", function()
    local out = neap "plan resnet18c:2 --train --budget 80%"
    assert.matches(
      "recomputed %d+ of %d+ ops run again in the backward pass, about %d+ %% more work", out)
    local plan = cjson.decode((neap "plan resnet18c:2 --train --budget 80% --json"))
    assert.is_true(plan.n_recomputed > 0 and plan.recomputed_work > 0)
    if support.has_winograd() then -- kernels of less scratch are there where some take any
      assert.matches("kernels +%d+ ops have others than without the budget",
        (neap "plan resnet18c:2 --train --budget 60% --no-exact"))
    end
    local refused, code, message = neap "plan resnet18c:2 --train --budget 2MiB --no-recompute"
    assert.equal("", refused)
    assert.equal(1, code)
    assert.matches("least arena for .* the budget 2%.0 MiB; in the way at step", message)
  end)

  it("explains a blob, the peak, the ops and the values", function()
    -- each answer says what it is of
    assert.matches("^plan of \"lenet\", training, batch 64.*\nconv1 %(64,20,24,24%) f32, \z
      %d%.%d MiB at offset .*Shares bytes with",
      (neap "plan lenet --train --explain conv1"))
    assert.matches("at step", (neap "plan lenet --train --peak"))
    local ops = cjson.decode((neap "plan lenet --train --ops --json"))
    ops = ops.rows or ops
    -- where its layout is another, a Reorder comes first
    assert.is_true(ops[1].type == "Conv" or ops[2].type == "Conv")
    assert.matches("conv1", (neap "plan lenet --values"))
    assert.matches("lenet: ", (neap "plan --explain lenet"))
  end)

  it("takes net files of one's own", function()
    write("own.lua",
      "local nn = require 'neap'.nn\nreturn nn.Sequential { input = { 4 }, nn.Linear { 4, 3 } }")
    assert.matches("plan of \"own\", inference, batch 5", (neap "plan own.lua:5"))
    write("mlp.lua", "local nn = require 'neap'.nn\nreturn { model = nn.Sequential { input = { 9 \z
      }, nn.Linear { 9, 3 } }, batch = 77 }")
    assert.matches("batch 77", (neap("plan mlp", "NEAP_NETS=.")))
    write("none.lua", "print 'a script'")
    assert.equal(1, select(2, neap "plan none.lua"))
  end)

  it("measures the fields that bench promises, and they hold", function()
    local out, code, err = neap "bench lenet:4 mlp:2 --json --steps 3"
    assert.equal("", err)
    assert.equal(0, code)
    local rows = cjson.decode(out)
    assert.equal(2, #rows)
    for _, name in ipairs {
      "net", "mode", "batch", "dtype", "threads", "engine", "step_ms_min", "step_ms_median",
      "arena_bytes", "lower_bound_bytes",
      "proved", "baseline_bytes", "scratch_bytes_max", "held_bytes", "resident_peak_bytes", "flops",
      "allocations_per_step",
    } do
      assert.is_not_nil(rows[1][name], name)
    end
    for _, row in ipairs(rows) do
      assert.equal(row.forecast_bytes, row.held_bytes)
      assert.equal(0, row.allocations_per_step)
      assert.is_true(row.arena_bytes >= row.lower_bound_bytes
        and row.proved == (row.arena_bytes == row.lower_bound_bytes))
      assert.is_true(
        row.resident_peak_bytes > row.held_bytes and row.step_ms_min <= row.step_ms_median)
    end
    assert.equal("train", rows[1].mode)
    assert.equal(2, rows[2].batch)
    assert.equal("infer", cjson.decode((neap "bench mlp:2 --infer --json --steps 1"))[1].mode)
  end)

  it("prints published memory figures and Neap's, without a run", function()
    local figures = cjson.decode((neap "bench --memory --json"))
    local found
    for _, row in ipairs(figures.rows) do
      if row.net == "vgg_a" and row.engine == "ref" and not row.fused then found = row end
    end
    assert.equal(1960 * 2 ^ 20, found.arena_bytes)
    assert.is_true(found.proved and found.met)
    local out = neap "bench --memory"
    assert.matches("vgg_a:128 +ref +2055.72 +1960.49 +least, proved +0.00 +8019.50 +1960 MiB +yes",
      out)
    for line in out:gmatch "[^\n]+" do assert.is_true(#line <= 120, line) end
    assert.equal(2, select(2, neap "bench --memory lenet"))
  end)

  it("prints bench's table within 100 columns", function()
    local out = neap "bench lenet:4 --steps 2"
    for line in out:gmatch "[^\n]+" do assert.is_true(#line <= 100, line) end
    assert.matches("\nlenet:4 ", out)
  end)

  it("runs the bench of the store to its end", function()
    local bench = support.shell("realpath scripts/bench/store.lua"):match "[^\n]+"
    local out, code, said = neap("run " .. bench .. " 4 4")
    assert.equal(0, code, said)
    assert.matches("query kernels +[%d.]+ +[1-9]", out)
    assert.matches("slowest query [%d.]+ ms, slowest view [%d.]+ ms\n$", out)
  end)

  it("answers all that is asked of a plan, and refuses what says two things", function()
    local out = neap "plan lenet --train --fit 16MiB --peak --what-if batch=2 --what-if batch=4"
    local at = 1
    for _, words in ipairs { "largest batch %d+", "with batch=2", "with batch=4", "peak 10" } do
      at = assert(out:find(words, at), words .. " is not in order in\n" .. out)
    end
    out = neap "plan lenet --ops --svg a.svg --dot a.dot"
    assert.matches("max_pool_1", out)
    assert.matches("^<svg", support.read_file(folder .. "/a.svg"))
    assert.matches("^digraph", support.read_file(folder .. "/a.dot"))
    local answers = neap "plan lenet --peak --ops --json"
    for line in answers:gmatch "[^\n]+" do cjson.decode(line) end
    assert.equal(2, select(2, answers:gsub("\n", "")))
    for words, why in pairs {
      ["lenet:4 --fit 3MiB"] = "says one",
      ["lenet --batch 4 --fit 3MiB"] = "says one",
      ["lenet --fit 3MiB --total 4MiB"] = "another limit",
      ["lenet --svg - --dot -"] = "can't both",
    } do
      local _, code, said = neap("plan " .. words)
      assert.equal(2, code, words)
      assert.matches(why, said)
    end
    local _, _, said = neap "plan lenet --what-if batch=2 batch=3"
    assert.matches("says batch twice", said)
  end)

  it("answers changes beside one that can't be had, and names that one", function()
    local words = "plan lenet --what-if batch=2 --what-if policy=offfset --what-if batch=x \z
      --what-if batch=4"
    local out, code, said = neap(words)
    assert.equal(1, code)
    assert.matches("with batch=2.*with batch=4", out)
    assert.matches("^neap: policy=offfset: [^\n]*\"offset\"", said)
    assert.matches("\nneap: batch=x: [^\n]*integer", said)

    -- as JSON: a line each, those that could not be had last
    out, code = neap(words .. " --json")
    assert.equal(1, code)
    local lines = {}
    for line in out:gmatch "[^\n]+" do lines[#lines + 1] = cjson.decode(line) end
    assert.equal(4, #lines)
    assert.equal("policy=offfset", lines[3].error.change)
    assert.matches("offset", lines[3].error.message)
    assert.equal("batch=x", lines[4].error.change)

    -- one alone that can't be had leaves no overview in its place
    out, code, said = neap "plan lenet --what-if batch=x"
    assert.equal(1, code)
    assert.is_nil(out:find("arena", 1, true), out)
    assert.matches("batch=x", said)
  end)

  it("lists and shows profiles", function()
    assert.matches("conv_1", (neap "profile run lenet:2 --train --steps 2"))
    assert.matches("conv_1.*percent" and "conv_1", (neap "profile show"))
    local runs = cjson.decode((neap "profile list --json"))
    assert.equal(1, runs[1].ops)

    -- a table that has not all rows says so; programs get all
    local words = "profile run lenet:2 --train --steps 2 --dtype bf16"
    local text = neap(words)
    local all = cjson.decode((neap(words .. " --json"))).rows
    assert.is_true(#all > 40)
    assert.matches("rows_in_all " .. #all, text, 1, true)
    assert.matches("rows_in_all " .. #all, (neap "profile show"), 1, true)
    assert.equal(#all, #cjson.decode((neap "profile show --json")))
  end)

  it("prints whole values into a pipe", function()
    local out = neap "ops"
    assert.is_nil(out:find("…", 1, true))
    assert.matches("Convolution %(cross%-correlation%) over one, two or three spatial dimensions",
      out)
  end)
end)
