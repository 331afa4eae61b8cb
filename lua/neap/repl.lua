--- The REPL: Lua with neap at hand. Expressions print themselves, `_` is the last value, unfinished input continues,
-- `:name args` runs a command of the command line or one of the colon commands.
--
-- With a terminal and lua-readline: editing, history and completion of nested names. Through a pipe: plain lines.
-- @module neap.repl
local core = require "neap.core"
local repl = {}

local env = setmetatable({}, { __index = _G, __newindex = _G })

-- ---- completion ----------------------------------------------------------------------------------------------------------

local function fields_of(value)
  local names, seen = {}, {}
  local function add(t)
    for key in pairs(t) do
      if type(key) == "string" and key:match "^[%a_][%w_]*$" and not seen[key] and key:sub(1, 2) ~= "__" then
        seen[key] = true
        names[#names + 1] = key
      end
    end
  end
  if type(value) == "table" then add(value) end
  for _ = 1, 4 do
    local meta = debug.getmetatable(value)
    local index = meta and rawget(meta, "__index")
    if meta and type(rawget(meta, "__names")) == "function" then
      for _, name in ipairs(meta.__names(value)) do add { [name] = true } end
    end
    if type(index) ~= "table" then break end
    add(index)
    value = index
  end
  table.sort(names)
  return names
end

--- Candidates for the word that ends `line`: "neap.nn.Li" gives "neap.nn.Linear".
-- @param line string
-- @return string[] whole words
function repl.complete(line)
  local word = line:match "[%w_%.:]*$"
  if word:sub(1, 1) == ":" and not word:find("%.") then
    local found = {}
    for name in pairs(repl.commands) do
      if name:sub(1, #word - 1) == word:sub(2) then found[#found + 1] = ":" .. name end
    end
    table.sort(found)
    return found
  end
  local path, part = word:match "^(.*)[%.:]([%w_]*)$"
  local value, prefix = _G, ""
  if path then
    prefix = word:sub(1, #word - #part)
    for name in path:gmatch "[%a_][%w_]*" do
      local ok, next_value = pcall(function() return value[name] end)
      if not ok or next_value == nil then return {} end
      value = next_value
    end
  else
    part = word
  end
  local found = {}
  for _, name in ipairs(fields_of(value)) do
    if name:sub(1, #part) == part then found[#found + 1] = prefix .. name end
  end
  return found
end

-- ---- colon commands --------------------------------------------------------------------------------------------------------

repl.commands = {}

local function command(name, summary, run) repl.commands[name] = { summary = summary, run = run } end

command("help", "this list", function()
  local names = {}
  for name in pairs(repl.commands) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do print((":%-8s %s"):format(name, repl.commands[name].summary)) end
  print(":x a      is `neap x a`; help(thing) explains a function, an op or a class")
end)
command("mem", "bytes planned, held and resident", function() print(require("neap").memory()) end)
command("time", "CODE: run it and say how long it took", function(rest)
  local start = core.clock()
  repl.evaluate(rest)
  print(("%.3f ms"):format((core.clock() - start) * 1e3))
end)
command("sql", "QUERY: ask the database", function(rest)
  local neap = require "neap"
  local db <close> = assert(neap.db())
  print(db:sql(rest))
end)
command("quit", "leave", function() repl.done = true end)

local function split(text)
  local words = {}
  for word in text:gmatch "%S+" do words[#words + 1] = word end
  return words
end

local function run_command(line)
  local name, rest = line:match "^:(%S*)%s*(.*)$"
  if repl.commands[name] then return repl.commands[name].run(rest) end
  local cli = require "neap.cli"
  if cli.verbs()[name] then return cli.main { name, table.unpack(split(rest)) } end
  io.stderr:write(("no command \":%s\"; :help lists them\n"):format(name))
end

-- ---- evaluating ----------------------------------------------------------------------------------------------------------------

local function is_unfinished(message) return message and message:match "<eof>$" ~= nil end

--- Compiles a line, as an expression if it is one. @return chunk, or nil, message, is it unfinished
function repl.compile(text)
  local chunk = load("return " .. text, "=stdin", "t", env)
  if chunk then return chunk end
  local statement, message = load(text, "=stdin", "t", env)
  return statement, message, is_unfinished(message)
end

local function show(results)
  for i = 1, results.n do
    local value = results[i]
    local ok, text = pcall(function()
      if type(value) == "string" then return ("%q"):format(value):gsub("\\\n", "\\n") end
      return tostring(value)
    end)
    print(ok and text or "(its __tostring failed: " .. tostring(text) .. ")")
  end
end

local function handler(err)
  if type(err) == "string" then return (debug.traceback(err, 2):gsub("\n%s*%[C%]: in function 'xpcall'.*$", "")) end
  return err
end

--- Runs one complete input and prints its values. Errors go to standard error; the REPL lives on.
function repl.evaluate(text)
  local quiet = text:match ";%s*$" ~= nil
  local chunk, message = repl.compile(quiet and text:gsub(";%s*$", "") or text)
  if not chunk then chunk, message = repl.compile(text) end
  if not chunk then
    io.stderr:write(message, "\n")
    return false
  end
  local results = table.pack(xpcall(chunk, handler))
  core.clear_interrupt()
  if not results[1] then
    io.stderr:write(tostring(results[2]), "\n")
    return false
  end
  if results.n > 1 and results[2] ~= nil then
    rawset(_G, "_", results[2])
    if not quiet then show { n = results.n - 1, table.unpack(results, 2, results.n) } end
  end
  return true
end

-- ---- reading lines --------------------------------------------------------------------------------------------------------------

local function history_path()
  local base = os.getenv "XDG_DATA_HOME" or ((os.getenv "HOME" or ".") .. "/.local/share")
  return base .. "/neap/history"
end

--- A function prompt -> line or nil, with editing when it can be had.
local function line_reader()
  if not core.is_terminal() then
    return function(prompt)
      if core.is_terminal(0) then io.write(prompt) io.flush() end
      return io.read "l"
    end
  end
  local ok, readline = pcall(require, "readline")
  if not ok then
    return function(prompt)
      io.write(prompt)
      io.flush()
      return io.read "l"
    end
  end
  core.make_folder(history_path():match "^(.*)/")
  readline.set_options { histfile = history_path(), keeplines = 2000, completion = true, ignoredups = true }
  readline.set_readline_name "neap"
  readline.set_complete_function(function(text, from, _)
    local line = text
    if type(from) == "number" and from > 1 then line = text end
    return repl.complete(line)
  end)
  return function(prompt)
    local line = readline.readline(prompt)
    if line == nil then readline.save_history() end
    return line
  end
end

--- The loop. @return integer exit code
function repl.main()
  local neap = require "neap"
  rawset(_G, "neap", neap)
  rawset(_G, "help", function(x) return neap.help(x) end)
  if core.is_terminal() then
    print(("neap %s  help() explains, :help lists commands, Ctrl-D leaves"):format(neap.version))
  end
  local read, text = line_reader(), nil
  local good = true
  repl.done = false
  while not repl.done do
    local line = read(text and ">> " or "> ")
    if line == nil then break end
    if text == nil and line:match "^%s*:%a" then
      local ok, err = xpcall(run_command, handler, (line:gsub("^%s+", "")))
      core.clear_interrupt()
      if not ok then io.stderr:write(tostring(err), "\n") end
    elseif text ~= nil or line:match "%S" then
      text = text and text .. "\n" .. line or line
      local chunk, _, unfinished = repl.compile(text)
      if chunk or not unfinished then
        good = repl.evaluate(text) and good
        text = nil
      end
    end
  end
  if text then
    repl.evaluate(text)
    good = false
  end
  if core.is_terminal() then print() end
  return (good or core.is_terminal()) and 0 or 1
end

return repl
