--- neap generate NET --prompt TEXT: text from a language model of the zoo or of a net file.
-- @module neap.cli.generate

--- A list of tokens of what the command line says: "1,2,3".
local function tokens_of(text)
  local list = {}
  for word in text:gmatch "[^,%s]+" do
    local id = math.tointeger(tonumber(word))
    if not id then
      require("neap.cli").usage(("--tokens: \"%s\" is no whole number"):format(word))
    end
    list[#list + 1] = id
  end
  return list
end

--- A number, for argparse's convert.
local function number(text)
  local n = tonumber(text)
  if n then return n end
  return nil, ("\"%s\" is no number"):format(text)
end

return {
  name = "generate", summary = "Generate text by a language model, token by token.",
  plain = true,
  define = function(command)
    local whole = require("neap.cli").whole
    command:argument "net":description "A net of the zoo such as gpt2, or a net file."
    command:option "--weights":argname "<file>"
      :description "Weights, .safetensors, as transformers or m:save calls them; drawn without."
    command:option "--tokenizer":argname "<folder>"
      :description "Where vocab.json and merges.txt of a GPT-2 tokenizer lie."
    command:option "--prompt":argname "<text>":description "The beginning; needs a tokenizer."
    command:option "--tokens":argname "<1,2,..>":description "The beginning as tokens."
    command:option "-n --n":argname "<n>":convert(whole(1)):default "50"
      :description "Tokens drawn at most."
    command:option "--temperature":argname "<t>":convert(number):default "1"
      :description "What scores are divided by; 0 takes the best token, always."
    command:option "--top-k":argname "<k>":convert(whole(1))
      :description "So many of the best tokens are drawn from."
    command:option "--top-p":argname "<p>":convert(number)
      :description "The best tokens are drawn from, whose shares add up to this."
    command:option "--seed":argname "<n>":convert(whole(0))
      :description "What tokens are drawn by."
    command:option "--length":argname "<n>":convert(whole(1))
      :description "Tokens that the caches hold; the model's own length without."
    command:flag "--plan":description "Print what a step holds, in place of generating."
    require("neap.memory.options").define(command)
  end,
  run = function(args)
    local neap, cli, netfile = require "neap", require "neap.cli", require "neap.net.file"
    if (args.prompt == nil) == (args.tokens == nil) and not args.plan then
      cli.usage "generate: the text begins with --prompt TEXT or with --tokens 1,2,.."
    end
    if args.prompt and not args.tokenizer then
      cli.usage "generate: --prompt needs --tokenizer FOLDER; --tokens goes without"
    end

    -- Weights go into the family's options, memory options into the generator's.
    local tokenizer = args.tokenizer and cli.need(neap.bpe { folder = args.tokenizer })
    local file = netfile.load(args.net, nil, args.weights and { weights = args.weights } or nil)
    if not file.model then cli.usage("generate: " .. args.net .. " is a net, and no model") end

    local o = require("neap.memory.options").of_command(args)
    o[1], o.length, o.tokenizer, o.seed = file.model, args.length, tokenizer, args.seed
    local g <close> = neap.generator(o)
    if args.plan then
      print(g:plan():forecast())
      return
    end

    local prompt = args.prompt or tokens_of(args.tokens)
    -- Bytes of a letter may lie in several tokens: what is shown is the text so far, less what is
    -- out already, up to the last whole letter.
    local tokens, shown = {}, 0
    local function show(id)
      tokens[#tokens + 1] = id
      local text = tokenizer and tokenizer.decode(tokens) or table.concat(tokens, " ")
      local whole = tokenizer and (select(2, utf8.len(text)) or #text + 1) - 1 or #text
      if whole > shown then
        io.stdout:write(text:sub(shown + 1, whole))
        io.stdout:flush()
        shown = whole
      end
    end

    if args.prompt then io.stdout:write(args.prompt) end
    g:generate { prompt = prompt, n = args.n, temperature = args.temperature, top_k = args.top_k,
      top_p = args.top_p, on_token = show }
    io.stdout:write "\n"
  end,
}
