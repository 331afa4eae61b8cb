--- ONNX Runtime beside Neap, where PYTHON, python3 unless set, is an interpreter that has it.
local neap = require "neap"
local kit = require "import.onnx_kit"

local M = { python = os.getenv "PYTHON" or "python3" }

--- What the interpreter prints of a piece of code with these arguments; "" where it fails.
function M.output(code, ...)
  local command = ("'%s' -c '%s'"):format(M.python, code)
  for _, word in ipairs { ... } do command = command .. (" '%s'"):format(word) end
  local pipe <close> = assert(io.popen(command .. " 2>/dev/null"))
  return pipe:read "a"
end

--- Whether ONNX Runtime is there.
function M.is_there() return M.output("import onnxruntime\nprint(1)") ~= "" end

--- ONNX Runtime's outputs by name, for inputs by name.
function M.run(path, feeds)
  local folder <close> = kit.folder()
  assert(neap.save(folder.path .. "/in.npz", feeds))
  M.output([[
import sys, numpy, onnxruntime as ort
s = ort.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
given = numpy.load(sys.argv[2] + "/in.npz")
names = [o.name for o in s.get_outputs()]
y = s.run(names, {i.name: given[i.name] for i in s.get_inputs()})
numpy.savez(sys.argv[2] + "/out.npz", **dict(zip(names, y)))]], path, folder.path)
  local outputs = assert(neap.load(folder.path .. "/out.npz"))
  return outputs
end

return M
