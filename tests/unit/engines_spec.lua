-- The list of engines, and what every face says of it: none of them names an engine of its own
-- accord.
local neap = require "neap"
local core = require "neap.core"
local op = require "neap.op"
local support = require "support"
local raises = support.raises

local names = {}
for i, row in ipairs(core.engines) do names[i] = row.name end
local choices = table.concat(names, ", ")

describe("the engines", function()
  it("are listed with what they are, their library's version or why they are missing", function()
    local report = neap.engines()
    assert.equal(#names, #report)
    for i, row in ipairs(report) do
      assert.equal(names[i], row.name)
      assert.is_true(#row.doc > 10, row.name)
      assert.is_true((row.missing == nil) == support.has_engine(row.name))
    end
    assert.equal("ref", names[1])
    assert.is_nil(core.engines[1].version)
    assert.is_true(support.has_engine "ref" and support.has_engine "blas")
  end)

  it("stand in the text of the libraries", function()
    for _, row in ipairs(core.engines) do
      local said = row.name .. " " .. (row.missing and "none" or row.version or "")
      assert.equal(row.version ~= nil or row.missing ~= nil,
        core.kernels:find("; " .. said, 1, true) ~= nil, said)
    end
  end)

  it("are what the option, the flags and the environment offer", function()
    local help = {}
    for _, command in ipairs { "plan lenet --help", "bench --help", "help env" } do
      help[command] = support.shell(("%s %s"):format(support.program, command))
    end
    for _, name in ipairs(names) do
      for command, text in pairs(help) do
        assert.matches("%f[%a]" .. name .. "%f[%A]", text, nil, nil, command)
      end
    end
    local err = raises("engine expects free, ", function()
      neap.net("n"):plan { engine = "cuda" }
    end)
    assert.is_truthy(tostring(err):find(choices:gsub(", (%w+)$", " or %1"), 1, true), tostring(err))
  end)

  it("have kernels under their own names alone", function()
    local known = {}
    for _, name in ipairs(names) do known[name] = true end
    for name, record in pairs(op.records) do
      for _, engine in ipairs(record.engines) do
        assert.is_true(known[engine], name .. " by " .. engine)
      end
    end
  end)
end)

describe("an engine that is asked for", function()
  local function run(engine)
    local path = os.tmpname()
    local file <close> = assert(io.open(path, "w"))
    file:write 'local neap = require "neap"; print(pcall(function() return \z
      neap.ones(2):relu() end))'
    file:flush()
    local out = support.shell(
      ("env NEAP_DB=off NEAP_ENGINE=%s %s run %s 2>&1"):format(engine, support.program, path))
    os.remove(path)
    return out
  end

  it("and that there is not is refused, with those that there are and the nearest", function()
    assert.matches(
      ('unknown engine "dnl", expected %s or free; did you mean "dnnl"'):format(choices), run "dnl")
    local none = run "cuda"
    assert.matches(('unknown engine "cuda", expected %s or free'):format(choices), none)
    assert.is_nil(none:find("did you mean", 1, true))
    local err = raises({ "engine expects", "dnnl" }, function()
      neap.net("n"):plan { engine = "dnn" }
    end)
    assert.is_truthy(tostring(err):find('did you mean "dnnl"', 1, true))
  end)

  it("is taken where it can be had, and refused with the reason where not", function()
    local net = neap.net "asked"
    net:MatMul({ net:input("a", { 8, 8 }), net:input("b", { 8, 8 }) }, "c")
    net:outputs { "c" }
    for _, row in ipairs(core.engines) do
      if row.missing then
        local said = ("engine %s can't be had: %s"):format(row.name, row.missing)
        raises(said, function() net:plan { engine = row.name, store = false } end)
        assert.is_truthy(run(row.name):find(said, 1, true))
      else
        assert.equal(row.name, net:plan({ engine = row.name, store = false }):ops()[1].engine)
        assert.matches("^true", run(row.name))
      end
    end
  end)
end)
