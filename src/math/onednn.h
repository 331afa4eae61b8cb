/* math/onednn.h: kernels of oneDNN (2 or 3) for the ops that have one. Of elementwise ops Relu and
 * AddN have, for comparison and for who forces the engine: they are bound by memory, and our vector
 * loops, which take any layout too, are as fast.
 *
 * A case is one problem as plain data: operands in the order of the op's record, geometry, flags.
 * `ask` completes it with what oneDNN wants: layouts and bytes; that is what an op's choose writes
 * into its choice. `make` builds the kernel of a completed case. Where oneDNN can't be had
 * (math/engine.h) ask always says no.
 *
 * INVARIANT: ask computes bytes by the way that make goes: from the finished layouts, not from a
 * free choice of them.
 * INVARIANT: a kernel made for n threads runs with n threads, inside somebody's parallel region
 * too; one made for more than one never runs inside a share of a team (it could not have them
 * there).
 * INVARIANT: padding lanes of every output are zero after a run, given that those of the inputs
 * are.
 */
#ifndef NEAP_MATH_ONEDNN_H
#define NEAP_MATH_ONEDNN_H

#include "math/engine.h"

/* Operands, inputs -> outputs; those in brackets may be absent (dtype NONE, or beyond n_in, n_out).
 * Of one float type, but for what `quantised` says. */
typedef enum neap_onednn_kind {
  NEAP_ONEDNN_CONV,             /* x, w [b] -> y */
  NEAP_ONEDNN_CONV_GRAD_INPUT,  /* dy, w -> dx */
  NEAP_ONEDNN_CONV_GRAD_WEIGHT, /* x, dy -> dw */
  NEAP_ONEDNN_POOL,             /* x -> y [stash] */
  NEAP_ONEDNN_POOL_GRAD,        /* dy [stash] -> dx */
  /* x, gamma, beta [mean, var] -> y [mean, var, stash]; statistics in when global_stats, else
   * out */
  NEAP_ONEDNN_NORM,
  NEAP_ONEDNN_NORM_GRAD, /* x, dy, mean, var, gamma [stash] -> dx, dgamma, dbeta */
  /* x (M,K), w (N,K) [b] -> y (M,N); x and y may have more dimensions */
  NEAP_ONEDNN_FC,
  NEAP_ONEDNN_FC_GRAD_INPUT,  /* dy, w -> dx */
  NEAP_ONEDNN_FC_GRAD_WEIGHT, /* x, dy -> dw */
  NEAP_ONEDNN_RELU,           /* x -> y, all of one layout; keeps NaN; y may be x */
  NEAP_ONEDNN_RELU_GRAD,      /* y, dy -> dx, all of one layout; dx may be dy */
  NEAP_ONEDNN_ADD             /* two or more of one type and layout -> y; y may be any of them */
} neap_onednn_kind;

enum { NEAP_ONEDNN_MAX_IN = 6, NEAP_ONEDNN_MAX_OUT = 4 };

/* What conv problems may be solved by; choice->algorithm. */
typedef enum neap_onednn_algorithm {
  NEAP_ONEDNN_DIRECT,
  NEAP_ONEDNN_WINOGRAD
} neap_onednn_algorithm;

typedef struct neap_onednn_case {
  neap_onednn_kind kind;
  int n_thread;
  int n_in, n_out;
  const neap_type *in, *out;
  /* ask reads in_layout as what is at hand, out_layout only for POOL_GRAD and NORM_GRAD, and sets
   * both; make reads both. Convolutions choose freely; products are plain; RELU, RELU_GRAD and ADD
   * leave both as they are given; the rest takes in_layout[0] as it is. */
  neap_layout in_layout[NEAP_ONEDNN_MAX_IN], out_layout[NEAP_ONEDNN_MAX_OUT];
  int n_space; /* CONV and POOL: spatial dimensions, and their window */
  int64_t kernel[3], stride[3], dilation[3], begin[3], end[3];
  int64_t groups;
  bool average, count_pad; /* POOL: else maximum; padding counts in the divisor */
  bool global_stats;       /* NORM: mean and variance are given, constants to the backward */
  bool relu;               /* NORM: y = max(y, 0) at the end */
  bool add;                /* CONV, and FC of halves: to what y holds */
  /* CONV and FC of bytes: x u8, w i8, then f32 b (O), scale (O), [ratio, y_zero]. y is
   * round(max((x w + b) scale [+ y]) ratio, 0) + y_zero, saturated; the maximum with `relu`; real
   * numbers where y is f32. Of FC the weight's layout is chosen freely, too */
  bool quantised;
  double eps;
  size_t scratch_limit; /* ask: an algorithm that needs more is taken only when none needs less */
  neap_onednn_algorithm algorithm;
  size_t scratch_bytes, stash_bytes; /* set by ask, promised to make */
  const char *why; /* convolutions, set by ask: a static text, why this algorithm */
  /* .. and which other one could run, as neap_choice has it */
  const char *other;
  size_t other_scratch_bytes;
  double other_work;
  bool has_direct;
  size_t direct_scratch_bytes;
} neap_onednn_case;

/* a kernel with its memory objects; used by one thread at a time */
typedef struct neap_onednn neap_onednn;

/* False: oneDNN has no kernel better than plain loops for this case, or a layout of its own
 * making. */
bool neap_onednn_ask(neap_onednn_case *problem);
/* The same with the algorithm given. */
bool neap_onednn_ask_algorithm(neap_onednn_case *problem);
/* The same with algorithm and layouts given: sets the bytes alone. */
bool neap_onednn_ask_bytes(neap_onednn_case *problem);
/* Whether this processor sums products of bytes exactly: by VNNI or AMX. Older instructions add up
 * pairs of products in 16 bits, which saturate. */
bool neap_onednn_sums_bytes(void);
/* PLAN error when this oneDNN needs other bytes than the case says. The kernel is owned by the
 * caller. */
neap_status neap_onednn_make(const neap_onednn_case *problem, neap_onednn **out, neap_error *error);
void neap_onednn_free(neap_onednn *kernel);
/* Whether kernels of norms whose layout is not blocked add up the planes of all images one element
 * after the other, not each plane for itself. */
extern const bool neap_onednn_norm_adds_images;
/* Addresses of the operands, by position; scratch of scratch_bytes. Allocates nothing of Neap's.
 * False when oneDNN refuses. */
bool neap_onednn_run(neap_onednn *kernel, void *const *in, void *const *out, void *scratch);

#endif
