/* caffe.c: what Caffe's files say (neap/caffe.h) as Lua tables; what layers mean is said in
 * lua/neap/caffe. */
#include "lua/binding.h"

static void free_caffe_text(lua_State *L, void *at) {
  neap_caffe_text **text = at;
  (void)L;
  neap_caffe_free_text(*text);
  *text = NULL;
}

static void free_caffe_weights(lua_State *L, void *at) {
  neap_caffe_weights **weights = at;
  (void)L;
  neap_caffe_free_weights(*weights);
  *weights = NULL;
}

/* ---- texts ----------------------------------------------------------------------------------- */

/* {{name =, line =, kind = "string", value =}, ..}; a message's value is such a list. */
static void push_fields(lua_State *L, const neap_caffe_field *field) {
  static const char *const kinds[] = {"string", "word", "int", "float", "message"};
  luaL_checkstack(L, 8, "messages are nested too deeply");

  /* Fields of one message are a list in the file's order, since a name may stand there several
   * times. From below: the list, the field's table, its value. */
  lua_newtable(L);
  for (int i = 1; field != NULL; field = field->next, i++) {
    lua_createtable(L, 0, 4);
    neap_lua_set_text(L, "name", field->name);
    neap_lua_set_integer(L, "line", field->line);
    neap_lua_set_text(L, "kind", kinds[field->kind]);
    switch (field->kind) {
      case NEAP_CAFFE_INT: lua_pushinteger(L, field->i); break;
      case NEAP_CAFFE_FLOAT: lua_pushnumber(L, field->f); break;
      case NEAP_CAFFE_MESSAGE: push_fields(L, field->fields); break;
      default: lua_pushlstring(L, field->text, field->n_text);
    }
    lua_setfield(L, -2, "value");
    lua_rawseti(L, -2, i);
  }
}

/* core.read_prototxt(path) -> fields, or nil, message, code */
static int read_prototxt(lua_State *L) {
  const char *path = neap_lua_check_string(L, 1);
  neap_caffe_text **text = neap_lua_new(L, sizeof *text, NEAP_LUA_CAFFE_TEXT, free_caffe_text);
  neap_error error = {0};
  if (neap_caffe_read_text(path, text, &error) != NEAP_OK) return neap_lua_failure(L, &error);
  push_fields(L, (*text)->field);
  neap_lua_collect(L);
  return 1;
}

/* ---- weights --------------------------------------------------------------------------------- */

/* {name =, layers = {{name =, blobs = {tensor, ..}}, ..}} of a file, or nil, message, code */
static int push_weights(lua_State *L,
                        neap_status (*read)(const char *, neap_caffe_weights **, neap_error *)) {
  const char *path = neap_lua_check_string(L, 1);
  neap_caffe_weights **weights =
    neap_lua_new(L, sizeof *weights, NEAP_LUA_CAFFE_WEIGHTS, free_caffe_weights);
  neap_error error = {0};
  if (read(path, weights, &error) != NEAP_OK) return neap_lua_failure(L, &error);

  /* From below: the handle, the file's table, the list of layers, one layer, its list of blobs.
   * Tensors share the storage of what was read. */
  lua_createtable(L, 0, 2);
  neap_lua_set_text(L, "name", (*weights)->name);
  lua_createtable(L, (*weights)->n_layer, 0);
  for (int i = 0; i < (*weights)->n_layer; i++) {
    const neap_caffe_layer *layer = &(*weights)->layer[i];
    lua_createtable(L, 0, 2);
    neap_lua_set_text(L, "name", layer->name);
    lua_createtable(L, layer->n_blob, 0);
    for (int k = 0; k < layer->n_blob; k++) {
      neap_lua_new_tensor(L)->t = neap_tensor_retain(&layer->blob[k]);
      lua_rawseti(L, -2, k + 1);
    }
    lua_setfield(L, -2, "blobs");
    lua_rawseti(L, -2, i + 1);
  }
  lua_setfield(L, -2, "layers");
  neap_lua_collect(L);
  return 1;
}

static int read_caffemodel(lua_State *L) { return push_weights(L, neap_caffe_read_weights); }
static int read_binaryproto(lua_State *L) { return push_weights(L, neap_caffe_read_blob); }

void neap_lua_open_caffe(lua_State *L) {
  static const neap_lua_reg functions[] = {{"read_prototxt", read_prototxt, 1},
                                           {"read_caffemodel", read_caffemodel, 1},
                                           {"read_binaryproto", read_binaryproto, 1},
                                           {NULL, NULL, 0}};
  neap_lua_functions(L, functions, false);
}
