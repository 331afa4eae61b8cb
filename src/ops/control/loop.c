/* loop.c: While and Recurrent, which repeat a subnet; instruction kinds of the runner, so their
 * records have no kernel.
 *
 * Both take n_state initial states first and give the final ones first; the body takes all inputs
 * and gives all outputs, of sequences and stacked outputs one row. While repeats as long as its
 * condition holds, Recurrent once for each row of its sequences. The gradient needs the body's
 * graph, so graph makes it (build/loop_gradient.c): a LoopGradient.
 */
#include "ops/op.h"

#include <string.h>

enum { BODY_NET_OF_RECURRENT, N_STATE_OF_RECURRENT, N_SEQ, RECOMPUTE };
enum { COND_NET, BODY_NET, N_STATE, MAX };

/* Types of the body's results for those of its parameters; each state must keep its type. */
static neap_status infer_body(neap_infer *c, int subnet, int n_state, const neap_type *in,
                              neap_error *error) {
  char a[NEAP_SHAPE_TEXT], b[NEAP_SHAPE_TEXT];
  if (n_state > c->n_in || n_state > c->n_out)
    return neap_infer_fail(c, NEAP_ATTRIBUTE, 0, error,
                           "n_state = %d, but there are %d inputs and %d outputs", n_state, c->n_in,
                           c->n_out);

  /* The first n_state results are the next iteration's first operands. What the body does not know
   * yet (type none) is looked at when it does. */
  NEAP_TRY(c->infer_subnet(c, subnet, c->n_in, in, c->n_out, c->out, error));
  for (int k = 0; k < n_state; k++) {
    if (c->out[k].dtype != NEAP_DTYPE_NONE && !neap_type_equal(&c->out[k], &in[k])) {
      neap_infer_fail(c, NEAP_SHAPE, k, error, "state %d begins as %s %s, the body makes it %s %s",
                      k + 1, neap_dtype_name(in[k].dtype), neap_shape_text(&in[k].shape, a),
                      neap_dtype_name(c->out[k].dtype), neap_shape_text(&c->out[k].shape, b));
      neap_hint(error,
                "what an iteration leaves to the next has the same shape and dtype in all of them");
      return NEAP_SHAPE;
    }
  }
  return NEAP_OK;
}

/* `row` (...) becomes (n,...): a row for each of n iterations. */
static neap_status stack(const neap_infer *c, neap_type *row, int64_t n, neap_error *error) {
  if (row->dtype == NEAP_DTYPE_NONE) return NEAP_OK;
  if (row->shape.n_dim == NEAP_MAX_DIM)
    return neap_infer_fail(c, NEAP_SHAPE, 0, error, "a stacked output has more than %d dimensions",
                           NEAP_MAX_DIM);
  /* the row's own dimensions move up, and the iterations come first */
  memmove(row->shape.dim + 1, row->shape.dim, (size_t)row->shape.n_dim * sizeof *row->shape.dim);
  row->shape.dim[0] = n;
  row->shape.n_dim++;
  return NEAP_OK;
}

/* cond_net and body_net take the same operands. Stacked outputs need `max`: their size must be
 * known before the loop runs. */
static neap_status infer_while(neap_infer *c, neap_error *error) {
  char a[NEAP_SHAPE_TEXT];
  neap_type flag = {0};
  int n_state = (int)c->attrs[N_STATE].i;
  int64_t max = c->attrs[MAX].i;

  /* The condition is asked before each iteration, so it takes what an iteration takes. */
  NEAP_TRY(c->infer_subnet(c, COND_NET, c->n_in, c->in, 1, &flag, error));
  if (flag.dtype != NEAP_DTYPE_NONE && neap_shape_elems(&flag.shape) != 1)
    return neap_infer_fail(c, NEAP_SHAPE, 0, error, "cond_net expects to give one element, got %s",
                           neap_shape_text(&flag.shape, a));

  /* Results behind the states are rows: one of each iteration, `max` of them whatever is run. */
  NEAP_TRY(infer_body(c, BODY_NET, n_state, c->in, error));
  if (c->n_out > n_state && max == 0) {
    neap_infer_fail(c, NEAP_ATTRIBUTE, 0, error,
                    "outputs that stack the iterations' rows need a maximum of iterations");
    neap_hint(error, "give max = n; rows that no iteration reaches are zero");
    return NEAP_ATTRIBUTE;
  }
  for (int k = n_state; k < c->n_out; k++) NEAP_TRY(stack(c, &c->out[k], max, error));
  return NEAP_OK;
}

/* `in` has room for n_in types and receives what one step takes: a sequence (T,...) loses its first
 * dimension. */
static neap_status infer_rows(neap_infer *c, neap_type *in, neap_error *error) {
  char a[NEAP_SHAPE_TEXT], b[NEAP_SHAPE_TEXT];
  int n_state = (int)c->attrs[N_STATE_OF_RECURRENT].i, n_seq = (int)c->attrs[N_SEQ].i;
  if (n_state + n_seq > c->n_in)
    return neap_infer_fail(c, NEAP_ATTRIBUTE, 0, error,
                           "n_state = %d and n_seq = %d, but there are %d inputs", n_state, n_seq,
                           c->n_in);

  /* A step takes states and captures whole, and of each sequence (T,...) the row (...). */
  memcpy(in, c->in, (size_t)c->n_in * sizeof *in);
  for (int i = n_state; i < n_state + n_seq; i++) {
    const neap_shape *first = &c->in[n_state].shape, *shape = &c->in[i].shape;
    if (shape->n_dim == 0 || shape->dim[0] != first->dim[0])
      return neap_infer_fail(c, NEAP_SHAPE, i, error,
                             "sequences are (T,...) with one T, got %s and %s",
                             neap_shape_text(first, a), neap_shape_text(shape, b));
    neap_shape *row = &in[i].shape;
    row->n_dim--;
    memmove(row->dim, shape->dim + 1, (size_t)row->n_dim * sizeof *shape->dim);
    row->dim[row->n_dim] = 0; /* dimensions that a shape does not have are 0 */
  }

  /* What is no state comes out stacked: a row of each step. */
  int64_t n_step = c->in[n_state].shape.dim[0];
  NEAP_TRY(infer_body(c, BODY_NET_OF_RECURRENT, n_state, in, error));
  for (int k = n_state; k < c->n_out; k++) NEAP_TRY(stack(c, &c->out[k], n_step, error));
  return NEAP_OK;
}

static neap_status infer_recurrent(neap_infer *c, neap_error *error) {
  neap_type *in = neap_alloc_zeroed(((size_t)c->n_in + 1) * sizeof *in);
  if (in == NULL)
    return neap_fail_memory(error, (size_t)c->n_in * sizeof *in, "the types of a step");
  neap_status status = infer_rows(c, in, error);
  neap_free(in);
  return status;
}

static neap_status infer_gradient(neap_infer *c, neap_error *error) {
  return neap_infer_fail(c, NEAP_INTERNAL, 0, error,
                         "stands behind the loop whose backward it is: \"back LOOP\"");
}

const neap_op neap_op_While = {
  .name = "While",
  .summary = "Repeats a subnet as long as a condition holds.",
  .math = "while cond_net(states, captures): states, rows = body_net(states, captures)",
  .example =
    "net:While{init={\"x\"}, cond=function(b, x) return x:lt(100) end, body=function(b, x) return "
    "x * 2 end}",
  .source = "ONNX Loop-21, Caffe2 While",
  .inputs = {{"operands", "initial states, then outer blobs the subnets read", NEAP_ANY,
              NEAP_ARG_VARIADIC | NEAP_ARG_OPTIONAL}},
  .outputs = {{"results",
               "final states, then one row an iteration of what else the body gives (max,...)",
               NEAP_ANY, NEAP_ARG_VARIADIC | NEAP_ARG_OPTIONAL}},
  .attrs = {[COND_NET] = {"cond_net", "one element: another iteration when not zero", NEAP_ATTR_NET,
                          .required = true},
            [BODY_NET] = {"body_net", "one iteration", NEAP_ATTR_NET, .required = true},
            [N_STATE] = {"n_state", "how many operands are states", NEAP_ATTR_INT, .least = 0,
                         .most = 1 << 20},
            [MAX] = {"max", "stops after so many iterations; 0: no limit", NEAP_ATTR_INT,
                     .least = 0, .most = 1e9}},
  .effects = NEAP_EFFECT_CONTROL | NEAP_EFFECT_LOOP,
  .infer = infer_while,
};

const neap_op neap_op_Recurrent = {
  .name = "Recurrent",
  .summary = "Runs a step net over the rows of sequences.",
  .math = "for t: states, y[t] = step_net(states, x[t], captures)",
  .example =
    "net:Recurrent{seq={\"x\"}, init={\"h\"}, step=function(b, h, x) local n = (x + h):tanh() "
    "return n, n end}",
  .source = "Caffe2 RecurrentNetwork, ONNX Scan-21",
  .inputs = {{"operands", "initial states, then sequences (T,...), then outer blobs the step reads",
              NEAP_ANY, NEAP_ARG_VARIADIC}},
  .outputs = {{"results", "final states, then what else the step gives, stacked (T,...)", NEAP_ANY,
               NEAP_ARG_VARIADIC}},
  .attrs = {[BODY_NET_OF_RECURRENT] = {"step_net", "one step", NEAP_ATTR_NET, .required = true},
            [N_STATE_OF_RECURRENT] = {"n_state", "how many operands are states", NEAP_ATTR_INT,
                                      .least = 0, .most = 1 << 20},
            [N_SEQ] = {"n_seq", "how many operands are sequences", NEAP_ATTR_INT, .required = true,
                       .least = 1, .most = 1 << 20},
            [RECOMPUTE] = {"recompute",
                           "ops of step_net, from 0, whose outputs the backward recomputes",
                           NEAP_ATTR_INTS, .least = 0, .most = 1e9}},
  .effects = NEAP_EFFECT_CONTROL | NEAP_EFFECT_LOOP,
  .infer = infer_recurrent,
};

const neap_op neap_op_LoopGradient = {
  .name = "LoopGradient",
  .summary =
    "Backward of While and Recurrent: the iterations in reverse, over the frames of the forward.",
  .math = "for t = n-1 .. 0: dstates, dx[t], dcaptures += backward(frame[t], dstates, dy[t])",
  .internal = true,
  .inputs = {{"operands", "the gradient of each result or none, then sequences and captures",
              NEAP_ANY, NEAP_ARG_VARIADIC | NEAP_ARG_OPTIONAL}},
  .outputs = {{"results", "gradients of states, sequences, captures", NEAP_ANY,
               NEAP_ARG_VARIADIC | NEAP_ARG_OPTIONAL}},
  .attrs = {{"wrt", "which inputs of the loop the results are gradients of, from 0", NEAP_ATTR_INTS,
             .least = 0, .most = 1e9}},
  .effects = NEAP_EFFECT_CONTROL,
  .infer = infer_gradient,
};
