-- A net that infers holds its weights once, as its kernels read them, and whoever asks for them
-- has them as they were.
local neap = require "neap"

local WIDTH, DEPTH = 512, 3
local BYTES = DEPTH * WIDTH * WIDTH * 9 * 4

--- Convolutions of WIDTH channels one behind another, in a workspace with weights of its own.
-- @return net, workspace
local function convolutions()
  local net = neap.net "packed"
  local x = net:input("x", { 1, WIDTH, 6, 6 })
  local ws = neap.workspace {}
  for i = 1, DEPTH do
    local w = net:declare("w" .. i, "parameter", { WIDTH, WIDTH, 3, 3 }, "f32", nil, true)
    x = net:Conv({ x, w }, i == DEPTH and "y" or "h" .. i, { pad = { 1, 1, 1, 1 } })
    ws:feed("w" .. i, neap.randn(WIDTH, WIDTH, 3, 3) / 50, { share = true })
  end
  net:outputs { "y" }
  return net, ws
end

--- Copies of the weights as they are, before anything has packed them.
local function copies(ws)
  local out = {}
  for i = 1, DEPTH do out[i] = ws:fetch("w" .. i) end
  return out
end

--- Bytes that the process holds more once f has run.
local function growth(f)
  collectgarbage()
  collectgarbage()
  local before = neap.memory().resident
  f()
  collectgarbage()
  return neap.memory().resident - before
end

--- Whether this build packs weights: the plan then has constants.
local function packs(net, ws)
  return ws:compile(net).plan.regions.constants >= BYTES
end

describe("weights that are packed", function()
  it("are in memory once, and come back as they were", function()
    local net, ws = convolutions()
    if not packs(net, ws) then return pending "no kernel here packs weights" end
    local x, wanted = neap.randn(1, WIDTH, 6, 6), copies(ws)
    local program, y
    local grown = growth(function()
      program = ws:compile(net)
      ws:feed("x", x)
      program:run()
      y = ws:fetch "y"
    end)
    assert.is_true(grown < BYTES / 2, ("%d bytes more, of %d packed"):format(grown, BYTES))
    for i = 1, DEPTH do assert.is_true(ws:fetch("w" .. i):equal(wanted[i])) end
    program:run()
    assert.is_true(ws:fetch "y":equal(y))
  end)

  it("may be asked for between runs, by name or by view, in any order", function()
    local net, ws = convolutions()
    local x, wanted = neap.randn(1, WIDTH, 6, 6), copies(ws)
    local y = ws:run(net, { x = x }).y
    local view = ws:view "w2"
    assert.is_true(ws:run(net, { x = x }).y:equal(y))
    assert.is_true(view:equal(wanted[2]))
    assert.equal(wanted[1][{ 3, 5, 2, 1 }], ws:fetch "w1"[{ 3, 5, 2, 1 }])
    assert.is_true(ws:run(net, { x = x }).y:equal(y))
  end)

  it("may be changed, and are packed anew", function()
    local net, ws = convolutions()
    local x, wanted = neap.randn(1, WIDTH, 6, 6), copies(ws)
    local y = ws:run(net, { x = x }).y
    ws:feed("w3", wanted[3] * 2)
    assert.is_true(ws:run(net, { x = x }).y:equal(y * 2))
    local view = ws:view "w3"
    view:copy_(view * 0.5)
    assert.is_true(ws:run(net, { x = x }).y:equal(y))
    for i = 1, DEPTH do assert.is_true(ws:fetch("w" .. i):equal(wanted[i])) end
  end)

  it("serve several programs and workspaces, and outlive the program that packed them", function()
    local net, ws = convolutions()
    local x, wanted = neap.randn(1, WIDTH, 6, 6), copies(ws)
    local program = ws:compile(net)
    ws:feed("x", x)
    program:run()
    local y = ws:fetch "y"
    assert.is_true(ws:child():run(net, { x = x }).y:equal(y))
    local two = neap.randn(2, WIDTH, 6, 6)
    two[{ 1 }]:copy_(x[{ 1 }])
    assert.is_true(ws:run(net, { x = two }).y[{ { 1, 1 } }]:close(y, { rtol = 1e-4, atol = 1e-4 }))
    local other = neap.workspace {}
    for i = 1, DEPTH do other:feed("w" .. i, ws:view("w" .. i), { share = true }) end
    assert.is_true(other:run(net, { x = x }).y:equal(y))
    program:close()
    collectgarbage()
    for i = 1, DEPTH do assert.is_true(ws:fetch("w" .. i):equal(wanted[i])) end
  end)

  it("are trained and saved as if they had never been away", function()
    local nn = neap.nn
    local model = nn.Sequential { input = { 64, 8, 8 }, nn.Conv2d { 64, 64, kernel = 3, pad = 1 },
      nn.Flatten(), nn.Linear { 4096, 10 } }
    local plain = nn.Sequential { input = { 64, 8, 8 }, nn.Conv2d { 64, 64, kernel = 3, pad = 1 },
      nn.Flatten(), nn.Linear { 4096, 10 } }
    plain:load_state_dict(model:state_dict())
    local x, y = neap.randn(8, 64, 8, 8), neap.zeros { 8, dtype = "i64" }
    local function trained(m, looks)
      local t = neap.trainer { model = m, loss = nn.CrossEntropyLoss(),
        optimizer = neap.optim.SGD { lr = 0.1 } }
      for _ = 1, 3 do
        if looks then t:predict(x) end
        t:step { x = x, y = y }
      end
      return m:state_dict()
    end
    local a, b = trained(model, true), trained(plain, false)
    for name, t in pairs(a) do assert.is_true(t:equal(b[name])) end
  end)
end)
