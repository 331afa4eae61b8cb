--- Records of options: every option of everything that has one is set, read back, seen in what is
-- made, refused where it is wrong, and shown.
local neap = require "neap"
local op = require "neap.op"
local record = require "neap.inner.record"
local record_calls = require "record_calls"
local record_layers = require "record_layers"
local record_values = require "record_values"
local support = require "support"
local things = require "record_things"
local nn, optim, raises = neap.nn, neap.optim, support.raises
local calls, make, needed = record_calls.calls, record_calls.make, record_calls.needed
local another, unseen, with = record_values.another, record_values.unseen, record_values.with

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
  return (things.linear():net { batch = 3, loss = m, input = { 4 } }):text()
end

local function text_of_optimizer(o)
  local net = things.linear():net { batch = 3, train = true, loss = nn.CrossEntropyLoss(),
    optimizer = o, input = { 4 } }
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
      { model = things.linear(), optimizer = optim.Adam {}, nan = "stopp" })
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
      local code = r.example:gsub('"[%w_.]+%.txt"', ("%q"):format(things.text_file))
        :gsub('"[%w_.]+%.csv"', ("%q"):format(things.table_file)):gsub('y = "species"', "y = 3")
        :gsub('"(%w+%.(%l+))"', function(name, ending)
          if endings[ending] then return ("%q"):format(things.folder .. "/neap_" .. name) end
        end)
      local t <close> = neap.trainer { model = things.linear(), optimizer = optim.SGD { lr = 0.1 } }
      local m = nn.Linear { 4, 2, input = { 4 } }
      local program, ws_of_program = things.profiled()
      local _ <close> = ws_of_program
      local _ <close> = program
      local ws <close> = things.with_nets()
      local net = things.small_net()
      local g = r.name:find "^g:" and things.generator()
      if r.name:find "share_grad" then net:gradient "loss" end
      if r.name == "net:Do" then
        net:input("a", { 2 })
        net:CreateScope({}, "s")
      end
      local env = setmetatable({ neap = neap, nn = nn, optim = optim, t = t, m = m, model = m,
        set = things.rows(), other = things.rows(),
        net = r.name:find "share_grad" and net:expand() or net, ws = ws, program = program, g = g,
        run = program:profile { steps = 1 }, db = things.unused },
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
