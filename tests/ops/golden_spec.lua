--- The golden cases, forward and gradient, by every engine. What is compared and how near is in tests/golden/run.lua.
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
  for _, engine in ipairs { "", "ref", "blas", "dnnl" } do
    it("hold by " .. (engine == "" and "the engines that are chosen" or "engine " .. engine), function()
      local command = ("NEAP_ENGINE=%s %s/neap run tests/golden/run.lua %s %s 2>&1"):format(engine, build, archive, manifest)
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
