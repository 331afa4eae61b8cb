/* common.c: what the public functions share: options as text, figures and texts given. */
#include "api/api.h"

#include <stdio.h>

const char *neap_version(void) { return NEAP_VERSION; }

bool neap_engine_list(int i, neap_engine_row *row) {
  const neap_engine_record *engine = i < 0 ? NULL : neap_engine_at((neap_engine)i);
  if (engine == NULL) return false;
  /* An engine that is missing has no version to say. */
  *row = (neap_engine_row){engine->name, engine->doc, engine->missing(), ""};
  if (engine->version != NULL && row->missing == NULL) engine->version(row->version);
  return true;
}

void neap_interrupt(bool stop) { neap_interrupted = stop; }

neap_status neap_api_give_text(neap_buffer *buffer, char **out, neap_error *error) {
  /* A text of no letters is a text too. */
  if (buffer->text == NULL && !buffer->failed) neap_buffer_add(buffer, "%s", "");
  if (buffer->failed) {
    neap_buffer_fini(buffer);
    return neap_fail_memory(error, 256, "a text");
  }
  *out = buffer->text;
  return NEAP_OK;
}

neap_status neap_options_json(const neap_options *options, char **out, neap_error *error) {
  neap_buffer text = {0};
  *out = NULL;
  NEAP_TRY(neap_options_check(options, NEAP_FACE_ALL, __func__, error));
  neap_options_print_json(options, &text);
  return neap_api_give_text(&text, out, error);
}
