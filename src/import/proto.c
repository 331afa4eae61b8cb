/* proto.c: files of protobuf messages, and a look at the wire format before it is unpacked.
 * protobuf-c calls itself for each message within a message, as deep as the bytes say, and merges
 * an optional message that comes twice: neither is for bytes that nobody has looked at.
 *
 * Each byte is read once for each message around it, so that the work is bytes times depth.
 */
#include "import/proto_int.h"

enum {
  /* Three messages a subgraph: some thirty subgraphs within each other. */
  MOST_DEPTH = 100,
  MOST_TAG = 64 /* of the fields whose coming twice is noticed: the schema's are below */
};

typedef struct skim {
  const char *path, *what;
  const uint8_t *begin; /* of the file, for offsets in messages */
  neap_error *error;
} skim;

static neap_status fail_at(const skim *s, const uint8_t *at, const char *what) {
  return neap_fail(s->error, NEAP_DATA, "%s: damaged, or no %s: %s at byte %lld", s->path, s->what,
                   what, (long long)(at - s->begin));
}

/* The number at *at, which moves behind it; false where it ends late or never. */
static bool read_number(const uint8_t **at, const uint8_t *end, uint64_t *out) {
  *out = 0;
  /* Seven bits a byte, the lowest first; the highest bit says that more follow. Ten bytes hold
   * 64. */
  for (int shift = 0; shift < 70; shift += 7) {
    if (*at == end) return false;
    uint8_t byte = *(*at)++;
    if (shift < 64) *out |= (uint64_t)(byte & 127) << shift;
    if (byte < 128) return true;
  }
  return false;
}

/* Looks at the fields of the message in [at, end), and at those of the messages within it. The
 * descriptor says which fields are messages: by the bytes alone these are like texts. */
static neap_status skim_message(const skim *s, const ProtobufCMessageDescriptor *descriptor,
                                const uint8_t *at, const uint8_t *end, int depth) {
  uint64_t seen = 0;
  if (depth == MOST_DEPTH) return fail_at(s, at, "messages are nested too deeply");
  while (at < end) {
    /* A field: its tag and kind, and for most kinds how long it is. */
    const uint8_t *from = at;
    uint64_t key, n = 0;
    if (!read_number(&at, end, &key)) return fail_at(s, from, "a field's number does not end");
    int kind = (int)(key & 7);
    uint64_t tag = key >> 3;
    if (tag == 0 || tag > UINT32_MAX >> 3) return fail_at(s, from, "a field has no number");
    if (kind == 0) {
      if (!read_number(&at, end, &key)) return fail_at(s, from, "a number does not end");
      continue;
    }
    /* Kinds of the wire: 0 a number, 1 eight bytes, 2 a length and so many bytes, 5 four bytes.
     * There were groups once, 3 and 4, which no schema here has. */
    if (kind == 2 && !read_number(&at, end, &n)) return fail_at(s, from, "a length does not end");
    if (kind == 1) n = 8;
    if (kind == 5) n = 4;
    if (kind != 1 && kind != 2 && kind != 5)
      return fail_at(s, from, "a field of a kind that there is not");
    if (n > (uint64_t)(end - at)) return fail_at(s, from, "a field is longer than what is left");
    /* A message within this one is looked at in the same way. One that may come once comes once. */
    const ProtobufCFieldDescriptor *field =
      protobuf_c_message_descriptor_get_field(descriptor, (unsigned)tag);
    if (kind == 2 && field != NULL && field->type == PROTOBUF_C_TYPE_MESSAGE) {
      NEAP_TRY(skim_message(s, field->descriptor, at, at + n, depth + 1));
      bool once = field->label != PROTOBUF_C_LABEL_REPEATED && tag < MOST_TAG;
      if (once && (seen >> tag & 1) != 0) return fail_at(s, from, "a field comes twice");
      if (once) seen |= (uint64_t)1 << tag;
    }
    at += n;
  }
  return NEAP_OK;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void *take(void *refused, size_t bytes) {
  void *block = neap_alloc(bytes);
  if (block == NULL) *(bool *)refused = true;
  return block;
}

static void give(void *refused, void *block) {
  (void)refused;
  neap_free(block);
}

ProtobufCAllocator neap_proto_allocator(bool *refused) {
  return (ProtobufCAllocator){take, give, refused};
}

/* ---- files ----------------------------------------------------------------------------------- */

/* Memory for a message that is made of a file's mapped bytes. protobuf-c copies all of them, so
 * that a file of weights would be in memory twice at the end: pages that have been read are given
 * back to the system whenever that much has been asked for. What is read again is still there, in
 * the file. */
typedef struct unpacking {
  bool refused;
  void *bytes; /* the mapped file's, borrowed */
  size_t n, taken;
} unpacking;

enum { GIVE_BACK_BYTES = 8 << 20 };

static void *take_unpacked(void *context, size_t bytes) {
  unpacking *u = context;
  u->taken = bytes > SIZE_MAX - u->taken ? SIZE_MAX : u->taken + bytes;
  if (u->taken >= GIVE_BACK_BYTES) {
    neap_memory_give_back(u->bytes, u->n);
    u->taken = 0;
  }
  return take(&u->refused, bytes);
}

neap_status neap_proto_unpack(const char *path, const char *what,
                              const ProtobufCMessageDescriptor *descriptor, ProtobufCMessage **out,
                              neap_error *error) {
  neap_storage *bytes = NULL;
  int64_t n;
  *out = NULL;
  NEAP_TRY(neap_io_map_file(path, &bytes, &n, error));
  const uint8_t *data = bytes != NULL ? (const uint8_t *)neap_storage_data(bytes) : NULL;
  neap_status status = NEAP_OK;
  if (n == 0)
    status = neap_fail(error, NEAP_DATA, "%s: the file is empty", path);
  else {
    skim s = {path, what, data, error};
    status = skim_message(&s, descriptor, data, data + n, 0);
  }

  /* NULL is all that protobuf-c tells; whether memory was lacking the allocator has seen. */
  if (status == NEAP_OK) {
    unpacking u = {.bytes = neap_storage_data(bytes), .n = (size_t)n};
    ProtobufCAllocator allocator = {take_unpacked, give, &u};
    *out = protobuf_c_message_unpack(descriptor, &allocator, (size_t)n, data);
    if (*out == NULL && u.refused) status = neap_fail_memory(error, (size_t)n, what);
    if (*out == NULL && !u.refused)
      status = neap_fail(error, NEAP_DATA, "%s: damaged, or no %s", path, what);
  }
  neap_storage_release(bytes);
  return status;
}
