/* proto_int.h: files of protobuf messages, for all who read them; private to this room. */
#ifndef NEAP_IMPORT_PROTO_INT_H
#define NEAP_IMPORT_PROTO_INT_H

#include "import/import.h"

#include <protobuf-c/protobuf-c.h>

/* The file's bytes as a message of the descriptor, unpacked by protobuf-c after a look at them: no
 * deeper than is read, with lengths that fit within each other. `what` says in messages what the
 * file should be ("ONNX file"). The caller frees *out with neap_proto_allocator's functions. */
neap_status neap_proto_unpack(const char *path, const char *what,
                              const ProtobufCMessageDescriptor *descriptor, ProtobufCMessage **out,
                              neap_error *error);
/* Counted memory for protobuf-c; *refused is set when some is not to be had. */
ProtobufCAllocator neap_proto_allocator(bool *refused);

#endif
