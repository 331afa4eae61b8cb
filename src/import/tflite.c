/* tflite.c: a TFLite file as plain data (neap/tflite.h): a FlatBuffer (flat.c) by the schema of
 * TensorFlow Lite, version 3 (tensorflow/lite/schema/schema.fbs). Numbers of fields below are the
 * schema's.
 */
#include "import/tflite_int.h"

#include <stdio.h>
#include <string.h>

/* A model and what it stands on.
 * INVARIANT: `model` is the first member, so that a pointer to it is one to this. Its texts lie in
 * the file's bytes, its lists in the arena; its tensors hold references of their own. */
typedef struct reader {
  neap_tflite_model model;
  neap_arena arena;
  neap_storage *bytes;
  neap_flat flat; /* while it is read */
  neap_flat_vector codes, buffers;
} reader;
_Static_assert(offsetof(reader, model) == 0, "a pointer to the model is one to the reader");

/* Room of the arena; NULL, and no further reading, when it is refused. */
static void *room(reader *r, int64_t n, size_t bytes) {
  void *out = neap_arena_alloc(&r->arena, (size_t)n * bytes);
  if (out == NULL && r->flat.status == NEAP_OK)
    r->flat.status = neap_fail_memory(r->flat.error, bytes, "a TFLite file");
  return out;
}

/* ---- element types --------------------------------------------------------------------------- */

/* `bits` of an element in the file; `plain`: they are the dtype's. */
typedef struct element {
  const char *name;
  neap_dtype dtype;
  int bits;
  bool plain;
} element;

/* By the schema's number (TensorType). */
static const element elements[] = {
  {"float32", NEAP_DTYPE_F32, 32, true},    {"float16", NEAP_DTYPE_F16, 16, true},
  {"int32", NEAP_DTYPE_I32, 32, true},      {"uint8", NEAP_DTYPE_U8, 8, true},
  {"int64", NEAP_DTYPE_I64, 64, true},      {"string", NEAP_DTYPE_NONE, 0, false},
  {"bool", NEAP_DTYPE_BOOL, 8, false},      {"int16", NEAP_DTYPE_I16, 16, true},
  {"complex64", NEAP_DTYPE_NONE, 0, false}, {"int8", NEAP_DTYPE_I8, 8, true},
  {"float64", NEAP_DTYPE_F64, 64, true},    {"complex128", NEAP_DTYPE_NONE, 0, false},
  {"uint64", NEAP_DTYPE_NONE, 0, false},    {"resource", NEAP_DTYPE_NONE, 0, false},
  {"variant", NEAP_DTYPE_NONE, 0, false},   {"uint32", NEAP_DTYPE_I64, 32, false},
  {"uint16", NEAP_DTYPE_U16, 16, true},     {"int4", NEAP_DTYPE_I8, 4, false},
  {"bfloat16", NEAP_DTYPE_BF16, 16, true},  {"int2", NEAP_DTYPE_I8, 2, false},
  {"uint4", NEAP_DTYPE_U8, 4, false},
};

static const element *element_of(int type) {
  return type >= 0 && type < NEAP_COUNT(elements) ? &elements[type] : NULL;
}

neap_dtype neap_tflite_dtype(int type) {
  const element *e = element_of(type);
  return e != NULL ? e->dtype : NEAP_DTYPE_NONE;
}

const char *neap_tflite_type_name(int type) {
  const element *e = element_of(type);
  return e != NULL ? e->name : NULL;
}

/* ---- tensors --------------------------------------------------------------------------------- */

/* Element i of packed bits as a number of the dtype. */
static void set_from_bits(const element *e, const uint8_t *raw, int64_t i, void *out) {
  /* The low byte first, and in a byte that elements share the low bits first. Signed ones of few
   * bits: the upper half of the patterns stands below 0. */
  int64_t bit = i * e->bits, value = 0;
  for (int k = 0; k < (e->bits + 7) / 8; k++) value |= (int64_t)raw[bit / 8 + k] << (8 * k);
  if (e->bits < 8) value = value >> (bit % 8) & ((1 << e->bits) - 1);
  if (e->dtype == NEAP_DTYPE_I8 && value >> (e->bits - 1) != 0) value -= INT64_C(1) << e->bits;
  if (e->dtype == NEAP_DTYPE_BOOL) value = value != 0;
  neap_element_set_i64(e->dtype, out, i, value);
}

/* The numbers that stand at `at`: a copy, since the file may be written anew while a net holds
 * them. */
static void take_numbers(reader *r, const element *e, int64_t at, const neap_shape *shape,
                         int64_t n, neap_tensor *out) {
  if (!neap_flat_spend(&r->flat, n * (int64_t)neap_dtype_bytes(e->dtype))) return;
  neap_status status = neap_tensor_new(out, e->dtype, shape, r->flat.error);
  if (status != NEAP_OK) {
    r->flat.status = status;
    return;
  }
  char *data = neap_tensor_data(out);
  const uint8_t *raw = r->flat.data + at;
  if (e->plain) memcpy(data, raw, (size_t)n * neap_dtype_bytes(e->dtype));
  if (!e->plain)
    for (int64_t i = 0; i < n; i++) set_from_bits(e, raw, i, data);
}

/* Where a buffer's bytes are: in a vector, or, of a file too large for offsets of 32 bits, behind
 * all tables. n is 0 for one that holds nothing. */
static int64_t find_bytes(reader *r, int64_t index, int64_t *n) {
  *n = 0;
  if (index < 0 || index >= r->buffers.n) {
    neap_flat_fail(&r->flat, "buffer %lld, the file has %d", (long long)index, r->buffers.n);
    return 0;
  }
  neap_flat_table buffer = neap_flat_table_at(&r->flat, r->buffers, (int)index);
  int64_t offset = neap_flat_integer(&r->flat, &buffer, 1, 8, 0);
  int64_t size = neap_flat_integer(&r->flat, &buffer, 2, 8, 0);
  /* 0 and 1 stand for no offset. */
  if (offset > 1) {
    if (size < 0 || offset > r->flat.n_bytes || size > r->flat.n_bytes - offset) {
      neap_flat_fail(&r->flat, "buffer %lld: %lld bytes from %lld on, the file has %lld",
                     (long long)index, (long long)size, (long long)offset,
                     (long long)r->flat.n_bytes);
      return 0;
    }
    *n = size;
    return offset;
  }
  /* What is made of these bytes is counted when it is made. */
  int64_t left = r->flat.left;
  neap_flat_vector data = neap_flat_list(&r->flat, &buffer, 0, 1);
  r->flat.left = left;
  *n = data.n;
  return data.at;
}

static void take_shape(reader *r, const neap_flat_table *table, neap_tflite_tensor *out) {
  neap_flat *flat = &r->flat;
  neap_flat_vector dims = neap_flat_list(flat, table, 0, 4);
  neap_flat_vector open = neap_flat_list(flat, table, 7, 4);
  if (dims.n > NEAP_MAX_DIM)
    neap_flat_fail(flat, "%d dimensions, at most %d are read", dims.n, NEAP_MAX_DIM);
  if (flat->status != NEAP_OK) return;
  out->n_dim = dims.n;
  for (int d = 0; d < dims.n; d++) {
    out->dim[d] = neap_flat_integer_at(flat, dims, d, 4);
    out->open[d] = open.n == dims.n && neap_flat_integer_at(flat, open, d, 4) < 0;
    /* Older files have the mark of an open size in its place. */
    if (out->dim[d] == -1) out->dim[d] = 1, out->open[d] = true;
    if (out->dim[d] < 0) neap_flat_fail(flat, "a dimension of %lld", (long long)out->dim[d]);
  }
}

static void take_quantisation(reader *r, const neap_flat_table *tensor, neap_tflite_tensor *out) {
  neap_flat *flat = &r->flat;
  neap_flat_table table = neap_flat_child(flat, tensor, 4);
  neap_flat_vector scales = neap_flat_list(flat, &table, 2, 4);
  neap_flat_vector zeros = neap_flat_list(flat, &table, 3, 8);
  int64_t axis = neap_flat_integer(flat, &table, 6, 4, 0);
  if (flat->status != NEAP_OK || scales.n == 0) return;

  /* One scale and zero point for all, or one of each position along the axis; zero points may be
   * left out. */
  if (zeros.n != 0 && zeros.n != scales.n)
    neap_flat_fail(flat, "%d scales, %d zero points", scales.n, zeros.n);
  bool is_axis = axis >= 0 && axis < out->n_dim;
  if (scales.n > 1 && (!is_axis || out->dim[axis] != scales.n))
    neap_flat_fail(flat, "%d scales along dimension %lld, which is not of that size", scales.n,
                   (long long)axis);

  /* A scale that is no number is told of here, where its tensor is still known. */
  float *scale = room(r, scales.n, sizeof *scale);
  int64_t *zero = room(r, scales.n, sizeof *zero);
  if (flat->status != NEAP_OK) return;
  for (int i = 0; i < scales.n; i++) {
    scale[i] = neap_flat_float_at(flat, scales, i);
    if (zeros.n > 0) zero[i] = neap_flat_integer_at(flat, zeros, i, 8);
    if (!(scale[i] >= 0 && scale[i] < 1e30f))
      neap_flat_fail(flat, "a scale of %g", (double)scale[i]);
    if (zero[i] < INT32_MIN || zero[i] > INT32_MAX)
      neap_flat_fail(flat, "a zero point of %lld", (long long)zero[i]);
  }
  out->n_scale = scales.n;
  out->axis = (int)axis;
  out->scale = scale;
  out->zero = zero;
}

/* The numbers of a tensor, where the file has them: as many as its dimensions say. */
static void take_constant(reader *r, const neap_flat_table *table, neap_tflite_tensor *out) {
  neap_flat *flat = &r->flat;
  int64_t n_bytes = 0, n = 1, index = neap_flat_integer(flat, table, 2, 4, 0);
  /* The first buffer is empty, whatever it says: it stands for none. */
  int64_t at = index == 0 ? 0 : find_bytes(r, index, &n_bytes);
  const element *e = element_of(out->type);
  if (flat->status != NEAP_OK || index == 0 || n_bytes == 0) return;
  if (e == NULL || e->dtype == NEAP_DTYPE_NONE) return; /* what reads it will say so */

  /* As many bytes as the dimensions say, no more and no less, before anything is made. The bound
   * lets n times the bits of an element fit. */
  neap_shape shape = {.n_dim = out->n_dim};
  for (int d = 0; d < out->n_dim; d++) {
    shape.dim[d] = out->dim[d];
    if (__builtin_mul_overflow(n, out->dim[d], &n) || n > INT64_MAX / 64)
      neap_flat_fail(flat, "more elements than there can be");
  }
  if (flat->status != NEAP_OK) return;
  if ((n * e->bits + 7) / 8 != n_bytes) {
    neap_flat_fail(flat, "%lld elements of %s are claimed, %lld bytes are there", (long long)n,
                   e->name, (long long)n_bytes);
    return;
  }
  neap_error inner = {0};
  neap_type type = {e->dtype, shape};
  if (neap_type_check(&type, "it", &inner) != NEAP_OK)
    neap_flat_fail(flat, "%s", inner.message);
  else
    take_numbers(r, e, at, &shape, n, &out->tensor);
}

static void take_tensor(reader *r, const neap_flat_table *table, neap_tflite_tensor *out) {
  neap_flat *flat = &r->flat;
  out->name = neap_flat_text(flat, table, 3);
  size_t n = strlen(flat->place);
  snprintf(flat->place + n, sizeof flat->place - n, "\"%.80s\": ", out->name);
  out->type = (int)neap_flat_integer(flat, table, 1, 1, 0);
  out->is_variable = neap_flat_integer(flat, table, 5, 1, 0) != 0;
  take_shape(r, table, out);
  take_quantisation(r, table, out);
  neap_flat_table sparse = neap_flat_child(flat, table, 6);
  if (sparse.at != 0) neap_flat_fail(flat, "a sparse tensor, which is not read");
  if (flat->status == NEAP_OK) take_constant(r, table, out);
}

/* ---- operators ------------------------------------------------------------------------------- */

/* The tensors that a list names, each one of n; -1 for none where that may be. */
static const int *take_places(reader *r, const neap_flat_table *table, int k, int n, bool may_lack,
                              int *n_out) {
  neap_flat_vector list = neap_flat_list(&r->flat, table, k, 4);
  int *places = room(r, list.n, sizeof *places);
  if (r->flat.status != NEAP_OK) return NULL;
  for (int i = 0; i < list.n; i++) {
    places[i] = (int)neap_flat_integer_at(&r->flat, list, i, 4);
    if (places[i] < (may_lack ? -1 : 0) || places[i] >= n)
      neap_flat_fail(&r->flat, "tensor %d, the subgraph has %d", places[i], n);
  }
  *n_out = list.n;
  return places;
}

static void take_items(reader *r, const neap_flat_table *table, int k, char kind,
                       neap_tflite_option *out) {
  int bytes = kind == 'B' ? 1 : 4;
  neap_flat_vector list = neap_flat_list(&r->flat, table, k, bytes);
  out->kind = kind == 'F' ? NEAP_TFLITE_FLOATS : NEAP_TFLITE_INTS;
  float *floats = room(r, kind == 'F' ? list.n : 0, sizeof *floats);
  int64_t *ints = room(r, kind == 'F' ? 0 : list.n, sizeof *ints);
  if (r->flat.status != NEAP_OK) return;
  for (int i = 0; i < list.n; i++) {
    if (kind == 'F') floats[i] = neap_flat_float_at(&r->flat, list, i);
    if (kind != 'F') ints[i] = neap_flat_integer_at(&r->flat, list, i, bytes);
  }
  out->n = list.n;
  out->floats = floats;
  out->ints = ints;
}

/* Field k of the table of options. */
static void take_option(reader *r, const neap_flat_table *table, int k, char kind, int64_t missing,
                        neap_tflite_option *out) {
  /* A small letter is one value, the size of whose field it says; a capital one is a list. */
  out->kind = NEAP_TFLITE_INT;
  out->text = "";
  switch (kind) {
    case 'b': out->i = neap_flat_integer(&r->flat, table, k, 1, missing); break;
    case 'i': out->i = neap_flat_integer(&r->flat, table, k, 4, missing); break;
    case 'l': out->i = neap_flat_integer(&r->flat, table, k, 8, missing); break;
    case 'f':
      out->kind = NEAP_TFLITE_FLOAT;
      out->f = neap_flat_float(&r->flat, table, k, (double)missing);
      break;
    case 's':
      out->kind = NEAP_TFLITE_TEXT;
      out->text = neap_flat_text(&r->flat, table, k);
      break;
    default: take_items(r, table, k, kind, out);
  }
}

/* The options of an operator, by the schema's text: "b padding, i stride_w, -, i rank=1". */
static void take_options(reader *r, const neap_flat_table *table, neap_tflite_op *out) {
  const char *fields = neap_tflite_fields((int)neap_flat_integer(&r->flat, table, 3, 1, 0));
  neap_flat_table options = neap_flat_child(&r->flat, table, 4);
  int most = 0;
  if (fields[0] == '\0') return;
  for (const char *at = fields; at != NULL; at = strchr(at + 1, ',')) most++;
  neap_tflite_option *option = room(r, most, sizeof *option);
  char *names = room(r, 1, strlen(fields) + 1);
  if (r->flat.status != NEAP_OK) return;
  memcpy(names, fields, strlen(fields) + 1);
  char *more = names;
  for (int k = 0; k < most; k++) {
    /* One field: its kind, a blank, its name, and what holds where it is left out. */
    char *field = more + strspn(more, " ");
    more = field + strcspn(field, ",");
    if (*more == ',') *more++ = '\0';
    if (field[0] == '-') continue;
    char *equals = strchr(field, '=');
    if (equals != NULL) *equals = '\0';
    neap_tflite_option *o = &option[out->n_option++];
    o->name = field + 2;
    take_option(r, &options, k, field[0], equals != NULL ? equals[1] - '0' : 0, o);
  }
  out->option = option;
}

/* The name of an operator: by its code, which is in a byte of older files and, where it does not
 * fit there, in a field of its own. */
static void take_name(reader *r, const neap_flat_table *table, neap_tflite_op *out) {
  neap_flat *flat = &r->flat;
  enum { CUSTOM = 32 };
  int64_t index = neap_flat_integer(flat, table, 0, 4, 0);
  out->name = "";
  if (index < 0 || index >= r->codes.n) {
    neap_flat_fail(flat, "operator code %lld, the file has %d", (long long)index, r->codes.n);
    return;
  }
  neap_flat_table code = neap_flat_table_at(flat, r->codes, (int)index);

  /* Codes up to 127 stand in the byte, which holds 127 for larger ones: so the larger of both is
   * meant. */
  int64_t old = neap_flat_integer(flat, &code, 0, 1, 0);
  int64_t number = neap_flat_integer(flat, &code, 3, 4, 0);
  if (number < old) number = old;
  const char *name = number <= INT32_MAX ? neap_tflite_operator_name((int)number) : NULL;
  out->is_custom = number == CUSTOM;
  out->version = (int)neap_flat_integer(flat, &code, 2, 4, 1);
  if (out->is_custom) name = neap_flat_text(flat, &code, 1);
  if (name == NULL)
    neap_flat_fail(flat, "an operator of code %lld, which is none of the format's",
                   (long long)number);
  else
    out->name = name;
}

/* ---- subgraphs ------------------------------------------------------------------------------- */

static void take_op(reader *r, const neap_flat_table *table, int n_tensor, neap_tflite_op *out) {
  neap_flat *flat = &r->flat;
  take_name(r, table, out);
  size_t n = strlen(flat->place);
  snprintf(flat->place + n, sizeof flat->place - n, " (%.80s): ", out->name);
  out->in = take_places(r, table, 1, n_tensor, true, &out->n_in);
  out->out = take_places(r, table, 2, n_tensor, false, &out->n_out);
  take_options(r, table, out);
}

static void take_graph(reader *r, const neap_flat_table *table, int number,
                       neap_tflite_graph *out) {
  neap_flat *flat = &r->flat;
  out->name = neap_flat_text(flat, table, 4);
  neap_flat_vector tensors = neap_flat_list(flat, table, 0, 4);
  neap_flat_vector ops = neap_flat_list(flat, table, 3, 4);
  out->tensor = room(r, tensors.n, sizeof *out->tensor);
  out->op = room(r, ops.n, sizeof *out->op);
  /* Counts grow with what has been read, so that what is freed is what has been made. */
  for (int i = 0; i < tensors.n && flat->status == NEAP_OK; i++) {
    snprintf(flat->place, sizeof flat->place, "subgraph %d, tensor %d ", number, i + 1);
    neap_flat_table tensor = neap_flat_table_at(flat, tensors, i);
    out->n_tensor++;
    take_tensor(r, &tensor, &out->tensor[i]);
  }
  for (int i = 0; i < ops.n && flat->status == NEAP_OK; i++) {
    snprintf(flat->place, sizeof flat->place, "subgraph %d, operator %d", number, i + 1);
    neap_flat_table op = neap_flat_table_at(flat, ops, i);
    take_op(r, &op, out->n_tensor, &out->op[i]);
    out->n_op++;
  }
  if (flat->status != NEAP_OK) return;
  snprintf(flat->place, sizeof flat->place, "subgraph %d: ", number);
  out->in = take_places(r, table, 1, out->n_tensor, false, &out->n_in);
  out->out = take_places(r, table, 2, out->n_tensor, false, &out->n_out);
}

/* ---- models ---------------------------------------------------------------------------------- */

static void take_model(reader *r) {
  neap_flat *flat = &r->flat;
  neap_flat_table root = neap_flat_root(flat, "TFL3", "TFLite file");
  int64_t version = neap_flat_integer(flat, &root, 0, 4, 0);
  if (version != 3)
    neap_flat_fail(flat, "version %lld of the format, 3 is read", (long long)version);
  r->model.description = neap_flat_text(flat, &root, 3);

  /* What operators and tensors name by number: their kinds and their bytes. The subgraphs come
   * after them. */
  r->codes = neap_flat_list(flat, &root, 1, 4);
  r->buffers = neap_flat_list(flat, &root, 4, 4);
  neap_flat_vector graphs = neap_flat_list(flat, &root, 2, 4);
  if (graphs.n == 0) neap_flat_fail(flat, "there is no subgraph");
  r->model.graph = room(r, graphs.n, sizeof *r->model.graph);
  for (int i = 0; i < graphs.n && flat->status == NEAP_OK; i++) {
    snprintf(flat->place, sizeof flat->place, "subgraph %d: ", i + 1);
    neap_flat_table graph = neap_flat_table_at(flat, graphs, i);
    /* It counts before it is read: what frees the model walks the tensors that it has got so
     * far. */
    r->model.n_graph++;
    take_graph(r, &graph, i + 1, &r->model.graph[i]);
  }
}

neap_status neap_tflite_read(const char *path, neap_tflite_model **out, neap_error *error) {
  reader *r = neap_alloc_zeroed(sizeof *r);
  int64_t n = 0;
  *out = NULL;
  if (r == NULL) return neap_fail_memory(error, sizeof *r, "a TFLite file");
  neap_status status = neap_io_map_file(path, &r->bytes, &n, error);

  /* `left` is what may be made of lists altogether: tables may share them, so that a small file
   * could ask for much. Eight times the file leaves room for packed elements, which get wider. */
  if (status == NEAP_OK) {
    r->flat = (neap_flat){.path = path, .n_bytes = n, .left = 8 * n + 4096, .error = error};
    if (r->bytes != NULL) r->flat.data = (const uint8_t *)neap_storage_data(r->bytes);
    take_model(r);
    status = r->flat.status;
  }
  if (status != NEAP_OK) {
    neap_tflite_free(&r->model);
    return status;
  }
  *out = &r->model;
  return NEAP_OK;
}

void neap_tflite_free(neap_tflite_model *model) {
  if (model == NULL) return;
  reader *r = (reader *)model;
  for (int i = 0; i < model->n_graph; i++)
    for (int k = 0; k < model->graph[i].n_tensor; k++)
      neap_tensor_fini(&model->graph[i].tensor[k].tensor);
  neap_arena_fini(&r->arena);
  neap_storage_release(r->bytes);
  neap_free(r);
}
