/* The public C API and its caller's threads: sessions inside the caller's own parallel region,
 * several at the same time, in a child of fork, and a kernel that a signal ends. This program is
 * linked with libneap.so alone. What could hang is ended by an alarm. */
#include "check.h"

#include <omp.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
  GIVE_UP_S = 200,
  N_X = 8 * 3 * 16 * 16,
  N_W = 16 * 3 * 3 * 3,
  N_W2 = 16 * 16 * 3 * 3,
  N_FC = 10 * 16 * 16 * 16
};

/* Kernels of every kind that has threads: convolutions and their gradients, norms, pools, products,
 * loops of our own. */
static const char net_text[] =
  "net threads\ninput x f32 (8,3,16,16)\nparam w f32 (16,3,3,3) = Xavier\nparam w2 f32 (16,16,3,3) "
  "= Xavier\n"
  "param g f32 (16) = Constant { value = 1 }\nparam b f32 (16) = Constant\nparam fc f32 (10,4096) "
  "= Xavier\n"
  "c = Conv(x, w) { pad = {1} }\nn, m, v = BatchNorm(c, g, b) { training = true }\nr = Relu(n)\nd "
  "= Conv(r, w2) { pad = {1} }\n"
  "p = MaxPool(d) { kernel = {3}, stride = {1}, pad = {1} }\nf = Reshape(p) { shape = {8, 4096} "
  "}\ny = FC(f, fc)\ns = "
  "Softmax(y)\n"
  "z = Mul(s, s)\nloss = Sum(z)\nw_grad, w2_grad, fc_grad = Gradient(loss, w, w2, fc)\n"
  "outputs loss, w_grad, w2_grad, fc_grad\n";

typedef struct results {
  float w[N_W], w2[N_W2], fc[N_FC];
} results;

typedef struct runner {
  neap_workspace *ws;
  neap_session *session;
} runner;

static neap_status open_runner(runner *r, int n_thread, bool dag, neap_error *error) {
  float x[N_X]; /* several threads open theirs at a time */
  for (int i = 0; i < N_X; i++) x[i] = (float)(i * 7919 % 1000) / 500 - 1;
  neap_net *net = NULL;
  *r = (runner){0};
  neap_status status = neap_net_read(net_text, &net, error);
  if (status == NEAP_OK) status = neap_workspace_open(1, &r->ws, error);
  if (status == NEAP_OK)
    status =
      neap_workspace_write(r->ws, "x", NEAP_DTYPE_F32, 4, (int64_t[]){8, 3, 16, 16}, x, error);
  if (status == NEAP_OK)
    status = neap_session_open(r->ws, net,
                               &(neap_options){.threads = n_thread, .executor = dag ? "dag" : NULL},
                               &r->session, error);
  neap_net_free(net);
  return status;
}

static neap_status run(runner *r, results *out, neap_error *error) {
  if (r->session == NULL) return NEAP_ARGUMENT;
  neap_status status = neap_session_run(r->session, error);
  if (status == NEAP_OK)
    status = neap_workspace_read(r->ws, "w_grad", NEAP_DTYPE_F32, N_W, out->w, error);
  if (status == NEAP_OK)
    status = neap_workspace_read(r->ws, "w2_grad", NEAP_DTYPE_F32, N_W2, out->w2, error);
  if (status == NEAP_OK)
    status = neap_workspace_read(r->ws, "fc_grad", NEAP_DTYPE_F32, N_FC, out->fc, error);
  return status;
}

static void close_runner(runner *r) {
  neap_session_free(r->session);
  neap_workspace_release(r->ws);
}

/* What a session of so many threads gives when nothing is beside it. */
static void expect(int n_thread, results *out) {
  runner r;
  CHECK_OK(open_runner(&r, n_thread, false, &error));
  CHECK_OK(run(&r, out, &error));
  close_runner(&r);
}

/* The same numbers up to rounding. */
static bool is_close(const results *a, const results *b) {
  const float *x = (const float *)a, *y = (const float *)b;
  for (size_t i = 0; i < sizeof *a / sizeof *x; i++)
    if (!(fabsf(x[i] - y[i]) <= 1e-4f * (1 + fabsf(x[i])))) return false;
  return true;
}

TEST(sessions_run_inside_a_parallel_region_whoever_made_them) {
  enum { N = 3 };
  static results want[4], got[2 * N];
  expect(1, &want[1]);
  expect(2, &want[2]);
  CHECK(is_close(&want[1], &want[2]));
  runner outside[N];
  for (int i = 0; i < N; i++) CHECK_OK(open_runner(&outside[i], 2, i == 1, &error));
  int n_good = 0, n_run = 0; /* OpenMP may give fewer than N */
#pragma omp parallel num_threads(N) reduction(+ : n_good, n_run)
  {
    int i = omp_get_thread_num();
    n_run++;
    runner inside;
    neap_error error = {0};
    n_good += open_runner(&inside, 0, false, &error) == NEAP_OK;
    for (int round = 0; round < 3; round++) {
      n_good += run(&inside, &got[i], &error) == NEAP_OK;
      n_good += run(&outside[i], &got[N + i], &error) == NEAP_OK;
    }
    close_runner(&inside);
  }
  CHECK(n_run >= 1);
  CHECK_EQ(n_good, 7 * n_run);
  for (int i = 0; i < n_run; i++) CHECK(memcmp(&got[N + i], &want[2], sizeof want[2]) == 0);
  if (n_run > 1) /* what was made there was made for one thread */
    for (int i = 0; i < n_run; i++) CHECK(memcmp(&got[i], &want[1], sizeof want[1]) == 0);
  for (int i = 0; i < N; i++) close_runner(&outside[i]);
}

typedef struct job {
  int n_thread;
  bool dag, good;
  results got;
} job;

static void *run_job(void *context) {
  job *j = context;
  runner r;
  neap_error error = {0};
  j->good = open_runner(&r, j->n_thread, j->dag, &error) == NEAP_OK;
  for (int round = 0; round < 5; round++) j->good = j->good && run(&r, &j->got, &error) == NEAP_OK;
  close_runner(&r);
  return NULL;
}

TEST(sessions_at_the_same_time_give_the_bits_of_one_alone) {
  enum { N = 5 };
  static results want[4];
  static job jobs[N];
  pthread_t thread[N];
  for (int n = 1; n <= 3; n++) expect(n, &want[n]);
  for (int i = 0; i < N; i++) {
    jobs[i] = (job){.n_thread = 1 + i % 3, .dag = i == 3};
    CHECK_EQ(pthread_create(&thread[i], NULL, run_job, &jobs[i]), 0);
  }
  for (int i = 0; i < N; i++) {
    pthread_join(thread[i], NULL);
    CHECK(jobs[i].good);
    CHECK(memcmp(&jobs[i].got, &want[jobs[i].n_thread], sizeof want[0]) == 0);
  }
}

TEST(a_child_of_fork_runs_what_its_parent_made) {
  static results want, got;
  runner r;
  CHECK_OK(open_runner(&r, 2, false, &error));
  CHECK_OK(run(&r, &want, &error));
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    alarm(GIVE_UP_S);
    neap_error error = {0};
    bool good = run(&r, &got, &error) == NEAP_OK && memcmp(&got, &want, sizeof want) == 0;
    memset(&got, 0, sizeof got);
    runner own;
    good =
      good && open_runner(&own, 2, true, &error) == NEAP_OK && run(&own, &got, &error) == NEAP_OK;
    _exit(good && memcmp(&got, &want, sizeof want) == 0 ? 0 : 1);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  CHECK_OK(run(&r, &got, &error));
  CHECK(memcmp(&got, &want, sizeof want) == 0);
  close_runner(&r);
}

/* Runs a net whose one large kernel takes minutes; says so first. */
static void run_long(const char *text, const char *engine, int said) {
  neap_error error = {0};
  neap_net *net = NULL;
  neap_workspace *ws = NULL;
  neap_session *session = NULL;
  signal(SIGALRM, SIG_DFL);
  bool good = neap_net_read(text, &net, &error) == NEAP_OK &&
              neap_workspace_open(1, &ws, &error) == NEAP_OK &&
              neap_session_open(ws, net, &(neap_options){.engine = engine, .threads = 2}, &session,
                                &error) == NEAP_OK;
  if (!good || write(said, "x", 1) != 1) _exit(3);
  neap_session_run(session, &error);
  _exit(4);
}

static void check_term_ends(const char *text, const char *engine) {
  int said[2];
  char letter = 0;
  CHECK_EQ(pipe(said), 0);
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) run_long(text, engine, said[1]);
  close(said[1]);
  CHECK_EQ(read(said[0], &letter, 1), 1);
  close(said[0]);
  usleep(300000);
  kill(child, SIGTERM);

  /* One that does not hear it is ended by force: a kernel of minutes must not outlive the test. */
  int status = 0;
  for (int i = 0; i < 200 && waitpid(child, &status, WNOHANG) == 0; i++) usleep(100000);
  if (kill(child, SIGKILL) == 0 && !WIFSIGNALED(status)) waitpid(child, &status, 0);
  CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
}

TEST(kill_ends_a_process_in_the_middle_of_a_kernel) {
  static const char product[] =
    "net p\nparam a f32 (6000,6000) = Constant { value = 1 }\ny = MatMul(a, a)\nl = "
    "Sum(y)\noutputs l\n";
  static const char conv[] =
    "net c\nparam x f32 (16,64,128,128) = Constant { value = 1 }\nparam w f32 (64,64,31,31) = "
    "Constant { value = 1 }\n"
    "y = Conv(x, w) { pad = {15} }\nl = Sum(y)\nw_grad = Gradient(l, w)\noutputs l, w_grad\n";
  check_term_ends(product, "ref");
  check_term_ends(conv, NULL);
  check_term_ends(conv, "blas");
}

int main(int argc, char **argv) {
  alarm(GIVE_UP_S);
  return RUN(argc, argv, T(sessions_run_inside_a_parallel_region_whoever_made_them),
             T(sessions_at_the_same_time_give_the_bits_of_one_alone),
             T(a_child_of_fork_runs_what_its_parent_made),
             T(kill_ends_a_process_in_the_middle_of_a_kernel));
}
