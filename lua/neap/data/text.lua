--- Sets of characters by number.
-- @module neap.data.text
local core = require "neap.core"
local set = require "neap.data.set"
local fail = core.fail
local text = {}

-- Options that both sources have.
local vocabulary = { "vocabulary", "characters", unset = "those of the file",
  doc = "the characters, by their numbers: another set's `chars`" }
local unknown = { "unknown", "integer", unset = "an error",
  doc = "number of characters that the vocabulary does not have" }

-- ---- characters by number -----------------------------------------------------------------------

local function check_unknown(who, unknown, least, most)
  if unknown == nil
      or (math.type(unknown) == "integer" and unknown >= least and unknown <= most) then
    return
  end
  fail(("neap.data.%s: unknown expects a number of the vocabulary, %d to %d, got %s"):format(
    who, least, most, tostring(unknown)))
end

--- Raises for the character of a text that has no number.
local function fail_unknown(who, text, at)
  fail(("%s: the character %q at position %d is not in the vocabulary; the data set's unknown = \z
    NUMBER would stand for it"):format(who, text:sub(at, at), at))
end

--- The numbers of a text's characters. One without a number becomes `unknown`; where that is nil it
-- is an error.
local function encode(who, text, number, unknown)
  if type(text) ~= "string" then fail(("%s expects a text, got a %s"):format(who, type(text))) end
  local list = {}
  for i = 1, #text do list[i] = number[text:sub(i, i)] or unknown or fail_unknown(who, text, i) end
  return list
end

--- The text of numbers, a list or a tensor. char_of(number) is nil for what is no number of a
-- character.
local function decode(who, list, char_of, least, most)
  if type(list) == "userdata" then list = list:reshape(-1):totable() end
  if type(list) ~= "table" then
    fail(("%s expects a list of numbers, got a %s"):format(who, type(list)))
  end
  local out = {}
  for i, id in ipairs(list) do
    out[i] = char_of(id)
      or fail(("%s: %s at position %d is no character's number; these are %d to %d"):format(
        who, tostring(id), i, least, most))
  end
  return table.concat(out)
end

--- Gives a set functions encode and decode, which go with a point or with a colon: tokenizers are
-- called in the one way, sets in the other.
local function give(self, functions)
  for name, f in pairs(functions) do
    self[name] = function(first, ...)
      local is_method = getmetatable(first) == set.Data
      local n = select("#", ...) - (is_method and 1 or 0)
      if n > 0 then fail(("%s takes one value, got %d"):format(name, n + 1)) end
      if is_method then return f((...)) end
      return f(first)
    end
  end
end

--- A text as a tensor of numbers (core.encode_bytes); unknown characters as in `encode`.
local function encode_text(who, text, number, unknown)
  -- Bytes that no character stands for are looked for in one search of the whole text, not one by
  -- one.
  local of_byte, strange = {}, {}
  for b = 0, 255 do
    local c = string.char(b)
    of_byte[c] = number[c] or unknown
    if not of_byte[c] then strange[#strange + 1] = c:gsub("%p", "%%%0") end
  end
  local at = #strange > 0 and text:find("[" .. table.concat(strange) .. "]")
  if at then fail_unknown(who, text, at) end
  return core.encode_bytes(text, of_byte)
end

local options_of_text = set.declare("text", {
  doc = [[The characters of a text file (or several) by number: x (B,length), y the same one
    character later. Split "train" is the first part, "valid" the last. The set has `chars`
    (character of a number from 0), `n_class`, `encode(text)`, `decode(numbers)`.]],
  { "path", "paths", required = true, doc = "the file" },
  { "length", "integer", 64, min = 1, doc = "characters a row" },
  { "stride", "integer", min = 1, unset = "length", doc = "from the start of a row to the next" },
  set.split("all", { "all", "train", "valid" }), set.holdout, vocabulary, unknown,
  example = 'neap.data.text { path = "shakespeare.txt", length = 128, batch = 16 }',
})

--- Rows of a text: see the record.
-- @return data set with `chars` (number from 0 -> character), `n_class`, `encode(text)`,
--   `decode(numbers)`
function text.text(given)
  local o = options_of_text:read(given)
  local parts = {}
  for _, path in ipairs(type(o.path) == "table" and o.path or { o.path }) do
    parts[#parts + 1] = set.must(core.read_text(path))
  end

  -- The vocabulary is of the whole file, whichever split is taken: both have the same numbers. A
  -- line's end is in it even where the file has one line.
  local content = table.concat(parts)
  local number, chars = {}, o.vocabulary
  if not chars then
    local seen = {}
    for c in content:gmatch "." do seen[c] = true end
    seen["\n"] = true
    chars = {}
    for c in pairs(seen) do chars[#chars + 1] = c end
    table.sort(chars)
  end
  for i, c in ipairs(chars) do number[c] = i - 1 end
  check_unknown("text", o.unknown, 0, #chars - 1)

  -- The text is cut once: what follows in it is not mixed with what came before.
  local cut = math.floor(#content * (1 - o.holdout))
  if o.split == "train" then
    content = content:sub(1, cut)
  elseif o.split == "valid" then
    content = content:sub(cut + 1)
  end
  local ids = encode_text("neap.data.text", content, number, o.unknown) -- u8 (n)

  -- A row is a window of `length` characters, and y the window one character on.
  local rows, stride = {}, o.stride or o.length
  for start = 0, #content - o.length - 1, stride do rows[#rows + 1] = start end
  if #rows == 0 then
    error(core.error {
      code = "data",
      message = ("neap.data.text: %d characters (split \"%s\") are too few for a row of %d"):format(
        #content, o.split, o.length),
    })
  end
  local self = set.new(o,
    {
      x = { source = ids, dtype = "i64", window = o.length },
      y = { source = ids, dtype = "i64", window = o.length, offset = 1 },
    },
    rows, { n_class = #chars, chars = chars })
  give(self, {
    encode = function(s) return encode("text.encode", s, number, o.unknown) end,
    decode = function(list)
      return decode("text.decode", list,
        function(id) return math.type(id) == "integer" and chars[id + 1] or nil end, 0, #chars - 1)
    end,
  })
  return self
end

local options_of_chars = set.declare("chars", {
  doc = [[Lines of a text file, each an example of characters: x (N,length) = start, c1, c2 .., y =
    c1, c2 .., end; 0 is both start and end, and stands after the end in x; in y that is
    `ignore_index` = -1. The set has `chars` (character of a number from 1), `n_class`,
    `encode(text)`, `decode(numbers)`, `ignore_index`.]],
  { "path", "string", required = true, doc = "the file" },
  { "length", "integer", min = 1, unset = "that of the longest line and its end",
    doc = "characters a row, the end included" },
  set.split("all", { "all", "train", "valid" }), set.holdout, vocabulary, unknown,
  example = 'neap.data.chars { path = "names.txt", batch = 32, split = "train" }' })

--- Lines as examples: see the record.
-- @return data set with `chars` (number from 1 -> character), `n_class`, `encode(text)`,
--   `decode(numbers)`, `ignore_index`
function text.chars(given)
  local o = options_of_chars:read(given)
  local path = set.exists(o.path) and o.path
    or set.must_find(o.path, "where you have it", o.path, "text/" .. o.path)
  local lines, longest, seen = {}, 0, {}
  for line in set.must(core.read_text(path)):gmatch "[^\r\n]+" do
    lines[#lines + 1] = line
    longest = math.max(longest, #line)
    for c in line:gmatch "." do seen[c] = true end
  end
  if #lines == 0 then error(core.error { code = "data", message = path .. ": no lines" }) end

  -- Room for the end behind the longest line.
  local length, chars, number = o.length or longest + 1, o.vocabulary, {}
  if not chars then
    chars = {}
    for c in pairs(seen) do chars[#chars + 1] = c end
    table.sort(chars)
  end
  for i, c in ipairs(chars) do number[c] = i end
  check_unknown("chars", o.unknown, 0, #chars)
  -- y is held one higher, so that bytes can say -1.
  local xs, ys, higher = {}, {}, { ["\0"] = 1, ["\1"] = 0 }
  for c, k in pairs(number) do higher[c] = k + 1 end
  for i, line in ipairs(lines) do
    line = line:sub(1, length - 1)
    -- x begins with the start, y ends with the end; behind it x has the start again, y what is
    -- ignored.
    xs[i] = "\0" .. line .. ("\0"):rep(length - 1 - #line)
    ys[i] = line .. "\0" .. ("\1"):rep(length - 1 - #line)
  end

  -- The start has no character: number 0 stands for it in x.
  local ends = setmetatable({ ["\0"] = 0 }, { __index = number })
  local x = encode_text("neap.data.chars", table.concat(xs), ends, o.unknown):view(#lines, length)
  local y = encode_text("neap.data.chars", table.concat(ys), higher,
    o.unknown and o.unknown + 1):view(#lines, length)
  local rows = set.range(#lines)
  if o.split ~= "all" then
    rows = set.order({ rows = rows, shuffle = true, seed = o.seed }, 0)
    local cut = math.floor(#rows * (1 - o.holdout))
    rows = o.split == "train" and table.move(rows, 1, cut, 1, {})
      or table.move(rows, cut + 1, #rows, 1, {})
  end
  local self = set.new(o,
    { x = { source = x, dtype = "i64" }, y = { source = y, dtype = "i64", shift = -1 } }, rows,
    { chars = chars, n_class = #chars + 1, ignore_index = -1, length = length })
  give(self, {
    encode = function(s) return encode("chars.encode", s, number, o.unknown) end,
    decode = function(list) -- start and end are no characters
      return decode("chars.decode", list, function(id) return id == 0 and "" or chars[id] end, 0,
        #chars)
    end,
  })
  return self
end

return text
