/* fuzz_steps.c: what a program does with a workspace, in any order: sessions of several nets,
 * micro-batches and accumulation, a chain, inputs of wrong shapes, labels out of range, blobs that
 * are removed or renamed, files, exported nets, ranges, children, step trees, interrupts and
 * refused allocations. Every call ends with OK or with words, and a step that fails leaves
 * parameters, state and the step counter as they were. */
#include "neap.h"

#include "driver/driver.h"
#include "fuzz.h"

#include <math.h>
#include <unistd.h>

enum { ROWS = 4, N_WATCHED = 6, MOST_VALUES = 16, N_KIND = 32 };

static const char *const nets[] = {
  "net train\ninput x f32 (4,3)\ninput y i64 (4)\nparam w f32 (3,3) = Xavier\nparam b f32 (3) = "
  "Constant\nparam v f32 (3,3) = "
  "Constant\n"
  "state m f32 (3) = Constant\nstate s f32 (3) = Constant { value = 1 }\nparam lr f32 () frozen = "
  "Constant { value = 0.1 }\n"
  "param g f32 (3) = Constant { value = 1 }\nn, mean, var = BatchNorm(x, g, b) { training = true "
  "}\nm = RunningAverage(m, "
  "mean)\ns = RunningAverage(s, var)\nh = FC(n, w, b)\n"
  "loss = SoftmaxCrossEntropy(h, y)\nwg, bg = Gradient(loss, w, b)\nw, v = Sgd(w, wg, lr, v) { "
  "momentum = 0.9 }\nb = Sgd(b, bg, "
  "lr)\noutputs loss\n",
  "net test\ninput x f32 (4,3)\nparam w f32 (3,3) = Xavier\nparam b f32 (3) = Constant\nstate m "
  "f32 (3) = Constant\nstate s f32 "
  "(3) = Constant { value = 1 }\n"
  "h = FC(x, w, b)\nd = Add(h, m)\np = Softmax(d)\noutputs p\n",
  "net count\ninput x f32 (4,3)\nstate m f32 (3) = Constant\nk = Sum(x) { axes = {0} }\nm = Add(m, "
  "k)\nf = "
  "CheckFinite(k)\noutputs f\n",
};
static const char *const layers[] = {
  "net one\ninput x f32 (4,3)\nparam w f32 (3,3) = Xavier\nh = FC(x, w)\ny = Tanh(h)\noutputs y\n",
  "net two\ninput x f32 (4,3)\nparam u f32 (2,3) = Xavier\ny = FC(x, u)\n"};
/* The same for batches of two rows. */
static const char *const fewer[] = {
  "net one\ninput x f32 (2,3)\nparam w f32 (3,3) = Xavier\nh = FC(x, w)\ny = Tanh(h)\noutputs y\n",
  "net two\ninput x f32 (2,3)\nparam u f32 (2,3) = Xavier\ny = FC(x, u)\n"};
static const char *const watched[N_WATCHED] = {"w", "b", "v", "m", "s", "u"};

typedef struct scene {
  neap_workspace *ws;
  neap_net *net[NEAP_COUNT(nets)], *layer[NEAP_COUNT(layers)];
  neap_session *session[2];
  neap_micro *micro;
  neap_chain *chain;
  neap_range *range;
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
    if (neap_workspace_shape(s->ws, watched[i], &dtype, &n_dim, dim, &error) != NEAP_OK ||
        dtype != NEAP_DTYPE_F32)
      continue;
    for (int d = 0; d < n_dim; d++) n *= dim[d];
    if (n <= MOST_VALUES &&
        neap_workspace_read(s->ws, watched[i], NEAP_DTYPE_F32, n, out.value[i], &error) == NEAP_OK)
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
  for (int i = 0; i < 27; i++)
    value[i] = how == 255 && i == 4 ? NAN : (float)((i * 7 + how) % 11) / 8 - 0.5f;
  neap_workspace_write(s->ws, "x", NEAP_DTYPE_F32, 2, (int64_t[]){rows, columns}, value, error);
}

static void write_y(scene *s, fuzz_bytes *b, neap_error *error) {
  int rows = fuzz_below(b, 9), how = fuzz_byte(b);
  int64_t label[9];
  for (int i = 0; i < 9; i++)
    label[i] = how == 254             ? 3
               : how == 253           ? -100
               : how >= 240 && i == 2 ? 7
               : how >= 220 && i > 2  ? -100
                                      : (i + how) % 3;
  neap_workspace_write(s->ws, "y", NEAP_DTYPE_I64, 1, (int64_t[]){rows}, label, error);
}

static neap_options options_of(fuzz_bytes *b) {
  static const char *const policy[] = {NULL, "name", "none", NULL}, *const accumulate[] = {
                                                                      NULL, "mean", "sum"};
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

/* A new empty file, in memory where that can be. */
static void new_path(char path[60]) {
  snprintf(path, 60, "%s/neap-fuzz-XXXXXX.safetensors",
           access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
  int descriptor = mkstemps(path, 12);
  if (descriptor < 0) abort();
  close(descriptor);
}

static neap_status with_file(scene *s, int how, neap_error *error) {
  char path[60];
  new_path(path);
  neap_status status = neap_workspace_save(s->ws, path, 0, NULL, error);
  if (status == NEAP_OK && how % 4 == 1)
    status = neap_workspace_load(s->ws, path, NEAP_IO_COPY, NULL, error);
  if (status == NEAP_OK && how % 4 == 2)
    status = neap_workspace_load(s->ws, path, how % 8 == 2 ? NEAP_IO_MAP_WRITE : NEAP_IO_MAP_READ,
                                 NULL, error);
  unlink(path);
  return status;
}

/* One byte of the file is another. */
static void damage(const char *path, fuzz_bytes *b) {
  FILE *file = fopen(path, "r+b");
  if (file == NULL) return;
  fseek(file, fuzz_byte(b) * 256 + fuzz_byte(b), SEEK_SET);
  fputc(fuzz_byte(b), file);
  fclose(file);
}

/* Both nets as text are equal. */
static void same_net(const neap_net *a, const neap_net *b) {
  neap_error error = {0};
  char *x = NULL, *y = NULL;
  PROMISE(neap_net_text(a, &x, &error) == NEAP_OK && neap_net_text(b, &y, &error) == NEAP_OK);
  PROMISE(strcmp(x, y) == 0);
  neap_free(x);
  neap_free(y);
}

/* A net with what it has learnt to a file, and back into a workspace of its own, or into this one;
 * an export that was damaged too. */
static neap_status with_export(scene *s, int how, fuzz_bytes *b, neap_error *error) {
  static const neap_io_map maps[] = {NEAP_IO_COPY, NEAP_IO_MAP_READ, NEAP_IO_MAP_WRITE};
  char path[60];
  neap_workspace *other = NULL;
  neap_net *net = NULL, *from = s->net[how % NEAP_COUNT(nets)];
  new_path(path);
  neap_status status = neap_workspace_export(s->ws, from, path, error);
  bool damaged = how >= 128;
  if (status == NEAP_OK && damaged) damage(path, b);
  if (status == NEAP_OK && how % 8 < 6) status = neap_workspace_open(1, &other, error);
  if (status == NEAP_OK)
    status =
      neap_workspace_import(other != NULL ? other : s->ws, path, maps[how / 8 % 3], &net, error);
  if (status == NEAP_OK && !damaged) same_net(from, net);
  if (status == NEAP_OK && other != NULL) {
    const float x[12] = {1, 2, 3};
    const int64_t y[4] = {0, 1, 2, 0};
    neap_error ignored = {0};
    neap_workspace_write(other, "x", NEAP_DTYPE_F32, 2, (int64_t[]){4, 3}, x, &ignored);
    neap_workspace_write(other, "y", NEAP_DTYPE_I64, 1, (int64_t[]){4}, y, &ignored);
    status = neap_workspace_run_once(other, net, NULL, NULL, error);
  }
  neap_net_free(net);
  neap_workspace_release(other);
  unlink(path);
  return status;
}

/* Every byte that the chain shows can be read. */
static neap_status read_entries(const scene *s, int which, neap_error *error) {
  (void)error;
  unsigned sum = 0;
  for (int list = 0; s->chain != NULL && list < 4; list++)
    for (int i = 0; i < neap_chain_n(s->chain, (neap_list)list); i++) {
      neap_entry e;
      if (neap_chain_entry(s->chain, (neap_list)list, i, &e, NULL) != NEAP_OK) continue;
      const uint8_t *data = which % 2 == 0 ? e.data.data : e.diff.data;
      int64_t n = which % 2 == 0 ? e.data.bytes : e.diff.bytes;
      for (int64_t k = 0; data != NULL && k < n; k++) sum += data[k];
    }
  PROMISE(sum < 1u << 30);
  return NEAP_OK;
}

static neap_status add_batch(scene *s, int rows, neap_error *error) {
  neap_net *net[NEAP_COUNT(fewer)] = {0};
  neap_status status = s->chain != NULL ? NEAP_OK : NEAP_ARGUMENT;
  if (status != NEAP_OK) return NEAP_OK;
  for (int i = 0; i < NEAP_COUNT(fewer) && status == NEAP_OK; i++)
    status = neap_net_read(fewer[i], &net[i], error);
  if (status == NEAP_OK)
    status = neap_chain_add_batch(s->chain, rows, (const neap_net *const *)net, error);
  for (int i = 0; i < NEAP_COUNT(fewer); i++) neap_net_free(net[i]);
  return status;
}

/* The halves of a training net, each forecast. */
static neap_status split(const scene *s, fuzz_bytes *b, neap_error *error) {
  neap_net *half[2] = {NULL, NULL};
  neap_figures figures;
  neap_options o = options_of(b);
  o.accumulate = NULL;
  neap_status status = neap_net_split_micro(s->net[0], &half[0], &half[1], error);
  for (int i = 0; i < 2 && status == NEAP_OK; i++)
    status = neap_net_forecast(half[i], &o, &figures, NULL, error);
  neap_net_free(half[0]);
  neap_net_free(half[1]);
  return status;
}

/* One run of a batch of the range, which is opened where there is none. */
static neap_status with_range(scene *s, int rows, neap_error *error) {
  neap_session *session = NULL;
  neap_status status =
    s->range != NULL ? NEAP_OK : neap_range_open(s->net[1], ROWS, NULL, &s->range, error);
  if (status == NEAP_OK)
    status = neap_range_session(s->range, s->ws, s->net[1], rows, NULL, &session, error);
  if (status == NEAP_OK) status = neap_session_run(session, error);
  neap_session_free(session);
  return status;
}

static neap_status in_child(const scene *s, int which, neap_error *error) {
  neap_workspace *child = NULL;
  neap_status status = neap_workspace_open_child(
    s->ws, which % 2 * 2, (const char *const[]){"x", "w"}, NULL, &child, error);
  if (status == NEAP_OK)
    status =
      neap_workspace_run_once(child, s->net[which / 2 % NEAP_COUNT(nets)], NULL, NULL, error);
  neap_workspace_release(child);
  return status;
}

/* A tree of two nets, side by side or one after the other. */
static neap_status run_tree(const scene *s, int which, neap_error *error) {
  const neap_net *const first[] = {s->net[which % NEAP_COUNT(nets)]},
                        *const second[] = {s->net[which / 4 % NEAP_COUNT(nets)]};
  const neap_step step[] = {{.n_net = 1,
                             .net = (const char *const[]){"first"},
                             .given = first,
                             .iterations = which % 3,
                             .create_workspace = which >= 128},
                            {.n_net = 1,
                             .net = (const char *const[]){"second"},
                             .given = second,
                             .create_workspace = which >= 64}};
  return neap_workspace_run_steps(
    s->ws, &(neap_step){.n_step = 2, .step = step, .concurrent = which % 2 == 1}, NULL, NULL,
    error);
}

static neap_status assign(const scene *s, int which, neap_error *error) {
  const char *name = which < 128 ? "x" : watched[which % N_WATCHED];
  const neap_bank bank = {which % 3 > 0 ? "fast" : "main", 64 << which % 8, NEAP_BANK_ORDINARY};
  return neap_workspace_assign(s->ws, 1, &name, &bank, which % 2 == 0, error);
}

static neap_status tell(const scene *s, int which, neap_error *error) {
  char *text = NULL;
  neap_session *session = s->session[which % 2];
  neap_status status = which % 4 == 0 || session == NULL ? neap_workspace_table(s->ws, &text, error)
                       : which % 4 == 1 ? neap_session_explain(session, NULL, &text, error)
                       : which % 4 == 2 ? neap_session_svg(session, &text, error)
                                        : neap_session_dot(session, &text, error);
  neap_free(text);
  return status;
}

static neap_status run_op(const scene *s, int which, neap_error *error) {
  static const char *const line[] = {"x = Relu(x)",
                                     "z = Mul(x, x)",
                                     "x, k = Dropout(x) { rate = 0.3, training = true }",
                                     "w = Tanh(w)",
                                     "p, q = Split(x) { axis = 1, sizes = {1,2} }",
                                     "z = Add(x, b)"};
  return neap_workspace_run_op(s->ws, line[which % NEAP_COUNT(line)], error);
}

/* What a program seldom does. */
static neap_status act_seldom(scene *s, int kind, int which, fuzz_bytes *b, neap_error *error) {
  static float mine[2] = {3, 4};
  neap_entry entry;
  switch (kind) {
    case 16: return with_export(s, which, b, error);
    case 17:
      return s->micro != NULL
               ? neap_micro_run(s->micro, which % 4, (double[]){which % 3, 0.5, 0}, error)
               : NEAP_OK;
    case 18: return add_batch(s, which % 7, error);
    case 19:
      return s->chain != NULL
               ? neap_chain_pop(s->chain, which % 2, which < 200 ? NULL : "h", &entry, error)
               : NEAP_OK;
    case 20:
      if (s->chain == NULL) return NEAP_OK;
      return neap_chain_attach_param(s->chain, which % 2 ? "mine" : "w", NEAP_DTYPE_F32, 1,
                                     (int64_t[]){2}, mine, error);
    case 21: return read_entries(s, which, error);
    case 22: return split(s, b, error);
    case 23: return with_range(s, which % (ROWS + 2), error);
    case 24: return in_child(s, which, error);
    case 25: return run_tree(s, which, error);
    case 26:
      neap_workspace_drop_gradients(s->ws);
      if (s->session[which % 2] != NULL) neap_session_trim(s->session[which % 2]);
      return NEAP_OK;
    case 27: return run_op(s, which, error);
    case 28: return assign(s, which, error);
    case 29: return tell(s, which, error);
    case 30:
      if (s->chain != NULL) neap_chain_clear(s->chain);
      return NEAP_OK;
    default: return neap_workspace_touch(s->ws, watched[which % N_WATCHED], error);
  }
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
    case 7:
      *is_step = true;
      return s->micro != NULL ? neap_micro_run(s->micro, 0, NULL, error) : NEAP_OK;
    case 8:
      *is_step = true;
      return s->micro != NULL ? neap_micro_add(s->micro, 0, NULL, which % 5, error) : NEAP_OK;
    case 9: return s->micro != NULL ? neap_micro_update(s->micro, error) : NEAP_OK;
    case 10:
      neap_chain_free(s->chain);
      s->chain = NULL;
      return neap_chain_open(s->ws, NEAP_COUNT(layers), (const neap_net *const *)s->layer,
                             which % 7, NULL, &s->chain, error);
    case 11:
      *is_step = true;
      return s->chain != NULL ? neap_chain_forward(s->chain, which % 3 > 0, error) : NEAP_OK;
    case 12: {
      static const float dy[8] = {1, -1, 0.5f, 2, 1, 0, 0, 1};
      if (s->chain == NULL) return NEAP_OK;
      if (which % 4 > 0)
        neap_workspace_write(s->ws, "two/output_grad", NEAP_DTYPE_F32, 2,
                             (int64_t[]){1 + which % 4, 2}, dy, error);
      *error = (neap_error){0};
      return neap_chain_backward(s->chain, error);
    }
    case 13:
      return s->chain != NULL
               ? neap_chain_drop(s->chain, (neap_list)(which % 4), which / 4 % 4, error)
               : NEAP_OK;
    case 14: {
      const char *name = which < 8 ? "x" : which < 16 ? "y" : watched[which % N_WATCHED];
      if (which % 2 == 0) return neap_workspace_remove(s->ws, name), NEAP_OK;
      return neap_workspace_rename(s->ws, name, "else", error);
    }
    case 15: return with_file(s, which, error);
    default: *is_step = kind == 17 || kind == 23; return act_seldom(s, kind, which, b, error);
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
  for (int i = 0; i < NEAP_COUNT(layers); i++)
    PROMISE(neap_net_read(layers[i], &s->layer[i], &error) == NEAP_OK);
}

static void close_scene(scene *s) {
  neap_chain_free(s->chain);
  neap_range_free(s->range);
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
    /* one allocation is refused, or none comes so far */
    if (kind / N_KIND == 6) neap_memory_fail_nth(1 + fuzz_byte(&b), false);
    if (kind / N_KIND == 7) neap_interrupt(true);
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
  {0, 0, 4, 0, 1, 1, 0, 4, 0, 2, 0, 0, 0, 3, 0, 3, 0}, /* train */
  /* micro-batches, one held, an update */
  {0, 0, 6, 0, 1, 1, 0, 6, 0, 5, 2, 0, 1, 6, 0, 8, 0, 9, 0},
  {0, 0, 3, 0, 1, 10, 4, 11, 1, 12, 2, 13, 5, 11, 2}, /* a chain */
  /* an export, a range, a child, a tree, an op */
  {0, 0, 4, 0, 1, 2, 2, 0, 0, 16, 1, 23, 4, 24, 2, 25, 2, 27, 1},
  /* a chain by hand */
  {0, 0, 2, 0, 1, 10, 4, 18, 2, 11, 1, 12, 1, 21, 1, 11, 1, 19, 0, 20, 1, 30, 0},
  /* weights, halves, banks, a report */
  {0, 0, 4, 0, 1, 1, 0, 4, 0, 5, 2, 0, 1, 17, 2, 8, 0, 22, 0, 0, 28, 1, 29, 0},
  {0, 0, 4, 0, 255, 2, 4, 0, 0, 3, 0, 15, 1, 14, 3, 15, 1}, /* a NaN, files */
};

bool fuzz_seed(int k, neap_buffer *out) {
  if (k >= NEAP_COUNT(steps)) return false;
  neap_buffer_add_n(out, (const char *)steps[k], sizeof steps[k]);
  return true;
}
