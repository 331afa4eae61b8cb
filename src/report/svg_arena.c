/* svg_arena.c: the arena of a drawn plan: boxes of storages, scratch with the frames of subnets in
 * it, the byte axis at the left, and the peak.
 *
 * A box is a storage: as wide as its life, as high as its bytes, at its address. The plan of a
 * subnet is drawn in the column of the op that owns it, by the same functions on a canvas of its
 * own.
 *
 * INVARIANT: boxes of storages that live at the same time do not overlap.
 */
#include "report/svg_int.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Address 0 of the arena is at the foot; `bytes` count from the frame's. */
static double y_of(const svg_canvas *c, size_t bytes) {
  return SVG_ARENA_TOP + SVG_ARENA_HEIGHT -
         (double)(c->base_bytes + bytes) / (double)NEAP_MAX(c->all_bytes, 1u) * SVG_ARENA_HEIGHT;
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

static void draw_byte_axis(const svg_canvas *c) {
  size_t tick = tick_bytes(NEAP_MAX(c->plan->arena_bytes, 1u));
  for (size_t bytes = 0; bytes <= c->plan->arena_bytes; bytes += tick) {
    svg_add_line(c, y_of(c, bytes), "stroke=\"#e4e4e4\"");
    svg_add_bytes(c, SVG_LEFT - 6, y_of(c, bytes) + 4, "text-anchor=\"end\" fill=\"#555\"", bytes);
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
static int find_boxes(const svg_canvas *c, member *list, box *boxes) {
  int n = 0, n_box = 0;

  /* Values of the arena that a step makes. */
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
static void end_title(const svg_canvas *c) {
  if (c->owner != NULL) {
    neap_buffer_add(c->out, " inside ");
    svg_add_escaped(c, c->owner);
  }
  neap_buffer_add(c->out, "</title>");
}

/* Along the box, with its bytes below where there is room; in a tall narrow one from its foot
 * upwards. */
static void label_box(const svg_canvas *c, const char *text, size_t bytes, double x, double y,
                      double width, double height) {
  char along_room[SVG_LABEL_ROOM], up_room[SVG_LABEL_ROOM], turn[96];
  const char *along = "", *up = "";

  /* A box lower than a line has no label; one that is tall and narrow may have it upwards. */
  if (height >= 10) along = svg_fitting(text, width - 4, along_room);
  if (along != text && width >= 8 && height > width) up = svg_fitting(text, height - 6, up_room);

  /* Upwards only where the whole name fits so, or nothing of it along the box. */
  if (up[0] != '\0' && (up == text || along[0] == '\0')) {
    int at_x = (int)(x + width / 2 + 3.5), at_y = (int)(y + height - 4);
    snprintf(turn, sizeof turn, "transform=\"rotate(-90 %d %d)\"%s", at_x, at_y,
             width < 11 ? " font-size=\"8.5\"" : "");
    svg_add_text(c, at_x, at_y, turn, up);
  } else if (along[0] != '\0') {
    /* In the middle of the box, but never below its foot. */
    bool two_lines = height >= 26 && width >= 60;
    svg_add_text(c, x + 3, fmin(y + height / 2 + (two_lines ? 0 : 4), y + height - 2), "", along);
    if (two_lines)
      svg_add_bytes(c, x + 3, y + height / 2 + 12, "fill=\"#444\" font-size=\"9\"", bytes);
  }
}

/* Its title, which a browser shows under the pointer, has all names. */
static void draw_box(const svg_canvas *c, const box *b, const member *list, int number) {
  double x = svg_x_of(c, b->from), width = svg_x_of(c, b->to + 1) - x;
  double y = y_of(c, b->offset + b->bytes), height = y_of(c, b->offset) - y;
  char text[512];

  /* All its names, in the order in which they take its bytes. */
  neap_buffer_add(c->out, "<g class=\"%s\"><title>", c->owner == NULL ? "box" : "inner");
  for (int i = 0; i < b->n; i++) {
    if (i > 0) neap_buffer_add(c->out, ", ");
    svg_add_escaped(c, svg_name_of(c, list[b->at + i].value));
  }

  /* Where it lies, from when to when. */
  neap_buffer_add(c->out, "\n%s at offset %zu, steps %d-%d",
                  neap_bytes_text((double)b->bytes, text), c->base_bytes + b->offset, b->from + 1,
                  b->to + 1);
  end_title(c);
  neap_buffer_add(c->out, "\n");

  /* The colour is that of the member which names the box; shades tell neighbours apart. */
  int v = list[b->at].value, node = c->node >= 0 ? c->node : c->graph->value[v].node;
  report_group group = report_palette_of(c->palette, c->graph, v, node, b->bytes);
  snprintf(text, sizeof text, "fill=\"hsl(%d,%d%%,%d%%)\" stroke=\"#444\" stroke-width=\"0.5\"",
           group.hue, group.saturation, SVG_KEY_LIGHT + 5 * (number % 3 - 1));
  svg_add_rect(c, x, y, width, height, text);

  /* The first member names the box; the title has the others. */
  if (b->n > 1)
    snprintf(text, sizeof text, "%s (+%d)", svg_name_of(c, list[b->at].value), b->n - 1);
  else
    snprintf(text, sizeof text, "%s", svg_name_of(c, list[b->at].value));
  label_box(c, text, b->bytes, x, y, width, height);
  neap_buffer_add(c->out, "</g>\n");
}

/* O(values log values): one list, cut into storages. */
static void draw_boxes(const svg_canvas *c) {
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

static void draw_scratch(const svg_canvas *c);

/* The frames of step s's op: they lie at the beginning of its scratch, one over another, so that
 * their columns stand side by side. */
static void draw_frames(const svg_canvas *c, int s) {
  int n = c->plan->order[s];
  const neap_node *node = &c->graph->node[n];
  double width = (svg_x_of(c, s + 1) - svg_x_of(c, s)) / NEAP_MAX(node->n_sub, 1);
  for (int k = 0; k < node->n_sub; k++) {
    /* A picture within the picture: the same heights, a column for its width. */
    svg_canvas inner = *c;
    inner.plan = c->plan->sub[n][k];
    inner.graph = node->sub[k];
    inner.left = svg_x_of(c, s) + k * width;
    inner.right = inner.left + width;

    /* The frame begins where the scratch of its op does; frames within frames add up. */
    inner.base_bytes += c->plan->scratch_offset[n];
    inner.owner = node->name;

    /* Steps of one width, since nobody measures those inside. */
    inner.edge = NULL;
    inner.node = c->node >= 0 ? c->node : n;
    draw_boxes(&inner);
    draw_scratch(&inner);
  }
}

/* Scratch lives for one step. That of an op with subnets holds their frames. */
static void draw_scratch(const svg_canvas *c) {
  char text[24];
  for (int s = 0; s < c->plan->n_node; s++) {
    int n = c->plan->order[s];
    size_t bytes = c->plan->scratch_bytes[n], offset = c->plan->scratch_offset[n];
    if (bytes == 0) continue;

    double y = y_of(c, offset + bytes);
    svg_open_rect(c, svg_x_of(c, s), y, svg_x_of(c, s + 1) - svg_x_of(c, s), y_of(c, offset) - y,
                  c->owner == NULL
                    ? "class=\"scratch\" fill=\"url(#hatch)\" stroke=\"#999\" stroke-width=\"0.5\""
                    : "fill=\"url(#hatch)\" stroke=\"#999\" stroke-width=\"0.5\"");

    /* Hatched, since it is nobody's value, and under the frames that lie in it. */
    neap_buffer_add(c->out, "><title>%s of ",
                    c->graph->node[n].n_sub > 0 ? "frames and scratch" : "scratch");
    svg_add_escaped(c, c->graph->node[n].name);
    neap_buffer_add(c->out, "\n%s at offset %zu, step %d", neap_bytes_text((double)bytes, text),
                    c->base_bytes + offset, s + 1);
    end_title(c);
    neap_buffer_add(c->out, "</rect>\n");

    draw_frames(c, s);
  }
}

void svg_draw_arena(const svg_canvas *c) {
  draw_byte_axis(c);
  draw_boxes(c);
  draw_scratch(c);
}

/* The peak's column, with what happens there written above it. */
void svg_draw_peak(const svg_canvas *c) {
  int s = c->plan->peak_step;
  char bytes[24], text[400];
  if (s < 0 || s >= c->plan->n_node) return;
  double x = svg_x_of(c, s), right = svg_x_of(c, s + 1);

  /* Text to the right of a peak at the right edge would be cut off. */
  bool at_right = x > SVG_WIDTH * 0.6;
  svg_add_rect(c, x, SVG_ARENA_TOP, fmax(2, right - x), SVG_AXIS_TOP - SVG_ARENA_TOP,
               "class=\"peak\" fill=\"none\" stroke=\"#b03030\" stroke-width=\"1.5\"");

  snprintf(text, sizeof text, "peak %s, step %d: %s",
           neap_bytes_text((double)c->plan->live_bytes[s], bytes), s + 1,
           c->graph->node[c->plan->order[s]].name);
  svg_add_text(c, at_right ? right : x, SVG_ARENA_TOP - 5,
               at_right ? "fill=\"#b03030\" font-weight=\"bold\" text-anchor=\"end\""
                        : "fill=\"#b03030\" font-weight=\"bold\"",
               text);
}
