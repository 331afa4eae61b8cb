-- demo: four questions to one net, a character GPT that learns from this repository's own sources.
-- Run by `make demo`. Every figure is measured or proved while it runs; what could not be is left
-- out. NEAP_DEMO_SECONDS: how long it trains (45); below 5 the other parts are short too, which is
-- what the tests do.
local neap = require "neap"
local core = require "neap.core"
local netfile = require "neap.net.file"
local progress = require "neap.progress"

local seconds = tonumber(os.getenv "NEAP_DEMO_SECONDS") or 45
local short = seconds < 5
local program = (os.getenv "NEAP_BUILD" or "build") .. "/neap"
local db_path = neap.db_path()
local start = core.clock()

local net_name = "chargpt"
local file = netfile.load(net_name)
local batch, length = file.batch, file.length

local bytes = neap.bytes
local function say(format, ...) print(select("#", ...) > 0 and format:format(...) or format) end
local function title(format, ...) say("\n" .. format, ...) end
local function mib(n) return ("%.1f"):format(n / 2 ^ 20) end

--- 27400 -> "27,400"
local function thousands(n)
  local text = ("%d"):format(math.floor(n + 0.5))
  repeat
    local n_changed
    text, n_changed = text:gsub("^(%d+)(%d%d%d)", "%1,%2")
  until n_changed == 0
  return text
end

--- Prints a text below `indent` blanks, each of its lines broken between words to fit the screen.
local function say_wrapped(indent, text)
  local most = math.max(60, math.min(core.terminal_width() or 120, 140)) - indent
  for given in text:gmatch "[^\n]+" do
    local line = given:match "^ *"
    for word in given:gmatch "%S+" do
      if line:find "%S" and utf8.len(line .. " " .. word) > most then
        print((" "):rep(indent) .. line)
        line = "    " .. word
      else
        line = line:find "%S" and line .. " " .. word or line .. word
      end
    end
    print((" "):rep(indent) .. line)
  end
end

--- Shows a command that can be typed here, and what it prints.
local function command(...)
  local words = { program, ... }
  for i, word in ipairs(words) do
    if word:match "[^%w%._/:=%-]" then words[i] = '"' .. word .. '"' end
  end
  local text = table.concat(words, " ")
  say("     $ %s", text)
  io.stdout:flush()
  local pipe = assert(io.popen(text))
  for line in pipe:lines() do print("     " .. line) end
  if not pipe:close() then error(("\"%s\" failed"):format(text), 0) end
end

-- ---- 1: will it fit? ----------------------------------------------------------------------------

local function will_it_fit()
  local net = netfile.build(file, { train = true })
  local before, asked = core.memory().held, core.clock()
  local plan = net:plan {}
  local took, grown = core.clock() - asked, core.memory().held - before
  local at_peak = plan:ops()[plan.peak_step]
  local n_parameter = plan:summary().parameters

  title("1/4  WILL IT FIT?  A character GPT, 4 layers, %.2f M parameters, batch %d x %d   \z
    scripts/nets/%s.lua", n_parameter / 1e6, batch, length, net_name)
  say(
    "     without reuse %s   planned %s   least for these kernels and this order \z
      %s%s   peak at %s%s", bytes(plan.baseline_bytes), bytes(plan.arena_bytes),
    bytes(plan.lower_bound_bytes), plan.proved and " (proved)" or "", at_peak.name,
    at_peak.line and at_peak.line ~= "" and ", " .. at_peak.line or "")
  local parts = {}
  for _, row in ipairs(plan:forecast()) do
    if row.region ~= "total" then
      parts[#parts + 1] = ("%s %s"):format(row.region, mib(row.bytes))
    end
  end
  say("     forecast %s  =  total %s", table.concat(parts, "  "), bytes(plan.total_bytes))
  say("     memory over one step   %s   forward → backward → update", tostring(plan:curve()))
  say("     planned in %.0f ms, %d ops, %d values; %s allocated for it: a plan needs no \z
    memory of the net's", took * 1e3, plan.n_op, plan.n_value, bytes(grown))
  return plan
end

-- ---- 2: train -----------------------------------------------------------------------------------

--- Every tenth file of this repository's sources goes last: the part held out is whole files that
-- training never sees.
-- @return {paths =, bytes =, holdout = share of the bytes, n_unseen = files}
local function sources()
  local pipe <close> = assert(io.popen(
    "find . \\( -path './build*' -o -path ./.git -o -path ./data \\) -prune -o -type f "
      .. "\\( -name '*.c' -o -name '*.h' -o -name '*.lua' -o -name '*.md' -o -name '*.sql' \\) \z
        -print | LC_ALL=C sort"))

  -- Files by name, so that each run holds out the same.
  local seen, unseen, n_seen, n_unseen, i = {}, {}, 0, 0, 0
  for path in pipe:lines() do
    local source <close> = assert(io.open(path, "rb"))
    local n = source:seek "end"
    i = i + 1
    if i % 10 == 0 then
      unseen[#unseen + 1], n_unseen = path, n_unseen + n
    else
      seen[#seen + 1], n_seen = path, n_seen + n
    end
  end
  return {
    paths = table.move(unseen, 1, #unseen, #seen + 1, seen), bytes = n_seen + n_unseen,
    holdout = n_unseen / (n_seen + n_unseen),
    n_unseen = #unseen,
  }
end

local vocabulary = { "\127", "\n" } -- number 0 stands for any other byte
for c = 32, 126 do vocabulary[#vocabulary + 1] = string.char(c) end

--- Draws `n` characters after `text` from the trained net, at temperature `t`.
local function sample(trainer, set, text, n, t)
  local ids = set.encode(text)
  for _ = 1, n do
    local window = table.move(ids, math.max(1, #ids - length + 1), #ids, 1, {})
    local last = #window
    while #window < length do window[#window + 1] = 0 end -- behind `last`: attention is causal

    -- A draw by shares exp(logit / t); the largest is taken off first, so that none overflows.
    local logits = trainer:predict(neap.tensor({ window }, "i64"))[{ 1, last }]:totable()
    local most, sum = math.max(table.unpack(logits)), 0
    for c, logit in ipairs(logits) do
      logits[c] = math.exp((logit - most) / t)
      sum = sum + logits[c]
    end

    local u, c = math.random() * sum, 1
    while u > logits[c] and c < #logits do
      u, c = u - logits[c], c + 1
    end
    ids[#ids + 1] = c - 1
  end
  return (set.decode(ids):gsub("\127", "?"))
end

local function new_trainer(memory, schedule)
  local again = netfile.load(net_name)
  return neap.trainer {
    model = again.model, loss = again.loss, optimizer = again.optimizer, seed = 1, name = net_name,
    memory = memory,
    schedule = schedule, nan = "off",
  } -- the very net that `neap plan chargpt --train` plans
end

--- Makes the program of a step, and with it all the memory it will use.
-- @return plan, bytes now held for it: counted by the allocator, which knows nothing of the plan
local function compile(trainer)
  collectgarbage()
  local before = core.memory().held
  local plan = trainer:plan(batch)
  return plan, core.memory().held - before
end

--- Windows of the corpus: overlapping ones to train on, every third one of the files held out to
-- judge by.
local function text_set(corpus, split)
  local training = split == "train"
  return neap.data.text {
    path = corpus.paths, holdout = corpus.holdout, vocabulary = vocabulary, unknown = 0,
    length = length, batch = batch, split = split,
    stride = training and length // 4 or 3 * length, shuffle = training, seed = 7, last = "drop",
  }
end

--- Steps until the time is over. @return {n, first, loss, seconds, allocations = most in any step
-- after the first}
local function train_for(trainer, set, most_seconds)
  local is_terminal = core.is_terminal()
  local bar <close> = progress.new { title = "     second", total = math.ceil(most_seconds) }
  local r, began, shown, epoch = { n = 0, allocations = 0, seconds = 0 }, core.clock(), 0, 0
  repeat
    epoch = epoch + 1
    for rows in set:epoch(epoch) do
      local before = core.memory().n_alloc
      local loss = trainer:step(rows).loss
      r.n = r.n + 1
      if r.n > 1 then r.allocations = math.max(r.allocations, core.memory().n_alloc - before) end
      r.first = r.first or loss
      r.loss = r.loss and 0.95 * r.loss + 0.05 * loss or loss -- smoothed over some twenty steps
      r.seconds = core.clock() - began
      bar:update(math.floor(r.seconds), { loss = r.loss })
      if not is_terminal and r.seconds - shown >= most_seconds / 5 then
        shown = r.seconds
        say("     %3.0f s   step %4d   loss %.2f", r.seconds, r.n, r.loss)
        io.stdout:flush()
      end
      if r.seconds >= most_seconds and r.n > 1 then break end
    end
  until r.seconds >= most_seconds and r.n > 1
  return r
end

local function train(corpus)
  title(
    "2/4  TRAIN  on this repository's own sources (%.1f MB), %.0f s; %d of %d files are held out",
    corpus.bytes / 1e6, seconds, corpus.n_unseen, #corpus.paths)

  -- The rate rises over a twentieth of the time, and falls along half a cosine.
  local set, valid = text_set(corpus, "train"), text_set(corpus, "valid")
  local began = core.clock()
  local trainer <close> = new_trainer(nil, function(_, lr)
    local done = math.min(1, (core.clock() - began) / seconds)
    return lr * math.min(1, 20 * done) * math.max(0.03, 0.5 * (1 + math.cos(math.pi * done)))
  end)
  local plan, held = compile(trainer)

  local r = train_for(trainer, set, seconds)
  local resident = core.memory().resident_peak
  local judged = trainer:evaluate(valid)
  say("     %d steps in %.0f s   loss %.2f → %.2f   validation %.2f nats/char   %s char/s", r.n,
    r.seconds, r.first, r.loss, judged.loss, thousands(r.n * batch * length / r.seconds))
  say(
    "     forecast %s (%s bytes)   held %s (%s bytes)   allocations in steps 2-%d: %d   process \z
      peak %s resident", bytes(plan.total_bytes), thousands(plan.total_bytes), bytes(held),
    thousands(held), r.n, r.allocations, bytes(resident))
  math.randomseed(1)
  local written = sample(trainer, set, "\n", short and 20 or 240, 0.7)
  say("     it writes:")
  for line in written:gmatch "[^\n]+" do say("     | %s", line) end
end

-- ---- 3: planned = unplanned ---------------------------------------------------------------------

local function read_all(path)
  local stream <close> = assert(io.open(path, "rb"))
  return stream:read "a"
end

--- A few steps with some memory options. @return the bytes of the checkpoint (parameters and
-- optimizer state), plan, held, ms a step
local function steps_under(memory, corpus, n)
  local set, path = text_set(corpus, "train"), os.getenv "NEAP_DB":gsub("%.db$", ".safetensors")
  local trainer <close> = new_trainer(memory)
  local program_plan, held = compile(trainer)
  local plan = {
    arena_bytes = program_plan.arena_bytes,
    n_op = program_plan.n_op,
    n_recomputed = program_plan.n_recomputed,
  }

  -- The fastest step counts; the checkpoint is what the three are compared by.
  local done, fastest = 0, math.huge
  for rows in set:epoch(1) do
    local began = core.clock()
    trainer:step(rows)
    fastest = math.min(fastest, core.clock() - began)
    done = done + 1
    if done == n then break end
  end

  assert(trainer:save(path))
  local text = read_all(path)
  os.remove(path)
  return text, plan, held, fastest * 1e3
end

local function planned_is_unplanned(corpus)
  local n = short and 2 or 10
  title("3/4  PLANNED = UNPLANNED  the same %d steps three times: every value in bytes of its \z
    own, then with shared bytes, then in half of those", n)
  local unplanned, none, held_none = steps_under({ policy = "none" }, corpus, n)
  local planned, plan, held, ms = steps_under({ policy = "offset" }, corpus, n)

  local half = mib(plan.arena_bytes / 2) .. "MiB"
  local squeezed, less, held_less, ms_less = steps_under({ budget = half }, corpus, n)
  if unplanned ~= planned or planned ~= squeezed then
    error("planned and unplanned steps differ: this is a bug in Neap", 0)
  end
  say("     policy \"none\": arena %s, held %s   planned: arena %s, held %s (%.0f %% less)",
    bytes(none.arena_bytes), bytes(held_none), bytes(plan.arena_bytes), bytes(held),
    100 * (1 - held / held_none))
  say(
    "     memory = { budget = \"%s\" }: arena %s, held %s   %d of %d ops run again in the \z
      backward pass   step %.0f → %.0f ms", half, bytes(less.arena_bytes), bytes(held_less),
    less.n_recomputed, less.n_op - less.n_recomputed, ms, ms_less)
  say("     parameters and optimizer state after %d steps: %s bytes compared, all identical", n,
    thousands(#planned))
  -- No plan fits a twentieth: refused, before anything runs.
  local asked = mib(plan.arena_bytes / 20) .. "MiB"
  local tight <close> = new_trainer { budget = asked }
  local ok, refusal = pcall(tight.plan, tight, batch)
  if ok then error("a budget below what one op takes was accepted: this is a bug in Neap", 0) end
  say("     memory = { budget = \"%s\" }, below the least, is refused before anything runs:", asked)
  say_wrapped(7, tostring(refusal))
end

-- ---- 4: ask -------------------------------------------------------------------------------------

local function ask(plan)
  title("4/4  ASK  every plan and run is now rows in %s (plain SQLite)", db_path)
  command("sql", "--db", db_path, "select blob, role, bytes, line from v_peak where net = \z
    'chargpt' and mode = 'train' and newest order by bytes desc limit 3")
  command("sql", "--db", db_path, "select net, mode, policy, n_step, step_min_ns / 1000000 as ms, \z
    arena_bytes, lower_bound_bytes from v_run "
    .. "where n_step > 1 order by run_id")
  command("plan", net_name, "--train", "--explain", plan:peak()[1].blob)
end

-- ---- MNIST, where it is -------------------------------------------------------------------------

local function mnist()
  if not neap.data.find("mnist/train-images-idx3-ubyte.gz", "mnist/train-images-idx3-ubyte",
      "train-images-idx3-ubyte.gz", "train-images-idx3-ubyte") then
    return
  end
  local lenet = netfile.load "lenet"
  local set = neap.data.mnist { split = "train", batch = lenet.batch, limit = short and 640 or nil }
  local test = neap.data.mnist { split = "test", batch = 100, limit = short and 500 or nil }
  local trainer <close> = neap.trainer {
    model = lenet.model, metrics = { "accuracy" }, seed = 1, name = "lenet",
    optimizer = neap.optim.SGD { lr = 0.02, momentum = 0.9, weight_decay = 5e-4 },
    schedule = neap.optim.cosine { #set },
  }
  local plan, began, took, n = trainer:plan(lenet.batch), core.clock(), 0, 0
  for rows in set:epoch(1) do
    trainer:step(rows)
    took, n = core.clock() - began, n + rows.n
    if took > 30 then break end -- a busy machine: as much of the epoch as there is time for
  end
  title("MNIST  LeNet, %s images%s   %.1f s   test accuracy %.1f %%   arena %s%s", thousands(n),
    n == 60000 and ", 1 epoch" or "", took, 100 * trainer:evaluate(test).accuracy,
    bytes(plan.arena_bytes),
    plan.arena_bytes == plan.lower_bound_bytes and " = least for these kernels and this order"
      or "")
end

-- ---- the tour -----------------------------------------------------------------------------------

say("neap %s · %d threads · %s · %s", neap.version, core.threads(), core.instruction_set,
  (core.kernels:gsub("^neap [^;]*; ", ""):gsub("; ", " · ")))
local plan = will_it_fit()
local corpus = sources()
train(corpus)
planned_is_unplanned(corpus)
ask(plan)
mnist()

local took = core.clock() - start
say("\nAll figures above were measured or proved in this run (%d min %02d s). Now try:", took // 60,
  math.floor(took % 60))
say "  build/neap                                    the REPL: a Lua prompt; type help()"
say "  build/neap plan resnet50 --train --batch 16   will it fit? no data, no allocation"
say "  build/neap plan chargpt --train --peak        what is alive when the most is"
say "  build/neap run scripts/examples/xor.lua       a net of named blobs in 30 lines; gpt.lua, \z
  lenet.lua, cifar.lua beside it"
say "  build/neap sql --db build/demo.db peak        a query by name: also plans, runs, layer, \z
  largest, who_shares"
