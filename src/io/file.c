/* file.c: which format reads or writes a file of named tensors. */
#include "io/picture.h"

#include <stdlib.h>
#include <string.h>

static int compare_texts(const void *a, const void *b) {
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Fails with `code` when two items have one name. Sorted, doubles are neighbours: quick for many
 * hostile names too. */
static neap_status check_unique(const char *path, int n, const neap_io_item *item, neap_status code,
                                neap_error *error) {
  const char **names = neap_alloc((size_t)n * sizeof *names);
  if (names == NULL) return neap_fail_memory(error, (size_t)n * sizeof *names, "a list of names");
  /* The names are sorted, not the items, whose order is the caller's. */
  for (int i = 0; i < n; i++) names[i] = item[i].name;
  qsort(names, (size_t)n, sizeof *names, compare_texts);
  neap_status status = NEAP_OK;
  for (int i = 1; i < n; i++) {
    if (strcmp(names[i - 1], names[i]) != 0) continue;
    status = neap_fail(error, code, "%s: two tensors are named \"%s\"", path, names[i]);
    break;
  }
  neap_free(names);
  return status;
}

typedef enum format { NPY, NPZ, SAFETENSORS, PICTURE, SOUND, UNKNOWN } format;

/* By the path's ending. */
static format format_of(const char *path) {
  static const struct {
    const char *ending;
    format format;
  } known[] = {{".npy", NPY},     {".npz", NPZ},     {".safetensors", SAFETENSORS},
               {".png", PICTURE}, {".jpg", PICTURE}, {".jpeg", PICTURE},
               {".wav", SOUND}};
  for (int i = 0; i < NEAP_COUNT(known); i++)
    if (neap_io_ends_in(path, known[i].ending)) return known[i].format;
  return UNKNOWN;
}

/* By the first bytes, which say more than the name does; else what the name says. "PK" begins a zip
 * archive, an empty one too. */
static format format_by(const char *start, size_t n, const char *path) {
  if (n >= 4 && (memcmp(start, "PK\x03\x04", 4) == 0 || memcmp(start, "PK\x05\x06", 4) == 0))
    return NPZ;
  if (n >= 6 && memcmp(start, NEAP_IO_NPY_MAGIC, 6) == 0) return NPY;
  if (neap_io_is_picture(start, n)) return PICTURE;
  if (neap_io_is_sound(start, n)) return SOUND;
  return format_of(path);
}

/* A picture or a sound: libraries take all bytes of the file. */
static neap_status load_whole(const neap_io_source *source, format f, neap_io_list *list,
                              neap_error *error) {
  neap_storage *bytes = NULL;
  neap_tensor t = {0};
  NEAP_TRY(neap_io_source_storage(source, 0, source->n_bytes, "the file", &bytes, error));
  const char *data = neap_storage_data(bytes);
  size_t n = (size_t)source->n_bytes;
  neap_status status = f == SOUND ? neap_io_sound_load(source->path, data, n, list, error)
                                  : neap_io_decode_picture(source->path, data, n, 0, &t, error);
  neap_storage_release(bytes);
  if (status != NEAP_OK || f == SOUND) return status;
  return neap_io_list_add(list, "", 0, &t, error);
}

/* Chooses the reader. A .npy file is a list of one tensor without a name. */
static neap_status load_from(const neap_io_source *source, neap_io_map map, neap_io_list *list,
                             neap_error *error) {
  char start[12] = {0};
  int64_t n = NEAP_MIN(source->n_bytes, 12);
  NEAP_TRY(neap_io_source_read(source, 0, start, n, "the first bytes", error));
  format f = format_by(start, (size_t)n, source->path);
  if (f == PICTURE || f == SOUND) return load_whole(source, f, list, error);
  if (f == NPZ) return neap_io_npz_load(source, map, list, error);
  if (f != NPY) return neap_io_safetensors_load(source, list, error);
  /* One tensor, and a list around it. */
  neap_tensor t;
  NEAP_TRY(neap_io_npy_load(source, map != NEAP_IO_COPY, &t, error));
  return neap_io_list_add(list, "", 0, &t, error);
}

neap_status neap_io_load(const char *path, neap_io_map map, neap_io_list *list, neap_error *error) {
  neap_io_source source;
  *list = (neap_io_list){0};
  NEAP_TRY(neap_io_source_open(&source, path, map, error));
  neap_status status = load_from(&source, map, list, error);
  /* Two tensors of one name: one of them could not be had. */
  if (status == NEAP_OK) status = check_unique(path, list->n_item, list->item, NEAP_DATA, error);
  neap_io_source_fini(&source);
  if (status != NEAP_OK) neap_io_list_fini(list);
  return status;
}

/* Whether its one tensor has no name. */
static bool is_of_one(format f) { return f == NPY || f == PICTURE || f == SOUND; }

/* What can be known to be wrong before the file is touched. */
static neap_status check_save(const char *path, int n, const neap_io_item *item, int n_meta,
                              neap_error *error) {
  format f = format_of(path);
  if (f == UNKNOWN)
    return neap_fail(
      error, NEAP_ARGUMENT,
      "%s: a file of tensors ends in .npy, .npz or .safetensors, a picture in .png or "
      ".jpg, a sound in .wav",
      path);
  if (is_of_one(f) && n != 1)
    return neap_fail(error, NEAP_ARGUMENT, "%s: a %s file holds one tensor, got %d", path,
                     strrchr(path, '.'), n);
  if (f != SAFETENSORS && f != SOUND && n_meta > 0)
    return neap_fail(error, NEAP_ARGUMENT, "%s: only a .safetensors file holds metadata", path);
  /* Items must hold something, and be found again by name where the format has names. */
  for (int i = 0; i < n; i++) {
    if (item[i].tensor.storage == NULL)
      return neap_fail(error, NEAP_ARGUMENT, "%s: item %d holds no tensor", path, i);
    if (!is_of_one(f) && (item[i].name == NULL || item[i].name[0] == '\0'))
      return neap_fail(error, NEAP_ARGUMENT, "%s: tensor %d has no name", path, i);
  }
  return NEAP_OK;
}

/* A picture or a sound, which its library makes whole. */
static neap_status save_whole(const char *path, const neap_tensor *t, int n_meta,
                              const neap_io_pair *meta, neap_error *error) {
  neap_tensor dense;
  NEAP_TRY(neap_io_dense(t, &dense, error));
  neap_status status = format_of(path) == SOUND
                         ? neap_io_sound_save(path, &dense, n_meta, meta, error)
                         : neap_io_picture_save(path, &dense, error);
  neap_tensor_fini(&dense);
  return status;
}

/* Chooses the writer; the ending is one of tensors by now. */
static neap_status save_to(neap_io_sink *sink, int n, const neap_io_item *item, int n_meta,
                           const neap_io_pair *meta, neap_error *error) {
  format f = format_of(sink->path);
  if (f == NPZ) return neap_io_npz_save(sink, n, item, error);
  if (f == SAFETENSORS) return neap_io_safetensors_save(sink, n, item, n_meta, meta, error);
  /* A .npy file: the one tensor, copied first where it isn't dense. */
  neap_tensor dense;
  NEAP_TRY(neap_io_dense(&item[0].tensor, &dense, error));
  neap_status status = neap_io_npy_save(sink, &dense, error);
  neap_tensor_fini(&dense);
  return status;
}

/* A failure removes the temporary file and leaves an older file of that name as it was. */
neap_status neap_io_save(const char *path, int n, const neap_io_item *item, int n_meta,
                         const neap_io_pair *meta, neap_error *error) {
  neap_io_sink sink;
  /* Nothing on the disk changes before all that can be known to be wrong has been looked at. */
  NEAP_TRY(check_save(path, n, item, n_meta, error));
  format f = format_of(path);
  if (f == PICTURE || f == SOUND) return save_whole(path, &item[0].tensor, n_meta, meta, error);
  if (f != NPY) NEAP_TRY(check_unique(path, n, item, NEAP_ARGUMENT, error));
  NEAP_TRY(neap_io_sink_open(&sink, path, error));
  neap_status status = save_to(&sink, n, item, n_meta, meta, error);
  if (status == NEAP_OK) return neap_io_sink_commit(&sink, error);
  neap_io_sink_abort(&sink);
  return status;
}
