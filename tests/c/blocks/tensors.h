/* tensors.h: tensors, dtypes and shapes, op records, files of tensors and batches of rows. */
#ifndef NEAP_TESTS_BLOCKS_TENSORS_H
#define NEAP_TESTS_BLOCKS_TENSORS_H

#include "blocks/call.h"
#include "neap/record.h"

QUIET(mapped_bytes, s->number[0] = (double)neap_mapped_bytes())
QUIET(dtype_bytes, s->number[0] = (double)neap_dtype_bytes(NEAP_DTYPE_F16))
QUIET(dtype_name, s->number[0] = neap_dtype_name(NEAP_DTYPE_F16)[0])
QUIET(dtype_from_name, s->number[0] = neap_dtype_from_name("i64"))
QUIET(dtype_is_float, s->number[0] = neap_dtype_is_float(NEAP_DTYPE_F16))
QUIET(dtype_is_integer, s->number[0] = neap_dtype_is_integer(NEAP_DTYPE_F16))
QUIET(shape_of, s->number[0] = neap_shape_of(2, DIM(2, 3)).n_dim)
QUIET(shape_equal, s->number[0] = neap_shape_equal(&s->t.shape, &s->t.shape))
QUIET(shape_elems, s->number[0] = (double)neap_shape_elems(&s->t.shape))
QUIET(shape_text, s->number[0] = neap_shape_text(&s->t.shape, (char[NEAP_SHAPE_TEXT]){0})[1])
QUIET(tensor_retain, neap_tensor t = neap_tensor_retain(&s->t); neap_tensor_fini(&t))
QUIET(tensor_fini, neap_tensor_fini(&s->t))
QUIET(tensor_data, s->number[0] = *(float *)(void *)neap_tensor_data(&s->t))
QUIET(tensor_elems, s->number[0] = (double)neap_tensor_elems(&s->t))
QUIET(tensor_bytes, s->number[0] = (double)neap_tensor_bytes(&s->t))
QUIET(tensor_is_dense, s->number[0] = neap_tensor_is_dense(&s->t))
QUIET(tensor_is_read_only, s->number[0] = neap_tensor_is_read_only(&s->t))
QUIET(tensor_touch, neap_tensor_touch(&s->t))
QUIET(element_get, s->number[0] = neap_element_get(NEAP_DTYPE_F32, neap_tensor_data(&s->t), 4))
QUIET(element_get_i64,
      s->number[0] = (double)neap_element_get_i64(NEAP_DTYPE_F32, neap_tensor_data(&s->t), 4))
QUIET(element_set, neap_element_set(NEAP_DTYPE_F32, neap_tensor_data(&s->t), 4, 0.5))
QUIET(element_set_i64, neap_element_set_i64(NEAP_DTYPE_F32, neap_tensor_data(&s->t), 4, 3))
CALL(tensor_new) {
  NEAP_TRY(neap_tensor_new(&s->out_t, NEAP_DTYPE_F32, &(neap_shape){2, {3, 4}}, error));
  memset(neap_tensor_data(&s->out_t), 0, neap_tensor_bytes(&s->out_t)); /* it was undefined */
  return NEAP_OK;
}
CALL(tensor_borrow) {
  return neap_tensor_borrow(&s->out_t, NEAP_DTYPE_F64, &(neap_shape){1, {3}}, s->number, NULL, NULL,
                            error);
}
CALL(tensor_narrow) { return neap_tensor_narrow(&s->t, 1, 0, 2, 2, &s->out_t, error); }
CALL(tensor_select) { return neap_tensor_select(&s->t, 0, 1, &s->out_t, error); }
CALL(tensor_permute) { return neap_tensor_permute(&s->t, (const int[]){1, 0}, &s->out_t, error); }
CALL(tensor_expand) {
  return neap_tensor_expand(&s->t, &(neap_shape){3, {2, 3, 4}}, &s->out_t, error);
}
CALL(tensor_reshape_view) {
  return neap_tensor_reshape_view(&s->t, 2, DIM(2, -1), &s->out_t, error);
}
CALL(tensor_copy) {
  neap_tensor t = {0};
  neap_status status = neap_tensor_permute(&s->t, (const int[]){1, 0}, &t, NULL);
  neap_tensor square = s->t;
  square.shape.dim[1] = 3; /* 3 of 4 columns: overlapping, turned */
  t.shape.dim[0] = 3;
  if (status == NEAP_OK) status = neap_tensor_copy(&square, &t, error);
  neap_tensor_fini(&t);
  if (status != NEAP_OK) return status;
  s->number[0] = neap_element_get(NEAP_DTYPE_F32, neap_tensor_data(&s->t), 1);
  return NEAP_OK;
}
CALL(tensor_clone) { return neap_tensor_clone(&s->t, NEAP_DTYPE_F64, &s->out_t, error); }
CALL(tensor_hash) {
  char text[33] = "";
  neap_status status = neap_tensor_hash(&s->t, text, error);
  s->number[0] = text[0];
  return status;
}
CALL(tensor_text) { return neap_tensor_text(&s->t, NULL, "t", &s->text, error); }
QUIET(op_count, s->number[0] = neap_op_count())
QUIET(op_at, s->number[0] = neap_op_at(0) != NULL)
QUIET(op_find, s->number[0] = neap_op_find("Relu") != NULL)
QUIET(op_suggest, s->number[0] = neap_op_suggest("Rellu")[0])
QUIET(op_name, s->number[0] = neap_op_name(neap_op_at(3))[0])
QUIET(op_n_attrs, s->number[0] = neap_op_n_attrs(neap_op_find("Conv")))
QUIET(op_attr_at, s->number[0] = neap_op_attr_at(neap_op_find("Conv"), 1)->type)
QUIET(op_attr_index, s->number[0] = neap_op_attr_index(neap_op_find("Conv"), "pad"))
QUIET(op_n_results, s->number[0] = neap_op_n_results(neap_op_find("Dropout")))
QUIET(op_read, s->number[0] = neap_op_read(neap_op_find("Conv")).n_input)
CALL(op_help) { return neap_op_help(neap_op_find("Conv"), &s->text, error); }
CALL(run_op) { return neap_run_op("Tanh", 1, &s->t, NULL, 1, &s->out_t, error); }
static neap_status load(scene *s, const char *path, neap_io_map map, neap_error *error) {
  neap_io_list list;
  neap_status status = neap_io_load(path, map, &list, error);
  s->number[0] = list.n_item;
  neap_io_list_fini(&list);
  return status;
}
CALL(io_load) { return load(s, checkpoint_path, NEAP_IO_COPY, error); }
CALL(io_load_mapped) { return load(s, checkpoint_path, NEAP_IO_MAP_READ, error); }
QUIET(io_list_fini, neap_io_list_fini(&(neap_io_list){0}))
QUIET(io_list_find, s->number[0] = neap_io_list_find(&(neap_io_list){0}, "w") == NULL)
QUIET(io_list_meta, s->number[0] = neap_io_list_meta(&(neap_io_list){0}, "w") == NULL)
CALL(io_save) {
  return neap_io_save(saved_path, 1, &(neap_io_item){(char *)"t", s->t}, 1,
                      &(neap_io_pair){(char *)"a", (char *)"b"}, error);
}
static const char idx[] =
  "\0\0\x08\x01\0\0\0\x03"
  "abc";
CALL(io_read_idx) { return neap_io_read_idx(idx_path, &s->out_t, error); }
CALL(io_read_text) {
  neap_io_bytes bytes = {0};
  neap_status status = neap_io_read_text(idx_path, &bytes, error);
  s->number[0] = (double)bytes.n;
  s->block = bytes.data;
  return status;
}
CALL(io_read_gz_bytes) {
  neap_io_bytes bytes = {0};
  neap_status status = neap_io_read_gz_bytes(idx_path, &bytes, error);
  s->number[0] = (double)bytes.n;
  s->block = bytes.data;
  return status;
}
static const neap_transform flips = {.name = "flip", .n_value = 1, .value = (const double[]){0.5}};
QUIET(transform_shape, neap_shape row = NEAP_SHAPE(3, 4, 4);
      s->number[0] = neap_transform_shape(1, &flips, &row, error) == NEAP_OK)
CALL(io_write_picture) {
  (void)s;
  return neap_io_write_picture(saved_path, 2, 2, 1, (const uint8_t *)"abcd", 90, error);
}
/* The first call is one where nothing is refused: it makes the file. */
CALL(io_decode_picture) {
  static uint8_t bytes[1024];
  static size_t n;
  if (n == 0) {
    NEAP_TRY(call_io_write_picture(s, error));
    FILE *file = fopen(saved_path, "rb");
    if (file != NULL) n = fread(bytes, 1, sizeof bytes, file), fclose(file);
  }
  return neap_io_decode_picture(saved_path, bytes, n, 3, &s->out_t, error);
}
CALL(io_read_csv) {
  static bool made;
  FILE *file = made ? NULL : fopen(saved_path, "wb");
  if (file != NULL) made = fputs("a,\"b,c\"\n1,2\n", file) >= 0, fclose(file);
  neap_io_cells cells = {0};
  neap_status status = neap_io_read_csv(saved_path, ',', &cells, error);
  s->number[0] = (double)cells.n_cell;
  neap_io_cells_fini(&cells);
  return status;
}
QUIET(io_cells_fini, neap_io_cells_fini(&(neap_io_cells){0}))
CALL(io_read_folder) {
  neap_io_bytes names = {0};
  neap_status status = neap_io_read_folder("src/neap", &names, error);
  s->number[0] = (double)names.n;
  s->block = names.data;
  return status;
}

/* The list of ops is the process's, and old ones stay for whoever reads them: here it is left as
 * it is; tests/unit/user_op_spec adds ops. */
CALL(op_add) {
  neap_op own = *neap_op_find("Relu");
  own.name = "no name";
  neap_status status = neap_op_add(&own, "blocks", error);
  s->number[0] = status == NEAP_NAME;
  return status == NEAP_NAME ? NEAP_OK : status;
}
QUIET(op_remove, neap_op_remove(neap_op_find("Relu")); s->number[0] = neap_op_find("Relu") != NULL)
QUIET(op_origin, s->number[0] = neap_op_origin(neap_op_find("Relu")) == NULL)
/* A plugin that there is tests/unit/user_op_spec loads. */
/* Numbers that no table has, which a gather faults on. */
CALL(call_fault) {
  int64_t ids[] = {0, 9};
  neap_tensor in[2] = {{0}, s->t};
  neap_shape two = NEAP_SHAPE(2);
  NEAP_TRY(neap_tensor_borrow(&in[0], NEAP_DTYPE_I64, &two, ids, NULL, NULL, error));
  neap_status status = neap_run_op("Embedding", 2, in, NULL, 1, &s->out_t, error);
  neap_tensor_fini(&in[0]);
  s->number[0] = status == NEAP_DATA;
  return status == NEAP_DATA ? NEAP_OK : status;
}
CALL(load_ops) {
  (void)s;
  const neap_op *const *ops = NULL;
  neap_status status = neap_load_ops("/nowhere/plugin.so", &ops, error);
  return status == NEAP_IO ? NEAP_OK : status;
}
/* What infer of an op may call, on the types of a Relu. */
CALL(infer_helpers) {
  neap_type in = {NEAP_DTYPE_F32, NEAP_SHAPE(2, 3)}, out = {0};
  const neap_attr_value axis = {.i = 1};
  neap_infer c = {
    .op = neap_op_find("Relu"), .n_in = 1, .n_out = 1, .in = &in, .out = &out, .attrs = &axis};
  NEAP_TRY(neap_infer_admits(&c, error));
  NEAP_TRY(neap_infer_same_dtype(&c, 0, error));
  NEAP_TRY(neap_infer_rank(&c, 0, 1, 3, error));
  NEAP_TRY(neap_infer_expect(&c, 0, &in, error));
  NEAP_TRY(neap_infer_like(&c, error));
  int found = 0;
  NEAP_TRY(neap_infer_axis(&c, 0, 2, &found, error));
  s->number[0] = neap_infer_fail(&c, NEAP_SHAPE, 0, NULL, "no shape");
  return NEAP_OK;
}
CALL(io_write_text) {
  (void)s;
  return neap_io_write_text(saved_path, idx, sizeof idx - 1, error);
}
CALL(batch_reader_new) {
  neap_batch_reader *reader = NULL;
  const neap_batch_field field = {.source = s->t, .dtype = NEAP_DTYPE_F64, .scale = 1};
  const neap_batch_options options = {.n_batch = 2, .n_thread = 2, .n_transform = 0};
  neap_status status = neap_batch_reader_new(1, &field, 3, DIM(2, 0, 1), &options, &reader, error);
  s->number[0] = reader != NULL;
  neap_batch_reader_free(reader);
  return status;
}
QUIET(batch_reader_next, s->number[0] = (double)neap_batch_reader_next(s->reader, &s->out_t, error))
QUIET(batch_reader_free, neap_batch_reader_free(s->reader); s->reader = NULL)
CALL(text_save) {
  (void)s;
  return neap_text_save("a text", saved_path, error);
}

static const entry tensors_entries[] = {
  {"neap_mapped_bytes", 0, call_mapped_bytes, NULL, true},
  {"neap_text_save", 0, call_text_save, NULL, false},
  {"neap_dtype_bytes", 0, call_dtype_bytes, NULL, true},
  {"neap_dtype_name", 0, call_dtype_name, NULL, true},
  {"neap_dtype_from_name", 0, call_dtype_from_name, NULL, true},
  {"neap_dtype_is_float", 0, call_dtype_is_float, NULL, true},
  {"neap_dtype_is_integer", 0, call_dtype_is_integer, NULL, true},
  {"neap_shape_of", 0, call_shape_of, NULL, true},
  {"neap_shape_equal", TENSOR, call_shape_equal, NULL, true},
  {"neap_shape_elems", TENSOR, call_shape_elems, NULL, true},
  {"neap_shape_text", TENSOR, call_shape_text, NULL, true},
  {"neap_tensor_retain", TENSOR, call_tensor_retain, NULL, true},
  {"neap_tensor_fini", TENSOR, call_tensor_fini, NULL, true},
  {"neap_tensor_data", TENSOR, call_tensor_data, NULL, true},
  {"neap_tensor_elems", TENSOR, call_tensor_elems, NULL, true},
  {"neap_tensor_bytes", TENSOR, call_tensor_bytes, NULL, true},
  {"neap_tensor_is_dense", TENSOR, call_tensor_is_dense, NULL, true},
  {"neap_tensor_is_read_only", TENSOR, call_tensor_is_read_only, NULL, true},
  {"neap_tensor_touch", TENSOR, call_tensor_touch, NULL, true},
  {"neap_element_get", TENSOR, call_element_get, NULL, true},
  {"neap_element_get_i64", TENSOR, call_element_get_i64, NULL, true},
  {"neap_element_set", TENSOR, call_element_set, NULL, true},
  {"neap_element_set_i64", TENSOR, call_element_set_i64, NULL, true},
  {"neap_tensor_new", 0, call_tensor_new, NULL, false},
  {"neap_tensor_borrow", 0, call_tensor_borrow, NULL, false},
  {"neap_tensor_narrow", TENSOR, call_tensor_narrow, NULL, false},
  {"neap_tensor_select", TENSOR, call_tensor_select, NULL, false},
  {"neap_tensor_permute", TENSOR, call_tensor_permute, NULL, false},
  {"neap_tensor_expand", TENSOR, call_tensor_expand, NULL, false},
  {"neap_tensor_reshape_view", TENSOR, call_tensor_reshape_view, NULL, false},
  {"neap_tensor_copy", TENSOR, call_tensor_copy, NULL, false},
  {"neap_tensor_clone", TENSOR, call_tensor_clone, NULL, false},
  {"neap_tensor_hash", TENSOR, call_tensor_hash, NULL, false},
  {"neap_tensor_text", TENSOR, call_tensor_text, NULL, false},
  {"neap_op_count", 0, call_op_count, NULL, true},
  {"neap_op_at", 0, call_op_at, NULL, true},
  {"neap_op_find", 0, call_op_find, NULL, true},
  {"neap_op_suggest", 0, call_op_suggest, NULL, true},
  {"neap_op_name", 0, call_op_name, NULL, true},
  {"neap_op_n_attrs", 0, call_op_n_attrs, NULL, true},
  {"neap_op_attr_at", 0, call_op_attr_at, NULL, true},
  {"neap_op_attr_index", 0, call_op_attr_index, NULL, true},
  {"neap_op_n_results", 0, call_op_n_results, NULL, true},
  {"neap_op_read", 0, call_op_read, NULL, true},
  {"neap_op_help", 0, call_op_help, NULL, false},
  {"neap_run_op", TENSOR, call_run_op, NULL, false},
  {"neap_io_load", 0, call_io_load, NULL, false},
  {"neap_io_load", 0, call_io_load_mapped, NULL, false},
  {"neap_io_list_fini", 0, call_io_list_fini, NULL, true},
  {"neap_io_list_find", 0, call_io_list_find, NULL, true},
  {"neap_io_list_meta", 0, call_io_list_meta, NULL, true},
  {"neap_io_save", TENSOR, call_io_save, NULL, false},
  {"neap_io_read_idx", 0, call_io_read_idx, NULL, false},
  {"neap_io_read_text", 0, call_io_read_text, NULL, false},
  {"neap_io_read_gz_bytes", 0, call_io_read_gz_bytes, NULL, false},
  {"neap_io_write_picture", 0, call_io_write_picture, NULL, false},
  {"neap_io_decode_picture", 0, call_io_decode_picture, NULL, false},
  {"neap_io_read_csv", 0, call_io_read_csv, NULL, false},
  {"neap_io_cells_fini", 0, call_io_cells_fini, NULL, true},
  {"neap_io_read_folder", 0, call_io_read_folder, NULL, false},
  {"neap_transform_shape", 0, call_transform_shape, NULL, true},
  {"neap_op_add", 0, call_op_add, NULL, false},
  {"neap_op_remove", 0, call_op_remove, NULL, true},
  {"neap_op_origin", 0, call_op_origin, NULL, true},
  {"neap_call_fault", TENSOR, call_call_fault, NULL, false},
  {"neap_load_ops", 0, call_load_ops, NULL, false},
  {"neap_infer_admits", 0, call_infer_helpers, NULL, true},
  {"neap_infer_same_dtype", 0, call_infer_helpers, NULL, true},
  {"neap_infer_rank", 0, call_infer_helpers, NULL, true},
  {"neap_infer_expect", 0, call_infer_helpers, NULL, true},
  {"neap_infer_axis", 0, call_infer_helpers, NULL, true},
  {"neap_infer_like", 0, call_infer_helpers, NULL, true},
  {"neap_infer_fail", 0, call_infer_helpers, NULL, true},
  {"neap_io_write_text", 0, call_io_write_text, NULL, false},
  {"neap_batch_reader_new", TENSOR, call_batch_reader_new, NULL, false},
  {"neap_batch_reader_next", TENSOR | READER, call_batch_reader_next, NULL, true},
  {"neap_batch_reader_free", TENSOR | READER, call_batch_reader_free, NULL, true},
};

#endif
