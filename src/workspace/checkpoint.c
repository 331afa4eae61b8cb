/* checkpoint.c: parameters, state and strings of a workspace as one safetensors file, with seed and
 * step in its metadata. A string of any bytes is a tensor of u8, whose name the metadata lists.
 *
 * INVARIANT: a load that fails has changed nothing: the whole file is checked against the blobs
 * before the first is written.
 */
#include "io/io.h"
#include "workspace/workspace_int.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define META_SEED "neap.seed"
#define META_STEP "neap.step"
#define META_STRINGS "neap.strings"
#define META_DRAW "neap.draw" /* only where it counts: a workspace that draws by itself */

/* What training changes and a later run needs: neither gradients nor inputs nor outputs. */
static bool is_saved(const neap_cell *cell) {
  bool role = cell->region == NEAP_REGION_PARAMETER || cell->region == NEAP_REGION_STATE;
  return role && cell->filled && cell->tensor.storage != NULL;
}

/* The bytes of a string as a tensor, owned. */
static neap_status tensor_of_text(const neap_cell *cell, neap_tensor *out, neap_error *error) {
  const neap_shape shape = {.n_dim = 1, .dim = {(int64_t)cell->text_bytes}};
  NEAP_TRY(neap_tensor_new(out, NEAP_DTYPE_U8, &shape, error));
  neap_copy_bytes(neap_tensor_data(out), cell->text, cell->text_bytes);
  return NEAP_OK;
}

/* Adds the workspace's strings to the list from item `n` on, their tensors owned, and their names
 * to `strings`. */
static neap_status add_strings(neap_workspace *ws, neap_io_item *item, int *n, neap_buffer *strings,
                               neap_error *error) {
  for (int c = 0; c < ws->n_cell; c++) {
    neap_cell *cell = &ws->cell[c];
    if (cell->text == NULL) continue;
    neap_tensor bytes;
    NEAP_TRY(tensor_of_text(cell, &bytes, error));
    item[(*n)++] = (neap_io_item){(char *)(uintptr_t)cell->name, bytes};
    neap_buffer_add(strings, "%s\n", cell->name);
  }
  return strings->failed ? neap_fail_memory(error, 64, "a checkpoint's list") : NEAP_OK;
}

/* Own blobs only: a parent's are in the parent's checkpoint. Texts borrowed from the caller come
 * last. */
neap_status neap_workspace_save(neap_workspace *ws, const char *path, int n_meta,
                                const neap_io_pair *more, neap_error *error) {
  size_t room = (size_t)ws->n_cell * sizeof(neap_io_item);
  neap_io_item *item = neap_alloc(room);
  neap_io_pair *meta = neap_alloc(((size_t)n_meta + 6) * sizeof *meta);
  neap_buffer state = {0}, strings = {0};
  neap_status status = NEAP_OK;
  int n = 0, n_tensor = 0;
  neap_buffer_add(&state, "%s", "");
  if (item == NULL || meta == NULL) {
    status = neap_fail_memory(error, room, "a checkpoint's list");
    goto done;
  }

  /* Tensors are borrowed, and only read. */
  for (int c = 0; c < ws->n_cell; c++) {
    neap_cell *cell = &ws->cell[c];
    if (!is_saved(cell)) continue;
    item[n++] = (neap_io_item){(char *)(uintptr_t)cell->name, cell->tensor};
    if (cell->region == NEAP_REGION_STATE) neap_buffer_add(&state, "%s\n", cell->name);
  }

  /* Behind them the strings, whose tensors are made here and freed below. */
  n_tensor = n;
  status = state.failed ? neap_fail_memory(error, room, "a checkpoint's list")
                        : add_strings(ws, item, &n, &strings, error);
  if (status != NEAP_OK) goto done;

  /* Numbers are texts in the metadata of safetensors. */
  char seed[24], step[24], draw[24];
  snprintf(seed, sizeof seed, "%" PRIu64, ws->seed);
  snprintf(step, sizeof step, "%" PRIu32, ws->step);
  snprintf(draw, sizeof draw, "%" PRIu32, ws->draw);

  /* What Neap says of the file, then what the caller adds. */
  meta[0] = (neap_io_pair){NEAP_META_VERSION, NEAP_VERSION};
  meta[1] = (neap_io_pair){META_SEED, seed};
  meta[2] = (neap_io_pair){META_STEP, step};
  meta[3] = (neap_io_pair){NEAP_META_STATE, state.text};
  int n_own = 4;
  if (!ws->draws_by_thread) meta[n_own++] = (neap_io_pair){META_DRAW, draw};
  if (n > n_tensor) meta[n_own++] = (neap_io_pair){META_STRINGS, strings.text};
  if (n_meta > 0) memcpy(meta + n_own, more, (size_t)n_meta * sizeof *meta);
  status = neap_io_save(path, n, item, n_meta + n_own, meta, error);
done:
  for (int i = n_tensor; i < n; i++) neap_tensor_fini(&item[i].tensor);
  neap_free(meta);
  neap_buffer_fini(&state);
  neap_buffer_fini(&strings);
  neap_free(item);
  return status;
}

/* ---- loading --------------------------------------------------------------------------------- */

/* Whether `name` is one of the lines of `list`. */
static bool is_listed(const char *list, const char *name) {
  size_t n = strlen(name);
  for (const char *at = list; at != NULL && *at != '\0';) {
    if (strncmp(at, name, n) == 0 && (at[n] == '\n' || at[n] == '\0')) return true;
    const char *end = strchr(at, '\n');
    at = end != NULL ? end + 1 : NULL;
  }
  return false;
}

/* *out is left alone when the file does not say. */
static neap_status read_number(const neap_io_list *list, const char *key, const char *path,
                               uint64_t most, uint64_t *out, neap_error *error) {
  const char *text = neap_io_list_meta(list, key);
  if (text == NULL) return NEAP_OK; /* a file of weights from elsewhere: seed and step stay */
  char *end;
  uint64_t number = strtoull(text, &end, 10);
  if (text[0] < '0' || text[0] > '9' || *end != '\0' || number > most)
    return neap_fail(error, NEAP_DATA, "%s: %s is \"%.40s\", expected a whole number", path, key,
                     text);
  *out = number;
  return NEAP_OK;
}

/* Whether item `i` of the file is a string; DATA error for one that can't be. */
static neap_status look_for_string(const neap_io_list *list, int i, bool *is_string,
                                   neap_error *error) {
  neap_type type = neap_tensor_type(&list->item[i].tensor);
  *is_string = is_listed(neap_io_list_meta(list, META_STRINGS), list->item[i].name);
  if (!*is_string || (type.dtype == NEAP_DTYPE_U8 && type.shape.n_dim == 1)) return NEAP_OK;
  return neap_fail(error, NEAP_DATA, "load \"%s\": is said to be a string, and is no list of bytes",
                   list->item[i].name);
}

/* A string may take the place of a string, or of nothing; a tensor that of a tensor. */
static neap_status check_kind(const neap_cell *cell, bool is_string, neap_error *error) {
  bool has_tensor = cell->tensor.storage != NULL, has_text = cell->text != NULL;
  bool fits = is_string ? !has_tensor && cell->scope == NULL : !has_text;
  if (fits) return NEAP_OK;

  /* Neither: the message says what stands on both sides. */
  const char *holds = "scope";
  if (has_tensor) holds = "tensor";
  if (has_text) holds = "string";
  return neap_fail(error, NEAP_DTYPE, "load \"%s\": the file has a %s, the blob holds a %s",
                   cell->name, is_string ? "string" : "tensor", holds);
}

/* Types of blobs that exist. A segment's blobs can be copied into, but not be a file's bytes. */
static neap_status check(const neap_workspace *ws, const neap_io_list *list, bool mapped,
                         neap_error *error) {
  for (int i = 0; i < list->n_item; i++) {
    const char *name = neap_intern(list->item[i].name);
    if (name == NULL) return neap_fail_memory(error, strlen(list->item[i].name), "a name");

    /* Strings and tensors don't take each other's place. What has no bytes yet takes any type. */
    int c = neap_map_get(&ws->index, name, -1);
    bool is_string;
    NEAP_TRY(look_for_string(list, i, &is_string, error));
    if (c >= 0) NEAP_TRY(check_kind(&ws->cell[c], is_string, error));
    if (c < 0 || ws->cell[c].tensor.storage == NULL) continue;

    /* A tensor is copied over the blob's bytes, so the types must be equal; a mapped one takes
     * their place, which a segment's can't give up. */
    neap_type has = neap_tensor_type(&ws->cell[c].tensor),
              got = neap_tensor_type(&list->item[i].tensor);
    if (!neap_type_equal(&has, &got))
      return neap_workspace_fail_type("load", name, &has, &got, error);
    if (mapped && ws->cell[c].in_segment) {
      neap_fail(error, NEAP_ARGUMENT,
                "load \"%s\": it lies in the segment of the %s, which can't be mapped", name,
                neap_region_name(ws->cell[c].region));
      neap_hint(error, "map the file before ws:init(net) makes the blob");
      return NEAP_ARGUMENT;
    }

    /* Writing there would end the process: the file is mapped without the right to write. */
    if (!mapped && neap_storage_is_read_only(ws->cell[c].tensor.storage))
      return neap_fail(error, NEAP_ARGUMENT,
                       "load \"%s\": the blob shares bytes that are read-only", name);
  }
  return NEAP_OK;
}

/* Cells for names that are new; undone when one is refused. */
static neap_status add_cells(neap_workspace *ws, const neap_io_list *list, neap_error *error) {
  int n_before = ws->n_cell;
  for (int i = 0; i < list->n_item; i++) {
    if (neap_map_get(&ws->index, neap_intern(list->item[i].name), -1) >= 0) continue;
    int cell;
    neap_status status = neap_workspace_new_cell(ws, list->item[i].name, &cell, error);
    if (status == NEAP_OK) continue;
    while (ws->n_cell > n_before) neap_workspace_drop_cell(ws, ws->n_cell - 1);
    return status;
  }
  return NEAP_OK;
}

/* What an item takes the blob's place with: a string, or a tensor; neither where the blob has bytes
 * to copy into. */
typedef struct fresh_item {
  neap_tensor tensor;
  char *text;
  size_t n_bytes;
} fresh_item;

static neap_status make_text(const neap_tensor *bytes, fresh_item *out, neap_error *error) {
  neap_type type = neap_tensor_type(bytes);
  out->n_bytes = (size_t)type.shape.dim[0];
  out->text = neap_alloc(out->n_bytes + 1);
  if (out->text == NULL) return neap_fail_memory(error, out->n_bytes + 1, "a string");
  if (out->n_bytes > 0) memcpy(out->text, neap_tensor_data(bytes), out->n_bytes);
  out->text[out->n_bytes] = '\0';
  return NEAP_OK;
}

/* Bytes for names that are new, or the file's for all tensors; strings are copied in any case. */
static neap_status make_fresh(const neap_workspace *ws, const neap_io_list *list, bool mapped,
                              fresh_item *fresh, neap_error *error) {
  for (int i = 0; i < list->n_item; i++) {
    bool is_string;
    NEAP_TRY(look_for_string(list, i, &is_string, error));
    /* A string's bytes are copied even from a mapped file: the cell owns its text. */
    if (is_string) {
      NEAP_TRY(make_text(&list->item[i].tensor, &fresh[i], error));
      continue;
    }
    if (mapped) {
      fresh[i].tensor = neap_tensor_retain(&list->item[i].tensor);
      continue;
    }

    /* Blobs that have bytes get the file's elements later, by a copy that can't fail. */
    int c = neap_map_get(&ws->index, neap_intern(list->item[i].name), -1);
    if (c < 0 || ws->cell[c].tensor.storage == NULL)
      NEAP_TRY(neap_workspace_copy_in(&list->item[i].tensor, &fresh[i].tensor, error));
  }
  return NEAP_OK;
}

/* Copies into blobs that have bytes, so that programs keep their pointers. Can't fail. */
static void move_in(neap_workspace *ws, const neap_io_list *list, bool mapped, fresh_item *fresh) {
  const char *state = neap_io_list_meta(list, NEAP_META_STATE);
  for (int i = 0; i < list->n_item; i++) {
    neap_cell *cell = &ws->cell[neap_map_get(&ws->index, neap_intern(list->item[i].name), -1)];

    /* A string, which takes the place of whatever was there. */
    if (fresh[i].text != NULL) {
      neap_cell_clear(cell);
      cell->text = fresh[i].text;
      cell->text_bytes = fresh[i].n_bytes;
      fresh[i].text = NULL;
      ws->version++;
    } else if (fresh[i].tensor.storage == NULL) {
      /* equal types: nothing to refuse */
      (void)neap_tensor_copy(&cell->tensor, &list->item[i].tensor, NULL);
    } else {
      bool is_state = is_listed(state, cell->name);
      cell->role = is_state ? NEAP_ROLE_STATE : NEAP_ROLE_PARAMETER;
      cell->region = is_state ? NEAP_REGION_STATE : NEAP_REGION_PARAMETER;
      neap_tensor_fini(&cell->tensor);
      cell->tensor = fresh[i].tensor;
      cell->is_shared = mapped;
      /* the file's bytes are in no bank, and there is no way back to a place in a segment */
      if (mapped) {
        neap_tensor_fini(&cell->left);
        cell->bank = NULL;
      }
      fresh[i].tensor = (neap_tensor){0};
      ws->version++;
    }

    /* All of them are the newest value of their name. */
    cell->filled = true;
    cell->outdated = NULL;
    cell->fed_run = ws->n_run;
  }
}

/* Check it, take all memory it needs, then change the workspace. */
neap_status neap_workspace_take_list(neap_workspace *ws, const char *path, const neap_io_list *list,
                                     bool mapped, neap_error *error) {
  uint64_t seed = ws->seed, step = ws->step, draw = ws->draw;
  NEAP_TRY(read_number(list, META_SEED, path, UINT64_MAX, &seed, error));
  NEAP_TRY(read_number(list, META_STEP, path, UINT32_MAX, &step, error));
  NEAP_TRY(read_number(list, META_DRAW, path, UINT32_MAX, &draw, error));

  /* Everything that a hostile file may have wrong is found before any memory is taken. */
  NEAP_TRY(check(ws, list, mapped, error));
  fresh_item *fresh = neap_alloc_zeroed((size_t)list->n_item * sizeof *fresh);
  if (fresh == NULL)
    return neap_fail_memory(error, (size_t)list->n_item * sizeof *fresh, "loading");

  /* Bytes and names next; until both are there, a failure drops them and changes nothing. */
  neap_status status = make_fresh(ws, list, mapped, fresh, error);
  if (status == NEAP_OK) status = add_cells(ws, list, error);
  if (status == NEAP_OK) {
    move_in(ws, list, mapped, fresh);
    ws->seed = seed;
    ws->step = (uint32_t)step;
    ws->draw = (uint32_t)draw;
    if (neap_io_list_meta(list, META_DRAW) != NULL) ws->draws_by_thread = false;
  }
  for (int i = 0; i < list->n_item; i++) {
    neap_tensor_fini(&fresh[i].tensor);
    neap_free(fresh[i].text);
  }
  neap_free(fresh);
  return status;
}

/* The list's tensors are dropped as soon as they are copied: with them the workspace would hold
 * everything twice. */
neap_status neap_workspace_load(neap_workspace *ws, const char *path, neap_io_map map,
                                neap_io_list *meta, neap_error *error) {
  neap_io_list list;
  NEAP_TRY(neap_io_load(path, map, &list, error));
  neap_status status = neap_workspace_take_list(ws, path, &list, map != NEAP_IO_COPY, error);
  /* the caller ends what it takes: the text map; the tensors have been copied */
  if (status == NEAP_OK && meta != NULL) {
    for (int i = 0; i < list.n_item; i++) neap_tensor_fini(&list.item[i].tensor);
    *meta = list;
    return NEAP_OK;
  }
  neap_io_list_fini(&list);
  return status;
}
