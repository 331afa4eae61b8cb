/* neap/rows.h: plans, runs and what the database keeps of them as rows, and every column of them
 * described once. Part of neap.h, which includes it.
 */
#include "neap.h"
#ifndef NEAP_ROWS_H
#define NEAP_ROWS_H

/* What is planned as rows: the ops of a plan in their order, its values and where they lie, .. Each
 * kind of row is described once, by a list of columns: the struct of a row is made of it, and all
 * who show or keep rows read it (Lua's tables, JSON, CSV, the database, its manual), so that a new
 * column is a line here and the code that fills it.
 *
 * X(name, type, unit, shown, what it says). Shown: STORE: a column of the database; ZERO: there it
 * is 0 where a row has none; PRINT: in tables for people; SOME: there too, if any row has one;
 * UNLESS_0: 0, or "", is none; RUN: a figure of runs; IN_LAYER: most begin with the row's layer,
 * which the database makes use of. Types: below. */
#define NEAP_OP_MAP(X)                                                                           \
  X(step, INDEX, "step", STORE | PRINT, "position in the order of the plan")                     \
  X(name, TEXT, "", STORE | PRINT | IN_LAYER, "of the op; backward ops have names of their own") \
  X(type, TEXT, "", STORE | PRINT, "of the op")                                                  \
  X(phase, TEXT, "", STORE | PRINT, "`forward`, `backward` or `update`")                         \
  X(bank, TEXT, "", SOME, "memory bank that it works in; null without banks")                    \
  X(recomputes, INDEX, "step", STORE | SOME, "step that it recomputes; null: runs once")         \
  X(engine, TEXT, "", PRINT, "library of its kernel: `ref`, `blas` or `dnnl`")                   \
  X(changed, BOOL, "", SOME, "its kernel is not the one that is chosen where `exact` holds")     \
  X(live_bytes, NUMBER, "bytes", STORE | PRINT,                                                  \
    "of the arena while it runs, scratch and alignment included")                                \
  X(scratch_bytes, NUMBER, "bytes", STORE | PRINT,                                               \
    "work space of the kernel, or the frame of a control op")                                    \
  X(flops, NUMBER, "flops", STORE | PRINT,                                                       \
    "work, as the op's record counts it; of a loop without condition that of all iterations")    \
  X(dtype, TEXT, "", STORE, "of its first input, else of what it makes: what it computes in")    \
  X(once, BOOL, "", STORE, "makes constants: no part of a step while what it reads stays")       \
  X(line, TEXT, "", STORE | PRINT, "script and line that made it, or null")                      \
  X(layer, TEXT, "", STORE,                                                                      \
    "the op's layer; a backward op, a Reorder and an update belong to that which they are for")  \
  X(module, TEXT, "", STORE, "path of the module or scope that the layer was made in; or null")  \
  X(scope, TEXT, "", 0, "path of the scope that it was made in; null at the top")                \
  X(kernel, TEXT, "", STORE,                                                                     \
    "engine, then the layout it writes where that is not plain: `dnnl abcd:16b`")                \
  X(algorithm, TEXT, "", STORE, "of the kernel: `winograd`, ..; null where it has but one")      \
  X(choice_reason, TEXT, "", STORE,                                                              \
    "why this kernel and this algorithm; null where there is no other")                          \
  X(other, TEXT, "", STORE, "the algorithm that it was taken over; null where there was none")   \
  X(other_scratch_bytes, NUMBER, "bytes", STORE, "that this one would take")                     \
  X(other_work, REAL, "", STORE | UNLESS_0,                                                      \
    "its operations for each one of those taken, as estimated; null where there was none")       \
  X(choice, TEXT, "", 0, "all of the choice of its kernel that bits may depend on")              \
  X(read_bytes, NUMBER, "bytes", STORE, "read, as the op's record counts it")                    \
  X(write_bytes, NUMBER, "bytes", STORE, "written, as the op's record counts it")                \
  X(scratch_offset, NUMBER, "bytes", 0, "where the scratch lies, from the start of the arena")   \
  X(reason, TEXT, "", STORE, "why it is recomputed, or reordered; null otherwise")               \
  X(inputs, NAMES, "", 0, "blobs that it reads")                                                 \
  X(outputs, NAMES, "", 0, "blobs that it writes")                                               \
  X(ins, INDICES, "value", 0, "numbers of the values that it reads")                             \
  X(outs, INDICES, "value", 0, "numbers of the values that it writes")                           \
  X(n_sub, NUMBER, "", 0, "its subnets")

#define NEAP_VALUE_MAP(X)                                                                        \
  X(blob, TEXT, "", STORE | PRINT | IN_LAYER,                                                    \
    "name, or label: `x.grad`, `conv1.stash`, `x.reorder`")                                      \
  X(role, TEXT, "", STORE | PRINT, "activation, input, parameter, gradient, state, output")      \
  X(region, TEXT, "", STORE | PRINT,                                                             \
    "arena, parameters, gradients, state, io, constants, frames, argument")                      \
  X(bank, TEXT, "", SOME, "memory bank that it lies in; null without banks")                     \
  X(shape, TEXT, "", STORE | PRINT, "`(64,20,24,24)`")                                           \
  X(dtype, TEXT, "", STORE | PRINT, "`f32`")                                                     \
  X(layout, TEXT, "", STORE | PRINT, "`plain` or `abcd:16b`")                                    \
  X(bytes, NUMBER, "bytes", STORE | PRINT, "padding of its layout included")                     \
  X(offset_bytes, NUMBER, "bytes", STORE | ZERO | PRINT,                                         \
    "from the start of the arena; none in other regions")                                        \
  X(first_step, INDEX, "step", STORE | PRINT, "that writes it; 0: it is there before")           \
  X(last_step, INDEX, "step", STORE | PRINT, "that reads it last; 0: none does")                 \
  X(reason, TEXT, "", STORE | PRINT,                                                             \
    "how it got its bytes: resident, own, reuse, in_place, alias, version, slot, unplanned, "    \
    "frame, argument")                                                                           \
  X(partner, TEXT, "", PRINT, "the value whose bytes those are or were; null: none")             \
  X(partner_no, INDEX, "value", STORE, "its number")                                             \
  X(words, TEXT, "", STORE, "the reason in words")                                               \
  X(refusal, TEXT, "", STORE, "why it is not in place, in words; null where it could not be")    \
  X(detail, TEXT, "", 0,                                                                         \
    "the reason in words, with the value it shares with and why it is not in place")             \
  X(value_no, INDEX, "value", STORE, "number of the value in its plan")                          \
  X(storage_no, INDEX, "value", STORE,                                                           \
    "value_no of the root of its in-place, alias or version chain: values of one storage share " \
    "it")                                                                                        \
  X(layer, TEXT, "", STORE, "of the op that makes it, else of the first that reads it")          \
  X(module, TEXT, "", STORE, "of that layer; or null")                                           \
  X(category, TEXT, "", STORE,                                                                   \
    "what it is for: parameter, gradient, state, input, output, activation, stash, reorder, "    \
    "constant, frame or update")                                                                 \
  X(line, TEXT, "", STORE, "of that op's script")                                                \
  X(kept, BOOL, "", STORE, "1: the user asked to keep it")

/* A kernel that could run an op, timed on operands of the op's sizes: of each engine that takes it,
 * and of both algorithms where its engine has two. */
#define NEAP_KERNEL_MAP(X)                                                                   \
  X(step, INDEX, "step", STORE | PRINT, "of the plan: joins plan_op")                        \
  X(kernel_no, INDEX, "", STORE, "in the order in which the op's kernels are tried")         \
  X(name, TEXT, "", PRINT, "of the op")                                                      \
  X(type, TEXT, "", PRINT, "of the op")                                                      \
  X(engine, TEXT, "", STORE | PRINT, "`ref`, `blas` or `dnnl`")                              \
  X(algorithm, TEXT, "", STORE | PRINT, "`winograd`, ..; null where the engine has but one") \
  X(taken, BOOL, "", STORE | PRINT, "1: the kernel of the plan")                             \
  X(min_ns, NUMBER, "ns", STORE | PRINT, "its fastest call; null where it was not timed")    \
  X(scratch_bytes, NUMBER, "bytes", STORE | PRINT, "that it would take")                     \
  X(untimed, TEXT, "", SOME, "why it was not timed; null where it was")

#define NEAP_REGION_ROW_MAP(X)                                                                   \
  X(region, TEXT, "", PRINT, "parameters, gradients, state, io, constants, arena or frames")     \
  X(bytes, NUMBER, "bytes", PRINT,                                                               \
    "that the plan holds there; frames: in an iteration of the loops whose frames grow as they " \
    "run")

#define NEAP_BANK_ROW_MAP(X)                                                             \
  X(bank, TEXT, "", PRINT, "its name; `main`: what no other bank has")                   \
  X(kind, TEXT, "", PRINT, "`ordinary` or `huge`")                                       \
  X(capacity_bytes, NUMBER, "bytes", PRINT, "what it may hold; null: no limit")          \
  X(arena_bytes, NUMBER, "bytes", PRINT, "what the plan takes of it")                    \
  X(lower_bound_bytes, NUMBER, "bytes", PRINT, "no plan of this order needs less of it") \
  X(proved, BOOL, "", PRINT, "arena_bytes is lower_bound_bytes")                         \
  X(n_op, NUMBER, "", PRINT, "ops that work in it alone")                                \
  X(n_value, NUMBER, "", PRINT, "values that lie in it")                                 \
  X(begin_offset, NUMBER, "bytes", 0, "where it begins in the plan's offsets")

#define NEAP_REWRITE_MAP(X)                                    \
  X(rule, TEXT, "", PRINT, "the rewrite's name")               \
  X(absorbed, TEXT, "", PRINT, "ops that are no more")         \
  X(into, TEXT, "", PRINT, "the op that they are part of now") \
  X(saved_bytes, NUMBER, "bytes", PRINT, "of values that are no more")

/* Of a plan, and of the runs of its session: 0 before the first, as where nobody runs it. */
#define NEAP_FIGURE_MAP(X)                                                                        \
  X(net, TEXT, "", PRINT, "name of the net")                                                      \
  X(mode, TEXT, "", STORE | PRINT, "`train` or `infer`")                                          \
  X(train, BOOL, "", 0, "it has a backward pass")                                                 \
  X(batch, NUMBER, "", STORE | PRINT, "first dimension of the inputs")                            \
  X(policy, TEXT, "", STORE | PRINT,                                                              \
    "`none`, `name`, `offset` or `pool`: where addresses come from")                              \
  X(executor, TEXT, "", STORE | PRINT, "`simple` or `dag`")                                       \
  X(packer, TEXT, "", 0, "strategy that found the addresses")                                     \
  X(key, KEY, "", 0, "hash of all that the plan depends on; of forecasts")                        \
  X(plan_id, NUMBER, "", 0, "its row in the database; 0: none")                                   \
  X(hit, BOOL, "", 0, "it came from the database; of forecasts")                                  \
  X(source, TEXT, "", PRINT,                                                                      \
    "`planned`: cheap to find, so that it is planned again each time; `kept`: dear to find, and " \
    "kept in the database; `read`: from there; of forecasts")                                     \
  X(arena_bytes, NUMBER, "bytes", STORE | PRINT,                                                  \
    "activations, their gradients and scratch, packed")                                           \
  X(lower_bound_bytes, NUMBER, "bytes", STORE | PRINT,                                            \
    "with these kernels and this order no plan needs less")                                       \
  X(proved, BOOL, "", STORE | PRINT,                                                              \
    "1: arena_bytes is the least for these kernels and this order, lower_bound_bytes")            \
  X(baseline_bytes, NUMBER, "bytes", STORE | PRINT,                                               \
    "without reuse: every transient value, views too, with bytes of its own, by the same "        \
    "kernels; the most scratch of one op")                                                        \
  X(total_bytes, NUMBER, "bytes", PRINT, "the sum of all regions")                                \
  X(parameter_bytes, NUMBER, "bytes", STORE, "parameters")                                        \
  X(gradient_bytes, NUMBER, "bytes", STORE, "gradients of parameters")                            \
  X(state_bytes, NUMBER, "bytes", STORE,                                                          \
    "optimizer and running statistics, with the copies that a failed run is put back from")       \
  X(io_bytes, NUMBER, "bytes", STORE, "inputs, outputs and kept blobs")                           \
  X(constant_bytes, NUMBER, "bytes", STORE, "packed weights, at inference")                       \
  X(frame_bytes, NUMBER, "bytes", STORE,                                                          \
    "an iteration of loops without `max` that a gradient goes through; in the total once")        \
  X(scratch_bytes_max, NUMBER, "bytes", PRINT, "the most scratch of one op")                      \
  X(flops, NUMBER, "flops", PRINT, "work of a step")                                              \
  X(n_op, NUMBER, "", 0, "ops that run")                                                          \
  X(n_value, NUMBER, "", 0, "values")                                                             \
  X(peak_step, INDEX, "step", STORE, "step at which most is live")                                \
  X(n_recomputed, NUMBER, "", PRINT,                                                              \
    "ops, counted in n_op, that the backward pass runs again because the budget has no room to "  \
    "keep what they make: the same kernels on the same bytes, so results have the same bits")     \
  X(recomputed_work, REAL, "", PRINT, "their work, as a share of that of all other ops")          \
  X(n_changed, NUMBER, "", PRINT,                                                                 \
    "ops, those of subnets too, whose kernel is not the one that is chosen where `exact` holds")  \
  X(n_widened, NUMBER, "", PRINT,                                                                 \
    "ops, those of subnets too, whose bf16 or f16 is computed in f32: there is no kernel for it " \
    "on this processor")                                                                          \
  X(plan_ns, NUMBER, "ns", STORE, "time that planning took")                                      \
  X(n_search, NUMBER, "", STORE,                                                                  \
    "what the search for the plan looked at, blocks and nodes: the same on every machine")        \
  X(n_step, NUMBER, "", RUN, "steps run")                                                         \
  X(last_ns, NUMBER, "ns", RUN, "the last step")                                                  \
  X(min_ns, NUMBER, "ns", RUN, "the fastest step")                                                \
  X(median_ns, NUMBER, "ns", RUN, "of the recent steps")                                          \
  X(held_bytes, NUMBER, "bytes", RUN, "what the workspace owns now, for this session and others") \
  X(process_bytes, NUMBER, "bytes", RUN,                                                          \
    "tensor bytes of the whole process after the last step, whoever holds them")                  \
  X(planned_bytes, NUMBER, "bytes", RUN, "what the plan promised, all regions")                   \
  X(n_alloc, NUMBER, "", RUN, "allocations during the last step")                                 \
  X(run_id, NUMBER, "", RUN, "the run's row in the database; 0: none yet")                        \
  X(n_program, NUMBER, "", RUN, "dynamic: programs at hand")                                      \
  X(n_made, NUMBER, "", RUN, "dynamic: programs made so far")                                     \
  X(n_dropped, NUMBER, "", RUN, "dynamic: programs dropped")                                      \
  X(n_restart, NUMBER, "", RUN, "dynamic: runs begun anew")                                       \
  X(cache_bytes, NUMBER, "bytes", RUN, "dynamic: of the programs at hand")

/* What the database has of a plan besides its figures, and of a run. Times are seconds since
 * 1970. */
#define NEAP_PLAN_MAP(X)                                                                        \
  X(key, TEXT, "", STORE,                                                                       \
    "hash of all that the plan depends on: canonical graph, options, engines, threads")         \
  X(digest, TEXT, "", STORE, "hash of its choices, its order and its places")                   \
  X(dtype, TEXT, "", STORE, "of the first input")                                               \
  X(n_thread, NUMBER, "", STORE, "threads the kernels were chosen for")                         \
  X(budget_bytes, NUMBER, "bytes", STORE | UNLESS_0,                                            \
    "the arena may not exceed it; null: no budget")                                             \
  X(options, TEXT, "", STORE,                                                                   \
    "JSON: the options of the plan by their names (`neap help options`), as they came to hold") \
  X(planner_version, TEXT, "", STORE, "of the planner that made it")                            \
  X(kernel_set, TEXT, "", STORE, "engines and their versions")                                  \
  X(created_at, NUMBER, "s", STORE, "made")                                                     \
  X(used_at, NUMBER, "s", STORE, "last used")

#define NEAP_RUN_MAP(X)                                                                          \
  X(plan_id, NUMBER, "", 0, "row of its plan")                                                   \
  X(net, TEXT, "", STORE, "name of the net")                                                     \
  X(mode, TEXT, "", STORE, "`train` or `infer`")                                                 \
  X(batch, NUMBER, "", STORE, "first dimension of the inputs; of several programs the largest")  \
  X(script, TEXT, "", STORE, "script that ran it, or null")                                      \
  X(arguments, TEXT, "", STORE, "of the script: a list in JSON, or null")                        \
  X(tag, TEXT, "", STORE, "the user's label, or null")                                           \
  X(commit_id, TEXT, "", STORE, "the commit of the script's repository, or null")                \
  X(commit_dirty, NUMBER, "", STORE, "1: files there differ from it; 0: none does; or null")     \
  X(seed, NUMBER, "", STORE, "bits of an unsigned 64-bit number, shown signed")                  \
  X(n_thread, NUMBER, "", STORE, "threads")                                                      \
  X(n_step, NUMBER, "", STORE, "steps done")                                                     \
  X(started_at, NUMBER, "s", STORE, "start")                                                     \
  X(started_ms, NUMBER, "ms", 0, "start, in milliseconds since 1970: its UUID is of it")         \
  X(seen_at, NUMBER, "s", STORE | UNLESS_0, "written last; null in older rows")                  \
  X(ended_at, NUMBER, "s", STORE | UNLESS_0, "end; null while it is running, and in older rows") \
  X(host, TEXT, "", STORE, "name of the machine in its network; null in older rows")             \
  X(process_id, NUMBER, "", STORE | UNLESS_0, "of the process that runs it; null in older rows") \
  X(process_key, TEXT, "", STORE,                                                                \
    "tells whether that process lives: boot, space of process ids, start; null in older rows")   \
  X(step_min_ns, NUMBER, "ns", STORE | UNLESS_0, "the fastest step; null when none ran")         \
  X(step_median_ns, NUMBER, "ns", STORE | UNLESS_0,                                              \
    "of all steps, exactly for the first 1024, then within 6.3 %; null when none ran")           \
  X(step_p95_ns, NUMBER, "ns", STORE | UNLESS_0,                                                 \
    "what 95 % of all do not exceed; null when none ran, and in older rows")                     \
  X(planned_bytes, NUMBER, "bytes", STORE,                                                       \
    "what the plan promised, all regions; of several programs the largest")                      \
  X(held_bytes, NUMBER, "bytes", STORE | UNLESS_0,                                               \
    "what compiling and running took, with what the workspace had before, by the counted "       \
    "allocator")                                                                                 \
  X(resident_bytes, NUMBER, "bytes", STORE | UNLESS_0,                                           \
    "peak of the process, by the operating system")                                              \
  X(status, TEXT, "", STORE,                                                                     \
    "running, finished, interrupted, failed, refused (by a limit) or lost (its process ended "   \
    "without a word)")                                                                           \
  X(error, TEXT, "", STORE, "JSON, or null")

/* A program of a run: a training has one for its steps, another for evaluation, others for batches
 * of fewer rows. */
#define NEAP_PROGRAM_MAP(X)                                                         \
  X(program_no, NUMBER, "", 0, "in the order of their first steps, from 1")         \
  X(plan_id, NUMBER, "", 0, "row of its plan; 0: none")                             \
  X(net, TEXT, "", STORE, "name of its net")                                        \
  X(mode, TEXT, "", STORE, "`train` or `infer`")                                    \
  X(batch, NUMBER, "", STORE, "first dimension of the inputs")                      \
  X(n_step, NUMBER, "", STORE, "runs of it that ended well")                        \
  X(step_min_ns, NUMBER, "ns", STORE | UNLESS_0, "the fastest; null when none did") \
  X(step_median_ns, NUMBER, "ns", STORE | UNLESS_0, "of all, as of a run")          \
  X(step_p95_ns, NUMBER, "ns", STORE | UNLESS_0, "of all, as of a run")             \
  X(planned_bytes, NUMBER, "bytes", STORE, "what its plan promised, all regions")   \
  X(held_bytes, NUMBER, "bytes", STORE | UNLESS_0,                                  \
    "what its workspace held after its last run, for all its programs")

#define NEAP_RUN_OP_MAP(X)                                                        \
  X(step, INDEX, "step", STORE, "of the plan: joins plan_op")                     \
  X(n_call, NUMBER, "", STORE, "runs that were timed: all of them")               \
  X(min_ns, NUMBER, "ns", STORE, "the fastest")                                   \
  X(median_ns, NUMBER, "ns", STORE, "of all, within 6.3 %")                       \
  X(p95_ns, NUMBER, "ns", STORE, "what 95 % of all do not exceed, within 6.3 %")  \
  X(last_ns, NUMBER, "ns", 0, "the last one")                                     \
  X(total_ns, NUMBER, "ns", STORE, "all of them")                                 \
  X(gap_ns, NUMBER, "ns", STORE,                                                  \
    "all of them: from the end of the op before it on its thread to its start")   \
  X(recent_ns, NUMBERS, "ns", 0, "the last few, in no order")                     \
  X(begun_ns, NUMBERS, "ns", 0, "when these began, by a clock of the process")    \
  X(run_no, NUMBERS, "", 0, "the runs that they were of, counted from 1")         \
  X(on_thread, NUMBERS, "", 0, "who ran them")                                    \
  X(start_ns, NUMBER, "ns", STORE, "from the start of the step, in the last one") \
  X(thread, NUMBER, "", STORE, "that ran it")

/* A dry run, of a net that is planned and not allocated: its totals, .. */
#define NEAP_DRY_RUN_MAP(X)                                                                    \
  X(net, TEXT, "", PRINT, "name of the net")                                                   \
  X(policy, TEXT, "", PRINT, "`none`, `name`, `offset` or `pool`: where addresses come from")  \
  X(train, BOOL, "", PRINT, "it has a backward pass")                                          \
  X(raw_bytes, NUMBER, "bytes", PRINT, "data and diffs of all blobs, none shared")             \
  X(raw_data_bytes, NUMBER, "bytes", PRINT, "of these the data")                               \
  X(raw_diff_bytes, NUMBER, "bytes", PRINT, "of these the diffs, which blobs of floats have")  \
  X(planned_bytes, NUMBER, "bytes", PRINT, "the arena, and what has bytes of its own")         \
  X(arena_bytes, NUMBER, "bytes", PRINT, "activations, their gradients and scratch, packed")   \
  X(scratch_bytes_max, NUMBER, "bytes", PRINT, "the most scratch of one op, inside the arena") \
  X(saved, REAL, "", PRINT, "1 - planned / raw")

/* .. its values, a blob's data or diff each; what the library makes besides is listed too, .. */
#define NEAP_DRY_ROW_MAP(X)                                                                     \
  X(layer, TEXT, "", PRINT, "the op that makes the blob; the blob's name where none does")      \
  X(blob, TEXT, "", PRINT, "name of the blob")                                                  \
  X(key, TEXT, "", PRINT, "`data` or `diff`")                                                   \
  X(bytes, NUMBER, "bytes", PRINT, "padding of its layout included")                            \
  X(slot, TEXT, "", PRINT, "`slot 3` of the arena, or the region where its own bytes lie")      \
  X(first_step, INDEX, "step", PRINT, "that writes it; 0: it is there before")                  \
  X(last_step, INDEX, "step", PRINT, "that reads it last; 0: none does")                        \
  X(reason, TEXT, "", PRINT, "how it got its bytes: own, reuse, in_place, alias, resident, ..") \
  X(partner, TEXT, "", PRINT, "the value whose bytes those are or were; null: none")            \
  X(region, TEXT, "", 0, "`arena`, or where its own bytes lie: `io`, `constants`, ..")          \
  X(role, TEXT, "", 0, "activation, input, output, ..")                                         \
  X(dtype, TEXT, "", 0, "`f32`")                                                                \
  X(slot_no, INDEX, "slot", 0, "number of its slot; null: bytes of its own")

/* .. its layers, .. */
#define NEAP_DRY_LAYER_MAP(X)                                                       \
  X(layer, TEXT, "", PRINT, "an op of the net, or an input's name")                 \
  X(raw_bytes, NUMBER, "bytes", PRINT, "data and diffs of the blobs that it makes") \
  X(planned_bytes, NUMBER, "bytes", PRINT, "of these with bytes of their own; the rest is in slots")

/* .. and its slots, in the order of their addresses. */
#define NEAP_DRY_SLOT_MAP(X)                                                 \
  X(slot, INDEX, "slot", PRINT, "its number")                                \
  X(offset_bytes, NUMBER, "bytes", PRINT, "from the start of the arena")     \
  X(bytes, NUMBER, "bytes", PRINT, "of the largest value that begins there") \
  X(n_blob, NUMBER, "", PRINT, "values that begin there")                    \
  X(blobs, NAMES, "", PRINT, "their labels: `fc1`, `fc1.grad`")              \
  X(rows, INDICES, "row", 0, "their rows in the dry run")

#define NEAP_COUNT_MAP(X)                                                             \
  X(parameter_bytes, NUMBER, "bytes", PRINT, "parameters")                            \
  X(gradient_bytes, NUMBER, "bytes", PRINT, "gradients of parameters")                \
  X(output_bytes, NUMBER, "bytes", PRINT,                                             \
    "blobs that the net names: inputs, activations, outputs")                         \
  X(gradient_input_bytes, NUMBER, "bytes", PRINT, "the gradients of those")           \
  X(buffer_bytes, NUMBER, "bytes", PRINT,                                             \
    "optimizer and normalisation state, constants, masks and other stashes, scratch") \
  X(total_bytes, NUMBER, "bytes", PRINT, "all of them, what classes share counted once")

/* Of a workspace. */
#define NEAP_BLOB_MAP(X)                                                                         \
  X(name, TEXT, "", PRINT, "of the blob")                                                        \
  X(kind, TEXT, "", PRINT,                                                                       \
    "`tensor`; `transient`: in the arena, of the program that ran last; `string`, `scope`, "     \
    "`empty`")                                                                                   \
  X(role, TEXT, "", PRINT, "activation, input, parameter, gradient, state, output")              \
  X(region, TEXT, "", PRINT | UNLESS_0, "parameters, io, arena, ..; none for what is no tensor") \
  X(dtype, TEXT, "", PRINT | UNLESS_0, "`f32`; none for what is no tensor")                      \
  X(shape, NUMBERS, "", PRINT, "its dimensions; none for what is no tensor")                     \
  X(bytes, NUMBER, "bytes", PRINT, "that it has, whoever counts them")                           \
  X(counted_bytes, NUMBER, "bytes", 0,                                                           \
    "of those, what no other row counts: storages shared by several names count once, "          \
    "transients not")                                                                            \
  X(bank, TEXT, "", UNLESS_0, "memory bank that its bytes lie in; none without")                 \
  X(borrowed, BOOL, "", 0, "forwarded, or the parent's")                                         \
  X(shares, BOOL, "", 0, "some of its bytes are counted elsewhere")                              \
  X(first_step, INDEX, "step", 0,                                                                \
    "of its life in the program made or run last; 0: it is there before; none: not in it")       \
  X(last_step, INDEX, "step", 0, "of that life; 0: nobody reads it")                             \
  X(steps, TEXT, "", 0, "that life: `2-5`, `before-3`, `unread`; \"\": not in the program")      \
  X(bar, TEXT, "", 0, "as many blocks, of 20, as its bytes are of the largest blob's")

/* The pool of a session's workspace, and how far its last run used it. */
#define NEAP_POOL_MAP(X)                                                                        \
  X(reserved_bytes, NUMBER, "bytes", PRINT, "the region, kept between runs")                    \
  X(used_bytes, NUMBER, "bytes", PRINT, "taken of it now: 0 between runs")                      \
  X(high_bytes, NUMBER, "bytes", PRINT, "most that was taken at once so far, by any program")   \
  X(reach_bytes, NUMBER, "bytes", PRINT, "the part of the region that this took")               \
  X(arena_bytes, NUMBER, "bytes", PRINT, "what the plan foretold of that part")                 \
  X(lower_bound_bytes, NUMBER, "bytes", PRINT,                                                  \
    "with these kernels and this order no pool needs less")                                     \
  X(soft_bytes, NUMBER, "bytes", PRINT, "above this the region is cut down again; 0: no limit") \
  X(n_take, NUMBER, "", PRINT, "blocks taken since the pool was made")                          \
  X(n_used, NUMBER, "", PRINT, "blocks that are taken now")                                     \
  X(n_free_block, NUMBER, "", PRINT, "free blocks")                                             \
  X(n_evicted, NUMBER, "", PRINT,                                                               \
    "of one run: values given back before their last reader, for want of room")                 \
  X(evicted_bytes, NUMBER, "bytes", PRINT, "their bytes")                                       \
  X(n_recomputed, NUMBER, "", PRINT, "ops that run again for it")                               \
  X(recomputed_work, REAL, "", PRINT, "their work, as a share of that of a run without")        \
  X(curve, NUMBERS, "bytes", 0,                                                                 \
    "taken while each step of the last run ran; 0 for steps that it did not reach")

/* X(symbol, word, map, what a row is) */
#define NEAP_ROW_MAP(X)                                                                   \
  X(OP, op, NEAP_OP_MAP, "a step of the plan")                                            \
  X(VALUE, value, NEAP_VALUE_MAP, "a value of the plan, and where it lies")               \
  X(REGION, region, NEAP_REGION_ROW_MAP, "a region, and its bytes")                       \
  X(BANK, bank, NEAP_BANK_ROW_MAP, "a memory bank, `main` first; none without banks")     \
  X(REWRITE, rewrite, NEAP_REWRITE_MAP,                                                   \
    "a rewrite of a net that does not train, as they were made")                          \
  X(FIGURES, figures, NEAP_FIGURE_MAP, "a plan and its runs in figures; one row")         \
  X(PLAN, plan, NEAP_PLAN_MAP, "a plan in the database, besides its figures")             \
  X(RUN, run, NEAP_RUN_MAP, "a run in the database")                                      \
  X(PROGRAM, program, NEAP_PROGRAM_MAP, "a program of a run in the database")             \
  X(RUN_OP, run_op, NEAP_RUN_OP_MAP, "a step of the plan, timed")                         \
  X(KERNEL, kernel, NEAP_KERNEL_MAP, "a kernel that could run a step of the plan, timed") \
  X(DRY_RUN, dry_run, NEAP_DRY_RUN_MAP, "the totals of a dry run; one row")               \
  X(DRY_ROW, dry_row, NEAP_DRY_ROW_MAP, "a value of a dry run: a blob's data or diff")    \
  X(DRY_LAYER, dry_layer, NEAP_DRY_LAYER_MAP, "a layer of a dry run")                     \
  X(DRY_SLOT, dry_slot, NEAP_DRY_SLOT_MAP,                                                \
    "a slot of a dry run: what begins at one address of the arena")                       \
  X(COUNTS, counts, NEAP_COUNT_MAP, "bytes by the classes of Torch's optnet; one row")    \
  X(BLOB, blob, NEAP_BLOB_MAP, "a blob of a workspace")                                   \
  X(POOL, pool, NEAP_POOL_MAP, "the pool of a session; one row, none where addresses are planned")

typedef enum neap_row_kind {
#define X(symbol, word, map, doc) NEAP_ROW_##symbol,
  NEAP_ROW_MAP(X)
#undef X
    NEAP_N_ROW
} neap_row_kind;

/* Steps, values and the like count from 0 in C, and from 1 wherever people read them. */
typedef enum neap_column_type {
  NEAP_COLUMN_NUMBER,  /* int64_t, NEAP_NO_NUMBER where there is none */
  NEAP_COLUMN_INDEX,   /* int, NEAP_NO_INDEX where there is none */
  NEAP_COLUMN_REAL,    /* double */
  NEAP_COLUMN_BOOL,    /* bool */
  NEAP_COLUMN_TEXT,    /* const char *, NULL where there is none */
  NEAP_COLUMN_NAMES,   /* neap_names */
  NEAP_COLUMN_INDICES, /* neap_indices */
  NEAP_COLUMN_NUMBERS, /* neap_numbers, NULL where there are none */
  NEAP_COLUMN_KEY      /* char[33], "" where there is none */
} neap_column_type;
#define NEAP_NO_NUMBER INT64_MIN
enum { NEAP_NO_INDEX = -2 }; /* -1 is before the first: 0 to people */
typedef struct neap_names {
  int n;
  const char *const *name;
} neap_names;
typedef struct neap_indices {
  int n;
  const int *index;
} neap_indices;
typedef struct neap_numbers {
  int n;
  const int64_t *number;
} neap_numbers;

#define NEAP_CELL_NUMBER(name) int64_t name;
#define NEAP_CELL_INDEX(name) int name;
#define NEAP_CELL_REAL(name) double name;
#define NEAP_CELL_BOOL(name) bool name;
#define NEAP_CELL_TEXT(name) const char *name;
#define NEAP_CELL_NAMES(name) neap_names name;
#define NEAP_CELL_INDICES(name) neap_indices name;
#define NEAP_CELL_NUMBERS(name) neap_numbers name;
#define NEAP_CELL_KEY(name) char name[33];
#define X(name, type, unit, shown, doc) NEAP_CELL_##type(name)
typedef struct neap_op_row {
  NEAP_OP_MAP(X)
} neap_op_row;
typedef struct neap_value_row {
  NEAP_VALUE_MAP(X)
} neap_value_row;
typedef struct neap_kernel_row {
  NEAP_KERNEL_MAP(X)
} neap_kernel_row;
typedef struct neap_region_row {
  NEAP_REGION_ROW_MAP(X)
} neap_region_row;
typedef struct neap_bank_row {
  NEAP_BANK_ROW_MAP(X)
} neap_bank_row;
typedef struct neap_rewrite_row {
  NEAP_REWRITE_MAP(X)
} neap_rewrite_row;
typedef struct neap_plan_row {
  NEAP_PLAN_MAP(X)
} neap_plan_row;
typedef struct neap_run_row {
  NEAP_RUN_MAP(X)
} neap_run_row;
typedef struct neap_program_row {
  NEAP_PROGRAM_MAP(X)
} neap_program_row;
typedef struct neap_run_op_row {
  NEAP_RUN_OP_MAP(X)
} neap_run_op_row;
typedef struct neap_dry_row {
  NEAP_DRY_ROW_MAP(X)
} neap_dry_row;
typedef struct neap_dry_layer {
  NEAP_DRY_LAYER_MAP(X)
} neap_dry_layer;
typedef struct neap_dry_slot {
  NEAP_DRY_SLOT_MAP(X)
} neap_dry_slot;
typedef struct neap_blob_row {
  NEAP_BLOB_MAP(X)
} neap_blob_row;
#undef X

enum { /* where a column is shown */
       NEAP_SHOWN_STORE = 1,
       NEAP_SHOWN_ZERO = 2,
       NEAP_SHOWN_PRINT = 4,
       NEAP_SHOWN_SOME = 8,
       NEAP_SHOWN_UNLESS_0 = 16,
       NEAP_SHOWN_RUN = 32,
       NEAP_SHOWN_IN_LAYER = 64
};
typedef struct neap_column {
  /* unit: "bytes", "ns", "flops", "step", "value", "slot", "row"; "" for none */
  const char *name, *unit, *doc;
  neap_column_type type;
  unsigned shown;
  size_t offset; /* in the row's struct */
} neap_column;
/* The columns of a kind in the order above, NULL behind the last. */
NEAP_API const neap_column *neap_column_at(neap_row_kind kind, int i);
/* "op", "value", ..; what a row of it is, if `doc` is not NULL. NULL behind the last kind. */
NEAP_API const char *neap_row_kind_name(neap_row_kind kind, const char **doc);

/* One field of a row as people are shown it, for programs that show columns that they do not
 * know. */
typedef enum neap_datum_type {
  NEAP_DATUM_NONE,
  NEAP_DATUM_INTEGER,
  NEAP_DATUM_REAL,
  NEAP_DATUM_BOOL,  /* in `integer` */
  NEAP_DATUM_TEXT,  /* borrowed from the row, and so are lists */
  NEAP_DATUM_NAMES, /* n of them; indices: people are shown one more */
  NEAP_DATUM_INDICES,
  NEAP_DATUM_NUMBERS
} neap_datum_type;
typedef struct neap_datum {
  neap_datum_type type;
  int64_t integer;
  double real;
  const char *text;
  int n;
  const char *const *names;
  const int *indices;
  const int64_t *numbers;
} neap_datum;
NEAP_API neap_datum neap_datum_of(const neap_column *column, const void *row);

/* A cursor over the rows of one kind.
 *
 *   neap_rows *rows = NULL;
 *   const void *at = NULL;
 *   if (neap_net_rows(net, NULL, NEAP_ROW_VALUE, &rows, &error)) goto end;
 *   while (!neap_rows_next(rows, &at, &error) && at != NULL) {
 *     const neap_value_row *row = at;
 *     printf("%s %lld\n", row->blob, (long long)row->bytes);
 *   }
 *   end:
 *   neap_rows_free(rows); */
typedef struct neap_rows neap_rows;
/* Of what would run: planned, nothing allocated; or of a dry run (neap_net_dry_run). `options`
 * NULL: the defaults. */
NEAP_API neap_status neap_net_rows(const neap_net *net, const neap_options *options,
                                   neap_row_kind kind, neap_rows **out, neap_error *error);
/* The next row, which is the cursor's until the next call; *row is NULL behind the last one. */
NEAP_API neap_status neap_rows_next(neap_rows *rows, const void **row, neap_error *error);
/* One row alone: of step or value `index`; *row is NULL for one that is not there. What
 * neap_rows_next gives is not moved by it. */
NEAP_API neap_status neap_rows_at(neap_rows *rows, int index, const void **row, neap_error *error);
/* Rows of subnet `k` of the op that was given last; while `ops` is there. ARGUMENT error where it
 * has none. */
NEAP_API neap_status neap_rows_sub(const neap_rows *ops, int k, neap_row_kind kind, neap_rows **out,
                                   neap_error *error);
/* The rows that are left as a JSON array of objects; what a row has not is left out. End it with
 * neap_free. */
NEAP_API neap_status neap_rows_json(neap_rows *rows, char **out, neap_error *error);
NEAP_API void neap_rows_free(neap_rows *rows);

#endif
