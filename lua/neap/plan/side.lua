--- Sides of neap.plan.diff from words of a command line: a net file or a net of the zoo, planned
-- now, or run:7, plan:7, commit:1a2b, as they are stored. A commit has many runs: commit:1a2b:lenet
-- or commit:1a2b:lenet:64 says of which net, and beside another side it is one like that.
-- @module neap.plan.side
local diff = require "neap.plan.diff"
local options = require "neap.inner.options"
local times = require "neap.plan.times"

local side = {}

local stored = { run = true, plan = true, commit = true }

--- "run", "7" of "run:7"; nil for a net.
local function stored_item(word)
  local kind, rest = word:match "^(%l+):(.+)$"
  if stored[kind] then return kind, rest end
end

--- Raises for options that nothing would read: they are of nets that are planned now.
-- @param verb string
-- @param words string[] what is asked for
-- @param args table of argparse
function side.check(verb, words, args)
  local cli = require "neap.cli"

  -- What the command line says of memory, mode or batch changes only a net that is planned now; a
  -- stored plan is as it was.
  local given = options.keys(require("neap.memory.options").of_command(args))
  options.append(given, { args.train and "train" or args.batch and "batch" or nil })
  local any_net = false
  for _, word in ipairs(words) do
    local is_net = not stored_item(word)
    any_net = any_net or is_net
    -- "lenet:64" says a batch itself.
    if args.batch and is_net and word:match ":%d+$" then
      cli.usage(("%s: %s says a batch, and --batch another one"):format(verb, word))
    end
  end
  if given[1] and not any_net then
    cli.usage(("%s: \"%s\" is for nets; %s %s stored as %s"):format(verb, given[1],
      table.concat(words, " and "), #words > 1 and "are" or "is",
      #words > 1 and "they were" or "it was"))
  end
end

local Source = {}
Source.__index = Source
Source.__close = function(self)
  if self.db then self.db:close() end
end

--- Where the sides of a command come from; to be closed. The database is opened when it is needed.
function side.source(args) return setmetatable({ args = args }, Source) end

local function open(self)
  self.db = self.db or require("neap.cli").database(self.args)
  return self.db
end

--- What a word asks of a commit, as diff.of_commit takes it; nil for other words.
local function commit_of(verb, word)
  local kind, rest = stored_item(word)
  if kind ~= "commit" then return nil end
  local text, net, batch = rest:match "^(%x+)$"
  if not text then text, net, batch = rest:match "^(%x+):(.-):(%d+)$" end
  if not text then text, net = rest:match "^(%x+):(.+)$" end
  if not text then
    require("neap.cli").usage(("%s: commit: takes the beginning of a commit's name, and of what \z
      was run then: commit:1a2b:lenet:64; got \"%s\""):format(verb, word))
  end
  return { text = text, net = net, batch = math.tointeger(tonumber(batch)) }
end

--- A side; a net has the times that stored runs give it where `timed` says so.
-- @param like table|nil the side beside it: a commit's run is one of the same net, mode and batch
function Source:side(verb, word, timed, like)
  local cli, args = require "neap.cli", self.args
  local kind, rest = stored_item(word)

  -- run:7 and plan:7 are numbers of the database.
  local id = rest and math.tointeger(tonumber(rest))
  if kind == "run" and id then return diff.of_run_id(open(self), id) end
  if kind == "plan" and id then return diff.of_plan_id(open(self), id) end
  local wanted = commit_of(verb, word)

  -- A commit has many runs: beside another side, the one of the same net, batch and mode is meant.
  if wanted then
    local figures = like and like.figures or {}
    wanted.net, wanted.batch = wanted.net or figures.net, wanted.batch or figures.batch
    wanted.mode = figures.mode
    return diff.of_commit(open(self), wanted)
  end
  if kind then
    cli.usage(("%s: %s: takes a number, got \"%s\""):format(verb, kind, word))
  end

  -- Anything else is a net, planned now with the options of the command line.
  local netfile = require "neap.net.file"
  local memory = require("neap.memory.options").of_command(args)
  local file = netfile.load(word)
  local plan = netfile.plan(file, { train = args.train, batch = args.batch },
    netfile.memory(file, memory))
  local made = diff.of_plan(plan)
  return timed and times.into(made, plan) or made
end

--- Two sides. Of two commits it is the newest runs of one net, mode and batch.
function Source:sides(verb, before, after, timed)
  local first, second = commit_of(verb, before), commit_of(verb, after)
  if first and second then return diff.of_commits(open(self), first, second) end
  -- The side that is not a commit is made first: it says which run of the commit is meant.
  if first then
    local right = self:side(verb, after, timed)
    return self:side(verb, before, timed, right), right
  end
  local left = self:side(verb, before, timed)
  return left, self:side(verb, after, timed, left)
end

return side
