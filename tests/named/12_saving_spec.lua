--- Saving and mapping: nets as text, parameters as safetensors, files as blobs, checkpoints that
-- are whole or not there.
local neap = require "neap"
local core = require "neap.core"
local nn = neap.nn

local support = require "support"
local program = support.program
local raises, settle = support.raises, support.settle
local read_file, write_file = support.read_file, support.write_file

local folder

local function path_of(name) return folder .. "/" .. name end

--- Names in the test's folder.
local function listing()
  local names, pipe = {}, assert(io.popen("ls -A '" .. folder .. "'"))
  for name in pipe:lines() do names[#names + 1] = name end
  pipe:close()
  return table.concat(names, " ")
end

--- A net with parameters, state, a scope, an If, a kept blob, a gradient and an update.
local function training_net()
  local net = neap.net "saved"
  local x, lr = net:input("x", { 6, 5 }), net:input("lr", {})
  local w, b = net:param("w", { 4, 5 }, neap.init.xavier()), net:param("b", { 4 }, 0.5)
  local m = net:declare("w.m", "state", { 4, 5 }, "f32", { op = "Constant", value = 0 })
  local h = net:scope("block", function() return net:Tanh(net:FC({ x, w, b }, "h"), "t") end)
  local loss = net:Mean(h * h, "loss")
  local grads = net:gradient(loss)
  net:Sgd({ w, grads[w], lr, m }, { w, m }, { momentum = 0.9 })
  net:outputs { loss, h }
  net:keep(net:blob "block/h")
  return net
end

local function feeds()
  neap.seed(11)
  return { x = neap.randn { 6, 5 }, lr = neap.tensor(0.1) }
end

local function forward_net()
  local net = neap.net "mapped"
  net:FC({ net:input("x", { 6, 5 }), net:param("w", { 4, 5 }), net:param("b", { 4 }) }, "y")
  net:outputs { "y" }
  return net
end

describe("saving and mapping:", function()
  setup(function()
    folder = os.tmpname()
    os.remove(folder)
    assert(core.make_folder(folder))
  end)
  teardown(function() os.execute("rm -rf '" .. folder .. "'") end)

  -- ---- nets and parameters ----------------------------------------------------------------------

  it("a net as text and its parameters as safetensors, read back, run to equal bits", function()
    local net, ws <close> = training_net(), neap.workspace { seed = 3, store = false }
    for _ = 1, 3 do ws:run(net, feeds()) end
    local tensors = {}
    for _, row in ipairs(net:_blobs()) do
      if row.role == "parameter" or row.role == "state" then
        tensors[row.name] = ws:fetch(row.name)
      end
    end
    assert(neap.save(path_of "w.safetensors", tensors, { meta = { note = "three steps" } }))
    write_file(path_of "net.txt", net:text())

    local again = neap.net_from(read_file(path_of "net.txt"))
    local meta = select(2, assert(neap.load(path_of "w.safetensors")))
    assert.are.equal(net:text(), again:text())
    assert.are.equal(net:hash(), again:hash())
    assert.are.equal("three steps", meta.note)
    local other <close> = neap.workspace { seed = 99, store = false }
    other:init(again)
    for name, t in pairs((neap.load(path_of "w.safetensors"))) do
      assert.are.equal(tensors[name]:hash(), t:hash())
      other:feed(name, t)
    end
    for _ = 1, 2 do
      local a, b = ws:run(net, feeds()), other:run(again, feeds())
      for name in pairs(a) do assert.are.equal(a[name]:hash(), b[name]:hash(), name) end
      assert.are.equal(ws:fetch("w.m"):hash(), other:fetch("w.m"):hash())
    end
  end)

  it("neap.export writes net and parameters as one file, neap.import reads and runs it, mapped \z
      too, for any batch", function()
    local model = nn.Sequential {
      input = { 3, 8, 8 },
      nn.Conv2d { 3, 4, kernel = 3 }, nn.BatchNorm2d { 4 }, nn.ReLU(), nn.Flatten(),
      nn.Linear { 144, 5 },
    }
    model:eval()
    local x = neap.randn { 2, 3, 8, 8 }
    local y = model(x)
    local path = path_of "model.safetensors"
    assert(neap.export(model, path, { batch = 2 }))
    for _, map in ipairs { false, "r", "c" } do
      local f = assert(neap.import(path, map and { map = map } or nil))
      assert.are.equal(y:hash(), f(x):hash())
      assert.are.same({ 7, 5 }, f(neap.randn { 7, 3, 8, 8 }).shape)
    end
    local nothing, message, code = neap.import(path_of "w.safetensors")
    assert.is_nil(nothing)
    assert.is_truthy(message:find "no net")
    assert.are.equal("data", code)
    raises("did you mean \"batch\"?", neap.export, model, path, { bacth = 2 })
  end)

  -- ---- mapping ----------------------------------------------------------------------------------

  local function write_parameters()
    local path = path_of "p.safetensors"
    neap.seed(5)
    local w, b = neap.randn { 4, 5 }, neap.randn { 4 }
    assert(neap.save(path, { w = w, b = b }))
    return path, w, b
  end

  it("a mapped tensor is the file's bytes: nothing is held for it, the mapping is reported apart \z
      and goes with the last reference", function()
    local path = path_of "big.safetensors"
    assert(neap.save(path, { big = neap.ones(1 << 20), small = neap.ones(3) }))
    settle()
    local before = neap.memory()
    local tensors = assert(neap.load(path, { map = "r" }))
    local big = tensors.big
    local during = neap.memory()
    assert.are.equal(before.held, during.held)
    assert.is_true(during.mapped - before.mapped >= 4 << 20)
    assert.is_true(tostring(during):find("mapped", 1, true) ~= nil)
    tensors = nil -- luacheck: ignore 311
    settle()
    assert.are.equal(1, big:at(1 << 20))
    assert.are.equal(during.mapped, neap.memory().mapped)
    local part = big:narrow(1, 5, 10)
    big = nil -- luacheck: ignore 311
    settle()
    assert.are.equal(during.mapped, neap.memory().mapped)
    assert.are.equal(10, part:n_element())
    part = nil -- luacheck: ignore 311
    settle()
    assert.are.equal(before.mapped, neap.memory().mapped)
  end)

  it("mapped tensors shared into a workspace are the net's parameters: the net \z
      runs from the file", function()
    local path, w, b = write_parameters()
    local net, ws <close> = forward_net(), neap.workspace { store = false }
    local plain <close> = neap.workspace { store = false }
    plain:init(net)
    plain:feed("w", w)
    plain:feed("b", b)
    for name, t in pairs((assert(neap.load(path, { map = "r" })))) do
      ws:feed(name, t, { share = true })
    end
    settle()
    local held = neap.memory().held
    ws:init(net)
    assert.are.equal(held, neap.memory().held) -- no second copy of the parameters
    local x = { x = neap.randn { 6, 5 } }
    assert.are.equal(plain:run(net, x).y:hash(), ws:run(net, x).y:hash())
    for _, row in ipairs(ws:blobs()) do
      if row.name == "w" then assert.are.equal("parameters", row.region) end
    end
    local loaded <close> = neap.workspace { store = false }
    assert(loaded:load(path, { map = "r" }))
    assert.are.equal(plain:fetch("y"):hash(), loaded:run(net, x).y:hash())
  end)

  it("writing to a read-only mapping is an error that names op, line, blob and the way out; \z
      nothing has changed", function()
    local path, w = write_parameters()
    local bytes = read_file(path)
    local t = assert(neap.load(path, { map = "r" })).w
    raises("a file mapped for reading", t.fill_, t, 0)
    raises("a file mapped for reading", t.set, t, 1, 1, 1)
    local net, ws <close> = training_net(), neap.workspace { store = false }
    assert(ws:load(path, { map = "r" }))
    ws:init(net)
    local err = raises("Sgd \"sgd_1\": writes \"w\", whose bytes are read-only", ws.run, ws, net,
      feeds())
    assert.are.equal("w", err.blob)
    assert.is_truthy(err.line:find "12_saving_spec.lua:%d")
    assert.is_truthy(err.hint:find "map = \"c\"")
    assert.is_true(ws:fetch("w"):equal(w))
    assert.are.equal(bytes, read_file(path))
    ws:feed("w", w) -- a copy takes the mapping's place
    ws:run(net, feeds())
    assert.is_false(ws:fetch("w"):equal(w))
    assert.are.equal(bytes, read_file(path))
  end)

  it("copy on write trains the mapped parameters and leaves the file unchanged", function()
    local path, w, b = write_parameters()
    local bytes = read_file(path)
    local net, ws <close> = training_net(), neap.workspace { store = false }
    local plain <close> = neap.workspace { store = false }
    assert(ws:load(path, { map = "c" }))
    plain:init(net)
    plain:feed("w", w)
    plain:feed("b", b)
    for _ = 1, 3 do
      assert.are.equal(plain:run(net, feeds()).loss:hash(), ws:run(net, feeds()).loss:hash())
    end
    assert.are.equal(plain:fetch("w"):hash(), ws:fetch("w"):hash())
    assert.is_false(ws:fetch("w"):equal(w))
    assert.are.equal(bytes, read_file(path))
    assert(ws:save(path_of "after.safetensors")) -- mapped parameters are part of checkpoints
    assert.are.equal(ws:fetch("w"):hash(), assert(neap.load(path_of "after.safetensors")).w:hash())
  end)

  it("a file may be replaced by rename while it is mapped: the mapping \z
      keeps the old bytes", function()
    local path, w = write_parameters()
    local t = assert(neap.load(path, { map = "r" })).w
    assert(neap.save(path, { w = neap.zeros(4, 5) }))
    assert.is_true(t:equal(w))
    assert.is_true(assert(neap.load(path)).w:equal(neap.zeros(4, 5)))
  end)

  it("a file whose tensors are not those of its net is refused, and one without a net", function()
    local path = folder .. "/model.safetensors"
    assert(neap.export(neap.nn.Sequential { input = { 3 }, neap.nn.Linear { 3, 2 } }, path))
    local whole = read_file(path)
    assert.is_truthy(neap.import(path))
    for why, change in pairs {
      ['has no tensor "linear1.weight", which its net declares'] = { '"linear1.weight"',
        '"linear1.weighs"' },
      ['tensor "linear1.weight" is f32 (3,2), its net declares f32 (2,3)'] = { "[2,3]", "[3,2]" },
      ["its net: net text, line 5"] = { "= FC(", "= FX(" },
      ["has no net in its metadata"] = { '"neap.net"', '"neap.not"' },
    } do
      local from, to = whole:find(change[1], 1, true)
      write_file(path, whole:sub(1, from - 1) .. change[2] .. whole:sub(to + 1))
      local f, message, code = neap.import(path)
      assert.is_nil(f)
      assert.are.equal("data", code)
      assert.is_truthy(message:find(why, 1, true), message)
    end
  end)

  it("a truncated file is refused when it is mapped or loaded, at every length; the \z
      workspace is as before", function()
    local path = write_parameters()
    local bytes, cut = read_file(path), path_of "cut.safetensors"
    local ws <close> = neap.workspace { store = false }
    ws:feed("w", neap.ones(4, 5))
    for n = 0, #bytes - 1, 7 do
      write_file(cut, bytes:sub(1, n))
      for _, o in ipairs { {}, { map = "r" }, { map = "c" } } do
        local t, message, code = neap.load(cut, o)
        assert.is_nil(t, n .. " bytes were taken")
        assert.is_truthy(message:find(cut, 1, true))
        assert.is_true(code == "data" or code == "io", code)
        assert.is_nil((ws:load(cut, o)))
      end
    end
    assert.is_true(ws:fetch("w"):equal(neap.ones(4, 5)))
    assert.is_false(ws:has "b")
  end)

  it("what lies in a segment can't be mapped, and slips in the options are named", function()
    local path = write_parameters()
    local net, ws <close> = forward_net(), neap.workspace { store = false }
    ws:init(net)
    raises("segment of the parameters", ws.load, ws, path, { map = "r" })
    raises("did you mean \"map\"?", neap.load, path, { mp = "r" })
    raises("\"r\" (read-only) or \"c\"", neap.load, path, { map = "rw" })
  end)

  -- ---- checkpoints ------------------------------------------------------------------------------

  it("a checkpoint is written beside the old one, synced and renamed; nothing else is \z
      left in the folder", function()
    os.execute("rm -f '" .. folder .. "'/*")
    local net, ws <close> = training_net(), neap.workspace { seed = 4, store = false }
    ws:run(net, feeds())
    local path = path_of "c.safetensors"
    assert(ws:save(path))
    local first = read_file(path)
    ws:run(net, feeds())
    assert(ws:save(path))
    assert.are_not.equal(first, read_file(path))
    assert.are.equal("c.safetensors", listing())
    if not os.execute "command -v strace >/dev/null 2>&1" then
      return pending "strace is not installed"
    end
    local script = path_of "s.lua"
    write_file(script, ("assert(require'neap'.save(%q, {x = require'neap'.ones(4)}))"):format(path))
    local traced = "openat,fsync,rename,renameat,renameat2"
    local pipe = assert(io.popen(("NEAP_DB=off strace -f -e trace=%s '%s' run '%s' 2>&1"):format(
      traced, program, script)))
    local calls = pipe:read "a"
    pipe:close()
    local opened = calls:find "c%.safetensors%.%d+%-0%.tmp\""
    local synced, renamed = calls:find "fsync%(", calls:find "rename"
    assert.is_true(
      opened < synced and synced < renamed and calls:find("fsync(", renamed, true) ~= nil, calls)
  end)

  it("kill -9 in the middle of writing leaves a whole file, old or new, at any moment", function()
    local path, script, go = path_of "killed.safetensors", path_of "writer.lua", path_of "go"
    write_file(script, ([[
      local neap = require "neap"
      local path, go = %q, %q
      for step = 1, 1e9 do
        local t = neap.full { 1 << 19, value = step }
        assert(neap.save(path, { a = t, b = t, c = t }, { meta = { step = tostring(step) } }))
        if step == 1 then local f = io.open(go, "w") f:close() end
      end]]):format(path, go))
    local seen = {}
    for round = 1, 8 do
      os.remove(go)
      local pipe = assert(io.popen(
        ("NEAP_DB=off exec '%s' run '%s' >/dev/null 2>&1 & echo $!"):format(program, script)))
      local pid = assert(math.tointeger(tonumber(pipe:read "l")))
      pipe:close()
      local deadline = core.clock() + 60
      while not read_file(go) and core.clock() < deadline do os.execute "sleep 0.02" end
      os.execute(("sleep 0.0%d; kill -9 %d"):format(round, pid))
      local tensors, meta = assert(neap.load(path))
      local step = assert(tonumber(meta.step))
      for _, name in ipairs { "a", "b", "c" } do
        local stats = tensors[name]:stats()
        assert.is_true(stats.min == step and stats.max == step, name .. " is not of step " .. step)
      end
      seen[#seen + 1] = step
    end
    assert.are.equal(8, #seen)
    assert(neap.save(path, { a = neap.ones(2) }))
    -- what the killed ones had begun is gone
    assert.is_falsy(listing():find("tmp", 1, true), listing())
  end)

  it("a full disk gives nil, message and code, leaves the old file, and \z
      the process lives", function()
    os.execute("rm -f '" .. folder .. "'/*")
    local path, script = path_of "full.safetensors", path_of "full.lua"
    assert(neap.save(path, { a = neap.ones(8) }))
    local old = read_file(path)
    write_file(script, ([[
      local neap = require "neap"
      local ws = neap.workspace { store = false }
      local net = neap.net "n"
      net:FC({ net:input("x", { 1, 1000 }), net:param("w", { 1000, 1000 }) }, "y")
      ws:init(net)
      local ok, message, code = ws:save(%q)
      print(ok, code, message)
      print(neap.save(%q, { a = neap.ones(1 << 20) }))
      print(neap.export(net, %q, { workspace = ws }))
      print "alive"]]):format(path, path, path))
    local pipe = assert(
      io.popen(("ulimit -f 100; NEAP_DB=off '%s' run '%s' 2>&1"):format(program, script)))
    local out = pipe:read "a"
    pipe:close()
    assert.is_truthy(out:find("nil\tio\t" .. path, 1, true), out)
    assert.are.equal(3, select(2, out:gsub("File too large", "")), out)
    assert.is_truthy(out:find "alive\n$", out)
    assert.are.equal(old, read_file(path))
    assert.are.equal("full.lua full.safetensors", listing())
  end)
end)

describe("string blobs", function()
  local neap = require "neap"
  local raises = require("support").raises
  local words = {
    plain = "some words",
    empty = "",
    bytes = "a\0b\255\n\"{}",
    long = ("x"):rep(100000),
    ["in/scope"] = "é",
  }
  local function filled(path)
    local ws <close> = neap.workspace { seed = 1, store = false }
    local net = neap.net "n"
    net:param("w", { 3 }, 2)
    net:Copy("w", "y")
    ws:init(net)
    for name, text in pairs(words) do ws:feed(name, text) end
    assert(ws:save(path))
  end

  it("are saved with the parameters and come back byte for byte, copied or mapped", function()
    local path = os.tmpname() .. ".safetensors"
    local _ <close> = setmetatable({}, { __close = function() os.remove(path) end })
    filled(path)
    for _, map in ipairs { false, "r" } do
      local ws <close> = neap.workspace { store = false }
      ws:feed("plain", "what was there before")
      assert(ws:load(path, map and { map = map } or nil))
      for name, text in pairs(words) do assert.are.equal(text, ws:fetch(name), name) end
      assert.are.same({ 2, 2, 2 }, ws:fetch("w"):totable())
    end
  end)

  it("take the place of strings only, and a file that doesn't fit changes nothing", function()
    local path = os.tmpname() .. ".safetensors"
    local _ <close> = setmetatable({}, { __close = function() os.remove(path) end })
    filled(path)
    local ws <close> = neap.workspace { store = false }
    ws:feed("empty", "before")
    ws:feed("plain", neap.tensor { 1 })
    raises("the file has a string, the blob holds a tensor", ws.load, ws, path)
    assert.are.equal("before", ws:fetch "empty")
    assert.is_false(ws:has "w")
    local other <close> = neap.workspace { store = false }
    other:feed("w", "a string")
    raises("the file has a tensor, the blob holds a string", other.load, other, path)
    assert.are.equal("a string", other:fetch "w")
    -- A file that lists as a string what is none.
    assert(neap.save(path, { v = neap.tensor { 1, 2 } }, { meta = { ["neap.strings"] = "v\n" } }))
    local _, wrong = ws:load(path)
    assert.is_truthy(wrong:find("is no list of bytes", 1, true), wrong)
    -- A seed that is no number as Neap writes it.
    for _, seed in ipairs { "-1", " 5", "+5", "5x", "" } do
      assert(neap.save(path, { v = neap.tensor { 1, 2 } }, { meta = { ["neap.seed"] = seed } }))
      _, wrong = ws:load(path)
      assert.is_truthy(wrong:find("expected a whole number", 1, true), wrong)
    end
    raises("holds a string", function() other:run_op("Relu", "w", "y") end)
  end)
end)
