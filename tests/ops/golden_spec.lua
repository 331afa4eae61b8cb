--- The golden cases, forward and gradient, by every engine. What is compared and how near is in
-- tests/golden/run.lua.
local folder = "../shared/data/goldens/"
local build = os.getenv "NEAP_BUILD" or "build"

local function exists(path)
  local file = io.open(path)
  return file ~= nil and file:close()
end

describe("golden values", function()
  local archive, manifest = folder .. "goldens-dev.tar.gz", folder .. "manifest-dev.jsonl"
  if not (exists(archive) and exists(manifest)) then
    pending("are compared with those of " .. folder .. ", which isn't there")
    return
  end
  local engines = require("support").engines()
  table.insert(engines, 1, "")
  for _, engine in ipairs(engines) do
    it("hold by "
      .. (engine == "" and "the engines that are chosen" or "engine " .. engine), function()
      local command = ("NEAP_ENGINE=%s %s/neap run tests/golden/run.lua %s %s 2>&1"):format(engine,
        build, archive, manifest)
      local pipe <close> = assert(io.popen(command))
      local text = pipe:read "a"
      local passed, failed = text:match "(%d+) passed, (%d+) failed, %d+ skipped\n$"
      assert(passed, "the runner ended without its counts:\n" .. text:sub(-2000))
      local failures = {}
      for line in text:gmatch "FAIL [^\n]+" do failures[#failures + 1] = line end
      assert.are.equal("0", failed, table.concat(failures, "\n"))
      assert.is_true(tonumber(passed) >= 520, "only " .. passed .. " cases ran")
    end)
  end
end)

describe("a golden case", function()
  local neap = require "neap"
  --- What the runner says of an archive of one case, made here: attributes and further inputs
  -- beside x = 1, -2.
  local function run(op, attrs, extra)
    local at = os.tmpname()
    os.remove(at)
    local tensors = { ["in.x"] = neap.tensor { 1, -2 }, ["out.0"] = neap.tensor { 1, 2 } }
    for name, t in pairs(extra or {}) do tensors["in." .. name] = t end
    assert(os.execute("mkdir -p " .. at))
    assert(neap.save(at .. "/one.safetensors", tensors))
    local manifest <close> = assert(io.open(at .. "/manifest.jsonl", "w"))
    manifest:write(require("cjson").encode { op = op, name = "one", attrs = attrs }, "\n")
    manifest:close()
    assert(os.execute(("tar czf %s/one.tar.gz -C %s one.safetensors"):format(at, at)))
    local pipe = assert(io.popen(
      ("%s/neap run tests/golden/run.lua %s/one.tar.gz %s/manifest.jsonl 2>&1"):format(build, at,
        at)))
    local text = pipe:read "a"
    local ok = pipe:close()
    os.execute("rm -rf " .. at)
    return ok == true, text
  end

  it("passes when all it says was read", function()
    local ok, text = run("abs", {})
    assert.is_true(ok, text)
    ok, text = run("abs", { note = "words for people" })
    assert.is_true(ok, text)
  end)
  it("fails the run by an attribute that no one reads", function()
    local ok, text = run("abs", { edges = "smooth" })
    assert.is_false(ok)
    assert.has_match("FAIL one: attribute edges of the case is read by no one", text)
  end)
  it("fails the run by an input that no one reads", function()
    local ok, text = run("abs", {}, { weight = neap.tensor { 2, 2 } })
    assert.is_false(ok)
    assert.has_match("FAIL one: input weight of the case is read by no one", text)
  end)
  it("fails the run by an attribute that its inputs contradict", function()
    local ok, text = run("conv1d", { kernel = { 3 }, stride = { 1 }, padding = { 0 } }, {
      x = neap.zeros { 1, 1, 4 }, weight = neap.zeros { 1, 1, 2 },
    })
    assert.is_false(ok)
    assert.has_match("kernel of the case is not what its inputs say", text)
  end)
end)
