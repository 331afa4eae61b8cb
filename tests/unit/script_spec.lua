-- What is known of the script whose runs are recorded: its arguments, and the commit of its
-- repository, read from that repository's files.
local neap = require "neap"
local script = require "neap.inner.script"
local support = require "support"
local shell = support.shell

describe("the script of a run", function()
  local folder
  local commit, other = ("0123456789abcdef"):rep(3):sub(1, 40), ("ab"):rep(20)

  local function write(path, text)
    os.execute(("mkdir -p %s/%s"):format(folder, path:match "^(.*)/" or "."))
    local file = assert(io.open(folder .. "/" .. path, "w"))
    file:write(text)
    file:close()
  end

  before_each(function() folder = shell "mktemp -d":match "[^\n]+" end)
  after_each(function() os.execute("rm -rf " .. folder) end)

  it("is of the commit that its branch is at, from any folder within", function()
    write("a/.git/HEAD", "ref: refs/heads/main\n")
    write("a/.git/refs/heads/main", commit .. "\n")
    write("a/b/c/x.lua", "")
    assert.equal(commit, (script.commit(folder .. "/a")))
    assert.equal(commit, (script.commit(folder .. "/a/b/c")))
  end)

  it("is of a commit without a branch, of a packed branch, and of a second work tree", function()
    write("alone/.git/HEAD", commit .. "\n")
    assert.equal(commit, (script.commit(folder .. "/alone")))
    write("packed/.git/HEAD", "ref: refs/heads/x/y\n")
    write("packed/.git/packed-refs", ("# pack-refs\n%s refs/heads/x\n%s refs/heads/x/y\n^%s\n")
      :format(other, commit, other))
    assert.equal(commit, (script.commit(folder .. "/packed")))
    write("tree/.git", "gitdir: ../packed/.git/worktrees/tree\n")
    write("packed/.git/worktrees/tree/HEAD", "ref: refs/heads/x\n")
    write("packed/.git/worktrees/tree/commondir", "../..\n")
    assert.equal(other, (script.commit(folder .. "/tree")))
  end)

  it("is of no commit where there is none, or the repository is broken", function()
    write("none/x.lua", "")
    write("new/.git/HEAD", "ref: refs/heads/main\n")
    write("broken/.git/HEAD", "what\n")
    for _, name in ipairs { "new", "broken" } do
      assert.is_nil((script.commit(folder .. "/" .. name)))
    end
    assert.is_nil(script.is_dirty(folder .. "/broken"))
  end)

  it("names the nets that nobody has named", function()
    write("work/unet-small.lua", [[
      local neap = require "neap"
      local m = neap.nn.Sequential { neap.nn.Linear(3, 4), input = { 3 } }
      print(m:plan { batch = 2, store = false }.net, m:plan { name = "own", store = false }.net)
    ]])
    assert.equal("unet-small\town\n",
      shell(("%s run %s/work/unet-small.lua"):format(support.program, folder)))
    assert.equal("model\n", shell(("%s -e 'print(neap.nn.Sequential { neap.nn.Linear(3, 4), \z
      input = { 3 } }:plan({ store = false }).net)'"):format(support.program)))
  end)

  it("is in the rows of its runs, with its arguments", function()
    if not shell("command -v git"):match "%S" then return end
    write("work/t.lua", [[
      local neap = require "neap"
      local net = neap.net "tiny"
      net:outputs(net:Tanh(net:input("x", { 4 })))
      local ws <close> = neap.workspace {}
      ws:feed("x", neap.rand(4))
      local program <close> = ws:compile(net)
      program:run()]])
    local function sh(words)
      local out, code = shell(("cd %s/work && (%s) 2>&1"):format(folder, words))
      assert.equal(0, code, out)
      return out
    end
    local program = shell("realpath " .. support.program):match "[^\n]+"
    local run = "NEAP_DB=../r.db " .. program .. " run t.lua 1 'two'"
    sh "git init -q . && git add t.lua && git -c user.name=a -c user.email=a@b commit -qm first"
    sh(run)
    sh "echo >> t.lua"
    sh(run)
    local head = sh "git rev-parse HEAD":match "%x+"
    local db <close> = assert(neap.db(folder .. "/r.db"))
    local rows = assert(db:sql "select * from run order by run_id")
    assert.same({ head, head }, { rows[1].commit_id, rows[2].commit_id })
    assert.same({ 0, 1 }, { rows[1].commit_dirty, rows[2].commit_dirty })
    assert.equal('["1","two"]', rows[1].arguments)
  end)
end)
