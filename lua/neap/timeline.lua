--- A plan as SVG: bytes over op order.
--
-- Three panels share one axis of steps: the arena, where each storage is a box from its first step to its last, as high as its
-- bytes and at its address; the curve of live bytes with its bound; and beside them the regions that live from run to run, as
-- bars of their blobs. The arena is to scale, and so are the bars, which have a scale of their own.
-- @module neap.timeline
local core = require "neap.core"
local report = require "neap.report"

local timeline = {}

local width, left, right = 1180, 92, 24
local arena_height, curve_height, bar_height = 460, 90, 26
local region_order = { "parameters", "gradients", "state", "io", "constants", "frames" }
local region_colour = { parameters = "#8fb4dc", gradients = "#e0a48f", state = "#bfa8dd", io = "#c4c4c4", constants = "#d8cd8c", frames = "#9fd0c0" }

local function escaped(text) return (tostring(text):gsub("[&<>\"]", { ["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;", ['"'] = "&quot;" })) end

--- A light colour for the i-th slot, well apart from its neighbours.
local function colour_of(i) return ("hsl(%d,%d%%,%d%%)"):format(i * 222.49 % 360 // 1, i % 2 == 0 and 55 or 65, i % 3 == 0 and 70 or 80) end

--- Storages of the arena: members joined, the first that is defined gives the name. Sorted by address, then by time.
local function boxes_of(plan)
  local by_storage, list = {}, {}
  for _, v in ipairs(plan:_values()) do
    if v.region == "arena" and v.bytes > 0 and v.first_step > 0 then
      local box = by_storage[v.storage]
      if not box then
        box = { from = v.first_step, to = v.last_step, offset = v.offset, bytes = v.bytes, names = {} }
        by_storage[v.storage] = box
        list[#list + 1] = box
      end
      box.from, box.to = math.min(box.from, v.first_step), math.max(box.to, v.last_step)
      box.bytes = math.max(box.bytes, v.bytes)
      box.names[#box.names + 1] = v.blob
    end
  end
  table.sort(list, function(a, b)
    if a.offset ~= b.offset then return a.offset < b.offset end
    return a.from < b.from
  end)
  return list
end

--- A round number of bytes near `most / 5`: 1, 2 or 5 times a power of two of 10 bits, as the texts have it.
local function tick_of(most)
  local unit = 1
  while unit * 1024 * 4 <= most do unit = unit * 1024 end
  for _, k in ipairs { 1, 2, 5, 10, 20, 50, 100, 200, 500 } do
    if most / (k * unit) <= 6 then return k * unit end
  end
  return 1024 * unit
end

--- What fits into `room` pixels at about 6 a character; "" when nothing legible does.
local function fitting(text, room)
  local n = room // 6
  if #text <= n then return text end
  return n >= 5 and text:sub(1, n - 1) .. "…" or ""
end

local function text_at(out, x, y, text, more)
  out[#out + 1] = ('<text x="%.1f" y="%.1f"%s>%s</text>'):format(x, y, more and " " .. more or "", escaped(text))
end

--- Lines and labels of an axis of bytes. y_of maps bytes to pixels.
local function byte_axis(out, most, y_of)
  local step = tick_of(math.max(most, 1))
  for bytes = 0, most, step do
    local y = y_of(bytes)
    out[#out + 1] = ('<path d="M%d %.1fH%d" stroke="#e4e4e4"/>'):format(left, y, width - right)
    text_at(out, left - 6, y + 4, core.bytes_text(bytes), 'text-anchor="end" fill="#555"')
  end
end

local function draw_arena(out, plan, ops, x_of, top)
  local scale = arena_height / math.max(plan.arena_bytes, 1)
  local function y_of(bytes) return top + arena_height - bytes * scale end
  byte_axis(out, plan.arena_bytes, y_of)
  for i, box in ipairs(boxes_of(plan)) do
    local x, w, h = x_of(box.from), x_of(box.to + 1) - x_of(box.from), box.bytes * scale
    local y = y_of(box.offset + box.bytes)
    local more = #box.names > 1 and (" (+%d)"):format(#box.names - 1) or ""
    out[#out + 1] = ('<g class="box"><title>%s\n%s at offset %d, steps %d-%d</title>'):format(escaped(table.concat(box.names, ", ")),
      core.bytes_text(box.bytes), box.offset, box.from, box.to)
    out[#out + 1] = ('<rect x="%.1f" y="%.1f" width="%.1f" height="%.2f" fill="%s" stroke="#444" stroke-width="0.5"/>'):format(x, y, w, h, colour_of(i))
    local label = h >= 10 and fitting(box.names[1] .. more, w - 4) or ""
    if label ~= "" then text_at(out, x + 3, y + math.min(h / 2 + 4, h - 2), label) end
    if label ~= "" and h >= 26 and w >= 60 then text_at(out, x + 3, y + h / 2 + 16, core.bytes_text(box.bytes), 'fill="#444" font-size="9"') end
    out[#out + 1] = "</g>"
  end
  for s, op in ipairs(ops) do
    if op.scratch_bytes > 0 then
      out[#out + 1] = ('<rect class="scratch" x="%.1f" y="%.1f" width="%.1f" height="%.2f" fill="url(#hatch)" stroke="#999" stroke-width="0.5">'
        .. '<title>scratch of %s\n%s at offset %d, step %d</title></rect>'):format(x_of(s), y_of(op.scratch_offset + op.scratch_bytes), x_of(s + 1) - x_of(s),
        op.scratch_bytes * scale, escaped(op.name), core.bytes_text(op.scratch_bytes), op.scratch_offset, s)
    end
  end
end

local function draw_curve(out, plan, ops, x_of, top)
  local most = math.max(plan.lower_bound_bytes, 1)
  local function y_of(bytes) return top + curve_height - bytes / most * curve_height end
  local points = { ("%.1f,%.1f"):format(x_of(1), y_of(0)) }
  for s, op in ipairs(ops) do
    points[#points + 1] = ("%.1f,%.1f %.1f,%.1f"):format(x_of(s), y_of(op.live_bytes), x_of(s + 1), y_of(op.live_bytes))
  end
  points[#points + 1] = ("%.1f,%.1f"):format(x_of(#ops + 1), y_of(0))
  out[#out + 1] = ('<polygon points="%s" fill="#cfd8e6" stroke="#5b7394" stroke-width="0.8"/>'):format(table.concat(points, " "))
  out[#out + 1] = ('<path d="M%d %.1fH%d" stroke="#b03030" stroke-dasharray="5 3"/>'):format(left, y_of(plan.lower_bound_bytes), width - right)
  text_at(out, left - 6, top + 4, core.bytes_text(plan.lower_bound_bytes), 'text-anchor="end" fill="#b03030"')
  text_at(out, left - 6, top + curve_height + 4, "0 B", 'text-anchor="end" fill="#555"')
end

--- The peak's column, over arena and curve.
local function mark_peak(out, plan, ops, x_of, top, bottom)
  local s = plan.peak_step
  if s < 1 then return end
  out[#out + 1] = ('<rect class="peak" x="%.1f" y="%d" width="%.1f" height="%d" fill="none" stroke="#b03030" stroke-width="1.5"/>'):format(x_of(s), top,
    math.max(2, x_of(s + 1) - x_of(s)), bottom - top)
  local at_right = x_of(s) > width * 0.7
  text_at(out, at_right and x_of(s + 1) or x_of(s), top - 5, ("peak %s, step %d: %s"):format(core.bytes_text(ops[s].live_bytes), s, ops[s].name),
    ('fill="#b03030" font-weight="bold"%s'):format(at_right and ' text-anchor="end"' or ""))
end

--- Numbers of steps, and a colour strip by phase.
local function step_axis(out, ops, x_of, y)
  local phase_colour = { forward = "#9fc59f", backward = "#d9a0a0", update = "#a0a8d9" }
  for s, op in ipairs(ops) do
    out[#out + 1] = ('<rect x="%.2f" y="%d" width="%.2f" height="8" fill="%s"><title>step %d: %s, %s</title></rect>'):format(x_of(s), y, x_of(s + 1) - x_of(s),
      phase_colour[op.phase] or "#bbb", s, escaped(op.name), op.type)
  end
  local stride = math.max(1, math.ceil(#ops / 24))
  for s = 1, #ops, stride do text_at(out, (x_of(s) + x_of(s + 1)) / 2, y + 21, s, 'text-anchor="middle" fill="#555"') end
  local x = left
  for _, phase in ipairs { "forward", "backward", "update" } do
    for _, op in ipairs(ops) do
      if op.phase == phase then
        out[#out + 1] = ('<rect x="%d" y="%d" width="10" height="8" fill="%s"/>'):format(x, y + 29, phase_colour[phase])
        text_at(out, x + 14, y + 37, phase, 'fill="#555"')
        x = x + 80
        break
      end
    end
  end
end

--- One bar a region, cut into its storages, all on one scale. Returns how high it is.
local function draw_resident(out, plan, top)
  local regions, most = {}, 1
  local seen = {}
  for _, v in ipairs(plan:_values()) do
    if v.region ~= "arena" and v.region ~= "argument" and v.bytes > 0 and not seen[v.storage] then
      seen[v.storage] = true
      local region = regions[v.region] or { bytes = 0 }
      regions[v.region] = region
      region[#region + 1] = v
    end
  end
  for name, region in pairs(regions) do
    region.bytes = math.max(plan.regions[name] or 0, 1)
    most = math.max(most, region.bytes)
  end
  local y, scale = top, (width - left - right - 90) / most
  for _, name in ipairs(region_order) do
    local region = regions[name]
    if region then
      table.sort(region, function(a, b) return a.bytes > b.bytes end)
      text_at(out, left - 6, y + bar_height / 2 + 1, name, 'text-anchor="end" fill="#555"')
      local x = left
      for _, v in ipairs(region) do
        local w = v.bytes * scale
        out[#out + 1] = ('<g class="resident"><title>%s\n%s</title><rect x="%.1f" y="%d" width="%.2f" height="%d" fill="%s" stroke="#fff" stroke-width="0.5"/>')
          :format(escaped(v.blob), core.bytes_text(v.bytes), x, y, w, bar_height - 6, region_colour[name] or "#ccc")
        local label = fitting(v.blob, w - 4)
        if label ~= "" then text_at(out, x + 3, y + bar_height / 2 + 1, label) end
        out[#out + 1] = "</g>"
        x = x + w
      end
      text_at(out, x + 6, y + bar_height / 2 + 1, core.bytes_text(plan.regions[name] or region.bytes), 'fill="#555"')
      y = y + bar_height
    end
  end
  return y - top
end

--- timeline.svg(plan [, path]) -> text; with a path, true or nil, message, code.
function timeline.svg(plan, path)
  local ops, body = plan:_ops(), {}
  local function x_of(step) return left + (step - 1) / math.max(#ops, 1) * (width - left - right) end
  local arena_top = 64
  local axis_y = arena_top + arena_height + 4
  local curve_top = axis_y + 62
  local resident_top = curve_top + curve_height + 44
  draw_arena(body, plan, ops, x_of, arena_top)
  step_axis(body, ops, x_of, axis_y)
  text_at(body, left, curve_top - 8, "bytes live while each op runs; dashed: the least possible arena", 'fill="#555"')
  draw_curve(body, plan, ops, x_of, curve_top)
  mark_peak(body, plan, ops, x_of, arena_top, axis_y)
  text_at(body, left, resident_top - 8, "bytes from run to run, on a scale of their own", 'fill="#555"')
  local height = resident_top + draw_resident(body, plan, resident_top) + 16
  local head = { ('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="sans-serif" font-size="10.5">'):format(width,
    height, width, height), '<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    .. '<rect width="6" height="6" fill="#f4f4f4"/><path d="M0 0V6" stroke="#999"/></pattern></defs>',
    ('<rect width="%d" height="%d" fill="white"/>'):format(width, height) }
  text_at(head, left, 24, ("%s, %s, batch %d"):format(plan.net, plan.train and "training" or "inference", plan.batch), 'font-size="16" font-weight="bold"')
  text_at(head, left, 44, ("arena %s, least possible %s%s, without reuse %s; policy %s, %s; hatched: scratch"):format(
    core.bytes_text(plan.arena_bytes), core.bytes_text(plan.lower_bound_bytes), plan.proved and " (proved)" or "",
    core.bytes_text(plan.baseline_bytes), plan.policy, plan.executor), 'fill="#555"')
  local text = table.concat(head, "\n") .. "\n" .. table.concat(body, "\n") .. "\n</svg>\n"
  if path then return core.write_text(path, text) end
  return text
end

--- The rows of a workspace's picture: every blob by name with its bytes, a bar, and its life in the plan of the last program.
-- @return Report
function timeline.table_of(blobs, plan)
  local lives, rows, most = {}, {}, 1
  for _, v in ipairs(plan and plan:_values() or {}) do
    local life = lives[v.blob] or { v.first_step, v.last_step }
    lives[v.blob] = { math.min(life[1], v.first_step), math.max(life[2], v.last_step) }
  end
  for _, row in ipairs(blobs) do most = math.max(most, row.bytes or 0) end
  for _, row in ipairs(blobs) do
    local life = lives[row.name]
    rows[#rows + 1] = { name = row.name, region = row.region, dtype = row.dtype, shape = row.shape, bytes = row.bytes,
      steps = life and (life[1] > 0 and ("%d-%d"):format(life[1], life[2]) or ("before-%d"):format(life[2])) or "",
      bar = ("█"):rep(math.ceil(20 * (row.bytes or 0) / most)), shares = row.shares or nil }
  end
  table.sort(rows, function(a, b)
    if a.region ~= b.region then return tostring(a.region) < tostring(b.region) end
    if a.bytes ~= b.bytes then return a.bytes > b.bytes end
    return a.name < b.name
  end)
  return report.new { rows = rows, columns = { "name", "region", "shape", "bytes", "steps", "bar" }, totals = { bytes = blobs.bytes }, order = { "bytes" } }
end

return timeline
