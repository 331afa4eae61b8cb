/* onnx.c: what an ONNX file says (neap/onnx.h) as Lua tables; what its nodes mean is said in
 * lua/neap/onnx. */
#include "lua/binding.h"

void neap_lua_free_onnx(lua_State *L, void *at) {
  neap_onnx_model **model = at;
  (void)L;
  neap_onnx_free(*model);
  *model = NULL;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* {name =, elem =, tensor = | texts = {..}} */
static void push_tensor(lua_State *L, const neap_onnx_tensor *from) {
  lua_createtable(L, 0, 4);
  lua_pushstring(L, from->name);
  lua_setfield(L, -2, "name");
  neap_lua_set_integer(L, "elem", from->elem_type);
  /* Numbers are a tensor, whose bytes may be the file's own. */
  if (from->tensor.dtype != NEAP_DTYPE_NONE) {
    neap_lua_new_tensor(L)->t = neap_tensor_retain(&from->tensor);
    lua_setfield(L, -2, "tensor");
    neap_lua_set_bool(L, "mapped", from->mapped);
    return;
  }
  /* Texts are bytes of any kind, zeros too. */
  lua_createtable(L, from->n_text, 0);
  for (int i = 0; i < from->n_text; i++) {
    lua_pushlstring(L, from->text[i].data != NULL ? from->text[i].data : "", from->text[i].n);
    lua_rawseti(L, -2, i + 1);
  }
  lua_setfield(L, -2, "texts");
}

static void push_names(lua_State *L, int n, const char *const *name) {
  lua_createtable(L, n, 0);
  for (int i = 0; i < n; i++) {
    lua_pushstring(L, name[i]);
    lua_rawseti(L, -2, i + 1);
  }
}

/* {name =, kind =, elem =, dims = {size or name or false, ..}} */
static void push_values(lua_State *L, int n, const neap_onnx_value *value) {
  lua_createtable(L, n, 0);
  for (int i = 0; i < n; i++) {
    lua_createtable(L, 0, 4);
    lua_pushstring(L, value[i].name);
    lua_setfield(L, -2, "name");
    neap_lua_set_text(L, "kind", value[i].kind);
    neap_lua_set_integer(L, "elem", value[i].elem_type);
    /* Without a shape there are no dims; of one dimension size or name may be unknown. */
    if (value[i].n_dim >= 0) {
      lua_createtable(L, value[i].n_dim, 0);
      for (int d = 0; d < value[i].n_dim; d++) {
        const neap_onnx_dim *dim = &value[i].dim[d];
        if (dim->size >= 0)
          lua_pushinteger(L, dim->size);
        else if (dim->name[0] != '\0')
          lua_pushstring(L, dim->name);
        else
          lua_pushboolean(L, 0);
        lua_rawseti(L, -2, d + 1);
      }
      lua_setfield(L, -2, "dims");
    }
    lua_rawseti(L, -2, i + 1);
  }
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static void push_graph(lua_State *L, const neap_onnx_graph *graph);

static void push_text(lua_State *L, const neap_onnx_text *text) {
  lua_pushlstring(L, text->data != NULL ? text->data : "", text->n);
}

/* {kind = "int", value = 3}, or {ref = name}; kind "other" has no value. */
static void push_attr(lua_State *L, const neap_onnx_attr *attr) {
  static const char *const kinds[] = {"int",  "float",  "text",  "tensor", "graph",
                                      "ints", "floats", "texts", "ref",    "other"};
  lua_createtable(L, 0, 2);
  lua_pushstring(L, kinds[attr->kind]);
  lua_setfield(L, -2, "kind");
  /* The value is pushed last, whatever it is; a list's items go into a table of theirs. */
  if (attr->kind >= NEAP_ONNX_INTS && attr->kind <= NEAP_ONNX_TEXTS) lua_createtable(L, attr->n, 0);
  switch (attr->kind) {
    case NEAP_ONNX_INT: lua_pushinteger(L, attr->i); break;
    case NEAP_ONNX_FLOAT: lua_pushnumber(L, attr->f); break;
    case NEAP_ONNX_TEXT: push_text(L, &attr->text); break;
    case NEAP_ONNX_TENSOR: push_tensor(L, &attr->tensor); break;
    case NEAP_ONNX_GRAPH: push_graph(L, attr->graph); break;
    case NEAP_ONNX_REF: lua_pushstring(L, attr->ref); break;
    case NEAP_ONNX_OTHER: lua_pushboolean(L, 0); break;
    default:
      for (int i = 0; i < attr->n; i++) {
        if (attr->kind == NEAP_ONNX_INTS) lua_pushinteger(L, attr->ints[i]);
        if (attr->kind == NEAP_ONNX_FLOATS) lua_pushnumber(L, (double)attr->floats[i]);
        if (attr->kind == NEAP_ONNX_TEXTS) push_text(L, &attr->texts[i]);
        lua_rawseti(L, -2, i + 1);
      }
  }
  lua_setfield(L, -2, "value");
}

static void push_attrs(lua_State *L, int n, const neap_onnx_attr *attr) {
  lua_createtable(L, 0, n);
  for (int k = 0; k < n; k++) {
    push_attr(L, &attr[k]);
    lua_setfield(L, -2, attr[k].name);
  }
}

static void push_nodes(lua_State *L, int n, const neap_onnx_node *node) {
  lua_createtable(L, n, 0);
  for (int i = 0; i < n; i++) {
    lua_createtable(L, 0, 6);
    lua_pushstring(L, node[i].name);
    lua_setfield(L, -2, "name");
    lua_pushstring(L, node[i].op);
    lua_setfield(L, -2, "op");
    lua_pushstring(L, node[i].domain);
    lua_setfield(L, -2, "domain");
    push_names(L, node[i].n_in, node[i].in);
    lua_setfield(L, -2, "inputs");
    push_names(L, node[i].n_out, node[i].out);
    lua_setfield(L, -2, "outputs");
    push_attrs(L, node[i].n_attr, node[i].attr);
    lua_setfield(L, -2, "attrs");
    lua_rawseti(L, -2, i + 1);
  }
}

static void push_graph(lua_State *L, const neap_onnx_graph *graph) {
  /* A graph in an attribute of a node of a graph: each level needs a few places. */
  luaL_checkstack(L, 16, "graphs are nested too deeply");
  lua_createtable(L, 0, 6);
  lua_pushstring(L, graph->name);
  lua_setfield(L, -2, "name");
  push_nodes(L, graph->n_node, graph->node);
  lua_setfield(L, -2, "nodes");
  lua_createtable(L, graph->n_initializer, 0);
  for (int i = 0; i < graph->n_initializer; i++) {
    push_tensor(L, &graph->initializer[i]);
    lua_rawseti(L, -2, i + 1);
  }
  lua_setfield(L, -2, "initializers");
  push_values(L, graph->n_input, graph->input);
  lua_setfield(L, -2, "inputs");
  push_values(L, graph->n_output, graph->output);
  lua_setfield(L, -2, "outputs");
  push_values(L, graph->n_value, graph->value);
  lua_setfield(L, -2, "values");
}

/* ---- models ---------------------------------------------------------------------------------- */

/* {domain = version} */
static void push_opsets(lua_State *L, int n, const neap_onnx_opset *opset) {
  lua_createtable(L, 0, n);
  for (int i = 0; i < n; i++) {
    lua_pushinteger(L, opset[i].version);
    lua_setfield(L, -2, opset[i].domain);
  }
}

static void push_function(lua_State *L, const neap_onnx_function *f) {
  lua_createtable(L, 0, 8);
  lua_pushstring(L, f->name);
  lua_setfield(L, -2, "name");
  lua_pushstring(L, f->domain);
  lua_setfield(L, -2, "domain");
  push_names(L, f->n_in, f->in);
  lua_setfield(L, -2, "inputs");
  push_names(L, f->n_out, f->out);
  lua_setfield(L, -2, "outputs");
  push_names(L, f->n_attr, f->attr);
  lua_setfield(L, -2, "attrs");
  push_attrs(L, f->n_default, f->fallback);
  lua_setfield(L, -2, "defaults");
  push_opsets(L, f->n_opset, f->opset);
  lua_setfield(L, -2, "opsets");
  push_nodes(L, f->n_node, f->node);
  lua_setfield(L, -2, "nodes");
}

/* The model at the top of the stack, a handle that frees it when a table can't be made. */
static neap_onnx_model **new_model(lua_State *L) {
  return neap_lua_new(L, sizeof(neap_onnx_model *), NEAP_LUA_ONNX);
}

/* core.read_onnx(path) -> {ir =, producer =, opsets =, graph =, functions =}, or nil, message,
 * code */
static int read_onnx(lua_State *L) {
  const char *path = neap_lua_check_string(L, 1);
  neap_onnx_model **model = new_model(L);
  neap_error error = {0};
  if (neap_onnx_read(path, model, &error) != NEAP_OK) return neap_lua_failure(L, &error);
  lua_createtable(L, 0, 5);
  neap_lua_set_integer(L, "ir", (*model)->ir_version);
  neap_lua_set_text(L, "producer", (*model)->producer);
  push_opsets(L, (*model)->n_opset, (*model)->opset);
  lua_setfield(L, -2, "opsets");
  push_graph(L, &(*model)->graph);
  lua_setfield(L, -2, "graph");
  lua_createtable(L, (*model)->n_function, 0);
  for (int i = 0; i < (*model)->n_function; i++) {
    push_function(L, &(*model)->function[i]);
    lua_rawseti(L, -2, i + 1);
  }
  lua_setfield(L, -2, "functions");
  neap_lua_collect(L);
  return 1;
}

/* core.read_onnx_tensor(path) -> {name =, elem =, tensor =}, or nil, message, code */
static int read_onnx_tensor(lua_State *L) {
  const char *path = neap_lua_check_string(L, 1);
  neap_onnx_model **model = new_model(L);
  neap_error error = {0};
  if (neap_onnx_read_tensor(path, model, &error) != NEAP_OK) return neap_lua_failure(L, &error);
  push_tensor(L, &(*model)->graph.initializer[0]);
  neap_lua_collect(L);
  return 1;
}

void neap_lua_open_onnx(lua_State *L) {
  static const neap_lua_reg functions[] = {
    {"read_onnx", read_onnx, 1}, {"read_onnx_tensor", read_onnx_tensor, 1}, {NULL, NULL, 0}};
  neap_lua_functions(L, functions, false);
  /* core.onnx_types: {[number] = {name =, dtype =}} */
  lua_newtable(L);
  for (int type = 0; type < 64; type++) {
    if (neap_onnx_type_name(type) == NULL) continue;
    lua_newtable(L);
    neap_lua_set_text(L, "name", neap_onnx_type_name(type));
    if (neap_onnx_dtype(type) != NEAP_DTYPE_NONE)
      neap_lua_set_text(L, "dtype", neap_dtype_name(neap_onnx_dtype(type)));
    lua_rawseti(L, -2, type);
  }
  lua_setfield(L, -2, "onnx_types");
}
