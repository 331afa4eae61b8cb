/* writer.c: draws, blobs and the frame of a net: its inputs, its training, its outputs. */
#include "random/writer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- draws ----------------------------------------------------------------------------------- */

int draw_below(writer *w, int n) {
  return (int)(recipe_draw(w->recipe, w->step, w->n_drawn++) % (uint32_t)n);
}

bool draw_chance(writer *w, int percent) { return draw_below(w, 100) >= 100 - percent; }

/* ---- blobs ----------------------------------------------------------------------------------- */

neap_type type_of(neap_dtype dtype, const int64_t *dim) {
  neap_type type = {.dtype = dtype};
  while (dim[type.shape.n_dim] != 0)
    type.shape.dim[type.shape.n_dim] = dim[type.shape.n_dim], type.shape.n_dim++;
  return type;
}

static bool fits(const blob *b, const want *what) {
  neap_dtype dtype = b->type.dtype;
  if (b->is_gone) return false;
  if (what->like != NULL) return neap_type_equal(&b->type, what->like);
  if (what->dtype != NEAP_DTYPE_NONE ? dtype != what->dtype
                                     : dtype != NEAP_DTYPE_F32 && dtype != NEAP_DTYPE_F64)
    return false;

  /* What is not asked for is 0, and fits anything. */
  return (what->rank == 0 || b->type.shape.n_dim == what->rank) &&
         b->type.shape.n_dim >= what->least_rank &&
         (!what->bounded || (b->bound > 0 && b->bound <= BOUND)) &&
         (what->most == 0 || neap_shape_elems(&b->type.shape) <= what->most) &&
         (!what->unbatched || !b->batched) && (!what->batched || b->batched) &&
         (!what->written || b->may_rewrite);
}

/* The blob that the draw likes most: a blob that comes or goes changes the choice only where it is
 * the one. */
static int favourite(const writer *w, const want *what, uint32_t draw, int oldest) {
  int best = -1;
  uint32_t most = 0;

  /* Each blob has a number of its own under this draw, and the largest wins. */
  for (int b = 0; b < w->n_blob; b++) {
    if (w->blob[b].maker < oldest || b == what->but - 1 || !fits(&w->blob[b], what)) continue;
    uint32_t word[4];
    neap_philox(draw, 78, 0, (uint64_t)w->blob[b].id, word);
    if (best < 0 || word[0] > most) best = b, most = word[0];
  }
  return best;
}

int pick(writer *w, want what) {
  bool newer = draw_chance(w, 60); /* so that nets grow deep as well as wide */
  uint32_t draw = recipe_draw(w->recipe, w->step, w->n_drawn++);
  int b = newer ? favourite(w, &what, draw, w->step - 4) : -1;
  if (b < 0) b = favourite(w, &what, draw, 0);
  if (b >= 0 && w->n_read < MOST_READ) w->read[w->n_read++] = b;
  return b;
}

int pick_like(writer *w, int b) {
  neap_type type = w->blob[b].type;
  int other = pick(w, (want){.like = &type});
  return w->blob[other].batched == w->blob[b].batched ? other : b;
}

static int remember(writer *w, const char *name, neap_type type, bool batched) {
  int b = w->n_blob++, id = w->step * 100 + b % 100;
  w->blob[b] = (blob){.id = id, .maker = w->step, .type = type, .batched = batched};
  snprintf(w->blob[b].name, sizeof w->blob[b].name, "%s", name);
  return b;
}

int fresh(writer *w, neap_type type, bool batched) {
  char name[24];
  snprintf(name, sizeof name, "v%d%c", w->step, 'a' + w->n_named);
  int b = remember(w, name, type, batched);
  w->blob[b].id = w->step * 100 + w->n_named++;
  w->blob[b].may_rewrite = true;
  return b;
}

int target(writer *w, neap_type type, bool batched, int input) {
  bool in_place = draw_chance(w, 25), again = draw_chance(w, 10);
  if (in_place && input >= 0 && w->blob[input].may_rewrite &&
      neap_type_equal(&w->blob[input].type, &type)) {
    w->blob[input].bound = 0;
    return input;
  }

  /* Drawn in any case, so that later draws are the same ones whatever comes of this one. */
  uint32_t draw = recipe_draw(w->recipe, w->step, w->n_drawn++);
  if (!again) return fresh(w, type, batched);

  /* A name that was written before, unless the op itself reads it: the new value would be written
   * over what is read. */
  int b = (int)(draw % (uint32_t)w->n_blob);
  bool is_read = false;
  for (int i = 0; i < w->n_read; i++) is_read = is_read || w->read[i] == b;
  if (is_read || !w->blob[b].may_rewrite || w->blob[b].is_gone) return fresh(w, type, batched);

  /* another version may have another shape */
  w->blob[b].type = type, w->blob[b].batched = batched, w->blob[b].bound = 0;
  w->blob[b].maker = w->step;
  return b;
}

static void declare(writer *w, const char *role, const char *name, neap_type type,
                    const char *init) {
  char shape[NEAP_SHAPE_TEXT];
  neap_buffer_add(&w->head, "%s %s %s %s%s%s\n", role, name, neap_dtype_name(type.dtype),
                  neap_shape_text(&type.shape, shape), init != NULL ? " = " : "",
                  init != NULL ? init : "");
}

const char *add_param(writer *w, neap_type type, const char *init) {
  param *p = &w->param[w->n_param++];
  snprintf(p->name, sizeof p->name, "w%d%c", w->step, 'a' + w->n_named++);
  p->dtype = type.dtype;
  declare(w, "param", p->name, type, init);
  return p->name;
}

const char *add_state(writer *w, neap_type type, const char *init) {
  char name[24];
  snprintf(name, sizeof name, "m%d%c", w->step, 'a' + w->n_named++);
  declare(w, "state", name, type, init);
  w->has_state = true;
  return NAME(w, remember(w, name, type, false));
}

void say(writer *w, const char *format, ...) {
  char line[2048];
  va_list args;
  va_start(args, format);
  vsnprintf(line, sizeof line, format, args);
  va_end(args);
  neap_buffer_add(&w->body, "%s\n", line);
}

/* ---- the frame of a net ---------------------------------------------------------------------- */

/* Channels that are one, odd, blocks of 8 and 16, just beside them, and 50. */
static const int channels[] = {1, 3, 2, 8, 16, 5, 4, 7, 9, 12, 15, 17, 20, 24, 31, 32, 33, 48, 50};

static neap_type input_type(writer *w, int kind, int64_t batch) {
  int size = w->recipe->size;
  int64_t rows = w->by_rows ? batch : 1 + draw_below(w, size),
          columns = 2 * (1 + draw_below(w, size));

  /* Images and sequences are small, so that thousands of nets run in a minute. */
  switch (kind) {
    case 1: { /* an image; many channels are small ones */
      int64_t c = DRAW_OF(w, channels), most = c > 16 ? 4 : 8,
              n = w->by_rows ? batch : 1 + draw_below(w, 3);
      c = NEAP_MIN(c, 8 * size + 2);
      return TYPE(w->real, n, c, 1 + draw_below(w, (int)most), 1 + draw_below(w, (int)most));
    }
    case 2:
      return TYPE(w->real, rows, 1 + draw_below(w, 4), columns); /* a sequence */
    /* numbers of rows of tables */
    case 3: return TYPE(NEAP_DTYPE_I64, rows, 1 + draw_below(w, 4));
    case 4: return TYPE(NEAP_DTYPE_I32, rows);
    default: return TYPE(w->real, rows, columns);
  }
}

static void write_constants(writer *w, const char *name) {
  neap_buffer_add(
    &w->head,
    "net %s\nstate lr f32 () = Constant { value = 0.05 }\nstate zero f32 () = Constant { value = 0 "
    "}\n"
    "state one f32 () = Constant { value = 1 }\nstate three f32 () = Constant { value = 3 }\n",
    name);
}

static void write_head(writer *w) {
  static const int kind[] = {0, 1, 2, 0, 1, 2, 3, 4};
  write_constants(w, "random");
  w->trains = draw_chance(w, 67);
  w->by_rows = draw_chance(w, 30);
  w->real = draw_chance(w, 15) ? NEAP_DTYPE_F64 : NEAP_DTYPE_F32;
  int64_t batch = 2 + draw_below(w, 5);
  int n = 1 + draw_below(w, 3);

  /* One to three inputs; integers among them are numbers of rows, below BOUND. */
  for (int k = 0; k < n; k++) {
    int what = DRAW_OF(w, kind);
    if (k == 0 && what > 2) what = 0; /* one is real */
    char name[24];
    snprintf(name, sizeof name, "x%d", k);
    neap_type type = input_type(w, what, batch);
    declare(w, "input", name, type, NULL);
    int b = remember(w, name, type, w->by_rows);
    w->blob[b].id = k;
    w->blob[b].bound = what > 2 ? BOUND : 0;
  }

  /* it has no batch */
  neap_buffer_add(&w->head, w->by_rows ? "state c f32 (1) = Constant\n" : "input c f32 (1)\n");
}

/* The mean of a blob as a part of the loss. */
static const char *add_part(writer *w, const char *name, neap_dtype dtype, char *part,
                            size_t room) {
  snprintf(part, room, "loss_%c", 'a' + w->n_named++);
  say(w, dtype == NEAP_DTYPE_F64 ? "%s_wide = Mean(%s)" : "%s = Mean(%s)", part, name);
  if (dtype == NEAP_DTYPE_F64) say(w, "%s = Cast(%s_wide) { to = f32 }", part, part);
  return part;
}

/* An update of parameter p by its gradient, at times inside an If. */
static void add_update(writer *w, const param *p, bool is_last) {
  const char *n = p->name;
  int kind = draw_below(w, 4);
  bool inside = draw_chance(w, 40);

  /* An update within a branch writes an outer blob; one by clipped gradients has a value between
   * gradient and update. */
  if (is_last && inside) {
    w->has_control = true;
    say(w, "subnet update");
    say(w, "  %s = Sgd(%s, %s_grad, lr)\n  takes %s, %s_grad, lr\n  gives %s\nend", n, n, n, n, n,
        n);
    say(w, "%s = If(c, %s, %s_grad, lr) { then_net = update }", n, n, n);
  } else if (kind == 3) {
    say(w, "%s_norm = GradNorm(%s_grad)\n%s_clipped = ClipByNorm(%s_grad, %s_norm) { max = 1 }", n,
        n, n, n, n);
    say(w, "%s = Sgd(%s, %s_clipped, lr)", n, n, n);
  } else {
    say(w, "%s = Sgd(%s, %s_grad, lr)", n, n, n);
  }
}

/* A loss over some of the last blobs, the gradients of some parameters, an update each. */
static void write_training(writer *w) {
  if (w->n_param == 0) (void)add_param(w, TYPE(NEAP_DTYPE_F32, 4), UNIFORM);
  char part[4][24];
  int n_part = 0, x = pick(w, (want){0}), z = pick(w, (want){0});
  add_part(w, NAME(w, x), w->blob[x].type.dtype, part[n_part], sizeof part[0]), n_part++;
  add_part(w, NAME(w, z), w->blob[z].type.dtype, part[n_part], sizeof part[0]), n_part++;
  add_part(w, w->param[0].name, w->param[0].dtype, part[n_part], sizeof part[0]), n_part++;
  say(w, "loss = AddN(%s, %s, %s)", part[0], part[1], part[2]);

  /* The loss reads two of the last blobs and one parameter, so that at least one gradient arrives.
   * Some parameters are left out. */
  int n = w->n_param - draw_below(w, w->n_param);
  neap_buffer names = {0}, grads = {0};
  for (int k = 0; k < n; k++) {
    neap_buffer_add(&names, ", %s", w->param[k].name);
    neap_buffer_add(&grads, "%s%s_grad", k > 0 ? ", " : "", w->param[k].name);
  }
  say(w, "%s = Gradient(loss%s)", grads.text != NULL ? grads.text : "",
      names.text != NULL ? names.text : "");
  neap_buffer_fini(&names);
  neap_buffer_fini(&grads);

  /* Updates last: they write what the gradients are by. */
  for (int k = 0; k < n; k++) add_update(w, &w->param[k], k == n - 1);
}

static void write_end(writer *w) {
  if (w->trains) write_training(w);
  for (int b = 0; b < w->n_blob; b++) {
    bool keep = draw_chance(w, 4);
    if (keep && w->blob[b].may_rewrite && !w->blob[b].is_gone) say(w, "keep %s", NAME(w, b));
  }

  /* A net that trains gives its loss; others say their output, or leave it to what nobody reads. */
  bool given = draw_chance(w, 50);
  if (w->trains)
    say(w, "outputs loss");
  else if (given || w->by_rows)
    say(w, "outputs %s", NAME(w, pick(w, (want){0})));
}

/* ---- the whole ------------------------------------------------------------------------------- */

static const family *const lists[] = {general_families, image_families, sequence_families,
                                      control_families};

/* Family k of all lists, as if they were one. */
static const family *family_at(int k) {
  for (int i = 0; i < NEAP_COUNT(lists); i++)
    for (const family *f = lists[i]; f->weight > 0; f++)
      if (k-- == 0) return f;
  return NULL;
}

int n_families(void) {
  int n = 0;
  while (family_at(n) != NULL) n++;
  return n;
}

const char *family_name(int k) { return family_at(k)->name; }

static int draw_family(writer *w) {
  int all = 0, k = 0;
  for (int i = 0; i < n_families(); i++) all += family_at(i)->weight;

  /* Families by their weights: the draw falls into one of so many parts. */
  int left = draw_below(w, all);
  while (left >= family_at(k)->weight) left -= family_at(k++)->weight;
  return k;
}

static void begin_step(writer *w, int number) {
  w->step = number, w->n_drawn = w->n_named = w->n_read = 0;
}

/* The ops of the body, each under a name of its own: an op's name is its first output's otherwise,
 * and blobs are written twice. */
static void add_named(neap_buffer *out, const char *body) {
  for (int n = 0; *body != '\0'; n++) {
    size_t length = strcspn(body, "\n");
    neap_buffer_add_n(out, body, length);
    if (memchr(body, '(', length) != NULL) neap_buffer_add(out, " as op_%d", n);
    neap_buffer_add(out, "\n");
    body += length + 1;
  }
}

/* The family that it is of. */
static int write_step(writer *w, int k) {
  begin_step(w, k);
  int f = draw_family(w);
  bool room = w->n_blob + 8 <= MOST_BLOBS && w->n_param + 8 <= MOST_PARAMS;
  if (room && !family_at(f)->add(w)) (void)family_at(f = 0)->add(w);
  return f;
}

made write_net(const recipe *r) {
  made m = {.n_family = n_families()};
  m.by_family = calloc((size_t)m.n_family, sizeof *m.by_family);
  writer *w = calloc(1, sizeof *w);
  w->recipe = r;
  begin_step(w, STEP_HEAD);
  write_head(w);
  for (int k = 1; k < STEP_END; k++)
    if (r->step[k].taken) m.by_family[write_step(w, k)]++;
  begin_step(w, STEP_END);
  write_end(w);
  add_named(&w->head, w->body.text != NULL ? w->body.text : "");

  /* What the net turned out to have decides later which ways it can be run in. */
  m.text = strdup(w->head.text);
  m.trains = w->trains, m.by_rows = w->by_rows;
  m.has_control = w->has_control, m.has_random = w->has_random, m.has_state = w->has_state,
  m.has_norm = w->has_norm;
  neap_buffer_fini(&w->head);
  neap_buffer_fini(&w->body);
  free(w);
  return m;
}

void made_fini(made *m) {
  free(m->text);
  free(m->by_family);
  *m = (made){0};
}

/* ---- layers ---------------------------------------------------------------------------------- */

void write_layers(const recipe *r, int n, char **text) {
  writer *w = calloc(1, sizeof *w);
  neap_type type = {0};
  for (int i = 0; i < n; i++) {
    char name[32];
    *w = (writer){.recipe = r, .by_rows = true, .real = NEAP_DTYPE_F32};
    snprintf(name, sizeof name, "layer%d", i);
    begin_step(w, STEP_HEAD);
    write_constants(w, name);
    int64_t batch = 2 + draw_below(w, 5);

    /* The first layer draws its input, each further one has the output of the one before. */
    if (i == 0) type = input_type(w, draw_below(w, 3), batch);
    declare(w, "input", "x0", type, NULL);
    remember(w, "x0", type, true);
    neap_buffer_add(&w->head, "state c f32 (1) = Constant\n");
    for (int k = 1 + i; k < STEP_END; k += n) /* each layer has its share of the steps */
      if (r->step[k].taken) (void)write_step(w, k);
    begin_step(w, STEP_END);

    /* The output is written by an op, as a chain's layer must give; where there is none, one is
     * made. */
    int y =
      pick(w, (want){.least_rank = 2, .dtype = NEAP_DTYPE_F32, .batched = true, .written = true});
    if (y < 0) {
      y = fresh(w, type, true);
      say(w, "%s = Tanh(x0)", NAME(w, y));
    }
    say(w, "outputs %s", NAME(w, y));
    type = w->blob[y].type;
    add_named(&w->head, w->body.text != NULL ? w->body.text : "");
    text[i] = strdup(w->head.text);
    neap_buffer_fini(&w->head);
    neap_buffer_fini(&w->body);
  }
  free(w);
}
