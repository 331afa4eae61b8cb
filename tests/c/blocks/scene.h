/* scene.h: what is there before a function is called with a block refused: nets, a workspace,
 * sessions, handles, files; what the call gives is put beside. */
#ifndef NEAP_TESTS_BLOCKS_SCENE_H
#define NEAP_TESTS_BLOCKS_SCENE_H

#include "base/base.h"
#include "neap.h"

#include "check.h"

#include <stdlib.h>

enum { MOST_OUT = 16 };

#define DIM(...) ((const int64_t[]){__VA_ARGS__})
#define NAMES(...) ((const char *const[]){__VA_ARGS__})
#define N_NAMES(...) (int)NEAP_COUNT(((const char *const[]){__VA_ARGS__})), NAMES(__VA_ARGS__)

/* ---- nets ------------------------------------------------------------------------------------ */

static const char train_text[] =
  "net train\ninput x f32 (4,3)\ninput y i64 (4)\nparam w f32 (3,3) = Xavier\nparam b f32 (3) = "
  "Constant\nparam v f32 (3,3) = "
  "Constant\nstate m f32 (3) = Constant\nparam lr f32 () frozen = Constant { value = 0.1 }\n"
  "k = Sum(x) { axes = {0} }\nm = RunningAverage(m, k)\nh = FC(x, w, b)\nr = Relu(h)\nd = "
  "Dropout(r) { rate = 0.2, training = "
  "true }\nh2 = FC(d, w)\nloss = SoftmaxCrossEntropy(h2, y)\nwg, bg = Gradient(loss, w, b)\nw, v = "
  "Sgd(w, wg, lr, v) { momentum "
  "= 0.9 }\nb = Sgd(b, bg, lr)\noutputs loss\n";
static const char forward_text[] =
  "net forward\ninput x f32 (4,3)\nparam w f32 (3,3) = Xavier\nparam b f32 (3) = Constant\nh = "
  "FC(x, w, b)\nr = Relu(h)\nh2 = "
  "FC(r, w)\ns = Softmax(h2)\nu = Tanh(s)\noutputs u\n";
static const char image_text[] =
  "net image\ninput x f32 (4,2,6,6)\ninput y i64 (4)\nparam w f32 (8,2,3,3) = Xavier\nparam g f32 "
  "(8) = Constant { value = 1 "
  "}\nparam b f32 (8) = Constant\nparam f f32 (3,72) = Xavier\nc = Conv(x, w, b) { pad = {1} }\nn, "
  "mean, var = BatchNorm(c, g, "
  "b) { training = true }\nr = Relu(n)\np = MaxPool(r) { kernel = {2}, stride = {2} }\nq = "
  "Reshape(p) { shape = {-1,72} }\nz = "
  "FC(q, f)\nloss = SoftmaxCrossEntropy(z, y)\nwg, fg = Gradient(loss, w, f)\noutputs loss\nkeep "
  "wg, fg\n";
static const char loops_text[] =
  "net loops\ninput x f32 (4,3)\nparam hundred f32 () frozen = Constant { value = 100 }\nparam two "
  "f32 (4,3) = Constant { value "
  "= 2 "
  "}\nsubnet cond\n  input p\n  g = Max(p)\n  more = Lt(g, hundred)\n  takes p, hundred, two\n  "
  "gives more\nend\nsubnet body\n  "
  "input p\n  q = Mul(p, two)\n  takes p, hundred, two\n  gives q\nend\nz = While(x, hundred, two) "
  "{ cond_net = cond, body_net = "
  "body, n_state = 1%s }\nzero = Sum(x)\nsubnet yes\n  a = Neg(z)\n  takes z\n  gives "
  "a\nend\nsubnet no\n  a = Relu(z)\n  takes "
  "z\n  "
  "gives a\nend\nc = Lt(zero, hundred)\no = If(c, z) { then_net = yes, else_net = no }\nstart = "
  "Sum(o) { axes = {0} }\nsubnet "
  "step\n  input s\n  input r\n  t = Add(s, r)\n  o = Tanh(t)\n  takes s, r\n  gives o\nend\nlast "
  "= Recurrent(start, o) { "
  "step_net = step, n_state = 1, n_seq = 1 }\nloss = Sum(last)\ntg = Gradient(loss, two)\noutputs "
  "loss, tg\n";
static const char scopes_text[] =
  "net scopes\ninput x f32 (4,3)\ns = CreateScope()\nsubnet add closed\n  input u\n  w = Add(u, "
  "u)\n  t = Tanh(w)\nend\nc, s = "
  "Do(x, s) { net = add, inner_blobs = {u, t}, outer_blobs_idx = {0,1} }\nloss = Sum(c)\nxg = "
  "Gradient(loss, x)\noutputs loss, "
  "xg\n";
static const char found_text[] =
  "net found\ninput x f32 (4,3)\nc = Gt(x, x)\ni = NonZero(c)\nr = Relu(x)\noutputs i, r\n";
static const char layer1_text[] =
  "net one\ninput x f32 (4,3)\nparam w f32 (3,3) = Xavier\nstate m f32 (3) = Constant\nh = FC(x, "
  "w)\nk = Sum(h) { axes = {0} "
  "}\nm = "
  "RunningAverage(m, k)\ny = Tanh(h)\noutputs y\n";
static const char layer2_text[] =
  "net two\ninput x f32 (4,3)\nparam u f32 (2,3) = Xavier\ny = FC(x, u)\n";
static const char batch1_text[] =
  "net one\ninput x f32 (2,3)\nparam w f32 (3,3) = Xavier\nstate m f32 (3) = Constant\nh = FC(x, "
  "w)\nk = Sum(h) { axes = {0} }\nm = RunningAverage(m, k)\ny = Tanh(h)\noutputs y\n";
static const char batch2_text[] =
  "net two\ninput x f32 (2,3)\nparam u f32 (2,3) = Xavier\ny = FC(x, u)\n";
/* ---- scenes ---------------------------------------------------------------------------------- */

/* What is there when the call is made. Each part brings those that it stands on. */
enum {
  WS = 1 << 0,       /* a workspace with inputs x and y, and a string */
  NET = 1 << 1,      /* the net that learns, */
  FORWARD = 1 << 2,  /* or one that does not, */
  IMAGE = 1 << 3,    /* or of images, with images as x, */
  LOOPS = 1 << 4,    /* or with subnets, */
  ENDLESS = 1 << 5,  /* or with a loop that holds frames, */
  SCOPES = 1 << 6,   /* or with a scope, */
  FOUND = 1 << 7,    /* or with a length found while it runs */
  STORED = 1 << 8,   /* the workspace has the net by its name */
  OPENED = 1 << 9,   /* a session of that net */
  SESSION = 1 << 10, /* one that has run once */
  FEWER = 1 << 11,   /* the inputs have been written since, with fewer rows */
  LOG = 1 << 12,     /* a dry run of the net */
  MICRO = 1 << 13,   /* one batch added */
  RANGE = 1 << 14,   /* of the net, up to 6 rows */
  LAYERS = 1 << 15,  /* nets of two layers, */
  CHAIN = 1 << 16,   /* and a chain of them after a forward, with a gradient for its output */
  SCOPE = 1 << 17,   /* a scope with one frame of two in use, and a child workspace */
  DEEP = 1 << 18,    /* both frames of the scope are in use */
  /* nothing more: the call reads a checkpoint or an exported net, which are there always */
  FILES = 1 << 19,
  TOTAL = 1 << 27, /* the net gives the sum of u, too */
  /* a plan of the net, its live ranges and, with TENSOR, a cache with the tensor on it */
  HANDLES = 1 << 28,
  PARTS = 1 << 29,  /* sessions of the net in parts: of 2 rows, and of its update */
  READER = 1 << 25, /* batches of the tensor's rows */
  SUB = 1 << 23,    /* a closed subnet of the net, with an input p */
  TENSOR = 1 << 26, /* a tensor (3,4) of its own */
  ROWS = 1 << 22,   /* a cursor over the net's ops, at one with subnets or behind the last */
  DB = 1 << 21,     /* a database, which sessions use, with the row of a run */
  RUN = 1 << 20     /* the call is a run: what the net gives out may be of the run that failed */
};

typedef struct scene {
  neap_workspace *ws, *child;
  neap_net *sub; /* borrowed from net */
  neap_batch_reader *reader;
  neap_net *net, *layer[2], *fewer[2]; /* fewer: the layers at another batch */
  neap_session *session;
  neap_micro *micro;
  neap_chain *chain;
  neap_range *range;
  neap_scope *scope;
  neap_dry_run *log;
  neap_rows *rows;
  neap_memory_plan *plan;
  neap_lives *lives;
  neap_cache *cache;
  neap_session *part, *update; /* of PARTS */
  neap_db *db;
  neap_run *run; /* of DB */
  neap_tensor t;
  const neap_options *options;
  neap_options recorded; /* those, with the database */
  /* What the call gave. */
  neap_tensor out_t;
  neap_net *out_net, *out_net2;
  neap_workspace *out_ws; /* owned */
  neap_workspace *frame;  /* borrowed */
  neap_session *out_session;
  neap_micro *out_micro;
  neap_chain *out_chain;
  neap_range *out_range;
  neap_dry_run *out_log;
  neap_rows *out_rows;
  neap_memory_plan *out_plan;
  char *text;
  void *block;
  double number[MOST_OUT];
} scene;

typedef struct entry {
  const char *name; /* in neap.h */
  unsigned parts;
  neap_status (*call)(scene *s, neap_error *error);
  const neap_options *options;
  bool quiet; /* asks for no memory: it has no status to say so */
} entry;

static char checkpoint_path[] = "/tmp/neap-blocks-a-XXXXXX.safetensors",
            export_path[] = "/tmp/neap-blocks-b-XXXXXX.safetensors",
            saved_path[] = "/tmp/neap-blocks-c-XXXXXX.safetensors",
            idx_path[] = "/tmp/neap-blocks-f-XXXXXX.safetensors",
            onnx_folder[] = "/tmp/neap-blocks-o-XXXXXX",
            db_path[] = "/tmp/neap-blocks-d-XXXXXX.safetensors",
            copy_path[] = "/tmp/neap-blocks-e-XXXXXX.safetensors";

static void write_inputs(scene *s, bool images) {
  float x[4 * 2 * 6 * 6];
  const int64_t y[4] = {0, 2, 1, 2};
  for (int i = 0; i < NEAP_COUNT(x); i++) x[i] = (float)((i * 7 + 3) % 11) / 8 + 0.125f;
  if (images)
    CHECK_OK(neap_workspace_write(s->ws, "x", NEAP_DTYPE_F32, 4, DIM(4, 2, 6, 6), x, &error));
  else
    CHECK_OK(neap_workspace_write(s->ws, "x", NEAP_DTYPE_F32, 2, DIM(4, 3), x, &error));
  CHECK_OK(neap_workspace_write(s->ws, "y", NEAP_DTYPE_I64, 1, DIM(4), y, &error));
  CHECK_OK(neap_workspace_feed_string(s->ws, "words", "a string", 8, &error));
}

static void read_net(scene *s, unsigned parts) {
  static char loops[2][sizeof loops_text + 20];
  snprintf(loops[0], sizeof loops[0], loops_text, ", max = 20");
  snprintf(loops[1], sizeof loops[1], loops_text, "");
  const char *text = (parts & NET)       ? train_text
                     : (parts & FORWARD) ? forward_text
                     : (parts & IMAGE)   ? image_text
                     : (parts & LOOPS)   ? loops[0]
                     : (parts & ENDLESS) ? loops[1]
                     : (parts & SCOPES)  ? scopes_text
                                         : found_text;
  CHECK_OK(neap_net_read(text, &s->net, &error));
}

static void open_chain(scene *s) {
  const float dy[8] = {1, -1, 0.5f, 2, 1, 0, 0, 1};
  CHECK_OK(
    neap_chain_open(s->ws, 2, (const neap_net *const *)s->layer, 6, s->options, &s->chain, &error));
  CHECK_OK(neap_chain_forward(s->chain, true, &error));
  CHECK_OK(
    neap_workspace_write(s->ws, "two/output_grad", NEAP_DTYPE_F32, 2, DIM(4, 2), dy, &error));
}

static void open_scope(scene *s, bool deep) {
  neap_workspace *frame;
  CHECK_OK(neap_workspace_open_child(s->ws, 0, NULL, NULL, &s->child, &error));
  CHECK_OK(neap_workspace_create_scope(s->ws, "scope", &s->scope, &error));
  for (int i = 0; i < 2; i++)
    CHECK_OK(neap_scope_push(s->scope, s->ws, 1, NAMES("inner"), NAMES("x"), &frame, &error));
  CHECK_OK(neap_workspace_write(frame, "local", NEAP_DTYPE_F32, 1, DIM(1), &(float){5}, &error));
  if (!deep)
    CHECK_OK(
      neap_scope_pop_gradient(s->scope, s->ws, 1, NAMES("label"), NAMES("y"), &frame, &error));
}

static void open_handles(scene *s) {
  CHECK_OK(neap_memory_plan_new(s->net, s->options, NULL, &s->plan, &error));
  CHECK_OK(neap_lives_open(s->net, NULL, &s->lives, &error));
  if (s->t.storage == NULL) return;
  CHECK_OK(neap_cache_new("layer", &s->cache, &error));
  CHECK_OK(neap_cache_push(s->cache, &s->t, "pushed", &error));
}

/* The net's batch of 4 is run as parts of 2. */
static void open_parts(scene *s) {
  neap_net *part, *update;
  neap_input *input;
  neap_options two = {0};
  CHECK_OK(neap_net_split_micro(s->net, &part, &update, &error));
  CHECK_OK(neap_net_batch_inputs(part, 2, &input, &two.n_inputs, &error));
  two.inputs = input;
  CHECK_OK(neap_session_open(s->ws, part, &two, &s->part, &error));
  CHECK_OK(neap_session_open(s->ws, update, NULL, &s->update, &error));
  neap_free(input);
  neap_net_free(part);
  neap_net_free(update);
}

static void open_scene(scene *s, unsigned parts, const neap_options *options) {
  *s = (scene){.options = options};

  /* In the order in which one needs the other: data, then nets, then workspaces, then what runs in
   * them. */
  if (parts & TENSOR) {
    CHECK_OK(neap_tensor_new(&s->t, NEAP_DTYPE_F32, &(neap_shape){2, {3, 4}}, &error));
    for (int i = 0; i < 12; i++)
      neap_element_set(NEAP_DTYPE_F32, neap_tensor_data(&s->t), i, (double)i / 2);
  }
  if (parts & DB) {
    CHECK_OK(neap_db_open(db_path, &s->db, &error));
    CHECK_OK(neap_run_open(s->db, &(neap_run_about){.net = "a run"}, &s->run, &error));
    s->recorded = (neap_options){.db = s->db, .profile = NEAP_ON};
    s->options = options = &s->recorded;
  }

  if (parts & (NET | FORWARD | IMAGE | LOOPS | ENDLESS | SCOPES | FOUND)) read_net(s, parts);
  if (parts & READER) {
    const neap_batch_field field = {.source = s->t, .dtype = NEAP_DTYPE_F64, .scale = 1};
    const neap_batch_options by_two = {.n_batch = 2};
    CHECK_OK(neap_batch_reader_new(1, &field, 3, DIM(2, 0, 1), &by_two, &s->reader, &error));
  }
  if (parts & TOTAL) CHECK_OK(neap_net_add_text(s->net, &error, "total = Sum(u)"));
  if (parts & SUB) {
    CHECK_OK(neap_net_new_closed_sub(s->net, "body", &s->sub, &error));
    CHECK_OK(neap_net_declare(s->sub, "p", NEAP_ROLE_INPUT, NULL, false, NULL, NULL, NULL, &error));
  }

  if (parts & WS) {
    CHECK_OK(neap_workspace_open(7, &s->ws, &error));
    write_inputs(s, parts & IMAGE);
  }
  if (parts & STORED)
    CHECK_OK(neap_workspace_add_net(s->ws, neap_net_retain(s->net), false, &error));
  if (parts & (SESSION | OPENED))
    CHECK_OK(neap_session_open(s->ws, s->net, options, &s->session, &error));
  if (parts & SESSION) CHECK_OK(neap_session_run(s->session, &error));

  /* The session is there already: its next run has fewer rows than it was opened for. */
  if (parts & FEWER) {
    CHECK_OK(neap_workspace_write(s->ws, "x", NEAP_DTYPE_F32, 2, DIM(2, 3),
                                  (float[]){1, 2, 3, 3, 2, 1}, &error));
    CHECK_OK(
      neap_workspace_write(s->ws, "y", NEAP_DTYPE_I64, 1, DIM(2), (int64_t[]){2, 1}, &error));
  }
  if (parts & MICRO) {
    CHECK_OK(
      neap_micro_open(s->ws, s->net, 3, &(neap_options){.accumulate = "mean"}, &s->micro, &error));
    CHECK_OK(neap_micro_add(s->micro, 0, NULL, 0, &error));
  }
  if (parts & (CHAIN | LAYERS)) {
    CHECK_OK(neap_net_read(layer1_text, &s->layer[0], &error));
    CHECK_OK(neap_net_read(layer2_text, &s->layer[1], &error));
    CHECK_OK(neap_net_read(batch1_text, &s->fewer[0], &error));
    CHECK_OK(neap_net_read(batch2_text, &s->fewer[1], &error));
    if (parts & CHAIN) open_chain(s);
  }
  if (parts & RANGE) CHECK_OK(neap_range_open(s->net, 6, options, &s->range, &error));
  if (parts & LOG) CHECK_OK(neap_net_dry_run(s->net, options, &s->log, &error));

  /* Up to the first op that has subnets, so that those may be asked for. */
  if (parts & ROWS) {
    const void *row = NULL;
    CHECK_OK(neap_net_rows(s->net, options, NEAP_ROW_OP, &s->rows, &error));
    do CHECK_OK(neap_rows_next(s->rows, &row, &error));
    while (row != NULL && ((const neap_op_row *)row)->n_sub == 0);
  }
  if (parts & HANDLES) open_handles(s);
  if (parts & PARTS) open_parts(s);
  if (parts & SCOPE) open_scope(s, parts & DEEP);
}

static void close_results(scene *s) {
  neap_tensor_fini(&s->out_t);
  neap_session_free(s->out_session);
  neap_micro_free(s->out_micro);
  neap_chain_free(s->out_chain);
  neap_range_free(s->out_range);
  neap_dry_run_free(s->out_log);
  neap_rows_free(s->out_rows);
  neap_memory_plan_free(s->out_plan);
  neap_workspace_release(s->out_ws);
  neap_net_free(s->out_net);
  neap_net_free(s->out_net2);
  neap_free(s->text);
  neap_free(s->block);
}

static void close_scene(scene *s) {
  close_results(s);

  neap_batch_reader_free(s->reader);
  neap_tensor_fini(&s->t);
  neap_dry_run_free(s->log);
  neap_rows_free(s->rows);
  neap_memory_plan_free(s->plan);
  neap_lives_free(s->lives);
  neap_cache_free(s->cache);

  /* What runs goes before its workspace, and that before its nets. */
  neap_session_free(s->part);
  neap_session_free(s->update);
  neap_session_free(s->session);
  neap_micro_free(s->micro);
  neap_chain_free(s->chain);
  neap_range_free(s->range);
  neap_workspace_release(s->child);
  neap_workspace_release(s->ws);
  neap_net_free(s->net);
  for (int i = 0; i < 2; i++) neap_net_free(s->layer[i]), neap_net_free(s->fewer[i]);
  neap_run_close(s->run);
  neap_db_close(s->db);
}

#endif
