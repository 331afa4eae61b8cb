/* fuzz_lua.c: Lua tables with metamethods, and callbacks. Bytes become a few calls of the Lua
 * surface (lua.lua, beside this file) whose tables have metamethods, and whose functions raise,
 * yield, close, collect and call again. Whatever they do, each call ends with a result or an error,
 * nothing is held once all has been collected, and a net that was made before gives the same
 * bits. */
#include "neap.h"

#include "base/base.h"
#include "fuzz_script.h"

static lua_Integer try_bytes(lua_State *L, const uint8_t *data, size_t n) {
  lua_pushvalue(L, 1);
  lua_pushlstring(L, (const char *)data, n);
  int status = lua_pcall(L, 1, 1, 0);
  neap_memory_fail_nth(0, false);
  script_check(L, status);
  lua_Integer held = lua_tointeger(L, -1);
  lua_settop(L, 1);
  return held;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  static const char *const files[] = {"w.safetensors", "t.safetensors", "m.safetensors",
                                      "a.safetensors", NULL};
  static lua_State *L;
  static lua_Integer held;
  if (L == NULL) {
    L = script_open("tests/fuzz/lua.lua", 1, files);
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
