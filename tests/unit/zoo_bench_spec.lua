-- `neap bench --zoo`: nets of the zoo at their full size, here small ones; the figures of each
-- against those that a plan and a check of the same net say; what fails is told in its row.
local bench = require "neap.bench.zoo"
local cjson = require "cjson"
local neap = require "neap"
local netfile = require "neap.net.file"
local support = require "support"
local shell, program = support.shell, support.program

--- What `neap bench --zoo` with more words prints, and its exit code.
local function zoo(words)
  return shell(("NEAP_DB=off %s bench --zoo %s 2>&1"):format(program, words))
end

describe("bench --zoo", function()
  it("trains nets one after the other and says what each held", function()
    local out, code = zoo "lenet lstm dcgan --json"
    assert.are.equal(0, code, out)
    local figures = cjson.decode(out)
    assert.are.equal(3, figures.n_net)
    for _, name in ipairs { "n_good", "n_proved", "n_same" } do
      assert.are.equal(3, figures[name], name)
    end
    for i, name in ipairs { "lenet", "lstm", "dcgan" } do
      local row = figures.rows[i]
      assert.are.equal(name, row.net)
      assert.are.equal(2, row.batch)
      assert.are.equal(netfile.published(name), row.parameters)
      assert.are.equal(row.published, row.parameters)

      -- The plan of the same net, made here.
      local net = netfile.build(netfile.load(name), { train = true, batch = 2 })
      local plan = net:plan { store = false }
      assert.are.equal(plan.arena_bytes, row.arena_bytes)
      assert.are.equal(plan.lower_bound_bytes, row.lower_bound_bytes)
      assert.are.equal(plan.baseline_bytes, row.baseline_bytes)
      assert.are.equal(net:plan { store = false, policy = "none" }.total_bytes, row.unplanned_bytes)
      assert.are.equal(plan.total_bytes, row.forecast_bytes)
      assert.are.equal(row.forecast_bytes, row.held_bytes)
      assert.is_true(row.proved and row.same and row.good)
      assert.is_true(row.step_ms > 0 and row.resident_peak_bytes > row.held_bytes)
      assert.are.equal(0, row.allocations_per_step)
    end
  end)

  it("prints a line a net within 100 columns, and what they come to", function()
    local out, code = zoo "mlp gru"
    assert.are.equal(0, code)
    for line in out:gmatch "[^\n]+" do assert.is_true(#line <= 100, line) end
    assert.matches("\nmlp:2 +545810= .* same\ngru:2 +822849= .* same\n", out)
    assert.matches("2 nets: 2 trained as they should, 2 in the least arena, 2 to the bits of the \z
      unplanned run", out)
  end)

  it("goes on behind a net that fails, and ends with 1", function()
    local out, code = zoo "vgg_a mlp --total 64MiB --json"
    assert.are.equal(1, code)
    local figures = cjson.decode(out)
    assert.matches("total", figures.rows[1].error)
    assert.is_false(figures.rows[1].good)
    assert.is_true(figures.rows[2].good and figures.rows[2].same)
    assert.are.equal(1, figures.n_good)
    local text
    text, code = zoo "vgg_a mlp --total 64MiB"
    assert.are.equal(1, code)
    assert.matches("\nvgg_a +[^\n]*total[^\n]*\nmlp:2 ", text)
  end)

  it("takes one row where two do not fit, and compares no bits above the limit", function()
    local function total(batch, options)
      options.store = false
      local net = netfile.build(netfile.load "lenet", { train = true, batch = batch })
      return net:plan(options).total_bytes
    end
    local one, two = total(1, {}), total(2, {})
    assert.is_true(one < two and one < total(1, { policy = "none" }))
    local row = bench.measure("lenet", { memory = { total = one, recompute = false } })
    assert.is_nil(row.error)
    assert.are.equal(1, row.batch)
    assert.is_nil(row.same)
    assert.is_true(row.good and row.held_bytes <= one)
    row = bench.measure("lenet", { memory = { total = one // 2 } })
    assert.matches("total", row.error)
  end)

  it("says that a net has other parameters than it should", function()
    local real = netfile.published
    netfile.published = function() return 7 end
    local good, row = pcall(bench.measure, "mlp", {})
    netfile.published = real
    assert.is_true(good)
    assert.is_false(row.good)
    assert.matches("mlp:2 +545810! ", bench.line(row))
  end)

  it("refuses what it does not read, and a net that is not there before any trains", function()
    for _, words in ipairs { "--infer", "--seconds 1", "--memory" } do
      assert.are.equal(2, select(2, zoo("mlp " .. words)), words)
    end
    local out, code = zoo "mlp lennet"
    assert.are.equal(1, code)
    assert.matches("lenet", out)
    assert.is_nil(out:find("545810", 1, true))
  end)

  it("takes all nets of the zoo where none is named", function()
    local seen, measure = {}, bench.measure
    bench.measure = function(name)
      seen[#seen + 1] = name
      return { net = name, good = true }
    end
    local good, figures = pcall(bench.run, {})
    bench.measure = measure
    assert.is_true(good)
    assert.are.same(neap.zoo.names(), seen)
    assert.are.equal(#seen, figures.n_good)
  end)
end)
