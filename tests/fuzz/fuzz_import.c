/* fuzz_import.c: files of other programs, ONNX's and Caffe's, all the way: through the readers in C
 * and the builders in Lua to a net, its text and its plan (import.lua, beside this file). Whatever
 * bytes they are, the import ends with a net, or with a message that names the file; nothing is
 * held once all has been collected. */
#include "neap.h"

#include "base/base.h"
#include "fuzz_script.h"

enum { TRY = 1, SEED }; /* functions of import.lua, on the stack */

/* The state, made with the first call. */
static lua_State *state(void) {
  static const char *const files[] = {"m.onnx", "m.prototxt", NULL};
  static lua_State *L;
  if (L == NULL) L = script_open("tests/fuzz/import.lua", 2, files);
  return L;
}

static lua_Integer try_bytes(const uint8_t *data, size_t n) {
  lua_State *L = state();
  lua_pushvalue(L, TRY);
  lua_pushlstring(L, (const char *)data, n);
  script_check(L, lua_pcall(L, 1, 1, 0));
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
  script_check(L, lua_pcall(L, 1, 1, 0));
  size_t n;
  const char *bytes = lua_tolstring(L, -1, &n);
  if (bytes != NULL) neap_buffer_add_n(out, bytes, n);
  lua_settop(L, SEED);
  return bytes != NULL;
}
