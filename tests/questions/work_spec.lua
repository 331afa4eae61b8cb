-- Questions of work: how many flops and bytes each op has, counted by hand.
local neap = require "neap"

local function by_type(plan)
  local found = {}
  for _, o in ipairs(plan:_ops()) do found[o.type] = o end
  return found
end

describe("how much does an op compute, and how much does it move?", function()
  it("is what one counts by hand", function()
    local net = neap.net "hand"
    net:input("x", { 4, 3, 8, 8 })
    net:param("w", { 5, 3, 3, 3 })
    net:param("v", { 7, 180 })
    net:param("b", { 7 })
    net:Conv({ "x", "w" }, "c")
    net:MaxPool("c", "p", { kernel = { 2, 2 }, stride = { 1, 1 } })
    net:MaxPool("p", "q", { kernel = { 2, 2 }, stride = { 1, 1 } })
    net:MaxPool("q", "r", { kernel = { 2, 2 }, stride = { 2, 2 } })
    net:Flatten("c", "f")
    net:FC({ "f", "v", "b" }, "y")
    net:outputs { net:Sigmoid("y", "s"), "r" }
    local ops = by_type(net:plan {
      store = false, engine = "ref", layouts = "plain", fuse = false, in_place = false,
    })
    local x, w, c = 4 * 3 * 8 * 8, 5 * 3 * 3 * 3, 4 * 5 * 6 * 6
    assert.are.equal(2 * c * 3 * 3 * 3, ops.Conv.flops)
    assert.are.equal(4 * (x + w), ops.Conv.read_bytes)
    assert.are.equal(4 * c, ops.Conv.write_bytes)
    assert.are.equal(0, ops.Flatten.read_bytes + ops.Flatten.write_bytes) -- a view
    assert.are.equal(2 * 4 * 7 * 180, ops.FC.flops)
    assert.are.equal(4 * (c + 7 * 180 + 7), ops.FC.read_bytes)
    assert.are.equal(4 * 4 * 7, ops.FC.write_bytes)
    assert.are.equal(4 * 4 * 7, ops.Sigmoid.read_bytes)
    assert.are.equal(4 * 4 * 7, ops.Sigmoid.write_bytes)
  end)

  it("is that of all iterations of a loop", function()
    local T, N, C, H = 6, 3, 4, 5
    local function cell(s, x, h)
      return s:Tanh { s:Add { s:FC { x, "w", "b" }, s:FC { h, "u", "c" } } }
    end
    local net = neap.net "looped"
    net:param("w", { H, C }, { "Xavier" })
    net:param("u", { H, H }, { "Xavier" })
    net:param("b", { H })
    net:param("c", { H })
    net:param("one", {}, { "Constant", value = 1 })
    local x, h0 = net:input("x", { T, N, C }), net:param("h0", { N, H })
    local _, all = net:Recurrent { seq = { x }, init = { h0 },
      step = function(s, h, row)
        local new = cell(s, row, h)
        return new, new
      end }
    local plan = net:plan { store = false }
    local of_body = T * (2 * N * H * C + 2 * N * H * H)
    assert.are.equal(of_body, by_type(plan).Recurrent.flops)
    assert.are.equal(of_body, plan.flops)

    -- its backward multiplies for the rows, which have no gradient here, not at all, and twice for
    -- each product else
    net:gradient(net:Sum { all })
    plan = net:plan { store = false }
    local twice = T * (2 * N * H * C + 2 * 2 * N * H * H)
    assert.is_true(by_type(plan).LoopGradient.flops >= twice)
    assert.is_true(plan.flops >= of_body + twice)
  end)

  it("is something for every op of a training step that is no view", function()
    for _, name in ipairs { "lenet", "gpt", "resnet18c" } do
      local netfile = require "neap.net.file"
      local plan = netfile.plan(netfile.load(name .. ":2"), { train = true }, { store = false })
      for _, o in ipairs(plan:_ops()) do
        local view = o.type == "Flatten" or o.type == "Reshape" or o.type == "Alias"
          or o.type == "Squeeze" or o.type == "Unsqueeze" or o.type == "StopGradient"
        assert.is_true(view or o.write_bytes > 0, name .. ": " .. o.name .. " " .. o.type)
        assert.is_true(view or o.read_bytes > 0 or #o.inputs == 0, name .. ": " .. o.name)
      end
    end
  end)
end)
