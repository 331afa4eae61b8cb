-- What the tests of control flow share.

local schedules = { { executor = "simple" }, { executor = "dag" } }
local memories = {}
for _, executor in ipairs { "simple", "dag" } do
  for _, policy in ipairs { "none", "name", "offset" } do
    memories[#memories + 1] = { executor = executor, policy = policy }
  end
end

return { schedules = schedules, memories = memories }
