/* dnnl.c: from an op's contexts to oneDNN kernels and back: the glue that all `dnnl` kernels
 * share. */
#include "ops/dnnl.h"

#include <string.h>

static neap_onednn_case new_case(neap_onednn_kind kind, const neap_choice *choice, int n_in,
                                 const neap_type *in, int n_out, const neap_type *out) {
  neap_onednn_case c;
  memset(&c, 0, sizeof c);
  c.kind = kind, c.n_in = n_in, c.n_out = n_out, c.in = in, c.out = out;
  c.n_thread = NEAP_MAX(choice->n_thread, 1);
  c.groups = 1;
  return c;
}

neap_onednn_case neap_dnnl_case_choose(const neap_choose *choose, neap_onednn_kind kind) {
  neap_onednn_case c =
    new_case(kind, choose->choice, choose->n_in, choose->in, choose->n_out, choose->out);
  for (int i = 0; i < NEAP_MIN(c.n_in, NEAP_ONEDNN_MAX_IN); i++)
    c.in_layout[i] = choose->in_layout[i];
  c.scratch_limit = choose->scratch_limit;
  return c;
}

neap_onednn_case neap_dnnl_case_bind(const neap_bind *bind, neap_onednn_kind kind) {
  neap_onednn_case c = new_case(kind, bind->choice, bind->n_in, bind->in, bind->n_out, bind->out);
  /* What was chosen, as it was stored: the kernel is made for it and asks for nothing. */
  for (int i = 0; i < NEAP_MIN(c.n_in, NEAP_ONEDNN_MAX_IN); i++)
    c.in_layout[i] = bind->choice->in[i];
  for (int i = 0; i < NEAP_MIN(c.n_out, NEAP_ONEDNN_MAX_OUT); i++)
    c.out_layout[i] = bind->choice->out[i];
  c.algorithm = (neap_onednn_algorithm)bind->choice->algorithm;
  return c;
}

/* As choose->like says; else as oneDNN likes best. */
static bool ask(const neap_choice *like, neap_onednn_case *c) {
  if (like == NULL) return neap_onednn_ask(c);
  /* An algorithm alone, with whatever layouts it likes: so kernels are timed against each other. */
  if (like->in == NULL) {
    c->algorithm = (neap_onednn_algorithm)like->algorithm;
    return neap_onednn_ask_algorithm(c);
  }
  /* Given layouts and algorithm, it only says what bytes that takes. */
  for (int i = 0; i < c->n_in; i++) c->in_layout[i] = like->in[i];
  for (int i = 0; i < c->n_out; i++) c->out_layout[i] = like->out[i];
  c->algorithm = (neap_onednn_algorithm)like->algorithm;
  return neap_onednn_ask_bytes(c);
}

bool neap_dnnl_choose(neap_choose *choose, neap_onednn_case *c) {
  if (c->n_in > NEAP_ONEDNN_MAX_IN || c->n_out > NEAP_ONEDNN_MAX_OUT || !ask(choose->like, c))
    return false;
  /* All of the answer, or nothing: a case that is refused leaves the choice as it was. */
  neap_choice *choice = choose->choice;
  for (int i = 0; i < c->n_in; i++) choice->in[i] = c->in_layout[i];
  for (int i = 0; i < c->n_out; i++) choice->out[i] = c->out_layout[i];
  choice->algorithm = (int)c->algorithm;
  const bool is_conv = c->kind <= NEAP_ONEDNN_CONV_GRAD_WEIGHT;
  if (is_conv) choice->how = c->algorithm == NEAP_ONEDNN_WINOGRAD ? "winograd" : "direct";
  if (c->why != NULL) choice->why = c->why;
  choice->other = c->other;
  choice->other_scratch_bytes = c->other_scratch_bytes;
  choice->other_work = c->other_work;
  choice->scratch_bytes = c->scratch_bytes;
  choice->stash_bytes = c->stash_bytes;
  return true;
}

bool neap_dnnl_choose_elementwise(neap_choose *choose, neap_onednn_kind kind) {
  const neap_choice *choice = choose->choice;
  neap_onednn_case c = new_case(kind, choice, choose->n_in, choose->in, choose->n_out, choose->out);
  /* Layouts are chosen already: the same for all operands. */
  for (int i = 0; i < NEAP_MIN(c.n_in, NEAP_ONEDNN_MAX_IN); i++) c.in_layout[i] = choice->in[i];
  for (int i = 0; i < NEAP_MIN(c.n_out, NEAP_ONEDNN_MAX_OUT); i++) c.out_layout[i] = choice->out[i];
  c.scratch_limit = choose->scratch_limit;
  return neap_dnnl_choose(choose, &c);
}

neap_status neap_dnnl_bind(const neap_bind *bind, neap_onednn_case *c, void **kernel,
                           neap_error *error) {
  neap_onednn *made = NULL;
  c->scratch_bytes = bind->choice->scratch_bytes;
  c->stash_bytes = bind->choice->stash_bytes;
  NEAP_TRY(neap_onednn_make(c, &made, error));
  *kernel = made;
  return NEAP_OK;
}

void neap_dnnl_unbind(void *kernel) { neap_onednn_free(kernel); }

void neap_dnnl_run(const neap_call *call) {
  void *in[NEAP_ONEDNN_MAX_IN], *out[NEAP_ONEDNN_MAX_OUT];
  for (int i = 0; i < call->n_in; i++) in[i] = call->in[i].data;
  for (int i = 0; i < call->n_out; i++) out[i] = call->out[i].data;
  /* Nothing a user did: it was made for these very operands. */
  if (!neap_onednn_run(call->kernel, in, out, call->scratch))
    neap_call_fault(call, "oneDNN refused to run a kernel it had made");
}
