/* copy.c: Copy, Cast and StopGradient: the same numbers again, as new bytes, in another dtype, or
 * cut off from the gradient. */
#include "math/vec.h"
#include "ops/op.h"

/* Bytes for Copy, elements of two dtypes for Cast. */
typedef struct job {
  char *to;
  const char *from;
  neap_dtype to_dtype, from_dtype;
} job;

/* Bytes [begin, end). */
static void copy_range(void *context, int64_t begin, int64_t end) {
  const job *j = context;
  memcpy(j->to + begin, j->from + begin, (size_t)(end - begin));
}

/* Whatever the layout: bytes are bytes. In place there is nothing to do. */
static void run_copy(const neap_call *call) {
  const neap_operand *x = &call->in[0];
  job j = {.to = call->out[0].data, .from = x->data};
  if (j.to == j.from) return;
  neap_parallel_for((int64_t)neap_layout_bytes(&x->type, &x->layout), 4 * NEAP_GRAIN,
                    call->n_thread, copy_range, &j);
}

/* What arrives at y is what arrives at x: no op is needed. */
static neap_status grad_copy(neap_grad *g, neap_error *error) {
  (void)error;
  g->din[0] = g->dout[0];
  return NEAP_OK;
}

const neap_op neap_op_Copy = {
  .name = "Copy",
  .summary = "The same tensor in bytes of its own.",
  .math = "y = x",
  .example = "net:Copy(\"x\", \"y\")",
  .source = "ONNX Identity-16",
  .inputs = {{"x", "any shape", NEAP_ANY}},
  .outputs = {{"y", "shape of x", NEAP_ANY}},
  .inplace = {{0, 0}},
  .n_inplace = 1,
  .infer = neap_infer_like,
  .grad = grad_copy,
  .kernels = (const neap_kernel[]){{.engine = NEAP_ENGINE_REF,
                                    .dtypes = NEAP_ANY,
                                    .any_team = true,
                                    .any_layout = true,
                                    .run = run_copy},
                                   {0}},
  .cases = "{ {x={2,3,7}}, {x={{3,5}, dtype=\"i64\"}}, {x={0,4}}, {x={}} }",
};

/* A view of its input: the same bytes wherever the planner can give them. */
const neap_op neap_op_StopGradient = {
  .name = "StopGradient",
  .summary = "The same tensor, through which no gradient passes.",
  .math = "y = x, dx = 0",
  .example = "net:StopGradient(\"x\", \"y\")",
  .source = "Caffe2 StopGradient",
  .inputs = {{"x", "any shape", NEAP_ANY}},
  .outputs = {{"y", "shape of x", NEAP_ANY}},
  .alias = {{0, 0}},
  .n_alias = 1,
  .infer = neap_infer_like,
  .no_grad = true,
  .kernels = (const neap_kernel[]){{.engine = NEAP_ENGINE_REF,
                                    .dtypes = NEAP_ANY,
                                    .any_team = true,
                                    .any_layout = true,
                                    .run = run_copy},
                                   {0}},
  .cases = "{ {x={2,3,7}}, {x={0,4}}, {x={}} }",
};

/* ---- Cast ------------------------------------------------------------------------------------ */

enum { TO };

static void cast_range(void *context, int64_t begin, int64_t end) {
  const job *j = context;
  neap_cast(j->to_dtype, j->to + begin * (int64_t)neap_dtype_bytes(j->to_dtype), j->from_dtype,
            j->from + begin * (int64_t)neap_dtype_bytes(j->from_dtype), end - begin);
}

static void run_cast(const neap_call *call) {
  const neap_operand *x = &call->in[0], *y = &call->out[0];
  job j = {y->data, x->data, y->type.dtype, x->type.dtype};
  neap_parallel_for(neap_shape_elems(&x->type.shape), NEAP_GRAIN, call->n_thread, cast_range, &j);
}

/* y has the shape of x and the dtype asked for. */
static neap_status infer_cast(neap_infer *c, neap_error *error) {
  neap_dtype to = (neap_dtype)c->attrs[TO].i;
  if (!neap_dtype_in(to, NEAP_ANY))
    return neap_infer_fail(c, NEAP_ATTRIBUTE, 0, error, "to = %s is not a dtype",
                           neap_dtype_name(to));
  c->out[0] = (neap_type){to, c->in[0].shape};
  return NEAP_OK;
}

/* Between floats the gradient is cast back; through an integer or bool there is none. */
static neap_status grad_cast(neap_grad *g, neap_error *error) {
  (void)error;
  neap_dtype from = neap_grad_type(g, g->in[0]).dtype, to = neap_grad_type(g, g->out[0]).dtype;
  if (neap_dtype_is_float(from) && neap_dtype_is_float(to))
    g->din[0] = neap_grad_cast(g, g->dout[0], from);
  return NEAP_OK;
}

const neap_op neap_op_Cast = {
  .name = "Cast",
  .summary = "The same numbers in another dtype: to nearest even, saturating; NaN to integer 0.",
  .math = "y = x",
  .example = "net:Cast(\"x\", \"y\", {to = \"i32\"})",
  .source = "ONNX Cast-19",
  .inputs = {{"x", "any shape", NEAP_ANY}},
  .outputs = {{"y", "shape of x", NEAP_ANY}},
  .attrs = {[TO] = {"to", "dtype of y", NEAP_ATTR_DTYPE, .required = true}},
  .infer = infer_cast,
  .grad = grad_cast,
  .nan = NEAP_NAN_DECIDES,
  .special = "to integers NaN gives 0, infinities the bounds",
  .kernels = NEAP_REF(run_cast, NEAP_ANY),
  .cases =
    "{ {x={2,3,7}, to=\"f64\", grad=false}, {x={{2,3}, low=-9, high=9}, to=\"i32\", grad=false}, "
    "{x={0,4}, to=\"bool\", grad=false} }",
};
