--- Sets of rows from files of JSON lines: one object a line, its keys the names of fields.
-- @module neap.data.json
local cjson = require "cjson"
local core = require "neap.core"
local options = require "neap.inner.options"
local record = require "neap.inner.record"
local rows = require "neap.data.rows"
local sequences = require "neap.data.sequences"
local set = require "neap.data.set"
local json = {}

local options_of_jsonl = set.declare("jsonl", {
  doc = [[Rows of a file of JSON lines (gzip too), an object each: numbers, true and false, lists of
    numbers, and words, which become numbers from 0, listed in the set's `classes.FIELD`. Lists of
    one length are tensors; of different lengths they are padded, as in neap.data.sequences.]],
  { "path", "string", required = true, doc = "the file" },
  { "fields", "table", unset = "all keys of line 1, by their names",
    says = '{ x = "pixels", y = "label" } or { "x", "y" }',
    doc = "keys of the objects, by the names of the fields that they become" },
  { "pad", "number", 0, doc = "what stands behind the end of a list" },
  { "bucket", "integer|table", 1, min = 1, says = "a number of buckets, or a list of bounds",
    doc = "rows of a like length are padded to one bound" },
  set.split("all", { "all", "train", "valid" }), set.holdout,
  example = 'neap.data.jsonl { path = "rows.jsonl", fields = { x = "features", y = "kind" } }' })

local function fail_line(path, i, message)
  error(core.error { code = "data", message = ("%s: line %d: %s"):format(path, i, message) })
end

--- The objects of a file, with the line of each.
local function read_objects(path)
  local bytes = set.must(core.read_gz_text(path))
  local objects, lines, i = {}, {}, 0
  -- The last line may lack its end.
  for line in (bytes .. "\n"):gmatch "([^\n]*)\n" do
    i = i + 1
    if line:match "%S" then
      local ok, object = pcall(cjson.decode, line)
      if not ok then fail_line(path, i, tostring(object)) end
      if type(object) ~= "table" then
        fail_line(path, i, "expects an object, { \"key\": value }")
      end
      objects[#objects + 1], lines[#lines + 1] = object, i
    end
  end
  if #objects == 0 then
    error(core.error { code = "data", message = path .. ": no rows" })
  end
  return objects, lines
end

--- Fields by name: the key of each.
local function keys_of(given, first)
  local keys = {}
  if given == nil then
    for key in pairs(first) do keys[key] = key end
    return keys
  end
  for name, key in pairs(given) do
    if type(key) ~= "string" then
      core.fail(("neap.data.jsonl: fields expects keys as texts, got %s"):format(
        options.shown(key)))
    end
    keys[math.type(name) == "integer" and key or name] = key
  end
  return keys
end

--- Whole numbers as integers: JSON does not tell.
local function number(v) return math.tointeger(v) or v end

--- Whether a list has numbers alone, or lists of them.
local function is_numbers(v)
  for i = 1, #v do
    local item = v[i]
    if type(item) ~= "number" and not (type(item) == "table" and is_numbers(item)) then
      return false
    end
  end
  return true
end

--- The list with whole numbers as integers.
local function integers(v)
  local out = {}
  for i, item in ipairs(v) do out[i] = type(item) == "table" and integers(item) or number(item) end
  return out
end

--- The values of a key in all rows: what kind they are, and as Lua has them.
-- @return "number" | "word" | "list", values
local function column(path, objects, lines, key)
  local values, kind = {}, nil
  for i, object in ipairs(objects) do
    local v = object[key]
    if v == nil then
      local near = options.nearest(key, options.keys(object))
      fail_line(path, lines[i], ('there is no "%s"%s'):format(key,
        near and (', did you mean "%s"?'):format(near) or ""))
    end
    -- true and false are 1 and 0.
    if type(v) == "boolean" then v = v and 1 or 0 end
    local own = type(v) == "string" and "word" or type(v) == "number" and "number"
      or type(v) == "table" and is_numbers(v) and "list"
    if not own then
      fail_line(path, lines[i], ('"%s" is %s; numbers, words and lists of numbers are read'):format(
        key, v == cjson.null and "null" or "a value of another kind"))
    end
    -- One kind for a column: a number among words would be a label of another order.
    if kind and own ~= kind then
      fail_line(path, lines[i], ('"%s" is a %s here, and a %s before'):format(key, own, kind))
    end
    kind = own
    values[i] = own == "list" and integers(v) or own == "number" and number(v) or v
  end
  return kind, values
end

--- Words as numbers from 0, in the order of the alphabet.
local function by_number(words)
  local seen, list, values = {}, {}, {}
  for _, word in ipairs(words) do
    if not seen[word] then list[#list + 1] = word end
    seen[word] = true
  end
  table.sort(list)
  for i, word in ipairs(list) do seen[word] = i - 1 end
  for i, word in ipairs(words) do values[i] = seen[word] end
  return values, list
end

--- A dtype that holds all of a list.
local function dtype_of(values)
  for _, v in ipairs(values) do
    local own = type(v) == "table" and dtype_of(v) or math.type(v) == "integer" and "i64"
    if own ~= "i64" then return "f32" end
  end
  return "i64"
end

--- JSON lines: see the record.
-- @return data set with `classes` (of each field of words), `n_class` (of y)
function json.jsonl(given)
  local o = options_of_jsonl:read(given)
  local path = set.exists(o.path) and o.path or set.must_find(o.path, "where you have it", o.path)
  local objects, lines = read_objects(path)
  local fields, classes, is_ragged = {}, {}, false

  -- Each key as a column; lists of different lengths make the whole set one of sequences.
  for name, key in pairs(keys_of(o.fields, objects[1])) do
    local kind, values = column(path, objects, lines, key)
    if kind == "word" then values, classes[name] = by_number(values) end
    fields[name] = { kind = kind, values = values }
    for i = 2, kind == "list" and #values or 0 do
      is_ragged = is_ragged or #values[i] ~= #values[1]
    end
  end

  -- The options that a set of this kind takes too; fields are added under their names.
  local chosen = { batch = o.batch, shuffle = o.shuffle, seed = o.seed, last = o.last, map = o.map }
  if o.shuffle == nil then chosen.shuffle = o.split == "train" end
  for name, f in pairs(fields) do
    local t = f.values

    -- A column of one length is a tensor, whose making finds what does not fit.
    if not (is_ragged and f.kind == "list") then
      local ok
      ok, t = pcall(core.tensor, f.values, dtype_of(f.values))
      if not ok then
        error(core.error { code = "data",
          message = ('%s: "%s": %s'):format(path, name, tostring(t)) })
      end
    end
    chosen[name] = t
  end
  if is_ragged then chosen.pad, chosen.bucket = o.pad, o.bucket end
  local self = (is_ragged and sequences.sequences or rows.tensors)(chosen)
  self.classes, self.rows = classes, set.held_out(o, #objects)
  if self.count then self.n_batch = self:count() end
  if classes.y then self.n_class = #classes.y end
  return record.note(self, o)
end

return json
