-- Every example runs with --quick and ends well.
local data = require("neap").data

local support = require "support"
local program = support.program

local function runs(name, words)
  local text, code = support.shell(
    ("%s run scripts/examples/%s.lua --quick 2>&1 </dev/null"):format(program, name))
  assert.are.equal(0, code, text)
  assert.is_truthy(text:find(words), text)
end

describe("example", function()
  local file = io.open(program)
  if not file then
    pending(program .. " is not built")
    return
  end
  file:close()
  it("scopes", function()
    runs("scopes", "4 frames hold .*after trim: 0 B\n.*gradients differ by at most %d")
  end)
  it("xor", function() runs("xor", "final loss 0%.0") end)
  it("xor builds the same net each time, whose plan is stored once", function()
    local path = os.tmpname()
    local xor = ("NEAP_DB=%s %s run scripts/examples/xor.lua --quick 2>&1"):format(path, program)
    for _ = 1, 4 do assert.are.equal(0, select(2, support.shell(xor))) end
    local db <close> = require("neap").db(path)
    assert.are.equal(1, db:sql("SELECT count(*) AS n FROM plan")[1].n)
    os.remove(path)
  end)
  it("control_flow", function()
    runs("control_flow", "sqrt%(9%) = 3%.0+ .*trained inside the net: loss %d")
  end)
  it("lstm_step", function()
    runs("lstm_step", "gradients equal: true.*gradients equal: true.*gradients equal: true")
  end)
  it("memonger", function()
    runs("memonger", "same loss, same gradient:\ttrue.*saved %d+%.%d %%\n$")
  end)
  it("pinn", function() runs("pinn", "error against .*: 0%.%d+ %%%\n$") end)
  it("fusion", function()
    runs("fusion",
      "norm .*residual .*fused .*the result too:%s+true\nlargest difference: %d%.%de%-0[5-9] of %d")
  end)
  it("workspaces", function()
    runs("workspaces", "total 3, squared 9\n.*the same bits:%s+true\n.*drawn:")
  end)
  it("layers", function()
    runs("layers", "loss 1.* 0%.%d+ at last\n\z
      fc1%s.*output below it:%s+true\n\z
      left on caches:%s+0\n\z
      .*its numbers:%s+true\n\z
      $")
  end)
  it("budget", function()
    runs("budget", "no budget .*the same bits:%s+true\n.*the same bits:%s+true\n.*least arena for")
  end)
  it("finetune needs a model", function() -- tests/import/onnx_shared_spec trains by its words
    local text = support.shell(("NEAP_DB=off %s run scripts/examples/finetune.lua 2>&1"):format(
      program))
    assert.is_truthy(text:find("MODEL.onnx", 1, true), text)
  end)
  it("quantize", function()
    if not data.find "mnist/train-images-idx3-ubyte.gz" then return pending "MNIST is absent" end
    runs("quantize", "real numbers %d+%.%d+ %% .*\nbytes +%d+%.%d+ %% right, weights 4%d%d%.%d KiB")
  end)
  it("prune", function()
    if not data.find "mnist/train-images-idx3-ubyte.gz" then return pending "MNIST is absent" end
    runs("prune", "90 %% of weights zero +9%d%.%d+ %% right\n.*share 0%.9\n")
  end)
  it("vae", function() runs("vae", "reconstruction 0%.%d+ at first, 0%.0%d+ at last") end)
  it("gan", function()
    runs("gan", "generated around %(1%.[2-8]%d, %-?0%.%d+%).*\ngradients: 384 B .* 320 B")
  end)
  it("siamese", function() runs("siamese", "^9%d %% of new pairs") end)
  it("tagger", function() runs("tagger", "grad_norm.*accuracy 0%.9%d+, by 3 plans in") end)
  it("transformer", function()
    runs("transformer", "^[01]%.[90]%d+ of the letters .*\n31415 backwards: 51413\n$")
  end)
  it("moe", function() runs("moe", "at first, 0%.[012]%d+ at last\nshare of each expert") end)
  it("distill", function() runs("distill", "student 0%.9%d+ of the labels right\n$") end)
  it("unet", function() runs("unet", "\noverlap 0%.[5-9]%d of found and true pixels\n$") end)
  it("resnet_block", function()
    runs("resnet_block", "block2.residual1.shortcut.conv1 .*\n[91]%d+ %% of new pictures right\n$")
  end)
  it("custom_loss", function()
    runs("custom_loss", "differences say\nat  0.0: .*at %-2.5: %-0%.[4-8]%d %+%- 0%.")
  end)
  it("schedules", function()
    runs("schedules", "rate of step    1: 0.00020\n.*last weights, 0%.[89]%d+ by their average\n$")
  end)
  it("csv", function()
    runs("csv", "^temperature, speed, age; no/yes\n.*accuracy 0%.9%d+\nfound %d of %d that fail")
  end)
  it("transfer", function()
    runs("transfer",
      "0%.[4-7]%d right from scratch\n0%.[78]%d by a new head, 0%.[89]%d with the body")
  end)
  it("low_precision", function()
    runs("low_precision",
      "^f32 .* logits off by 0\nbf16 .*\nf16 .* [01]%.%d+ right, logits off by 0%.0")
  end)
  it("exchange", function()
    runs("exchange", "5.weight         %(10,512%)\n.*same answers:%s+true\n.*from ONNX:%s+true\n$")
  end)
  it("char_lstm", function()
    runs("char_lstm", "^2%.%d+ nats a letter at first, 0%.%d+ at last\n%l+ %l+ %l+")
  end)
  it("beam_search", function() runs("beam_search", "^1. 02%+03=05%.  share 0%.%d+\n2. ") end)
  it("seq2seq", function() runs("seq2seq", "\n[5-9]%d of 100 new texts backwards") end)
  it("dynamic", function() runs("dynamic", "loss 0%.%d+ at first, 0%.00%d+ at last\n$") end)
  it("within_memory", function()
    runs("within_memory",
      "fits [^\n]*\n.*held after batches of 1 to 40 rows: [^,]*, 0 B more than before\n.*raw_bytes")
  end)
  it("caffe", function()
    if not data.find "mnist/train-images-idx3-ubyte.gz" then return pending "MNIST is absent" end
    runs("caffe", "arena.*as of MNIST, after the name of its source\n.*valid_accuracy")
  end)
  it("lenet", function()
    if not data.find "mnist/train-images-idx3-ubyte.gz" then return pending "MNIST is absent" end
    -- one line an epoch: no terminal
    runs("lenet", "\nepoch 1  [^\n]*accuracy[^\n]*\ntest accuracy %d+%.%d+ %%\n$")
  end)
  it("cifar", function()
    if not data.find "cifar10/cifar10_train_first2000.bin.gz" then
      return pending "CIFAR-10 is absent"
    end
    runs("cifar", "train accuracy %d+%.%d+ %%\n$")
  end)
  it("gpt", function()
    if not data.find("text/tinyshakespeare.txt", "tinyshakespeare.txt") then
      return pending "tinyshakespeare is absent"
    end
    runs("gpt", "validation loss %d%.%d+ nats per character\n$")
  end)

  it("and bench say what arguments they take", function()
    for script, words in pairs {
      ["bench/budget.lua lenet:4 x"] = "usage: budget.lua %[NET:BATCH%]",
      ["bench/budget.lua lenet:4 0"] = "usage: budget.lua",
      ["bench/budget.lua nothing"] = 'there is no net "nothing"',
      ["bench/onnx.lua --rounds many"] = "%-%-rounds expects a number above 0, got many",
      ["bench/onnx.lua --fast"] = "unknown option %-%-fast",
      ["bench/busy.lua --rounds many"] = "%-%-rounds expects an integer",
      ["examples/gpt.lua --seconds"] = "%-%-seconds expects a number",
    } do
      local text, code = support.shell(
        ("NEAP_DB=off %s run scripts/%s 2>&1 </dev/null"):format(program, script))
      assert.are_not.equal(0, code, script)
      assert.is_truthy(text:find(words), text)
    end
  end)
end)
