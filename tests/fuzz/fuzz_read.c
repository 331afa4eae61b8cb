/* fuzz_read.c: every reader of files on whatever bytes: tensors (.npy, .npz, .safetensors),
 * pictures and sounds, tables, idx, gzip, checkpoints, models with their nets, ONNX and
 * TFLite files, and Caffe's texts, weights and blobs. The first byte says which reader. What a
 * reader takes can be written and read again. */
#include "neap.h"

#include "driver/driver.h"
#include "fuzz.h"
#include "io/io.h"

#include "../c/caffe_files.h"
#include "../c/onnx_files.h"
#include "../c/tflite_files.h"

#include <sys/mman.h>
#include <unistd.h>

enum {
  TENSORS,
  MAPPED,
  IDX,
  GZIP,
  CHECKPOINT,
  MAPPED_CHECKPOINT,
  MODEL,
  ONNX,
  ONNX_TENSOR,
  CAFFE_TEXT,
  CAFFE_WEIGHTS,
  CAFFE_BLOB,
  CSV,
  TFLITE,
  PICTURE, /* made to fit the rows of a batch */
  N_READER
};

/* The bytes as a file without a name; its path lasts until the next call. */
static const char *file_of(const uint8_t *data, size_t n, int *descriptor) {
  static char path[40];
  *descriptor = memfd_create("fuzz", 0);
  if (*descriptor < 0 || write(*descriptor, data, n) != (ssize_t)n) abort();
  snprintf(path, sizeof path, "/proc/self/fd/%d", *descriptor);
  return path;
}

/* ---- seeds ----------------------------------------------------------------------------------- */

static void add_file(int reader, const char *path, neap_buffer *out) {
  char first = (char)reader;
  neap_error error = {0};
  neap_io_bytes bytes;
  neap_buffer_add_n(out, &first, 1);
  PROMISE(neap_io_read_text(path, &bytes, &error) == NEAP_OK);
  neap_buffer_add_n(out, bytes.data, bytes.n);
  neap_free(bytes.data);
}

static void add_tensors(int reader, const char *path, neap_buffer *out) {
  neap_error error = {0};
  neap_io_item item[2] = {{.name = "a"}, {.name = "b"}};
  neap_shape shape[2] = {NEAP_SHAPE(3, 2), NEAP_SHAPE(5)};
  PROMISE(neap_tensor_new(&item[0].tensor, NEAP_DTYPE_F32, &shape[0], &error) == NEAP_OK);
  PROMISE(neap_tensor_new(&item[1].tensor, NEAP_DTYPE_I64, &shape[1], &error) == NEAP_OK);
  int n = strstr(path, ".npy") != NULL ? 1 : 2;
  PROMISE(neap_io_save(path, n, item, 0, NULL, &error) == NEAP_OK);
  for (int i = 0; i < 2; i++) neap_tensor_fini(&item[i].tensor);
  add_file(reader, path, out);
}

static void add_model(int reader, const char *path, neap_buffer *out) {
  neap_error error = {0};
  neap_workspace *ws = NULL;
  neap_net *net = NULL;
  neap_session *session = NULL;
  PROMISE(neap_workspace_open(1, &ws, &error) == NEAP_OK);
  PROMISE(
    neap_net_read("net m\ninput x f32 (2,3)\nparam w f32 (2,3) = Xavier\ny = FC(x, w)\noutputs y\n",
                  &net, &error) == NEAP_OK);
  PROMISE(neap_session_open(ws, net, NULL, &session, &error) == NEAP_OK);
  if (reader == MODEL)
    PROMISE(neap_workspace_export(ws, net, path, &error) == NEAP_OK);
  else
    PROMISE(neap_workspace_save(ws, path, 0, NULL, &error) == NEAP_OK);
  neap_session_free(session);
  neap_net_free(net);
  neap_workspace_release(ws);
  add_file(reader, path, out);
}

/* A picture of 6x5, or a sound, by the path's ending. */
static void add_whole(int reader, const char *path, neap_buffer *out) {
  neap_error error = {0};
  bool is_sound = strstr(path, ".wav") != NULL;
  neap_io_item item = {.name = ""};
  neap_shape shape = is_sound ? NEAP_SHAPE(2, 9) : NEAP_SHAPE(3, 6, 5);
  neap_io_pair rate = {.key = "rate", .value = "8000"};
  PROMISE(neap_tensor_new(&item.tensor, is_sound ? NEAP_DTYPE_F32 : NEAP_DTYPE_U8, &shape,
                          &error) == NEAP_OK);
  for (int64_t i = 0; i < neap_tensor_elems(&item.tensor); i++)
    neap_element_set(item.tensor.dtype, neap_tensor_data(&item.tensor), i,
                     is_sound ? 0.1 * (double)i - 1 : (double)(7 * i));
  PROMISE(neap_io_save(path, 1, &item, is_sound, &rate, &error) == NEAP_OK);
  neap_tensor_fini(&item.tensor);
  add_file(reader, path, out);
}

/* One image of 2x2, as MNIST has them; the same gzipped, stored. */
static const char idx[] = "\0\0\x08\x03\0\0\0\1\0\0\0\2\0\0\0\2\1\2\3\4";
static const char gzip[] =
  "\x1f\x8b\x08\0\0\0\0\0\0\x03\x01\x02\0\xfd\xff"
  "ab"
  "\x6d\x48\x83\x9e\2\0\0\0";

bool fuzz_seed(int k, neap_buffer *out) {
  static const char *const ending[] = {"npy", "npz", "safetensors"};
  char folder[] = "/tmp/neap-fuzz-XXXXXX", path[60], first;
  static const char *const whole[] = {"png", "jpg", "wav", "png", "jpg"};
  static const char csv[] = "a,\"b \"\"c\"\"\",d\r\n1, 2 ,\"3\n4\"\n";
  static const struct {
    char reader;
    const char *bytes;
    size_t n;
  } as_bytes[] = {{ONNX, onnx_model, sizeof onnx_model - 1},
                  {ONNX_TENSOR, onnx_tensor, sizeof onnx_tensor - 1},
                  {CAFFE_TEXT, caffe_text, sizeof caffe_text - 1},
                  {CAFFE_WEIGHTS, caffe_weights, sizeof caffe_weights - 1},
                  {CAFFE_BLOB, caffe_blob, sizeof caffe_blob - 1},
                  {CSV, csv, sizeof csv - 1},
                  {TFLITE, tflite_model, sizeof tflite_model - 1}};
  enum { N_BYTES = sizeof as_bytes / sizeof as_bytes[0], N_WHOLE = 5 };
  if (k >= 11 + N_BYTES + N_WHOLE) return false;
  if (k >= 11 + N_BYTES) {
    int i = k - 11 - N_BYTES;
    if (mkdtemp(folder) == NULL) abort();
    snprintf(path, sizeof path, "%s/a.%s", folder, whole[i]);
    add_whole(i < 3 ? TENSORS : PICTURE, path, out);
    unlink(path);
    rmdir(folder);
    return true;
  }
  if (k >= 11) {
    neap_buffer_add_n(out, &as_bytes[k - 11].reader, 1);
    neap_buffer_add_n(out, as_bytes[k - 11].bytes, as_bytes[k - 11].n);
    return true;
  }
  if (mkdtemp(folder) == NULL) abort();
  if (k < 6) {
    snprintf(path, sizeof path, "%s/a.%s", folder, ending[k % 3]);
    add_tensors(k / 3 == 0 ? TENSORS : MAPPED, path, out);
  } else if (k < 9) {
    snprintf(path, sizeof path, "%s/a.safetensors", folder);
    add_model(k == 6 ? CHECKPOINT : k == 7 ? MAPPED_CHECKPOINT : MODEL, path, out);
  } else {
    first = k == 9 ? IDX : GZIP;
    neap_buffer_add_n(out, &first, 1);
    neap_buffer_add_n(out, k == 9 ? idx : gzip, k == 9 ? sizeof idx - 1 : sizeof gzip - 1);
    path[0] = '\0';
  }
  if (path[0] != '\0') unlink(path);
  rmdir(folder);
  return true;
}

/* ---- readers --------------------------------------------------------------------------------- */

/* Reads every element, by a copy. */
static void touch(const neap_tensor *t) {
  neap_tensor dense = {0};
  neap_error error = {0};
  neap_status status = neap_tensor_clone(t, t->dtype, &dense, &error);
  PROMISE_SAID(status, error);
  neap_tensor_fini(&dense);
}

static void read_tensors(const char *path, neap_io_map map) {
  neap_io_list list = {0};
  neap_error error = {0};
  neap_status status = neap_io_load(path, map, &list, &error);
  PROMISE_SAID(status, error);
  for (int i = 0; status == NEAP_OK && i < list.n_item; i++) touch(&list.item[i].tensor);
  neap_io_list_fini(&list);
}

static void read_idx(const char *path) {
  neap_tensor t = {0};
  neap_error error = {0};
  neap_status status = neap_io_read_idx(path, &t, &error);
  PROMISE_SAID(status, error);
  if (status == NEAP_OK) touch(&t);
  neap_tensor_fini(&t);
}

static void read_csv(const char *path) {
  neap_io_cells cells = {0};
  neap_error error = {0};
  neap_status status = neap_io_read_csv(path, ',', &cells, &error);
  PROMISE_SAID(status, error);
  if (status != NEAP_OK) return;
  /* Every cell ends where it says, and rows have all of them. */
  for (int64_t i = 0; i < cells.n_cell; i++) PROMISE(cells.text.data[cells.end[i]] == '\0');
  PROMISE(cells.n_row == 0 || cells.row_end[cells.n_row - 1] == cells.n_cell);
  neap_io_cells_fini(&cells);
}

/* A row of pictures of another size, through transforms. */
static void read_picture(const char *path, int fit) {
  const neap_transform transform[] = {{"random_resized_crop", 6, (double[]){4, 4, 0.2, 1, 0.5, 2}},
                                      {"rotate", 2, (double[]){30, 0}},
                                      {"jitter", 4, (double[]){0.5, 0.5, 0.5, 0}}};
  neap_batch_field field = {.dtype = NEAP_DTYPE_F32,
                            .scale = 1,
                            .n_file = 1,
                            .file = &path,
                            .row_shape = NEAP_SHAPE(3, 7, 5),
                            .fit = (neap_picture_fit)fit};
  neap_batch_options options = {
    .n_batch = 1, .n_transform = 3, .transform = transform, .label = -1};
  neap_batch_reader *reader = NULL;
  neap_tensor row = {0};
  neap_error error = {0};
  int64_t zero = 0;
  PROMISE(neap_batch_reader_new(1, &field, 1, &zero, &options, &reader, &error) == NEAP_OK);
  int64_t n = neap_batch_reader_next(reader, &row, &error);
  PROMISE(n == 1 || (n == -1 && error.message[0] != '\0'));
  if (n == 1) touch(&row);
  neap_tensor_fini(&row);
  neap_batch_reader_free(reader);
}

static void read_gzip(const char *path) {
  neap_io_bytes bytes = {0};
  neap_error error = {0};
  neap_status status = neap_io_read_gz_bytes(path, &bytes, &error);
  PROMISE_SAID(status, error);
  if (status == NEAP_OK) neap_free(bytes.data);
}

/* What a model says is there: every tensor of a graph and of the graphs within it. */
static void touch_graph(const neap_onnx_graph *graph) {
  for (int i = 0; i < graph->n_initializer; i++)
    if (graph->initializer[i].tensor.dtype != NEAP_DTYPE_NONE) touch(&graph->initializer[i].tensor);
  for (int i = 0; i < graph->n_node; i++)
    for (int k = 0; k < graph->node[i].n_attr; k++) {
      const neap_onnx_attr *attr = &graph->node[i].attr[k];
      if (attr->kind == NEAP_ONNX_GRAPH) touch_graph(attr->graph);
      if (attr->tensor.tensor.dtype != NEAP_DTYPE_NONE) touch(&attr->tensor.tensor);
    }
}

static void read_onnx(const char *path, bool is_tensor) {
  neap_onnx_model *model = NULL;
  neap_error error = {0};
  neap_status status =
    is_tensor ? neap_onnx_read_tensor(path, &model, &error) : neap_onnx_read(path, &model, &error);
  PROMISE_SAID(status, error);
  if (status == NEAP_OK) touch_graph(&model->graph);
  neap_onnx_free(model);
}

/* Every list of a model is there, every text ends, and what operators read is a tensor. */
static size_t touch_op(const neap_tflite_op *o, int n_tensor) {
  size_t sum = strlen(o->name);
  for (int i = 0; i < o->n_in; i++) PROMISE(o->in[i] >= -1 && o->in[i] < n_tensor);
  for (int i = 0; i < o->n_out; i++) PROMISE(o->out[i] >= 0 && o->out[i] < n_tensor);
  for (int i = 0; i < o->n_option; i++) {
    const neap_tflite_option *option = &o->option[i];
    sum += strlen(option->name) + strlen(option->text);
    for (int k = 0; k < option->n; k++)
      sum += option->kind == NEAP_TFLITE_FLOATS ? option->floats[k] > 0 : option->ints[k] > 0;
  }
  return sum;
}

static void read_tflite(const char *path) {
  neap_tflite_model *model = NULL;
  neap_error error = {0};
  size_t sum = 0;
  neap_status status = neap_tflite_read(path, &model, &error);
  PROMISE_SAID(status, error);
  for (int i = 0; status == NEAP_OK && i < model->n_graph; i++) {
    const neap_tflite_graph *graph = &model->graph[i];
    sum += strlen(graph->name);
    for (int k = 0; k < graph->n_op; k++) sum += touch_op(&graph->op[k], graph->n_tensor);
    for (int k = 0; k < graph->n_tensor; k++) {
      const neap_tflite_tensor *t = &graph->tensor[k];
      sum += strlen(t->name);
      for (int c = 0; c < t->n_scale; c++) sum += t->scale[c] > 0 || t->zero[c] > 0;
      if (t->tensor.dtype != NEAP_DTYPE_NONE) touch(&t->tensor);
    }
  }
  PROMISE(status != NEAP_OK || sum > 0 || model->n_graph > 0);
  neap_tflite_free(model);
}

/* Every field of a text, of messages within each other too: its bytes are there. */
static size_t touch_fields(const neap_caffe_field *field) {
  size_t sum = 0;
  for (; field != NULL; field = field->next) {
    PROMISE(field->line > 0 && strlen(field->name) > 0);
    for (size_t i = 0; i < field->n_text; i++) sum += (unsigned char)field->text[i];
    sum += touch_fields(field->fields);
  }
  return sum;
}

static void read_caffe_text(const char *path) {
  neap_caffe_text *text = NULL;
  neap_error error = {0};
  neap_status status = neap_caffe_read_text(path, &text, &error);
  PROMISE_SAID(status, error);
  if (status == NEAP_OK) touch_fields(text->field);
  neap_caffe_free_text(text);
}

static void read_caffe_weights(const char *path, bool is_blob) {
  neap_caffe_weights *weights = NULL;
  neap_error error = {0};
  neap_status status = is_blob ? neap_caffe_read_blob(path, &weights, &error)
                               : neap_caffe_read_weights(path, &weights, &error);
  PROMISE_SAID(status, error);
  for (int i = 0; status == NEAP_OK && i < weights->n_layer; i++)
    for (int k = 0; k < weights->layer[i].n_blob; k++) touch(&weights->layer[i].blob[k]);
  neap_caffe_free_weights(weights);
}

/* A file that is refused leaves the workspace as it was. */
static void read_checkpoint(const char *path, int reader) {
  neap_workspace *ws = NULL;
  neap_net *net = NULL;
  neap_error error = {0};
  float one = 1;
  PROMISE(neap_workspace_open(1, &ws, &error) == NEAP_OK);
  PROMISE(neap_workspace_write(ws, "kept", NEAP_DTYPE_F32, 0, NULL, &one, &error) == NEAP_OK);
  neap_status status = reader == MODEL ? neap_workspace_import(ws, path, NEAP_IO_COPY, &net, &error)
                       : reader == CHECKPOINT
                         ? neap_workspace_load(ws, path, NEAP_IO_COPY, NULL, &error)
                         : neap_workspace_load(ws, path, NEAP_IO_MAP_READ, NULL, &error);
  PROMISE_SAID(status, error);
  if (status != NEAP_OK) {
    int n = 0;
    neap_blob_row *row = NULL;
    PROMISE(neap_workspace_blobs(ws, &row, &n, &error) == NEAP_OK);
    PROMISE(n == 1 && strcmp(row[0].name, "kept") == 0);
    neap_free(row);
  }
  neap_net_free(net);
  neap_workspace_release(ws);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  if (n == 0) return 0;
  int descriptor, reader = data[0] % N_READER;
  const char *path = file_of(data + 1, n - 1, &descriptor);
  switch (reader) {
    case TENSORS: read_tensors(path, NEAP_IO_COPY); break;
    case MAPPED: read_tensors(path, data[0] & 8 ? NEAP_IO_MAP_WRITE : NEAP_IO_MAP_READ); break;
    case IDX: read_idx(path); break;
    case GZIP: read_gzip(path); break;
    case ONNX: read_onnx(path, false); break;
    case ONNX_TENSOR: read_onnx(path, true); break;
    case CAFFE_TEXT: read_caffe_text(path); break;
    case CAFFE_WEIGHTS: read_caffe_weights(path, false); break;
    case CAFFE_BLOB: read_caffe_weights(path, true); break;
    case CSV: read_csv(path); break;
    case TFLITE: read_tflite(path); break;
    case PICTURE: read_picture(path, data[0] / N_READER % 3); break;
    default: read_checkpoint(path, reader);
  }
  close(descriptor);
  return 0;
}
