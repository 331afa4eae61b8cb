/* ops/widen.h: bf16 and f16 by a kernel that computes f32 (widen.c), for the doors of op.h. */
#ifndef NEAP_OPS_WIDEN_H
#define NEAP_OPS_WIDEN_H

#include "ops/op.h"

/* Asks the kernel as if all halves were f32. What it answers of layouts is for the halves too; the
 * choice's scratch is its own, and behind that the twins. */
bool neap_widen_choose(const neap_kernel *kernel, neap_choose *choose);
/* The kernel's object, made for the twins. */
neap_status neap_widen_bind(const neap_kernel *kernel, const neap_bind *bind, void **object,
                            neap_error *error);
/* Running it on the twins is neap_widen_run of op.h. */

#endif
