/* tflite.c: what a TFLite file says (neap/tflite.h) as Lua tables; what its operators mean is said
 * in lua/neap/tflite. */
#include "lua/binding.h"

static void free_tflite(lua_State *L, void *at) {
  neap_tflite_model **model = at;
  (void)L;
  neap_tflite_free(*model);
  *model = NULL;
}

/* ---- tensors --------------------------------------------------------------------------------- */

static void push_integers(lua_State *L, int n, const int64_t *items) {
  lua_createtable(L, n, 0);
  for (int i = 0; i < n; i++) {
    lua_pushinteger(L, items[i]);
    lua_rawseti(L, -2, i + 1);
  }
}

static void push_floats(lua_State *L, int n, const float *items) {
  lua_createtable(L, n, 0);
  for (int i = 0; i < n; i++) {
    lua_pushnumber(L, (double)items[i]);
    lua_rawseti(L, -2, i + 1);
  }
}

/* {name = nil for "", type = "int8", dtype =, dims =, open = {[d] = true}, scale =, zero =, axis =,
 * variable =, tensor =}, axes from 1; without a quantisation there are no scales */
static void push_tensor(lua_State *L, const neap_tflite_tensor *from) {
  lua_createtable(L, 0, 9);
  neap_lua_set_text(L, "name", from->name);

  /* A type that this version does not know goes by its number: whoever meets the tensor says so. */
  const char *type = neap_tflite_type_name(from->type);
  if (type != NULL)
    neap_lua_set_text(L, "type", type);
  else
    neap_lua_set_integer(L, "type", from->type);
  if (neap_tflite_dtype(from->type) != NEAP_DTYPE_NONE)
    neap_lua_set_text(L, "dtype", neap_dtype_name(neap_tflite_dtype(from->type)));
  push_integers(L, from->n_dim, from->dim);
  lua_setfield(L, -2, "dims");

  /* Dimensions that may be of any size when the model is run. */
  lua_createtable(L, 0, 1);
  for (int d = 0; d < from->n_dim; d++)
    if (from->open[d]) {
      lua_pushboolean(L, true);
      lua_rawseti(L, -2, d + 1);
    }
  lua_setfield(L, -2, "open");
  neap_lua_set_bool(L, "variable", from->is_variable);

  /* One scale for the whole tensor, or one for each position of the axis. */
  if (from->n_scale > 0) {
    push_floats(L, from->n_scale, from->scale);
    lua_setfield(L, -2, "scale");
    push_integers(L, from->n_scale, from->zero);
    lua_setfield(L, -2, "zero");
    neap_lua_set_integer(L, "axis", from->axis + 1);
  }

  /* A constant shares the model's bytes: it is not copied. */
  if (from->tensor.dtype != NEAP_DTYPE_NONE) {
    neap_lua_new_tensor(L)->t = neap_tensor_retain(&from->tensor);
    lua_setfield(L, -2, "tensor");
  }
}

/* ---- operators ------------------------------------------------------------------------------- */

/* {name = {kind = "int", value =}}, as attributes of an ONNX node */
static void push_options(lua_State *L, const neap_tflite_op *op) {
  static const char *const kinds[] = {"int", "float", "text", "ints", "floats"};
  lua_createtable(L, 0, op->n_option);

  /* From below: all options, one of them, its value. */
  for (int i = 0; i < op->n_option; i++) {
    const neap_tflite_option *option = &op->option[i];
    lua_createtable(L, 0, 2);
    neap_lua_set_text(L, "kind", kinds[option->kind]);
    switch (option->kind) {
      case NEAP_TFLITE_INT: lua_pushinteger(L, option->i); break;
      case NEAP_TFLITE_FLOAT: lua_pushnumber(L, option->f); break;
      case NEAP_TFLITE_TEXT: lua_pushstring(L, option->text); break;
      case NEAP_TFLITE_INTS: push_integers(L, option->n, option->ints); break;
      case NEAP_TFLITE_FLOATS: push_floats(L, option->n, option->floats); break;
    }
    lua_setfield(L, -2, "value");
    lua_setfield(L, -2, option->name);
  }
}

/* Places of tensors, from 1; 0 for one that is left out. */
static void push_places(lua_State *L, int n, const int *place) {
  lua_createtable(L, n, 0);
  for (int i = 0; i < n; i++) {
    lua_pushinteger(L, place[i] + 1);
    lua_rawseti(L, -2, i + 1);
  }
}

/* {op = "CONV_2D", custom =, version =, inputs =, outputs =, attrs =} */
static void push_op(lua_State *L, const neap_tflite_op *op) {
  lua_createtable(L, 0, 6);
  neap_lua_set_text(L, "op", op->name);
  neap_lua_set_bool(L, "custom", op->is_custom);
  neap_lua_set_integer(L, "version", op->version);
  push_places(L, op->n_in, op->in);
  lua_setfield(L, -2, "inputs");
  push_places(L, op->n_out, op->out);
  lua_setfield(L, -2, "outputs");
  push_options(L, op);
  lua_setfield(L, -2, "attrs");
}

/* ---- models ---------------------------------------------------------------------------------- */

static void push_graph(lua_State *L, const neap_tflite_graph *graph) {
  lua_createtable(L, 0, 5);
  neap_lua_set_text(L, "name", graph->name);
  lua_createtable(L, graph->n_tensor, 0);
  for (int i = 0; i < graph->n_tensor; i++) {
    push_tensor(L, &graph->tensor[i]);
    lua_rawseti(L, -2, i + 1);
  }
  lua_setfield(L, -2, "tensors");

  /* Operators stand in the order they run; they name tensors by their places. */
  lua_createtable(L, graph->n_op, 0);
  for (int i = 0; i < graph->n_op; i++) {
    push_op(L, &graph->op[i]);
    lua_rawseti(L, -2, i + 1);
  }
  lua_setfield(L, -2, "nodes");
  push_places(L, graph->n_in, graph->in);
  lua_setfield(L, -2, "inputs");
  push_places(L, graph->n_out, graph->out);
  lua_setfield(L, -2, "outputs");
}

/* core.read_tflite(path) -> {description =, graphs =}, or nil, message, code */
static int read_tflite(lua_State *L) {
  const char *path = neap_lua_check_string(L, 1);
  neap_tflite_model **model = neap_lua_new(L, sizeof *model, NEAP_LUA_TFLITE, free_tflite);
  neap_error error = {0};
  if (neap_tflite_read(path, model, &error) != NEAP_OK) return neap_lua_failure(L, &error);

  /* The handle below frees the model when a table can't be made. */
  lua_createtable(L, 0, 2);
  neap_lua_set_text(L, "description", (*model)->description);
  lua_createtable(L, (*model)->n_graph, 0);
  for (int i = 0; i < (*model)->n_graph; i++) {
    push_graph(L, &(*model)->graph[i]);
    lua_rawseti(L, -2, i + 1);
  }
  lua_setfield(L, -2, "graphs");
  neap_lua_collect(L);
  return 1;
}

void neap_lua_open_tflite(lua_State *L) {
  static const neap_lua_reg functions[] = {{"read_tflite", read_tflite, 1}, {NULL, NULL, 0}};
  neap_lua_functions(L, functions, false);
}
