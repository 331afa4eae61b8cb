/* onnx.c: what an ONNX file says (neap/onnx.h) as Lua tables, and tables as a file; what its nodes
 * mean is said in lua/neap/onnx. */
#include "lua/binding.h"

#include <stdlib.h>
#include <string.h>

static void free_onnx(lua_State *L, void *at) {
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

/* The table on top gets meta = {key = value, ..}, where there are any. */
static void set_meta(lua_State *L, int n, const neap_onnx_meta *meta) {
  if (n == 0) return;
  lua_createtable(L, 0, n);
  for (int i = 0; i < n; i++) neap_lua_set_text(L, meta[i].key, meta[i].value);
  lua_setfield(L, -2, "meta");
}

/* {name =, kind =, elem =, dims = {size or name or false, ..}, meta =} */
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
    set_meta(L, value[i].n_meta, value[i].meta);
    lua_rawseti(L, -2, i + 1);
  }
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static void push_graph(lua_State *L, const neap_onnx_graph *graph);

static void push_text(lua_State *L, const neap_onnx_text *text) {
  lua_pushlstring(L, text->data != NULL ? text->data : "", text->n);
}

/* By neap_onnx_attr_kind. */
static const char *const kinds[] = {"int",  "float",  "text",  "tensor", "graph",
                                    "ints", "floats", "texts", "ref",    "other"};

/* {kind = "int", value = 3}, or {ref = name}; kind "other" has no value. */
static void push_attr(lua_State *L, const neap_onnx_attr *attr) {
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
  /* From below: the list of nodes, one node, the field that lua_setfield takes. */
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
    set_meta(L, node[i].n_meta, node[i].meta);
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

  /* Weights share the storage of the file that was read: nothing of them is copied. */
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
  set_meta(L, graph->n_meta, graph->meta);
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
  /* A function is a graph with formal attributes, of which some have defaults; its opsets are its
   * own. */
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
  return neap_lua_new(L, sizeof(neap_onnx_model *), NEAP_LUA_ONNX, free_onnx);
}

/* core.read_onnx(path) -> {ir =, producer =, opsets =, graph =, functions =}, or nil, message,
 * code */
static int read_onnx(lua_State *L) {
  const char *path = neap_lua_check_string(L, 1);
  neap_onnx_model **model = new_model(L);
  neap_error error = {0};
  if (neap_onnx_read(path, model, &error) != NEAP_OK) return neap_lua_failure(L, &error);

  /* The handle is below; from here on the tables are made, and it frees the model when one can't
   * be. */
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

/* ---- writing --------------------------------------------------------------------------------- */

/* More than a reader of the format takes, and few enough for the stack of C: a table may hold
 * itself. */
enum { MOST_DEEP = 100 };

/* What tables say, on the way to C: lists are kept in the table at `anchor`, n of them, and texts
 * are the tables' own. The graph that is taken lies within `depth` others. */
typedef struct taker {
  lua_State *L;
  int anchor, depth;
  lua_Integer n;
} taker;

static void *kept(taker *t, int n, size_t bytes) {
  void *out = neap_lua_room(t->L, NEAP_MAX((size_t)n, 1) * bytes);
  lua_rawseti(t->L, t->anchor, ++t->n);
  return out;
}

/* Field `key` of the table at the top; "" where it is not there. */
static const char *take_field(taker *t, const char *key) {
  lua_State *L = t->L;
  if (neap_lua_field(L, -1, key) != LUA_TSTRING) {
    lua_pop(L, 1);
    return "";
  }
  const char *text = neap_lua_text(L, -1, key);
  lua_pop(L, 1);
  return text;
}

static lua_Integer take_integer(taker *t, const char *key, lua_Integer missing) {
  lua_Integer out = neap_lua_field(t->L, -1, key) == LUA_TNIL ? missing : lua_tointeger(t->L, -1);
  lua_pop(t->L, 1);
  return out;
}

/* Pushes the list in field `key` of the table at the top, and says its length: 0, of an empty one,
 * where it is not there. */
static int open_list(taker *t, const char *key) {
  lua_State *L = t->L;
  luaL_checkstack(L, 16, "graphs are nested too deeply");
  if (neap_lua_field(L, -1, key) != LUA_TTABLE) {
    lua_pop(L, 1);
    lua_newtable(L);
  }
  return neap_lua_length(L, -1);
}

static int take_names(taker *t, const char *key, const char *const **out) {
  int n = open_list(t, key);
  const char **names = kept(t, n, sizeof *names);
  for (int i = 0; i < n; i++) {
    names[i] = "";
    if (lua_rawgeti(t->L, -1, i + 1) == LUA_TSTRING) names[i] = neap_lua_text(t->L, -1, key);
    lua_pop(t->L, 1);
  }
  lua_pop(t->L, 1);
  *out = names;
  return n;
}

/* The text at the top, which may hold zero bytes; "" for all else: what a number is converted to
 * would belong to nobody once it is popped. */
static neap_onnx_text text_at_top(lua_State *L) {
  neap_onnx_text text = {.data = ""};
  if (lua_type(L, -1) == LUA_TSTRING) text.data = lua_tolstring(L, -1, &text.n);
  return text;
}

static int take_texts(taker *t, const neap_onnx_text **out) {
  lua_State *L = t->L;
  int n = neap_lua_length(L, -1);
  neap_onnx_text *texts = kept(t, n, sizeof *texts);
  for (int i = 0; i < n; i++) {
    lua_rawgeti(L, -1, i + 1);
    texts[i] = text_at_top(L);
    lua_pop(L, 1);
  }
  *out = texts;
  return n;
}

/* The tensor that the table at the top says, a reference that the table holds. */
static neap_onnx_tensor take_tensor(taker *t) {
  lua_State *L = t->L;
  neap_onnx_tensor out = {.name = take_field(t, "name"),
                          .elem_type = (int)take_integer(t, "elem", 0)};
  if (neap_lua_field(L, -1, "tensor") != LUA_TNIL) out.tensor = *neap_lua_tensor_at(L, -1);
  lua_pop(L, 1);
  if (out.tensor.dtype == NEAP_DTYPE_NONE) {
    open_list(t, "texts");
    out.n_text = take_texts(t, &out.text);
    lua_pop(L, 1);
  }
  return out;
}

static int take_values(taker *t, const char *key, neap_onnx_value **out) {
  lua_State *L = t->L;
  int n = open_list(t, key);
  *out = kept(t, n, sizeof **out);
  for (int i = 0; i < n; i++) {
    neap_onnx_value *value = &(*out)[i];
    if (lua_rawgeti(L, -1, i + 1) != LUA_TTABLE)
      neap_lua_fail(L, NEAP_ARGUMENT, "item %d of %s is no table", i + 1, key);
    *value = (neap_onnx_value){.name = take_field(t, "name"),
                               .kind = "tensor",
                               .elem_type = (int)take_integer(t, "elem", 0),
                               .n_dim = -1};

    /* Without a list of dimensions the shape is unknown, which is told from a shape of none. */
    bool has = neap_lua_field(L, -1, "dims") == LUA_TTABLE;
    lua_pop(L, 1);
    value->n_dim = has ? open_list(t, "dims") : -1;

    /* A dimension is a number, a name, or unknown: -1 without a name. */
    neap_onnx_dim *dim = kept(t, NEAP_MAX(value->n_dim, 0), sizeof *dim);
    for (int d = 0; d < value->n_dim; d++) {
      int type = lua_rawgeti(L, -1, d + 1);
      dim[d] = (neap_onnx_dim){type == LUA_TNUMBER ? lua_tointeger(L, -1) : -1, ""};
      if (type == LUA_TSTRING) dim[d].name = neap_lua_text(L, -1, "a dimension");
      lua_pop(L, 1);
    }
    value->dim = dim;
    lua_pop(L, has ? 2 : 1);
  }
  lua_pop(L, 1);
  return n;
}

static void take_graph(taker *t, neap_onnx_graph *out);

/* The attribute whose table, {kind =, value =}, is at the top. */
static neap_onnx_attr take_attr(taker *t, const char *name) {
  lua_State *L = t->L;
  neap_onnx_attr out = {.name = name, .kind = NEAP_ONNX_OTHER, .ref = ""};
  const char *kind = take_field(t, "kind");
  for (int i = 0; i < NEAP_COUNT(kinds); i++)
    if (strcmp(kind, kinds[i]) == 0) out.kind = (neap_onnx_attr_kind)i;

  /* The kind says what the value must be; what is read as a table must be one, since raw access to
   * anything else is none of Lua's. */
  neap_lua_field(L, -1, "value");
  bool is_list = out.kind >= NEAP_ONNX_INTS && out.kind <= NEAP_ONNX_TEXTS;
  bool is_table = is_list || out.kind == NEAP_ONNX_TENSOR || out.kind == NEAP_ONNX_GRAPH;
  if (is_table && !lua_istable(L, -1))
    neap_lua_fail(L, NEAP_ARGUMENT, "attribute \"%s\" has no table", name);
  if (is_list) out.n = neap_lua_length(L, -1);

  /* Texts are the table's own; lists and graphs lie in rooms that the anchor keeps. */
  switch (out.kind) {
    case NEAP_ONNX_INT: out.i = lua_tointeger(L, -1); break;
    case NEAP_ONNX_FLOAT: out.f = lua_tonumber(L, -1); break;
    case NEAP_ONNX_REF: out.ref = neap_lua_text(L, -1, name); break;
    case NEAP_ONNX_TENSOR: out.tensor = take_tensor(t); break;
    case NEAP_ONNX_TEXTS: out.n = take_texts(t, &out.texts); break;
    case NEAP_ONNX_TEXT: out.text = text_at_top(L); break;
    case NEAP_ONNX_GRAPH:
      if (++t->depth > MOST_DEEP) neap_lua_fail(L, NEAP_ARGUMENT, "graphs are nested too deeply");
      out.graph = kept(t, 1, sizeof *out.graph);
      take_graph(t, out.graph);
      t->depth--;
      break;
    case NEAP_ONNX_INTS:
    case NEAP_ONNX_FLOATS: {
      int64_t *ints = kept(t, out.n, sizeof *ints);
      float *floats = kept(t, out.n, sizeof *floats);
      for (int i = 0; i < out.n; i++) {
        lua_rawgeti(L, -1, i + 1);
        ints[i] = lua_tointeger(L, -1);
        floats[i] = (float)lua_tonumber(L, -1);
        lua_pop(L, 1);
      }
      out.ints = ints;
      out.floats = floats;
      break;
    }
    case NEAP_ONNX_OTHER: break;
  }
  lua_pop(L, 1);
  return out;
}

/* Attributes by the order of their names, so that the same table is the same file. */
static int by_name(const void *a, const void *b) {
  return strcmp(((const neap_onnx_attr *)a)->name, ((const neap_onnx_attr *)b)->name);
}

static int take_attrs(taker *t, neap_onnx_attr **out) {
  lua_State *L = t->L;
  open_list(t, "attrs");
  int n = 0, at = lua_gettop(L);
  for (lua_pushnil(L); lua_next(L, at) != 0; lua_pop(L, 1)) n++;

  /* Counted first, since the room must not move while attributes hold pointers into it. */
  *out = kept(t, n, sizeof **out);
  n = 0;
  for (lua_pushnil(L); lua_next(L, at) != 0; lua_pop(L, 1)) {
    if (lua_type(L, -2) != LUA_TSTRING || !lua_istable(L, -1))
      neap_lua_fail(L, NEAP_ARGUMENT, "attributes are {name = {kind =, value =}}");
    (*out)[n++] = take_attr(t, lua_tostring(L, -2));
  }
  lua_pop(L, 1);
  qsort(*out, (size_t)n, sizeof **out, by_name);
  return n;
}

static int take_nodes(taker *t, neap_onnx_node **out) {
  lua_State *L = t->L;
  int n = open_list(t, "nodes");
  *out = kept(t, n, sizeof **out);
  for (int i = 0; i < n; i++) {
    neap_onnx_node *node = &(*out)[i];
    if (lua_rawgeti(L, -1, i + 1) != LUA_TTABLE)
      neap_lua_fail(L, NEAP_ARGUMENT, "node %d is no table", i + 1);
    node->name = take_field(t, "name");
    node->op = take_field(t, "op");
    node->domain = take_field(t, "domain");
    node->n_in = take_names(t, "inputs", &node->in);
    node->n_out = take_names(t, "outputs", &node->out);
    node->n_attr = take_attrs(t, &node->attr);
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
  return n;
}

/* The graph whose table is at the top. */
static void take_graph(taker *t, neap_onnx_graph *out) {
  lua_State *L = t->L;
  out->name = take_field(t, "name");
  out->n_node = take_nodes(t, &out->node);

  /* A list that is opened stays on top until all of its items have been read. */
  out->n_initializer = open_list(t, "initializers");
  out->initializer = kept(t, out->n_initializer, sizeof *out->initializer);
  for (int i = 0; i < out->n_initializer; i++) {
    if (lua_rawgeti(L, -1, i + 1) != LUA_TTABLE)
      neap_lua_fail(L, NEAP_ARGUMENT, "initializer %d is no table", i + 1);
    out->initializer[i] = take_tensor(t);
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
  out->n_input = take_values(t, "inputs", &out->input);
  out->n_output = take_values(t, "outputs", &out->output);
  out->n_value = take_values(t, "values", &out->value);
}

/* {domain = version} */
static int take_opsets(taker *t, neap_onnx_opset **out) {
  lua_State *L = t->L;
  open_list(t, "opsets");
  int n = 0, at = lua_gettop(L);
  for (lua_pushnil(L); lua_next(L, at) != 0; lua_pop(L, 1)) n++;
  *out = kept(t, n, sizeof **out);
  n = 0;
  for (lua_pushnil(L); lua_next(L, at) != 0; lua_pop(L, 1)) {
    if (lua_type(L, -2) != LUA_TSTRING)
      neap_lua_fail(L, NEAP_ARGUMENT, "opsets are {domain = version}");
    (*out)[n++] = (neap_onnx_opset){neap_lua_text(L, -2, "opsets"), lua_tointeger(L, -1)};
  }
  lua_pop(L, 1);
  return n;
}

/* core.write_onnx(path, {ir =, producer =, opsets =, graph =} [, bytes that may stand in the model
 * itself]) -> true, or nil, message, code. Functions are not written. */
static int write_onnx(lua_State *L) {
  const char *path = neap_lua_check_string(L, 1);
  neap_lua_check_type(L, 2, LUA_TTABLE);
  lua_Integer inline_bytes = neap_lua_opt_integer(L, 3, 0);

  /* Above the arguments lies the anchor, which keeps all rooms until the file is written. */
  lua_newtable(L);
  taker t = {.L = L, .anchor = lua_gettop(L)};
  neap_onnx_model model = {0};
  lua_pushvalue(L, 2);
  model.ir_version = take_integer(&t, "ir", 0);
  model.producer = take_field(&t, "producer");
  model.n_opset = take_opsets(&t, &model.opset);
  if (neap_lua_field(L, -1, "graph") != LUA_TTABLE)
    neap_lua_fail(L, NEAP_ARGUMENT, "there is no graph");
  take_graph(&t, &model.graph);
  neap_error error = {0};
  if (neap_onnx_write(&model, path, inline_bytes, &error) != NEAP_OK)
    return neap_lua_failure(L, &error);
  lua_pushboolean(L, true);
  return 1;
}

void neap_lua_open_onnx(lua_State *L) {
  static const neap_lua_reg functions[] = {{"read_onnx", read_onnx, 1},
                                           {"read_onnx_tensor", read_onnx_tensor, 1},
                                           {"write_onnx", write_onnx, 3},
                                           {NULL, NULL, 0}};
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
