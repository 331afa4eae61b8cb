/* dnnl.h: the way from an op's contexts to the oneDNN engine of math, shared by all kernels of
 * engine `dnnl`.
 *
 * An op's choose and bind each start a case with the operands of their context, add geometry and
 * flags alike, and hand it over. What choose learned (layouts, bytes, algorithm) travels in the
 * choice, so that bind can build the same again.
 */
#ifndef NEAP_OPS_DNNL_H
#define NEAP_OPS_DNNL_H

#include "math/blas.h"
#include "math/onednn.h"
#include "ops/op.h"

/* A problem of `kind` with the operands and threads of the context; the caller adds geometry and
 * flags. */
neap_onednn_case neap_dnnl_case_choose(const neap_choose *choose, neap_onednn_kind kind);
neap_onednn_case neap_dnnl_case_bind(const neap_bind *bind, neap_onednn_kind kind);
/* Fills the choice from what oneDNN wants; false when it has no good kernel. */
bool neap_dnnl_choose(neap_choose *choose, neap_onednn_case *c);
/* For kernels of any layout: the layouts that the choice has already, which oneDNN leaves alone. */
bool neap_dnnl_choose_elementwise(neap_choose *choose, neap_onednn_kind kind);
/* Makes the kernel and checks that it keeps the choice's promises; PLAN error when not. */
neap_status neap_dnnl_bind(const neap_bind *bind, neap_onednn_case *c, void **kernel,
                           neap_error *error);
void neap_dnnl_unbind(void *kernel);
void neap_dnnl_run(const neap_call *call);

/* choose_NAME, bind_NAME of an elementwise op that is one problem of `kind`. */
#define NEAP_DNNL_ELEMENTWISE(name, kind)                                                   \
  static bool choose_##name(neap_choose *choose) {                                          \
    return neap_dnnl_choose_elementwise(choose, kind);                                      \
  }                                                                                         \
  static neap_status bind_##name(const neap_bind *bind, void **kernel, neap_error *error) { \
    neap_onednn_case c = neap_dnnl_case_bind(bind, kind);                                   \
    return neap_dnnl_bind(bind, &c, kernel, error);                                         \
  }
#define NEAP_DNNL_ELEMENTWISE_KERNEL(name, ...)                               \
  {                                                                           \
    .engine = NEAP_ENGINE_DNNL, .dtypes = NEAP_BIT(F32), .any_layout = true,  \
    .choose = choose_##name, .bind = bind_##name, .unbind = neap_dnnl_unbind, \
    .run = neap_dnnl_run, __VA_ARGS__                                         \
  }

/* The kernels of an op whose products neap_gemm makes, by whichever engine: of floats, and of
 * `more` dtypes where the op has them. */
#define NEAP_GEMM_KERNELS(more, choose_function, run_function) \
  (const neap_kernel[]) {                                      \
    {.engine = NEAP_ENGINE_DNNL,                               \
     .dtypes = NEAP_BIT(F32) | (more),                         \
     .widens = true,                                           \
     .choose = (choose_function),                              \
     .run = (run_function)},                                   \
      {.engine = NEAP_ENGINE_BLAS,                             \
       .dtypes = NEAP_WIDE | (more),                           \
       .widens = true,                                         \
       .choose = (choose_function),                            \
       .run = (run_function)},                                 \
      {.engine = NEAP_ENGINE_REF,                              \
       .dtypes = NEAP_WIDE | (more),                           \
       .widens = true,                                         \
       .choose = (choose_function),                            \
       .run = (run_function)},                                 \
    {                                                          \
      0                                                        \
    }                                                          \
  }

#endif
