/* net.c: the net handle. Its methods begin with `_` where lua/neap/net/init.lua wraps them: that
 * module knows blobs, scopes and branches; this one hands names to the net room and back. */
#include "lua/binding.h"

#include <string.h>

neap_lua_net *neap_lua_net_at(lua_State *L, int index) {
  neap_lua_net *net = neap_lua_at(L, index, NEAP_LUA_NET);
  if (net->net == NULL) neap_lua_fail(L, NEAP_RELEASED, "the net was closed");
  return net;
}

/* The net may live on in workspaces and in handles of its subnets. */
static void free_net(lua_State *L, void *at) {
  neap_lua_net *net = at;
  if (net->net == NULL) return;
  neap_lua_forget_handle(L, net->net);
  neap_net_free(net->net);
  net->net = NULL;
}

neap_lua_net *neap_lua_new_net(lua_State *L) {
  return neap_lua_new(L, sizeof(neap_lua_net), NEAP_LUA_NET, free_net);
}

static void make_handle(lua_State *L, void *net) {
  neap_lua_net *made = neap_lua_new_net(L);
  made->net = neap_net_retain(net);
}

void neap_lua_push_net(lua_State *L, neap_net *net) {
  neap_lua_push_held(L, NEAP_LUA_NET, net, make_handle);
}

static int to_text(lua_State *L) {
  const neap_lua_net *net = neap_lua_any(L, 1, NEAP_LUA_NET);
  if (net->net == NULL || neap_lua_is_closed(net))
    lua_pushliteral(L, "net (closed)");
  else
    lua_pushfstring(L, "net \"%s\": %d ops, %d blobs", neap_net_name(net->net),
                    neap_net_n_ops(net->net), neap_net_n_blobs(net->net));
  return 1;
}

/* ---- making ---------------------------------------------------------------------------------- */

/* line() -> "gpt.lua:31": the line of the user's that is running, "" when there is none. */
static int line(lua_State *L) {
  lua_pushstring(L, neap_lua_line(L));
  return 1;
}

/* new_net(name) */
static int new_net(lua_State *L) {
  const char *name = neap_lua_opt_string(L, 1, "net");
  /* In all makers: the handle first, so that the net has an owner when something raises. */
  neap_lua_net *net = neap_lua_new_net(L);
  NEAP_LUA_TRY(L, neap_net_new(name, &net->net, &error));
  return 1;
}

/* net:_sub(name [, closed]): a net whose free names are this one's; closed: one that sees its own
 * names only. */
static int sub(lua_State *L) {
  neap_lua_net *outer = neap_lua_net_at(L, 1);
  const char *name = neap_lua_check_string(L, 2);
  bool closed = lua_toboolean(L, 3);
  neap_lua_net *net = neap_lua_new_net(L);
  /* The subnet is the outer net's; the handle takes a reference of its own. */
  neap_net *made = NULL;
  NEAP_LUA_TRY(L, closed ? neap_net_new_closed_sub(outer->net, name, &made, &error)
                         : neap_net_new_sub(outer->net, name, &made, &error));
  net->net = neap_net_retain(made);
  return 1;
}

/* net:_copy_sub(other): a closed subnet with what `other` declares and does. */
static int copy_sub(lua_State *L) {
  neap_lua_net *outer = neap_lua_net_at(L, 1);
  const neap_lua_net *from = neap_lua_net_at(L, 2);
  neap_lua_net *net = neap_lua_new_net(L);
  neap_net *made = NULL;
  NEAP_LUA_TRY(L, neap_net_copy_sub(outer->net, from->net, &made, &error));
  net->net = neap_net_retain(made);
  return 1;
}

/* net:_local(scope, name): the full name of a local of the scope's top frame, or nil. */
static int local_name(lua_State *L) {
  lua_pushstring(L, neap_net_local(neap_lua_net_at(L, 1)->net, neap_lua_check_string(L, 2),
                                   neap_lua_check_string(L, 3)));
  return 1;
}

/* net:_is_scope(name): whether the name means a scope here. */
static int is_scope(lua_State *L) {
  lua_pushboolean(L, neap_net_is_scope(neap_lua_net_at(L, 1)->net, neap_lua_check_string(L, 2)));
  return 1;
}

/* net:_has_local(name): whether that is the full name of a local of some frame. */
static int has_local(lua_State *L) {
  lua_pushboolean(L, neap_net_has_local(neap_lua_net_at(L, 1)->net, neap_lua_check_string(L, 2)));
  return 1;
}

/* sub:_take(name [, dtype, shape]): a blob that a closed subnet gets from outside, without a type
 * of its own; the type it has there, as far as it is known now, is for those who ask while the body
 * is written. */
static int take(lua_State *L) {
  neap_lua_net *net = neap_lua_net_at(L, 1);
  const char *name = neap_lua_check_string(L, 2);
  lua_settop(L, 4);
  /* Declared without a type: it has the one that comes from outside. */
  NEAP_LUA_TRY(L, neap_net_declare(net->net, name, NEAP_ROLE_INPUT, NULL, false, NULL, NULL,
                                   neap_lua_line(L), &error));
  /* The type as it is outside, for those who ask now. */
  if (lua_isnil(L, 3)) return 0;
  neap_type type = {.dtype = neap_lua_dtype(L, 3, NEAP_DTYPE_F32)};
  neap_lua_shape(L, 4, &type.shape, name);
  NEAP_LUA_TRY(L, neap_net_take_type(net->net, name, &type, &error));
  return 0;
}

static int clone(lua_State *L) {
  const neap_lua_net *from = neap_lua_net_at(L, 1);
  neap_lua_net *net = neap_lua_new_net(L);
  NEAP_LUA_TRY(L, neap_net_clone(from->net, &net->net, &error));
  return 1;
}

/* read_net(text) */
static int read_net(lua_State *L) {
  const char *text = neap_lua_check_string(L, 1);
  neap_lua_net *net = neap_lua_new_net(L);
  NEAP_LUA_TRY(L, neap_net_read(text, &net->net, &error));
  /* A text can name shapes that don't fit: said now, not when the net is planned. */
  NEAP_LUA_TRY(L, neap_net_check_types(net->net, &error));
  return 1;
}

/* net:_split_micro() -> the net of one micro-batch, the net of the update */
static int split_micro(lua_State *L) {
  const neap_lua_net *from = neap_lua_net_at(L, 1);
  neap_lua_net *micro = neap_lua_new_net(L), *update = neap_lua_new_net(L);
  NEAP_LUA_TRY(L, neap_net_split_micro(from->net, &micro->net, &update->net, &error));
  return 2;
}

/* update:_split_hold() -> the net that holds a batch's gradients, the net that joins those held to
 * a batch's */
static int split_hold(lua_State *L) {
  const neap_lua_net *update = neap_lua_net_at(L, 1);
  neap_lua_net *hold = neap_lua_new_net(L), *join = neap_lua_new_net(L);
  NEAP_LUA_TRY(L, neap_net_split_hold(update->net, &hold->net, &join->net, &error));
  return 2;
}

/* net:rename{old = "new"} -> net */
static int rename_blobs(lua_State *L) {
  const neap_lua_net *from = neap_lua_net_at(L, 1);
  neap_lua_check_type(L, 2, LUA_TTABLE);

  /* The copy is walked: interning a name and making rooms may run finalisers, which could change
   * the user's table. */
  int n = neap_lua_copy(L, 2), copy = lua_gettop(L);
  const char **old = neap_lua_room(L, (size_t)n * sizeof *old),
             **new = neap_lua_room(L, (size_t)n * sizeof *new);

  /* Both names are interned: they don't need the copy any more when the net reads them. */
  int i = 0;
  for (lua_pushnil(L); lua_next(L, copy) != 0; lua_pop(L, 1), i++) {
    lua_pushvalue(L, -2); /* a copy: lua_next must see the key as it was */
    old[i] = neap_lua_name(L, -1, "rename");
    lua_pop(L, 1);
    new[i] = neap_lua_name(L, -1, "rename");
  }
  neap_lua_net *net = neap_lua_new_net(L);
  NEAP_LUA_TRY(L, neap_net_rename(from->net, i, old, new, &net->net, &error));
  NEAP_LUA_TRY(L, neap_net_check_types(net->net, &error)); /* two blobs may have become one */
  return 1;
}

/* ---- declaring and adding -------------------------------------------------------------------- */

static neap_role role_at(lua_State *L, int index) {
  static const char *const names[] = {
#define X(symbol, name) name,
    NEAP_ROLE_MAP(X)
#undef X
      NULL};
  return (neap_role)neap_lua_check_option(L, index, NULL, names);
}

/* net:_declare(name, role, shape, dtype, init, trainable [, line]): init is {op = "Xavier", its
 * attributes} or {"Xavier", ..} or nil. */
static int declare(lua_State *L) {
  neap_lua_net *net = neap_lua_net_at(L, 1);
  const char *name = neap_lua_check_string(L, 2), *init = NULL;
  neap_role role = role_at(L, 3);
  neap_type type = {.dtype = neap_lua_dtype(L, 5, NEAP_DTYPE_F32)};

  /* Without a table the arguments from here on would be read as sizes. */
  if (!lua_istable(L, 4))
    neap_lua_fail(L, NEAP_ARGUMENT, "\"%s\" expects a shape, {2, 3}, got a %s", name,
                  luaL_typename(L, 4));
  neap_lua_shape(L, 4, &type.shape, name);
  bool trainable = lua_toboolean(L, 7);

  /* All arguments are there, given or nil; rooms of attributes lie above them. */
  lua_settop(L, 8);
  neap_set *attrs = NULL;
  if (lua_istable(L, 6)) {
    /* The op's name: the field, or else the first item. It stays on the stack. */
    if (neap_lua_field(L, 6, "op") != LUA_TSTRING) lua_rawgeti(L, 6, 1);
    if (lua_type(L, -1) != LUA_TSTRING)
      neap_lua_fail(L, NEAP_ARGUMENT,
                    "init of \"%s\" expects { op = \"Xavier\", .. } or neap.init.xavier {}", name);
    const neap_op *op = neap_lua_op(L, lua_gettop(L));
    init = neap_op_name(op);
    /* All other fields are the op's attributes. */
    static const char *const skip[] = {"op", NULL};
    attrs = neap_lua_attrs(L, 6, op, skip);
  } else if (!lua_isnil(L, 6)) {
    neap_lua_fail(L, NEAP_ARGUMENT,
                  "init of \"%s\" expects a table, e.g. neap.init.xavier {}, got a %s", name,
                  luaL_typename(L, 6));
  }

  /* Where the blob was declared, for messages: as given, or the user's line that runs. */
  const char *line = lua_isnil(L, 8) ? neap_lua_line(L) : neap_lua_check_string(L, 8);
  NEAP_LUA_TRY(L,
               neap_net_declare(net->net, name, role, &type, trainable, init, attrs, line, &error));
  return 0;
}

/* Names of the op's outputs, false where left out. */
static int push_outputs(lua_State *L, const neap_net *net, int at) {
  bool held = neap_lua_hold_finalisers(L); /* one could change the net */
  const neap_net_op *op = neap_net_op_at(net, at);
  lua_createtable(L, op->n_out, 0);
  for (int k = 0; k < op->n_out; k++) {
    /* A list may have no hole: false is one that was left out. */
    if (op->out[k] != NULL)
      lua_pushstring(L, op->out[k]);
    else
      lua_pushboolean(L, false);
    lua_rawseti(L, -2, k + 1);
  }
  neap_lua_let_finalisers(L, held);
  return 1;
}

/* net:_add(type, ins, outs, attrs, name, scope [, line [, device [, layer]]]) -> names of the
 * outputs, false where left out. outs nil: all required ones, named here. line: what made the op,
 * "gpt.lua:31", where the stack does not show it. */
static int add(lua_State *L) {
  neap_lua_net *net = neap_lua_net_at(L, 1);
  const neap_op *op = neap_lua_op(L, 2);
  lua_settop(L, 10);

  /* What is added. Texts are arguments or interned; lists and attributes lie in rooms above the
   * arguments until the net has copied them. */
  neap_net_call call = {.type = neap_op_name(op),
                        .name = neap_lua_opt_string(L, 6, NULL),
                        .scope = neap_lua_opt_string(L, 7, NULL)};
  call.in = neap_lua_names(L, 3, call.type, true, &call.n_in);

  /* Without a list of outputs the net names them. */
  if (!lua_isnil(L, 4)) call.out = neap_lua_names(L, 4, call.type, true, &call.n_out);
  call.attrs = neap_lua_attrs(L, 5, op, NULL);
  call.line = lua_isnil(L, 8) ? neap_lua_line(L) : neap_lua_check_string(L, 8);
  call.device = neap_lua_opt_string(L, 9, NULL);
  call.layer = neap_lua_opt_string(L, 10, NULL);

  /* Types are checked as ops come, so that the message has the user's line. */
  call.typed = true;
  int at = 0;
  NEAP_LUA_TRY(L, neap_net_add(net->net, &call, &at, &error));
  return push_outputs(L, net->net, at);
}

/* net:_outputs{names} */
static int outputs(lua_State *L) {
  neap_lua_net *net = neap_lua_net_at(L, 1);
  int n;
  const char **names = neap_lua_names(L, 2, "outputs", false, &n);
  NEAP_LUA_TRY(L, neap_net_set_outputs(net->net, n, names, &error));
  return 0;
}

/* net:_keep(name) */
static int keep(lua_State *L) {
  neap_lua_net *net = neap_lua_net_at(L, 1);
  const char *name = neap_lua_name(L, 2, "keep");
  NEAP_LUA_TRY(L, neap_net_keep(net->net, name, &error));
  return 0;
}

/* net:_assign(name, bank) */
static int assign(lua_State *L) {
  neap_lua_net *net = neap_lua_net_at(L, 1);
  const char *name = neap_lua_name(L, 2, "bank");
  NEAP_LUA_TRY(L, neap_net_assign(net->net, name, neap_lua_check_string(L, 3), &error));
  return 0;
}

/* sub:_interface{ins}{outs}: what a subnet takes from around it and gives back. */
static int interface(lua_State *L) {
  neap_lua_net *net = neap_lua_net_at(L, 1);
  int n_in, n_out;
  /* Both rooms stay on the stack. */
  const char **in = neap_lua_names(L, 2, "captures", false, &n_in),
             **out = neap_lua_names(L, 3, "results", false, &n_out);
  NEAP_LUA_TRY(L, neap_net_set_sub_interface(net->net, n_in, in, n_out, out, &error));
  return 0;
}

/* net:_gradient(loss, {wrt}, allow_unused, by_plan) -> names of the gradients. by_plan: what the
 * whole net has against it its plan will say. */
static int gradient(lua_State *L) {
  neap_lua_net *net = neap_lua_net_at(L, 1);
  lua_settop(L, 5);
  bool unused = lua_toboolean(L, 4), by_plan = lua_toboolean(L, 5);
  const char *loss = neap_lua_name(L, 2, "gradient"), *line = neap_lua_line(L);
  int n;
  const char **wrt = neap_lua_names(L, 3, "wrt", false, &n);
  if (by_plan)
    NEAP_LUA_TRY(L, neap_net_add_gradient_of(net->net, loss, n, wrt, NULL, unused, line, &error));
  else
    NEAP_LUA_TRY(L, neap_net_gradient(net->net, loss, n, wrt, unused, line, &error));
  /* The gradient is an op like others, and the last one now. */
  return push_outputs(L, net->net, neap_net_n_ops(net->net) - 1);
}

/* ---- reading --------------------------------------------------------------------------------- */

static int name(lua_State *L) {
  lua_pushstring(L, neap_net_name(neap_lua_net_at(L, 1)->net));
  return 1;
}

/* net:_type(name) -> dtype, shape; nil when not known (yet). */
static int type_of(lua_State *L) {
  neap_lua_net *net = neap_lua_net_at(L, 1);
  const char *blob = neap_lua_name(L, 2, "a blob");
  neap_type type = {0};
  NEAP_LUA_TRY(L, neap_net_type_of(net->net, blob, &type, &error));
  if (type.dtype == NEAP_DTYPE_NONE) return 0;
  lua_pushstring(L, neap_dtype_name(type.dtype));
  neap_lua_push_shape(L, &type.shape);
  return 2;
}

static void push_names(lua_State *L, int n, const char *const *names) {
  lua_createtable(L, n, 0);
  for (int k = 0; k < n; k++) {
    /* false stands for an input that is absent. */
    if (names[k] != NULL)
      lua_pushstring(L, names[k]);
    else
      lua_pushboolean(L, false);
    lua_seti(L, -2, k + 1);
  }
}

/* net:_ops() -> {type, name, scope, layer, line, device, backward, pseudo, inputs, outputs} in
 * order */
static int ops(lua_State *L) {
  const neap_net *net = neap_lua_net_at(L, 1)->net;
  int n = neap_net_n_ops(net);
  lua_createtable(L, n, 0);
  for (int i = 0; i < n; i++) {
    const neap_net_op *op = neap_net_op_at(net, i);
    lua_createtable(L, 0, 11);
    /* Who it is, where it was written, and what it is for. */
    neap_op_record record = neap_op_read(op->op);
    neap_lua_set_text(L, "type", record.name);
    neap_lua_set_text(L, "name", op->name);
    neap_lua_set_text(L, "scope", op->scope);
    neap_lua_set_text(L, "layer", op->layer);
    neap_lua_set_text(L, "line", op->line);
    neap_lua_set_text(L, "device", op->device);
    neap_lua_set_bool(L, "backward", op->origin.backward);
    neap_lua_set_bool(L, "pseudo", record.pseudo);
    /* What it reads and makes. */
    push_names(L, op->n_in, op->in);
    lua_setfield(L, -2, "inputs");
    push_names(L, op->n_out, op->out);
    lua_setfield(L, -2, "outputs");
    lua_seti(L, -2, i + 1);
  }
  return 1;
}

/* net:_attrs(i) -> the attributes of op i by name, those that were not given too, but for a number
 * that then stands for none. */
static int attributes(lua_State *L) {
  const neap_net *net = neap_lua_net_at(L, 1)->net;
  int64_t i = neap_lua_check_integer(L, 2);
  if (i < 1 || i > neap_net_n_ops(net)) return 0;
  const neap_net_op *op = neap_net_op_at(net, (int)i - 1);
  lua_createtable(L, 0, neap_op_n_attrs(op->op));
  for (int a = 0; a < neap_op_n_attrs(op->op); a++) {
    const neap_attr *attr = neap_op_attr_at(op->op, a);
    const bool is_none = attr->type == NEAP_ATTR_INT && attr->unlike_default;
    if (is_none && !op->attrs[a].given) continue;
    /* nil, for subnets and names, sets no field. */
    neap_lua_push_attr(L, attr, &op->attrs[a]);
    lua_setfield(L, -2, attr->name);
  }
  return 1;
}

/* net:_subnets(i) -> the nets of op i by the attribute's name: {net =, takes = names that it is
 * given}; its outputs are what it gives. */
static int subnets(lua_State *L) {
  const neap_net *net = neap_lua_net_at(L, 1)->net;
  int64_t i = neap_lua_check_integer(L, 2);
  lua_newtable(L);
  if (i < 1 || i > neap_net_n_ops(net)) return 1;

  /* From below: all subnets, one of them, its handle or the names it takes. The handle retains the
   * net around the subnet, so that it may outlive this one's handle. */
  const neap_net_op *op = neap_net_op_at(net, (int)i - 1);
  for (int a = 0; a < neap_op_n_attrs(op->op); a++) {
    if (neap_op_attr_at(op->op, a)->type != NEAP_ATTR_NET || op->attrs[a].net == NULL) continue;
    neap_net *inner = (neap_net *)(uintptr_t)op->attrs[a].net;
    lua_newtable(L);
    neap_lua_new_net(L)->net = neap_net_retain(inner);
    lua_setfield(L, -2, "net");
    lua_newtable(L);
    for (int k = 0; k < neap_net_n_sub_inputs(inner); k++) {
      lua_pushstring(L, neap_net_sub_input_at(inner, k));
      lua_rawseti(L, -2, k + 1);
    }
    lua_setfield(L, -2, "takes");
    lua_setfield(L, -2, neap_op_attr_at(op->op, a)->name);
  }
  return 1;
}

static void push_blob(lua_State *L, const neap_net_blob *blob) {
  lua_createtable(L, 0, 8);
  neap_lua_set_text(L, "name", blob->name);
  neap_lua_set_text(L, "role", neap_role_name(blob->role));
  neap_lua_set_text(L, "line", blob->line);
  neap_lua_set_text(L, "gradient_of", blob->gradient_of);
  neap_lua_set_text(L, "bank", blob->bank);
  neap_lua_set_bool(L, "keep", blob->keep);
  neap_lua_set_bool(L, "trainable", blob->trainable);

  /* A type is there only where one was declared. */
  if (blob->type.dtype == NEAP_DTYPE_NONE) return;
  neap_lua_set_text(L, "dtype", neap_dtype_name(blob->type.dtype));
  neap_lua_push_shape(L, &blob->type.shape);
  lua_setfield(L, -2, "shape");
}

/* net:_blobs() -> {name, role, keep, trainable, dtype, shape}; dtype and shape where declared */
static int blobs(lua_State *L) {
  const neap_net *net = neap_lua_net_at(L, 1)->net;
  int n = neap_net_n_blobs(net);
  lua_createtable(L, n, 0);
  for (int i = 0; i < n; i++) {
    push_blob(L, neap_net_blob_at(net, i));
    lua_seti(L, -2, i + 1);
  }
  return 1;
}

/* net:_blob(name) -> the same for one, or nil: not in this net. */
static int blob(lua_State *L) {
  const neap_net_blob *found =
    neap_net_find_blob(neap_lua_net_at(L, 1)->net, neap_lua_check_string(L, 2));
  if (found == NULL) return 0;
  push_blob(L, found);
  return 1;
}

static int output_names(lua_State *L) {
  const neap_net *net = neap_lua_net_at(L, 1)->net;
  int n = neap_net_n_outputs(net);
  lua_createtable(L, n, 0);
  for (int k = 0; k < n; k++) {
    lua_pushstring(L, neap_net_output_at(net, k));
    lua_seti(L, -2, k + 1);
  }
  return 1;
}

/* net:_dot(fold) -> text */
static int dot(lua_State *L) {
  const neap_lua_net *net = neap_lua_net_at(L, 1);
  /* The text is in a slot, which frees it when pushing raises. */
  char **text = (char **)neap_lua_new_block(L);
  NEAP_LUA_TRY(
    L, neap_net_dot_folded(net->net, neap_lua_to_int(L, neap_lua_opt_integer(L, 2, 0), "fold"),
                           text, &error));
  lua_pushstring(L, *text);
  return 1;
}

/* net:text([{lines = false}]) */
static int text(lua_State *L) {
  const neap_net *net = neap_lua_net_at(L, 1)->net;
  neap_lua_only_fields(L, 2, "net:text", (const char *const[]){"lines", NULL});
  bool lines = neap_lua_flag(L, 2, "net:text", "lines", true);
  char **out = (char **)neap_lua_new_block(L);
  NEAP_LUA_TRY(L, neap_net_text_with(net, lines, out, &error));
  lua_pushstring(L, *out);
  return 1;
}

/* net:_mark() -> mark, for _end_mark(mark, keep): without `keep` the net, and all around and within
 * it, is as it was at the mark. */
static int mark(lua_State *L) {
  lua_pushinteger(L, neap_net_mark(neap_lua_net_at(L, 1)->net));
  return 1;
}

static int end_mark(lua_State *L) {
  const neap_lua_net *h = neap_lua_any(L, 1, NEAP_LUA_NET);
  /* Called while an error passes too: a net that is gone is no further error. */
  if (h->net != NULL && !neap_lua_is_closed(h))
    neap_net_end_mark(h->net, neap_lua_to_int(L, neap_lua_check_integer(L, 2), "a mark"),
                      lua_toboolean(L, 3));
  return 0;
}

static int version(lua_State *L) {
  lua_pushinteger(L, (lua_Integer)neap_net_version(neap_lua_net_at(L, 1)->net));
  return 1;
}

static int is_train(lua_State *L) {
  lua_pushboolean(L, neap_net_is_train(neap_lua_net_at(L, 1)->net));
  return 1;
}

/* net:_graph(options, what): the prepared graph as text ("canonical" or "people"), its hash
 * ("hash"), or as a net ("net"). */
static int graph(lua_State *L) {
  const neap_net *net = neap_lua_net_at(L, 1)->net;
  static const char *const choice[] = {"canonical", "people", "hash", "net", NULL};
  enum { CANONICAL, PEOPLE, HASH, NET } what = (unsigned)neap_lua_check_option(L, 3, NULL, choice);

  /* The net is at 1: options are read against its inputs. */
  neap_options options = neap_lua_options(L, 2, 1);
  if (what == NET) {
    neap_lua_net *made = neap_lua_new_net(L);
    NEAP_LUA_TRY(L, neap_net_expand(net, &options, &made->net, &error));
    return 1;
  }
  if (what == HASH) {
    char hash[33];
    NEAP_LUA_TRY(L, neap_net_graph_hash(net, &options, hash, &error));
    lua_pushstring(L, hash);
    return 1;
  }
  char **out = (char **)neap_lua_new_block(L);
  NEAP_LUA_TRY(L, neap_net_graph_text(net, &options, what == CANONICAL, out, &error));
  return neap_lua_push_text(L, out);
}

void neap_lua_open_net(lua_State *L) {
  static const neap_lua_reg meta[] = {{"__close", neap_lua_close, NEAP_LUA_ANY},
                                      {"__tostring", to_text, NEAP_LUA_ANY},
                                      {NULL, NULL, 0}};
  static const neap_lua_reg methods[] = {{"_sub", sub, 3},
                                         {"_copy_sub", copy_sub, 2},
                                         {"_subnets", subnets, 2},
                                         {"_split_micro", split_micro, 1},
                                         {"_split_hold", split_hold, 1},
                                         {"_local", local_name, 3},
                                         {"_is_scope", is_scope, 2},
                                         {"_has_local", has_local, 2},
                                         {"_take", take, 4},
                                         {"_declare", declare, 8},
                                         {"_add", add, 10},
                                         {"_outputs", outputs, 2},
                                         {"_keep", keep, 2},
                                         {"_assign", assign, 3},
                                         {"_interface", interface, 3},
                                         {"_gradient", gradient, 5},
                                         {"_name", name, 1},
                                         {"_type", type_of, 2},
                                         {"_ops", ops, NEAP_LUA_ALONE | 1},
                                         {"_attrs", attributes, 2},
                                         {"_blobs", blobs, NEAP_LUA_ALONE | 1},
                                         {"_blob", blob, NEAP_LUA_ALONE | 2},
                                         {"_output_names", output_names, NEAP_LUA_ALONE | 1},
                                         {"_version", version, 1},
                                         {"_mark", mark, 1},
                                         {"_end_mark", end_mark, 3},
                                         {"_is_train", is_train, 1},
                                         {"_dot", dot, 2},
                                         {"_graph", graph, NEAP_LUA_ALONE | 3},
                                         {"text", text, 2},
                                         {"clone", clone, 1},
                                         {"rename", rename_blobs, 2},
                                         {NULL, NULL, 0}};
  neap_lua_class(L, NEAP_LUA_NET, "Net", meta, methods);
  static const neap_lua_reg functions[] = {
    {"new_net", new_net, 1}, {"line", line, 0}, {"read_net", read_net, 1}, {NULL, NULL, 0}};
  neap_lua_functions(L, functions, false);
}
