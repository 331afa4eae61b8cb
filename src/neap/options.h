/* neap/options.h: the options of plans, and of all that plans: one table, of which the struct, the
 * tables of Lua, the command line, JSON and the key of a plan are made. Part of neap.h, which
 * includes it.
 */
#include "neap.h"
#ifndef NEAP_OPTIONS_PART_H
#define NEAP_OPTIONS_PART_H

/* Caffe's words for memory options; zero is Caffe's default: nets that train are planned, others
 * are not, so that a program which looks at blobs in the middle of a test net finds them. With
 * planning on, these have bytes of their own, data and gradient ("diff"): the net's inputs and
 * outputs, what ops without inputs make, every loss, and what exclude_blob lists. A loss is what a
 * loss op gives, what a gradient is taken of, and the scalars that one is summed from. In that list
 * "conv1" stands for both keys, "conv1.data" and "conv1.diff" (or "conv1.grad") for one. It is put
 * into the words of neap_options, policy and keep; there is no second planner behind it. A listed
 * name that the net lacks is a NAME error. */
typedef struct neap_mem_param {
  bool no_optimize_train; /* optimize_train = false: nets that train are not planned */
  bool optimize_test;     /* nets that do not train are planned too */
  bool debug_info;        /* nothing is planned */
  int n_exclude_blob;
  const char *const *exclude_blob;
} neap_mem_param;

/* A memory bank: bytes of one kind, of which a program may take so many and no more. Ops whose
 * label (`on LABEL`) is the bank's name work on bytes of the bank alone: what they read from
 * elsewhere is copied there first, and what they write for elsewhere is copied out, by Reorder ops
 * that are planned and counted like any other. A blob assigned to a bank (`bank BANK NAME`) lies
 * there; one with bytes of its own from run to run is there for as long as a run uses it. All the
 * rest is in the bank "main", which needs no entry. Every bank has an arena, a lower bound and a
 * limit of its own. */
typedef enum neap_bank_kind {
  NEAP_BANK_ORDINARY,
  NEAP_BANK_HUGE /* asks the kernel for huge pages, where it has them */
} neap_bank_kind;
enum { NEAP_MAX_BANKS = 64 }; /* of one plan */
/* By its name; false for another. */
NEAP_API bool neap_bank_kind_from_name(const char *name, neap_bank_kind *kind);
typedef struct neap_bank {
  const char *name;
  int64_t bytes; /* its capacity: a program that needs more is refused, by its name; 0: no limit */
  neap_bank_kind kind;
} neap_bank;

/* Puts n blobs of this workspace, tensors with bytes of its own, into a memory bank; the bank
 * "main" takes them out again. What they hold stays; views taken before see the old bytes, and one
 * that is fed with another shape lies in main again. With `later` the bytes follow on a thread of
 * their own, and whoever asks for one of the blobs by name, or runs a session that uses it, waits.
 * Sessions opened afterwards, with the bank among their options, know where the blobs lie. NAME,
 * ARGUMENT, BUDGET or MEMORY errors (which name the bank) leave all as it was. */
NEAP_API neap_status neap_workspace_assign(neap_workspace *workspace, int n,
                                           const char *const *names, const neap_bank *bank,
                                           bool later, neap_error *error);

/* The policies, X(symbol, word), with `between` between two of them. */
#define NEAP_POLICY_MAP(X, between) \
  X(NONE, "none") between X(NAME, "name") between X(OFFSET, "offset") between X(POOL, "pool")
#define NEAP_POLICY_WORD(symbol, word) word

/* The options of a plan, one line each: the struct below, Lua's tables of memory options, the flags
 * and `--help` of the command line, JSON and the key of a plan are read from it, under these names.
 *
 * X(name, type, default, range, key, faces, what it says). Range: "%": from Lua and the command
 * line a share, "60%", of what the plan takes without; of numbers the least and the most; of
 * choices their words. Key: OWN: a line of its own in the text that a stored plan is found by;
 * DERIVED: what follows from it is there; NONE: plans do not depend on it. Faces: where it can be
 * given.
 *
 * By default (`exact`) no budget, policy or executor changes a kernel, so that results have the
 * same bits under all of them. With exact = false kernels with less scratch may take part where
 * nothing else keeps a budget, and in a dag each has one thread, so that any two can run side by
 * side: see neap_figures.n_changed. */
#define NEAP_OPTION_MAP(X)                                                                         \
  X(budget, BYTES, "none", "%", OWN, ALL,                                                          \
    "the most bytes of the arena, scratch included; what can't be met is refused with the least "  \
    "that would do; a share such as 60% is one of what each net's own plan takes alone")           \
  X(total, BYTES, "none", "", DERIVED, ALL, "the most bytes of everything that the program holds") \
  X(soft, BYTES, "none", "", NONE, ALL & ~COMMAND,                                                 \
    "policy pool: above this the pool is cut down again by the next run that needs less")          \
  X(policy, CHOICE, "offset", NEAP_POLICY_MAP(NEAP_POLICY_WORD, " "), OWN, ALL,                    \
    "where addresses come from: every value its own bytes, one slot a name, planned to the byte, " \
    "a pool while it runs")                                                                        \
  X(executor, CHOICE, "simple", "simple dag dynamic", OWN, ALL,                                    \
    "op by op; independent ops side by side, where that leaves the bits as they are; policy pool " \
    "for inputs of any shape")                                                                     \
  X(recompute, SWITCH, "true", "", OWN, ALL,                                                       \
    "ops may run again in the backward pass to keep a budget: the same bits")                      \
  X(exact, SWITCH, "true", "", OWN, ALL,                                                           \
    "no budget, policy or executor changes a kernel, and so bits")                                 \
  X(in_place, SWITCH, "true", "", OWN, ALL,                                                        \
    "an op may write its output over an input that nobody reads later")                            \
  X(fuse, CHOICE, "true", "true false pool", DERIVED, ALL,                                         \
    "a net that does not train is fused into fewer ops; false: op by op, as written; pool: for "   \
    "memory, poolings become part of "                                                             \
    "the convolutions before them, a few images at a time")                                        \
  X(rewrite, SWITCH, "true", "", DERIVED, ALL,                                                     \
    "ops that nobody needs are dropped, and the graph is simplified")                              \
  X(dtype, CHOICE, "f32", "f32 bf16 f16", DERIVED, ALL,                                            \
    "mixed precision: activations, their gradients and products in bf16 or f16; parameters, what " \
    "updates them, sums and losses stay f32, and so do inputs and outputs")                        \
  X(engine, ENGINE, "free", "free", OWN, ALL,                                                      \
    "kernels of one library alone; free: the fastest for each op; not given: what NEAP_ENGINE "    \
    "says")                                                                                        \
  X(layouts, CHOICE, "free", "free plain", OWN, ALL,                                               \
    "plain: without the blocked layouts of convolutions")                                          \
  X(threads, COUNT, "NEAP_NUM_THREADS, or all cores", "1 4096", OWN, ALL,                          \
    "how many threads a kernel may have")                                                          \
  X(search, COUNT, "the planner's", "1", OWN, ALL,                                                 \
    "steps of each search, for addresses and for what to recompute")                               \
  X(keep, NAMES, "none", "", DERIVED, ALL,                                                         \
    "blobs with bytes of their own, which can be read after a run: x, and x.grad for its "         \
    "gradient")                                                                                    \
  X(keep_all, SWITCH, "false", "", DERIVED, ALL,                                                   \
    "every blob that the net names has bytes of its own")                                          \
  X(banks, BANKS, "none", "", DERIVED, ALL,                                                        \
    "memory banks; not with policy pool, which takes bytes while it runs")                         \
  X(mem_param, MEM_PARAM, "none", "", DERIVED, ALL & ~COMMAND, "Caffe's words, instead of policy") \
  X(inputs, INPUTS, "as declared", "", DERIVED, C | LUA | COMMAND,                                 \
    "shapes of inputs by name, where they are not as declared")                                    \
  X(max_batch, COUNT, "none", "1", DERIVED, LUA | WORKSPACE | TRAINER | LAYERS | COMMAND,          \
    "rows of the largest batch, in whose bytes smaller ones run")                                  \
  X(profile, SWITCH, "NEAP_PROFILE", "", NONE, ALL & ~(MICRO | COMMAND),                           \
    "times of each op are taken and recorded")                                                     \
  X(store, SWITCH, "true", "", NONE, ALL & ~MICRO,                                                 \
    "plans are looked up in the database, and plans and runs recorded")                            \
  X(tag, TEXT, "none", "", NONE, ALL & ~(MICRO | COMMAND), "a label for the run in the database")  \
  X(accumulate, CHOICE, "none", "mean sum", DERIVED, MICRO,                                        \
    "what the loss makes of its rows, so that batches can be added up before an update; none: "    \
    "they can't, and nothing is held")

/* An option that is on or off. Zero is the option's default: turn one off with NEAP_OFF, since
 * `false` is zero too. */
typedef enum neap_switch { NEAP_DEFAULT, NEAP_ON, NEAP_OFF } neap_switch;

/* A field for each option, by its name; zero and NULL everywhere are the defaults:
 * `(neap_options){.budget = 64 << 20, .executor = "dag", .recompute = NEAP_OFF}`. A list `keep` has
 * its length in `n_keep`, `banks` in `n_banks`, `inputs` in `n_inputs`; a name in keep that the net
 * lacks is a NAME error. The fields behind the table's are no options: what a program brings with
 * it. */

/* The type that an input has, where that is not the declared one: another batch. */
typedef struct neap_input {
  const char *name;
  neap_type type;
} neap_input;
/* What another program of the same step holds beside a net's own regions: for a total, which counts
 * it. Both run in one arena, as large as the larger of them. */
typedef struct neap_beside {
  size_t bytes, arena_bytes;
} neap_beside;

#define NEAP_FIELD_BYTES(name) int64_t name;
#define NEAP_FIELD_COUNT(name) int64_t name;
#define NEAP_FIELD_SWITCH(name) neap_switch name;
#define NEAP_FIELD_CHOICE(name) const char *name;
#define NEAP_FIELD_ENGINE(name) const char *name;
#define NEAP_FIELD_TEXT(name) const char *name;
#define NEAP_FIELD_NAMES(name) \
  int n_##name;                \
  const char *const *name;
#define NEAP_FIELD_BANKS(name) \
  int n_##name;                \
  const neap_bank *name;
#define NEAP_FIELD_MEM_PARAM(name) const neap_mem_param *name;
#define NEAP_FIELD_INPUTS(name) \
  int n_##name;                 \
  const neap_input *name;
typedef struct neap_options {
#define X(name, type, fallback, range, key, faces, doc) NEAP_FIELD_##type(name)
  NEAP_OPTION_MAP(X)
#undef X
  /* The database that `store` speaks of: without one nothing is looked up or recorded, and
   * `profile` and `tag` are for nobody. It stays the caller's; who records in it holds it. */
  neap_db *db;
  neap_run *run;      /* that the session is a part of (neap/db.h); NULL: one of its own, in db */
  neap_beside beside; /* neap_micro_beside */
  const char *script; /* who runs, for the row of a run, "train.lua:12"; NULL: nobody says */
} neap_options;

/* The same as a record, for programs that show or pass on options that they do not know. */
typedef enum neap_option_type {
  NEAP_OPTION_BYTES,  /* int64_t */
  NEAP_OPTION_COUNT,  /* int64_t */
  NEAP_OPTION_SWITCH, /* neap_switch */
  NEAP_OPTION_CHOICE, /* const char *, a word of `range` */
  /* the same; a row's range has the engines' names too, which NEAP_OPTION_MAP leaves out */
  NEAP_OPTION_ENGINE = NEAP_OPTION_CHOICE,
  NEAP_OPTION_TEXT,  /* const char * */
  NEAP_OPTION_NAMES, /* const char *const *, and an int before it */
  NEAP_OPTION_BANKS, /* const neap_bank *, and an int before it */
  NEAP_OPTION_MEM_PARAM,
  NEAP_OPTION_INPUTS /* const neap_input *, and an int before it */
} neap_option_type;
typedef enum neap_option_key { NEAP_KEY_NONE, NEAP_KEY_DERIVED, NEAP_KEY_OWN } neap_option_key;
enum {                      /* faces: where an option can be given */
       NEAP_FACE_C = 1,     /* the functions of this file, but for */
       NEAP_FACE_MICRO = 2, /* neap_micro_open */
       /* net:plan, m:plan, forecast, dry_run, count_memory, ws:compile, ws:run and the like */
       NEAP_FACE_LUA = 4,
       NEAP_FACE_WORKSPACE = 8, /* neap.workspace: for all that runs there */
       NEAP_FACE_TRAINER = 16,  /* a trainer's `memory` */
       NEAP_FACE_LAYERS = 32,   /* m:memory */
       NEAP_FACE_FIT = 64,      /* neap.fit_batch */
       NEAP_FACE_COMMAND = 128, /* neap plan, neap profile run */
       NEAP_FACE_ALL = 255
};
typedef struct neap_option {
  const char *name, *fallback, *range, *doc; /* fallback: what holds where it is not given */
  neap_option_type type;
  neap_option_key key;
  unsigned faces;
  size_t offset; /* in neap_options: of the field, for a list of its length */
} neap_option;
/* The options in the order above, NULL behind the last. */
NEAP_API const neap_option *neap_option_at(int i);
NEAP_API const neap_option *neap_option_find(const char *name); /* NULL for none */
/* ARGUMENT error: `who` has no use for this option. */
NEAP_API neap_status neap_option_refuse(const neap_option *option, const char *who,
                                        neap_error *error);
/* Ranges, words, and that all that is given may be given at this face. ARGUMENT error, which says
 * `who` does not take it. */
NEAP_API neap_status neap_options_check(const neap_options *options, unsigned face, const char *who,
                                        neap_error *error);
/* Sets an option by its name from text: "64MiB", "3", "false", "dag". ATTRIBUTE error for an
 * unknown one, with the nearest name; ARGUMENT for what it does not take, and for lists. `text` of
 * a text option is borrowed as long as the options are used. */
NEAP_API neap_status neap_options_set(neap_options *options, const char *name, const char *text,
                                      neap_error *error);
/* As a JSON object with all options that are given; ended by neap_free. */
NEAP_API neap_status neap_options_json(const neap_options *options, char **out, neap_error *error);

#endif
