-- Help on whatever a user can name: it is there, says how the thing is called, its examples run.
local classes = require "neap.help.classes"
local help = require "neap.help"
local neap = require "neap"
local support = require "support"
local topics = require "neap.help.topics"

local general = tostring(neap.help())

local function text_on(x)
  local ok, answer = pcall(neap.help, x)
  assert.is_true(ok, ("%s: %s"):format(tostring(x), tostring(answer)))
  local text = tostring(answer)
  assert.are_not.equal(general, text, "no help on " .. tostring(x))
  return text
end

--- A folder of this test's own, in which examples may write.
local folder = os.tmpname()
os.remove(folder)
support.shell("mkdir -p " .. folder)
teardown(function() support.shell("rm -rf " .. folder) end)

-- What an example takes for granted, by how it begins. The rest find the scene below.
local digits = [[
  model = nn.Sequential { nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2) }
  model(x)
]]
local flow = [[
  net = neap.net "g"
  net:input("x", { 2, 3 })
  for _, name in ipairs { "cond", "low", "high" } do net:input(name, {}, "bool") end
  net:input("limit", { 2, 3 })
]]
local trained = digits .. [[
  set = neap.data.tensors { x = neap.rand(20, 3), y = neap.rand(20, 2), batch = 10 }
  t = neap.trainer { model = model, loss = nn.MseLoss(), optimizer = optim.SGD { lr = 0.1 },
    memory = { store = false } }
]]
local scenes = {
  ["local even = set:weighted"] = [[set = neap.data.tensors { x = neap.rand(20, 3), batch = 2,
    y = neap.arange(20):gt(9):to "i64" }]],
  ["for _, fold in ipairs(set"] = [[set = neap.data.tensors { x = neap.rand(20, 3), batch = 2,
    y = neap.arange(20):gt(9):to "i64" }]],
  ["local scaled = set"] = "set = neap.data.tensors { x = neap.rand(20, 3), batch = 2 }",
  ["local train, valid = set"] = [[set = neap.data.tensors { x = neap.rand(20, 3), batch = 2,
    y = neap.arange(20):gt(9):to "i64" }]],
  ["for batch in set"] = "set = neap.data.tensors { x = neap.rand(4, 3), batch = 2 }",
  ["db:query"] = [[os.execute(("NEAP_DB=%s/neap.db %s plan lenet:2 --train --budget 2MiB >%s/out")
      :format(folder, program_path, folder))
    db = assert(neap.db(folder .. "/neap.db"))]],
  ["db:sql"] = [[db = assert(neap.db(folder .. "/neap.db"))]],
  ["neap.memonger.process_op(ws"] = [[ws:feed("a", x) ws:feed("b", x)]],
  ["neap.memonger.process_op(recycler"] = false, -- a recycler is made by memonger alone
  ["local freed"] = [[net:Relu("y", "features") net:Exp("features", "z")]],
  ["local y = net:bank"] = [[net:param("w", { 5, 3 }) net:param("b", { 5 })]],
  ['net:bank("fast", { "h1"'] = [[net:Relu("x", "h1") net:Exp("h1", "h2")]],
  ["model:optimize"] = digits,
  ["assert(neap.export"] = digits .. "pictures = x",
  ['net:If("cond"'] = flow, ["net:AsyncIf"] = flow,
  ['net:If("low"'] = flow:gsub("{ 2, 3 }", "{}") .. [[
    f = function(b) return b:Relu "x" end g, h, k = f, f, f]],
  ["local x = net:While"] = [[net = neap.net "g" net:input("x", {})]],
  ["local h, all"] = [[net = neap.net "g" net:input("x", { 4, 2, 3 }) net:input("h0", { 2, 3 })]],
  ["local total, sums"] = [[net = neap.net "g" net:input("x", { 4, 3 }) net:input("zero", { 3 })]],
  ["local micro, update"] = false, -- tests/named/11_split_micro has it whole
  ["net:CreateScope"] = [[net = neap.net "g" net:input("a", { 2 })]],
  ["second:import_scope"] = [[net = neap.net "g" net:input("a", { 2 }) net:CreateScope({}, "s")
    net:Do { bindings = { x = "a" }, scope = "s", body = function(d) d:Neg("x", "h") end }
    net:export_scope "s" second = neap.net "h"]],
  ["local memory = model:memory"] = digits .. "dy = neap.rand(2, 2)",
  ["model:tie"] = "model = nn.Sequential { nn.Embedding { 10, 8 }, nn.Linear { 8, 10 } }",
  ["program:profile"] = digits .. [[
    program = ws:compile((model:net { batch = 2, input = { 3 } }), { profile = true })
    ws:feed("x", neap.rand(2, 3))]],
  ["print(model:plan { batch = 32 }:whatif"] = [[
    model = nn.Sequential { input = { 3 }, nn.Linear(3, 4), nn.ReLU { name = "block2" } }]],
  ["t.optimizer.lr"] = trained, ["print(t:forecast"] = trained .. "t:fit(set, { verbose = 0 })",
  ["ws:run_op"] = [[for _, name in ipairs { "w", "dw" } do ws:feed(name, x) end
    ws:feed("lr", neap.tensor(0.1))]],
  ["local small"] = [[net = neap.net "g" net:input("x", { 64, 784 }) net:Relu("x", "y")]],
  ["local scope = ws:create_scope"] = [[ws:feed("x", x) ws:feed("w", x)]],
}

--- The scene of an example: code, false for one that is not run, or nil.
local function scene_of(code)
  for beginning, scene in pairs(scenes) do
    if code:sub(1, #beginning) == beginning then return scene end
  end
end

--- Runs an example's code after what it takes for granted, in a folder of its own.
local function run(code)
  local scene = scene_of(code)
  if scene == false then return end
  local model = neap.zoo.lenet()
  local net = neap.net "f"
  net:input("x", { 2, 3 })
  net:Relu("x", "y")
  local env = setmetatable({
    print = function(...) for _, x in ipairs { ... } do assert(tostring(x)) end end,
    neap = neap, nn = neap.nn, optim = neap.optim, data = neap.data, folder = folder,
    model = model, net = net, ws = neap.workspace { store = false }, x = neap.rand(2, 3),
    w = neap.rand(3, 3), plan = model:plan { batch = 2, train = true, store = false },
    program_path = support.program,
  }, { __index = _G })
  -- what it writes lands in the folder
  code = code:gsub('"([%w_]+%.%l+)"', function(name)
    if name:find "%.html$" or name:find "%.svg$" or name:find "%.safetensors$"
        or name:find "%.png$" or name:find "%.json$" then
      return ("%q"):format(folder .. "/" .. name)
    end
  end)
  for _, part in ipairs { scene or "", code } do
    local chunk = assert(load(part, "=" .. part, "t", env))
    chunk()
  end
  if rawget(env, "db") then env.db:close() end
end

describe("help", function()
  it("is of the function that is asked for, where another thing has its last word", function()
    for name, text in pairs(require "neap.help.of_c") do
      local asked = text_on(name)
      assert.equal(text, asked:sub(1, #text), name)
    end
    assert.matches("^neap%.load%(path", text_on(neap.load))
    assert.matches("^m:load%(path", text_on "m:load")
  end)

  it("knows every class, method by method, by name and by function", function()
    local n = 0
    for name, f in classes.methods() do
      n = n + 1
      local text = text_on(name)
      assert.is_true(#text >= 20, name .. ": " .. text)
      assert.is_truthy(text:find "[%({]" or text:find "%->" or text:find " ", name)
      text_on(f)
    end
    assert.is_true(n > 150, n)
    for class in pairs(classes.heads()) do
      local text = text_on(class)
      assert.is_truthy(text:find "example: " and text:find "methods", class)
    end
  end)

  it("lists for a value what its class lists", function()
    local model = neap.nn.Sequential { input = { 3 }, neap.nn.Linear(3, 2) }
    local plan = model:plan { batch = 2, store = false }
    for class, value in pairs {
      tensor = neap.ones(2), net = neap.net "n", workspace = neap.workspace(), plan = plan,
      report = plan:ops(), data_set = neap.data.tensors { x = neap.ones(2, 2), batch = 1 },
    } do
      assert.is_truthy(text_on(value):find(text_on(class):match "^[^\n]*", 1, true), class)
    end
    assert.is_truthy(text_on(model):find("m(x) runs it", 1, true))
  end)

  it("knows commands, queries, options, pages and nets, and words from elsewhere", function()
    for _, name in ipairs(topics.names()) do assert.is_true(#text_on(name) > 40, name) end
    for _, name in ipairs { "neap", "layer", "loss", "optimizer", "model", "module", "report",
      "neap.version", "zoo.lenet", "init.zeros", "workspace:run" } do
      assert.is_true(#text_on(name) > 40, name)
    end
    assert.is_truthy(text_on "report":find "neap report" and text_on "report":find "r:csv")
    assert.is_truthy(text_on(neap.zoo.lenet):find "classes = 10")
    assert.is_truthy(text_on(neap.init.ones):find "Every element 1")
  end)

  it("has every method of a class in a program that has loaded nothing", function()
    for class, words in pairs {
      trainer = { "t:fit", "t:evaluate" },
      module = { "m:save", "m:parameters", "m:state_dict", "m:load_state_dict", "m:summary",
        "m:tie", "m:seed" },
      data_set = { "data:split", "data:folds", "data:weighted", "data:with", "data:plain" },
      ["m:save"] = { "gives: true" }, state_dict = { "state_dict" }, ["x:narrow"] = { "narrow" },
      ["set:split"] = { "data:split" },
    } do
      local text = support.shell(("%s help %s 2>&1"):format(support.program, class))
      for _, word in ipairs(words) do assert.matches(word, text, 1, true) end
      assert.is_nil(text:find("there is no", 1, true), text)
      assert.is_nil(text:find("@return", 1, true), text)
    end
    for _, verb in ipairs { "plan", "profile", "diff" } do
      local text = support.shell(("%s help %s"):format(support.program, verb))
      assert.is_nil(text:find("%%", 1, true), verb)
    end
  end)

  it("is the same on the command line", function()
    for _, name in ipairs { "Conv2d", "ws:run", "lenet", "budget", "questions", "env" } do
      local out, code = support.shell(("%s help %s"):format(support.program, name))
      assert.are.equal(0, code, out)
      assert.is_truthy(out:find(text_on(name):sub(1, 30), 1, true), name)
    end
    local out, code = support.shell(support.program .. " help repotr 2>&1")
    assert.are.equal(2, code)
    assert.is_truthy(out:find('did you mean "report"?', 1, true), out)
  end)

  it("has examples that run", function()
    local n = 0
    for _, example in ipairs(help.examples()) do
      local place, code = table.unpack(example)
      local ok, message = pcall(run, code)
      n = n + (ok and 1 or 0)
      assert.is_true(ok, ("%s: %s\n%s"):format(place, code, tostring(message)))
    end
    assert.is_true(n > 50, tostring(n))
    for name, head in pairs(classes.heads()) do
      local ok, message = pcall(run, assert(head:match "\nexample: (.*)$", name))
      assert.is_true(ok, name .. ": " .. tostring(message))
    end
  end)
end)
