--- Memory options: what plans, programs and all that makes them take beside their own fields. The
-- table is the engine's (NEAP_OPTION_MAP in neap.h); here tables of them are told apart from other
-- fields and checked by it, and it is shown to people.
--
-- A *face* is where options can be given: "lua" (net:plan, m:plan, forecast, dry_run, count_memory,
-- ws:compile, ws:run and the like), "workspace", "trainer", "layers" (m:memory), "fit" (fit_batch),
-- "command" (the command line).
-- @module neap.memory.options
local core = require "neap.core"
local mem_param = require "neap.memory.mem_param"
local options = require "neap.inner.options"
local fail = core.fail

-- `records`: {name =, type =, default =, range =, doc =, key =, faces = {..}} of each option in the
-- table's order, and by name.
local memory_options = { records = core.memory_options() }
local records = memory_options.records

--- Names of the options of a face, sorted, with those of `own` fields.
-- @param face string
-- @param own record|nil
-- @return string[]
function memory_options.names(face, own)
  local names = own and own:names() or {}
  for _, record in ipairs(records) do
    if record.faces[face] then names[#names + 1] = record.name end
  end
  table.sort(names)
  return names
end

--- The words that a choice takes.
function memory_options.choices(name)
  local words = {}
  for word in records[name].range:gmatch "%S+" do words[#words + 1] = word end
  return words
end

--- Raises for a key that is no option of the face and no field of its own.
local function check_key(who, key, face, own)
  if own and own.fields[key] or records[key] and records[key].faces[face] then return end

  -- An option that another face takes is no slip of the pen: the hint "did you mean" would mislead.
  if records[key] then fail(("%s does not take the option \"%s\""):format(who, key)) end
  local names = memory_options.names(face, own)
  local near = options.nearest(tostring(key), names)
  fail(("%s: unknown field \"%s\"%s"):format(
    who, tostring(key),
    near and (", did you mean \"" .. near .. "\"?") or "; it takes " .. table.concat(names, ", ")))
end

--- Tells a face's options from its own fields; a key that is neither raises.
-- @param who string for messages
-- @param given table|nil
-- @param face string
-- @param own record of the face's own fields
-- @return table of own fields as given, table of memory options, both new and checked
function memory_options.split(who, given, face, own)
  if given ~= nil and type(given) ~= "table" then
    fail(("%s expects a table of options, got a %s"):format(who, type(given)))
  end
  local fields, memory = {}, {}

  -- A name that both have is the face's own field.
  for key, value in pairs(given or {}) do
    check_key(who, key, face, own)
    if own.fields[key] then fields[key] = value else memory[key] = value end
  end
  return own:read_given(fields, who), memory_options.check(who, memory, face)
end

--- Options as a new table, checked one by one; what depends on a net is seen when there is one.
-- @param who string for messages
-- @param memory table
-- @param face string
function memory_options.check(who, memory, face)
  -- Keys one by one here, values by the engine, which has the ranges of them.
  local out = {}
  for key, value in pairs(memory) do
    check_key(who, key, face)
    out[key] = value
  end
  core.check_memory_options(who, out, face)
  if out.mem_param ~= nil then out.mem_param = mem_param.new(out.mem_param) end
  return out
end

-- ---- for people ---------------------------------------------------------------------------------

--- What a value of the option looks like: "64MiB", "offset | name | none | pool".
local function values_of(record)
  if record.type == "choice" then return (record.range:gsub(" ", " | ")) end
  if record.type == "bytes" then
    return record.range ~= "%" and "bytes, \"64MiB\""
      or "bytes, \"64MiB\", or \"60%\" of each net's own plan (neap.workspace: bytes alone)"
  end
  if record.type == "count" then
    return (record.range:gsub("^(%S+)$", "from %1 on"):gsub("^(%S+) (%S+)$", "%1 to %2"))
  end
  if record.type == "switch" then return "true | false" end
  if record.type == "names" then return "a name or a list" end
  if record.type == "banks" then return "a list of neap.bank" end
  if record.type == "inputs" then return "{ x = { 64, 784 } }" end
  return record.type == "text" and "a text" or "a table"
end

--- All options with their values, defaults and meaning, a line each: neap.help "options".
--- @param name string|nil of one of them; all without
function memory_options.text(name)
  local lines = {
    (name and "memory option" or "memory options") .. ": of net:plan, m:plan, ws:compile, ws:run, \z
      neap.workspace, neap.trainer's memory, neap.fit_batch, neap plan ..",
  }
  for _, record in ipairs(records) do
    if record.faces.lua and (name == nil or record.name == name) then
      lines[#lines + 1] = ("  %-10s %s (default: %s)\n             %s"):format(
        record.name, values_of(record), record.default or "none", record.doc)
    end
  end
  return table.concat(lines, "\n")
end

-- ---- the command line ---------------------------------------------------------------------------

--- "fast=2MiB" as a memory bank.
local function bank_of(text)
  local name, bytes = text:match "^([^=]*)=(.*)$"
  return require("neap").bank { name or text, bytes = bytes }
end

--- Puts "x=64,784" into inputs.
local function add_input(inputs, text)
  local name, sizes = text:match "^([^=]+)=([%d,]*)$"
  if not name then
    require("neap.cli").usage(("--inputs expects NAME=SIZE,SIZE.., such as x=64,784; got \z
      \"%s\""):format(text))
  end
  local shape = {}
  for size in sizes:gmatch "%d+" do shape[#shape + 1] = math.tointeger(tonumber(size)) end
  inputs[name] = shape
end

--- The flag of an option: --in-place; a switch that is on by default is turned off: --no-recompute.
local function flag_of(record)
  local word = record.name:gsub("_", "-")
  return record.type == "switch" and record.default == "true" and "--no-" .. word or "--" .. word
end

local argument_of = {
  bytes = "<bytes>", count = "<n>", text = "<text>", names = "<blob>", banks = "<name=bytes>",
  inputs = "<name=sizes>",
}

--- Adds the options of the face "command" to an argparse command, in the table's order.
function memory_options.define(command)
  for _, record in ipairs(records) do
    if record.faces.command then
      -- The option's doc is a sentence about what it turns on.
      local says = record.doc
      local off = record.type == "switch" and record.default == "true"
      local text = (off and "Turn off: " .. says or says:gsub("^%l", string.upper)) .. "."
      if record.type == "switch" then
        command:flag(flag_of(record)):description(text)
      else
        local option = command:option(flag_of(record)):description(text)
        if record.type == "choice" then
          local words = {}
          for word in record.range:gmatch "%S+" do words[#words + 1] = word end
          option:choices(words)
        else
          option:argname(argument_of[record.type])
        end
        if record.type == "names" or record.type == "banks" or record.type == "inputs" then
          option:count "*"
        end
        if record.type == "count" then option:convert(require("neap.cli").whole(1)) end
      end
    end
  end
end

--- What argparse has for an option, as Lua gives it; nil for a list of nothing.
local function value_of(record, given)
  if record.type == "switch" then return record.default ~= "true" end
  -- A word such as "false" is the value of an option that takes more than words (fuse, say).
  if given == "true" or given == "false" then return given == "true" end
  if type(given) ~= "table" then return given end

  -- Options that may be given several times come as lists, empty when they are not there.
  local list = {}
  for i, text in ipairs(given) do
    if record.type == "inputs" then
      add_input(list, text)
    else
      list[i] = record.type == "banks" and bank_of(text) or text
    end
  end
  return #given > 0 and list or nil
end

--- A value from the text of a command line, "64MiB", "plain", "false", as Lua gives it.
-- @param name string of an option
function memory_options.of_text(name, text)
  local record = records[name]

  -- Numbers, then the two words that are values of Lua, then lists; all else is a word or a size,
  -- which the engine reads.
  if record.type == "count" then return math.tointeger(tonumber(text)) or text end
  if text == "true" or text == "false" then return text == "true" end
  if record.type == "banks" or record.type == "names" or record.type == "inputs" then
    return value_of(record, { text })
  end
  return text
end

--- The memory options that a parsed command line gives.
-- @param args table of argparse
function memory_options.of_command(args)
  local memory = {}
  for _, record in ipairs(records) do
    local given = args[(flag_of(record):gsub("^%-%-", ""):gsub("%-", "_"))]
    if record.faces.command and given ~= nil then memory[record.name] = value_of(record, given) end
  end
  return memory
end

--- The words of a command line that give the same options: for a program that is started with them.
-- @param args table of argparse
-- @return string[]
function memory_options.words(args)
  local words = {}
  for _, record in ipairs(records) do
    local given = args[(flag_of(record):gsub("^%-%-", ""):gsub("%-", "_"))]
    if record.faces.command and given ~= nil then
      for _, value in ipairs(type(given) == "table" and given or { given }) do
        words[#words + 1] = flag_of(record)
        if record.type ~= "switch" then words[#words + 1] = tostring(value) end
      end
    end
  end
  return words
end

return memory_options
