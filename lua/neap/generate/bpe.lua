--- GPT-2's tokenizer: byte-level byte pair encoding (Radford et al., 2019, section 2.2, on Sennrich
-- et al., ACL 2016).
--
-- A text is cut into words by a pattern; the bytes of a word are letters of an alphabet of 256, and
-- neighbours are merged, the pair that stands first in the list of merges first, until no pair is
-- in the list. What is left are tokens. Any bytes are a text, and decode gives them back.
--
-- INVARIANT: decode(encode(text)) == text.
-- @module neap.generate.bpe
local core = require "neap.core"
local files = require "neap.inner.files"
local options = require "neap.inner.options"
local record = require "neap.inner.record"
local fail = core.fail

local bpe = {}

-- GPT-2's: shortenings, then letters, digits or signs with a space before them, then space; of
-- space before a word the last one belongs to the word.
local words = [['s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+]]

-- What the two files are called where they are found in a folder: by OpenAI, by transformers.
local vocabulary_names = { "vocab.json", "encoder.json", "gpt2_encoder.json" }
local merges_names = { "merges.txt", "vocab.bpe", "gpt2_vocab.bpe" }

local bpe_options = record.declare("neap.bpe", {
  doc = [[GPT-2's tokenizer, from the two files of its vocabulary: encode(text) gives a list of
    tokens, decode(tokens) the text, n_class is how many there are. Tokens such as <|endoftext|>
    stand for themselves in a text.]],
  positions = { "folder" },
  { "folder", "string", unset = "the two paths", doc = [[where both files lie, as vocab.json or
      encoder.json, and merges.txt or vocab.bpe]] },
  { "vocabulary", "string", unset = "in the folder", doc = "path of { token: number }, as JSON" },
  { "merges", "string", unset = "in the folder", doc = "path of the pairs, one a line" },
  example = 'neap.bpe "gpt2"' })

-- ---- files --------------------------------------------------------------------------------------

--- The text of a file by its path, or by one of its names in a folder.
local function text_of(path, folder, names, what)
  if path then return files.read(path) end
  if not folder then fail(("neap.bpe: %s expects a path, or folder one"):format(what)) end
  for _, name in ipairs(names) do
    local text = files.read(folder .. "/" .. name)
    if text then return text end
  end
  return nil, ("%s: there is no %s"):format(folder, table.concat(names, ", no "))
end

--- The letters that stand for bytes: printable bytes for themselves, the others for letters from
-- 256 on, in order.
-- @return letter of a byte, byte of a letter
local function alphabet()
  local letter, byte, n = {}, {}, 0
  for b = 0, 255 do
    local is_printable = b >= 33 and b <= 126 or b >= 161 and b <= 172 or b >= 174
    local c = utf8.char(is_printable and b or 256 + n)
    if not is_printable then n = n + 1 end
    letter[b], byte[c] = c, string.char(b)
  end
  return letter, byte
end

--- Numbers of tokens from JSON. @return {token = number}, or nil, message
local function read_vocabulary(text)
  local ok, number = pcall(require("cjson").decode, text)
  if not ok or type(number) ~= "table" then return nil, "no JSON of { token: number }" end

  -- JSON has no integers: whole numbers are taken as such, and no two tokens have one number.
  local taken = {}
  for token, id in pairs(number) do
    id = math.tointeger(id)
    if type(token) ~= "string" or not id or id < 0 then
      return nil, ("token %s has no number from 0 on"):format(options.shown(token))
    end
    if taken[id] then
      return nil, ("tokens %s and %s have one number, %d"):format(options.shown(taken[id]),
        options.shown(token), id)
    end
    number[token], taken[id] = id, token
  end
  return number
end

--- Ranks of pairs, "a b" = 1, 2, ..; a line that begins with # is a remark.
local function read_merges(text)
  local rank, n = {}, 0
  for line in text:gmatch "[^\r\n]+" do
    local is_remark = n == 0 and line:match "^#version"
    if not is_remark then
      if not line:match "^[^ ]+ [^ ]+$" then
        return nil, ("\"%s\" is no pair"):format(line:sub(1, 40))
      end
      n = n + 1
      rank[line] = rank[line] or n
    end
  end
  return rank
end

-- ---- merging ------------------------------------------------------------------------------------

--- Merges the letters of a word, in place, until no pair of neighbours has a rank.
local function merge(parts, rank)
  while #parts > 1 do
    -- The pair of the best rank, wherever it stands; all its places are merged before the next is
    -- looked for.
    local best, pair
    for i = 1, #parts - 1 do
      local r = rank[parts[i] .. " " .. parts[i + 1]]
      if r and (best == nil or r < best) then best, pair = r, i end
    end
    if best == nil then return parts end
    -- all places of this pair, from the front
    local first, second, kept = parts[pair], parts[pair + 1], 0
    local i = 1
    while i <= #parts do
      local is_pair = parts[i] == first and parts[i + 1] == second
      kept = kept + 1
      parts[kept] = is_pair and first .. second or parts[i]
      i = i + (is_pair and 2 or 1)
    end
    for k = #parts, kept + 1, -1 do parts[k] = nil end
  end
  return parts
end

-- A word is cut here at the latest: the time of merging grows with the square of its letters, and
-- no token is as long.
local LONGEST_WORD = 1024

--- Appends the tokens of a word.
local function append_word(self, word, out)
  local known = self.known[word]

  -- The letters of the word are its bytes; what they merge to is known from then on.
  if not known then
    local parts = {}
    for i = 1, #word do parts[i] = self.letter[word:byte(i)] end
    known = merge(parts, self.rank)
    for i, token in ipairs(known) do
      known[i] = self.number[token]
        or fail(("encode: the vocabulary has no token %s"):format(options.shown(token)))
    end
    -- words come again; what comes once must not fill the memory
    if self.n_known < 100000 then self.known[word], self.n_known = known, self.n_known + 1 end
  end
  for _, id in ipairs(known) do out[#out + 1] = id end
end

--- Appends the tokens of a text without special ones.
local function append_text(self, text, out)
  -- in a text that is no UTF-8, letters are those of ASCII
  local pattern = utf8.len(text) and self.pattern or self.byte_pattern
  local at = 1
  -- that it is UTF-8 is known now, and would be looked at again for each word
  for word in self.rex.gmatch(text, pattern, nil, self.rex.flags().NO_UTF_CHECK) do
    for from = 1, #word, LONGEST_WORD do
      append_word(self, word:sub(from, from + LONGEST_WORD - 1), out)
    end
    at = at + #word
  end
  assert(at == #text + 1, "the pattern leaves out no byte")
end

local function encode(self, text)
  if type(text) ~= "string" then fail("encode expects a text, got a " .. type(text)) end
  local out, at = {}, 1
  while at <= #text do
    -- the special token that comes next: one that begins with "<|" and is a token as it stands
    local search, from, to = at
    repeat
      from, to = text:find("<|[%w_]+|>", search)
      search = from and from + 1
    until from == nil or self.number[text:sub(from, to)]
    append_text(self, text:sub(at, (from or #text + 1) - 1), out)
    if from then out[#out + 1] = self.number[text:sub(from, to)] end
    at = (to or #text) + 1
  end
  return out
end

local function decode(self, list)
  if type(list) == "userdata" then list = list:reshape(-1):totable() end
  if type(list) ~= "table" then fail("decode expects a list of tokens, got a " .. type(list)) end
  local out = {}
  for i, id in ipairs(list) do
    local token = self.token[id]
    if not token then
      fail(("decode: %s at position %d is no token; these are 0 to %d"):format(tostring(id), i,
        self.n_class - 1))
    end
    out[i] = token:match "^<|[%w_]+|>$" or token:gsub(utf8.charpattern, self.byte)
  end
  return table.concat(out)
end

--- neap.bpe { .. } -> { encode =, decode =, n_class = }; or nil, message, code, when a file can't
-- be read: see the record.
function bpe.new(given)
  local o = bpe_options:read(given)

  -- Both files before anything is made of them: a failure is of a file.
  local vocabulary, why = text_of(o.vocabulary, o.folder, vocabulary_names, "vocabulary")
  if not vocabulary then return nil, why, "file" end
  local merges
  merges, why = text_of(o.merges, o.folder, merges_names, "merges")
  if not merges then return nil, why, "file" end
  local ok, rex = pcall(require, "rex_pcre2")
  if not ok then
    fail "neap.bpe: letters of all languages are known to the package lua-rex-pcre2 (Debian's \z
      name; lrexlib-PCRE2 of LuaRocks), which is not installed"
  end
  local self = { known = {}, n_known = 0, token = {}, n_class = 0, rex = rex }
  self.pattern = rex.new(words, rex.flags().UTF + rex.flags().UCP)
  self.byte_pattern = rex.new(words)
  self.letter, self.byte = alphabet()
  self.number, why = read_vocabulary(vocabulary)
  if self.number then self.rank, why = read_merges(merges) end
  if not self.rank then
    return nil, ("%s: %s"):format(self.number and (o.merges or o.folder)
      or o.vocabulary or o.folder, why), "file"
  end
  for token, id in pairs(self.number) do
    self.token[id], self.n_class = token, math.max(self.n_class, id + 1)
  end
  return record.note({
    encode = function(text) return encode(self, text) end,
    decode = function(list) return decode(self, list) end,
    n_class = self.n_class,
  }, o)
end

return bpe
