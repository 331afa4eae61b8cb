/* test_api_workspace.c: workspaces with neap.h alone: limits, who is alive, draws, marks,
 * checkpoints with texts, ops by operands, scopes that are looked into; chains' tensors, caches,
 * live ranges. */
#include "check.h"
#include "neap.h"

#include <stdlib.h>
#include <unistd.h>

#define NAMES(...) ((const char *const[]){__VA_ARGS__})

static neap_workspace *opened(void) {
  neap_workspace *ws = NULL;
  CHECK_OK(neap_workspace_open(1, &ws, &error));
  return ws;
}

static void write_number(neap_workspace *ws, const char *name, float x) {
  CHECK_OK(neap_workspace_write(ws, name, NEAP_DTYPE_F32, 0, NULL, &x, &error));
}

static float number(neap_workspace *ws, const char *name) {
  float x = -1;
  CHECK_OK(neap_workspace_read(ws, name, NEAP_DTYPE_F32, 1, &x, &error));
  return x;
}

/* ---- making ---------------------------------------------------------------------------------- */

TEST(limits_of_a_workspace_are_kept) {
  neap_workspace *ws = NULL;
  const neap_workspace_options small = {.seed = 1, .total_bytes = 100};
  float x[64] = {0};
  CHECK_OK(neap_workspace_new(&small, &ws, &error));
  CHECK_OK(neap_workspace_write(ws, "x", NEAP_DTYPE_F32, 1, (int64_t[]){8}, x, &error));
  CHECK_EQ(neap_workspace_arena_bytes(ws), 0);
  CHECK(neap_workspace_held_bytes(ws) >= 32);
  CHECK_FAILS(neap_workspace_write(ws, "y", NEAP_DTYPE_F32, 1, (int64_t[]){64}, x, &error),
              NEAP_BUDGET, "total");
  neap_workspace_release(ws);
}

TEST(another_total_bounds_what_comes_and_init_too) {
  neap_workspace *ws = opened();
  neap_net *net = NULL;
  float x[64] = {0};
  CHECK_OK(neap_net_read("net f\nparam w f32 (64) = Constant\n", &net, &error));
  CHECK_EQ(neap_workspace_limit_total(ws, 100), 0);
  CHECK_FAILS(neap_workspace_init(ws, net, &error), NEAP_BUDGET, "init \"f\"");
  CHECK_EQ(neap_workspace_n_blobs(ws), 0);
  CHECK_EQ(neap_workspace_limit_total(ws, 256), 100);
  CHECK_OK(neap_workspace_init(ws, net, &error));
  CHECK_FAILS(neap_workspace_write(ws, "x", NEAP_DTYPE_F32, 1, (int64_t[]){64}, x, &error),
              NEAP_BUDGET, "its total is 256 B");
  CHECK_EQ(neap_workspace_limit_total(ws, 0), 256);
  CHECK_OK(neap_workspace_write(ws, "x", NEAP_DTYPE_F32, 1, (int64_t[]){64}, x, &error));
  neap_net_free(net);
  neap_workspace_release(ws);
}

TEST(numbers_from_nowhere_are_refused) {
  neap_workspace *ws = opened();
  CHECK_FAILS(neap_workspace_write(ws, "x", NEAP_DTYPE_F32, 1, (int64_t[]){2}, NULL, &error),
              NEAP_ARGUMENT, "data is NULL, 8 bytes");
  CHECK(!neap_workspace_has(ws, "x"));
  CHECK_OK(neap_workspace_write(ws, "none", NEAP_DTYPE_F32, 1, (int64_t[]){0}, NULL, &error));
  write_number(ws, "x", 3);
  CHECK_FAILS(neap_workspace_read(ws, "x", NEAP_DTYPE_F32, 1, NULL, &error), NEAP_ARGUMENT,
              "data is NULL");
  neap_workspace_release(ws);
}

TEST(a_child_sees_what_its_options_forward) {
  neap_workspace *ws = opened(), *child = NULL;
  write_number(ws, "x", 3);
  const neap_workspace_options o = {.unseeded = true,
                                    .parent = ws,
                                    .n_forward = 1,
                                    .forward_name = NAMES("seen"),
                                    .forward_target = NAMES("x")};
  CHECK_OK(neap_workspace_new(&o, &child, &error));
  CHECK(neap_workspace_parent(child) == ws && neap_workspace_parent(ws) == NULL);
  CHECK(neap_workspace_has(child, "seen") && !neap_workspace_has(child, "x"));
  CHECK_EQ(neap_workspace_n_blobs(child), 1);

  /* a copy of its own hides the parent's later number, until it is removed */
  CHECK_OK(neap_workspace_copy_forwarded(child, &error));
  write_number(ws, "x", 4);
  CHECK_NEAR(number(child, "seen"), 3, 0);
  CHECK(neap_workspace_remove(child, "seen"));
  CHECK_NEAR(number(child, "seen"), 4, 0);
  neap_workspace_release(child);
  neap_workspace_release(ws);
}

TEST(all_that_are_alive_are_listed_the_newest_first) {
  neap_workspace *a = opened(), *b = opened(), **list = NULL;
  int n = 0;
  CHECK_OK(neap_workspace_list(&list, &n, &error));
  CHECK(n >= 2 && list[0] == b && list[1] == a);
  neap_workspace_release(a); /* the list holds it */
  write_number(list[1], "x", 1);
  for (int i = 0; i < n; i++) neap_workspace_release(list[i]);
  neap_free(list);
  CHECK_OK(neap_workspace_list(&list, &n, &error));
  for (int i = 0; i < n; i++) {
    CHECK(list[i] != a);
    neap_workspace_release(list[i]);
  }
  neap_free(list);
  neap_workspace_release(b);
}

/* ---- draws ----------------------------------------------------------------------------------- */

TEST(a_seed_and_a_given_draw_repeat_the_numbers) {
  neap_workspace *ws = opened();
  float first = 0, second = 0, third = 0;
  static const char line[] = "z = Uniform() { shape = {1} }";
  neap_workspace_set_seed(ws, 9);
  CHECK_EQ(neap_workspace_seed(ws), 9);
  CHECK_OK(neap_workspace_run_op(ws, line, &error));
  first = number(ws, "z");
  CHECK_OK(neap_workspace_run_op(ws, line, &error));
  CHECK(number(ws, "z") != first);
  neap_workspace_set_seed(ws, 9);
  CHECK_OK(neap_workspace_run_op(ws, line, &error));
  CHECK(number(ws, "z") == first);
  neap_draw draw = neap_workspace_look_draw(ws, false);
  neap_workspace_give_draw(ws, &draw);
  CHECK_OK(neap_workspace_run_op(ws, line, &error));
  second = number(ws, "z");
  CHECK_OK(neap_workspace_run_op(ws, line, &error));
  third = number(ws, "z");
  CHECK(second == third);
  neap_workspace_give_draw(ws, NULL);
  neap_workspace_set_step(ws, 5);
  CHECK_EQ(neap_workspace_step(ws), 5);
  neap_workspace_release(ws);
}

/* ---- marks and checkpoints ------------------------------------------------------------------- */

TEST(a_mark_that_is_undone_takes_all_back) {
  neap_workspace *ws = opened();
  neap_workspace_mark *mark = NULL;
  write_number(ws, "x", 1);
  CHECK_OK(neap_workspace_mark_new(ws, true, 1, NAMES("x"), &mark, &error));
  write_number(ws, "x", 2);
  write_number(ws, "made", 3);
  neap_workspace_mark_undo(mark, 1, NAMES("x"));
  neap_workspace_mark_free(mark);
  CHECK_NEAR(number(ws, "x"), 1, 0);
  CHECK(!neap_workspace_has(ws, "made"));
  neap_workspace_release(ws);
}

TEST(a_checkpoint_carries_texts_of_the_callers) {
  char path[] = "/tmp/neap-workspace-XXXXXX.safetensors", key[] = "epoch", value[] = "3";
  int descriptor = mkstemps(path, 12);
  CHECK(descriptor >= 0);
  close(descriptor);
  neap_net *net = NULL;
  neap_workspace *ws = opened(), *again = opened(), *mapped = opened();
  neap_io_list meta = {0};
  const neap_io_pair pair = {key, value};
  neap_tensor t = {0};
  CHECK_OK(neap_net_read("net n\ninput x f32 (2,3)\nparam w f32 (4,3) = Xavier\ny = FC(x, w)\n",
                         &net, &error));
  CHECK_OK(neap_workspace_init(ws, net, &error)); /* fills w */
  CHECK(neap_workspace_kind(ws, "w") == NEAP_BLOB_TENSOR);
  CHECK(neap_workspace_kind(ws, "nobody") == NEAP_BLOB_EMPTY);
  CHECK_OK(neap_workspace_save(ws, path, 1, &pair, &error));
  CHECK_OK(neap_workspace_load(again, path, NEAP_IO_COPY, &meta, &error));
  CHECK(neap_io_list_meta(&meta, "epoch") != NULL);
  CHECK(strcmp(neap_io_list_meta(&meta, "epoch"), "3") == 0);
  neap_io_list_fini(&meta);
  CHECK_OK(neap_workspace_load(mapped, path, NEAP_IO_MAP_READ, NULL, &error));
  CHECK_OK(neap_workspace_view(mapped, "w", &t, NULL, &error));
  CHECK(neap_tensor_is_read_only(&t));
  neap_tensor_fini(&t);
  unlink(path);
  neap_net_free(net);
  neap_workspace_release(ws);
  neap_workspace_release(again);
  neap_workspace_release(mapped);
}

/* ---- ops, scopes ----------------------------------------------------------------------------- */

TEST(an_op_runs_by_its_operands) {
  neap_workspace *ws = opened();
  const neap_set power[] = {NEAP_SET_FLOAT("rate", 0.0), {0}};
  write_number(ws, "x", 3);
  CHECK_OK(neap_workspace_call_op(ws, "Mul", 2, NAMES("x", "x"), NULL, 1, NAMES("x"), &error));
  CHECK_NEAR(number(ws, "x"), 9, 0);
  CHECK_OK(
    neap_workspace_call_op(ws, "Dropout", 1, NAMES("x"), power, 2, NAMES("y", NULL), &error));
  CHECK_NEAR(number(ws, "y"), 9, 0);
  CHECK_FAILS(neap_workspace_call_op(ws, "Mull", 1, NAMES("x"), NULL, 1, NAMES("y"), &error),
              NEAP_NAME, "Mull");
  neap_workspace_release(ws);
}

TEST(a_scope_is_looked_into_and_outlives_its_blob) {
  neap_workspace *ws = opened(), *frame = NULL;
  neap_scope *scope = NULL, *found = NULL;
  write_number(ws, "x", 3);
  CHECK_OK(neap_workspace_create_scope(ws, "s", &scope, &error));
  CHECK_OK(neap_workspace_scope(ws, "s", &found, &error));
  CHECK(found == scope && neap_workspace_kind(ws, "s") == NEAP_BLOB_SCOPE);
  CHECK_FAILS(neap_workspace_scope(ws, "x", &found, &error), NEAP_DTYPE, "x");
  for (int i = 0; i < 2; i++)
    CHECK_OK(neap_scope_push(scope, ws, 1, NAMES("in"), NAMES("x"), &frame, &error));
  neap_scope_clear(scope);
  CHECK_EQ(neap_scope_n_frames(scope), 0);
  CHECK_EQ(neap_scope_n_kept(scope), 2);
  CHECK(neap_scope_frame_at(scope, 1) == frame && neap_scope_frame_at(scope, 2) == NULL);
  CHECK_OK(neap_scope_check(scope, &error));
  CHECK_OK(neap_scope_check_bindings(scope, false, 1, NAMES("in"), NAMES("x"), &error));
  CHECK_FAILS(neap_scope_check_bindings(scope, false, 1, NAMES("in"), NAMES("y"), &error),
              NEAP_NAME, "");
  found = neap_scope_retain(scope);
  CHECK(neap_workspace_remove(ws, "s"));
  CHECK_EQ(neap_scope_n_kept(found), 2);
  neap_scope_release(found);
  neap_workspace_release(ws);
}

TEST(a_single_run_says_what_the_database_did_not_do) {
  neap_workspace *ws = opened();
  neap_net *net = NULL;
  char warning[NEAP_WARNING_TEXT] = "left from before";
  write_number(ws, "x", 3);
  CHECK_OK(neap_net_read("net n\ninput x f32 ()\ny = Neg(x)\n", &net, &error));
  CHECK_OK(neap_workspace_run_once(ws, net, NULL, warning, &error));
  CHECK(warning[0] == '\0');
  CHECK_NEAR(number(ws, "y"), -3, 0);
  neap_net_free(net);
  neap_workspace_release(ws);
}

/* ---- chains and caches ----------------------------------------------------------------------- */

TEST(tensors_of_a_chain_stay_when_it_lets_go) {
  neap_workspace *ws = opened();
  neap_net *layer = NULL;
  neap_chain *chain = NULL;
  neap_chain_item item = {0};
  const float x[4] = {1, 2, 3, 4};
  CHECK_OK(
    neap_net_read("net one\ninput x f32 (2,2)\nparam w f32 (3,2) = Xavier\nh = FC(x, w)\n"
                  "y = Tanh(h)\noutputs y\n",
                  &layer, &error));
  CHECK_OK(neap_chain_open(ws, 1, (const neap_net *const[]){layer}, 4, NULL, &chain, &error));
  CHECK_EQ(neap_chain_n_layers(chain), 1);
  CHECK(!neap_chain_has_batch(chain, 3));
  CHECK_OK(neap_workspace_write(ws, "x", NEAP_DTYPE_F32, 2, (int64_t[]){2, 2}, x, &error));
  CHECK_OK(neap_chain_forward(chain, true, &error));
  CHECK(strcmp(neap_chain_warning(chain), "") == 0);
  neap_cache *cache = neap_chain_cache(chain, 0);
  CHECK(cache != NULL && neap_chain_cache(chain, 1) == NULL);
  CHECK(neap_cache_n(cache) > 0 && strcmp(neap_cache_name(cache), "one") == 0);
  CHECK_OK(neap_chain_item_at(chain, NEAP_LIST_OUTPUTS, 0, &item, &error));
  CHECK(strcmp(item.blob, "one/output") == 0 && strcmp(item.layer, "one") == 0);
  neap_chain_free(chain);
  CHECK_EQ(neap_tensor_elems(&item.data), 6); /* still ours */
  CHECK(fabs(neap_element_get(NEAP_DTYPE_F32, neap_tensor_data(&item.data), 0)) <= 1);
  neap_chain_item_fini(&item);
  neap_net_free(layer);
  neap_workspace_release(ws);
}

TEST(a_cache_gives_what_was_pushed_last_or_nothing) {
  neap_cache *cache = NULL;
  neap_tensor t = {0}, out = {0};
  neap_shape three = NEAP_SHAPE(3), four = NEAP_SHAPE(4);
  CHECK_OK(neap_tensor_new(&t, NEAP_DTYPE_F32, &three, &error));
  CHECK_OK(neap_cache_new("mine", &cache, &error));
  CHECK_OK(neap_cache_push(cache, &t, "first", &error));
  CHECK_OK(neap_cache_push(cache, &t, NULL, &error));
  CHECK_EQ(neap_cache_n(cache), 2);
  CHECK(strcmp(neap_cache_label(cache, 0), "first") == 0 && neap_cache_label(cache, 1) == NULL);
  const neap_cache_want first = {.label = "first", .shape = &three, .dtype = NEAP_DTYPE_F32};
  CHECK_FAILS(neap_cache_pop(cache, &first, &out, &error), NEAP_NAME, "first");
  CHECK_EQ(neap_cache_n(cache), 2);
  CHECK_OK(neap_cache_pop(cache, NULL, &out, &error));
  neap_tensor_fini(&out);
  CHECK_FAILS(neap_cache_pop(cache, &(neap_cache_want){.shape = &four}, &out, &error), NEAP_SHAPE,
              "(4)");
  CHECK_OK(neap_cache_pop(cache, &first, &out, &error));
  CHECK(neap_tensor_data(&out) == neap_tensor_data(&t));
  neap_tensor_fini(&out);
  CHECK_FAILS(neap_cache_pop(cache, NULL, &out, &error), NEAP_RELEASED, "nothing is left");
  neap_cache_clear(cache);
  neap_cache_free(cache);
  neap_tensor_fini(&t);
}

/* ---- live ranges and slots ------------------------------------------------------------------- */

static int find_range(const neap_lives *lives, const char *name) {
  for (int i = 0; i < neap_lives_n(lives); i++)
    if (strcmp(neap_lives_at(lives, i).name, name) == 0) return i;
  return -1;
}

TEST(live_ranges_say_who_may_not_share_and_slots_who_does) {
  static const char text[] =
    "net chain\ninput x f32 (4,8)\na = Tanh(x)\nb = Tanh(a)\nc = Tanh(b)\nd = Tanh(c)\n"
    "e = Tanh(d)\noutputs e\n";
  neap_net *net = NULL, *made = NULL, *again = NULL;
  neap_lives *lives = NULL;
  neap_recycle_figures figures;
  neap_recycle_slot *slot = NULL;
  int n = 0, order[16], forward[] = {0, 1, 2, 3, 4}, backward[] = {4, 3, 2, 1, 0};
  const neap_input half = {"x", {NEAP_DTYPE_F32, NEAP_SHAPE(2, 8)}};
  const neap_options two = {.n_inputs = 1, .inputs = &half};
  CHECK_OK(neap_net_read(text, &net, &error));
  CHECK_OK(neap_lives_open(net, &(neap_recycle_options){.plan = &two}, &lives, &error));
  int a = find_range(lives, "a"), b = find_range(lives, "b"), c = find_range(lives, "c");
  CHECK(a >= 0 && b >= 0 && c >= 0);
  CHECK(neap_lives_conflict(lives, a, b) && !neap_lives_conflict(lives, a, c));
  neap_live_range range = neap_lives_at(lives, a);
  CHECK(range.first == 0 && range.last == 1 && range.shares && range.fixed == NULL);
  CHECK_EQ(range.shape.dim[0], 2); /* as the options have it */
  CHECK(neap_lives_at(lives, find_range(lives, "e")).fixed != NULL);
  neap_lives_free(lives);

  CHECK_OK(neap_net_recycle_slots(net, NULL, &made, &figures, &slot, &n, &error));
  CHECK_EQ(n, figures.n_shared);
  CHECK(n > 0 && slot[0].n_blob >= 2 && slot[0].bytes == 4 * 8 * 4);
  neap_free(slot);
  CHECK_OK(neap_net_write_out(net, NULL, &again, &error));
  CHECK(again == NULL); /* nothing to write out */
  CHECK_OK(neap_net_sort(net, "plain", order, &error));
  CHECK_OK(neap_net_reorder(net, forward, &again, &error));
  bool same = false;
  CHECK_OK(neap_net_same(net, again, NEAP_SAME_GRAPH, &same, NULL, &error));
  CHECK(same);
  neap_net_free(again);
  CHECK_FAILS(neap_net_reorder(net, backward, &again, &error), NEAP_NAME, "not defined here");
  neap_net_free(net);
  neap_net_free(made);
}

int main(int argc, char **argv) {
  return RUN(
    argc, argv, T(limits_of_a_workspace_are_kept), T(another_total_bounds_what_comes_and_init_too),
    T(numbers_from_nowhere_are_refused), T(a_child_sees_what_its_options_forward),
    T(all_that_are_alive_are_listed_the_newest_first),
    T(a_seed_and_a_given_draw_repeat_the_numbers), T(a_mark_that_is_undone_takes_all_back),
    T(a_checkpoint_carries_texts_of_the_callers), T(an_op_runs_by_its_operands),
    T(a_scope_is_looked_into_and_outlives_its_blob),
    T(a_single_run_says_what_the_database_did_not_do), T(tensors_of_a_chain_stay_when_it_lets_go),
    T(a_cache_gives_what_was_pushed_last_or_nothing),
    T(live_ranges_say_who_may_not_share_and_slots_who_does));
}
