-- What the tests of failed calls share.
local neap = require "neap"

--- Every blob of a workspace that outlives a run, with its bits.
local function blobs_text(ws)
  local lines = {}
  for _, row in ipairs(ws:_blobs()) do
    local ok, t = pcall(ws.fetch, ws, row.name)
    if row.kind ~= "transient" then
      lines[#lines + 1] = ("%s %s %s %s"):format(row.name, row.kind, row.role,
        ok and t:hash() or "-")
    end
  end
  table.sort(lines)
  return table.concat(lines, "\n")
end

--- The names below are blobs, and no paths that anybody could write to.
local X, W = "none/x", "none/w"

local function stop() error "no" end

--- Arguments that are wrong nearly everywhere, and some that are right in many places.
local wrong = {
  true, -1, 0, 1.5, "", "/none/none", {}, { -1 }, { none = 1 }, { {} }, stop, function() end,
  neap.ones(3, 0), neap.ones(5),
  coroutine.create(stop),
}
local right = { X, { X, W }, neap.ones(2, 3), 1, { 2, 3 }, "y" }

--- visit(args) for each list tried.
local function each_list(more, visit)
  local plausible = table.move(right, 1, #right, #more + 1, table.move(more, 1, #more, 1, {}))
  visit(table.pack())
  for _, w in ipairs(wrong) do
    visit(table.pack(w))
    for _, a in ipairs(plausible) do
      visit(table.pack(a, w))
      visit(table.pack(w, a))
    end
    for _, a in ipairs(more) do
      for _, b in ipairs(plausible) do visit(table.pack(a, b, w)) end
    end
  end
  for _, a in ipairs(plausible) do
    visit(table.pack(a, nil, nil, nil, nil, nil, nil, nil, nil, true))
  end
end

--- Functions whose text arguments are paths: they get only what can't be one.
local writes = {
  backup = true, db = true, dot = true, draw = true, export = true, image = true, picture = true,
  plot = true,
  save = true, svg = true, write = true,
}

return { blobs_text = blobs_text, X = X, W = W, each_list = each_list, writes = writes }
