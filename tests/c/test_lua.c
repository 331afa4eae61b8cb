/* test_lua.c: one process, one workspace, used from C and from Lua: the nets stored in it are the
 * same ones. */
#include "check.h"
#include "folder.h"
#include "lua/binding.h"

#include <lualib.h>

/* Neap in a new state. `ws` is the workspace that the script "ws" is about. */
static lua_State *with_neap(lua_State *L) {
  setenv("NEAP_DB", "off", 1);
  luaL_openlibs(L);
  luaL_requiref(L, "neap", luaopen_neap, 1);
  lua_settop(L, 0);
  return L;
}

static lua_State *open_lua(void) { return with_neap(luaL_newstate()); }

/* Runs a script, which must not fail; its results are left on the stack. */
static void lua(lua_State *L, const char *script) {
  lua_settop(L, 0);
  bool ok = luaL_loadstring(L, script) == LUA_OK && lua_pcall(L, 0, LUA_MULTRET, 0) == LUA_OK;
  if (!ok) printf("  %s\n", luaL_tolstring(L, 1, NULL));
  CHECK(ok);
}

static neap_workspace *workspace_of(lua_State *L, const char *name) {
  lua_getglobal(L, name);
  neap_workspace *ws = neap_lua_workspace_at(L, -1);
  lua_pop(L, 1);
  return ws;
}

static neap_net *read_net(const char *text) {
  neap_net *net = NULL;
  CHECK_OK(neap_net_read(text, &net, &error));
  return net;
}

TEST(lua_finds_the_nets_that_c_stores) {
  lua_State *L = open_lua();
  lua(L, "ws = neap.workspace { store = false }; inner = ws:child {}");
  neap_workspace *ws = workspace_of(L, "ws");
  CHECK_OK(neap_workspace_add_net(ws, read_net("net minus\ninput x f32 (2)\ny = Neg(x)\n"), false,
                                  &error));
  lua(L, "assert(#ws:nets() == 1 and ws:nets()[1] == 'minus' and inner:nets()[1] == 'minus')");
  lua(L, "assert(ws:net 'minus' == inner:net 'minus')");
  lua(L, "assert(inner:run('minus', { x = neap.tensor { 1, 2 } }).y[2] == -2)");
  lua(L, "assert(not pcall(ws.create_net, ws, 'net minus\\ninput x f32 (2)\\ny = Exp(x)\\n'))");
  lua(L,
      "ws:feed('x', neap.tensor { 3, 4 }); ws:run_steps { 'minus', iterations = 2 }; "
      "assert(ws:fetch 'y'[1] == -3)");
  CHECK(neap_workspace_delete_net(ws, "minus"));
  lua(L,
      "assert(not pcall(ws.net, ws, 'minus') and not pcall(inner.run, inner, 'minus') and "
      "#inner:nets() == 0)");
  lua_close(L);
}

TEST(c_finds_and_runs_the_nets_that_lua_stores) {
  lua_State *L = open_lua();
  lua(L, "ws = neap.workspace { store = false }; inner = ws:child {}");
  lua(L, "net = neap.net 'minus'; net:Neg(net:input('x', { 2 }), 'y'); ws:add_net(net)");
  neap_workspace *ws = workspace_of(L, "ws"), *inner = workspace_of(L, "inner");
  neap_net *net = neap_workspace_net(inner, "minus");
  CHECK(net != NULL && neap_workspace_net_at(ws, 0) == net &&
        neap_workspace_net_at(inner, 0) == NULL);
  CHECK_EQ(neap_net_n_ops(net), 1);

  /* what is added later, C sees; and it is kept */
  lua(L, "net:Exp('y', 'z'); net = nil; collectgarbage(); collectgarbage()");
  CHECK(neap_workspace_net(ws, "minus") == net);
  CHECK_EQ(neap_net_n_ops(net), 2);
  lua(L, "ws:feed('x', neap.zeros(2))");
  neap_step root = {.n_net = 1, .net = (const char *const[]){"minus"}, .iterations = 2};
  CHECK_OK(neap_workspace_run_steps(ws, &root, NULL, NULL, &error));
  lua(L, "assert(ws:fetch 'z'[2] == 1)");
  lua(L, "assert(ws:net('minus'):text():find 'Exp'); ws:delete_net 'minus'");
  CHECK(neap_workspace_net(ws, "minus") == NULL);
  lua_close(L);
}

TEST(a_net_lives_as_long_as_anyone_holds_it) {
  lua_State *L = open_lua();
  lua(L,
      "ws = neap.workspace { store = false }; net = neap.net 'n'; net:Neg(net:input('x', { 2 }), "
      "'y'); ws:add_net(net)");
  lua(L,
      "do local closed <close> = net end; assert(not pcall(net.text, net)); assert(ws:net 'n' ~= "
      "net)");
  lua(L, "assert(ws:run('n', { x = neap.ones(2) }).y[1] == -1)");
  neap_net *net = neap_net_retain(neap_workspace_net(workspace_of(L, "ws"), "n"));
  lua_close(L);
  CHECK_EQ(neap_net_n_ops(net), 1);
  neap_net_free(net);
}

/* ---- refused memory -------------------------------------------------------------------------- */

/* Of a state: requests that are still granted; below 0 all are. */
typedef struct grant {
  int left;
} grant;

/* A lua_Alloc; what shrinks a block can't be refused. */
static void *granted(void *context, void *block, size_t old, size_t bytes) {
  grant *g = context;
  if (bytes == 0) return free(block), NULL;
  bool grows = block == NULL || bytes > old;
  if (grows && g->left == 0) return NULL;
  if (grows && g->left > 0) g->left--;
  return realloc(block, bytes);
}

static int n_open_files(void) {
  int n = 0;
  DIR *dir = opendir("/proc/self/fd");
  while (dir != NULL && readdir(dir) != NULL) n++;
  if (dir != NULL) closedir(dir);
  return n;
}

TEST(a_file_of_neaps_own_is_closed_when_lua_has_no_memory_for_it) {
  grant all = {.left = -1};
  lua_State *L = with_neap(lua_newstate(granted, &all));

  /* Longer than what is read at once. */
  char text[6000];
  int n = snprintf(text, sizeof text, "return { ");
  while (n < 5000) n += snprintf(text + n, sizeof text - (size_t)n, "a%d = 'text %d', ", n, n);
  n += snprintf(text + n, sizeof text - (size_t)n, "last = 'there' }\n");
  put_file("progress.lua", text, (size_t)n);
  setenv("NEAP_LUA", folder, 1);
  bool passed = false;
  int before = n_open_files(), k = 0;
  for (; !passed && k < 5000; k++) {
    lua(L, "package.loaded['neap.progress'] = nil; collectgarbage(); return require");
    lua_pushliteral(L, "neap.progress");
    all.left = k;
    int status = lua_pcall(L, 1, 1, 0);
    all.left = -1;
    passed = status == LUA_OK;
    CHECK(passed || status == LUA_ERRMEM);
    CHECK_EQ(n_open_files(), before);
  }
  CHECK(passed && k > 100);
  lua_getfield(L, -1, "last");
  CHECK(lua_isstring(L, -1) && strcmp(lua_tostring(L, -1), "there") == 0);
  unsetenv("NEAP_LUA");
  lua_close(L);
}

int main(int argc, char **argv) {
  if (!make_folder()) return 1;
  int failed =
    RUN(argc, argv, T(lua_finds_the_nets_that_c_stores),
        T(c_finds_and_runs_the_nets_that_lua_stores), T(a_net_lives_as_long_as_anyone_holds_it),
        T(a_file_of_neaps_own_is_closed_when_lua_has_no_memory_for_it));
  empty_folder();
  return failed;
}
