/* svg.c: a plan as SVG, bytes by name over op order, or over measured time.
 *
 * Three panels. The arena: each storage is a box from its first step to its last, as high as its
 * bytes and at its address, with scratch hatched and the peak marked, in the colour of its category
 * or layer (colour.c), which a key explains. What lies in the frames of an op's subnets is drawn in
 * the column of that op, subnets side by side, their steps dividing the column. Below, on the same
 * axis, the bytes live while each op runs, with the bound. Last the regions that live from run to
 * run, a bar of blobs each, on a scale of their own.
 *
 * On an axis of steps each has the same width, but that those side by side at which the arena holds
 * next to nothing, as the updates, are folded: they share one column.
 *
 * INVARIANT: boxes and bars are to scale; those of storages that live at the same time do not
 * overlap. Coordinates are written without printf's %f, whose decimal point is the locale's. One
 * pass over values and steps, and sorting them: O(n log n).
 */
#include "report/report_int.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* All in pixels, from the left and the top. */
enum {
  WIDTH = 1180,
  LEFT = 92,
  RIGHT = WIDTH - 24,
  ARENA_TOP = 64,
  ARENA_HEIGHT = 460,
  AXIS_TOP = ARENA_TOP + ARENA_HEIGHT + 4,
  KEY_TOP = AXIS_TOP + 29,
  CURVE_TOP = KEY_TOP + 51,
  CURVE_HEIGHT = 90,
  BARS_TOP = CURVE_TOP + CURVE_HEIGHT + 44,
  BAR_HEIGHT = 26,
  BAR_RIGHT = RIGHT - 90, /* room for the sum behind the longest bar */
  KEY_LIGHT = 76,         /* percent, of the colours of the key */
  MOST_KEYS = 24,
  LEAST_FOLD = 4, /* steps */
  /* bytes: of a label as wide as the picture, some of its letters of two */
  LABEL_ROOM = 2 * WIDTH / 6
};

/* A plan and where it is drawn: the whole, or the plan of a subnet in a column of it. */
typedef struct canvas {
  neap_buffer *out;
  const neap_plan *plan;
  const neap_graph *graph;
  double left, right; /* the pixels that its steps share */
  /* the whole: where its steps begin, from 0 to 1, and 1 behind the last; NULL: all are as wide */
  const double *edge;
  const int64_t *step_ns;  /* the axis is time; NULL: steps */
  report_palette *palette; /* what colours mean */
  int node;                /* that owns the subnet; -1: the whole */
  size_t base_bytes;       /* address of its frame */
  size_t all_bytes;        /* of the whole arena */
  const char *owner;       /* name of the op that owns the subnet; NULL: the whole */
} canvas;

/* ---- elements -------------------------------------------------------------------------------- */

/* ATTRIBUTE="1.25" */
static void add_number(const canvas *c, const char *attribute, double value) {
  long long hundredths = llround(fmax(value, 0) * 100);
  neap_buffer_add(c->out, " %s=\"%lld.%02lld\"", attribute, hundredths / 100, hundredths % 100);
}

/* Text between tags or in quotes. Control characters are not allowed in XML, not even as
 * entities. */
static void add_escaped(const canvas *c, const char *text) {
  for (; *text != '\0'; text++) {
    const char *entity = NULL;
    switch (*text) {
      case '&': entity = "&amp;"; break;
      case '<': entity = "&lt;"; break;
      case '>': entity = "&gt;"; break;
      case '"': entity = "&quot;"; break;
      default:
        if ((unsigned char)*text < ' ' && *text != '\n') entity = "?";
    }
    /* Letters of several bytes go through as they are: the document is UTF-8. */
    neap_buffer_add_n(c->out, entity != NULL ? entity : text, entity != NULL ? strlen(entity) : 1);
  }
}

/* `attributes` are XML, also below. */
static void add_text(const canvas *c, double x, double y, const char *attributes,
                     const char *text) {
  neap_buffer_add(c->out, "<text");
  add_number(c, "x", x);
  add_number(c, "y", y);
  neap_buffer_add(c->out, " %s>", attributes);
  add_escaped(c, text);
  neap_buffer_add(c->out, "</text>\n");
}

static void add_bytes(const canvas *c, double x, double y, const char *attributes, size_t bytes) {
  char text[24];
  add_text(c, x, y, attributes, neap_bytes_text((double)bytes, text));
}

/* A tag that is not closed yet: for "/>" or a title inside. */
static void open_rect(const canvas *c, double x, double y, double width, double height,
                      const char *attributes) {
  neap_buffer_add(c->out, "<rect");
  add_number(c, "x", x);
  add_number(c, "y", y);
  add_number(c, "width", width);
  add_number(c, "height", height);
  neap_buffer_add(c->out, " %s", attributes);
}

static void add_rect(const canvas *c, double x, double y, double width, double height,
                     const char *attributes) {
  open_rect(c, x, y, width, height, attributes);
  neap_buffer_add(c->out, "/>\n");
}

static void add_line(const canvas *c, double y, const char *attributes) {
  neap_buffer_add(c->out, "<line x1=\"%d\" x2=\"%d\"", LEFT, RIGHT);
  add_number(c, "y1", y);
  add_number(c, "y2", y);
  neap_buffer_add(c->out, " %s/>\n", attributes);
}

static const char *name_of(const canvas *c, int v) {
  return c->graph->value[v].name != NULL ? c->graph->value[v].name : "?";
}

static bool is_inside_character(char c) { return ((unsigned char)c & 0xC0u) == 0x80u; }

/* What of `text` fits into `width` pixels, 6.3 a character: all of it, else its beginning and,
 * where there is room, its end, which is where names differ ("block1/co…_grad"). "" when no more
 * than a few characters would. */
static const char *fitting(const char *text, double width, char room[LABEL_ROOM]) {
  int n = (int)strlen(text), most = (int)(width / 6.3);
  if (n <= most) return text;
  if (most < 5) return "";
  /* The ellipsis is as wide as two characters. */
  int end = most < 12 ? 0 : most / 3, head = most - 2 - end, tail = n - end;
  /* A character of several bytes is not cut. */
  while (head > 0 && is_inside_character(text[head])) head--;
  while (tail < n && is_inside_character(text[tail])) tail++;
  snprintf(room, LABEL_ROOM, "%.*s…%s", head, text, text + tail);
  return room;
}

/* Where a step begins; `step` may be one past the last. */
static double x_of(const canvas *c, int step) {
  double share = (double)step / NEAP_MAX(c->plan->n_node, 1);
  return c->left + (c->edge != NULL ? c->edge[step] : share) * (c->right - c->left);
}

/* Whether the arena holds nothing while a step runs, or less than half a pixel shows. */
static bool is_empty(const neap_plan *plan, int step) {
  return (double)plan->live_bytes[step] * 2 * ARENA_HEIGHT <= (double)plan->arena_bytes &&
         plan->live_bytes[step] < plan->arena_bytes;
}

/* The step behind a stretch that is folded and begins at `step`; `step` itself where none does. A
 * short one is as it is. */
static int fold_end(const canvas *c, int step) {
  int end = step;
  if (c->step_ns != NULL || (step > 0 && is_empty(c->plan, step - 1))) return step;
  while (end < c->plan->n_node && is_empty(c->plan, end)) end++;
  return end - step >= LEAST_FOLD ? end : step;
}

/* Fills edge[0] to edge[n_node]: by time, else a column for each step and each fold. */
static void find_edges(const canvas *c, double *edge) {
  int n = c->plan->n_node;
  double all = 0;
  edge[0] = 0;
  for (int s = 0; s < n;) {
    int end = fold_end(c, s);
    /* A fold is as wide as a step, or as the number of its steps needs. */
    double width = end > s ? fmax(1, n / 28.0) : 1;
    if (end == s) end = s + 1;
    if (c->step_ns != NULL) width = (double)NEAP_MAX(c->step_ns[s], 0);
    for (int k = s + 1; k <= end; k++) edge[k] = all + width * (k - s) / (end - s);
    all += width;
    s = end;
  }
  for (int s = 0; s <= n; s++) edge[s] = all > 0 ? edge[s] / all : (double)s / NEAP_MAX(n, 1);
}

/* ---- the arena ------------------------------------------------------------------------------- */

/* Address 0 of the arena is at the foot; `bytes` count from the frame's. */
static double y_of(const canvas *c, size_t bytes) {
  return ARENA_TOP + ARENA_HEIGHT -
         (double)(c->base_bytes + bytes) / (double)NEAP_MAX(c->all_bytes, 1u) * ARENA_HEIGHT;
}

/* A round number of bytes, such that up to six of them make `most`: 1, 2 or 5 times a power of 10
 * of a unit. */
static size_t tick_bytes(size_t most) {
  static const int count[] = {1, 2, 5, 10, 20, 50, 100, 200, 500};
  size_t unit = 1;
  /* Ticks are round in the unit in which they are written. */
  while (unit * 1024 * 4 <= most) unit *= 1024;
  for (int i = 0; i < NEAP_COUNT(count); i++)
    if (most / ((size_t)count[i] * unit) <= 6) return (size_t)count[i] * unit;
  return 1024 * unit;
}

static void draw_byte_axis(const canvas *c) {
  size_t tick = tick_bytes(NEAP_MAX(c->plan->arena_bytes, 1u));
  for (size_t bytes = 0; bytes <= c->plan->arena_bytes; bytes += tick) {
    add_line(c, y_of(c, bytes), "stroke=\"#e4e4e4\"");
    add_bytes(c, LEFT - 6, y_of(c, bytes) + 4, "text-anchor=\"end\" fill=\"#555\"", bytes);
  }
}

/* A value of the arena, and its storage. */
typedef struct member {
  int storage, value;
} member;

/* A storage: members [at, at + n) of the list, the first one defined first. */
typedef struct box {
  size_t offset, bytes;
  int from, to, at, n; /* steps from `from` to `to`, inclusive */
} box;

/* Values are numbered in order of definition, so members of one storage come in the order in which
 * they take its bytes. */
static int compare_members(const void *a, const void *b) {
  const member *x = a, *y = b;
  if (x->storage != y->storage) return x->storage < y->storage ? -1 : 1;
  return (x->value > y->value) - (x->value < y->value);
}

/* From the foot upwards, then from the left: colours, which go by number, differ between
 * neighbours. */
static int compare_boxes(const void *a, const void *b) {
  const box *x = a, *y = b;
  if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
  if (x->from != y->from) return x->from < y->from ? -1 : 1;
  return (x->at > y->at) - (x->at < y->at);
}

/* Fills both lists, which have room for all values; returns the number of boxes. */
static int find_boxes(const canvas *c, member *list, box *boxes) {
  int n = 0, n_box = 0;
  for (int v = 0; v < c->plan->n_value; v++) {
    const neap_place *place = &c->plan->place[v];
    if (place->region == NEAP_REGION_ARENA && place->bytes > 0 && place->first >= 0)
      list[n++] = (member){place->storage, v};
  }
  /* Members of one storage stand side by side now, and make one box. */
  qsort(list, (size_t)n, sizeof *list, compare_members);
  for (int i = 0; i < n; i++) {
    const neap_place *place = &c->plan->place[list[i].value];
    if (i == 0 || list[i].storage != list[i - 1].storage)
      boxes[n_box++] = (box){place->offset, place->bytes, place->first, place->last, i, 0};
    box *b = &boxes[n_box - 1];
    /* A box is as high as its largest member, and lasts as long as all of them. */
    b->n++;
    b->bytes = NEAP_MAX(b->bytes, place->bytes);
    b->from = NEAP_MIN(b->from, place->first);
    b->to = NEAP_MAX(b->to, place->last);
    NEAP_ASSERT(b->from <= b->to, "a life of steps from %d to %d", b->from, b->to);
  }
  qsort(boxes, (size_t)n_box, sizeof *boxes, compare_boxes);
  return n_box;
}

/* Inside a subnet steps are its own. */
static void end_title(const canvas *c) {
  if (c->owner != NULL) {
    neap_buffer_add(c->out, " inside ");
    add_escaped(c, c->owner);
  }
  neap_buffer_add(c->out, "</title>");
}

/* Along the box, with its bytes below where there is room; in a tall narrow one from its foot
 * upwards. */
static void label_box(const canvas *c, const char *text, size_t bytes, double x, double y,
                      double width, double height) {
  char along_room[LABEL_ROOM], up_room[LABEL_ROOM], turn[96];
  const char *along = "", *up = "";
  if (height >= 10) along = fitting(text, width - 4, along_room);
  if (along != text && width >= 8 && height > width) up = fitting(text, height - 6, up_room);
  /* Upwards only where the whole name fits so, or nothing of it along the box. */
  if (up[0] != '\0' && (up == text || along[0] == '\0')) {
    int at_x = (int)(x + width / 2 + 3.5), at_y = (int)(y + height - 4);
    snprintf(turn, sizeof turn, "transform=\"rotate(-90 %d %d)\"%s", at_x, at_y,
             width < 11 ? " font-size=\"8.5\"" : "");
    add_text(c, at_x, at_y, turn, up);
  } else if (along[0] != '\0') {
    bool two_lines = height >= 26 && width >= 60;
    add_text(c, x + 3, fmin(y + height / 2 + (two_lines ? 0 : 4), y + height - 2), "", along);
    if (two_lines) add_bytes(c, x + 3, y + height / 2 + 12, "fill=\"#444\" font-size=\"9\"", bytes);
  }
}

/* Its title, which a browser shows under the pointer, has all names. */
static void draw_box(const canvas *c, const box *b, const member *list, int number) {
  double x = x_of(c, b->from), width = x_of(c, b->to + 1) - x;
  double y = y_of(c, b->offset + b->bytes), height = y_of(c, b->offset) - y;
  char text[512];
  neap_buffer_add(c->out, "<g class=\"%s\"><title>", c->owner == NULL ? "box" : "inner");
  for (int i = 0; i < b->n; i++) {
    if (i > 0) neap_buffer_add(c->out, ", ");
    add_escaped(c, name_of(c, list[b->at + i].value));
  }
  neap_buffer_add(c->out, "\n%s at offset %zu, steps %d-%d",
                  neap_bytes_text((double)b->bytes, text), c->base_bytes + b->offset, b->from + 1,
                  b->to + 1);
  end_title(c);
  neap_buffer_add(c->out, "\n");
  /* The colour is that of the member which names the box; shades tell neighbours apart. */
  int v = list[b->at].value, node = c->node >= 0 ? c->node : c->graph->value[v].node;
  report_group group = report_palette_of(c->palette, c->graph, v, node, b->bytes);
  snprintf(text, sizeof text, "fill=\"hsl(%d,%d%%,%d%%)\" stroke=\"#444\" stroke-width=\"0.5\"",
           group.hue, group.saturation, KEY_LIGHT + 5 * (number % 3 - 1));
  add_rect(c, x, y, width, height, text);
  /* The first member names the box; the title has the others. */
  if (b->n > 1)
    snprintf(text, sizeof text, "%s (+%d)", name_of(c, list[b->at].value), b->n - 1);
  else
    snprintf(text, sizeof text, "%s", name_of(c, list[b->at].value));
  label_box(c, text, b->bytes, x, y, width, height);
  neap_buffer_add(c->out, "</g>\n");
}

/* O(values log values): one list, cut into storages. */
static void draw_boxes(const canvas *c) {
  size_t n = (size_t)c->plan->n_value;
  member *list = neap_alloc(n * sizeof *list);
  box *boxes = neap_alloc(n * sizeof *boxes);
  if (list == NULL || boxes == NULL) c->out->failed = true;
  /* Without room nothing is drawn, and the buffer says that it failed. */
  int n_box = c->out->failed ? 0 : find_boxes(c, list, boxes);
  for (int i = 0; i < n_box; i++) draw_box(c, &boxes[i], list, i + 1);
  neap_free(list);
  neap_free(boxes);
}

static void draw_scratch(const canvas *c);

/* The frames of step s's op: they lie at the beginning of its scratch, one over another, so that
 * their columns stand side by side. */
static void draw_frames(const canvas *c, int s) {
  int n = c->plan->order[s];
  const neap_node *node = &c->graph->node[n];
  double width = (x_of(c, s + 1) - x_of(c, s)) / NEAP_MAX(node->n_sub, 1);
  for (int k = 0; k < node->n_sub; k++) {
    /* A picture within the picture: the same heights, a column for its width. */
    canvas inner = *c;
    inner.plan = c->plan->sub[n][k];
    inner.graph = node->sub[k];
    inner.left = x_of(c, s) + k * width;
    inner.right = inner.left + width;
    inner.base_bytes += c->plan->scratch_offset[n];
    inner.owner = node->name;
    inner.edge = NULL;
    inner.node = c->node >= 0 ? c->node : n;
    draw_boxes(&inner);
    draw_scratch(&inner);
  }
}

/* Scratch lives for one step. That of an op with subnets holds their frames. */
static void draw_scratch(const canvas *c) {
  char text[24];
  for (int s = 0; s < c->plan->n_node; s++) {
    int n = c->plan->order[s];
    size_t bytes = c->plan->scratch_bytes[n], offset = c->plan->scratch_offset[n];
    if (bytes == 0) continue;
    double y = y_of(c, offset + bytes);
    open_rect(c, x_of(c, s), y, x_of(c, s + 1) - x_of(c, s), y_of(c, offset) - y,
              c->owner == NULL
                ? "class=\"scratch\" fill=\"url(#hatch)\" stroke=\"#999\" stroke-width=\"0.5\""
                : "fill=\"url(#hatch)\" stroke=\"#999\" stroke-width=\"0.5\"");
    /* Hatched, since it is nobody's value, and under the frames that lie in it. */
    neap_buffer_add(c->out, "><title>%s of ",
                    c->graph->node[n].n_sub > 0 ? "frames and scratch" : "scratch");
    add_escaped(c, c->graph->node[n].name);
    neap_buffer_add(c->out, "\n%s at offset %zu, step %d", neap_bytes_text((double)bytes, text),
                    c->base_bytes + offset, s + 1);
    end_title(c);
    neap_buffer_add(c->out, "</rect>\n");
    draw_frames(c, s);
  }
}

/* The peak's column, with what happens there written above it. */
static void draw_peak(const canvas *c) {
  int s = c->plan->peak_step;
  char bytes[24], text[400];
  if (s < 0 || s >= c->plan->n_node) return;
  double x = x_of(c, s), right = x_of(c, s + 1);
  /* Text to the right of a peak at the right edge would be cut off. */
  bool at_right = x > WIDTH * 0.6;
  add_rect(c, x, ARENA_TOP, fmax(2, right - x), AXIS_TOP - ARENA_TOP,
           "class=\"peak\" fill=\"none\" stroke=\"#b03030\" stroke-width=\"1.5\"");
  snprintf(text, sizeof text, "peak %s, step %d: %s",
           neap_bytes_text((double)c->plan->live_bytes[s], bytes), s + 1,
           c->graph->node[c->plan->order[s]].name);
  add_text(c, at_right ? right : x, ARENA_TOP - 5,
           at_right ? "fill=\"#b03030\" font-weight=\"bold\" text-anchor=\"end\""
                    : "fill=\"#b03030\" font-weight=\"bold\"",
           text);
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* What a step does: its phase, or that it runs again what the forward pass did not keep. */
enum { RECOMPUTED = NEAP_PHASE_UPDATE + 1, N_WORK };
static const char *const work_colour[N_WORK] = {"#9fc59f", "#d9a0a0", "#a0a8d9", "#e0b95c"};

static int work_of(const neap_node *node) {
  return node->recomputes > 0 ? RECOMPUTED : (int)node->phase;
}
static const char *work_name(int work) {
  return work == RECOMPUTED ? "recomputed" : neap_phase_name((neap_phase)work);
}

/* Every so many steps have a number: 1, 2, 5 times a power of ten. */
static int number_stride(int n_step) {
  int stride = 1;
  for (int i = 0; n_step > 24 * stride; i++) stride = i % 3 == 1 ? stride / 2 * 5 : stride * 2;
  return stride;
}

/* The title of a piece of the strip: what the steps from s to end - 1 are. */
static void add_strip_title(const canvas *c, int s, int end) {
  const neap_node *node = &c->graph->node[c->plan->order[s]];
  if (end - s > 1) {
    neap_buffer_add(c->out, "<title>steps %d-%d: next to nothing is held</title>", s + 1, end);
    return;
  }
  neap_buffer_add(c->out, "<title>step %d: ", s + 1);
  add_escaped(c, node->name);
  neap_buffer_add(c->out, ", %s", node->op->name);
  if (c->step_ns != NULL)
    neap_buffer_add(c->out, ", %lld.%03lld us", (long long)(c->step_ns[s] / 1000),
                    (long long)(c->step_ns[s] % 1000));
  neap_buffer_add(c->out, "</title>");
}

/* Round times along the axis: 1, 2 or 5 times a power of ten of ns, about eight of them. */
static void draw_times(const canvas *c) {
  int64_t all = 0, tick = 1;
  for (int s = 0; s < c->plan->n_node; s++) all += NEAP_MAX(c->step_ns[s], 0);
  for (int i = 0; all / tick > 10; i++) tick = i % 3 == 1 ? tick / 2 * 5 : tick * 2;
  static const struct {
    int64_t ns;
    const char *name;
  } unit[] = {{1000000000, "s"}, {1000000, "ms"}, {1000, "us"}, {1, "ns"}};
  int u = 0;
  while (u < NEAP_COUNT(unit) - 1 && all < unit[u].ns * 2) u++;
  if (all > 0)
    for (int64_t at = 0; at <= all; at += tick) {
      char text[64];
      /* As many digits as the ticks differ in. */
      int digits = tick >= unit[u].ns ? 0 : tick * 10 >= unit[u].ns ? 1 : 2;
      int64_t power = digits == 0 ? 1 : digits == 1 ? 10 : 100;
      int64_t part = llround((double)at * (double)power / (double)unit[u].ns);
      int n = snprintf(text, sizeof text, "%lld", (long long)(part / power));
      if (digits > 0)
        n +=
          snprintf(text + n, sizeof text - (size_t)n, ".%0*lld", digits, (long long)(part % power));
      snprintf(text + n, sizeof text - (size_t)n, " %s", unit[u].name);
      double x = LEFT + (double)at / (double)all * (RIGHT - LEFT);
      add_text(c, fmin(x, RIGHT - 12), AXIS_TOP + 21, "text-anchor=\"middle\" fill=\"#555\"", text);
    }
}

/* The number of a step below its column, where it has one and does not stand in another's. */
static void draw_number(const canvas *c, int s, int end, int stride, double *free_from) {
  char text[64];
  bool is_fold = end - s > 1;
  if (!is_fold && (s + 1) % stride != 0 && !(s == 0 && stride >= 5)) return;
  if (is_fold)
    snprintf(text, sizeof text, "%d-%d", s + 1, end);
  else
    snprintf(text, sizeof text, "%d", s + 1);
  double middle = (x_of(c, s) + x_of(c, end)) / 2, half = (double)strlen(text) * 3.2;
  if (middle - half < *free_from && !is_fold) return;
  /* That of a fold close behind goes first. */
  if (!is_fold)
    for (int k = s + 1; k < c->plan->n_node && k <= s + stride; k++)
      if (fold_end(c, k) > k && middle + half > x_of(c, k) - 8) return;
  *free_from = middle + half + 4;
  add_text(c, middle, AXIS_TOP + 21, "text-anchor=\"middle\" fill=\"#555\"", text);
}

/* Numbers, and a strip coloured by what steps do. Counts them in `seen`. */
static void draw_step_axis(const canvas *c, int seen[N_WORK]) {
  int n = c->plan->n_node, stride = number_stride(n);
  double free_from = 0;
  char text[80];
  for (int s = 0; s < n;) {
    int end = NEAP_MAX(fold_end(c, s), s + 1);
    int work = work_of(&c->graph->node[c->plan->order[end - 1]]);
    double x = x_of(c, s);
    for (int k = s; k < end; k++) seen[work_of(&c->graph->node[c->plan->order[k]])]++;
    snprintf(text, sizeof text, "%sfill=\"%s\"", end - s > 1 ? "class=\"fold\" " : "",
             work_colour[work]);
    open_rect(c, x, AXIS_TOP, x_of(c, end) - x, 8, text);
    neap_buffer_add(c->out, ">");
    add_strip_title(c, s, end);
    neap_buffer_add(c->out, "</rect>\n");
    if (c->step_ns == NULL) draw_number(c, s, end, stride, &free_from);
    s = end;
  }
  if (c->step_ns != NULL) draw_times(c);
}

/* One entry of the key at *x, which moves behind it. */
static void draw_key(const canvas *c, double *x, double y, const char *fill, const char *name) {
  char text[96], room[LABEL_ROOM];
  snprintf(text, sizeof text, "class=\"key\" fill=\"%s\" stroke=\"#444\" stroke-width=\"0.3\"",
           fill);
  const char *shown = fitting(name, 190, room);
  add_rect(c, *x, y, 10, 8, text);
  add_text(c, *x + 14, y + 8, "fill=\"#555\"", shown);
  *x += 26 + 6.0 * (double)strlen(shown);
}

/* What the colours mean: a line of what steps do, and one of what boxes are, those that hold most
 * first. The key has only what the plan has. */
static void draw_keys(const canvas *c, const int seen[N_WORK]) {
  char text[64];
  double x = LEFT;
  for (int p = 0; p < N_WORK; p++)
    if (seen[p] > 0) draw_key(c, &x, KEY_TOP, work_colour[p], work_name(p));
  report_palette_sort(c->palette);
  x = LEFT;
  for (int i = 0; i < c->palette->n; i++) {
    const report_group *group = &c->palette->group[i];
    double need = 26 + 6.0 * (double)NEAP_MIN(strlen(group->name), (size_t)31);
    if (x + need > RIGHT - 70 || i == MOST_KEYS) {
      snprintf(text, sizeof text, "and %d more", c->palette->n - i);
      add_text(c, x, KEY_TOP + 26, "fill=\"#555\"", text);
      break;
    }
    snprintf(text, sizeof text, "hsl(%d,%d%%,%d%%)", group->hue, group->saturation, KEY_LIGHT);
    draw_key(c, &x, KEY_TOP + 18, text, group->name);
  }
}

/* "12.5,40.0 ", as polygons have it: tenths are finer than a screen. */
static void add_point(const canvas *c, double x, double y) {
  long long a = llround(x * 10), b = llround(y * 10);
  neap_buffer_add(c->out, "%lld.%lld,%lld.%lld ", a / 10, a % 10, b / 10, b % 10);
}

/* Bytes live while each op runs. In a dag the bound counts what may overlap: then the curve stays
 * below it. */
static void draw_curve(const canvas *c) {
  const neap_plan *plan = c->plan;
  size_t most = NEAP_MAX(plan->lower_bound_bytes, 1u); /* the top of the panel */
  for (int s = 0; s < plan->n_node; s++) most = NEAP_MAX(most, plan->live_bytes[s]);
  const double bottom = CURVE_TOP + CURVE_HEIGHT, scale = CURVE_HEIGHT / (double)most;
  double bound = bottom - (double)plan->lower_bound_bytes * scale;
  add_text(
    c, LEFT, CURVE_TOP - 8, "fill=\"#555\"",
    "bytes live while each op runs; dashed: the least arena for these kernels and this order");
  neap_buffer_add(c->out, "<polygon points=\"");
  add_point(c, LEFT, bottom);
  /* Steps are flat: each has two points of one height. */
  for (int s = 0; s < plan->n_node; s++) {
    add_point(c, x_of(c, s), bottom - (double)plan->live_bytes[s] * scale);
    add_point(c, x_of(c, s + 1), bottom - (double)plan->live_bytes[s] * scale);
  }
  add_point(c, RIGHT, bottom);
  /* The bound lies over the curve: where they meet, the plan is as good as it can be. */
  neap_buffer_add(c->out, "\" fill=\"#cfd8e6\" stroke=\"#5b7394\" stroke-width=\"0.8\"/>\n");
  add_line(c, bound, "stroke=\"#b03030\" stroke-dasharray=\"5 3\"");
  add_bytes(c, LEFT - 6, bound + 4, "text-anchor=\"end\" fill=\"#b03030\"",
            plan->lower_bound_bytes);
  if (plan->lower_bound_bytes > 0)
    add_bytes(c, LEFT - 6, bottom + 4, "text-anchor=\"end\" fill=\"#555\"", 0);
}

/* ---- what lives from run to run -------------------------------------------------------------- */

/* What lives from run to run has no steps: only bytes. */
typedef struct bar {
  const char *label, *colour, *kind;
  size_t bytes;
  const char *note; /* behind the sum */
} bar;

/* The largest first; equal ones by name, since qsort may change their order. */
static int compare_pieces(const void *a, const void *b) {
  const neap_report_piece *x = a, *y = b;
  if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
  return strcmp(x->name, y->name);
}

/* The largest piece first. Sorts them. */
static void draw_bar(const canvas *c, const bar *b, int n, neap_report_piece *piece, double y,
                     size_t most) {
  char text[160], room[LABEL_ROOM];
  double x = LEFT, scale = (BAR_RIGHT - LEFT) / (double)NEAP_MAX(most, 1u);
  qsort(piece, (size_t)n, sizeof *piece, compare_pieces);
  add_text(c, LEFT - 6, y + 14, "text-anchor=\"end\" fill=\"#555\"", b->label);
  for (int i = 0; i < n; i++) {
    double width = (double)piece[i].bytes * scale;
    neap_buffer_add(c->out, "<g class=\"%s\"><title>", b->kind);
    add_escaped(c, piece[i].name);
    neap_buffer_add(c->out, "\n%s</title>\n", neap_bytes_text((double)piece[i].bytes, text));
    snprintf(text, sizeof text, "fill=\"%s\" stroke=\"#fff\" stroke-width=\"0.5\"", b->colour);
    add_rect(c, x, y, width, BAR_HEIGHT - 6, text);
    /* A piece too narrow for its name has it in its title. */
    const char *label = fitting(piece[i].name, width - 4, room);
    if (label[0] != '\0') add_text(c, x + 3, y + 14, "", label);
    neap_buffer_add(c->out, "</g>\n");
    x += width;
  }
  char bytes[24];
  snprintf(text, sizeof text, "%s%s", neap_bytes_text((double)b->bytes, bytes), b->note);
  add_text(c, x + 6, y + 14, "fill=\"#555\"", text);
}

/* Storages of a region, each once. `seen` is by value, zeroed. */
static int find_pieces(const canvas *c, neap_region region, bool *seen, neap_report_piece *piece) {
  int n = 0;
  for (int v = 0; v < c->plan->n_value; v++) {
    const neap_place *place = &c->plan->place[v];
    /* Versions of one storage are the same bytes. */
    if (place->region != region || place->bytes == 0 || seen[place->storage]) continue;
    seen[place->storage] = true;
    piece[n++] = (neap_report_piece){name_of(c, v), place->bytes};
  }
  return n;
}

static const char *const region_colour[NEAP_N_REGION] = {
  [NEAP_REGION_PARAMETER] = "#8fb4dc", [NEAP_REGION_GRADIENT] = "#e0a48f",
  [NEAP_REGION_STATE] = "#bfa8dd",     [NEAP_REGION_IO] = "#c4c4c4",
  [NEAP_REGION_CONSTANT] = "#d8cd8c",  [NEAP_REGION_FRAME] = "#9fd0c0"};

/* Whether the region has a bar: it holds bytes, and not those of the arena or of an owner's
 * operands. */
static bool has_bar(const canvas *c, int region) {
  return region_colour[region] != NULL && c->plan->region_bytes[region] > 0;
}

static int count_bars(const canvas *c, int n_other) {
  int n = n_other > 0;
  for (int r = 0; r < NEAP_N_REGION; r++) n += has_bar(c, r);
  return n;
}

/* All bars have one scale, that of the longest. */
static void draw_bars(const canvas *c, int n_other, const neap_report_piece *other) {
  size_t n = (size_t)NEAP_MAX(c->plan->n_value, n_other), most = 0, other_bytes = 0;
  bool *seen = neap_alloc_zeroed((size_t)c->plan->n_value * sizeof *seen);
  neap_report_piece *piece = neap_alloc(n * sizeof *piece);
  for (int i = 0; i < n_other; i++) other_bytes += other[i].bytes;
  /* One scale for all, so that bars can be compared with each other. */
  for (int r = 0; r < NEAP_N_REGION; r++)
    if (has_bar(c, r)) most = NEAP_MAX(most, c->plan->region_bytes[r]);
  most = NEAP_MAX(most, other_bytes);
  if (seen == NULL || piece == NULL) {
    c->out->failed = true;
    goto end;
  }
  double y = BARS_TOP;
  if (most > 0)
    add_text(c, LEFT, BARS_TOP - 8, "fill=\"#555\"",
             "bytes from run to run, on a scale of their own");
  for (int r = 0; r < NEAP_N_REGION; r++) {
    if (!has_bar(c, r)) continue;
    bar b = {neap_region_name((neap_region)r), region_colour[r], "resident",
             c->plan->region_bytes[r],
             r == NEAP_REGION_FRAME ? " an iteration, grown at run time" : ""};
    draw_bar(c, &b, find_pieces(c, (neap_region)r, seen, piece), piece, y, most);
    y += BAR_HEIGHT;
  }
  /* A copy, since drawing sorts: the caller's list stays as it is. */
  if (n_other > 0) {
    bar b = {"other blobs", "#d3bcae", "other", other_bytes, ""};
    neap_copy_bytes(piece, other, (size_t)n_other * sizeof *piece);
    draw_bar(c, &b, n_other, piece, y, most);
  }
end:
  neap_free(seen);
  neap_free(piece);
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* The document's opening, title and the plan's figures in a line. */
static void draw_head(const canvas *c, int height) {
  const neap_plan *plan = c->plan;
  char text[512], arena[24], bound[24], baseline[24];
  neap_buffer_add(c->out,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
                  "height=\"%d\" font-family=\"sans-serif\" ",
                  WIDTH, height, WIDTH, height);
  neap_buffer_add(
    c->out,
    "font-size=\"10.5\">\n"
    "<defs><pattern id=\"hatch\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" "
    "patternTransform=\"rotate(45)\">"
    "<rect width=\"6\" height=\"6\" fill=\"#f4f4f4\"/><path d=\"M0 0V6\" "
    "stroke=\"#999\"/></pattern></defs>\n"
    "<rect width=\"%d\" height=\"%d\" fill=\"white\"/>\n",
    WIDTH, height);
  /* What is drawn, then its figures, in the words of explain. */
  snprintf(text, sizeof text, "%.400s, %s, batch %lld", c->graph->name,
           c->graph->train ? "training" : "inference", (long long)neap_graph_batch(c->graph));
  add_text(c, LEFT, 24, "font-size=\"16\" font-weight=\"bold\"", text);
  snprintf(text, sizeof text,
           "%s %s, least for these kernels and this order %s%s, without reuse %s; policy %s, %s; "
           "hatched: scratch",
           plan->policy == NEAP_POLICY_POOL ? "peak forecast of the pool" : "arena",
           neap_bytes_text((double)plan->arena_bytes, arena),
           neap_bytes_text((double)plan->lower_bound_bytes, bound), plan->proved ? " (proved)" : "",
           neap_bytes_text((double)plan->baseline_bytes, baseline), neap_policy_name(plan->policy),
           neap_executor_name(plan->executor));
  add_text(c, LEFT, 44, "fill=\"#555\"", text);
}

/* Later panels lie over earlier ones: the peak's frame over the boxes that it marks. */
static void draw_all(const canvas *c, int n_other, const neap_report_piece *other) {
  int seen[N_WORK] = {0};
  draw_head(c, BARS_TOP + count_bars(c, n_other) * BAR_HEIGHT + 16);
  draw_byte_axis(c);
  draw_boxes(c);
  draw_scratch(c);
  draw_step_axis(c, seen);
  draw_keys(c, seen);
  draw_curve(c);
  draw_peak(c);
  draw_bars(c, n_other, other);
  neap_buffer_add(c->out, "</svg>\n");
}

void neap_report_svg(const neap_plan *plan, const neap_graph *graph, const neap_drawing *drawing,
                     int n_other, const neap_report_piece *other, neap_buffer *out) {
  double *edge = neap_alloc(((size_t)plan->n_node + 1) * sizeof *edge);
  report_palette palette;
  canvas c = {.out = out,
              .plan = plan,
              .graph = graph,
              .left = LEFT,
              .right = RIGHT,
              .edge = edge,
              .step_ns = drawing != NULL ? drawing->step_ns : NULL,
              .palette = &palette,
              .node = -1,
              .all_bytes = plan->arena_bytes};
  bool good = report_palette_init(&palette, graph, drawing != NULL && drawing->by_layer);
  if (good && edge != NULL) {
    find_edges(&c, edge);
    draw_all(&c, n_other, other);
  } else {
    out->failed = true;
  }
  out->failed |= palette.failed;
  report_palette_fini(&palette);
  neap_free(edge);
}
