/* fuzz_steps.c: what a program does with a workspace, in any order: sessions of several nets, micro-batches and accumulation, a chain,
 * inputs of wrong shapes, labels out of range, blobs that are removed or renamed, files, interrupts and refused allocations. Every call
 * ends with OK or with words, and a step that fails leaves parameters, state and the step counter as they were. */
#include "neap.h"

#include "driver/driver.h"
#include "fuzz.h"

#include <math.h>
#include <unistd.h>

enum { ROWS = 4, N_WATCHED = 6, MOST_VALUES = 16, N_KIND = 16 };

static const char *const nets[] = {
  "net train\ninput x f32 (4,3)\ninput y i64 (4)\nparam w f32 (3,3) = Xavier\nparam b f32 (3) = Constant\nparam v f32 (3,3) = "
  "Constant\n"
  "state m f32 (3) = Constant\nstate s f32 (3) = Constant { value = 1 }\nparam lr f32 () frozen = Constant { value = 0.1 }\n"
  "param g f32 (3) = Constant { value = 1 }\nn, mean, var = BatchNorm(x, g, b) { training = true }\nm = RunningAverage(m, "
  "mean)\ns = RunningAverage(s, var)\nh = FC(n, w, b)\n"
  "loss = SoftmaxCrossEntropy(h, y)\nwg, bg = Gradient(loss, w, b)\nw, v = Sgd(w, wg, lr, v) { momentum = 0.9 }\nb = Sgd(b, bg, "
  "lr)\noutputs loss\n",
  "net test\ninput x f32 (4,3)\nparam w f32 (3,3) = Xavier\nparam b f32 (3) = Constant\nstate m f32 (3) = Constant\nstate s f32 "
  "(3) = Constant { value = 1 }\n"
  "h = FC(x, w, b)\nd = Add(h, m)\np = Softmax(d)\noutputs p\n",
  "net count\ninput x f32 (4,3)\nstate m f32 (3) = Constant\nk = Sum(x) { axes = {0} }\nm = Add(m, k)\nf = "
  "CheckFinite(k)\noutputs f\n",
};
static const char *const layers[] = {
  "net one\ninput x f32 (4,3)\nparam w f32 (3,3) = Xavier\nh = FC(x, w)\ny = Tanh(h)\noutputs y\n",
  "net two\ninput x f32 (4,3)\nparam u f32 (2,3) = Xavier\ny = FC(x, u)\n"};
static const char *const watched[N_WATCHED] = {"w", "b", "v", "m", "s", "u"};

typedef struct scene {
  neap_workspace *ws;
  neap_net *net[NEAP_COUNT(nets)], *layer[NEAP_COUNT(layers)];
  neap_session *session[2];
  neap_micro *micro;
  neap_chain *chain;
} scene;

/* What parameters and state hold; 0 values where there is no such blob of that size. */
typedef struct snapshot {
  int n[N_WATCHED];
  float value[N_WATCHED][MOST_VALUES];
} snapshot;

static snapshot look(const scene *s) {
  snapshot out = {0};
  for (int i = 0; i < N_WATCHED; i++) {
    neap_dtype dtype;
    int n_dim;
    int64_t dim[NEAP_MAX_DIM], n = 1;
    neap_error error = {0};
    if (neap_workspace_shape(s->ws, watched[i], &dtype, &n_dim, dim, &error) != NEAP_OK || dtype != NEAP_DTYPE_F32) continue;
    for (int d = 0; d < n_dim; d++) n *= dim[d];
    if (n <= MOST_VALUES && neap_workspace_read(s->ws, watched[i], NEAP_DTYPE_F32, n, out.value[i], &error) == NEAP_OK)
      out.n[i] = (int)n;
  }
  return out;
}

/* Blobs made by the call aside, nothing has moved. */
static void same(const snapshot *before, const snapshot *after) {
  for (int i = 0; i < N_WATCHED; i++) {
    if (before->n[i] == 0) continue;
    PROMISE(before->n[i] == after->n[i]);
    PROMISE(memcmp(before->value[i], after->value[i], sizeof before->value[i]) == 0);
  }
}

static void write_x(scene *s, fuzz_bytes *b, neap_error *error) {
  int rows = fuzz_below(b, 9), columns = fuzz_byte(b) < 240 ? 3 : 2, how = fuzz_byte(b);
  float value[9 * 3];
  for (int i = 0; i < 27; i++) value[i] = how == 255 && i == 4 ? NAN : (float)((i * 7 + how) % 11) / 8 - 0.5f;
  neap_workspace_write(s->ws, "x", NEAP_DTYPE_F32, 2, (int64_t[]){rows, columns}, value, error);
}

static void write_y(scene *s, fuzz_bytes *b, neap_error *error) {
  int rows = fuzz_below(b, 9), how = fuzz_byte(b);
  int64_t label[9];
  for (int i = 0; i < 9; i++)
    label[i] = how == 254 ? 3 : how == 253 ? -100 : how >= 240 && i == 2 ? 7 : how >= 220 && i > 2 ? -100 : (i + how) % 3;
  neap_workspace_write(s->ws, "y", NEAP_DTYPE_I64, 1, (int64_t[]){rows}, label, error);
}

static neap_options options_of(fuzz_bytes *b) {
  static const char *const policy[] = {NULL, "name", "none", NULL}, *const accumulate[] = {NULL, "mean", "sum"};
  int byte = fuzz_byte(b), more = fuzz_byte(b);
  return (neap_options){.policy = policy[byte % 4],
                        .executor = (byte & 8) != 0                     ? "dag"
                                    : byte % 4 == 3 && (byte & 32) != 0 ? "dynamic"
                                                                        : NULL,
                        .fuse = (byte & 16) != 0 ? "false" : NULL,
                        .accumulate = accumulate[more % 3],
                        .budget = more >= 200 ? (more - 199) * 64 : 0,
                        .total = more == 199 ? 4096 : 0,
                        .threads = 1};
}

static neap_status with_file(scene *s, int how, neap_error *error) {
  char path[60];
  snprintf(path, sizeof path, "%s/neap-fuzz-XXXXXX.safetensors",
           access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp"); /* waits for no disk */
  int descriptor = mkstemps(path, 12);
  if (descriptor < 0) abort();
  close(descriptor);
  neap_status status = neap_workspace_save_file(s->ws, path, error);
  if (status == NEAP_OK && how % 2 == 1) status = neap_workspace_load_file(s->ws, path, error);
  unlink(path);
  return status;
}

/* One thing that a program does. *is_step: a run that must happen whole or not at all. */
static neap_status act(scene *s, int kind, fuzz_bytes *b, bool *is_step, neap_error *error) {
  int which = fuzz_byte(b);
  neap_session **session = &s->session[which % 2];
  neap_options o;
  switch (kind) {
    case 0: write_x(s, b, error); return error->code;
    case 1: write_y(s, b, error); return error->code;
    case 2:
      o = options_of(b);
      o.accumulate = NULL;
      neap_session_free(*session);
      *session = NULL;
      return neap_session_open(s->ws, s->net[which / 2 % NEAP_COUNT(nets)], &o, session, error);
    case 3:
    case 4: *is_step = true; return *session != NULL ? neap_session_run(*session, error) : NEAP_OK;
    case 5:
      o = options_of(b);
      neap_micro_free(s->micro);
      s->micro = NULL;
      return neap_micro_open(s->ws, s->net[0], which % (ROWS + 1), &o, &s->micro, error);
    case 6:
    case 7: *is_step = true; return s->micro != NULL ? neap_micro_run(s->micro, 0, NULL, error) : NEAP_OK;
    case 8: *is_step = true; return s->micro != NULL ? neap_micro_add(s->micro, 0, NULL, which % 5, error) : NEAP_OK;
    case 9: return s->micro != NULL ? neap_micro_update(s->micro, error) : NEAP_OK;
    case 10:
      neap_chain_free(s->chain);
      s->chain = NULL;
      return neap_chain_open(s->ws, NEAP_COUNT(layers), (const neap_net *const *)s->layer, which % 7, NULL, &s->chain, error);
    case 11: return s->chain != NULL ? neap_chain_forward(s->chain, which % 3 > 0, error) : NEAP_OK;
    case 12: {
      static const float dy[8] = {1, -1, 0.5f, 2, 1, 0, 0, 1};
      if (s->chain == NULL) return NEAP_OK;
      if (which % 4 > 0)
        neap_workspace_write(s->ws, "two/output_grad", NEAP_DTYPE_F32, 2, (int64_t[]){1 + which % 4, 2}, dy, error);
      *error = (neap_error){0};
      return neap_chain_backward(s->chain, error);
    }
    case 13: return s->chain != NULL ? neap_chain_drop(s->chain, (neap_list)(which % 4), which / 4 % 4, error) : NEAP_OK;
    case 14: {
      const char *name = which < 8 ? "x" : which < 16 ? "y" : watched[which % N_WATCHED];
      if (which % 2 == 0) return neap_workspace_remove(s->ws, name), NEAP_OK;
      return neap_workspace_rename(s->ws, name, "else", error);
    }
    default: return with_file(s, which, error);
  }
}

static void open_scene(scene *s) {
  neap_error error = {0};
  PROMISE(neap_workspace_open(7, &s->ws, &error) == NEAP_OK);
  for (int i = 0; i < NEAP_COUNT(nets); i++) {
    neap_status status = neap_net_read(nets[i], &s->net[i], &error);
    if (status != NEAP_OK) fprintf(stderr, "%s\n", error.message);
    PROMISE(status == NEAP_OK);
  }
  for (int i = 0; i < NEAP_COUNT(layers); i++) PROMISE(neap_net_read(layers[i], &s->layer[i], &error) == NEAP_OK);
}

static void close_scene(scene *s) {
  neap_chain_free(s->chain);
  neap_micro_free(s->micro);
  for (int i = 0; i < 2; i++) neap_session_free(s->session[i]);
  for (int i = 0; i < NEAP_COUNT(nets); i++) neap_net_free(s->net[i]);
  for (int i = 0; i < NEAP_COUNT(layers); i++) neap_net_free(s->layer[i]);
  neap_workspace_release(s->ws);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  fuzz_bytes b = {data, NEAP_MIN(n, 400), 0};
  scene s = {0};
  open_scene(&s);
  while (b.at < b.n) {
    int kind = fuzz_byte(&b);
    bool is_step = false;
    neap_error error = {0};
    snapshot before = look(&s);
    if (kind / N_KIND == 14) neap_memory_fail_nth(1 + fuzz_byte(&b), false); /* one allocation is refused, or none comes so far */
    if (kind / N_KIND == 15) neap_interrupt(true);
    neap_status status = act(&s, kind % N_KIND, &b, &is_step, &error);
    neap_memory_fail_nth(0, false);
    neap_interrupt(false);
    PROMISE_SAID(status, error);
    snapshot after = look(&s);
    if (is_step && status != NEAP_OK) same(&before, &after);
  }
  close_scene(&s);
  return 0;
}

static const uint8_t steps[][24] = {
  {0, 0, 4, 0, 1, 1, 0, 4, 0, 2, 0, 0, 0, 3, 0, 3, 0},       /* train */
  {0, 0, 6, 0, 1, 1, 0, 6, 0, 5, 2, 0, 1, 6, 0, 8, 0, 9, 0}, /* micro-batches, one held, an update */
  {0, 0, 3, 0, 1, 10, 4, 11, 1, 12, 3, 13, 5, 11, 2},        /* a chain */
  {0, 0, 4, 0, 255, 2, 4, 0, 0, 3, 0, 15, 1, 14, 3, 15, 1},  /* a NaN, files */
};

bool fuzz_seed(int k, neap_buffer *out) {
  if (k >= NEAP_COUNT(steps)) return false;
  neap_buffer_add_n(out, (const char *)steps[k], sizeof steps[k]);
  return true;
}
