/* onnx.h: scenes of neap/onnx.h, over files in a folder of their own. */
#ifndef NEAP_TESTS_BLOCKS_ONNX_H
#define NEAP_TESTS_BLOCKS_ONNX_H

#include "../onnx_files.h"
#include "call.h"

#include <unistd.h>

static const char *onnx_path(const char *name) {
  static char path[60];
  snprintf(path, sizeof path, "%s/%s", onnx_folder, name);
  return path;
}

static void make_onnx_files(void) {
  if (mkdtemp(onnx_folder) == NULL) abort();
  CHECK_OK(neap_io_write_text(onnx_path("m.onnx"), onnx_model, sizeof onnx_model - 1, &error));
  CHECK_OK(neap_io_write_text(onnx_path("t.pb"), onnx_tensor, sizeof onnx_tensor - 1, &error));
  CHECK_OK(neap_io_write_text(onnx_path("w.bin"), "12345678", 8, &error));
}

static void remove_onnx_files(void) {
  unlink(onnx_path("m.onnx")), unlink(onnx_path("t.pb")), unlink(onnx_path("w.bin"));
  unlink(onnx_path("copy.onnx"));
  rmdir(onnx_folder);
}

CALL(onnx_read) {
  neap_onnx_model *model = NULL;
  neap_status status = neap_onnx_read(onnx_path("m.onnx"), &model, error);
  if (status == NEAP_OK)
    s->number[0] = model->graph.n_node, s->number[1] = model->graph.n_initializer;
  neap_onnx_free(model);
  return status;
}
CALL(onnx_read_tensor) {
  neap_onnx_model *model = NULL;
  neap_status status = neap_onnx_read_tensor(onnx_path("t.pb"), &model, error);
  if (status == NEAP_OK)
    s->number[0] = ((int32_t *)neap_tensor_data(&model->graph.initializer->tensor))[2];
  neap_onnx_free(model);
  return status;
}
CALL(onnx_write) {
  neap_onnx_model *model = NULL;
  neap_status status = neap_onnx_read(onnx_path("m.onnx"), &model, error);
  if (status == NEAP_OK) {
    s->number[0] = model->graph.n_node;
    status = neap_onnx_write(model, onnx_path("copy.onnx"), 0, error);
  }
  neap_onnx_free(model);
  return status;
}
QUIET(onnx_free, neap_onnx_free(NULL))
QUIET(onnx_dtype, s->number[0] = neap_onnx_dtype(16))
QUIET(onnx_type_name, s->number[0] = neap_onnx_type_name(12)[0])

static const entry onnx_entries[] = {
  {"neap_onnx_read", 0, call_onnx_read, NULL, false},
  {"neap_onnx_read_tensor", 0, call_onnx_read_tensor, NULL, false},
  {"neap_onnx_write", 0, call_onnx_write, NULL, false},
  {"neap_onnx_free", 0, call_onnx_free, NULL, true},
  {"neap_onnx_dtype", 0, call_onnx_dtype, NULL, true},
  {"neap_onnx_type_name", 0, call_onnx_type_name, NULL, true},
};

#endif
