/* neap/op.h: ops: what their records say, and one op run on tensors at once. Part of neap.h, which
 * includes it.
 *
 *   neap_tensor y = {0};
 *   const neap_set attrs[] = {NEAP_SET_FLOAT("rate", 0.3), {0}};
 *   if (neap_run_op("Dropout", 1, &x, attrs, 1, &y, &error)) goto end;
 */
#include "neap.h"
#ifndef NEAP_OP_PART_H
#define NEAP_OP_PART_H

/* ---- attributes ------------------------------------------------------------------------------ */

typedef enum neap_attr_type {
  NEAP_ATTR_NONE, /* ends the list */
  NEAP_ATTR_INT,
  NEAP_ATTR_FLOAT,
  NEAP_ATTR_BOOL,
  NEAP_ATTR_ENUM,  /* one of `choices`; the value is its index */
  NEAP_ATTR_DTYPE, /* a neap_dtype */
  NEAP_ATTR_INTS,
  NEAP_ATTR_FLOATS,
  NEAP_ATTR_AXIS,  /* one dimension: stored 0-based or negative from the end; Lua counts from 1 */
  NEAP_ATTR_AXES,  /* list of those */
  NEAP_ATTR_NAMES, /* list of blob names */
  NEAP_ATTR_NET
} neap_attr_type;

typedef struct neap_attr_value {
  bool given; /* by the user, rather than by default */
  union {
    int64_t i; /* INT, BOOL, ENUM, DTYPE, AXIS */
    double f;  /* FLOAT */
    const neap_net *net;
  };
  int n; /* of a list */
  union {
    const int64_t *ints;
    const double *floats;
    const char *const *names; /* interned, once an op has them */
  };
} neap_attr_value;

/* What a record says of an attribute. */
typedef struct neap_attr {
  const char *name, *doc;
  neap_attr_type type;
  bool required;
  bool unlike_default;   /* left out, it means what no value says */
  neap_attr_value value; /* default */
  double least, most;    /* inclusive range of numbers and list items; both 0: no limit */
  const char *choices;   /* ENUM: "none|mean|sum" */
} neap_attr;

/* One attribute that is given to an op. End a list with {0}. Lists are copied. */
typedef struct neap_set {
  const char *name;
  neap_attr_value value;
} neap_set;
#define NEAP_SET_INT(key, x)         \
  {                                  \
    key, { .given = true, .i = (x) } \
  }
#define NEAP_SET_FLOAT(key, x)       \
  {                                  \
    key, { .given = true, .f = (x) } \
  }
#define NEAP_SET_INTS(key, count, list)                  \
  {                                                      \
    key, { .given = true, .n = (count), .ints = (list) } \
  }

/* ---- inputs and outputs ---------------------------------------------------------------------- */

typedef enum neap_arg_flag {
  NEAP_ARG_OPTIONAL = 1, /* may be absent */
  NEAP_ARG_VARIADIC = 2, /* last of its list: one or more (with OPTIONAL: none or more) */
  /* output u8 whose bytes the choice sets; input: that output of the backward op's pair */
  NEAP_ARG_STASH = 4,
  NEAP_ARG_HOST = 8,   /* read before the kernels run (a condition): one element */
  NEAP_ARG_SCOPE = 16, /* a scope, no tensor; of a variadic list only the last one is */
  /* f32 where the op's other floats are bf16 or f16: statistics, of which a result needs more
   * digits than it has itself */
  NEAP_ARG_WIDE = 32
} neap_arg_flag;

typedef struct neap_arg {
  const char *name, *doc;
  unsigned dtypes; /* a set: 1 << dtype each; 0 means the floats, halves too */
  unsigned flags;  /* neap_arg_flag */
} neap_arg;

/* An input and an output of one op, 0-based, whose bytes may be the same, or must be; in a variadic
 * list the position within the op. */
typedef struct neap_pair {
  int in, out;
} neap_pair;

/* ---- records --------------------------------------------------------------------------------- */

typedef struct neap_op neap_op; /* constant, as long as the process */

NEAP_API int neap_op_count(void);
NEAP_API const neap_op *neap_op_at(int index);          /* by name order */
NEAP_API const neap_op *neap_op_find(const char *name); /* NULL when unknown */
/* The nearest name, for "did you mean"; NULL when nothing is near. */
NEAP_API const char *neap_op_suggest(const char *name);
NEAP_API const char *neap_op_name(const neap_op *op);
NEAP_API int neap_op_n_attrs(const neap_op *op);
NEAP_API const neap_attr *neap_op_attr_at(const neap_op *op, int index);
NEAP_API int neap_op_attr_index(const neap_op *op, const char *name); /* -1 when unknown */
/* How many outputs it gives where nobody says: those before the first optional one. */
NEAP_API int neap_op_n_results(const neap_op *op);

enum { NEAP_MOST_KERNELS = 12 };
/* All that a record says; texts may be NULL. */
typedef struct neap_op_record {
  const char *name, *summary; /* summary: one sentence */
  const char *math;           /* one line, e.g. "y = max(x, 0)" */
  const char *example;        /* Lua */
  const char *source;         /* paper or standard, with section */
  const char *cases;          /* shapes and attributes that its tests try, as Lua */
  const char *long_cases;     /* those of long sums */
  const char *special;        /* what NaN, infinities and empty inputs give, where it isn't plain */
  const char *nan;            /* what a NaN among the inputs does: "spreads", "decides", .. */
  const char *infinity;       /* what infinities give: "exact", "reaches", "overflows", .. */
  const char *empty;          /* what is computed from no elements: "none", "zero", "refused", .. */
  const char *sum;            /* how sums that get longer with the data are made */
  /* the most that a sum of a million f32 may be wrong, of their magnitudes' sum */
  double sum_error;
  bool internal; /* made while a net is planned: not for users */
  bool control;  /* works in a net only */
  bool pseudo;   /* of those: one that planning writes as others, such as Gradient */
  bool extent;   /* how long its outputs are depends on data */
  bool random;
  bool gradient; /* it has one, or it is nothing */
  bool no_grad;  /* it is nothing */
  int n_input, n_output, n_attr, n_inplace, n_enforced, n_kernel;
  const neap_arg *input, *output;
  const neap_attr *attr;
  const neap_pair *inplace;  /* an output may have an input's bytes */
  const neap_pair *enforced; /* it must: the output is the input's next version */
  struct {
    const char *engine;
    const char *infinity;      /* as above, by this kernel */
    unsigned dtypes;           /* what it computes, a set as in neap_arg */
  } kernel[NEAP_MOST_KERNELS]; /* in the order in which they are tried */
} neap_op_record;
NEAP_API neap_op_record neap_op_read(const neap_op *op);
/* The record as a page of text; end it with neap_free. */
NEAP_API neap_status neap_op_help(const neap_op *op, char **out, neap_error *error);

/* ---- one op at once -------------------------------------------------------------------------- */

/* Runs one op on tensors. `out` gets n_out new ones, dense, which the caller ends by
 * neap_tensor_fini; strided inputs are copied first, an absent optional input is {0}; `attrs` may
 * be NULL. Nothing is planned: the kernel is the fastest that the engine in force has, and a few a
 * thread are kept, so that the same op on the same types is cheap to call again. Random ops draw
 * the thread's next numbers. NAME for an unknown op, ARGUMENT for one that works in a net only and
 * for a wrong number of operands, and what its record refuses: ATTRIBUTE, SHAPE, DTYPE. */
NEAP_API neap_status neap_run_op(const char *type, int n_in, const neap_tensor *in,
                                 const neap_set *attrs, int n_out, neap_tensor *out,
                                 neap_error *error);
/* What random ops draw by: the same seed and step give the same numbers. */
typedef struct neap_draw {
  uint64_t seed;
  uint32_t step;
} neap_draw;
/* What random ops of this thread draw begins anew; before the first call the seed is 0. */
NEAP_API void neap_draw_seed(uint64_t seed);
/* What the next one of this thread draws by; and that it goes on from there, as it had been. */
NEAP_API neap_draw neap_draw_look(void);
NEAP_API void neap_draw_resume(const neap_draw *draw);

#endif
