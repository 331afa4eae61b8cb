/* fuzz_lua.c: Lua tables with metamethods, and callbacks. Bytes become a few calls of the Lua
 * surface (lua.lua, beside this file) whose tables have metamethods, and whose functions raise,
 * yield, close, collect and call again. Whatever they do, each call ends with a result or an error,
 * nothing is held once all has been collected, and a net that was made before gives the same bits.
 *
 * One Lua state serves all inputs, since opening the library takes longer than most of them. */
#include "neap.h"

#include "base/base.h"
#include "fuzz.h"

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <unistd.h>

int luaopen_neap(lua_State *L);

/* The sizes that scripts ask for may be absurd: those are refused, not a fault. What is left is
 * told by the counters: the state's garbage looks like leaks, and looking for them takes longer
 * than the input. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "allocator_may_return_null=1:detect_leaks=0"; }

static char folder[] = "/tmp/neap-fuzz-lua-XXXXXX";

static void remove_folder(void) {
  static const char *const name[] = {"w", "t", "m", "a"};
  char path[100];
  for (int i = 0; i < NEAP_COUNT(name); i++) {
    snprintf(path, sizeof path, "%s/%s.safetensors", folder, name[i]);
    unlink(path);
  }
  rmdir(folder);
}

/* The message of a failed call, which ends the program: what lua.lua lets out is a broken
 * promise. */
static void check(lua_State *L, int status) {
  if (status == LUA_OK) return;
  fprintf(stderr, "%s\n", luaL_tolstring(L, -1, NULL));
  abort();
}

/* A state with the library, and the function `try` on its stack. */
static lua_State *open_state(void) {
  setenv("NEAP_DB", "off", 1);
  if (mkdtemp(folder) == NULL) abort();
  atexit(remove_folder);
  lua_State *L = luaL_newstate();
  if (L == NULL) abort();
  luaL_openlibs(L);
  luaL_requiref(L, "neap", luaopen_neap, 0);
  lua_settop(L, 0);
  check(L, luaL_loadfile(L, "tests/fuzz/lua.lua"));
  lua_pushstring(L, folder);
  check(L, lua_pcall(L, 1, 1, 0));
  return L;
}

static lua_Integer try_bytes(lua_State *L, const uint8_t *data, size_t n) {
  lua_pushvalue(L, 1);
  lua_pushlstring(L, (const char *)data, n);
  int status = lua_pcall(L, 1, 1, 0);
  neap_memory_fail_nth(0, false);
  check(L, status);
  lua_Integer held = lua_tointeger(L, -1);
  lua_settop(L, 1);
  return held;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  static lua_State *L;
  static lua_Integer held;
  if (L == NULL) {
    L = open_state();
    held = try_bytes(L, NULL, 0);
  }
  lua_Integer now = try_bytes(L, data, NEAP_MIN(n, 300));
  if (now != held)
    fprintf(stderr, "%lld bytes are held, before %lld\n", (long long)now, (long long)held);
  PROMISE(now == held);
  return 0;
}

/* Each call of lua.lua as it should be; then some with metamethods and callbacks. */
bool fuzz_seed(int k, neap_buffer *out) {
  enum { N_CALL = 84, N_MIXED = 12 };
  if (k >= N_CALL + N_MIXED) return false;
  for (int i = 0; i < 60; i++) {
    const char byte = (char)(k < N_CALL ? (i == 1 ? k : 0) : (i * 37 + k * 101 + i * i * 7) % 256);
    if (i < 16 || k >= N_CALL) neap_buffer_add_n(out, &byte, 1);
  }
  return true;
}
