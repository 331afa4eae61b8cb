/* tflite.h: scenes of neap/tflite.h, over a file in a folder of its own. */
#ifndef NEAP_TESTS_BLOCKS_TFLITE_H
#define NEAP_TESTS_BLOCKS_TFLITE_H

#include "../tflite_files.h"
#include "call.h"

#include <unistd.h>

static char tflite_path[] = "/tmp/neap-tflite-XXXXXX";

static void make_tflite_files(void) {
  int descriptor = mkstemp(tflite_path);
  if (descriptor < 0) abort();
  close(descriptor);
  CHECK_OK(neap_io_write_text(tflite_path, tflite_model, sizeof tflite_model - 1, &error));
}

static void remove_tflite_files(void) { unlink(tflite_path); }

CALL(tflite_read) {
  neap_tflite_model *model = NULL;
  neap_status status = neap_tflite_read(tflite_path, &model, error);
  if (status == NEAP_OK) s->number[0] = model->graph->op[0].option[3].i;
  neap_tflite_free(model);
  return status;
}
QUIET(tflite_free, neap_tflite_free(NULL))
QUIET(tflite_dtype, s->number[0] = neap_tflite_dtype(9))
QUIET(tflite_type_name, s->number[0] = neap_tflite_type_name(17)[0])

static const entry tflite_entries[] = {
  {"neap_tflite_read", 0, call_tflite_read, NULL, false},
  {"neap_tflite_free", 0, call_tflite_free, NULL, true},
  {"neap_tflite_dtype", 0, call_tflite_dtype, NULL, true},
  {"neap_tflite_type_name", 0, call_tflite_type_name, NULL, true},
};

#endif
