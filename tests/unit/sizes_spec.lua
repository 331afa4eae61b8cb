--- Sizes beyond any machine, wherever a user can say one: each is refused where it is said, before
-- anything is built, allocated or run.
local neap = require "neap"
local support = require "support"
local raises = support.raises

local huge, M = 1 << 62, math.maxinteger
local too_large = "more than the 128.0 TiB that a tensor may have"

local function plan(text) return neap.net_from("net n\n" .. text):plan { store = false } end

describe("a size that nothing can have", function()
  it("is refused where an op would make it", function()
    raises({ 'Expand "y"', too_large }, plan,
      "input x f32 (1)\ny = Expand(x) { shape = {4611686018427387904,4} }\noutputs y\n")
    raises({ 'Constant "y"', too_large }, plan,
      "y = Constant() { shape = {4294967296,4294967296} }\noutputs y\n")
    raises('Softmax "y": axis = 4294967297', plan,
      "input x f32 (2,3)\ny = Softmax(x) { axis = 4294967296 }\noutputs y\n")
    raises('Split "a": sizes', plan, "input x f32 (2,3)\n\z
      a, b, c = Split(x) { axis = 1, sizes = {9223372036854775807,9223372036854775807,5} }\n")
    local net = neap.net "n"
    local x = net:input("x", { 2, 3 })
    raises(too_large, net.Expand, net, x, "y", { shape = { huge, 2, 3 } })
    raises("axis = 4294967297", net.Softmax, net, x, "y", { axis = (1 << 32) + 1 })
    raises("axis = -9223372036854775808", net.Softmax, net, x, "y", { axis = math.mininteger })
  end)

  it("is refused where a window would reach so far", function()
    for _, dilation in ipairs { 1 << 20, 3 } do
      raises({ "Conv", "needs at least as many, got 5 in x (1,1,5,5)" }, plan,
        ([[input x f32 (1,1,5,5)
param w f32 (1,1,%d,1)
y = Conv(x, w) { dilation = {%d,1} }
]]):format(1 << 44, dilation))
    end
  end)

  it("is refused in a declaration", function()
    local net = neap.net "n"
    for _, shape in ipairs { { huge, 4 }, { 0, huge }, { 1 << 46 } } do
      raises(too_large, net.input, net, "x", shape)
      raises(too_large, net.param, net, "w", shape, { "Xavier" })
    end
    raises(too_large, plan, "input x f32 (0,9223372036854775807)\ny = Relu(x)\n")
  end)

  it("is refused by every function of tensors", function()
    local one, none = neap.zeros { 1 }, neap.zeros { 1, 0 }
    for _, name in ipairs { "rand", "randn" } do
      raises("shape = 4.61168602e+18 is out of range, expected 0 to", neap[name], { huge, 4 })
      raises(too_large, neap[name], { 1 << 46 })
    end
    for _, name in ipairs { "zeros", "ones", "empty" } do
      raises(too_large, neap[name], { huge, 4 })
      raises(too_large, neap[name], { 0, huge })
    end
    raises(too_large, neap.full, { huge, 4, value = 1 })
    raises(too_large, neap.eye, huge)
    raises(too_large, neap.linspace, 0, 1, huge)
    raises("has no end", neap.arange, huge)
    raises(too_large, one.expand, one, huge, 4)
    raises(too_large, none.reshape, none, huge, 4, 0)
    raises("cannot be seen", one.reshape, one, huge, 4)
    raises("narrow", one.narrow, one, 1, 1, M)
  end)

  it("moves a diagonal out of its matrix, or makes one of no such size", function()
    local x, line = neap.ones(3, 4), neap.ones(3)
    for _, offset in ipairs { 4, huge, M, -3, -huge, -M, math.mininteger } do
      assert.are.same({ 0 }, x:diagonal { offset = offset }.shape)
    end
    for _, offset in ipairs { huge, M, -huge, -M } do
      raises("is out of range", line.diag, line, { offset = offset })
    end
    raises("offset expects an integer of at least", line.diag, line, { offset = math.mininteger })
  end)

  it("is refused in an option, with what was expected", function()
    local net = neap.net_from "net n\ninput x f32 (2)\ny = Relu(x)\noutputs y\n"
    for _, bytes in ipairs {
      "99999999TiB", "1e300", huge, math.mininteger, -1, 0 / 0, math.huge,
    } do
      for _, name in ipairs { "budget", "total", "soft" } do
        raises({ name .. " expects bytes", tostring(bytes) }, net.plan, net,
          { [name] = bytes, store = false })
      end
      raises({ "expects bytes", tostring(bytes) }, neap.bank, { "b", bytes = bytes })
    end
    for _, n in ipairs { 0, -1, 4097, 1 << 32, (1 << 32) + 1, huge, M, math.mininteger, 1.5 } do
      raises({ "threads expects", tostring(n) }, net.plan, net, { threads = n, store = false })
      raises({ "expects", tostring(n) }, neap.threads, n)
    end
  end)

  it("is refused where C counts by 32 bits, and is not another number there", function()
    local net = neap.net "n"
    local x = net:Relu(net:input("x", { 2, 3 }), "y")
    net:outputs { net:Sum(x, "s") }
    raises("keep_last expects an integer from -2147483648 to 2147483647, got 4294967298",
      require("neap.memonger").share_grad_blobs, net, { "s" }, nil, "",
      { share_activations = true, keep_last = (1 << 32) + 2 })
    local ws <close> = neap.workspace { store = false }
    ws:feed("x", neap.ones(2, 3))
    raises("instances expects an integer from 1 to 2147483647, got 4294967297", ws.run_steps, ws, {
      name = "step",
      nets = { net },
      iterations = 1,
      concurrent = true,
      create_workspace = true,
      instances = (1 << 32) + 1,
    })
  end)

  it("makes no threads that nobody has use for", function()
    local out, code = support.shell(("NEAP_DB=off %s run -e '%s' 2>&1"):format(support.program, [[
      local net = require "neap".net_from "net n\ninput x f32 (2)\ny = Relu(x)\noutputs y\n"
      local ws = neap.workspace { store = false }
      ws:run(net, { x = neap.ones(2) }, { threads = 4096 })
      for line in io.lines "/proc/self/status" do
        if line:find "^Threads" then print(line:match "%d+") end
      end]]))
    assert.equal(0, code, out)
    assert.is_true(tonumber(out) <= 1024, out)
  end)

  it("is refused in the header of a file", function()
    local path = os.tmpname()
    local header =
      "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 4611686018427387904, 4), }\n"
    support.write_file(path .. ".npy", "\x93NUMPY\1\0" .. string.pack("<s2", header))
    header = '{"x":{"dtype":"F32","shape":[0,4611686018427387904,4],"data_offsets":[0,0]}}'
    support.write_file(path .. ".safetensors", string.pack("<s8", header))
    for _, kind in ipairs { ".npy", ".safetensors" } do
      local tensor, message = neap.load(path .. kind)
      assert.is_nil(tensor)
      assert.matches(too_large, message, 1, true)
      os.remove(path .. kind)
    end
    os.remove(path)
  end)
end)

describe("iterations of a loop", function()
  local loop = "param x f32 (2)\n\z
    input l f32 ()\n\z
    subnet c\n input p\n s = Sum(p)\n q = Lt(s, l)\n takes p, l\n gives q\n\z
    end\n"
    .. "subnet b\n input p\n r = Tanh(p)\n s = Neg(p)\n takes p, l\n gives r, s\nend\n"
    .. "y, rows = While(x, l) { cond_net = c, body_net = b, n_state = 1, max = %d }\n"

  it("are refused where their rows, or what they keep for the backward, are too many", function()
    local limits = { 1 << 45, 1 << 47, huge, M }
    for _, most in ipairs(limits) do
      raises("While", plan, loop:format(most) .. "outputs rows\n")
      raises("While", plan, loop:format(most) .. "z = Sum(y)\ng = Gradient(z, x)\noutputs z\n")
    end
    assert.is_true(
      plan(loop:format(8) .. "z = Sum(y)\ng = Gradient(z, x)\noutputs z\n").arena_bytes > 0)
  end)
end)

describe("NEAP_NUM_THREADS", function()
  local function threads(value)
    local out, code = support.shell(
      ("NEAP_DB=off NEAP_NUM_THREADS='%s' %s run -e 'print(neap.threads())' 2>&1"):format(value,
        support.program))
    assert.equal(0, code, out)
    return tonumber(out:match "(%d+)%s*$"), out:match "^neap: [^\n]+" or ""
  end

  it("is held to what may be of use, and says so", function()
    for _, value in ipairs { "100000", "4294967297", "99999999999999999999" } do
      local n, said = threads(value)
      assert.is_true(n >= 1 and n <= 1024, n)
      assert.matches("more threads than Neap takes here: %d+ are taken", said)
    end
    local n, said = threads "2"
    assert.equal(2, n)
    assert.equal("", said)
  end)

  it("is ignored, and that is said, where it is no number of threads", function()
    for _, value in ipairs { "abc", "-3", "0", "2x", "1e3" } do
      local n, said = threads(value)
      assert.is_true(n >= 1 and n <= 1024, n)
      assert.matches("NEAP_NUM_THREADS = " .. value .. " is no number of threads: it is ignored",
        said, 1, true)
    end
  end)
end)
