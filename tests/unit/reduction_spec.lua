-- How a loss makes one number of its rows, a mean or a sum: what its net says of it, who may say
-- otherwise, and what is made of it.
local neap = require "neap"
local support = require "support"
local nn, optim = neap.nn, neap.optim
local raises = support.raises

local function trainer(o)
  o.model = nn.Sequential { seed = 3, input = { 4 }, nn.Linear { 4, 3 } }
  o.optimizer = optim.SGD { lr = 0 }
  return neap.trainer(o)
end

local fill = support.filler(0.3)
local x = fill(neap.zeros(12, 4))
local labels = neap.tensor({ 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2 }, "i64")
local numbers = fill(neap.zeros(12, 3))

local function set_of(y, rows) return neap.data.tensors { x = x, y = y, batch = rows } end
local function summed_entropy(y, t) return y:softmax_cross_entropy(t, { reduction = "sum" }) end
local function mean_entropy(y, t) return y:softmax_cross_entropy(t) end

describe("a loss that sums", function()
  --- Loss of the whole data as one batch, in as many batches as there are, and in an epoch.
  local function is_one_number(o, y)
    local whole <close> = trainer(o())
    local expected = whole:step { x = x, y = y }.loss
    for _, rows in ipairs { 1, 5, 12 } do
      local t <close> = trainer(o())
      local h = t:fit(set_of(y, rows), { verbose = 0, valid = set_of(y, 7) })
      for _, got in ipairs { t:evaluate(set_of(y, rows)).loss, h[1].loss, h[1].valid_loss } do
        assert.is_true(math.abs(got - expected) < 1e-5 * math.abs(expected),
          ("batch %d: %g for %g"):format(rows, got, expected))
      end
    end
  end

  it("is summed over a data set, whatever the batches, where the trainer, the loss \z
      or its net says so", function()
    local Own = nn.module {
      "Own",
      init = function(self) self.reduces = "sum" end,
      forward = function(_, y, t) return summed_entropy(y, t) * 2 end,
    }
    is_one_number(function() return { loss = summed_entropy, reduces = "sum" } end, labels)
    is_one_number(function() return { loss = summed_entropy } end, labels)
    is_one_number(function()
      return { loss = function(y, t) return summed_entropy(y, t) * 2 end, reduces = "sum" }
    end, labels)
    is_one_number(function() return { loss = Own {} } end, labels)
    is_one_number(function() return { loss = function(y, t) return (y - t):square():sum() end } end,
      numbers)
    for _, scaled in ipairs {
      function(y, t) return 0.1 * (y - t):square():sum() end,
      function(y, t) return (y - t):square():sum() / 6 end,
      function(y, t) return y:mse_loss(t) * y.shape[1] end,
    } do
      is_one_number(function() return { loss = scaled } end, numbers)
    end
    is_one_number(function() return { loss = summed_entropy, reduces = "sum", micro = 3 } end,
      labels)
    is_one_number(function() return { loss = summed_entropy, reduces = "sum", accumulate = 2 } end,
      labels)
  end)

  it("leaves a mean as it is, and metrics means by rows", function()
    is_one_number(function() return {} end, labels)
    is_one_number(function()
      return { loss = function(y, t) return (y - t):square():sum(2):mean() end }
    end, numbers)
    is_one_number(function()
      return { loss = function(y, t) return (y - t):square():sum() / y.shape[1] end }
    end, numbers)
    is_one_number(function()
      return { loss = function(y, t) return y:mse_loss(t) * 2 + 3 end }
    end, numbers)
    local one = {
      loss = summed_entropy,
      reduces = "sum",
      metrics = { largest = function(y) return y:mean() end },
    }
    local t <close> = trainer(one)
    assert.is_true(math.abs(
      t:evaluate(set_of(labels, 5)).largest - t:evaluate(set_of(labels, 12)).largest) < 1e-6)
  end)

  it("goes on with its sum when it is resumed in the middle of an epoch", function()
    local path = os.tmpname() .. ".safetensors"
    local function make() return trainer { loss = summed_entropy } end
    local whole <close> = make()
    local first <close> = make()
    local later <close> = make()
    local expected = whole:fit(set_of(labels, 5), { verbose = 0 })[1].loss
    first:fit(set_of(labels, 5), {
      verbose = 0, checkpoint = path, on_step = function(r) return r.step < 2 end,
    })
    local h = later:fit(set_of(labels, 5), { verbose = 0, checkpoint = path, resume = true })
    os.remove(path)
    assert.are.equal(expected, h[#h].loss)
  end)
end)

describe("what the net of a loss says of it", function()
  --- What a net says of a loss f of 6 rows by 5, "nothing" where it can't be told.
  local function said(f)
    local model = nn.Sequential { seed = 1, input = { 4 }, nn.Linear { 4, 5 } }
    local _, _, record = model:net {
      batch = 6,
      train = true,
      loss = nn.module { "L", forward = function(_, y, t) return f(y, t) end } {},
    }
    return record.reduces or "nothing"
  end

  it("is a mean or a sum where each row comes to it by itself", function()
    for word, losses in pairs {
      mean = {
        function(y, t) return y:mse_loss(t) end, function(y, t) return (y - t):square():mean() end,
        function(y, t) return (y - t):square():sum(2):mean() end,
        function(y, t) return (y - t):abs():mean(-1):mean() end,
        function(y, t) return ((y - t) * 3):abs():mean() end,
        function(y, t) return (y - t):square():mean() + (y - t):abs():mean() end,
        function(y, t) return -(y:log_softmax() * t):sum(2):mean() end,
        function(y, t) return (y:softplus() - y * t):mean() end,
        function(y, t) return (y - t):abs():reshape(6, 5):mean { 1, 2 } end,
        function(y, t) return (y - t):square():sum() / y.shape[1] end,
        function(y, t) return (1 / y.shape[1]) * (y - t):square():sum() - 3 end,
        function(y, t) return (y - t):square():mean() + 3 end,
        function(y, t) return 3 - 2 * y:mse_loss(t) end,
        function(y, t) return (y:mse_loss(t) * 0.5 + 1) / 4 + y:l1_loss(t) end,
        function(y, t) return (y - t):square():sum() / y.shape[1] + y:mse_loss(t) end,
      },
      sum = {
        function(y, t) return y:mse_loss(t, { reduction = "sum" }) end,
        function(y, t) return (y - t):square():sum() end,
        function(y, t) return (y - t):square():mean(2):sum() end,
        function(y, t) return y:mse_loss(t, { reduction = "none" }):sum() end,
        function(y, t) return -(y:log_softmax() * t):sum() end,
        function(y, t) return ((y - t):abs() + 1):clamp { min = 0 }:sum() end,
        function(y, t) return (y - t):square():sum() / 6 end,
        function(y, t) return ((y - t):square() * (1 / 6)):sum() end,
        function(y, t) return (0.5 * (y - t) * (y - t) / 6):sum() end,
        function(y, t) return ((y - t) * (y - t) * 0.5 + y:exp() * 2):sum() end,
        function(y, t) return 0.1 * (y - t):square():sum() end,
        function(y, t) return ((y - t):square() * neap.tensor { 1, 2, 3, 4, 5 }):sum() end,
        function(y, t) return y:mse_loss(t) * y.shape[1] end,
        function(y, t) return (y - t):square():sum() / 2 + (y - t):abs():sum() * 3 end,
        function(y, t) return ((y - t):square():sum() + y.shape[1]) * 2 end,
      },
    } do
      for i, f in ipairs(losses) do assert.are.equal(word, said(f), word .. " " .. i) end
    end
  end)

  it("is nothing where rows are scaled by their number, mixed, or reduced before", function()
    for i, f in ipairs {
      function(y, t) return ((y - t):square() * (1 / y.shape[1])):sum() end,
      function(y, t) return ((y - t):square() / y.shape[1] ^ 2):mean() end,
      function(y, t) return (y - t):square():sum(1):mean() end,
      function(y, t) return (y - t):square():mean(1):sum() end,
      function(y, t) return (y - t):square():mean():sqrt() end,
      function(y, t) return (y - t):square():max() end,
      function(y, t) return (y - t):square():sum() + 6 end,
      function(y, t) return (y - t):square():sum() / 6 ^ y.shape[1] end,
      function(y, t) return (y - t):square():mean() + y.shape[1] end,
      function(y, t) return (y - t):square():reshape(6, 5):sum() / 6 end, -- of no other rows
      function(y, t) return (y - t):square():sum() + (y - t):square():mean() end,
      function(y, t) return (y - t):square():sum() * (y - t):square():sum() end,
      function(y, t) return 6 / (y - t):square():sum() end,
      function(y, t) return (y:softmax(1) - t):square():sum() end,
      function(y, t) return y:matmul(t:transpose(1, 2)):sum() end,
      function(y, t) return (y - t):square():sum() / (t:gt(0)):to("f32"):sum() end,
      function(y, t) return (y - y:mean() + t):square():sum() end,
      function(y, t)
        return ((y - t):square() * (neap.tensor { 1, 2, 3, 4, 5 } / y.shape[1])):sum()
      end,
    } do
      assert.are.equal("nothing", said(f), tostring(i))
    end
  end)

  it("is not contradicted by the trainer, or by the loss", function()
    raises({ "reduces = \"sum\"", "CrossEntropyLoss is the mean of its rows" }, trainer,
      { reduces = "sum" })
    raises({ "reduces = \"sum\"", "CrossEntropyLoss is the mean of its rows" }, trainer,
      { reduces = "sum", micro = 4 })
    local Wrong = nn.module {
      "Wrong",
      init = function(self) self.reduces = "mean" end,
      forward = function(_, y, t) return summed_entropy(y, t) end,
    }
    for _, o in ipairs {
      { loss = mean_entropy, reduces = "sum" },
      { loss = summed_entropy, reduces = "mean" },
      { loss = Wrong {} },
    } do
      for _, micro in ipairs { false, 4 } do
        o.micro = micro or nil
        local t <close> = trainer(o)
        local batch = { x = x, y = labels }
        local other = o.reduces == "sum" and "mean" or "sum"
        raises({
          "the loss is said to be the",
          "its net makes their " .. other .. ", by SoftmaxCrossEntropy",
        }, t.step, t, batch)
        raises({ "its net makes their " .. other }, t.evaluate, t, set_of(labels, 5))
        assert.are.equal(0, t.position.step)
      end
    end
  end)
end)
