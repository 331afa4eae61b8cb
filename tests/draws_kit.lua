--- Random nets of control ops whose bodies and branches draw random numbers.
--
-- All that such a net computes is elementwise and positively homogeneous of degree one in its float
-- inputs together: f(s x) = s f(x) for s > 0, whatever numbers are drawn. So Euler's theorem holds
-- for each element: the inputs, times the gradients that they get, add up to the output. A backward
-- that draws other numbers than its forward did fails that, in the run in which it does.
local neap = require "neap"
local nn = neap.nn

local M = {}

local N, T = 12, 4 -- elements of a vector, rows of a sequence

--- A generator of whole numbers in 1..n that is the same everywhere.
local function chooser(seed)
  local state = seed * 2654435761 % 4294967296
  return function(n)
    state = (state * 1664525 + 1013904223) % 4294967296
    return state // 65536 % n + 1
  end
end

--- What a net under construction knows.
local Maker = {}
Maker.__index = Maker

function Maker:pick(list) return list[self.choose(#list)] end

function Maker:fresh(base)
  self.n_name = self.n_name + 1
  return base .. self.n_name
end

function Maker:dropout(b, x, out)
  return b:Dropout(x, out, { rate = 0.2 + 0.1 * self.choose(4) })
end

function Maker:noise(b, shape)
  shape = shape or self.shape
  return b:Uniform({}, nil, { shape = shape, dtype = self.dtype, low = 0.5, high = 1.5 })
end

function Maker:number(b, x) return b:const(x, self.dtype) end

--- One more value out of those at hand.
local plain = {
  function(m, b, x) return m:dropout(b, x) end,
  function(m, b, x) return m:dropout(b, x) end,
  function(m, b, x) return b:Mul { x, m:noise(b) } end,
  function(_, b, x) return b:Relu(x) end,
  function(_, b, x, y) return b:Maximum { x, y } end,
  function(m, b, x, y) return b:Add { b:Mul { x, m:number(b, 0.75) }, y } end,
  function(m, b, x) -- written again under its name
    local name = m:fresh "again"
    b:Copy(x, name)
    m:dropout(b, name, name)
    if m.choose(2) == 1 then b:Mul({ name, m:noise(b) }, name) end
    return b:blob(name)
  end,
}

--- A flag of one element: given, or drawn.
function Maker:condition(b)
  local kind = self.choose(4)
  if kind == 1 then return self.given.yes end
  if kind == 2 then return self.given.no end
  return b:Lt { self:noise(b, {}), self:number(b, kind == 3 and 0.9 or 1.1) }
end

local control = {}

function control.If(m, b, vars, depth)
  local cond, type_name = m:condition(b), m.choose(5) == 1 and "AsyncIf" or "If"
  local function branch(s) return m:block(s, vars, depth) end
  if m.choose(3) > 1 then
    local two = m.choose(3) == 1
    local function both(s)
      if not two then return branch(s) end
      local y = branch(s)
      return y, m.choose(2) == 1 and y or m:dropout(s, y)
    end
    local y, z = b[type_name](b, cond, both, both)
    return two and b:Add { y, z } or y
  end
  local name = m:fresh "branch"
  b:Copy(m:pick(vars), name)
  local function write(s) s:Copy(branch(s), name) end
  local function again(s) m:dropout(s, name, name) end
  b[type_name](b, cond, m:pick { write, again }, m:pick { write, again, false } or nil)
  return b:blob(name)
end

local function with(vars, ...)
  local list = table.move(vars, 1, #vars, 1, {})
  for _, x in ipairs { ... } do list[#list + 1] = x end
  return list
end

function control.While(m, b, vars, depth)
  local most, drawn = m.choose(3), m.choose(4) == 1
  local max = (m.grows and m.choose(3) == 1) and nil or most
  local _, h = b:While { init = { m:number(b, 0), m:pick(vars) }, max = max,
    cond = function(s, i)
      if drawn then i = s:Add { i, m:noise(s, {}) } end
      return s:Lt { i, m:number(s, most - (drawn and 0 or 0.5)) }
    end,
    body = function(s, i, h)
      return s:Add { i, m:number(s, 1) }, m:block(s, with(vars, h), depth)
    end }
  return h
end

function control.Loop(m, b, vars, depth)
  return (b:Loop { trip = 1 + m.choose(3), init = { m:pick(vars) },
    body = function(s, _, h) return true, m:block(s, with(vars, h), depth) end })
end

--- The sum of the last state and of all rows.
local function of_rows(b, h, rows) return b:Add { h, b:Sum(rows, nil, { axes = { 1 } }) } end

function control.Scan(m, b, vars, depth)
  local function body(s, h, x)
    local y = m:block(s, with(vars, h, x), depth)
    return y, m.choose(2) == 1 and y or m:dropout(s, x)
  end
  return of_rows(b, b:Scan { seq = { m.given.seq }, init = { m:pick(vars) }, body = body })
end

function control.Recurrent(m, b, vars, depth)
  local again = m.choose(2) == 1 and {} or nil
  local lengths = m.choose(4) == 1 and m.given.lengths or nil
  return of_rows(b, b:Recurrent { seq = { m.given.seq }, init = { m:pick(vars) },
    recompute = again, lengths = lengths,
    step = function(s, h, x)
      if m.choose(5) == 1 then h = m:dropout(s, h, h) end -- by name
      local y = m:block(s, with(vars, h, x), depth)
      local z = m:dropout(s, y, m:fresh "kept")
      local w = s:Relu(z, m:fresh "kept")
      if again then again[1], again[2] = w, m.choose(2) == 1 and z or nil end
      return w, z
    end })
end

function control.Do(m, b, vars, depth)
  local scope, bindings, outside, inside = m:fresh "scope", { inner = m:pick(vars) }, m.given, {}
  b:CreateScope({}, scope)
  for name, blob in pairs(outside) do bindings[name], inside[name] = blob, name end
  m.given = inside
  local y = b:Do { bindings = bindings, scope = scope, copy = m.choose(3) == 1,
    body = function(s) return m:block(s, { s:blob "inner" }, depth) end }
  m.given = outside
  return y
end

local kinds = { "If", "If", "While", "Loop", "Scan", "Recurrent", "Recurrent", "Do" }

--- A few ops on `vars`, blobs of b or of the nets around it; one value that depends on several of
-- them.
function Maker:block(b, vars, depth)
  local at = with(vars)
  for _ = 1, self.choose(3) do
    at[#at + 1] = self:pick(plain)(self, b, self:pick(at), self:pick(at))
    if depth > 0 and self.n_control > 0 and self.choose(2) == 1 then
      self.n_control = self.n_control - 1
      at[#at + 1] = control[self.only or self:pick(kinds)](self, b, at, depth - 1)
    end
  end
  return b:Add { at[#at], self:dropout(b, self:pick(at)) }
end

local function maker(seed, o)
  return setmetatable({ choose = chooser(seed), n_name = 0, n_control = o.control or 3,
    grows = o.grows, only = o.only, shape = { N }, dtype = "f64" }, Maker)
end

local given = { yes = "yes", no = "no", seq = "seq", lengths = "lengths" }

--- net, feeds of a random net. Outputs are "y" and the gradients of its sum by all that it is
-- homogeneous in.
-- @tparam int seed
-- @tparam[opt] table o {control = most control ops, grows = whether a While may have no maximum,
--   only = a kind}
function M.make(seed, o)
  local m, net = maker(seed, o or {}), neap.net("draws" .. seed)
  m.given = given
  local a, w = net:input("a", { N }, "f64"), net:input("w", { N }, "f64")
  net:input("seq", { T, N }, "f64")
  net:input("yes", {}, "f64")
  net:input("no", {}, "f64")
  net:input("lengths", { N }, "i64")
  local y = m:block(net, { net:Add { a, m:dropout(net, w) }, w, a }, 3)
  net:Add({ y, net:Sum("seq", nil, { axes = { 1 } }) }, "y")
  net:gradient(net:Sum("y", "loss"), { wrt = { "a", "w", "seq" }, allow_unused = true })
  net:outputs { "y", "a_grad", "w_grad", "seq_grad" }
  local fill, i = require("support").filler(seed * 0.1 % 1), -1
  local lengths = neap.zeros({ N, dtype = "i64" }):apply_(function()
    i = i + 1
    return i % (T + 1)
  end)
  local function vector() return fill(neap.zeros { N, dtype = "f64" }) end
  return net, { a = vector(), w = vector(), seq = fill(neap.zeros { T, N, dtype = "f64" }),
    yes = neap.ones { dtype = "f64" }, no = neap.zeros { dtype = "f64" }, lengths = lengths }
end

--- The largest difference between y and what inputs and gradients add up to, as a share of the
-- largest element of y.
function M.error_of(feeds, out)
  local sum = feeds.a * out.a_grad + feeds.w * out.w_grad + (feeds.seq * out.seq_grad):sum { 1 }
  local scale = math.max(1, out.y:abs():max():item())
  local d = (sum - out.y):abs():max():item() / scale
  return d == d and d or math.huge
end

--- A layer for x (rows,N) in f32 that computes the like of itself.
function M.layer(seed, o)
  return nn.Lambda(function(x)
    local m, net = maker(seed, o or {}), x.net
    m.shape, m.dtype = x.shape, x.dtype
    local row = x:unsqueeze { axes = { 1 } }
    m.given = { yes = m:number(net, 1), no = m:number(net, 0),
      seq = net:Concat({ row, row, row }, nil, { axis = 1 }) }
    return m:block(net, { x }, 3)
  end)
end

return M
