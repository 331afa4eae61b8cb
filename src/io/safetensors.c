/* safetensors.c: named tensors in the safetensors format, with its text map.
 *
 * Format: the header's length (u64, little-endian), a JSON object {"name": {"dtype", "shape",
 * "data_offsets"}, .., "__metadata__": {text: text}}, then the data. Offsets count from the data's
 * start.
 * INVARIANT: sorted by offset, the tensors fill the data from its first byte to its last, without
 * overlap or hole. Source: the format's description in huggingface/safetensors, and
 * safetensors.schema.json. JSON by libjansson.
 */
#include "io/io_int.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define METADATA "__metadata__"
#define MOST_HEADER_BYTES ((int64_t)100 << 20) /* the format's own limit */

/* ---- dtypes ---------------------------------------------------------------------------------- */

static const struct {
  const char *name;
  char kind;
  int bytes;
  neap_dtype dtype; /* that is written under this name, or NONE */
} dtypes[] = {
  {"F32", 'f', 4, NEAP_DTYPE_F32},   {"F64", 'f', 8, NEAP_DTYPE_F64},
  {"BF16", 'V', 2, NEAP_DTYPE_BF16}, {"F16", 'f', 2, NEAP_DTYPE_F16},
  {"I8", 'i', 1, NEAP_DTYPE_I8},     {"U8", 'u', 1, NEAP_DTYPE_U8},
  {"I32", 'i', 4, NEAP_DTYPE_I32},   {"I64", 'i', 8, NEAP_DTYPE_I64},
  {"BOOL", 'b', 1, NEAP_DTYPE_BOOL}, {"I16", 'i', 2, NEAP_DTYPE_I16},
  {"U16", 'u', 2, NEAP_DTYPE_U16},   {"U32", 'u', 4, NEAP_DTYPE_NONE},
  {"U64", 'u', 8, NEAP_DTYPE_NONE},
};

/* False for the 8-bit floats and names that are new. */
static bool number_from_name(const char *name, neap_io_number *number) {
  for (int i = 0; i < NEAP_COUNT(dtypes); i++)
    if (strcmp(dtypes[i].name, name) == 0)
      return neap_io_number_of(dtypes[i].kind, dtypes[i].bytes, false, number);
  return false;
}

/* All dtypes are in the table. */
static const char *name_of_dtype(neap_dtype dtype) {
  int i = 0;
  while (dtypes[i].dtype != dtype) i++;
  return dtypes[i].name;
}

/* ---- loading --------------------------------------------------------------------------------- */

/* A tensor as the header describes it. */
typedef struct entry {
  const char *name; /* borrowed from the JSON */
  neap_io_number number;
  neap_shape shape;
  int64_t begin, end; /* bytes, from the data's start */
} entry;

/* At most `most` integers of 0 or more, into out; false for anything else, such as 1.0. */
static bool get_counts(const json_t *array, int most, int64_t *out, int *n) {
  if (!json_is_array(array) || json_array_size(array) > (size_t)most) return false;
  *n = (int)json_array_size(array);
  /* 1.0 is no count: the format has integers there. */
  for (int i = 0; i < *n; i++) {
    const json_t *number = json_array_get(array, (size_t)i);
    if (!json_is_integer(number) || json_integer_value(number) < 0) return false;
    out[i] = json_integer_value(number);
  }
  return true;
}

/* One tensor of the header: dtype, shape, and offsets whose difference is the tensor's size.
 * Unknown keys are let be. */
static neap_status parse_entry(const neap_io_source *source, const char *name, const json_t *value,
                               entry *e, neap_error *error) {
  const char *dtype = json_string_value(json_object_get(value, "dtype"));
  int64_t offset[2], dim[NEAP_MAX_DIM], bytes;
  int n_offset = 0, n_dim = 0;
  /* Dtype, shape, offsets: each is looked at before it is believed. */
  if (dtype == NULL || !number_from_name(dtype, &e->number))
    return neap_io_source_fail(
      source, error, NEAP_DATA, "tensor \"%s\" has %s%s", name,
      dtype == NULL ? "no dtype" : "a dtype that Neap does not hold: ", dtype == NULL ? "" : dtype);
  if (!get_counts(json_object_get(value, "shape"), NEAP_MAX_DIM, dim, &n_dim))
    return neap_io_source_fail(source, error, NEAP_DATA,
                               "tensor \"%s\" has no shape of at most %d counts", name,
                               NEAP_MAX_DIM);
  if (!get_counts(json_object_get(value, "data_offsets"), 2, offset, &n_offset) || n_offset != 2 ||
      offset[1] < offset[0])
    return neap_io_source_fail(source, error, NEAP_DATA,
                               "tensor \"%s\" has no data_offsets [begin, end]", name);
  e->name = name;
  e->shape = neap_shape_of(n_dim, dim);
  e->begin = offset[0];
  e->end = offset[1];
  /* The offsets must be the size that dtype and shape make. */
  char text[NEAP_SHAPE_TEXT];
  if (__builtin_mul_overflow(neap_shape_elems(&e->shape), (int64_t)e->number.bytes, &bytes) ||
      bytes != e->end - e->begin)
    return neap_io_source_fail(
      source, error, NEAP_DATA,
      "tensor \"%s\", %s %s, has %lld bytes of data, which is not its size", name, dtype,
      neap_shape_text(&e->shape, text), (long long)(e->end - e->begin));
  return NEAP_OK;
}

/* "__metadata__" into the list; texts only. */
static neap_status load_meta(const neap_io_source *source, json_t *map, neap_io_list *list,
                             neap_error *error) {
  const char *key;
  json_t *value;
  if (!json_is_object(map))
    return neap_io_source_fail(source, error, NEAP_DATA, "\"" METADATA "\" is not a map of texts");
  /* Texts by name. */
  json_object_foreach(map, key, value) {
    if (!json_is_string(value))
      return neap_io_source_fail(source, error, NEAP_DATA,
                                 "\"" METADATA "\" has a value that is no text, under \"%s\"", key);
    NEAP_TRY(neap_io_list_add_meta(list, key, json_string_value(value), error));
  }
  return NEAP_OK;
}

/* By offset; empty tensors before the one that begins where they lie; then by name, so that the
 * order is one. */
static int compare_entries(const void *a, const void *b) {
  const entry *x = a, *y = b;
  if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
  if (x->end != y->end) return x->end < y->end ? -1 : 1;
  return strcmp(x->name, y->name);
}

/* The file's INVARIANT over the sorted entries. A hole could hide bytes, an overlap could alias two
 * parameters. */
static neap_status check_layout(const neap_io_source *source, const entry *e, int n,
                                int64_t data_bytes, neap_error *error) {
  int64_t past = 0;
  for (int i = 0; i < n; i++) {
    if (e[i].begin != past)
      return neap_io_source_fail(
        source, error, NEAP_DATA,
        "tensor \"%s\" begins at byte %lld of the data, where %lld was expected: %s", e[i].name,
        (long long)e[i].begin, (long long)past,
        e[i].begin < past ? "it overlaps another" : "there is a hole");
    past = e[i].end;
  }
  /* And nothing is left at the end. */
  if (past != data_bytes)
    return neap_io_source_fail(
      source, error, NEAP_DATA,
      "truncated or damaged: the header describes %lld bytes of data, and there are %lld",
      (long long)past, (long long)data_bytes);
  return NEAP_OK;
}

/* Fills entries (room for all of the object's) from the header. */
static neap_status parse_entries(const neap_io_source *source, json_t *root, entry *entries, int *n,
                                 neap_io_list *list, neap_error *error) {
  const char *name;
  json_t *value;
  /* Two tensors of one name have been refused by the reading of the JSON. */
  *n = 0;
  json_object_foreach(root, name, value) {
    if (strcmp(name, METADATA) == 0)
      NEAP_TRY(load_meta(source, value, list, error));
    else
      NEAP_TRY(parse_entry(source, name, value, &entries[(*n)++], error));
  }
  qsort(entries, (size_t)*n, sizeof *entries, compare_entries);
  return NEAP_OK;
}

/* Reads the header as JSON; *data_offset is where the data begins. */
static neap_status read_json(const neap_io_source *source, json_t **root, int64_t *data_offset,
                             neap_error *error) {
  uint64_t n = 0;
  NEAP_TRY(neap_io_source_read(source, 0, &n, 8, "the .safetensors header", error));
  /* The length is looked at before so much is allocated. */
  if (n > (uint64_t)MOST_HEADER_BYTES || (int64_t)n > source->n_bytes - 8)
    return neap_io_source_fail(source, error, NEAP_DATA,
                               "is not a .safetensors file, or truncated: its header claims %llu "
                               "bytes, and the file has %lld",
                               (unsigned long long)n, (long long)source->n_bytes);
  char *text = neap_alloc((size_t)n + 1);
  if (text == NULL) return neap_fail_memory(error, (size_t)n, "a .safetensors header");
  neap_status status =
    neap_io_source_read(source, 8, text, (int64_t)n, "the .safetensors header", error);
  text[n] = '\0';
  if (status == NEAP_OK) {
    /* The format wants the object to begin with the first byte. */
    json_error_t wrong = {0};
    *root = text[0] != '{' ? NULL : json_loadb(text, (size_t)n, JSON_REJECT_DUPLICATES, &wrong);
    if (*root == NULL)
      status = neap_io_source_fail(
        source, error, NEAP_DATA,
        "is not a .safetensors file: its header is not a JSON object (%s, at byte %d)",
        wrong.text[0] != '\0' ? wrong.text : "it does not begin with {", wrong.position);
  }
  neap_free(text);
  *data_offset = 8 + (int64_t)n;
  return status;
}

/* The whole header is checked before the first tensor is made. Items come in the order of their
 * data. */
neap_status neap_io_safetensors_load(const neap_io_source *source, neap_io_list *list,
                                     neap_error *error) {
  json_t *root = NULL;
  int64_t data_offset = 0;
  int n = 0;
  NEAP_TRY(read_json(source, &root, &data_offset, error));
  neap_status status;
  /* Room for every key, the metadata's too. */
  size_t room = (json_object_size(root) + 1) * sizeof(entry);
  entry *entries = neap_alloc(room);
  if (entries == NULL) {
    status = neap_fail_memory(error, room, "a .safetensors header");
    goto done;
  }
  status = parse_entries(source, root, entries, &n, list, error);
  if (status == NEAP_OK)
    status = check_layout(source, entries, n, source->n_bytes - data_offset, error);
  if (status != NEAP_OK) goto done;
  /* What holds is known now; each tensor is read, or is a view of the mapped file. */
  for (int i = 0; i < n; i++) {
    neap_tensor t;
    status = neap_io_number_tensor(source, data_offset + entries[i].begin, &entries[i].number,
                                   &entries[i].shape, &t, error);
    if (status == NEAP_OK)
      status = neap_io_list_add(list, entries[i].name, strlen(entries[i].name), &t, error);
    if (status != NEAP_OK) break;
  }
done:
  neap_free(entries);
  json_decref(root);
  return status;
}

/* ---- saving ---------------------------------------------------------------------------------- */

/* {"dtype": .., "shape": [..], "data_offsets": [begin, end]}; NULL when memory is refused. */
static json_t *describe(const neap_type *type, int64_t begin) {
  json_t *shape = json_array();
  if (shape == NULL) return NULL;
  for (int i = 0; i < type->shape.n_dim; i++)
    if (json_array_append_new(shape, json_integer(type->shape.dim[i])) != 0) {
      json_decref(shape);
      return NULL;
    }
  /* "o" takes the list over. */
  return json_pack("{s:s, s:o, s:[I, I]}", "dtype", name_of_dtype(type->dtype), "shape", shape,
                   "data_offsets", (json_int_t)begin,
                   (json_int_t)begin + (json_int_t)neap_type_bytes(type));
}

/* Sets object[key] = value (taken over). A text that JSON cannot hold is told from refused
 * memory. */
static neap_status set_field(const neap_io_sink *sink, json_t *object, const char *key,
                             json_t *value, neap_error *error) {
  /* libjansson says NULL for both: whether the key makes a text tells them apart. */
  json_t *probe = json_string(key);
  bool is_text = probe != NULL;
  json_decref(probe);
  if (value != NULL && is_text && json_object_set_new(object, key, value) == 0) return NEAP_OK;
  if (value != NULL && is_text)
    return neap_fail_memory(error, strlen(key), "a .safetensors header");
  json_decref(value);
  return neap_fail(error, NEAP_ARGUMENT,
                   "%s: a name, or a text of the metadata, is not UTF-8 (at \"%s\")", sink->path,
                   key);
}

/* The header's object: metadata first, then the tensors in `order`. */
static neap_status describe_all(const neap_io_sink *sink, json_t *root, int n,
                                const neap_io_item *item, const int *order, int n_meta,
                                const neap_io_pair *meta, neap_error *error) {
  if (n_meta > 0) {
    /* An empty map would say nothing. */
    json_t *map = json_object();
    if (map == NULL || json_object_set_new(root, METADATA, map) != 0)
      return neap_fail_memory(error, 64, "a .safetensors header");
    for (int i = 0; i < n_meta; i++)
      NEAP_TRY(set_field(sink, map, meta[i].key, json_string(meta[i].value), error));
  }
  /* Offsets without holes, in the order in which the data will be written. */
  int64_t begin = 0;
  for (int i = 0; i < n; i++) {
    const neap_io_item *it = &item[order[i]];
    neap_type type = neap_tensor_type(&it->tensor);
    /* The one name that means something else. */
    if (strcmp(it->name, METADATA) == 0)
      return neap_fail(error, NEAP_ARGUMENT,
                       "%s: a tensor cannot be named \"" METADATA "\" in a .safetensors file",
                       sink->path);
    json_t *description = describe(&type, begin);
    if (description == NULL) return neap_fail_memory(error, 64, "a .safetensors header");
    NEAP_TRY(set_field(sink, root, it->name, description, error));
    begin += (int64_t)neap_type_bytes(&type);
  }
  return NEAP_OK;
}

/* The length, the JSON, and blanks up to a multiple of 64, so that the data is aligned when the
 * file is mapped. */
static neap_status write_header(neap_io_sink *sink, const json_t *root, neap_error *error) {
  static const char blanks[NEAP_ALIGN + 1] =
    "                                                                ";
  char *text = json_dumps(root, JSON_COMPACT);
  if (text == NULL) return neap_fail_memory(error, 64, "a .safetensors header");
  size_t n = strlen(text);
  /* Eight bytes of length stand before the text. */
  uint64_t padded = neap_align(8 + n) - 8;
  neap_status status = NEAP_OK;
  if (padded > (uint64_t)MOST_HEADER_BYTES)
    status = neap_fail(
      error, NEAP_ARGUMENT,
      "%s: names and metadata need %zu bytes, and a .safetensors header has at most 100 MiB",
      sink->path, n);
  if (status == NEAP_OK) status = neap_io_sink_write(sink, &padded, 8, error);
  if (status == NEAP_OK) status = neap_io_sink_write(sink, text, n, error);
  if (status == NEAP_OK) status = neap_io_sink_write(sink, blanks, (size_t)padded - n, error);
  free(text);
  return status;
}

/* order: wide dtypes first, else as given. So every tensor lies at a multiple of its element's
 * size, without holes. */
static void make_order(int n, const neap_io_item *item, int *order) {
  /* Stable: tensors of one width stay in the order given. */
  int m = 0;
  for (size_t width = 8; width > 0; width /= 2)
    for (int i = 0; i < n; i++)
      if (neap_dtype_bytes(item[i].tensor.dtype) == width) order[m++] = i;
}

neap_status neap_io_safetensors_save(neap_io_sink *sink, int n, const neap_io_item *item,
                                     int n_meta, const neap_io_pair *meta, neap_error *error) {
  neap_status status;
  int *order = neap_alloc((size_t)n * sizeof *order);
  json_t *root = json_object();
  if (order == NULL || root == NULL) {
    status = neap_fail_memory(error, (size_t)n * sizeof *order, "a .safetensors header");
    goto done;
  }
  /* The header names every offset before the first byte of data is written. */
  make_order(n, item, order);
  status = describe_all(sink, root, n, item, order, n_meta, meta, error);
  if (status == NEAP_OK) status = write_header(sink, root, error);
  if (status != NEAP_OK) goto done;
  for (int i = 0; i < n; i++) {
    neap_tensor dense;
    status = neap_io_dense(&item[order[i]].tensor, &dense, error);
    if (status != NEAP_OK) break;
    neap_type type = neap_tensor_type(&dense);
    status = neap_io_sink_write(sink, neap_tensor_data(&dense), neap_type_bytes(&type), error);
    neap_tensor_fini(&dense);
    if (status != NEAP_OK) break;
  }
done:
  json_decref(root);
  neap_free(order);
  return status;
}
