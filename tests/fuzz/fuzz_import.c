/* fuzz_import.c: files of other programs, ONNX's and Caffe's, all the way: through the readers in C
 * and the builders in Lua to a net, its text and its plan (import.lua, beside this file). Whatever
 * bytes they are, the import ends with a net, or with a message that names the file; nothing is
 * held once all has been collected.
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

/* A file may ask for absurd sizes: those are refused, not a fault. What is left is told by the
 * counters: the state's garbage looks like leaks. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "allocator_may_return_null=1:detect_leaks=0"; }

enum { TRY = 1, SEED }; /* functions of import.lua, on the stack */

static char folder[] = "/tmp/neap-fuzz-import-XXXXXX";

static void remove_folder(void) {
  static const char *const name[] = {"m.onnx", "m.prototxt"};
  char path[100];
  for (int i = 0; i < NEAP_COUNT(name); i++) {
    snprintf(path, sizeof path, "%s/%s", folder, name[i]);
    unlink(path);
  }
  rmdir(folder);
}

/* The message of a failed call, which ends the program: what import.lua lets out is a broken
 * promise. */
static void check(lua_State *L, int status) {
  if (status == LUA_OK) return;
  fprintf(stderr, "%s\n", luaL_tolstring(L, -1, NULL));
  abort();
}

/* The state, made with the first call. */
static lua_State *state(void) {
  static lua_State *L;
  if (L != NULL) return L;
  setenv("NEAP_DB", "off", 1);
  if (mkdtemp(folder) == NULL) abort();
  atexit(remove_folder);
  L = luaL_newstate();
  if (L == NULL) abort();
  luaL_openlibs(L);
  luaL_requiref(L, "neap", luaopen_neap, 0);
  lua_settop(L, 0);
  check(L, luaL_loadfile(L, "tests/fuzz/import.lua"));
  lua_pushstring(L, folder);
  check(L, lua_pcall(L, 1, 2, 0));
  return L;
}

static lua_Integer try_bytes(const uint8_t *data, size_t n) {
  lua_State *L = state();
  lua_pushvalue(L, TRY);
  lua_pushlstring(L, (const char *)data, n);
  check(L, lua_pcall(L, 1, 1, 0));
  lua_Integer held = lua_tointeger(L, -1);
  lua_settop(L, SEED);
  return held;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  static lua_Integer held = -1;
  if (held < 0) held = try_bytes((const uint8_t *)"", 0);
  lua_Integer now = try_bytes(data, n);
  if (now != held)
    fprintf(stderr, "%lld bytes are held, before %lld\n", (long long)now, (long long)held);
  PROMISE(now == held);
  return 0;
}

bool fuzz_seed(int k, neap_buffer *out) {
  lua_State *L = state();
  lua_pushvalue(L, SEED);
  lua_pushinteger(L, k);
  check(L, lua_pcall(L, 1, 1, 0));
  size_t n;
  const char *bytes = lua_tolstring(L, -1, &n);
  if (bytes != NULL) neap_buffer_add_n(out, bytes, n);
  lua_settop(L, SEED);
  return bytes != NULL;
}
