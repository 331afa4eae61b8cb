/* fuzz_script.h: the targets whose inputs a Lua script tries: one state with the library, made with
 * the first input, since opening it takes longer than most inputs; a folder for the files they
 * write, which goes at the end. Included by the one file of each target. */
#ifndef NEAP_FUZZ_SCRIPT_H
#define NEAP_FUZZ_SCRIPT_H

#include "fuzz.h"

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <unistd.h>

int luaopen_neap(lua_State *L);

/* Inputs may ask for absurd sizes: those are refused, not a fault. What is left is told by the
 * counters: the state's garbage looks like leaks, and looking for them takes longer than the
 * input. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "allocator_may_return_null=1:detect_leaks=0"; }

static char script_folder[] = "/tmp/neap-fuzz-XXXXXX";
static const char *const *script_files; /* what may lie there; NULL ends */

static void remove_script_folder(void) {
  char path[100];
  for (int i = 0; script_files[i] != NULL; i++) {
    snprintf(path, sizeof path, "%s/%s", script_folder, script_files[i]);
    unlink(path);
  }
  rmdir(script_folder);
}

/* The message of a failed call, which ends the program: what the script lets out is a broken
 * promise. */
static void script_check(lua_State *L, int status) {
  if (status == LUA_OK) return;
  fprintf(stderr, "%s\n", luaL_tolstring(L, -1, NULL));
  abort();
}

/* A state with the library, and on its stack what the script returns, n_result functions. */
static lua_State *script_open(const char *script, int n_result, const char *const *files) {
  script_files = files;
  setenv("NEAP_DB", "off", 1);
  if (mkdtemp(script_folder) == NULL) abort();
  atexit(remove_script_folder);
  lua_State *L = luaL_newstate();
  if (L == NULL) abort();
  luaL_openlibs(L);
  luaL_requiref(L, "neap", luaopen_neap, 0);
  lua_settop(L, 0);
  script_check(L, luaL_loadfile(L, script));
  lua_pushstring(L, script_folder);
  script_check(L, lua_pcall(L, 1, n_result, 0));
  return L;
}

#endif
