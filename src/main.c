/* main.c: the `neap` program: a Lua state with Neap's modules in it, which runs lua/neap/cli.
 * Ctrl-C asks the engine to stop at its next instruction, and Lua code at its next line, as stock
 * lua does; a second one ends the process. So does SIGTERM, after which the prompt does not go on
 * and the process ends within a second, if need be in the middle of a kernel. */
#include "lua/binding.h"
#include "workspace/workspace.h"

#include <errno.h>
#include <lualib.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static lua_State *main_state;
static volatile sig_atomic_t interrupted_by = SIGINT; /* the last one */

static void on_interrupt(int signal_number);

/* As if the signal had never been caught. */
static void end_by(int signal_number) {
  signal(signal_number, SIG_DFL);
  raise(signal_number);
}

/* A second after SIGTERM, which nobody has seen to: a kernel is at work that takes longer. What the
 * database has of a run that ends so is what was written by then; its next opening calls it
 * lost. */
static void on_late(int signal_number) {
  (void)signal_number;
  if (neap_interrupted != 0) end_by(SIGTERM);
}

/* On a stack of its own, so that it comes in the middle of a kernel too (neap_signals_hold). */
static void catch_next(void) {
  struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = SA_RESTART | SA_ONSTACK};
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGTERM, &action, NULL);
  action.sa_handler = on_late;
  sigaction(SIGALRM, &action, NULL);
}

/* Runs at the next instruction of Lua after Ctrl-C. Nothing is left to do when the engine was at
 * work and has reported it. */
static void stop(lua_State *L, lua_Debug *ar) {
  (void)ar;
  lua_sethook(L, NULL, 0, 0);
  catch_next();
  if (neap_interrupted == 0) return;
  neap_interrupted = 0;
  neap_lua_fail(L, NEAP_INTERRUPTED, "interrupted");
}

/* A second one while the first has not been seen to for a second ends the process; sooner it is the
 * same key press, which some senders deliver to the process and to its group. */
static void on_interrupt(int signal_number) {
  static volatile int64_t first_ns;
  int64_t now = neap_clock_ns();
  if (neap_interrupted == 0) first_ns = now;
  if (now - first_ns > 1000000000) {
    end_by(signal_number);
    return;
  }
  if (signal_number == SIGTERM) alarm(1);
  neap_interrupted = 1;
  interrupted_by = signal_number;
  lua_sethook(main_state, stop, LUA_MASKCALL | LUA_MASKRET | LUA_MASKLINE | LUA_MASKCOUNT, 1);
}

/* core.clear_interrupt() in this program: the last Ctrl-C is forgotten, the next one caught. */
static int catch_interrupt(lua_State *L) {
  (void)L;
  neap_interrupted = 0;
  catch_next();
  return 0;
}

/* core.interrupt_code() -> the exit code of a command that was interrupted: 130 by Ctrl-C, 143 by
 * SIGTERM. */
static int interrupt_code(lua_State *L) {
  lua_pushinteger(L, 128 + interrupted_by);
  return 1;
}

/* core.program_path() -> the file of this program, for commands that start it again; nil where the
 * system does not tell. */
static int program_path(lua_State *L) {
  char path[4096];
  ssize_t n = readlink("/proc/self/exe", path, sizeof path);
  if (n <= 0 || (size_t)n >= sizeof path) return 0;
  lua_pushlstring(L, path, (size_t)n);
  return 1;
}

/* core.wait_input() -> true when standard input has something to read or has ended, false after
 * Ctrl-C. */
static int wait_input(lua_State *L) {
  struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
  int n = neap_interrupted ? -1 : poll(&in, 1, -1);
  lua_pushboolean(L, n > 0);
  return 1;
}

/* core.next_descriptor() -> the file descriptor that the next open will get. */
static int next_descriptor(lua_State *L) {
  int next = dup(STDIN_FILENO);
  if (next >= 0) close(next);
  lua_pushinteger(L, next);
  return 1;
}

/* core.close_descriptor(n): of a stream that a library has forgotten. */
static int close_descriptor(lua_State *L) {
  close((int)luaL_checkinteger(L, 1));
  return 0;
}

/* Warnings as they are: a line on standard error. Control messages ("@on") mean nothing here. */
static void warn(void *context, const char *text, int to_be_continued) {
  static bool inside; /* a message in several pieces */
  (void)context;
  if (!inside && !to_be_continued && text[0] == '@') return;
  fputs(text, stderr);
  inside = to_be_continued != 0;
  if (!inside) fputc('\n', stderr);
}

/* Opens the libraries and runs the command line; returns its exit code. */
static int run(lua_State *L) {
  int argc = (int)lua_tointeger(L, 1);
  char **argv = lua_touserdata(L, 2);
  luaL_openlibs(L);
  luaL_requiref(L, "neap", luaopen_neap, 0);
  lua_pop(L, 1);
  lua_getglobal(L, "require");
  lua_pushliteral(L, "neap.core");
  lua_call(L, 1, 1);
  lua_pushcfunction(L, catch_interrupt);
  lua_setfield(L, -2, "clear_interrupt");
  lua_pushcfunction(L, interrupt_code);
  lua_setfield(L, -2, "interrupt_code");
  lua_pushcfunction(L, program_path);
  lua_setfield(L, -2, "program_path");
  lua_pushcfunction(L, wait_input);
  lua_setfield(L, -2, "wait_input");
  lua_pushcfunction(L, next_descriptor);
  lua_setfield(L, -2, "next_descriptor");
  lua_pushcfunction(L, close_descriptor);
  lua_setfield(L, -2, "close_descriptor");
  catch_interrupt(L);
  lua_setwarnf(L, warn, L);
  lua_getglobal(L, "require");
  lua_pushliteral(L, "neap.cli");
  lua_call(L, 1, 1);
  lua_getfield(L, -1, "main");
  lua_createtable(L, argc, 0);
  for (int i = 0; i < argc; i++) {
    lua_pushstring(L, argv[i]);
    lua_seti(L, -2, i);
  }
  lua_call(L, 1, 1);
  return 1;
}

/* What was printed has arrived: else a full disk would look like success. Says so, and returns
 * false, when it has not. */
static bool flush_output(void) {
  bool failed_before = ferror(stdout) != 0;
  errno = 0;
  if (fflush(stdout) == 0 && !failed_before) return true;
  fprintf(stderr, "neap: standard output: cannot be written%s%s\n", errno != 0 ? ": " : "",
          errno != 0 ? strerror(errno) : "");
  return false;
}

int main(int argc, char **argv) {
  static _Alignas(16) char stack[1 << 16];
  sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = sizeof stack}, NULL);
  lua_State *L = luaL_newstate();
  if (L == NULL) {
    fputs("neap: memory for Lua was refused\n", stderr);
    return EXIT_FAILURE;
  }
  main_state = L;

  /* A file that may not grow any more (ulimit -f) is a write that fails, as on a full disk. */
  signal(SIGXFSZ, SIG_IGN);
  lua_pushcfunction(L, run);
  lua_pushinteger(L, argc);
  lua_pushlightuserdata(L, argv);
  int code = EXIT_FAILURE;
  if (lua_pcall(L, 2, 1, 0) == LUA_OK)
    code = lua_isinteger(L, -1) ? (int)lua_tointeger(L, -1) : EXIT_SUCCESS;
  else
    fprintf(stderr, "neap: %s\n", luaL_tolstring(L, -1, NULL));
  main_state = NULL;
  signal(SIGINT, SIG_DFL);
  signal(SIGTERM, SIG_DFL);
  lua_close(L);
  return !flush_output() && code == EXIT_SUCCESS ? EXIT_FAILURE : code;
}
