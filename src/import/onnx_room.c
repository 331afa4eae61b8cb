/* onnx_room.c: what every reader of a part of an ONNX file uses: room that lives as long as the
 * file, and an error that says in which node and which part of it something is wrong. */
#include "import/onnx_int.h"

#include <stdarg.h>
#include <stdio.h>

neap_status neap_onnx_fail(const neap_onnx_file *file, neap_error *error, neap_status code,
                           const char *format, ...) {
  char text[400];
  va_list args;
  va_start(args, format);
  neap_format_list(text, sizeof text, format, args);
  va_end(args);
  return neap_fail(error, code, "%s: %s%s%s%s%s", file->path, file->node,
                   file->node[0] != '\0' ? ", " : "", file->part, file->part[0] != '\0' ? ": " : "",
                   text);
}

void *neap_onnx_room(neap_onnx_file *file, size_t n, size_t bytes, neap_error *error) {
  size_t all;
  void *room = NULL;
  if (!__builtin_mul_overflow(n, bytes, &all)) room = neap_arena_alloc(&file->arena, all);
  if (room == NULL) neap_fail_memory(error, bytes, "an ONNX file");
  return room;
}
