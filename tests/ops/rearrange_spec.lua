--- Ops that put elements elsewhere by one rule, and those that write a part of a tensor.
local core = require "neap.core"
local neap = require "neap"
local raises = require("support").raises

local row = neap.arange(1, 5) -- 1 2 3 4
local grid = neap.tensor { { 1, 2, 3 }, { 4, 5, 6 } }

describe("Pad", function()
  local function padded(mode, before, after)
    return row:pad({ pads = { before, after }, mode = mode }):totable()
  end
  it("mirrors, holds the edge and repeats, as far as is asked", function()
    assert.are.same({ 3, 2, 1, 2, 3, 4, 3 }, padded("reflect", 2, 1))
    assert.are.same({ 3, 4, 3, 2, 1, 2, 3, 4 }, padded("reflect", 4, 0))
    assert.are.same({ 1, 1, 1, 2, 3, 4, 4 }, padded("edge", 2, 1))
    assert.are.same({ 4, 1, 2, 3, 4, 1, 2, 3, 4, 1 }, padded("wrap", 1, 5))
    assert.are.same({ 0, 1, 2, 3, 4 }, padded("constant", 1, 0))
  end)
  it("takes away by negative pads, of x as it was", function()
    assert.are.same({ 2, 3 }, padded("constant", -1, -1))
    assert.are.same({}, padded("constant", -2, -2))
    assert.are.same({ 3, 4, 3, 2, 1, 2 }, padded("reflect", -2, 4))
    assert.are.same({ 3, 4, 1 }, padded("wrap", -2, 1))
    raises("pads take 5 from a dimension of 4 in x (4)", neap.pad, row, { pads = { -2, -3 } })
  end)
  it("speaks of the axes that are named", function()
    assert.are.same({ { 1, 2, 3, 9 }, { 4, 5, 6, 9 } },
      grid:pad({ pads = { 0, 1 }, axes = { -1 }, value = 9 }):totable())
    raises("pads expects 2 numbers, before and after for 1 dimensions, got 4", neap.pad, grid,
      { pads = { 0, 1, 0, 1 }, axes = { 2 } })
    raises("axes is out of range for 2 dimensions", neap.pad, grid,
      { pads = { 0, 1 }, axes = { 3 } })
  end)
  it("has nothing to show of nothing", function()
    raises("without elements in x (0,2)", neap.pad, neap.zeros(0, 2),
      { pads = { 1, 0, 0, 0 }, mode = "edge" })
    assert.are.same({ 0, 4 },
      neap.zeros(0, 2):pad({ pads = { 0, 1, 0, 1 }, mode = "edge" }).shape)
  end)
end)

describe("Flip", function()
  it("turns the dimensions that are named, or all", function()
    assert.are.same({ { 3, 2, 1 }, { 6, 5, 4 } }, grid:flip({ axes = { 2 } }):totable())
    assert.are.same({ { 6, 5, 4 }, { 3, 2, 1 } }, grid:flip():totable())
    raises("axes has -1, which is named twice", neap.flip, grid, { axes = { 2, -1 } })
    raises("axes has 3, out of range", neap.flip, grid, { axes = { 3 } })
  end)
end)

describe("Roll", function()
  it("goes round, by any number, along axes or through all", function()
    assert.are.same({ 4, 1, 2, 3 }, row:roll({ shifts = { 1 } }):totable())
    assert.are.same({ { 3, 1, 2 }, { 6, 4, 5 } },
      grid:roll({ shifts = { -2 }, axes = { 2 } }):totable())
    assert.are.same({ { 6, 1, 2 }, { 3, 4, 5 } }, grid:roll({ shifts = { 7 } }):totable())
    for _, shift in ipairs { math.mininteger, math.maxinteger } do
      local back = row:roll({ shifts = { shift } }):roll { shifts = { -(shift % 4) } }
      assert.are.same(row:totable(), back:totable())
    end
    raises("shifts expects one number for each of axes", neap.roll, grid, { shifts = { 1, 2 } })
  end)
end)

describe("Tile", function()
  it("repeats along each dimension", function()
    assert.are.same({ { 1, 2, 3, 1, 2, 3 }, { 4, 5, 6, 4, 5, 6 } },
      grid:tile({ repeats = { 1, 2 } }):totable())
    raises("repeats expects 2 numbers, one for each dimension of x, got 1", neap.tile, grid,
      { repeats = { 2 } })
    raises({ "Tile", "y" }, neap.tile, grid, { repeats = { 1e15 // 1 | 0, 1e15 // 1 | 0 } })
  end)
end)

describe("a triangle", function()
  it("keeps one side of a diagonal, and its bits", function()
    assert.are.same({ { 1, 0, 0 }, { 4, 5, 0 } }, grid:tril():totable())
    assert.are.same({ { 0, 2, 3 }, { 0, 0, 6 } }, grid:triu({ diagonal = 1 }):totable())
    for _, k in ipairs { math.maxinteger, math.mininteger } do
      local all, none = grid:tril { diagonal = k }, grid:triu { diagonal = k }
      if k < 0 then all, none = none, all end
      assert.are.same(grid:totable(), all:totable())
      assert.are.same(neap.zeros(2, 3):totable(), none:totable())
    end
    local hidden = neap.full { 2, 2, value = 0 / 0 }:tril():reshape(-1)
    assert.are.equal(0, hidden[2])
  end)
end)

describe("blocks of channels", function()
  it("come back by the other op, whatever the mode", function()
    local x = neap.arange(0, 2 * 8 * 3 * 2):reshape(2, 8, 3, 2)
    for _, mode in ipairs { "dcr", "crd" } do
      local o = { blocksize = 2, mode = mode }
      assert.is_true(x:depth_to_space(o):space_to_depth(o):equal(x))
    end
    raises("expects channels that blocks of 3 x 3 divide", neap.depth_to_space, x,
      { blocksize = 3 })
    raises("expects a height and a width that 2 divides", neap.space_to_depth, x,
      { blocksize = 2 })
  end)
end)

describe("ReverseSequence", function()
  local x = neap.tensor { { 1, 2 }, { 3, 4 }, { 5, 6 } }
  it("turns as many steps as a sequence has", function()
    local lengths = neap.tensor({ 3, 2 }, "i64")
    assert.are.same({ { 5, 4 }, { 3, 2 }, { 1, 6 } }, x:reverse_sequence(lengths):totable())
    assert.are.same({ { 2, 1 }, { 3, 4 }, { 6, 5 } },
      x:reverse_sequence(neap.tensor({ 2, 0, 2 }, "i32"), { time_axis = 2, batch_axis = 1 })
      :totable())
  end)
  it("refuses lengths beyond the steps", function()
    for _, bad in ipairs { 4, -1, math.mininteger } do
      raises(("length %d of sequence 2 is out of range for 3 steps"):format(bad),
        neap.reverse_sequence, x, neap.tensor({ 3, bad }, "i64"))
    end
    raises("expect two dimensions, got 1 for both", neap.reverse_sequence, x,
      neap.tensor({ 1, 1, 1 }, "i64"), { time_axis = 1, batch_axis = 1 })
  end)
end)

describe("SetSlice", function()
  it("writes a range, broadcasting what is written", function()
    local o = { starts = { 1 }, ends = { -1 }, steps = { 2 }, axes = { 2 } }
    assert.are.same({ { 7, 2, 9 }, { 7, 5, 9 } },
      grid:set_slice(neap.tensor { 7, 9 }, o):totable())
    assert.are.same({ { 0, 2, 0 }, { 0, 5, 0 } }, grid:set_slice(0, o):totable())
    assert.are.same({ { 1, 2, 3 }, { 4, 5, 6 } }, grid:totable())
    raises("v expects (2,2), or what is broadcast to it, got (3)", neap.set_slice, grid,
      neap.zeros(3), o)
  end)
end)

describe("a copy of short rows", function()
  it("begins at any column, and so where it is put down", function()
    for _, dtype in ipairs { "u8", "i16", "bf16", "f32", "f64" } do
      for _, width in ipairs { 1, 2, 3, 4, 8, 15, 16, 17 } do
        for _, more in ipairs { 1, 2, 3, width } do
          local all = width + more
          local list = neap.arange(0, 3 * all):reshape(3, all)
          local x, rows = list:to(dtype), list:totable()
          for at = 0, more do
            local function part(from, n) return x:narrow(2, from + 1, n):contiguous() end
            local middle = part(at, width)
            for r, row in ipairs(middle:to("f64"):totable()) do
              assert.are.same(table.move(rows[r], at + 1, at + width, 1, {}), row)
            end
            local whole = core.eager("Concat", { part(0, at), middle,
              part(at + width, more - at) }, { axis = 2 })
            assert.is_true(whole:equal(x), ("%s: %d of %d"):format(dtype, width, all))
            local sizes = { at, width, more - at }
            local _, split = core.eager("Split", { x }, { sizes = sizes, axis = 2 }, 3)
            assert.is_true(split:equal(middle), ("%s: %d of %d"):format(dtype, width, all))
          end
        end
      end
    end
  end)
end)
