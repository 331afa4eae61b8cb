-- Questions of change: plan to plan, run to run, commit to commit. Who is to blame is known here,
-- since the change was made on purpose.
local diff = require "neap.plan.diff"
local neap = require "neap"
local support = require "support"
local nn, raises = neap.nn, support.raises

local o = { batch = 16, train = true, store = false }

local function sum(report, column)
  local total = 0
  for i = 1, #report do total = total + report[i][column] end
  return total
end

local function mlp(...)
  local layers = { input = { 32 } }
  for _, n in ipairs { ... } do layers[#layers + 1] = nn.Linear { n } end
  return nn.Sequential(layers)
end

describe("what is different in another plan?", function()
  it("is nothing, of the same", function()
    local same = neap.zoo.lenet():plan(o):diff(neap.zoo.lenet():plan(o))
    assert.are.equal(0, #same)
    assert.are.equal(0, same.memory_percent)
  end)

  it("adds up to the change of the total, whatever has changed", function()
    local model = neap.zoo.lenet()
    local plan = model:plan(o)
    for _, other in ipairs {
      { batch = 17, train = true }, { batch = 16 }, { batch = 16, train = true, policy = "none" },
      { batch = 16, train = true, layouts = "plain" }, { batch = 16, train = true, keep = "conv1" },
      { batch = 16, train = true, executor = "dag" },
    } do
      other.store = false
      local p = model:plan(other)
      local report = plan:diff(p)
      assert.are.equal(p.total_bytes - plan.total_bytes, sum(report, "change_bytes"))
      for i = 2, #report do
        assert.is_true(math.abs(report[i - 1].change_bytes) >= math.abs(report[i].change_bytes))
      end
    end
  end)

  it("blames the layer that was put in between, and not those that are called otherwise", function()
    local report = mlp(64, 10):plan(o):diff(mlp(64, 64, 10):plan(o))
    local what = {}
    for i = 1, #report do what[report[i].layer] = report[i].what end
    local added, removed = 0, 0
    for _, word in pairs(what) do
      added = added + (word == "added" and 1 or 0)
      removed = removed + (word == "removed" and 1 or 0)
    end
    assert.are.equal(0, removed)
    assert.is_true(added >= 1)
    local back = mlp(64, 64, 10):plan(o):diff(mlp(64, 10):plan(o))
    assert.are.equal(sum(report, "change_bytes"), -sum(back, "change_bytes"))
  end)

  it("blames the layer that has grown first", function()
    local report = mlp(64, 64, 10):plan(o):diff(mlp(64, 4096, 10):plan(o))
    assert.is_truthy(report[1].layer:find("linear", 1, true) or report[1].layer:find("fc", 1, true),
      report[1].layer)
    raises("expects another plan", mlp(4).plan(mlp(4), o).diff, mlp(4):plan(o), {})
  end)
end)

describe("what is different in another run?", function()
  it("is, of times, what was changed, with its noise", function()
    local plan = mlp(64, 10):plan(o)
    local function side(slow)
      local times = {}
      for i, op in ipairs(plan:_ops()) do
        local ns = 1000 * (op.layer == slow and 3 or 1)
        times[i] = { median_ns = ns, min_ns = ns - 100 }
      end
      return diff.of_plan(plan, times)
    end
    local slow = plan:_ops()[1].layer
    local report = diff.sides(side(nil), side(slow))
    assert.are.equal(1, #report)
    assert.is_true(report[1].is_clear)
    local n = 0
    for _, op in ipairs(plan:_ops()) do n = n + (op.layer == slow and 1 or 0) end
    assert.are.equal(2000 * n, report[1].change_ns)
    assert.are.equal(200 * n, report[1].noise_ns)
    assert.are.equal(2000 * n, report.after_ns - report.before_ns)
    assert.are.equal(0, #diff.sides(side(nil), side(nil)))
  end)

  it("is asked of the database by run and by commit, and fails a build for CI", function()
    -- each run in a repository that stands at another commit: a branch with a file, a packed one
    local folder = os.tmpname()
    os.remove(folder)
    local file, program = folder .. "/neap.db", support.shell("realpath " .. support.program)
    program = program:gsub("\n", "")
    local function neap_command(words)
      return support.shell(("cd %s/in/it && NEAP_DB=%s %s %s 2>&1"):format(folder, file,
        program, words))
    end
    local function commit(name, path, text)
      support.shell(("mkdir -p %s/.git/refs/heads %s/in/it; rm -f %s/.git/refs/heads/* \z
        %s/.git/packed-refs"):format(folder, folder, folder, folder))
      support.write_file(folder .. "/.git/HEAD", "ref: refs/heads/trunk\n")
      support.write_file(folder .. "/.git/" .. path, text:format(name))
    end
    commit(("abc1"):rep(10), "refs/heads/trunk", "%s\n")
    neap_command "profile run mlp --batch 4 --steps 3"
    commit(("def4"):rep(10), "packed-refs",
      "# with: peeled\n" .. ("123f"):rep(10) .. " refs/heads/other\n%s refs/heads/trunk\n")
    neap_command "profile run mlp --batch 64 --steps 3"
    local text, code = neap_command "diff run:1 run:2"
    assert.are.equal(0, code, text)
    assert.is_truthy(text:find("run 1 of \"mlp\", inference, batch 4 -> run 2 of \"mlp\", \z
      inference, batch 64", 1, true), text)
    assert.is_truthy(text:find("time ", 1, true), text)
    local db <close> = assert(neap.db(file))
    local plan = db:sql "select p.* from run r join plan p using (plan_id) order by run_id"
    local report = diff.sides(diff.of_run_id(db, 1), diff.of_run_id(db, 2))
    local function total(p)
      return p.arena_bytes + p.parameter_bytes + p.gradient_bytes + p.state_bytes + p.io_bytes
        + p.constant_bytes + p.frame_bytes
    end
    assert.are.equal(total(plan[2]) - total(plan[1]), sum(report, "change_bytes"))
    assert.are.equal(0, #diff.sides(diff.of_plan_id(db, 1), diff.of_plan_id(db, 1)))
    local commits = assert(db:sql "select commit_id from run order by run_id")
    assert.are.equal(("abc1"):rep(10), commits[1].commit_id)
    assert.are.equal(("def4"):rep(10), commits[2].commit_id)
    -- of two commits runs of one batch are compared, unless others are asked for
    text, code = neap_command "diff commit:abc commit:def"
    assert.are.equal(1, code, text)
    assert.is_truthy(text:find("it has mlp infer batch 64", 1, true), text)
    text, code = neap_command "diff commit:abc:mlp:4 commit:def:mlp:64 --max-memory 1%"
    assert.are.equal(1, code, text)
    assert.is_truthy(text:find("memory has grown by", 1, true), text)
    text, code = neap_command "diff commit:def:mlp:64 commit:abc:mlp:4 --max-memory 1%"
    assert.are.equal(0, code, text)
    neap_command "profile run mlp --batch 4 --steps 3"
    neap_command "profile run xor --batch 4 --steps 3"
    for _, words in ipairs { "commit:abc commit:def", "commit:abc run:3", "run:1 commit:def" } do
      text, code = neap_command("diff " .. words)
      assert.are.equal(0, code, text)
      assert.is_truthy(text:find("^run 1 of [^\n]* %-> run 3 of "), text)
    end
    -- a run of files that differed from the commit stands for it only where no other does
    neap_command "profile run mlp --batch 4 --steps 3"
    for dirty, want in pairs { ["4"] = "run 3 of [^\n]*batch 4\n",
      ["3, 4"] = "run 4 of [^\n]*batch 4, whose files differ from the commit\n" } do
      support.shell(("sqlite3 %s 'update run set commit_dirty = run_id in (%s)'"):format(file,
        dirty))
      for _, before in ipairs { "commit:abc", "run:1" } do
        text, code = neap_command("diff " .. before .. " commit:def")
        assert.are.equal(0, code, text)
        assert.is_truthy(text:find("^run 1 of [^\n]* %-> " .. want), text)
      end
    end
    text, code = neap_command "diff commit:abc:xor commit:def"
    assert.are.equal(1, code, text)
    assert.is_truthy(text:find("it has mlp infer batch 4", 1, true), text)
    text, code = neap_command "diff run:1 run:99"
    assert.are.equal(1, code, text)
    assert.is_truthy(text:find("has no run 99", 1, true), text)
    text, code = neap_command "diff mlp:2 mlp:4 --max-time 1%"
    assert.are.equal(2, code, text)
    text, code = neap_command "diff mlp:2 mlp:4 --no-store --max-memory 100000%"
    assert.are.equal(0, code, text)
    -- what is stored is not planned: nothing would read an option of plans
    for option, name in pairs {
      ["--train"] = "train", ["--batch 4"] = "batch", ["--budget 1MiB"] = "budget",
      ["--no-in-place"] = "in_place",
    } do
      text, code = neap_command("diff run:1 run:2 " .. option)
      assert.are.equal(2, code, text)
      assert.is_truthy(text:find(name .. "\" is for nets", 1, true), text)
    end
    text, code = neap_command "diff mlp:2 mlp:4 --batch 8"
    assert.are.equal(2, code, text)
    support.shell("rm -rf " .. folder)
  end)

  it("has the layers of a plan in halves beside those in f32, whatever is cast", function()
    local model = neap.zoo.lenet()
    local function plan(dtype)
      return model:plan { batch = 4, train = true, store = false, dtype = dtype }
    end
    local report = plan():diff(plan "bf16")
    assert.is_true(#report > 0)
    for _, row in ipairs(report) do assert.equal("", row.what, row.layer) end
  end)
end)
