--- The calls of the last steps of a run as files for other programs to show: Perfetto and Chrome's
-- tracing, speedscope, and PyTorch's memory_viz.
--
-- The calls come from rings that were there before the first step (src/program), so that measuring
-- takes no memory. Each thread has its steps, in them phases, in them layers, in them ops: what
-- stands side by side and has the same name is one.
--
-- INVARIANT: on a thread an interval lies within the one above it, and begins no sooner than the
-- one before it ends; so events can be written in the order in which they are found.
-- @module neap.report.trace
local core = require "neap.core"
local fail = core.fail

local trace = {}

--- The calls of all ops in the order in which they began: {op, step, at (ns from the first), ns,
-- run, thread}; those of runs that are in the rings of all ops.
local function calls_of(run)
  local ops, calls, least = run.plan:_ops(), {}, 0

  -- A ring holds the last calls of one op. A run counts only if the rings of all ops still have it:
  -- `least` is the oldest run of the ring that forgot most.
  for s, t in ipairs(run.times) do
    local oldest = math.maxinteger
    for k, ns in ipairs(t.recent_ns or {}) do
      oldest = math.min(oldest, t.run_no[k])
      calls[#calls + 1] = { op = ops[s], step = s, at = t.begun_ns[k], ns = ns, run = t.run_no[k],
        thread = t.on_thread[k] }
    end
    if t.n_call > #(t.recent_ns or {}) then least = math.max(least, oldest) end
  end
  local kept = {}
  for _, call in ipairs(calls) do
    if call.run >= least then kept[#kept + 1] = call end
  end
  table.sort(kept, function(a, b)
    if a.at ~= b.at then return a.at < b.at end
    return a.step < b.step
  end)
  local first = kept[1] and kept[1].at or 0
  for _, call in ipairs(kept) do call.at = call.at - first end
  return kept
end

--- Names of the intervals around a call, the outermost first.
local function path_of(call)
  return { "step " .. call.run, call.op.phase, call.op.layer or "(no layer)", call.op.name }
end

--- By thread, the intervals in the order in which they open, each before those within it: {name,
-- depth, from, to, call (of ops)}.
local function threads_of(calls)
  local by, list = {}, {}
  for _, call in ipairs(calls) do
    local thread = by[call.thread]
    if not thread then
      thread = { number = call.thread, open = {}, intervals = {} }
      by[call.thread], list[#list + 1] = thread, thread
    end

    -- Down the path: as long as names are those that are open, the intervals go on; from the first
    -- new one on, all below are new. An op is new each time.
    local is_new = false
    for depth, name in ipairs(path_of(call)) do
      local above = thread.open[depth]
      is_new = is_new or not above or above.name ~= name or depth == 4
      if is_new then
        above = { name = name, depth = depth, from = call.at, to = call.at,
          call = depth == 4 and call or nil }
        thread.open[depth] = above
        table.insert(thread.intervals, above)
      end
      above.to = math.max(above.to, call.at + call.ns)
    end
  end
  table.sort(list, function(a, b) return a.number < b.number end)
  return list
end

local function quoted(text)
  if not utf8.len(text) then text = text:gsub("[\128-\255]", "?") end
  return '"' .. text:gsub('[%c"\\]', function(c)
    return (c == '"' or c == "\\") and "\\" .. c or ("\\u%04x"):format(c:byte())
  end) .. '"'
end

--- Microseconds, as traces have them, from ns: exact.
local function micros(ns) return ("%d.%03d"):format(ns // 1000, ns % 1000) end

local kinds = { "step", "phase", "layer", "op" }
local formats = {}

--- The format of Chrome's tracing, which Perfetto reads: complete events, and a counter.
function formats.perfetto(run, calls)
  local parts = { ('{"name":"process_name","ph":"M","pid":1,"tid":0,"args":{"name":%s}}'):format(
    quoted("neap " .. run.plan.net)) }
  for _, thread in ipairs(threads_of(calls)) do
    parts[#parts + 1] = ('{"name":"thread_name","ph":"M","pid":1,"tid":%d,"args":{"name":"thread \z
      %d"}}'):format(thread.number, thread.number)
    for _, i in ipairs(thread.intervals) do
      local o = i.call and i.call.op
      local args = o and (',"args":{"type":%s,"kernel":%s,"line":%s,"step":%d,"live_bytes":%d,\z
        "flops":%d}'):format(quoted(o.type), quoted(o.kernel or ""), quoted(o.line or ""),
        i.call.step, o.live_bytes, o.flops) or ""
      parts[#parts + 1] = ('{"name":%s,"cat":"%s","ph":"X","pid":1,"tid":%d,"ts":%s,"dur":%s%s}')
        :format(quoted(i.name), kinds[i.depth], thread.number, micros(i.from),
          micros(i.to - i.from), args)
    end
  end

  -- The counter goes to 0 behind the last call, as the arena is free then.
  local last = 0
  for _, call in ipairs(calls) do
    last = math.max(last, call.at + call.ns)
    parts[#parts + 1] = ('{"name":"arena","ph":"C","pid":1,"ts":%s,"args":{"live_bytes":%d}}')
      :format(micros(call.at), call.op.live_bytes)
  end
  parts[#parts + 1] = ('{"name":"arena","ph":"C","pid":1,"ts":%s,"args":{"live_bytes":0}}'):format(
    micros(last))
  return '{"displayTimeUnit":"ms","traceEvents":[\n' .. table.concat(parts, ",\n") .. "\n]}\n"
end

--- speedscope's evented profiles, one for each thread.
function formats.speedscope(run, calls)
  local frames, number, profiles = {}, {}, {}
  local function frame(i)
    local o = i.call and i.call.op
    local key = i.name .. "\n" .. i.depth
    if not number[key] then
      local file, line = (o and o.line or ""):match "^(.*):(%d+)$"
      frames[#frames + 1] = ('{"name":%s%s}'):format(quoted(i.name),
        file and (',"file":%s,"line":%s'):format(quoted(file), line) or "")
      number[key] = #frames - 1
    end
    return number[key]
  end
  for _, thread in ipairs(threads_of(calls)) do
    local events, open, last = {}, {}, 0
    -- Events of a thread close in the reverse order of their opening.
    local function close(depth)
      for d = #open, depth, -1 do
        events[#events + 1] = ('{"type":"C","frame":%d,"at":%d}'):format(frame(open[d]), open[d].to)
        last = math.max(last, open[d].to)
        open[d] = nil
      end
    end
    for _, i in ipairs(thread.intervals) do
      close(i.depth)
      open[i.depth] = i
      events[#events + 1] = ('{"type":"O","frame":%d,"at":%d}'):format(frame(i), i.from)
    end
    close(1)
    profiles[#profiles + 1] = ('{"type":"evented","name":"thread %d","unit":"nanoseconds",\z
      "startValue":0,"endValue":%d,"events":[\n%s\n]}'):format(thread.number, last,
      table.concat(events, ",\n"))
  end
  return ('{"version":"0.0.1","$schema":"https://www.speedscope.app/file-format-schema.json",\z
    "exporter":%s,"activeProfileIndex":0,"name":%s,"shared":{"frames":[\n%s\n]},\z
    "profiles":[\n%s\n]}\n'):format(quoted("neap " .. core.version), quoted(run.plan.net),
    table.concat(frames, ",\n"), table.concat(profiles, ",\n"))
end

-- ---- memory_viz ---------------------------------------------------------------------------------

--- A value as a pickle of protocol 2, which memory_viz alone reads: texts, integers, lists, and
-- tables with names.
local function pickle(value, out)
  -- Opcodes: X a text, J and 138 integers of 4 and of 8 bytes, ]( .. e a list, }( .. u a table.
  if type(value) == "string" then
    if not utf8.len(value) then value = value:gsub("[\128-\255]", "?") end
    out[#out + 1] = "X" .. string.pack("<I4", #value) .. value
  elseif math.type(value) == "integer" then
    out[#out + 1] = value >= 0 and value < 2 ^ 31 and "J" .. string.pack("<i4", value)
      or "\138\8" .. string.pack("<i8", value)
  elseif value[1] ~= nil or next(value) == nil then
    out[#out + 1] = "]("
    for _, item in ipairs(value) do pickle(item, out) end
    out[#out + 1] = "e"
  else
    local names = {}
    for name in pairs(value) do names[#names + 1] = name end
    table.sort(names)
    out[#out + 1] = "}("
    for _, name in ipairs(names) do
      pickle(name, out)
      pickle(value[name], out)
    end
    out[#out + 1] = "u"
  end
end

--- A snapshot of memory: the arena is one segment, in which each storage of the plan is allocated
-- as its first step of the last run begins, and freed as its last one ends.
function formats.memory_viz(run, calls)
  local address, base = run.plan.arena_bytes, 1 << 32

  -- The last run alone: when each step began and ended.
  local begins, ends, last_run, clock = {}, {}, 0, 0
  for _, call in ipairs(calls) do last_run = math.max(last_run, call.run) end
  for _, call in ipairs(calls) do
    if call.run == last_run then
      begins[call.step] = begins[call.step] or call.at
      ends[call.step] = call.at + call.ns
      clock = math.max(clock, ends[call.step])
    end
  end

  -- A storage lives from its first value's first step to the last one's last.
  local storages, list = {}, {}
  for _, v in ipairs(run.plan:_values()) do
    if v.region == "arena" and v.bytes > 0 and v.first_step > 0 then
      local s = storages[v.storage_no]
      if not s then
        local file, line = (v.line or ""):match "^(.*):(%d+)$"
        s = { offset = v.offset_bytes, bytes = 0, from = v.first_step, to = 0,
          frames = { { name = v.blob, filename = file or "", line = math.tointeger(line) or 0 } } }
        storages[v.storage_no], list[#list + 1] = s, s
      end
      s.bytes = math.max(s.bytes, v.bytes)
      s.from, s.to = math.min(s.from, v.first_step), math.max(s.to, v.last_step, v.first_step)
    end
  end
  -- Of two events of one step the freeing of what ended before comes first.
  local events = {}
  for _, s in ipairs(list) do
    events[#events + 1] = { key = s.from * 2, action = "alloc", storage = s, at = begins[s.from] }
    events[#events + 1] = { key = s.to * 2 + 1, action = "free_completed", storage = s,
      at = ends[s.to] }
  end
  table.sort(events, function(a, b)
    if a.key ~= b.key then return a.key < b.key end
    return a.storage.offset < b.storage.offset
  end)

  -- Times never go back: an event of a step that was not measured takes that before it.
  local rows, at = { { action = "segment_alloc", addr = base, size = address, stream = 0,
    time_us = 0, frames = {} } }, 0
  for i, e in ipairs(events) do
    at = math.max(at, (e.at or at * 1000) // 1000)
    rows[i + 1] = { action = e.action, addr = base + e.storage.offset, size = e.storage.bytes,
      stream = 0, time_us = at, frames = e.storage.frames }
  end
  local out = { "\128\2" }
  pickle({
    device_traces = { rows },
    segments = { { address = base, total_size = address, allocated_size = 0, active_size = 0,
      requested_size = 0, stream = 0, device = 0, segment_type = "large", frames = {},
      blocks = { { address = base, size = address, requested_size = address, state = "inactive",
        frames = {} } } } },
  }, out)
  out[#out + 1] = "."
  return table.concat(out)
end

--- The names of the formats.
trace.formats = { "perfetto", "speedscope", "memory_viz" }

--- A run in a format.
-- @param run neap.run with op times
-- @param format string, one of trace.formats
-- @return string
function trace.text(run, format)
  local calls = calls_of(run)
  if #calls == 0 then fail "run:trace: no step was run yet" end
  return formats[format](run, calls)
end

return trace
