/* onednn_int.h: private to math: what the files of the oneDNN engine share. */
#ifndef NEAP_MATH_ONEDNN_INT_H
#define NEAP_MATH_ONEDNN_INT_H

#include "math/onednn.h"

#include <dnnl.h>

/* ---- layouts (onednn_md.c) ------------------------------------------------------------------- */

/* oneDNN's description of a value. groups > 1: a convolution's weight (O,I/g,...), for oneDNN
 * (g,O/g,I/g,...). layout NULL: oneDNN is free to choose. False when oneDNN can't express it. */
bool onednn_md(const neap_type *type, const neap_layout *layout, int64_t groups,
               dnnl_memory_desc_t *md);
/* Back; false for anything that is not a dense order of dimensions with inner blocks. */
bool onednn_layout(const dnnl_memory_desc_t *md, const neap_type *type, int64_t groups,
                   neap_layout *layout);

/* ---- problems (onednn_desc.c) ---------------------------------------------------------------- */

/* One execution argument: an operand of the case, or scratch (position -1). */
typedef struct onednn_arg {
  int arg; /* DNNL_ARG_... */
  /* keeps_plain: its layout is not oneDNN's to choose (vectors, stash, flattened operands) */
  bool is_out, keeps_plain;
  int position;
  bool keeps_given; /* nor ours: whatever it is, oneDNN sees a row of lanes */
} onednn_arg;

enum { ONEDNN_MAX_ARG = NEAP_ONEDNN_MAX_IN + NEAP_ONEDNN_MAX_OUT + 1 };
enum { ONEDNN_SCRATCH = -1 }; /* a position that is no operand's */

typedef struct onednn_problem {
  dnnl_primitive_desc_t pd; /* owned by the caller after onednn_describe */
  onednn_arg arg[ONEDNN_MAX_ARG];
  int n_arg;
} onednn_problem;

/* Makes the primitive descriptor of a case. `free`: layouts that are oneDNN's to choose are left to
 * it; else all come from the case. False when oneDNN has none. */
bool onednn_describe(const neap_onednn_case *c, bool free, dnnl_engine_t engine,
                     const_dnnl_primitive_attr_t attr, onednn_problem *out);
static inline bool onednn_is_present(const neap_type *types, int n, int position) {
  return position < n && types[position].dtype != NEAP_DTYPE_NONE;
}
/* Groups of an operand's layout: the case's for a convolution's weight, else 1. */
int64_t onednn_groups(const neap_onednn_case *c, bool is_out, int position);

/* ---- threads (onednn_threads.c) -------------------------------------------------------------- */

/* How many threads a kernel that wants n may be made for: 1 where oneDNN's regions can't be run on
 * Neap's teams. */
int onednn_threads(int n);
/* Around every call that makes or runs something: oneDNN takes the number of threads then. `meets`:
 * its shares wait for each other. Leaving gives false when a region could not be run. Between them
 * oneDNN alone is called. */
void onednn_enter(int n_thread, bool meets);
bool onednn_leave(void);

#endif
