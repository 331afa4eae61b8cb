/* test_lua.c: one process, one workspace, used from C and from Lua: the nets stored in it are the
 * same ones. */
#include "check.h"
#include "lua/binding.h"

#include <lualib.h>
#include <stdlib.h>

/* A state with Neap in it. `ws` is the workspace that the script "ws" is about. */
static lua_State *open_lua(void) {
  setenv("NEAP_DB", "off", 1);
  lua_State *L = luaL_newstate();
  luaL_openlibs(L);
  luaL_requiref(L, "neap", luaopen_neap, 1);
  lua_settop(L, 0);
  return L;
}

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

int main(int argc, char **argv) {
  return RUN(argc, argv, T(lua_finds_the_nets_that_c_stores),
             T(c_finds_and_runs_the_nets_that_lua_stores),
             T(a_net_lives_as_long_as_anyone_holds_it));
}
