-- Arguments that mean nothing are refused where they stand, with what was expected, and what they
-- were given to is as it was. What every function of the surface has in common is in surface_spec;
-- here is what single ones take.
local neap = require "neap"
local support = require "support"
local raises = support.raises

--- x -> FC -> Relu -> y; `unread`: and z, another one that nobody reads.
local function small_net(unread)
  local net = neap.net "f"
  net:input("x", { 4, 3 })
  net:param("w", { 5, 3 })
  net:FC({ "x", "w" }, "h")
  net:Relu("h", "y")
  if unread then net:Relu("h", "z") end
  net:outputs { "y" }
  return net
end

local nine = { 1, 1, 1, 1, 1, 1, 1, 1, 1 }

describe("arguments of plans", function()
  --- {options, what the message must contain}
  local options = {
    { { budget = "8 bananas" }, "budget expects bytes" },
    { { budget = "x%" }, "budget expects bytes" },
    { { policy = "best" }, { "policy expects none, name, offset or pool", "best" } },
    { { executor = "best" }, { "executor expects simple, dag or dynamic", "best" } },
    {
      { executor = "dynamic", policy = "offset" },
      "executor dynamic takes bytes from a pool; policy offset plans them",
    },
    {
      { executor = "dynamic", policy = "none" },
      "executor dynamic takes bytes from a pool; policy none plans them",
    },
    { { soft = "1MiB", policy = "offset" }, "soft" },
    { { search = 0 }, { "search expects an integer of at least 1", "got 0" } },
    { { in_place = 5 }, "in_place expects true or false, got a number" },
    { { recompute = "x" }, "recompute expects true or false, got a string" },
    { { banks = { { "fast", bytes = 100, kind = "odd" } } }, "banks expects a list" },
  }
  for _, case in ipairs(options) do
    local words = type(case[2]) == "table" and case[2] or { case[2] }
    it("are refused: " .. words[1], function()
      local net = small_net()
      local before = net:text()
      local ws <close> = neap.workspace { store = false }
      case[1].store = false
      raises(words, ws.compile, ws, net, case[1])
      if not case[1].soft then raises(words, net.plan, net, case[1]) end
      assert.are.equal(before, net:text())
      assert.same({}, ws:nets())
    end)
  end

  it("may say twice what they say once", function()
    for _, o in ipairs { { executor = "dynamic", policy = "pool" }, { executor = "dynamic" } } do
      o.store = false
      assert.are.equal("pool", small_net():plan(o).policy)
    end
    assert.are.equal(small_net():plan({ store = false }).arena_bytes,
      small_net():plan({ store = false, search = 10 }).arena_bytes)
  end)

  it("name blobs: one that is gone says where it went", function()
    local plan, unread = small_net():plan { store = false }, small_net(true):plan { store = false }
    for _, f in ipairs { plan.explain, plan.why } do
      raises({ 'the plan of "f" has no blob "z"', "nothing reads it" }, f, unread, "z")
      raises({ 'the plan of "f" has no blob "h"', "has absorbed it" }, f, plan, "h")
      raises({ 'the plan of "f" has no blob "none"', "plan:values() lists them" }, f, plan, "none")
    end
  end)

  it("of a bank say what it is", function()
    raises({ 'neap.bank: kind expects "huge" or "ordinary"', 'got "odd"' }, neap.bank,
      { "fast", bytes = 100, kind = "odd" })
    raises("got -4", neap.bank, { "fast", bytes = -4 })
  end)
end)

describe("arguments of nets", function()
  it("are refused: an initialiser's attributes by position, and shapes \z
      of nine dimensions", function()
    local net = small_net()
    local before = net:text()
    raises("an initialiser takes its attributes by name", net.param, net, "v", { 2 },
      { "Constant", 3 })
    raises("at most 8 dimensions, got 9", net.input, net, "v", nine)
    assert.are.equal(before, net:text())
  end)

  it("are refused: names that micro-batches need for themselves", function()
    local net = neap.net "f"
    local x = net:input("x", { 4, 3 })
    local w = net:param("micro.weight", { 5, 3 })
    net:gradient(net:FC({ x, w }, "y"):sum())
    raises({ 'has a blob "micro.weight" already', "the name is taken" }, net._split_micro, net)
  end)
end)

describe("arguments of tensors", function()
  local x = neap.arange(6):view(2, 3)

  it("are refused, and the tensor is as it was", function()
    local before = x:hash()
    raises({ "map_ expects equal shapes", "(2,3)", "(3)" }, x.map_, x, neap.ones(3), function(a)
      return a + 1
    end)
    raises({ "x:close: rtol expects a number", "string" }, x.close, x, x, { rtol = "a" })
    raises({ "a range is {}, {from, to} or {from, to, step}", "got 4 items" }, function()
      return x[{ { 1, 2, 1, 1 }, {} }]
    end)
    raises("at most 8 dimensions, got 9", neap.zeros, nine)
    raises("image expects (H,W), (C,H,W) or (N,C,H,W), got (1,1,1,2,3)", function()
      return x:view(1, 1, 1, 2, 3):image "a.png"
    end)
    assert.are.equal(before, x:hash())
  end)

  it("that are integers keep every bit where a mask picks them", function()
    local big = (1 << 60) + 1
    local to, from = neap.zeros { 4, dtype = "i64" }, neap.tensor({ 1, 2, big, 4 }, "i64")
    to[to:eq(0)] = from
    assert.same({ 1, 2, big, 4 }, to:totable())
    assert.same({ 2, big, 4 }, from[from:gt(1)]:totable())
  end)
end)

describe("arguments of files", function()
  it("are refused before a file is made", function()
    local folder = support.shell "mktemp -d":match "[^\n]+"
    local path, x = folder .. "/a.safetensors", neap.ones(2)
    raises("meta expects a table of texts, got a number", neap.save, path, { x = x }, { meta = 5 })
    raises("meta expects texts by name", neap.save, path, { x = x }, { meta = { "a" } })
    raises("meta expects texts by name", neap.save, path, { x = x }, { meta = { a = 5 } })
    raises("a name is longer than a .npz file can hold", neap.save, folder .. "/a.npz",
      { [("n"):rep(70000)] = x })
    assert.are.equal("", (support.shell("ls -A " .. folder)))
    for _, ending in ipairs { ".npy", ".npz", ".safetensors" } do
      local at = folder .. "/folder" .. ending
      assert(os.execute("mkdir " .. at))
      local r, message, code = neap.load(at)
      assert.is_nil(r)
      assert.matches(at .. ": is a directory", message, 1, true)
      assert.is_string(code)
    end
    os.execute("rm -r " .. folder)
  end)

  it("of a query may be booleans: 1 and 0", function()
    local path = os.tmpname()
    local db <close> = assert(neap.db(path))
    local row = assert(db:sql("select ? as a, :b as b, typeof(:b) as kind", { true, b = false }))[1]
    assert.same({ 1, 0, "integer" }, { row.a, row.b, row.kind })
    os.remove(path)
  end)
end)

describe("the environment", function()
  it("may name a folder whose Lua files take the place of Neap's own", function()
    local folder = support.shell "mktemp -d":match "[^\n]+"
    support.write_file(folder .. "/progress.lua", "return function() return 'another' end\n")
    local command = "NEAP_DB=off NEAP_LUA=%s %s -e 'print(type(require \"neap.progress\"), \z
      require(\"neap.progress\")())' 2>&1"
    assert.are.equal("function\tanother\n",
      (support.shell(command:format(folder, support.program))))
    support.write_file(folder .. "/progress.lua", "return (\n")
    local text, code = support.shell(command:format(folder, support.program))
    assert.are_not.equal(0, code)
    assert.matches("progress.lua:2:", text, 1, true)
    os.execute("rm -r " .. folder)
  end)
end)
