-- What the environment says in vain is said in one line, or is an error that names what there is;
-- it never crashes and changes no number.
local support = require "support"

local script = [[
  local neap = require "neap"
  neap.seed(3)
  local net = require "neap.net".read("net n\ninput x f32 (4,6)\n\z
    param w f32 (3,6) = Gaussian { std = 0.5 }\ny = FC(x, w)\nz = Relu(y)\noutputs z\n")
  local ok, err = pcall(function()
    local ws <close> = neap.workspace { seed = 1 }
    ws:init(net)
    ws:feed("x", neap.ones(4, 6))
    ws:run(net)
    print("bits", ws:fetch "z":hash())
  end)
  if not ok then print("error", tostring(err):match "[^\n]*") end
  local eager, why = pcall(function() return neap.ones(3, 3):relu() end)
  print("eager", eager or tostring(why):match "[^\n]*")
]]

--- What the script prints under these variables; standard error after it.
local function run(environment)
  local path = os.tmpname()
  local file = assert(io.open(path, "w"))
  file:write(script)
  file:close()
  local out, code = support.shell(
    ("env NEAP_DB=off %s %s run %s 2>&1"):format(environment, support.program, path))
  os.remove(path)
  assert.equal(0, code, environment .. "\n" .. out)
  return out
end

describe("a wrong value in the environment", function()
  local right

  setup(function() right = run "NEAP_NUM_THREADS=2" end)

  it("is said in one line, and ignored", function()
    assert.matches("^bits[^\n]+\neager\ttrue\n$", right)
    for setting, words in pairs {
      ["NEAP_PLAN=of"] = "NEAP_PLAN = of is neither off nor on: it is ignored",
      ["NEAP_PLAN=0"] = "NEAP_PLAN = 0 is neither off nor on: it is ignored",
      ["NEAP_SEED=abc"] = "NEAP_SEED = abc is no integer: it is ignored",
      ["NEAP_SEED=1.5"] = "NEAP_SEED = 1.5 is no integer: it is ignored",
      ["NEAP_NUM_THREADS=-1"] = "NEAP_NUM_THREADS = -1 is no number of threads: it is ignored",
    } do
      local out = run("NEAP_NUM_THREADS=2 " .. setting)
      local line = "neap: " .. words .. "\n"
      local from, to = out:find(line, 1, true)
      assert.is_truthy(from, setting .. ": " .. out)
      assert.equal(right, out:sub(1, from - 1) .. out:sub(to + 1))
      assert.is_nil(out:find(line, to, true), "said twice: " .. out)
    end
  end)

  it("is an error where an engine does not exist", function()
    for _, engine in ipairs { "cuda", "REF", "1", "refx" } do
      local out = run("NEAP_ENGINE=" .. engine)
      assert.matches(
        ('error\t[^\n]*unknown engine "%s", expected ref, blas, dnnl or free'):format(engine), out)
      assert.matches(('eager\t[^\n]*unknown engine "%s"'):format(engine), out)
    end
  end)

  it("is not what these are", function()
    for _, setting in ipairs {
      "NEAP_PLAN=", "NEAP_PLAN=on", "NEAP_PLAN=off", "NEAP_SEED=", "NEAP_SEED=-3", "NEAP_ENGINE=",
      "NEAP_ENGINE=free",
      "NEAP_POISON=1", "NEAP_POISON=0", "NEAP_PROFILE=x",
    } do
      assert.equal(right, run("NEAP_NUM_THREADS=2 " .. setting), setting)
    end
  end)
end)
