/* if.c: If and AsyncIf, one of two subnets by a condition. An instruction kind of the runner, so
 * the record has no kernel.
 *
 * Both subnets take all captures, in order, as parameters, and give all outputs, in order, as
 * results. Without else_net the outputs keep the values that the captures of the same names had.
 * The gradient is another If over the same condition; it needs the subnets' graphs, so graph makes
 * it (build/control_gradient.c) and `grad` here stays NULL.
 *
 * AsyncIf is the same op under the name that nets written for Caffe2 use. In `dag` a branch of
 * either runs on one lane while the other lanes run what does not depend on it; in `simple`
 * everything runs one after another. So there is no difference.
 */
#include "ops/op.h"

enum { THEN_NET, ELSE_NET };

/* Both branches give the same types, since what reads the results cannot know which one ran. */
static neap_status infer(neap_infer *c, neap_error *error) {
  char a[NEAP_SHAPE_TEXT], b[NEAP_SHAPE_TEXT];
  if (neap_shape_elems(&c->in[0].shape) != 1)
    return neap_infer_fail(c, NEAP_SHAPE, 0, error, "cond expects one element, got %s",
                           neap_shape_text(&c->in[0].shape, a));

  /* The condition is the If's own; all other inputs are captures, which both branches take. */
  NEAP_TRY(c->infer_subnet(c, THEN_NET, c->n_in - 1, c->in + 1, c->n_out, c->out, error));
  size_t n = (size_t)c->n_out;
  neap_type *other = neap_alloc_zeroed(n * sizeof *other);
  if (other == NULL) return neap_fail_memory(error, n * sizeof *other, "the types of a branch");
  neap_status status = c->infer_subnet(c, ELSE_NET, c->n_in - 1, c->in + 1, c->n_out, other, error);

  /* A type that one branch does not know yet is the other's. Two that are known must agree. */
  for (int k = 0; k < c->n_out && status == NEAP_OK; k++) {
    if (c->out[k].dtype == NEAP_DTYPE_NONE)
      c->out[k] = other[k];
    else if (other[k].dtype != NEAP_DTYPE_NONE && !neap_type_equal(&c->out[k], &other[k]))
      status = neap_infer_fail(
        c, NEAP_SHAPE, 0, error, "output %d is %s %s in then_net, %s %s %s", k + 1,
        neap_dtype_name(c->out[k].dtype), neap_shape_text(&c->out[k].shape, a),
        neap_dtype_name(other[k].dtype), neap_shape_text(&other[k].shape, b),
        c->attrs[ELSE_NET].net != NULL ? "in else_net" : "when the condition is false");
  }
  neap_free(other);
  return status;
}

/* What the records have in common. */
#define BRANCHES                                                                                  \
  .math = "y = cond ? then_net(captures) : else_net(captures)",                                   \
  .inputs = {{"cond", "one element; true when not zero", NEAP_BIT(BOOL) | NEAP_NUMBERS,           \
              NEAP_ARG_HOST},                                                                     \
             {"captures", "outer blobs the subnets read", NEAP_ANY,                               \
              NEAP_ARG_VARIADIC | NEAP_ARG_OPTIONAL}},                                            \
  .outputs = {{"results", "what the branch gives", NEAP_ANY,                                      \
               NEAP_ARG_VARIADIC | NEAP_ARG_OPTIONAL}},                                           \
  .attrs = {[THEN_NET] = {"then_net", "runs when cond is true", NEAP_ATTR_NET, .required = true}, \
            [ELSE_NET] = {"else_net", "runs when it is false", NEAP_ATTR_NET}},                   \
  .effects = NEAP_EFFECT_CONTROL, .infer = infer

const neap_op neap_op_If = {
  .name = "If",
  .summary = "Runs one of two subnets, as a condition says.",
  .example =
    "net:If(\"cond\", function(b) b:Relu(\"x\", \"y\") end, function(b) b:Copy(\"x\", \"y\") end)",
  .source = "ONNX If-16",
  BRANCHES,
};

const neap_op neap_op_AsyncIf = {
  .name = "AsyncIf",
  .summary = "If under another name: in dag the branch of either may overlap other ops.",
  .example =
    "net:AsyncIf(\"cond\", function(b) b:Relu(\"x\", \"y\") end, function(b) b:Copy(\"x\", \"y\") "
    "end)",
  .source = "Caffe2 AsyncIf",
  BRANCHES,
};
