/* neap.h: Neap from C. A net is written as text, planned to the byte before anything is allocated,
 * and run in a workspace. Compile with `cc program.c -lneap`. This file and its parts, neap/NAME.h,
 * which it includes, are the whole contract: what a Lua script can do is done by these functions.
 * Read it from top to bottom.
 *
 * A net that learns exclusive or, and what its memory costs:
 *
 *   #include "neap.h"
 *   #include <stdio.h>
 *
 *   static const char net_text[] =
 *     "net xor\n"
 *     "input x f32 (4,2)\n"
 *     "input label i32 (4)\n"
 *     "input lr f32 (1)\n"
 *     "param w1 f32 (8,2) = Xavier\n"
 *     "param b1 f32 (8) = Constant\n"
 *     "param w2 f32 (2,8) = Xavier\n"
 *     "param b2 f32 (2) = Constant\n"
 *     "sum = FC(x, w1, b1)\n"
 *     "hidden = Tanh(sum)\n"
 *     "score = FC(hidden, w2, b2)\n"
 *     "loss = SoftmaxCrossEntropy(score, label)\n"
 *     "outputs loss, score\n";
 *
 *   int main(void) {
 *     const float x[4][2] = {{0, 0}, {0, 1}, {1, 0}, {1, 1}}, lr = 0.5f;
 *     const int32_t label[4] = {0, 1, 1, 0};
 *     float loss = 0, score[4][2];
 *     char *why = NULL;
 *     neap_error error = {0};
 *     neap_net *net = NULL;
 *     neap_workspace *ws = NULL;
 *     neap_session *session = NULL;
 *
 *     if (neap_net_read(net_text, &net, &error)) goto end;
 *     if (neap_net_add_gradient(net, "loss", 0, NULL, NULL, NULL, &error)) goto end;
 *     for (int i = 0; i < 4; i++) {
 *       const char *p = ((const char *[]){"w1", "b1", "w2", "b2"})[i];
 *       if (neap_net_add_text(net, &error, "%s = Sgd(%s, %s_grad, lr)", p, p, p)) goto end;
 *     }
 *     if (neap_workspace_open(1, &ws, &error)) goto end;
 *     if (neap_workspace_write(ws, "x", NEAP_DTYPE_F32, 2, (int64_t[]){4, 2}, x, &error)) goto end;
 *     if (neap_workspace_write(ws, "label", NEAP_DTYPE_I32, 1, (int64_t[]){4}, label, &error))
 *       goto end;
 *     if (neap_workspace_write(ws, "lr", NEAP_DTYPE_F32, 1, (int64_t[]){1}, &lr, &error)) goto end;
 *     if (neap_session_open(ws, net, NULL, &session, &error)) goto end;
 *     for (int step = 0; step < 200; step++)
 *       if (neap_session_run(session, &error)) goto end;
 *     if (neap_workspace_read(ws, "loss", NEAP_DTYPE_F32, 1, &loss, &error)) goto end;
 *     if (neap_workspace_read(ws, "score", NEAP_DTYPE_F32, 8, score, &error)) goto end;
 *     if (neap_session_explain(session, "hidden", &why, &error)) goto end;
 *
 *     neap_figures f = neap_session_figures(session);
 *     printf("loss %.4f, arena %lld bytes of %lld without reuse\n%s\n", (double)loss,
 *            (long long)f.arena_bytes,
 *            (long long)f.baseline_bytes, why);
 *   end:
 *     if (error.code != NEAP_OK)
 *       fprintf(stderr, "%s: %s\n", neap_status_text(error.code), error.message);
 *     neap_free(why);
 *     neap_session_free(session);
 *     neap_workspace_release(ws);
 *     neap_net_free(net);
 *     return error.code != NEAP_OK;
 *   }
 *
 * Rules that hold everywhere. A function that can fail returns a status, NEAP_OK = 0, and fills the
 * caller's error record (NULL: the text is not wanted); a failed call changes nothing. Pointers to
 * text and numbers that go in are borrowed for the call. What comes out through `**out` is the
 * caller's, to be ended by the function named beside it, all of which take NULL. Indices and axes
 * count from 0. A net, a workspace and its sessions belong to one thread at a time; that may be one
 * of a parallel region, in which Neap makes no threads for what is made there, or a child of fork.
 * Nothing here prints or exits; NEAP_NUM_THREADS, NEAP_ENGINE, NEAP_PLAN and NEAP_POISON are all it
 * reads of the environment, and for the place of the database NEAP_DB, XDG_DATA_HOME and HOME.
 */
#ifndef NEAP_H
#define NEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define NEAP_API __attribute__((visibility("default")))
#define NEAP_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define NEAP_API
#define NEAP_PRINTF(fmt, args)
#endif

#define NEAP_VERSION "0.1.0"
#define NEAP_MAX_DIM 8
/* Of the library that runs, where NEAP_VERSION is that of this header. */
NEAP_API const char *neap_version(void);

/* An engine: who computes. Each op has kernels of one or several; the option `engine` and
 * NEAP_ENGINE ask for those of one. */
typedef struct neap_engine_row {
  const char *name; /* as the option says it */
  const char *doc;
  const char *missing; /* why it can't be had here; NULL: it can */
  char version[24];    /* of its library; "": it is Neap's own code */
} neap_engine_row;
/* The i-th, from 0; false past the last. */
NEAP_API bool neap_engine_list(int i, neap_engine_row *row);

/* ---- errors ---------------------------------------------------------------------------------- */

/* X(symbol, text): the one list of what can go wrong. */
#define NEAP_STATUS_MAP(X)      \
  X(OK, "ok")                   \
  X(ARGUMENT, "argument")       \
  X(NAME, "name")               \
  X(ATTRIBUTE, "attribute")     \
  X(SHAPE, "shape")             \
  X(DTYPE, "dtype")             \
  X(GRAPH, "graph")             \
  X(PLAN, "plan")               \
  X(MEMORY, "memory")           \
  X(BUDGET, "budget")           \
  X(RELEASED, "released")       \
  X(DATA, "data")               \
  X(NUMERIC, "numeric")         \
  X(INTERRUPTED, "interrupted") \
  X(IO, "io")                   \
  X(DB, "db")                   \
  X(INTERNAL, "internal")

typedef enum neap_status {
#define X(symbol, text) NEAP_##symbol,
  NEAP_STATUS_MAP(X)
#undef X
} neap_status;

/* "shape", "memory", ...: what scripts test. MEMORY: the system refused bytes. BUDGET: a limit that
 * the caller gave (a budget, a total, a bank's bytes) can't be met: trying again gives the same
 * answer. */
NEAP_API const char *neap_status_text(neap_status status);

/* A name, which lives as long as the process, and its bytes. */
typedef struct neap_named_bytes {
  const char *name;
  int64_t bytes;
} neap_named_bytes;

enum { NEAP_MOST_NAMED = 8 };

/* Filled by the caller's callee; owned by the caller, usually on its stack. `message` is one
 * sentence: what, where, expected, got. Begin with {0}. INVARIANT: the deepest message wins: a
 * filled record keeps what it says, so clear it before it is used again. Fields may be "". */
typedef struct neap_error {
  neap_status code;
  char message[768];
  char op[64];     /* op type, e.g. "Conv" */
  char blob[128];  /* blob or attribute at fault, with its scope path */
  char scope[128]; /* scope path of the op */
  char line[160];  /* Lua file:line that made the op */
  char expected[128];
  char got[128];
  char hint[256]; /* one thing to try */
  /* For BUDGET alone, else NULL and 0. neap_net_fit_batch, with the net and the options that were
   * refused, finds the largest batch that they do allow. */
  const char *limit;   /* which one can't be met: "budget" of an arena, "total" or "bank" */
  const char *bank;    /* whose limit it is, where it is a bank's */
  int64_t limit_bytes; /* as it was given */
  int64_t
    /* the least that would do in its place; 0: none would. Where two limits are too small one is
     * named first */
    least_bytes;
  int64_t left_bytes; /* what it leaves the arena (or pool) once all that is fixed has its bytes */
  int64_t held_bytes; /* what the workspace whose limit it is holds now; 0: it is no workspace's */
  /* what of a total the arena can't have: "parameters", "gradients", "state", "io", .. */
  int n_fixed;
  neap_named_bytes fixed[NEAP_MOST_NAMED];
  int n_blob; /* the blobs in the way where most is alive, the largest ones, largest first */
  neap_named_bytes blobs[NEAP_MOST_NAMED];
} neap_error;

NEAP_API void neap_error_clear(neap_error *error);

/* ---- numbers --------------------------------------------------------------------------------- */

/* X(symbol, name, bytes): the one list of dtypes. NONE is "no value here". Tensors are dense, the
 * last dimension fastest. */
#define NEAP_DTYPE_MAP(X) \
  X(NONE, "none", 0)      \
  X(F32, "f32", 4)        \
  X(F64, "f64", 8)        \
  X(BF16, "bf16", 2)      \
  X(F16, "f16", 2)        \
  X(I8, "i8", 1)          \
  X(U8, "u8", 1)          \
  X(I16, "i16", 2)        \
  X(U16, "u16", 2)        \
  X(I32, "i32", 4)        \
  X(I64, "i64", 8)        \
  X(BOOL, "bool", 1)

typedef enum neap_dtype {
#define X(symbol, name, bytes) NEAP_DTYPE_##symbol,
  NEAP_DTYPE_MAP(X)
#undef X
    NEAP_N_DTYPE
} neap_dtype;

/* ---- tensors and ops by themselves ----------------------------------------------------------- */

typedef struct neap_net neap_net;
typedef struct neap_workspace neap_workspace;

#include "neap/tensor.h"

#include "neap/op.h"

#include "neap/file.h"

/* ---- nets ------------------------------------------------------------------------------------ */

/* A neap_net is ops over named blobs, in the order they run. */

/* The text of a net, one line a declaration or op; `neap ops NAME` prints what an op takes.
 *
 *   net NAME                                               once, first
 *   input NAME DTYPE (D,D,..)
 *       given before each run; lies outside the arena
 *   param NAME DTYPE (D,D,..) [frozen] [= INIT { ATTRS }]
 *       filled by an op such as Xavier, Constant, Gaussian
 *   state NAME DTYPE (D,D,..) [= INIT { ATTRS }]
 *       kept from run to run, never differentiated
 *   OUT, OUT = TYPE(IN, IN) { ATTR = VALUE, .. }
 *       "_" where an optional one is absent; a declared name: its next value
 *   outputs NAME, ..
 *       kept after a run; by default every blob that no op reads
 *   keep NAME, ..
 *       kept too, though not outputs
 *   OUT = TYPE(IN) { .. } on LABEL
 *       a label; where the options have a memory bank of that name, the op's bank
 *   bank BANK NAME, ..
 *       blobs that lie in a memory bank (neap_bank)
 *   subnet NAME ... takes NAME, .. / gives NAME, .. / end
 *       ops of its own, for If, While and Recurrent
 *
 * A loop's subnets take its operands by position and give its results; states come first. x is
 * doubled while it is below 100:
 *
 *   subnet cond
 *     input p
 *     more = Lt(p, limit)
 *     takes p, limit, two
 *     gives more
 *   end
 *   subnet body
 *     input p
 *     q = Mul(p, two)
 *     takes p, limit, two
 *     gives q
 *   end
 *   y = While(x, limit, two) { cond_net = cond, body_net = body, n_state = 1, max = 20 }
 *
 * A gradient through a loop keeps a frame an iteration; with `max` (or in Recurrent, one iteration
 * a row) they are planned like all else. Without it they grow while the net runs, and a budget is
 * refused.
 *
 * A Do runs a closed subnet in a frame of a scope: it sees the outer blobs that its lists bind
 * (inputs, then outputs, counted from 0, without the scope), and what it makes besides is a local
 * "s.1/NAME". With reuse_workspace = true a later Do works in the same frame and declares the
 * locals that it reads:
 *
 *   s = CreateScope()
 *   subnet add closed
 *     input u
 *     input v
 *     w = Add(u, v)
 *   end
 *   c, s = Do(a, b, s) { net = add, inner_blobs = {u, v, w}, outer_blobs_idx = {0,1,2} }
 *
 * Reading checks every line; an error says which one and what it expects. End the net with
 * neap_net_free. */
NEAP_API neap_status neap_net_read(const char *text, neap_net **out, neap_error *error);
/* An empty net, to be filled by neap_net_add_text. */
NEAP_API neap_status neap_net_new(const char *name, neap_net **out, neap_error *error);
/* Appends lines, formatted as by printf; line by line: after an error the lines before it are part
 * of the net. Names, numbers of operands and attributes are checked here; shapes and dtypes follow
 * from the inputs', which each plan or session may give anew, so that an op whose operands do not
 * fit is refused there, or by neap_net_expand. */
NEAP_API neap_status neap_net_add_text(neap_net *net, neap_error *error, const char *format, ...)
  NEAP_PRINTF(3, 4);
/* Appends the gradient of a loss of one element with respect to n_wrt blobs; with `wrt` NULL every
 * parameter that is not frozen. Gradients are named by `names`, or NAME_grad where that is NULL.
 * `line` (may be NULL) is named in errors. A blob that the loss does not depend on, or only through
 * ops without a gradient, has zeros. */
NEAP_API neap_status neap_net_add_gradient(neap_net *net, const char *loss, int n_wrt,
                                           const char *const *wrt, const char *const *names,
                                           const char *line, neap_error *error);
/* The same, of n_wrt blobs; without allow_unused such a blob is a GRAPH error of what plans or
 * opens the net. */
NEAP_API neap_status neap_net_add_gradient_of(neap_net *net, const char *loss, int n_wrt,
                                              const char *const *wrt, const char *const *names,
                                              bool allow_unused, const char *line,
                                              neap_error *error);
NEAP_API const char *neap_net_name(const neap_net *net); /* lives as long as the process */
/* The net as text that reads back; end it with neap_free. */
NEAP_API neap_status neap_net_text(const neap_net *net, char **out, neap_error *error);
/* One more holder of the net, for one that a workspace takes over and that stays yours too; and one
 * less: the net ends with its last holder. */
NEAP_API neap_net *neap_net_retain(neap_net *net);
NEAP_API void neap_net_free(neap_net *net);

/* The net with its backward pass as ops over named blobs, the bodies of Do ops among them: the same
 * parameters, the same bits. The gradient of an If is an If; that of While or Recurrent one op,
 * LoopGradient, whose frames have no name. */
NEAP_API neap_status neap_net_expand(const neap_net *net, neap_net **out, neap_error *error);

#include "neap/net.h"

/* ---- workspaces ------------------------------------------------------------------------------ */

/* A neap_workspace is named tensors, and the arena that the programs in it share. */

/* `seed` fixes every random number: the same seed, threads and plan give the same bits. */
NEAP_API neap_status neap_workspace_open(uint64_t seed, neap_workspace **out, neap_error *error);
NEAP_API void neap_workspace_release(neap_workspace *workspace);
/* Copies numbers in; makes the blob where there is none. `dim` has n_dim entries; n_dim 0 is one
 * number. */
NEAP_API neap_status neap_workspace_write(neap_workspace *workspace, const char *name,
                                          neap_dtype dtype, int n_dim, const int64_t *dim,
                                          const void *data, neap_error *error);
/* Copies a blob of n_elems elements out, cast to `dtype`. Parameters, inputs, outputs and kept
 * blobs can always be read; another one while its bytes have not been taken: then RELEASED, and the
 * message names who took them. */
NEAP_API neap_status neap_workspace_read(neap_workspace *workspace, const char *name,
                                         neap_dtype dtype, int64_t n_elems, void *data,
                                         neap_error *error);
/* Any of the three results may be NULL; `dim` has room for NEAP_MAX_DIM. */
NEAP_API neap_status neap_workspace_shape(neap_workspace *workspace, const char *name,
                                          neap_dtype *dtype, int *n_dim, int64_t *dim,
                                          neap_error *error);
/* Says that bytes which the blob shares with others were written by other means than these
 * functions: what has been computed from them once (packed weights, a folded normalisation) is
 * computed again in the next run that needs it. */
NEAP_API neap_status neap_workspace_touch(neap_workspace *workspace, const char *name,
                                          neap_error *error);
/* Parameters, state, seed and step as a .safetensors file. Loading replaces the parameters of the
 * same names. */
NEAP_API neap_status neap_workspace_save_file(neap_workspace *workspace, const char *path,
                                              neap_error *error);
NEAP_API neap_status neap_workspace_load_file(neap_workspace *workspace, const char *path,
                                              neap_error *error);
/* Makes each tensor of a file a blob whose bytes are the file's, mapped: nothing is read before it
 * is used. Call it before a session makes parameters of these names. `writable`: what is written
 * stays in memory and never reaches the file; else a session that would write a mapped blob is
 * refused. The file may be replaced by rename, but must not be cut short in place. */
NEAP_API neap_status neap_workspace_map_file(neap_workspace *workspace, const char *path,
                                             bool writable, neap_error *error);
/* A net with its parameters and state as one .safetensors file: the net's text is in the metadata,
 * the tensors have the names of its blobs. Written beside `path` and renamed, like all files here:
 * a reader sees the old one or the new one. */
NEAP_API neap_status neap_workspace_export(neap_workspace *workspace, const neap_net *net,
                                           const char *path, neap_error *error);
/* Reads such a file: its parameters and state become blobs, its net is given. `map` NULL: copies;
 * "r" or "c": the file's own bytes, mapped, read-only or copied on write. DATA for a file without a
 * net, or whose tensors are not those that its net declares. */
NEAP_API neap_status neap_workspace_import(neap_workspace *workspace, const char *path,
                                           const char *map, neap_net **out, neap_error *error);
/* Bytes of files mapped now, by the whole process; not counted as held. */
NEAP_API int64_t neap_mapped_bytes(void);
/* Bytes that the process can still take on this machine: the kernel's estimate, cut by the limits
 * of control groups and of the address space; 0 where unknown. A total for neap_net_fit_batch. */
NEAP_API size_t neap_memory_available(void);

/* ---- the database ---------------------------------------------------------------------------- */

#include "neap/db.h"

/* ---- plans ----------------------------------------------------------------------------------- */

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
    "that would do")                                                                               \
  X(total, BYTES, "none", "", DERIVED, ALL, "the most bytes of everything that the program holds") \
  X(soft, BYTES, "none", "", NONE, ALL & ~COMMAND,                                                 \
    "policy pool: above this the pool is cut down again by the next run that needs less")          \
  X(policy, CHOICE, "offset", "offset name none pool", OWN, ALL,                                   \
    "where addresses come from: planned to the byte, one slot a name, every value its own bytes, " \
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
  X(inputs, INPUTS, "as declared", "", DERIVED, LUA | COMMAND,                                     \
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
 * its length in `n_keep`, `banks` in `n_banks`; a name in keep that the net lacks is a NAME error.
 * What only Lua takes (inputs) has no field. `db`, which no table of options has, is the database
 * that `store` speaks of: without one nothing is looked up or recorded, and `profile` and `tag` are
 * for nobody. It stays the caller's; who records in it holds it. */
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
#define NEAP_FIELD_INPUTS(name)
typedef struct neap_options {
#define X(name, type, fallback, range, key, faces, doc) NEAP_FIELD_##type(name)
  NEAP_OPTION_MAP(X)
#undef X
  neap_db *db;
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
  NEAP_OPTION_INPUTS /* no field */
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
  size_t offset; /* in neap_options: of the field, for a list of its length; SIZE_MAX for inputs */
} neap_option;
/* The options in the order above, NULL behind the last. */
NEAP_API const neap_option *neap_option_at(int i);
/* Sets an option by its name from text: "64MiB", "3", "false", "dag". ATTRIBUTE error for an
 * unknown one, with the nearest name; ARGUMENT for what it does not take, and for lists. `text` of
 * a text option is borrowed as long as the options are used. */
NEAP_API neap_status neap_options_set(neap_options *options, const char *name, const char *text,
                                      neap_error *error);
/* As a JSON object with all options that are given; ended by neap_free. */
NEAP_API neap_status neap_options_json(const neap_options *options, char **out, neap_error *error);

/* ---- rows ------------------------------------------------------------------------------------ */

#include "neap/rows.h"

/* ---- figures --------------------------------------------------------------------------------- */

/* What a net takes, by NEAP_FIGURE_MAP of neap/rows.h. INVARIANT: lower_bound_bytes <=
 * arena_bytes. Texts live as long as the process. */
typedef struct neap_figures {
#define X(name, type, unit, shown, doc) NEAP_CELL_##type(name)
  NEAP_FIGURE_MAP(X)
#undef X
} neap_figures;

/* Plans without allocating or running anything: the forecast. `explanation` (may be NULL) gets the
 * plan in words, to be ended by neap_free. */
NEAP_API neap_status neap_net_forecast(const neap_net *net, const neap_options *options,
                                       neap_figures *figures, char **explanation,
                                       neap_error *error);

/* ---- what memory goes where: dry run, count by class, gradients given back ------------------- */

/* A dry run is Caffe's log of what planning would do, as numbers, before anything is allocated.
 * Bytes *raw* are those of a net in which every blob has data, and, when it is of floats, a diff of
 * the same size; parameters are not counted. *Planned* is what the plan takes for the same: the
 * arena, scratch included, and the blobs with bytes of their own. Steps count from 0.
 *
 *   neap_mem_param param = {.n_exclude_blob = 1, .exclude_blob = (const char *const[]){"conv1"}};
 *   neap_dry_run *log = NULL;
 *   char *text = NULL;
 *   if (neap_net_dry_run(net, &(neap_options){.mem_param = &param}, &log, &error)) goto end;
 *   if (neap_dry_run_text(log, &text, &error)) goto end;
 *   puts(text);
 *
 * Names live as long as the process. */
typedef struct neap_dry_run {
#define X(name, type, unit, shown, doc) NEAP_CELL_##type(name)
  NEAP_DRY_RUN_MAP(X)
#undef X
  int n_row, n_layer, n_slot;
  const neap_dry_row *row;
  const neap_dry_layer *layer;
  const neap_dry_slot *slot; /* by address */
} neap_dry_run;
/* With neither mem_param nor policy among the options, mem_param's defaults hold, as in Caffe. */
NEAP_API neap_status neap_net_dry_run(const neap_net *net, const neap_options *options,
                                      neap_dry_run **out, neap_error *error);
/* All of it as text, in which steps count from 1: totals, layers with their blobs, slots; end it
 * with neap_free. */
NEAP_API neap_status neap_dry_run_text(const neap_dry_run *log, char **out, neap_error *error);
/* A cursor over its rows of kind DRY_RUN, DRY_ROW, DRY_LAYER or DRY_SLOT; while the log is
 * there. */
NEAP_API neap_status neap_dry_run_rows(const neap_dry_run *log, neap_row_kind kind, neap_rows **out,
                                       neap_error *error);
NEAP_API void neap_dry_run_free(neap_dry_run *log);

/* Bytes by the classes of Torch's optnet. A storage counts once, however many names or views it
 * has; classes that share bytes of the arena add up to more than the total, which counts those
 * once. */
typedef struct neap_counts {
#define X(name, type, unit, shown, doc) NEAP_CELL_##type(name)
  NEAP_COUNT_MAP(X)
#undef X
} neap_counts;
/* `before`: the net as it is written, every value in bytes of its own (policy "none", nothing
 * fused); `after`: by the options. Either may be NULL. Nothing is allocated but the plans. */
NEAP_API neap_status neap_net_count(const neap_net *net, const neap_options *options,
                                    neap_counts *before, neap_counts *after, neap_error *error);

/* Where optnet rewrites a net in place and must be able to undo it, Neap never changes a net: each
 * session has its own plan, so that undoing is opening another session, with policy "none" say.
 * What stays in a workspace from training is the gradients of its parameters. This gives them back
 * and says how many bytes that were; the system has them at once, but for what a session of a child
 * workspace holds until its next run. Parameters, state and results stay as they are. The next run
 * that computes gradients, of a session that is open or of a new one, makes them again. */
NEAP_API int64_t neap_workspace_drop_gradients(neap_workspace *workspace);

/* What fusion makes of a net that does not train, one line a rewrite, in the order in which they
 * are made: rule, ops absorbed, the op they are part of now, bytes of the values that are no more.
 * "" where nothing is rewritten. End it with neap_free. */
NEAP_API neap_status neap_net_rewrites(const neap_net *net, const neap_options *options, char **out,
                                       neap_error *error);

/* ---- sessions: a net made runnable in a workspace -------------------------------------------- */

typedef struct neap_session neap_session;

/* Plans and binds the net, makes and fills its parameters where the workspace has none, and takes
 * the memory. The net may be freed afterwards, the workspace must outlive the session. `options`
 * NULL: the defaults. */
NEAP_API neap_status neap_session_open(neap_workspace *workspace, const neap_net *net,
                                       const neap_options *options, neap_session **out,
                                       neap_error *error);
/* One run of the net. DATA: an op met a value it can't use, such as a label out of range.
 * INTERRUPTED after neap_interrupt. A run that fails has not been: parameters, state and inputs are
 * as before, whatever ops in place and subnets of If and loops have written by then, and so is the
 * step counter. What the net gives out (outputs, kept blobs, gradients) may be of the failed run.
 * Where an op that may fail reads what another one has updated, the workspace holds copies of all
 * that the net updates, which `state_bytes` counts; most nets need none. */
NEAP_API neap_status neap_session_run(neap_session *session, neap_error *error);
NEAP_API neap_figures neap_session_figures(neap_session *session);
/* Gives back the frames that loops without `max` hold from run to run; returns their bytes. */
NEAP_API int64_t neap_session_trim(neap_session *session);
/* Why a blob has the bytes it has (NULL: the whole plan), in words; end it with neap_free. */
NEAP_API neap_status neap_session_explain(neap_session *session, const char *blob, char **out,
                                          neap_error *error);
/* Rows of what runs (neap_net_rows); until the session's next run, or its end. */
NEAP_API neap_status neap_session_rows(neap_session *session, neap_row_kind kind, neap_rows **out,
                                       neap_error *error);
/* Of a session with a database: the rows of its plan and of its run there; 0 while there is none.
 * The run has its row when it is recorded, by neap_session_record or at the session's end. */
NEAP_API int64_t neap_session_plan_id(const neap_session *session);
NEAP_API int64_t neap_session_run_id(const neap_session *session);
/* What the database failed to do for this session, as a sentence; "" when nothing. */
NEAP_API const char *neap_session_warning(const neap_session *session);
/* A figure of the caller's own, such as a loss, that is recorded with the run. Nothing happens
 * without a database. */
NEAP_API neap_status neap_session_metric(neap_session *session, const char *name, int64_t at_step,
                                         double value, neap_error *error);
/* The times of one step of the plan, from 0, with `profile`; false where there are none. */
NEAP_API bool neap_session_op_row(const neap_session *session, int step, neap_run_op_row *row);
/* Writes the row of the run, with `profile` those of its ops, and its metrics. `status`: "ok",
 * "failed" or "interrupted". Once: a second call does nothing, and so does one where nothing has
 * run, or without a database. DB errors. */
NEAP_API neap_status neap_session_record(neap_session *session, const char *status,
                                         neap_error *error);
NEAP_API void neap_session_free(neap_session *session); /* records first */

/* ---- batches up to a largest, in one memory -------------------------------------------------- */

/* The plan of a net at its largest batch. Sessions of smaller batches take its choices and
 * addresses where they can, and never more bytes in any region: in one workspace they all hold what
 * the largest holds, in whatever order they run. A kernel that a size can't have is replaced by one
 * that needs no more; only a batch whose graph does more than the largest one's may take more
 * arena, within the options' limits. The batch is the first dimension of the net's first input;
 * inputs that declare the same number there change with it. An op whose attributes spell the batch
 * out (a Reshape) stands in the way: then the error names it. */
typedef struct neap_range neap_range;
NEAP_API neap_status neap_range_open(const neap_net *net, int64_t max_batch,
                                     const neap_options *options, neap_range **out,
                                     neap_error *error);
/* A session of `batch` rows of the range's net. Options are those of the range. SHAPE error for
 * more rows than it has. Sessions may outlive the range. */
NEAP_API neap_status neap_range_session(const neap_range *range, neap_workspace *workspace,
                                        const neap_net *net, int64_t batch,
                                        const neap_options *options, neap_session **out,
                                        neap_error *error);
NEAP_API neap_figures neap_range_figures(const neap_range *range); /* of the largest batch */
NEAP_API void neap_range_free(neap_range *range);

/* ---- the batch that fits, and batches in parts ----------------------------------------------- */

/* The largest batch whose plan keeps to options.budget and total, of which one at least is given:
 * one row more does not, or is more than `max` (0: 65536); both have been planned. A net that
 * trains may recompute to fit more rows, unless options.recompute forbids it. The batch is what it
 * is in a range. `figures` (may be NULL): of that plan. BUDGET with least_bytes when not even one
 * row fits. Nothing of tensors is allocated. */
NEAP_API neap_status neap_net_fit_batch(const neap_net *net, const neap_options *options,
                                        int64_t max, int64_t *batch, neap_figures *figures,
                                        neap_error *error);

/* Gradient accumulation: one step of a large batch as micro-batches, in the memory of one of them.
 * `net` is the whole training net: forward, gradients, and what follows from them (clipping, update
 * ops). A run adds the gradients of the micro-batches up, each with its share of the rows, and then
 * updates once. Where the loss is a mean over rows, without batch statistics and random ops, that
 * is the step of the large batch, within rounding. A net that declares 1024 rows, trained in half a
 * MiB and the rows themselves:
 *
 *   neap_micro *micro = NULL;
 *   if (neap_micro_open(ws, net, 0, &(neap_options){.total = 1 << 19}, &micro, &error)) goto end;
 *   for (int step = 0; step < n_step; step++) {
 *     if (neap_workspace_write(ws, "x", NEAP_DTYPE_F32, 2, (int64_t[]){1024, 2}, x[step], &error))
 *       goto end;
 *     if (neap_workspace_write(ws, "label", NEAP_DTYPE_I32, 1, (int64_t[]){1024}, label[step],
 *                              &error))
 *       goto end;
 *     if (neap_micro_run(micro, 0, NULL, &error)) goto end;
 *   }
 *   if (neap_workspace_read(ws, "loss", NEAP_DTYPE_F32, 1, &loss, &error)) goto end;
 *   printf("loss %.4f, %lld rows at a time\n", (double)loss, (long long)neap_micro_rows(micro));
 *
 * Floating-point outputs that have one element in a micro-batch (a mean loss, an accuracy) are the
 * weighted means over all of them, other outputs are of the last one. The gradient of a parameter
 * can be read under its name: it is that of the large batch.
 */
typedef struct neap_micro neap_micro;
/* `rows` of a micro-batch, at most the batch that the net declares; 0: as many as options.budget
 * and total allow with every op run once, since smaller micro-batches cost less than recomputing.
 * The total holds the micro-batch and the update, not the large batch's inputs, which are the
 * caller's. GRAPH error that names the op where one reads both gradients and what depends on the
 * batch. The net may be freed; the workspace is retained. */
NEAP_API neap_status neap_micro_open(neap_workspace *workspace, const neap_net *net, int64_t rows,
                                     const neap_options *options, neap_micro **out,
                                     neap_error *error);
/* One step of all rows that the workspace's inputs have now, any number of them; the last
 * micro-batch may be smaller. `weight` (NULL: by rows) has one entry a micro-batch: for a loss
 * whose mean does not count every row. A failed step, an interrupted one too, leaves parameters,
 * optimizer state, running statistics and the step counter as before. */
NEAP_API neap_status neap_micro_run(neap_micro *micro, int n_weight, const double *weight,
                                    neap_error *error);
/* Accumulation over several batches, with options.accumulate: as neap_micro_run, but without an
 * update. The gradients are added to those of the batches added since the last update, and the next
 * neap_micro_run, or neap_micro_update, updates by them all: of a mean each batch by what it
 * counts, so that batches of 3, 3 and 2 rows are the step of their 8 rows, within rounding; a sum
 * as it is. `count`: what the batch's mean counts, where that is not its rows (0: its rows; then
 * neap_micro_run's last batch counts by its rows too: add it, and update). What is added is held in
 * state of its own ("@held/" and the gradient's name): as many bytes as the gradients, which a
 * total counts. A batch that fails changes nothing of it. How much is held only the handle knows:
 * save a workspace between updates. ARGUMENT error without options.accumulate. */
NEAP_API neap_status neap_micro_add(neap_micro *micro, int n_weight, const double *weight,
                                    double count, neap_error *error);
/* An update by what is held; none, and OK, when no batch is. */
NEAP_API neap_status neap_micro_update(neap_micro *micro, neap_error *error);
/* batches added since the last update */
NEAP_API int64_t neap_micro_n_held(const neap_micro *micro);
NEAP_API int64_t neap_micro_rows(const neap_micro *micro);
/* Of micro-batch and update together: what both need is counted once, the arena is the larger one.
 * n_step counts updates. */
NEAP_API neap_figures neap_micro_figures(const neap_micro *micro);
NEAP_API void neap_micro_free(neap_micro *micro);
/* The two nets themselves, for steps of one's own. `micro` reads inputs "micro.weight", the share
 * of its rows, and "micro.keep", 0 in the first micro-batch of a step and else 1 (both f32, shape
 * ()); its accumulators are called as the gradients. `update` reads those and counts its runs in
 * state "micro.steps". Run both in one workspace, or micro-batches in frames that bind parameters
 * and gradients. */
NEAP_API neap_status neap_net_split_micro(const neap_net *net, neap_net **micro, neap_net **update,
                                          neap_error *error);

/* ---- memonger: fewer names, fewer bytes ------------------------------------------------------ */

/* Net to net: blobs that are never alive together get one name, so that a run under policy "name"
 * holds fewer bytes. What is given computes the same, op by op, and is checked to before it is
 * given; the net that went in stays as it was. A backward pass and the bodies of Do ops are written
 * out first (neap_net_expand), so that their blobs have names. Ops are counted from 0 in the net so
 * written out.
 *
 * What Caffe2's memonger does under other names: compute_blob_recycling_for_dag and the optimize
 * functions are neap_net_recycle with options; share_grad_blobs is gradients_only, or not, with
 * keep_last = 2; apply_assignments neap_net_rename and neap_net_same; compute_ranges
 * neap_net_live_ranges; compute_assignments neap_assign; compute_statistics neap_assign_measure;
 * verify_assignments neap_assign_verify; verify_graph_equality and verify_inplace_blobs
 * neap_net_same; topological_sort_traversal neap_net_sort; compute_interference_graph
 * neap_net_interference; release_blobs_when_used neap_net_release_when_used; estimate_memory_usage
 * neap_net_estimate_memory. */

/* Who shares, and how. Zero and NULL everywhere: every blob that may, in definition order. What is
 * declared, kept or an output, and what stays from run to run, never shares; neither do blobs of
 * different dtypes or device labels. */
typedef struct neap_recycle_options {
  /* safe where independent ops run side by side: names are shared along paths only */
  bool dag;
  const char *prefix; /* stands before new names, such as "scope/" */
  /* the ops are put in this order first: "plain" (default), "longest_path", "least_memory" */
  const char *order;
  int n_op; /* only blobs that no op but these writes; 0: all */
  const int *op;
  /* blobs that must be there; who comes before whom is read from the net, so they change nothing */
  int n_head;
  const char *const *head;
  int n_shareable; /* only these blobs; 0: all */
  const char *const *shareable;
  int n_dont_share; /* not these */
  const char *const *dont_share;
  bool gradients_only; /* only what the backward pass makes */
  int keep_last;       /* not what the last so many ops with parameters give */
  bool mix_dtypes;     /* blobs of different dtypes may share */
  bool unsized;        /* blobs count as equally large when slots are chosen */
  /* searched, from the greedy result on, until the least is proved or a limit is reached */
  bool exact;
  int64_t most_steps; /* of that search; 0: a million. The same limit gives the same net */
} neap_recycle_options;

typedef struct neap_recycle_figures {
  int64_t baseline_bytes;    /* of all blobs that could share, each by itself */
  int64_t planned_bytes;     /* of the same under their new names */
  int64_t lower_bound_bytes; /* the most of them live at once: never above planned_bytes */
  int n_shared;              /* names that several blobs go by */
  int n_slot;                /* names of all blobs that could share */
  double saved;              /* 1 - planned / baseline; 0 where there is nothing to share */
  bool proved;               /* the search was exact and came to its end */
} neap_recycle_figures;

/* `options` NULL: the defaults. `figures` may be NULL. NAME for a blob that the net lacks, ARGUMENT
 * for an op that it lacks.
 *
 *   neap_recycle_options o = {.dag = true, .prefix = "shared/", .keep_last = 2};
 *   neap_net_recycle(net, &o, &fewer, &figures, &error);
 *   neap_options by_name = {.policy = "name", .executor = "dag"};
 *   neap_session_open(ws, fewer, &by_name, &session, &error); */
NEAP_API neap_status neap_net_recycle(const neap_net *net, const neap_recycle_options *options,
                                      neap_net **out, neap_recycle_figures *figures,
                                      neap_error *error);

/* A net with one Free behind the last reader of each blob that is made and read in it and that
 * nobody may ask for; n_keep blobs are left alone, and so are views and what they look at. *n_freed
 * (may be NULL) gets how many. Under policy "pool" the bytes return at once. */
NEAP_API neap_status neap_net_release_when_used(const neap_net *net, int n_keep,
                                                const char *const *keep, neap_net **out,
                                                int *n_freed, neap_error *error);

/* What nets take, run one after the other in one workspace, if nothing but Free gives bytes back;
 * of ops labelled `device` alone (NULL: of all). A blob that several of them write counts once, at
 * its largest. */
typedef struct neap_memory_estimate {
  int64_t total_bytes; /* made in all */
  int64_t high_bytes;  /* the most held at once */
  int n_type;
  struct neap_type_bytes { /* by op type, the largest first; ended by neap_free */
    const char *type;
    int64_t bytes;
  } * by_type;
} neap_memory_estimate;
NEAP_API neap_status neap_net_estimate_memory(int n_net, const neap_net *const *net,
                                              const char *device, neap_memory_estimate *out,
                                              neap_error *error);

/* Whether two nets compute the same: op by op the same type, device label, attributes (given or by
 * default) and producers of what it reads, in order, subnets included; and what they give, keep and
 * leave in declared blobs. Names of what ops make do not count; those of declared blobs do, with
 * their declarations. A backward pass, or Do ops, that one of the two has written out is written
 * out in the other too. With `in_place`, also whether they work in place at the same places. *where
 * (may be NULL) gets a sentence on the first difference, or NULL; end it with neap_free. */
NEAP_API neap_status neap_net_same(const neap_net *a, const neap_net *b, bool in_place, bool *same,
                                   char **where, neap_error *error);
/* A net in which blob from[i] is called to[i], in subnets and what they take and give too. A
 * renaming that breaks a rule of the net, such as an in-place that its op does not allow, is
 * refused. */
NEAP_API neap_status neap_net_rename(const neap_net *net, int n, const char *const *from,
                                     const char *const *to, neap_net **out, neap_error *error);
/* position[i] is the op that runs as number i, in an order that keeps the meaning, names that are
 * written again included: "plain", "longest_path" (sources of longer chains first, each op right
 * before it is needed) or "least_memory" (fewest bytes alive at the peak, or as defined where that
 * is no worse). Room for all ops of the net, which must have no Gradient or Do op. */
NEAP_API neap_status neap_net_sort(const neap_net *net, const char *order, int *position,
                                   neap_error *error);
/* Pairs (i, j) of ops, i < j: op i writes a blob of a name that op j reads. Ascending, each once,
 * *n of them; end the list with neap_free. */
NEAP_API neap_status neap_net_interference(const neap_net *net, int *n, int (**out)[2],
                                           neap_error *error);

/* When each blob of the net, written out, is alive: ops are steps. */
typedef struct neap_live_range {
  const char *name;   /* these texts last as long as the process */
  const char *fixed;  /* why it keeps its name and bytes, in words; NULL: it may share */
  const char *device; /* its label; "" by default */
  neap_dtype dtype;
  int64_t bytes; /* aligned, of its largest version */
  int first;     /* step that writes it first; -1: it is there before the net runs */
  int last;      /* step that reads it last; the last that writes it where nothing reads it */
  int class_id;  /* blobs of different classes never share: of device label and dtype */
} neap_live_range;
/* A list of *n, in order of the net's blobs; end it with neap_free. */
NEAP_API neap_status neap_net_live_ranges(const neap_net *net, neap_live_range **out, int *n,
                                          neap_error *error);

/* Which items share a slot, so that the sum over slots of the largest member is small. An item may
 * join a slot only when it is of the same class and begins strictly after the end of what is in it,
 * or ends strictly before. */
typedef struct neap_assign_item {
  int64_t bytes;
  int class_id;
  int64_t first, last; /* inclusive steps; a last before first counts as first */
  const char *name;    /* for messages; may be NULL */
} neap_assign_item;
typedef struct neap_assign_options {
  bool exact; /* as in neap_recycle_options, and so its limit */
  int64_t most_steps;
  /* instead of lives: bit j%64 of conflict[i * n_word + j/64] says that i and j can't share */
  const uint64_t *conflict;
  int n_word;
} neap_assign_options;
typedef struct neap_assign_figures {
  int64_t baseline_bytes;    /* without sharing */
  int64_t bytes;             /* sum over slots of the largest member */
  int64_t lower_bound_bytes; /* the most alive at once, which no assignment undercuts */
  int n_slot;
  bool proved; /* no assignment has fewer bytes */
} neap_assign_figures;
/* slot[i] in [0, n_slot), numbered in order of their first members. `options` and `figures` may be
 * NULL. */
NEAP_API neap_status neap_assign(int n, const neap_assign_item *item,
                                 const neap_assign_options *options, int *slot,
                                 neap_assign_figures *figures, neap_error *error);
/* The figures of a given assignment; negative slots are items by themselves. */
NEAP_API neap_status neap_assign_measure(int n, const neap_assign_item *item, const int *slot,
                                         neap_assign_figures *figures, neap_error *error);
/* PLAN error that names both, when two items of one slot can't share, or one name is there twice;
 * ARGUMENT error for negative bytes and for a slot that n items can't have. */
NEAP_API neap_status neap_assign_verify(int n, const neap_assign_item *item,
                                        const neap_assign_options *options, const int *slot,
                                        neap_error *error);

/* ---- layer by layer: the memory of a chain of layers ----------------------------------------- */

/* A chain is a model that one steps through by hand, and whose memory lies open. Each layer is a
 * net with one input, one output and its parameters; the output of one is the input of the next.
 * Forward runs the layers one by one; in training each leaves on its cache what its backward will
 * read. Backward takes the gradient of the last output, pops the caches in reverse, and fills the
 * gradients of outputs, inputs and parameters. All of it is four lists, of entries with data and
 * diff.
 *
 *   neap_net *layer[2] = {0};
 *   neap_chain *chain = NULL;
 *   neap_entry out, w;
 *   neap_net_read("net fc1\ninput x f32 (8,2)\nparam fc1.w f32 (16,2) = Xavier\n"
 *                 "h = FC(x, fc1.w)\ny = Tanh(h)\noutputs y\n", &layer[0], &error);
 *   neap_net_read("net fc2\ninput x f32 (8,16)\nparam fc2.w f32 (1,16) = Xavier\n"
 *                 "y = FC(x, fc2.w)\n", &layer[1], &error);
 *   neap_chain_open(ws, 2, (const neap_net *const *)layer, 8, NULL, &chain, &error);
 *
 *   // a batch of 3: any up to 8
 *   neap_workspace_write(ws, "x", NEAP_DTYPE_F32, 2, (int64_t[]){3, 2}, x, &error);
 *   neap_chain_forward(chain, true, &error);
 *   neap_chain_entry(chain, NEAP_LIST_OUTPUTS, 1, &out, &error);   // out.data: y (3,1)
 *   neap_workspace_write(ws, out.diff_blob, NEAP_DTYPE_F32, 2, (int64_t[]){3, 1}, dy, &error);
 *   neap_chain_backward(chain, &error);
 *   neap_chain_param(chain, "fc1.w", &w, &error);                  // w.diff: gradient (16,2)
 *
 * Blobs. The first input keeps its name. The output of layer L is "L/output", its gradient
 * "L/output_grad"; what its cache holds is "L/NAME". Parameters and state keep their names, so that
 * layers can share them: gradients are summed. The gradient of parameter p is "p_grad". All these
 * are blobs of the workspace: an update is a net of `p = Sgd(p, p_grad, lr)` that is run there.
 *
 * Memory. Every layer is planned for the largest batch; smaller ones run in the same bytes, in
 * whatever order they come. An input is the same bytes as the output below it, counted once. What a
 * cache holds is not computed again. Three things are not cached but recomputed, with the same
 * random numbers: a MaxPool, whose note of which element won is in its kernel's own format; the
 * branch that an If took; and a While without `max`. */
typedef struct neap_chain neap_chain;

typedef enum neap_list {
  NEAP_LIST_PARAMS,  /* of all layers, each once, in order of declaration; then attached ones */
  NEAP_LIST_OUTPUTS, /* one a layer; none before the first forward */
  NEAP_LIST_INPUTS,
  /* what all caches hold, layer by layer, first pushed first; empty after backward, and in
   * evaluation */
  NEAP_LIST_CACHES
} neap_list;

/* Numbers that lie in memory, dense, the last dimension fastest. `data` NULL: there are none. */
typedef struct neap_array {
  neap_dtype dtype;
  int n_dim;
  int64_t dim[NEAP_MAX_DIM];
  int64_t bytes;
  const void *data;
} neap_array;

/* Views are borrowed: until the next forward, until the entry is dropped, until the chain is
 * freed. */
typedef struct neap_entry {
  /* of the parameter; of the layer; in a cache what the layer's own net calls the blob */
  const char *name;
  const char *layer; /* the net's name; "" for attached parameters */
  neap_array data;
  /* after a backward; of parameters that train, of floating-point inputs and outputs */
  neap_array diff;
  const char *blob;      /* of data in the workspace; NULL in caches and for attached parameters */
  const char *diff_blob; /* of diff; NULL where there can be none */
} neap_entry;

/* Copies the nets; fills parameters that the workspace lacks; keeps the workspace alive. Every
 * layer is declared at the batch of the first one's input, its first dimension. An error says which
 * layer, what it expects and what it got: more than one input or output, two layers of one name, an
 * input of another type than the output below. Training ops are written as such (`training = 1` in
 * Dropout and BatchNorm, whose statistics RunningAverage ops keep): evaluation derives its nets
 * from them. Options are those of a session; policy "pool" is refused, since it plans no
 * addresses. */
NEAP_API neap_status neap_chain_open(neap_workspace *workspace, int n, const neap_net *const *layer,
                                     int64_t max_batch, const neap_options *options,
                                     neap_chain **out, neap_error *error);
/* Nets of the layers for batches of `batch` rows, where an attribute depends on the batch (a
 * RunningAverage's factor n / (n - 1), a Reshape's shape): the same blobs, inputs and outputs as
 * those given to open, which serve all other batches. Once a batch, before its first forward, and
 * not for the largest: ARGUMENT. The nets are copied. */
NEAP_API neap_status neap_chain_add_batch(neap_chain *chain, int64_t batch,
                                          const neap_net *const *layer, neap_error *error);
/* Reads the first layer's input in the workspace, whose first dimension is the batch. Without
 * `train` Dropout does nothing, norms read their running statistics, state stays as it is, and
 * nothing is cached. A second forward takes the place of the first: its caches, and the views of
 * entries. A layer that fails (DATA, INTERRUPTED) ends the pass, which leaves no entries, and state
 * as it was, that of the layers below too. */
NEAP_API neap_status neap_chain_forward(neap_chain *chain, bool train, neap_error *error);
/* Reads the gradient of the last output, which the caller has written. RELEASED when the caches do
 * not hold what a training forward left: none has run, it has had its backward, or an entry was
 * dropped. When a layer fails the caches stay as they were. */
NEAP_API neap_status neap_chain_backward(neap_chain *chain, neap_error *error);
NEAP_API int neap_chain_n(const neap_chain *chain, neap_list list);
/* RELEASED for an entry that was dropped. */
NEAP_API neap_status neap_chain_entry(const neap_chain *chain, neap_list list, int i,
                                      neap_entry *out, neap_error *error);
/* By name; NAME when there is none. */
NEAP_API neap_status neap_chain_param(const neap_chain *chain, const char *name, neap_entry *out,
                                      neap_error *error);
/* A parameter of the caller's own in the list; its numbers stay the caller's, and must outlive the
 * chain or be dropped before. NAME when the name is taken. */
NEAP_API neap_status neap_chain_attach_param(neap_chain *chain, const char *name, neap_dtype dtype,
                                             int n_dim, const int64_t *dim, void *data,
                                             neap_error *error);
/* Lets an entry go, in any order; the others keep their positions. The bytes return when the last
 * entry that shares them has gone: an output's with the input above it and what caches hold of it.
 * RELEASED the second time; layers' parameters can't be dropped. The next forward makes what it
 * needs. */
NEAP_API neap_status neap_chain_drop(neap_chain *chain, neap_list list, int i, neap_error *error);
/* Takes from the cache of layer i what was pushed last, for callers who compute a layer's backward
 * themselves; the view is valid until the next forward. NAME when that is not called `name` (NULL:
 * whatever it is), RELEASED when nothing is left; then nothing is taken. */
NEAP_API neap_status neap_chain_pop(neap_chain *chain, int layer, const char *name, neap_entry *out,
                                    neap_error *error);
/* Drops all outputs, inputs and caches. */
NEAP_API void neap_chain_clear(neap_chain *chain);
NEAP_API void neap_chain_free(neap_chain *chain);

/* ---- child workspaces, scopes and step trees ------------------------------------------------- */

/* A child of `parent`, which it retains. With n 0 it sees everything of the parent and hides what
 * it makes itself; else it sees blob target[i] of the parent under the name name[i] (target NULL:
 * the same names), and nothing more. */
NEAP_API neap_status neap_workspace_open_child(neap_workspace *parent, int n,
                                               const char *const *name, const char *const *target,
                                               neap_workspace **out, neap_error *error);
/* Declares a blob, for a child to write or to be fed; with `local` one that hides the parent's. No
 * effect when it is there. */
NEAP_API neap_status neap_workspace_create(neap_workspace *workspace, const char *name, bool local,
                                           neap_error *error);
/* Whether the name means a blob here: an own one, a forwarded one or one of the parent's. */
NEAP_API bool neap_workspace_has(const neap_workspace *workspace, const char *name);
/* Removes an own blob, and the parent's of that name shows again; false when there is no own
 * one. */
NEAP_API bool neap_workspace_remove(neap_workspace *workspace, const char *name);
/* Own blobs only, and only to a name that means nothing yet: NAME errors. */
NEAP_API neap_status neap_workspace_rename(neap_workspace *workspace, const char *from,
                                           const char *to, neap_error *error);
/* From here on `name` means `target` of the parent, looked up whenever it is used. The same target
 * again is fine, another one is a NAME error; so is an own blob of that name, unless `skip`: then
 * it stays and nothing is forwarded. */
NEAP_API neap_status neap_workspace_forward(neap_workspace *workspace, const char *name,
                                            const char *target, bool skip, neap_error *error);
/* A string blob. Ops take tensors only. */
NEAP_API neap_status neap_workspace_feed_string(neap_workspace *workspace, const char *name,
                                                const char *text, size_t n_bytes,
                                                neap_error *error);
NEAP_API neap_status neap_workspace_fetch_string(const neap_workspace *workspace, const char *name,
                                                 const char **text, size_t *n_bytes,
                                                 neap_error *error);

/* Nets by name; those that Lua stores in a workspace are the same ones. The workspace takes the net
 * over, unless this fails: NAME when it has one of that name, unless `overwrite` lets go of that
 * one. */
NEAP_API neap_status neap_workspace_add_net(neap_workspace *workspace, neap_net *net,
                                            bool overwrite, neap_error *error);
/* Its own net of that name, else its parent's, and so on; borrowed; NULL when there is none. */
NEAP_API neap_net *neap_workspace_net(const neap_workspace *workspace, const char *name);
/* Its own nets, in order of their making: index 0, 1, .. until NULL; borrowed. */
NEAP_API neap_net *neap_workspace_net_at(const neap_workspace *workspace, int index);
/* Lets go of an own net; false when there is none of that name. Sessions opened from it go on. */
NEAP_API bool neap_workspace_delete_net(neap_workspace *workspace, const char *name);
/* Plans, runs once, lets go. */
NEAP_API neap_status neap_workspace_run_once(neap_workspace *workspace, const neap_net *net,
                                             const neap_options *options, neap_error *error);

/* One op on blobs of the workspace, as a line of a net's text says: "y = Relu(x)", "y, m =
 * Dropout(x) { rate = 0.3 }". Inputs are blobs that are there; outputs are made or written, in the
 * end and all together, and may be inputs ("x = Relu(x)"). Nothing is planned and nothing
 * remembered. Ops that work in a net only (If, Free, ..) are refused; so is a line that is no op.
 * On failure all blobs are as before. */
NEAP_API neap_status neap_workspace_run_op(neap_workspace *workspace, const char *line,
                                           neap_error *error);

/* A scope is a stack of frames: child workspaces that see bound names only and keep their locals
 * while others are pushed on top. A forward pass pushes one frame after another; the backward pops
 * them, last in, first out, and finds in each what the forward left there. Frames are reused by
 * later pushes, memory and all. A frame is borrowed until the scope is trimmed, and so is the scope
 * until its blob goes. */
typedef struct neap_scope neap_scope;
/* Makes scope blob `name`, or empties the one that is there. */
NEAP_API neap_status neap_workspace_create_scope(neap_workspace *workspace, const char *name,
                                                 neap_scope **out, neap_error *error);
/* Enters a frame that sees blob outer[i] of `parent` as inner[i]. All pushes bind alike: other
 * bindings are an error. */
NEAP_API neap_status neap_scope_push(neap_scope *scope, neap_workspace *parent, int n,
                                     const char *const *inner, const char *const *outer,
                                     neap_workspace **out, neap_error *error);
/* The top frame, with further bindings. *out is NULL when the scope is empty; so below. */
NEAP_API neap_status neap_scope_reuse_last(neap_scope *scope, neap_workspace *parent, int n,
                                           const char *const *inner, const char *const *outer,
                                           neap_workspace **out, neap_error *error);
/* Leaves the top frame and gives it, with further bindings for names that it does not have. */
NEAP_API neap_status neap_scope_pop_gradient(neap_scope *scope, neap_workspace *parent, int n,
                                             const char *const *inner, const char *const *outer,
                                             neap_workspace **out, neap_error *error);
NEAP_API void neap_scope_clear(neap_scope *scope); /* leaves all frames, keeps their memory */
NEAP_API bool neap_scope_empty(const neap_scope *scope);
NEAP_API int neap_scope_n_frames(const neap_scope *scope);
NEAP_API void neap_scope_trim(
  /* gives back the memory of frames that are not in use: end their sessions first */
  neap_scope *scope);
NEAP_API size_t neap_scope_held_bytes(const neap_scope *scope);

/* One step of a tree: nets in order, or substeps; zero and NULL are the defaults. A concurrent step
 * runs its substeps side by side, each on a thread and in a workspace of its own; results land in
 * the step's workspace. Substeps that would write what another one reads or writes are refused. */
typedef struct neap_step {
  const char *name; /* for messages */
  int n_net;
  const char *const *net; /* names, of the workspace's nets or its parents' */
  int n_step;
  const struct neap_step *step;
  int64_t iterations; /* 0: once */
  /* instead: until this blob, one bool that exists, is true; looked at before each net or
   * substep */
  const char *stop_blob;
  bool concurrent;
  /* copies of this step, side by side; each needs create_workspace for what it writes */
  int n_instance;
  bool create_workspace; /* runs in a child workspace that ends with each execution */
  /* runs when report_every_ms have passed after an iteration, and once at the end */
  const char *report_net;
  int64_t report_every_ms;
  /* iterations begin so far apart; a concurrent substep without an end goes on until the others
   * end */
  int64_t run_every_ms;
  const neap_net *const
    /* NULL, or n_net nets: where one is not NULL it runs, whatever the workspace calls by that
     * name */
    *given;
  const neap_net *given_report; /* the same for report_net; NULL: by name */
} neap_step;
/* Runs the tree. What is wrong with it is said before anything runs, and leaves the workspace as it
 * was; later the first failure stops the rest, as neap_interrupt does. Then the run of the net that
 * failed has not been (see neap_session_run), the runs before it have: all is as if the tree had
 * ended there. */
NEAP_API neap_status neap_workspace_run_steps(neap_workspace *workspace, const neap_step *root,
                                              const neap_options *options, neap_error *error);

/* ---- pictures -------------------------------------------------------------------------------- */

/* Texts to look at, each ended by neap_free. The same net, options and machine give the same text.
 *
 * DOT is what Graphviz reads: `dot -Tsvg net.dot >net.svg`. Ops are boxes, values rounded boxes
 * with type and bytes, subnets clusters around their ops; the backward pass is there, and so is
 * what optimizers do. A value read by several ops is one node. A plan's drawing fills what lives in
 * the arena with one colour for each place in it, so that equal colours are shared bytes; what has
 * bytes of its own is grey.
 *
 * SVG is what browsers show: each storage of the arena is a box over the ops during which it lives,
 * at its place and as high as its bytes, with its names; what lives inside an op's subnets is in
 * that op's column; scratch is hatched, the peak marked. Below it the bytes live while each op
 * runs, and the blobs that live from run to run.
 *
 *   char *svg = NULL;
 *   if (neap_net_plan_svg(net, &(neap_options){.budget = 64 << 20}, &svg, &error)) goto end;
 *   if (neap_text_save(svg, "memory.svg", &error)) goto end;
 *   end:
 *   neap_free(svg); */

/* The net as it is written, without planning it. */
NEAP_API neap_status neap_net_dot(const neap_net *net, char **out, neap_error *error);
/* The same with the ops of scopes folded into one box for each path of `depth` parts ("block1" at
 * 1), and for each of forward, backward and update; what only they read or write is left out. 0: as
 * above. */
NEAP_API neap_status neap_net_dot_folded(const neap_net *net, int depth, char **out,
                                         neap_error *error);
/* As it would run: planned, nothing allocated. `options` NULL: the defaults. */
NEAP_API neap_status neap_net_plan_dot(const neap_net *net, const neap_options *options, char **out,
                                       neap_error *error);
NEAP_API neap_status neap_net_plan_svg(const neap_net *net, const neap_options *options, char **out,
                                       neap_error *error);
/* As it runs. A dynamic session shows the program of its last run. */
NEAP_API neap_status neap_session_dot(neap_session *session, char **out, neap_error *error);
NEAP_API neap_status neap_session_svg(neap_session *session, char **out, neap_error *error);

/* Every blob: its own, those of the arena, then forwarded and inherited ones. One block with its
 * texts, ended by neap_free. */
NEAP_API neap_status neap_workspace_blobs(const neap_workspace *workspace, neap_blob_row **out,
                                          int *n, neap_error *error);
/* The same as a cursor over rows of kind BLOB, which outlives the workspace. */
NEAP_API neap_status neap_workspace_rows(const neap_workspace *workspace, neap_rows **out,
                                         neap_error *error);
/* The same as a table for people: a line a blob, by region, the largest first; steps are counted
 * from 1. Last the bytes of its own blobs in all. */
NEAP_API neap_status neap_workspace_table(const neap_workspace *workspace, char **out,
                                          neap_error *error);
/* The program made or run last, and the workspace's other blobs in a bar. ARGUMENT error when there
 * is no program. */
NEAP_API neap_status neap_workspace_svg(const neap_workspace *workspace, char **out,
                                        neap_error *error);

/* Writes a text to a file, whole or not at all: beside it first, forced to the disk, then renamed.
 * IO error. */
NEAP_API neap_status neap_text_save(const char *text, const char *path, neap_error *error);

/* ---- pools: addresses found while running ---------------------------------------------------- */

/* Under policy "pool" a value's bytes are taken from the workspace's pool when its op runs and
 * given back after its last reader (or its Free). The pool is one region, kept between runs and
 * empty between them; options.budget is its hard limit. Where that leaves no room, values are given
 * back before their last reader, and the ops that made them run again (unless options.recompute
 * forbids it): the same kernels on the same bytes, so results have the same bits. What can't be run
 * even so is refused with BUDGET before anything runs. A transient blob can't be read after the
 * run: declare it an output.
 *
 * With executor "dynamic" a session takes inputs of any shape: write an input with another shape
 * and run. A program is made once for each combination of shapes; the last few are kept, all take
 * from the one pool. Ops whose outputs' length depends on data (Compress, NonZero), in an If too,
 * need it: a run that finds another length than the last one begins anew, with the same random
 * numbers. Independent ops whose kernels give the same bits on one thread run side by side, within
 * the same bytes. */
typedef struct neap_pool_figures {
#define X(name, type, unit, shown, doc) NEAP_CELL_##type(name)
  NEAP_POOL_MAP(X)
#undef X
} neap_pool_figures;
/* Zeros for a session whose addresses are planned. The curve is the session's, and lasts until it
 * runs again. */
NEAP_API neap_pool_figures neap_session_pool(neap_session *session);

/* Ends a text from this library. */
NEAP_API void neap_free(void *block);

#include "neap/process.h"

#ifdef __cplusplus
}
#endif

#endif
