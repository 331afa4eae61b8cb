--- Why a canned query has no rows: what it was asked of is not in the database.
--
-- INVARIANT: what is there and has nothing to say (a value that nobody reads, a database without
-- plans) is no error: a query of it has no rows. Where a command of its own makes the rows (the
-- query's line "made by .."), that is said.
-- @module neap.inner.unanswered
local core = require "neap.core"
local options = require "neap.inner.options"

local unanswered = {}

local function refuse(message, hint)
  error(core.error { code = "name", message = message, hint = hint })
end

--- "; did you mean .."? of the words that there are, or the list of them.
local function near_or_list(word, words, otherwise)
  local near = options.nearest(word, words)
  if near then return ('did you mean "%s"?'):format(near) end
  if #words == 0 then return otherwise end
  return "there are " .. table.concat(words, ", ", 1, math.min(#words, 12))
    .. (#words > 12 and ", .." or "")
end

--- One column of what a query gives, as a list.
local function list(db, sql, params)
  local out = {}
  for i, row in ipairs(db:_query(sql, params or {}) or {}) do out[i] = row.word end
  return out
end

--- What was asked, as words: "net=lenet mode=train".
local function asked(params)
  local parts = {}
  for _, name in ipairs { "net", "mode", "batch", "policy", "budget", "engine" } do
    if params[name] ~= nil then parts[#parts + 1] = name .. "=" .. tostring(params[name]) end
  end
  return table.concat(parts, " ")
end

local nets_sql = "select net as word from plan union select net from run order by 1"

--- Raises for a net that the database does not know.
local function check_net(db, net)
  local nets = list(db, nets_sql)
  for _, name in ipairs(nets) do
    if name == net then return end
  end
  refuse(('no net "%s" is stored'):format(net),
    near_or_list(net, nets, "nothing is: neap plan NET stores a plan, a training a run"))
end

--- Raises for a plan or run of that number which is not there.
local function check_number(db, kind, id)
  if math.type(id) == "integer" and #list(db, ("select %s_id as word from %s where %s_id = :id")
    :format(kind, kind, kind), { id = id }) > 0 then return end
  refuse(("there is no %s %s"):format(kind, tostring(id)), ("neap sql %ss lists them"):format(kind))
end

--- Raises for a blob that none of the plans asked has.
-- @param plans integer[]
local function check_blob(db, blob, plans)
  local blobs = {}
  for _, id in ipairs(plans) do
    options.append(blobs, list(db,
      "select distinct blob as word from plan_value where plan_id = :id order by 1", { id = id }))
  end
  for _, name in ipairs(blobs) do
    if name == blob then return end
  end
  refuse(('no plan that was asked has a blob "%s"'):format(blob),
    near_or_list(blob, blobs, "neap sql plans lists the plans"))
end

--- Raises where a query had no rows because what it was asked of is not there.
-- @param db database
-- @param kind string|nil "plan" or "run", where the query is of one
-- @param found integer[]|nil the plans or runs that it was asked of
-- @param params table by name, as given
-- @param text string the query's own; its line "-- made by .." tells the command that makes rows
function unanswered.check(db, kind, found, params, text)
  -- From the widest to the narrowest: the first thing that is not there explains the rest.
  if params.net ~= nil then check_net(db, params.net) end
  if kind and params[kind] ~= nil then check_number(db, kind, params[kind]) end
  local words = asked(params)
  if found and #found == 0 and words ~= "" then
    if kind == "plan" then
      refuse(("no plan %s is stored"):format(words),
        "neap sql plans lists what was planned; neap plan NET stores a plan")
    end
    refuse(("no run %s has what is asked for"):format(words),
      "neap sql runs lists what was run; neap profile run NET measures times by op")
  end
  if found and kind == "plan" and params.blob ~= nil then check_blob(db, params.blob, found) end
  local maker = text:match "\n%-%- made by ([^\n]*)"
  if maker then refuse("nothing of it is stored", maker .. " makes it") end
end

return unanswered
