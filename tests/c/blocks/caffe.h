/* caffe.h: scenes of neap/caffe.h, over files in a folder of their own. */
#ifndef NEAP_TESTS_BLOCKS_CAFFE_H
#define NEAP_TESTS_BLOCKS_CAFFE_H

#include "../caffe_files.h"
#include "call.h"

#include <unistd.h>

static char caffe_folder[] = "/tmp/neap-caffe-XXXXXX";

static const char *caffe_path(const char *name) {
  static char path[60];
  snprintf(path, sizeof path, "%s/%s", caffe_folder, name);
  return path;
}

static void make_caffe_files(void) {
  if (mkdtemp(caffe_folder) == NULL) abort();
  CHECK_OK(neap_io_write_text(caffe_path("text"), caffe_text, sizeof caffe_text - 1, &error));
  CHECK_OK(
    neap_io_write_text(caffe_path("weights"), caffe_weights, sizeof caffe_weights - 1, &error));
  CHECK_OK(neap_io_write_text(caffe_path("blob"), caffe_blob, sizeof caffe_blob - 1, &error));
}

static void remove_caffe_files(void) {
  unlink(caffe_path("text")), unlink(caffe_path("weights")), unlink(caffe_path("blob"));
  rmdir(caffe_folder);
}

CALL(caffe_read_text) {
  neap_caffe_text *text = NULL;
  neap_status status = neap_caffe_read_text(caffe_path("text"), &text, error);
  if (status == NEAP_OK)
    for (const neap_caffe_field *f = text->field; f != NULL; f = f->next) s->number[0] += f->line;
  neap_caffe_free_text(text);
  return status;
}
CALL(caffe_read_weights) {
  neap_caffe_weights *weights = NULL;
  neap_status status = neap_caffe_read_weights(caffe_path("weights"), &weights, error);
  if (status == NEAP_OK) s->number[0] = weights->n_layer;
  neap_caffe_free_weights(weights);
  return status;
}
CALL(caffe_read_blob) {
  neap_caffe_weights *weights = NULL;
  neap_status status = neap_caffe_read_blob(caffe_path("blob"), &weights, error);
  if (status == NEAP_OK)
    s->number[0] = (int64_t)((float *)neap_tensor_data(&weights->layer->blob[0]))[1];
  neap_caffe_free_weights(weights);
  return status;
}
QUIET(caffe_free_text, neap_caffe_free_text(NULL))
QUIET(caffe_free_weights, neap_caffe_free_weights(NULL))

static const entry caffe_entries[] = {
  {"neap_caffe_read_text", 0, call_caffe_read_text, NULL, false},
  {"neap_caffe_read_weights", 0, call_caffe_read_weights, NULL, false},
  {"neap_caffe_read_blob", 0, call_caffe_read_blob, NULL, false},
  {"neap_caffe_free_text", 0, call_caffe_free_text, NULL, true},
  {"neap_caffe_free_weights", 0, call_caffe_free_weights, NULL, true},
};

#endif
