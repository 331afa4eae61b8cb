/* ops/by_cast.h: the kernel for bf16 and f16 of ops that have none of their own (by_cast.c). */
#ifndef NEAP_OPS_BY_CAST_H
#define NEAP_OPS_BY_CAST_H

#include "ops/op.h"

bool neap_by_cast_choose(neap_choose *choose);
void neap_by_cast_run(const neap_call *call);

/* Behind the ref kernel for f32, which has no bind. `others`: dtypes besides bf16 and f16, of
 * operands that may be no floats (labels, masks, statistics in f32). `team`: any_team of that
 * kernel. */
#define NEAP_BY_CAST(others, team)                                                   \
  {                                                                                  \
    .engine = NEAP_ENGINE_REF, .dtypes = NEAP_HALVES | (others), .any_team = (team), \
    .choose = neap_by_cast_choose, .run = neap_by_cast_run                           \
  }

#endif
