--- SparseFC against the product with the weight in full, in blocks of several sizes; lists that
-- name no place in the weight are refused, and read nothing outside of it.
local neap = require "neap"

--- values, columns and starts of a weight in blocks of (r,c).
local function lists_of(w, r, c)
  local t, values, columns, starts = w:totable(), {}, {}, { 0 }
  for row = 1, #t, r do
    for column = 1, #t[1], c do
      local block, some = {}, false
      for i = 1, r do
        block[i] = table.move(t[row + i - 1], column, column + c - 1, 1, {})
        for _, v in ipairs(block[i]) do some = some or v ~= 0 end
      end
      if some then values[#values + 1], columns[#columns + 1] = block, (column - 1) // c end
    end
    starts[#starts + 1] = #columns
  end
  return neap.tensor(values), neap.tensor(columns, "i32"), neap.tensor(starts, "i32")
end

describe("SparseFC", function()
  for _, block in ipairs { { 1, 1 }, { 16, 1 }, { 4, 4 }, { 2, 8 } } do
    it(("is the product with the weight, blocks of %d x %d"):format(block[1], block[2]), function()
      neap.seed(2)
      local w = neap.randn(32, 24) * neap.rand(32, 24):gt(neap.tensor(0.9)):to "f32"
      local values, columns, starts = lists_of(w, block[1], block[2])
      local x, b = neap.randn(2, 3, 24), neap.randn(32)
      assert.is_true(neap.sparse_to_dense(values, columns, starts, { k = 24 }):equal(w))
      local y = neap.sparse_fc(x, values, columns, starts, b, { k = 24 })
      assert.are.same({ 2, 3, 32 }, y.shape)
      assert.is_true(y:close(x:matmul(w:transpose(1, 2)) + b, { rtol = 1e-5, atol = 1e-5 }))
    end)
  end

  it("refuses places outside of the weight", function()
    local x, values = neap.ones(1, 4), neap.ones(2, 1, 1)
    for _, bad in ipairs { { { 0, 4 }, { 0, 2 } }, { { 0, -1 }, { 0, 2 } }, { { 0, 1 }, { 0, 3 } },
      { { 0, 1 }, { 1, 2 } }, { { 0, 1 }, { 0, 1000000, 2 } } } do
      local columns, starts = neap.tensor(bad[1], "i32"), neap.tensor(bad[2], "i32")
      local ok, err = pcall(neap.sparse_fc, x, values, columns, starts, nil, { k = 4 })
      assert.is_false(ok)
      assert.is_truthy(tostring(err):find("outside of the weight", 1, true), tostring(err))
      assert.are.equal(0,
        neap.sparse_to_dense(values, columns, starts, { k = 4 }):abs():sum():item())
    end
  end)
end)
