/* test_stored.c: a store whose texts somebody has changed, word by word and line by line. Whatever
 * stands there: nothing crashes, the bits are those of a run without a store, no more bytes are
 * held than planned, and what differs is said.
 *
 * Twice: as it is, when the digest tells; and with a digest made right again, when nothing but the
 * kernels, the verifier and the counts can. INVARIANT: what is then taken over without a word
 * changes nothing that is computed or held. `test_stored NAME` runs one test; with STORED_ALL in
 * the environment every word gets every wrong value (minutes). */
#include "mlp.h"
#include "driver/driver_int.h"
#include "store/store_int.h"

#include <stdlib.h>
#include <unistd.h>

/* ---- nets ------------------------------------------------------------------------------------ */

/* LeNet's shape, small; channels that fill no block. */
static const char conv_text[] =
  "net conv\ninput x f32 (4,3,12,12)\ninput label i32 (4)\ninput lr f32 ()\n"
  "param cw1 f32 (20,3,3,3) = Gaussian { std = 0.2 }\nparam cb1 f32 (20) = Constant { value = 0.1 "
  "}\n"
  "param cw2 f32 (13,20,3,3) = Gaussian { std = 0.2 }\nparam fw f32 (5,117) = Gaussian { std = 0.2 "
  "}\n"
  "c1 = Conv(x, cw1, cb1) { kernel = {3,3} }\nr1 = Relu(c1)\np1 = MaxPool(r1) { kernel = {2,2}, "
  "stride = {2,2} }\n"
  "c2 = Conv(p1, cw2) { kernel = {3,3} }\nr2 = Relu(c2)\ny = FC(r2, fw) { axis = 1 }\n"
  "loss = SoftmaxCrossEntropy(y, label)\n"
  "cw1_grad, cb1_grad, cw2_grad, fw_grad = Gradient(loss, cw1, cb1, cw2, fw)\n"
  "cw1 = Sgd(cw1, cw1_grad, lr)\ncb1 = Sgd(cb1, cb1_grad, lr)\ncw2 = Sgd(cw2, cw2_grad, lr)\nfw = "
  "Sgd(fw, fw_grad, lr)\n"
  "outputs loss\n";

/* Inference: packed weights are constants. */
static const char infer_text[] =
  "net infer\ninput x f32 (2,16,10,10)\nparam w1 f32 (32,16,3,3) = Gaussian { std = 0.1 }\n"
  "param w2 f32 (32,32,3,3) = Gaussian { std = 0.1 }\nparam fw f32 (5,1152) = Gaussian { std = 0.1 "
  "}\n"
  "a = Conv(x, w1) { kernel = {3,3} }\nb = Relu(a)\nc = Conv(b, w2) { kernel = {3,3} }\nd = "
  "Relu(c)\n"
  "y = FC(d, fw) { axis = 1 }\ns = Softmax(y)\noutputs s\n";

static const char lstm_text[] =
  "net lstm\ninput x i64 (4,6)\ninput label i64 (24)\ninput lr f32 ()\nparam e f32 (5,8) = "
  "Gaussian { std = 1 }\n"
  "param wi f32 (32,8) = Gaussian { std = 0.3 }\nparam ws f32 (32,8) = Gaussian { std = 0.3 }\n"
  "param b f32 (32) = Constant { value = 0.1 }\nparam fw f32 (5,8) = Gaussian { std = 0.3 }\nstate "
  "m f32 (5,8) = Constant { "
  "value = 0 }\n"
  "t = Permute(x) { axes = {1,0} }\nv = Embedding(t, e)\nh, h2, h3 = LSTM(v, wi, ws, b)\nflat = "
  "Reshape(h) { shape = {24,8} }\n"
  "y = FC(flat, fw)\nloss = SoftmaxCrossEntropy(y, label)\n"
  "e_grad, wi_grad, ws_grad, b_grad, fw_grad = Gradient(loss, e, wi, ws, b, fw)\n"
  "e = Sgd(e, e_grad, lr)\nwi = Sgd(wi, wi_grad, lr)\nws = Sgd(ws, ws_grad, lr)\nb = Sgd(b, "
  "b_grad, lr)\n"
  "fw, m = Sgd(fw, fw_grad, lr, m) { momentum = 0.9 }\noutputs loss\n";

static const char gpt_text[] =
  "net gpt\ninput x i64 (2,8)\ninput label i64 (2,8)\ninput lr f32 ()\nparam e f32 (5,16) = "
  "Gaussian { std = 0.5 }\n"
  "param pos f32 (8,16) = Gaussian { std = 0.5 }\nparam g f32 (16) = Constant { value = 1 }\n"
  "param h f32 (16) = Constant { value = 0 }\nparam wq f32 (48,16) = Gaussian { std = 0.3 }\n"
  "param wo f32 (16,16) = Gaussian { std = 0.3 }\nparam w1 f32 (64,16) = Gaussian { std = 0.3 }\n"
  "param w2 f32 (16,64) = Gaussian { std = 0.3 }\nparam fw f32 (5,16) = Gaussian { std = 0.3 }\n"
  "v = Embedding(x, e)\na = Add(v, pos)\nn1 = LayerNorm(a, g, h)\nqkv = FC(n1, wq) { axis = 2 }\n"
  "q, k, u = Split(qkv) { axis = 2 }\natt = Attention(q, k, u) { heads = 2, causal = true }\no = "
  "FC(att, wo) { axis = 2 }\n"
  "r = Add(a, o)\nn2 = LayerNorm(r, g, h)\nm1 = FC(n2, w1) { axis = 2 }\nm2 = Gelu(m1)\nd = "
  "Dropout(m2) { rate = 0.2 }\n"
  "m3 = FC(d, w2) { axis = 2 }\ns = Add(r, m3)\ny = FC(s, fw) { axis = 2 }\nloss = "
  "SoftmaxCrossEntropy(y, label)\n"
  "e_grad, g_grad, wq_grad, wo_grad, w1_grad, fw_grad = Gradient(loss, e, g, wq, wo, w1, fw)\n"
  "e = Sgd(e, e_grad, lr)\ng = Sgd(g, g_grad, lr)\nwq = Sgd(wq, wq_grad, lr)\nwo = Sgd(wo, "
  "wo_grad, lr)\n"
  "w1 = Sgd(w1, w1_grad, lr)\nfw = Sgd(fw, fw_grad, lr)\noutputs loss\n";

/* A loop with a gradient, and a branch: plans within plans. */
static const char loop_text[] =
  "net loop\ninput x f32 (4,6)\ninput yes bool ()\ninput lr f32 ()\nparam w f32 (6,6) = Gaussian { "
  "std = 0.3 }\n"
  "state half f32 () = Constant { value = 0.5 }\nstate limit f32 () = Constant { value = 1 }\n"
  "state zero f32 () = Constant { value = 0 }\n"
  "subnet cond\n  input i\n  input p\n  more = Lt(i, limit)\n  takes i, p, limit, half, w\n  gives "
  "more\nend\n"
  "subnet body\n  input i\n  input p\n  i2 = Add(i, half)\n  a = FC(p, w)\n  q = Tanh(a)\n  takes "
  "i, p, limit, half, w\n  gives "
  "i2, q\nend\n"
  "i3, h = While(zero, x, limit, half, w) { cond_net = cond, body_net = body, n_state = 2, max = 3 "
  "}\n"
  "subnet one\n  b = Tanh(h)\n  c = Mul(b, b)\n  takes h\n  gives c\nend\n"
  "subnet two\n  b = Relu(h)\n  takes h\n  gives b\nend\n"
  "c = If(yes, h) { then_net = one, else_net = two }\nloss = Sum(c)\nw_grad = Gradient(loss, w)\nw "
  "= Sgd(w, w_grad, lr)\noutputs "
  "loss\n";

/* Convolution in one bank, the rest of the step in another and in main. */
static const char bank_text[] =
  "net banks\ninput x f32 (4,3,12,12)\ninput label i32 (4)\ninput lr f32 ()\n"
  "param cw f32 (20,3,3,3) = Gaussian { std = 0.2 }\nparam fw f32 (5,500) = Gaussian { std = 0.2 "
  "}\n"
  "c = Conv(x, cw) { kernel = {3,3} }\nr = Relu(c)\np = MaxPool(r) { kernel = {2,2}, stride = "
  "{2,2} } on fast\n"
  "t = Tanh(p)\ny = FC(t, fw) { axis = 1 }\nloss = SoftmaxCrossEntropy(y, label)\n"
  "cw_grad, fw_grad = Gradient(loss, cw, fw)\ncw = Sgd(cw, cw_grad, lr)\nfw = Sgd(fw, fw_grad, "
  "lr)\n"
  "outputs loss\nbank fast t, cw\nbank huge fw, r\n";

/* Layers of a chain: one that folds, one that draws, one of products. */
static const char *const chain_text[] = {
  "net one\ninput x f32 (4,3,8,8)\nparam w f32 (20,3,3,3) = Gaussian { std = 0.2 }\nparam g f32 "
  "(20) = Constant { value = 1 }\n"
  "param b f32 (20) = Constant\nstate m f32 (20) = Constant\nh = Conv(x, w) { kernel = {3,3} }\n"
  "n, mean, var = BatchNorm(h, g, b) { training = true }\nm = RunningAverage(m, mean)\nstate v f32 "
  "(20) = Constant\n"
  "v = RunningAverage(v, var)\ny = Relu(n)\noutputs y\n",
  "net two\ninput x f32 (4,20,6,6)\nd = Dropout(x) { rate = 0.5, training = true }\n"
  "y = MaxPool(d) { kernel = {2,2}, stride = {2,2} }\noutputs y\n",
  "net three\ninput x f32 (4,20,3,3)\nparam fw f32 (5,180) = Xavier\nt = Tanh(x)\ny = FC(t, fw) { "
  "axis = 1 }\noutputs y\n"};

/* Deep and narrow: what a budget repeats, or evicts. */
static void deep_text(neap_buffer *out) {
  neap_buffer_add(out, "net deep\ninput h0 f32 (64,16)\ninput lr f32 ()\n");
  for (int i = 0; i < 6; i++)
    neap_buffer_add(out, "param w%d f32 (16,16) = Gaussian { std = 0.3 }\n", i);
  for (int i = 0; i < 6; i++)
    neap_buffer_add(out, "f%d = FC(h%d, w%d)\nh%d = Tanh(f%d)\n", i, i, i, i + 1, i);
  neap_buffer_add(out,
                  "loss = Mean(h6)\nw0_grad, w1_grad, w2_grad, w3_grad, w4_grad, w5_grad = "
                  "Gradient(loss, w0, w1, w2, w3, w4, w5)\n");
  for (int i = 0; i < 6; i++) neap_buffer_add(out, "w%d = Sgd(w%d, w%d_grad, lr)\n", i, i, i);
  neap_buffer_add(out, "outputs loss\n");
}

/* ---- running --------------------------------------------------------------------------------- */

/* Ways to programs. All that a store gives comes by one door (stored.c); here it is tried from
 * every side of the house. */
typedef enum kind {
  SESSION, /* one program of the net */
  RANGE,   /* its batch, and a smaller one in its memory */
  MICRO,   /* its batch in parts, one smaller than the others, and the update */
  CHAIN,   /* its texts are layers, each with two halves and an evaluation */
  MODEL,   /* as SESSION, of a net and parameters that were exported and imported */
} kind;

/* A stored plan. */
typedef struct texts {
  char *choices, *plan, *key, *key_text; /* choices without their digest */
} texts;

enum { N_STEP = 2, MOST_LAYERS = 3, MOST_ROWS = 16 };

typedef struct subject {
  /* layer: of a chain, above the first one, which is `text` */
  const char *text, *layer[MOST_LAYERS];
  kind kind;
  neap_compile_options options;
  int n_net;
  neap_net *net[MOST_LAYERS];
  neap_workspace *base; /* after the steps, without a store */
  neap_store *store;
  char path[64], model[80];
  int n_row, at; /* plans of the store; the one that is changed */
  texts row[MOST_ROWS];
  int n_tampered, n_taken;
} subject;

static neap_status feed_numbers(neap_workspace *ws, const char *name, const neap_type *type,
                                int salt, neap_error *error) {
  neap_tensor t;
  NEAP_TRY(neap_tensor_new(&t, type->dtype, &type->shape, error));
  for (int64_t i = 0; i < neap_tensor_elems(&t); i++) {
    uint32_t word[4];
    neap_philox(7, (uint32_t)salt, 0, (uint64_t)i, word);
    bool whole = type->dtype == NEAP_DTYPE_I32 || type->dtype == NEAP_DTYPE_I64,
         one = type->dtype == NEAP_DTYPE_BOOL;
    bool rate = type->shape.n_dim == 0;
    double value = one     ? 1
                   : rate  ? (whole ? 3 : 0.1)
                   : whole ? (double)(word[0] % 5)
                           : (double)neap_uniform_f32(word[0]) - 0.5;
    neap_element_set(t.dtype, neap_tensor_data(&t), i, value);
  }
  neap_status status = neap_workspace_feed(ws, name, &t, false, error);
  neap_tensor_fini(&t);
  return status;
}

/* Every input: integers below 5, or 1; booleans true; others small numbers. With `rows` > 0 those
 * with the batch have so many. */
static neap_status feed_inputs(neap_workspace *ws, const neap_net *net, int64_t rows,
                               neap_error *error) {
  int64_t batch = -1;
  for (int b = 0; b < neap_net_n_blobs(net); b++) {
    const neap_net_blob *blob = neap_net_blob_at(net, b);
    if (blob->role != NEAP_ROLE_INPUT) continue;
    neap_type type = blob->type;
    if (batch < 0 && type.shape.n_dim > 0) batch = type.shape.dim[0];
    if (rows > 0 && type.shape.n_dim > 0 && type.shape.dim[0] == batch) type.shape.dim[0] = rows;
    NEAP_TRY(feed_numbers(ws, blob->name, &type, b, error));
  }
  return NEAP_OK;
}

/* What is under way, and what it has said. */
typedef struct trial {
  const subject *s;
  neap_compile_options options;
  neap_workspace *ws;
  bool compile_only; /* unless it says nothing: what was taken over has to run */
  bool has_run;
  char warning[256];
} trial;

static void hear(trial *t, const char *warning) {
  if (t->warning[0] == '\0') snprintf(t->warning, sizeof t->warning, "%s", warning);
}

static bool runs(const trial *t) { return !t->compile_only || t->warning[0] == '\0'; }

static neap_status run_session(trial *t, neap_session *session, neap_error *error) {
  for (int i = 0; i < N_STEP; i++) NEAP_TRY(neap_session_run(session, error));
  neap_session_stats stats = neap_session_stats_read(session);
  CHECK(stats.held_bytes == stats.planned_bytes && stats.n_alloc_last == 0);
  t->has_run = true;
  return NEAP_OK;
}

static neap_status try_session(trial *t, const neap_net *net, neap_error *error) {
  neap_session *session = NULL;
  neap_status status = neap_workspace_init(t->ws, net, error);
  if (status == NEAP_OK) status = feed_inputs(t->ws, net, 0, error);
  if (status == NEAP_OK) status = neap_driver_compile(t->ws, net, &t->options, &session, error);
  if (status == NEAP_OK) hear(t, neap_session_warning(session));
  if (status == NEAP_OK && runs(t)) status = run_session(t, session, error);
  neap_session_free(session);
  return status;
}

/* A batch of the range, of `rows` rows. */
static neap_status try_batch(trial *t, const neap_range *range, int64_t rows, neap_error *error) {
  const neap_net *net = t->s->net[0];
  neap_compile_options options = t->options;
  neap_session *session = NULL;
  neap_arena room = {0};
  neap_status status = neap_batch_inputs(net, rows, &options.graph, &room, error);
  if (status == NEAP_OK) status = neap_range_compile(range, t->ws, net, &options, &session, error);
  if (status == NEAP_OK) status = feed_inputs(t->ws, net, rows, error);
  for (int i = 0; i < N_STEP && status == NEAP_OK; i++) status = neap_session_run(session, error);
  neap_session_free(session);
  neap_arena_fini(&room);
  return status;
}

static neap_status try_range(trial *t, neap_error *error) {
  neap_range *range = NULL;
  neap_status status = neap_range_new(t->s->net[0], &t->options, &range, error);
  if (status == NEAP_OK) hear(t, neap_range_warning(range));
  for (int64_t rows = 4; rows >= 3 && status == NEAP_OK && runs(t); rows--)
    status = try_batch(t, range, rows, error);
  t->has_run = status == NEAP_OK && runs(t);
  neap_range_free(range);
  return status;
}

static neap_status try_micro(trial *t, neap_error *error) {
  neap_micro *micro = NULL;
  const neap_micro_batch batch = {.count = -1}, held = {.count = -1, .hold = true};
  neap_status status = neap_workspace_init(t->ws, t->s->net[0], error);
  if (status == NEAP_OK) status = feed_inputs(t->ws, t->s->net[0], 0, error);
  if (status == NEAP_OK)
    status = neap_micro_new(t->ws, t->s->net[0], 3, &t->options, &micro, error);
  if (status == NEAP_OK) hear(t, neap_micro_warning(micro));
  t->has_run = status == NEAP_OK && runs(t);
  for (int i = 0; i < N_STEP && status == NEAP_OK && t->has_run; i++) {
    status = neap_micro_take(micro, &held, error);
    if (status == NEAP_OK) status = neap_micro_take(micro, &batch, error);
  }
  neap_micro_free(micro);
  return status;
}

/* Programs are made as the passes need them, so it always runs. */
static neap_status try_chain(trial *t, neap_error *error) {
  const subject *s = t->s;
  const neap_net *last = s->net[s->n_net - 1];
  const neap_type out = {NEAP_DTYPE_F32, NEAP_SHAPE(4, 5)};
  char seed[64];
  neap_chain *chain = NULL;
  snprintf(seed, sizeof seed, "%s/output_grad", neap_net_name(last));
  neap_status status =
    neap_chain_new(t->ws, s->n_net, (const neap_net *const *)s->net, 4, &t->options, &chain, error);
  if (status == NEAP_OK) status = feed_inputs(t->ws, s->net[0], 0, error);
  if (status == NEAP_OK) status = feed_numbers(t->ws, seed, &out, 7, error);
  if (status == NEAP_OK) status = neap_chain_forward(chain, false, error);
  for (int i = 0; i < N_STEP && status == NEAP_OK; i++) {
    status = neap_chain_forward(chain, true, error);
    if (status == NEAP_OK) status = neap_chain_backward(chain, error);
  }
  if (chain != NULL) hear(t, neap_chain_warning(chain));
  t->has_run = status == NEAP_OK;
  neap_chain_free(chain);
  return status;
}

static neap_status try_model(trial *t, neap_error *error) {
  neap_net *net = NULL;
  NEAP_TRY(neap_workspace_import(t->ws, t->s->model, NEAP_IO_COPY, &net, error));
  neap_status status = try_session(t, net, error);
  neap_net_free(net);
  return status;
}

/* A workspace in which the subject has run; *warning of what did it. NULL: it did not. */
static neap_workspace *run(const subject *s, neap_store *store, bool compile_only,
                           char warning[256]) {
  trial t = {.s = s, .options = s->options, .compile_only = compile_only};
  neap_error error = {0};
  t.options.store = store;
  neap_status status = neap_workspace_new(&(neap_workspace_options){.seed = 42}, &t.ws, &error);
  if (status == NEAP_OK) neap_workspace_set_poison(t.ws, true);
  if (status == NEAP_OK)
    status = s->kind == RANGE   ? try_range(&t, &error)
             : s->kind == MICRO ? try_micro(&t, &error)
             : s->kind == CHAIN ? try_chain(&t, &error)
             : s->kind == MODEL ? try_model(&t, &error)
                                : try_session(&t, s->net[0], &error);
  snprintf(warning, 256, "%s", t.warning);
  if (status != NEAP_OK) printf("  %s\n", error.message), check_failures++;
  if (status == NEAP_OK && t.has_run) return t.ws;
  neap_workspace_release(t.ws);
  return NULL;
}

typedef struct comparison {
  neap_workspace *base, *ws;
  int n;
  bool same;
} comparison;

static void compare_blob(void *context, const neap_blob_info *info) {
  comparison *c = context;
  neap_tensor tensor = {0};
  /* not a transient one, nor a scope */
  bool fetched = neap_workspace_fetch(c->base, info->name, &tensor, NULL) == NEAP_OK;
  neap_tensor_fini(&tensor);
  if (!fetched) return;
  c->n++;
  c->same = c->same && mlp_same_bits(c->base, c->ws, info->name);
}

/* All that can be fetched: inputs, outputs, parameters, gradients, state. */
static bool same_bits(const subject *s, neap_workspace *ws) {
  comparison c = {.base = s->base, .ws = ws, .same = true};
  neap_workspace_each(s->base, compare_blob, &c);
  return c.same && c.n > 1;
}

/* ---- the file -------------------------------------------------------------------------------- */

static bool take_texts(void *context, int n, const neap_sql_value *value) {
  subject *s = context;
  if (n != 4 || s->n_row == MOST_ROWS) return false;
  s->row[s->n_row++] = (texts){strdup(strchr(value[0].text, '\n') + 1), strdup(value[1].text),
                               strdup(value[2].text), strdup(value[3].text)};
  return true;
}

static bool read_nets(subject *s) {
  CHECK_OK(neap_net_read(s->text, &s->net[s->n_net++], &error));
  for (int i = 0; s->layer[i] != NULL; i++)
    CHECK_OK(neap_net_read(s->layer[i], &s->net[s->n_net++], &error));
  for (int i = 0; i < s->n_net; i++)
    if (s->net[i] == NULL) return false;
  return true;
}

/* The subject's net and its first parameters as a file. */
static void export_model(subject *s) {
  neap_workspace *ws = NULL;
  snprintf(s->model, sizeof s->model, "%s.safetensors", s->path);
  CHECK_OK(neap_workspace_new(&(neap_workspace_options){.seed = 42}, &ws, &error));
  CHECK_OK(neap_workspace_init(ws, s->net[0], &error));
  CHECK_OK(neap_workspace_export(ws, s->net[0], s->model, &error));
  neap_workspace_release(ws);
}

static bool open_subject(subject *s) {
  char warning[256];
  if (!read_nets(s)) return false;
  snprintf(s->path, sizeof s->path, "/tmp/neap_test_stored_%d.db", (int)getpid());
  unlink(s->path);
  if (s->kind == MODEL) export_model(s);
  CHECK_OK(neap_db_open(s->path, &s->store, &error));

  /* One run without a store, which all others are compared with, and one that fills it. */
  s->base = run(s, NULL, false, warning);
  neap_workspace *ws = s->base != NULL ? run(s, s->store, false, warning) : NULL;
  if (ws == NULL) return false;
  CHECK(warning[0] == '\0' && same_bits(s, ws));
  neap_workspace_release(ws);

  /* The texts as they were stored: each case changes one of them and puts it back. */
  CHECK_OK(neap_db_query(s->store,
                         "SELECT CAST(sqlar_uncompress(choices, choice_bytes) AS TEXT), "
                         "CAST(sqlar_uncompress(plan_text, plan_bytes) AS TEXT), key, "
                         "CAST(sqlar_uncompress(key_text, key_bytes) AS TEXT) FROM plan_cache "
                         "ORDER BY rowid",
                         0, NULL, take_texts, s, &error));
  return s->n_row > 0 && s->n_row < MOST_ROWS;
}

static void close_subject(subject *s) {
  char other[80];
  neap_db_close(s->store);
  neap_workspace_release(s->base);
  for (int i = 0; i < s->n_net; i++) neap_net_free(s->net[i]);
  for (int i = 0; i < s->n_row; i++)
    free(s->row[i].choices), free(s->row[i].plan), free(s->row[i].key), free(s->row[i].key_text);
  unlink(s->path);
  if (s->kind == MODEL) unlink(s->model);
  snprintf(other, sizeof other, "%s-wal", s->path), unlink(other);
  snprintf(other, sizeof other, "%s-shm", s->path), unlink(other);
}

/* The digest that the driver would have written: kept in step with stored.c by the untampered case
 * of each test. */
static void forge(const subject *s, const char *choices, const char *plan, char hex[33]) {
  const char *key_text = s->row[s->at].key_text;
  neap_hash all[] = {neap_hash_bytes(key_text, strlen(key_text)),
                     neap_hash_words(choices, strlen(choices)),
                     neap_hash_words(plan, strlen(plan))};
  neap_hash_text(neap_hash_words(all, sizeof all), hex);
}

static void write_texts(const subject *s, const char *choices, const char *plan, const char *hex) {
  sqlite3_stmt *stmt = NULL;
  neap_buffer whole = {0};
  neap_buffer_add(&whole, "digest %s\n%s", hex, choices);
  CHECK_EQ(sqlite3_prepare_v2(
             s->store->db,
             "UPDATE plan_cache SET choices = sqlar_compress(CAST(?1 AS BLOB)), choice_bytes = "
             "length(CAST(?1 AS BLOB)), plan_text = sqlar_compress(CAST(?2 AS BLOB)), "
             "plan_bytes = length(CAST(?2 AS BLOB)) WHERE key = ?3",
             -1, &stmt, NULL),
           SQLITE_OK);

  sqlite3_bind_text(stmt, 1, whole.text, -1, SQLITE_TRANSIENT);
  sqlite3_bind_text(stmt, 2, plan, -1, SQLITE_TRANSIENT);
  sqlite3_bind_text(stmt, 3, s->row[s->at].key, -1, SQLITE_TRANSIENT);
  CHECK_EQ(sqlite3_step(stmt), SQLITE_DONE);
  CHECK_EQ(sqlite3_changes(s->store->db), 1);
  sqlite3_finalize(stmt);
  neap_buffer_fini(&whole);
}

/* One changed pair of texts, with the digest of the right ones, then with their own. `what` for
 * failures. */
static void tamper(subject *s, const char *choices, const char *plan, const char *what) {
  char hex[33], right[33], warning[256];
  const texts *row = &s->row[s->at];
  forge(s, row->choices, row->plan, right);
  forge(s, choices, plan, hex);

  /* Most are only compiled; one in fifty also runs. */
  int failures = check_failures;
  bool compile_only = ++s->n_tampered % 50 != 0;

  /* With the old digest the change must be noticed, and the plan is made anew. */
  write_texts(s, choices, plan, right);
  neap_workspace *ws = run(s, s->store, compile_only, warning);
  CHECK(strstr(warning, "is not what had been stored") != NULL && (ws == NULL || same_bits(s, ws)));
  neap_workspace_release(ws);

  /* With a digest that fits, only checks of the plan itself can refuse it; what passes must be
   * harmless. */
  write_texts(s, choices, plan, hex);
  ws = run(s, s->store, compile_only, warning);
  if (warning[0] == '\0') s->n_taken++;
  if (warning[0] == '\0' && getenv("STORED_TAKEN") != NULL) printf("  taken: %s\n", what);
  CHECK(warning[0] == '\0' || strstr(warning, "failed its check and was made again") != NULL);
  CHECK(ws != NULL || (compile_only && warning[0] != '\0'));
  CHECK(ws == NULL || same_bits(s, ws));
  neap_workspace_release(ws);

  write_texts(s, row->choices, row->plan, right);
  if (check_failures > failures) printf("  of: plan %d, %s: \"%s\"\n", s->at, what, warning);
}

/* ---- what is wrong --------------------------------------------------------------------------- */

static bool is_all(void) { return getenv("STORED_ALL") != NULL; }

/* Wrong value k for a word; NULL: there are no more. */
static const char *wrong_value(const char *word, int k, char room[64]) {
  static const char *const names[] = {
    "ref",          "blas",    "dnnl",   "plain@0",   "abcd:16b@0", "abcd:0b@0", "acdb@0",
    "opaque:1f@64", "arena",   "state",  "pool",      "name",       "none",      "offset",
    "dag",          "simple",  "alias",  "in_place",  "version",    "own",       "parameters",
    "stale:size",   "no_pair", "frames", "constants", "0",          "_",         "|"};
  static const char *const numbers[] = {
    "0", "1", "-1", "2", "16", "64", "4096", "99999999999999999999", "2305843009213693951",
    "x", ""};

  /* A number gets extremes and its neighbours, any other word what a field somewhere may hold. */
  char *end;
  long long number = strtoll(word, &end, 10);
  if (*end != '\0' || end == word) return k < NEAP_COUNT(names) ? names[k] : NULL;
  if (k < NEAP_COUNT(numbers)) return numbers[k];
  k -= NEAP_COUNT(numbers);
  const long long near[] = {number + 1, number - 1, number + 64, number - 64, number * 2};
  if (k >= NEAP_COUNT(near)) return NULL;
  snprintf(room, 64, "%lld", near[k]);
  return room;
}

/* Every word of `text`, each with its wrong values, or every n-th of these pairs. */
static void tamper_words(subject *s, const char *text, int every) {
  bool is_plan = text == s->row[s->at].plan;
  int n = 0;
  for (const char *at = text; *at != '\0';) {
    char word[64], room[64];
    int length = (int)strcspn(at, " \n");
    snprintf(word, sizeof word, "%.*s", length, at);
    for (int k = 0; length > 0; k++) {
      const char *wrong = wrong_value(word, k, room);
      if (wrong == NULL) break;
      if (strcmp(wrong, word) == 0 || (!is_all() && n++ % every != 0)) continue;

      neap_buffer bad = {0};
      char what[200];
      int line = 1;
      for (const char *c = text; c < at; c++) line += *c == '\n';
      neap_buffer_add(&bad, "%.*s%s%s", (int)(at - text), text, wrong, at + length);
      snprintf(what, sizeof what, "%s, line %d, \"%s\" for \"%s\"", is_plan ? "plan" : "choices",
               line, wrong, word);
      tamper(s, is_plan ? s->row[s->at].choices : bad.text, is_plan ? bad.text : s->row[s->at].plan,
             what);
      neap_buffer_fini(&bad);
    }
    at += length + (at[length] != '\0');
  }
}

typedef enum change { GONE, TWICE, EXCHANGED, ALL_GONE, HALF, N_CHANGE } change;

/* The text with one change at the line that begins at `at`: it is gone, there twice, exchanged with
 * the next one, gone with all behind it, or half of it ends the text. */
static void add_changed(neap_buffer *out, const char *text, const char *at, change what) {
  const char *next = strchr(at, '\n') + 1, *after = *next != '\0' ? strchr(next, '\n') + 1 : next;
  const int n = (int)(next - at);
  neap_buffer_add(out, "%.*s", (int)(at - text), text);
  if (what == GONE) neap_buffer_add(out, "%s", next);
  if (what == TWICE) neap_buffer_add(out, "%.*s%s", n, at, at);
  if (what == EXCHANGED)
    neap_buffer_add(out, "%.*s%.*s%s", (int)(after - next), next, n, at, after);
  if (what == HALF) neap_buffer_add(out, "%.*s", n / 2, at);
}

/* Each line of the text with each change, or every n-th of these pairs. */
static void tamper_lines(subject *s, const char *text, int every) {
  bool is_plan = text == s->row[s->at].plan;
  int n = 0;
  for (const char *at = text; *at != '\0'; at = strchr(at, '\n') + 1)
    for (int k = 0; k < N_CHANGE; k++) {
      if (!is_all() && n++ % every != 0) continue;

      neap_buffer bad = {0};
      char what[200];
      add_changed(&bad, text, at, (change)k);
      snprintf(what, sizeof what, "%s, change %d of line \"%.60s\"", is_plan ? "plan" : "choices",
               k, at);
      if (bad.text != NULL && strcmp(bad.text, text) != 0)
        tamper(s, is_plan ? s->row[s->at].choices : bad.text,
               is_plan ? bad.text : s->row[s->at].plan, what);
      neap_buffer_fini(&bad);
    }
}

static int count_words(const char *text) {
  int n = 0;
  for (; *text != '\0'; text++) n += *text == ' ' || *text == '\n';
  return n;
}

/* One stored plan, within about `most` changes. */
static void tamper_row(subject *s, int most) {
  const texts *row = &s->row[s->at];
  char hex[33], warning[256];
  forge(s, row->choices, row->plan, hex);
  write_texts(s, row->choices, row->plan, hex);
  neap_workspace *ws = run(s, s->store, false, warning);
  CHECK(ws != NULL && warning[0] == '\0' && same_bits(s, ws)); /* so the digest is the driver's */
  neap_workspace_release(ws);
  int every = NEAP_MAX(16 * (count_words(row->choices) + count_words(row->plan)) / most, 1) | 1;
  tamper_words(s, row->choices, NEAP_MAX(every / 4, 1));
  tamper_words(s, row->plan, every);
  tamper_lines(s, row->choices, NEAP_MAX(every / 8, 1));
  tamper_lines(s, row->plan, NEAP_MAX(every / 8, 1));
}

/* Every plan that the subject stores, within about `most` changes of all. */
static void tamper_all(subject *s, int most) {
  bool opened = open_subject(s);
  CHECK(opened);
  for (s->at = 0; opened && s->at < s->n_row; s->at++) tamper_row(s, most / s->n_row);
  CHECK(!opened || s->n_tampered > 20);
  if (getenv("STORED_TAKEN") != NULL)
    printf("  %d plans, %d changed, %d taken over\n", s->n_row, s->n_tampered, s->n_taken);
  close_subject(s);
}

TEST(a_net_of_convolutions_in_blocks) {
  subject s = {.text = conv_text,
               .options = {.plan = {.policy = NEAP_POLICY_OFFSET}, .n_thread = 2}};
  tamper_all(&s, 160);
}

TEST(constants_of_inference) {
  subject s = {.text = infer_text,
               .options = {.plan = {.policy = NEAP_POLICY_OFFSET}, .n_thread = 2}};
  tamper_all(&s, 100);
}

TEST(a_recurrent_net) {
  subject s = {.text = lstm_text,
               .options = {.plan = {.policy = NEAP_POLICY_OFFSET}, .n_thread = 2}};
  tamper_all(&s, 100);
}

TEST(a_transformer) {
  subject s = {.text = gpt_text,
               .options = {.plan = {.policy = NEAP_POLICY_OFFSET}, .n_thread = 2}};
  tamper_all(&s, 100);
}

TEST(plans_within_plans) {
  subject s = {.text = loop_text,
               .options = {.plan = {.policy = NEAP_POLICY_OFFSET}, .n_thread = 2}};
  tamper_all(&s, 160);
}

TEST(side_by_side) {
  subject s = {.text = conv_text,
               .options = {.plan = {.policy = NEAP_POLICY_OFFSET, .executor = NEAP_EXECUTOR_DAG},
                           .n_thread = 2,
                           .inexact = true}};
  tamper_all(&s, 100);
}

TEST(other_policies) {
  const neap_policy policy[] = {NEAP_POLICY_NONE, NEAP_POLICY_NAME, NEAP_POLICY_POOL};
  for (int p = 0; p < NEAP_COUNT(policy); p++) {
    subject s = {.text = conv_text, .options = {.plan = {.policy = policy[p]}, .n_thread = 2}};
    tamper_all(&s, 50);
  }
}

/* A text in a budget that makes ops run again, or values leave a pool. */
static subject subject_of(const char *text, int pool) {
  return (subject){
    .text = text,
    .options = {.plan = {.policy = pool ? NEAP_POLICY_POOL : NEAP_POLICY_OFFSET}, .n_thread = 1}};
}

/* Sets the least budget that the subject can be planned in; *f: that plan. */
static void take_least(subject *s, neap_forecast *f) {
  neap_net *net = NULL;
  neap_error refused = {0};
  CHECK_OK(neap_net_read(s->text, &net, &error));
  s->options.plan.budget_bytes = 64;
  CHECK(neap_driver_plan(net, &s->options, f, &refused) == NEAP_BUDGET && refused.least_bytes > 0);
  s->options.plan.budget_bytes = (size_t)refused.least_bytes;
  CHECK_OK(neap_driver_plan(net, &s->options, f, &error));
  neap_net_free(net);
}

/* What a budget repeats, or evicts from a pool. */
TEST(plans_of_a_budget) {
  neap_buffer text = {0};
  deep_text(&text);
  for (int pool = 0; pool < 2; pool++) {
    subject s = subject_of(text.text, pool);
    neap_forecast f = {0};
    double work;
    take_least(&s, &f);
    CHECK(f.plan != NULL &&
          (pool ? f.plan->script.n_turn > 0 : neap_plan_recomputed(f.graph, &work) > 0));
    neap_forecast_fini(&f);
    tamper_all(&s, 130);
  }
  neap_buffer_fini(&text);
}

/* Less scratch than the free plan's kernels take: they are of another section of the ladder. */
TEST(plans_of_less_scratch) {
  subject s = {.text = conv_text,
               .options = {.plan = {.policy = NEAP_POLICY_OFFSET},
                           .n_thread = 2,
                           .inexact = true,
                           .no_recompute = true}};
  neap_forecast f = {0};
  take_least(&s, &f);
  neap_forecast_fini(&f);
  tamper_all(&s, 70);
}

/* Two banks with capacities, and a blob of main; copies between them are planned. */
TEST(plans_of_memory_banks) {
  static const neap_bank bank[] = {{.name = "fast", .bytes = 1 << 17},
                                   {.name = "huge", .kind = NEAP_BANK_HUGE}};
  subject s = {
    .text = bank_text,
    .options = {
      .plan = {.policy = NEAP_POLICY_OFFSET}, .n_thread = 2, .graph = {.n_bank = 2, .bank = bank}}};
  tamper_all(&s, 160);
}

TEST(ranges_of_batches) {
  subject s = {.text = conv_text,
               .kind = RANGE,
               .options = {.plan = {.policy = NEAP_POLICY_OFFSET}, .n_thread = 2}};
  tamper_all(&s, 120);
}

/* The net of a part, of the update, of holding a batch, of joining it. */
TEST(micro_batches) {
  subject s = {
    .text = conv_text,
    .kind = MICRO,
    .options = {
      .plan = {.policy = NEAP_POLICY_OFFSET}, .n_thread = 2, .accumulate = NEAP_ACCUMULATE_MEAN}};
  tamper_all(&s, 160);
  CHECK_EQ(s.n_row, 4);
}

/* Evaluation, forward and backward half of each layer. */
TEST(chains_of_layers) {
  subject s = {.text = chain_text[0],
               .layer = {chain_text[1], chain_text[2]},
               .kind = CHAIN,
               .options = {.plan = {.policy = NEAP_POLICY_OFFSET}, .n_thread = 2}};
  tamper_all(&s, 140);
  CHECK_EQ(s.n_row, 9);
}

TEST(imported_models) {
  subject s = {.text = infer_text,
               .kind = MODEL,
               .options = {.plan = {.policy = NEAP_POLICY_OFFSET}, .n_thread = 2}};
  tamper_all(&s, 100);
  subject trained = {.text = conv_text,
                     .kind = MODEL,
                     .options = {.plan = {.policy = NEAP_POLICY_OFFSET}, .n_thread = 2}};
  tamper_all(&trained, 60);
}

/* The texts of a plan that `other` options gave, under the key of `own`, with a digest that fits:
 * it is refused for `why`. */
static void check_not_taken(const char *text, neap_compile_options other, neap_compile_options own,
                            const char *why) {
  subject from = {.text = text, .options = other}, s = {.text = text, .options = own};
  char warning[256], hex[33];
  texts stolen = {0};
  if (open_subject(&from))
    stolen = (texts){.choices = strdup(from.row[0].choices), .plan = strdup(from.row[0].plan)};
  close_subject(&from);
  if (open_subject(&s) && stolen.plan != NULL) {
    forge(&s, stolen.choices, stolen.plan, hex);
    write_texts(&s, stolen.choices, stolen.plan, hex);
    neap_workspace *ws = run(&s, s.store, false, warning);
    CHECK(ws != NULL && same_bits(&s, ws));
    if (strstr(warning, why) == NULL) {
      printf("  expected \"%s\", got \"%s\"\n", why, warning);
      check_failures++;
    }
    neap_workspace_release(ws);
  }
  close_subject(&s);
  free(stolen.choices), free(stolen.plan);
}

/* A plan may be right in itself, and not what its options allow. */
TEST(plans_of_other_options_are_refused) {
  neap_buffer text = {0};
  deep_text(&text);
  for (int pool = 0; pool < 2; pool++) {
    subject s = subject_of(text.text, pool);
    neap_compile_options plain = s.options, strict;
    neap_forecast f = {0};
    take_least(&s, &f);
    neap_forecast_fini(&f);
    check_not_taken(text.text, plain, s.options, "exceeds its limits");
    strict = plain;
    strict.no_recompute = true;
    check_not_taken(text.text, s.options, strict,
                    pool ? "evicts values, the options don't" : "recompute ops, the options don't");
  }
  neap_buffer_fini(&text);

  neap_compile_options with = {.plan = {.policy = NEAP_POLICY_OFFSET}, .n_thread = 2},
                       without = with;
  without.no_constants = true;
  check_not_taken(infer_text, with, without, "hold constants, the options don't");
  check_not_taken(infer_text, without, with, "hold no constants, the options do");
}

int main(int argc, char **argv) {
  setenv("NEAP_CACHE", "all", 1); /* cheap plans are read back, too */
  return RUN(argc, argv, T(a_net_of_convolutions_in_blocks), T(constants_of_inference),
             T(a_recurrent_net), T(a_transformer), T(plans_within_plans), T(side_by_side),
             T(other_policies), T(plans_of_a_budget), T(plans_of_less_scratch),
             T(plans_of_memory_banks), T(ranges_of_batches), T(micro_batches), T(chains_of_layers),
             T(imported_models), T(plans_of_other_options_are_refused));
}
