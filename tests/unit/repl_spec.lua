-- The REPL, through a pipe and, where tmux is there, through a terminal.
local support = require "support"
local program = support.program

--- Feeds lines. @return what was printed (standard error included, in order), exit code
local function repl(lines)
  local name = os.tmpname()
  support.write_file(name, lines)
  local out, code = support.shell(("NEAP_DB=off %s <%s 2>&1"):format(program, name))
  os.remove(name)
  return out, code
end

describe("the REPL through a pipe", function()
  it("prints values, keeps the last in _ and is silent after ;", function()
    assert.equal("2\n", (repl "1+1\n"))
    assert.equal("3\n6\n", (repl "3\n_*2\n"))
    assert.equal("4\n", (repl "3;\n_+1\n"))
    assert.equal("\"a\\nb\"\n1\n2\n", (repl "'a\\nb'\n1, 2\n"))
    assert.equal("nil\n", (repl "nil\n"))
    assert.equal("", (repl "x = 1\n\n"))
    assert.equal("5\n", (repl "= 5\n"))
  end)

  it("prints tables as values", function()
    assert.equal("{ 1, 2 }\n", (repl "{1, 2}\n"))
    assert.equal("{ 3, 4 }\n", (repl "neap.zeros(3, 4).shape\n"))
    assert.equal('{ 1, [3] = "x", a = { b = true }, ["c d"] = 0.5 }\n',
      (repl "{1, [3] = 'x', a = {b = true}, ['c d'] = 0.5}\n"))
    assert.equal("{}\n", (repl "{}\n"))
    assert.matches("{ x = f32 %(2%) 8 B }", (repl "{x = neap.zeros(2)}\n"))
    assert.equal("{ m = Sequential }\n", (repl "{m = nn.Sequential { nn.Linear(2, 2) }}\n"))
    assert.matches("40, %.%. 60 more",
      ((repl "(function() local t = {} for i = 1, 100 do t[i] = i end return t end)()\n"):gsub(
        "%s+", " ")))
    assert.equal("{ me = {..} }\n", (repl "local t = {}; t.me = t\nt\n"))
  end)

  it("says what a name that nobody has set may have been, and how help is asked for", function()
    assert.matches("global 'hepl'%), did you mean \"help\"%?", (repl "hepl(1)\n"))
    assert.matches("global 'naep'%), did you mean \"neap\"%?", (repl "naep.zeros(2)\n"))
    assert.equal("help(nn.Linear), or ?nn.Linear\n", (repl "help nn.Linear\n"))
    assert.matches("^Relu: ", (repl "help 'Relu'\n"))
  end)

  it("offers public methods and fields only", function()
    local out = repl [[
local r = require "neap.repl"
m = neap.nn.Linear(3, 4); net = neap.net "f"; x = net:input("x", {2}); t = neap.zeros(2)
ws = neap.workspace {}
function find(line, f)
  for _, w in ipairs(r.complete(line)) do
    if f(w) then return w end
  end
end
function has(line, name) return find(line, function(w) return w == name end) ~= nil end
function private(line) return find(line, function(w) return w:match "[.:]_" end) end
has("m:", "m:parameters") and has("m.", "m.weight") and has("net:", "net:Relu") and
  has("net:", "net:summary") and has("x:", "x:softmax")
has("t:", "t:reshape") and has("ws:", "ws:fetch") and has("neap.nn.Li", "neap.nn.Linear") and
  has("neap.memory():", "x") == false
private "m:", private "net:", private "x:", private "t:", (private "ws:")
]]
    assert.equal("true\ntrue\nnil\nnil\nnil\nnil\nnil\n", out)
  end)

  it("continues unfinished input", function()
    assert.equal("1\n2\n3\n", (repl "for i = 1, 2 do\nprint(i)\nend\n1 +\n2\n"))
    local out, code = repl "for i = 1, 2 do\n"
    assert.matches("'end' expected", out)
    assert.equal(1, code)
  end)

  it("keeps locals, which a line of their own would lose", function()
    assert.equal("7\n9\n",
      (repl "local a, b = 3, 4\na + b\nlocal function f() return 9 end\nf()\n"))
  end)

  it("lives on after errors, with a short traceback, and tells by its exit code", function()
    local out, code = repl "function f() error 'deep' end\nfunction g() f() end\ng()\n1+1\n"
    assert.equal(1, code)
    assert.equal("stdin:1: deep\n  stdin:1: in function 'f'\n  stdin:1: in function 'g'\n2\n", out)
    assert.matches("expects an integer", (repl "neap.zeros('x')\n"))
    assert.equal(0, select(2, repl "1\n"))
  end)

  it("has nn, optim and data without their neap, and explains what follows a ?", function()
    assert.matches("Linear { 3, 4", (repl "nn.Linear(3, 4)\n"))
    assert.matches("true\ntrue\n", (repl "optim == neap.optim\ndata == neap.data\n"))
    assert.equal("nil\n", (repl "nothing_of_the_kind\n"))
    assert.matches("true", (repl [[
r = require "neap.repl"
(function() for _, w in ipairs(r.complete "op") do if w == "optim" then return true end end end)()
]]))
    for _, words in ipairs { "Conv2d", "nn.Conv2d", "Conv", " neap.nn.Conv2d", "t:fit" } do
      local out, code = repl("?" .. words .. "\n")
      assert.equal(0, code, out)
      assert.matches("example", out)
    end
    assert.matches("nn.Linear {", (repl "m = nn.Linear(3, 4)\n?m\n"))
    assert.matches("first five minutes", (repl "?\n"))
    local out, code = repl "?Konv2d\n1\n"
    assert.equal(1, code)
    assert.matches("did you mean \"Conv2d\"", out)
  end)

  it("prints nets as they are written, Neap's parts as help has them, functions by name", function()
    local out = repl 'n = neap.net "f"; n:Relu(n:input("a", { 2, 3 }), "y");\nn\n'
    assert.matches("^net \"f\": 1 ops, 2 blobs\n  input a f32 %(2,3%)[^\n]*\n  y = Relu%(a%)", out)
    assert.matches("neap.data: Data sets.*\n  csv +Rows of a CSV", (repl "data\n"))
    assert.matches("nets: .*lenet", (repl "neap.zoo\n"))
    assert.equal("function neap.load\n", (repl "neap.load\n"))
    out = repl 'n = neap.net "g"; x = n:input("a", { 2 }); for i = 1, 60 do x = n:Relu(x) end\nn\n'
    assert.matches("32 more lines: print%(net:text%(%)%)\n$", out)
  end)

  it("times code as often as it is told", function()
    local out = repl "n = 0\n:time 20 (function() n = n + 1 end)()\nn\n:time 3 + 4\n"
    assert.matches("^[%d.]+ ms the median of 20, [%d.]+ to [%d.]+\n20\n7\n[%d.]+ ms\n$", out)
    assert.equal(1, select(2, repl ":time 3 f(\n"))
  end)

  it("shows a way whose lines all run", function()
    local lines, shown = {}, repl "help()\n"
    for line in shown:gmatch "\n  ([%w_(][^\n]*)" do lines[#lines + 1] = line end
    assert.is_true(#lines > 10)
    local out, code = repl(table.concat(lines, "\n") .. "\n")
    assert.equal(0, code, out)
    assert.matches("f32 %(2,4%)", out)
    assert.matches("\nloss [^\n]+ from ", out)
    assert.matches("y f32 %(2,5%)", out)
  end)

  it("has neap, help and reports at hand", function()
    assert.matches("f32 %(2%)", (repl "neap.ones(2)\n"))
    assert.matches("Convolution", (repl "help 'Conv'\n"))
    assert.matches("five minutes", (repl "help()\n"))
    assert.matches("tensor: ", (repl "help(neap.ones(2))\n"))
  end)

  it("runs colon commands, those of the command line too", function()
    local out, code = repl ":help\n:mem\n:time 1+1\n:plan lenet\n:plan --help\n:ops Conv\n3\n"
    assert.equal(0, code)
    for _, part in ipairs {
      ":quit", "resident", "\n2\n%d+%.%d+ ms\n", "plan of \"lenet\"", "Usage: neap plan",
      "Convolution", "\n3\n$",
    } do
      assert.matches(part, out)
    end
    out, code = repl ":plam lenet\n4\n"
    assert.matches("did you mean \":plan\"%?.*\n4\n$", out)
    assert.equal(1, code)
    assert.equal("1\n", (repl "1\n:quit\n2\n"))
  end)

  it("completes nested names", function()
    local names = repl "r = require 'neap.repl' x = neap.ones(2)\n\z
      for _, w in ipairs { 'neap.nn.Li', 'print(neap.zer', 'x:softp', 'x.sha', 'neap.opt', ':pla' \z
      } do\n\z
      print((table.concat(r.complete(w), ' '))) end\n"
    assert.equal("neap.nn.Linear\nneap.zeros\nx:softplus\nx.shape\nneap.optim\n:plan\n", names)
  end)
end)

describe("the REPL in a terminal", function()
  local has_tmux = os.execute "command -v tmux >/dev/null 2>&1"
  local socket, home

  local function tmux(words)
    local pipe = assert(io.popen(("tmux -L %s %s 2>&1"):format(socket, words)))
    local text = pipe:read "a"
    pipe:close()
    return text
  end
  local function keys(...)
    for _, key in ipairs { ... } do tmux("send-keys -t r '" .. key .. "'") end
  end
  --- Waits until the screen matches. @return the screen
  local function screen(pattern)
    local text
    for _ = 1, 60 do
      text = tmux "capture-pane -t r -p"
      if text:match(pattern) then return text end
      os.execute "sleep 0.1"
    end
    error(("the screen never matched %s:\n%s"):format(pattern, text), 2)
  end

  setup(function()
    if not has_tmux then return end
    local pipe = assert(io.popen "mktemp -d")
    home = pipe:read "l"
    pipe:close()
    socket = "neap" .. home:match "%w+$"
    tmux(("new-session -d -s r -x 90 -y 40 \"env HOME=%s XDG_DATA_HOME=%s NEAP_DB=off %s; echo \z
      ended; sleep 60\""):format(home, home, program))
  end)
  teardown(function()
    if not has_tmux then return end
    tmux "kill-server"
    os.execute("rm -rf " .. home)
  end)

  it("edits, completes, remembers, stops at Ctrl-C and leaves at Ctrl-D", function()
    if not has_tmux then return pending "tmux is not installed" end
    screen "help%(%) shows the way.*\n>%s"
    keys("1+40", "Enter")
    screen "\n41\n>%s"
    keys("while true do end", "Enter")
    os.execute "sleep 0.5"
    keys "C-c"
    screen "interrupted\n>%s"
    keys(
      "net = neap.net \"a\"; x = net:input(\"x\", {500,500}); net:MatMul({x,x}, \"y\"); ws = \z
        neap.workspace{}; t = neap.ones(500,500)", "Enter",
      "for i = 1, 1e9 do ws:run(net, {x = t}) end", "Enter")
    os.execute "sleep 0.7"
    keys "C-c"
    screen "interrupted\n>%s.*interrupted\n>%s"
    keys("print(", "Enter")
    screen ">>%s"
    keys "C-c"
    screen ">> %^C\n>%s"
    keys("2*21", "Enter")
    screen "\n42\n>%s"
    if pcall(require, "readline") then
      keys("neap.nn.Lin", "Tab", "{2,3}", "Enter")
      screen "> neap.nn.Linear{2,3}\nLinear"
      keys("Up", "Up", "Enter")
      screen "> 2%*21\n42\n>%s"
    end
    keys "C-d"
    screen "ended"
  end)
end)
