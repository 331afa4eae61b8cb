--- Nets as Graphviz DOT: ops are boxes, values rounded boxes, subnets clusters.
--
-- Drawn is the graph of a plan, so the backward, inserted Reorders and later versions of a name are there, and a value read by
-- several ops (a weight that two towers share) is one node. With colours, values at one place of the arena have one colour:
-- what is reused by whom shows at a glance. Resident values are grey, with a border by region.
-- @module neap.drawing
local core = require "neap.core"

local drawing = {}

--- Text inside double quotes of DOT.
local function quoted(text) return '"' .. tostring(text):gsub('[\\"]', "\\%0"):gsub("\n", "\\n") .. '"' end

--- Well apart from its neighbours: hues by the golden ratio. @return "h s v" as DOT has it
local function colour_of(index)
  local hue = (index * 0.61803398875) % 1
  return ("%.3f %.2f %.2f"):format(hue, index % 2 == 0 and 0.35 or 0.5, index % 3 == 0 and 0.85 or 0.97)
end

local border = { parameters = "#2f6fb3", gradients = "#b3492f", state = "#7a4fb0", io = "#3f3f3f", constants = "#8a7a1f" }

--- One colour per (frame, offset): numbered in the order of first use, so that the same plan gives the same picture.
local function palette()
  local index, n = {}, 0
  return function(frame, offset)
    local key = frame .. " " .. offset
    if not index[key] then
      n = n + 1
      index[key] = n
    end
    return colour_of(index[key]), index[key]
  end
end

local function value_label(v)
  local parts = { v.blob, ("%s %s"):format(v.dtype, v.shape) }
  if v.bytes > 0 then parts[#parts + 1] = core.bytes_text(v.bytes) end
  return table.concat(parts, "\n")
end

local phase_fill = { forward = "#ffffff", backward = "#f3e3e3", update = "#e3f0e3" }

--- Lines of one graph. `prefix` makes node names unique, `frame` names the region that its offsets count in.
local function draw(tree, prefix, indent, o, out)
  local function add(text, ...) out[#out + 1] = indent .. text:format(...) end
  local used, node_of_name = {}, {}
  for _, op in ipairs(tree.ops) do
    for _, list in ipairs { op.ins, op.outs } do
      for _, v in ipairs(list) do used[v] = true end
    end
  end
  for i, v in ipairs(tree.values) do
    if used[i] then
      local name = prefix .. "v" .. i
      node_of_name[v.blob] = name
      local style = ("style=\"filled,rounded\" shape=box label=%s"):format(quoted(value_label(v)))
      if o.colours and v.region == "arena" and v.bytes > 0 then
        style = style .. (" fillcolor=\"%s\" tooltip=%s"):format(o.colour(prefix, v.offset), quoted(("offset %d, %s"):format(v.offset, v.words)))
      elseif v.region == "arena" then
        style = style .. " fillcolor=\"#ffffff\""
      else
        style = style .. (" fillcolor=\"#e4e4e4\" color=\"%s\" tooltip=%s"):format(border[v.region] or "#808080", quoted(v.region))
      end
      add("%s [%s];", name, style)
    end
  end
  for s, op in ipairs(tree.ops) do
    local name = prefix .. "o" .. s
    local title = op.type .. (o.colours and #op.subs == 0 and op.engine ~= "" and "\n" .. op.engine or "")
    add("%s [shape=box style=filled fillcolor=\"%s\" label=%s tooltip=%s];", name, phase_fill[op.phase] or "#ffffff", quoted(title),
      quoted(op.name .. (op.line and op.line ~= "" and " " .. op.line or "")))
    for _, v in ipairs(op.ins) do add("%sv%d -> %s;", prefix, v, name) end
    for _, v in ipairs(op.outs) do add("%s -> %sv%d;", name, prefix, v) end
    for k, sub in ipairs(op.subs) do
      local inner = ("%ss%d_"):format(name, k)
      add("subgraph cluster_%s {", inner)
      add("  label=%s style=rounded color=\"#707070\" fontsize=11;", quoted(("%s of %s"):format(sub.role, op.name)))
      local names = draw(sub, inner, indent .. "  ", o, out)
      if #sub.ops == 0 then add("  %sempty [shape=plaintext label=\"(empty)\"];", inner) end
      add("}")
      for _, v in ipairs(op.ins) do -- what the subnet takes from outside has the same name there
        local taken = names[tree.values[v].blob]
        if taken then add("%sv%d -> %s [style=dashed color=\"#707070\"];", prefix, v, taken) end
      end
      add("%s -> %s [style=dotted arrowhead=none lhead=cluster_%s];", name, #sub.ops > 0 and inner .. "o1" or inner .. "empty", inner)
    end
  end
  return node_of_name
end

--- drawing.dot(plan, {path =, colours = bool}) -> text; with a path, true or nil, message, code.
function drawing.dot(plan, o)
  local out = { ("digraph %s {"):format(quoted(plan.net)), "  rankdir=TB; compound=true; newrank=true;",
    "  node [fontname=\"sans-serif\" fontsize=10 margin=\"0.08,0.04\" height=0.3]; edge [arrowsize=0.6];" }
  local notes = { plan.net }
  if o.colours then
    notes[#notes + 1] = ("arena %s, one colour per place in it; grey: bytes of their own"):format(core.bytes_text(plan.arena_bytes))
  end
  out[#out + 1] = ("  label=%s labelloc=t fontname=\"sans-serif\" fontsize=13;"):format(quoted(table.concat(notes, "\n")))
  draw(plan:_tree(), "", "  ", { colours = o.colours, colour = palette() }, out)
  out[#out + 1] = "}\n"
  local text = table.concat(out, "\n")
  if o.path then return core.write_text(o.path, text) end
  return text
end

return drawing
