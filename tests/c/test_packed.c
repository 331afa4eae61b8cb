/* test_packed.c: weights that a program has packed are put away where nobody but the workspace can
 * have the address of their bytes, come back as they were, and leave nothing behind. */
#include "mlp.h"

#include <stdlib.h>

static const char text[] =
  "net f\n"
  "input x f32 (1,64,6,6)\n"
  "param w f32 (64,64,3,3)\n"
  "y = Conv(x, w) { pad = {1} }\n"
  "outputs y\n";
enum { N_WEIGHT = 64 * 64 * 9 };

/* Who else could have the address of the weights, in this case. */
typedef enum holder {
  NOBODY,
  MARK,
  TENSOR,
  TWO_TENSORS,
  CHILD,
  FILE_READ_ONLY,
  PART_OF_MORE
} holder;

/* Ones, in the bytes of a storage that is as large, or larger. */
static neap_tensor ones(holder who) {
  neap_tensor all, w;
  const int64_t n = N_WEIGHT + (who == PART_OF_MORE ? 64 : 0);
  const neap_shape row = NEAP_SHAPE(n), shape = NEAP_SHAPE(64, 64, 3, 3);
  CHECK_OK(neap_tensor_new(&all, NEAP_DTYPE_F32, &row, &error));
  for (int64_t i = 0; i < n; i++) neap_element_set(NEAP_DTYPE_F32, neap_tensor_data(&all), i, 1);
  w = neap_tensor_view(all.storage, 0, NEAP_DTYPE_F32, &shape);
  neap_tensor_fini(&all);
  return w;
}

/* A run, and a second one, of a net in a workspace where `who` holds the weights. Whether their
 * bytes have gone in between: pages that were given back are zeros. -1: this build packs none. */
static int goes(holder who) {
  neap_workspace *ws = NULL, *child = NULL;
  neap_workspace_mark *mark = NULL;
  neap_session *session = NULL;
  neap_net *net = NULL;
  const neap_compile_options options = {.plan = {.policy = NEAP_POLICY_OFFSET}};
  CHECK_OK(neap_workspace_new(&(neap_workspace_options){.seed = 1}, &ws, &error));
  CHECK_OK(neap_net_read(text, &net, &error));
  CHECK_OK(mlp_feed(ws, "x", NEAP_DTYPE_F32, NEAP_SHAPE(1, 64, 6, 6), 1, &error));

  /* The workspace has the bytes that are fed, and what w holds here is let go, or not. */
  neap_tensor w = ones(who), other = {0};
  const char *middle = neap_storage_address(w.storage) + N_WEIGHT * sizeof(float) / 2;
  if (who == FILE_READ_ONLY) neap_storage_set_read_only(w.storage);
  CHECK_OK(neap_workspace_feed(ws, "w", &w, true, &error));
  if (who == TWO_TENSORS) other = neap_tensor_retain(&w);
  if (who != TENSOR && who != TWO_TENSORS) neap_tensor_fini(&w);
  if (who == CHILD)
    CHECK_OK(neap_workspace_new(&(neap_workspace_options){.parent = ws}, &child, &error));
  if (who == MARK) CHECK_OK(neap_workspace_mark_new(ws, true, 0, NULL, &mark, &error));

  CHECK_OK(neap_driver_compile(ws, net, &options, &session, &error));
  const neap_plan *plan = neap_program_plan(neap_session_program(session));
  const bool packs = plan->region_bytes[NEAP_REGION_CONSTANT] > 0;
  CHECK_OK(neap_session_run(session, &error));
  const double y = mlp_element(ws, "y", 100);
  const int gone = packs ? *(const float *)(const void *)middle == 0 : -1;

  /* Whatever has become of them, they are asked for and used again. */
  CHECK_OK(neap_session_run(session, &error));
  CHECK_EQ(mlp_element(ws, "y", 100), y);
  for (int64_t i = 0; i < N_WEIGHT; i += 1001) CHECK_EQ(mlp_element(ws, "w", i), 1);

  neap_tensor_fini(&w), neap_tensor_fini(&other);
  neap_workspace_mark_free(mark);
  neap_workspace_release(child);
  neap_session_free(session);
  neap_workspace_release(ws);
  neap_net_free(net);
  return gone;
}

TEST(weights_go_where_nobody_else_can_have_their_address) {
  if (goes(NOBODY) < 0) return;
  CHECK_EQ(goes(NOBODY), 1);
  CHECK_EQ(goes(MARK), 1);
  CHECK_EQ(goes(TENSOR), 0);
  CHECK_EQ(goes(TWO_TENSORS), 0);
  CHECK_EQ(goes(CHILD), 0);
  CHECK_EQ(goes(FILE_READ_ONLY), 0);
  CHECK_EQ(goes(PART_OF_MORE), 0);
}

/* Cells are numbered by workspace: that of a parent's weights is another blob's in the child. */
TEST(a_parents_weights_and_what_a_child_has_stay) {
  neap_workspace *parent = NULL, *child = NULL;
  neap_session *session = NULL;
  neap_net *net = NULL;
  const neap_compile_options options = {.plan = {.policy = NEAP_POLICY_OFFSET}};
  const neap_shape shape = NEAP_SHAPE(64, 64, 3, 3);
  CHECK_OK(neap_net_read(text, &net, &error));
  CHECK_OK(neap_workspace_new(&(neap_workspace_options){.seed = 1}, &parent, &error));
  neap_tensor w = ones(NOBODY);
  CHECK_OK(neap_workspace_feed(parent, "w", &w, true, &error));
  neap_tensor_fini(&w);

  CHECK_OK(neap_workspace_new(&(neap_workspace_options){.parent = parent}, &child, &error));
  CHECK_OK(mlp_feed(child, "own", NEAP_DTYPE_F32, shape, 2, &error));
  const double own = mlp_element(child, "own", 5000);
  CHECK(own != 1);
  CHECK_OK(mlp_feed(child, "x", NEAP_DTYPE_F32, NEAP_SHAPE(1, 64, 6, 6), 1, &error));
  CHECK_OK(neap_driver_compile(child, net, &options, &session, &error));
  CHECK_OK(neap_session_run(session, &error));
  CHECK_EQ(mlp_element(child, "own", 5000), own);
  CHECK_EQ(mlp_element(parent, "w", 5000), 1);

  neap_session_free(session);
  neap_workspace_release(child), neap_workspace_release(parent);
  neap_net_free(net);
}

/* ---- storage --------------------------------------------------------------------------------- */

static int n_restored, n_dropped;
static void restore(void *self, char *data) {
  n_restored++;
  memcpy(data, self, 4);
}
static void drop(void *self) {
  (void)self;
  n_dropped++;
}

TEST(a_source_is_dropped_once_whether_it_is_asked_or_not) {
  static char bytes[] = "abc";
  for (int asks = 0; asks < 3; asks++) {
    neap_storage *storage = neap_storage_new(4);
    n_restored = n_dropped = 0;
    neap_storage_put_away(storage, &(neap_storage_source){restore, drop, bytes});
    for (int i = 0; i < asks; i++) CHECK(strcmp(neap_storage_data(storage), "abc") == 0);
    CHECK_EQ(n_restored, asks > 0);
    CHECK_EQ(n_dropped, asks > 0);
    neap_storage_release(storage);
    CHECK_EQ(n_dropped, 1);
  }
}

TEST(no_two_storages_have_had_one_version) {
  neap_storage *a = neap_storage_new(4), *b = neap_storage_new(4);
  const uint64_t first = neap_storage_version(a);
  CHECK(neap_storage_version(b) != first);
  for (int i = 0; i < 3; i++) {
    neap_storage_touch(b);
    CHECK(neap_storage_version(b) != first);
  }
  neap_storage_touch(a);
  CHECK(neap_storage_version(a) != first && neap_storage_version(a) != neap_storage_version(b));
  neap_storage_release(a), neap_storage_release(b);
}

int main(int argc, char **argv) {
  return RUN(argc, argv, T(weights_go_where_nobody_else_can_have_their_address),
             T(a_parents_weights_and_what_a_child_has_stay),
             T(a_source_is_dropped_once_whether_it_is_asked_or_not),
             T(no_two_storages_have_had_one_version));
}
