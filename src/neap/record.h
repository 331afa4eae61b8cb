/* neap/record.h: how an op is written: the record, and what its functions are given. Neap's own ops
 * are written by this header, and so are those of a plugin: a shared library that exports its
 * records and the number of the binary interface it was compiled for.
 *
 *   #include <neap/record.h>
 *   static void run(const neap_call *call) { .. }
 *   static const neap_op cube = {
 *     .name = "Cube", .summary = "The third power.", .math = "y = x^3",
 *     .inputs = {{"x", "any shape"}}, .outputs = {{"y", "shape of x"}},
 *     .infer = neap_infer_like, .grad_formula = "d.x = d.y * x * x * 3",
 *     .kernels = NEAP_REF(run, NEAP_BIT(F32) | NEAP_BIT(F64)), .cases = "{ {x={2,3}} }"};
 *   const int neap_ops_abi = NEAP_OPS_ABI;
 *   const neap_op *const neap_ops[] = {&cube, NULL};
 *
 *   cc -shared -fPIC -o cube.so cube.c      then   neap.load_ops "./cube.so"
 *
 * A record is constant data. It knows shapes, not values; bytes, not addresses. Its functions get a
 * context with what they may read and where they write; they keep no state and may run on several
 * threads at once.
 *
 *   infer   types of the outputs from the types of the inputs, and every check that types and
 *           attributes allow
 *   cost    work: flops and bytes
 *   grad    emits the ops of the backward pass, from value to value
 *   kernels one per engine, the preferred first: choose (layouts, scratch, stash), bind (library
 *           objects), run
 *
 * INVARIANT: a kernel can't fail. What depends on data (an index out of range) is recorded with
 * neap_call_fault, zero is written, and memory outside the operands is never touched.
 * INVARIANT: `ref` accepts every case that infer accepts; it is the oracle of the other engines.
 */
#ifndef NEAP_RECORD_PART_H
#define NEAP_RECORD_PART_H

#include "neap.h"

/* ---- dtypes, layouts, engines ---------------------------------------------------------------- */

/* Sets of dtypes, as op records use them. */
#define NEAP_BIT(dtype) (1u << NEAP_DTYPE_##dtype)
#define NEAP_WIDE (NEAP_BIT(F32) | NEAP_BIT(F64)) /* floats that are computed in as they are */
#define NEAP_HALVES (NEAP_BIT(BF16) | NEAP_BIT(F16))
#define NEAP_FLOATS (NEAP_WIDE | NEAP_HALVES)
#define NEAP_INTEGERS \
  (NEAP_BIT(I8) | NEAP_BIT(U8) | NEAP_BIT(I16) | NEAP_BIT(U16) | NEAP_BIT(I32) | NEAP_BIT(I64))
#define NEAP_NUMBERS (NEAP_FLOATS | NEAP_INTEGERS)
#define NEAP_ANY (NEAP_NUMBERS | NEAP_BIT(BOOL))

/* How a value's elements lie in memory. PLAIN is dense row-major. BLOCKED: the dimensions in
 * `order` (slowest first), each blocked dimension divided (rounded up) by the product of its inner
 * blocks, then the inner blocks, slowest first. nChw16c is {BLOCKED, order 0 1 2 3, inner {dim 1,
 * 16}}; channels last is {BLOCKED, order 0 2 3 1, no inner}. OPAQUE: only the library knows; `hash`
 * identifies it, `bytes` is its size.
 * INVARIANT: padding lanes (where a block overhangs) are zero after the defining instruction. */
typedef enum neap_layout_kind {
  NEAP_LAYOUT_PLAIN,
  NEAP_LAYOUT_BLOCKED,
  NEAP_LAYOUT_OPAQUE
} neap_layout_kind;

typedef struct neap_layout {
  uint8_t kind;
  uint8_t n_inner;
  uint8_t inner_dim[4];
  uint8_t inner_block[4];
  uint8_t order[NEAP_MAX_DIM];
  uint64_t hash;
  size_t bytes; /* OPAQUE only */
} neap_layout;

/* X(VALUE, name). The first is the one that has a kernel of every op: what others have not is
 * its. */
#define NEAP_ENGINES(X) \
  X(REF, ref)           \
  X(BLAS, blas)         \
  X(DNNL, dnnl)

typedef enum neap_engine {
#define X(VALUE, name) NEAP_ENGINE_##VALUE,
  NEAP_ENGINES(X)
#undef X
    NEAP_N_ENGINE
} neap_engine;

/* ---- records --------------------------------------------------------------------------------- */

/* The most that a record has of each. */
enum { NEAP_OP_MAX_IN = 12, NEAP_OP_MAX_OUT = 8, NEAP_OP_MAX_ATTR = 16, NEAP_OP_MAX_PAIR = 6 };

/* An optional operand that is absent has dtype NONE in the contexts below, and data NULL in the
 * call. */

typedef enum neap_effect {
  NEAP_EFFECT_NONE = 0,
  NEAP_EFFECT_RANDOM = 1,   /* draws numbers: same stream and step, same numbers */
  NEAP_EFFECT_COMMIT = 2,   /* writes resident storage through its enforced pairs */
  NEAP_EFFECT_FAULT = 4,    /* may record a fault */
  NEAP_EFFECT_CONTROL = 8,  /* an instruction kind of the runner: has subnets, no kernel */
  NEAP_EFFECT_RELEASE = 16, /* Free: ends the life of its inputs */
  NEAP_EFFECT_PSEUDO = 32,  /* written as other ops: Gradient, Do, those of scopes */
  /* CONTROL that repeats its last subnet: attributes n_state, n_seq, max (see graph.h) */
  NEAP_EFFECT_LOOP = 64,
  /* how long its outputs are depends on data: one number, known when the kernel has run */
  NEAP_EFFECT_EXTENT = 128,
  NEAP_EFFECT_CALLER = 256 /* runs on the thread that runs the net alone, and nothing beside it */
} neap_effect;

/* ---- numbers: what a record promises of them (numbers.c; tests/ops asks every op) ------------ */

/* What a NaN among the inputs does. ORDER NAN: texts in numbers.c. */
typedef enum neap_nan {
  NEAP_NAN_SPREADS, /* all that is computed from it is NaN, and nothing else: nearly every op */
  /* all that is computed from it is NaN, and what multiplies it by 0 or shares a tile with it may
   * be */
  NEAP_NAN_REACHES,
  /* it is compared, counted or sorted, and `special` says as what; a result need not be NaN */
  NEAP_NAN_DECIDES,
  NEAP_NAN_STOPS /* a fault */
} neap_nan;

/* What infinities and numbers near the largest give. ORDER INFINITY: texts in numbers.c. */
typedef enum neap_infinity {
  NEAP_INFINITY_USUAL, /* REACHES where a NaN does, else EXACT */
  /* what f64 gives for the same input; infinite where that is too large for the dtype */
  NEAP_INFINITY_EXACT,
  NEAP_INFINITY_REACHES, /* the same, but that times 0 an infinity makes a NaN */
  /* what is multiplied or added up on the way to a result may be too large for the dtype where the
   * result is not: then that is infinite or NaN, and no other number. For inputs that no forward
   * gives */
  NEAP_INFINITY_OVERFLOWS,
  /* the square of a number is too large for the dtype and divided by, so that a result is 0 */
  NEAP_INFINITY_VANISHES,
  NEAP_INFINITY_BLURS /* a result depends on digits that a number near the largest does not have */
} neap_infinity;

/* What a result is that is computed from no elements. ORDER EMPTY: texts in numbers.c. */
typedef enum neap_empty {
  NEAP_EMPTY_USUAL,    /* ZERO for ops that make sums, else NONE */
  NEAP_EMPTY_NONE,     /* there is no such result: of empty inputs, empty outputs */
  NEAP_EMPTY_ZERO,     /* what zeros in the place of nothing would give: a sum of nothing is 0 */
  NEAP_EMPTY_ONE,      /* what ones would give: a product of nothing is 1 */
  NEAP_EMPTY_MEAN,     /* a mean of nothing is NaN, a sum 0 */
  NEAP_EMPTY_FILLED,   /* a constant, of which `special` says more */
  NEAP_EMPTY_IDENTITY, /* identity matrices: a base of the space */
  NEAP_EMPTY_REFUSED   /* a SHAPE error */
} neap_empty;

/* How sums are made that get longer with the data, and so how exact they are: the largest error in
 * f32 that the sum of a million numbers may have, in parts of the sum of their magnitudes. In f64
 * all are made as here, and as much more exact as f64 is.
 * ORDER SUM: texts and errors in numbers.c. */
typedef enum neap_sum {
  NEAP_SUM_NONE,   /* adds up nothing, or a few terms whose number the attributes fix */
  NEAP_SUM_DOUBLE, /* in double, integers in int64 */
  /* in f32 at most 128 rows, or 1024 elements of a row, at once; those sums in double
   * (math/row.h) */
  NEAP_SUM_RUNS,
  NEAP_SUM_LIBRARY /* a product or a norm as the engine's library makes it, in blocks of f32 */
} neap_sum;

/* ---- mixed precision: what the op does with `dtype = "bf16"` (build/mixed.c) ----------------- */

/* Losses, updates, control ops and ops without a kernel for halves are FULL whatever they say. */
typedef enum neap_mixed {
  /* halves where one of its floats is a half and the others are, or are parameters and constants;
   * else f32: elementwise ops, pools, norms, movement */
  NEAP_MIXED_FOLLOW,
  NEAP_MIXED_HALF,  /* halves, whatever comes in: products */
  NEAP_MIXED_FULL,  /* f32: sums, and functions that need or make many digits */
  NEAP_MIXED_ROUND, /* f32, and what it gives is rounded: rows looked up in a table of parameters */
  NEAP_MIXED_LINEAR /* HALF; but ROUND where in training a weight, input 1, (N,..), would be cast
                     * for a few rows */
} neap_mixed;

/* ---- choices --------------------------------------------------------------------------------- */

/* Plain data: made by choose, stored with a plan, given to bind. */
typedef struct neap_choice {
  neap_engine engine;
  int algorithm; /* meaning is the kernel's own; 0 where there is but one */
  int n_thread;  /* the kernel may open a parallel region of this many */
  size_t scratch_bytes, stash_bytes;
  /* bf16 or f16 that the kernel computes in f32, on twins of the operands behind its own scratch,
   * which scratch_bytes counts (widen.c). No part of what is compared or stored */
  bool is_widened;
  size_t twin_bytes;
  int split;    /* then: 1 + which of the kernel's splits; 0: whole */
  int64_t part; /* rows or columns of a part */
  /* other bits than what would be chosen freely: `inexact` allowed less scratch, or one thread in a
   * dag */
  bool changed;
  /* static texts for people: what the algorithm is called, and why it was taken; NULL where there
   * is but one, or nothing to say. No part of what is compared or stored */
  const char *how, *why;
  /* likewise, of what it was taken over where two could run: what that is called, its scratch, and
   * its work as estimated, for each operation of this one. NULL: there was no other */
  const char *other;
  size_t other_scratch_bytes;
  double other_work;
  neap_layout *in, *out; /* arrays of the op's n_in and n_out, owned by whoever owns the choice */
} neap_choice;

/* ---- contexts -------------------------------------------------------------------------------- */

typedef struct neap_infer {
  const neap_op *op;
  const neap_attr_value *attrs; /* one per record attribute, in its order, defaults filled in */
  int n_in, n_out;              /* as called; n_out outputs are wanted */
  const neap_type *in;          /* dtype NONE where absent */
  neap_type *out;               /* to be filled; zeroed */
  /* EXTENT ops: the length that a run has found; NULL: unknown, so that outputs get their bound */
  const int64_t *extent;
  /* Control ops: types of the subnet's results for given parameter types. */
  neap_status (*infer_subnet)(const struct neap_infer *infer, int subnet, int n_in,
                              const neap_type *in, int n_out, neap_type *out, neap_error *error);
  void *graph; /* private to whoever calls infer */
} neap_infer;

typedef struct neap_cost {
  double flops, read_bytes, write_bytes;
} neap_cost;

typedef int neap_value_id; /* of graph; NEAP_NO_VALUE: absent */
#define NEAP_NO_VALUE (-1)

typedef struct neap_grad neap_grad;

/* Given to grad. in, out, dout are the forward op's values; dout[i] is NEAP_NO_VALUE where no
 * gradient arrives; want[i] says whether din[i] is asked for. grad sets din[i] for those (or leaves
 * NEAP_NO_VALUE: no gradient). */
struct neap_grad {
  const neap_op *op;
  const neap_attr_value *attrs;
  int n_in, n_out;
  const neap_value_id *in, *out, *dout;
  const bool *want;
  neap_value_id *din;
  /* How neap_grad_emit and neap_grad_type are carried out, and the graph under construction, which
   * is private to who builds it. */
  void (*emit)(neap_grad *grad, const char *type, int n_in, const neap_value_id *in, int n_out,
               neap_value_id *out, const neap_grad *inherit, const neap_set *set);
  neap_type (*type_of)(const neap_grad *grad, neap_value_id value);
  void *graph;
};

/* ---- helpers for grad (grad.c) ---- */

/* Emits op `type` with `n_in` inputs (NEAP_NO_VALUE where optional) and n_out outputs, whose ids go
 * to `out`. The new op belongs to the pair of the op being differentiated, so that both get kernels
 * of one engine. Attributes of the same name are taken from `inherit` (NULL: none), then `set`
 * (NULL: none). Inference runs at once. Sticky: after a failure every emit gives NEAP_NO_VALUE and
 * the error surfaces when grad returns. */
NEAP_API void neap_grad_emit(neap_grad *grad, const char *type, int n_in, const neap_value_id *in,
                             int n_out, neap_value_id *out, const neap_grad *inherit,
                             const neap_set *set);
/* The common case: one output. */
NEAP_API neap_value_id neap_grad_emit1(neap_grad *grad, const char *type, int n_in,
                                       const neap_value_id *in, const neap_grad *inherit,
                                       const neap_set *set);
/* dtype NONE for an absent value, so that grad functions may ask before they look. */
NEAP_API neap_type neap_grad_type(const neap_grad *grad, neap_value_id value);
/* The gradient of broadcasting: sums `value` (broadcast to a larger shape) back to the shape of
 * `like`; the same id when shapes are equal. */
NEAP_API neap_value_id neap_grad_reduce_to(neap_grad *grad, neap_value_id value,
                                           neap_value_id like);
/* `value` under another shape of as many elements, or in another dtype; itself where it has it, and
 * where it is none. */
NEAP_API neap_value_id neap_grad_view(neap_grad *grad, neap_value_id value, neap_shape shape);
NEAP_API neap_value_id neap_grad_cast(neap_grad *grad, neap_value_id value, neap_dtype dtype);

typedef struct neap_choose {
  const neap_op *op;
  const neap_attr_value *attrs;
  int n_in, n_out;
  const neap_type *in, *out;
  const neap_layout *in_layout; /* the layout each input has at hand */
  bool train;                   /* backward ops of this pair follow, or this is one of them */
  const neap_choice *pair;      /* the forward op's choice, when this is a backward op; else NULL */
  /* made for the same op with larger operands, whose algorithm and layouts this one is to have;
   * NULL: free. What comes out differently is refused by the caller. Where a kernel says `how`, the
   * lists of layouts may be NULL: then the algorithm alone is asked for */
  const neap_choice *like;
  bool plain; /* any other layout would be refused */
  /* SIZE_MAX: none. A choice may exceed it only when nothing smaller exists */
  size_t scratch_limit;
  /* to be filled; engine and n_thread are set, layouts PLAIN, bytes 0 */
  neap_choice *choice;
} neap_choose;

typedef struct neap_bind {
  const neap_op *op;
  const neap_attr_value *attrs;
  int n_in, n_out;
  const neap_type *in, *out;
  const neap_choice *choice;
} neap_bind;

typedef struct neap_fault {
  bool set;
  int instruction;
  char message[400]; /* what; the runner adds op, blob and scope */
} neap_fault;

typedef struct neap_operand {
  void *data; /* NULL where absent */
  neap_type type;
  neap_layout layout;
} neap_operand;

typedef struct neap_call {
  const neap_op *op;
  const neap_attr_value *attrs;
  int n_in, n_out;
  neap_operand *in, *out;
  void *kernel;  /* what bind made; NULL for kernels without bind */
  void *scratch; /* choice->scratch_bytes, aligned to NEAP_ALIGN */
  const neap_choice *choice;
  int n_thread;
  uint64_t seed; /* random ops: neap_philox(seed, stream, step, element) */
  uint32_t stream, step;
  neap_fault *fault;
  /* EXTENT ops leave the true length here. Outputs are written densely for it while it is no larger
   * than the length that their types have, and not at all when it is. */
  int64_t *extent;
} neap_call;

/* Byte `at` of the scratch; NULL where the choice asked for none. */
static inline void *neap_call_scratch(const neap_call *call, size_t at) {
  return call->scratch == NULL ? NULL : (char *)call->scratch + at;
}

/* Records the first fault; later ones are dropped. Thread-safe. */
NEAP_API void neap_call_fault(const neap_call *call, const char *format, ...) NEAP_PRINTF(2, 3);

/* ---- the record ------------------------------------------------------------------------------ */

typedef struct neap_kernel {
  neap_engine engine;
  /* set, never empty: what it computes. It is asked of each operand that may be a float by the
   * record (neap_kernel_computes) */
  unsigned dtypes;
  /* bf16 and f16 too, where the engine has nothing better for them: it is asked for f32, and runs
   * on operands that are widened into the scratch (widen.c) */
  bool widens;
  /* how these may be taken in parts, whose bytes are few: what becomes of each operand, of the
   * outputs behind ">". R: rows, dimension 0 of at least two; r: of at least one; c: columns, the
   * last dimension; w: whole, as are those behind the text; s: an output that is the sum of the
   * parts'. ORDER SPLIT */
  const char *splits[2];
  /* false: not for this case. NULL: takes all, plain, no scratch */
  bool (*choose)(neap_choose *choose);
  /* elementwise and zero to zero: before choose is asked, all operands have taken input 0's layout
   * if the others of the same type can be had in it (layout "same") */
  bool any_layout;
  /* one choice gives the same bits however many of its threads run it, inside a parallel region
   * too: no sum is split among them but as the choice says, and no library is called that counts
   * them. Only where it is certain */
  bool any_team;
  /* any_team, and of a team it uses one thread: however much there is to do, others may run beside
   * it */
  bool one_thread;
  neap_infinity infinity; /* USUAL: as the record says */
  neap_status (*bind)(const neap_bind *bind, void **kernel, neap_error *error);
  void (*unbind)(void *kernel);
  void (*run)(const neap_call *call);
} neap_kernel;

/* The kernel list of an op that has only the plain C kernel, which computes the dtypes `set`, and
 * whose bits no team changes. */
#define NEAP_REF(run_function, set) NEAP_REF_CHOOSE(NULL, run_function, set)
/* The same, where it chooses: scratch, a stash. */
#define NEAP_REF_CHOOSE(choose_function, run_function, set) \
  NEAP_REF_LIST(.dtypes = (set), .choose = (choose_function), .run = (run_function))
/* For kernels that map zero to zero, whatever the layout. */
#define NEAP_REF_ANY_LAYOUT(run_function, set) \
  NEAP_REF_LIST(.dtypes = (set), .any_layout = true, .run = (run_function))
#define NEAP_REF_LIST(...)                                                      \
  (const neap_kernel[]) {                                                       \
    {.engine = NEAP_ENGINE_REF, .any_team = true, __VA_ARGS__}, { .run = NULL } \
  }

struct neap_op {
  const char *name, *summary; /* summary: one sentence */
  const char *math;           /* one line, e.g. "y = max(x, 0)" */
  const char *example;        /* Lua, op level */
  const char *source;         /* paper or standard, with section */
  /* made by gradients and rewrites only: no method, not listed unless asked */
  bool internal;
  neap_arg inputs[NEAP_OP_MAX_IN], outputs[NEAP_OP_MAX_OUT]; /* end: name NULL */
  neap_attr attrs[NEAP_OP_MAX_ATTR];                         /* end: NEAP_ATTR_NONE */
  /* n_inplace pairs, the best first: output may overwrite input where nobody else needs it */
  neap_pair inplace[NEAP_OP_MAX_PAIR];
  /* n_enforced pairs: output must, as the next version of input's storage */
  neap_pair enforced[NEAP_OP_MAX_PAIR];
  /* n_alias pairs: output is a view of input: same elements, same order */
  neap_pair alias[NEAP_OP_MAX_PAIR];
  int n_inplace, n_enforced, n_alias;
  bool inplace_any_input; /* variadic: any input may give its bytes to output 0 */
  unsigned effects;
  neap_status (*infer)(neap_infer *infer, neap_error *error);
  void (*cost)(const neap_infer *infer, neap_cost *cost); /* NULL: no flops, every byte once */
  /* What gradients are made by, one of three, else asking for one is an error: a function; a text
   * that gives each input's gradient; a text that says in other ops what this one computes, whose
   * gradient it has (formula.c). */
  neap_status (*grad)(neap_grad *grad, neap_error *error);
  const char *grad_formula, *formula;
  neap_mixed mixed;
  neap_nan nan;
  neap_infinity infinity;
  neap_empty empty;
  neap_sum sum;
  /* what NaN, infinities and empty inputs give, where formula and the fields above do not say it */
  const char *special;
  bool loss;                  /* output 0 is what training makes small */
  bool no_grad;               /* gradient is nothing (Accuracy, StopGradient, comparison) */
  const neap_kernel *kernels; /* end: run NULL. The preferred first */
  /* Lua: "{ {x={2,3}, axis=-1}, {x={4}, tol=1e-5} }": input name = shape or {shape, dtype=, low=,
   * high=}, of a variadic input a list of them; else attribute. `outputs` how many; `tol` relative
   * tolerance of engines against ref, `engines=false` none (the inputs of a backward belong
   * together, drawn ones do not); `grad=false` no finite differences, `wrt={"x"}` by x only. */
  const char *cases;
  /* Of ops that make sums: cases whose sums are long, about a quarter of a million terms, written
   * as in `cases`. Numbers are 0.1 where nothing is drawn, the hardest for a sum: their roundings
   * don't cancel. `tol` where a case is better than `sum` says. */
  const char *long_cases;
  /* its functions are a script's: no model file that has it runs without that script */
  bool scripted;
  /* of whoever made the record, to be found again in the contexts above; may be NULL */
  void *user;
};

/* ---- helpers for infer (infer.c); their errors name op, argument, expected and got ----------- */

/* The record lists the dtype of each present input. */
NEAP_API neap_status neap_infer_admits(const neap_infer *infer, neap_error *error);
/* All present inputs have the dtype of input `like`; those that are WIDE, f32 where that is a
 * half. */
NEAP_API neap_status neap_infer_same_dtype(const neap_infer *infer, int like, neap_error *error);
NEAP_API neap_status neap_infer_rank(const neap_infer *infer, int input, int least, int most,
                                     neap_error *error);
/* A SHAPE error about input `input`: "weight (64,32,3,3) expects 32 input channels, got x
 * (8,16,28,28)". */
NEAP_API neap_status neap_infer_fail(const neap_infer *infer, neap_status code, int input,
                                     neap_error *error, const char *format, ...) NEAP_PRINTF(5, 6);
/* 0-based axis in [0, n_dim) from an AXIS value; ATTRIBUTE error when out of range. */
NEAP_API neap_status neap_infer_axis(const neap_infer *infer, int attr, int n_dim, int *axis,
                                     neap_error *error);
/* DTYPE or SHAPE error unless input `input` has the type `want`. */
NEAP_API neap_status neap_infer_expect(const neap_infer *infer, int input, const neap_type *want,
                                       neap_error *error);
/* output 0 = type of input 0: elementwise ops */
NEAP_API neap_status neap_infer_like(neap_infer *infer, neap_error *error);

/* ---- ops beside Neap's own (ops/registry.c, api/load_ops.c) ---------------------------------- */

/* Of what this header lays down; the sizes are in it, so that a plugin that was compiled for
 * another record is refused. The first factor rises with a change that no size shows: of what a
 * field means, or of two that change places. */
#define NEAP_OPS_ABI (1 * 1000000 + (int)(sizeof(neap_op) + sizeof(neap_call) + sizeof(neap_infer)))

/* Makes an op known to the process, by its name: to nets, files, help, plans. `origin` says whose
 * it is, for messages. The record and all that it points to live as long as the process. NAME for a
 * name that is taken or no name of an op, ARGUMENT for a record that lacks something or contradicts
 * itself; nothing has changed then. */
NEAP_API neap_status neap_op_add(const neap_op *op, const char *origin, neap_error *error);
/* No longer found by its name; nets that have it keep it. For those whose makers are gone. */
NEAP_API void neap_op_remove(const neap_op *op);
/* "./cube.so", "a script"; NULL for one of Neap's own. */
NEAP_API const char *neap_op_origin(const neap_op *op);
/* The ops of a plugin, all or none; what was loaded before stays as it is. *ops (may be NULL) is
 * the plugin's list, which ends with NULL. IO for a file that is no shared library or can't be
 * read, ARGUMENT for one that is no plugin or was compiled for another Neap, and what
 * neap_op_add refuses. */
NEAP_API neap_status neap_load_ops(const char *path, const neap_op *const **ops, neap_error *error);

#endif
