/* memory.c: what Lua's collector knows of bytes held outside its heap, and neap.memory, threads,
 * clock.
 *
 * A tensor's handle is a few dozen bytes to Lua, its storage may be gigabytes. `debt` adds up the
 * DATA bytes taken since the collector was last told; it is paid as if Lua had allocated them
 * itself.
 */
#include "lua/binding.h"

#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { DEBT_STEP = 1 << 20 }; /* bytes of debt below which the collector is left alone */

static int64_t debt; /* atomic; bytes are taken by any thread, and more than one state may pay */

static void on_data(int64_t delta) {
  if (delta > 0) __atomic_add_fetch(&debt, delta, __ATOMIC_RELAXED);
}

void neap_lua_collect(lua_State *L) {
  if (__atomic_load_n(&debt, __ATOMIC_RELAXED) < DEBT_STEP) return;
  /* Taken as a whole: bytes that another thread adds meanwhile wait for the next call. */
  int64_t bytes = __atomic_exchange_n(&debt, 0, __ATOMIC_RELAXED);
  /* A step as if Lua had allocated so many KiB. It may run finalisers, so callers have anchored
   * what they made. */
  lua_gc(L, LUA_GCSTEP, (int)NEAP_MIN(bytes / 1024, 1 << 20));
}

bool neap_lua_make_room(lua_State *L, const neap_error *error) {
  /* Garbage can be in the way of an allocation, and of a workspace's limit; of nothing else. */
  if (error->code != NEAP_MEMORY && (error->code != NEAP_BUDGET || error->held_bytes == 0))
    return false;
  /* A full collection runs the finalisers of unreachable handles, which give bytes back. */
  int64_t held = neap_memory_read().held_bytes[NEAP_DATA_BYTES];
  lua_gc(L, LUA_GCCOLLECT);
  return error->code == NEAP_MEMORY || neap_memory_read().held_bytes[NEAP_DATA_BYTES] < held;
}

/* memory() -> {available (bytes the process can still take on this machine, its limits looked at),
 * held, high (bytes of tensors), held_meta, high_meta (of all else), n_live, n_alloc, n_planned,
 * n_built, resident, resident_peak, lua, mapped (bytes of files mapped now, not of held), pool
 * (bytes that pools have reserved, of held), pool_used (of those, taken now)} */
static int memory(lua_State *L) {
  /* Read at once, before a table is made: that may start a collection, which gives bytes back. */
  neap_memory_stats s = neap_memory_read();
  int64_t pool, pool_used;
  neap_pool_totals(&pool, &pool_used);
  lua_createtable(L, 0, 16);
  neap_lua_set_integer(L, "available", (int64_t)neap_memory_available());
  neap_lua_set_integer(L, "mapped", neap_mapped_bytes());
  neap_lua_set_integer(L, "pool", pool);
  neap_lua_set_integer(L, "pool_used", pool_used);
  neap_lua_set_integer(L, "held", s.held_bytes[NEAP_DATA_BYTES]);
  neap_lua_set_integer(L, "held_meta", s.held_bytes[NEAP_META_BYTES]);
  neap_lua_set_integer(L, "high", s.high_bytes[NEAP_DATA_BYTES]);
  neap_lua_set_integer(L, "high_meta", s.high_bytes[NEAP_META_BYTES]);
  neap_lua_set_integer(L, "n_live", s.n_live);
  neap_lua_set_integer(L, "n_alloc", s.n_alloc);
  neap_lua_set_integer(L, "n_planned", neap_n_planned());
  neap_lua_set_integer(L, "n_built", neap_n_built());
  neap_lua_set_integer(L, "resident", (int64_t)neap_process_resident_bytes());
  neap_lua_set_integer(L, "resident_peak", (int64_t)neap_process_resident_peak_bytes());
  neap_lua_set_integer(L, "lua", (int64_t)lua_gc(L, LUA_GCCOUNT) * 1024 + lua_gc(L, LUA_GCCOUNTB));
  return 1;
}

static int reset_peak(lua_State *L) {
  (void)L;
  neap_memory_reset_high();
  return 0;
}

/* fail_nth(n [, persist]): the n-th allocation from now fails, for tests; failed() -> whether it
 * has happened. */
static int fail_nth(lua_State *L) {
  neap_memory_fail_nth(neap_lua_check_integer(L, 1), lua_toboolean(L, 2));
  return 0;
}

static int failed(lua_State *L) {
  lua_pushboolean(L, neap_memory_failed());
  return 1;
}

static int threads(lua_State *L) {
  if (!lua_isnoneornil(L, 1)) {
    /* No machine has more, and a slip must not start a million threads. */
    lua_Integer n = neap_lua_check_integer(L, 1);
    if (n < 1 || n > 4096)
      neap_lua_fail(L, NEAP_ARGUMENT, "threads expects a number from 1 to 4096, got %lld",
                    (long long)n);
    neap_threads_set((int)n);
  }
  lua_pushinteger(L, neap_threads());
  return 1;
}

/* threads_complaint() -> what is wrong with NEAP_NUM_THREADS, or nil */
static int threads_complaint(lua_State *L) {
  char text[160];
  if (!neap_threads_complaint(text)) return 0;
  lua_pushstring(L, text);
  return 1;
}

static int clock_seconds(lua_State *L) {
  lua_pushnumber(L, (double)neap_clock_ns() * 1e-9);
  return 1;
}

/* is_terminal([fd]): whether output goes to a person; 1 by default. */
static int is_terminal(lua_State *L) {
  lua_pushboolean(L, isatty((int)neap_lua_opt_integer(L, 1, 1)));
  return 1;
}

/* terminal_width() -> columns of the terminal that output goes to, or nil. */
static int terminal_width(lua_State *L) {
  struct winsize size;
  if (!isatty(1) || ioctl(1, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 0;
  lua_pushinteger(L, size.ws_col);
  return 1;
}

static int parse_bytes(lua_State *L) {
  lua_pushinteger(L, (lua_Integer)neap_lua_bytes(L, 1, "neap.bytes"));
  return 1;
}

/* bytes_text(n [, other]): with `other`, in as many digits as tell the two apart. */
static int bytes_text(lua_State *L) {
  char text[24];
  const double n = neap_lua_check_number(L, 1);
  const double other = lua_isnoneornil(L, 2) ? n : neap_lua_check_number(L, 2);
  lua_pushstring(L, neap_bytes_text_beside(n, other, text));
  return 1;
}

/* sleep(seconds): until then, or until a signal comes. */
static int sleep_for(lua_State *L) {
  const double seconds = neap_lua_check_number(L, 1);
  if (!(seconds > 0)) return 0;
  struct timespec rest = {.tv_sec = (time_t)seconds};
  rest.tv_nsec = (long)((seconds - (double)rest.tv_sec) * 1e9);
  nanosleep(&rest, NULL);
  return 0;
}

/* clear_interrupt(): forgets a Ctrl-C that has been seen to; the program puts its own in this
 * place, which also catches the next one. */
static int clear_interrupt(lua_State *L) {
  (void)L;
  neap_interrupt(false);
  return 0;
}

/* interrupt(): as Ctrl-C while the engine runs, for tests: the next step is stopped. */
static int interrupt(lua_State *L) {
  (void)L;
  neap_interrupt(true);
  return 0;
}

void neap_lua_open_memory(lua_State *L) {
  static const neap_lua_reg functions[] = {{"memory", memory, 0},
                                           {"reset_peak", reset_peak, 0},
                                           {"fail_nth", fail_nth, 2},
                                           {"failed", failed, 0},
                                           {"threads", threads, 1},
                                           {"threads_complaint", threads_complaint, 0},
                                           {"clock", clock_seconds, 0},
                                           {"is_terminal", is_terminal, 1},
                                           {"terminal_width", terminal_width, 0},
                                           {"parse_bytes", parse_bytes, 1},
                                           {"bytes_text", bytes_text, 2},
                                           {"interrupt", interrupt, 0},
                                           {"sleep", sleep_for, 1},
                                           {"clear_interrupt", clear_interrupt, 0},
                                           {NULL, NULL, 0}};
  neap_lua_functions(L, functions, false);

  /* From here on every DATA byte counts. */
  neap_memory_watch(on_data);
}
