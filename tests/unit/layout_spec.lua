-- What the repository has: at its top only what belongs there. A trial's files that lie about in a
-- clone are easily committed with a change.
local support = require "support"

local top = {
  ".ci", ".clang-format", ".editorconfig", ".gitattributes", ".gitignore", ".luacheckrc",
  "LICENSE", "Makefile", "README.md", "config.ld", "db", "lua", "neap-scm-1.rockspec", "scripts",
  "src", "tests",
}

describe("the repository", function()
  it("has at its top what belongs there, and nothing else", function()
    local text, code = support.shell "git ls-tree --name-only HEAD 2>&1"
    if code ~= 0 or text == "" then return pending "no git repository: its files are not listed" end
    local names = {}
    for name in text:gmatch "[^\n]+" do names[#names + 1] = name end
    table.sort(names)
    assert.are.same(top, names)
  end)
end)
