--- The REPL: Lua with neap at hand. Expressions print themselves, `_` is the last value, unfinished
-- input continues, `:name args` runs a command of the command line or one of the colon commands.
--
-- With a terminal and lua-readline: editing, history and completion of nested names. Through a
-- pipe: plain lines, and the exit code tells whether every input ran.
-- @module neap.repl
local cli = require "neap.cli"
local core = require "neap.core"
local options = require "neap.inner.options"
local record = require "neap.inner.record"
local values = require "neap.repl.show"
local fail = core.fail
local repl = {}

-- ---- completion ---------------------------------------------------------------------------------

-- Fields that C handles compute.
local computed = {
  ["neap.tensor"] = { shape = true, dtype = true, name = true },
  ["neap.blob"] = { shape = true, dtype = true, name = true },
  ["neap.program"] = { plan = true, net = true, workspace = true },
}

--- Public names that a value answers to: its own, and those of its class. Neap's lazy parts
-- (neap.nn) are named before they are loaded.
local function fields_of(value)
  local names, seen = {}, {}
  local function add(t)
    for key in next, t do
      if type(key) == "string" and key:match "^%a[%w_]*$" and not seen[key] then
        seen[key] = true
        names[#names + 1] = key
      end
    end
  end

  -- From the value outwards: its own fields, its class's, those that C computes, the ops of tensors
  -- and blobs, and up to four metatables above.
  if type(value) == "table" then add(value) end
  local class = (debug.getmetatable(value) or {}).__name
  local methods = type(class) == "string"
    and core[class:match "^neap%.%l" and (class:gsub("^neap%.(%l)", string.upper))]
  if methods then add(methods) end
  if computed[class] then add(computed[class]) end
  if class == "neap.tensor" or class == "neap.blob" then add(require("neap")._op_functions) end
  for _ = 1, 4 do
    local meta = debug.getmetatable(value)
    local index = type(meta) == "table" and rawget(meta, "__index")
    if type(meta) == "table" and type(rawget(meta, "__names")) == "function" then
      for _, name in ipairs(meta.__names(value)) do add { [name] = true } end
    end
    if type(index) ~= "table" then break end
    add(index)
    value = index
  end
  table.sort(names)
  return names
end

--- What stands open at the end of a line: the innermost bracket that is not closed, as { callee =
-- what stands before it, at = its place }, and the one around it; nil where none is open.
local function open_brackets(line)
  -- Texts are passed over, so that a bracket in one opens nothing.
  local open, at = {}, 1
  while at <= #line do
    local c = line:sub(at, at)
    if c == '"' or c == "'" then
      at = line:find(c, at + 1, true) or #line
    elseif c == "{" or c == "(" then
      open[#open + 1] = { callee = line:sub(1, at - 1):match "([%w_%.:]*)%s*$", at = at }
    elseif c == "}" or c == ")" then
      open[#open] = nil
    end
    at = at + 1
  end
  return open[#open], open[#open - 1]
end

--- The record of what is called where a line ends, "nn.Conv2d { 3, 64, ker" or "t:fit(set, { ep",
-- when the word there can be the name of an option; and what has been written of its table.
local function record_at(line)
  local before = line:match "^(.-)[%a_]?[%w_]*$"
  if not before:match "[{,(]%s*$" then return nil end
  local inner, outer = open_brackets(line)
  if inner == nil then return nil end

  -- In f { { .. a table within a table has no callee: the one around it has.
  local callee = inner.callee ~= "" and inner.callee or outer and outer.callee or ""
  if callee == "" then return nil end
  return record.find(callee:match ":(.*)" or callee), line:sub(inner.at)
end

--- Options that a call takes and has not been given, "kernel = ", whose names begin with `part`.
local function options_at(line, part)
  local found, own, written = {}, record_at(line)
  for _, name in ipairs(own and own:names() or {}) do
    if name:sub(1, #part) == part and not written:find("%f[%w_]" .. name .. "%s*=") then
      found[#found + 1] = name .. " = "
    end
  end
  return found
end

--- Candidates for the word that ends `line`: "neap.nn.Li" gives "neap.nn.Linear", and within the
-- table of a call the options that it takes: "nn.Conv2d { 3, 64, ker" gives "kernel = ".
-- @param line string
-- @return string[] whole words
function repl.complete(line)
  -- A colon at the beginning of a line is a command; within a word it is a method's.
  local word = line:match "[%w_%.:]*$"
  if word:sub(1, 1) == ":" and not word:find("%.") then
    local found = {}
    for _, from in ipairs { repl.commands, cli.verbs() } do
      for name in pairs(from) do
        if name:sub(1, #word - 1) == word:sub(2)
            and (from == repl.commands or not repl.commands[name]) then
          found[#found + 1] = ":" .. name
        end
      end
    end
    table.sort(found)
    return found
  end

  -- The path is followed by indexing alone: no function is called for a completion.
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

  -- Options stand first where the word may be one.
  local found = path and {} or options_at(line, part)
  if part == "" and #found > 0 then return found end
  for _, name in ipairs(fields_of(value)) do
    if name:sub(1, #part) == part then found[#found + 1] = prefix .. name end
  end
  return found
end

-- ---- colon commands -----------------------------------------------------------------------------

repl.commands = {}

local function command(name, summary, run)
  repl.commands[name] = { summary = summary, run = run }
end

command("help", "this list", function()
  for _, name in ipairs(options.keys(repl.commands)) do
    print((":%-8s %s"):format(name, repl.commands[name].summary))
  end
  local verbs = {}
  for name in pairs(cli.verbs()) do
    if not repl.commands[name] and name ~= "repl" then verbs[#verbs + 1] = ":" .. name end
  end
  table.sort(verbs)
  print("as `neap x`: " .. table.concat(verbs, " ")
    .. "; ?x explains a function, an op, a class, a value")
end)
command("mem", "bytes held by tensors, plans and Lua, and resident", function()
  print(require("neap").memory())
end)
--- Runs code n times, and says how long one took: what it gives is not shown.
local function time_again(n, code)
  local chunk, message = repl.compile(code)
  if not chunk then fail(message) end
  local ms = {}
  for i = 1, n do
    local start = core.clock()
    chunk()
    ms[i] = (core.clock() - start) * 1e3
  end
  table.sort(ms)
  print(("%.3f ms the median of %d, %.3f to %.3f"):format(ms[(n + 1) // 2], n, ms[1], ms[n]))
end
command("time", "[N] CODE: how long it takes; run N times, the median", function(rest)
  -- A number in front of an expression is how often, unless it is part of it: "3 + 4".
  local n, code = rest:match "^(%d+)%s+([^%s=+%-*/^%%.,].*)$"
  if n then return time_again(math.max(math.tointeger(n), 1), code) end
  local start = core.clock()
  local good = repl.evaluate(rest)
  print(("%.3f ms"):format((core.clock() - start) * 1e3))
  return good
end)
command("sql", "QUERY: ask the database; a canned query by its name", function(rest)
  local name, params = rest:match "^([%w_]*)%s*(.*)$"
  if name == "" or not rest:find "%s" or params:match "^[%w_]+=" then
    return cli.main { "sql", table.unpack(repl.split(rest)) } == 0
  end
  return cli.main { "sql", rest } == 0
end)
command("quit", "leave", function() repl.done = true end)

--- Words of a command line; "a b" and 'a b' are one.
function repl.split(text)
  local words, at = {}, 1
  while true do
    at = text:find("%S", at)
    if not at then return words end
    local quote = text:sub(at, at):match "[\"']"
    local stop = quote and text:find(quote, at + 1, true)
    if stop then
      words[#words + 1], at = text:sub(at + 1, stop - 1), stop + 1
    else
      local word = text:match("^%S+", at)
      words[#words + 1], at = word, at + #word
    end
  end
end

--- Runs ":name rest". @return whether it went well
local function run_command(line)
  local name, rest = line:match "^:(%S*)%s*(.-)%s*$"
  if repl.commands[name] then return repl.commands[name].run(rest) ~= false end
  if cli.verbs()[name] and name ~= "repl" then
    return cli.main { name, table.unpack(repl.split(rest)) } == 0
  end
  local known = {}
  for _, from in ipairs { repl.commands, cli.verbs() } do
    for key in pairs(from) do known[#known + 1] = key end
  end
  table.sort(known)
  local near = options.nearest(name, known)
  io.stderr:write(("no command \":%s\"%s; :help lists them\n"):format(
    name, near and ", did you mean \":" .. near .. "\"?" or ""))
  return false
end

-- ---- evaluating ---------------------------------------------------------------------------------

local function is_unfinished(message) return message and message:match "<eof>$" ~= nil end

--- Compiles an input, as an expression if it is one. A `local` that begins it would be gone with
-- the line: here it stays, as a global. @return chunk, or nil, message, is it unfinished
function repl.compile(text)
  if text:match "^%s*local%s+function%s" or text:match "^%s*local%s+[%w_,%s]+=[^=]" then
    text = text:gsub("local%s+", "", 1)
  end

  -- As an expression first, so that its value is shown; else as statements.
  local chunk, as_expression = load("return " .. text, "=stdin", "t")
  if chunk then return chunk end
  local statement, message = load(text, "=stdin", "t")
  -- "1 +" may yet become one
  if not statement and is_unfinished(as_expression) then message = as_expression end
  return statement, message, is_unfinished(message)
end

local function print_values(results)
  for i = 1, results.n do
    local value = results[i]
    local ok, text = pcall(values.text, value)
    print(ok and text or "(its __tostring failed: " .. tostring(text) .. ")")
  end
end

local function complain(err)
  io.stdout:flush()
  local is_plain = type(err) == "table" and not (getmetatable(err) or {}).__tostring
  io.stderr:write(is_plain and "(the error is a table)" or tostring(err), "\n")
end

--- What Lua says of a name that nobody has set, with the nearest one that somebody has.
local function with_nearest(err)
  local name = type(err) == "string" and err:match "a nil value %(global '([%w_]+)'%)"
  local near = name and options.nearest(name, options.keys(_G))
  return near and ("%s, did you mean \"%s\"?"):format(err, near) or err
end

--- Runs one complete input and prints its values. Errors go to standard error; the REPL lives on.
-- @return whether it went well
function repl.evaluate(text)
  -- A semicolon at the end means: do not show the value.
  local body = text:gsub("%s*;%s*$", "")
  local chunk, message = repl.compile(body)
  local quiet = chunk and body ~= text
  if not chunk then chunk, message = repl.compile(text) end
  if not chunk then
    local asked = body:match "^%s*help%s+([%w_.:]+)%s*$"
    complain(asked and ("help(%s), or ?%s"):format(asked, asked) or message)
    return false
  end

  -- What the user runs may fail, or be interrupted: the prompt comes back.
  local results = table.pack(xpcall(chunk, cli.handler))
  core.clear_interrupt()
  if not results[1] then
    complain(with_nearest(results[2]))
    return false
  end
  if results.n > 1 then
    rawset(_G, "_", results[2])
    if not quiet then print_values { n = results.n - 1, table.unpack(results, 2, results.n) } end
  end
  return true
end

-- ---- reading lines ------------------------------------------------------------------------------

local function history_path()
  local base = os.getenv "XDG_DATA_HOME"
  if base == nil or base == "" then base = (os.getenv "HOME" or ".") .. "/.local/share" end
  return base .. "/neap/history"
end

--- Lines as they come; the prompt only where somebody sees it.
local function plain_reader(interactive)
  return function(prompt)
    if interactive then
      io.write(prompt)
      io.flush()
    end
    return io.read "l"
  end
end

--- What readline asks for: all that the word under the cursor may become. The part before the last
-- name, "f(neap.nn.Li", stays.
local function completer(readline)
  return function(text, from, to)
    local word = text:sub(from, to)
    local found = repl.complete(text:sub(1, to))
    local tail = #(text:sub(1, to):match "[%w_%.:]*$")
    local head = word:sub(1, math.max(0, #word - tail))
    -- Where readline broke the word within ours ("a:b" may be one word to us), only its part is
    -- replaced.
    local skip = math.max(0, tail - #word)
    for i, name in ipairs(found) do found[i] = head .. name:sub(skip + 1) end
    if word:sub(1, 1) ~= ":" then readline.set_completion_append_character "" end
    return found
  end
end

--- Lines by readline, a character at a time: between characters we wait ourselves, so that Ctrl-C
-- drops the line instead of being held back. Returns nil at the end, false after Ctrl-C.
local function editing_reader(readline)
  core.make_folder(history_path():match "^(.*)/")
  readline.set_options {
    histfile = history_path(),
    keeplines = 2000,
    completion = true,
    auto_add = false,
  }
  readline.set_readline_name "neap"
  readline.set_complete_function(completer(readline))
  local last, dropped -- the descriptor of a dropped line's terminal
  return function(prompt)
    local line, got
    local descriptor = core.next_descriptor() -- handler_install opens the terminal anew
    readline.handler_install(prompt, function(text)
      line, got = text, true
      readline.handler_remove()
    end)
    if dropped then core.close_descriptor(dropped) end
    dropped = nil
    local ok, err = pcall(function()
      while not got do
        if core.wait_input() then readline.read_char() else fail("interrupted") end
      end
    end)
    if not ok then
      -- Not handler_remove: in the middle of a line it closes its terminal's stream and then writes
      -- to it (lua-readline 3.2). The next handler_install begins a new line all the same.
      if not got then dropped = descriptor end
      core.clear_interrupt()
      io.write "^C\r\n"
      io.flush()
      if not tostring(err):find("interrupted", 1, true) then complain(err) end
      if cli.interrupt_code() ~= 130 then return nil end
      return false
    end
    if line and line:match "%S" and line ~= last then
      readline.add_history(line)
      last = line
    end
    return line
  end, readline.save_history
end

--- A function prompt -> line, nil at the end, false when the line was dropped; and one to call at
-- the end.
local function line_reader(interactive)
  if interactive and core.wait_input then
    local ok, readline = pcall(require, "readline")
    if ok then return editing_reader(readline) end
  end
  return plain_reader(interactive), function() end
end

--- "?x": help on what `x` is a name of, or on the value that it gives; "?" alone as help().
local function explain(words)
  local neap = require "neap"
  if words == "" then return print(neap.help()) end
  -- m, t and net are names of classes, but here what the user calls so
  local own = rawget(_G, words)
  if type(own) == "table" or type(own) == "userdata" then return print(neap.help(own)) end
  local known, text = pcall(neap.help, words)
  if known then return print(text) end
  local chunk = repl.compile(words)
  local good, value = pcall(chunk or function() error(text, 0) end)
  if not good or value == nil then error(text, 0) end
  print(neap.help(value))
end

--- One line of input: a colon command, a question, or the next of a chunk. @return what the chunk
-- lacks, or nil; whether all went well
local function take(line, text)
  local question = text == nil and line:match "^%s*%?%s*(.-)%s*$"
  if question or text == nil and line:match "^%s*:%a" then
    local ok, result = xpcall(question and explain or run_command, cli.handler,
      question or line:gsub("^%s+", ""))
    core.clear_interrupt()
    if not ok then complain(result) end
    return nil, ok and result ~= false
  end
  if text == nil and not line:match "%S" then return nil, true end
  text = text and text .. "\n" .. line or line:gsub("^%s*=", "return ", 1)
  local chunk, _, unfinished = repl.compile(text)
  if chunk or not unfinished then return nil, repl.evaluate(text) end
  return text, true
end

-- Parts of neap that stand without its name, too.
local bare = { nn = true, optim = true, data = true }

--- neap and help as globals, and those parts, which are loaded when they are first used.
local function open_globals(neap)
  rawset(_G, "neap", neap)
  rawset(_G, "help", function(x) return neap.help(x) end)
  setmetatable(_G, { __index = function(_, key) return bare[key] and neap[key] or nil end,
    __names = function() return options.keys(bare) end })
end

--- The loop. @return integer exit code: through a pipe 1 when any input failed
function repl.main()
  local neap = require "neap"
  local interactive = core.is_terminal(0) and core.is_terminal(1)
  open_globals(neap)
  if interactive then
    print(("neap %s   help() shows the way, ?x explains x, :help lists commands, Ctrl-D leaves")
      :format(neap.version))
  end
  local read, leave = line_reader(interactive)
  local text, good = nil, true
  repl.done = false
  while not repl.done do
    if cli.interrupt_code() ~= 130 then break end -- SIGTERM
    local ok, line = pcall(read, text and ">> " or "> ")
    if not ok then -- Ctrl-C while waiting for a plain line
      core.clear_interrupt()
      if not interactive then error(line, 0) end
      print()
      line = false
    end
    if line == nil then break end
    if line == false then
      text = nil
    else
      local fine
      text, fine = take(line, text)
      good = good and fine
    end
  end
  if text then good = repl.evaluate(text) and good end -- says what is unfinished
  leave()
  if interactive and not repl.done then print() end
  if cli.interrupt_code() ~= 130 then return cli.interrupt_code() end
  return (good or interactive) and 0 or 1
end

return repl
