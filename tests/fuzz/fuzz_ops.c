/* fuzz_ops.c: one op of any record on whatever inputs, attributes and numbers, under each engine,
 * in a planned net and at once. It runs or is refused with words, and both ways agree on which. */
#include "neap.h"

#include "driver/driver.h"
#include "fuzz.h"

#include <math.h>

enum { MOST_ELEMS = 1 << 16 };

static const int64_t sizes[] = {2, 3, 1, 4, 5, 8, 7, 16, 0, 33};

/* An input of the op. */
typedef struct operand {
  bool present;
  neap_type type;
} operand;

static neap_dtype pick_dtype(fuzz_bytes *b, unsigned admitted) {
  if (admitted == 0) admitted = NEAP_FLOATS;
  int wanted = fuzz_byte(b), n = 0;
  /* also what is not admitted */
  if (wanted >= 240) return (neap_dtype)(1 + wanted % (NEAP_N_DTYPE - 1));
  for (int d = 1; d < NEAP_N_DTYPE; d++) n += (admitted >> d & 1) != 0;
  wanted %= n > 0 ? n : 1;
  for (int d = 1; d < NEAP_N_DTYPE; d++)
    if ((admitted >> d & 1) != 0 && wanted-- == 0) return (neap_dtype)d;
  return NEAP_DTYPE_F32;
}

static neap_shape pick_shape(fuzz_bytes *b, const operand *first) {
  int form = fuzz_byte(b);
  if (first != NULL && form < 100) return first->type.shape;
  neap_shape shape = {.n_dim = form % 6};
  for (int d = 0; d < shape.n_dim; d++) shape.dim[d] = sizes[fuzz_below(b, NEAP_COUNT(sizes))];
  return shape;
}

/* ---- the op's line --------------------------------------------------------------------------- */

static void add_number(fuzz_bytes *b, bool whole, neap_buffer *line) {
  static const char *const odd[] = {"-1",
                                    "0",
                                    "1",
                                    "100000",
                                    "-9223372036854775808",
                                    "9223372036854775807",
                                    "2147483648",
                                    "4611686018427387904"};
  int byte = fuzz_byte(b);
  if (byte >= 224)
    neap_buffer_add(line, "%s", odd[byte % NEAP_COUNT(odd)]);
  else if (whole || byte < 128)
    neap_buffer_add(line, "%d", byte % 10 - 2);
  else
    neap_buffer_add(line, "%g", (byte - 170) / 16.0);
}

static void add_list(fuzz_bytes *b, bool whole, neap_buffer *line) {
  int n = fuzz_below(b, 5);
  neap_buffer_add(line, "{");
  for (int i = 0; i < n; i++) {
    if (i > 0) neap_buffer_add(line, ",");
    add_number(b, whole, line);
  }
  neap_buffer_add(line, "}");
}

static void add_choice(fuzz_bytes *b, const char *choices, neap_buffer *line) {
  int n = 1;
  for (const char *c = choices; *c != '\0'; c++) n += *c == '|';
  for (int k = fuzz_below(b, n); k > 0; k--) choices += strcspn(choices, "|") + 1;
  neap_buffer_add_n(line, choices, strcspn(choices, "|"));
}

static void add_attr(fuzz_bytes *b, const neap_attr *attr, neap_buffer *line) {
  switch (attr->type) {
    case NEAP_ATTR_BOOL: neap_buffer_add(line, "%s", fuzz_below(b, 2) ? "true" : "false"); break;
    case NEAP_ATTR_ENUM: add_choice(b, attr->choices, line); break;
    case NEAP_ATTR_DTYPE:
      neap_buffer_add(line, "%s",
                      neap_dtype_name((neap_dtype)(1 + fuzz_below(b, NEAP_N_DTYPE - 1))));
      break;
    case NEAP_ATTR_INTS:
    case NEAP_ATTR_AXES: add_list(b, true, line); break;
    case NEAP_ATTR_FLOATS: add_list(b, false, line); break;
    default: add_number(b, attr->type != NEAP_ATTR_FLOAT, line);
  }
}

static void add_attrs(fuzz_bytes *b, const neap_op *op, neap_buffer *line) {
  int n = 0;
  for (int a = 0; a < neap_op_n_attrs(op); a++) {
    const neap_attr *attr = &op->attrs[a];
    if (attr->type == NEAP_ATTR_NET || attr->type == NEAP_ATTR_NAMES) continue;
    if (!attr->required && fuzz_byte(b) < 128) continue;
    neap_buffer_add(line, "%s%s = ", n++ == 0 ? " { " : ", ", attr->name);
    add_attr(b, attr, line);
  }
  if (n > 0) neap_buffer_add(line, " }");
}

static void add_op(fuzz_bytes *b, const neap_op *op, int n_in, const operand *in,
                   neap_buffer *line) {
  int n_out = NEAP_MAX(neap_op_n_outputs(op), 1), more = fuzz_byte(b);
  if (op->outputs[n_out - 1].flags & NEAP_ARG_VARIADIC) n_out += more % 3;
  for (int k = 0; k < n_out; k++) neap_buffer_add(line, "%so%d", k > 0 ? ", " : "", k);
  neap_buffer_add(line, " = %s(", op->name);
  for (int i = 0; i < n_in; i++)
    neap_buffer_add(line, in[i].present ? "%si%d" : "%s_", i > 0 ? ", " : "", i);
  neap_buffer_add(line, ")");
  add_attrs(b, op, line);
}

/* ---- running it ------------------------------------------------------------------------------ */

static double number(int how, int64_t i) {
  static const double odd[] = {NAN,    INFINITY, -INFINITY, 0.0, -0.0, 1e308,
                               -1e308, 1e-308,   65504,     1.5, -1,   255};
  switch (how % 4) {
    case 0: return (double)(i % 7) / 4 - 0.75;
    case 1: return (double)(i % 3);
    case 2: return odd[i % NEAP_COUNT(odd)];
    default: return (double)(i * 37 % 256) - 128;
  }
}

static bool write_input(neap_workspace *ws, int i, const operand *in, int how) {
  int64_t n = neap_shape_elems(&in->type.shape);
  char name[20];
  neap_error error = {0};
  snprintf(name, sizeof name, "i%d", i);
  if (n > MOST_ELEMS) return false;
  neap_shape shape = in->type.shape;
  neap_tensor wide = {0}, t = {0};
  if (neap_tensor_new(&wide, NEAP_DTYPE_F64, &shape, &error) != NEAP_OK) abort();
  for (int64_t k = 0; k < n; k++) ((double *)neap_tensor_data(&wide))[k] = number(how, k);
  if (neap_tensor_clone(&wide, in->type.dtype, &t, &error) != NEAP_OK) abort();
  neap_status status = neap_workspace_write(ws, name, in->type.dtype, shape.n_dim, shape.dim,
                                            neap_tensor_data(&t), &error);
  PROMISE_SAID(status, error);
  neap_tensor_fini(&wide);
  neap_tensor_fini(&t);
  return status == NEAP_OK;
}

/* As a net of its own; *is_small: what it takes may be taken here. */
static neap_status run_planned(neap_workspace *ws, int n_in, const operand *in, const char *line,
                               const char *engine, bool *is_small, neap_error *error) {
  neap_buffer text = {0};
  neap_net *net = NULL;
  neap_figures figures = {0};
  neap_options options = {.engine = engine};
  neap_buffer_add(&text, "net f\n");
  for (int i = 0; i < n_in; i++) {
    if (!in[i].present) continue;
    neap_buffer_add(&text, "input i%d %s (", i, neap_dtype_name(in[i].type.dtype));
    for (int d = 0; d < in[i].type.shape.n_dim; d++)
      neap_buffer_add(&text, "%s%lld", d > 0 ? "," : "", (long long)in[i].type.shape.dim[d]);
    neap_buffer_add(&text, ")\n");
  }
  neap_buffer_add(&text, "%s\n", line);
  neap_status status = neap_net_read(text.text, &net, error);
  if (status == NEAP_OK) status = neap_net_forecast(net, &options, &figures, NULL, error);
  *is_small = status == NEAP_OK && figures.total_bytes < 1 << 24;
  if (*is_small) status = neap_workspace_run_once(ws, net, &options, NULL, error);
  neap_net_free(net);
  neap_buffer_fini(&text);
  return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  static const char *const engines[] = {NULL, "ref", "blas", "dnnl"};
  fuzz_bytes b = {data, n, 0};
  const neap_op *op = neap_op_at(fuzz_below(&b, neap_op_count()));
  const char *engine = engines[fuzz_below(&b, NEAP_COUNT(engines))];
  int how = fuzz_byte(&b), n_in = neap_op_n_inputs(op), more = fuzz_byte(&b);
  operand in[NEAP_OP_MAX_IN + 3] = {{0}};
  if (n_in > 0 && (op->inputs[n_in - 1].flags & NEAP_ARG_VARIADIC) != 0) n_in += more % 3;
  if (neap_op_subnet_attr(op, 0) >= 0) return 0; /* fuzz_net has those */
  neap_workspace *ws = NULL;
  neap_error error = {0};
  neap_buffer line = {0};
  bool fits = true;
  if (neap_workspace_open(1, &ws, &error) != NEAP_OK) abort();
  for (int i = 0; i < n_in && fits; i++) {
    const neap_arg *arg = neap_op_input(op, i);
    in[i].present = (arg->flags & NEAP_ARG_OPTIONAL) == 0 || fuzz_byte(&b) >= 128;
    if (!in[i].present) continue;
    in[i].type.dtype = pick_dtype(&b, arg->dtypes);
    in[i].type.shape = pick_shape(&b, i > 0 && in[0].present ? &in[0] : NULL);
    fits = write_input(ws, i, &in[i], how + i * (how >> 4));
  }
  if (fits) {
    add_op(&b, op, n_in, in, &line);
    bool is_small = false;
    neap_status status = run_planned(ws, n_in, in, line.text, engine, &is_small, &error);
    PROMISE_SAID(status, error);
    error = (neap_error){0};
    status = status == NEAP_OK && is_small ? neap_workspace_run_op(ws, line.text, &error) : NEAP_OK;
    PROMISE_SAID(status, error);
  }
  neap_buffer_fini(&line);
  neap_workspace_release(ws);
  return 0;
}

/* Each op with engines by turns, inputs of one shape. */
bool fuzz_seed(int k, neap_buffer *out) {
  if (k >= neap_op_count()) return false;
  const char bytes[] = {(char)k, (char)(k % 4), 0, 0, 0, 102, 0, 1, 2, 0, 0, (char)128,
                        0,       103,           1, 1, 1, 0,   0, 0, 0, 0, 0, 0};
  neap_buffer_add_n(out, bytes, sizeof bytes);
  return true;
}
