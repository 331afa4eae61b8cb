/* onnx_meta.c: pairs of texts that exporters put beside parts of a model, "metadata_props". Later
 * versions of ONNX's schema have them at graphs and values; of the schema that is built with they
 * may be fields or, unknown to it, bytes that protobuf-c has kept.
 */
#include "import/onnx_int.h"

#include <string.h>

/* The pair of a message; its texts lie in the message. */
static neap_onnx_meta pair_of(const Onnx__StringStringEntryProto *from) {
  return (neap_onnx_meta){from->key != NULL ? from->key : "",
                          from->value != NULL ? from->value : ""};
}

static bool is_wanted(const neap_onnx_meta *meta, const char *key) {
  return key == NULL || strcmp(meta->key, key) == 0;
}

/* A copy in the arena. NULL and a MEMORY error when there is no room. */
static const char *text_in_room(neap_onnx_file *file, const char *text, neap_error *error) {
  const size_t n = strlen(text) + 1;
  char *copy = neap_onnx_room(file, n, 1, error);
  if (copy != NULL) memcpy(copy, text, n);
  return copy;
}

/* The pair in a field that the schema does not know, where it is wanted; else out->key is NULL. */
static neap_status take_unknown(neap_onnx_file *file, const ProtobufCMessageUnknownField *field,
                                const char *key, neap_onnx_meta *out, neap_error *error) {
  /* The bytes begin with their own length, of seven bits a byte. */
  size_t at = 0;
  while (at < field->len && (field->data[at] & 128) != 0) at++;
  if (at < field->len) at++;

  bool refused = false;
  ProtobufCAllocator allocator = neap_proto_allocator(&refused);
  Onnx__StringStringEntryProto *pair =
    onnx__string_string_entry_proto__unpack(&allocator, field->len - at, field->data + at);
  if (pair == NULL)
    return refused ? neap_fail_memory(error, field->len, "an ONNX file")
                   : neap_onnx_fail(file, error, NEAP_DATA, "metadata are no pair of texts");

  /* The message goes, its texts stay. */
  const neap_onnx_meta meta = pair_of(pair);
  const bool wanted = is_wanted(&meta, key);
  *out = (neap_onnx_meta){NULL, NULL};
  if (wanted) out->key = text_in_room(file, meta.key, error);
  if (out->key != NULL) out->value = text_in_room(file, meta.value, error);
  onnx__string_string_entry_proto__free_unpacked(pair, &allocator);
  return wanted && out->value == NULL ? NEAP_MEMORY : NEAP_OK;
}

static bool is_pair(const ProtobufCMessageUnknownField *field, unsigned tag) {
  return field->tag == tag && field->wire_type == PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED;
}

neap_status neap_onnx_take_meta(neap_onnx_file *file, const ProtobufCMessage *from, unsigned tag,
                                const char *key, int *n_out, const neap_onnx_meta **out,
                                neap_error *error) {
  const ProtobufCFieldDescriptor *known =
    protobuf_c_message_descriptor_get_field(from->descriptor, tag);
  NEAP_ASSERT(known == NULL || known->descriptor == &onnx__string_string_entry_proto__descriptor,
              "field %u of %s is a list of pairs", tag, from->descriptor->name);
  size_t n = 0, k = 0;
  const char *bytes = (const char *)from;
  if (known != NULL)
    memcpy(&n, bytes + known->quantifier_offset, sizeof n);
  else
    for (unsigned i = 0; i < from->n_unknown_fields; i++)
      n += is_pair(&from->unknown_fields[i], tag);
  *n_out = 0;
  if (n == 0) return NEAP_OK;
  neap_onnx_meta *list = neap_onnx_room(file, n, sizeof *list, error);
  if (list == NULL) return NEAP_MEMORY;

  if (known != NULL) {
    Onnx__StringStringEntryProto **pair;
    memcpy(&pair, bytes + known->offset, sizeof pair);
    for (size_t i = 0; i < n; i++) {
      list[k] = pair_of(pair[i]);
      k += is_wanted(&list[k], key);
    }
  } else {
    for (unsigned i = 0; i < from->n_unknown_fields; i++) {
      if (!is_pair(&from->unknown_fields[i], tag)) continue;
      NEAP_TRY(take_unknown(file, &from->unknown_fields[i], key, &list[k], error));
      k += list[k].key != NULL;
    }
  }
  *out = list;
  *n_out = (int)NEAP_MIN(k, (size_t)INT_MAX);
  return NEAP_OK;
}
