--- What neap.help shows of the Lua surface: the comments above the definitions in Neap's own Lua
-- files, which are part of the program.
--
-- An index of all of them by name is made at the first use: "data.from", "nn.Linear", "Net:input"
-- as they are defined, and "neap.range", "ws:run" as the comments call them. Fields of a layer or
-- an optimizer are read from its definition, too.
-- @module neap.help
local classes = require "neap.help.classes"
local core = require "neap.core"
local guard = require "neap.inner.guard"
local of_c = require "neap.help.of_c"
local record = require "neap.inner.record"
local topics = require "neap.help.topics"
local help = {}

--- {text = the comment, code = what follows it in its file, file =, line =}
local docs, by_place, files

local function unindented(line) return (line:gsub("^%-%-%-?%s?", "")) end

--- What a line of Lua defines, or nil: "Net:input", "nn.Linear", "new".
local function defined(line)
  return line:match "^function ([%w_]+[.:][%w_]+)"
    or line:match "^local function ([%w_]+)"
    or line:match "^([%w_]+%.[%w_]+) = "
end

--- Takes a file's comments into the index.
local function read(file, text)
  -- A comment block is the lines that begin with it; the first line of code behind it is what it is
  -- of. Indented ones are heads of inner functions, and of methods made in a loop.
  local comment, line, at = {}, 0, 1
  for content in text:gmatch "([^\n]*)\n" do
    line = line + 1
    content = content:gsub("^ +%-%-%-", "---"):gsub("^ +%-%- ", "-- ")
    if content:match "^%-%-%-" then comment = { unindented(content) }
    elseif content:match "^%-%-%s" and #comment > 0 then comment[#comment + 1] = unindented(content)
    elseif content == "--" and #comment > 0 then comment[#comment + 1] = ""
    else
      -- What the code defines, and what the comment itself says that users call it.
      local said = table.concat(comment, "\n")
      local name = said:match "@function ([%w_.:]+)" or defined(content)
      local public = said:match "^(neap%.[%w_.]+)" or said:match "^(%l+:[%w_]+)"
      if #comment > 0 and (name or public or said:match "@module") then
        local doc = { text = said, code = text:sub(at), file = file, line = line }
        local module = said:match "@module ([%w_.]+)"
        if module then files[module] = doc end
        if name then
          by_place[file .. ":" .. line] = doc
          if not content:match "^local function" then docs[name] = doc end
        end
        if public and not module then
          -- One comment may speak of several: "net:If, net:Elif".
          for each in (said:match "^[^({]*"):gmatch "%l+[:.][%w_.]+" do
            docs[each] = docs[each] or doc
          end
        end
      end
      comment = {}
    end
    at = at + #content + 1
  end
end

local function index()
  if docs then return end
  docs, by_place, files = {}, {}, {}
  for _, path in ipairs(core.embedded()) do
    -- The command line's verbs have help of their own.
    local file = path:match "^lua/neap/(.*%.lua)$"
    if file and not file:match "^cli/" then read(file, core.embedded(path)) end
  end
end

-- How the surface calls things, and how the files that define them do.
local prefixes = {
  ["neap.data."] = "data.", ["neap.nn."] = "nn.", ["neap.optim."] = "optim.",
  ["neap.init."] = "init.", ["neap.zoo."] = "zoo.", ["net:"] = "Net:", ["ws:"] = "Workspace:",
  ["db:"] = "Db:", ["tensor:"] = "Tensor:", ["scope:"] = "Scope:", ["plan:"] = "Plan:",
  ["program:"] = "Program:", ["m:"] = "Module:", ["module:"] = "Module:", ["model:"] = "Module:",
  ["data:"] = "Data:", ["report:"] = "Report:", ["run:"] = "Run:",
  ["trainer:"] = "Trainer:", ["t:"] = "Trainer:",
}

--- One comment as people read it: tags as words.
local function text_of(name, doc)
  local text = doc.text:gsub("\n@function [^\n]*", ""):gsub("\n@usage ", "\nexample: ")
    :gsub("\n@param (%S+) ?", "\n%1: "):gsub("%s@return ", "\ngives: ")
    :gsub("\n@t?param %S+ ", "\n"):gsub("\n@treturn ", "\ngives: "):gsub("@field ", "")
  local head = text:sub(1, #name) == name and "" or name .. ": "
  return head .. text
end

--- The record of the op that a layer is named after: ReLU and Relu, Conv2d and Conv; nil for
-- others.
local function op_of(class)
  local word = class:lower()
  for name, record in pairs(require("neap.op").records) do
    if name:lower() == word or name:lower() == word:gsub("%dd$", "") then return record end
  end
end

--- The text of a record; of a layer that is an op by another name the op's formula, too.
-- @param r record
-- @param values table|nil options of a thing that was made
local function text_of_record(r, values)
  local layer = r.name:match "^nn%.(.*)"
  local op = layer and op_of(layer)
  return r:text(values) .. (op and ("\nop %s: %s"):format(op.name, op.math) or "")
end

--- The text on a thing of the surface by its name, "neap.nn.Linear", "data.from", "Linear",
-- "ws:run"; nil when there is none.
local function thing(name)
  -- Those of C first: a record by the last word of its name is another's, m:load for neap.load.
  if of_c[name] or of_c["neap." .. name] then return of_c[name] or of_c["neap." .. name] end
  local declared = record.find(name)
  if declared then return text_of_record(declared) end

  -- Users' names to those of the definitions; then the names that have no prefix, by all prefixes
  -- in turn, from the layers to the database.
  local key = name
  for public, own in pairs(prefixes) do
    if name:sub(1, #public) == public then key = own .. name:sub(#public + 1) end
  end
  local doc = docs["neap." .. key] or docs[key] or docs[key:gsub(":", ".")] or docs[name]
  if doc then return text_of(name, doc) end
  for _, prefix in ipairs {
    "nn.", "optim.", "data.", "init.", "zoo.", "tensor:", "net:", "ws:", "m:", "t:", "plan:",
    "program:", "scope:", "db:",
  } do
    local full = prefix .. name
    local own = full:gsub("^%l+:", prefixes)
    local found = docs[full] or docs[own] or docs[(own:gsub(":", "."))]
    if found or of_c[full] then return of_c[full] or text_of(full, found) end
  end
  return nil
end

--- The text on a name: a class, a thing of the surface, a command, a query, an option, a net of the
-- zoo, or several of them. Nil when nothing bears it.
function help.by_name(name)
  index()
  name = name:gsub("^workspace:", "ws:"):gsub("^model:", "m:"):gsub("^module:", "m:")
    :gsub("^x:", "tensor:"):gsub("^set:", "data:"):gsub("^data_set:", "data:")

  -- A class first, and beside it what makes one, if both have the name.
  local class, parts = classes.text(name, thing), {}
  parts[1] = class or thing(name)
  if name:find "^blob:" then parts[1] = parts[1] or thing((name:gsub("^blob:", "tensor:"))) end
  local maker = record.find("neap." .. name)
  if class and (docs["neap." .. name] or maker and maker.name == "neap." .. name) then
    parts[2] = ("See also: help \"neap.%s\", what makes one."):format(name)
  end
  -- Beside that what else has the name: a command, a query, an option, a net.
  for _, text in ipairs(topics.texts((name:gsub("^neap%.zoo%.", "zoo.")))) do
    parts[#parts + 1] = text
  end
  return parts[1] and table.concat(parts, "\n\n")
end

--- The text on a function: by the name that guard has given it, else by the place of its
-- definition.
function help.by_function(f)
  index()

  -- What guard has wrapped is unwrapped: the place of the definition is the original's.
  local original = f
  while guard.original[original] do original = guard.original[original] end
  local name, info = core.function_name(f), debug.getinfo(original, "S")
  local found = name and help.by_name(name)
  local doc = not found
    and by_place[(info.source:match "neap:(.*)$" or "") .. ":" .. info.linedefined]
  return found or doc and text_of(name or doc.text:match "^neap%.[%w_]+" or "", doc)
end

--- The text on one of Neap's modules, and the names of what is in it.
-- @param name string what users call it: "neap.nn", "neap.init"
-- @param names string[]
-- @param module string|nil its Lua module where that has another name: "neap.nn.initializers"
function help.by_module(name, names, module)
  index()
  local doc = files[name] or files[module]
  if not doc then return nil end
  local lines = { name .. ": " .. doc.text:gsub("\n@module.*", ""):gsub("\n\nINVARIANT.*", "") }

  -- Of each entry the first sentence: of its record, else of its comment.
  for _, entry in ipairs(names) do
    local found = docs[name:match "[%w_]+$" .. "." .. entry] or docs[name .. "." .. entry]
    local own = record.find((name:gsub("^neap%.", "") .. "." .. entry))

    local first = own and own.doc:gsub("%. .*", ".")
      or found and found.text:gsub("\n", " "):match "^(.-%.)%s"
      or found and found.text:match "^[^\n]*"
    lines[#lines + 1] = ("  %-22s %s"):format(entry, first or "")
  end
  if name == "neap.zoo" then
    lines[#lines + 1] = "nets: " .. table.concat(require("neap.net.file").names(), ", ")
  end
  return table.concat(lines, "\n")
end

--- The text on a thing that has a record: a class of layers, a module, an optimizer; nil for
-- others.
function help.by_record(x)
  local class = type(x) == "table" and rawget(x, "_record")
  if class then return text_of_record(class) end
  local own, values = record.of(x)
  return own and text_of_record(own, values)
end

--- The text on a value of one of Neap's classes; nil for others.
function help.by_class_of(x)
  index()
  local name = classes.of(x)
  return name and classes.text(name, thing)
end

--- The text on a class of layers that says nothing of its options.
function help.by_class(class)
  return ("nn.%s { .. }: a layer; one made with a field that its init does not read is refused.")
    :format(class)
end

--- The examples of comments, { name or file and line, Lua code }. For tests.
function help.examples()
  index()
  local list = {}
  for place, doc in pairs(by_place) do
    for code in (doc.text .. "\n@"):gmatch "@usage (.-)\n%f[@]" do
      list[#list + 1] = { place, code }
    end
  end
  table.sort(list, function(a, b) return a[1] < b[1] end)
  return list
end

--- Names that help.by_name knows, for suggestions.
function help.names()
  index()
  local names, seen = {}, {}
  local function add(name)
    if not seen[name] then names[#names + 1] = name end
    seen[name] = true
  end
  for name in pairs(docs) do
    add(name)
    -- Also without the prefix, as people ask.
    local short = name:match "^nn%.(.*)"
      or name:match "^optim%.(.*)"
      or name:match "^data%.(.*)"
      or name:match "^neap%.(.*)"
    if short then add(short) end
  end
  for name in pairs(of_c) do add(name) end
  for _, r in ipairs(record.everything()) do
    add(r.name)
    add(r.name:match "[%w_]+$")
  end
  for _, name in ipairs(topics.names()) do add(name) end
  table.sort(names)
  return names
end

return help
