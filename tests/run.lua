--- All tests: `build/neap run tests/run.lua [FILTER]`, or with stock `lua5.4` in place of
-- `build/neap run`. Runs the spec files by busted, the C programs of `make c-tests`, and the check
-- of the include order: each file and program in a process of its own, as many at once as
-- NEAP_TEST_JOBS says, one for each core without. FILTER is plain text: only tests whose "path:
-- name" contains it, and C programs whose path does.
--
-- The last line is "N passed, N failed, N skipped". A file that can't be loaded, a program that
-- crashes or prints no such line of its own, and an exit status that contradicts the line each
-- count as one failure. Exits with 1 when anything failed or nothing ran. NEAP_BUILD names the
-- build directory (`build`), NEAP_CHECKED_BUILD one of `make debug` whose C programs are run as
-- well. NEAP_TEST_FILES="PATH ...": only these programs and spec files, in this order and in this
-- process, the programs first, and the first failure ends the run; with NEAP_TEST_GO_ON=1 it goes
-- on, which is how the processes of a whole run are started.

-- Files that take long stand in front, so that no process is left alone with one at the end.
local spec_folders = {
  "tests/oom", "tests/fuzz", "tests/plan", "tests/unit", "tests/named", "tests/ops",
  "tests/questions", "tests/import", "tests/report",
}
-- after which a C program counts as hanging
local program_seconds = tonumber(os.getenv "NEAP_TEST_SECONDS") or 900

local build = os.getenv "NEAP_BUILD" or "build"
local filter, listed = arg and arg[1], os.getenv "NEAP_TEST_FILES"
local goes_on = os.getenv "NEAP_TEST_GO_ON" == "1"
local count = { passed = 0, failed = 0, skipped = 0 }
local failures = {} -- texts, shown once more at the end

local function quote(text) return "'" .. text:gsub("'", "'\\''") .. "'" end

local function fail(what, message)
  count.failed = count.failed + 1
  local text = "FAIL " .. what .. "\n  " .. tostring(message):gsub("%s+$", ""):gsub("\n", "\n  ")
  failures[#failures + 1] = text
  print(text)
  if listed and not goes_on then os.exit(false, true) end
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
  local paths = listed_paths "_spec%.lua$"
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

--- A whole run
-- -------------------------------------------------------------------------------------------------

local function add_all(list, more)
  for _, path in ipairs(more) do list[#list + 1] = path end
end

--- The C programs of a build; one that is not built is a failure.
local function programs_of(folder)
  local sources, paths = find("tests/c", "test_*.c"), {}
  add_all(sources, find("tests/fuzz", "fuzz_*.c"))
  for _, source in ipairs(sources) do
    local path = folder .. "/tests/" .. source:match "([%w_]+)%.c$"
    local file = wanted(path) and io.open(path)
    if file then
      file:close()
      paths[#paths + 1] = path
    elseif wanted(path) then
      fail(path, "is not built; `make c-tests` builds it")
    end
  end
  return paths
end

--- Whether a file may have a test that is wanted: names have no slash in them, paths have.
local function may_have(path)
  return not filter or not filter:find("/", 1, true) or wanted(path)
    or filter:find(path, 1, true) ~= nil
end

local function everything()
  local paths, checked = {}, os.getenv "NEAP_CHECKED_BUILD"
  -- NEAP_TEST_ONLY=c leaves the specs out: under valgrind an interpreter's worth takes hours.
  if os.getenv "NEAP_TEST_ONLY" ~= "c" then
    for _, folder in ipairs(spec_folders) do
      for _, path in ipairs(find(folder, "*_spec.lua")) do
        if may_have(path) then paths[#paths + 1] = path end
      end
    end
  end
  add_all(paths, programs_of(build))
  if checked then add_all(paths, programs_of(checked)) end
  return paths
end

--- How this script is run, as a command: by stock Lua, or by the program.
local function own_command()
  local interpreter = arg and arg[-1]
  if interpreter then return quote(interpreter) .. " tests/run.lua" end
  return quote(require("neap.core").program_path()) .. " run tests/run.lua"
end

--- Takes what a process has printed: its lines are printed again, its failures kept for the end,
-- its counts added up.
local function take_output(path, text, trouble)
  local passed, failed, skipped = text:match "(%d+) passed, (%d+) failed, (%d+) skipped%s*$"
  local before, block = count.failed, nil
  for line in text:gmatch "[^\n]+" do
    local is_report = line:find "%d+ passed +%d+ failed"
    local is_counts = line:find "^%d+ passed, %d+ failed, %d+ skipped$"
    if line:find "^FAIL " and not is_report then
      block = { line }
      failures[#failures + 1] = block
    elseif block and line:find "^  " then
      block[#block + 1] = line
    else
      block = nil
    end
    if not is_counts then print(line) end
  end
  count.passed = count.passed + (tonumber(passed) or 0)
  count.failed = count.failed + (tonumber(failed) or 0)
  count.skipped = count.skipped + (tonumber(skipped) or 0)
  if not passed then
    trouble = trouble or "ended without its counts"
    fail(path, ("its process %s:\n%s"):format(trouble, text:sub(-4000)))
  elseif trouble and count.failed == before and tonumber(passed) > 0 then
    fail(path, "its process " .. trouble .. " after its counts")
  end
end

--- Each path in a process of its own, several at a time; xargs hands them out and says which has
-- ended with what.
local function run_all(paths)
  if #paths == 0 then return end
  local folder = os.tmpname()
  os.remove(folder)
  assert(os.execute("mkdir " .. quote(folder)))
  local list = assert(io.open(folder .. "/list", "w"))
  for i, path in ipairs(paths) do list:write(i, " ", path, "\n") end
  list:close()
  local command = ([[
    xargs -P "${NEAP_TEST_JOBS:-$(nproc)}" -L 1 sh -c '
      NEAP_TEST_FILES="$1" NEAP_TEST_GO_ON=1 %s %s >%s/$0 2>&1 </dev/null
      echo "$0 $?"' <%s/list]]):format(own_command():gsub("'", "'\\''"),
    filter and quote(filter):gsub("'", "'\\''") or "", folder, folder)
  local pipe <close> = assert(io.popen(command))
  for line in pipe:lines() do
    local i, code = line:match "^(%d+) (%d+)$"
    local file <close> = assert(io.open(folder .. "/" .. i))
    -- The exit status of failed tests is 1, and that of none, which a filter may leave.
    local trouble = code ~= "1" and status_text("exit", tonumber(code)) or nil
    take_output(paths[tonumber(i)], file:read "a", trouble)
    io.stdout:flush()
  end
  os.execute("rm -r " .. quote(folder))
end

if listed then
  for _, path in ipairs(listed_paths "/tests/[%w_]+$") do run_program(path) end
  local ok, message = xpcall(run_specs, debug.traceback)
  if not ok then fail("spec files", message) end
else
  run_all(everything())
  check_includes()
  for i, block in ipairs(failures) do
    if type(block) == "table" then failures[i] = table.concat(block, "\n") end
  end
  if #failures > 0 then print("\n" .. table.concat(failures, "\n")) end
  if count.passed + count.failed == 0 then
    print(filter and "no test contains " .. filter or "no test was run")
  end
end
print(("%d passed, %d failed, %d skipped"):format(count.passed, count.failed, count.skipped))
io.stdout:flush()
os.exit(count.failed == 0 and count.passed > 0)
