/* workspace.c: the workspace handle: blobs in and out, initialising nets, checkpoints. Compiling
 * and running are program.c's; the small table of programs that ws:run keeps is
 * that of lua/neap/workspace/run.lua. */
#include "lua/binding.h"

#include <string.h>

typedef struct handle {
  neap_workspace *ws;
  neap_draw hold; /* what _give_draw has given: the workspace looks here */
  bool holds;
} handle;

neap_workspace *neap_lua_workspace_at(lua_State *L, int index) {
  handle *h = neap_lua_at(L, index, NEAP_LUA_WORKSPACE);
  if (h->ws == NULL) neap_lua_fail(L, NEAP_RELEASED, "the workspace was closed");
  return h->ws;
}

/* A closed handle is nobody's; the workspace may live on in others. */
static void free_workspace(lua_State *L, void *at) {
  handle *h = at;
  if (h->ws == NULL) return;
  neap_lua_forget_handle(L, h->ws);
  /* The workspace looks at a field of this handle, which goes. */
  if (h->holds) neap_workspace_give_draw(h->ws, NULL);
  neap_workspace_release(h->ws);
  h->ws = NULL;
}

static void make_handle(lua_State *L, void *ws) {
  handle *h = neap_lua_new(L, sizeof *h, NEAP_LUA_WORKSPACE, free_workspace);
  h->ws = neap_workspace_retain(ws);
}

void neap_lua_push_workspace(lua_State *L, neap_workspace *ws) {
  neap_lua_push_held(L, NEAP_LUA_WORKSPACE, ws, make_handle);
}

static int to_text(lua_State *L) {
  const handle *h = neap_lua_any(L, 1, NEAP_LUA_WORKSPACE);
  if (h->ws == NULL || neap_lua_is_closed(h)) return lua_pushliteral(L, "workspace (closed)"), 1;
  char text[24];
  lua_pushfstring(L, "workspace: %d blobs, %s", neap_workspace_n_blobs(h->ws),
                  neap_bytes_text((double)neap_workspace_held_bytes(h->ws), text));
  return 1;
}

/* ---- making ---------------------------------------------------------------------------------- */

/* forward = {name here = name in parent}: fills the options' lists; rooms stay on the stack. */
static void take_forward(lua_State *L, int index, neap_workspace_options *o) {
  /* The copy is walked, since interning and making rooms may run finalisers. */
  int n = neap_lua_copy(L, index);
  index = lua_gettop(L);
  const char **here = neap_lua_room(L, (size_t)n * sizeof *here),
             **there = neap_lua_room(L, (size_t)n * sizeof *there);
  for (lua_pushnil(L); lua_next(L, index) != 0; lua_pop(L, 1)) {
    there[o->n_forward] = neap_lua_name(L, -1, "forward");
    lua_pushvalue(L, -2);
    /* {"x"} is {x = "x"} */
    here[o->n_forward] =
      lua_isinteger(L, -1) ? there[o->n_forward] : neap_lua_name(L, -1, "forward");
    lua_pop(L, 1);
    o->n_forward++;
  }
  o->forward_name = here;
  o->forward_target = there;
}

/* new_workspace{seed =, parent =, forward = {..}, budget =, total =} */
static int new_workspace(lua_State *L) {
  neap_workspace_options o = {.unseeded = true};
  lua_settop(L, 1);
  if (lua_istable(L, 1)) {
    /* Each field stays on the stack: the parent's handle keeps the parent. */
    bool seeded = neap_lua_field(L, 1, "seed") != LUA_TNIL;
    o.seed = seeded ? (uint64_t)neap_lua_check_integer(L, -1) : 0;
    o.unseeded = !seeded;
    if (neap_lua_field(L, 1, "parent") != LUA_TNIL) o.parent = neap_lua_workspace_at(L, -1);
    if (neap_lua_field(L, 1, "budget") != LUA_TNIL)
      o.budget_bytes = neap_lua_limit(L, -1, "budget");
    if (neap_lua_field(L, 1, "total") != LUA_TNIL) o.total_bytes = neap_lua_limit(L, -1, "total");
    if (neap_lua_field(L, 1, "forward") != LUA_TNIL) {
      neap_lua_check_type(L, -1, LUA_TTABLE);
      take_forward(L, -1, &o);
    }
  }

  /* The handle first, then the workspace, which is known by it from then on. */
  handle *h = neap_lua_new(L, sizeof *h, NEAP_LUA_WORKSPACE, free_workspace);
  NEAP_LUA_TRY(L, neap_workspace_new(&o, &h->ws, &error));
  neap_lua_remember(L, -1, h->ws);
  return 1;
}

typedef struct live {
  neap_workspace **ws; /* each retained, until it is NULL */
  int n;
} live;

static void free_live(lua_State *L, void *at) {
  live *l = at;
  (void)L;
  for (int i = 0; i < l->n; i++)
    if (l->ws[i] != NULL) neap_workspace_release(l->ws[i]);
  neap_free(l->ws);
  *l = (live){0};
}

/* workspaces() -> list of all that are alive, the newest first */
static int workspaces(lua_State *L) {
  /* The list retains each: a finaliser that runs meanwhile can't end one that is still to be
   * pushed. */
  live *l = neap_lua_new(L, sizeof *l, NEAP_LUA_LIVE, free_live);
  NEAP_LUA_TRY(L, neap_workspace_list(&l->ws, &l->n, &error));
  lua_createtable(L, l->n, 0);
  for (int i = 0; i < l->n; i++) {
    /* Its handle retains it now, the list need not. */
    neap_lua_push_workspace(L, l->ws[i]);
    neap_workspace_release(l->ws[i]);
    l->ws[i] = NULL;
    lua_seti(L, -2, i + 1);
  }
  return 1;
}

/* ---- blobs ----------------------------------------------------------------------------------- */

/* ws:feed(name, tensor|number|table|string [, {share = true}]) */
static int feed(lua_State *L) {
  neap_workspace *ws = neap_lua_workspace_at(L, 1);
  const char *name = neap_lua_name(L, 2, "feed");
  neap_lua_only_fields(L, 4, "ws:feed", (const char *const[]){"share", NULL});
  bool share = neap_lua_flag(L, 4, "ws:feed", "share", false);
  if (lua_type(L, 3) == LUA_TSTRING) {
    /* A text is a blob of its own kind, with any bytes. */
    size_t n;
    const char *text = lua_tolstring(L, 3, &n);
    NEAP_LUA_TRY(L, neap_workspace_feed_string(ws, name, text, n, &error));
    lua_settop(L, 1);
    return 1;
  }

  /* A tensor as it is; all else becomes one, in a handle that the stack keeps. */
  const neap_tensor *t;
  if (neap_lua_is_tensor(L, 3)) {
    t = neap_lua_tensor_at(L, 3);
  } else {
    neap_lua_tensor *made = neap_lua_new_tensor(L);
    neap_lua_tensor_from(L, 3, NEAP_DTYPE_NONE, &made->t);
    t = &made->t;
  }
  NEAP_LUA_TRY(L, neap_workspace_feed(ws, name, t, share, &error));
  lua_settop(L, 1);
  return 1;
}

/* What a blob holds that is no tensor: pushed; false when it is one, or nothing. */
static bool push_other(lua_State *L, neap_workspace *ws, const char *name) {
  neap_blob_kind kind = neap_workspace_kind(ws, name);
  if (kind == NEAP_BLOB_STRING) {
    /* Copied at once: the text is the blob's. */
    const char *text;
    size_t n;
    NEAP_LUA_TRY(L, neap_workspace_fetch_string(ws, name, &text, &n, &error));
    lua_pushlstring(L, text, n);
  } else if (kind == NEAP_BLOB_SCOPE) {
    neap_scope *scope;
    NEAP_LUA_TRY(L, neap_workspace_scope(ws, name, &scope, &error));
    neap_lua_push_scope(L, scope);
  }
  return kind == NEAP_BLOB_STRING || kind == NEAP_BLOB_SCOPE;
}

/* ws:fetch(name) -> a copy of a tensor, a string, or a scope */
static int fetch(lua_State *L) {
  neap_workspace *ws = neap_lua_workspace_at(L, 1);
  const char *name = neap_lua_name(L, 2, "fetch");
  if (push_other(L, ws, name)) return 1;
  neap_lua_tensor *out = neap_lua_new_tensor(L);
  NEAP_LUA_TRY(L, neap_workspace_fetch(ws, name, &out->t, &error));
  out->name = name;
  neap_lua_collect(L);
  return 1;
}

/* ws:view(name) -> borrowed: reading it after a later run raises `released`, unless the blob has
 * bytes of its own. */
static int view(lua_State *L) {
  neap_workspace *ws = neap_lua_workspace_at(L, 1);
  const char *name = neap_lua_name(L, 2, "view");
  /* The handle knows how long its bytes are good, and keeps the workspace. */
  neap_lua_tensor *out = neap_lua_new_tensor(L);
  NEAP_LUA_TRY(L, neap_workspace_view(ws, name, &out->t, &out->generation, &error));
  out->ws = neap_workspace_retain(ws);
  out->name = name;
  return 1;
}

static int has(lua_State *L) {
  neap_workspace *ws = neap_lua_workspace_at(L, 1);
  lua_pushboolean(L, neap_workspace_has(ws, neap_lua_name(L, 2, "has")));
  return 1;
}

/* ws:create(name): declares a blob of no type yet, unless the name means one already; create_local:
 * one that hides it. */
static int create_blob(lua_State *L, bool local) {
  neap_workspace *ws = neap_lua_workspace_at(L, 1);
  const char *name = neap_lua_name(L, 2, "create");
  NEAP_LUA_TRY(L, neap_workspace_create(ws, name, local, &error));
  lua_settop(L, 1);
  return 1;
}

static int create(lua_State *L) { return create_blob(L, false); }
static int create_local(lua_State *L) { return create_blob(L, true); }

/* ws:forward(name [, target [, {skip = true}]]): from here on `name` means the parent's
 * `target`. */
static int forward(lua_State *L) {
  neap_workspace *ws = neap_lua_workspace_at(L, 1);
  const char *name = neap_lua_name(L, 2, "forward");
  const char *target = lua_isnoneornil(L, 3) ? name : neap_lua_name(L, 3, "forward");
  neap_lua_only_fields(L, 4, "ws:forward", (const char *const[]){"skip", NULL});
  bool skip = neap_lua_flag(L, 4, "ws:forward", "skip", false);
  NEAP_LUA_TRY(L, neap_workspace_forward(ws, name, target, skip, &error));
  lua_settop(L, 1);
  return 1;
}

/* ws:copy_forwarded(): forwarded tensors become local copies. */
static int copy_forwarded(lua_State *L) {
  neap_workspace *ws = neap_lua_workspace_at(L, 1);
  NEAP_LUA_TRY(L, neap_workspace_copy_forwarded(ws, &error));
  lua_settop(L, 1);
  return 1;
}

/* ws:create_scope(name) -> scope, empty */
static int create_scope(lua_State *L) {
  neap_workspace *ws = neap_lua_workspace_at(L, 1);
  const char *name = neap_lua_name(L, 2, "create_scope");
  neap_scope *scope;
  NEAP_LUA_TRY(L, neap_workspace_create_scope(ws, name, &scope, &error));
  neap_lua_push_scope(L, scope);
  return 1;
}

static int remove_blob(lua_State *L) {
  neap_workspace *ws = neap_lua_workspace_at(L, 1);
  lua_pushboolean(L, neap_workspace_remove(ws, neap_lua_name(L, 2, "remove")));
  return 1;
}

/* ---- marks ----------------------------------------------------------------------------------- */

static void free_mark(lua_State *L, void *at) {
  neap_workspace_mark **mark = at;
  (void)L;
  neap_workspace_mark_free(*mark);
  *mark = NULL;
}

/* ws:_look_draw(train) -> seed, step: what the next run of a net with a backward pass, or without
 * one, draws by. */
static int look_draw(lua_State *L) {
  neap_draw draw = neap_workspace_look_draw(neap_lua_workspace_at(L, 1), lua_toboolean(L, 2));
  lua_pushinteger(L, (lua_Integer)draw.seed);
  lua_pushinteger(L, draw.step);
  return 2;
}

/* ws:_give_draw(seed, step) -> true: runs draw by these, and count nothing, until
 * ws:_give_draw(). */
static int give_draw(lua_State *L) {
  neap_workspace *ws = neap_lua_workspace_at(L, 1);
  handle *h = neap_lua_at(L, 1, NEAP_LUA_WORKSPACE);
  h->holds = !lua_isnoneornil(L, 2);
  if (h->holds)
    h->hold = (neap_draw){.seed = (uint64_t)neap_lua_check_integer(L, 2),
                          .step = (uint32_t)neap_lua_check_integer(L, 3)};
  /* The workspace looks into the handle: nothing is allocated for it. */
  neap_workspace_give_draw(ws, h->holds ? &h->hold : NULL);
  lua_pushboolean(L, h->holds);
  return 1;
}

/* ws:_mark(all, {fed names}) -> mark */
static int mark(lua_State *L) {
  neap_workspace *ws = neap_lua_workspace_at(L, 1);
  int n;
  const char **fed = neap_lua_names(L, 3, "feed", false, &n);
  /* The mark is in a handle, and so is ended whatever happens. */
  neap_workspace_mark **out = neap_lua_new(L, sizeof *out, NEAP_LUA_MARK, free_mark);
  NEAP_LUA_TRY(L, neap_workspace_mark_new(ws, lua_toboolean(L, 2), n, fed, out, &error));
  return 1;
}

/* ws:_end_mark(mark, keep, {fed names}): without `keep` the blobs are what they were. */
static int end_mark(lua_State *L) {
  /* Called while an error passes too; a second call finds nothing. */
  neap_workspace_mark **at = neap_lua_any(L, 2, NEAP_LUA_MARK);
  int n;
  const char **fed = neap_lua_names(L, 4, "feed", false, &n);
  if (*at != NULL && !lua_toboolean(L, 3)) neap_workspace_mark_undo(*at, n, fed);
  neap_workspace_mark_free(*at);
  *at = NULL;
  return 0;
}

/* ws:_assign({names}, bank, later) */
static int assign(lua_State *L) {
  neap_workspace *ws = neap_lua_workspace_at(L, 1);
  int n;
  lua_settop(L, 4);
  const char **names = neap_lua_names(L, 2, "assign", false, &n);
  /* The bank's fields are read from the top of the stack. */
  neap_bank bank = {0};
  lua_pushvalue(L, 3);
  neap_lua_take_bank(L, &bank);
  NEAP_LUA_TRY(L, neap_workspace_assign(ws, n, names, &bank, lua_toboolean(L, 4), &error));
  return 0;
}

/* ws:_wait(): ends moves that are under way */
static int wait(lua_State *L) {
  neap_workspace_finish_moves(neap_lua_workspace_at(L, 1));
  return 0;
}

static int rename_blob(lua_State *L) {
  neap_workspace *ws = neap_lua_workspace_at(L, 1);
  const char *from = neap_lua_name(L, 2, "rename"), *to = neap_lua_name(L, 3, "rename");
  NEAP_LUA_TRY(L, neap_workspace_rename(ws, from, to, &error));
  lua_settop(L, 1);
  return 1;
}

/* ws:_blobs([sorted]) -> rows as neap.h describes them; sorted as the table of the workspace
 * is. */
static int blobs(lua_State *L) {
  neap_workspace *ws = neap_lua_workspace_at(L, 1);
  bool sorted = lua_toboolean(L, 2); /* before something else is pushed there */

  /* The rows are a block in a slot, which frees it when a table can't be made. */
  neap_blob_row **row = (neap_blob_row **)neap_lua_new_block(L);
  int n = 0;
  NEAP_LUA_TRY(L, neap_workspace_blobs(ws, row, &n, &error));
  if (sorted) neap_workspace_sort_blobs(*row, n);
  lua_createtable(L, n, 0);
  for (int i = 0; i < n; i++) {
    neap_lua_push_row(L, NEAP_ROW_BLOB, &(*row)[i]);
    lua_seti(L, -2, i + 1);
  }
  return 1;
}

/* ws:_svg() -> text */
static int svg(lua_State *L) {
  neap_workspace *ws = neap_lua_workspace_at(L, 1);
  char **text = (char **)neap_lua_new_block(L);
  NEAP_LUA_TRY(L, neap_workspace_svg(ws, text, &error));
  lua_pushstring(L, *text);
  return 1;
}

/* ---- nets and state -------------------------------------------------------------------------- */

/* ws:init(net): makes and fills what the net declares and the workspace does not have. */
static int init(lua_State *L) {
  neap_workspace *ws = neap_lua_workspace_at(L, 1);
  const neap_lua_net *net = neap_lua_net_at(L, 2);
  NEAP_LUA_TRY(L, neap_workspace_init(ws, net->net, &error));
  lua_settop(L, 1);
  return 1;
}

/* ws:seed([n]) -> n; ws:step([n]) -> n: what random ops draw by. */
static int seed(lua_State *L) {
  neap_workspace *ws = neap_lua_workspace_at(L, 1);
  if (!lua_isnoneornil(L, 2)) neap_workspace_set_seed(ws, (uint64_t)neap_lua_check_integer(L, 2));
  lua_pushinteger(L, (lua_Integer)neap_workspace_seed(ws));
  return 1;
}

static int step(lua_State *L) {
  neap_workspace *ws = neap_lua_workspace_at(L, 1);
  if (!lua_isnoneornil(L, 2)) neap_workspace_set_step(ws, (uint32_t)neap_lua_check_integer(L, 2));
  lua_pushinteger(L, neap_workspace_step(ws));
  return 1;
}

static int poison(lua_State *L) {
  neap_workspace_set_poison(neap_lua_workspace_at(L, 1), lua_toboolean(L, 2));
  return 0;
}

static int arena_bytes(lua_State *L) {
  lua_pushinteger(L, (lua_Integer)neap_workspace_arena_bytes(neap_lua_workspace_at(L, 1)));
  return 1;
}

/* ws:trim_pool() -> bytes: gives the pool of policy `pool` back; the next run takes it anew. */
static int trim_pool(lua_State *L) {
  lua_pushinteger(L, (lua_Integer)neap_workspace_trim_pool(neap_lua_workspace_at(L, 1)));
  return 1;
}

/* ws:_limit_total(bytes or nil) -> the one before, or nil */
static int limit_total(lua_State *L) {
  neap_workspace *ws = neap_lua_workspace_at(L, 1);
  size_t bytes = lua_isnoneornil(L, 2) ? 0 : neap_lua_bytes(L, 2, "total");
  size_t before = neap_workspace_limit_total(ws, bytes);
  if (before == 0) return lua_pushnil(L), 1;
  lua_pushinteger(L, (lua_Integer)before);
  return 1;
}

static int held_bytes(lua_State *L) {
  lua_pushinteger(L, (lua_Integer)neap_workspace_held_bytes(neap_lua_workspace_at(L, 1)));
  return 1;
}

/* Text pairs of the table at `index`; the rooms stay on the stack. */
static neap_io_pair *take_pairs(lua_State *L, int index, int *n) {
  *n = 0;
  if (!lua_istable(L, index)) return NULL;

  /* The copy keeps the texts that the pairs borrow. */
  int count = neap_lua_copy(L, index);
  index = lua_gettop(L);
  neap_io_pair *pair = neap_lua_room(L, (size_t)count * sizeof *pair);
  for (lua_pushnil(L); lua_next(L, index) != 0; lua_pop(L, 1)) {
    if (lua_type(L, -2) != LUA_TSTRING || lua_type(L, -1) != LUA_TSTRING)
      neap_lua_fail(L, NEAP_ARGUMENT, "metadata expects texts by name, got a %s",
                    luaL_typename(L, -1));
    /* only read */
    pair[*n] = (neap_io_pair){(char *)(uintptr_t)neap_lua_text(L, -2, "metadata"),
                              (char *)(uintptr_t)neap_lua_text(L, -1, "metadata")};
    ++*n;
  }
  return pair;
}

/* ws:save(path [, {key = text}]) -> true, or nil, message, code */
static int save(lua_State *L) {
  neap_workspace *ws = neap_lua_workspace_at(L, 1);
  const char *path = neap_lua_check_string(L, 2);
  int n;
  /* Pairs and their copy lie above the three arguments. */
  lua_settop(L, 3);
  const neap_io_pair *meta = take_pairs(L, 3, &n);
  neap_error error = {0};
  if (neap_workspace_save(ws, path, n, meta, &error) != NEAP_OK) return neap_lua_failure(L, &error);
  lua_pushboolean(L, 1);
  return 1;
}

/* ws:load(path [, {map = "r"|"c"}]) -> {key = text}, or nil, message, code */
static int load(lua_State *L) {
  neap_workspace *ws = neap_lua_workspace_at(L, 1);
  const char *path = neap_lua_check_string(L, 2);
  neap_io_map map = neap_lua_io_map(L, 3);
  /* The list is a handle: it frees what Lua has not got when a table can't be made. */
  neap_io_list *list = neap_lua_new_io_list(L);
  neap_error error = {0};
  if (neap_workspace_load(ws, path, map, list, &error) != NEAP_OK)
    return neap_lua_failure(L, &error);
  lua_createtable(L, 0, list->n_meta);
  for (int i = 0; i < list->n_meta; i++)
    neap_lua_set_text(L, list->meta[i].key, list->meta[i].value);
  return 1;
}

/* ws:_export(net, path) -> true, or nil, message, code */
static int export(lua_State *L) {
  neap_workspace *ws = neap_lua_workspace_at(L, 1);
  const neap_lua_net *net = neap_lua_net_at(L, 2);
  neap_error error = {0};
  if (neap_workspace_export(ws, net->net, neap_lua_check_string(L, 3), &error) != NEAP_OK)
    return neap_lua_failure(L, &error);
  lua_pushboolean(L, 1);
  return 1;
}

/* ws:_import(path [, {map = "r"|"c"}]) -> net, or nil, message, code */
static int import(lua_State *L) {
  neap_workspace *ws = neap_lua_workspace_at(L, 1);
  const char *path = neap_lua_check_string(L, 2);
  neap_io_map map = neap_lua_io_map(L, 3);
  neap_lua_net *made = neap_lua_new_net(L);
  neap_error error = {0};
  if (neap_workspace_import(ws, path, map, &made->net, &error) != NEAP_OK)
    return neap_lua_failure(L, &error);
  /* The workspace has the net too: this handle is the one to be found for it. */
  neap_lua_remember(L, -1, made->net);
  return 1;
}

/* ---- nets by name ---------------------------------------------------------------------------- */

/* A reference of the workspace's own. */
static neap_status store_net(neap_workspace *ws, neap_net *net, bool overwrite, neap_error *error) {
  /* The workspace takes the reference only when it takes the net. */
  neap_status status = neap_workspace_add_net(ws, neap_net_retain(net), overwrite, error);
  if (status != NEAP_OK) neap_net_free(net);
  return status;
}

/* ws:_add_net(net, overwrite) */
static int add_net(lua_State *L) {
  neap_workspace *ws = neap_lua_workspace_at(L, 1);
  neap_net *net = neap_lua_net_at(L, 2)->net;
  bool overwrite = lua_toboolean(L, 3);
  neap_lua_remember(L, 2, net);
  NEAP_LUA_TRY(L, store_net(ws, net, overwrite, &error));
  return 0;
}

static bool owns_net(const neap_workspace *ws, const neap_net *net) {
  for (int i = 0; neap_workspace_net_at(ws, i) != NULL; i++)
    if (neap_workspace_net_at(ws, i) == net) return true;
  return false;
}

/* ws:_net(name) -> the net and the workspace that stores it, this one or one above; nil when there
 * is none */
static int find_net(lua_State *L) {
  neap_workspace *ws = neap_lua_workspace_at(L, 1);
  neap_net *net = neap_workspace_net(ws, neap_lua_check_string(L, 2));
  if (net == NULL) return lua_pushnil(L), 1;
  /* Stored here or above, so that the walk ends. */
  while (!owns_net(ws, net)) ws = neap_workspace_parent(ws);
  neap_lua_push_net(L, net);
  neap_lua_push_workspace(L, ws);
  return 2;
}

/* ws:nets() -> names of its nets and of those above that it sees, its own first */
static int net_names(lua_State *L) {
  neap_workspace *ws = neap_lua_workspace_at(L, 1);
  lua_newtable(L);
  lua_Integer n = 0;
  /* From the inside out: what a nearer one hides is passed over. */
  for (const neap_workspace *at = ws; at != NULL; at = neap_workspace_parent(at))
    for (int i = 0; neap_workspace_net_at(at, i) != NULL; i++) {
      const neap_net *net = neap_workspace_net_at(at, i);
      if (neap_workspace_net(ws, neap_net_name(net)) != net) continue; /* hidden by a nearer one */
      lua_pushstring(L, neap_net_name(net));
      lua_seti(L, -2, ++n);
    }
  return 1;
}

/* ws:_delete_net(name) -> whether there was one */
static int delete_net(lua_State *L) {
  lua_pushboolean(
    L, neap_workspace_delete_net(neap_lua_workspace_at(L, 1), neap_lua_check_string(L, 2)));
  return 1;
}

void neap_lua_open_workspace(lua_State *L) {
  static const neap_lua_reg meta[] = {{"__close", neap_lua_close, NEAP_LUA_ANY},
                                      {"__tostring", to_text, NEAP_LUA_ANY},
                                      {NULL, NULL, 0}};
  static const neap_lua_reg methods[] = {{"feed", feed, 4},
                                         {"fetch", fetch, 2},
                                         {"view", view, 2},
                                         {"has", has, 2},
                                         {"create", create, 2},
                                         {"create_local", create_local, 2},
                                         {"forward", forward, 4},
                                         {"copy_forwarded", copy_forwarded, 1},
                                         {"create_scope", create_scope, 2},
                                         {"remove", remove_blob, 2},
                                         {"rename", rename_blob, 3},
                                         {"_blobs", blobs, NEAP_LUA_ALONE | 2},
                                         {"_assign", assign, 4},
                                         {"_wait", wait, 1},
                                         {"_look_draw", look_draw, 2},
                                         {"_give_draw", give_draw, 3},
                                         {"_mark", mark, 3},
                                         {"_end_mark", end_mark, 4},
                                         {"_svg", svg, 1},
                                         {"init", init, 2},
                                         {"seed", seed, 2},
                                         {"step", step, 2},
                                         {"poison", poison, 2},
                                         {"arena_bytes", arena_bytes, 1},
                                         {"held_bytes", held_bytes, 1},
                                         {"_limit_total", limit_total, 2},
                                         {"trim_pool", trim_pool, 1},
                                         {"save", save, 3},
                                         {"load", load, 3},
                                         {"_export", export, 3},
                                         {"_import", import, 3},
                                         {"_add_net", add_net, 3},
                                         {"_net", find_net, NEAP_LUA_ALONE | 2},
                                         {"nets", net_names, NEAP_LUA_ALONE | 1},
                                         {"_delete_net", delete_net, 2},
                                         {"_close", neap_lua_close, 1},
                                         {NULL, NULL, 0}};
  neap_lua_class(L, NEAP_LUA_WORKSPACE, "Workspace", meta, methods);
  static const neap_lua_reg functions[] = {{"new_workspace", new_workspace, 1},
                                           {"workspaces", workspaces, NEAP_LUA_ALONE | 0},
                                           {NULL, NULL, 0}};
  neap_lua_functions(L, functions, false);
}
