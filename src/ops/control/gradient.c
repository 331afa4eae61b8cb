/* gradient.c: Gradient, the op that graph replaces by the backward pass (build/gradient.c). It has
 * no kernel: the record is its schema, so that a net can name the gradients before anything is
 * inferred. */
#include "ops/op.h"

static neap_status infer(neap_infer *c, neap_error *error) {
  char text[NEAP_SHAPE_TEXT];
  /* One number is differentiated: the backward pass begins with dloss = 1. */
  if (neap_shape_elems(&c->in[0].shape) != 1)
    return neap_infer_fail(c, NEAP_SHAPE, 0, error, "loss expects one element, got %s",
                           neap_shape_text(&c->in[0].shape, text));
  /* Input 0 is the loss; each blob behind it has a gradient of its own type. */
  if (c->n_out != c->n_in - 1)
    return neap_infer_fail(c, NEAP_ARGUMENT, 0, error,
                           "%d blobs to differentiate by need as many gradients, got %d",
                           c->n_in - 1, c->n_out);
  for (int k = 0; k < c->n_out; k++) c->out[k] = c->in[1 + k];
  return NEAP_OK;
}

const neap_op neap_op_Gradient = {
  .name = "Gradient",
  .summary =
    "Gradients of a loss with respect to blobs; expanded into backward ops before anything runs.",
  .math = "dwrt_k = d loss / d wrt_k",
  .example = "net:gradient(\"loss\")",
  .source = "reverse accumulation: Griewank and Walther, Evaluating Derivatives, chapter 3",
  .inputs = {{"loss", "one element"},
             {"wrt", "floating-point blobs the loss depends on", .flags = NEAP_ARG_VARIADIC}},
  .attrs = {{"allow_unused",
             "zeros for a wrt that the loss does not depend on, instead of an error",
             NEAP_ATTR_BOOL, .value = {.i = 1}},
            {"resident",
             "gradients of parameters have bytes of their own; else they are values as others are",
             NEAP_ATTR_BOOL, .value = {.i = 1}}},
  .outputs = {{"dwrt", "shape of each wrt", .flags = NEAP_ARG_VARIADIC}},
  .effects = NEAP_EFFECT_PSEUDO,
  .infer = infer,
};
