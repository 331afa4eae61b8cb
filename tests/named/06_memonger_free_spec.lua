-- memonger: blobs released when they have been used, and estimates.
local neap = require "neap"
local M = neap.memonger
local kit = require "memonger_kit"
local numbers, bits, chain = kit.numbers, kit.bits, kit.chain

local function frees_of(net)
  local freed, at, used_after = {}, {}, {}
  for _, op in ipairs(net:_ops()) do
    if op.type == "Free" then
      freed[#freed + 1] = op.inputs[1]
      at[op.inputs[1]] = true
    else
      for _, name in ipairs(op.inputs) do
        if at[name] then used_after[name] = true end
      end
    end
  end
  table.sort(freed)
  return freed, used_after
end

describe("release_blobs_when_used", function()
  local function net_of()
    local net = neap.net "release"
    net:input("data", { 4 })
    net:Copy("data", "x")
    net:Copy("x", "y")
    net:Copy("y", "z")
    net:Add({ "x", "z" }, "u")
    net:Alias("u", "alias")
    net:Relu("alias", "out")
    net:outputs { "out" }
    return net
  end
  it("frees each blob once, after its last reader: x, y, z, not the output, \z
      not what is aliased", function()
    local net = net_of()
    local released, names = M.release_blobs_when_used(net)
    local freed, used_after = frees_of(released)
    assert.are.same({ "x", "y", "z" }, freed)
    assert.are.same({}, used_after)
    assert.are.equal(3, #names)
    local again = M.release_blobs_when_used(released)
    assert.are.same({ "x", "y", "z" }, frees_of(again))
    local a, b = bits(net, { policy = "none" }), bits(released, { policy = "offset" })
    assert.are.equal(a.out, b.out)
  end)
  it("leaves what is kept and what is not selected", function()
    assert.are.same({ "x", "z" }, (frees_of(M.release_blobs_when_used(net_of(), { "y" }))))
    assert.are.same({ "y" },
      (frees_of(M.release_blobs_when_used(net_of(), nil, function(name) return name == "y" end))))
    local first = neap.net_from "net f\n\z
      a = Constant() { shape = {4} }\n\z
      b = Relu(a)\n\z
      out = Tanh(b)\n\z
      outputs out\n"
    assert.are.same({ "a", "b" }, (frees_of(M.release_blobs_when_used(first))))
    assert.are.same({ "b" }, (frees_of(M.release_blobs_when_used(first, { "a" }))))
  end)
  it("takes nobody's name: a net that frees already, and ops that are called so", function()
    local net = neap.net_from "net f\n\z
      state m f32 (2) = Constant\n\z
      v2 = Neg(m)\n\z
      v6 = LogSoftmax(v2)\n\z
      Free(v6)\n\z
      y = Relu(m)\n\z
      z = Sin(y) as free_2\n\z
      outputs z\n"
    local released, names = M.release_blobs_when_used(net)
    assert.are.same({ "v2", "y" }, names)
    assert.are.same({ "v2", "v6", "y" }, (frees_of(released)))
    assert.are.equal(bits(net, { policy = "none" }).z, bits(released, { policy = "pool" }).z)
  end)
  it("works on a backward pass", function()
    local net = chain(3)
    local released, names = M.release_blobs_when_used(net)
    assert.is_true(#names > 4)
    local a, b = bits(net, { policy = "none" }), bits(released, { policy = "offset" })
    assert.are.equal(a.loss, b.loss)
    assert.are.equal(a.fc1_w_grad, b.fc1_w_grad)
  end)
end)

describe("released blobs", function()
  it("really leave the pool: nothing is held at the end, and less at once than \z
      all that was made", function()
    local net = chain(6, { train = false })
    local released, names = M.release_blobs_when_used(net)
    assert.is_true(#names >= 5)
    local ws <close> = neap.workspace { seed = 1, store = false }
    ws:init(released)
    local program <close> = ws:compile(released, {
      policy = "pool", in_place = false, engine = "ref", store = false,
    })
    for i, input in ipairs(net:inputs()) do
      ws:feed(input.name, numbers(input.shape, input.dtype, 0.3 * i))
    end
    program:run()
    local pool, freed_at = program:pool(), 0
    for i, op in ipairs(program.plan:_ops()) do
      if op.type == "Free" and i > 1 and i < #pool.curve then
        freed_at = freed_at + 1
        assert.is_true(pool.curve[i] < M.estimate_memory_usage(net).total_bytes)
      end
    end
    assert.is_true(freed_at >= 4)
    assert.are.equal(0, pool.used_bytes)
    assert.are.equal(bits(net, { policy = "none" }).loss, bits(released, { policy = "pool" }).loss)
  end)
end)

describe("an estimate", function()
  it("counts what ops make and what Free gives back, and changes nothing", function()
    local net = neap.net "estimate"
    net:input("x", { 16 })
    net:Relu("x", "a")
    net:Tanh("a", "b")
    net:Relu("b", "y")
    net:outputs { "y" }
    local before = net:text()
    local plain = M.estimate_memory_usage(net)
    assert.are.equal(3 * 64, plain.total_bytes)
    assert.are.equal(3 * 64, plain.high_water_bytes)
    local released = M.release_blobs_when_used(net)
    local freed = M.estimate_memory_usage(released)
    assert.are.equal(3 * 64, freed.total_bytes)
    assert.are.equal(2 * 64, freed.high_water_bytes)
    assert.are.equal("Relu", plain[1].type)
    assert.are.equal(128, plain[1].bytes)
    assert.are.equal(before, net:text())
    assert.are.equal(0, M.estimate_memory_usage(net, nil, "cpu:1").total_bytes)
    local big = M.estimate_memory_usage(net, { x = { 1 << 31 } })
    assert.are.equal(3 * (1 << 33), big.total_bytes)
  end)

  it("lists the types that make most first", function()
    local net = neap.net "types"
    net:input("x", { 1, 16 })
    net:outputs {
      net:Tanh(net:Relu(net:Tanh(net:Relu("x")))), net:Concat { "x", "x", "x" }, net:Exp "x",
    }
    local list, told = M.estimate_memory_usage(net), {}
    for i, row in ipairs(list) do told[i] = row.type .. " " .. row.bytes end
    assert.are.same({ "Concat 192", "Relu 128", "Tanh 128", "Exp 64" }, told)
  end)
end)
