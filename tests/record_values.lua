--- Another value than it has for each option of each record, and what has to go with it.
local neap = require "neap"
local support = require "support"
local base = require("record_calls").base
local things = require "record_things"
local nn, optim, data = neap.nn, neap.optim, neap.data
local record_values = {}

local two = neap.tensor { 2, 3 }

-- Where the type and its bounds do not tell.
local other = {
  ["nn.PositionEmbedding.length"] = 5, ["nn.PositionEmbedding.width"] = 6,
  ["nn.GroupNorm.groups"] = 4, ["nn.GroupNorm.channels"] = 6,
  ["nn.Lambda.f"] = function(x) return x:tanh() end, ["nn.Residual.shortcut"] = nn.ReLU(),
  ["nn.Sequential.dtype"] = "f32", ["nn.Concat.axis"] = -1, ["nn.SelfAttention.width"] = 8,
  ["nn.SelfAttention.heads"] = 2, ["nn.Softmax.axis"] = 2, ["nn.LogSoftmax.axis"] = 1,
  ["nn.CrossEntropyLoss.ignore_index"] = 1,
  ["nn.Bidirectional.forward"] = nn.GRU { 4, 4 }, ["nn.Bidirectional.backward"] = nn.GRU { 4, 4 },
  ["nn.InvertedResidual.kernel"] = 5,
  ["nn.Flatten.axis"] = 1, ["nn.Flatten.last"] = 2, ["nn.Unflatten.sizes"] = { 4, 1 },
  ["nn.Unflatten.axis"] = 3, ["nn.Fold.sizes"] = { 4, 10 },
  ["nn.CosineSimilarity.axis"] = 1, ["nn.PairwiseDistance.p"] = 1,
  ["nn.MultiheadAttention.width"] = 16, ["nn.MultiheadAttention.key_heads"] = 1,
  ["neap.data.tensors.x"] = neap.rand(7, 4), ["neap.data.tensors.y"] = neap.rand(6, 1),
  ["neap.data.from.get"] = function(_, slot) slot.x:fill_(0.5) end,
  ["neap.data.from.x"] = { 3 }, ["neap.data.from.y"] = { dtype = "i64" },
  ["neap.data.sequences.pad"] = 3, ["neap.data.sequences.bucket"] = { 2, 5 },
  ["neap.data.sequences.lengths"] = false, ["neap.data.pad.dtype"] = "f32",
  ["neap.data.pad.length"] = 5,
  ["neap.data.jsonl.path"] = things.ragged, ["neap.data.jsonl.fields"] = { x = "x" },
  ["neap.data.image_folder.path"] = things.other_pictures, ["data:moments.field"] = "image",
  ["neap.data.random_resized_crop.area"] = { 0.5, 0.6 },
  ["neap.data.random_resized_crop.ratio"] = { 1, 1.1 }, ["neap.data.normalise.mean"] = 3,
  ["data:split.stratify"] = "y", ["data:split.seed"] = 9,
  ["data:folds.stratify"] = "y", ["data:folds.seed"] = 9, ["data:with.seed"] = 9,
  ["data:with.shuffle"] = true, ["data:with.last"] = "drop", ["data:with.batch"] = 3,
  ["data:with.transform"] = { neap.data.normalise { mean = 1, std = 2 } },
  ["neap.data.csv.y"] = 1, ["neap.data.csv.x"] = { 1 }, ["neap.data.csv.header"] = true,
  ["neap.data.csv.separator"] = " ", ["neap.data.csv.dtype"] = "f32",
  ["neap.data.csv.path"] = things.written("other.csv", "1,2\n3,4\n"),
  ["neap.data.cifar10.path"] = "cifar.bin", ["neap.data.cifar100.path"] = "cifar.bin",
  ["neap.data.text.path"] = things.other_text, ["neap.data.chars.path"] = things.other_text,
  ["neap.data.text.vocabulary"] = { "a", "b" }, ["neap.data.chars.vocabulary"] = { "a", "b" },
  ["neap.data.text.unknown"] = 1, ["neap.data.chars.unknown"] = 1,
  ["neap.trainer.loss"] = nn.MseLoss(), ["neap.trainer.metrics"] = "accuracy",
  ["neap.trainer.memory"] = { budget = "64MiB" }, ["neap.trainer.accumulate"] = 2,
  ["neap.trainer.mem_param"] = { optimize_train = false },
  ["neap.trainer.losses"] = { nn.MseLoss() },
  ["m:net.losses"] = { nn.MseLoss() }, ["m:net.fields"] = { x = { 3, 4 } },
  ["m:net.params"] = "*weight",
  ["trainer:fit.valid"] = things.rows(),
  ["trainer:fit.checkpoint"] = things.folder .. "/neap_run.safetensors",
  ["trainer:find_lr.from"] = 1e-3, ["trainer:find_lr.steps"] = 7,
  ["trainer:fit.verbose"] = 0, ["trainer:fit.epochs"] = 2, ["trainer:fit.steps"] = 1,
  ["m:net.loss"] = nn.MseLoss(), ["m:net.metrics"] = "mae", ["m:net.keep"] = { "x" },
  ["m:net.target"] = false, ["m:net.input"] = { 3, 4 },
  ["m:net.without"] = "linear1", ["plan:whatif.without"] = "relu1", ["plan:whatif.run"] = false,
  ["neap.prune.layers"] = { "a" }, ["neap.prune.amount"] = 0.25,
  ["neap.sparse.least"] = 0.9, ["neap.prune.block"] = { 2, 2 },
  ["neap.quantize.percent"] = 80, ["neap.quantize.batches"] = 1,
  ["neap.quantize.skip"] = { "a" }, ["neap.fit_batch.input"] = { 3, 4 }, ["neap.fit_batch.max"] = 7,
  ["neap.fit_batch.loss"] = nn.MseLoss(), ["neap.workspace.forward"] = {},
  ["neap.workspace.parent"] = neap.workspace {},
  ["neap.mem_param.exclude_blob"] = "x", ["optim.warmup.next"] = optim.step { 3 },
  ["net:param.trainable"] = false, ["net:param.dtype"] = "f64", ["m:param.dtype"] = "f64",
  ["m:buffer.dtype"] = "f64", ["net:variable_scope.trainable"] = false,
  ["m:load.strict"] = false, ["m:load_state_dict.strict"] = false, ["net:gradient.wrt"] = { "x" },
  ["net:Do.bindings"] = { p = "b" }, ["net:Do.scope"] = "t",
  ["net:Do.body"] = function(d) d:Exp("p", "q") end, ["run:table.sort"] = "live_bytes",
  ["neap.runs.db"] = things.unused, ["neap.runs.last"] = 1, ["db:prune.days"] = 7,
  ["db:prune.runs"] = 1, ["db:prune.bytes"] = 1, ["db:export.run"] = 1, ["db:export.tag"] = "none",
  ["db:export.path"] = support.shell "mktemp -d":match "[^\n]+" .. "/rows.json",
  ["neap.export.input"] = { 3, 4 }, ["neap.export.batch"] = 3,
  ["neap.export.dims"] = { x = { "n" } },
  ["neap.import.outputs"] = { "sum" },
  ["neap.export.opset"] = 15, ["neap.export.outputs"] = { "linear1" },
  ["optim.sequence.schedules"] = { optim.step { 3 }, optim.step { 3 } },
  ["optim.sequence.at"] = { 6 }, ["optim.chained.schedules"] = { optim.step { 5 } },
  ["neap.grad.wrt"] = 2, ["neap.value_and_grad.wrt"] = 2,
  ["neap.export.workspace"] = neap.workspace {}, ["neap.import.map"] = "r",
  ["neap.import.weights"] = "weights", ["neap.import.phase"] = "TRAIN",
  ["neap.import.stages"] = { "late" }, ["neap.import.level"] = 3, ["neap.import.without"] = "t",
  ["neap.import.net"] = "net",
  ["nn.MultiMarginLoss.weight"] = two, ["nn.MultilabelSoftMarginLoss.weight"] = two,
  ["nn.BceLoss.weight"] = two, ["nn.BceWithLogitsLoss.weight"] = two, ["nn.NllLoss.weight"] = two,
  ["nn.BceWithLogitsLoss.pos_weight"] = two, ["nn.CrossEntropyLoss.weight"] = two,
  ["neap.import.dims"] = { batch = 4 }, ["neap.import.shapes"] = { x = { 3, 2 } },
  ["neap.import.constants"] = { b = neap.tensor { 1, 2 } },
  ["ws:run_steps.nets"] = { neap.net "given" }, ["ws:run_steps.stop"] = "stop",
  ["ws:run_steps.report"] = "test", ["neap.memonger.recycler.ops"] = { 1, 2, 3 },
  ["neap.memonger.recycler.shareable"] = { "in/a1" },
  ["neap.memonger.recycler.dont_share"] = { "in/a1" },
  ["neap.memonger.recycler.shapes"] = { x = { 5, 4 } },
  ["neap.memonger.optimize_net.dont_share"] = { "in/a1" },
  ["neap.memonger.optimize_net.namescope"] = "in/a",
  ["neap.memonger.optimize_net.shapes"] = { x = { 5, 4 } },
  ["neap.memonger.optimize_net.order"] = "longest_path",
  ["neap.memonger.share_grad_blobs.dont_share"] = { "in/a1.grad" },
  ["neap.memonger.share_grad_blobs.shapes"] = { x = { 3, 4 } },
  ["optim.cosine.steps"] = 40, ["optim.cosine.warmup"] = 4, ["optim.step.every"] = 5,
  ["optim.multistep.at"] = { 2 } }

-- What has to go with an option that does not stand alone.
local with = {
  ["neap.export.opset"] = { outputs = { "linear1" } }, ["neap.export.outputs"] = { opset = 13 },
  ["nn.LSTM.dropout"] = { layers = 2 }, ["nn.GRU.dropout"] = { layers = 2 },
  ["nn.RNN.dropout"] = { layers = 2 },
  ["nn.MultiheadAttention.key_heads"] = { heads = 2 },
  ["nn.ConvTranspose1d.output_padding"] = { stride = 2 },
  ["nn.ConvTranspose2d.output_padding"] = { stride = 2 },
  ["nn.ConvTranspose3d.output_padding"] = { stride = 2 },
  ["optim.cyclic.factor"] = { shape = "exponential" },
  ["optim.SGD.momentum"] = {}, ["neap.data.text.vocabulary"] = { unknown = 0 },
  ["neap.data.chars.vocabulary"] = { unknown = 0 },
  ["neap.workspace.forward"] = { parent = neap.workspace {} },
  ["m:net.optimizer"] = { train = true, loss = nn.MseLoss() },
  ["neap.prune.block"] = { method = "block" },
  ["neap.quantize.percent"] = { method = "percentile" },
  ["neap.quantize.method"] = { percent = 80 },
  ["neap.fit_batch.optimizer"] = { train = true, loss = nn.MseLoss() },
  ["m:net.metrics"] = { loss = nn.MseLoss() }, ["m:net.target"] = {},
  ["m:net.params"] = { train = true, loss = nn.MseLoss() },
  ["m:net.guard"] = { train = true, loss = nn.MseLoss() },
  ["m:net.grad_norm"] = { train = true, loss = nn.MseLoss() },
  ["m:net.loss_scale"] = { train = true, loss = nn.MseLoss() },
  ["neap.trainer.loss_scale"] = { dtype = "f16" },
  ["neap.data.csv.separator"] = { path = things.written("blanks.csv", "1 ,2\n3 ,4\n") },
  ["neap.data.csv.holdout"] = { split = "valid" }, ["neap.data.text.holdout"] = { split = "train" },
  ["neap.data.chars.holdout"] = { split = "train" },
  ["neap.data.jsonl.holdout"] = { split = "train" },
  ["neap.data.jsonl.pad"] = { path = things.ragged },
  ["neap.data.jsonl.bucket"] = { path = things.ragged },
  ["neap.data.image_folder.holdout"] = { split = "train" },
  ["neap.trainer.micro"] = { reduces = "mean" }, ["neap.trainer.accumulate"] = { reduces = "mean" },
  ["trainer:fit.resume"] = { epochs = 1 }, ["trainer:fit.valid_every"] = { valid = things.rows() },
  ["net:gradient.allow_unused"] = { wrt = { "x", "unused" } },
  ["ws:run_steps.report_every_ms"] = { report = "test" },
  ["ws:run_steps.report"] = { report_every_ms = 1 },
  ["neap.memonger.optimize_net.most_steps"] = { algo = "exact" },
  ["neap.memonger.share_grad_blobs.dont_share"] = { dag = false },
  ["neap.memonger.share_grad_blobs.keep_last"] = { share_activations = true, dag = false } }

local by_type = { name = "other", string = "other", ["function"] = function(x) return x end,
  names = { "x" }, initial = { op = "Constant", value = 0.25 }, shapes = { 4 }, dtype = "f32",
  module = things.linear(), optimizer = optim.SGD { lr = 0.5 }, bytes = "3MiB" }

--- A legal value of an option that is not the one it has anyway.
function record_values.another(r, f)
  local value, kind = other[r.name .. "." .. f.name], f.type:match "^[^|]*"
  local now = base[r.name] and type(base[r.name]) == "table" and base[r.name][f.name] or f.default
  if value ~= nil then return value end
  if kind == "boolean" then return now ~= true end
  if kind == "integer" or kind == "sizes" then
    return math.max((type(now) == "number" and now or f.min or 0) + 1, 1)
  end
  if kind == "number" then
    local low, high = f.min or f.above or 0, f.max or f.below or 2
    local middle = (low + high) / 2
    return middle ~= now and middle or (low + middle) / 2
  end
  if kind == "choice" then return f.choices[1] ~= now and f.choices[1] or f.choices[2] end
  return assert(by_type[kind], "no other value for " .. r.name .. "." .. f.name)
end

-- Options that the text does not show: dtype "f32" said as the default is; what is another loss's
-- name; draws that are the same for a set without a split; limits above what was there.
local unseen = {
  ["nn.Sequential.dtype"] = true, ["neap.data.csv.dtype"] = false,
  ["m:net.input_dtype"] = true, ["m:net.target"] = true, ["m:net.traced"] = true,
  ["m:net.train"] = true, ["plan:whatif.run"] = true,
  ["neap.data.from.seed"] = true, ["neap.data.chars.unknown"] = true,
  ["tensor:image.quality"] = true, -- of JPEG files alone
  ["neap.data.text.unknown"] = true,
-- what was not there before, what a message or a clock shows, and what the first plan is, too
  ["db:prune.days"] = true, ["neap.export.input_dtype"] = true, ["ws:assign.async"] = true,
  ["ws:run_steps.name"] = true, ["ws:run_steps.stop"] = true, ["ws:run_steps.concurrent"] = true,
  ["ws:run_steps.instances"] = true, ["ws:run_steps.report_every_ms"] = true,
  ["ws:run_steps.create_workspace"] = true, ["neap.memonger.share_grad_blobs.shapes"] = true,
  ["neap.memonger.optimize_net.algo"] = true,
  ["ws:run_steps.run_every_ms"] = true, ["neap.memonger.optimize_net.most_steps"] = true,
}
for _, kind in ipairs { "tensors", "csv", "text", "chars", "from", "sequences", "jsonl",
  "image_folder" } do
  other["neap.data." .. kind .. ".transform"] = { data.normalise { 1, 2 } }
  unseen["neap.data." .. kind .. ".threads"] = true -- the same rows on any number
  unseen["neap.data." .. kind .. ".seed"] = true -- where nothing is drawn
  unseen["neap.data." .. kind .. ".last"] = true -- where the last batch is whole
  unseen["neap.data." .. kind .. ".map"] = true
end
for _, name in ipairs(nn.names()) do
  unseen["nn." .. name .. ".input"] = true
  unseen["nn.Identity.name"] = true
  if name:find "Loss$" then unseen["nn." .. name .. ".name"] = true end
end

record_values.with, record_values.unseen = with, unseen
return record_values
