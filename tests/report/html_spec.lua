--- The report: one file that needs no network, whose data are the rows of the plan, and in which a
-- name is never markup. Where there is a chromium the page is opened, too.
local neap = require "neap"
local support = require "support"
local cjson = require "cjson"

local function lenet()
  return neap.zoo.lenet():plan {
    batch = 16, train = true, loss = neap.nn.CrossEntropyLoss(),
    optimizer = neap.optim.SGD { lr = 0.1, momentum = 0.9 }, store = false,
  }
end

local function data_of(page)
  local text = page:match '<script type="application/json" id="data">(.-)</script>'
  return cjson.decode(text), text
end

local chromium = support.shell "command -v chromium || command -v chromium-browser || true"
  :match "%S+"

--- What the page has written about itself once it is open.
local function opened(page, hash)
  local path = os.tmpname() .. ".html"
  local file <close> = assert(io.open(path, "wb"))
  file:write(page)
  file:close()
  local text = support.shell(("timeout 100 %s --headless --no-sandbox --disable-gpu \z
    --enable-logging=stderr --dump-dom 'file://%s#%s' 2>%s.log || true"):format(chromium, path,
    hash or "", path))
  local log = support.read_file(path .. ".log")
  os.remove(path)
  os.remove(path .. ".log")
  assert.is_nil(log:find("Uncaught", 1, true), log)
  return text
end

describe("the report of a plan:", function()
  local plan = lenet()
  local page = plan:html()

  it("is one document that asks nobody for anything", function()
    assert.is_nil(page:find "https?:")
    assert.is_nil(page:find "<link")
    assert.is_nil(page:find "src%s*=%s*[\"']")
    assert.is_nil(page:find "@import")
    assert.is_nil(page:find "fetch%(")
    assert.equal("<!doctype html>", page:sub(1, 15))
    assert.equal(2, select(2, page:gsub("</script>", "")))
  end)

  it("has the rows of the plan, column by column", function()
    local data = data_of(page)
    local side = data.sides[1]
    local function word(number) return number >= 0 and data.words[number + 1] or nil end
    local ops, values = plan:ops(), plan:values()
    assert.equal(#ops, side.n_op)
    assert.equal(#values, side.n_value)
    for i, op in ipairs(plan:_ops()) do
      for _, name in ipairs { "name", "type", "phase", "layer", "module", "kernel", "line" } do
        assert.equal(op[name], word(side.ops[name][i]), name)
      end
      for _, name in ipairs { "live_bytes", "scratch_bytes", "flops", "read_bytes" } do
        assert.equal(op[name], math.tointeger(side.ops[name][i]), name)
      end
      local from, to = side.reads.at[i], side.reads.at[i + 1]
      assert.equal(#op.ins, to - from)
      for k, v in ipairs(op.ins) do assert.equal(v, math.tointeger(side.reads.value[from + k])) end
    end
    for i, v in ipairs(plan:_values()) do
      for _, name in ipairs { "blob", "category", "region", "shape", "layer" } do
        assert.equal(v[name], word(side.values[name][i]), name)
      end
      for _, name in ipairs { "bytes", "first_step", "last_step", "storage_no" } do
        assert.equal(v[name], math.tointeger(side.values[name][i]), name)
      end
      local offset = side.values.offset_bytes[i]
      assert.equal(v.offset_bytes, offset ~= cjson.null and math.tointeger(offset) or nil)
    end
    for _, name in ipairs { "arena_bytes", "lower_bound_bytes", "baseline_bytes", "total_bytes" } do
      assert.equal(plan[name], math.tointeger(side.figures[name]), name)
    end
    assert.equal(plan.peak_step, math.tointeger(side.peak_step))
    assert.is_false(side.times)
  end)

  local hostile = "x</script><script>document.body.dataset.broken+=1</script><!--&\\"
  local function hostile_page()
    local net = neap.net "h</title><script>alert+=1</script>"
    net:outputs(net:Sum(net:Tanh(net:input("x", { 4 }), hostile), "y"))
    return net:plan({ store = false }):html()
  end

  it("a name can't end the element that it stands in", function()
    local text = hostile_page()
    assert.equal(2, select(2, text:gsub("</script>", "")))
    assert.is_nil(text:find("<script>alert", 1, true))
    assert.equal(1, select(2, text:gsub("</title>", "")))
    local data, raw = data_of(text)
    assert.is_nil(raw:find "[<&]")
    local found = false
    for _, word in ipairs(data.words) do found = found or word == hostile end
    assert.is_true(found, "the name is there as it is")
  end)

  it("of two plans has both, and what has changed between them", function()
    local other = neap.zoo.lenet():plan { batch = 8, store = false }
    local data = data_of(plan:html(nil, other))
    assert.equal(2, #data.sides)
    local change, report = 0, plan:diff(other)
    for i, row in ipairs(data.changes.rows) do
      assert.equal(report[i].layer, row[1])
      change = change + row[4] - row[3]
    end
    assert.equal(#report, #data.changes.rows)
    assert.equal(other.total_bytes - plan.total_bytes, math.tointeger(change))
    assert.error_matches(function() plan:html(nil, 3) end, "expects a plan to compare with, got 3")
  end)

  it("is written to a file, or says why not", function()
    local path = os.tmpname()
    assert.is_true(plan:html(path))
    assert.equal(page, support.read_file(path))
    os.remove(path)
    local ok, message, code = plan:html "/nowhere/at/all.html"
    assert.is_nil(ok)
    assert.equal("io", code)
    assert.is_truthy(message:find("/nowhere/at/all.html", 1, true))
  end)

  if not chromium then
    pending "chromium is not installed: pages are not opened (apt-get install chromium)"
    return
  end

  it("opens: all sections are drawn, and categories add up to what is live", function()
    for _, text in ipairs { opened(page, "theme=dark"), opened(plan:html(nil, lenet())) } do
      assert.equal("0", text:match 'data%-check="([^"]*)"')
      assert.is_truthy(text:match 'data%-opened%-ms="%d+"')
      for _, id in ipairs { "map", "live", "regions", "layers", "ops", "roofline", "run", "net" } do
        assert.is_truthy(text:find('<section id="' .. id .. '"', 1, true), id)
      end
      assert.is_truthy(text:find("neap profile run NET", 1, true), "why there are no times")
      assert.is_truthy(text:find("conv_1", 1, true))
    end
    assert.equal("dark", opened(page, "theme=dark"):match 'data%-theme="(%l+)"')
  end)

  it("opens with hostile names, which stay names", function()
    local text = opened(hostile_page())
    assert.is_nil(text:match 'data%-broken')
    assert.equal("0", text:match 'data%-check="([^"]*)"')
  end)

  it("is searched, turned dark and sorted by keys, and says what the pointer is over", function()
    local keys = [[<script>
      const out = {}, key = (k, target) => (target || window).dispatchEvent(
        new KeyboardEvent('keydown', { key: k, bubbles: true, cancelable: true }));
      key('/'); out.focus = document.activeElement.id;
      search.value = 'conv1'; search.dispatchEvent(new Event('input'));
      out.found = parseInt(found.textContent);
      key('Escape', search); out.cleared = search.value + found.textContent;
      const theme = document.documentElement.dataset.theme;
      key('t'); out.turned = document.documentElement.dataset.theme !== theme;
      const canvas = document.querySelector('#map canvas'), box = canvas.getBoundingClientRect();
      for (let y = 0.9; y > 0.1 && !tip.textContent; y -= 0.05)
        canvas.dispatchEvent(new PointerEvent('pointermove', { bubbles: true,
          clientX: box.left + box.width * 0.3, clientY: box.top + box.height * y }));
      out.tip = tip.textContent;
      document.querySelector('#layers th:nth-child(4)').click();
      out.largest = document.querySelector('#layers tbody td').textContent;
      document.body.dataset.out = JSON.stringify(out);</script>]]
    local at = #page - page:reverse():find(("</body>"):reverse(), 1, true) - 5
    local text = opened(page:sub(1, at - 1) .. keys .. page:sub(at))
    local said = text:match 'data%-out="([^"]*)"':gsub("&quot;", '"'):gsub("&gt;", ">")
    local out = cjson.decode(said)
    local n = 0
    for _, v in ipairs(plan:_values()) do n = n + (v.blob:find("conv1", 1, true) and 1 or 0) end
    assert.same({ "search", n, "", true }, { out.focus, math.tointeger(out.found), out.cleared,
      out.turned })
    assert.matches("steps %d+%-%d+", out.tip)
    assert.equal("linear1", out.largest) -- 500 times 800 weights
  end)

  it("opens for nets without an arena, with branches, loops and recomputation", function()
    local still = neap.net "still"
    still:input("x", { 2 })
    still:outputs "x"
    local loop = neap.net "loop"
    local x = loop:input("x", { 3 })
    local _, y = loop:While { init = { loop:const(0), x }, max = 5,
      cond = function(b, i) return b:Lt { i, b:const(3) } end,
      body = function(b, i, h) return b:Add { i, b:const(1) }, b:Tanh(h) end }
    loop:outputs(loop:Sum(y, "loss"))
    local deep = neap.net "deep"
    local h = deep:input("x", { 64, 32 }) * deep:param("w", { 32 }, 1)
    for _ = 1, 12 do h = deep:Exp(deep:Tanh(h)) end
    deep:outputs(deep:Sum(h, "loss"))
    deep:gradient("loss", { wrt = "w" })
    local least = deep:plan { store = false }
    for _, p in ipairs { still:plan { store = false }, loop:plan { store = false },
      deep:plan { store = false, budget = least.arena_bytes * 3 // 4 } } do
      assert.is_truthy(opened(p:html()):match 'data%-opened%-ms="%d+"', p.net)
    end
  end)
end)

describe("the report of a run:", function()
  it("has its times, in medians, and no others", function()
    local ws <close> = neap.workspace { seed = 1 }
    local net = neap.net "timed"
    net:outputs(net:Sum(net:Tanh(net:input("x", { 64, 64 })), "y"))
    local program <close> = ws:compile(net, { profile = true })
    ws:feed("x", neap.rand(64, 64))
    local run = program:profile { steps = 5 }
    local side = data_of(run:html()).sides[1]
    for i, t in ipairs(run.times) do
      assert.equal(t.median_ns, math.tointeger(side.times.median[i]))
      assert.equal(t.start_ns, math.tointeger(side.times.start[i]))
    end
    assert.equal(run.median_ns, math.tointeger(side.step_ns))
    assert.error_matches(function() run:html(nil, net:plan()) end, "expects a run to compare with")
  end)

  it("has the roof that neap sql roofline has: the fastest op, where that was faster", function()
    if not chromium then return pending "chromium is not installed: pages are not opened" end
    local db, path = support.open_db()
    local function said(per_second)
      assert(db:_note_peak("f32", 1, per_second))
      assert(db:_note_peak("memory", 1, 1e11))
      local ws <close> = neap.workspace { seed = 1 }
      local net = neap.net "roof"
      net:outputs(net:MatMul { net:input("a", { 64, 64 }), net:input("b", { 64, 64 }) })
      local program <close> = ws:compile(net)
      for _, name in ipairs { "a", "b" } do ws:feed(name, neap.rand(64, 64)) end
      program:run(3)
      local page = opened(require("neap.plan").run(program):html())
      local words, roof = page:match ">f32: ([%l, ]+): ([%d.]+) GFLOP/s"
      program:close()
      local row = assert(db:query("roofline", { net = "roof" }))[1]
      assert.equal(row.machine_gflop_per_s, tonumber(roof))
      assert.equal((words:find("fastest op", 1, true) and "fastest op" or "measured")
        .. " in f32", row.roof)
      return row.roof
    end
    assert.equal("fastest op in f32", said(1e3))
    assert.equal("measured in f32", said(1e15))

    -- roofs that are near to each other have words that are apart; bytes with a sign and without
    -- have one
    local ws <close> = neap.workspace { seed = 1 }
    local net = neap.net "roofs"
    local one, y = net:param("one", {}, { "Constant", value = 1 }), {}
    for i, dtype in ipairs { "u8", "i8" } do
      local x = net:param(dtype, { 64, 64 }, { "Constant", value = 1 }, { dtype = dtype })
      y[i] = net:QLinearMatMul { x, one, false, x, one, false, one }
    end
    for i, dtype in ipairs { "f32", "f64" } do
      local x = net:param(dtype, { 64, 64 }, { "Xavier" }, { dtype = dtype })
      y[i + 2] = net:MatMul { x, x }
    end
    net:outputs(y)
    ws:init(net)
    for i, what in ipairs { "f32", "i8", "f64" } do
      assert(db:_note_peak(what, 1, 1e15 * (1 + i / 10)))
    end
    local program <close> = ws:compile(net)
    program:run(3)
    local page, at, words = opened(require("neap.plan").run(program):html()), {}, {}
    for attributes, what in page:gmatch "<text([^>]* class=\"roof\"[^>]*)>(%w+): " do
      words[#words + 1] = what
      at[#at + 1] = tonumber(attributes:match " y=\"([%d.]+)\"")
    end
    assert.same({ "f64", "i8", "f32" }, words)
    for i = 2, #at do assert.is_true(at[i] - at[i - 1] >= 13) end
    support.close_db(db, path)
  end)
end)
