-- Trained nets that Python packages ship, on inputs as they are meant for, equal to what ONNX
-- Runtime gives: magika's classifier of files, on the repository's own, and silero-vad's detector
-- of speech, on sounds. PYTHON says the interpreter, python3 unless set; skipped, with a line that
-- says so, where it has not the package, or no onnxruntime.
local neap = require "neap"
local peer = require "import.onnx_peer"

--- The files NAME.onnx of a package, nil where it is not there.
local function models_of(package)
  local text = peer.output([[
import importlib.util, pathlib, sys
import onnxruntime
for folder in importlib.util.find_spec(sys.argv[1]).submodule_search_locations:
    for path in sorted(pathlib.Path(folder).rglob("*.onnx")): print(path)]], package)
  local list = {}
  for path in text:gmatch "[^\n]+" do list[path:match "([^/]*)%.onnx$"] = path end
  return next(list) and list
end

--- Runs a function on the inputs, and expects what ONNX Runtime gives within 1e-4 of the largest.
local function agrees(f, path, feeds, constants)
  local all, own = {}, {}
  for name, t in pairs(feeds) do all[name], own[name] = t, t end
  for name, t in pairs(constants or {}) do all[name] = t end
  local want, got = peer.run(path, all), f(own)
  local outputs = f.net:outputs()
  if #outputs == 1 then got = { [outputs[1]] = got } end
  for name, t in pairs(want) do
    local y = assert(got[name], name)
    assert.same(t.shape, y.shape)
    local off, most = (y - t):abs():max():item(), t:abs():max():item()
    assert.is_true(off <= 1e-4 * math.max(most, 1e-3),
      ("%s of %s: off by %g of %g"):format(name, path, off, most))
  end
  return got
end

describe("a trained net of a package", function()
  it("classifies files: magika", function()
    local models = models_of "magika"
    if not models then return pending(peer.python .. " has no magika, or no onnxruntime") end
    local f = assert(neap.import(models.model))
    -- Of each file the first and the last kilobyte; 256 stands for what is not there.
    local function features(path)
      local file <close> = assert(io.open(path, "rb"))
      local text = file:read "a"
      local first, last, row = text:gsub("^%s+", ""), text:gsub("%s+$", ""), {}
      for i = 1, 1024 do
        row[i] = first:byte(i) or 256
        local at = #last - 1024 + i
        row[1024 + i] = at >= 1 and last:byte(at) or 256
      end
      return row
    end
    local paths = { "README.md", "src/base/alloc.c", "lua/neap/init.lua", "Makefile", "LICENSE" }
    local rows = {}
    for i, path in ipairs(paths) do rows[i] = features(path) end
    for _, n in ipairs { 1, #rows } do
      local x = neap.tensor(table.move(rows, 1, n, 1, {}), "i32")
      local y = agrees(f, models.model, { bytes = x }).target_label
      -- These are files of different kinds, and the net is sure of it.
      local classes, seen, n_seen = y:arg_max { axis = 2 }:reshape(-1):totable(), {}, 0
      for _, class in ipairs(classes) do
        if not seen[class] then seen[class], n_seen = true, n_seen + 1 end
      end
      assert.is_true(n_seen >= n - 1)
    end
  end)

  it("hears speech: silero-vad", function()
    local models = models_of "silero_vad"
    if not models then return pending(peer.python .. " has no silero-vad, or no onnxruntime") end
    --- A chunk of a sound at 16 kHz: a voice's pitch and what lies above it, rising and falling.
    local function sound(n, from)
      local x = {}
      for i = 1, n do
        local t, v = (i + from) / 16000, 0
        for k = 1, 12 do v = v + math.sin(2 * math.pi * 140 * k * t) / k end
        x[i] = 0.2 * v * (0.6 + 0.4 * math.sin(2 * math.pi * 4 * t))
      end
      return x
    end
    local rate = { sr = neap.tensor(16000, "i64") }
    for name, o in pairs {
      silero_vad = { constants = rate, shapes = { input = { 1, 576 }, state = { 2, 1, 128 } } },
      silero_vad_16k_op15 = { constants = rate,
        shapes = { input = { 1, 576 }, state = { 2, 1, 128 } } },
      silero_vad_openvino_16k = { shapes = { input = { 1, 576 }, state = { 2, 1, 128 } } },
    } do
      local f = assert(neap.import(models[name], o))
      local state = neap.zeros(2, 1, 128)
      for chunk = 0, 2 do
        local got = agrees(f, models[name], { input = neap.tensor { sound(576, 512 * chunk) },
          state = state }, o.constants)
        state = assert(got.stateN or got.state_out or got.staten)
      end
    end
    -- A whole sequence at once, of any length.
    local path = models.silero_vad_16k_sequence
    local f, state = assert(neap.import(path)), neap.zeros(1, 1, 128)
    for _, n in ipairs { 1, 5 } do
      local rows = {}
      for i = 1, n do rows[i] = sound(576, 512 * i) end
      agrees(f, path, { input = neap.tensor(rows), h = state, c = state })
    end
  end)
end)
