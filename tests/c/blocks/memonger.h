/* memonger.h: memonger: names shared, nets rewritten and compared, live ranges, assignments. */
#ifndef NEAP_TESTS_BLOCKS_MEMONGER_H
#define NEAP_TESTS_BLOCKS_MEMONGER_H

#include "blocks/call.h"

CALL(net_recycle) {
  neap_recycle_figures f = {0};
  neap_status status = neap_net_recycle(s->net, NULL, &s->out_net, &f, error);
  s->number[0] = (double)f.planned_bytes;
  return status;
}
CALL(net_recycle_exact) {
  neap_recycle_options o = {.dag = true,
                            .exact = true,
                            .prefix = "shared/",
                            .order = "least_memory",
                            .keep_last = 1,
                            .n_dont_share = 1,
                            .dont_share = NAMES("h")};
  neap_recycle_figures f = {0};
  neap_status status = neap_net_recycle(s->net, &o, &s->out_net, &f, error);
  s->number[0] = (double)f.planned_bytes;
  return status;
}
CALL(net_release_when_used) {
  int n = 0;
  neap_status status =
    neap_net_release_when_used(s->net, 1, NAMES("h"), &s->out_net, NULL, &n, error);
  s->number[0] = n;
  return status;
}
CALL(net_estimate_memory) {
  neap_memory_estimate e = {0};
  neap_status status =
    neap_net_estimate_memory(2, (const neap_net *const[]){s->net, s->net}, NULL, NULL, &e, error);
  s->number[0] = (double)e.total_bytes, s->number[1] = (double)e.high_bytes,
  s->number[2] = e.n_type;
  s->block = e.by_type;
  return status;
}
CALL(net_same) {
  bool same = false;
  neap_status status =
    neap_net_same(s->net, s->net, NEAP_SAME_GRAPH | NEAP_SAME_IN_PLACE, &same, &s->text, error);
  s->number[0] = same;
  return status;
}
CALL(net_same_not) {
  bool same = true;
  neap_status status = neap_net_same(s->net, s->layer[0], NEAP_SAME_GRAPH, &same, &s->text, error);
  s->number[0] = same;
  return status;
}
CALL(net_rename) {
  return neap_net_rename(s->net, 2, NAMES("h", "r"), NAMES("H", "R"), &s->out_net, error);
}
CALL(net_sort) {
  int position[100] = {0};
  neap_status status = neap_net_sort(s->net, "least_memory", position, error);
  for (int i = 0; i < 4; i++) s->number[i] = position[i];
  return status;
}
CALL(net_interference) {
  int n = 0;
  neap_status status = neap_net_interference(s->net, &n, (int(**)[2]) & s->block, error);
  s->number[0] = n;
  return status;
}
CALL(net_recycle_slots) {
  neap_recycle_figures f = {0};
  int n = 0;
  neap_status status = neap_net_recycle_slots(s->net, NULL, &s->out_net, &f,
                                              (neap_recycle_slot **)&s->block, &n, error);
  s->number[0] = n;
  return status;
}
CALL(net_write_out) { return neap_net_write_out(s->net, s->options, &s->out_net, error); }
CALL(net_reorder) {
  int position[64] = {0};
  neap_status status = neap_net_sort(s->net, "longest_path", position, error);
  return status == NEAP_OK ? neap_net_reorder(s->net, position, &s->out_net, error) : status;
}
CALL(lives_open) {
  neap_lives *lives = NULL;
  neap_status status = neap_lives_open(s->net, NULL, &lives, error);
  s->number[0] = lives != NULL;
  neap_lives_free(lives);
  return status;
}
QUIET(lives_free, neap_lives_free(s->lives); s->lives = NULL)
QUIET(lives_n, s->number[0] = neap_lives_n(s->lives))
QUIET(lives_at, s->number[0] = neap_lives_at(s->lives, 1).first)
QUIET(lives_conflict, s->number[0] = neap_lives_conflict(s->lives, 0, 1))
QUIET(assign_best_slot, s->number[0] = neap_assign_best_slot(2, (const int64_t[]){8, 64},
                                                             (const bool[]){true, true}, 16))
CALL(net_live_ranges) {
  int n = 0;
  neap_status status = neap_net_live_ranges(s->net, (neap_live_range **)&s->block, &n, error);
  s->number[0] = n;
  return status;
}
static const neap_assign_item items[] = {
  {64, 0, 0, 2, "a"}, {128, 0, 3, 5, "b"}, {64, 0, 1, 4, "c"}, {256, 1, 0, 9, "d"},
  {64, 0, 6, 7, "e"}, {192, 0, 5, 8, "f"}, {64, 1, 2, 3, "g"}, {64, 0, 2, 6, "h"}};
enum { N_ITEM = NEAP_COUNT(items) };
static neap_status assign(scene *s, bool exact, neap_error *error) {
  int slot[N_ITEM] = {0};
  neap_assign_figures f = {0};
  neap_status status =
    neap_assign(N_ITEM, items, &(neap_assign_options){.exact = exact}, slot, &f, error);
  for (int i = 0; i < N_ITEM; i++) s->number[i] = slot[i];
  s->number[N_ITEM] = (double)f.bytes;
  return status;
}
CALL(assign) { return assign(s, false, error); }
CALL(assign_exact) { return assign(s, true, error); }
CALL(assign_measure) {
  neap_assign_figures f = {0};
  neap_status status =
    neap_assign_measure(N_ITEM, items, (int[N_ITEM]){0, 0, 1, 2, 0, 1, -1, 3}, &f, error);
  s->number[0] = (double)f.bytes;
  return status;
}
CALL(assign_verify) {
  (void)s;
  return neap_assign_verify(N_ITEM, items, NULL, (int[N_ITEM]){0, 0, 1, 2, 0, 1, -1, 3}, error);
}

static const entry memonger_entries[] = {
  {"neap_net_recycle_slots", NET, call_net_recycle_slots, NULL, false},
  {"neap_net_write_out", NET, call_net_write_out, NULL, false},
  {"neap_net_reorder", FORWARD, call_net_reorder, NULL, false},
  {"neap_lives_open", NET, call_lives_open, NULL, false},
  {"neap_lives_free", NET | HANDLES, call_lives_free, NULL, true},
  {"neap_lives_n", NET | HANDLES, call_lives_n, NULL, true},
  {"neap_lives_at", NET | HANDLES, call_lives_at, NULL, true},
  {"neap_lives_conflict", NET | HANDLES, call_lives_conflict, NULL, true},
  {"neap_assign_best_slot", 0, call_assign_best_slot, NULL, true},
  {"neap_net_recycle", NET, call_net_recycle, NULL, false},
  {"neap_net_recycle", LOOPS, call_net_recycle, NULL, false},
  {"neap_net_recycle", NET, call_net_recycle_exact, NULL, false},
  {"neap_net_release_when_used", FORWARD, call_net_release_when_used, NULL, false},
  {"neap_net_estimate_memory", NET, call_net_estimate_memory, NULL, false},
  {"neap_net_same", LOOPS, call_net_same, NULL, false},
  {"neap_net_same", NET | LAYERS, call_net_same_not, NULL, false},
  {"neap_net_rename", NET, call_net_rename, NULL, false},
  {"neap_net_sort", FORWARD, call_net_sort, NULL, false},
  {"neap_net_interference", NET, call_net_interference, NULL, false},
  {"neap_net_live_ranges", NET, call_net_live_ranges, NULL, false},
  {"neap_assign", 0, call_assign, NULL, false},
  {"neap_assign", 0, call_assign_exact, NULL, false},
  {"neap_assign_measure", 0, call_assign_measure, NULL, false},
  {"neap_assign_verify", 0, call_assign_verify, NULL, false},
};

#endif
