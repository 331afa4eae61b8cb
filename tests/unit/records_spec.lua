--- Records of options: every option of everything that has one is set, read back, seen in what is
-- made, refused where it is wrong, and shown.
local neap = require "neap"
local op = require "neap.op"
local record = require "neap.inner.record"
local record_layers = require "record_layers"
local support = require "support"
local nn, optim, data, raises = neap.nn, neap.optim, neap.data, support.raises


local two = neap.tensor { 2, 3 }
local folder = support.folder and support.folder() or os.getenv "TMPDIR" or "/tmp"

local function written(name, text)
  local path = ("%s/neap_records_%s"):format(folder, name)
  local file = assert(io.open(path, "w"))
  file:write(text)
  file:close()
  return path
end

local text_file = written("text.txt", ("abcdefgh\nijkl mnop\n"):rep(20))
local other_text = written("other.txt", ("hgfedcba\n"):rep(9))
local table_file = written("table.csv", ("1,2,0\n3,4,1\n5,6,0\n7,8,1\n"):rep(3))

local rows_file = written("rows.jsonl", '{"x":[1,2],"y":0}\n{"x":[3,4],"y":1}\n{"x":[5,7],"y":1}\n')
local ragged = written("ragged.jsonl", '{"x":[1],"y":0}\n{"x":[3,4,5],"y":1}\n{"x":[7],"y":1}\n')

--- A folder of two classes with three pictures each.
local function picture_folder(name)
  local path = folder .. "/" .. name
  for _, class in ipairs { "a", "b" } do
    os.execute(("mkdir -p %s/%s"):format(path, class))
    for i = 1, 3 do
      local x = (neap.rand(3, 4 + i, 6 + i) * 255):to "u8"
      assert(neap.save(("%s/%s/%d.png"):format(path, class, i), x))
    end
  end
  return path
end
local pictures, other_pictures = picture_folder "pictures", picture_folder "others"

-- ---- how each is made --------------------------------------------------------------------------

local function linear() return nn.Linear { 4, 2 } end

local function rows()
  return data.tensors { x = neap.ones(4, 4), y = neap.zeros { 4, dtype = "i64" }, batch = 2 }
end

-- By record: fields that it can't be made without, whose values `other` tells otherwise.
local base = {
  ["neap.trainer"] = function()
    return { model = linear(), optimizer = optim.SGD { lr = 0.1 } }
  end,
  ["neap.bank"] = { name = "fast" },
  ["neap.op"] = { name = "RecordsOp", inputs = { "x" }, run = function(_, x) return x end },
  ["neap.data.text"] = { path = text_file, length = 4 }, ["neap.data.chars"] = { path = text_file },
  ["neap.data.csv"] = { path = table_file },
  ["neap.data.jsonl"] = { path = rows_file },
  ["neap.data.image_folder"] = { path = pictures, size = 4 },
  ["neap.data.crop"] = { size = 4 }, ["neap.data.random_crop"] = { size = 4 },
  ["neap.data.resize"] = { size = 4 }, ["neap.data.random_resized_crop"] = { size = 4 },
  ["neap.data.normalise"] = { mean = 1, std = 2 },
  ["neap.data.tensors"] = { x = neap.rand(6, 4) },
  ["neap.data.sequences"] = { ids = { { 1 }, { 1, 2, 3 }, { 4, 5 }, { 6 } } },
  ["neap.data.from"] = { n = 6, x = { 2 }, get = function(i, slot) slot.x:fill_(i) end },
  ["neap.init.constant"] = { value = 2 },
  ["optim.sequence"] = { schedules = { optim.step { 3 }, optim.step { 5 } }, at = { 4 } },
  ["optim.chained"] = { schedules = { optim.step { 3 } } },
  ["optim.cyclic"] = { most = 0.5, up = 3 },
  ["optim.warmup"] = { steps = 10 }, ["optim.cosine"] = { steps = 10, warmup = 1 },
  ["optim.cosine_restarts"] = { steps = 4 }, ["optim.exponential"] = { factor = 0.9 },
  ["optim.multistep"] = { at = { 3, 8 } }, ["optim.one_cycle"] = { steps = 10 },
  ["optim.polynomial"] = { steps = 10 }, ["optim.linear"] = { steps = 10 },
  ["optim.inverse"] = { gamma = 0.1 }, ["optim.sigmoid"] = { middle = 5, gamma = -0.5 },
  ["optim.step"] = { every = 2 }, ["optim.Lars"] = { lr = 0.5 },
  ["optim.SGD"] = { lr = 0.5, momentum = 0.5 },
  ["neap.fit_batch"] = { total = "1GiB" },
  ["neap.prune"] = { amount = 0.5 }, ["neap.workspace"] = {},
  ["ws:create_net"] = { name = "load" },
  ["net:Do"] = function()
    return { scope = "s", bindings = { p = "a" }, body = function(d) d:Tanh("p", "q") end }
  end }
for name, given in pairs(record_layers.needed) do base[name] = given end

--- A new table of what a record can't do without.
local function needed(r)
  local t, given = {}, base[r.name]
  if type(given) == "function" then given = given() end
  for key, value in pairs(given or {}) do t[key] = value end
  return t
end

--- A net with a short branch and a long one, and a loss; in a scope, all but the loss. Something
-- of another dtype, besides.
local function small_net()
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
local function with_nets()
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

local function profiled()
  local ws, net = neap.workspace { seed = 1, store = false }, small_net()
  ws:feed("x", neap.ones(3, 4))
  return ws:compile(net, { profile = true }), ws
end

--- What a file holds, which is gone then.
--- What an option makes of a net of Caffe's: its text and its weight; of a solver its trainer.
local function import_caffe(o)
  local kit, own = require "import.caffe_kit", {}
  for key, value in pairs(o) do own[key] = value end
  local text = kit.input("x", 1, 1) .. kit.input("z", 1, 1) .. [[
    layer { name: "fc" type: "InnerProduct" bottom: "x" top: "y"
      inner_product_param { num_output: 1 bias_term: false } }
    layer { name: "l" type: "EuclideanLoss" bottom: "y" bottom: "z" top: "l" }
    layer { name: "t" type: "TanH" bottom: "y" top: "t" exclude { phase: TRAIN } }
    layer { name: "s" type: "Sigmoid" bottom: "y" top: "s" include { stage: "late" } }
    layer { name: "a" type: "AbsVal" bottom: "y" top: "a" include { min_level: 2 } }]]
  if own.net then
    if own.net == "net" then own.net = written("other.prototxt", text) end
    if own.net == "" then own.net = nil end
    local t = neap.import(written("s.prototxt", 'net: "gone" base_lr: 1 max_iter: 1'), own)
    return t and tostring(t) or "no net"
  end
  if own.weights == "weights" then
    own.weights = written("w.caffemodel", kit.weights { { "fc", kit.blob({ 1, 1 }, { 7 }) } })
  end
  local f = assert(neap.import(written("m.prototxt", text), own))
  return f.net:text() .. tostring(f.workspace:fetch "fc.weight")
end

local function taken(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read "a"
  file:close()
  os.remove(path)
  return text
end

local tensors_file = folder .. "/neap_record.safetensors"
local picture_file = folder .. "/neap_record.png"

--- What f gives, or what it says when it refuses by an error with a code. Wrong options raise.
local function tried(f, ...)
  local ok, result = pcall(f, ...)
  if not ok and type(result) ~= "table" then error(result, 0) end
  return ok and result or tostring(result)
end

--- A database with that many runs.
local function database(n_run)
  local path = support.shell "mktemp -d":match "[^\n]+"
  local db = assert(neap.db(path .. "/neap.db"))
  neap.use_db(db)
  for _ = 1, n_run do
    local ws <close> = neap.workspace { seed = 1 }
    ws:feed("x", neap.ones(3, 4))
    local program <close> = ws:compile(small_net())
    program:run()
    program:record()
  end
  neap.use_db(false)
  return db
end
local recorded, unused = database(3), database(0)
base["neap.runs"] = { db = recorded }
base["db:export"] = { path = support.shell "mktemp -d":match "[^\n]+" .. "/rows.sql" }

--- A generator of tokens by a small model, which has read a text.
local function generator()
  local g = neap.generator { neap.zoo.gpt { layers = 1, width = 16, heads = 2, length = 64,
    vocabulary = 20 }, seed = 1 }
  g:read { 1, 2, 3 }
  return g
end

-- How functions are called whose table is not all that they take, by record. What they give is a
-- text that differs where an option does something, or nothing.
local calls = {
  ["neap.sparse"] = function(o)
    neap.seed(1)
    local m = nn.Sequential { nn.Linear { 4, 32 }, input = { 4 } }
    neap.prune(m, { amount = 0.6, method = "block", block = { 16, 1 } })
    return (neap.sparse(m, o):net { batch = 1 }):text()
  end,
  ["neap.prune"] = function(o)
    neap.seed(1)
    local m = nn.Sequential { nn.Linear { 8, 4, name = "a" }, nn.Linear { 4, 4 }, input = { 8 } }
    neap.prune(m, o)
    local a, b = m:state_dict()["a.weight_mask"], m:state_dict()["linear1.weight_mask"]
    return tostring(a) .. tostring(b)
  end,
  ["neap.quantize"] = function(o)
    neap.seed(1)
    local set = neap.data.tensors { x = neap.randn(40, 4), batch = 4, shuffle = false }
    -- What is set beside `method` to tell both apart is read by the one alone.
    if o.method ~= "percentile" and o.percent == 80 then o.percent = nil end
    local q = neap.quantize(nn.Sequential { nn.Linear { 4, 2, name = "a" },
      nn.Linear { 2, 2 }, input = { 4 } }, set, o)
    local names, parts = {}, {}
    for name in pairs(q:state_dict()) do names[#names + 1] = name end
    table.sort(names)
    for i, name in ipairs(names) do
      parts[i] = name .. " " .. tostring(q:state_dict()[name]:to("f64"):sum():item())
    end
    return table.concat(parts, "\n")
  end,
  ["net:param"] = function(o)
    local net = small_net()
    local name = net:param(o.reuse and "w" or "v", { 4, 4 }, nil, o).name
    for _, row in ipairs(net:_blobs()) do
      if row.name == name then name = name .. tostring(row.trainable) end
    end
    return name .. net:text()
  end,
  ["net:gradient"] = function(o)
    local net = small_net()
    net:input("unused", { 3 })
    return tried(function()
      net:gradient("loss", o)
      return net:expand():text()
    end)
  end,
  ["net:dot"] = function(o) return small_net():dot(nil, o) end,
  ["plan:dot"] = function(o) return small_net():plan { store = false }:dot(nil, o) end,
  ["plan:svg"] = function(o)
    local program, ws = profiled()
    local _ <close> = ws
    local _ <close> = program
    if o.time == true then o.time = program:profile { steps = 1 } end
    return program.plan:svg(nil, o)
  end,
  ["plan:whatif"] = function(o)
    local tall = nn.Sequential { nn.Linear { 4, 4 }, nn.ReLU(), input = { 4 } }
    if o.run ~= nil or not next(o) then o.batch = o.batch or 3 end
    return tostring(tall:plan { store = false }:whatif(o))
  end,
  ["net:Do"] = function(o)
    local net = neap.net "outer"
    net:input("a", { 2 })
    net:input("b", { 2 })
    net:CreateScope({}, "s")
    net:CreateScope({}, "t")
    net:Do { scope = "s", bindings = { p = "a" }, body = function(d) d:Relu("p", "kept") end }
    net:Do(o)
    return net:text()
  end,
  ["net:variable_scope"] = function(o)
    local net = neap.net "scoped"
    net:variable_scope("v", {}, function() net:param("w", { 2 }) end)
    local name = o.reuse and "w" or "u"
    local blob = net:variable_scope("v", o, function() return net:param(name, { 2 }) end)
    for _, row in ipairs(net:_blobs()) do
      if row.name == blob.name then name = name .. tostring(row.trainable) end
    end
    return name .. blob.name .. net:text()
  end,
  ["m:param"] = function(o)
    local m = nn.Linear { 4, 2, input = { 4 } }
    m:param("more", { 2 }, 1, o)
    local p = m:param "more"
    return tostring(p) .. p.dtype
  end,
  ["m:buffer"] = function(o)
    local m = nn.Linear { 4, 2, input = { 4 } }
    m:buffer("more", { 2 }, 1, o)
    return m:param "more".dtype
  end,
  ["m:load_state_dict"] = function(o)
    local m = nn.Linear { 4, 2, input = { 4 } }
    local _, skipped = m:load_state_dict({ weight = neap.ones(o.skip_mismatch and 3 or 2, 4),
      bias = o.strict ~= false and neap.ones(2) or nil }, o)
    return #skipped.missing .. " " .. #skipped.mismatched
  end,
  ["m:load"] = function(o)
    neap.save(tensors_file, { weight = neap.ones(o.skip_mismatch and 3 or 2, 4),
      bias = o.strict ~= false and neap.ones(2) or nil })
    local _, skipped = assert(nn.Linear { 4, 2, input = { 4 } }:load(tensors_file, o))
    return #skipped.missing .. " " .. #skipped.mismatched
  end,
  ["m:optimize"] = function(o)
    local _, said = nn.Linear { 4, 2, input = { 4 } }:optimize(o)
    return said
  end,
  ["neap.grad"] = function(o)
    local function f(x, y) return (x * y * y):sum() end
    return tostring((neap.grad(f, o)(neap.ones(2), 3 * neap.ones(2))))
  end,
  ["neap.value_and_grad"] = function(o)
    local function f(x, y) return (x * y * y):sum() end
    return tostring(select(2, neap.value_and_grad(f, o)(neap.ones(2), 3 * neap.ones(2))))
  end,
  ["neap.export"] = function(o)
    local is_net = o.workspace and o.workspace ~= io.stdout
    local what = is_net and small_net() or nn.Sequential { nn.Linear { 4, 2 }, nn.ReLU() }
    if is_net then o.workspace:init(what) else o.input = o.input or { 4 } end
    local file = (o.opset or o.outputs) and folder .. "/neap_record.onnx" or tensors_file
    assert(neap.export(what, file, o))
    return taken(file)
  end,
  ["neap.import"] = function(o)
    local of_caffe = o.weights or o.phase or o.stages or o.level or o.without or o.net
    if of_caffe and import_caffe(o) ~= import_caffe { net = o.net and "" } then
      return import_caffe(o)
    end
    if o.map == nil then -- the others are of ONNX files: y = |x + b|, for any batch
      local onnx = require "import.onnx_kit"
      local graph = { nodes = { onnx.node("Add", { "x", "b" }, { "sum" }),
          onnx.node("Abs", { "sum" }, { "y" }) },
        inputs = { onnx.value("x", { "batch", 2 }), onnx.value("b", { 2 }) },
        outputs = { onnx.value("y", { "batch", 2 }) } }
      local made = assert(neap.import(written("add.onnx", onnx.model(graph)), o))
      return o.model and "a model" or tostring(made.net:text())
    end
    assert(neap.export(nn.Linear { 4, 2, input = { 4 } }, tensors_file))
    local held = neap.memory().held
    assert(neap.import(tensors_file, o))
    return "mapped " .. tostring(neap.memory().held - held < 40)
  end,
  ["g:next"] = function(o)
    local g <close> = generator()
    return tostring(g:next(o))
  end,
  ["g:generate"] = function(o)
    local g <close> = generator()
    return table.concat(g:generate(o), " ")
  end,
  ["data:split"] = function(o)
    local set = data.tensors { x = neap.arange(0, 40), y = neap.arange(0, 40):gt(30):to "i64",
      batch = 40 }
    return tostring(set:split({ 0.5 }, o):epoch(1)().x)
  end,
  ["data:folds"] = function(o)
    local folds = neap.data.tensors({ x = neap.arange(0, 12):reshape(12, 1),
      y = neap.arange(0, 12):gt(3):to "i64" }):folds(3, o)
    local text = {}
    for batch in folds[1][2]:epoch(1) do text[#text + 1] = tostring(batch.x:item()) end
    return table.concat(text, " ")
  end,
  ["data:with"] = function(o)
    local d = neap.data.tensors({ x = neap.arange(0, 12):reshape(12, 1), batch = 5 }):with(o)
    local text = { tostring(d), tostring(d.threads), tostring(d.map) }
    for batch in d:with({ shuffle = true, batch = 1 }):epoch(1) do
      text[#text + 1] = tostring(batch.x:sum():item())
    end
    return table.concat(text, " ")
  end,
  ["data:moments"] = function(o)
    local x = neap.tensor { { 1, 2 }, { 3, 6 } }
    local set = data.tensors { x = x, image = x * 2 }
    return table.concat(set:moments(o).mean, " ")
  end,
  ["neap.data.pad"] = function(o)
    local t = neap.data.pad({ { 1, 2 }, { 3 } }, o)
    return t.dtype .. t:hash() .. table.concat(t.shape, ",")
  end,
  ["trainer:find_lr"] = function(o)
    local t <close> = neap.trainer { model = linear(), optimizer = optim.SGD { lr = 0.1 } }
    o.steps = o.steps ~= 100 and o.steps or 6
    return tostring(t:find_lr(rows(), o))
  end,
  ["neap.with"] = function(o)
    return neap.with(o, function() return neap.rand(3):hash() .. neap.threads() end)
  end,
  ["neap.runs"] = function(o) return tostring(neap.runs(o)) end,
  ["db:prune"] = function(o)
    local path = support.shell "mktemp -d":match "[^\n]+" .. "/copy.db"
    assert(recorded:backup(path))
    local copy <close> = assert(neap.db(path))
    local n_plan, n_run = copy:prune(o)
    return n_plan .. " " .. n_run
  end,
  ["db:export"] = function(o) return tostring(recorded:export(o)) .. " " .. tostring(o.path) end,
  ["run:table"] = function(o)
    local program, ws = profiled()
    local _ <close> = ws
    local _ <close> = program
    local list, names = program:profile { steps = 1 }:table(o), {}
    for i, row in ipairs(list) do names[i] = row.name end
    return table.concat(names, " ")
  end,
  ["run:trace"] = function(o)
    local program, ws = profiled()
    local _ <close> = ws
    local _ <close> = program
    local text = program:profile { steps = 1 }:trace(nil, o)
    return text:sub(1, 12)
  end,
  ["program:profile"] = function(o)
    local program, ws = profiled()
    local _ <close> = ws
    local _ <close> = program
    program:profile(o)
    return tostring(program:stats().n_step)
  end,
  ["tensor:image"] = function(o)
    neap.zeros { 8, 3, 4, 4 }:image(picture_file, o)
    return taken(picture_file)
  end,
  ["neap.memonger.recycler"] = function(o)
    local net = small_net()
    local recycler, found = neap.memonger.recycler(net, o), {}
    found[1] = tostring(recycler.sized)
    for _, row in ipairs(recycler.rows) do
      found[#found + 1] = ("%s %s %s"):format(row.name, row.shares, row.bytes)
      for _, b in ipairs(recycler.rows) do
        found[#found + 1] = tostring(recycler.handle:conflict(row.index, b.index))
      end
    end
    return table.concat(found, "\n")
  end,
  ["neap.memonger.optimize_net"] = function(o)
    local net, slots = neap.memonger.optimize_net(small_net(), o)
    return net:text() .. tostring(slots)
  end,
  ["neap.memonger.share_grad_blobs"] = function(o)
    local net = small_net()
    net:gradient "loss"
    local planned, slots = neap.memonger.share_grad_blobs(net:expand(), { "loss" }, nil, "", o)
    return planned:text() .. tostring(slots)
  end,
  ["ws:assign"] = function(o)
    local ws <close> = with_nets()
    ws:assign("w1", neap.bank { "fast", bytes = "1MiB" }, o)
    ws:wait()
    return ws:blobs()[1].name
  end,
  ["ws:add_net"] = function(o)
    local ws <close> = with_nets()
    return tried(function() return ws:add_net(neap.net "load", o):net "load":text() end)
  end,
  ["ws:create_net"] = function(o)
    local ws <close> = with_nets()
    return tried(function()
      return ws:create_net(function(net) net:input("x", { 2 }) end, o):name()
    end)
  end,
  ["ws:run_steps"] = function(o)
    local ws <close> = with_nets()
    local step = { "train" }
    if type(o.nets) == "table" then step = { o.nets[1]:name() } end
    if o.instances then
      local net = neap.net "alone"
      net:outputs { net:Neg({ net:input("w1", { 4, 4 }) }, "fresh") }
      step = { net, create_workspace = true }
    end
    for key, value in pairs(o) do step[key] = value end
    ws:run_steps(step)
    return tostring(ws:fetch "n":item())
  end,
}

--- Makes one: what the constructor of a record gives for a table.
local function make(r, given)
  if calls[r.name] then return calls[r.name](given) end
  local model = nn.Linear { 4, 2, input = { 4 } }
  if r.name == "m:net" then
    return (nn.Sequential { nn.Linear { 4, 2 }, input = { 4 } }:net(given))
  end
  if r.name == "trainer:fit" then
    local t <close> = neap.trainer { model = linear(), optimizer = optim.SGD { lr = 0.1 } }
    given.verbose = given.verbose or 0
    return t:fit(rows(), given)
  end
  if r.name == "neap.check.gradient" then
    return neap.check.gradient(function(x) return x:tanh() end, { neap.ones(2) }, given)
  end
  if r.name == "neap.check.plan" then return neap.check.plan("mlp:2", given) end
  if r.name == "neap.fit_batch" then return (neap.fit_batch(model, given)) end
  local f = neap
  for part in r.name:gsub("^neap%.", ""):gmatch "[%w_]+" do f = f[part] end
  return f(given)
end

-- ---- another value for each option -------------------------------------------------------------

-- Where the type and its bounds do not tell.
local other = {
  ["nn.PositionEmbedding.length"] = 5, ["nn.PositionEmbedding.width"] = 6,
  ["nn.GroupNorm.groups"] = 4, ["nn.GroupNorm.channels"] = 6,
  ["nn.Lambda.f"] = function(x) return x:tanh() end, ["nn.Residual.shortcut"] = nn.ReLU(),
  ["nn.Sequential.dtype"] = "f32", ["nn.Concat.axis"] = -1, ["nn.SelfAttention.width"] = 8,
  ["nn.SelfAttention.heads"] = 2, ["nn.Softmax.axis"] = 2, ["nn.LogSoftmax.axis"] = 1,
  ["nn.CrossEntropyLoss.ignore_index"] = 1,
  ["nn.Bidirectional.forward"] = nn.GRU { 4, 4 }, ["nn.Bidirectional.backward"] = nn.GRU { 4, 4 },
  ["nn.InvertedResidual.kernel"] = 5,
  ["nn.Flatten.axis"] = 1, ["nn.Flatten.last"] = 2, ["nn.Unflatten.sizes"] = { 4, 1 },
  ["nn.Unflatten.axis"] = 3, ["nn.Fold.sizes"] = { 4, 10 },
  ["nn.CosineSimilarity.axis"] = 1, ["nn.PairwiseDistance.p"] = 1,
  ["nn.MultiheadAttention.width"] = 16, ["nn.MultiheadAttention.key_heads"] = 1,
  ["neap.data.tensors.x"] = neap.rand(7, 4), ["neap.data.tensors.y"] = neap.rand(6, 1),
  ["neap.data.from.get"] = function(_, slot) slot.x:fill_(0.5) end,
  ["neap.data.from.x"] = { 3 }, ["neap.data.from.y"] = { dtype = "i64" },
  ["neap.data.sequences.pad"] = 3, ["neap.data.sequences.bucket"] = { 2, 5 },
  ["neap.data.sequences.lengths"] = false, ["neap.data.pad.dtype"] = "f32",
  ["neap.data.pad.length"] = 5,
  ["neap.data.jsonl.path"] = ragged, ["neap.data.jsonl.fields"] = { x = "x" },
  ["neap.data.image_folder.path"] = other_pictures, ["data:moments.field"] = "image",
  ["neap.data.random_resized_crop.area"] = { 0.5, 0.6 },
  ["neap.data.random_resized_crop.ratio"] = { 1, 1.1 }, ["neap.data.normalise.mean"] = 3,
  ["data:split.stratify"] = "y", ["data:split.seed"] = 9,
  ["data:folds.stratify"] = "y", ["data:folds.seed"] = 9, ["data:with.seed"] = 9,
  ["data:with.shuffle"] = true, ["data:with.last"] = "drop", ["data:with.batch"] = 3,
  ["data:with.transform"] = { neap.data.normalise { mean = 1, std = 2 } },
  ["neap.data.csv.y"] = 1, ["neap.data.csv.x"] = { 1 }, ["neap.data.csv.header"] = true,
  ["neap.data.csv.separator"] = ";", ["neap.data.csv.dtype"] = "f32",
  ["neap.data.csv.path"] = written("other.csv", "1;2\n3;4\n"),
  ["neap.data.cifar10.path"] = "cifar.bin", ["neap.data.cifar100.path"] = "cifar.bin",
  ["neap.data.text.path"] = other_text, ["neap.data.chars.path"] = other_text,
  ["neap.data.text.vocabulary"] = { "a", "b" }, ["neap.data.chars.vocabulary"] = { "a", "b" },
  ["neap.data.text.unknown"] = 1, ["neap.data.chars.unknown"] = 1,
  ["neap.trainer.loss"] = nn.MseLoss(), ["neap.trainer.metrics"] = "accuracy",
  ["neap.trainer.memory"] = { budget = "64MiB" }, ["neap.trainer.accumulate"] = 2,
  ["neap.trainer.mem_param"] = { optimize_train = false },
  ["neap.trainer.losses"] = { nn.MseLoss() },
  ["m:net.losses"] = { nn.MseLoss() }, ["m:net.fields"] = { x = { 3, 4 } },
  ["m:net.params"] = "*weight",
  ["trainer:fit.valid"] = rows(), ["trainer:fit.checkpoint"] = folder .. "/neap_run.safetensors",
  ["trainer:find_lr.from"] = 1e-3, ["trainer:find_lr.steps"] = 7,
  ["trainer:fit.verbose"] = 0, ["trainer:fit.epochs"] = 2, ["trainer:fit.steps"] = 1,
  ["m:net.loss"] = nn.MseLoss(), ["m:net.metrics"] = "mae", ["m:net.keep"] = { "x" },
  ["m:net.target"] = false, ["m:net.input"] = { 3, 4 },
  ["m:net.without"] = "linear1", ["plan:whatif.without"] = "relu1", ["plan:whatif.run"] = false,
  ["neap.prune.layers"] = { "a" }, ["neap.prune.amount"] = 0.25,
  ["neap.sparse.least"] = 0.9, ["neap.prune.block"] = { 2, 2 },
  ["neap.quantize.percent"] = 80, ["neap.quantize.batches"] = 1,
  ["neap.quantize.skip"] = { "a" }, ["neap.fit_batch.input"] = { 3, 4 }, ["neap.fit_batch.max"] = 7,
  ["neap.fit_batch.loss"] = nn.MseLoss(), ["neap.workspace.forward"] = {},
  ["neap.workspace.parent"] = neap.workspace {},
  ["neap.mem_param.exclude_blob"] = "x", ["optim.warmup.next"] = optim.step { 3 },
  ["net:param.trainable"] = false, ["net:param.dtype"] = "f64", ["m:param.dtype"] = "f64",
  ["m:buffer.dtype"] = "f64", ["net:variable_scope.trainable"] = false,
  ["m:load.strict"] = false, ["m:load_state_dict.strict"] = false, ["net:gradient.wrt"] = { "x" },
  ["net:Do.bindings"] = { p = "b" }, ["net:Do.scope"] = "t",
  ["net:Do.body"] = function(d) d:Exp("p", "q") end, ["run:table.sort"] = "live_bytes",
  ["neap.runs.db"] = unused, ["neap.runs.last"] = 1, ["db:prune.days"] = 7,
  ["db:prune.runs"] = 1, ["db:prune.bytes"] = 1, ["db:export.run"] = 1, ["db:export.tag"] = "none",
  ["db:export.path"] = support.shell "mktemp -d":match "[^\n]+" .. "/rows.json",
  ["neap.export.input"] = { 3, 4 }, ["neap.export.batch"] = 3,
  ["neap.import.outputs"] = { "sum" },
  ["neap.export.opset"] = 15, ["neap.export.outputs"] = { "linear1" },
  ["optim.sequence.schedules"] = { optim.step { 3 }, optim.step { 3 } },
  ["optim.sequence.at"] = { 6 }, ["optim.chained.schedules"] = { optim.step { 5 } },
  ["neap.grad.wrt"] = 2, ["neap.value_and_grad.wrt"] = 2,
  ["neap.export.workspace"] = neap.workspace {}, ["neap.import.map"] = "r",
  ["neap.import.weights"] = "weights", ["neap.import.phase"] = "TRAIN",
  ["neap.import.stages"] = { "late" }, ["neap.import.level"] = 3, ["neap.import.without"] = "t",
  ["neap.import.net"] = "net",
  ["nn.MultiMarginLoss.weight"] = two, ["nn.MultilabelSoftMarginLoss.weight"] = two,
  ["nn.BceLoss.weight"] = two, ["nn.BceWithLogitsLoss.weight"] = two, ["nn.NllLoss.weight"] = two,
  ["nn.BceWithLogitsLoss.pos_weight"] = two, ["nn.CrossEntropyLoss.weight"] = two,
  ["neap.import.dims"] = { batch = 4 }, ["neap.import.shapes"] = { x = { 3, 2 } },
  ["neap.import.constants"] = { b = neap.tensor { 1, 2 } },
  ["ws:run_steps.nets"] = { neap.net "given" }, ["ws:run_steps.stop"] = "stop",
  ["ws:run_steps.report"] = "test", ["neap.memonger.recycler.ops"] = { 1, 2, 3 },
  ["neap.memonger.recycler.shareable"] = { "in/a1" },
  ["neap.memonger.recycler.dont_share"] = { "in/a1" },
  ["neap.memonger.recycler.shapes"] = { x = { 5, 4 } },
  ["neap.memonger.optimize_net.dont_share"] = { "in/a1" },
  ["neap.memonger.optimize_net.namescope"] = "in/a",
  ["neap.memonger.optimize_net.shapes"] = { x = { 5, 4 } },
  ["neap.memonger.optimize_net.order"] = "longest_path",
  ["neap.memonger.share_grad_blobs.dont_share"] = { "in/a1.grad" },
  ["neap.memonger.share_grad_blobs.shapes"] = { x = { 3, 4 } },
  ["optim.cosine.steps"] = 40, ["optim.cosine.warmup"] = 4, ["optim.step.every"] = 5,
  ["optim.multistep.at"] = { 2 } }

-- What has to go with an option that does not stand alone.
local with = {
  ["neap.export.opset"] = { outputs = { "linear1" } }, ["neap.export.outputs"] = { opset = 13 },
  ["nn.LSTM.dropout"] = { layers = 2 }, ["nn.GRU.dropout"] = { layers = 2 },
  ["nn.RNN.dropout"] = { layers = 2 },
  ["nn.MultiheadAttention.key_heads"] = { heads = 2 },
  ["nn.ConvTranspose1d.output_padding"] = { stride = 2 },
  ["nn.ConvTranspose2d.output_padding"] = { stride = 2 },
  ["nn.ConvTranspose3d.output_padding"] = { stride = 2 },
  ["optim.cyclic.factor"] = { shape = "exponential" },
  ["optim.SGD.momentum"] = {}, ["neap.data.text.vocabulary"] = { unknown = 0 },
  ["neap.data.chars.vocabulary"] = { unknown = 0 },
  ["neap.workspace.forward"] = { parent = neap.workspace {} },
  ["m:net.optimizer"] = { train = true, loss = nn.MseLoss() },
  ["neap.prune.block"] = { method = "block" },
  ["neap.quantize.percent"] = { method = "percentile" },
  ["neap.quantize.method"] = { percent = 80 },
  ["neap.fit_batch.optimizer"] = { train = true, loss = nn.MseLoss() },
  ["m:net.metrics"] = { loss = nn.MseLoss() }, ["m:net.target"] = {},
  ["m:net.params"] = { train = true, loss = nn.MseLoss() },
  ["m:net.guard"] = { train = true, loss = nn.MseLoss() },
  ["m:net.grad_norm"] = { train = true, loss = nn.MseLoss() },
  ["neap.data.csv.holdout"] = { split = "valid" }, ["neap.data.text.holdout"] = { split = "train" },
  ["neap.data.chars.holdout"] = { split = "train" },
  ["neap.data.jsonl.holdout"] = { split = "train" },
  ["neap.data.jsonl.pad"] = { path = ragged }, ["neap.data.jsonl.bucket"] = { path = ragged },
  ["neap.data.image_folder.holdout"] = { split = "train" },
  ["neap.trainer.micro"] = { reduces = "mean" }, ["neap.trainer.accumulate"] = { reduces = "mean" },
  ["trainer:fit.resume"] = { epochs = 1 }, ["trainer:fit.valid_every"] = { valid = rows() },
  ["net:gradient.allow_unused"] = { wrt = { "x", "unused" } },
  ["ws:run_steps.report_every_ms"] = { report = "test" },
  ["ws:run_steps.report"] = { report_every_ms = 1 },
  ["neap.memonger.optimize_net.most_steps"] = { algo = "exact" },
  ["neap.memonger.share_grad_blobs.dont_share"] = { dag = false },
  ["neap.memonger.share_grad_blobs.keep_last"] = { share_activations = true, dag = false } }

local by_type = { name = "other", string = "other", ["function"] = function(x) return x end,
  names = { "x" }, initial = { op = "Constant", value = 0.25 }, shapes = { 4 }, dtype = "f32",
  module = linear(), optimizer = optim.SGD { lr = 0.5 }, bytes = "3MiB" }

--- A legal value of an option that is not the one it has anyway.
local function another(r, f)
  local value, kind = other[r.name .. "." .. f.name], f.type:match "^[^|]*"
  local now = base[r.name] and type(base[r.name]) == "table" and base[r.name][f.name] or f.default
  if value ~= nil then return value end
  if kind == "boolean" then return now ~= true end
  if kind == "integer" or kind == "sizes" then
    return math.max((type(now) == "number" and now or f.min or 0) + 1, 1)
  end
  if kind == "number" then
    local low, high = f.min or f.above or 0, f.max or f.below or 2
    local middle = (low + high) / 2
    return middle ~= now and middle or (low + middle) / 2
  end
  if kind == "choice" then return f.choices[1] ~= now and f.choices[1] or f.choices[2] end
  return assert(by_type[kind], "no other value for " .. r.name .. "." .. f.name)
end

-- ---- what is made, as text ---------------------------------------------------------------------

-- Losses of three operands and more, as part of one of two.
local of_three = { GaussianNllLoss = true, MarginRankingLoss = true, CosineEmbeddingLoss = true,
  TripletMarginLoss = true, CtcLoss = true }
local around = nn.module { "Around", name = "loss", init = function(self, o) self.inner = o[1] end,
  forward = function(self, y, t)
    if self.inner._class == "CtcLoss" then
      local function whole(n) return y.net:const(neap.tensor(n, "i64")) end
      return self.inner(y:log_softmax(), whole { 1 }, whole(3), whole(1))
    end
    local third = self.inner._class == "CosineEmbeddingLoss" and y:select(2, 1) or y:exp()
    return self.inner(y, t, third)
  end }

local function text_of_loss(m)
  if of_three[m._class] then m = around { m } end
  return (linear():net { batch = 3, loss = m, input = { 4 } }):text()
end

local function text_of_optimizer(o)
  local net = linear():net { batch = 3, train = true, loss = nn.CrossEntropyLoss(), optimizer = o,
    input = { 4 } }
  return net:text() .. o.lr
end

local function text_of_curve(f)
  local values = {}
  for i, step in ipairs { 1, 2, 3, 5, 8, 11, 20 } do values[i] = ("%.9g"):format(f(step, 1)) end
  return table.concat(values, " ")
end

--- Rates behind 12 to 48 epochs, whose loss falls for four and then hardly moves.
local function text_of_plateau(f)
  local values, epochs = {}, {}
  for i = 1, 48 do
    epochs[i] = { loss = i < 5 and 1 / i or 0.25 - 1e-7 * i }
    if i >= 12 then values[#values + 1] = ("%.9g"):format(f(i, 1, epochs)) end
  end
  return table.concat(values, " ")
end

local function text_of_set(set)
  local found = { tostring(set), set.batch, #set }
  for k = 1, 2 do
    for batch in set:epoch(k) do
      for _, name in ipairs(set.names) do
        found[#found + 1] = batch[name] and batch[name].dtype .. batch[name]:hash() or "none"
      end
    end
  end
  return table.concat(found, " ")
end

--- A text that differs where the thing does; nil for things of whose use other specs tell.
local function text_of(r, thing)
  local name = r.name
  if calls[name] then return thing end
  if name:find "Loss$" then return text_of_loss(thing) end
  if name:find "^nn%." then return record_layers.text(thing) end
  if name:find "^optim%.%u" then return text_of_optimizer(thing) end
  if name == "optim.plateau" then return text_of_plateau(thing) end
  if name:find "^optim%." then return text_of_curve(thing) end
  if (getmetatable(thing) or {}).__name == "neap.transform" then return tostring(thing) end
  if name:find "^neap%.data%." then return text_of_set(thing) end
  if name == "m:net" then return thing:text() end
  if name:find "^neap%.init%." then return require("neap.repl.show").text(thing) end
end

-- Options that the text does not show: dtype "f32" said as the default is; what is another loss's
-- name; draws that are the same for a set without a split; limits above what was there.
local unseen = {
  ["nn.Sequential.dtype"] = true, ["neap.data.csv.dtype"] = false,
  ["m:net.input_dtype"] = true, ["m:net.target"] = true, ["m:net.traced"] = true,
  ["m:net.train"] = true, ["plan:whatif.run"] = true,
  ["neap.data.from.seed"] = true, ["neap.data.chars.unknown"] = true,
  ["tensor:image.quality"] = true, -- of JPEG files alone
  ["neap.data.text.unknown"] = true,
  -- what was not there before, what a message or a clock shows, and what the first plan is, too
  ["db:prune.days"] = true, ["neap.export.input_dtype"] = true, ["ws:assign.async"] = true,
  ["ws:run_steps.name"] = true, ["ws:run_steps.stop"] = true, ["ws:run_steps.concurrent"] = true,
  ["ws:run_steps.instances"] = true, ["ws:run_steps.report_every_ms"] = true,
  ["ws:run_steps.create_workspace"] = true, ["neap.memonger.share_grad_blobs.shapes"] = true,
  ["neap.memonger.optimize_net.algo"] = true,
  ["ws:run_steps.run_every_ms"] = true, ["neap.memonger.optimize_net.most_steps"] = true,
}
for _, kind in ipairs { "tensors", "csv", "text", "chars", "from", "sequences", "jsonl",
  "image_folder" } do
  other["neap.data." .. kind .. ".transform"] = { data.normalise { 1, 2 } }
  unseen["neap.data." .. kind .. ".threads"] = true -- the same rows on any number
  unseen["neap.data." .. kind .. ".seed"] = true -- where nothing is drawn
  unseen["neap.data." .. kind .. ".last"] = true -- where the last batch is whole
  unseen["neap.data." .. kind .. ".map"] = true
end
for _, name in ipairs(nn.names()) do
  unseen["nn." .. name .. ".input"] = true
  unseen["nn.Identity.name"] = true
  if name:find "Loss$" then unseen["nn." .. name .. ".name"] = true end
end

-- ---- the tests ---------------------------------------------------------------------------------

local everything = record.everything()

describe("the records", function()
  it("are those of all layers, optimizers, schedules, sources of data and the trainer", function()
    for _, name in ipairs(nn.names()) do
      assert.is_truthy(record.find("nn." .. name) or name == "LRN", name)
    end
    for _, part in ipairs { "optim", "data", "init" } do
      for name, f in next, neap[part] do
        if type(f) == "function" and not ({ find = 1, folders = 1, RmsProp = 1, Adagrad = 1 })[name]
        then
          assert.is_truthy(record.find(part .. "." .. name), part .. "." .. name)
        end
      end
    end
    for _, name in ipairs { "neap.trainer", "trainer:fit", "m:net", "neap.workspace", "neap.bank",
      "net:param", "net:gradient", "net:Do", "net:variable_scope", "net:dot", "plan:dot",
      "plan:svg", "plan:whatif", "m:param", "m:buffer", "m:load", "m:load_state_dict", "m:optimize",
      "neap.export", "neap.import", "neap.with", "neap.runs", "db:prune", "db:export",
      "run:table", "run:trace", "program:profile", "tensor:image",
      "neap.memonger.recycler", "neap.memonger.optimize_net", "neap.memonger.share_grad_blobs",
      "ws:assign", "ws:add_net", "ws:create_net", "ws:run_steps" } do
      assert.is_truthy(record.find(name), name)
    end
  end)

  it("say of every option what it is, in a line", function()
    for _, r in ipairs(everything) do
      assert.is_truthy(r.doc and r.example, r.name)
      for _, f in ipairs(r.fields) do assert.is_true(#f.doc > 5, r.name .. "." .. f.name) end
    end
  end)
end)

describe("an option", function()
  -- What needs files that may not be there.
  local absent = { ["neap.data.mnist"] = true, ["neap.data.cifar10"] = true, ["neap.bpe"] = true,
    ["neap.data.cifar100"] = true }
  -- What tests/unit/generate_spec sets, whose texts tell.
  for _, name in ipairs { "neap.generator", "g:next", "g:generate" } do absent[name] = true end
  absent["neap.op"] = true -- and what tests/unit/user_op_spec does

  for _, r in ipairs(everything) do
    it("of " .. r.name .. " is set, read back and seen in what is made", function()
      if absent[r.name] then return end
      for _, f in ipairs(r.fields) do
        local what, given = r.name .. "." .. f.name, needed(r)
        local plain = needed(r)
        for key, value in pairs(with[what] or {}) do given[key], plain[key] = value, value end
        given[f.name] = another(r, f)
        local value = given[f.name]
        if f.name == "n_in" and given.n_in == 5 then given.n_in, value = 6, 6 end
        local ok, thing = pcall(make, r, given)
        assert.is_true(ok, what .. ": " .. tostring(thing))
        local own, values
        if type(thing) ~= "string" then own, values = record.of(thing) end
        if own then
          assert.are.equal(r, own)
          if what ~= "neap.bank.bytes" and what ~= "neap.mem_param.exclude_blob" then
            assert.are.same(value, values[f.name], what)
          end
        end
        local text = text_of(r, thing)
        if text and not unseen[what] and plain[f.name] ~= value then
          assert.are_not.equal(text_of(r, make(r, plain)), text, what .. " changes nothing")
        end
      end
    end)

    it("of " .. r.name .. " is refused when it is wrong", function()
      for _, f in ipairs(r.fields) do
        local function refused(value)
          local given = needed(r)
          given[f.name] = value
          raises(f.name .. " expects ", make, r, given)
        end
        if f.type ~= "any" then refused(io.stdout) end
        if f.min then refused(f.min - 1) end
        if f.max then refused(f.max + 1) end
        if f.above then refused(f.above) end
        if f.below then refused(f.below) end
        if f.choices then refused "none such" end
      end
      local given = needed(r)
      given.none_such = true
      raises('unknown field "none_such"', make, r, given)
    end)
  end

  it("that is needed is asked for by name, with an example", function()
    raises("nn.Conv2d: kernel expects an integer from 1 to 1048576, or a list of 2, got nothing; "
      .. "e.g. nn.Conv2d {", nn.Conv2d, { 3, 4 })
    raises("lr expects a number of at least 0, got nothing", optim.SGD, {})
  end)

  it("that is misspelt, given twice or a class is said so", function()
    raises('nn.Conv2d: unknown field "kernal", did you mean "kernel"?', nn.Conv2d,
      { 3, 4, kernal = 3 })
    raises('nn.Conv2d: unknown field "padding", did you mean "pad"?', nn.Conv2d,
      { 3, 4, kernel = 3, padding = 1 })
    raises('unknown field "in_features", did you mean "n_in"?', nn.Linear, { 3, in_features = 4 })
    raises('nan expects "stop", "skip" or "off", got "stopp", did you mean "stop"?', neap.trainer,
      { model = linear(), optimizer = optim.Adam {}, nan = "stopp" })
    raises("nn.Linear: n_in is given twice", nn.Linear, { 3, 4, n_in = 3 })
    raises("shortcut expects a module, got the class nn.ReLU: call it", nn.Residual,
      { nn.ReLU(), shortcut = nn.ReLU })
  end)

  it("takes a first position that is left out", function()
    assert.are.same({ 10, 4 }, nn.Linear { 10, n_in = 4 }:param "weight".shape)
    assert.are.same({ 10, 4 }, nn.Linear { 4, 10 }:param "weight".shape)
    assert.are.same({ 10, 4 }, nn.Linear { 4, n_out = 10 }:param "weight".shape)
  end)

  it("of a group of parameters is read as the optimizer's own", function()
    raises("optim.SGD, group 1: momentum expects a number from 0 to below 1, got 2", optim.SGD,
      { lr = 1, { "*.bias", momentum = 2 } })
    raises('group 1: unknown field "clip"', optim.SGD, { lr = 1, { "*.bias", clip = 2 } })
  end)

  it("of a class of one's own is declared in the same way", function()
    local Scaled = nn.module { "Scaled", options = { doc = "x times a number.",
      positions = { "by" }, { "by", "number", 2, above = 0, doc = "the number" } },
      init = function(self, o) self.by = o.by end,
      forward = function(self, x) return x * self.by end }
    assert.are.equal(12, Scaled(3)(neap.tensor { 4.0 }):item())
    assert.are.equal(8, Scaled()(neap.tensor { 4.0 }):item())
    raises("nn.Scaled: by expects a number above 0, got 0", Scaled, 0)
    assert.matches("by +the number\n +%(a number above 0; default 2; here 3%)",
      tostring(neap.help(Scaled(3))))
  end)
end)

-- Endings of files that examples write, which do not belong where the tests run.
local endings = { safetensors = true, dot = true, png = true, svg = true, html = true, json = true }

describe("an example", function()
  for _, r in ipairs(everything) do
    it("of " .. r.name .. " runs", function()
      local code = r.example:gsub('"[%w_.]+%.txt"', ("%q"):format(text_file))
        :gsub('"[%w_.]+%.csv"', ("%q"):format(table_file)):gsub('y = "species"', "y = 3")
        :gsub('"(%w+%.(%l+))"', function(name, ending)
          if endings[ending] then return ("%q"):format(folder .. "/neap_" .. name) end
        end)
      local t <close> = neap.trainer { model = linear(), optimizer = optim.SGD { lr = 0.1 } }
      local m = nn.Linear { 4, 2, input = { 4 } }
      local program, ws_of_program = profiled()
      local _ <close> = ws_of_program
      local _ <close> = program
      local ws <close> = with_nets()
      local net = small_net()
      local g = r.name:find "^g:" and generator()
      if r.name:find "share_grad" then net:gradient "loss" end
      if r.name == "net:Do" then
        net:input("a", { 2 })
        net:CreateScope({}, "s")
      end
      local env = setmetatable({ neap = neap, nn = nn, optim = optim, t = t, m = m, model = m,
        set = rows(), other = rows(), net = r.name:find "share_grad" and net:expand() or net,
        ws = ws, program = program, g = g, run = program:profile { steps = 1 }, db = unused },
        { __index = _G })
      if r.name == "trainer:fit" then code = code:gsub("epochs = 3", "epochs = 1, verbose = 0") end
      local ok, thing = pcall(assert(load("return " .. code, r.name, "t", env)))
      local is_missing = type(thing) == "table" and rawget(thing, "code") == "data"
      if g then g:close() end
      assert.is_true(ok or is_missing, tostring(thing))
    end)
  end
end)

describe("help", function()
  it("shows every field, with type, default and meaning", function()
    for _, r in ipairs(everything) do
      local text = tostring(neap.help(r.name)):gsub("%s+", " ")
      for _, f in ipairs(r.fields) do
        for _, part in ipairs { f.name, f.doc, record.expectation(f), record.otherwise(f) } do
          local squeezed = part:gsub("%s+", " ")
          assert.is_truthy(text:find(squeezed, 1, true), r.name .. "." .. f.name .. squeezed)
        end
      end
      for line in tostring(neap.help(r.name)):gmatch "[^\n]+" do
        assert.is_truthy(#line <= 110 or line:find "^example" or line:find "^op ", line)
      end
    end
  end)

  it("is given of the function, its name and what it made alike", function()
    for _, x in ipairs { nn.Conv2d, "Conv2d", "nn.Conv2d", "neap.nn.Conv2d",
      nn.Conv2d { 3, 4, kernel = 3 } } do
      assert.matches("nn.Conv2d { %[n_in,%] n_out, kernel =", tostring(neap.help(x)))
    end
    for _, x in ipairs { optim.SGD, "SGD", "optim.SGD", optim.SGD { lr = 1 } } do
      assert.matches("share of the old momentum", tostring(neap.help(x)))
    end
  end)
end)

describe("the stubs for editors and the page of options", function()
  local function made(what)
    local pipe <close> = assert(io.popen(("%s/neap run scripts/tools/reference.lua %s"):format(
      os.getenv "NEAP_BUILD" or "build", what)))
    return pipe:read "a"
  end

  it("are Lua, with every option and every op", function()
    local text = made "types"
    assert(load(text, "=stubs", "t"))
    for _, r in ipairs(everything) do
      local class = text:match("%-%-%-@class " .. r.name:gsub(":", "."):gsub("%.", "%%.")
        .. "%.options\n(.-)\n\n")
      assert.is_truthy(class, r.name)
      for _, f in ipairs(r.fields) do
        assert.is_truthy(class:find("---@field " .. f.name, 1, true), r.name .. "." .. f.name)
      end
    end
    for name, r in pairs(op.records) do
      -- what another spec has defined says where
      local is_users = (r.source or ""):find(":%d+$")
      if not r.internal and not r.control and not is_users then
        assert.is_truthy(text:find(("function Net:%s("):format(name), 1, true), name)
        assert.is_truthy(text:find(("function neap.%s("):format(op.snake(name)), 1, true), name)
      end
    end
  end)

  it("show every option in a row", function()
    local text = made "options"
    for _, r in ipairs(everything) do
      assert.is_truthy(text:find("### " .. r.name .. "\n", 1, true), r.name)
      for _, f in ipairs(r.fields) do
        assert.is_truthy(text:find("| `" .. f.name .. "` |", 1, true), r.name .. "." .. f.name)
      end
    end
  end)
end)
