--- What can be asked of plans and runs, and the one command that answers it: `neap help questions`.
--
-- Each row is { id, question, command }: the commands can be typed as they are. tests/questions
-- asks all of them and checks every answer against one that was found another way.
-- @module neap.help.questions
local questions = {
  { "peak", "Which op has the peak, on which line, and what is live there?",
    "neap plan lenet --train --peak" },
  { "without", "What would it take without a layer?",
    "neap plan lenet --train --what-if without=relu1" },
  { "why", "Why do two blobs not share bytes, or why do they?",
    "neap plan lenet --train --why pool1 conv2" },
  { "before_after", "What lies in the bytes of a blob before it, and what after it?",
    "neap plan lenet --train --explain pool1" },
  { "plan_diff", "What has changed from one plan to another, and which layer is to blame?",
    "neap diff lenet:32 lenet:64 --train" },
  { "run_diff", "What has changed from one run to another, in bytes and in time?",
    "neap diff run:1 run:2" },
  { "slowest", "Which op is the slowest?", "neap sql op_time net=lenet mode=train" },
  { "rates", "How many GFLOP/s and GB/s does each op reach, and how many the machine?",
    "neap sql roofline net=lenet mode=train" },
  { "layers", "What time and how many bytes does each layer take?",
    "neap sql layer net=lenet mode=train" },
  { "scratch", "How much of the peak is scratch, and how much activations?",
    "neap sql category net=lenet mode=train" },
  { "bf16", "What would bf16 save?",
    "neap plan gpt --train --batch 1 --what-if dtype=bf16" },
  { "fit", "Which batch fits into 20 MiB?", "neap plan lenet --train --fit 20MiB" },
  { "keep", "What does it cost to keep a blob?",
    "neap plan lenet --train --what-if keep=pool1" },
  { "budget", "What does a budget cost in time?",
    "neap plan gpt --train --batch 1 --curve budget" },
  { "curve", "How do bytes grow with the batch?", "neap plan lenet --train --curve batch" },
  { "history", "How went time and bytes from commit to commit?", "neap sql history net=lenet" },
  { "fragmentation", "How many bytes are lost between blobs?",
    "neap sql fragmentation net=lenet mode=train" },
  { "policies", "What would the arena be under another policy?",
    "neap plan lenet --train --curve policy" },
  { "kernels", "Which kernel runs an op, and why that one?", "neap sql choices net=lenet" },
  { "reorders", "Which copies between layouts are made, and for whom?",
    "neap sql reorders net=lenet mode=train" },
  { "timeline", "What ran when, call by call?",
    "neap profile run lenet --train --trace lenet.json" },
  { "roofline", "Is an op bound by memory or by arithmetic?",
    "neap report lenet --train --output lenet.html" },
  { "losses", "How did the loss fall?", "neap sql losses net=lenet" },
  { "trainings", "How do two trainings differ?", "neap sql trainings net=lenet" },
  { "size", "How large is the database, and how does it get smaller?",
    "neap db prune --size 50" },
  { "merge", "How do the runs of two machines come together?", "neap db merge other.db" },
  { "refused", "What did not fit, what was in the way, and what would do?",
    "neap sql refused net=lenet" },
  { "readers", "Who reads a blob, and when?", "neap sql who_reads blob=pool1 net=lenet" },
}

--- The page: each question, and the command below it.
function questions.text()
  local lines = {}
  for _, row in ipairs(questions) do
    lines[#lines + 1] = row[2]
    lines[#lines + 1] = "    " .. row[3]
  end
  lines[#lines + 1] = "\z

lenet stands for your net, a file or one of the zoo; --batch N and the memory options say which \z
plan.\nneap sql asks what is stored: net=, mode=, batch=, policy=, budget= say of which plan, \z
run=7 or\nplan=7 of one by its number; neap sql lists all queries. --json: answers for programs."
  return table.concat(lines, "\n")
end

return questions
