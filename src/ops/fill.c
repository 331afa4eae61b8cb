/* fill.c: Constant, Literal and Range: tensors made from attributes alone. */
#include "ops/fill.h"

#include "math/vec.h"

/* Shape and dtype are attributes. ATTRIBUTE error for a shape that can't be or a dtype that the
 * op's record does not list. */
neap_status neap_fill_infer(neap_infer *infer, neap_error *error) {
  const neap_attr_value *shape = &infer->attrs[NEAP_FILL_SHAPE];
  neap_dtype dtype = (neap_dtype)infer->attrs[NEAP_FILL_DTYPE].i;
  unsigned admitted =
    infer->op->outputs[0].dtypes != 0 ? infer->op->outputs[0].dtypes : NEAP_FLOATS;
  /* Before a shape is made of it, which has room for so many. */
  if (shape->n > NEAP_MAX_DIM)
    return neap_infer_fail(infer, NEAP_ATTRIBUTE, 0, error, "shape has %d dimensions, more than %d",
                           shape->n, NEAP_MAX_DIM);
  for (int i = 0; i < shape->n; i++)
    if (shape->ints[i] < 0)
      return neap_infer_fail(infer, NEAP_ATTRIBUTE, 0, error,
                             "shape has %lld as dimension %d, expected 0 or more",
                             (long long)shape->ints[i], (int)neap_axis_said(i));
  if (!neap_dtype_in(dtype, admitted))
    return neap_infer_fail(infer, NEAP_ATTRIBUTE, 0, error, "dtype = %s is not one that %s makes",
                           neap_dtype_name(dtype), infer->op->name);
  infer->out[0] = (neap_type){dtype, neap_shape_of(shape->n, shape->ints)};
  return NEAP_OK;
}

neap_status neap_fill_check(const neap_infer *infer, const char *name, double value,
                            neap_dtype dtype, neap_error *error) {
  int64_t kept = 0, least = 0, most = 0; /* room for an element of any dtype */
  if (!neap_dtype_is_integer(dtype)) return NEAP_OK;
  /* Set and read back: what the dtype does not hold has changed. */
  neap_element_set(dtype, &kept, 0, value);
  /* 2^63 is kept as 2^63 - 1, which as a double is the same */
  bool is_kept = neap_element_get(dtype, &kept, 0) == value && value < 0x1p63;
  if (is_kept) return NEAP_OK;
  /* What the dtype can hold is what saturating gives. */
  neap_element_set_i64(dtype, &least, 0, INT64_MIN);
  neap_element_set_i64(dtype, &most, 0, INT64_MAX);
  neap_hint(error, "Cast makes integers of floats: it rounds and saturates");
  return neap_infer_fail(infer, NEAP_ATTRIBUTE, 0, error,
                         "%s = %.17g is no %s, which holds whole numbers from %lld to %lld", name,
                         value, neap_dtype_name(dtype),
                         (long long)neap_element_get_i64(dtype, &least, 0),
                         (long long)neap_element_get_i64(dtype, &most, 0));
}

/* ---- Constant -------------------------------------------------------------------------------- */

enum { VALUE = NEAP_FILL_NEXT };

typedef struct fill_job {
  void *out;
  size_t elem_bytes;
  union {
    uint8_t u1;
    uint16_t u2;
    uint32_t u4;
    uint64_t u8;
  } value; /* the element's bytes */
} fill_job;

/* Elements [begin, end), by their width: bytes are stored, whatever dtype they are of. */
static void fill_range(void *context, int64_t begin, int64_t end) {
  const fill_job *j = context;
  switch (j->elem_bytes) {
    case 1: memset((uint8_t *)j->out + begin, j->value.u1, (size_t)(end - begin)); break;
    case 2:
      for (int64_t i = begin; i < end; i++) ((uint16_t *)j->out)[i] = j->value.u2;
      break;
    case 4:
      for (int64_t i = begin; i < end; i++) ((uint32_t *)j->out)[i] = j->value.u4;
      break;
    default:
      for (int64_t i = begin; i < end; i++) ((uint64_t *)j->out)[i] = j->value.u8;
      break;
  }
}

void neap_fill(const neap_operand *out, double value, int n_thread) {
  fill_job j = {.out = out->data, .elem_bytes = neap_dtype_bytes(out->type.dtype)};
  /* Converted once: the loops store bytes. */
  neap_element_set(out->type.dtype, &j.value, 0, value);
  neap_parallel_for(neap_shape_elems(&out->type.shape), NEAP_GRAIN, n_thread, fill_range, &j);
}

static void run_constant(const neap_call *call) {
  neap_fill(&call->out[0], call->attrs[VALUE].f, call->n_thread);
}

static neap_status infer_constant(neap_infer *c, neap_error *error) {
  NEAP_TRY(neap_fill_infer(c, error));
  return neap_fill_check(c, "value", c->attrs[VALUE].f, c->out[0].dtype, error);
}

const neap_op neap_op_Constant = {
  .name = "Constant",
  .summary = "A tensor with one value everywhere.",
  .math = "y = value",
  .example = "net:Constant({}, \"y\", {shape = {2, 3}, value = 1})",
  .source = "ONNX ConstantOfShape-9",
  .outputs = {{"y", "`shape`", NEAP_ANY}},
  .attrs = {NEAP_FILL_ATTRS, [VALUE] = {"value", "of each element; a number that dtype holds",
                                        NEAP_ATTR_FLOAT}},
  .infer = infer_constant,
  .no_grad = true,
  .kernels = NEAP_REF(run_constant, NEAP_ANY),
  .cases =
    "{ {shape={2,3}, value=1.5}, {shape={}, value=-1}, {shape={0,2}}, {shape={5}, value=3, "
    "dtype=\"i64\"}, "
    "{shape={4}, value=1, dtype=\"bool\"} }",
};

/* ---- Literal --------------------------------------------------------------------------------- */

/* CONSTANT is read where nets are built (net/add.c): it says what becomes of a blob that the op
 * fills. */
enum { CONSTANT = VALUE + 1 };

static neap_status infer_literal(neap_infer *c, neap_error *error) {
  NEAP_TRY(neap_fill_infer(c, error));
  int64_t n = neap_shape_elems(&c->out[0].shape);
  if (c->attrs[VALUE].n != n)
    return neap_infer_fail(c, NEAP_ATTRIBUTE, 0, error,
                           "values has %d numbers, the shape %lld elements", c->attrs[VALUE].n,
                           (long long)n);
  for (int i = 0; i < n; i++)
    NEAP_TRY(neap_fill_check(c, "values", c->attrs[VALUE].floats[i], c->out[0].dtype, error));
  return NEAP_OK;
}

static void run_literal(const neap_call *call) {
  const neap_attr_value *values = &call->attrs[VALUE];
  for (int i = 0; i < values->n; i++)
    neap_element_set(call->out[0].type.dtype, call->out[0].data, i, values->floats[i]);
}

const neap_op neap_op_Literal = {
  .name = "Literal",
  .summary = "A tensor whose elements are written in the net.",
  .math = "y_i = values_i",
  .example = "net:Literal({}, \"y\", {shape = {2, 2}, values = {1, 2, 3, 4}})",
  .source = "ONNX Constant-13",
  .outputs = {{"y", "`shape`", NEAP_ANY}},
  .attrs = {NEAP_FILL_ATTRS,
            [VALUE] = {"values",
                       "of the elements, the last dimension fastest; numbers that dtype holds",
                       NEAP_ATTR_FLOATS, .required = true},
            [CONSTANT] = {"constant",
                          "of an init op: whether no op may write the blob that it fills",
                          NEAP_ATTR_BOOL}},
  .infer = infer_literal,
  .no_grad = true,
  .kernels = NEAP_REF(run_literal, NEAP_ANY),
  .cases =
    "{ {shape={2,2}, values={1,-2.5,3,0}}, {shape={}, values={7}}, {shape={0}, values={}}, "
    "{shape={3}, values={1,2,3}, dtype=\"i64\"}, {shape={2}, values={1,0}, dtype=\"bool\"} }",
};

/* ---- Range ----------------------------------------------------------------------------------- */

enum { START, STOP, STEP, RANGE_DTYPE };

/* The length is rounded up, as NumPy's arange does; a range that runs away from stop is empty.
 * Lengths above 1e15 are refused before they are cast. */
static neap_status infer_range(neap_infer *c, neap_error *error) {
  double start = c->attrs[START].f, stop = c->attrs[STOP].f, step = c->attrs[STEP].f;
  neap_dtype dtype = (neap_dtype)c->attrs[RANGE_DTYPE].i;
  if (step == 0 || !isfinite(start) || !isfinite(stop) || !isfinite(step))
    return neap_infer_fail(
      c, NEAP_ATTRIBUTE, 0, error,
      "start = %g, stop = %g, step = %g expect finite numbers and a step that is not 0", start,
      stop, step);
  if (!neap_dtype_in(dtype, NEAP_NUMBERS))
    return neap_infer_fail(c, NEAP_ATTRIBUTE, 0, error, "dtype = %s is not one that Range makes",
                           neap_dtype_name(dtype));
  /* A step towards stop; away from it the number is negative. */
  double n = ceil((stop - start) / step);
  if (n > 1e15)
    return neap_infer_fail(c, NEAP_ATTRIBUTE, 0, error, "start, stop and step ask for %g elements",
                           n);
  c->out[0] = (neap_type){dtype, NEAP_SHAPE(n > 0 ? (int64_t)n : 0)};
  return NEAP_OK;
}

/* Each element from its number, not from the one before: errors do not add up, and threads may
 * begin anywhere. */
static void range_range(void *context, int64_t begin, int64_t end) {
  const neap_call *call = context;
  double start = call->attrs[START].f, step = call->attrs[STEP].f;
  for (int64_t i = begin; i < end; i++)
    neap_element_set(call->out[0].type.dtype, call->out[0].data, i, start + (double)i * step);
}

static void run_range(const neap_call *call) {
  neap_call job = *call;
  neap_parallel_for(neap_shape_elems(&call->out[0].type.shape), NEAP_GRAIN, call->n_thread,
                    range_range, &job);
}

const neap_op neap_op_Range = {
  .name = "Range",
  .summary = "Numbers at a constant distance, the end left out.",
  .math = "y_i = start + i step, below stop",
  .example = "net:Range({}, \"y\", {start = 0, stop = 10, step = 2})",
  .source = "ONNX Range-11",
  .outputs = {{"y", "(ceil((stop - start) / step))", NEAP_NUMBERS}},
  .attrs = {[START] = {"start", "first number", NEAP_ATTR_FLOAT},
            [STOP] = {"stop", "where it ends, not included", NEAP_ATTR_FLOAT, .required = true},
            [STEP] = {"step", "from one to the next", NEAP_ATTR_FLOAT, .value = {.f = 1}},
            [RANGE_DTYPE] = {"dtype", "of the output", NEAP_ATTR_DTYPE,
                             .value = {.i = NEAP_DTYPE_F32}}},
  .infer = infer_range,
  .no_grad = true,
  .kernels = NEAP_REF(run_range, NEAP_ANY),
  .cases =
    "{ {stop=5}, {start=1, stop=2, step=0.25}, {start=5, stop=0, step=-2, dtype=\"i64\"}, "
    "{start=1, stop=1} }",
};
