--- Containers: layers made of layers, and functions as layers.
-- @module neap.nn.containers
local fail = require("neap.core").fail
local module = require "neap.nn.module"
local tree = require "neap.nn.tree"

local Module, class = module.Module, module.class
local containers = {}

--- Registers the modules in the array part of a container's options, which has no holes.
local function add_items(self, o)
  -- Lua's # is not told where a list with a hole ends: keys beyond it give the hole away.
  for key in pairs(o) do
    if math.type(key) == "integer" and (key < 1 or key > #o) then
      fail(("nn.%s: item %d is nil"):format(self._class, #o + 1))
    end
  end
  Module.add_all(self, o)
end

containers.Sequential = class { "Sequential", name = "block",
  options = { doc = "One layer after another.", items = "layer, layer, ..",
    { "dtype", "dtype", unset = "f32", doc = "dtype of the input" },
    { "seed", "integer", unset = "drawn", doc = "what the initial parameters are drawn from" },
    example = "nn.Sequential { nn.Linear { 8, 8, name = \"up\" }, nn.ReLU(), input = { 8 } }" },
  init = function(self, o)
    self.input_dtype, self._seed = o.dtype, o.seed
    add_items(self, o)
  end,
  forward = function(self, ...)
    local xs = table.pack(...)
    for _, child in ipairs(tree.layers(self)) do
      xs = table.pack(child(table.unpack(xs, 1, xs.n)))
    end
    return table.unpack(xs, 1, xs.n)
  end }

containers.Residual = class { "Residual",
  options = { doc = "x + f(x), f being the layers in order.", items = "layer, layer, ..",
    { "shortcut", "module", unset = "x itself", doc = "what stands for x where shapes differ" },
    example = "nn.Residual { nn.Linear { 64, 64 }, nn.ReLU(), nn.Linear { 64, 64 } }" },
  init = function(self, o)
    add_items(self, o)
    if o.shortcut then self.shortcut = o.shortcut end
  end,
  forward = function(self, x)
    -- The shortcut is a child as well, and no part of f.
    local y, short = x, self.shortcut
    for _, child in ipairs(tree.layers(self)) do
      if child ~= short then y = child(y) end
    end
    return y + (short and short(x) or x)
  end }

containers.Concat = class { "Concat",
  options = { doc = "The outputs of the branches, side by side.", items = "branch, branch, ..",
    { of = "Concat.axis", doc = "dimension along which they are joined; 2 are the channels" },
    example = "nn.Concat { nn.Conv2d { 64, 32, kernel = 1 }, "
      .. "nn.Conv2d { 64, 32, kernel = 3, pad = 1 } }" },
  init = function(self, o)
    self.axis = o.axis
    add_items(self, o)
  end,
  forward = function(self, x)
    local ys = {}
    for i, child in ipairs(tree.layers(self)) do ys[i] = child(x) end
    return Module.op(self, "Concat", ys, { axis = self.axis })
  end }

containers.Lambda = class { "Lambda",
  options = { doc = [[A function of blobs (or tensors) as a layer. It is called once for each kind
      of input: what it reads besides is as it was then (help "nn.module").]],
    positions = { "f" },
    { "f", "function", required = true, doc = "from inputs to outputs" },
    example = "nn.Lambda(function(x) return x:tanh() * 2 end)" },
  init = function(self, o) self.f = o.f end,
  forward = function(self, ...) return self.f(...) end }

containers.Parallel = class { "Parallel",
  options = { doc = [[Layers side by side, each of an input of its own, or all of one: as many
      outputs as there are layers.]],
    items = "layer, layer, ..",
    example = "nn.Parallel { nn.Linear { 8, 4 }, nn.Linear { 8, 2 } }" },
  init = add_items,
  forward = function(self, ...)
    local list, ys, n = tree.layers(self), {}, select("#", ...)
    if n ~= 1 and n ~= #list then
      fail(("nn.Parallel: %d layers take 1 input or %d, got %d"):format(#list, #list, n))
    end
    for i, child in ipairs(list) do ys[i] = child((select(n == 1 and 1 or i, ...))) end
    return table.unpack(ys, 1, #list)
  end }

containers.ModuleList = class { "ModuleList", name = "list",
  options = { doc = [[A list of layers for a forward of your own, called 1, 2, ..: list[1], #list,
      ipairs(list), list:append(layer).]],
    items = "layer, layer, ..",
    example = "nn.ModuleList { nn.Linear { 8, 8 }, nn.Linear { 8, 2 } }" },
  init = function(self, o)
    for i = 1, #o do self:append(o[i]) end
  end,
  append = function(self, layer)
    Module.expect(layer, ("nn.ModuleList: item %d"):format(#self + 1))
    Module.add(self, tostring(#self + 1), layer)
    return self
  end }

containers.Bidirectional = class { "Bidirectional",
  options = { doc = [[Two layers over sequences x (N,T,..), of which the second reads from the end;
      a second argument, integers (N), says how long each sequence is. The outputs lie side by side,
      or become one.]],
    positions = { "forward", "backward" },
    { "forward", "module", required = true, doc = "the layer that reads from the beginning" },
    { "backward", "module", required = true, doc = "the one that reads from the end" },
    { "merge", "choice", "concat", choices = { "concat", "sum", "mean", "mul" },
      doc = "what becomes of the two outputs" },
    example = "nn.Bidirectional { nn.GRU { 8, 8 }, nn.LSTM { 8, 8 } }" },
  init = function(self, o)
    self.first, self.second, self.merge = o.forward, o.backward, o.merge
  end,
  forward = function(self, x, lengths)
    -- From the end, the second layer reads a reversed text, and its output is turned back. With
    -- lengths, each sequence is turned by itself: padding stays at the end.
    local function reversed(y)
      if not lengths then return Module.op(self, "Flip", { y }, { axes = { 2 } }) end
      return Module.op(self, "ReverseSequence", { y, lengths }, { time_axis = 2, batch_axis = 1 })
    end
    local a, b = self.first(x, lengths), reversed((self.second(reversed(x), lengths)))
    if self.merge == "sum" then return a + b end
    if self.merge == "mean" then return (a + b) * 0.5 end
    if self.merge == "mul" then return a * b end
    return Module.op(self, "Concat", { a, b }, { axis = -1 })
  end }

containers.Identity = class { "Identity",
  options = { doc = "Gives what it is given.", example = "nn.Identity()" },
  forward = function(_, x) return x end }

return containers
