/* test_call.c: in a checked build a kernel is not run on what it does not rely on (ops/call.c). */
#include "check.h"
#include "ops/op.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* y = Relu(x) of four numbers by the plain kernel, as it should be called. */
typedef struct fixture {
  _Alignas(64) float bytes[16];
  neap_layout layout[2];
  neap_operand x, y;
  neap_choice choice;
  neap_attr_value attrs[NEAP_OP_MAX_ATTR];
  const neap_kernel *kernel;
  neap_call call;
} fixture;

static void make(fixture *f) {
  memset(f, 0, sizeof *f);
  const neap_type type = {NEAP_DTYPE_F32, NEAP_SHAPE(4)};
  const neap_op *op = neap_op_find("Relu");
  for (int i = 0; i < 4; i++) f->bytes[i] = (float)(i - 2);
  f->x = (neap_operand){.data = f->bytes, .type = type};
  f->y = (neap_operand){.data = f->bytes + 8, .type = type};
  f->kernel = neap_kernel_find(op, NEAP_ENGINE_REF, 1, &type, 1, &type);
  f->choice = (neap_choice){
    .engine = NEAP_ENGINE_REF, .n_thread = 1, .in = &f->layout[0], .out = &f->layout[1]};
  f->call = (neap_call){.op = op,
                        .attrs = f->attrs,
                        .n_in = 1,
                        .n_out = 1,
                        .in = &f->x,
                        .out = &f->y,
                        .choice = &f->choice,
                        .n_thread = 1};
}

/* Whether the call runs to its end, in a child. */
static bool runs(const fixture *f) {
  int status = -1;
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    close(STDERR_FILENO);
    neap_kernel_run(f->kernel, &f->call);
    _exit(0);
  }
  return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status);
}

TEST(a_call_as_the_record_says_runs) {
  fixture f;
  make(&f);
  neap_kernel_run(f.kernel, &f.call);
  CHECK(f.bytes[8] == 0 && f.bytes[11] == 1);
  f.y.data = f.x.data; /* in place, which the record allows */
  CHECK(runs(&f));
}

TEST(a_wrong_call_is_stopped_in_a_checked_build) {
  if (!NEAP_DEBUG) return;
  fixture f;
  make(&f);
  f.y.data = f.bytes + 1; /* in some of x's bytes */
  CHECK(!runs(&f));
  make(&f);
  f.choice.engine = NEAP_ENGINE_BLAS;
  CHECK(!runs(&f));
  make(&f);
  f.call.n_thread = 2;
  CHECK(!runs(&f));
  make(&f);
  f.layout[1].kind = NEAP_LAYOUT_OPAQUE; /* chosen, and not what y has */
  CHECK(!runs(&f));
  make(&f);
  f.choice.scratch_bytes = 64;
  CHECK(!runs(&f));
  f.call.scratch = f.bytes + 8; /* where y lies */
  CHECK(!runs(&f));
  make(&f);
  f.y.data = (char *)f.y.data + 2;
  CHECK(!runs(&f));
  make(&f);
  f.call.n_out = 2; /* one more than the record has */
  CHECK(!runs(&f));
}

int main(int argc, char **argv) {
  return RUN(argc, argv, T(a_call_as_the_record_says_runs),
             T(a_wrong_call_is_stopped_in_a_checked_build));
}
