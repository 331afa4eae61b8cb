--- The script that runs: its arguments, and the commit of the repository that it lies in. Found
-- once a process, before its first run is recorded, and never by a step.
--
-- The commit is read from the files of the repository. Whether files differ from it is asked of
-- `git`, which must be there; of what is not known nothing is said.
-- @module neap.inner.script
local script = {}

local MOST_FOLDERS = 64 -- upwards, until the repository is found

--- The first line of a file, or nil.
local function first_line(path)
  local file = io.open(path, "r")
  local line = file and file:read "l"
  if file then file:close() end
  return line
end

--- Where a repository keeps its files, of the folder that has a `.git`: a folder, or a file that
-- names one, as in a second work tree.
local function git_folder(folder)
  -- A folder .git, or a file "gitdir: .." that names another one.
  if first_line(folder .. "/.git/HEAD") then return folder .. "/.git" end
  local named = (first_line(folder .. "/.git") or ""):match "^gitdir: (.+)$"
  if named and not named:match "^/" then named = folder .. "/" .. named end
  return named and first_line(named .. "/HEAD") and named
end

--- The commit that a name stands for: a file of its own, or a line of the file of packed names.
local function commit_of(git, name)
  -- A second work tree has names of its own, and shares the others with the first one.
  local shared = first_line(git .. "/commondir")
  if shared then shared = shared:match "^/" and shared or git .. "/" .. shared end
  for _, folder in ipairs { git, shared } do
    local line = first_line(folder .. "/" .. name)
    if line then return line:match "^%x+" end
  end

  -- Names that have not changed for long are lines of one file.
  local packed = io.open((shared or git) .. "/packed-refs", "r")
  if not packed then return nil end
  local _ <close> = packed
  for line in packed:lines() do
    local id, packed_name = line:match "^(%x+) (.+)$"
    if packed_name == name then return id end
  end
end

--- The commit that a folder's repository is at, and that repository; nil: none.
-- @tparam string folder
-- @treturn ?string, ?string
function script.commit(folder)
  -- Upwards: the script may lie deep in the repository.
  for _ = 1, MOST_FOLDERS do
    local git = git_folder(folder)
    if git then
      local head = first_line(git .. "/HEAD")
      -- HEAD names a branch, or is a commit itself.
      local name = head:match "^ref: (.+)$"
      return name and commit_of(git, name) or head:match "^%x+$", folder
    end
    folder = folder .. "/.."
  end
end

--- Whether files that the repository knows differ from its commit; nil: nobody can say.
function script.is_dirty(folder)
  -- The folder is quoted for the shell; locks are not taken, since a script may run beside another
  -- git.
  local quoted = "'" .. folder:gsub("'", "'\\''") .. "'"
  local good, pipe = pcall(io.popen, "git --no-optional-locks -C " .. quoted
    .. " status --porcelain --untracked-files=no 2>/dev/null")
  if not good or pipe == nil then return nil end
  local changed = pipe:read "l" ~= nil
  -- who reads a part ends the pipe, and so the command: what it says then means nothing
  if changed then
    pipe:close()
    return true
  end
  if pipe:close() then return false end
end

--- The folder of the script; the one that is worked in where there is none, as for the command
-- line and the REPL.
local function folder_of(name)
  if type(name) ~= "string" or name:sub(1, 1) == "-" then return "." end
  local file = io.open(name, "r")
  if not file then return "." end
  file:close()
  return name:match "^(.*)/[^/]*$" or "."
end

--- The name that a model was given, or of its net file; nil for none.
function script.given_name(model)
  return rawget(model, "_wanted_name") or rawget(model, "_file_name")
end

--- What a model's net is called: by the name that it was given, else as the script that runs,
-- "model" where none does.
function script.net_name(model)
  local given = script.given_name(model)
  if given then return given end
  local name = (rawget(_G, "arg") or {})[0]
  return type(name) == "string" and name:match "([%w_%-]+)%.lua$" or "model"
end

local facts

--- What is known of the script, for the rows of its runs.
-- @treturn ?string arguments, a list in JSON
-- @treturn ?string commit
-- @treturn ?boolean whether files differ from it
function script.facts()
  -- Once a process: neither changes while it runs.
  if facts then return table.unpack(facts, 1, 3) end
  facts = {}
  local arg, words = rawget(_G, "arg") or {}, {}
  local has_json, json = pcall(require, "cjson")
  for i, word in ipairs(arg) do words[i] = tostring(word) end
  if has_json and #words > 0 then facts[1] = json.encode(words) end
  local top
  facts[2], top = script.commit(folder_of(arg[0]))
  if facts[2] then facts[3] = script.is_dirty(top) end
  return table.unpack(facts, 1, 3)
end

return script
