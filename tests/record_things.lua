--- What the spec of records makes records with and of: files, sets of rows, nets, workspaces,
-- databases and generators, all small.
local neap = require "neap"
local support = require "support"
local nn, data = neap.nn, neap.data
local things = {}

things.folder = os.getenv "TMPDIR" or "/tmp"

--- A file of that text, by its name here: its path.
function things.written(name, text)
  local path = ("%s/neap_records_%s"):format(things.folder, name)
  local file = assert(io.open(path, "w"))
  file:write(text)
  file:close()
  return path
end

things.text_file = things.written("text.txt", ("abcdefgh\nijkl mnop\n"):rep(20))
things.other_text = things.written("other.txt", ("hgfedcba\n"):rep(9))
things.table_file = things.written("table.csv", ("1,2,0\n3,4,1\n5,6,0\n7,8,1\n"):rep(3))
things.rows_file = things.written("rows.jsonl",
  '{"x":[1,2],"y":0}\n{"x":[3,4],"y":1}\n{"x":[5,7],"y":1}\n')
things.ragged = things.written("ragged.jsonl",
  '{"x":[1],"y":0}\n{"x":[3,4,5],"y":1}\n{"x":[7],"y":1}\n')

--- A folder of two classes with three pictures each.
function things.picture_folder(name)
  local path = things.folder .. "/" .. name
  for _, class in ipairs { "a", "b" } do
    os.execute(("mkdir -p %s/%s"):format(path, class))
    for i = 1, 3 do
      local x = (neap.rand(3, 4 + i, 6 + i) * 255):to "u8"
      assert(neap.save(("%s/%s/%d.png"):format(path, class, i), x))
    end
  end
  return path
end
things.pictures = things.picture_folder "pictures"
things.other_pictures = things.picture_folder "others"

function things.linear() return nn.Linear { 4, 2 } end

function things.rows()
  return data.tensors { x = neap.ones(4, 4), y = neap.zeros { 4, dtype = "i64" }, batch = 2 }
end

--- A net with a short branch and a long one, and a loss; in a scope, all but the loss. Something
-- of another dtype, besides.
function things.small_net()
  local net = neap.net "small"
  local x = net:input("x", { 3, 4 })
  local w = net:param("w", { 4, 4 }, 0.5)
  net:param("frozen", { 4 }, 0, { trainable = false })
  local function branch(name, n)
    local h = x
    for i = 1, n do h = net:FC({ h, w }, name .. i):tanh() end
    return h
  end
  local sum = net:scope("in", function() return branch("a", 2) + branch("b", 4) end)
  net:outputs { net:Mean({ sum }, "loss"), net:const(1, "f64"):tanh():exp():sqrt() }
  return net
end

--- A workspace that has nets "load", "train" and "test", and blobs w1 and w2.
function things.with_nets()
  local ws = neap.workspace { seed = 1, store = false }
  for _, name in ipairs { "load", "train", "test" } do
    local net = neap.net(name)
    net:outputs { net:Add({ net:param("n", { 1 }), net:const(1) }, "n") }
    ws:add_net(net)
  end
  for _, name in ipairs { "w1", "w2" } do ws:feed(name, neap.ones(4, 4)) end
  ws:feed("stop", neap.tensor({ true }, "bool"))
  ws:run_once(ws:net "load")
  return ws
end

--- A program whose ops are timed, of the small net, and its workspace; close both.
function things.profiled()
  local ws, net = neap.workspace { seed = 1, store = false }, things.small_net()
  ws:feed("x", neap.ones(3, 4))
  return ws:compile(net, { profile = true }), ws
end

--- What a file holds, which is gone then.
function things.taken(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read "a"
  file:close()
  os.remove(path)
  return text
end

--- A database with that many runs.
function things.database(n_run)
  local path = support.shell "mktemp -d":match "[^\n]+"
  local db = assert(neap.db(path .. "/neap.db"))
  neap.use_db(db)
  for _ = 1, n_run do
    local ws <close> = neap.workspace { seed = 1 }
    ws:feed("x", neap.ones(3, 4))
    local program <close> = ws:compile(things.small_net())
    program:run()
    program:record()
  end
  neap.use_db(false)
  return db
end
things.recorded, things.unused = things.database(3), things.database(0)

--- A generator of tokens by a small model, which has read a text.
function things.generator()
  local g = neap.generator { neap.zoo.gpt { layers = 1, width = 16, heads = 2, length = 64,
    vocabulary = 20 }, seed = 1 }
  g:read { 1, 2, 3 }
  return g
end

return things
