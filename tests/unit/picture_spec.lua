local neap = require "neap"

describe("pictures of tensors", function()
  local path = os.tmpname()
  teardown(function() os.remove(path) end)

  it("plots a line whose highest column is full and whose lowest is not", function()
    local text = tostring(neap.tensor { 0, 1, 2, 3 }:plot())
    local lines = {}
    for line in text:gmatch "[^\n]+" do lines[#lines + 1] = line end
    assert.equal(8, #lines)
    assert.truthy(lines[1]:find("█", 1, true))
    assert.truthy(lines[1]:find("3", 1, true))
    assert.truthy(lines[8]:find("0", 1, true))
  end)

  it("writes SVG with one polyline a series", function()
    assert(neap.rand(3, 10):plot(path))
    local _, n = io.open(path):read "a":gsub("<polyline", "")
    assert.equal(3, n)
  end)

  it("writes PNG files with a signature, whatever the dtype", function()
    for _, x in ipairs {
      neap.rand(5, 7), neap.zeros { 4, 4, dtype = "u8" }, neap.rand(3, 8, 8), neap.rand(5, 1, 6, 6),
    } do
      assert(x:image(path))
      assert.equal("\137PNG\r\n\26\n", io.open(path, "rb"):read(8))
    end
  end)

  it("says what it expects", function()
    assert.error_matches(function() neap.rand(2, 4, 4):image(path) end, "1 or 3 channels, got 2")
    assert.error_matches(function() neap.rand(2, 2, 2):plot() end, "1 or 2 dimensions")
    assert.error_matches(function() neap.rand(2, 2):image(path, { gird = 2 }) end,
      "did you mean \"grid\"")
    for _, columns in ipairs { 0, -1, 1.5, "2" } do
      assert.error_matches(function() neap.rand(4, 1, 2, 2):image(path, { grid = columns }) end,
        "at least 1, got")
    end
    local ok, message, code = neap.rand(2, 2):image "/nowhere/at/all.png"
    assert.is_nil(ok)
    assert.equal("io", code)
    assert.truthy(message:find("/nowhere/at/all.png", 1, true))
  end)
end)
