--- A message of a text of Caffe's: its fields asked for by name and kind, each with its line.
--
-- INVARIANT: a field that is asked for is marked; check_read raises for one that nobody asked for,
-- so that nothing that a file says is passed over.
-- @module neap.caffe.message
local core = require "neap.core"
local options = require "neap.inner.options"

local Message = {}
Message.__index = Message

--- The message of a list of fields (core.read_prototxt).
-- @param name string what it is called in messages, "convolution_param"
function Message.new(fields, file, name, line)
  local self = setmetatable({ file = file, name = name, line = line, by_name = {}, asked = {} },
    Message)
  -- Where it stands in the text: fields of two names keep their order.
  for at, field in ipairs(fields) do
    field.at = at
    local list = self.by_name[field.name] or {}
    self.by_name[field.name], list[#list + 1] = list, field
  end
  return self
end

--- Raises: the line, and what is wrong there, formatted.
function Message:fail_at(line, format, ...)
  error(core.error { code = "data",
    message = ("%s:%d: %s"):format(self.file, line, format:format(...)) }, 0)
end

function Message:fail(format, ...) self:fail_at(self.line, format, ...) end

-- ---- fields -------------------------------------------------------------------------------------

--- The fields of a name, in order.
local function all(self, name)
  self.asked[name] = true
  return self.by_name[name] or {}
end

--- The one field of a name, nil where there is none.
local function one(self, name)
  local list = all(self, name)
  if #list > 1 then
    self:fail_at(list[2].line, "%s of %s comes twice, first in line %d", name, self.name,
      list[1].line)
  end
  return list[1]
end

function Message:has(name) return self.by_name[name] ~= nil end
function Message:line_of(name) return self:has(name) and self.by_name[name][1].line or self.line end

local booleans = { ["true"] = true, t = true, True = true, ["1"] = true, ["false"] = false,
  f = false, False = false, ["0"] = false }
local numbers = { inf = math.huge, infinity = math.huge, nan = 0 / 0 }

-- What a field's value is, by the kind that is expected; nil: it is none.
local readers = {
  int = function(field)
    return field.kind == "int" and field.value
      or field.kind == "float" and math.tointeger(field.value) or nil
  end,
  number = function(field)
    if field.kind == "word" then return numbers[field.value:lower()] end
    return (field.kind == "int" or field.kind == "float") and field.value + 0.0 or nil
  end,
  text = function(field) return field.kind == "string" and field.value or nil end,
  flag = function(field)
    if field.kind == "word" or field.kind == "int" then return booleans[tostring(field.value)] end
  end,
}
local expected = { int = "a whole number", number = "a number", text = "a text in quotes",
  flag = "true or false" }

local function value_of(self, field, kind)
  local value = readers[kind](field)
  if value == nil then
    self:fail_at(field.line, "%s of %s expects %s, got %s", field.name, self.name, expected[kind],
      field.kind == "message" and "a message" or ('"%s"'):format(tostring(field.value)))
  end
  return value
end

for kind in pairs(readers) do
  --- m:int("axis", 1), and so on: the field, or what is given for one that is left out.
  Message[kind] = function(self, name, missing)
    local field = one(self, name)
    if not field then return missing end
    return value_of(self, field, kind)
  end
  --- m:ints "dim": all fields of the name.
  Message[kind .. "s"] = function(self, name)
    local list = {}
    for i, field in ipairs(all(self, name)) do list[i] = value_of(self, field, kind) end
    return list
  end
end

--- A whole number of at least `least`, which sizes and counts are.
function Message:size(name, missing, least)
  local value = self:int(name, missing)
  if value and (value < (least or 1) or value > 0x7fffffff) then
    self:fail_at(self:line_of(name), "%s of %s is %d, at least %d is expected", name, self.name,
      value, least or 1)
  end
  return value
end

local function word_of(self, field, words)
  for i, word in ipairs(words) do
    if field.value == word and field.kind ~= "float" or field.value == i - 1 then return word end
  end
  self:fail_at(field.line, "%s of %s is \"%s\", expected %s", field.name, self.name,
    tostring(field.value), table.concat(words, ", "))
end

--- One of an enum's words, listed in the order of their numbers from 0, which stand for them too.
function Message:word(name, words, missing)
  local field = one(self, name)
  if not field then return missing end
  return word_of(self, field, words)
end

function Message:words(name, words)
  local list = {}
  for i, field in ipairs(all(self, name)) do list[i] = word_of(self, field, words) end
  return list
end

--- The messages of a name.
function Message:messages(name)
  -- Made once, so that what is read of one is known when the whole is checked.
  self.inner = self.inner or {}
  if not self.inner[name] then
    local list = {}
    for i, field in ipairs(all(self, name)) do
      if field.kind ~= "message" then
        self:fail_at(field.line, "%s of %s expects a message, { .. }", name, self.name)
      end
      list[i] = Message.new(field.value, self.file, name, field.line)
      list[i].at = field.at
    end
    self.inner[name] = list
  end
  all(self, name)
  return self.inner[name]
end

--- The message of a name, an empty one where it is left out.
function Message:message(name)
  local list = self:messages(name)
  if #list > 1 then
    self:fail_at(list[2].line, "%s of %s comes twice, first in line %d", name, self.name,
      list[1].line)
  end
  if not list[1] then list[1] = Message.new({}, self.file, name, self.line) end
  return list[1]
end

--- Fields that are known and say nothing here: the engine, the device.
function Message:leave(names)
  for name in names:gmatch "%S+" do self.asked[name] = true end
end

--- The field, in this message or in those within, that nobody has asked for so far and that is
-- called nearly so; nil where there is none.
function Message:unread_near(name)
  local names = {}
  for other in pairs(self.by_name) do
    if not self.asked[other] then names[#names + 1] = other end
  end
  table.sort(names)
  local near = options.nearest(name, names)
  if near then return self.by_name[near][1] end
  for _, key in ipairs(options.keys(self.inner or {})) do
    for _, message in ipairs(self.inner[key]) do
      local found = message:unread_near(name)
      if found then return found end
    end
  end
end

--- Raises for the first field that nobody has asked for, in this message or in those within.
function Message:check_read()
  -- The first in the text, so that the message is the same each time.
  local first
  for name, list in pairs(self.by_name) do
    if not self.asked[name] and (not first or list[1].line < first.line) then first = list[1] end
  end
  if first then
    local near = options.nearest(first.name, options.keys(self.asked))
    self:fail_at(first.line, "nothing reads %s of %s%s", first.name, self.name,
      near and (", did you mean \"%s\"?"):format(near) or "")
  end
  for _, list in pairs(self.inner or {}) do
    for _, message in ipairs(list) do message:check_read() end
  end
end

return Message
