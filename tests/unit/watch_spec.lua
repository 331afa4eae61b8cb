-- neap watch: a training as another process sees it, while it goes on and when it ends.
local cjson = require "cjson"
local support = require "support"

--- Three steps, then it waits until somebody writes into the pipe arg[1].
local script = [[
local neap = require "neap"
local nn = neap.nn
local model = nn.Sequential { name = "watched", nn.Linear(3, 2) }
local t = neap.trainer { model = model, optimizer = neap.optim.SGD { lr = 0.1 } }
for _ = 1, 3 do t:step { x = neap.randn(4, 3), y = neap.tensor({ 0, 1, 1, 0 }, "i64") } end
io.open(arg[1]):read "a"
]]

describe("neap watch", function()
  local folder = os.tmpname()
  setup(function()
    os.remove(folder)
    support.shell("mkdir -p " .. folder)
    support.write_file(folder .. "/train.lua", script)
  end)
  teardown(function() support.shell("rm -rf " .. folder) end)

  --- Runs these lines of sh, in which $neap is the program, and `train` begins a training in the
  -- background, $child, that has its row when the line is over.
  local function shell(lines)
    local head = [[
      neap=$(realpath %s)
      cd %s || exit 1
      export NEAP_DB=$PWD/runs.db
      train() {
        rm -f pipe && mkfifo pipe
        $neap run train.lua pipe & child=$!
        until $neap watch --once 2>/dev/null | grep -q running; do :; done
      }
      rm -f runs.db* && : >lines
    ]]
    support.write_file(folder .. "/all.sh", head:format(support.program, folder) .. lines)
    return support.shell(("sh %s/all.sh 2>&1"):format(folder))
  end

  it("shows a running training and ends with it", function()
    local out, code = shell [[
      train
      $neap watch --once --json
      $neap watch 1 --json >lines & watcher=$!
      until grep -q running lines; do :; done
      echo on >pipe
      wait $child
      wait $watcher || exit 9
      tail -n 1 lines
    ]]
    assert.equal(0, code, out)
    local first, last = out:match "^([^\n]+)\n([^\n]+)\n$"
    local row = cjson.decode(first)
    assert.equal("running", row.status)
    assert.equal("watched", row.net)
    assert.equal(1, row.run_id)
    row = cjson.decode(last)
    assert.equal("finished", row.status)
    assert.equal(3, row.n_step)
    assert.equal(3, row.step)
    assert.is_number(row.metrics.loss)
    assert.is_true(row.median_ns > 0)
  end)

  it("finds out that a process was killed", function()
    local out, code = shell [[
      train
      $neap watch >lines & watcher=$!
      until grep -q running lines; do :; done
      kill -9 $child
      wait $watcher || exit 9
      tail -n 1 lines
    ]]
    assert.equal(0, code, out)
    assert.has_match("run 1  watched  step %d+.*  lost\n$", out)
  end)

  it("says what it can't watch", function()
    local out, code = shell "$neap watch"
    assert.equal(1, code)
    assert.has_match("no run is stored yet", out)
    out, code = shell "$neap watch 7"
    assert.equal(1, code)
    assert.has_match("there is no run 7", out)
    out, code = shell "$neap watch lenet"
    assert.equal(2, code)
    assert.has_match("takes a run's number", out)
  end)
end)
