-- That every report of the Lua files and every method of a plan has its figures checked somewhere.
local core = require "neap.core"
local keys_of = require("figures").names_of

--- Where the figures of each report are checked, by file and function; words: it shows none, or
-- none that can be had otherwise.
local checked = {
  ["bench/init.lua bench.run"] = "tests/unit/figures_profiled_spec.lua",
  ["bench/memory.lua memory.run"] = "tests/unit/cli_spec.lua",
  ["bench/zoo.lua zoo.run"] = "tests/unit/zoo_bench_spec.lua",
  ["machine.lua machine.peaks"] = "tests/unit/machine_spec.lua",
  ["check/init.lua check.plan"] = "tests/unit/figures_runs_spec.lua",
  ["check/gradient.lua report_of"] = "tests/unit/check_spec.lua",
  ["check/nan.lua M.check"] = "tests/unit/check_spec.lua",
  ["check/op.lua checked"] = "tests/unit/check_spec.lua",
  ["cli/db.lua plural"] = "a sentence",
  ["inner/export.lua report_of"] = "tests/unit/care_spec.lua",
  ["inner/export.lua write_json"] = "tests/unit/care_spec.lua",
  ["cli/sql.lua list"] = "a list of names",
  ["memory/count.lua count_memory.count"] = "tests/unit/figures_models_spec.lua",
  ["db.lua ask"] = "tests/unit/figures_kept_spec.lua",
  ["db.lua Db:info"] = "tests/unit/figures_profiled_spec.lua",
  ["init.lua neap.engines"] = "a list of names",
  ["db.lua Db:verify"] = "tests/unit/db_spec.lua", ["init.lua neap.config"] = "texts of this build",
  ["init.lua neap.help"] = "texts",
  ["init.lua help_on_name"] = "texts",
  ["init.lua neap.memory"] = "tests/unit/tensor_spec.lua, tests/named/11_within_memory_spec.lua",
  ["init.lua neap.ops"] = "a list of names",
  ["memory/mem_param.lua mem_param.dry_run"] = "tests/unit/figures_runs_spec.lua",
  ["memonger/init.lua memonger.estimate_memory_usage"] = "tests/unit/figures_models_spec.lua",
  ["memonger/init.lua plan"] = "tests/unit/figures_models_spec.lua",
  ["net/init.lua Net:blobs"] = "tests/unit/figures_runs_spec.lua",
  ["net/init.lua Net:ops"] = "tests/unit/figures_runs_spec.lua",
  ["nn/planned.lua Module.summary"] = "tests/unit/figures_models_spec.lua",
  ["nn/chain.lua Memory:__tostring"] = "tests/named/09_net_memory_spec.lua",
  ["tensor/picture.lua Tensor.plot"] = "tests/unit/picture_spec.lua",
  ["plan/diff.lua diff.sides"] = "tests/questions/diff_spec.lua",
  ["plan/doctor.lua Plan:doctor"] = "tests/questions/whatif_spec.lua",
  ["plan/whatif.lua compare"] = "tests/questions/whatif_spec.lua",
  ["plan/whatif.lua curve"] = "tests/questions/whatif_spec.lua",
  ["plan/kernels.lua Plan:kernels"] = "tests/questions/kernels_spec.lua",
  ["plan/init.lua Plan:banks"] = "tests/unit/figures_spec.lua",
  ["plan/init.lua Plan:curve"] = "tests/unit/figures_spec.lua",
  ["plan/init.lua Plan:explain"] = "tests/unit/figures_spec.lua",
  ["plan/init.lua Plan:forecast"] = "tests/unit/figures_spec.lua",
  ["plan/init.lua Plan:ops"] = "tests/unit/figures_spec.lua",
  ["plan/init.lua Plan:peak"] = "tests/unit/figures_spec.lua",
  ["plan/init.lua Plan:rewrites"] = "tests/unit/figures_spec.lua",
  ["plan/init.lua Plan:summary"] = "tests/unit/figures_spec.lua",
  ["plan/init.lua Plan:values"] = "tests/unit/figures_spec.lua",
  ["plan/init.lua Plan:why"] = "tests/unit/figures_spec.lua",
  ["plan/init.lua Run:ops"] = "tests/unit/figures_profiled_spec.lua",
  ["plan/init.lua Run:table"] = "tests/unit/figures_profiled_spec.lua",
  ["prune.lua report_of"] = "tests/unit/prune_spec.lua",
  ["tensor/init.lua Tensor.stats"] = "tests/unit/tensor_spec.lua",
  ["train/evaluate.lua Trainer:history"] = "tests/unit/figures_models_spec.lua",
  ["train/evaluate.lua evaluate"] = "tests/unit/figures_models_spec.lua",
  ["train/find_lr.lua Trainer:find_lr"] = "tests/unit/train_looks_spec.lua",
  ["train/programs.lua forecast"] = "tests/unit/figures_models_spec.lua",
  ["workspace/report.lua Workspace:blobs"] = "tests/unit/figures_profiled_spec.lua",
  ["workspace/report.lua Workspace:picture"] = "tests/unit/figures_profiled_spec.lua",
  ["workspace/report.lua Workspace:sizes"] = "tests/unit/figures_profiled_spec.lua",
}

describe("every report", function()
  it("of the Lua files has its figures checked", function()
    local found = {}
    local pipe <close> = assert(io.popen "find lua/neap -name '*.lua' | LC_ALL=C sort")
    for path in pipe:lines() do
      local name
      for line in io.lines(path) do
        name = line:match "^local function ([%w_.:]+)"
          or line:match "^function ([%w_.:]+)"
          or name
          or line:match "^%s*local function ([%w_.:]+)"
        local makes = line:find("report.new", 1, true) or line:find("report.of(", 1, true)
        if makes and path ~= "lua/neap/report/init.lua" then
          found[path:match "^lua/neap/(.*)" .. " " .. name] = true
        end
      end
    end
    assert.are.same(keys_of(checked), keys_of(found))
  end)

  it("of a plan has its figures checked, pictures too", function()
    local found = {}
    local known = {
      close = true, graph_text = true, text = true, verify = true, dot = true, svg = true,
      html = true, -- tests/report/html_spec.lua
      whatif = true, diff = true, -- plan/whatif.lua compare, plan/diff.lua diff.sides
    }
    for name in pairs(checked) do
      local method = name:match "^plan/%l+%.lua Plan:(.*)"
      if method then known[method] = true end
    end
    for name, f in pairs(core.Plan) do
      if type(f) == "function" and name:sub(1, 1) ~= "_" then found[name] = true end
    end
    for name in pairs(found) do assert.is_truthy(known[name], name) end
  end)
end)
