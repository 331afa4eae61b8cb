--- Pages of help that are of no function and no value: the environment, the memory options and each
-- of them, what can be asked, commands, canned queries, nets of the zoo.
-- @module neap.help.topics
local core = require "neap.core"
local options = require "neap.inner.options"

local topics = {}

local environment = {
  {
    "NEAP_DB",
    "file of plans and runs; off: none. Default: $XDG_DATA_HOME/neap/neap.db, \z
      ~/.local/share/neap/neap.db",
  },
  { "NEAP_DATA", "folder of data sets, looked at before ./data and ../shared/data/datasets" },
  { "NEAP_NETS", "folder of net files NAME.lua, looked at before the zoo" },
  { "NEAP_NUM_THREADS", "threads of kernels; default: the cores" },
  { "NEAP_ENGINE", "an engine below: only its kernels, and ref where it has none" },
  { "NEAP_PLAN", "off: every value has bytes of its own, nothing is shared" },
  {
    "NEAP_CACHE",
    "all: every plan is kept in the database and read back; off: none; dear, or nothing: those \z
      that were dear to find",
  },
  { "NEAP_POISON", "1: freed bytes are filled with NaN before others use them" },
  { "NEAP_DEBUG", "set: errors carry the whole traceback" },
  { "NEAP_PROFILE", "1: every program measures its ops and stores the times" },
  { "NEAP_SEED", "seed of workspaces that were given none" },
  { "NEAP_LUA", "folder whose files replace Neap's own Lua files, for work on them" },
  { "NO_COLOR", "set: plain text only" },
}

--- Pages by name.
local pages = {}

function pages.env()
  local lines = {}
  for _, row in ipairs(environment) do
    local value = os.getenv(row[1])
    lines[#lines + 1] = ("%-17s %s%s"):format(row[1], row[2],
      value and "  [now " .. value .. "]" or "")
  end
  lines[#lines + 1] = "\nEngines:"
  for _, row in ipairs(require("neap").engines()) do
    lines[#lines + 1] = ("%-17s %s%s"):format(row.name, row.doc,
      row.missing and "  [missing: " .. row.missing .. "]"
        or row.version and "  [" .. row.version .. "]"
        or "")
  end
  return table.concat(lines, "\n")
end

function pages.options() return require("neap.memory.options").text() end

function pages.questions() return require("neap.help.questions").text() end

--- Names of the pages.
function topics.pages() return options.keys(pages) end

--- A command of the command line in a few lines; nil for none.
local function command(name)
  local verb = require("neap.cli").verbs()[name]
  if not verb then return nil end
  return ("command: neap %s ..: %s\n  neap help %s, and :%s --help at the prompt, list its \z
    options."):format(name, verb.summary, name, name)
end

--- A canned query; nil for none.
local function query(name)
  local text = core.embedded("db/queries/" .. name .. ".sql")
  if not text then return nil end
  local takes = require("neap.db").parameters(name)
  return ("query %s\n  takes %s: neap sql %s net=lenet, db:query(\"%s\", { net = \z
    \"lenet\" })"):format(text:match "^%-%- *([^\n]*)", table.concat(takes, ", "), name, name)
end

--- A memory option; nil for none.
local function option(name)
  local memory = require "neap.memory.options"
  local record = memory.records[name]
  return record and record.faces.lua and memory.text(name) or nil
end

--- A net of the zoo, "lenet" or "zoo.lenet"; nil for none.
local function net_of_zoo(name)
  local netfile = require "neap.net.file"
  name = name:match "^zoo%.(.+)$" or name
  local record = netfile.options(name)
  if not record then return nil end
  return record:text() .. ("\nA net of the zoo: neap plan %s --train plans it, neap bench %s:8 \z
    measures it."):format(name, name)
end

--- What there is to say on a name, as a list of texts: a command and a query may have one name.
function topics.texts(name)
  local found = {}
  if pages[name] then found[1] = pages[name]() end
  for _, of in ipairs { net_of_zoo, option, command, query } do found[#found + 1] = of(name) end
  return found
end

--- Names that topics.texts knows.
function topics.names()
  local names = topics.pages()
  options.append(names, require("neap.net.file").names())
  options.append(names, require("neap.db").queries())
  options.append(names, options.keys(require("neap.cli").verbs()))
  for _, r in ipairs(require("neap.memory.options").records) do
    if r.faces.lua then names[#names + 1] = r.name end
  end
  return names
end

return topics
