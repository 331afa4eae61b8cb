/* file.c: files of tensors, and the reader of batches. Whatever a file does wrong is nil, message,
 * code. */
#include "lua/binding.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- load and save --------------------------------------------------------------------------- */

/* A loaded list outlives a raise while its tensors are handed to Lua. */
static void free_io_list(lua_State *L, void *at) {
  neap_io_list *list = at;
  (void)L;
  neap_io_list_fini(list);
  *list = (neap_io_list){0};
}

neap_io_list *neap_lua_new_io_list(lua_State *L) {
  return neap_lua_new(L, sizeof(neap_io_list), NEAP_LUA_IO_LIST, free_io_list);
}

/* One field, and a slip in it must not load a file in another way than was meant. */
neap_io_map neap_lua_io_map(lua_State *L, int index) {
  if (lua_isnoneornil(L, index)) return NEAP_IO_COPY;
  if (!lua_istable(L, index))
    neap_lua_fail(L, NEAP_ARGUMENT, "load expects { map = \"r\" or \"c\" }, got a %s",
                  luaL_typename(L, index));
  /* The field stays on the stack: the text is looked at, and not kept. */
  neap_lua_only_fields(L, index, "load", (const char *const[]){"map", NULL});
  if (neap_lua_field(L, index, "map") == LUA_TNIL) return NEAP_IO_COPY;
  const char *kind = lua_type(L, -1) == LUA_TSTRING ? neap_lua_text(L, -1, "map") : "";
  if (strcmp(kind, "r") != 0 && strcmp(kind, "c") != 0)
    neap_lua_fail(L, NEAP_ARGUMENT, "load: map expects \"r\" (read-only) or \"c\" (copy on write)");
  return kind[0] == 'r' ? NEAP_IO_MAP_READ : NEAP_IO_MAP_WRITE;
}

/* load(path [, {map = "r"|"c"}]) -> tensor of .npy files, pictures and sounds, else {name =
 * tensor}, {key = text}; or nil, message, code */
static int load(lua_State *L) {
  const char *path = neap_lua_check_string(L, 1);
  neap_io_map map = neap_lua_io_map(L, 2);

  /* The list is a handle: it frees what Lua has not got when a table can't be made. */
  neap_io_list *list = neap_lua_new_io_list(L);
  neap_error error = {0};
  if (neap_io_load(path, map, list, &error) != NEAP_OK) return neap_lua_failure(L, &error);

  /* A file of one tensor without a name (.npy, pictures, sounds) is that; others are tables. */
  bool one = list->n_item == 1 && list->item[0].name[0] == '\0';
  lua_createtable(L, 0, list->n_item);
  for (int i = 0; i < list->n_item; i++) {
    neap_lua_tensor *t = neap_lua_new_tensor(L);
    /* The list keeps its own reference, which goes with it. */
    t->t = neap_tensor_retain(&list->item[i].tensor);
    /* In the table's place. */
    if (one)
      lua_replace(L, -2);
    else
      lua_setfield(L, -2, list->item[i].name);
  }

  /* The second result: the texts that go along; a tensor alone may have none. */
  if (one && list->n_meta == 0) {
    neap_lua_collect(L);
    return 1;
  }
  lua_createtable(L, 0, list->n_meta);
  for (int i = 0; i < list->n_meta; i++)
    neap_lua_set_text(L, list->meta[i].key, list->meta[i].value);
  neap_lua_collect(L);
  return 2;
}

static int compare_items(const void *a, const void *b) {
  return strcmp(((const neap_io_item *)a)->name, ((const neap_io_item *)b)->name);
}

/* Tensors by name at `index`, sorted, so that the same table gives the same file. The room stays on
 * the stack, with a copy of the table that keeps names and tensors. */
static neap_io_item *take_items(lua_State *L, int index, int *n) {
  int count = neap_lua_copy(L, index);
  index = lua_gettop(L);
  neap_io_item *item = neap_lua_room(L, (size_t)count * sizeof *item);
  *n = 0;
  for (lua_pushnil(L); lua_next(L, index) != 0; lua_pop(L, 1)) {
    if (lua_type(L, -2) != LUA_TSTRING)
      neap_lua_fail(L, NEAP_ARGUMENT, "save expects tensors by name, got a %s as name",
                    luaL_typename(L, -2));
    /* Borrowed: the copy keeps both. */
    item[*n] =
      (neap_io_item){(char *)(uintptr_t)neap_lua_text(L, -2, "save"), *neap_lua_tensor_at(L, -1)};
    ++*n;
  }
  qsort(item, (size_t)*n, sizeof *item, compare_items);
  return item;
}

/* save(path, tensor | {name = tensor} [, {meta = {key = text}}]) -> true, or nil, message, code */
static int save(lua_State *L) {
  const char *path = neap_lua_check_string(L, 1);
  neap_io_item single = {.name = (char[]){""}}, *item = &single;
  neap_io_pair *meta = NULL;
  int n = 1, n_meta = 0;

  /* What is to be saved: tensors by name, or one without. */
  lua_settop(L, 3);
  if (lua_istable(L, 2))
    item = take_items(L, 2, &n);
  else
    single.tensor = *neap_lua_tensor_at(L, 2);

  /* The texts that go along, as pairs in a room; a copy keeps them, as above. */
  neap_lua_only_fields(L, 3, "neap.save", (const char *const[]){"meta", NULL});
  if (lua_istable(L, 3) && neap_lua_field(L, 3, "meta") != LUA_TNIL) {
    if (!lua_istable(L, -1))
      neap_lua_fail(L, NEAP_ARGUMENT, "neap.save: meta expects a table of texts, got a %s",
                    luaL_typename(L, -1));
    int count = neap_lua_copy(L, -1), at = lua_gettop(L);
    meta = neap_lua_room(L, (size_t)count * sizeof *meta);
    for (lua_pushnil(L); lua_next(L, at) != 0; lua_pop(L, 1)) {
      if (lua_type(L, -2) != LUA_TSTRING || lua_type(L, -1) != LUA_TSTRING)
        neap_lua_fail(L, NEAP_ARGUMENT, "meta expects texts by name");
      meta[n_meta++] = (neap_io_pair){(char *)(uintptr_t)neap_lua_text(L, -2, "meta"),
                                      (char *)(uintptr_t)neap_lua_text(L, -1, "meta")};
    }
  }
  neap_error error = {0};
  if (neap_io_save(path, n, item, n_meta, meta, &error) != NEAP_OK)
    return neap_lua_failure(L, &error);
  lua_pushboolean(L, 1);
  return 1;
}

/* ---- other files ----------------------------------------------------------------------------- */

/* read_idx(path) -> tensor, or nil, message, code */
static int read_idx(lua_State *L) {
  const char *path = neap_lua_check_string(L, 1);
  neap_lua_tensor *out = neap_lua_new_tensor(L);
  neap_error error = {0};
  if (neap_io_read_idx(path, &out->t, &error) != NEAP_OK) return neap_lua_failure(L, &error);
  neap_lua_collect(L);
  return 1;
}

/* read_bytes(path) -> u8 tensor of a whole file, unpacked if it is gzip */
static int read_bytes(lua_State *L) {
  const char *path = neap_lua_check_string(L, 1);
  neap_lua_tensor *out = neap_lua_new_tensor(L);
  neap_io_bytes bytes = {0};
  neap_error error = {0};

  /* Nothing raises until the bytes are freed again: what fails is told afterwards. */
  neap_status status = neap_io_read_gz_bytes(path, &bytes, &error);
  neap_shape shape = NEAP_SHAPE((int64_t)bytes.n);
  if (status == NEAP_OK) status = neap_tensor_new(&out->t, NEAP_DTYPE_U8, &shape, &error);
  if (status == NEAP_OK && bytes.n > 0) memcpy(neap_tensor_data(&out->t), bytes.data, bytes.n);
  neap_free(bytes.data);
  if (status != NEAP_OK) return neap_lua_failure(L, &error);
  neap_lua_collect(L);
  return 1;
}

/* A whole file as a text, as `read` reads it; or nil, message, code */
static int text_by(lua_State *L,
                   neap_status (*read)(const char *path, neap_io_bytes *out, neap_error *error)) {
  const char *path = neap_lua_check_string(L, 1);
  neap_io_bytes bytes = {0};
  neap_error error = {0};
  /* The slot frees the bytes, since making a Lua text of them may raise. */
  void **held = neap_lua_new_block(L);
  if (read(path, &bytes, &error) != NEAP_OK) return neap_lua_failure(L, &error);
  *held = bytes.data;
  lua_pushlstring(L, bytes.data, bytes.n);
  return 1;
}

/* read_text(path), read_gz_text(path), which unpacks gzip -> text, or nil, message, code */
static int read_text(lua_State *L) { return text_by(L, neap_io_read_text); }
static int read_gz_text(lua_State *L) { return text_by(L, neap_io_read_gz_bytes); }

/* core.write_picture(path, u8 tensor (H,W) or (H,W,3), dense, quality) -> true, or nil, message,
 * code */
static int write_picture(lua_State *L) {
  const char *path = neap_lua_check_string(L, 1);
  const neap_tensor *t = neap_lua_tensor_at(L, 2);
  int quality = neap_lua_to_int(L, neap_lua_check_integer(L, 3), "quality");
  neap_error error = {0};

  /* The writer is given a pointer and sizes: only these tensors lie as it reads them. */
  if (t->dtype != NEAP_DTYPE_U8 || !neap_tensor_is_dense(t) || t->shape.n_dim < 2 ||
      t->shape.n_dim > 3)
    neap_lua_fail(L, NEAP_ARGUMENT, "write_picture expects a dense u8 tensor (H,W) or (H,W,3)");
  int channels = t->shape.n_dim == 3 ? (int)t->shape.dim[2] : 1;
  if (neap_io_write_picture(path, t->shape.dim[0], t->shape.dim[1], channels,
                            (const uint8_t *)neap_tensor_data(t), quality, &error) != NEAP_OK)
    return neap_lua_failure(L, &error);
  lua_pushboolean(L, 1);
  return 1;
}

/* core.list_folder(path) -> list of names, those of folders with "/" behind; or nil, message,
 * code */
static int list_folder(lua_State *L) {
  const char *path = neap_lua_check_string(L, 1);
  neap_io_bytes names = {0};
  neap_error error = {0};
  void **held = neap_lua_new_block(L);
  if (neap_io_read_folder(path, &names, &error) != NEAP_OK) return neap_lua_failure(L, &error);
  *held = names.data;
  lua_newtable(L);
  for (size_t at = 0, n = 0; at < names.n; at += strlen(names.data + at) + 1) {
    lua_pushstring(L, names.data + at);
    lua_rawseti(L, -2, (lua_Integer)++n);
  }
  return 1;
}

/* The cells outlive a raise while they are handed to Lua. */
static void free_cells(lua_State *L, void *at) {
  (void)L;
  neap_io_cells_fini(at);
}

/* core.read_csv(path, separator) -> list of rows, each a list of texts, and the line of each; or
 * nil, message, code */
static int read_csv(lua_State *L) {
  const char *path = neap_lua_check_string(L, 1);
  size_t n;
  const char *separator = neap_lua_check_lstring(L, 2, &n);
  if (n != 1)
    neap_lua_fail(L, NEAP_ARGUMENT, "separator expects one character, got \"%s\"", separator);
  neap_io_cells *c = neap_lua_new(L, sizeof *c, NEAP_LUA_CELLS, free_cells);
  neap_error error = {0};
  if (neap_io_read_csv(path, separator[0], c, &error) != NEAP_OK)
    return neap_lua_failure(L, &error);

  /* From below: the cells, the list of rows, the list of lines, one row. Cells lie one after
   * another in one text, each with its end. */
  lua_createtable(L, (int)c->n_row, 0);
  lua_createtable(L, (int)c->n_row, 0);
  size_t from = 0;
  for (int64_t row = 0, cell = 0; row < c->n_row; row++) {
    lua_createtable(L, (int)(c->row_end[row] - cell), 0);
    /* A cell has a 0 behind it, which is no part of it. */
    for (lua_Integer k = 1; cell < c->row_end[row]; k++, cell++) {
      lua_pushlstring(L, c->text.data + from, c->end[cell] - from);
      lua_rawseti(L, -2, k);
      from = c->end[cell] + 1;
    }
    lua_rawseti(L, -3, row + 1);
    lua_pushinteger(L, c->line[row]);
    lua_rawseti(L, -2, row + 1);
  }
  return 2;
}

/* core.write_text(path, text) -> true, or nil, message, code */
static int write_text(lua_State *L) {
  size_t n;
  /* A number would name a file by its digits. */
  if (lua_type(L, 1) != LUA_TSTRING)
    neap_lua_fail(L, NEAP_ARGUMENT, "a path is expected, got %s", luaL_typename(L, 1));
  const char *path = neap_lua_check_string(L, 1), *text = neap_lua_check_lstring(L, 2, &n);
  neap_error error = {0};
  if (neap_io_write_text(path, text, n, &error) != NEAP_OK) return neap_lua_failure(L, &error);
  lua_pushboolean(L, 1);
  return 1;
}

/* make_folder(path) -> true: with the folders above it, where missing; or nil, message, code */
static int make_folder(lua_State *L) {
  const char *path = neap_lua_check_string(L, 1);
  size_t n = strlen(path);

  /* The path is cut at each "/" in turn, and made whole again. */
  char *part = neap_lua_room(L, n + 1);
  memcpy(part, path, n);
  for (size_t i = 1; i <= n; i++) {
    if (part[i] != '/' && part[i] != '\0') continue;
    part[i] = '\0';
    /* One that is there already is as good, whoever made it. */
    if (mkdir(part, 0777) != 0 && errno != EEXIST) {
      neap_error error = {0};
      neap_fail(&error, NEAP_IO, "the folder %s can't be made: %s", part, strerror(errno));
      return neap_lua_failure(L, &error);
    }
    part[i] = i < n ? '/' : '\0';
  }
  lua_pushboolean(L, 1);
  return 1;
}

/* encode_bytes(text, {char = number}) -> u8 tensor of the numbers, i32 when one is above 255;
 * unknown characters are 0. */
static int encode_bytes(lua_State *L) {
  size_t n;
  const unsigned char *text = (const unsigned char *)neap_lua_check_lstring(L, 1, &n);
  neap_lua_check_type(L, 2, LUA_TTABLE);

  /* The table is read whole before anything is made. */
  int64_t number[256] = {0}, most = 0;
  for (lua_pushnil(L); lua_next(L, 2) != 0; lua_pop(L, 1)) {
    size_t length = 0;
    const char *key = lua_type(L, -2) == LUA_TSTRING ? lua_tolstring(L, -2, &length) : NULL;
    if (length != 1) neap_lua_fail(L, NEAP_ARGUMENT, "encode_bytes expects numbers by character");
    number[(unsigned char)key[0]] = neap_lua_check_integer(L, -1);
    most = NEAP_MAX(most, number[(unsigned char)key[0]]);
  }

  /* The numbers of a vocabulary are a table of 256: text is then one look-up for each byte. */
  neap_dtype dtype = most > 255 ? NEAP_DTYPE_I32 : NEAP_DTYPE_U8;
  neap_lua_tensor *out = neap_lua_new_tensor(L);
  neap_shape shape = NEAP_SHAPE((int64_t)n);
  NEAP_LUA_TRY(L, neap_tensor_new(&out->t, dtype, &shape, &error));
  for (size_t i = 0; i < n; i++)
    neap_element_set_i64(dtype, neap_tensor_data(&out->t), (int64_t)i, number[text[i]]);
  neap_lua_collect(L);
  return 1;
}

/* ---- batches --------------------------------------------------------------------------------- */

typedef struct reader {
  neap_batch_reader *reader;
  int n_field;
} reader;

static void free_reader(lua_State *L, void *at) {
  reader *r = at;
  (void)L;
  if (r->reader != NULL) neap_batch_reader_free(r->reader);
  r->reader = NULL;
}

static double number_field(lua_State *L, const char *key, double missing) {
  /* The field is pushed, read and popped. */
  if (neap_lua_field(L, -1, key) != LUA_TNIL) missing = neap_lua_check_number(L, -1);
  lua_pop(L, 1);
  return missing;
}

/* The same of a whole number: a fraction, and what no integer is, are refused. */
static int64_t whole_field(lua_State *L, const char *key, int64_t missing) {
  if (neap_lua_field(L, -1, key) != LUA_TNIL) missing = neap_lua_check_integer(L, -1);
  lua_pop(L, 1);
  return missing;
}

/* Texts of the list at the top of the stack, which stays there with the room, in the place of it;
 * both keep them. */
static const char **texts_at_top(lua_State *L, int64_t *n) {
  *n = neap_lua_length(L, -1);
  const char **text = neap_lua_room(L, (size_t)*n * sizeof *text);
  for (int64_t i = 0; i < *n; i++) {
    lua_rawgeti(L, -2, i + 1);
    if (lua_type(L, -1) != LUA_TSTRING)
      neap_lua_fail(L, NEAP_ARGUMENT, "batch_reader expects paths as files");
    text[i] = neap_lua_text(L, -1, "batch_reader"); /* the list is a copy that nobody else has */
    lua_pop(L, 1);
  }
  return text;
}

/* {source = tensor, dtype =, scale =, shift =, window =, offset =, n_class =} at the top of the
 * stack, or {files = paths, shape = {channels, height, width}, fit = 0, 1 or 2, ..}; a copy of it
 * takes its place, with what it borrows behind it. */
static neap_batch_field field_at_top(lua_State *L) {
  neap_batch_field field = {0};
  neap_lua_check_type(L, -1, LUA_TTABLE);

  /* The copy stays where the table was: it keeps the tensor until the reader has retained it. */
  neap_lua_copy(L, -1);
  lua_replace(L, -2);
  int at = lua_gettop(L);
  if (neap_lua_field(L, at, "source") != LUA_TNIL)
    field.source = *neap_lua_tensor_at(L, -1); /* borrowed from a copy: the reader retains it */
  lua_pop(L, 1);

  /* What is done to its elements, and which of them make a row. */
  neap_lua_field(L, at, "dtype");
  field.dtype = neap_lua_dtype(L, -1, field.source.dtype);
  lua_pop(L, 1);
  field.scale = number_field(L, "scale", 1);
  field.shift = number_field(L, "shift", 0);
  field.window = whole_field(L, "window", 0);
  field.offset = whole_field(L, "offset", 0);
  field.n_class = whole_field(L, "n_class", 0);
  field.fit = (neap_picture_fit)whole_field(L, "fit", NEAP_PICTURE_CROP);
  if (neap_lua_field(L, at, "files") == LUA_TNIL) {
    lua_pop(L, 1);
    return field;
  }

  /* Pictures in files: the copy of their list, and the room of paths, stay above. */
  neap_lua_copy(L, -1);
  field.file = texts_at_top(L, &field.n_file);
  neap_lua_field(L, at, "shape");
  neap_lua_shape(L, lua_gettop(L), &field.row_shape, "shape");
  lua_pop(L, 1);
  return field;
}

/* The list of transforms {name, number, ..} at `index`; what it borrows stays on the stack. */
static neap_transform *transforms_at(lua_State *L, int index, int *n) {
  neap_lua_check_type(L, index, LUA_TTABLE);
  *n = neap_lua_length(L, index);
  neap_transform *t = neap_lua_room(L, (size_t)*n * sizeof *t);
  luaL_checkstack(L, 3 * *n + 8, "too many transforms");

  /* Each transform leaves three things on the stack: a copy of its table, the room of its numbers,
   * its name. */
  for (int i = 0; i < *n; i++) {
    lua_rawgeti(L, index, i + 1);
    neap_lua_check_type(L, -1, LUA_TTABLE);
    neap_lua_copy(L, -1);
    lua_replace(L, -2);
    int at = lua_gettop(L), n_value = neap_lua_length(L, at) - 1;
    double *value = neap_lua_room(L, (size_t)NEAP_MAX(n_value, 0) * sizeof *value);
    for (int k = 0; k < n_value; k++) {
      lua_rawgeti(L, at, k + 2);
      value[k] = neap_lua_check_number(L, -1);
      lua_pop(L, 1);
    }
    lua_rawgeti(L, at, 1);
    if (lua_type(L, -1) != LUA_TSTRING)
      neap_lua_fail(L, NEAP_ARGUMENT, "a transform has its name first");
    t[i] = (neap_transform){neap_lua_text(L, -1, "transform"), NEAP_MAX(n_value, 0), value};
  }
  return t;
}

/* core.transform_shape(transforms, shape of a row) -> shape; raises for what can't be */
static int transform_shape(lua_State *L) {
  int n;
  neap_shape shape;
  neap_lua_shape(L, 2, &shape, "shape");
  const neap_transform *t = transforms_at(L, 1, &n);
  NEAP_LUA_TRY(L, neap_transform_shape(n, t, &shape, &error));
  neap_lua_push_shape(L, &shape);
  return 1;
}

/* batch_reader(fields, rows from 0, { batch =, drop =, threads =, transforms =, field =, label =,
 * seed =, epoch =, first = }) -> reader; reader:next() -> n, {tensors} */
static int batch_reader(lua_State *L) {
  neap_lua_check_type(L, 1, LUA_TTABLE);
  neap_lua_check_type(L, 2, LUA_TTABLE);
  neap_lua_check_type(L, 3, LUA_TTABLE);
  neap_lua_only_fields(L, 3, "batch_reader",
                       (const char *const[]){"batch", "drop", "threads", "transforms", "field",
                                             "label", "seed", "epoch", "first", NULL});

  /* How rows are taken: numbers of the third table, which is on top while they are read. */
  int n_field = neap_lua_length(L, 1), n_index = neap_lua_length(L, 2);
  neap_batch_options options = {.drop_last = neap_lua_flag(L, 3, "batch_reader", "drop", false)};
  lua_pushvalue(L, 3);
  options.n_batch = whole_field(L, "batch", 1);
  options.n_thread = neap_lua_to_int(L, whole_field(L, "threads", 1), "threads");
  options.field = neap_lua_to_int(L, whole_field(L, "field", 1), "field") - 1;
  options.label = neap_lua_to_int(L, whole_field(L, "label", 0), "label") - 1;
  options.epoch = (uint32_t)whole_field(L, "epoch", 0);
  options.first = whole_field(L, "first", 1) - 1;
  if (neap_lua_field(L, -1, "seed") != LUA_TNIL)
    options.seed = (uint64_t)neap_lua_check_integer(L, -1);
  lua_pop(L, 2);
  if (neap_lua_field(L, 3, "transforms") != LUA_TNIL)
    options.transform = transforms_at(L, lua_gettop(L), &options.n_transform);

  /* Both rooms stay on the stack. A list that has changed since it was counted has nil in it, which
   * raises. */
  neap_batch_field *field = neap_lua_room(L, (size_t)n_field * sizeof *field);
  int64_t *index = neap_lua_room(L, (size_t)n_index * sizeof *index);

  /* Each field leaves a copy on the stack, and with files their list and its room. */
  luaL_checkstack(L, 4 * n_field + 8, "too many fields");
  for (int i = 0; i < n_field; i++) {
    lua_rawgeti(L, 1, i + 1);
    field[i] = field_at_top(L); /* and stays there */
  }
  for (int i = 0; i < n_index; i++) {
    lua_rawgeti(L, 2, i + 1);
    index[i] = neap_lua_check_integer(L, -1);
    lua_pop(L, 1);
  }

  /* The reader copies the list of rows, paths and transforms and retains the sources. */
  reader *r = neap_lua_new(L, sizeof *r, NEAP_LUA_READER, free_reader);
  r->n_field = n_field;
  NEAP_LUA_TRY(L,
               neap_batch_reader_new(n_field, field, n_index, index, &options, &r->reader, &error));
  return 1;
}

/* reader:next() -> number of rows, {tensor, ..}; nothing at the end. Handles are made before the
 * batch is taken, so that no batch is lost to a raise. */
static int reader_next(lua_State *L) {
  reader *r = neap_lua_any(L, 1, NEAP_LUA_READER);
  if (r->reader == NULL || neap_lua_is_closed(r)) return 0;

  /* Tables and handles are made now, because a batch that was taken would be lost by a raise. */
  neap_tensor *out = neap_lua_room(L, (size_t)r->n_field * sizeof *out);
  lua_createtable(L, r->n_field, 0);
  for (int k = 0; k < r->n_field; k++) {
    neap_lua_new_tensor(L);
    lua_rawseti(L, -2, k + 1);
  }

  /* From here on nothing allocates in Lua. */
  neap_error error = {0};
  int64_t n = neap_batch_reader_next(r->reader, out, &error);
  if (n < 0) neap_lua_raise(L, &error);
  if (n == 0) return 0;
  for (int k = 0; k < r->n_field; k++) {
    lua_rawgeti(L, -1, k + 1);
    neap_lua_tensor_handle(L, -1)->t = out[k];
    lua_pop(L, 1);
  }
  lua_pushinteger(L, n);

  /* The count goes below the list. */
  lua_insert(L, -2);
  return 2;
}

void neap_lua_open_file(lua_State *L) {
  static const neap_lua_reg reader_meta[] = {{"__close", neap_lua_close, NEAP_LUA_ANY},
                                             {NULL, NULL, 0}};
  static const neap_lua_reg reader_methods[] = {{"next", reader_next, 1}, {NULL, NULL, 0}};
  static const neap_lua_reg functions[] = {{"load", load, 2},
                                           {"save", save, 3},
                                           {"read_idx", read_idx, 1},
                                           {"read_bytes", read_bytes, 1},
                                           {"read_text", read_text, 1},
                                           {"read_gz_text", read_gz_text, 1},
                                           {"write_text", write_text, 2},
                                           {"write_picture", write_picture, 3},
                                           {"list_folder", list_folder, 1},
                                           {"read_csv", read_csv, 2},
                                           {"transform_shape", transform_shape, 2},
                                           {"encode_bytes", encode_bytes, 2},
                                           {"make_folder", make_folder, 1},
                                           {"batch_reader", batch_reader, 3},
                                           {NULL, NULL, 0}};
  neap_lua_class(L, NEAP_LUA_READER, "BatchReader", reader_meta, reader_methods);
  neap_lua_functions(L, functions, false);
}
