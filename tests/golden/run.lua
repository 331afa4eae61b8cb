--- Runs an archive of golden cases: neap run tests/golden/run.lua ARCHIVE.tar.gz MANIFEST.jsonl [FILTER]
--
-- Each case is a net: its inputs are parameters, its outputs are compared, and the gradient of sum(out * gout) with respect
-- to every input that has a golden gradient is compared too. Prints each failure and each golden op that Neap lacks.
local neap = require "neap"
local json = require "cjson"
local map = dofile((arg[0]:match "^(.*/)" or "") .. "map.lua")

local archive, manifest, filter = ...
if not archive or not manifest then
  io.stderr:write "usage: neap run tests/golden/run.lua ARCHIVE.tar.gz MANIFEST.jsonl [FILTER]\n"
  os.exit(2)
end

local function quote(path) return "'" .. path:gsub("'", "'\\''") .. "'" end

local folder = os.tmpname()
os.remove(folder)
assert(os.execute(("mkdir -p %s && tar xzf %s -C %s"):format(quote(folder), quote(archive), quote(folder))), "the archive can't be unpacked")
local files = {}
for path in io.popen("find " .. quote(folder) .. " -name '*.safetensors'"):lines() do files[path:match "([^/]+)%.safetensors$"] = path end

--- Relative to the largest absolute value of the expected tensor.
local tolerance = { f32 = 2e-5, f64 = 1e-6 }

local function compare(what, got, want, loose)
  if table.concat(got.shape, ",") ~= table.concat(want.shape, ",") then
    return ("%s has shape (%s), expected (%s)"):format(what, table.concat(got.shape, ","), table.concat(want.shape, ","))
  end
  if want:n_element() == 0 then return end
  local a, b = got:to "f64", want:to "f64"
  local largest, worst = 0, 0
  local x, y = a:reshape(-1), b:reshape(-1)
  for i = 1, #y do
    local u, v = x:at(i), y:at(i)
    if v == v and math.abs(v) ~= math.huge then largest = math.max(largest, math.abs(v)) end
    if not (u == v or (u ~= u and v ~= v)) then worst = math.max(worst, u ~= u and math.huge or math.abs(u - v)) end
  end
  local limit = (tolerance[want.dtype] or 0) * (loose or 1) * math.max(largest, 1e-6)
  if worst > limit then return ("%s differs by %.3g, allowed %.3g"):format(what, worst, limit) end
end

local function run_case(case)
  local tensors = assert(neap.load(files[case.name]))
  local net = neap.net(case.op)
  local blobs, wrt, feeds = {}, {}, {}
  for name, tensor in pairs(tensors) do
    local input = name:match "^in%.(.*)$"
    if input then
      feeds[input] = tensor
      blobs[input] = net:declare(input, tensors["grad." .. input] and "parameter" or "input", tensor.shape, tensor.dtype)
      if tensors["grad." .. input] then wrt[#wrt + 1] = input end
    end
  end
  table.sort(wrt)
  local outs, why = map[case.op](net, blobs, case.attrs)
  if outs == nil then return "skip", why end
  local total
  for k, out in ipairs(outs) do
    local gout = tensors["gout." .. (k - 1)]
    if #wrt > 0 and gout then
      feeds["gout" .. k] = gout
      local product = net:op("Mul", { out, net:declare("gout" .. k, "input", gout.shape, gout.dtype) }, 1, {})
      local sum = net:op("Sum", { product }, 1, {})
      total = total and net:op("Add", { total, sum }, 1, {}) or sum
    end
  end
  net:outputs(outs)
  local grads = {}
  if total then
    for parameter, gradient in pairs(net:gradient(total, { wrt = wrt })) do grads[parameter.name] = gradient end
  end
  local ws <close> = neap.workspace { store = false }
  local results = ws:run(net, feeds)
  local failures = {}
  for k, out in ipairs(outs) do
    local want = tensors["out." .. (k - 1)]
    failures[#failures + 1] = want and compare("out." .. (k - 1), results[out.name], want)
  end
  for _, name in ipairs(wrt) do failures[#failures + 1] = compare("grad." .. name, ws:fetch(grads[name].name), tensors["grad." .. name], 5) end
  if #failures > 0 then return "fail", table.concat(failures, "; ") end
  return "pass"
end

local passed, failed, skipped, lacking = 0, 0, 0, {}
for line in io.lines(manifest) do
  local case = json.decode(line)
  if not filter or case.name:find(filter) then
    local verdict, why
    if not files[case.name] then
      verdict, why = "fail", "the archive has no such case"
    elseif not map[case.op] then
      verdict = "skip"
      lacking[case.op] = (lacking[case.op] or 0) + 1
    else
      local ok
      ok, verdict, why = pcall(run_case, case)
      if not ok then verdict, why = "fail", tostring(verdict) end
    end
    if verdict == "pass" then
      passed = passed + 1
    elseif verdict == "skip" then
      skipped = skipped + 1
      if why then print(("skip %s: %s"):format(case.name, why)) end
    else
      failed = failed + 1
      print(("FAIL %s: %s"):format(case.name, why))
    end
  end
end
os.execute("rm -rf " .. quote(folder))
local names = {}
for name in pairs(lacking) do names[#names + 1] = name end
table.sort(names)
if #names > 0 then print("Neap lacks: " .. table.concat(names, " ")) end
print(("%d passed, %d failed, %d skipped"):format(passed, failed, skipped))
os.exit(failed == 0 and passed > 0 and 0 or 1)
