--- `neap run scripts/tools/reference.lua types` prints stubs for editors, in the annotations of the
-- Lua language server; `.. options` the page of `make doc` on all that takes a table of options.
--
-- Both are made from the records of ops and of options, and from the texts of neap.help, so that
-- neither says what the program does not do.
local neap = require "neap"
local core = require "neap.core"
local op = require "neap.op"
local record = require "neap.inner.record"

local out = {}
local function put(text, ...) out[#out + 1] = select("#", ...) > 0 and text:format(...) or text end

local function sorted_keys(t)
  local keys = {}
  for key in next, t do
    if type(key) == "string" and key:match "^%a[%w_]*$" then keys[#keys + 1] = key end
  end
  table.sort(keys)
  return keys
end

-- ---- stubs -------------------------------------------------------------------------------------

--- A text as comment lines.
local function comment(text)
  for line in (text .. "\n"):gmatch "([^\n]*)\n" do put("--- %s", line) end
end

local keywords = { ["end"] = true, ["repeat"] = true, ["in"] = true, ["and"] = true, ["or"] = true,
  ["not"] = true, ["if"] = true, ["then"] = true, ["function"] = true }

-- Attributes' types for editors.
local type_of = { float = "number", int = "integer", axis = "integer", bool = "boolean",
  ints = "integer|integer[]", floats = "number[]", string = "string", dtype = "string" }

local function type_of_attribute(a)
  if a.choices then return '"' .. a.choices:gsub("|", '"|"') .. '"' end
  return type_of[a.type] or "any"
end

--- "{ axis?: integer, .. }", the type of an op's attributes.
local function attributes_type(r)
  local parts = {}
  for i, a in ipairs(r.attrs) do
    parts[i] = ("%s%s: %s"):format(a.name, a.required and "" or "?", type_of_attribute(a))
  end
  return "{ " .. table.concat(parts, ", ") .. " }"
end

--- The function of an op on tensors (or blobs): its inputs in order, then attributes.
-- @param owner string "Tensor:" for the method, whose first input is self, or "neap."
local function put_op_function(owner, r)
  local is_method, names = owner:sub(-1) == ":", {}
  comment(r.summary .. (r.math and r.math ~= "" and "\n" .. r.math or ""))

  -- Inputs in order; self is the method's first. Behind operands without number no table can
  -- follow.
  for i, input in ipairs(r.inputs) do
    if i > 1 or not is_method then
      local name = input.variadic and "..." or input.name
      if keywords[name] then name = name .. "_" end
      names[#names + 1] = name
      put("---@param %s%s neap.Tensor|number %s", name,
        (input.optional and name ~= "...") and "?" or "", input.doc or "")
      if input.variadic then break end
    end
  end

  if #r.attrs > 0 and names[#names] ~= "..." then
    names[#names + 1] = "attrs"
    put("---@param attrs? %s", attributes_type(r))
  end
  for _, output in ipairs(r.outputs) do put("---@return neap.Tensor %s", output.name) end
  put("function %s%s(%s) end\n", owner, op.snake(r.name), table.concat(names, ", "))
end

--- The op as a method of nets.
local function put_net_method(r)
  comment(r.summary)
  put "---@param inputs? any"
  put "---@param outputs? string|string[]"
  put("---@param attrs? %s", attributes_type(r))
  put "---@return neap.Blob ..."
  put("function Net:%s(inputs, outputs, attrs) end\n", r.name)
end

--- The name of the class of a record's table.
local function options_class(r) return (r.name:gsub(":", ".")) .. ".options" end

--- The parameters of a function that has a record, "name, shape, init, options": put as lines
-- before it, and given as text.
local function put_parameters(r)
  local names = {}
  -- "{}" in a call's form is its table, ".." whatever follows.
  for name in (r.call or "({})"):gmatch "[%w_{}%.]+" do
    local own = name == "{}" and "options" or name == ".." and "..." or name
    names[#names + 1] = own
    put("---@param %s%s %s", own, own == "..." and "" or "?",
      name == "{}" and options_class(r) or "any")
  end
  return table.concat(names, ", ")
end

--- A class of handles with the methods that are no ops.
local function put_methods(class, prefix, methods, is_op)
  for _, name in ipairs(sorted_keys(methods)) do
    if type(methods[name]) == "function" and not is_op(name) then
      -- Text and parameters where help and a record have them; else any.
      local ok, text = pcall(neap.help, prefix .. name)
      if ok then comment(tostring(text)) end
      local r = record.all[prefix:gsub("^t:", "trainer:") .. name]
      local parameters = r and put_parameters(r) or "..."
      put "---@return any ..."
      put("function %s:%s(%s) end\n", class, name, parameters)
    end
  end
end

--- The class of a record's table: its positions and its fields.
local function put_options_class(r)
  put("---@class %s", options_class(r))
  for i, name in ipairs(r.positions) do
    put("---@field [%d]? %s %s", i, record.annotation(r.fields[name]), name)
  end
  if r.items then put("---@field [integer] any %s", r.items) end
  for _, f in ipairs(r.fields) do
    -- A field that a position gives may be missing by its name.
    local may_miss = not f.required
    for _, name in ipairs(r.positions) do may_miss = may_miss or name == f.name end
    put("---@field %s%s %s %s (%s)", f.name, may_miss and "?" or "", record.annotation(f), f.doc,
      record.otherwise(f))
  end
  put ""
end

-- What the functions give that have records, by the beginning of their names.
local gives = { { "nn.", "neap.Module" }, { "optim.%u", "neap.Optimizer" },
  { "optim.", "fun(step: integer, rate: number): number" }, { "neap.data.", "neap.Data" },
  { "neap.init.", "table" }, { "neap.trainer", "neap.Trainer" },
  { "neap.workspace", "neap.Workspace" } }

local function put_maker(r, name)
  comment(r:text())
  local parameters = put_parameters(r)
  for _, pair in ipairs(gives) do
    if r.name:find("^" .. pair[1]:gsub("%.", "%%.")) then
      put("---@return %s", pair[2])
      break
    end
  end
  put("function %s(%s) end\n", name, parameters)
end

local classes = { { "Tensor", "tensor:" }, { "Net", "net:" }, { "Workspace", "ws:" },
  { "Plan", "plan:" }, { "Program", "program:" }, { "Scope", "scope:" }, { "Db", "db:" } }

local function types()
  record.everything() -- so that all of them are there
  put "---@meta neap"
  put "-- Made by `make types` of Neap from the records of its ops and options.\n"

  local public = {}
  for _, name in ipairs(op.names()) do
    local r = op.records[name]
    if not r.internal and not r.control then public[#public + 1] = r end
  end

  -- An op is a function, a method of tensors and one of nets: methods beside these are put by
  -- themselves.
  local is_op = {}
  for _, r in ipairs(public) do is_op[op.snake(r.name)], is_op[r.name] = true, true end
  for _, class in ipairs(classes) do
    put("---@class neap.%s", class[1])
    if class[1] == "Tensor" then put "---@field shape integer[]\n---@field dtype string" end
    put("local %s = {}\n", class[1])
    put_methods(class[1], class[2], core[class[1]], function(name) return is_op[name] end)
  end
  put "---@class neap.Blob: neap.Tensor\n---@field name string\n"
  put "---@class neap.Module\nlocal Module = {}\n"
  put_methods("Module", "m:", require("neap.nn.module").Module, function() return false end)
  put "---@class neap.Trainer\nlocal Trainer = {}\n"
  put_methods("Trainer", "t:", require("neap.train.state").Trainer, function() return false end)
  put "---@class neap.Optimizer\n---@field lr number\n\n---@class neap.Data\n"

  for _, r in ipairs(public) do
    if #r.inputs > 0 then put_op_function("Tensor:", r) end
    put_net_method(r)
  end
  put "---@class neap\nlocal neap = { nn = {}, optim = {}, data = {}, init = {}, memonger = {} }\n"

  local has_record = {}
  for _, r in ipairs(record.everything()) do
    put_options_class(r)
    if not r.name:find(":", 1, true) then
      local name = r.name:find "^neap%." and r.name or "neap." .. r.name
      has_record[name] = true
      put_maker(r, name)
    end
  end
  for _, r in ipairs(public) do put_op_function("neap.", r) end

  -- What is left: functions that are neither ops nor have a record.
  for _, name in ipairs(sorted_keys(neap)) do
    local full = "neap." .. name
    if type(neap[name]) == "function" and not is_op[name] and not has_record[full] then
      local ok, text = pcall(neap.help, full)
      if ok then comment(tostring(text)) end
      put "---@return any ..."
      put("function %s(...) end\n", full)
    end
  end
  put "return neap"
end

-- ---- the page ----------------------------------------------------------------------------------

local sections = { { "nn.", "Layers, containers and losses" }, { "optim.%u", "Optimizers" },
  { "optim.%l", "Schedules" }, { "neap.init.", "Initialisers" }, { "neap.data.", "Data sets" },
  { "", "Models, trainers, workspaces and memory" } }

local function put_record(r)
  put("### %s\n", r.name)
  put("    %s\n", (r:signature():gsub("\n", "\n    ")))
  if r.doc then put("%s\n", r.doc) end
  if #r.fields > 0 then
    put "| option | takes | else | meaning |\n|---|---|---|---|"
    for _, f in ipairs(r.fields) do
      put("| `%s` | %s | %s | %s |", f.name, (record.expectation(f):gsub("|", "\\|")),
        (record.otherwise(f):gsub("|", "\\|")), (f.doc:gsub("|", "\\|")))
    end
    put ""
  end
  if r.example then put("    %s\n", (r.example:gsub("\n", "\n    "))) end
end

local function options_page()
  put "# Options\n"
  put "What the tables take that things are made from: the records that their constructors read.\n"
  local done = {}
  -- The last section takes what no other has.
  for _, section in ipairs(sections) do
    put("## %s\n", section[2])
    for _, r in ipairs(record.everything()) do
      if not done[r] and r.name:find("^" .. section[1]:gsub("%.", "%%.")) then
        done[r] = true
        put_record(r)
      end
    end
  end
end

local makers = { types = types, options = options_page }
local maker = makers[(...)] or error "usage: neap run scripts/tools/reference.lua types|options"
maker()
print(table.concat(out, "\n"))
