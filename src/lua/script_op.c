/* script_op.c: ops whose record is a table of a script: neap.op { run = f, .. }. Such an op has a
 * record of C as all have (neap/record.h), so that nets, plans, help and checks know nothing
 * special of it; its functions call the script's. lua/neap/ops/define.lua makes the table and says
 * what the script's functions get.
 *
 * INVARIANT: the script's functions are called on the thread that calls Neap, in the Lua state that
 * defined the op, and in no parallel region: its kernel runs alone. From anywhere else it is an
 * error.
 * INVARIANT: what a script raises ends in the call that it is part of: as an error record, or as
 * the fault of the run.
 * INVARIANT: a script gets copies of what a kernel reads, and gives tensors of its own: it never
 * has planned bytes. While it is called, nets and workspaces of the caller can't be used
 * (neap_lua_fence).
 * INVARIANT: a record lives as long as the process; once its state is closed nobody finds it.
 */
#include "lua/binding.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What record.user points to; the table with the functions lies in the registry under its
 * address. */
typedef struct script_op {
  neap_op op;
  neap_kernel kernels[2];
  lua_State *home; /* the main thread of the state; NULL: it is closed */
} script_op;

/* ---- calls of the script --------------------------------------------------------------------- */

/* One call, to be made in protected mode. */
typedef struct task {
  lua_CFunction call;  /* gets this as a light userdata, the table of the op beside it */
  const script_op *of; /* and, by what is called, one of these */
  const neap_call *run;
  neap_infer *infer;
  neap_grad *grad;
  neap_cost *cost;
  neap_status code; /* of what went wrong; `text` says it */
  char text[512];
} task;

/* The words of the error at index 1, which may be anything: into the task at index 2. */
static int read_error(lua_State *L) {
  task *t = lua_touserdata(L, 2);
  if (lua_istable(L, 1)) { /* an error object: of that, code and message */
    if (neap_lua_field(L, 1, "code") == LUA_TSTRING)
      for (int code = 1; code <= NEAP_INTERNAL; code++)
        if (strcmp(neap_status_text((neap_status)code), lua_tostring(L, -1)) == 0)
          t->code = (neap_status)code;
  }
  snprintf(t->text, sizeof t->text, "%s", luaL_tolstring(L, 1, NULL));
  return 0;
}

/* Makes the task's call; false: t->text says what went wrong. */
static bool carry_out(task *t) {
  lua_State *L = neap_lua_at_work();
  const char *name = t->of->op.name;
  bool is_home = false;

  /* Only in the state that defined the op, and while this thread is in a call of Neap: the script's
   * functions are values of that state. */
  if (L != NULL && t->of->home != NULL && lua_checkstack(L, 16)) {
    lua_rawgeti(L, LUA_REGISTRYINDEX, LUA_RIDX_MAINTHREAD);
    is_home = lua_tothread(L, -1) == t->of->home;
    lua_pop(L, 1);
  }
  if (!is_home) {
    snprintf(t->text, sizeof t->text,
             t->of->home == NULL ? "the script that defined %s has ended"
                                 : "%s runs where the script that defined it runs: in no other "
                                   "thread or state",
             name);
    return false;
  }

  /* Handles that were there before are fenced off while the script runs: one of them may be in the
   * midst of this very run. */
  int top = lua_gettop(L);
  uint64_t fence = neap_lua_fence(true, 0);

  /* From below: the function, the task, the table. */
  lua_pushcfunction(L, t->call);
  lua_pushlightuserdata(L, t);
  lua_rawgetp(L, LUA_REGISTRYINDEX, t->of);
  bool done = neap_lua_call_protected(L, 2, 0) == LUA_OK;
  if (!done) {
    /* The error lies on top. Words are made of it in protected mode, too. */
    lua_pushcfunction(L, read_error);
    lua_insert(L, -2);
    lua_pushlightuserdata(L, t);
    if (neap_lua_call_protected(L, 2, 0) != LUA_OK)
      snprintf(t->text, sizeof t->text, "an error that can't be printed");
  }

  /* As it was, after an error, too: an op's function may be called within another one's. */
  neap_lua_fence(false, fence);
  lua_settop(L, top);
  return done;
}

/* The same for infer and grad. */
static neap_status carry_out_or_fail(task *t, neap_error *error) {
  if (carry_out(t)) return NEAP_OK;
  return neap_fail(error, t->code, "%s", t->text);
}

/* Pushes function `key` of the op's table, at index 2. */
static void push_function(lua_State *L, const char *key) {
  if (neap_lua_field(L, 2, key) != LUA_TFUNCTION) luaL_error(L, "the op has lost its %s", key);
}

/* Pushes the attributes as a table; those that were left out and have no default are not in it. */
static void push_attrs(lua_State *L, const neap_op *op, const neap_attr_value *attrs) {
  lua_newtable(L);
  for (int a = 0; a < neap_op_n_attrs(op); a++) {
    if (op->attrs[a].unlike_default && !attrs[a].given) continue;
    neap_lua_push_attr(L, &op->attrs[a], &attrs[a]);
    lua_setfield(L, -2, op->attrs[a].name);
  }
}

/* Pushes a list of { dtype =, shape = }, false where absent. */
static void push_types(lua_State *L, int n, const neap_type *type) {
  lua_createtable(L, n, 0);
  for (int i = 0; i < n; i++) {
    if (type[i].dtype == NEAP_DTYPE_NONE) {
      lua_pushboolean(L, false);
    } else {
      lua_createtable(L, 0, 2);
      neap_lua_set_text(L, "dtype", neap_dtype_name(type[i].dtype));
      neap_lua_push_shape(L, &type[i].shape);
      lua_setfield(L, -2, "shape");
    }
    lua_seti(L, -2, i + 1);
  }
}

/* ---- types ----------------------------------------------------------------------------------- */

/* infer(attrs, types, n_out) -> list of { dtype =, shape = } */
static int call_infer(lua_State *L) {
  task *t = lua_touserdata(L, 1);
  neap_infer *c = t->infer;

  /* From below: the task, the op's table; the call's answer is then 3. */
  push_function(L, "infer");
  push_attrs(L, c->op, c->attrs);
  push_types(L, c->n_in, c->in);
  lua_pushinteger(L, c->n_out);
  lua_call(L, 3, 1);

  /* lua/neap/ops/define.lua has looked at what the script gave. */
  for (int k = 0; k < c->n_out; k++) {
    lua_rawgeti(L, 3, k + 1);
    lua_getfield(L, 4, "dtype");
    c->out[k].dtype = neap_lua_dtype(L, 5, NEAP_DTYPE_NONE);
    lua_getfield(L, 4, "shape");
    neap_lua_shape(L, 6, &c->out[k].shape, "an output's shape");
    lua_settop(L, 3);
  }
  return 0;
}

static neap_status infer(neap_infer *c, neap_error *error) {
  task t = {.call = call_infer, .of = c->op->user, .infer = c, .code = NEAP_SHAPE};
  neap_status status = neap_infer_admits(c, error);
  if (status != NEAP_OK) return status;
  return carry_out_or_fail(&t, error);
}

/* cost(attrs, types in, types out) -> flops */
static int call_cost(lua_State *L) {
  task *t = lua_touserdata(L, 1);
  const neap_infer *c = t->infer;
  push_function(L, "cost");
  push_attrs(L, c->op, c->attrs);
  push_types(L, c->n_in, c->in);
  push_types(L, c->n_out, c->out);
  lua_call(L, 3, 1);
  t->cost->flops = lua_tonumber(L, -1);
  return 0;
}

/* The bytes are set already: every operand once. The script's function has been tried by infer; one
 * that fails now has no flops to tell. */
static void cost(const neap_infer *c, neap_cost *out) {
  neap_infer copy = *c;
  task t = {.call = call_cost, .of = c->op->user, .infer = &copy, .cost = out};
  if (!carry_out(&t)) out->flops = 0;
}

/* ---- the kernel ------------------------------------------------------------------------------ */

/* Pushes a tensor with the operand's numbers. */
static void push_copy(lua_State *L, const neap_operand *operand) {
  neap_lua_tensor *handle = neap_lua_new_tensor(L);
  NEAP_LUA_TRY(L, neap_tensor_new(&handle->t, operand->type.dtype, &operand->type.shape, &error));
  memcpy(neap_tensor_data(&handle->t), operand->data, neap_tensor_bytes(&handle->t));
}

/* Copies the tensor at `index` into the operand. */
static void take_copy(lua_State *L, int index, const neap_operand *operand) {
  neap_lua_tensor *to = neap_lua_new_tensor(L);
  const neap_tensor *from = neap_lua_tensor_at(L, index);
  NEAP_LUA_TRY(L, neap_tensor_borrow(&to->t, operand->type.dtype, &operand->type.shape,
                                     operand->data, NULL, NULL, &error));
  NEAP_LUA_TRY(L, neap_tensor_copy(&to->t, from, &error));
  neap_tensor_fini(&to->t); /* nobody has it when the bytes go */
}

/* run(attrs, tensors, types of outputs) -> list of tensors of those types */
static int call_run(lua_State *L) {
  task *t = lua_touserdata(L, 1);
  const neap_call *c = t->run;

  /* From below: the task, the op's table, the function and its three arguments; the answer is then
   * 3. */
  push_function(L, "run");
  push_attrs(L, c->op, c->attrs);
  lua_createtable(L, c->n_in, 0);
  for (int i = 0; i < c->n_in; i++) {
    if (c->in[i].data == NULL)
      lua_pushboolean(L, false);
    else
      push_copy(L, &c->in[i]);
    lua_seti(L, -2, i + 1);
  }

  /* The types of the outputs are said, so that the script need not find them again. Their room goes
   * once the list is made. */
  neap_type *type = neap_lua_room(L, (size_t)NEAP_MAX(c->n_out, 1) * sizeof *type);
  for (int k = 0; k < c->n_out; k++) type[k] = c->out[k].type;
  push_types(L, c->n_out, type);
  lua_remove(L, -2);
  lua_call(L, 3, 1);

  /* What the script gave is copied over: it may keep its own tensors. */
  for (int k = 0; k < c->n_out; k++) {
    if (c->out[k].data == NULL) continue;
    lua_rawgeti(L, 3, k + 1);
    take_copy(L, 4, &c->out[k]);
    lua_settop(L, 3);
  }
  return 0;
}

/* Zeros where the script gave nothing, as all kernels that record a fault. */
static void run(const neap_call *c) {
  task t = {.call = call_run, .of = c->op->user, .run = c};
  if (carry_out(&t)) return;
  for (int k = 0; k < c->n_out; k++) {
    int64_t n = neap_shape_elems(&c->out[k].type.shape);
    if (c->out[k].data != NULL)
      memset(c->out[k].data, 0, (size_t)n * neap_dtype_bytes(c->out[k].type.dtype));
  }
  neap_call_fault(c, "%s", t.text);
}

/* ---- the gradient ---------------------------------------------------------------------------- */

/* A net written out as values of the graph: the newest value of each name. */
typedef struct scene {
  const neap_net *net;
  neap_grad *grad;
  int n;
  struct {
    const char *name; /* interned */
    neap_value_id value;
  } * known;
} scene;

static void learn(scene *s, const char *name, neap_value_id value) {
  for (int i = 0; i < s->n; i++)
    if (s->known[i].name == name) {
      s->known[i].value = value;
      return;
    }
  s->known[s->n].name = name;
  s->known[s->n++].value = value;
}

static void emit(lua_State *L, scene *s, const neap_net_op *op);

/* The value of a name; what the net declares is made by the op that fills it. */
static neap_value_id value_of(lua_State *L, scene *s, const char *name) {
  for (int i = 0; i < s->n; i++)
    if (s->known[i].name == name) return s->known[i].value;
  const neap_net_blob *blob = neap_net_find_blob(s->net, name);
  if (blob == NULL || blob->init < 0 || blob->role == NEAP_ROLE_PARAMETER)
    luaL_error(L, "its gradient reads \"%s\", which is none of its arguments", name);
  emit(L, s, neap_net_init_at(s->net, blob->init));
  return s->known[s->n - 1].value;
}

/* One op of the net, with all its attributes. */
static void emit(lua_State *L, scene *s, const neap_net_op *op) {
  neap_op_record record = neap_op_read(op->op);
  if (record.control)
    luaL_error(L,
               "its gradient holds %s, which is no op of values: write it without branches, loops "
               "and gradients",
               record.name);

  /* A node of the graph instead of an op of the net, with the same attributes. Rooms go at the end:
   * the graph copies what it keeps. */
  int n_attr = neap_op_n_attrs(op->op), top = lua_gettop(L);
  neap_value_id *in = neap_lua_room(L, (size_t)(op->n_in + 1) * sizeof *in),
                *out = neap_lua_room(L, (size_t)(op->n_out + 1) * sizeof *out);
  neap_set *set = neap_lua_room(L, (size_t)(n_attr + 1) * sizeof *set);
  for (int i = 0; i < op->n_in; i++)
    in[i] = op->in[i] != NULL ? value_of(L, s, op->in[i]) : NEAP_NO_VALUE;
  for (int a = 0; a < n_attr; a++)
    set[a] = (neap_set){.name = neap_op_attr_at(op->op, a)->name, .value = op->attrs[a]};
  neap_grad_emit(s->grad, record.name, op->n_in, in, op->n_out, out, NULL, set);
  for (int k = 0; k < op->n_out; k++)
    if (op->out[k] != NULL) learn(s, op->out[k], out[k]);
  lua_settop(L, top);
}

/* What the net says, and which of its blobs are the gradients: names at `index`, false: none. */
static void write_out(lua_State *L, const neap_net *net, neap_grad *g, int index) {
  int n_op = neap_net_n_ops(net), most = neap_net_n_inits(net) + 3 * g->n_in + 3 * g->n_out;
  for (int i = 0; i < n_op; i++) most += neap_net_op_at(net, i)->n_out;
  scene s = {.net = net, .grad = g};
  s.known = neap_lua_room(L, (size_t)(most + 1) * sizeof *s.known);
  char name[32];

  /* The arguments, by the names that lua/neap/ops/define.lua declares. */
  for (int i = 0; i < g->n_in; i++) {
    snprintf(name, sizeof name, "in%d", i + 1);
    if (g->in[i] != NEAP_NO_VALUE) learn(&s, neap_intern(name), g->in[i]);
  }
  for (int k = 0; k < g->n_out; k++) {
    snprintf(name, sizeof name, "out%d", k + 1);
    learn(&s, neap_intern(name), g->out[k]);
    snprintf(name, sizeof name, "dout%d", k + 1);
    if (g->dout[k] != NEAP_NO_VALUE) learn(&s, neap_intern(name), g->dout[k]);
  }

  /* Op by op, and then each name that the function gave is the gradient of one input. */
  for (int i = 0; i < n_op; i++) emit(L, &s, neap_net_op_at(net, i));
  for (int i = 0; i < g->n_in; i++) {
    lua_rawgeti(L, index, i + 1);
    if (lua_type(L, -1) == LUA_TSTRING)
      g->din[i] = value_of(L, &s, neap_intern(lua_tostring(L, -1)));
    lua_pop(L, 1);
  }
}

/* grad(attrs, types of inputs, of outputs, of outputs' gradients, which are wanted) -> net,
 * names */
static int call_grad(lua_State *L) {
  task *t = lua_touserdata(L, 1);
  neap_grad *g = t->grad;
  push_function(L, "grad");
  push_attrs(L, g->op, g->attrs);

  /* One room serves the three lists of types, one after the other; it lies below them and is taken
   * out before the call. */
  int n = NEAP_MAX(g->n_in, g->n_out);
  neap_type *type = neap_lua_room(L, (size_t)(n + 1) * sizeof *type);
  int room = lua_gettop(L);
  const neap_value_id *const values[] = {g->in, g->out, g->dout};
  const int counts[] = {g->n_in, g->n_out, g->n_out};
  for (int part = 0; part < NEAP_COUNT(counts); part++) {
    for (int i = 0; i < counts[part]; i++) type[i] = neap_grad_type(g, values[part][i]);
    push_types(L, counts[part], type);
  }

  /* Which gradients are wanted: the others need not be written. */
  lua_createtable(L, g->n_in, 0);
  for (int i = 0; i < g->n_in; i++) {
    lua_pushboolean(L, g->want[i]);
    lua_seti(L, -2, i + 1);
  }
  lua_remove(L, room);
  lua_call(L, 5, 2);
  write_out(L, neap_lua_net_at(L, 3)->net, g, 4);
  return 0;
}

static neap_status grad(neap_grad *g, neap_error *error) {
  task t = {.call = call_grad, .of = g->op->user, .grad = g, .code = NEAP_GRAPH};
  return carry_out_or_fail(&t, error);
}

/* ---- the record ------------------------------------------------------------------------------ */

static void free_op(lua_State *L, void *handle) {
  script_op **slot = handle;
  (void)L;
  if (*slot == NULL) return;
  (*slot)->home = NULL;
  neap_op_remove(&(*slot)->op);
  *slot = NULL;
}

/* Interned text of a field of the table on top; NULL where there is none. */
static const char *text_of(lua_State *L, const char *key) {
  const char *text = NULL;
  if (neap_lua_field(L, -1, key) == LUA_TSTRING) text = neap_intern(neap_lua_text(L, -1, key));
  lua_pop(L, 1);
  return text;
}

static bool flag_of(lua_State *L, const char *key) {
  neap_lua_field(L, -1, key);
  bool is_set = lua_toboolean(L, -1);
  lua_pop(L, 1);
  return is_set;
}

/* The item of a list, a table, stays on top; false: the list has ended, or is none. */
static bool next_item(lua_State *L, int list, int i) {
  if (!lua_istable(L, list)) return false;
  if (lua_rawgeti(L, list, i + 1) == LUA_TTABLE) return true;
  lua_pop(L, 1);
  return false;
}

/* Operands from field `key` of the record at index 1. */
static void take_args(lua_State *L, const char *key, neap_arg *args, int most) {
  int top = lua_gettop(L), list = top + 1;

  /* From below: the list, one item; each field is pushed, read and popped. */
  neap_lua_field(L, 1, key);
  for (int i = 0; next_item(L, list, i); i++) {
    if (i == most) neap_lua_fail(L, NEAP_ARGUMENT, "an op has at most %d %s", most, key);
    args[i].name = text_of(L, "name");
    args[i].doc = text_of(L, "doc");
    if (flag_of(L, "optional")) args[i].flags |= NEAP_ARG_OPTIONAL;
    if (flag_of(L, "variadic")) args[i].flags |= NEAP_ARG_VARIADIC;

    /* A set of dtypes as a list of their names; without one it is 0, the floats. */
    neap_lua_field(L, -1, "dtypes");
    int dtypes = lua_gettop(L);
    for (int d = 0; lua_istable(L, dtypes) && lua_rawgeti(L, dtypes, d + 1) == LUA_TSTRING; d++) {
      args[i].dtypes |= 1u << neap_lua_dtype(L, -1, NEAP_DTYPE_NONE);
      lua_pop(L, 1);
    }
    lua_settop(L, list);
  }
  lua_settop(L, top);
}

/* Attribute types by the words that records show. */
static neap_attr_type attr_type(lua_State *L, const char *word) {
  static const struct {
    const char *word;
    neap_attr_type type;
  } types[] = {{"int", NEAP_ATTR_INT},   {"float", NEAP_ATTR_FLOAT}, {"bool", NEAP_ATTR_BOOL},
               {"enum", NEAP_ATTR_ENUM}, {"dtype", NEAP_ATTR_DTYPE}, {"ints", NEAP_ATTR_INTS},
               {"axis", NEAP_ATTR_AXIS}, {"axes", NEAP_ATTR_AXES}};
  for (int i = 0; i < NEAP_COUNT(types); i++)
    if (strcmp(types[i].word, word) == 0) return types[i].type;
  neap_lua_fail(L, NEAP_ARGUMENT, "an attribute of an op can't be of type %s", word);
}

/* The default on top of the stack as the attribute's value, which lives as long as the process. */
static neap_attr_value default_of(lua_State *L, neap_attr *attr) {
  neap_attr_value value = {0};
  if (lua_isnil(L, -1)) {
    attr->unlike_default = !attr->required;
    return value;
  }

  /* lua/neap/ops/define.lua has checked the default against its type; here it is put into the
   * record's form: positions and axes from 0, words by their number. */
  switch (attr->type) {
    case NEAP_ATTR_FLOAT: value.f = lua_tonumber(L, -1); break;
    case NEAP_ATTR_BOOL: value.i = lua_toboolean(L, -1); break;
    case NEAP_ATTR_DTYPE: value.i = neap_lua_dtype(L, -1, NEAP_DTYPE_NONE); break;
    case NEAP_ATTR_ENUM: {
      const char *word = lua_tostring(L, -1), *at = attr->choices;
      while (word != NULL && at != NULL) {
        size_t n = strcspn(at, "|");
        if (n == strlen(word) && strncmp(at, word, n) == 0) return value;
        value.i++;
        at = at[n] == '|' ? at + n + 1 : NULL;
      }
      neap_lua_fail(L, NEAP_ARGUMENT, "an attribute's default is one of its choices");
    }
    case NEAP_ATTR_AXIS:
      value.i = lua_tointeger(L, -1);
      if (value.i > 0) value.i--;
      break;
    case NEAP_ATTR_INTS:
    case NEAP_ATTR_AXES: {
      /* Not freed: a record lives as long as the process. */
      const int n = lua_istable(L, -1) ? neap_lua_length(L, -1) : 0;
      int64_t *list = calloc((size_t)n + 1, sizeof *list);
      if (list == NULL) neap_lua_fail(L, NEAP_MEMORY, "no memory for an op");
      for (int i = 0; i < n; i++) {
        lua_rawgeti(L, -1, i + 1);
        list[i] = lua_tointeger(L, -1);
        if (attr->type == NEAP_ATTR_AXES && list[i] > 0) list[i]--;
        lua_pop(L, 1);
      }
      value.n = n;
      value.ints = list;
      break;
    }
    default: value.i = lua_tointeger(L, -1);
  }
  return value;
}

/* Beyond any number that a script would give as a limit. */
#define OUT_OF_REACH 1e300

static double bound_of(lua_State *L, const char *key, double missing) {
  double bound = neap_lua_field(L, -1, key) == LUA_TNUMBER ? lua_tonumber(L, -1) : missing;
  lua_pop(L, 1);
  return bound;
}

static void take_attrs(lua_State *L, neap_attr *attrs) {
  int top = lua_gettop(L), list = top + 1;
  neap_lua_field(L, 1, "attrs");
  for (int i = 0; next_item(L, list, i); i++) {
    if (i == NEAP_OP_MAX_ATTR)
      neap_lua_fail(L, NEAP_ARGUMENT, "an op has at most %d attributes", NEAP_OP_MAX_ATTR);
    neap_attr *attr = &attrs[i];
    attr->name = text_of(L, "name");
    attr->doc = text_of(L, "doc");
    attr->choices = text_of(L, "choices");
    attr->required = flag_of(L, "required");
    const char *word = text_of(L, "type");
    attr->type = attr_type(L, word != NULL ? word : "?");

    /* An end of the range that is not given is out of reach; a record says by 0 and 0 that there is
     * no range. */
    double least = bound_of(L, "least", -OUT_OF_REACH), most = bound_of(L, "most", OUT_OF_REACH);
    if (least > -OUT_OF_REACH || most < OUT_OF_REACH) {
      attr->least = least;
      attr->most = most;
    }
    neap_lua_field(L, -1, "default");
    attr->value = default_of(L, attr);
    lua_settop(L, list);
  }
  lua_settop(L, top);
}

/* What the record at index 1 says, but for its functions. */
static void take_record(lua_State *L, neap_op *op) {
  lua_pushvalue(L, 1);
  op->name = text_of(L, "name");
  op->summary = text_of(L, "summary");
  op->math = text_of(L, "math");
  op->example = text_of(L, "example");
  op->source = text_of(L, "source");
  op->cases = text_of(L, "cases");
  op->special = text_of(L, "special");
  op->grad_formula = text_of(L, "grad_formula");
  op->no_grad = flag_of(L, "no_grad");
  op->internal = flag_of(L, "internal");

  /* A function that there is is one that is called. */
  if (flag_of(L, "grad")) op->grad = grad;
  if (flag_of(L, "cost")) op->cost = cost;
  lua_pop(L, 1);

  /* The last place of each list stays empty: it ends the list. */
  take_args(L, "inputs", op->inputs, NEAP_OP_MAX_IN - 1);
  take_args(L, "outputs", op->outputs, NEAP_OP_MAX_OUT - 1);
  take_attrs(L, op->attrs);
  op->infer = infer;
  op->effects = NEAP_EFFECT_FAULT | NEAP_EFFECT_CALLER;
  op->nan = NEAP_NAN_REACHES;
  op->scripted = true;
}

/* define_op(record, origin): makes the op known, whose functions infer, run, grad and cost the
 * table has. */
static int define_op(lua_State *L) {
  neap_lua_check_type(L, 1, LUA_TTABLE);
  const char *origin = neap_lua_check_string(L, 2);

  /* Whole before it is where it stays: what is refused leaves nothing. */
  neap_op *op = neap_lua_room(L, sizeof *op);
  take_record(L, op);
  script_op **slot = neap_lua_new(L, sizeof *slot, NEAP_LUA_OP, free_op);

  /* From here on the record has its final address, which kernels and the registry know it by. */
  script_op *s = calloc(1, sizeof *s);
  if (s == NULL) neap_lua_fail(L, NEAP_MEMORY, "no memory for an op");
  s->op = *op;
  s->kernels[0] = (neap_kernel){.engine = NEAP_ENGINE_REF, .dtypes = NEAP_ANY, .run = run};
  s->op.kernels = s->kernels;
  s->op.user = s;
  lua_rawgeti(L, LUA_REGISTRYINDEX, LUA_RIDX_MAINTHREAD);
  s->home = lua_tothread(L, -1);
  lua_pop(L, 1);

  /* Refused, it was never seen by anybody, so that it may go. */
  neap_error error = {0};
  if (neap_op_add(&s->op, origin, &error) != NEAP_OK) {
    free(s);
    neap_lua_raise(L, &error);
  }
  *slot = s;
  /* The state keeps the handle, which takes the op back when it ends, and the op's functions. */
  lua_rawsetp(L, LUA_REGISTRYINDEX, &s->home);
  lua_pushvalue(L, 1);
  lua_rawsetp(L, LUA_REGISTRYINDEX, s);
  return 0;
}

/* load_ops(path, check) -> list of names, or nil, message, code. check(name) raises for one that
 * Lua can't have: then none is loaded. */
static int load_ops(lua_State *L) {
  const char *path = neap_lua_check_string(L, 1);
  const neap_op *const *ops;
  neap_error error = {0};
  if (neap_load_ops(path, &ops, &error) != NEAP_OK) return neap_lua_failure(L, &error);
  lua_newtable(L);
  for (int i = 0; ops[i] != NULL; i++) {
    /* From below: the path, check, the list, check, the name. */
    lua_pushvalue(L, 2);
    lua_pushstring(L, neap_op_name(ops[i]));
    lua_pushvalue(L, -1);
    lua_seti(L, 3, i + 1);
    if (neap_lua_call_protected(L, 1, 0) == LUA_OK) continue;
    /* One is refused: all go again, those that were checked before it, too. */
    for (int k = 0; ops[k] != NULL; k++) neap_op_remove(ops[k]);
    return lua_error(L);
  }
  return 1;
}

void neap_lua_open_script_op(lua_State *L) {
  static const neap_lua_reg functions[] = {
    {"define_op", define_op, 2}, {"load_ops", load_ops, 2}, {NULL, NULL, 0}};
  neap_lua_functions(L, functions, false);
}
