--- Traces of the last steps: intervals nest, counters go forward in time, and what ops take is what
-- the run says.
local neap = require "neap"
local support = require "support"
local cjson = require "cjson"

local function profiled(steps, options)
  local ws, net = neap.workspace { seed = 1 }, neap.net "traced"
  local x = net:input("x", { 32, 32 })
  for k = 1, 3 do
    net:scope("block" .. k, function()
      x = net:Tanh(net:MatMul({ x, net:param("w", { 32, 32 }, 0.1) }, "h\\" .. k))
    end)
  end
  net:gradient(net:Sum(x, "loss"))
  net:outputs "loss"
  ws:init(net)
  local o = { profile = true }
  for name, value in pairs(options or {}) do o[name] = value end
  local program = ws:compile(net, o)
  ws:feed("x", neap.rand(32, 32))
  return program:profile { steps = steps }, ws, program
end

--- Whether each interval lies within an open one or behind all of them: {from, to} in order.
local function check_nested(list)
  local open = {}
  for _, i in ipairs(list) do
    while #open > 0 and open[#open].to <= i.from and open[#open].depth >= i.depth do
      table.remove(open)
    end
    local above = open[#open]
    assert.is_true(not above or (i.from >= above.from and i.to <= above.to), i.name)
    open[#open + 1] = i
  end
end

--- Reads a snapshot as memory_viz does, checks it, and prints how many blocks the segment had.
local reader = [==[
import pickle, sys
d = pickle.load(open(sys.argv[1], "rb"))
seg = d["segments"][0]
live, most, last, n = {}, 0, 0, 0
for e in d["device_traces"][0]:
    assert e["time_us"] >= last; last = e["time_us"]
    if e["action"] == "alloc":
        n += 1
        a, z = e["addr"], e["addr"] + e["size"]
        assert seg["address"] <= a and z <= seg["address"] + seg["total_size"]
        assert all(z <= b or c <= a for b, c in live.values()), e
        live[a] = (a, z)
    elif e["action"] == "free_completed":
        del live[e["addr"]]
assert not live
print(n, seg["total_size"])
]==]

--- A field's type, and for a list that of its items, by the fields that the format's documentation
-- names; those that end in ? may be missing. Raises for a field that is not named there.
local function check_fields(what, object, fields)
  local known = {}
  for name, kind in pairs(fields) do
    local key = name:gsub("%?$", "")
    known[key] = true
    local value = object[key]
    if value == nil then
      assert.is_truthy(name:find "%?$", what .. " has no " .. key)
    elseif kind == "integer" then
      assert.is_true(type(value) == "number" and value == math.floor(value), what .. "." .. key)
    elseif type(kind) == "table" then
      local is_word = false
      for _, word in ipairs(kind) do is_word = is_word or value == word end
      assert.is_true(is_word, what .. "." .. key .. " " .. tostring(value))
    else
      assert.equal(kind, type(value), what .. "." .. key)
    end
  end
  for key in pairs(object) do assert.is_true(known[key], what .. "." .. key .. " is unknown") end
end

-- The Trace Event Format, by its document: what events of each phase have.
local event_fields = {
  X = { name = "string", cat = "string", ph = { "X" }, pid = "integer", tid = "integer",
    ts = "number", dur = "number", ["args?"] = "table" },
  C = { name = "string", ph = { "C" }, pid = "integer", ts = "number", args = "table" },
  M = { name = { "process_name", "thread_name" }, ph = { "M" }, pid = "integer", tid = "integer",
    args = "table" },
}

-- speedscope's file format, by the types that it publishes.
local profile_fields = {
  file = { version = "string",
    ["$schema"] = { "https://www.speedscope.app/file-format-schema.json" },
    shared = "table", profiles = "table", ["name?"] = "string", ["exporter?"] = "string",
    ["activeProfileIndex?"] = "integer" },
  frame = { name = "string", ["file?"] = "string", ["line?"] = "integer", ["col?"] = "integer" },
  profile = { type = { "evented" }, name = "string", unit = { "nanoseconds" },
    startValue = "number", endValue = "number", events = "table" },
  event = { type = { "O", "C" }, at = "number", frame = "integer" },
}

local depth_of = { step = 1, phase = 2, layer = 3, op = 4 }

--- A time of the trace in whole ns.
local function ns(us) return math.floor(us * 1000 + 0.5) end

describe("a trace", function()
  for _, options in ipairs { {}, { executor = "dag" }, { policy = "pool" } } do
    local what = options.executor or options.policy or "simple"
    it("for Perfetto has each op in its layer, phase and step, and its times: " .. what, function()
      local run, ws, program = profiled(20, options)
      local _ <close> = ws
      local _ <close> = program
      local events = cjson.decode(run:trace()).traceEvents
      local threads, took, last, steps, counted = {}, {}, -1, {}, 0
      for _, e in ipairs(events) do
        check_fields("event", e, assert(event_fields[e.ph], e.ph))
        for key, value in pairs(e.args or {}) do
          assert.is_true(e.ph ~= "C" or type(value) == "number", key)
          assert.is_true(e.ph ~= "M" or key == "name" and type(value) == "string", key)
        end
        if e.ph == "X" then
          assert.is_true(e.ts >= 0 and e.dur >= 0, e.name)
          threads[e.tid] = threads[e.tid] or {}
          table.insert(threads[e.tid], { name = e.name, from = ns(e.ts), to = ns(e.ts) + ns(e.dur),
            depth = depth_of[e.cat] })
          if e.cat == "op" then took[e.args.step] = ns(e.dur) end
          if e.cat == "step" then steps[e.name] = true end
        elseif e.ph == "C" then
          assert.is_true(e.ts >= last, "counters go forward")
          last, counted = e.ts, counted + 1
        else
          assert.equal("M", e.ph)
        end
      end
      for _, list in pairs(threads) do check_nested(list) end
      local sum, all, n = 0, 0, 0
      for s, t in ipairs(run.times) do
        sum, all = sum + took[s], all + t.last_ns
        assert.equal(t.last_ns, took[s])
      end
      assert.equal(all, sum)
      for _ in pairs(steps) do n = n + 1 end
      assert.equal(15, n) -- the rings have so many calls
      assert.equal(15 * #run.times + 1, counted)
      assert.is_true(steps["step 20"] and not steps["step 5"])
    end)
  end

  it("for speedscope closes what it opens, the last first", function()
    local run, ws, program = profiled(3)
    local _ <close> = ws
    local _ <close> = program
    local data = cjson.decode(run:trace(nil, { format = "speedscope" }))
    assert.is_true(#data.profiles >= 1)
    check_fields("file", data, profile_fields.file)
    for _, frame in ipairs(data.shared.frames) do
      check_fields("frame", frame, profile_fields.frame)
    end
    for _, profile in ipairs(data.profiles) do
      check_fields("profile", profile, profile_fields.profile)
      for _, e in ipairs(profile.events) do check_fields("event", e, profile_fields.event) end
      local open, at = {}, 0
      for _, e in ipairs(profile.events) do
        assert.is_true(e.at >= at)
        at = e.at
        assert.is_truthy(data.shared.frames[e.frame + 1])
        if e.type == "O" then
          open[#open + 1] = e.frame
        else
          assert.equal(table.remove(open), e.frame)
        end
      end
      assert.equal(0, #open)
      assert.equal(profile.endValue, at)
    end
  end)

  it("for memory_viz is a pickle whose blocks lie in the arena, and none on another", function()
    local run, ws, program = profiled(2)
    local _ <close> = ws
    local _ <close> = program
    local path = os.tmpname()
    assert.is_true(run:trace(path, { format = "memory_viz" }))
    local bytes = support.read_file(path)
    assert.equal("\128\2", bytes:sub(1, 2))
    assert.equal(".", bytes:sub(-1))
    if support.shell "command -v python3 || true" == "" then
      os.remove(path)
      return
    end
    local script = path .. ".py"
    support.write_file(script, reader)
    local out = support.shell(("python3 %s %s"):format(script, path))
    os.remove(script)
    os.remove(path)
    local storages, n = {}, 0
    for _, v in ipairs(run.plan:_values()) do
      if v.region == "arena" and v.bytes > 0 and not storages[v.storage_no] then
        storages[v.storage_no], n = true, n + 1
      end
    end
    assert.equal(("%d %d\n"):format(n, run.plan.arena_bytes), out)
  end)

  it("allocates nothing while it measures, and says what it can't do", function()
    local run, ws, program = profiled(3)
    local _ <close> = ws
    local _ <close> = program
    program:run(20)
    assert.equal(0, program:stats().n_alloc)
    assert.error_matches(function() run:trace(nil, { format = "xml" }) end, '"perfetto"')
    local ok, _, code = run:trace "/nowhere/at/all.json"
    assert.is_nil(ok)
    assert.equal("io", code)
  end)
end)
