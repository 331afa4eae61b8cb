/* Ops side by side: that those which may are under way at once, under executor dag and under the
 * dynamic one, and that those which need all threads are not. Kernels of a test's own wait for each
 * other: no clock decides. */
#include "check.h"
#include "driver/driver.h"
#include "program/program_int.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

/* ---- kernels that meet ----------------------------------------------------------------------- */

/* How many are inside now, and the most there have been. A kernel that is to meet another waits for
 * it, and gives up late: then the test fails, and does not hang. */
static struct {
  pthread_mutex_t mutex;
  pthread_cond_t came;
  int n_inside, n_most, n_call, n_wanted;
  void (*inner)(const neap_call *call);
} meeting = {.mutex = PTHREAD_MUTEX_INITIALIZER, .came = PTHREAD_COND_INITIALIZER};

static void run_meeting(const neap_call *call) {
  enum { GIVE_UP_S = 20 };
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += GIVE_UP_S;
  pthread_mutex_lock(&meeting.mutex);
  meeting.n_call++;
  meeting.n_inside++;
  meeting.n_most = NEAP_MAX(meeting.n_most, meeting.n_inside);
  pthread_cond_broadcast(&meeting.came);
  while (meeting.n_most < meeting.n_wanted)
    if (pthread_cond_timedwait(&meeting.came, &meeting.mutex, &until) != 0) break;
  pthread_mutex_unlock(&meeting.mutex);
  meeting.inner(call);
  pthread_mutex_lock(&meeting.mutex);
  meeting.n_inside--;
  pthread_mutex_unlock(&meeting.mutex);
}

/* The kernel of all Tanh ops of a program is one that meets `n_wanted` of its like. False: there is
 * none. */
static bool replace_kernels(neap_program *program, neap_kernel *kernel, int n_wanted) {
  bool found = false;
  for (int step = 0; step < program->n_instruction; step++) {
    neap_instruction *i = &program->instruction[step];
    if (i->call.op == NULL || strcmp(i->call.op->name, "Tanh") != 0) continue;
    *kernel = *i->kernel;
    meeting.inner = kernel->run;
    kernel->run = run_meeting;
    i->kernel = kernel;
    found = true;
  }
  meeting.n_inside = meeting.n_most = meeting.n_call = 0;
  meeting.n_wanted = n_wanted;
  return found;
}

/* ---- nets ------------------------------------------------------------------------------------ */

/* Two branches of one input that a third op joins. */
static const char *const branches =
  "net branches\ninput x f32 (64,256)\na = Tanh(x)\nm = Neg(x)\nb = Tanh(m)\ny = Add(a, "
  "b)\noutputs y\n";

/* A session of a net whose input x is fed. */
typedef struct opened {
  neap_workspace *ws;
  neap_session *session;
  neap_kernel kernel;
} opened;

static neap_status open_net(const char *text, const neap_compile_options *options, opened *o,
                            neap_error *error) {
  neap_net *net = NULL;
  neap_shape shape = NEAP_SHAPE(64, 256);
  neap_tensor x = {0};
  *o = (opened){0};
  neap_status status = neap_net_read(text, &net, error);
  if (status == NEAP_OK)
    status = neap_workspace_new(&(neap_workspace_options){.seed = 1}, &o->ws, error);
  if (status == NEAP_OK) status = neap_driver_compile(o->ws, net, options, &o->session, error);
  if (status == NEAP_OK) status = neap_tensor_new(&x, NEAP_DTYPE_F32, &shape, error);
  for (int i = 0; status == NEAP_OK && i < 64 * 256; i++)
    ((float *)neap_tensor_data(&x))[i] = (float)(i % 33 - 16) / 8;
  if (status == NEAP_OK) status = neap_workspace_feed(o->ws, "x", &x, false, error);
  neap_tensor_fini(&x);
  neap_net_free(net);
  return status;
}

static void close_net(opened *o) {
  neap_session_free(o->session);
  neap_workspace_release(o->ws);
}

static float first_of(opened *o, const char *name) {
  neap_tensor y = {0};
  float value = 0;
  CHECK_OK(neap_workspace_fetch(o->ws, name, &y, &error));
  if (neap_tensor_data(&y) != NULL) value = *(const float *)neap_tensor_data(&y);
  neap_tensor_fini(&y);
  return value;
}

static const neap_compile_options in_order = {.plan = {.policy = NEAP_POLICY_POOL},
                                              .n_thread = 2,
                                              .graph.no_fuse = true},
                                  dynamic = {.plan = {.policy = NEAP_POLICY_POOL},
                                             .dynamic = true,
                                             .n_thread = 2,
                                             .graph.no_fuse = true},
                                  dag = {.plan = {.policy = NEAP_POLICY_OFFSET,
                                                  .executor = NEAP_EXECUTOR_DAG},
                                         .n_thread = 2,
                                         .graph.no_fuse = true};

/* ---- tests ----------------------------------------------------------------------------------- */

TEST(independent_ops_are_under_way_at_once) {
  const neap_compile_options *const way[] = {&dynamic, &dag};
  neap_threads_set(2);
  for (int k = 0; k < NEAP_COUNT(way); k++) {
    opened o, plain;
    CHECK_OK(open_net(branches, &in_order, &plain, &error));
    CHECK_OK(neap_session_run(plain.session, &error));
    CHECK_OK(open_net(branches, way[k], &o, &error));
    CHECK(replace_kernels(neap_session_program(o.session), &o.kernel, 2));
    CHECK_OK(neap_session_run(o.session, &error));
    CHECK_EQ(meeting.n_most, 2);
    CHECK_EQ(meeting.n_call, 2);
    CHECK(first_of(&o, "y") == first_of(&plain, "y"));
    close_net(&o);
    close_net(&plain);
  }
}

/* What needs the team has it: no other op runs meanwhile. */
TEST(an_op_that_needs_all_threads_runs_alone) {
  const neap_compile_options *const way[] = {&dynamic, &dag};
  neap_threads_set(2);
  for (int k = 0; k < NEAP_COUNT(way); k++) {
    opened o;
    CHECK_OK(
      open_net("net heavy\ninput x f32 (64,256)\nparam w f32 (256,256) = Xavier\nm = Neg(x)\na = "
               "FC(x, w)\nb = FC(m, w)\nc = Tanh(x)\n"
               "d = Tanh(m)\ne = Add(a, b)\nf = Add(c, d)\ny = Add(e, f)\noutputs y\n",
               way[k], &o, &error));
    neap_program *program = neap_session_program(o.session);
    for (int step = 0; step < program->n_instruction; step++) {
      const neap_instruction *i = &program->instruction[step];
      bool is_product = i->call.op != NULL && strcmp(i->call.op->name, "FC") == 0;
      CHECK_EQ(neap_runs_alone(program, i), is_product && !i->kernel->any_team);
    }
    CHECK(replace_kernels(program, &o.kernel, 2)); /* the two that may do meet, beside them */
    CHECK_OK(neap_session_run(o.session, &error));
    CHECK_EQ(meeting.n_most, 2);
    close_net(&o);
  }
}

/* The second branch's bytes are those that the first has given back: within them there is no room
 * for both at once. */
TEST(ops_without_room_for_both_wait) {
  static const char *const tight =
    "net tight\ninput x f32 (64,256)\na = Tanh(x)\nb = Sum(a)\nm = Neg(x)\nc = Tanh(m)\nd = "
    "Sum(c)\ny = Add(b, d)\noutputs y\n";
  neap_threads_set(2);
  opened o;
  CHECK_OK(open_net(tight, &dynamic, &o, &error));
  neap_program *program = neap_session_program(o.session);
  size_t most = neap_program_plan(program)->arena_bytes;
  CHECK(most < 64 * 256 * sizeof(float) * 2 + 3 * NEAP_ALIGN);
  CHECK(replace_kernels(program, &o.kernel, 1));
  for (int k = 0; k < 50; k++) CHECK_OK(neap_session_run(o.session, &error));
  CHECK_EQ(meeting.n_call, 100);
  CHECK_EQ(meeting.n_most, 1);
  for (int step = 0; step < program->n_instruction; step++)
    CHECK(neap_program_pool_curve(program)[step] <= (int64_t)most);
  close_net(&o);
}

int main(int argc, char **argv) {
  return RUN(argc, argv, T(independent_ops_are_under_way_at_once),
             T(an_op_that_needs_all_threads_runs_alone), T(ops_without_room_for_both_wait));
}
