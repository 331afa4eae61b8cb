/* test_dynamic.c: sessions of shapes that only a run knows, while memory is refused. */
#include "mlp.h"

/* ---- dynamic --------------------------------------------------------------------------------- */

/* Rows picked by a mask, through a layer and an update: two batches of different size and number of
 * rows. */
static const char *const masked =
  "net masked\ninput x f32 (1,3)\ninput m bool (1)\ninput lr f32 ()\nparam w f32 (2,3) = Constant "
  "{ value = 0.5 }\n"
  "h = FC(x, w)\npart = Compress(h, m) { axis = 0 }\nsquare = Mul(part, part)\nloss = Sum(square)\n"
  "dw = Gradient(loss, w)\nw = Sgd(w, dw, lr)\noutputs loss\n";

static neap_status feed_batch(neap_workspace *ws, int64_t n, const bool *mask, neap_error *error) {
  float rows[15] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, rate = 0.001f;
  const struct {
    const char *name;
    neap_dtype dtype;
    neap_shape shape;
    void *data;
  } blob[] = {{"x", NEAP_DTYPE_F32, NEAP_SHAPE(n, 3), rows},
              {"m", NEAP_DTYPE_BOOL, NEAP_SHAPE(n), (void *)(uintptr_t)mask},
              {"lr", NEAP_DTYPE_F32, neap_shape_of(0, NULL), &rate}};
  for (int b = 0; b < NEAP_COUNT(blob); b++) {
    neap_tensor t;
    NEAP_TRY(neap_tensor_new(&t, blob[b].dtype, &blob[b].shape, error));
    neap_type type = neap_tensor_type(&t);
    memcpy(neap_tensor_data(&t), blob[b].data, neap_type_bytes(&type));
    neap_status status = neap_workspace_feed(ws, blob[b].name, &t, false, error);
    neap_tensor_fini(&t);
    NEAP_TRY(status);
  }
  return NEAP_OK;
}

/* Opens, runs two batches, closes; *weight gets the first parameter. */
static neap_status run_masked(const neap_net *net, float *weight, neap_error *error) {
  static const bool first[3] = {true, false, true}, second[5] = {false, true, true, true, false};
  neap_compile_options options = {.plan = {.policy = NEAP_POLICY_POOL}, .dynamic = true};
  neap_workspace *ws = NULL;
  neap_session *session = NULL;
  neap_status status = neap_workspace_new(&(neap_workspace_options){.seed = 1}, &ws, error);
  if (status == NEAP_OK) status = neap_driver_compile(ws, net, &options, &session, error);
  if (status == NEAP_OK) status = feed_batch(ws, 3, first, error);
  if (status == NEAP_OK) status = neap_session_run(session, error);
  if (status == NEAP_OK) status = feed_batch(ws, 5, second, error);
  if (status == NEAP_OK) status = neap_session_run(session, error);
  neap_tensor w = {0};
  if (status == NEAP_OK) status = neap_workspace_fetch(ws, "w", &w, error);
  if (status == NEAP_OK) *weight = *(const float *)neap_tensor_data(&w);
  neap_tensor_fini(&w);
  neap_session_free(session);
  neap_workspace_release(ws);
  return status;
}

TEST(every_refused_allocation_is_survived_by_a_dynamic_session) {
  neap_net *net = NULL;
  float want = 0, got = 0;
  CHECK_OK(neap_net_read(masked, &net, &error));
  CHECK_OK(run_masked(net, &want, &error));
  CHECK(want < 0.5f);
  int64_t live = neap_memory_read().n_live, pool_reserved, pool_used;
  bool done = false;
  for (int64_t n = 1; !done && n < 100000 && check_failures < 5; n++) {
    neap_error own = {0};
    neap_memory_fail_nth_block(n);
    neap_status status = run_masked(net, &got, &own);
    done = !neap_memory_failed();
    neap_memory_fail_nth(0, false);
    if (status != NEAP_OK && status != NEAP_MEMORY)
      printf("  allocation %lld: %s\n", (long long)n, own.message), check_failures++;
    if (status == NEAP_OK) CHECK(got == want);
    CHECK_EQ(neap_memory_read().n_live, live);
  }
  CHECK(done);
  neap_pool_totals(&pool_reserved, &pool_used);
  CHECK(pool_reserved == 0 && pool_used == 0);
  neap_net_free(net);
}

int main(int argc, char **argv) {
  return RUN(argc, argv, T(every_refused_allocation_is_survived_by_a_dynamic_session));
}
