--- All tests: `build/neap run tests/run.lua [FILTER]`, or with stock `lua5.4` in place of
-- `build/neap run`. Runs the spec files in this process by busted, then every C program of `make
-- c-tests`, then the check of the include order. FILTER is plain text: only tests whose "path:
-- name" contains it, and C programs whose path does.
--
-- The last line is "N passed, N failed, N skipped". A file that can't be loaded, a program that
-- crashes or prints no such line of its own, and an exit status that contradicts the line each
-- count as one failure. Exits with 1 when anything failed or nothing ran. NEAP_BUILD names the
-- build directory (`build`), NEAP_CHECKED_BUILD one of `make debug` whose C programs are run as
-- well. NEAP_TEST_FILES="PATH ...": only these programs and spec files, in this order, the programs
-- first, and the first failure ends the run.

-- Refused allocations first: their files collect all garbage for each one, which costs as much as
-- others have left alive.
local spec_folders = {
  "tests/oom", "tests/unit", "tests/named", "tests/ops", "tests/plan", "tests/fuzz",
  "tests/questions", "tests/import", "tests/report",
}
-- after which a C program counts as hanging
local program_seconds = tonumber(os.getenv "NEAP_TEST_SECONDS") or 300

local build = os.getenv "NEAP_BUILD" or "build"
local filter, listed = arg and arg[1], os.getenv "NEAP_TEST_FILES"
local count = { passed = 0, failed = 0, skipped = 0 }
local failures = {} -- texts, shown once more at the end

local function quote(text) return "'" .. text:gsub("'", "'\\''") .. "'" end

local function fail(what, message)
  count.failed = count.failed + 1
  local text = "FAIL " .. what .. "\n  " .. tostring(message):gsub("%s+$", ""):gsub("\n", "\n  ")
  failures[#failures + 1] = text
  print(text)
  if listed then os.exit(false, true) end
end

--- The paths of NEAP_TEST_FILES that fit a pattern.
local function listed_paths(pattern)
  local paths = {}
  for path in listed:gmatch "%S+" do
    if path:find(pattern) then paths[#paths + 1] = path end
  end
  return paths
end

--- Paths below a folder that `find` gives for a name pattern, sorted.
local function find(folder, name)
  local paths = {}
  local pipe <close> = assert(io.popen(
    ("find %s -name %s -type f 2>/dev/null | LC_ALL=C sort"):format(quote(folder), quote(name))))
  for path in pipe:lines() do paths[#paths + 1] = path end
  return paths
end

local function wanted(name) return not filter or name:find(filter, 1, true) ~= nil end

--- One line a file or program, so that a log shows where time goes.
local function report(path, before, seconds)
  local passed = count.passed - before.passed
  local failed = count.failed - before.failed
  local skipped = count.skipped - before.skipped
  if passed + failed + skipped == 0 then return end
  print(("%-4s %-44s %4d passed %3d failed %3d skipped %7.1f s"):format(
    failed > 0 and "FAIL" or "ok", path, passed, failed, skipped, seconds))
end

local function copy(t) return { passed = t.passed, failed = t.failed, skipped = t.skipped } end

--- Spec files
-- -------------------------------------------------------------------------------------------------

local function run_specs()
  local paths = listed and listed_paths "_spec%.lua$" or {}
  for _, folder in ipairs(listed and {} or spec_folders) do
    for _, path in ipairs(find(folder, "*_spec.lua")) do paths[#paths + 1] = path end
  end
  if #paths == 0 then return end
  -- busted restores package.loaded after each file: what is loaded before is shared by all of them.
  package.path = "tests/?.lua;" .. package.path
  package.cpath = build .. "/?.so;" .. package.cpath
  local has_neap, why = pcall(require, "neap")
  if not has_neap then fail("the module neap can't be loaded", why) end
  -- The parts that neap loads when they are first used, too: loaded again by a later file, they
  -- would not know each other.
  local parts = {
    "nn", "optim", "data", "trainer", "init", "progress", "zoo", "memonger", "check", "export",
  }
  for _, part in ipairs(has_neap and parts or {}) do assert(why[part]) end

  local busted = require "busted.core" ()
  require "busted" (busted)
  require "busted.languages.en"
  local clock, file, before = busted.monotime, nil, nil

  local function full_name(element)
    local names = {}
    while element and element.descriptor ~= "file" and (element.name or element.descriptor) do
      table.insert(names, 1, element.name or element.descriptor)
      element = busted.context.parent(element)
    end
    return table.concat(names, " "), element and element.name or file and file.name or "?"
  end
  local function where(element)
    local name, path = full_name(element)
    return path .. ": " .. name
  end
  local function message_of(message, trace)
    local text = type(message) == "table" and not getmetatable(message) and message.message
      or message
    text = type(text) == "string" and text or text == nil and "Nil error" or tostring(text)
    return trace and trace.traceback and text .. "\n" .. trace.traceback:gsub("^\n+", "") or text
  end

  busted.subscribe({ "file", "start" }, function(element)
    file, before = element, copy(count)
    element.began = clock()
    return nil, true
  end)
  busted.subscribe({ "file", "end" }, function(element)
    report(element.name, before, clock() - element.began)
    io.stdout:flush()
    return nil, true
  end)
  busted.subscribe({ "test", "end" }, function(element, _, status)
    if status == "success" then
      count.passed = count.passed + 1
    elseif status == "pending" then
      count.skipped = count.skipped + 1
      print(
        "skip " .. where(element) .. (type(element.why) == "string" and ": " .. element.why or ""))
    end -- failures and errors have been counted when they happened
    return nil, true
  end)
  busted.subscribe({ "pending" }, function(element, _, message)
    element.why = message
    return nil, true
  end)
  -- One test may fail and then err in its after_each: both are printed, and each counts.
  for _, kind in ipairs { "failure", "error" } do
    busted.subscribe({ kind }, function(element, _, message, trace)
      fail(where(element), message_of(message, trace))
      return nil, true
    end)
  end
  if filter then
    for _, descriptor in ipairs { "it", "pending" } do
      busted.subscribe({ "register", descriptor }, function(name)
        local outer, path = full_name(busted.context.get())
        return nil, wanted(path .. ": " .. (outer == "" and "" or outer .. " ") .. tostring(name))
      end, { priority = 1 })
    end
  end
  require "busted.modules.test_file_loader" (busted, { "lua" })(paths, {}, { excludes = {} })
  require "busted.execute" (busted)(1, {})
end

--- C programs
-- -------------------------------------------------------------------------------------------------

--- The status as words, nil when it is 0.
local function status_text(how, code)
  if how == "exit" and code == 0 then return nil end
  if how == "exit" and code == 124 then return ("took longer than %d s"):format(program_seconds) end
  if how == "exit" and code > 128 then return "was killed by signal " .. code - 128 end
  return how == "signal" and "was killed by signal " .. code or "ended with status " .. code
end

local function run_program(path)
  local log = path .. ".log"
  local before, began = copy(count), os.time()
  local runner = os.getenv "NEAP_TEST_RUNNER" or "" -- valgrind and its options
  local _, how, code = os.execute(("timeout %d %s %s >%s 2>&1 </dev/null"):format(program_seconds,
    runner, quote(path), quote(log)))
  local file = assert(io.open(log))
  local text = file:read "a"
  file:close()
  local trouble = status_text(how, code)
  local passed, failed, skipped = text:match "(%d+) passed, (%d+) failed, (%d+) skipped%s*$"
  if not passed then -- a sanitizer may report after the last line
    passed, failed, skipped = text:match "\n(%d+) passed, (%d+) failed, (%d+) skipped\n"
    trouble = trouble or passed and "printed more after its counts" or "ended without its counts"
  end
  count.passed = count.passed + (tonumber(passed) or 0)
  count.skipped = count.skipped + (tonumber(skipped) or 0)
  local lines = {}
  for line in text:gmatch "[^\n]+" do
    if line:match "^skip " then print((line:gsub("^skip ", "skip " .. path .. ": "))) end
    if line:match "^FAIL " then -- with the lines that say what did not hold, which stand before it
      local first = #lines
      while first > 0 and lines[first]:match "^  " do first = first - 1 end
      fail(path .. ": " .. line:sub(6), table.concat(lines, "\n", first + 1))
    end
    lines[#lines + 1] = line
  end
  local n_named = count.failed - before.failed
  if passed and tonumber(failed) ~= n_named then
    fail(path, ("counts %s failures, names %d"):format(failed, n_named))
  elseif trouble and n_named == 0 or not passed then
    fail(path, ("%s; the end of %s:\n%s"):format(trouble, log,
      table.concat(lines, "\n", math.max(1, #lines - 40))))
  end
  report(path, before, os.time() - began)
end

local function run_programs(folder)
  local sources = find("tests/c", "test_*.c")
  for _, source in ipairs(find("tests/fuzz", "fuzz_*.c")) do sources[#sources + 1] = source end
  for _, source in ipairs(sources) do
    local path = folder .. "/tests/" .. source:match "([%w_]+)%.c$"
    if wanted(path) then
      local file = io.open(path)
      if file then
        file:close()
        run_program(path)
      else
        fail(path, "is not built; `make c-tests` builds it")
      end
    end
  end
end

--- The order of rooms
-- -------------------------------------------------------------------------------------------------

local function check_includes()
  local name = "scripts/tools/check-includes"
  if not wanted(name) then return end
  local pipe = assert(io.popen(("%s %s 2>&1"):format(name, build)))
  local text = pipe:read "a"
  if pipe:close() then
    count.passed = count.passed + 1
  else
    fail(name, text)
  end
end

if listed then
  for _, path in ipairs(listed_paths "/test_[%w_]+$") do run_program(path) end
end
-- NEAP_TEST_ONLY=c leaves the specs out: under valgrind an interpreter's worth of them takes hours.
if os.getenv "NEAP_TEST_ONLY" ~= "c" then
  local ok, message = xpcall(run_specs, debug.traceback)
  if not ok then fail("spec files", message) end
end
if not listed then
  run_programs(build)
  local checked = os.getenv "NEAP_CHECKED_BUILD"
  if checked then run_programs(checked) end
  check_includes()
end

if #failures > 0 then print("\n" .. table.concat(failures, "\n")) end
if count.passed + count.failed == 0 then
  print(filter and "no test contains " .. filter or "no test was run")
end
print(("%d passed, %d failed, %d skipped"):format(count.passed, count.failed, count.skipped))
io.stdout:flush()
os.exit(count.failed == 0 and count.passed > 0)
