/* test_failing_blocks.c: refused memory at every function of neap.h. One table has a scene a
 * function: what is made before, the call, what it gives. The call is made with its n-th block
 * refused, for n = 1, 2, .. until none is. A refusal is a MEMORY error, takes back every block that
 * the call had taken, and leaves all that the scene holds as it was; the same call then succeeds,
 * with the same result as where nothing was refused. A function without a status must not ask for
 * memory at all.
 *
 * The header and its parts are read: a function that they declare and the table lacks is a failure.
 */
#include "base/base.h"
#include "neap.h"

#include "check.h"

#include <glob.h>
#include <stdlib.h>
#include <unistd.h>

/* N_EACH: after each of the first so many refusals, and of one in so many later, the call is made
 * again and must succeed. */
enum { MOST_BLOCKS = 20000, MOST_OUT = 16, N_EACH = 16 };

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
  if (parts & TENSOR) {
    CHECK_OK(neap_tensor_new(&s->t, NEAP_DTYPE_F32, &(neap_shape){2, {3, 4}}, &error));
    for (int i = 0; i < 12; i++)
      neap_element_set(NEAP_DTYPE_F32, neap_tensor_data(&s->t), i, (double)i / 2);
  }
  if (parts & DB) {
    CHECK_OK(neap_db_open(db_path, &s->db, &error));
    s->recorded = (neap_options){.db = s->db, .profile = NEAP_ON};
    s->options = options = &s->recorded;
  }
  if (parts & (NET | FORWARD | IMAGE | LOOPS | ENDLESS | SCOPES | FOUND)) read_net(s, parts);
  if (parts & READER) {
    const neap_batch_field field = {.source = s->t, .dtype = NEAP_DTYPE_F64, .scale = 1};
    CHECK_OK(neap_batch_reader_new(1, &field, 2, 3, DIM(2, 0, 1), false, &s->reader, &error));
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
  neap_db_close(s->db);
}

/* ---- what a scene holds, as text ------------------------------------------------------------- */

static void look_at_net(const char *title, const neap_net *net, neap_buffer *out) {
  char *text = NULL;
  if (net == NULL) return;
  CHECK_OK(neap_net_text(net, &text, &error));
  neap_buffer_add(out, "%s:\n%s", title, text);
  neap_free(text);
}

static void look_at_bytes(const void *data, size_t n, neap_buffer *out) {
  char text[33] = "none";
  if (data != NULL) neap_hash_text(neap_hash_bytes(data, n), text);
  neap_buffer_add(out, " %d bytes %s", (int)n, text);
}

static void look_at_numbers(const neap_array *a, neap_buffer *out) {
  neap_buffer_add(out, " %d %d", (int)a->dtype, a->n_dim);
  look_at_bytes(a->data, (size_t)a->bytes, out);
}

/* A run that fails leaves what its net gives out undefined, and where that lies. */
static bool outlives_a_failed_run(const neap_blob_row *row) {
  return row->borrowed || strcmp(row->role, "parameter") == 0 || strcmp(row->role, "state") == 0 ||
         strcmp(row->role, "input") == 0;
}

static void look_at_workspace(const char *title, neap_workspace *ws, bool run, neap_buffer *out) {
  neap_blob_row *row = NULL;
  int n = 0;
  if (ws == NULL) return;
  /* waits for bytes that are under way to a bank */
  (void)neap_workspace_shape(ws, "x", NULL, NULL, NULL, NULL);
  CHECK_OK(neap_workspace_blobs(ws, &row, &n, &error));
  for (int i = 0; i < n; i++) {
    if (strcmp(row[i].kind, "transient") == 0 || (run && !outlives_a_failed_run(&row[i]))) continue;
    neap_buffer_add(out, "%s.%s %s %s %s %s", title, row[i].name, row[i].kind, row[i].role,
                    row[i].region, row[i].bank);
    for (int d = 0; d < row[i].shape.n; d++)
      neap_buffer_add(out, " %d", (int)row[i].shape.number[d]);
    if (strcmp(row[i].kind, "tensor") == 0 && row[i].bytes > 0) {
      int64_t n_elems = 1;
      for (int d = 0; d < row[i].shape.n; d++) n_elems *= row[i].shape.number[d];
      double *data = malloc((size_t)n_elems * sizeof *data);
      if (data == NULL) abort();
      neap_status status =
        neap_workspace_read(ws, row[i].name, NEAP_DTYPE_F64, n_elems, data, NULL);
      neap_buffer_add(out, " %s", neap_status_text(status));
      look_at_bytes(status == NEAP_OK ? data : NULL, (size_t)n_elems * sizeof *data, out);
      free(data);
    } else if (strcmp(row[i].kind, "string") == 0) {
      const char *text = "";
      size_t n_bytes = 0;
      CHECK_OK(neap_workspace_fetch_string(ws, row[i].name, &text, &n_bytes, &error));
      neap_buffer_add(out, " %.*s", (int)n_bytes, text);
    }
    neap_buffer_add(out, "\n");
  }
  neap_free(row);
  for (int i = 0; neap_workspace_net_at(ws, i) != NULL; i++)
    neap_buffer_add(out, "%s has net %s\n", title, neap_net_name(neap_workspace_net_at(ws, i)));
}

static void look_at_figures(const char *title, const neap_figures *f, neap_buffer *out) {
  neap_buffer_add(
    out, "%s: %d ops, arena %lld of %lld, bound %lld, total %lld, %lld steps, proved %d\n", title,
    (int)f->n_op, (long long)f->arena_bytes, (long long)f->baseline_bytes,
    (long long)f->lower_bound_bytes, (long long)f->total_bytes, (long long)f->n_step, f->proved);
}

static void look_at_session(const char *title, neap_session *session, neap_buffer *out) {
  if (session == NULL) return;
  neap_figures f = neap_session_figures(session);
  look_at_figures(title, &f, out);
}

static void look_at_chain(const char *title, const neap_chain *chain, bool run, neap_buffer *out) {
  if (chain == NULL) return;
  for (neap_list list = NEAP_LIST_PARAMS; list <= (run ? NEAP_LIST_PARAMS : NEAP_LIST_CACHES);
       list++)
    for (int i = 0; i < neap_chain_n(chain, list); i++) {
      neap_entry e = {0};
      neap_status status = neap_chain_entry(chain, list, i, &e, NULL);
      neap_buffer_add(out, "%s[%d][%d] %s %s", title, (int)list, i, neap_status_text(status),
                      status == NEAP_OK ? e.name : "");
      if (status == NEAP_OK) look_at_numbers(&e.data, out);
      if (status == NEAP_OK && !run) look_at_numbers(&e.diff, out);
      neap_buffer_add(out, "\n");
    }
}

static void look_at_micro(const char *title, const neap_micro *micro, neap_buffer *out) {
  if (micro == NULL) return;
  neap_figures f = neap_micro_figures(micro);
  look_at_figures(title, &f, out);
  neap_buffer_add(out, "%s holds %d, rows %d\n", title, (int)neap_micro_n_held(micro),
                  (int)neap_micro_rows(micro));
}

/* Elements one by one: looking must not change what there is. */
static void look_at_tensor(const char *title, const neap_tensor *t, neap_buffer *out) {
  if (t->storage == NULL) return;
  char shape[NEAP_SHAPE_TEXT];
  neap_buffer_add(out, "%s %s %s:", title, neap_dtype_name(t->dtype),
                  neap_shape_text(&t->shape, shape));
  for (int64_t i = 0; neap_tensor_is_dense(t) && i < neap_tensor_elems(t); i++)
    neap_buffer_add(out, " %g", neap_element_get(t->dtype, neap_tensor_data(t), i));
  neap_buffer_add(out, "\n");
}

static void look_at_scope(const scene *s, neap_buffer *out) {
  if (s->scope == NULL) return;
  neap_buffer_add(out, "scope has %d frames, empty %d\n", neap_scope_n_frames(s->scope),
                  neap_scope_empty(s->scope));
}

static void look_at_range(const char *title, const neap_range *range, neap_buffer *out) {
  if (range == NULL) return;
  neap_figures f = neap_range_figures(range);
  look_at_figures(title, &f, out);
}

static void look_at_plan(const char *title, const neap_memory_plan *plan, neap_buffer *out) {
  if (plan == NULL) return;
  neap_figures f = neap_memory_plan_figures(plan);
  look_at_figures(title, &f, out);
}

/* Without the time that planning took. */
static void look_at_text(const char *text, neap_buffer *out) {
  const char *time = strstr(text, "planned in ");
  int n = time != NULL ? (int)(time - text) : (int)strlen(text);
  neap_buffer_add(out, "text: %.*s%s\n", n, text, time != NULL ? strchr(time, '\n') : "");
}

/* What was there before the call. `run`: only what a failed run leaves alone. */
static char *look(const scene *s, bool run) {
  neap_buffer out = {0};
  look_at_tensor("tensor", &s->t, &out);
  look_at_net("net", s->net, &out);
  for (int i = 0; i < 2; i++) look_at_net("layer", s->layer[i], &out);
  look_at_workspace("ws", s->ws, run, &out);
  look_at_workspace("child", s->child, run, &out);
  look_at_session("session", s->session, &out);
  look_at_plan("plan", s->plan, &out);
  if (s->cache != NULL) neap_buffer_add(&out, "cache has %d\n", neap_cache_n(s->cache));
  look_at_micro("micro", s->micro, &out);
  look_at_chain("chain", s->chain, run, &out);
  look_at_scope(s, &out);
  look_at_range("range", s->range, &out);
  if (out.failed) abort();
  char *text = strdup(out.text != NULL ? out.text : "");
  neap_buffer_fini(&out);
  if (text == NULL) abort();
  return text;
}

/* That, and what the call gave. */
static char *look_at_all(const scene *s) {
  neap_buffer out = {0};
  char *before = look(s, false);
  neap_buffer_add(&out, "%s", before);
  free(before);
  look_at_tensor("out", &s->out_t, &out);
  look_at_net("out", s->out_net, &out);
  look_at_net("out2", s->out_net2, &out);
  look_at_workspace("out", s->out_ws, false, &out);
  look_at_workspace("frame", s->frame, false, &out);
  look_at_session("out", s->out_session, &out);
  look_at_micro("out", s->out_micro, &out);
  look_at_chain("out", s->out_chain, false, &out);
  look_at_range("out", s->out_range, &out);
  look_at_plan("out", s->out_plan, &out);
  if (s->text != NULL) look_at_text(s->text, &out);
  for (int i = 0; i < MOST_OUT; i++) neap_buffer_add(&out, " %.17g", s->number[i]);
  if (out.failed) abort();
  char *text = strdup(out.text);
  neap_buffer_fini(&out);
  if (text == NULL) abort();
  return text;
}

/* Whether the call gave anything. */
static bool has_results(const scene *s) {
  return s->out_t.storage || s->out_net || s->out_net2 || s->out_ws || s->frame || s->out_session ||
         s->out_micro || s->out_chain || s->out_range || s->out_plan || s->out_log || s->text ||
         s->block;
}

/* ---- the calls ------------------------------------------------------------------------------- */

#define CALL(name) static neap_status call_##name(scene *s, neap_error *error)
/* A call without a status: it only must not ask for memory. */
#define QUIET(name, body) \
  CALL(name) {            \
    (void)s, (void)error; \
    body;                 \
    return NEAP_OK;       \
  }

QUIET(version, s->number[0] = neap_version()[0])
QUIET(status_text, s->number[0] = neap_status_text(NEAP_MEMORY)[0])
QUIET(error_clear, neap_error_clear(&(neap_error){.code = NEAP_MEMORY}))

CALL(net_read) { return neap_net_read(train_text, &s->out_net, error); }
CALL(net_read_loops) {
  char text[sizeof loops_text + 20];
  snprintf(text, sizeof text, loops_text, ", max = 20");
  return neap_net_read(text, &s->out_net, error);
}
CALL(net_read_image) { return neap_net_read(image_text, &s->out_net, error); }
CALL(net_read_scopes) { return neap_net_read(scopes_text, &s->out_net, error); }
CALL(net_new) { return neap_net_new("fresh", &s->out_net, error); }
CALL(net_add_op) {
  return neap_net_add_text(s->net, error, "more_%d = Tanh(%s) on cpu:1", 3, "loss");
}
CALL(net_add_input) { return neap_net_add_text(s->net, error, "input more f32 (4,%d)", 3); }
CALL(net_add_param) {
  return neap_net_add_text(s->net, error, "param more f32 (4,3) = Gaussian { std = 0.5 }");
}
CALL(net_add_bank) { return neap_net_add_text(s->net, error, "bank fast h, r"); }
CALL(net_add_outputs) { return neap_net_add_text(s->net, error, "outputs loss, h"); }
CALL(net_add_keep) { return neap_net_add_text(s->net, error, "keep r"); }
CALL(net_add_gradient) {
  return neap_net_add_gradient(s->net, "u", 0, NULL, NULL, "file.lua:3", error);
}
CALL(net_add_gradient_of) {
  return neap_net_add_gradient_of(s->net, "u", 2, NAMES("w", "x"), NAMES("gw", "gx"), true, NULL,
                                  error);
}
QUIET(net_name, s->number[0] = neap_net_name(s->net)[0])
CALL(net_text) { return neap_net_text(s->net, &s->text, error); }
QUIET(net_retain, neap_net_free(neap_net_retain(s->net)))
QUIET(net_free, neap_net_free(s->net); s->net = NULL)
CALL(net_expand) { return neap_net_expand(s->net, NULL, &s->out_net, error); }

CALL(workspace_open) { return neap_workspace_open(9, &s->out_ws, error); }
QUIET(workspace_release, neap_workspace_release(s->ws); s->ws = NULL)
CALL(workspace_write_new) {
  return neap_workspace_write(s->ws, "new", NEAP_DTYPE_F64, 1, DIM(2), (double[]){1, 2}, error);
}
CALL(workspace_write_again) {
  return neap_workspace_write(s->ws, "x", NEAP_DTYPE_F32, 2, DIM(1, 2), (float[]){1, 2}, error);
}
CALL(workspace_write_param) {
  return neap_workspace_write(s->ws, "b", NEAP_DTYPE_F32, 1, DIM(3), (float[]){1, 2, 3}, error);
}
CALL(workspace_read) {
  return neap_workspace_read(s->ws, "y", NEAP_DTYPE_F64, 4, s->number, error);
}
CALL(workspace_read_arena) {
  return neap_workspace_read(s->ws, "loss", NEAP_DTYPE_F64, 1, s->number, error);
}
CALL(workspace_shape) {
  neap_dtype dtype;
  int n_dim = 0;
  int64_t dim[NEAP_MAX_DIM] = {0};
  neap_status status = neap_workspace_shape(s->ws, "x", &dtype, &n_dim, dim, error);
  s->number[0] = n_dim, s->number[1] = (double)dim[0];
  return status;
}
CALL(workspace_touch) { return neap_workspace_touch(s->ws, "w", error); }
CALL(workspace_save) { return neap_workspace_save(s->ws, saved_path, 0, NULL, error); }
CALL(workspace_load) {
  return neap_workspace_load(s->ws, checkpoint_path, NEAP_IO_COPY, NULL, error);
}
CALL(workspace_load_mapped) {
  return neap_workspace_load(s->ws, checkpoint_path, NEAP_IO_MAP_WRITE, NULL, error);
}
CALL(workspace_export) { return neap_workspace_export(s->ws, s->net, saved_path, error); }
CALL(workspace_import) {
  return neap_workspace_import(s->ws, export_path, NEAP_IO_COPY, &s->out_net, error);
}
CALL(workspace_import_mapped) {
  return neap_workspace_import(s->ws, export_path, NEAP_IO_MAP_WRITE, &s->out_net, error);
}
QUIET(mapped_bytes, s->number[0] = (double)neap_mapped_bytes())
QUIET(memory_available, neap_memory_available())
CALL(workspace_assign) {
  return neap_workspace_assign(s->ws, 2, NAMES("x", "y"),
                               &(neap_bank){"fast", 4096, NEAP_BANK_ORDINARY}, false, error);
}
CALL(workspace_assign_later) {
  return neap_workspace_assign(s->ws, 2, NAMES("x", "y"),
                               &(neap_bank){"fast", 4096, NEAP_BANK_ORDINARY}, true, error);
}

QUIET(option_at, neap_option_at(0))
CALL(options_set) {
  neap_options o = {0};
  neap_status status = neap_options_set(&o, "budget", "64MiB", error);
  s->number[0] = (double)o.budget;
  return status;
}
CALL(options_json) { return neap_options_json(s->options, &s->text, error); }

static void figures_out(scene *s, const neap_figures *f) {
  s->number[0] = (double)f->arena_bytes, s->number[1] = (double)f->total_bytes,
  s->number[2] = (double)f->n_op;
  s->number[3] = (double)f->n_recomputed, s->number[4] = (double)f->lower_bound_bytes;
}
CALL(net_forecast) {
  neap_figures f = {0};
  neap_status status = neap_net_forecast(s->net, s->options, &f, &s->text, error);
  figures_out(s, &f);
  return status;
}
CALL(net_dry_run) {
  neap_status status = neap_net_dry_run(s->net, s->options, &s->out_log, error);
  if (status == NEAP_OK)
    s->number[0] = (double)s->out_log->planned_bytes, s->number[1] = s->out_log->n_row;
  return status;
}
CALL(dry_run_rows) { return neap_dry_run_rows(s->log, NEAP_ROW_DRY_SLOT, &s->out_rows, error); }
CALL(dry_run_text) { return neap_dry_run_text(s->log, &s->text, error); }
QUIET(dry_run_free, neap_dry_run_free(s->log); s->log = NULL)
CALL(net_count) {
  neap_counts before = {0}, after = {0};
  neap_status status = neap_net_count(s->net, s->options, &before, &after, error);
  s->number[0] = (double)before.total_bytes, s->number[1] = (double)after.total_bytes;
  return status;
}
QUIET(workspace_drop_gradients, neap_workspace_drop_gradients(s->ws))
CALL(net_rewrites) { return neap_net_rewrites(s->net, NULL, &s->text, error); }

CALL(session_open) { return neap_session_open(s->ws, s->net, s->options, &s->out_session, error); }
CALL(session_run) { return neap_session_run(s->session, error); }
QUIET(session_figures, neap_session_figures(s->session))
QUIET(session_trim, neap_session_trim(s->session))
CALL(session_explain) { return neap_session_explain(s->session, NULL, &s->text, error); }
CALL(session_explain_blob) { return neap_session_explain(s->session, "h", &s->text, error); }
QUIET(session_free, neap_session_free(s->session); s->session = NULL)

CALL(range_open) { return neap_range_open(s->net, 8, s->options, &s->out_range, error); }
CALL(range_session) {
  return neap_range_session(s->range, s->ws, s->net, 3, s->options, &s->out_session, error);
}
CALL(range_session_largest) {
  return neap_range_session(s->range, s->ws, s->net, 6, s->options, &s->out_session, error);
}
QUIET(range_figures, neap_range_figures(s->range))
QUIET(range_free, neap_range_free(s->range); s->range = NULL)
QUIET(range_warning, s->number[0] = neap_range_warning(s->range)[0])
CALL(range_count) {
  neap_counts before, after;
  neap_status status = neap_range_count(s->range, s->net, s->options, &before, &after, error);
  s->number[0] = status == NEAP_OK ? (double)after.total_bytes : 0;
  return status;
}
CALL(net_batch_inputs) {
  int n = 0;
  neap_status status = neap_net_batch_inputs(s->net, 2, (neap_input **)&s->block, &n, error);
  s->number[0] = n;
  return status;
}
static neap_status at_batch(void *context, int64_t n, const neap_net **net, neap_options *options,
                            neap_error *error) {
  scene *s = context;
  int n_input;
  neap_free(s->block);
  s->block = NULL;
  NEAP_TRY(neap_net_batch_inputs(s->net, n, (neap_input **)&s->block, &n_input, error));
  *net = s->net;
  *options = (neap_options){.total = 4000, .n_inputs = n_input, .inputs = s->block};
  return NEAP_OK;
}
CALL(fit_batch) {
  const neap_fit_search search = {.net = at_batch, .context = s, .max = 8};
  int64_t batch = 0;
  neap_status status = neap_fit_batch(&search, &batch, &s->out_plan, error);
  neap_free(s->block);
  s->block = NULL;
  s->number[0] = status == NEAP_OK ? (double)batch : 0;
  return status;
}
CALL(micro_beside) {
  neap_net *part = NULL, *update = NULL;
  neap_beside beside = {0};
  neap_status status = neap_net_split_micro(s->net, &part, &update, error);
  if (status == NEAP_OK) status = neap_micro_beside(update, NULL, s->options, &beside, error);
  s->number[0] = status == NEAP_OK ? (double)beside.bytes : 0;
  neap_net_free(part);
  neap_net_free(update);
  return status;
}
CALL(workspace_run_micro) {
  neap_tensor x = {0}, y = {0};
  neap_status status = neap_workspace_fetch(s->ws, "x", &x, error);
  if (status == NEAP_OK) status = neap_workspace_fetch(s->ws, "y", &y, error);
  const neap_micro_part part[] = {{s->part, 2, 0.5}, {s->part, 2, 0.5}};
  const neap_micro_input input[] = {{"x", x}, {"y", y}};
  const neap_micro_step step = {.n_input = 2,
                                .input = input,
                                .n_part = 2,
                                .part = part,
                                .after = {NULL, s->update},
                                .lend = true};
  if (status == NEAP_OK) status = neap_workspace_run_micro(s->ws, &step, error);
  neap_tensor_fini(&x);
  neap_tensor_fini(&y);
  return status;
}

/* ---- plans to ask ---- */

CALL(memory_plan_new) {
  return neap_memory_plan_new(s->net, s->options, NULL, &s->out_plan, error);
}
CALL(memory_plan_new_in_range) {
  return neap_memory_plan_new(s->net, s->options, s->range, &s->out_plan, error);
}
CALL(session_plan) { return neap_session_plan(s->session, &s->out_plan, error); }
QUIET(memory_plan_free, neap_memory_plan_free(s->plan); s->plan = NULL)
QUIET(memory_plan_warning, s->number[0] = neap_memory_plan_warning(s->plan)[0])
QUIET(memory_plan_figures, s->number[0] = (double)neap_memory_plan_figures(s->plan).total_bytes)
CALL(memory_plan_rows) {
  return neap_memory_plan_rows(s->plan, NEAP_ROW_VALUE, &s->out_rows, error);
}
QUIET(memory_plan_value, s->number[0] = neap_memory_plan_value(s->plan, "h"))
QUIET(memory_plan_gone, s->number[0] = neap_memory_plan_gone(s->plan, "h", (const char *[]){NULL}))
CALL(memory_plan_explain) { return neap_memory_plan_explain(s->plan, "h", &s->text, error); }
CALL(memory_plan_why) { return neap_memory_plan_why(s->plan, "h", "r", &s->text, error); }
CALL(memory_plan_peak) { return neap_memory_plan_peak(s->plan, &s->text, error); }
/* It ends with the time that planning took. */
CALL(memory_plan_text) {
  char *text = NULL;
  neap_status status = neap_memory_plan_text(s->plan, &text, error);
  for (const char *at = text; at != NULL && *at != '\0'; at++) s->number[0] += *at == '\n';
  neap_free(text);
  return status;
}
CALL(memory_plan_graph_text) { return neap_memory_plan_graph_text(s->plan, &s->text, error); }
CALL(memory_plan_dot) { return neap_memory_plan_dot(s->plan, 1, &s->text, error); }
CALL(memory_plan_svg) { return neap_memory_plan_svg(s->plan, &s->text, error); }
CALL(memory_plan_verify) { return neap_memory_plan_verify(s->plan, error); }
CALL(memory_plan_dry_run) { return neap_memory_plan_dry_run(s->plan, s->net, &s->out_log, error); }
CALL(net_graph_text) { return neap_net_graph_text(s->net, s->options, true, &s->text, error); }
CALL(net_graph_hash) {
  char text[33] = "";
  neap_status status = neap_net_graph_hash(s->net, s->options, text, error);
  s->number[0] = text[0];
  return status;
}
CALL(rows_at) {
  const void *row = NULL;
  neap_status status = neap_rows_at(s->rows, 0, &row, error);
  s->number[0] = row != NULL;
  return status;
}

CALL(net_fit_batch) {
  int64_t batch = 0;
  neap_figures f = {0};
  neap_status status = neap_net_fit_batch(s->net, s->options, 3, &batch, &f, error);
  figures_out(s, &f);
  s->number[5] = (double)batch;
  return status;
}
CALL(micro_open) { return neap_micro_open(s->ws, s->net, 3, s->options, &s->out_micro, error); }
CALL(micro_open_fitting) {
  return neap_micro_open(s->ws, s->net, 0, s->options, &s->out_micro, error);
}
CALL(micro_run) { return neap_micro_run(s->micro, 2, (double[]){1, 0.5}, error); }
CALL(micro_add) { return neap_micro_add(s->micro, 0, NULL, 3, error); }
CALL(micro_update) { return neap_micro_update(s->micro, error); }
QUIET(micro_n_held, neap_micro_n_held(s->micro))
QUIET(micro_rows, neap_micro_rows(s->micro))
QUIET(micro_figures, neap_micro_figures(s->micro))
QUIET(micro_free, neap_micro_free(s->micro); s->micro = NULL)
CALL(net_split_micro) { return neap_net_split_micro(s->net, &s->out_net, &s->out_net2, error); }

CALL(net_recycle) {
  neap_recycle_figures f = {0};
  neap_status status = neap_net_recycle(s->net, NULL, &s->out_net, &f, error);
  s->number[0] = (double)f.planned_bytes;
  return status;
}
CALL(net_recycle_exact) {
  neap_recycle_options o = {.dag = true,
                            .exact = true,
                            .prefix = "shared/",
                            .order = "least_memory",
                            .keep_last = 1,
                            .n_dont_share = 1,
                            .dont_share = NAMES("h")};
  neap_recycle_figures f = {0};
  neap_status status = neap_net_recycle(s->net, &o, &s->out_net, &f, error);
  s->number[0] = (double)f.planned_bytes;
  return status;
}
CALL(net_release_when_used) {
  int n = 0;
  neap_status status =
    neap_net_release_when_used(s->net, 1, NAMES("h"), &s->out_net, NULL, &n, error);
  s->number[0] = n;
  return status;
}
CALL(net_estimate_memory) {
  neap_memory_estimate e = {0};
  neap_status status =
    neap_net_estimate_memory(2, (const neap_net *const[]){s->net, s->net}, NULL, NULL, &e, error);
  s->number[0] = (double)e.total_bytes, s->number[1] = (double)e.high_bytes,
  s->number[2] = e.n_type;
  s->block = e.by_type;
  return status;
}
CALL(net_same) {
  bool same = false;
  neap_status status =
    neap_net_same(s->net, s->net, NEAP_SAME_GRAPH | NEAP_SAME_IN_PLACE, &same, &s->text, error);
  s->number[0] = same;
  return status;
}
CALL(net_same_not) {
  bool same = true;
  neap_status status = neap_net_same(s->net, s->layer[0], NEAP_SAME_GRAPH, &same, &s->text, error);
  s->number[0] = same;
  return status;
}
CALL(net_rename) {
  return neap_net_rename(s->net, 2, NAMES("h", "r"), NAMES("H", "R"), &s->out_net, error);
}
CALL(net_sort) {
  int position[100] = {0};
  neap_status status = neap_net_sort(s->net, "least_memory", position, error);
  for (int i = 0; i < 4; i++) s->number[i] = position[i];
  return status;
}
CALL(net_interference) {
  int n = 0;
  neap_status status = neap_net_interference(s->net, &n, (int(**)[2]) & s->block, error);
  s->number[0] = n;
  return status;
}
CALL(net_recycle_slots) {
  neap_recycle_figures f = {0};
  int n = 0;
  neap_status status = neap_net_recycle_slots(s->net, NULL, &s->out_net, &f,
                                              (neap_recycle_slot **)&s->block, &n, error);
  s->number[0] = n;
  return status;
}
CALL(net_write_out) { return neap_net_write_out(s->net, s->options, &s->out_net, error); }
CALL(net_reorder) {
  int position[64] = {0};
  neap_status status = neap_net_sort(s->net, "longest_path", position, error);
  return status == NEAP_OK ? neap_net_reorder(s->net, position, &s->out_net, error) : status;
}
CALL(lives_open) {
  neap_lives *lives = NULL;
  neap_status status = neap_lives_open(s->net, NULL, &lives, error);
  s->number[0] = lives != NULL;
  neap_lives_free(lives);
  return status;
}
QUIET(lives_free, neap_lives_free(s->lives); s->lives = NULL)
QUIET(lives_n, s->number[0] = neap_lives_n(s->lives))
QUIET(lives_at, s->number[0] = neap_lives_at(s->lives, 1).first)
QUIET(lives_conflict, s->number[0] = neap_lives_conflict(s->lives, 0, 1))
QUIET(assign_best_slot, s->number[0] = neap_assign_best_slot(2, (const int64_t[]){8, 64},
                                                             (const bool[]){true, true}, 16))
CALL(net_live_ranges) {
  int n = 0;
  neap_status status = neap_net_live_ranges(s->net, (neap_live_range **)&s->block, &n, error);
  s->number[0] = n;
  return status;
}
static const neap_assign_item items[] = {
  {64, 0, 0, 2, "a"}, {128, 0, 3, 5, "b"}, {64, 0, 1, 4, "c"}, {256, 1, 0, 9, "d"},
  {64, 0, 6, 7, "e"}, {192, 0, 5, 8, "f"}, {64, 1, 2, 3, "g"}, {64, 0, 2, 6, "h"}};
enum { N_ITEM = NEAP_COUNT(items) };
static neap_status assign(scene *s, bool exact, neap_error *error) {
  int slot[N_ITEM] = {0};
  neap_assign_figures f = {0};
  neap_status status =
    neap_assign(N_ITEM, items, &(neap_assign_options){.exact = exact}, slot, &f, error);
  for (int i = 0; i < N_ITEM; i++) s->number[i] = slot[i];
  s->number[N_ITEM] = (double)f.bytes;
  return status;
}
CALL(assign) { return assign(s, false, error); }
CALL(assign_exact) { return assign(s, true, error); }
CALL(assign_measure) {
  neap_assign_figures f = {0};
  neap_status status =
    neap_assign_measure(N_ITEM, items, (int[N_ITEM]){0, 0, 1, 2, 0, 1, -1, 3}, &f, error);
  s->number[0] = (double)f.bytes;
  return status;
}
CALL(assign_verify) {
  (void)s;
  return neap_assign_verify(N_ITEM, items, NULL, (int[N_ITEM]){0, 0, 1, 2, 0, 1, -1, 3}, error);
}

CALL(chain_open) {
  return neap_chain_open(s->ws, 2, (const neap_net *const *)s->layer, 5, s->options, &s->out_chain,
                         error);
}
CALL(chain_add_batch) {
  return neap_chain_add_batch(s->chain, 2, (const neap_net *const *)s->fewer, error);
}
CALL(chain_forward) { return neap_chain_forward(s->chain, true, error); }
CALL(chain_evaluate) { return neap_chain_forward(s->chain, false, error); }
CALL(chain_backward) { return neap_chain_backward(s->chain, error); }
QUIET(chain_n, neap_chain_n(s->chain, NEAP_LIST_CACHES))
CALL(chain_entry) {
  neap_entry e = {0};
  neap_status status = neap_chain_entry(s->chain, NEAP_LIST_OUTPUTS, 1, &e, error);
  s->number[0] = (double)e.data.bytes;
  return status;
}
CALL(chain_param) {
  neap_entry e = {0};
  neap_status status = neap_chain_param(s->chain, "u", &e, error);
  s->number[0] = (double)e.data.bytes;
  return status;
}
CALL(chain_attach_param) {
  static float mine[2] = {3, 4};
  return neap_chain_attach_param(s->chain, "mine", NEAP_DTYPE_F32, 1, DIM(2), mine, error);
}
CALL(chain_drop) { return neap_chain_drop(s->chain, NEAP_LIST_OUTPUTS, 0, error); }
CALL(chain_pop) {
  neap_entry e = {0};
  neap_status status = neap_chain_pop(s->chain, 0, NULL, &e, error);
  s->number[0] = (double)e.data.bytes;
  return status;
}
QUIET(chain_n_layers, s->number[0] = neap_chain_n_layers(s->chain))
QUIET(chain_warning, s->number[0] = neap_chain_warning(s->chain)[0])
QUIET(chain_has_batch, s->number[0] = neap_chain_has_batch(s->chain, 4))
CALL(chain_item_at) {
  neap_chain_item item = {0};
  neap_status status = neap_chain_item_at(s->chain, NEAP_LIST_PARAMS, 0, &item, error);
  s->number[0] = status == NEAP_OK ? (double)neap_tensor_bytes(&item.data) : 0;
  neap_chain_item_fini(&item);
  return status;
}
QUIET(chain_cache, s->number[0] = neap_cache_n(neap_chain_cache(s->chain, 0)))
CALL(cache_new) {
  neap_cache *cache = NULL;
  neap_status status = neap_cache_new("another layer", &cache, error);
  s->number[0] = cache != NULL;
  neap_cache_free(cache);
  return status;
}
QUIET(cache_free, neap_cache_free(s->cache); s->cache = NULL)
QUIET(cache_name, s->number[0] = neap_cache_name(s->cache)[0])
QUIET(cache_n, s->number[0] = neap_cache_n(s->cache))
QUIET(cache_label, s->number[0] = neap_cache_label(s->cache, 0)[0])
CALL(cache_push) {
  NEAP_TRY(neap_cache_push(s->cache, &s->t, "one", error));
  return neap_cache_push(s->cache, &s->t, NULL, error);
}
CALL(cache_pop) {
  return neap_cache_pop(s->cache, &(neap_cache_want){.label = "pushed"}, &s->out_t, error);
}
QUIET(cache_clear, neap_cache_clear(s->cache))
QUIET(chain_clear, neap_chain_clear(s->chain))
QUIET(chain_free, neap_chain_free(s->chain); s->chain = NULL)

QUIET(db_default_path, s->number[0] = neap_db_default_path() != NULL)
CALL(db_open) {
  neap_db *db = NULL;
  (void)s;
  neap_status status = neap_db_open(db_path, &db, error);
  neap_db_close(db);
  return status;
}
QUIET(db_retain, neap_db_close(neap_db_retain(s->db)))
QUIET(db_close, neap_db_close(s->db); s->db = NULL)
QUIET(db_path, s->number[0] = neap_db_path(s->db)[0])
QUIET(db_is_readonly, s->number[0] = neap_db_is_readonly(s->db))
QUIET(db_set_timeout, neap_db_set_timeout(s->db, 100))
static const char question[] =
  "SELECT 'net' AS name, :x AS number, x'00ff', NULL UNION SELECT 1, 2, 3, 4";
static const neap_sql_value param[] = {{.name = ":x", .type = NEAP_SQL_REAL, .real = 2.5}};
static bool count_columns(void *context, int n, const neap_sql_value *value) {
  (void)value;
  *(double *)context += n;
  return true;
}
CALL(db_query) {
  double n = 0;
  neap_status status = neap_db_query(s->db, question, 1, param, count_columns, &n, error);
  if (status == NEAP_OK) s->number[0] = n;
  return status;
}
CALL(db_rows) {
  neap_status status =
    neap_db_rows(s->db, question, 1, param, true, (neap_sql_rows **)&s->block, error);
  if (status == NEAP_OK) s->number[0] = ((neap_sql_rows *)s->block)->value[5].real;
  return status;
}
CALL(db_check) { return neap_db_check(s->db, &s->text, error); }
CALL(db_backup) { return neap_db_backup(s->db, copy_path, error); }
CALL(db_prune) {
  int64_t n = -1;
  neap_status status = neap_db_prune(s->db, 30, &n, error);
  s->number[0] = status == NEAP_OK ? (double)n : 0;
  return status;
}
QUIET(session_plan_id, s->number[0] = neap_session_plan_id(s->session) > 0)
QUIET(session_run_id, s->number[0] = (double)neap_session_run_id(s->session))
QUIET(session_warning, s->number[0] = neap_session_warning(s->session)[0])
CALL(session_metric) { return neap_session_metric(s->session, "a figure", 3, 0.5, error); }
CALL(session_record) {
  neap_status status = neap_session_record(s->session, "ok", error);
  s->number[0] = neap_session_run_id(s->session) > 0;
  return status;
}
QUIET(dtype_bytes, s->number[0] = (double)neap_dtype_bytes(NEAP_DTYPE_F16))
QUIET(dtype_name, s->number[0] = neap_dtype_name(NEAP_DTYPE_F16)[0])
QUIET(dtype_from_name, s->number[0] = neap_dtype_from_name("i64"))
QUIET(dtype_is_float, s->number[0] = neap_dtype_is_float(NEAP_DTYPE_F16))
QUIET(dtype_is_integer, s->number[0] = neap_dtype_is_integer(NEAP_DTYPE_F16))
QUIET(shape_of, s->number[0] = neap_shape_of(2, DIM(2, 3)).n_dim)
QUIET(shape_equal, s->number[0] = neap_shape_equal(&s->t.shape, &s->t.shape))
QUIET(shape_elems, s->number[0] = (double)neap_shape_elems(&s->t.shape))
QUIET(shape_text, s->number[0] = neap_shape_text(&s->t.shape, (char[NEAP_SHAPE_TEXT]){0})[1])
QUIET(tensor_retain, neap_tensor t = neap_tensor_retain(&s->t); neap_tensor_fini(&t))
QUIET(tensor_fini, neap_tensor_fini(&s->t))
QUIET(tensor_data, s->number[0] = *(float *)(void *)neap_tensor_data(&s->t))
QUIET(tensor_elems, s->number[0] = (double)neap_tensor_elems(&s->t))
QUIET(tensor_bytes, s->number[0] = (double)neap_tensor_bytes(&s->t))
QUIET(tensor_is_dense, s->number[0] = neap_tensor_is_dense(&s->t))
QUIET(tensor_is_read_only, s->number[0] = neap_tensor_is_read_only(&s->t))
QUIET(tensor_touch, neap_tensor_touch(&s->t))
QUIET(element_get, s->number[0] = neap_element_get(NEAP_DTYPE_F32, neap_tensor_data(&s->t), 4))
QUIET(element_get_i64,
      s->number[0] = (double)neap_element_get_i64(NEAP_DTYPE_F32, neap_tensor_data(&s->t), 4))
QUIET(element_set, neap_element_set(NEAP_DTYPE_F32, neap_tensor_data(&s->t), 4, 0.5))
QUIET(element_set_i64, neap_element_set_i64(NEAP_DTYPE_F32, neap_tensor_data(&s->t), 4, 3))
CALL(tensor_new) {
  NEAP_TRY(neap_tensor_new(&s->out_t, NEAP_DTYPE_F32, &(neap_shape){2, {3, 4}}, error));
  memset(neap_tensor_data(&s->out_t), 0, neap_tensor_bytes(&s->out_t)); /* it was undefined */
  return NEAP_OK;
}
CALL(tensor_borrow) {
  return neap_tensor_borrow(&s->out_t, NEAP_DTYPE_F64, &(neap_shape){1, {3}}, s->number, NULL, NULL,
                            error);
}
CALL(tensor_narrow) { return neap_tensor_narrow(&s->t, 1, 0, 2, 2, &s->out_t, error); }
CALL(tensor_select) { return neap_tensor_select(&s->t, 0, 1, &s->out_t, error); }
CALL(tensor_permute) { return neap_tensor_permute(&s->t, (const int[]){1, 0}, &s->out_t, error); }
CALL(tensor_expand) {
  return neap_tensor_expand(&s->t, &(neap_shape){3, {2, 3, 4}}, &s->out_t, error);
}
CALL(tensor_reshape_view) {
  return neap_tensor_reshape_view(&s->t, 2, DIM(2, -1), &s->out_t, error);
}
CALL(tensor_copy) {
  neap_tensor t = {0};
  neap_status status = neap_tensor_permute(&s->t, (const int[]){1, 0}, &t, NULL);
  neap_tensor square = s->t;
  square.shape.dim[1] = 3; /* 3 of 4 columns: overlapping, turned */
  t.shape.dim[0] = 3;
  if (status == NEAP_OK) status = neap_tensor_copy(&square, &t, error);
  neap_tensor_fini(&t);
  if (status != NEAP_OK) return status;
  s->number[0] = neap_element_get(NEAP_DTYPE_F32, neap_tensor_data(&s->t), 1);
  return NEAP_OK;
}
CALL(tensor_clone) { return neap_tensor_clone(&s->t, NEAP_DTYPE_F64, &s->out_t, error); }
CALL(tensor_hash) {
  char text[33] = "";
  neap_status status = neap_tensor_hash(&s->t, text, error);
  s->number[0] = text[0];
  return status;
}
CALL(tensor_text) { return neap_tensor_text(&s->t, NULL, "t", &s->text, error); }
CALL(workspace_feed) { return neap_workspace_feed(s->ws, "fed", &s->t, false, error); }
CALL(workspace_fetch) { return neap_workspace_fetch(s->ws, "x", &s->out_t, error); }
CALL(workspace_view) { return neap_workspace_view(s->ws, "x", &s->out_t, NULL, error); }
QUIET(workspace_generation, neap_workspace_generation(s->ws))
QUIET(workspace_retain, neap_workspace_release(neap_workspace_retain(s->ws)))
QUIET(op_count, s->number[0] = neap_op_count())
QUIET(op_at, s->number[0] = neap_op_at(0) != NULL)
QUIET(op_find, s->number[0] = neap_op_find("Relu") != NULL)
QUIET(op_suggest, s->number[0] = neap_op_suggest("Rellu")[0])
QUIET(op_name, s->number[0] = neap_op_name(neap_op_at(3))[0])
QUIET(op_n_attrs, s->number[0] = neap_op_n_attrs(neap_op_find("Conv")))
QUIET(op_attr_at, s->number[0] = neap_op_attr_at(neap_op_find("Conv"), 1)->type)
QUIET(op_attr_index, s->number[0] = neap_op_attr_index(neap_op_find("Conv"), "pad"))
QUIET(op_n_results, s->number[0] = neap_op_n_results(neap_op_find("Dropout")))
QUIET(op_read, s->number[0] = neap_op_read(neap_op_find("Conv")).n_input)
CALL(op_help) { return neap_op_help(neap_op_find("Conv"), &s->text, error); }
CALL(run_op) { return neap_run_op("Tanh", 1, &s->t, NULL, 1, &s->out_t, error); }
QUIET(draw_seed, neap_draw_seed(3))
QUIET(memory_read, neap_memory_read())
QUIET(memory_reset_high, neap_memory_reset_high())
QUIET(pool_totals, neap_pool_totals(&(int64_t){0}, &(int64_t){0}))
QUIET(process_resident_bytes, neap_process_resident_bytes())
QUIET(process_resident_peak_bytes, neap_process_resident_peak_bytes())
QUIET(memory_watch, neap_memory_watch(NULL))
QUIET(memory_failed, neap_memory_failed())
/* Which would end what the sweep itself asks for. */
QUIET(memory_fail_nth, (void)neap_memory_fail_nth)
QUIET(threads, s->number[0] = neap_threads())
QUIET(threads_set, neap_threads_set(1))
QUIET(threads_complaint, neap_threads_complaint((char[160]){0}))
QUIET(clock_ns, neap_clock_ns())
QUIET(n_planned, neap_n_planned())
QUIET(kernel_set_text, neap_kernel_set_text((char[160]){0}))
QUIET(instruction_set, s->number[0] = neap_instruction_set()[0])
QUIET(fail, neap_fail(&(neap_error){0}, NEAP_NAME, "%d", 3))
QUIET(fail_memory, neap_fail_memory(&(neap_error){0}, 10, "a thing"))
QUIET(hint, neap_hint(&(neap_error){0}, "try %s", "again"))
QUIET(bytes_parse, neap_bytes_parse("8 MiB", &s->number[0]))
QUIET(bytes_text, s->number[0] = neap_bytes_text(5000, (char[24]){0})[0])
QUIET(text_distance, s->number[0] = neap_text_distance("abc", "bcd"))
CALL(intern) {
  const char *name = neap_intern("a name that nothing else has");
  s->number[0] = name != NULL;
  return name != NULL ? NEAP_OK : neap_fail_memory(error, 30, "a name");
}
CALL(intern_n) {
  const char *name = neap_intern_n("another name, cut", 12);
  s->number[0] = name != NULL;
  return name != NULL ? NEAP_OK : neap_fail_memory(error, 30, "a name");
}
QUIET(role_name, s->number[0] = neap_role_name(NEAP_ROLE_STATE)[0])
CALL(net_declare) {
  return neap_net_declare(s->net, "more", NEAP_ROLE_PARAMETER,
                          &(neap_type){NEAP_DTYPE_F32, {1, {3}}}, true, "Constant",
                          (neap_set[]){NEAP_SET_FLOAT("value", 2), {0}}, "a:1", error);
}
CALL(net_add) {
  const neap_net_call relu = {
    .type = "Relu", .n_in = 1, .in = NAMES("h"), .n_out = 1, .out = NAMES("more"), .typed = true};
  int at = 0;
  neap_status status = neap_net_add(s->net, &relu, &at, error);
  s->number[0] = at;
  return status;
}
CALL(net_set_outputs) { return neap_net_set_outputs(s->net, 2, NAMES("loss", "h"), error); }
CALL(net_keep) { return neap_net_keep(s->net, "h", error); }
CALL(net_assign) { return neap_net_assign(s->net, "h", "fast", error); }
CALL(net_gradient) {
  return neap_net_gradient(s->net, "total", 1, NAMES("w"), false, "a:2", error);
}
CALL(net_clone) { return neap_net_clone(s->net, &s->out_net, error); }
CALL(net_new_sub) {
  neap_net *sub = NULL;
  return neap_net_new_sub(s->net, "sub", &sub, error);
}
CALL(net_new_closed_sub) {
  neap_net *sub = NULL;
  return neap_net_new_closed_sub(s->net, "sub", &sub, error);
}
CALL(net_copy_sub) {
  neap_net *sub = NULL;
  return neap_net_copy_sub(s->net, s->layer[0], &sub, error);
}
CALL(net_set_sub_interface) {
  return neap_net_set_sub_interface(s->sub, 1, NAMES("p"), 1, NAMES("p"), error);
}
CALL(net_take_type) {
  return neap_net_take_type(s->sub, "p", &(neap_type){NEAP_DTYPE_F32, {1, {3}}}, error);
}
QUIET(net_mark, neap_net_end_mark(s->net, neap_net_mark(s->net), true))
QUIET(net_end_mark, neap_net_end_mark(s->net, neap_net_mark(s->net), false))
CALL(net_type_of) {
  neap_type type = {0};
  neap_status status = neap_net_type_of(s->net, "h2", &type, error);
  s->number[0] = type.shape.n_dim;
  return status;
}
CALL(net_check_types) { return neap_net_check_types(s->net, error); }
CALL(net_check_types_of_scopes) { return neap_net_check_types(s->net, error); }
QUIET(net_version, neap_net_version(s->net))
QUIET(net_is_train, s->number[0] = neap_net_is_train(s->net))
QUIET(net_n_ops, s->number[0] = neap_net_n_ops(s->net))
QUIET(net_op_at, s->number[0] = neap_net_op_at(s->net, 1)->n_in)
QUIET(net_n_blobs, s->number[0] = neap_net_n_blobs(s->net))
QUIET(net_blob_at, s->number[0] = neap_net_blob_at(s->net, 1)->role)
QUIET(net_find_blob, s->number[0] = neap_net_find_blob(s->net, "h")->role)
QUIET(net_n_outputs, s->number[0] = neap_net_n_outputs(s->net))
QUIET(net_output_at, s->number[0] = neap_net_output_at(s->net, 0)[0])
CALL(net_text_with) { return neap_net_text_with(s->net, true, &s->text, error); }
QUIET(net_is_scope, s->number[0] = neap_net_is_scope(s->net, "s"))
CALL(net_split_hold) {
  neap_net *micro = NULL, *update = NULL;
  neap_status status = neap_net_split_micro(s->net, &micro, &update, error);
  if (status == NEAP_OK) status = neap_net_split_hold(update, &s->out_net, &s->out_net2, error);
  neap_net_free(micro), neap_net_free(update);
  return status;
}
/* They look a name up, which they intern first. */
CALL(net_local) {
  const char *name = neap_net_local(s->net, "s", "w");
  s->number[0] = name != NULL;
  return name != NULL ? NEAP_OK : neap_fail_memory(error, 30, "a name");
}
CALL(net_has_local) {
  bool has = neap_net_has_local(s->net, "s.1/w");
  s->number[0] = has;
  return has ? NEAP_OK : neap_fail_memory(error, 30, "a name");
}
static neap_status load(scene *s, const char *path, neap_io_map map, neap_error *error) {
  neap_io_list list;
  neap_status status = neap_io_load(path, map, &list, error);
  s->number[0] = list.n_item;
  neap_io_list_fini(&list);
  return status;
}
CALL(io_load) { return load(s, checkpoint_path, NEAP_IO_COPY, error); }
CALL(io_load_mapped) { return load(s, checkpoint_path, NEAP_IO_MAP_READ, error); }
QUIET(io_list_fini, neap_io_list_fini(&(neap_io_list){0}))
QUIET(io_list_find, s->number[0] = neap_io_list_find(&(neap_io_list){0}, "w") == NULL)
QUIET(io_list_meta, s->number[0] = neap_io_list_meta(&(neap_io_list){0}, "w") == NULL)
CALL(io_save) {
  return neap_io_save(saved_path, 1, &(neap_io_item){(char *)"t", s->t}, 1,
                      &(neap_io_pair){(char *)"a", (char *)"b"}, error);
}
static const char idx[] =
  "\0\0\x08\x01\0\0\0\x03"
  "abc";
CALL(io_read_idx) { return neap_io_read_idx(idx_path, &s->out_t, error); }
CALL(io_read_text) {
  neap_io_bytes bytes = {0};
  neap_status status = neap_io_read_text(idx_path, &bytes, error);
  s->number[0] = (double)bytes.n;
  s->block = bytes.data;
  return status;
}
CALL(io_read_gz_bytes) {
  neap_io_bytes bytes = {0};
  neap_status status = neap_io_read_gz_bytes(idx_path, &bytes, error);
  s->number[0] = (double)bytes.n;
  s->block = bytes.data;
  return status;
}
CALL(io_write_png) {
  (void)s;
  return neap_io_write_png(saved_path, 2, 2, 1, (const uint8_t *)"abcd", error);
}
CALL(io_write_text) {
  (void)s;
  return neap_io_write_text(saved_path, idx, sizeof idx - 1, error);
}
CALL(batch_reader_new) {
  neap_batch_reader *reader = NULL;
  const neap_batch_field field = {.source = s->t, .dtype = NEAP_DTYPE_F64, .scale = 1};
  neap_status status = neap_batch_reader_new(1, &field, 2, 3, DIM(2, 0, 1), false, &reader, error);
  s->number[0] = reader != NULL;
  neap_batch_reader_free(reader);
  return status;
}
QUIET(batch_reader_next, s->number[0] = (double)neap_batch_reader_next(s->reader, &s->out_t))
QUIET(batch_reader_free, neap_batch_reader_free(s->reader); s->reader = NULL)
QUIET(engine_list, s->number[0] = neap_engine_list(0, &(neap_engine_row){0}))
QUIET(embedded_find, s->number[0] = neap_embedded_find("db/views.sql", NULL) != NULL)
QUIET(embedded_at, s->number[0] = neap_embedded_at(0, NULL, NULL) != NULL)

CALL(workspace_open_child) {
  return neap_workspace_open_child(s->ws, 0, NULL, NULL, &s->out_ws, error);
}
CALL(workspace_open_child_of) {
  return neap_workspace_open_child(s->ws, 2, NAMES("in", "label"), NAMES("x", "y"), &s->out_ws,
                                   error);
}
CALL(workspace_create) { return neap_workspace_create(s->ws, "made", false, error); }
CALL(workspace_create_local) { return neap_workspace_create(s->child, "x", true, error); }
QUIET(workspace_has, neap_workspace_has(s->ws, "x"))
QUIET(workspace_remove, neap_workspace_remove(s->ws, "x"))
CALL(workspace_rename) { return neap_workspace_rename(s->ws, "x", "z", error); }
CALL(workspace_forward) { return neap_workspace_forward(s->child, "seen", "x", false, error); }
CALL(workspace_feed_string) {
  return neap_workspace_feed_string(s->ws, "more_words", "text", 4, error);
}
CALL(workspace_feed_string_again) {
  return neap_workspace_feed_string(s->ws, "words", "other text", 10, error);
}
CALL(workspace_fetch_string) {
  const char *text = "";
  size_t n = 0;
  neap_status status = neap_workspace_fetch_string(s->ws, "words", &text, &n, error);
  s->number[0] = (double)n;
  return status;
}
CALL(workspace_add_net) {
  neap_status status = neap_workspace_add_net(s->ws, neap_net_retain(s->net), false, error);
  if (status != NEAP_OK) neap_net_free(s->net);
  return status;
}
CALL(workspace_new) {
  const neap_workspace_options o = {.seed = 3,
                                    .parent = s->ws,
                                    .n_forward = 1,
                                    .forward_name = NAMES("in"),
                                    .forward_target = NAMES("x")};
  return neap_workspace_new(&o, &s->out_ws, error);
}
CALL(workspace_list) {
  neap_workspace **list = NULL;
  int n = 0;
  neap_status status = neap_workspace_list(&list, &n, error);
  for (int i = 0; i < n; i++) neap_workspace_release(list[i]);
  neap_free(list);
  s->number[0] = n;
  return status;
}
QUIET(workspace_parent, s->number[0] = neap_workspace_parent(s->child) == s->ws)
CALL(workspace_init) { return neap_workspace_init(s->ws, s->net, error); }
QUIET(workspace_seed, s->number[0] = (double)neap_workspace_seed(s->ws))
QUIET(workspace_set_seed, neap_workspace_set_seed(s->ws, 9))
QUIET(workspace_step, s->number[0] = neap_workspace_step(s->ws))
QUIET(workspace_set_step, neap_workspace_set_step(s->ws, 9))
QUIET(workspace_look_draw, s->number[0] = neap_workspace_look_draw(s->ws, true).step)
QUIET(workspace_give_draw, neap_workspace_give_draw(s->ws, NULL))
QUIET(workspace_held_bytes, s->number[0] = (double)neap_workspace_held_bytes(s->ws))
QUIET(workspace_arena_bytes, s->number[0] = (double)neap_workspace_arena_bytes(s->ws))
QUIET(workspace_trim_pool, s->number[0] = (double)neap_workspace_trim_pool(s->ws))
QUIET(workspace_finish_moves, neap_workspace_finish_moves(s->ws))
QUIET(workspace_set_poison, neap_workspace_set_poison(s->ws, true))
CALL(workspace_mark_new) {
  neap_workspace_mark *mark = NULL;
  neap_status status = neap_workspace_mark_new(s->ws, true, 1, NAMES("x"), &mark, error);
  neap_workspace_mark_free(mark);
  return status;
}
CALL(workspace_mark_undo) {
  neap_workspace_mark *mark = NULL;
  neap_status status = neap_workspace_mark_new(s->ws, true, 1, NAMES("x"), &mark, error);
  if (status == NEAP_OK) status = neap_workspace_create(s->ws, "made", false, error);
  if (mark != NULL) neap_workspace_mark_undo(mark, 1, NAMES("x"));
  neap_workspace_mark_free(mark);
  return status;
}
QUIET(workspace_mark_free, neap_workspace_mark_free(NULL))
QUIET(workspace_kind, s->number[0] = neap_workspace_kind(s->ws, "words"))
QUIET(workspace_n_blobs, s->number[0] = neap_workspace_n_blobs(s->ws))
CALL(workspace_copy_forwarded) {
  neap_workspace *child = NULL;
  neap_status status = neap_workspace_open_child(s->ws, 1, NAMES("in"), NAMES("x"), &child, error);
  if (status == NEAP_OK) status = neap_workspace_copy_forwarded(child, error);
  neap_workspace_release(child);
  return status;
}
CALL(workspace_call_op) {
  return neap_workspace_call_op(s->ws, "Mul", 2, NAMES("x", "x"), NULL, 1, NAMES("z"), error);
}
CALL(workspace_scope) {
  neap_scope *scope = NULL;
  neap_status status = neap_workspace_scope(s->ws, "scope", &scope, error);
  s->number[0] = scope == s->scope;
  return status;
}
QUIET(scope_retain, neap_scope_release(neap_scope_retain(s->scope)))
QUIET(scope_n_kept, s->number[0] = neap_scope_n_kept(s->scope))
QUIET(scope_frame_at, s->number[0] = neap_scope_frame_at(s->scope, 0) != NULL)
CALL(scope_check) { return neap_scope_check(s->scope, error); }
CALL(scope_check_bindings) {
  return neap_scope_check_bindings(s->scope, false, 1, NAMES("inner"), NAMES("x"), error);
}
QUIET(session_frames_bytes, s->number[0] = (double)neap_session_frames_bytes(s->session))
QUIET(session_lacks_blob, s->number[0] = neap_session_lacks_blob(s->session))
QUIET(session_is_timed, s->number[0] = neap_session_is_timed(s->session))
QUIET(option_find, s->number[0] = neap_option_find("budget") != NULL)
CALL(option_refuse) {
  neap_error own = {0};
  (void)error;
  s->number[0] = neap_option_refuse(neap_option_at(0), "a test", &own);
  return NEAP_OK;
}
CALL(options_check) {
  (void)s;
  return neap_options_check(&(neap_options){.budget = 64}, NEAP_FACE_C, "a test", error);
}
QUIET(bank_kind_from_name, s->number[0] = neap_bank_kind_from_name("huge", &(neap_bank_kind){0}))
QUIET(workspace_sort_blobs, neap_workspace_sort_blobs(NULL, 0))
QUIET(workspace_net, neap_workspace_net(s->ws, "train"))
QUIET(workspace_net_at, neap_workspace_net_at(s->ws, 0))
QUIET(workspace_delete_net, neap_workspace_delete_net(s->ws, "train"))
CALL(workspace_run_once) { return neap_workspace_run_once(s->ws, s->net, s->options, NULL, error); }
CALL(workspace_run_op) { return neap_workspace_run_op(s->ws, "z = Mul(x, x)", error); }
CALL(workspace_run_op_over) {
  return neap_workspace_run_op(s->ws, "x, m = Dropout(x) { rate = 0.3, training = true }", error);
}
CALL(workspace_create_scope) {
  neap_scope *scope = NULL;
  return neap_workspace_create_scope(s->ws, "another_scope", &scope, error);
}
CALL(workspace_empty_scope) {
  neap_scope *scope = NULL;
  return neap_workspace_create_scope(s->ws, "scope", &scope, error);
}
CALL(scope_push) {
  return neap_scope_push(s->scope, s->ws, 1, NAMES("inner"), NAMES("x"), &s->frame, error);
}
CALL(scope_reuse_last) {
  return neap_scope_reuse_last(s->scope, s->ws, 1, NAMES("label"), NAMES("y"), &s->frame, error);
}
CALL(scope_pop_gradient) {
  return neap_scope_pop_gradient(s->scope, s->ws, 1, NAMES("label"), NAMES("y"), &s->frame, error);
}
QUIET(scope_clear, neap_scope_clear(s->scope))
QUIET(scope_empty, neap_scope_empty(s->scope))
QUIET(scope_n_frames, neap_scope_n_frames(s->scope))
QUIET(scope_trim, neap_scope_trim(s->scope))
QUIET(scope_held_bytes, neap_scope_held_bytes(s->scope))
CALL(workspace_run_steps) {
  const neap_step leaf = {.n_net = 1, .net = NAMES("train"), .iterations = 2};
  const neap_step root = {
    .n_step = 1, .step = &leaf, .iterations = 2, .report_net = "train", .report_every_ms = 60000};
  return neap_workspace_run_steps(s->ws, &root, s->options, NULL, error);
}
CALL(workspace_run_steps_beside) {
  const neap_step leaf[2] = {
    {.n_net = 1, .net = NAMES("forward"), .create_workspace = true, .n_instance = 2},
    {.n_net = 1, .net = NAMES("forward"), .create_workspace = true}};
  return neap_workspace_run_steps(
    s->ws, &(neap_step){.n_step = 2, .step = leaf, .concurrent = true}, s->options, NULL, error);
}

CALL(net_dot) { return neap_net_dot(s->net, &s->text, error); }
CALL(net_dot_folded) { return neap_net_dot_folded(s->net, 1, &s->text, error); }
CALL(net_plan_dot) { return neap_net_plan_dot(s->net, s->options, &s->text, error); }
CALL(net_plan_svg) { return neap_net_plan_svg(s->net, s->options, &s->text, error); }
CALL(net_rows) { return neap_net_rows(s->net, s->options, NEAP_ROW_VALUE, &s->out_rows, error); }
CALL(session_rows) { return neap_session_rows(s->session, NEAP_ROW_VALUE, &s->out_rows, error); }
CALL(rows_next) {
  const void *row = NULL;
  neap_status status = neap_rows_next(s->rows, &row, error);
  s->number[0] = row != NULL;
  return status;
}
CALL(net_rows_of_dry_run) {
  return neap_net_rows(s->net, s->options, NEAP_ROW_DRY_ROW, &s->out_rows, error);
}
CALL(session_rows_of_pool) {
  return neap_session_rows(s->session, NEAP_ROW_POOL, &s->out_rows, error);
}
CALL(workspace_rows) { return neap_workspace_rows(s->ws, &s->out_rows, error); }
CALL(rows_sub) { return neap_rows_sub(s->rows, 0, NEAP_ROW_VALUE, &s->out_rows, error); }
CALL(rows_json) { return neap_rows_json(s->rows, &s->text, error); }
QUIET(rows_free, neap_rows_free(s->rows); s->rows = NULL)
QUIET(column_at, neap_column_at(NEAP_ROW_OP, 0))
QUIET(row_kind_name, neap_row_kind_name(NEAP_ROW_OP, NULL))
QUIET(datum_of, neap_datum_of(neap_column_at(NEAP_ROW_REGION, 0), &(neap_region_row){0}))
QUIET(session_op_row, neap_session_op_row(s->session, 0, &(neap_run_op_row){0}))
CALL(session_dot) { return neap_session_dot(s->session, &s->text, error); }
CALL(session_svg) { return neap_session_svg(s->session, &s->text, error); }
CALL(workspace_blobs) {
  int n = 0;
  neap_status status = neap_workspace_blobs(s->ws, (neap_blob_row **)&s->block, &n, error);
  s->number[0] = n;
  return status;
}
CALL(workspace_table) { return neap_workspace_table(s->ws, &s->text, error); }
CALL(workspace_svg) { return neap_workspace_svg(s->ws, &s->text, error); }
CALL(text_save) {
  (void)s;
  return neap_text_save("a text", saved_path, error);
}
QUIET(session_pool, neap_session_pool(s->session))
QUIET(interrupt, neap_interrupt(false))
QUIET(free, neap_free(s->block); s->block = NULL)

/* ---- the table ------------------------------------------------------------------------------- */

static const neap_options plain = {.threads = 1}, in_dag = {.executor = "dag"},
                          by_name = {.policy = "name"}, without_plan = {.policy = "none"},
                          in_pool = {.policy = "pool"}, dynamic = {.executor = "dynamic"},
                          in_budget = {.budget = 448}, in_total = {.total = 3000},
                          accumulated = {.accumulate = "sum"};
static const neap_mem_param caffe = {.n_exclude_blob = 1, .exclude_blob = NAMES("h")};
static const neap_options with_keeps = {.mem_param = &caffe, .n_keep = 1, .keep = NAMES("r")};
static const neap_bank bank = {"fast", 4096, NEAP_BANK_ORDINARY};
static const neap_options in_banks = {.n_banks = 1, .banks = &bank};

static const entry table[] = {
  {"neap_version", 0, call_version, NULL, true},
  {"neap_status_text", 0, call_status_text, NULL, true},
  {"neap_error_clear", 0, call_error_clear, NULL, true},
  {"neap_net_read", 0, call_net_read, NULL, false},
  {"neap_net_read", 0, call_net_read_loops, NULL, false},
  {"neap_net_read", 0, call_net_read_image, NULL, false},
  {"neap_net_read", 0, call_net_read_scopes, NULL, false},
  {"neap_net_new", 0, call_net_new, NULL, false},
  {"neap_net_add_text", NET, call_net_add_op, NULL, false},
  {"neap_net_add_text", NET, call_net_add_input, NULL, false},
  {"neap_net_add_text", NET, call_net_add_param, NULL, false},
  {"neap_net_add_text", NET, call_net_add_bank, NULL, false},
  {"neap_net_add_text", NET, call_net_add_outputs, NULL, false},
  {"neap_net_add_text", NET, call_net_add_keep, NULL, false},
  {"neap_net_add_gradient", FORWARD, call_net_add_gradient, NULL, false},
  {"neap_net_add_gradient_of", FORWARD, call_net_add_gradient_of, NULL, false},
  {"neap_net_name", NET, call_net_name, NULL, true},
  {"neap_net_text", NET, call_net_text, NULL, false},
  {"neap_net_text", LOOPS, call_net_text, NULL, false},
  {"neap_net_retain", NET, call_net_retain, NULL, true},
  {"neap_net_free", NET, call_net_free, NULL, true},
  {"neap_net_expand", NET, call_net_expand, NULL, false},
  {"neap_net_expand", LOOPS, call_net_expand, NULL, false},
  {"neap_net_expand", SCOPES, call_net_expand, NULL, false},
  {"neap_workspace_open", 0, call_workspace_open, NULL, false},
  {"neap_workspace_release", WS, call_workspace_release, NULL, true},
  {"neap_workspace_write", WS, call_workspace_write_new, NULL, false},
  {"neap_workspace_write", WS, call_workspace_write_again, NULL, false},
  {"neap_workspace_write", WS | NET | SESSION, call_workspace_write_param, NULL, false},
  {"neap_workspace_write", WS | NET | SESSION, call_workspace_write_again, NULL, false},
  {"neap_workspace_read", WS, call_workspace_read, NULL, false},
  {"neap_workspace_read", WS | NET | SESSION, call_workspace_read_arena, NULL, false},
  {"neap_workspace_shape", WS, call_workspace_shape, NULL, false},
  {"neap_workspace_touch", WS | NET | SESSION, call_workspace_touch, NULL, false},
  {"neap_workspace_save", WS | NET | SESSION, call_workspace_save, NULL, false},
  {"neap_workspace_load", WS | FILES, call_workspace_load, NULL, false},
  {"neap_workspace_load", WS | NET | SESSION | FILES, call_workspace_load, NULL, false},
  {"neap_workspace_load", WS | FILES, call_workspace_load_mapped, NULL, false},
  {"neap_workspace_export", WS | FORWARD | SESSION, call_workspace_export, NULL, false},
  {"neap_workspace_export", WS | NET | SESSION, call_workspace_export, NULL, false},
  {"neap_workspace_import", WS | FILES, call_workspace_import, NULL, false},
  {"neap_workspace_import", WS | FILES, call_workspace_import_mapped, NULL, false},
  {"neap_mapped_bytes", 0, call_mapped_bytes, NULL, true},
  {"neap_memory_available", 0, call_memory_available, NULL, true},
  {"neap_workspace_assign", WS, call_workspace_assign, NULL, false},
  {"neap_workspace_assign", WS, call_workspace_assign_later, NULL, false},
  {"neap_option_find", 0, call_option_find, NULL, true},
  {"neap_option_refuse", 0, call_option_refuse, NULL, true},
  {"neap_options_check", 0, call_options_check, NULL, true},
  {"neap_bank_kind_from_name", 0, call_bank_kind_from_name, NULL, true},
  {"neap_range_warning", NET | RANGE, call_range_warning, NULL, true},
  {"neap_range_count", NET | RANGE, call_range_count, NULL, false},
  {"neap_net_batch_inputs", NET, call_net_batch_inputs, NULL, false},
  {"neap_fit_batch", NET, call_fit_batch, NULL, false},
  {"neap_micro_beside", NET, call_micro_beside, NULL, false},
  {"neap_workspace_run_micro", WS | NET | PARTS | RUN, call_workspace_run_micro, NULL, false},
  {"neap_memory_plan_new", NET, call_memory_plan_new, NULL, false},
  {"neap_memory_plan_new", LOOPS, call_memory_plan_new, &in_pool, false},
  {"neap_memory_plan_new", NET | RANGE, call_memory_plan_new_in_range, NULL, false},
  {"neap_session_plan", WS | NET | SESSION, call_session_plan, NULL, false},
  {"neap_memory_plan_free", NET | HANDLES, call_memory_plan_free, NULL, true},
  {"neap_memory_plan_warning", NET | HANDLES, call_memory_plan_warning, NULL, true},
  {"neap_memory_plan_figures", NET | HANDLES, call_memory_plan_figures, NULL, true},
  {"neap_memory_plan_rows", NET | HANDLES, call_memory_plan_rows, NULL, false},
  {"neap_memory_plan_value", NET | HANDLES, call_memory_plan_value, NULL, true},
  {"neap_memory_plan_gone", NET | HANDLES, call_memory_plan_gone, NULL, true},
  {"neap_memory_plan_explain", NET | HANDLES, call_memory_plan_explain, NULL, false},
  {"neap_memory_plan_why", NET | HANDLES, call_memory_plan_why, NULL, false},
  {"neap_memory_plan_peak", NET | HANDLES, call_memory_plan_peak, NULL, false},
  {"neap_memory_plan_text", NET | HANDLES, call_memory_plan_text, NULL, false},
  {"neap_memory_plan_graph_text", NET | HANDLES, call_memory_plan_graph_text, NULL, false},
  {"neap_memory_plan_dot", NET | HANDLES, call_memory_plan_dot, NULL, false},
  {"neap_memory_plan_svg", NET | HANDLES, call_memory_plan_svg, NULL, false},
  {"neap_memory_plan_verify", NET | HANDLES, call_memory_plan_verify, NULL, false},
  {"neap_memory_plan_dry_run", NET | HANDLES, call_memory_plan_dry_run, NULL, false},
  {"neap_net_graph_text", NET, call_net_graph_text, NULL, false},
  {"neap_net_graph_hash", NET, call_net_graph_hash, NULL, false},
  {"neap_rows_at", LOOPS | ROWS, call_rows_at, NULL, false},
  {"neap_net_recycle_slots", NET, call_net_recycle_slots, NULL, false},
  {"neap_net_write_out", NET, call_net_write_out, NULL, false},
  {"neap_net_reorder", FORWARD, call_net_reorder, NULL, false},
  {"neap_lives_open", NET, call_lives_open, NULL, false},
  {"neap_lives_free", NET | HANDLES, call_lives_free, NULL, true},
  {"neap_lives_n", NET | HANDLES, call_lives_n, NULL, true},
  {"neap_lives_at", NET | HANDLES, call_lives_at, NULL, true},
  {"neap_lives_conflict", NET | HANDLES, call_lives_conflict, NULL, true},
  {"neap_assign_best_slot", 0, call_assign_best_slot, NULL, true},
  {"neap_chain_n_layers", WS | CHAIN, call_chain_n_layers, NULL, true},
  {"neap_chain_warning", WS | CHAIN, call_chain_warning, NULL, true},
  {"neap_chain_has_batch", WS | CHAIN, call_chain_has_batch, NULL, true},
  {"neap_chain_item_at", WS | CHAIN, call_chain_item_at, NULL, false},
  {"neap_chain_item_fini", WS | CHAIN, call_chain_item_at, NULL, false},
  {"neap_chain_cache", WS | CHAIN, call_chain_cache, NULL, true},
  {"neap_cache_new", 0, call_cache_new, NULL, false},
  {"neap_cache_free", NET | TENSOR | HANDLES, call_cache_free, NULL, true},
  {"neap_cache_name", NET | TENSOR | HANDLES, call_cache_name, NULL, true},
  {"neap_cache_n", NET | TENSOR | HANDLES, call_cache_n, NULL, true},
  {"neap_cache_label", NET | TENSOR | HANDLES, call_cache_label, NULL, true},
  {"neap_cache_push", NET | TENSOR | HANDLES, call_cache_push, NULL, false},
  {"neap_cache_pop", NET | TENSOR | HANDLES, call_cache_pop, NULL, false},
  {"neap_cache_clear", NET | TENSOR | HANDLES, call_cache_clear, NULL, true},
  {"neap_workspace_new", WS, call_workspace_new, NULL, false},
  {"neap_workspace_list", WS | SCOPE, call_workspace_list, NULL, false},
  {"neap_workspace_parent", WS | SCOPE, call_workspace_parent, NULL, true},
  {"neap_workspace_init", WS | NET, call_workspace_init, NULL, false},
  {"neap_workspace_seed", WS, call_workspace_seed, NULL, true},
  {"neap_workspace_set_seed", WS, call_workspace_set_seed, NULL, true},
  {"neap_workspace_step", WS, call_workspace_step, NULL, true},
  {"neap_workspace_set_step", WS, call_workspace_set_step, NULL, true},
  {"neap_workspace_look_draw", WS, call_workspace_look_draw, NULL, true},
  {"neap_workspace_give_draw", WS, call_workspace_give_draw, NULL, true},
  {"neap_workspace_held_bytes", WS, call_workspace_held_bytes, NULL, true},
  {"neap_workspace_arena_bytes", WS, call_workspace_arena_bytes, NULL, true},
  {"neap_workspace_trim_pool", WS, call_workspace_trim_pool, NULL, true},
  {"neap_workspace_finish_moves", WS, call_workspace_finish_moves, NULL, true},
  {"neap_workspace_set_poison", WS, call_workspace_set_poison, NULL, true},
  {"neap_workspace_mark_new", WS, call_workspace_mark_new, NULL, false},
  {"neap_workspace_mark_undo", WS, call_workspace_mark_undo, NULL, false},
  {"neap_workspace_mark_free", WS, call_workspace_mark_free, NULL, true},
  {"neap_workspace_kind", WS, call_workspace_kind, NULL, true},
  {"neap_workspace_n_blobs", WS, call_workspace_n_blobs, NULL, true},
  {"neap_workspace_copy_forwarded", WS, call_workspace_copy_forwarded, NULL, false},
  {"neap_workspace_call_op", WS, call_workspace_call_op, NULL, false},
  {"neap_workspace_scope", WS | SCOPE, call_workspace_scope, NULL, false},
  {"neap_scope_retain", WS | SCOPE, call_scope_retain, NULL, true},
  {"neap_scope_release", WS | SCOPE, call_scope_retain, NULL, true},
  {"neap_scope_n_kept", WS | SCOPE, call_scope_n_kept, NULL, true},
  {"neap_scope_frame_at", WS | SCOPE, call_scope_frame_at, NULL, true},
  {"neap_scope_check", WS | SCOPE, call_scope_check, NULL, false},
  {"neap_scope_check_bindings", WS | SCOPE, call_scope_check_bindings, NULL, false},
  {"neap_session_frames_bytes", WS | NET | SESSION, call_session_frames_bytes, NULL, true},
  {"neap_session_lacks_blob", WS | NET | SESSION, call_session_lacks_blob, NULL, true},
  {"neap_session_is_timed", WS | NET | SESSION, call_session_is_timed, NULL, true},
  {"neap_workspace_sort_blobs", 0, call_workspace_sort_blobs, NULL, true},
  {"neap_option_at", 0, call_option_at, NULL, true},
  {"neap_options_set", 0, call_options_set, NULL, false},
  {"neap_options_json", 0, call_options_json, &with_keeps, false},
  {"neap_net_forecast", NET, call_net_forecast, &plain, false},
  {"neap_net_forecast", NET, call_net_forecast, &in_dag, false},
  {"neap_net_forecast", NET, call_net_forecast, &by_name, false},
  {"neap_net_forecast", NET, call_net_forecast, &without_plan, false},
  {"neap_net_forecast", NET, call_net_forecast, &in_pool, false},
  {"neap_net_forecast", NET, call_net_forecast, &dynamic, false},
  {"neap_net_forecast", NET, call_net_forecast, &in_budget, false},
  {"neap_net_forecast", FORWARD, call_net_forecast, NULL, false},
  {"neap_net_forecast", IMAGE, call_net_forecast, NULL, false},
  {"neap_net_forecast", LOOPS, call_net_forecast, NULL, false},
  {"neap_net_forecast", ENDLESS, call_net_forecast, NULL, false},
  {"neap_net_forecast", SCOPES, call_net_forecast, NULL, false},
  {"neap_net_dry_run", NET, call_net_dry_run, &with_keeps, false},
  {"neap_net_dry_run", FORWARD, call_net_dry_run, NULL, false},
  {"neap_dry_run_rows", NET | LOG, call_dry_run_rows, NULL, false},
  {"neap_dry_run_text", NET | LOG, call_dry_run_text, NULL, false},
  {"neap_dry_run_free", NET | LOG, call_dry_run_free, NULL, true},
  {"neap_net_count", NET, call_net_count, NULL, false},
  {"neap_workspace_drop_gradients", WS | NET | SESSION, call_workspace_drop_gradients, NULL, true},
  {"neap_net_rewrites", FORWARD, call_net_rewrites, NULL, false},
  {"neap_session_open", WS | NET, call_session_open, &plain, false},
  {"neap_session_open", WS | NET, call_session_open, &in_dag, false},
  {"neap_session_open", WS | NET, call_session_open, &by_name, false},
  {"neap_session_open", WS | NET, call_session_open, &without_plan, false},
  {"neap_session_open", WS | NET, call_session_open, &in_pool, false},
  {"neap_session_open", WS | NET, call_session_open, &dynamic, false},
  {"neap_session_open", WS | NET, call_session_open, &in_budget, false},
  {"neap_session_open", WS | NET, call_session_open, &with_keeps, false},
  {"neap_session_open", WS | NET, call_session_open, &in_banks, false},
  {"neap_session_open", WS | FORWARD, call_session_open, NULL, false},
  {"neap_session_open", WS | IMAGE, call_session_open, NULL, false},
  {"neap_session_open", WS | LOOPS, call_session_open, NULL, false},
  {"neap_session_open", WS | ENDLESS, call_session_open, NULL, false},
  {"neap_session_open", WS | SCOPES, call_session_open, NULL, false},
  {"neap_session_open", WS | FOUND, call_session_open, &dynamic, false},
  {"neap_session_run", WS | NET | OPENED | RUN, call_session_run, &plain, false},
  {"neap_session_run", WS | NET | OPENED | RUN, call_session_run, &in_dag, false},
  {"neap_session_run", WS | NET | OPENED | RUN, call_session_run, &by_name, false},
  {"neap_session_run", WS | NET | OPENED | RUN, call_session_run, &without_plan, false},
  {"neap_session_run", WS | NET | OPENED | RUN, call_session_run, &in_pool, false},
  {"neap_session_run", WS | NET | OPENED | RUN, call_session_run, &dynamic, false},
  {"neap_session_run", WS | NET | OPENED | RUN, call_session_run, &in_budget, false},
  {"neap_session_run", WS | FORWARD | OPENED | RUN, call_session_run, NULL, false},
  {"neap_session_run", WS | IMAGE | OPENED | RUN, call_session_run, NULL, false},
  {"neap_session_run", WS | LOOPS | OPENED | RUN, call_session_run, NULL, false},
  {"neap_session_run", WS | ENDLESS | OPENED | RUN, call_session_run, NULL, false},
  {"neap_session_run", WS | SCOPES | OPENED | RUN, call_session_run, NULL, false},
  {"neap_session_run", WS | FOUND | OPENED | RUN, call_session_run, &dynamic, false},
  {"neap_session_run", WS | NET | SESSION | RUN, call_session_run, NULL, false},
  {"neap_session_run", WS | NET | SESSION | FEWER | RUN, call_session_run, &dynamic, false},
  {"neap_session_figures", WS | NET | SESSION, call_session_figures, NULL, true},
  {"neap_session_trim", WS | ENDLESS | SESSION, call_session_trim, NULL, true},
  {"neap_session_explain", WS | NET | SESSION, call_session_explain, NULL, false},
  {"neap_session_explain", WS | NET | SESSION, call_session_explain_blob, NULL, false},
  {"neap_session_free", WS | NET | SESSION, call_session_free, NULL, true},
  {"neap_range_open", NET, call_range_open, NULL, false},
  {"neap_range_session", WS | NET | RANGE, call_range_session, NULL, false},
  {"neap_range_session", WS | NET | RANGE, call_range_session_largest, NULL, false},
  {"neap_range_figures", NET | RANGE, call_range_figures, NULL, true},
  {"neap_range_free", NET | RANGE, call_range_free, NULL, true},
  {"neap_net_fit_batch", NET, call_net_fit_batch, &in_total, false},
  {"neap_micro_open", WS | NET, call_micro_open, NULL, false},
  {"neap_micro_open", WS | NET, call_micro_open, &accumulated, false},
  {"neap_micro_open", WS | NET, call_micro_open_fitting, &in_total, false},
  {"neap_micro_run", WS | NET | MICRO | RUN, call_micro_run, NULL, false},
  {"neap_micro_add", WS | NET | MICRO | RUN, call_micro_add, NULL, false},
  {"neap_micro_update", WS | NET | MICRO | RUN, call_micro_update, NULL, false},
  {"neap_micro_n_held", WS | NET | MICRO, call_micro_n_held, NULL, true},
  {"neap_micro_rows", WS | NET | MICRO, call_micro_rows, NULL, true},
  {"neap_micro_figures", WS | NET | MICRO, call_micro_figures, NULL, true},
  {"neap_micro_free", WS | NET | MICRO, call_micro_free, NULL, true},
  {"neap_net_split_micro", NET, call_net_split_micro, NULL, false},
  {"neap_net_recycle", NET, call_net_recycle, NULL, false},
  {"neap_net_recycle", LOOPS, call_net_recycle, NULL, false},
  {"neap_net_recycle", NET, call_net_recycle_exact, NULL, false},
  {"neap_net_release_when_used", FORWARD, call_net_release_when_used, NULL, false},
  {"neap_net_estimate_memory", NET, call_net_estimate_memory, NULL, false},
  {"neap_net_same", LOOPS, call_net_same, NULL, false},
  {"neap_net_same", NET | LAYERS, call_net_same_not, NULL, false},
  {"neap_net_rename", NET, call_net_rename, NULL, false},
  {"neap_net_sort", FORWARD, call_net_sort, NULL, false},
  {"neap_net_interference", NET, call_net_interference, NULL, false},
  {"neap_net_live_ranges", NET, call_net_live_ranges, NULL, false},
  {"neap_assign", 0, call_assign, NULL, false},
  {"neap_assign", 0, call_assign_exact, NULL, false},
  {"neap_assign_measure", 0, call_assign_measure, NULL, false},
  {"neap_assign_verify", 0, call_assign_verify, NULL, false},
  {"neap_chain_open", WS | LAYERS, call_chain_open, NULL, false},
  {"neap_chain_open", WS | LAYERS, call_chain_open, &in_dag, false},
  {"neap_chain_add_batch", WS | CHAIN, call_chain_add_batch, NULL, false},
  {"neap_chain_forward", WS | CHAIN | RUN, call_chain_forward, NULL, false},
  {"neap_chain_forward", WS | CHAIN | FEWER | RUN, call_chain_forward, NULL, false},
  {"neap_chain_forward", WS | CHAIN | RUN, call_chain_evaluate, NULL, false},
  {"neap_chain_backward", WS | CHAIN, call_chain_backward, NULL, false},
  {"neap_chain_n", WS | CHAIN, call_chain_n, NULL, true},
  {"neap_chain_entry", WS | CHAIN, call_chain_entry, NULL, false},
  {"neap_chain_param", WS | CHAIN, call_chain_param, NULL, false},
  {"neap_chain_attach_param", WS | CHAIN, call_chain_attach_param, NULL, false},
  {"neap_chain_drop", WS | CHAIN, call_chain_drop, NULL, false},
  {"neap_chain_pop", WS | CHAIN, call_chain_pop, NULL, false},
  {"neap_chain_clear", WS | CHAIN, call_chain_clear, NULL, true},
  {"neap_chain_free", WS | CHAIN, call_chain_free, NULL, true},
  {"neap_workspace_open_child", WS, call_workspace_open_child, NULL, false},
  {"neap_workspace_open_child", WS, call_workspace_open_child_of, NULL, false},
  {"neap_workspace_create", WS, call_workspace_create, NULL, false},
  {"neap_workspace_create", WS | SCOPE, call_workspace_create_local, NULL, false},
  {"neap_workspace_has", WS, call_workspace_has, NULL, true},
  {"neap_workspace_remove", WS, call_workspace_remove, NULL, true},
  {"neap_workspace_rename", WS, call_workspace_rename, NULL, false},
  {"neap_workspace_forward", WS | SCOPE, call_workspace_forward, NULL, false},
  {"neap_workspace_feed_string", WS, call_workspace_feed_string, NULL, false},
  {"neap_workspace_feed_string", WS, call_workspace_feed_string_again, NULL, false},
  {"neap_workspace_fetch_string", WS, call_workspace_fetch_string, NULL, false},
  {"neap_workspace_add_net", WS | NET, call_workspace_add_net, NULL, false},
  {"neap_workspace_net", WS | NET | STORED, call_workspace_net, NULL, true},
  {"neap_workspace_net_at", WS | NET | STORED, call_workspace_net_at, NULL, true},
  {"neap_workspace_delete_net", WS | NET | STORED, call_workspace_delete_net, NULL, true},
  {"neap_workspace_run_once", WS | NET | RUN, call_workspace_run_once, NULL, false},
  {"neap_workspace_run_once", WS | NET | RUN, call_workspace_run_once, &in_pool, false},
  {"neap_workspace_run_once", WS | SCOPES | RUN, call_workspace_run_once, NULL, false},
  {"neap_workspace_run_op", WS, call_workspace_run_op, NULL, false},
  {"neap_workspace_run_op", WS, call_workspace_run_op_over, NULL, false},
  {"neap_workspace_create_scope", WS, call_workspace_create_scope, NULL, false},
  {"neap_workspace_create_scope", WS | SCOPE, call_workspace_empty_scope, NULL, false},
  {"neap_scope_push", WS | SCOPE, call_scope_push, NULL, false},
  {"neap_scope_push", WS | SCOPE | DEEP, call_scope_push, NULL, false},
  {"neap_scope_reuse_last", WS | SCOPE, call_scope_reuse_last, NULL, false},
  {"neap_scope_pop_gradient", WS | SCOPE, call_scope_pop_gradient, NULL, false},
  {"neap_scope_clear", WS | SCOPE, call_scope_clear, NULL, true},
  {"neap_scope_empty", WS | SCOPE, call_scope_empty, NULL, true},
  {"neap_scope_n_frames", WS | SCOPE, call_scope_n_frames, NULL, true},
  {"neap_scope_trim", WS | SCOPE, call_scope_trim, NULL, true},
  {"neap_scope_held_bytes", WS | SCOPE, call_scope_held_bytes, NULL, true},
  {"neap_workspace_run_steps", WS | NET | STORED | RUN, call_workspace_run_steps, NULL, false},
  {"neap_workspace_run_steps", WS | FORWARD | STORED | RUN, call_workspace_run_steps_beside, NULL,
   false},
  {"neap_net_dot", NET, call_net_dot, NULL, false},
  {"neap_net_dot", LOOPS, call_net_dot, NULL, false},
  {"neap_net_dot_folded", NET, call_net_dot_folded, NULL, false},
  {"neap_net_plan_dot", NET, call_net_plan_dot, NULL, false},
  {"neap_net_plan_svg", NET, call_net_plan_svg, NULL, false},
  {"neap_net_plan_dot", LOOPS, call_net_plan_dot, NULL, false},
  {"neap_net_plan_svg", LOOPS, call_net_plan_svg, NULL, false},
  {"neap_net_rows", NET, call_net_rows, NULL, false},
  {"neap_net_rows", LOOPS, call_net_rows, NULL, false},
  {"neap_session_rows", WS | NET | SESSION, call_session_rows, NULL, false},
  {"neap_net_rows", NET, call_net_rows_of_dry_run, NULL, false},
  {"neap_session_rows", WS | NET | SESSION, call_session_rows_of_pool, &in_pool, false},
  {"neap_rows_next", LOOPS | ROWS, call_rows_next, NULL, false},
  {"neap_rows_sub", LOOPS | ROWS, call_rows_sub, NULL, false},
  {"neap_rows_json", LOOPS | ROWS, call_rows_json, NULL, false},
  {"neap_rows_free", NET | ROWS, call_rows_free, NULL, true},
  {"neap_column_at", 0, call_column_at, NULL, true},
  {"neap_row_kind_name", 0, call_row_kind_name, NULL, true},
  {"neap_datum_of", 0, call_datum_of, NULL, true},
  {"neap_session_op_row", WS | NET | SESSION, call_session_op_row, NULL, true},
  {"neap_session_dot", WS | NET | SESSION, call_session_dot, NULL, false},
  {"neap_session_svg", WS | NET | SESSION, call_session_svg, NULL, false},
  {"neap_session_svg", WS | NET | SESSION, call_session_svg, &dynamic, false},
  {"neap_workspace_blobs", WS | NET | SESSION | SCOPE, call_workspace_blobs, NULL, false},
  {"neap_workspace_rows", WS | NET | SESSION | SCOPE, call_workspace_rows, NULL, false},
  {"neap_workspace_table", WS | NET | SESSION, call_workspace_table, NULL, false},
  {"neap_workspace_svg", WS | NET | SESSION, call_workspace_svg, NULL, false},
  {"neap_text_save", 0, call_text_save, NULL, false},
  {"neap_db_default_path", 0, call_db_default_path, NULL, true},
  {"neap_db_open", DB, call_db_open, NULL, false},
  {"neap_db_retain", DB, call_db_retain, NULL, true},
  {"neap_db_close", DB, call_db_close, NULL, true},
  {"neap_db_path", DB, call_db_path, NULL, true},
  {"neap_db_is_readonly", DB, call_db_is_readonly, NULL, true},
  {"neap_db_set_timeout", DB, call_db_set_timeout, NULL, true},
  {"neap_db_query", DB, call_db_query, NULL, false},
  {"neap_db_rows", DB, call_db_rows, NULL, false},
  {"neap_db_check", DB, call_db_check, NULL, false},
  {"neap_db_backup", DB, call_db_backup, NULL, false},
  {"neap_db_prune", DB, call_db_prune, NULL, false},
  {"neap_session_plan_id", WS | NET | DB | SESSION, call_session_plan_id, NULL, true},
  {"neap_session_run_id", WS | NET | DB | SESSION, call_session_run_id, NULL, true},
  {"neap_session_warning", WS | NET | DB | SESSION, call_session_warning, NULL, true},
  {"neap_session_metric", WS | NET | DB | SESSION, call_session_metric, NULL, false},
  {"neap_session_record", WS | NET | DB | SESSION, call_session_record, NULL, false},
  {"neap_dtype_bytes", 0, call_dtype_bytes, NULL, true},
  {"neap_dtype_name", 0, call_dtype_name, NULL, true},
  {"neap_dtype_from_name", 0, call_dtype_from_name, NULL, true},
  {"neap_dtype_is_float", 0, call_dtype_is_float, NULL, true},
  {"neap_dtype_is_integer", 0, call_dtype_is_integer, NULL, true},
  {"neap_shape_of", 0, call_shape_of, NULL, true},
  {"neap_shape_equal", TENSOR, call_shape_equal, NULL, true},
  {"neap_shape_elems", TENSOR, call_shape_elems, NULL, true},
  {"neap_shape_text", TENSOR, call_shape_text, NULL, true},
  {"neap_tensor_retain", TENSOR, call_tensor_retain, NULL, true},
  {"neap_tensor_fini", TENSOR, call_tensor_fini, NULL, true},
  {"neap_tensor_data", TENSOR, call_tensor_data, NULL, true},
  {"neap_tensor_elems", TENSOR, call_tensor_elems, NULL, true},
  {"neap_tensor_bytes", TENSOR, call_tensor_bytes, NULL, true},
  {"neap_tensor_is_dense", TENSOR, call_tensor_is_dense, NULL, true},
  {"neap_tensor_is_read_only", TENSOR, call_tensor_is_read_only, NULL, true},
  {"neap_tensor_touch", TENSOR, call_tensor_touch, NULL, true},
  {"neap_element_get", TENSOR, call_element_get, NULL, true},
  {"neap_element_get_i64", TENSOR, call_element_get_i64, NULL, true},
  {"neap_element_set", TENSOR, call_element_set, NULL, true},
  {"neap_element_set_i64", TENSOR, call_element_set_i64, NULL, true},
  {"neap_tensor_new", 0, call_tensor_new, NULL, false},
  {"neap_tensor_borrow", 0, call_tensor_borrow, NULL, false},
  {"neap_tensor_narrow", TENSOR, call_tensor_narrow, NULL, false},
  {"neap_tensor_select", TENSOR, call_tensor_select, NULL, false},
  {"neap_tensor_permute", TENSOR, call_tensor_permute, NULL, false},
  {"neap_tensor_expand", TENSOR, call_tensor_expand, NULL, false},
  {"neap_tensor_reshape_view", TENSOR, call_tensor_reshape_view, NULL, false},
  {"neap_tensor_copy", TENSOR, call_tensor_copy, NULL, false},
  {"neap_tensor_clone", TENSOR, call_tensor_clone, NULL, false},
  {"neap_tensor_hash", TENSOR, call_tensor_hash, NULL, false},
  {"neap_tensor_text", TENSOR, call_tensor_text, NULL, false},
  {"neap_workspace_feed", WS | TENSOR, call_workspace_feed, NULL, false},
  {"neap_workspace_fetch", WS, call_workspace_fetch, NULL, false},
  {"neap_workspace_view", WS, call_workspace_view, NULL, false},
  {"neap_workspace_generation", WS, call_workspace_generation, NULL, true},
  {"neap_workspace_retain", WS, call_workspace_retain, NULL, true},
  {"neap_op_count", 0, call_op_count, NULL, true},
  {"neap_op_at", 0, call_op_at, NULL, true},
  {"neap_op_find", 0, call_op_find, NULL, true},
  {"neap_op_suggest", 0, call_op_suggest, NULL, true},
  {"neap_op_name", 0, call_op_name, NULL, true},
  {"neap_op_n_attrs", 0, call_op_n_attrs, NULL, true},
  {"neap_op_attr_at", 0, call_op_attr_at, NULL, true},
  {"neap_op_attr_index", 0, call_op_attr_index, NULL, true},
  {"neap_op_n_results", 0, call_op_n_results, NULL, true},
  {"neap_op_read", 0, call_op_read, NULL, true},
  {"neap_op_help", 0, call_op_help, NULL, false},
  {"neap_run_op", TENSOR, call_run_op, NULL, false},
  {"neap_draw_seed", 0, call_draw_seed, NULL, true},
  {"neap_memory_read", 0, call_memory_read, NULL, true},
  {"neap_memory_reset_high", 0, call_memory_reset_high, NULL, true},
  {"neap_pool_totals", 0, call_pool_totals, NULL, true},
  {"neap_process_resident_bytes", 0, call_process_resident_bytes, NULL, true},
  {"neap_process_resident_peak_bytes", 0, call_process_resident_peak_bytes, NULL, true},
  {"neap_memory_watch", 0, call_memory_watch, NULL, true},
  {"neap_memory_failed", 0, call_memory_failed, NULL, true},
  {"neap_memory_fail_nth", 0, call_memory_fail_nth, NULL, true},
  {"neap_threads", 0, call_threads, NULL, true},
  {"neap_threads_set", 0, call_threads_set, NULL, true},
  {"neap_threads_complaint", 0, call_threads_complaint, NULL, true},
  {"neap_clock_ns", 0, call_clock_ns, NULL, true},
  {"neap_n_planned", 0, call_n_planned, NULL, true},
  {"neap_kernel_set_text", 0, call_kernel_set_text, NULL, true},
  {"neap_instruction_set", 0, call_instruction_set, NULL, true},
  {"neap_fail", 0, call_fail, NULL, true},
  {"neap_fail_memory", 0, call_fail_memory, NULL, true},
  {"neap_hint", 0, call_hint, NULL, true},
  {"neap_bytes_parse", 0, call_bytes_parse, NULL, true},
  {"neap_bytes_text", 0, call_bytes_text, NULL, true},
  {"neap_text_distance", 0, call_text_distance, NULL, true},
  {"neap_intern", 0, call_intern, NULL, false},
  {"neap_intern_n", 0, call_intern_n, NULL, false},
  {"neap_role_name", 0, call_role_name, NULL, true},
  {"neap_net_declare", NET, call_net_declare, NULL, false},
  {"neap_net_add", NET, call_net_add, NULL, false},
  {"neap_net_set_outputs", NET, call_net_set_outputs, NULL, false},
  {"neap_net_keep", NET, call_net_keep, NULL, false},
  {"neap_net_assign", NET, call_net_assign, NULL, false},
  {"neap_net_gradient", FORWARD | TOTAL, call_net_gradient, NULL, false},
  {"neap_net_clone", NET, call_net_clone, NULL, false},
  {"neap_net_new_sub", NET, call_net_new_sub, NULL, false},
  {"neap_net_new_closed_sub", NET, call_net_new_closed_sub, NULL, false},
  {"neap_net_copy_sub", NET | LAYERS, call_net_copy_sub, NULL, false},
  {"neap_net_set_sub_interface", NET | SUB, call_net_set_sub_interface, NULL, false},
  {"neap_net_take_type", NET | SUB, call_net_take_type, NULL, false},
  {"neap_net_mark", NET, call_net_mark, NULL, true},
  {"neap_net_end_mark", NET, call_net_end_mark, NULL, true},
  {"neap_net_type_of", NET, call_net_type_of, NULL, false},
  {"neap_net_check_types", LOOPS, call_net_check_types, NULL, false},
  {"neap_net_check_types", SCOPES, call_net_check_types_of_scopes, NULL, false},
  {"neap_net_version", NET, call_net_version, NULL, true},
  {"neap_net_is_train", NET, call_net_is_train, NULL, true},
  {"neap_net_n_ops", NET, call_net_n_ops, NULL, true},
  {"neap_net_op_at", NET, call_net_op_at, NULL, true},
  {"neap_net_n_blobs", NET, call_net_n_blobs, NULL, true},
  {"neap_net_blob_at", NET, call_net_blob_at, NULL, true},
  {"neap_net_find_blob", NET, call_net_find_blob, NULL, true},
  {"neap_net_n_outputs", NET, call_net_n_outputs, NULL, true},
  {"neap_net_output_at", NET, call_net_output_at, NULL, true},
  {"neap_net_text_with", NET, call_net_text_with, NULL, false},
  {"neap_net_is_scope", SCOPES, call_net_is_scope, NULL, true},
  {"neap_net_split_hold", NET, call_net_split_hold, NULL, false},
  {"neap_net_local", SCOPES, call_net_local, NULL, false},
  {"neap_net_has_local", SCOPES, call_net_has_local, NULL, false},
  {"neap_io_load", 0, call_io_load, NULL, false},
  {"neap_io_load", 0, call_io_load_mapped, NULL, false},
  {"neap_io_list_fini", 0, call_io_list_fini, NULL, true},
  {"neap_io_list_find", 0, call_io_list_find, NULL, true},
  {"neap_io_list_meta", 0, call_io_list_meta, NULL, true},
  {"neap_io_save", TENSOR, call_io_save, NULL, false},
  {"neap_io_read_idx", 0, call_io_read_idx, NULL, false},
  {"neap_io_read_text", 0, call_io_read_text, NULL, false},
  {"neap_io_read_gz_bytes", 0, call_io_read_gz_bytes, NULL, false},
  {"neap_io_write_png", 0, call_io_write_png, NULL, false},
  {"neap_io_write_text", 0, call_io_write_text, NULL, false},
  {"neap_batch_reader_new", TENSOR, call_batch_reader_new, NULL, false},
  {"neap_batch_reader_next", TENSOR | READER, call_batch_reader_next, NULL, true},
  {"neap_batch_reader_free", TENSOR | READER, call_batch_reader_free, NULL, true},
  {"neap_engine_list", 0, call_engine_list, NULL, true},
  {"neap_embedded_find", 0, call_embedded_find, NULL, true},
  {"neap_embedded_at", 0, call_embedded_at, NULL, true},
  {"neap_session_pool", WS | NET | SESSION, call_session_pool, NULL, true},
  {"neap_interrupt", 0, call_interrupt, NULL, true},
  {"neap_free", 0, call_free, NULL, true},
};

/* ---- the sweep ------------------------------------------------------------------------------- */

/* Whether the texts are equal; else the line that differs is printed. */
static bool same_text(const entry *e, int n, const char *what, const char *want, const char *got) {
  if (strcmp(want, got) == 0) return true;
  int at = 0, line = 0;
  for (; want[at] == got[at]; at++)
    if (want[at] == '\n') line = at + 1;
  printf("  %s, block %d, %s:\n    %.*s\n  where it should be\n    %.*s\n", e->name, n, what,
         (int)strcspn(got + line, "\n"), got + line, (int)strcspn(want + line, "\n"), want + line);
  check_failures++;
  return false;
}

/* The call with its n-th block refused. False: nothing was refused. */
static bool refused(const entry *e, scene *s, int n, neap_status *status, neap_error *error) {
  *error = (neap_error){0};
  neap_memory_fail_nth_block(n);
  *status = e->call(s, error);
  bool failed = neap_memory_failed();
  neap_memory_fail_nth(0, false);
  return failed;
}

static void say(const entry *e, int n, const char *what) {
  printf("  %s, block %d: %s\n", e->name, n, what);
  check_failures++;
}

/* What the call makes where nothing is refused; the caller's, to be ended by free. */
static char *without_refusal(const entry *e) {
  scene s;
  neap_error error = {0};
  open_scene(&s, e->parts, e->options);
  if (e->call(&s, &error) != NEAP_OK) say(e, 0, error.message);
  char *text = look_at_all(&s);
  close_scene(&s);
  return text;
}

static bool said(neap_status status, const neap_error *error) {
  return status == NEAP_MEMORY && error->code == NEAP_MEMORY && error->message[0] != '\0';
}

/* A workspace may keep the room that a list of its own has grown to, or its pool: refused again at
 * the same block the call must come to leave nothing more. False: it passed meanwhile. */
static bool check_leaves_nothing(const entry *e, scene *s, int n, int64_t live) {
  int64_t now = neap_memory_read().n_live;
  for (int again = 0; again < 100 && now > live; again++) {
    neap_status status;
    neap_error error;
    live = now;
    refused(e, s, n, &status, &error);
    if (status == NEAP_OK) return false;
    now = neap_memory_read().n_live;
  }
  if (now > live) say(e, n, "blocks are left");
  return true;
}

/* The call again, where nothing is refused. */
static void check_succeeds(const entry *e, scene *s, int n, const char *want) {
  neap_error error = {0};
  if (e->call(s, &error) != NEAP_OK) say(e, n, error.message);
  char *got = look_at_all(s);
  same_text(e, n, "the second time", want, got);
  free(got);
}

/* The call of a scene with block n refused. *end: nothing was refused. Returns whether the scene
 * can be used for the next block. */
static bool refuse(const entry *e, scene *s, int n, const char *want, const char *before,
                   bool *end) {
  neap_status status;
  neap_error error;
  int64_t live = neap_memory_read().n_live;
  *end = !refused(e, s, n, &status, &error);
  if (status == NEAP_OK) { /* without the block, too: then it was not needed */
    char *got = look_at_all(s);
    if (!e->quiet) same_text(e, n, "as it passed", want, got);
    if (e->quiet && !*end) say(e, n, "asks for memory");
    free(got);
    return false;
  }
  if (!said(status, &error))
    say(e, n, error.message[0] != '\0' ? error.message : neap_status_text(status));
  if (has_results(s)) say(e, n, "a failed call gave something");
  bool grown = neap_memory_read().n_live > live;
  char *after = look(s, e->parts & RUN);
  same_text(e, n, "after the refusal", before, after);
  free(after);
  if (grown && !check_leaves_nothing(e, s, n, live)) return false;
  if (n >= N_EACH && n % N_EACH != 0) return !grown;
  if (!has_results(s)) check_succeeds(e, s, n, want);
  return false;
}

/* Refuses block 1, 2, .. of the call; returns how many it has. */
static int sweep(const entry *e) {
  int n = 0, failures = check_failures;
  bool open = false, end = false;
  char *want = without_refusal(e), *before = NULL;
  int64_t live = neap_memory_read().n_live;
  scene s;
  while (!end && n < MOST_BLOCKS && check_failures < failures + 3) {
    if (!open)
      open_scene(&s, e->parts, e->options), free(before), before = look(&s, e->parts & RUN);
    open = refuse(e, &s, ++n, want, before, &end);
    if (!open) close_scene(&s);
  }
  if (open) close_scene(&s);
  if (neap_memory_read().n_live > live) say(e, n, "blocks are left when all has ended");
  if (n == MOST_BLOCKS) say(e, n, "never passes");
  free(want);
  free(before);
  return n - 1;
}

TEST(every_function_passes_in_the_end_and_leaves_all_as_it_was_before) {
  for (int i = 0; i < NEAP_COUNT(table); i++) {
    int n = sweep(&table[i]);
    if (getenv("NEAP_TEST_SHOW") != NULL)
      printf("  %-34s %5d blocks\n", table[i].name, n), fflush(stdout);
  }
}

/* ---- the header ------------------------------------------------------------------------------ */

static bool in_table(const char *name) {
  for (int i = 0; i < NEAP_COUNT(table); i++)
    if (strcmp(table[i].name, name) == 0) return true;
  return false;
}

/* The word before the first "(" of a line that begins with NEAP_API; false: another line. */
static bool declared(const char *line, char name[100]) {
  const char *end = strchr(line, '('), *begin = end;
  if (strncmp(line, "NEAP_API ", 9) != 0 || end == NULL) return false;
  while (begin[-1] == '_' || (begin[-1] >= 'a' && begin[-1] <= 'z') ||
         (begin[-1] >= '0' && begin[-1] <= '9'))
    begin--;
  snprintf(name, 100, "%.*s", (int)(end - begin), begin);
  return true;
}

/* How many functions the file declares. */
static int read_header(const char *path) {
  FILE *file = fopen(path, "r");
  char line[400], name[100];
  int n = 0;
  CHECK(file != NULL);
  if (file == NULL) return 0;
  while (fgets(line, sizeof line, file) != NULL) {
    if (!declared(line, name)) continue;
    n++;
    if (!in_table(name)) printf("  %s is not in the table\n", name), check_failures++;
  }
  fclose(file);
  return n;
}

TEST(every_function_of_the_header_has_a_scene) {
  glob_t parts;
  CHECK(read_header("src/neap.h") > 50);
  CHECK_EQ(glob("src/neap/*.h", 0, NULL, &parts), 0);
  CHECK(parts.gl_pathc > 0);
  for (size_t i = 0; i < parts.gl_pathc; i++) CHECK(read_header(parts.gl_pathv[i]) > 0);
  globfree(&parts);
}

static void make_file(char *path) {
  int descriptor = mkstemps(path, 12);
  if (descriptor < 0) abort();
  close(descriptor);
}

static void make_files(void) {
  scene s;
  make_file(checkpoint_path), make_file(export_path), make_file(saved_path);
  make_file(db_path), make_file(copy_path), make_file(idx_path);
  CHECK_OK(neap_io_write_text(idx_path, idx, sizeof idx - 1, &error));
  open_scene(&s, WS | NET | SESSION, NULL);
  CHECK_OK(neap_workspace_save(s.ws, checkpoint_path, 0, NULL, &error));
  close_scene(&s);
  open_scene(&s, WS | FORWARD | SESSION, NULL);
  CHECK_OK(neap_workspace_export(s.ws, s.net, export_path, &error));
  close_scene(&s);
}

int main(int argc, char **argv) {
  setenv("NEAP_NUM_THREADS", "1", 1); /* the same block is the n-th each time */
  make_files();
  int result = RUN(argc, argv, T(every_function_of_the_header_has_a_scene),
                   T(every_function_passes_in_the_end_and_leaves_all_as_it_was_before));
  unlink(checkpoint_path), unlink(export_path), unlink(saved_path);
  unlink(db_path), unlink(copy_path), unlink(idx_path);
  return result;
}
