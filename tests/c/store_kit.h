/* store_kit.h: what tests of the store begin with: a file in a folder of this process, questions to
 * it, and a plan by hand. */
#ifndef NEAP_TESTS_STORE_KIT_H
#define NEAP_TESTS_STORE_KIT_H

#include "check.h"

#include "store/store_int.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* A fresh path in a directory of this process. */
static inline const char *temp_path(const char *name) {
  static char path[256];
  static int n;
  snprintf(path, sizeof path, "/tmp/neap_test_store.%d", (int)getpid());
  mkdir(path, 0777);
  snprintf(path, sizeof path, "/tmp/neap_test_store.%d/%d_%s", (int)getpid(), ++n, name);
  return path;
}

static inline neap_store *opened(const char *path) {
  neap_store *store = NULL;
  neap_error error = {0};
  if (neap_db_open(path, &store, &error) != NEAP_OK)
    printf("  open: %s\n", error.message), check_failures++;
  return store;
}

/* The first column of the first row as a number; -999 when there is none. */
static inline bool take_first(void *context, int n, const neap_sql_value *value) {
  if (n > 0) *(int64_t *)context = value[0].integer;
  return false;
}
static inline int64_t ask(neap_store *store, const char *sql) {
  int64_t answer = -999;
  CHECK_OK(neap_db_query(store, sql, 0, NULL, take_first, &answer, &error));
  return answer;
}

static inline bool take_text(void *context, int n, const neap_sql_value *value) {
  snprintf(context, 512, "%s", n > 0 && value[0].text != NULL ? value[0].text : "(null)");
  return false;
}
static inline const char *ask_text(neap_store *store, const char *sql) {
  static char text[512];
  snprintf(text, sizeof text, "(no row)");
  CHECK_OK(neap_db_query(store, sql, 0, NULL, take_text, text, &error));
  return text;
}

static inline bool count_row(void *context, int n, const neap_sql_value *value) {
  (void)n, (void)value;
  ++*(int *)context;
  return true;
}

/* ---- a plan by hand: x -> Relu -> a -> Relu (in place) -> b -> Relu -> c, c on x's copy ------ */

typedef struct fixture {
  neap_graph graph;
  neap_plan plan;
  neap_node node[3];
  neap_value value[4];
  neap_place place[4];
  neap_value_id in[3], out[3];
  neap_layout plain; /* of every operand */
  int order[3];
  size_t scratch_offset[3], scratch_bytes[3], live_bytes[3];
} fixture;

static inline void make_fixture(fixture *f) {
  static const char *const op_name[] = {"block1/relu_1", "block1/act", "relu_1"}, *const scope[] = {
                                                                                    "block1",
                                                                                    "block1", ""};
  static const char *const value_name[] = {"x", "a", "b", "c"};
  memset(f, 0, sizeof *f);

  /* Three Relus in a row, in two scopes; one has no line, as ops that a rewrite adds. */
  for (int i = 0; i < 3; i++) {
    f->in[i] = i;
    f->out[i] = i + 1;
    f->order[i] = i;
    f->scratch_bytes[i] = 64;
    f->live_bytes[i] = i == 1 ? 192 : 128;
    f->node[i] = (neap_node){.op = neap_op_find("Relu"),
                             .name = op_name[i],
                             .scope = scope[i],
                             .line = i == 1 ? "" : "net.lua:3",
                             .layer = "",
                             .made_for = "",
                             .n_in = 1,
                             .n_out = 1,
                             .in = &f->in[i],
                             .out = &f->out[i],
                             .forward = i,
                             .choice = {.n_thread = 1, .in = &f->plain, .out = &f->plain},
                             .cost = {.flops = 16, .read_bytes = 64, .write_bytes = 64}};
  }

  /* Each value in bytes of its own at first, alive from the op that writes it to the next one. */
  for (int v = 0; v < 4; v++) {
    f->value[v] = (neap_value){.name = value_name[v],
                               .type = {NEAP_DTYPE_F32, {1, {16}}},
                               .bytes = 64,
                               .node = v - 1,
                               .root = v,
                               .role = v == 0 ? NEAP_ROLE_INPUT : NEAP_ROLE_ACTIVATION};
    f->place[v] = (neap_place){.region = v == 0 ? NEAP_REGION_IO : NEAP_REGION_ARENA,
                               .storage = v,
                               .bytes = 64,
                               .first = NEAP_MAX(v - 1, 0),
                               .last = NEAP_MIN(v, 2),
                               .partner = -1,
                               .reason = NEAP_REASON_OWN};
    f->value[v].region = f->place[v].region;
  }
  f->place[2].storage = f->place[2].partner = 1; /* b over a */
  f->place[2].reason = NEAP_REASON_IN_PLACE;
  f->place[3].offset = 64;

  /* Figures as a planner gives them, made up: the store only keeps them. */
  f->graph =
    (neap_graph){.name = "tiny", .n_node = 3, .n_value = 4, .node = f->node, .value = f->value};
  f->plan = (neap_plan){.policy = NEAP_POLICY_OFFSET,
                        .n_node = 3,
                        .n_value = 4,
                        .order = f->order,
                        .place = f->place,
                        .scratch_offset = f->scratch_offset,
                        .scratch_bytes = f->scratch_bytes,
                        .live_bytes = f->live_bytes,
                        .arena_bytes = 192,
                        .lower_bound_bytes = 192,
                        .baseline_bytes = 256,
                        .proved = true,
                        .peak_step = 1};
  f->plan.region_bytes[NEAP_REGION_IO] = 64;
}

static inline neap_store_plan row_for(const char *net_name, const char *key) {
  return (neap_store_plan){.key = key,
                           .key_text = "canonical",
                           .options = "{\"budget\":null}",
                           .choices = "ref ref ref",
                           .plan_text = "the plan",
                           .net_name = net_name,
                           .net_text = "net tiny",
                           .net_hash = "net tiny",
                           .digest = key,
                           .dtype = "f32",
                           .kernel_set = "ref",
                           .n_thread = 2};
}

static inline int64_t add_plan(neap_store *store, const char *net_name, const char *key) {
  fixture f;
  make_fixture(&f);
  neap_store_plan row = row_for(net_name, key);
  int64_t id = 0;
  CHECK_OK(neap_store_add_plan(store, &row, &f.plan, &f.graph, &id, &error));
  return id;
}

/* Removes the folder; true when it could not. */
static inline bool remove_temp_folder(void) {
  char remove_all[128];
  snprintf(remove_all, sizeof remove_all, "rm -rf /tmp/neap_test_store.%d", (int)getpid());
  return system(remove_all) != 0;
}

#endif
