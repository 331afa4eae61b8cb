-- Threads as the program and stock Lua meet them: settings of OpenMP that once left kernels waiting
-- for threads that never came, and signals while a kernel runs. Each case is a process of its own;
-- what hangs is ended by `timeout`, and that is what the test sees.
local support = require "support"
local build = os.getenv "NEAP_BUILD" or "build"
local sanitized = support.sanitized
local give_up_s = 120

--- How a script is started: by the program, and by stock Lua, which has no sanitizer.
local hosts = { program = support.program .. " run" }
if not sanitized then hosts.module = ("env LUA_CPATH='%s/?.so' lua5.4"):format(build) end

--- Runs three steps of a net that has kernels of every kind with threads; prints threads, sum of
-- all gradients, and their hashes.
local train = [[
local neap = require "neap"
local ws = neap.workspace { seed = 1, store = false }
local net = neap.net_from [=[
net threads
input x f32 (8,3,16,16)
param w f32 (16,3,3,3) = Xavier
param w2 f32 (16,16,3,3) = Xavier
param g f32 (16) = Constant { value = 1 }
param b f32 (16) = Constant
param fc f32 (10,4096) = Xavier
c = Conv(x, w) { pad = {1} }
n, m, v = BatchNorm(c, g, b) { training = true }
r = Relu(n)
d = Conv(r, w2) { pad = {1} }
p = MaxPool(d) { kernel = {3}, stride = {1}, pad = {1} }
f = Reshape(p) { shape = {8, 4096} }
y = FC(f, fc)
s = Softmax(y)
z = Mul(s, s)
loss = Sum(z)
w_grad, w2_grad, fc_grad = Gradient(loss, w, w2, fc)
outputs loss, w_grad, w2_grad, fc_grad
]=]
ws:init(net)
ws:feed("x", neap.linspace(-1, 1, 8 * 3 * 16 * 16):reshape(8, 3, 16, 16))
local program = ws:compile(net, { executor = os.getenv "EXECUTOR" })
program:run(3)
local sum, bits = 0, {}
for _, name in ipairs(net:outputs()) do
  local t = ws:fetch(name)
  sum, bits[#bits + 1] = sum + t:abs():sum():item(), t:hash()
end
print(require "neap.core".threads(), sum, table.concat(bits, " "))
]]

--- Runs one kernel of minutes, after a line that says so.
local long = [[
local neap = require "neap"
local ws = neap.workspace { seed = 1, store = false }
local net = neap.net_from(NET)
ws:init(net)
local program = ws:compile(net, { engine = ENGINE })
print "begins"
io.stdout:flush()
program:run()
]]

local product = "net p\n\z
  param a f32 (6000,6000) = Constant { value = 1 }\n\z
  y = MatMul(a, a)\n\z
  l = Sum(y)\n\z
  outputs l\n"
local conv = "net c\n\z
  param x f32 (16,64,128,128) = Constant { value = 1 }\n\z
  param w f32 (64,64,31,31) = Constant { value = 1 }\n"
  .. "y = Conv(x, w) { pad = {15} }\nl = Sum(y)\noutputs l\n"

--- Starts a long script, runs `send` with its process in $pid once its kernel is at work, and gives
-- the exit code.
local function interrupt(folder, host, case, send)
  local path, said = folder .. "/long.lua", folder .. "/said"
  support.write_file(path,
    (long:gsub("%u+", { NET = ("%q"):format(case[2]), ENGINE = ("%q"):format(case[3]) })))
  return select(2, support.shell(([[
    rm -f %s
    export NEAP_DB=off NEAP_NUM_THREADS=2
    %s %s >%s & pid=$!
    {
      i=0; while kill -0 $pid && [ $i -lt %d ]; do sleep 1; i=$((i + 1)); done; kill -KILL $pid
    } >/dev/null 2>&1 &
    until grep -q begins %s 2>/dev/null || ! kill -0 $pid 2>/dev/null; do sleep 0.1; done
    sleep 0.5
    %s
    { wait $pid; } 2>/dev/null]]):format(said, hosts[host], path, said, give_up_s, said, send)))
end

for _, host in ipairs { "program", "module" } do
  if hosts[host] then
    describe("threads of the " .. host, function()
      local folder
      setup(function() folder = support.shell("mktemp -d"):gsub("%s+$", "") end)
      teardown(function() os.execute("rm -rf " .. folder) end)

      --- @return what the training script prints: number of threads, sum, bits
      local function run_train(environment)
        local path = folder .. "/train.lua"
        support.write_file(path, train)
        local out, code = support.shell(("env NEAP_DB=off %s timeout -s KILL %d %s %s"):format(
          environment, give_up_s, hosts[host], path))
        assert.equal(0, code, environment)
        local n, sum, bits = out:match "^(%d+)\t(%S+)\t(.-)%s*$"
        return tonumber(n), tonumber(sum), bits
      end

      it("are no more than OMP_THREAD_LIMIT, and end whatever OpenMP is told", function()
        local n, sum, bits = run_train "OMP_THREAD_LIMIT=1"
        assert.equal(1, n)
        assert.equal(bits, (select(3, run_train "OMP_THREAD_LIMIT=1 EXECUTOR=dag")))
        local n2, sum2, bits2 = run_train "NEAP_NUM_THREADS=2"
        assert.equal(2, n2)
        assert.is_true(math.abs(sum - sum2) <= 1e-4 * sum)
        for _, environment in ipairs {
          "OMP_THREAD_LIMIT=1", "OMP_DYNAMIC=true",
          "OMP_DYNAMIC=true OMP_WAIT_POLICY=active EXECUTOR=dag",
          "OMP_NUM_THREADS=1", "OMP_NESTED=true EXECUTOR=dag",
        } do
          n, sum, bits = run_train("NEAP_NUM_THREADS=2 " .. environment)
          assert.equal(2, n, environment)
          assert.equal(sum2, sum, environment)
          assert.equal(bits2, bits, environment)
        end
        n, sum = run_train "NEAP_NUM_THREADS=5"
        assert.equal(5, n)
        assert.is_true(math.abs(sum - sum2) <= 1e-4 * sum)
      end)

      it("are as many as the system grants", function()
        if sanitized then return end -- which takes more addresses than this leaves
        -- A stack of 64 GiB for each thread is refused.
        local n, _, bits = run_train "bash -c 'ulimit -s 67108864; ulimit -v 8000000; exec env \z
          NEAP_NUM_THREADS=3 \"$@\"' --"
        assert.equal(1, n)
        assert.equal(select(3, run_train "NEAP_NUM_THREADS=1"), bits)
      end)

      for _, case in ipairs {
        { "a product of plain loops", product, "ref" },
        { "a convolution by a library", conv, support.last_engine() },
        { "a convolution by products", conv, "blas" },
      } do
        it("hear SIGTERM in the middle of " .. case[1], function()
          assert.equal(143, interrupt(folder, host, case, "kill -TERM $pid"))
        end)
      end

      -- A shell's background processes ignore SIGINT; the program's handler takes it all the same,
      -- stock Lua's too.
      if host == "program" then
        it("hear a second Ctrl-C in the middle of a kernel", function()
          assert.equal(130, interrupt(folder, host, { "", product, "ref" },
            "kill -INT $pid; sleep 1.5; kill -INT $pid"))
        end)
      end
    end)
  end
end
