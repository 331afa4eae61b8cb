--- What several specs need: expecting errors, counting held bytes, numbers that are the same for
-- everybody, processes, pictures. Found as `require "support"` because tests/run.lua looks for
-- modules in tests/. What one spec alone needs stays in that spec.
local core = require "neap.core"
local neap = require "neap"
local assert = require "luassert"

local M = {}

--- The program under test, as a path from the repository's root.
M.program = (os.getenv "NEAP_BUILD" or "build") .. "/neap"

--- Nets of the zoo, of every structure, for what is swept over many plans of each; that each net of
-- the zoo is planned and run is tests/unit/zoo_spec.lua's.
M.nets = {
  "alexnet", "chargpt", "googlenet", "gpt", "lenet", "lstm", "mlp", "resnet110", "resnet18c",
  "resnet50", "squeezenet1_1", "vgg16", "vgg_a",
}

--- Engines
-- -------------------------------------------------------------------------------------------------

--- Whether this build has sanitizers: they take addresses and blocks of their own.
M.sanitized = (function()
  local file <close> = io.open((os.getenv "NEAP_BUILD" or "build") .. "/flags")
  return file ~= nil and file:read("a"):find("-fsanitize", 1, true) ~= nil
end)()

--- Names of the engines that can be had in this build, in their order; `but` is left out.
-- @tparam[opt] string but
-- @treturn {string,...}
function M.engines(but)
  local names = {}
  for _, row in ipairs(core.engines) do
    if not row.missing and row.name ~= but then names[#names + 1] = row.name end
  end
  return names
end

--- The last of them, for tests that hold whatever the library is: dnnl where this build has it.
-- @treturn string
function M.last_engine()
  local names = M.engines()
  return names[#names]
end

--- Whether an engine can be had in this build.
-- @tparam string name
-- @treturn bool
function M.has_engine(name)
  for _, row in ipairs(core.engines) do
    if row.name == name then return row.missing == nil end
  end
  error("there is no engine " .. name)
end

--- Errors
-- -------------------------------------------------------------------------------------------------

--- Runs f(...), which must raise.
-- @tparam string|{string,...} words plain text that the message must contain, each of them
-- @tparam function f
-- @return the error
function M.raises(words, f, ...)
  local ok, err = pcall(f, ...)
  words = type(words) == "table" and words or { words }
  assert.is_false(ok, "nothing was raised, expected: " .. table.concat(words, ", "))
  for _, word in ipairs(words) do
    assert.is_truthy(tostring(err):find(word, 1, true),
      ("%q is not in %q"):format(word, tostring(err)))
  end
  return err
end

--- Memory
-- -------------------------------------------------------------------------------------------------

--- Collects what nothing refers to, and what its finalisers let go of.
function M.settle()
  for _ = 1, 3 do collectgarbage() end
end

--- Tensor bytes held once nothing is left to collect: what a finaliser lets go of waits for the
-- next round.
-- @treturn integer
function M.held()
  local before
  repeat
    before = neap.memory().held
    M.settle()
  until neap.memory().held == before
  return before
end

--- Runs
-- -------------------------------------------------------------------------------------------------

--- Runs a net once, without the database, in a workspace of its own whose recycled bytes are
-- poisoned.
-- @tparam Net net
-- @tparam[opt] {[string]=Tensor} feeds
-- @tparam[opt] table memory options of ws:compile
-- @treturn {[string]=Tensor} the net's outputs, which outlive the workspace
function M.run(net, feeds, memory)
  local ws <close> = neap.workspace { seed = 1, store = false }
  ws:poison(true)
  ws:init(net)
  for name, t in pairs(feeds or {}) do ws:feed(name, t) end
  local program <close> = ws:compile(net, memory)
  program:run()
  local out = {}
  for _, name in ipairs(net:outputs()) do out[name] = ws:fetch(name) end
  return out
end

--- Name and hash of a workspace's tensor blobs, sorted: equal texts mean equal bits.
-- @tparam Workspace ws
-- @tparam function wanted f(row of ws:_blobs()) -> whether the blob counts
-- @treturn string
function M.hashes(ws, wanted)
  local lines = {}
  for _, blob in ipairs(ws:_blobs()) do
    if blob.kind == "tensor" and wanted(blob) then
      lines[#lines + 1] = blob.name .. " " .. ws:view(blob.name):hash()
    end
  end
  table.sort(lines)
  return table.concat(lines, "\n")
end

--- Bits of every parameter and state of a workspace, and its step: what a step that fails must
-- leave as it was.
-- @treturn string
function M.state_of(ws)
  return M.hashes(ws, function(blob) return blob.role == "parameter" or blob.role == "state" end)
    .. "\nstep " .. ws:step()
end

--- Runs a scene again and again, each time with a later block of memory refused in one of its
-- calls, until the call passes with none refused.
-- @tparam int stride between the blocks that are refused: 1, 1 + stride ..
-- @tparam bool persist all after that block are refused too
-- @tparam function scene scene(refused): sets up, makes the call by refused(f, ...), which returns
--   whether it passed and holds
-- that a failure is one of memory, and then holds what must
function M.refuse_in_turn(stride, persist, scene)
  local n, done = 1, false
  while not done do
    assert.is_true(n < 4000, "the call never passed")
    scene(function(f, ...)
      M.settle()
      core.fail_nth(n, persist)
      local ok, err = pcall(f, ...)
      done = ok and not core.failed()
      core.fail_nth(0)
      if not ok then
        assert.are.equal("memory", type(err) == "table" and err.code or tostring(err))
      end
      return ok
    end)
    n = n + stride
  end
end

--- Numbers
-- -------------------------------------------------------------------------------------------------

--- A filler of tensors with numbers that are the same on every machine: multiples of the golden
-- ratio modulo 1, which spread evenly. Each tensor goes on where the last one ended.
-- @tparam number at where to begin
-- @treturn function fill(t, n_class) -> t: floats in [-1, 1), or with n_class whole numbers in [0,
--   n_class)
function M.filler(at)
  return function(t, n_class)
    return t:apply_(function()
      at = (at + 0.61803398875) % 1
      return n_class and at * n_class // 1 or 2 * at - 1
    end)
  end
end

--- A batch for a classifier.
-- @tparam {int,...} shape of x, its first extent the rows
-- @tparam int n_class
-- @tparam number at where the numbers begin
-- @treturn Tensor x
-- @treturn Tensor y labels, i64
function M.batch(shape, n_class, at)
  local fill = M.filler(at)
  local x = fill(neap.zeros(shape))
  return x, fill(neap.zeros { shape[1], dtype = "i64" }, n_class)
end

--- Files and processes
-- -------------------------------------------------------------------------------------------------

--- A file's bytes, nil when it can't be opened.
function M.read_file(path)
  local file = io.open(path, "rb")
  local text = file and file:read "a"
  if file then file:close() end
  return text
end

function M.write_file(path, text)
  local file = assert(io.open(path, "wb"))
  assert(file:write(text))
  file:close()
end

--- A database of the spec's own, in use from here to close_db: for setup and teardown.
-- @return db, path
function M.open_db()
  local path = os.tmpname()
  os.remove(path)
  local db = assert(neap.db(path))
  neap.use_db(db)
  return db, path
end

function M.close_db(db, path)
  neap.use_db(false)
  db:close()
  os.execute("rm -f '" .. path .. "'*")
end

--- Runs a command of the shell.
-- @treturn string its standard output
-- @treturn int its exit code
function M.shell(command)
  local pipe = assert(io.popen(command .. "; echo \"=$?\""))
  local text = pipe:read "a"
  pipe:close()
  local out, code = text:match "^(.*)=(%d+)\n$"
  return out, math.tointeger(code)
end

--- Pictures
-- -------------------------------------------------------------------------------------------------

M.has_dot = os.execute "command -v dot >/dev/null 2>&1"

--- What `dot` makes of a text, which must please it; without graphviz only braces and quotes are
-- counted.
-- @treturn ?string SVG
function M.render(text)
  local plain = text:gsub('\\"', ""):gsub('"[^"]*"', '""')
  assert.are.equal(select(2, plain:gsub("{", "")), select(2, plain:gsub("}", "")))
  assert.are.equal(0, select(2, text:gsub('\\"', ""):gsub('"', "")) % 2)
  if not M.has_dot then return nil end
  local path = os.tmpname()
  M.write_file(path, text)
  local svg, code = M.shell("dot -Tsvg '" .. path .. "' 2>&1")
  os.remove(path)
  assert.are.equal(0, code, svg)
  assert.is_falsy(svg:find("Error", 1, true) or svg:find("Warning", 1, true), svg)
  return svg
end

--- {name = {label =, colour =}}, {{from, to}, ..} and {cluster, ..} of a DOT text.
function M.read_dot(text)
  local nodes, edges, clusters = {}, {}, {}
  for line in text:gmatch "[^\n]+" do
    local from, to = line:match "^%s*([%w_]+) %-> ([%w_]+)"
    local name, attrs = line:match "^%s*([%w_]+) %[(.*)%];$"
    if from then
      edges[#edges + 1] = { from, to }
    elseif name and name ~= "node" and name ~= "edge" then
      nodes[name] = {
        label = attrs:match 'label="([^"]*)"', colour = attrs:match 'fillcolor="([^"]*)"',
      }
    end
    clusters[#clusters + 1] = line:match "subgraph (cluster_[%w_]+) {"
  end
  return nodes, edges, clusters
end

--- Whether oneDNN has Winograd's algorithm here, which takes scratch that others do without: it
-- does where the processor has AVX-512.
function M.has_winograd()
  for _, e in ipairs(core.engines) do
    if e.name == "dnnl" and e.missing then return false end
  end
  local net = neap.net "winograd"
  local x = net:input("x", { 8, 64, 28, 28 })
  local w = net:param("w", { 64, 64, 3, 3 }, { "Xavier" })
  net:outputs(net:op("Conv", { x, w }, { "y" }, { pad = 1 }))
  for _, op in ipairs(net:plan({ engine = "dnnl", fuse = false, store = false }):ops()) do
    if op.algorithm == "winograd" then return true end
  end
  return false
end

--- Every xml tag is closed, in order, and no text holds a bare & or a figure that is not a number.
function M.check_xml(svg)
  local open = {}
  for slash, name, rest in svg:gmatch "<(/?)([%w]+)([^<>]*)>" do
    if slash == "/" then
      assert.are.equal(table.remove(open), name)
    elseif rest:sub(-1) ~= "/" then
      open[#open + 1] = name
    end
  end
  assert.are.equal(0, #open)
  for text in svg:gmatch ">([^<]*)<" do
    assert.is_falsy(text:find('[&]%s') or text:find "%f[%w]nan%f[%W]", text)
  end
end

return M
