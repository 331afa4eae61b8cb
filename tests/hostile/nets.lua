-- Nets that the scripts of this folder and tests/fuzz/lua.lua work on.
local neap = require "neap"
local M = {}

--- A net of the given name with a weight, its gradient and a loss.
function M.small(name)
  local net = neap.net(name)
  local x = net:input("x", { 2, 3 })
  net:gradient(net:Sum(net:FC({ x, net:param("w", { 4, 3 }, { "Xavier" }) }, "y"):relu(), "loss"))
  net:outputs { "loss" }
  return net
end

--- A layer of a chain, its weight named after it.
function M.layer(name)
  local net = neap.net(name)
  local x = net:input("x", { 2, 3 })
  net:outputs { net:FC({ x, net:param(name .. "_w", { 3, 3 }, { "Xavier" }) }, "y") }
  return net
end

return M
