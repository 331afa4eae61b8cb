--- Text token by token: what is read piece by piece is what is read at once.
local neap = require "neap"
local raises = require("support").raises
local nn = neap.nn

local function small_gpt(o)
  local all = { layers = 2, width = 32, heads = 2, length = 200, vocabulary = 50 }
  for key, value in pairs(o or {}) do all[key] = value end
  return neap.zoo.gpt(all)
end

--- n tokens behind a prompt, the best each time, each by the whole text so far.
local function greedy(model, prompt, n)
  local ids, out = { table.unpack(prompt) }, {}
  for k = 1, n do
    local scores = model:eval()(neap.tensor({ ids }, "i64"))
    out[k] = scores[1][#ids]:arg_max():item()
    ids[#ids + 1] = out[k]
  end
  return out
end

--- A list of n tokens below `most`.
local function tokens(n, most, step)
  local list = {}
  for i = 1, n do list[i] = (i * (step or 7)) % most end
  return list
end

--- A language model of one's own: embedding, positions, blocks of attention.
local function of_attention(positions, attention)
  local Block = nn.module { "Block",
    init = function(self)
      self.norm, self.attn, self.out = nn.LayerNorm(16), attention(), nn.Linear { 16, 16 }
    end,
    forward = function(self, x) return x + self.out(self.attn(self.norm(x))) end }
  local layers = { input = { 100 }, dtype = "i64", nn.Embedding { 40, 16 } }
  layers[#layers + 1] = positions
  layers[#layers + 1] = Block()
  layers[#layers + 1] = Block()
  layers[#layers + 1] = nn.Linear { 16, 40 }
  return nn.Sequential(layers)
end

describe("a generator", function()
  it("draws what the whole text gives, for prompts of any length", function()
    local m = small_gpt()
    local g <close> = neap.generator { m, seed = 1 }
    for _, n in ipairs { 1, 2, 8, 9, 63, 66, 150 } do
      local prompt = tokens(n, 50)
      assert.are.same(greedy(m, prompt, 5), g:generate { prompt = prompt, n = 5, temperature = 0 },
        "a prompt of " .. n)
    end
  end)

  it("reads to the last row that it has, and says when there is no more", function()
    local m = small_gpt { length = 20 }
    local g <close> = neap.generator { m, seed = 1 }
    local prompt = tokens(12, 50)
    local all = g:generate { prompt = prompt, n = 100, temperature = 0 }
    assert.are.equal(9, #all) -- 12 and 8 are read, and one more is drawn
    assert.are.same(greedy(m, prompt, 9), all)
    local ok, err = pcall(g.next, g)
    assert.is_false(ok)
    assert.matches("the text has 20 tokens, the generator's length", tostring(err))
    ok, err = pcall(g.read, g, tokens(21, 50))
    assert.is_false(ok)
    assert.matches("has 21 tokens, and the generator's length is 20", tostring(err))
    assert.are.same(all, g:generate { prompt = prompt, n = 100, temperature = 0 })
  end)

  it("follows rotary and sine positions, heads that share keys, layers used twice", function()
    local models = {
      of_attention(nn.PositionalEncoding(0), function()
        return nn.MultiheadAttention { 16, 4, causal = true }
      end),
      of_attention(nil, function()
        return nn.MultiheadAttention { 16, 4, key_heads = 2, rotary = true, causal = true }
      end),
    }
    local shared = nn.MultiheadAttention { 16, 2, causal = true, dropout = 0.5 }
    models[3] = of_attention(nn.PositionEmbedding { 100, 16 }, function() return shared end)
    for i, m in ipairs(models) do
      local g <close> = neap.generator { m, seed = 1 }
      local prompt = tokens(70, 40, 11)
      assert.are.same(greedy(m, prompt, 6), g:generate { prompt = prompt, n = 6, temperature = 0 },
        "model " .. i)
    end
  end)

  it("has several texts side by side, each as long as it is", function()
    local m = small_gpt()
    local g <close> = neap.generator { m, batch = 3, seed = 1 }
    local prompts = { tokens(3, 50), tokens(80, 50, 3), tokens(9, 50, 13) }
    local got = g:generate { prompt = prompts, n = 6, temperature = 0 }
    for b, prompt in ipairs(prompts) do
      assert.are.same(greedy(m, prompt, 6), got[b], "text " .. b)
    end
  end)

  it("draws the same by the same seed, and else other tokens", function()
    local m = small_gpt()
    local function drawn(seed, o)
      local g <close> = neap.generator { m, seed = seed }
      o.prompt, o.n = { 1, 2, 3 }, 12
      return g:generate(o)
    end
    assert.are.same(drawn(5, {}), drawn(5, {}))
    assert.are_not.same(drawn(5, {}), drawn(6, {}))
    -- of one token there is one choice
    local best = greedy(m, { 1, 2, 3 }, 12)
    assert.are.same(best, drawn(5, { top_k = 1 }))
    assert.are.same(best, drawn(5, { top_p = 1e-6, temperature = 2 }))
    for _, id in ipairs(drawn(5, { top_k = 3, temperature = 100 })) do assert.is_true(id < 50) end
  end)

  it("draws from the best tokens, as often as their shares say", function()
    -- the scores are the logarithms of shares, whatever is read
    local shares = { 0.4, 0.3, 0.2, 0.1 }
    local m = nn.Sequential { input = { 1000 }, dtype = "i64", nn.Embedding { 4, 4 } }
    local rows = {}
    for i = 1, 4 do
      rows[i] = {}
      for k = 1, 4 do rows[i][k] = math.log(shares[k]) end
    end
    m:param("embedding1.weight").data = neap.tensor(rows)
    local g <close> = neap.generator { m, seed = 2 }
    local function counts(o)
      o.prompt, o.n = { 0 }, 900
      local count = { 0, 0, 0, 0 }
      for _, id in ipairs(g:generate(o)) do count[id + 1] = count[id + 1] + 1 end
      return count
    end
    local function near(want, got)
      for k = 1, 4 do
        local sigma = math.sqrt(900 * want[k] * (1 - want[k]))
        assert.is_true(math.abs(got[k] - 900 * want[k]) <= 5 * sigma, k .. ": " .. got[k])
      end
    end
    near(shares, counts {})
    near({ 4 / 7, 3 / 7, 0, 0 }, counts { top_k = 2 })
    near({ 4 / 9, 3 / 9, 2 / 9, 0 }, counts { top_p = 0.85 }) -- 0.7 is less than that, 0.9 is not
    local hot = 0.4 ^ 0.5 + 0.3 ^ 0.5 + 0.2 ^ 0.5 + 0.1 ^ 0.5
    near({ 0.4 ^ 0.5 / hot, 0.3 ^ 0.5 / hot, 0.2 ^ 0.5 / hot, 0.1 ^ 0.5 / hot },
      counts { temperature = 2 })
  end)

  it("allocates nothing for a token, and holds what its plan says", function()
    local g <close> = neap.generator { small_gpt(), seed = 1 }
    g:generate { prompt = tokens(10, 50), n = 3 }
    collectgarbage()
    local before = neap.memory()
    for _ = 1, 20 do g:next() end
    collectgarbage()
    local after = neap.memory()
    assert.are.equal(before.held, after.held)
    local regions = g:plan().regions
    -- keys and values of two layers, 200 rows of 32 numbers; the position and the token
    assert.is_true(regions.state >= 2 * 2 * 200 * 32 * 4)
    assert.is_true(regions.state <= 2 * 2 * 200 * 32 * 4 + 1024)
  end)

  it("ends with a token, tells each as it comes, and goes on", function()
    local m = small_gpt()
    local best, seen = greedy(m, { 4, 5 }, 8), {}
    local g <close> = neap.generator { m, seed = 1 }
    local stop = best[3]
    local upto = {}
    for _, id in ipairs(best) do
      upto[#upto + 1] = id
      if id == stop then break end
    end
    assert.are.same(upto, g:generate { prompt = { 4, 5 }, n = 8, temperature = 0, stop = stop,
      on_token = function(id) seen[#seen + 1] = id end })
    assert.are.same(upto, seen)
    local rest = g:generate { n = 8 - #upto, temperature = 0 }
    assert.are.same({ table.unpack(best, #upto + 1) }, rest)
  end)

  it("sees a model that trains in between", function()
    local m = small_gpt()
    local g <close> = neap.generator { m, seed = 1 }
    g:generate { prompt = { 1 }, n = 2 }
    m:param("head.bias").data = neap.arange(0, 50):to "f32"
    assert.are.same({ 49, 49 }, g:generate { prompt = { 1 }, n = 2, temperature = 0 })
  end)

  it("reads a text as long as its positions, whatever their number", function()
    for _, length in ipairs { 5, 13, 67 } do
      local m = small_gpt { length = length }
      local g <close> = neap.generator { m, seed = 1 }
      local prompt = tokens(length, 50)
      assert.are.same(greedy(m, prompt, 1), g:generate { prompt = prompt, temperature = 0 },
        "of " .. length)
    end
    local ok, err = pcall(function()
      neap.generator { small_gpt { length = 13 }, length = 14 }:plan()
    end)
    assert.is_false(ok)
    assert.matches("a text may have 14 positions, and there are rows for 13", tostring(err))
  end)

  it("follows a model that becomes part of another one, or gets another layer", function()
    local function attention() return nn.MultiheadAttention { 16, 4, causal = true } end
    local m = of_attention(nn.PositionEmbedding { 100, 16 }, attention)
    local g <close> = neap.generator { m, seed = 1 }
    local prompt, want = tokens(12, 40), nil
    local function holds_after(change)
      g:generate { prompt = prompt, n = 2 }
      change()
      local ok, err = pcall(g.next, g)
      assert.is_false(ok)
      assert.matches("the model has changed since the text was read", tostring(err))
      want = greedy(m, prompt, 6)
      assert.are.same(want, g:generate { prompt = prompt, n = 6, temperature = 0 })
    end
    local whole
    holds_after(function()
      whole = nn.Sequential { input = { 100 }, dtype = "i64", m, nn.Softmax { axis = 3 } }
      whole:eval()(neap.tensor({ prompt }, "i64"))
    end)
    holds_after(function() m.block2 = attention() end)
    g:close()
    nn.Sequential { whole }:eval()
    assert.is_false((pcall(g.read, g, prompt))) -- closed is closed
  end)

  it("gives no scores of another text", function()
    local g <close> = neap.generator { small_gpt(), seed = 1 }
    local function refused()
      local ok, err = pcall(g.scores, g)
      assert.is_false(ok)
      assert.matches("no token of this text has been drawn", tostring(err))
    end
    refused()
    g:read { 1, 2, 3 }
    refused()
    g:next()
    assert.are.same({ 1, 50 }, g:scores().shape)
    g:read { 4 }
    refused()
  end)

  it("says of a token that the model has not that the prompt had it", function()
    local g <close> = neap.generator { small_gpt(), seed = 1 }
    g:read { 1, 2, 3 } -- the first prompt is read in one piece, too
    local ok, err = pcall(g.read, g, { 1, 2, 99 })
    assert.is_false(ok)
    assert.matches("ids has 99", tostring(err))
    g:read { 99 }
    ok, err = pcall(g.next, g)
    assert.is_false(ok)
    assert.matches("the last token of the prompt, as g:read was given it: .*ids has 99",
      tostring(err))
    assert.equal("data", err.code)
    g:read { 4 }
    g:next()
  end)

  it("takes the best token where temperature or share are next to nothing", function()
    local m = small_gpt()
    local g <close> = neap.generator { m, seed = 1 }
    local best = greedy(m, { 1, 2, 3 }, 1)
    for _, o in ipairs { { temperature = 1e-42 }, { temperature = 1e-300 }, { top_p = 1e-300 } } do
      o.prompt, o.n = { 1, 2, 3 }, 1
      assert.are.same(best, g:generate(o))
    end
  end)

  it("takes no name that a model's layer may have", function()
    local m = nn.Sequential { input = { 30 }, dtype = "i64", nn.Embedding { 9, 8, name = "ids" },
      nn.Linear { 8, 8, name = "temperature" }, nn.Linear { 8, 8, name = "top_p" },
      nn.Linear { 8, 8, name = "whole" }, nn.Linear { 8, 9, name = "scores" } }
    local g <close> = neap.generator { m, seed = 1 }
    assert.are.equal(3, #g:generate { prompt = tokens(10, 9), n = 3, top_p = 0.5 })
    assert.are.same(greedy(m, { 1, 2 }, 4), g:generate { prompt = { 1, 2 }, n = 4, top_k = 1 })
  end)

  it("reads in 16 bits what is right up to their rounding", function()
    local m = small_gpt()
    for _, dtype in ipairs { "bf16", "f16" } do
      local g <close> = neap.generator { m, seed = 1, dtype = dtype }
      local prompt = tokens(9, 50)
      g:generate { prompt = prompt, n = 1 }
      local whole = m:eval()(neap.tensor({ prompt }, "i64")):select(2, #prompt)
      assert.is_true((g:scores() - whole):abs():max():item() < 0.02, dtype)
    end
  end)

  it("keeps no program for each number of best tokens that was ever asked for", function()
    local g = neap.generator { small_gpt(), seed = 1 }
    local want = g:generate { prompt = { 1, 2, 3 }, n = 30, temperature = 0 }
    local got = {}
    g:read { 1, 2, 3 }
    for k = 1, 30 do
      -- whatever is drawn from, one token is drawn by a share of next to nothing
      got[k] = g:next { top_k = k, top_p = 1e-6 }
    end
    assert.are.same(want, got)
    assert.is_true(g.n_program <= 8)
    g:close()
  end)

  it("refuses models that can't be read piece by piece", function()
    local recurrent = nn.Sequential { input = { 30 }, dtype = "i64", nn.Embedding { 9, 8 },
      nn.LSTM { 8, 8 }, nn.Linear { 8, 9 } }
    local ok, err = pcall(function() neap.generator(recurrent):read(tokens(8, 9)) end)
    assert.is_false(ok)
    assert.matches("piece by piece, the model gives other scores", tostring(err))
    ok, err = pcall(function() neap.generator(recurrent):read { 3 } end) -- one row mixes nothing
    assert.is_false(ok)
    assert.matches("piece by piece, the model gives other scores", tostring(err))
    local looks_ahead = nn.Sequential { input = { 30 }, dtype = "i64", nn.Embedding { 9, 8 },
      nn.SelfAttention { 8, heads = 2 }, nn.Linear { 8, 9 } }
    ok, err = pcall(function() neap.generator(looks_ahead):read { 1, 2 } end)
    assert.is_false(ok)
    assert.matches("has causal = true", tostring(err))
    local no_scores = nn.Sequential { input = { 30 }, dtype = "i64", nn.Embedding { 9, 8 },
      nn.Flatten(), nn.Linear { 9 } }
    ok, err = pcall(function() neap.generator(no_scores):read { 1, 2 } end)
    assert.is_false(ok)
    assert.matches("scores %(B,T,V%)", tostring(err))
  end)

  it("says what is wrong with what it is given", function()
    local g <close> = neap.generator { small_gpt(), seed = 1 }
    local function refused(pattern, f, ...)
      local ok, err = pcall(f, ...)
      assert.is_false(ok, pattern)
      assert.matches(pattern, tostring(err))
    end
    refused("there is no text yet", g.next, g)
    refused("there is no text yet", g.generate, g, {})
    refused("a text needs", g.read, g, "abc")
    refused("has no token", g.read, g, {})
    refused("token 2 of prompt is 1.5", g.read, g, { 1, 1.5 })
    refused("2 prompts, and the generator's batch is 1", g.read, g, { { 1 }, { 2 } })
    refused("out of range", g.read, g, { 1, 50, 2 })
    refused("temperature expects", g.generate, g, { prompt = { 1 }, temperature = -1 })
    refused("unknown field", g.generate, g, { promt = { 1 } })
    refused("give length", neap.generator, nn.Sequential { nn.Embedding { 4, 4 } })
    refused("no function decode", neap.generator, { small_gpt(), tokenizer = { encode = print } })
    assert.are.equal(2, #g:generate { prompt = { 1, 2 }, n = 2 })
  end)

  it("is refused a budget that a step has no room in, before anything is read", function()
    local ok, err = pcall(function()
      neap.generator { small_gpt(), budget = 64 }:read { 1, 2 }
    end)
    assert.is_false(ok)
    assert.are.equal("budget", err.code)
  end)
end)

describe("the op CachedAttention", function()
  it("does not write outside its cache, and gives NaN there", function()
    local function run(position)
      local net = neap.net "cache"
      local rows = net:input("rows", { 1, 2, 4 })
      local keys = net:declare("keys", "state", { 1, 3, 4 }, "f32",
        { op = "Constant", value = 0 }, false)
      local values = net:declare("values", "state", { 1, 3, 4 }, "f32",
        { op = "Constant", value = 0 }, false)
      local at = net:input("at", { 1 }, "i64")
      local y = net:CachedAttention({ rows, rows, rows, keys, values, at },
        { "y", "keys", "values" }, { heads = 2 })
      net:outputs { y }
      local ws <close> = neap.workspace { store = false }
      ws:run(net, { rows = neap.ones(1, 2, 4), at = neap.tensor({ position }, "i64") })
      return ws:fetch("y"):sum { axes = { 3 } }:reshape(-1):totable(),
        ws:fetch("keys"):sum { axes = { 3 } }:reshape(-1):totable()
    end
    local function is_nan(x) return x ~= x end
    local y, keys = run(2)
    assert.are.same({ 0, 0, 4 }, keys)
    assert.is_true(not is_nan(y[1]) and is_nan(y[2]))
    y, keys = run(-1)
    assert.are.same({ 4, 0, 0 }, keys)
    assert.is_true(is_nan(y[1]) and y[2] == 4)
    for _, far in ipairs { 3, -2, math.maxinteger, math.mininteger } do
      y, keys = run(far)
      assert.are.same({ 0, 0, 0 }, keys)
      assert.is_true(is_nan(y[1]) and is_nan(y[2]))
    end
  end)
end)

describe("neap.bpe", function()
  local folder = "../shared/data/formats"
  local has_vocabulary = io.open(folder .. "/gpt2_encoder.json") ~= nil

  it("cuts a text as GPT-2 does, and gives every text back", function()
    if not has_vocabulary then return pending "no ../shared/data/formats" end
    local t = assert(neap.bpe(folder))
    assert.are.equal(50257, t.n_class)
    -- by the library tokenizers 0.22 of Hugging Face, and by OpenAI's encoder
    assert.are.same({ 15496, 995 }, t.encode "Hello world")
    assert.are.same({ 64, 220, 275 }, t.encode "a  b")
    assert.are.same({ 50256, 39305, 1279, 91, 87, 91, 29 }, t.encode "<|endoftext|>abc <|x|>")
    for _, text in ipairs {
      "", " ", "we've 12 things!\n\n  code", "naïve 日本語 😀\t", "\xff\xfe bad\0",
    } do
      assert.are.equal(text, t.decode(t.encode(text)))
    end
    assert.has_error(function() t.decode { 50257 } end)
  end)

  it("merges the pair that stands first, and says what is wrong with a file", function()
    local path = os.tmpname()
    local function write(name, text)
      local file <close> = assert(io.open(path .. name, "wb"))
      file:write(text)
      return path .. name
    end
    local vocabulary = write(".json", '{"a":0,"b":1,"c":2,"bc":3,"ab":4,"abc":5}')
    local merges = write(".bpe", "#version: 0.2\nb c\na b\na bc\n")
    local t = assert(neap.bpe { vocabulary = vocabulary, merges = merges })
    assert.are.same({ 5, 4, 0 }, t.encode "abcaba") -- bc comes before ab
    assert.has_error(function() t.encode "d" end)
    local wrong = write(".x", "a b c\n")
    local none, message, code = neap.bpe { vocabulary = vocabulary, merges = wrong }
    assert.is_nil(none)
    assert.matches("is no pair", message)
    assert.are.equal("file", code)
    none, message = neap.bpe { vocabulary = write(".y", "{"), merges = merges }
    assert.is_nil(none)
    assert.matches("no JSON", message)
    for text, pattern in pairs { ['{"a":0,"b":0}'] = "have one number, 0",
      ['{"a":-1}'] = "no number from 0 on", ['{"a":0.5}'] = "no number from 0 on" } do
      none, message = neap.bpe { vocabulary = write(".y", text), merges = merges }
      assert.is_nil(none)
      assert.matches(pattern, message)
    end
    none, message = neap.bpe "/nowhere"
    assert.is_nil(none)
    assert.matches("vocab.json", message)
    for _, ending in ipairs { "", ".json", ".bpe", ".x", ".y" } do os.remove(path .. ending) end
  end)
end)

describe("weights from elsewhere", function()
  local size = { layers = 1, width = 8, heads = 2, length = 6, vocabulary = 10, tie = true }

  local function gpt(weights)
    local o = { weights = weights }
    for key, value in pairs(size) do o[key] = value end
    return neap.zoo.gpt(o)
  end

  --- The tensors of a model as transformers names them.
  local function as_transformers(m)
    local s, t = m:state_dict(), {}
    t["transformer.wte.weight"], t["transformer.wpe.weight"] = s["embedding1.weight"],
      s["positions1.weight"]
    local function take(ours, theirs, transposed)
      for _, what in ipairs { "weight", "bias" } do
        local x = s["block1." .. ours .. "." .. what]
        t["transformer.h.0." .. theirs .. "." .. what] = transposed and what == "weight"
          and x:transpose(1, 2):contiguous() or x
      end
    end
    take("residual1.norm1", "ln_1")
    take("residual1.attn1.qkv", "attn.c_attn", true)
    take("residual1.attn1.proj", "attn.c_proj", true)
    take("residual2.norm1", "ln_2")
    take("residual2.linear1", "mlp.c_fc", true)
    take("residual2.linear2", "mlp.c_proj", true)
    t["transformer.ln_f.weight"], t["transformer.ln_f.bias"] = s["norm1.weight"], s["norm1.bias"]
    t["transformer.h.0.attn.bias"] = neap.ones(1, 1, 6, 6)
    t["lm_head.weight"] = s["embedding1.weight"]
    return t
  end

  it("load under the names of the library that wrote them", function()
    local m = gpt()
    for _, p in m:parameters() do p.data = neap.rand(table.unpack(p.shape)) end
    local path = os.tmpname() .. ".safetensors"
    assert(neap.save(path, as_transformers(m)))
    local x = neap.tensor({ { 1, 2, 3, 4, 5, 6 } }, "i64")
    local y = m:eval()(x)
    assert.is_true(y:equal(gpt(path):eval()(x)))
    assert(m:save(path))
    assert.is_true(y:equal(gpt(path):eval()(x)))
    assert.is_true(y:equal(gpt(as_transformers(m)):eval()(x)))
    os.remove(path)
  end)

  it("are whole: what is missing, left over or of another shape is named", function()
    local m = gpt()
    local function refused(pattern, change)
      local t = as_transformers(m)
      change(t)
      local ok, err = pcall(gpt, t)
      assert.is_false(ok, pattern)
      assert.matches(pattern, tostring(err))
    end
    refused("has no h.0.mlp.c_fc.bias %(our block1.residual2.linear1.bias%)",
      function(t) t["transformer.h.0.mlp.c_fc.bias"] = nil end)
    refused("no place for: transformer.h.7.ln_1.bias",
      function(t) t["transformer.h.7.ln_1.bias"] = neap.ones(8) end)
    refused("wpe.weight is %(7,8%), and positions1.weight is %(6,8%)",
      function(t) t["transformer.wpe.weight"] = neap.ones(7, 8) end)
    refused("tensors by name", function(t) t.x = 1 end)
    local ok, err = pcall(neap.zoo.lenet, { weights = { w = neap.ones(1) } })
    assert.is_false(ok)
    assert.matches("as m:save writes them", tostring(err))
    local none
    ok, none = pcall(neap.zoo.gpt, { weights = "/nowhere.safetensors" })
    assert.is_false(ok)
    assert.matches("/nowhere.safetensors", tostring(none))
  end)

  it("are torchvision's for residual nets and VGG, statistics included", function()
    local function pairs_of(net, names)
      local m = net {}
      local s, t = m:expected_state(), {}
      for ours, theirs in pairs(names) do
        assert(s[ours], ours)
        t[theirs] = ours
      end
      return t, s
    end
    local _, s = pairs_of(function() return neap.zoo.resnet18 {} end, {
      ["block4.residual1.shortcut.norm1.running_var"] = "layer2.0.downsample.1.running_var" })
    -- a whole file by torchvision's names, each number its own
    local file = {}
    for name, record in pairs(s) do
      local theirs = name:gsub("^block1%.conv1", "conv1"):gsub("^block1%.norm1", "bn1")
        :gsub("^linear1", "fc"):gsub("^block(%d+)%.residual1%.", function(i)
          return ("layer%d.%d."):format((i - 2) // 2 + 1, (i - 2) % 2)
        end):gsub("block(%d)%.conv1", "conv%1"):gsub("block(%d)%.norm1", "bn%1")
        :gsub("shortcut%.conv1", "downsample.0"):gsub("shortcut%.norm1", "downsample.1")
      file[theirs] = neap.full { value = #theirs, table.unpack(record.shape) }
      file[(theirs:gsub("running_mean$", "num_batches_tracked"))] = file[theirs]
    end
    file["layer2.0.downsample.1.running_var"] = neap.full { 128, value = 3 }
    local m = neap.zoo.resnet18 { weights = file }
    assert.are.equal(3, m:param("block4.residual1.shortcut.norm1.running_var").data:max():item())
    assert.are.equal(#"fc.bias", m:param("linear1.bias").data:max():item())
  end)
end)

describe("beams", function()
  it("goes on with other texts and tokens than it was, their keys and values with them", function()
    local model = neap.zoo.gpt { layers = 2, width = 16, heads = 2, length = 12, vocabulary = 9 }
    local g <close> = neap.generator { model, batch = 3, seed = 1 }
    raises("no token of this text has been drawn", g.choose, g, { 1, 2, 3 }, { 0, 0, 0 })
    g:read { { 1, 2, 3 }, { 4, 5 }, { 6, 7, 8 } }
    g:next()
    g:choose({ 2, 2, 1 }, { 3, 8, 4 })
    g:next()
    local got = g:scores()
    for b, text in ipairs { { 4, 5, 3 }, { 4, 5, 8 }, { 1, 2, 3, 4 } } do
      local whole = model(neap.tensor({ text }, "i64"))[{ 1, -1 }]
      local off = (got[b] - whole):abs():max():item()
      assert.is_true(off < 1e-4, ("text %d: %g"):format(b, off))
    end
    raises("a text for each of 3 texts, got 2", g.choose, g, { 1, 2 }, { 0, 0, 0 })
    raises("a text of text 2 is 4, expected 1 to 3", g.choose, g, { 1, 4, 1 }, { 0, 0, 0 })
    raises("a token of text 1 is -1", g.choose, g, { 1, 1, 1 }, { -1, 0, 0 })
  end)
end)
