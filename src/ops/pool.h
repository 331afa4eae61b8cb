/* pool.h: what the records of pools share (pool.c): inference, and plain kernels that take their
 * window from the op: one that slides, by the attributes, or one that adapts to the size of y. */
#ifndef NEAP_OPS_POOL_H
#define NEAP_OPS_POOL_H

#include "ops/rows.h"
#include "ops/window.h"

enum { NEAP_POOL_CEIL = NEAP_WINDOW_N_ATTR, NEAP_POOL_N_ATTR };
#define NEAP_POOL_ATTRS                                                              \
  NEAP_WINDOW_ATTRS("size of the window, one for all dimensions or one each", true), \
    [NEAP_POOL_CEIL] = {"ceil_mode", "a last window that overhangs counts too", NEAP_ATTR_BOOL}
#define NEAP_POOL_SHAPE_ATTR \
  { "shape", "of x", NEAP_ATTR_INTS, .required = true }

/* y of a sliding window, and of one as large as x; a second output is taken for a stash. */
neap_status neap_pool_infer(neap_infer *infer, neap_error *error);
neap_status neap_pool_infer_global(neap_infer *infer, neap_error *error);
/* dx of a backward of `forward`: dy, and the attribute `shape`. */
neap_status neap_pool_infer_grad(neap_infer *infer, const neap_op *forward, neap_error *error);
/* What `forward` would give for input 0, which has the shape of the attribute. */
neap_status neap_pool_infer_take(neap_infer *infer, const neap_op *forward, neap_error *error);
void neap_pool_cost(const neap_infer *infer, neap_cost *cost);

/* Scratch for halves; for a maximum the stash too; its backward and the elements of another x take
 * what ref left. All but the first have halves in layouts of channels side by side, too. */
bool neap_pool_choose(neap_choose *choose);
bool neap_pool_choose_average(neap_choose *choose);
bool neap_pool_choose_max(neap_choose *choose);
bool neap_pool_choose_max_grad(neap_choose *choose);
bool neap_pool_choose_max_take(neap_choose *choose);

/* x -> y, stash; x -> y, indices; dy, stash -> dx; x, stash -> y */
void neap_pool_run_max(const neap_call *call);
void neap_pool_run_max_indices(const neap_call *call);
void neap_pool_run_max_grad(const neap_call *call);
void neap_pool_run_max_take(const neap_call *call);
/* x -> y, dy -> dx */
void neap_pool_run_average(const neap_call *call);
void neap_pool_run_average_grad(const neap_call *call);
void neap_pool_run_sum(const neap_call *call);
void neap_pool_run_sum_grad(const neap_call *call);
void neap_pool_run_lp(const neap_call *call);

#endif
