/* module.c: what `require "neap"` finds. The C side is the module "neap.core"; the Lua side comes
 * from the files embedded in the program, or from the folder $NEAP_LUA, so that one can work on
 * them without building. Either way a file lua/neap/nn/init.lua is the module neap.nn, under the
 * chunk name "neap:nn/init.lua".
 */
#include "lua/binding.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FOLDER "lua/neap/"

/* engines: a list of {name, doc}, with version and missing where there is something to say. */
static void set_engines(lua_State *L) {
  neap_engine_row row;
  /* From below: core, the list, and the table of one engine, which lua_seti takes. */
  lua_newtable(L);
  for (int i = 0; neap_engine_list(i, &row); i++) {
    lua_newtable(L);
    neap_lua_set_text(L, "name", row.name);
    neap_lua_set_text(L, "doc", row.doc);
    if (row.version[0] != '\0') neap_lua_set_text(L, "version", row.version);
    if (row.missing != NULL) neap_lua_set_text(L, "missing", row.missing);
    lua_seti(L, -2, i + 1);
  }
  lua_setfield(L, -2, "engines");
}

/* dtypes: a list of {name, bytes, float, integer}. */
static void set_dtypes(lua_State *L) {
  lua_newtable(L);
  /* 0 is no dtype. */
  for (int d = 1; d < NEAP_N_DTYPE; d++) {
    neap_dtype dtype = (neap_dtype)d;
    lua_newtable(L);
    neap_lua_set_text(L, "name", neap_dtype_name(dtype));
    neap_lua_set_integer(L, "bytes", (int64_t)neap_dtype_bytes(dtype));
    neap_lua_set_bool(L, "float", neap_dtype_is_float(dtype));
    neap_lua_set_bool(L, "integer", neap_dtype_is_integer(dtype));
    lua_seti(L, -2, d);
  }
  lua_setfield(L, -2, "dtypes");
}

int luaopen_neap_core(lua_State *L) {
  lua_newtable(L);

  /* Each file puts its functions and classes into the table on top. Those that add methods to a
   * class of another file come after that one. */
  neap_lua_open_handles(L);
  neap_lua_open_error(L);
  neap_lua_open_check(L);
  neap_lua_open_memory(L);
  neap_lua_open_tensor(L);
  neap_lua_open_op(L);
  neap_lua_open_script_op(L);
  neap_lua_open_net(L);
  neap_lua_open_workspace(L);
  neap_lua_open_scope(L);
  neap_lua_open_program(L);
  neap_lua_open_options(L);
  neap_lua_open_range(L);
  neap_lua_open_chain(L);
  neap_lua_open_plan(L);
  neap_lua_open_rows(L);
  neap_lua_open_count(L);
  neap_lua_open_db(L);
  neap_lua_open_run(L);
  neap_lua_open_file(L);
  neap_lua_open_memonger(L);
  neap_lua_open_onnx(L);
  neap_lua_open_caffe(L);
  neap_lua_open_tflite(L);

  /* What the program is, and what it computes with. */
  neap_lua_set_text(L, "version", NEAP_VERSION);
  char kernels[160];
  neap_kernel_set_text(kernels);
  neap_lua_set_text(L, "kernels", kernels);
  neap_lua_set_text(L, "instruction_set", neap_instruction_set());
  set_engines(L);
  set_dtypes(L);
  return 1;
}

typedef struct disk_text {
  FILE *file;
  char piece[1024];
} disk_text;

/* A lua_Reader: the next piece, none at the end. */
static const char *read_piece(lua_State *L, void *at, size_t *n) {
  disk_text *text = at;
  (void)L;
  *n = fread(text->piece, 1, sizeof text->piece, text->file);
  return text->piece;
}

/* Loads lua/neap/<path> from disk, called `chunk`, when $NEAP_LUA names a folder that has it: the
 * function is pushed. */
static bool load_from_disk(lua_State *L, const char *path, const char *chunk) {
  const char *folder = getenv("NEAP_LUA");
  if (folder == NULL || folder[0] == '\0') return false;
  disk_text text = {.file = fopen(lua_pushfstring(L, "%s/%s", folder, path), "rb")};
  if (text.file == NULL) return false;
  /* lua_load returns what goes wrong, refused memory too: the file is closed in any case. */
  int status = lua_load(L, read_piece, &text, chunk, "t");
  fclose(text.file);
  if (status != LUA_OK) lua_error(L);
  return true;
}

/* Loads one of Neap's own files; upvalue 1 is its path below lua/neap. */
static int load_own(lua_State *L) {
  /* Whatever is pushed here stays below the result: texts are Lua's. */
  const char *path = lua_tostring(L, lua_upvalueindex(1));
  const char *chunk = lua_pushfstring(L, NEAP_LUA_CHUNK "%s", path);

  /* Text only ("t"), from both places: a compiled chunk could do anything to Lua. */
  if (!load_from_disk(L, path, chunk)) {
    size_t n;
    const char *text = neap_embedded_find(lua_pushfstring(L, FOLDER "%s", path), &n);
    if (text == NULL) return luaL_error(L, "the file %s is not part of this program", path);
    if (luaL_loadbufferx(L, text, n, chunk, "t") != LUA_OK) return lua_error(L);
  }

  /* The chunk gets the module's name, as require would give it, and gives the module. */
  lua_pushvalue(L, 1);
  lua_call(L, 1, 1);
  return 1;
}

/* Makes the file lua/neap/<path> known to require; expects package.preload at the top of the
 * stack. */
static void preload(lua_State *L, const char *path) {
  char name[128] = "neap.";

  /* A path that does not end in .lua, or is too long for a name, is no module. */
  size_t n = strlen(path);
  if (n < 5 || n + 6 > sizeof name || strcmp(path + n - 4, ".lua") != 0) return;
  memcpy(name + 5, path, n - 4);

  /* nn/init.lua is neap.nn.init, which people call neap.nn. */
  for (char *c = name; *c != '\0'; c++)
    if (*c == '/') *c = '.';
  char *end = name + strlen(name);
  if (strcmp(end - 5, ".init") == 0) end[-5] = '\0';
  lua_pushstring(L, path);
  lua_pushcclosure(L, load_own, 1);
  lua_setfield(L, -2, name);
}

int luaopen_neap(lua_State *L) {
  neap_count_from(1);
  luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_PRELOAD_TABLE);

  /* package.preload is on top: require looks there first, so that no file of the user's stands in
   * for one of Neap's. */
  const char *path;
  for (int i = 0; neap_embedded_at(i, NULL, &path) != NULL; i++)
    if (strncmp(path, FOLDER, sizeof FOLDER - 1) == 0) preload(L, path + sizeof FOLDER - 1);
  lua_pushcfunction(L, luaopen_neap_core);
  lua_setfield(L, -2, "neap.core");
  lua_pop(L, 1);

  /* The module itself is init.lua, loaded at once. */
  lua_pushliteral(L, "init.lua");
  lua_pushcclosure(L, load_own, 1);
  lua_pushliteral(L, "neap");
  lua_call(L, 1, 1);
  return 1;
}
