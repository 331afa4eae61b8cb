--- run.lua DIR [DIR ..]: runs the tests of ONNX below each folder, in the layout of
-- tests/onnx/case.lua, and compares with ONNX Runtime's tolerances (rtol 1e-3, atol 1e-5). Prints
-- what fails and which ops Neap lacks, with how many tests each stops; the last line is
-- `N passed, N failed, N skipped`. FILTER=TEXT in the environment: tests whose path has it.
--
-- Skipped are tests of what Neap is not for: strings, training ops of ONNX's own (a trainer's
-- steps are Neap's), and the decoding of images.
local here = arg[0]:match "^(.*/)" or "./"
local case = dofile(here .. "case.lua")
local onnx = require "neap.onnx"

local skipped_domains = { ["ai.onnx.preview.training"] = true, ["ai.onnx.ml"] = true }
local skipped_ops = { ImageDecoder = true, StringConcat = true, StringNormalizer = true,
  StringSplit = true, RegexFullMatch = true, TfIdfVectorizer = true }

local function is_skipped(name)
  return skipped_ops[name] or skipped_domains[name:match "^(.*)%.[^.]*$" or ""] or false
end

local n = { passed = 0, failed = 0, skipped = 0 }
local lacking, skipped, kinds = {}, {}, {}

local function count(t, key) t[key] = (t[key] or 0) + 1 end

local function fail(name, text, kind)
  n.failed = n.failed + 1
  count(kinds, kind)
  print(("FAILED %s: %s"):format(name, text))
end

local function skip(why)
  n.skipped = n.skipped + 1
  count(skipped, why)
end

local function run(path)
  local name = path:match "([^/]*)/[^/]*%.onnx$" or path
  local model, message, _, lack = onnx.read(path)
  if lack then
    local ops = {}
    for _, row in ipairs(lack) do ops[row.op] = true end
    for op in pairs(ops) do
      if is_skipped(op) then return skip(op) end
    end
    for op in pairs(ops) do count(lacking, op) end
    return fail(name, message, "lacking")
  elseif not model then
    return fail(name, message, "error")
  end
  for _, folder in ipairs(case.data_sets(path)) do
    local wrong, kind = case.check(model, folder)
    if kind == "text" then return skip "strings" end
    if wrong then return fail(name, wrong, kind) end
  end
  n.passed = n.passed + 1
end

local function print_counts(title, t)
  local names = {}
  for key in pairs(t) do names[#names + 1] = key end
  table.sort(names, function(a, b) return t[a] > t[b] or t[a] == t[b] and a < b end)
  for _, key in ipairs(names) do print(("%s %s: %d"):format(title, key, t[key])) end
end

if #arg == 0 then error "run.lua expects folders of tests" end
local filter = os.getenv "FILTER" or ""
for _, folder in ipairs(arg) do
  for _, path in ipairs(case.models(folder)) do
    if path:find(filter, 1, true) and #case.data_sets(path) > 0 then run(path) end
  end
end
print_counts("lacking, by tests:", lacking)
print_counts("failed by", kinds)
print_counts("skipped for", skipped)
print(("%d passed, %d failed, %d skipped"):format(n.passed, n.failed, n.skipped))
if n.failed > 0 then os.exit(1) end
