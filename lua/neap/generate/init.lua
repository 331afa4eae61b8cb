--- Generating text: a model read token by token, its keys and values kept from token to token.
--
-- A generator has a workspace below the model's, with the caches of all layers, how far each text
-- has been read (`@position`) and the token that comes next (`@token`). Two kinds of nets run on
-- it: `fill` reads a piece of a prompt and gives nothing out; `step` reads `@token`, draws the
-- next one into it, and counts on. Each is planned once, for all lengths up to the generator's: a
-- step allocates nothing.
--
-- INVARIANT: rows of the caches behind `@position` count for nothing, so that a piece may be longer
-- than what is left of the prompt.
-- INVARIANT: caches belong to the model whose net wrote them; one that has changed its layers or
-- its place ends the text. What these nets add is named with @, as no layer is.
-- @module neap.generate
local build = require "neap.nn.build"
local core = require "neap.core"
local memory_options = require "neap.memory.options"
local module = require "neap.nn.module"
local op = require "neap.op"
local record = require "neap.inner.record"
local sample = require "neap.generate.sample"
local tree = require "neap.nn.tree"
local fail = core.fail
local Module = module.Module

local generate = {}

-- Rows of the pieces of a prompt: as many of the first as it has, the rest by the second.
local pieces = { 64, 8 }

-- How far scores of a piece may be from those of the whole, by the largest: sums go in another
-- order, and 16 bits keep two or three digits through all layers.
local tolerance, tolerance_16 = 1e-3, 5e-2

-- Programs kept at most: each top_k has one of its own.
local most_programs = 8

local generator_options = record.declare("neap.generator", {
  doc = [[What generates text by a model of causal attention: it reads a prompt, and draws token
    after token. It takes memory options (help "options"), too. g:generate { .. } does both;
    g:read(prompt), g:next { .. } and g:scores() are its parts, g:choose(texts, tokens) goes on with
    other texts than it was (beams), g:plan() says what a step holds, g:reset() begins anew.]],
  positions = { "model" },
  { "model", "module", required = true, says = "a model",
    doc = "from tokens (B,T), i64, to scores (B,T,V)" },
  { "length", "integer", min = 1, unset = "that of the model's input",
    doc = "tokens that a text has at most, its prompt among them: rows of the caches" },
  { "batch", "integer", 1, min = 1, doc = "texts side by side" },
  { "tokenizer", "table", unset = "none", says = "a table { encode =, decode = }, as neap.bpe's",
    doc = "turns prompts into tokens, and tokens into text" },
  { "seed", "integer", unset = "$NEAP_SEED, or drawn", doc = "what tokens are drawn by" },
  { "check", "boolean", true, doc = [[whether the first prompt's first tokens are computed in one
      piece, too, and have to give the same scores]] },
  example = "neap.generator { model = neap.zoo.gpt { layers = 1, width = 32, heads = 2 } }",
})

local next_options = sample.declare("g:next", {
  doc = [[Reads the token that comes next, and draws the one behind it. Gives that token; of several
    texts a list. Keys and values of what has been read stay as they were where the model is trained
    in the midst of a text: g:read(prompt) reads it anew.]],
  example = "g:next { temperature = 0.8, top_k = 50 }" })

local generate_options = sample.declare("g:generate", {
  doc = [[Begins with a prompt, if one is given, and goes on. Gives the tokens drawn, a list; of
    several texts a list of lists; by a tokenizer, where the prompt is a text, what they say.]],
  { "prompt", "string|table|tensor", unset = "the text so far",
    doc = "what is read first, as g:read takes it" },
  { "n", "integer", 50, min = 1, doc = "tokens drawn at most" },
  { "stop", "integer", unset = "none", doc = "a text ends with this token" },
  { "on_token", "function", unset = "none",
    doc = "is called with each token as it is drawn; of several texts with a list" },
  example = "g:generate { prompt = { 5, 6 }, n = 20, top_p = 0.9 }" })

local Generator = { __name = "neap.generator" }
Generator.__index = Generator

-- ---- nets ---------------------------------------------------------------------------------------

--- How many rows of each text have been read (B), as state of a net.
local function declare_position(self, net)
  return net:declare("@position", "state", { self.batch }, "i64", { op = "Constant", value = 0 },
    false)
end

--- The net that reads n tokens of each text, of which `count` (B) belong to it.
local function fill_net(self, n)
  return build.reading_net(self.model, "fill", self.length, function(net, read)
    local ids = net:input("@ids", { self.batch, n }, "i64")
    local count = net:input("@count", { self.batch }, "i64")
    local position = declare_position(self, net)
    read(position, ids)
    net:outputs { (net:op("Add", { position, count }, { position.name }, {})) }
  end)
end

--- Scores (B,V) of what the model gives for one token of each text.
local function scores_of(self, y)
  local shape = op.is_blob(y) and y.shape or {}
  if #shape ~= 3 or shape[1] ~= self.batch or shape[2] ~= 1 then
    fail(("neap.generator: the model has to give scores (B,T,V) for tokens (B,T): (%d,1,V) for \z
      (%d,1), got (%s)"):format(self.batch, self.batch, table.concat(shape, ",")))
  end
  return y:reshape(self.batch, shape[3])
end

--- The net that reads one token of each text and draws the next one.
local function step_net(self, o)
  return build.reading_net(self.model, "step", self.length, function(net, read, caches)
    local position = declare_position(self, net)
    local token = net:declare("@token", "state", { self.batch, 1 }, "i64",
      { op = "Constant", value = 0 }, false)

    -- The order matters: scores are kept before the token is overwritten, and the position goes on
    -- when all rows have been read.
    local scores = net:op("Copy", { scores_of(self, read(position, token)) }, { "@scores" }, {})
    net:op("Copy", { sample.add(net, scores, o) }, { token.name }, {})
    net:op("Add", { position, net:const(1, "i64") }, { position.name }, {})
    net:outputs { scores }
    -- What a text has of its own: caches of its rows, and how many have been read.
    self.caches = { position.name, table.unpack(caches) }
  end)
end

--- Goes where the model is: one that has changed, or has become part of another one, makes all
-- programs anew. Caches are of the net that wrote them, and so the text so far is given up.
local function follow_model(self)
  -- The parent is another one where the model has become a part of another; the version rises with
  -- every change.
  local home, parent = tree.home(self.model), Module.workspace(self.model)
  local version = rawget(home, "_version")
  if self.parent == parent and self.version == version then return end
  self:_close_programs()
  if self.parent ~= parent and not self.is_closed then
    self.ws:close()
    self.ws = parent:child { seed = self.seed }
  end
  self.lost = self.lost or self.n_read ~= nil
  self.n_read, self.has_scores, self.check = nil, false, self.checks
  self.parent, self.version = parent, version
end

--- The program of a kind, made at its first use.
local function program_of(self, kind, make)
  follow_model(self)
  if not self.programs[kind] then
    -- Parameters are settled first, since the net reads them by their names; then room is made
    -- among the programs.
    local net = make()
    Module.workspace(self.model)
    self.ws:init(net)
    if self.n_program == most_programs then self:_close_programs() end
    self.programs[kind] = self.ws:compile(net, self.memory)
    self.n_program = self.n_program + 1
  end
  return self.programs[kind]
end

local function step_program(self, o)
  return program_of(self, "step " .. sample.kind(o), function() return step_net(self, o) end)
end

local function fill_program(self, n)
  return program_of(self, "fill " .. n, function() return fill_net(self, n) end)
end

function Generator:_close_programs()
  for _, program in pairs(self.programs) do program:close() end
  self.programs, self.n_program = {}, 0
end

-- ---- reading ------------------------------------------------------------------------------------

--- Raises unless `list` is a list of tokens, with at least one and at most as many as fit.
local function check_tokens(self, who, list, b)
  local which = self.batch > 1 and (" %d"):format(b) or ""
  if type(list) ~= "table" or #list == 0 then
    fail(("%s: prompt%s has no token"):format(who, which))
  end
  for i, id in ipairs(list) do
    if math.type(id) ~= "integer" then
      fail(("%s: token %d of prompt%s is %s, an integer is expected"):format(who, i, which,
        tostring(id)))
    end
  end
  if #list > self.length then
    fail(("%s: prompt%s has %d tokens, and the generator's length is %d"):format(who, which, #list,
      self.length))
  end
end

--- A prompt as a list of lists of tokens, one for each text.
-- A text by the tokenizer, a tensor as nested lists, one prompt for all texts.
local function tokens_of(self, who, prompt)
  if type(prompt) == "string" then
    if not self.tokenizer then
      fail(who .. ": a text needs neap.generator { tokenizer = }; without one it takes tokens")
    end
    prompt = self.tokenizer.encode(prompt)
  end
  if op.is_tensor(prompt) then prompt = prompt:totable() end
  if type(prompt) ~= "table" then
    fail(("%s expects a text, a list of tokens or a tensor, got a %s"):format(who, type(prompt)))
  end
  local lists = type(prompt[1]) == "table" and prompt or {}
  -- one prompt begins all texts
  for b = 1, lists == prompt and 0 or self.batch do lists[b] = prompt end
  if #lists ~= self.batch then
    fail(("%s: %d prompts, and the generator's batch is %d"):format(who, #lists, self.batch))
  end
  for b, list in ipairs(lists) do check_tokens(self, who, list, b) end
  return lists
end

--- Reads all but the last token of each list, and lays the last ones where the next step finds
-- them.
local function read_lists(self, lists)
  -- The last token of each text is left to the next step, which gives the scores for what follows
  -- it.
  local ws, from, longest, last = self.ws, 1, 0, {}
  for b, list in ipairs(lists) do
    longest, last[b] = math.max(longest, #list - 1), { list[#list] }
  end
  -- Pieces of 64 while there is so much left, then of 8: two programs serve prompts of any length.
  while from <= longest do
    local n = longest - from + 1 >= pieces[1] and pieces[1] or pieces[2]
    local ids, counts = {}, {}
    for b, list in ipairs(lists) do
      ids[b], counts[b] = {}, math.max(0, math.min(n, #list - from))
      -- behind the end of a prompt stands any token, which counts for nothing: the last one, so
      -- that it is refused here where the model has no such token
      for i = 1, n do ids[b][i] = i <= counts[b] and list[from + i - 1] or list[#list] end
    end
    ws:feed("@ids", core.tensor(ids, "i64"))
    ws:feed("@count", core.tensor(counts, "i64"))
    fill_program(self, n):run()
    from = from + n
  end
  ws:feed("@token", core.tensor(last, "i64"))
end

--- The scores of the last of `tokens` (B,T), by the model in one piece.
local function scores_at_once(self, tokens)
  local net = build.plain_net(self.model, "whole", function(net, run)
    local y = run(net:input("@tokens", { self.batch, #tokens[1] }, "i64"))
    net:outputs { (net:op("Copy", { y:select(2, #tokens[1]) }, { "@whole" }, {})) }
  end)
  return self.ws:run(net, { ["@tokens"] = core.tensor(tokens, "i64") })["@whole"]
end

--- Raises where the first tokens of texts do not give the same scores piece by piece and in one:
-- a model may mix its rows in a way that reading does not follow, as a recurrent layer does.
local function check_reading(self, lists)
  -- The first rows of each text, filled up with tokens that the model has: smaller than one that is
  -- there.
  local n, head = math.min(pieces[2], self.length), {}
  for b, list in ipairs(lists) do
    head[b] = table.move(list, 1, math.min(#list, n), 1, {})
    -- one token alone is the same either way; what is below a token is one, too
    local most = math.max(table.unpack(head[b]))
    for i = #list + 1, n do head[b][i] = (most - i) % (most + 1) end
  end
  local whole = scores_at_once(self, head)
  self:reset()
  read_lists(self, head)
  step_program(self, next_options:read { temperature = 0 }):run()
  local scores = self.ws:fetch "@scores"

  -- Sums go in another order piece by piece, so that the scores agree within rounding, never to the
  -- bit.
  local off, most = (scores - whole):abs():max():item(), whole:abs():max():item()
  -- NaN is unequal to everything: a model that has diverged is none that can't be read
  local narrow = self.memory.dtype and self.memory.dtype ~= "f32"
  if off > (narrow and tolerance_16 or tolerance) * math.max(most, 1) then
    fail(("neap.generator: read piece by piece, the model gives other scores than in one piece: \z
      they differ by %.3g, at token %d of a text. What mixes the rows of a text has to be \z
      causal attention or one of nn's positions; { check = false } generates all the same"):format(
      off, n))
  end
end

--- g:read(prompt) -> g: begins a text with a prompt: a text, a list of tokens, a tensor, or a list
-- of lists, one for each text. All but the last token is read; the next step reads that.
function Generator:read(prompt)
  local lists = tokens_of(self, "g:read", prompt)
  step_program(self, next_options:read {}) -- what has no room is refused here
  if self.check then
    check_reading(self, lists)
    self.check = false
    self.ws:step(0)
  end
  self:reset()
  read_lists(self, lists)
  self.n_read, self.lost = 0, false
  for _, list in ipairs(lists) do self.n_read = math.max(self.n_read, #list - 1) end
  self.n_prompt = self.n_read
  return self
end

--- g:reset() -> g: there is no text.
function Generator:reset()
  self.n_read, self.has_scores = nil, false
  if self.ws:has "@position" then
    self.ws:feed("@position", core.zeros { self.batch, dtype = "i64" })
  end
  return self
end

-- ---- drawing ------------------------------------------------------------------------------------

--- Runs the step that reads the last token of a prompt: what is wrong with that, g:read was given.
local function read_last(program)
  local ok, err = pcall(program.run, program)
  if ok then return end
  if type(err) ~= "table" or err.code ~= "data" then error(err, 0) end
  error(core.error { code = "data",
    message = "the last token of the prompt, as g:read was given it: " .. err.message }, 0)
end

--- One step. @return the tokens drawn, one for each text
local function draw(self, o, who)
  follow_model(self)
  if self.lost then
    fail(who .. ": the model has changed since the text was read; g:read(prompt) begins it anew")
  end
  if not self.n_read then fail(who .. ": there is no text yet; g:read(prompt) begins one") end
  if self.n_read >= self.length then
    fail(("%s: the text has %d tokens, the generator's length: neap.generator { length = } makes \z
      room for more"):format(who, self.length))
  end

  -- The program of these options; what they say in numbers goes in as inputs, without another net.
  local program = step_program(self, o)
  sample.feed(self.ws, o)
  if self.n_read == self.n_prompt then read_last(program) else program:run() end
  self.n_read, self.has_scores = self.n_read + 1, true
  return self.ws:fetch("@token"):reshape(-1):totable()
end

--- g:next { .. } -> token, or a list of them: see the record.
function Generator:next(given)
  local tokens = draw(self, next_options:read(given), "g:next")
  return self.batch == 1 and tokens[1] or tokens
end

--- g:generate { .. } -> tokens or text: see the record.
function Generator:generate(given)
  local o = generate_options:read(given)
  local is_text = type(o.prompt) == "string"
  if o.prompt ~= nil then self:read(o.prompt) end

  -- A text that has ended goes on in the net, since all texts are one batch: its tokens are left
  -- out.
  local lists, ended, n_ended = {}, {}, 0
  for b = 1, self.batch do lists[b] = {} end
  for _ = 1, math.min(o.n, self.length - (self.n_read or 0)) do
    local tokens = draw(self, o, "g:generate")
    for b, id in ipairs(tokens) do
      if not ended[b] then table.insert(lists[b], id) end
      if id == o.stop and not ended[b] then ended[b], n_ended = true, n_ended + 1 end
    end
    if o.on_token then o.on_token(self.batch == 1 and tokens[1] or tokens) end
    if n_ended == self.batch then break end
  end
  for b, list in ipairs(lists) do lists[b] = is_text and self.tokenizer.decode(list) or list end
  return self.batch == 1 and lists[1] or lists
end

--- g:scores() -> tensor (B,V): what the model gave for the token read last, from which g:next or
-- g:generate has drawn.
function Generator:scores()
  if not self.has_scores then
    fail "g:scores: no token of this text has been drawn; g:next { .. } draws the first one"
  end
  return self.ws:fetch "@scores"
end

--- A list of one whole number for each text; a number alone where there is one text.
local function one_each(self, what, list, least, most)
  if self.batch == 1 and math.type(list) == "integer" then list = { list } end
  if op.is_tensor(list) then list = list:reshape(-1):totable() end
  if type(list) ~= "table" or #list ~= self.batch then
    fail(("g:choose expects %s for each of %d texts, got %s"):format(what, self.batch,
      type(list) == "table" and #list or "a " .. type(list)))
  end
  for b, x in ipairs(list) do
    if math.type(x) ~= "integer" or x < least or most and x > most then
      fail(("g:choose: %s of text %d is %s, expected %s"):format(what, b, tostring(x),
        most and ("%d to %d"):format(least, most) or "a token, from 0"))
    end
  end
  return list
end

--- g:choose(texts, tokens) -> g: text b goes on as what text number texts[b], from 1, has been so
-- far, with tokens[b] next, in the place of what was drawn. Keys and values go with their texts. It
-- is what a beam search does after each step, by g:scores().
-- @usage local g = neap.generator { neap.zoo.gpt { layers = 1, width = 32, heads = 2 }, batch = 2 }
-- g:read { 1, 2 }
-- g:next()
-- print(g:choose({ 1, 1 }, { 5, 6 }):next()[2])
function Generator:choose(texts, tokens)
  follow_model(self)
  if not self.has_scores then
    fail "g:choose: no token of this text has been drawn; g:next { .. } draws the first one"
  end
  texts = one_each(self, "a text", texts, 1, self.batch)
  tokens = one_each(self, "a token", tokens, 0)
  local from, next_tokens, same = {}, {}, true

  -- Texts that stay where they are need no caches moved.
  for b, text in ipairs(texts) do
    from[b], next_tokens[b], same = text - 1, { tokens[b] }, same and text == b
  end
  self.ws:feed("@token", core.tensor(next_tokens, "i64"))
  if same then return self end

  -- Each cache's first dimension is the texts: gathered anew.
  local index = core.tensor(from, "i64")
  for _, name in ipairs(self.caches) do
    self.ws:feed(name, op.apply("Gather", { self.ws:fetch(name), index }, { axis = 1 }))
  end
  return self
end

--- g:plan() -> the plan of a step that draws from all tokens: what it holds, before anything is
-- read.
function Generator:plan() return step_program(self, next_options:read {}).plan end

--- g:close(): programs and caches are gone. The model is as it was.
function Generator:close()
  self.is_closed = true
  self:_close_programs()
  self.ws:close()
end
Generator.__close = Generator.close

Generator.__tostring = function(self)
  return ("generator of %s: texts of %d tokens, %d side by side"):format(self.model._class,
    self.length, self.batch)
end

--- neap.generator { model, .. } -> generator: see the record.
function generate.new(given)
  if module.is_module(given) then given = { given } end
  local o, memory = memory_options.split("neap.generator", given, "lua", generator_options)
  o = generator_options:read(o)
  for _, name in ipairs { "encode", "decode" } do
    if o.tokenizer and type(o.tokenizer[name]) ~= "function" then
      fail(("neap.generator: the tokenizer has no function %s"):format(name))
    end
  end
  local known = build.known_input(o.model)
  local length = o.length
  if not length and type(known) == "table" and #known == 1 then length = known[1] end
  if not length then
    fail "neap.generator: how long a text may be is not known; give length ="
  end

  -- The caches lie in a workspace below the model's, which sees its parameters.
  local parent = Module.workspace(o.model)
  local self = setmetatable({
    model = o.model, length = length, batch = o.batch, tokenizer = o.tokenizer, checks = o.check,
    memory = memory, seed = o.seed, programs = {}, n_program = 0, parent = parent,
    ws = parent:child { seed = o.seed },
  }, Generator)
  return record.note(self, o)
end

generate.Generator = Generator
return generate
