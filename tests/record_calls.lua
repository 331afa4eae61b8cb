--- How the spec of records calls what takes each record's table, and what it must give.
local neap = require "neap"
local record_layers = require "record_layers"
local support = require "support"
local things = require "record_things"
local nn, optim, data = neap.nn, neap.optim, neap.data
local record_calls = {}

-- By record: fields that it can't be made without, whose values `other` tells otherwise.
local base = {
  ["neap.trainer"] = function()
    return { model = things.linear(), optimizer = optim.SGD { lr = 0.1 } }
  end,
  ["neap.bank"] = { name = "fast" },
  ["neap.op"] = { name = "RecordsOp", inputs = { "x" }, run = function(_, x) return x end },
  ["neap.data.text"] = { path = things.text_file, length = 4 },
  ["neap.data.chars"] = { path = things.text_file },
  ["neap.data.csv"] = { path = things.table_file },
  ["neap.data.jsonl"] = { path = things.rows_file },
  ["neap.data.image_folder"] = { path = things.pictures, size = 4 },
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
base["neap.runs"] = { db = things.recorded }
base["db:export"] = { path = support.shell "mktemp -d":match "[^\n]+" .. "/rows.sql" }

--- A new table of what a record can't do without.
function record_calls.needed(r)
  local t, given = {}, base[r.name]
  if type(given) == "function" then given = given() end
  for key, value in pairs(given or {}) do t[key] = value end
  return t
end

-- ---- what is called in a way of its own ---------------------------------------------------------

local tensors_file = things.folder .. "/neap_record.safetensors"
local picture_file = things.folder .. "/neap_record.png"

--- What f gives, or what it says when it refuses by an error with a code. Wrong options raise.
local function tried(f, ...)
  local ok, result = pcall(f, ...)
  if not ok and type(result) ~= "table" then error(result, 0) end
  return ok and result or tostring(result)
end

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
    if own.net == "net" then own.net = things.written("other.prototxt", text) end
    if own.net == "" then own.net = nil end
    local t = neap.import(things.written("s.prototxt", 'net: "gone" base_lr: 1 max_iter: 1'), own)
    return t and tostring(t) or "no net"
  end
  if own.weights == "weights" then
    local text_of_weights = kit.weights { { "fc", kit.blob({ 1, 1 }, { 7 }) } }
    own.weights = things.written("w.caffemodel", text_of_weights)
  end
  local f = assert(neap.import(things.written("m.prototxt", text), own))
  return f.net:text() .. tostring(f.workspace:fetch "fc.weight")
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
    local net = things.small_net()
    local name = net:param(o.reuse and "w" or "v", { 4, 4 }, nil, o).name
    for _, row in ipairs(net:_blobs()) do
      if row.name == name then name = name .. tostring(row.trainable) end
    end
    return name .. net:text()
  end,
  ["net:gradient"] = function(o)
    local net = things.small_net()
    net:input("unused", { 3 })
    return tried(function()
      net:gradient("loss", o)
      return net:expand():text()
    end)
  end,
  ["net:dot"] = function(o) return things.small_net():dot(nil, o) end,
  ["plan:dot"] = function(o) return things.small_net():plan { store = false }:dot(nil, o) end,
  ["plan:svg"] = function(o)
    local program, ws = things.profiled()
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
    local what = is_net and things.small_net() or nn.Sequential { nn.Linear { 4, 2 }, nn.ReLU() }
    if is_net then o.workspace:init(what) else o.input = o.input or { 4 } end
    local as_onnx = o.opset or o.outputs or o.dims
    local file = as_onnx and things.folder .. "/neap_record.onnx" or tensors_file
    assert(neap.export(what, file, o))
    return things.taken(file)
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
      local made = assert(neap.import(things.written("add.onnx", onnx.model(graph)), o))
      return o.model and "a model" or tostring(made.net:text())
    end
    assert(neap.export(nn.Linear { 4, 2, input = { 4 } }, tensors_file))
    local held = neap.memory().held
    assert(neap.import(tensors_file, o))
    return "mapped " .. tostring(neap.memory().held - held < 40)
  end,
  ["g:next"] = function(o)
    local g <close> = things.generator()
    return tostring(g:next(o))
  end,
  ["g:generate"] = function(o)
    local g <close> = things.generator()
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
    local t <close> = neap.trainer { model = things.linear(), optimizer = optim.SGD { lr = 0.1 } }
    o.steps = o.steps ~= 100 and o.steps or 6
    return tostring(t:find_lr(things.rows(), o))
  end,
  ["neap.with"] = function(o)
    return neap.with(o, function() return neap.rand(3):hash() .. neap.threads() end)
  end,
  ["neap.runs"] = function(o) return tostring(neap.runs(o)) end,
  ["db:prune"] = function(o)
    local path = support.shell "mktemp -d":match "[^\n]+" .. "/copy.db"
    assert(things.recorded:backup(path))
    local copy <close> = assert(neap.db(path))
    local n_plan, n_run = copy:prune(o)
    return n_plan .. " " .. n_run
  end,
  ["db:export"] = function(o)
    return tostring(things.recorded:export(o)) .. " " .. tostring(o.path)
  end,
  ["run:table"] = function(o)
    local program, ws = things.profiled()
    local _ <close> = ws
    local _ <close> = program
    local list, names = program:profile { steps = 1 }:table(o), {}
    for i, row in ipairs(list) do names[i] = row.name end
    return table.concat(names, " ")
  end,
  ["run:trace"] = function(o)
    local program, ws = things.profiled()
    local _ <close> = ws
    local _ <close> = program
    local text = program:profile { steps = 1 }:trace(nil, o)
    return text:sub(1, 12)
  end,
  ["program:profile"] = function(o)
    local program, ws = things.profiled()
    local _ <close> = ws
    local _ <close> = program
    program:profile(o)
    return tostring(program:stats().n_step)
  end,
  ["tensor:image"] = function(o)
    neap.zeros { 8, 3, 4, 4 }:image(picture_file, o)
    return things.taken(picture_file)
  end,
  ["neap.memonger.recycler"] = function(o)
    local net = things.small_net()
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
    local net, slots = neap.memonger.optimize_net(things.small_net(), o)
    return net:text() .. tostring(slots)
  end,
  ["neap.memonger.share_grad_blobs"] = function(o)
    local net = things.small_net()
    net:gradient "loss"
    local planned, slots = neap.memonger.share_grad_blobs(net:expand(), { "loss" }, nil, "", o)
    return planned:text() .. tostring(slots)
  end,
  ["ws:assign"] = function(o)
    local ws <close> = things.with_nets()
    ws:assign("w1", neap.bank { "fast", bytes = "1MiB" }, o)
    ws:wait()
    return ws:blobs()[1].name
  end,
  ["ws:add_net"] = function(o)
    local ws <close> = things.with_nets()
    return tried(function() return ws:add_net(neap.net "load", o):net "load":text() end)
  end,
  ["ws:create_net"] = function(o)
    local ws <close> = things.with_nets()
    return tried(function()
      return ws:create_net(function(net) net:input("x", { 2 }) end, o):name()
    end)
  end,
  ["ws:run_steps"] = function(o)
    local ws <close> = things.with_nets()
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
function record_calls.make(r, given)
  if calls[r.name] then return calls[r.name](given) end
  local model = nn.Linear { 4, 2, input = { 4 } }
  if r.name == "m:net" then
    return (nn.Sequential { nn.Linear { 4, 2 }, input = { 4 } }:net(given))
  end
  if r.name == "trainer:fit" then
    local t <close> = neap.trainer { model = things.linear(), optimizer = optim.SGD { lr = 0.1 } }
    given.verbose = given.verbose or 0
    return t:fit(things.rows(), given)
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

record_calls.base, record_calls.calls = base, calls
return record_calls
