--- What a database gives back that somebody has changed: whichever way from Lua leads to a plan, it
-- is said, and nothing else differs. tests/c/test_stored.c changes every word; here are the ways.
local support = require "support"

--- Each way prints what it came to. One process each: a trouble is told once by process.
local ways = {
  { name = "a program", code = "local p = ws:compile(net) p:run() show(ws:fetch 'y')" },
  { name = "a plan", code = "print(net:plan{}.arena_bytes)" },
  { name = "a share of a plan", code = "print(net:plan { budget = '100%' }.arena_bytes)" },
  {
    name = "a range of batches",
    code = "local p = ws:compile(net, { max_batch = 8 }) p:run() show(ws:fetch 'y')",
  },
  { name = "a single run", code = "ws:run_once(net) show(ws:fetch 'y')" },
  { name = "steps", code = "ws:run_steps { net, iterations = 2 } show(ws:fetch 'y')" },
  {
    name = "the batch that fits",
    code = "print((neap.fit_batch(net, { total = '64KiB', max = 40 })))",
  },
  {
    name = "a chain of layers",
    code = "model:memory { max_batch = 4, store = true }:forward(x) show(model.outputs[2].data)",
  },
  {
    name = "a model in one's hand",
    code = "show(model:workspace():run(model:net { batch = 4, input = { 6 } }, { x = x }))",
  },
  {
    name = "an imported model",
    code = "assert(neap.export(net, file, { workspace = ws })) show(assert(neap.import(file))(x))",
  },
  {
    name = "micro-batches",
    code = [[
    local loss, optimizer = neap.nn.CrossEntropyLoss(), neap.optim.SGD { lr = 0.1 }
    local t = neap.trainer { model = model, loss = loss, optimizer = optimizer, micro = 3 }
    print(t:step { x = x, y = neap.tensor({ 0, 1, 2, 3 }, "i64") }.loss)]],
  },
}

local prelude = [[
local neap = require "neap"
local file = arg[1]
neap.seed(1)
local function show(t) print((type(t) == "table" and select(2, next(t)) or t):hash()) end
local model = neap.nn.Sequential { neap.nn.Linear(6, 8), neap.nn.ReLU(), neap.nn.Linear(8, 5) }
local net = neap.net "stored"
net:input("x", { 4, 6 })
net:param("w", { 5, 6 })
net:FC({ "x", "w" }, "h")
net:Tanh("h", "y")
net:outputs "y"
local ws = neap.workspace { seed = 1 }
local x = neap.randn(4, 6)
ws:init(net)
ws:feed("x", x)
]]

describe("a database that somebody has changed", function()
  local folder = os.tmpname()
  os.remove(folder)

  --- Changes the choices of every plan in a file, where they say which section of the ladder they
  -- are of.
  local function tamper(path)
    local text = "cast(sqlar_uncompress(choices, choice_bytes) as text)"
    local changed = ("cast(replace(%s, 'section 0', 'section 7') as blob)"):format(text)
    local update = ("update plan_cache set choices = %s, choice_bytes = length(%s);"
      .. " select changes()"):format(changed, changed)
    return tonumber((support.shell(('sqlite3 %s "%s"'):format(path, update))))
  end

  for _, way in ipairs(ways) do
    it("is told of by " .. way.name .. ", which does as without it", function()
      support.shell("mkdir -p " .. folder)
      local base = folder .. "/" .. way.name:gsub("%W", "_")
      local script <close> = assert(io.open(base .. ".lua", "w"))
      script:write(prelude, way.code, "\n")
      script:flush()
      local function run(db)
        local out = support.shell(("NEAP_CACHE=all NEAP_DB=%s %s run %s.lua %s.safetensors \z
          2>%s.err"):format(db, support.program, base, base, base))
        local err <close> = assert(io.open(base .. ".err"))
        return out, err:read "a"
      end
      local db = base .. ".db"
      local plain = run "off"
      if #plain == 0 then error((select(2, run "off"))) end
      local first, quiet = run(db)
      assert.equal(plain, first)
      assert.equal("", quiet)
      assert.is_true(tamper(db) > 0, "no plan is stored")
      local again, said = run(db)
      assert.equal(plain, again)
      assert.has_match("a stored plan failed its check and was made again", said)
      again, said = run(db)
      assert.equal(plain, again)
      assert.equal("", said)
      support.shell(("rm -f %s*"):format(base))
    end)
  end
end)
