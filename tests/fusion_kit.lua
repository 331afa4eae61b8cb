--- What the specs of inference fusion share: fused beside unfused, the rules that a plan applied,
-- and a Conv with its norm.
local neap = require "neap"
local assert = require "luassert"
local kit = {}

--- Asserts that fused and unfused results agree within `tolerance` of the largest, and that planned
-- equals unplanned, bit for bit.
function kit.agree(net, output, feeds, o)
  o = o or {}
  local function run(memory)
    local ws <close> = neap.workspace { seed = 7, store = false }
    ws:init(net)
    for name, t in pairs(o.parameters or {}) do ws:feed(name, t) end
    local program <close> = ws:compile(net, memory)
    for name, t in pairs(feeds) do ws:feed(name, t) end
    program:run()
    return ws:fetch(output)
  end
  for _, engine in ipairs { "free", "ref", "blas" } do
    local plain, fused = run { fuse = false, engine = engine }, run { engine = engine }
    local scale = math.max((o.scale or plain):abs():max():item(), 1e-30)
    local difference = (plain - fused):abs():max():item()
    assert.is_true(difference <= (o.tolerance or 1e-5) * scale,
      ("%s: %g of %g"):format(engine, difference, scale))
    if engine == "free" then
      assert.is_true(fused:equal(run { policy = "none" }))
      assert.is_true(fused:equal(run { policy = "name" }))
    end
  end
end

--- Rules applied to a net, with how often.
function kit.rules(net, o)
  local count, report = {}, net:plan(o or {}):rewrites()
  for i = 1, #report do count[report[i].rule] = (count[report[i].rule] or 0) + 1 end
  return count
end

function kit.types(net, o)
  local count, ops = {}, net:plan(o or {}):ops()
  for i = 1, #ops do count[ops[i].type] = (count[ops[i].type] or 0) + 1 end
  return count
end

--- Conv and BatchNorm by running statistics, as blobs of `net`.
function kit.conv_norm(net, x, c_in, c_out, kernel, o)
  local name = o and o.name or "c" .. net:fresh_name "k"
  local h = net:Conv({
    x, net:param(name .. ".w", { c_out, c_in, kernel, kernel }, neap.init.xavier {}),
    o and o.bias and net:param(name .. ".b", { c_out }, neap.init.normal {}) or nil,
  }, name .. ".conv", { pad = kernel // 2 })
  return net:BatchNorm({
    h,
    net:param(name .. ".gamma", { c_out }, neap.init.normal {}),
    net:param(name .. ".beta", { c_out }, neap.init.normal {}),
    net:param(name .. ".mean", { c_out }, neap.init.normal {}),
    net:param(name .. ".var", { c_out }, neap.init.uniform { low = 0.1, high = 3 }),
  }, name .. ".norm", { training = false })
end

return kit
