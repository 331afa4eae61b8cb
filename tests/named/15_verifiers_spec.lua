-- The verifiers, tested by what they must refuse: good nets and assignments are changed in one
-- place, each way once, and no change that means something may pass. What changes nothing must
-- pass.
local neap = require "neap"
local core = require "neap.core"
local support = require "support"
local raises = support.raises
local M = neap.memonger

-- ---- good nets, as text -------------------------------------------------------------------------

local nets = {
  layers = [[
net layers
input x f32 (2,3,8,8)
input z f32 (2,3,8,8)
param k f32 (4,3,3,3) = Xavier
param g f32 (4) = Constant { value = 1 }
param b f32 (4) = Constant { value = 0 }
state s f32 (4) = Constant { value = 0 }
s0 = Sub(x, z) as o1
a = Conv(s0, k, b) { stride = {2}, pad = {1} } as o2
n, m, v = BatchNorm(a, g, b) { training = true } as o3
s = RunningAverage(s, m) { momentum = 0.9 } as o4
r = Relu(n) as o5
d = Dropout(r) { rate = 0.5 } as o6
f = Mean(d) { axes = {2,3} } as o7
p = Softmax(f) { axis = 1 } as o8
q = ArgMax(p) { axis = 1 } as o9
l = Sum(f) as o10
keep f
outputs l, q
]],
  branches = [[
net branches
input x f32 (3,3)
input c f32 (1)
param w f32 (3,3) = Xavier
t = Tanh(x) as o1
u = Relu(x) as o2
subnet yes
  i = MatMul(t, w) as i1
  j = Sub(i, u) as i2
  takes t, u, w
  gives j
end
subnet no
  e = Sub(u, t) as j1
  takes t, u, w
  gives e
end
y = If(c, t, u, w) { then_net = yes, else_net = no } as o3
h = Div(y, u) as o4
outputs h
]],
  loop = [[
net loop
input x f32 (3,3)
input n f32 ()
t = Tanh(x) as o1
k0 = Constant() { shape = {}, dtype = f32, value = 0 } as o2
subnet more
  input state f32 ()
  input state_2 f32 (3,3)
  l = Lt(state, n) as c1
  takes state, state_2, x, n
  gives l
end
subnet step
  input state f32 ()
  input state_2 f32 (3,3)
  one = Constant() { shape = {}, dtype = f32, value = 1 } as b1
  i = Add(state, one) as b2
  h = Sub(state_2, x) as b3
  takes state, state_2, x, n
  gives i, h
end
k, y = While(k0, t, x, n) { cond_net = more, body_net = step, n_state = 2, max = 5 } as o3
r = Sub(k, y) as o4
outputs r, y
]],
  frames = [[
net frames
input a f32 (4)
s = CreateScope() as o1
subnet first closed
  input x
  y = Relu(x) as i1
  l = Tanh(x) as i2
end
b, s = Do(a, s) { net = first, inner_blobs = {x, y}, outer_blobs_idx = {0,1} } as o2
subnet second closed
  input x
  input l
  y = Sub(l, x) as j1
end
]] .. "c, s = Do(b, s) { net = second, inner_blobs = {x, y}, outer_blobs_idx = {0,1}, \z
      reuse_workspace = true } as o3\noutputs c\n",
  backward = [[
net backward
input x f32 (4,8)
input label i64 (4)
param w f32 (8,8) = Xavier
h = FC(x, w) as o1
r = Relu(h) as o2
loss = SoftmaxCrossEntropy(r, label) as o3
loss.grad = Constant() { shape = {}, dtype = f32, value = 1 } as o4 back _
r.grad = SoftmaxCrossEntropyGrad(r, label, _, loss.grad) as o5 back o3
h.grad = ReluGrad(r, r.grad) as o6 back o2
w_grad = FCGradWeight(x, h.grad) as o7 back o1
grad w_grad of w resident
outputs loss
]],
}

-- ---- changes to a net ---------------------------------------------------------------------------

local function split(list)
  local items = {}
  for item in list:gmatch "[^,%s]+" do items[#items + 1] = item end
  return items
end

--- {indent, outputs, type, inputs, attrs, rest} of a line that is an op; nil for others.
local function parse(line)
  local indent, outs, type, ins, rest = line:match "^(%s*)([^=]-) = (%w+)(%b())(.*)$"
  if not indent or not rest:find " as " then return nil end
  local attrs = rest:match "^ (%b{})"
  return {
    indent = indent,
    outputs = split(outs),
    type = type,
    inputs = split(ins:sub(2, -2)),
    attrs = attrs,
    rest = attrs and rest:sub(#attrs + 2) or rest,
  }
end

local function unparse(op, change)
  for key, value in pairs(op) do
    if change[key] == nil then change[key] = value end
  end
  return ("%s%s = %s(%s)%s%s"):format(change.indent, table.concat(change.outputs, ", "),
    change.type, table.concat(change.inputs, ", "), change.attrs and " " .. change.attrs or "",
    change.rest)
end

--- The list with item i replaced; nil: without it.
local function with(list, i, item)
  local copy = table.move(list, 1, #list, 1, {})
  if item then copy[i] = item else table.remove(copy, i) end
  return copy
end

--- Every name that is in the text.
local function names_of(lines)
  local names, seen = {}, {}
  for _, line in ipairs(lines) do
    local op = parse(line)
    for _, name in ipairs(op and op.outputs or { line:match "^%s*%l+ (%w+) %w+ %(" }) do
      if not seen[name] then names[#names + 1] = name end
      seen[name] = true
    end
  end
  return names
end

local other_type = {
  Relu = "Tanh",
  Tanh = "Relu",
  Sub = "Div",
  Div = "Sub",
  Add = "Mul",
  MatMul = "Add",
  Lt = "Le",
  Sum = "Mean",
  Mean = "Sum",
  Softmax = "LogSoftmax", ArgMax = "ArgMin", If = "AsyncIf", ReluGrad = "TanhGrad",
}

--- A value of the attribute that is neither its default nor `now`, as text.
local function other_value(attr, now)
  local values = {
    bool = { "true", "false" },
    int = { "2", "3" },
    axis = { "0", "1" },
    axes = { "{0}", "{1}" },
    ints = { "{1}", "{2}", "{1,2}" },
    dtype = { "f64", "i32" }, float = { "0.25", "0.75" },
  }
  local default = tostring(attr.default)
  for _, value in ipairs(values[attr.type] or {}) do
    if value ~= now and value ~= default then return value end
  end
end

--- `attrs` with another value for the attribute.
local function with_attr(attrs, attr)
  local pattern = "%f[%w]" .. attr.name .. " = (%b{})"
  local now = attrs
    and (attrs:match(pattern) or attrs:match("%f[%w]" .. attr.name .. " = ([%w.]+)"))
  local value = other_value(attr, now)
  if not value then return nil end
  if now then
    local from, to = attrs:find(attr.name .. " = " .. now, 1, true)
    return attrs:sub(1, from - 1) .. attr.name .. " = " .. value .. attrs:sub(to + 1)
  end
  local more = attr.name .. " = " .. value
  return attrs and attrs:sub(1, -3) .. ", " .. more .. " }" or "{ " .. more .. " }"
end

--- Each changer calls emit(line i's new text, or false for none) for every way to change line i.
local changers = {}

function changers.operands_swapped(lines, i, emit)
  local op = parse(lines[i])
  for a = 1, op and #op.inputs or 0 do
    for b = a + 1, #op.inputs do
      emit(unparse(op, { inputs = with(with(op.inputs, a, op.inputs[b]), b, op.inputs[a]) }))
    end
  end
end

function changers.operand_replaced(lines, i, emit)
  local op = parse(lines[i])
  for a = 1, op and #op.inputs or 0 do
    for _, name in ipairs(names_of(lines)) do
      emit(unparse(op, { inputs = with(op.inputs, a, name) }))
    end
  end
end

function changers.operand_left_out(lines, i, emit)
  local op = parse(lines[i])
  if not op then return end
  for a = 1, #op.inputs do emit(unparse(op, { inputs = with(op.inputs, a) })) end
  for a = 1, #op.outputs do emit(unparse(op, { outputs = with(op.outputs, a) })) end
end

function changers.outputs_swapped(lines, i, emit)
  local op = parse(lines[i])
  if not op then return end
  for a = 1, #op.outputs do
    for b = a + 1, #op.outputs do
      emit(unparse(op, { outputs = with(with(op.outputs, a, op.outputs[b]), b, op.outputs[a]) }))
    end
  end
end

--- The output is written over a name that is declared, or made before and mentioned later.
function changers.output_renamed(lines, i, emit)
  local op = parse(lines[i])
  local before, later = "\n" .. table.concat(lines, "\n", 1, i - 1), table.concat(lines, " ", i + 1)
  for a = 1, op and #op.outputs or 0 do
    for _, name in ipairs(names_of(lines)) do
      local declared = before:find("\n%l+ " .. name .. " %w+ %(")
      local alive = before:find("\n" .. name .. "[, %w]* = ")
        and later:find("%f[%w]" .. name .. "%f[^%w]")
      if declared or alive then emit(unparse(op, { outputs = with(op.outputs, a, name) })) end
    end
  end
end

function changers.type(lines, i, emit)
  local op = parse(lines[i])
  if op and other_type[op.type] then emit(unparse(op, { type = other_type[op.type] })) end
end

function changers.attribute(lines, i, emit)
  local op = parse(lines[i])
  for _, attr in ipairs(op and core.record(op.type).attrs or {}) do
    local attrs = with_attr(op.attrs, attr)
    if attrs then emit(unparse(op, { attrs = attrs })) end
  end
end

function changers.device(lines, i, emit)
  local op = parse(lines[i])
  if op then emit(lines[i]:gsub(" as (%w+)", " as %1 on cpu:1")) end
end

function changers.left_out(lines, i, emit)
  if parse(lines[i]) or lines[i]:find "^keep" then emit(false) end
end

function changers.order(lines, i, emit)
  if parse(lines[i]) and parse(lines[i + 1] or "") then
    emit(lines[i + 1] .. "\n" .. lines[i], 2)
  end
end

function changers.given(lines, i, emit)
  local what, list = lines[i]:match "^(%s*%l+) (.*)$"
  if what ~= "outputs" and what ~= "  gives" then return end
  local items = split(list)
  for a = 1, #items do
    emit(what .. " " .. table.concat(with(items, a), ", "))
    for b = a + 1, #items do
      emit(what .. " " .. table.concat(with(with(items, a, items[b]), b, items[a]), ", "))
    end
    for _, name in ipairs(names_of(lines)) do
      emit(what .. " " .. table.concat(with(items, a, name), ", "))
    end
  end
end

function changers.taken(lines, i, emit)
  local items = lines[i]:match "^  takes (.*)$"
  items = items and split(items) or {}
  for a = 1, #items - 1 do
    emit("  takes " .. table.concat(with(with(items, a, items[a + 1]), a + 1, items[a]), ", "))
  end
end

function changers.declaration(lines, i, emit)
  local line = lines[i]
  if not line:find "^%l+ %w+ %w+ %(" then return end
  emit((line:gsub("f32", "f64", 1)))
  emit((line:gsub("%((%d)", "(1%1", 1)))
  emit((line:gsub("^input", "param")))
  emit((line:gsub("^param", "frozen param")))
  emit((line:gsub("Xavier", "Constant { value = 2 }")))
  emit((line:gsub("value = %d", "value = 7")))
  emit((line:gsub(" = .*", "")))
end

function changers.kept(lines, i, emit)
  if lines[i]:find "^outputs" then
    local text = table.concat(lines, "\n")
    for _, name in ipairs(names_of(lines)) do
      if not text:find("%l+ " .. name .. " %w+ %(") and not text:find("keep " .. name) then
        emit("keep " .. name .. "\n" .. lines[i])
      end
    end
  end
end

function changers.gradient(lines, i, emit)
  if lines[i]:find "resident" then emit(false) end
end

--- Calls f(what was changed, changed net) for each change of that kind that gives a net.
local function each_change(text, change, f)
  local lines, n = {}, 0
  for line in text:gmatch "[^\n]+" do lines[#lines + 1] = line end
  for i = 1, #lines do
    change(lines, i, function(line, n_line)
      local copy = table.move(lines, 1, #lines, 1, {})
      for _ = 1, n_line or 1 do table.remove(copy, i) end
      if line then table.insert(copy, i, line) end
      local changed = table.concat(copy, "\n") .. "\n"
      if line == lines[i] then return end
      local ok, net = pcall(neap.net_from, changed)
      if not ok then return end
      n = n + 1
      f(("%s  ->  %s"):format(lines[i], line or "(nothing)"), net)
    end)
  end
  return n
end

-- ---- equality of nets ---------------------------------------------------------------------------

describe("verify_graph_equality", function()
  for kind, change in pairs(changers) do
    it("tells a net from itself with one change: " .. kind, function()
      local n = 0
      for _, text in pairs(nets) do
        local net = neap.net_from(text)
        n = n + each_change(text, change, function(what, changed)
          local same, where = M.verify_graph_equality(net, changed)
          assert.is_false(same, what)
          assert.is_true(#where > 0, what)
          assert.is_false((M.verify_graph_equality(changed, net)), what)
        end)
      end
      assert.is_true(n > 0, "nothing was changed")
    end)
  end

  it("holds for a net, its clone and its text", function()
    for _, text in pairs(nets) do
      local net = neap.net_from(text)
      assert.is_true(M.verify_graph_equality(net, net:clone()))
      assert.is_true(M.verify_graph_equality(net, neap.net_from(net:text())))
    end
  end)

  it("holds when what ops make is called differently, and attributes are given as \z
      they are by default", function()
    for name, text in pairs(nets) do
      local net, renames = neap.net_from(text), {}
      for _, op in ipairs(net:_ops()) do
        for _, out in ipairs(op.outputs) do
          local blob = out and net:_blob(out)
          if blob and not blob.dtype and out ~= "s" then renames[out] = out .. "_new" end
        end
      end
      assert.is_truthy(next(renames))
      local same, where = M.verify_graph_equality(net, net:rename(renames))
      assert.is_true(same, name .. ": " .. where)
    end
    local plain = neap.net_from "net n\ninput x f32 (4)\ny = Dropout(x) as o\n"
    assert.is_true(M.verify_graph_equality(plain,
      neap.net_from "net n\ninput x f32 (4)\ny = Dropout(x) { rate = 0.5 } as o\n"))
    -- Left out, an axis means all of them, which no value says.
    local all = neap.net_from "net n\ninput x f32 (4)\ny = ArgMax(x) as o\n"
    assert.is_false((M.verify_graph_equality(all,
      neap.net_from "net n\ninput x f32 (4)\ny = ArgMax(x) { axis = 0 } as o\n")))
  end)

  it("holds for whatever memonger plans", function()
    for name, text in pairs(nets) do
      if name ~= "frames" then
        local net = neap.net_from(text)
        for _, executor in ipairs { "simple", "dag" } do
          local same, where = M.verify_graph_equality(net,
            (M.optimize_net(net, { executor = executor })))
          assert.is_true(same, name .. ": " .. where)
        end
      end
    end
  end)

  it("holds for a net with a backward pass and for its written-out, recycled and shared forms, \z
      and tells them from another's", function()
    local function made(last)
      local net = neap.net "n"
      local x, w, v = net:input("x", { 4, 8 }), net:param("w", { 8, 8 }), net:param("v", { 8, 8 })
      local h = net:Relu(net:FC({ x, w }, "h"), "h2")
      local loss = net[last](net, net:FC({ h, v }, "h3"), "loss")
      local grad = net:gradient(loss, { wrt = { "w", "v" } })
      net:outputs { loss, grad[w], grad[v] }
      return net
    end
    local net, another = made "Sum", made "Mean"
    for what, form in pairs {
      written = function(n) return n:expand {} end,
      recycled = function(n) return (M.optimize_net(n, { executor = "simple" })) end,
      shared = function(n) return (M.share_grad_blobs(n, { "loss" })) end,
    } do
      for _, verify in ipairs { M.verify_graph_equality, M.verify_inplace_blobs } do
        for _, pair in ipairs { { net, form(net) }, { form(net), net } } do
          local same, where = verify(pair[1], pair[2])
          assert.is_true(same, what .. ": " .. where)
        end
      end
      for _, pair in ipairs {
        { net, form(another) }, { form(another), net }, { another, form(net) },
      } do
        local same, where = M.verify_graph_equality(pair[1], pair[2])
        assert.is_false(same, what)
        assert.is_truthy(where:find("op 4", 1, true), where)
      end
    end
  end)
end)

describe("verify_inplace_blobs", function()
  it("tells every op that begins or ceases to work in place", function()
    local n = 0
    for _, text in pairs(nets) do
      local net = neap.net_from(text)
      for i, op in ipairs(net:_ops()) do
        for _, x in ipairs(op.inputs) do
          local ok, changed = pcall(net.rename, net, { [op.outputs[1] or ""] = x })
          if ok and x ~= op.outputs[1] then
            n = n + 1
            for _, pair in ipairs { { net, changed }, { changed, net } } do
              local same, where = M.verify_inplace_blobs(pair[1], pair[2])
              assert.is_false(same, ("%s: %s = %s"):format(net:name(), op.outputs[1], x))
              assert.is_truthy(where:find("op " .. i, 1, true), where)
            end
          end
        end
      end
    end
    assert.is_true(n >= 5, n)
  end)
end)

describe("an order of ops", function()
  local written_over = [[
net over
input x f32 (2)
state m f32 (2) = Constant { value = 1 }
v = Neg(m)
a = Exp(x)
m = Mul(a, x) as mul
b = Add(m, a)
y = Add(b, v)
outputs y]]
  local inside = [[
net inside
input x f32 (2)
input c bool (1)
state m f32 (2) = Constant { value = 1 }
subnet yes
  p = Add(x, m)
  takes x, m
  gives p
end
subnet no
  q = Sub(x, m)
  takes x, m
  gives q
end
v = If(c, x, m) { then_net = yes, else_net = no }
m = Mul(m, x) as mul
u = Sin(m)
Free(u)
m = Add(m, x) as add
y = Add(v, m)
outputs y]]

  --- What an order of the ops gives after two runs, as hashes.
  local function run(net)
    local ws <close> = neap.workspace { seed = 3, store = false }
    ws:init(net)
    ws:feed("x", { 0.5, 2 })
    if net:_blob "c" then ws:feed("c", neap.tensor({ 1 }, "i32"):gt(0)) end
    local program <close> = ws:compile(net, { policy = "none", store = false })
    program:run()
    program:run()
    return { ws:fetch("y"):hash(), ws:fetch("m"):hash() }
  end

  --- Calls f with every order of 1..n.
  local function permutations(n, f, order, used)
    order, used = order or {}, used or {}
    if #order == n then return f(order) end
    for i = 1, n do
      if not used[i] then
        used[i], order[#order + 1] = true, i
        permutations(n, f, order, used)
        used[i], order[#order] = nil, nil
      end
    end
  end

  for name, case in pairs {
    over = { text = written_over, right = { ["1 2 3 4 5"] = true, ["2 1 3 4 5"] = true } },
    inside = {
      text = inside,
      right = { ["1 2 3 4 5 6"] = true, ["1 2 3 5 4 6"] = true, ["1 2 3 5 6 4"] = true },
    },
  } do
    it("is taken only where every op reads what it read: " .. name, function()
      local net, silent = neap.net_from(case.text), 0
      local want = run(net)
      local kinds = {}
      for _, kind in ipairs { "longest_path", "least_memory" } do
        kinds[table.concat(M.topological_sort_traversal(net, kind), " ")] = kind
      end
      for order, kind in pairs(kinds) do
        assert.is_true(case.right[order], kind .. ": " .. order)
      end
      permutations(#net:_ops(), function(order)
        local text = table.concat(order, " ")
        local ok, made = pcall(M.optimize_interference, net, nil, function() return order end)
        assert.are.equal(case.right[text] or false, ok, text .. ": " .. tostring(made))
        if ok then
          assert.are.same(want, run(made), text)
        elseif tostring(made):find("would not compute in this order what it computes as it stands",
            1, true) then
          assert.are.equal("plan", made.code)
          silent = silent + 1 -- no rule of the net forbids it
        end
      end)
      assert.is_true(silent >= 2, silent)
    end)
  end
end)

-- ---- assignments --------------------------------------------------------------------------------

describe("apply_assignments", function()
  it("refuses every pair of blobs whose lives overlap, and takes every \z
      pair that may share", function()
    local taken, refused = 0, 0
    for name, text in pairs(nets) do
      if name ~= "frames" then
        local net = neap.net_from(text)
        local state = M.recycler(net)
        for _, a in ipairs(state.rows) do
          for _, b in ipairs(state.rows) do
            if a ~= b then
              local may = a.shares and b.shares and M.can_use_blob(state, { a.name }, b.name)
              local ok, made = pcall(M.apply_assignments, net, { [a.name] = b.name })
              local case = ("%s: %s = %s"):format(name, a.name, b.name)
              if may then
                assert.is_true(ok, case .. ": " .. tostring(made))
                assert.is_true(M.verify_graph_equality(net, made))
                taken = taken + 1
              elseif not ok then
                refused = refused + 1
              else
                -- Not the planner's to share, but no harm: it computes the same.
                assert.is_true(
                  M.verify_graph_equality(net, made) and M.verify_inplace_blobs(net, made), case)
                local overlap = a.first <= b.last and b.first <= a.last
                assert.is_false(overlap and a.first > 0 and b.first > 0, case)
              end
            end
          end
        end
      end
    end
    assert.is_true(taken >= 2 and refused >= 50, ("%d taken, %d refused"):format(taken, refused))
  end)

  it("refuses a name that a subnet has for itself, declared blobs, outputs, what is kept, and one \z
      blob in two slots", function()
    local branches, layers = neap.net_from(nets.branches), neap.net_from(nets.layers)
    for _, renames in ipairs {
      { t = "i" }, { u = "i" }, { u = "j" }, { t = "u" }, { u = "t" }, { y = "u" },
    } do
      assert.is_false((pcall(M.apply_assignments, branches, renames)), next(renames))
    end
    raises("is declared", M.apply_assignments, branches, { w = "t" })
    for _, renames in ipairs {
      { m = "s" }, { a = "k" }, { p = "f" }, { l = "q" }, { f = "d" }, { m = "v" },
    } do
      assert.is_false((pcall(M.apply_assignments, layers, renames)), next(renames))
    end
    raises({ "\"a\"", "twice" }, M.apply_assignments, layers, { { "a", "r" }, { "d", "a" } })
  end)
end)

describe("verify_assignments", function()
  local function ranges()
    return {
      { name = "a", defined = 1, used = 3, size = 10 },
      { name = "b", defined = 4, used = 5, size = 8 },
      { name = "c", defined = 2, used = 4, size = 4, class = 2 },
      { name = "d", defined = 6, used = 9, size = 10 },
    }
  end
  local function good()
    local r = ranges()
    return { { r[1], r[2], r[4] }, { r[3] } }
  end
  local faults = {
    ["one blob in two slots"] = function(s) s[2][2] = s[1][1] end,
    ["one blob twice in a slot"] = function(s) s[2][2] = s[2][1] end,
    ["one name for two ranges"] = function(s) s[2][1].name = "a" end,
    ["a negative size"] = function(s) s[1][2].size = -1 end,
    ["a size that is no integer"] = function(s) s[1][2].size = 1.5 end,
    ["sizes that can't be summed"] = function(s)
      s[1][1].size, s[1][2].size = math.maxinteger, 1
    end,
    ["a life that begins at the end of another"] = function(s) s[1][2].defined = 3 end,
    ["a life within another"] = function(s) s[1][3].defined, s[1][3].used = 2, 2 end,
    ["two classes in a slot"] = function(s) s[1][2].class = 2 end,
    ["a static blob that shares"] = function(s) s[1][3].static = true end,
    ["a range without a life"] = function(s) s[1][2].defined = nil end,
    ["a member that is no range"] = function(s) s[1][2] = 7 end,
  }
  for what, break_it in pairs(faults) do
    it("refuses " .. what, function()
      assert.is_true(M.verify_assignments(good()))
      local slots = good()
      break_it(slots)
      assert.is_false((pcall(M.verify_assignments, slots)))
    end)
  end

  it("of a net refuses what the net hasn't, other lives, and whatever overlaps there", function()
    for name, text in pairs(nets) do
      if name ~= "frames" then
        local net = neap.net_from(text)
        local slots = M.compute_assignments(M.compute_ranges(net))
        assert.is_true(M.verify_assignments(slots, net))
        local list = {}
        for k, slot in ipairs(slots) do
          list[k] = {}
          for i, range in ipairs(slot) do list[k][i] = range.name end
        end
        assert.is_true(M.verify_assignments(list, net))
        list[1][#list[1] + 1] = "nobody"
        raises("nobody", M.verify_assignments, list, net)
        slots[1][1].used = slots[1][1].used + 1
        raises(slots[1][1].name, M.verify_assignments, slots, net)
      end
    end
    local net = neap.net_from(nets.layers)
    raises({ "\"s0\"", "\"a\"" }, M.verify_assignments, { { "s0", "a" } }, net)
    raises("is static", M.verify_assignments, { { "s0", "f" } }, net)
  end)
end)

-- ---- estimates ----------------------------------------------------------------------------------

describe("estimate_memory_usage", function()
  local function net_of(name, text)
    return neap.net_from("net " .. name .. "\ninput x f32 (16)\n" .. text)
  end
  it("counts a blob that two nets write once, at its largest", function()
    local a = net_of("a", "h = Relu(x) as a1\ny = Tanh(h) as a2\n")
    local b = neap.net_from "net b\ninput z f32 (64)\nh = Relu(z) as b1\nq = Tanh(h) as b2\n"
    assert.are.equal(128, M.estimate_memory_usage(a).total_bytes)
    assert.are.equal(512, M.estimate_memory_usage(b).total_bytes)
    for _, pair in ipairs { { a, b }, { b, a } } do
      local both = M.estimate_memory_usage(pair)
      assert.are.equal(64 + 256 + 256, both.total_bytes)
      assert.are.equal(64 + 256 + 256, both.high_water_bytes)
      local sum = 0
      for _, row in ipairs(both) do sum = sum + row.bytes end
      assert.are.equal(both.total_bytes, sum)
    end
    assert.are.equal(128, M.estimate_memory_usage({ a, a, a:clone() }).total_bytes)
  end)
  it("counts it again when it was freed in between", function()
    local a = net_of("a", "h = Relu(x) as a1\ny = Tanh(h) as a2\nh = Free(h) as a3\n")
    local b = net_of("b", "h = Relu(x) as b1\nq = Tanh(h) as b2\n")
    local both = M.estimate_memory_usage { a, b }
    assert.are.equal(4 * 64, both.total_bytes)
    assert.are.equal(3 * 64, both.high_water_bytes)
  end)
  it("counts a blob that a planned net shares once", function()
    local net = net_of("n",
      "a = Relu(x) as o1\nb = Tanh(a) as o2\nc = Relu(b) as o3\nd = Tanh(c) as o4\noutputs d\n")
    local planned = M.optimize_net(net)
    assert.is_true(
      M.estimate_memory_usage(planned).total_bytes < M.estimate_memory_usage(net).total_bytes)
    assert.are.equal(3 * 64, M.estimate_memory_usage(planned).total_bytes)
  end)
end)

describe("a verdict", function()
  it("leaves no memory behind, with its reason too", function()
    local a, b = neap.net "a", neap.net "a"
    a:Relu(a:input("x", { 2 }), "y")
    b:Tanh(b:input("x", { 2 }), "y")
    assert.is_false((M.verify_graph_equality(a, b)))
    support.settle()
    local before = neap.memory().n_live
    for _ = 1, 50 do M.verify_graph_equality(a, b) end
    support.settle()
    assert.are.equal(before, neap.memory().n_live)
  end)

  it("leaves no memory behind with a list of who interferes with whom", function()
    local net = neap.net "a"
    net:outputs { net:Tanh(net:Relu(net:input("x", { 2 }), "y")) }
    M.compute_interference_graph(net)
    support.settle()
    local before = neap.memory().n_live
    for _ = 1, 50 do M.compute_interference_graph(net) end
    support.settle()
    assert.are.equal(before, neap.memory().n_live)
  end)
end)
