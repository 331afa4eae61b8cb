/* handle.c: handles and the functions of the surface. A handle is a userdata with a head that says
 * what it holds; its metatable is for Lua, which may put any metatable on any userdata.
 *
 * Functions of the binding note on the C stack that they are at work. Finalisers run whenever Lua
 * allocates, so in the midst of them: a handle that one closes then is closed to Lua at once, and
 * what it holds goes when the handle is collected. The collector itself takes nothing that a
 * function at work still has on Lua's stack.
 *
 * INVARIANT: C reads a userdata as a handle only when its head has the kind; only neap_lua_new
 * writes heads.
 * INVARIANT: what a function at work has got from a handle isn't freed before it ends.
 */
#include "lua/binding.h"

#include <limits.h>
#include <string.h>

/* ---- kinds ----------------------------------------------------------------------------------- */

typedef struct kind_row {
  const char *class; /* the metatable's name in the registry */
  const char *noun;
} kind_row;

static const kind_row kinds[NEAP_LUA_N_KIND] = {
#define X(symbol, class, noun) {class, noun},
  NEAP_LUA_KINDS(X)
#undef X
};

typedef struct head {
  const kind_row *kind; /* into `kinds`: an address that no other userdata holds */
  /* NULL: Lua's own file library, should it get the handle for a file, finds a closed one */
  const void *none;
  neap_lua_free *free; /* what it holds, when it is closed or collected */
  bool closed;
  uint64_t number; /* of this thread's handles, in the order in which they were made */
} head;

static head *head_at(lua_State *L, int index) {
  if (lua_type(L, index) != LUA_TUSERDATA || lua_rawlen(L, index) < sizeof(head)) return NULL;
  head *h = lua_touserdata(L, index);
  /* Another library's userdata may begin with any bytes: only an address in `kinds` is ours. */
  for (int k = 0; k < NEAP_LUA_N_KIND; k++)
    if (h->kind == &kinds[k]) return h;
  return NULL;
}

void *neap_lua_test(lua_State *L, int index, neap_lua_kind kind) {
  if (lua_type(L, index) != LUA_TUSERDATA || lua_rawlen(L, index) < sizeof(head)) return NULL;
  head *h = lua_touserdata(L, index);
  return h->kind == &kinds[kind] ? h + 1 : NULL;
}

/* The class of Neap's that the value is, whatever its metatable says; else its type. */
static const char *type_name(lua_State *L, int index) {
  const head *h = head_at(L, index);
  return h != NULL ? h->kind->noun : luaL_typename(L, index);
}

void *neap_lua_any(lua_State *L, int index, neap_lua_kind kind) {
  void *handle = neap_lua_test(L, index, kind);
  if (handle == NULL)
    neap_lua_fail(L, NEAP_ARGUMENT, "a %s is expected, got a %s", kinds[kind].noun,
                  type_name(L, index));
  return handle;
}

bool neap_lua_is_closed(const void *handle) {
  const head *h = (const head *)handle - 1;
  NEAP_LUA_ASSERT(h->kind >= kinds && h->kind < kinds + NEAP_LUA_N_KIND);
  return h->closed;
}

/* Lua allows 200 calls of C within each other, each with one of a user's function */
enum { MOST_NESTED = 512 };

/* The functions of the binding that this thread is in, the outermost first, each by an address in
 * its part of the C stack. An error that Lua raises leaves some behind: they lie deeper than
 * whoever asks. */
static _Thread_local struct {
  int n;
  bool held; /* finalisers, by a function that must not meet them */
  /* while a script's part of an op runs: handles made before that number are at work; 0: none */
  uint64_t fence;
  uint64_t n_made; /* handles, so far */
  struct {
    uintptr_t address;
    lua_State *state;
    bool out; /* it has called a function of the user's, and reads everything anew afterwards */
  } item[MOST_NESTED];
} work;

/* What runs, or is built, while an op calls a script. */
static bool is_fenced(neap_lua_kind kind) {
  return kind == NEAP_LUA_NET || kind == NEAP_LUA_WORKSPACE || kind == NEAP_LUA_PROGRAM ||
         kind == NEAP_LUA_SCOPE || kind == NEAP_LUA_RANGE || kind == NEAP_LUA_CHAIN ||
         kind == NEAP_LUA_CACHE || kind == NEAP_LUA_MARK;
}

void *neap_lua_at(lua_State *L, int index, neap_lua_kind kind) {
  void *handle = neap_lua_any(L, index, kind);
  if (neap_lua_is_closed(handle))
    neap_lua_fail(L, NEAP_RELEASED, "the %s was closed", kinds[kind].noun);
  if (((const head *)handle - 1)->number < work.fence && is_fenced(kind))
    neap_lua_fail(
      L, NEAP_ARGUMENT,
      "the %s is at work: a function of an op's record has what it is given and what it "
      "makes itself",
      kinds[kind].noun);
  return handle;
}

/* ---- at work --------------------------------------------------------------------------------- */

static void drop_left(uintptr_t here) {
  /* The C stack grows downwards: a function that still runs lies above whoever asks. */
  while (work.n > 0 && work.item[work.n - 1].address <= here) work.n--;
}

static int enter(lua_State *L, uintptr_t here, bool out) {
  /* Those that an error has ended go first, so that they don't count as nesting. */
  drop_left(here);
  int before = work.n;
  if (before == MOST_NESTED) neap_lua_fail(L, NEAP_ARGUMENT, "calls are nested too deeply");
  work.item[work.n].address = here;
  work.item[work.n].state = L;
  work.item[work.n++].out = out;
  return before;
}

/* A step of minus 1 TiB: the collector waits for so much more to be allocated, and a step of as
 * much takes that back. Stopping and restarting it would forget how far it is: each restart begins
 * a step, and some of these functions are called for every op. */
enum { HELD_KIB = 1 << 30 };

bool neap_lua_hold_finalisers(lua_State *L) {
  /* Held already, or stopped by the script: then there is nothing to hold, and nothing to let
   * go. */
  if (work.held || !lua_gc(L, LUA_GCISRUNNING)) return false;
  lua_gc(L, LUA_GCSTEP, -HELD_KIB);
  return work.held = true;
}

void neap_lua_let_finalisers(lua_State *L, bool held) {
  if (!held || !work.held) return;
  work.held = false;
  lua_gc(L, LUA_GCSTEP, HELD_KIB);
}

void neap_lua_leave(lua_State *L) {
  /* Held or not: an error may come from a function that holds them. */
  neap_lua_let_finalisers(L, true);
  if (work.n > 0) work.n--;
}

void neap_lua_call_user(lua_State *L, int n_argument, int n_result) {
  /* While the user's function runs, a handle that it closes goes at once: `out` says so. */
  int before = enter(L, (uintptr_t)__builtin_frame_address(0), true);
  lua_call(L, n_argument, n_result);
  /* Reached only when nothing was raised; else drop_left sees to it. */
  work.n = before;
}

lua_State *neap_lua_at_work(void) {
  drop_left((uintptr_t)__builtin_frame_address(0));
  return work.n > 0 ? work.item[work.n - 1].state : NULL;
}

uint64_t neap_lua_fence(bool up, uint64_t before) {
  uint64_t was = work.fence;
  work.fence = up ? work.n_made + 1 : before;
  return was;
}

int neap_lua_call_protected(lua_State *L, int n_argument, int n_result) {
  int before = enter(L, (uintptr_t)__builtin_frame_address(0), false);
  int status = lua_pcall(L, n_argument, n_result, 0);
  /* After an error too, since that ends here. */
  work.n = before;
  return status;
}

/* Whether the collector itself has called the running function. */
static bool is_collected(lua_State *L) {
  lua_Debug ar;
  /* Lua names the function by how it was called; a script that calls __gc itself has another word
   * in `namewhat`. */
  return lua_getstack(L, 0, &ar) != 0 && lua_getinfo(L, "n", &ar) != 0 && ar.name != NULL &&
         strcmp(ar.name, "__gc") == 0 && strcmp(ar.namewhat, "metamethod") == 0;
}

/* Anything but a handle is left alone: `debug` may have given it the metatable of one. */
int neap_lua_close(lua_State *L) {
  head *h = head_at(L, 1);
  if (h == NULL) return 0;
  drop_left((uintptr_t)__builtin_frame_address(0));
  /* Closed to Lua from here on. What it holds goes now, unless a function at work may have got
   * something from it: then it goes with the handle. The collector calls only for handles that
   * nobody has on a stack. */
  h->closed = true;
  bool busy = work.n > 0 && !work.item[work.n - 1].out;
  if (!busy || is_collected(L)) h->free(L, h + 1);
  return 0;
}

/* ---- making ---------------------------------------------------------------------------------- */

/* The metatable of a kind, pushed; one that has no class of its own gets it with the first
 * handle. */
static void push_metatable(lua_State *L, neap_lua_kind kind) {
  if (!luaL_newmetatable(L, kinds[kind].class)) return;
  /* New: the metatable is on top, and gets the finaliser that all kinds have. */
  lua_pushcfunction(L, neap_lua_close);
  lua_setfield(L, -2, "__gc");
}

void *neap_lua_new(lua_State *L, size_t bytes, neap_lua_kind kind, neap_lua_free *free_held) {
  luaL_checkstack(L, 8, "too many results");
  push_metatable(L, kind);
  head *h = lua_newuserdatauv(L, sizeof *h + bytes, 1);
  /* Whole before it has its metatable: the finaliser may meet it at any time afterwards. */
  memset(h, 0, sizeof *h + bytes);
  h->kind = &kinds[kind];
  h->free = free_held;
  h->number = ++work.n_made;
  /* From below: metatable, handle. They change places, since lua_setmetatable takes the top. */
  lua_insert(L, -2);
  lua_setmetatable(L, -2);
  return h + 1;
}

void neap_lua_push_weak(lua_State *L, const void *key, const char *mode) {
  /* Made once: afterwards it is found, and on top. */
  if (lua_rawgetp(L, LUA_REGISTRYINDEX, key) != LUA_TNIL) return;
  lua_pop(L, 1);

  /* The table, and above it the metatable that makes it weak. */
  lua_newtable(L);
  lua_createtable(L, 0, 1);
  lua_pushstring(L, mode);
  lua_setfield(L, -2, "__mode");
  lua_setmetatable(L, -2);

  /* The registry takes a copy, the caller gets the other one. */
  lua_pushvalue(L, -1);
  lua_rawsetp(L, LUA_REGISTRYINDEX, key);
}

static const char handles_key; /* its address: in the registry, the table of handles */

/* Pushes that table, by address. Weak in its values: it keeps no handle alive, and the collector
 * takes out those that go before their finalisers run. */
static void push_handles(lua_State *L) {
  luaL_checkstack(L, 6, "too many results");
  neap_lua_push_weak(L, &handles_key, "v");
}

/* Made when the module opens, not in the midst of pushing a handle. */
void neap_lua_open_handles(lua_State *L) {
  push_handles(L);
  lua_pop(L, 1);
}

/* Pushes the open handle of the address; false, and nothing, where there is none. */
static bool push_known(lua_State *L, neap_lua_kind kind, const void *address) {
  /* From below: the table, what it has for this address. */
  push_handles(L);
  lua_rawgetp(L, -1, address);
  const void *known = neap_lua_test(L, -1, kind);
  bool is_open = known != NULL && !neap_lua_is_closed(known);

  /* The handle alone is left, or nothing. */
  if (is_open)
    lua_remove(L, -2);
  else
    lua_pop(L, 2);
  return is_open;
}

void neap_lua_remember(lua_State *L, int index, const void *address) {
  index = lua_absindex(L, index);
  /* From below: the table, a copy of the handle; the raw set takes the copy. */
  push_handles(L);
  lua_pushvalue(L, index);
  lua_rawsetp(L, -2, address);
  lua_pop(L, 1);
}

void neap_lua_push_held(lua_State *L, neap_lua_kind kind, void *address,
                        void (*make)(lua_State *L, void *address)) {
  if (push_known(L, kind, address)) return;
  bool held = neap_lua_hold_finalisers(L); /* one could let go of it before it is retained */
  make(L, address);
  neap_lua_let_finalisers(L, held);
  neap_lua_remember(L, -1, address);
}

void neap_lua_forget_handle(lua_State *L, const void *address) {
  push_handles(L);
  /* Only its own entry: another handle may have been made for the address since. */
  if (lua_rawgetp(L, -1, address) != LUA_TNIL && lua_rawequal(L, -1, 1)) {
    lua_pushnil(L);
    lua_rawsetp(L, -3, address);
  }
  lua_pop(L, 2);
}

static void free_block(lua_State *L, void *handle) {
  void **slot = handle;
  (void)L;
  neap_free(*slot);
  *slot = NULL;
}

void **neap_lua_new_block(lua_State *L) {
  return neap_lua_new(L, sizeof(void *), NEAP_LUA_BLOCK, free_block);
}

int neap_lua_push_text(lua_State *L, char **slot) {
  /* Copying it may raise for want of memory; the slot still has the text then. */
  lua_pushstring(L, *slot);
  neap_free(*slot);
  *slot = NULL;
  return 1;
}

/* ---- functions ------------------------------------------------------------------------------- */

typedef struct function {
  const neap_lua_reg *reg;
  bool method; /* the object is not counted */
} function;

static void free_function(lua_State *L, void *handle) {
  (void)L;
  (void)handle;
}

/* What Lua calls: the function of upvalue 1, once the number of arguments is looked at. */
static int call_checked(lua_State *L) {
  const function *f = neap_lua_test(L, lua_upvalueindex(1), NEAP_LUA_FUNCTION);
  if (f == NULL) return luaL_error(L, "a function of Neap has lost itself");
  const neap_lua_reg *reg = f->reg;
  int most = reg->most & ~NEAP_LUA_ALONE;
  if (most == NEAP_LUA_ANY) most = INT_MAX;

  /* At work from here on: what follows may allocate, and so run finalisers. */
  int before = enter(L, (uintptr_t)__builtin_frame_address(0), false);

  /* The last argument that is not nil must be one that the function reads. A method's object is
   * not counted in the message. */
  for (int i = lua_gettop(L); i > most; i--) {
    if (lua_isnil(L, i)) continue;
    most -= f->method;
    neap_lua_fail(L, NEAP_ARGUMENT, "%s takes %d argument%s, got %d", reg->name, most,
                  most == 1 ? "" : "s", i - f->method);
  }

  /* close() asks who is at work, and is not itself. */
  if (reg->call == neap_lua_close) {
    work.n = before;
    return neap_lua_close(L);
  }

  /* Nobody is at work but this one: what is held was left so by an error of Lua's own. */
  if (before == 0) neap_lua_let_finalisers(L, true);

  /* The call itself. When it raises, nothing below is reached: neap_lua_leave has been there, or
   * drop_left will take the entry off. */
  bool held = (reg->most & NEAP_LUA_ALONE) != 0 && neap_lua_hold_finalisers(L);
  int n = reg->call(L);
  neap_lua_let_finalisers(L, held);
  NEAP_LUA_ASSERT(work.n > before);
  NEAP_LUA_ASSERT(work.item[before].address == (uintptr_t)__builtin_frame_address(0));
  work.n = before;
  return n;
}

void neap_lua_functions(lua_State *L, const neap_lua_reg *list, bool methods) {
  for (; list->name != NULL; list++) {
    /* As __close Lua calls it with an error beside the handle: no arguments are counted. */
    if (list->call == neap_lua_close && list->most == NEAP_LUA_ANY) {
      lua_pushcfunction(L, neap_lua_close);
    } else {
      /* The record is a handle of its own, and the only upvalue: call_checked finds it there. */
      function *f = neap_lua_new(L, sizeof *f, NEAP_LUA_FUNCTION, free_function);
      *f = (function){.reg = list, .method = methods};
      lua_pushcclosure(L, call_checked, 1);
    }
    lua_setfield(L, -2, list->name);
  }
}

/* Through the metatable, so that methods which Lua modules add later are found. */
int neap_lua_method(lua_State *L) {
  /* `debug` may have put another metatable there, which has no methods. */
  if (luaL_getmetafield(L, 1, "methods") == LUA_TNIL) return 0;
  lua_pushvalue(L, 2);
  lua_gettable(L, -2);
  return 1;
}

void neap_lua_class(lua_State *L, neap_lua_kind kind, const char *field, const neap_lua_reg *meta,
                    const neap_lua_reg *methods) {
  /* From below: the table of classes, metatable, methods. The methods go into the metatable twice:
   * as `methods`, which the binding looks into, and as __index. */
  push_metatable(L, kind);
  lua_newtable(L);
  neap_lua_functions(L, methods, true);
  lua_pushvalue(L, -1);
  lua_setfield(L, -3, "methods");
  lua_pushvalue(L, -1);
  lua_setfield(L, -3, "__index"); /* `meta` may replace it */

  /* Methods below, metatable on top: it is filled, and goes into the methods, these into the
   * classes. */
  lua_insert(L, -2);
  neap_lua_functions(L, meta, true);
  lua_setfield(L, -2, "meta"); /* methods.meta, so that Lua modules can add operators */
  lua_setfield(L, -2, field);
}
