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
 * Rules that hold everywhere. A function that can fail returns a status, NEAP_OK = 0, and fills
 * the caller's error record (NULL: the text is not wanted); a failed call changes nothing.
 * Pointers to text and numbers that go in are borrowed for the call. What comes out through
 * `**out` is the caller's, to be ended by the function named beside it, all of which take NULL. No
 * other pointer may be NULL unless its function says so; a list of no elements may. Indices and
 * axes count from 0, in messages too (neap_count_from), and the steps of reports from 1. A net, a
 * workspace and its sessions belong to one thread at a time; that may be one of a parallel region,
 * in which Neap makes no threads for what is made there, or a child of fork. Nothing here prints
 * or exits; NEAP_NUM_THREADS, NEAP_ENGINE, NEAP_PLAN, NEAP_CACHE and NEAP_POISON are all it reads
 * of
 * the environment, and for the place of the database NEAP_DB, XDG_DATA_HOME and HOME.
 */
#ifndef NEAP_H
#define NEAP_H

#include <stdarg.h>
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
  X(SCRIPT, "script")           \
  X(INTERNAL, "internal")

typedef enum neap_status {
#define X(symbol, text) NEAP_##symbol,
  NEAP_STATUS_MAP(X)
#undef X
} neap_status;

/* "shape", "memory", ...: what scripts test. MEMORY: the system refused bytes. BUDGET: a limit that
 * the caller gave (a budget, a total, a bank's bytes) can't be met: trying again gives the same
 * answer. SCRIPT: a script's own error, which ended its run. */
NEAP_API const char *neap_status_text(neap_status status);

/* A name, which lives as long as the process, and its bytes. */
typedef struct neap_named_bytes {
  const char *name;
  int64_t bytes;
} neap_named_bytes;

enum { NEAP_MOST_NAMED = 8 };

/* What is alive where most is: a blob, or all blobs of a module. Texts live as long as the process;
 * NULL: not known. */
typedef struct neap_live_bytes {
  const char *name;
  const char *module; /* of a blob: the path of the module that its layer was made in */
  const char *line;   /* that made it; of a module: its largest blob */
  int64_t bytes;
} neap_live_bytes;

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
  /* the least that would do in its place; 0: none would. Where two limits are too small one is
   * named first */
  int64_t least_bytes;
  int64_t left_bytes; /* what it leaves the arena (or pool) once all that is fixed has its bytes */
  int64_t held_bytes; /* what the workspace whose limit it is holds now; 0: it is no workspace's */
  /* what of a total the arena can't have: "parameters", "gradients", "state", "io", .. */
  int n_fixed;
  neap_named_bytes fixed[NEAP_MOST_NAMED];
  int n_blob; /* the blobs in the way where most is alive, the largest ones, largest first */
  neap_live_bytes blobs[NEAP_MOST_NAMED];
  int n_module; /* the same by module: all that each has alive there, the largest, largest first */
  neap_live_bytes modules[NEAP_MOST_NAMED];
  /* MEMORY, of a plan whose bytes the system refused: what was asked for, and what it had left; the
   * blobs and modules are then those of that plan. 0: not known */
  int64_t request_bytes, available_bytes;
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
typedef struct neap_options neap_options; /* neap/options.h */

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
 * Reading checks every line; an error says which one and what it expects. Numbers have a decimal
 * point, whatever locale the program has set. End the net with neap_net_free. */
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
 * LoopGradient, whose frames have no name. `options` (may be NULL): shapes of inputs, and what may
 * be rewritten. */
NEAP_API neap_status neap_net_expand(const neap_net *net, const neap_options *options,
                                     neap_net **out, neap_error *error);

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
/* A net with its parameters and state as one .safetensors file: the net's text is in the metadata,
 * the tensors have the names of its blobs. Written beside `path` and renamed, like all files here:
 * a reader sees the old one or the new one. */
NEAP_API neap_status neap_workspace_export(neap_workspace *workspace, const neap_net *net,
                                           const char *path, neap_error *error);
/* Reads such a file: its parameters and state become blobs, its net is given. Maps are those of
 * neap_workspace_load. DATA for a file without a net, or whose tensors are not those that its net
 * declares. */
NEAP_API neap_status neap_workspace_import(neap_workspace *workspace, const char *path,
                                           neap_io_map map, neap_net **out, neap_error *error);
/* Bytes of files mapped now, by the whole process; not counted as held. */
NEAP_API int64_t neap_mapped_bytes(void);
/* Bytes that the process can still take on this machine: the kernel's estimate, cut by the limits
 * of control groups and of the address space; 0 where unknown. A total for neap_net_fit_batch. */
NEAP_API size_t neap_memory_available(void);

/* ---- the database ---------------------------------------------------------------------------- */

#include "neap/db.h"

/* ---- what a plan may be told ----------------------------------------------------------------- */

#include "neap/options.h"

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

#include "neap/plan.h"

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
NEAP_API int64_t neap_session_frames_bytes(neap_session *session);
/* Whether a blob that the session works on has been removed from the workspace, or renamed: a run
 * would be refused. */
NEAP_API bool neap_session_lacks_blob(neap_session *session);
/* Why a blob has the bytes it has (NULL: the whole plan), in words; end it with neap_free. */
NEAP_API neap_status neap_session_explain(neap_session *session, const char *blob, char **out,
                                          neap_error *error);
/* Rows of what runs (neap_net_rows); until the session's next run, or its end. */
NEAP_API neap_status neap_session_rows(neap_session *session, neap_row_kind kind, neap_rows **out,
                                       neap_error *error);
/* Of a session with a database: the rows of its plan and of its run there; 0 while there is none.
 * The run has its row from its first step on (neap/db.h). */
NEAP_API int64_t neap_session_plan_id(const neap_session *session);
NEAP_API int64_t neap_session_run_id(const neap_session *session);
/* What the database failed to do for this session, as a sentence; "" when nothing. */
NEAP_API const char *neap_session_warning(const neap_session *session);
/* neap_run_metric of the session's run. Nothing happens without a database. */
NEAP_API neap_status neap_session_metric(neap_session *session, const char *name, int64_t at_step,
                                         double value, neap_error *error);
/* Whether the last calls of each step are kept: `profile`, which a dynamic session has no use for.
 * */
NEAP_API bool neap_session_is_timed(const neap_session *session);
/* The times of one step of the plan, from 0, over all runs; with `profile` the last calls too.
 * False
 * where there are none: of a dynamic session, whose plans change. */
NEAP_API bool neap_session_op_row(const neap_session *session, int step, neap_run_op_row *row);
/* neap_run_end of a run of the session's own, and the rows of its ops. Nothing
 * happens to a run that has ended, where nothing has run, and without a database. ARGUMENT error
 * for a status that there is not; DB errors. */
NEAP_API neap_status neap_session_record(neap_session *session, const char *status,
                                         neap_error *error);
NEAP_API void neap_session_free(neap_session *session); /* records first */

/* ---- batches: ranges of them, the largest that fits, large ones in parts --------------------- */

#include "neap/batch.h"

/* ---- memonger: fewer names, fewer bytes ------------------------------------------------------ */

#include "neap/memonger.h"

/* ---- files of other programs ----------------------------------------------------------------- */

#include "neap/onnx.h"

#include "neap/caffe.h"

#include "neap/tflite.h"

/* ---- layer by layer: the memory of a chain of layers ----------------------------------------- */

#include "neap/chain.h"

/* ---- child workspaces, scopes and step trees ------------------------------------------------- */

#include "neap/workspace.h"

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
/* As a table shows them: by region, the largest first, then by name. */
NEAP_API void neap_workspace_sort_blobs(neap_blob_row *row, int n);
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
