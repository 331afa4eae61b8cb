--- Numbers that other programs read: with a decimal point, also where the program around us has set
-- a locale that prints 0.5 as "0,5", as string.format does there.
-- @module neap.inner.pointed

--- A number as a format of string.format's says it, "%.9g" for one.
local function pointed(format, value)
  local text = format:format(value)
  -- What stands between the digits of one half is the locale's point, of one byte or more.
  local point = ("%.1f"):format(0.5):sub(2, -2)
  if point == "." then return text end
  local at, last = text:find(point, 1, true)
  return at and text:sub(1, at - 1) .. "." .. text:sub(last + 1) or text
end

return pointed
