--- Net files: what `neap plan`, `bench` and `profile` take. A Lua chunk that returns a module, a net, or
-- { model =, loss =, optimizer =, batch = }; a name without .lua is looked up in the zoo, scripts/nets.
-- @module neap.netfile
local core = require "neap.core"
local options = require "neap.options"
local netfile = {}

--- Where the nets lie from the folder of the program or module: build, PREFIX/bin, PREFIX/lib/lua/5.4.
local from_program = { "/../scripts/nets/", "/../share/neap/nets/", "/../../../share/neap/nets/" }

local function readable(path)
  local file = io.open(path, "r")
  if file then file:close() end
  return file ~= nil
end

--- The file of a net of the zoo: in $NEAP_NETS, in this repository, or where `make install` put it.
local function zoo_path(name)
  local list = {}
  local here = os.getenv "NEAP_NETS"
  if here then list[1] = here .. "/" end
  list[#list + 1] = "scripts/nets/"
  local folder = core.where()
  for _, rest in ipairs(folder and from_program or {}) do list[#list + 1] = folder .. rest end
  for _, place in ipairs(list) do
    if readable(place .. name .. ".lua") then return place .. name .. ".lua" end
  end
end

--- Names of the zoo's nets.
function netfile.names()
  return { "gpt", "lenet", "mlp", "resnet18c", "resnet50", "vgg16" }
end

--- Loads a net file by path or zoo name.
-- @param name string; "lenet", "my/net.lua", "lenet:32" (another batch)
-- @param ... any given to the chunk
-- @return table {model =, loss =, optimizer =, batch =, name =} or {net =, name =}
function netfile.load(name, ...)
  local stem, batch = name:match "^(.-):(%d+)$"
  stem = stem or name
  local path = stem
  if not stem:match "%.lua$" then
    path = zoo_path(stem)
    if not path then
      local near = options.nearest(stem, netfile.names())
      error(("no net \"%s\" in the zoo%s; it has %s, and NAME.lua is a file of your own"):format(stem,
        near and " (did you mean \"" .. near .. "\"?)" or "", table.concat(netfile.names(), ", ")), 0)
    end
  end
  local chunk, message = loadfile(path)
  if not chunk then error(message, 0) end
  local result = chunk(...)
  if type(result) == "table" and rawget(result, "_is_module") then result = { model = result } end
  if type(result) == "userdata" then result = { net = result } end
  if type(result) ~= "table" or not (result.model or result.net) then
    error(("%s: a net file returns a module, a net, or { model = .. }, got a %s"):format(path, type(result)), 0)
  end
  result.name = result.name or stem:match "([^/]+)%.lua$" or stem
  result.batch = math.tointeger(batch) or result.batch or 1
  result.path = path
  return result
end

--- The net of a loaded file for one mode; defaults: cross-entropy, SGD with momentum.
-- @param file table from load
-- @param o table {train = bool, batch =}
-- @return net, blobs
function netfile.build(file, o)
  if file.net then return file.net, {} end
  local neap = require "neap"
  local train = o.train or false
  return file.model:net { batch = o.batch or file.batch, train = train, name = file.name,
    loss = train and (file.loss or neap.nn.CrossEntropyLoss {}) or nil,
    optimizer = train and (file.optimizer or neap.optim.SGD { lr = 0.01, momentum = 0.9 }) or nil }
end

return netfile
