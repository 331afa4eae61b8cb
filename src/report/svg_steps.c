/* svg_steps.c: what a drawn plan says of its steps: a strip of what they do, their numbers or the
 * time below it, the key of all colours, and the curve of live bytes.
 *
 * INVARIANT: a step has the same column here as in the arena above: svg_x_of says where it begins.
 */
#include "report/svg_int.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_KEYS = 24 };

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
static void add_strip_title(const svg_canvas *c, int s, int end) {
  const neap_node *node = &c->graph->node[c->plan->order[s]];
  if (end - s > 1) {
    neap_buffer_add(c->out, "<title>steps %d-%d: next to nothing is held</title>", s + 1, end);
    return;
  }
  neap_buffer_add(c->out, "<title>step %d: ", s + 1);
  svg_add_escaped(c, node->name);
  neap_buffer_add(c->out, ", %s", node->op->name);
  if (c->step_ns != NULL)
    neap_buffer_add(c->out, ", %lld.%03lld us", (long long)(c->step_ns[s] / 1000),
                    (long long)(c->step_ns[s] % 1000));
  neap_buffer_add(c->out, "</title>");
}

/* Round times along the axis: 1, 2 or 5 times a power of ten of ns, up to ten apart from 0. */
static void draw_times(const svg_canvas *c) {
  int64_t all = 0, tick = 1;
  for (int s = 0; s < c->plan->n_node; s++) all += NEAP_MAX(c->step_ns[s], 0);
  for (int i = 0; all / tick > 10; i++) tick = i % 3 == 1 ? tick / 2 * 5 : tick * 2;

  /* The unit in which all of it is at least two. */
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
      int64_t power = 1;
      int digits = 0;
      for (; digits < 2 && tick * power < unit[u].ns; digits++) power *= 10;
      int64_t part = llround((double)at * (double)power / (double)unit[u].ns);
      int n = snprintf(text, sizeof text, "%lld", (long long)(part / power));
      if (digits > 0)
        n +=
          snprintf(text + n, sizeof text - (size_t)n, ".%0*lld", digits, (long long)(part % power));
      snprintf(text + n, sizeof text - (size_t)n, " %s", unit[u].name);

      /* The last one would stick out at the right: it moves in. */
      double x = SVG_LEFT + (double)at / (double)all * (SVG_RIGHT - SVG_LEFT);
      svg_add_text(c, fmin(x, SVG_RIGHT - 12), SVG_AXIS_TOP + 21,
                   "text-anchor=\"middle\" fill=\"#555\"", text);
    }
}

/* The number of a step below its column, where it has one and does not stand in another's. */
static void draw_number(const svg_canvas *c, int s, int end, int stride, double *free_from) {
  char text[64];
  bool is_fold = end - s > 1;
  if (!is_fold && (s + 1) % stride != 0 && !(s == 0 && stride >= 5)) return;

  /* A fold has its numbers always; of the others each stride-th has one, and the first where
   * strides are long. */
  if (is_fold)
    snprintf(text, sizeof text, "%d-%d", s + 1, end);
  else
    snprintf(text, sizeof text, "%d", s + 1);

  /* Numbers stand in the middle of their columns; one that would meet the number before it is left
   * out. */
  double middle = (svg_x_of(c, s) + svg_x_of(c, end)) / 2, half = (double)strlen(text) * 3.2;
  if (middle - half < *free_from && !is_fold) return;

  /* That of a fold close behind goes first. */
  if (!is_fold)
    for (int k = s + 1; k < c->plan->n_node && k <= s + stride; k++)
      if (svg_fold_end(c, k) > k && middle + half > svg_x_of(c, k) - 8) return;
  *free_from = middle + half + 4;
  svg_add_text(c, middle, SVG_AXIS_TOP + 21, "text-anchor=\"middle\" fill=\"#555\"", text);
}

/* Numbers, and a strip coloured by what steps do. Counts them in `seen`. */
static void draw_step_axis(const svg_canvas *c, int seen[N_WORK]) {
  int n = c->plan->n_node, stride = number_stride(n);
  double free_from = 0;
  char text[80];
  for (int s = 0; s < n;) {
    int end = NEAP_MAX(svg_fold_end(c, s), s + 1);
    int work = work_of(&c->graph->node[c->plan->order[end - 1]]);
    double x = svg_x_of(c, s);

    /* All steps count for the key, those in a fold too. */
    for (int k = s; k < end; k++) seen[work_of(&c->graph->node[c->plan->order[k]])]++;

    /* The strip has the colour of the last step of a fold: updates, mostly. */
    snprintf(text, sizeof text, "%sfill=\"%s\"", end - s > 1 ? "class=\"fold\" " : "",
             work_colour[work]);
    svg_open_rect(c, x, SVG_AXIS_TOP, svg_x_of(c, end) - x, 8, text);
    neap_buffer_add(c->out, ">");
    add_strip_title(c, s, end);
    neap_buffer_add(c->out, "</rect>\n");

    if (c->step_ns == NULL) draw_number(c, s, end, stride, &free_from);
    s = end;
  }
  if (c->step_ns != NULL) draw_times(c);
}

/* One entry of the key at *x, which moves behind it. */
static void draw_key(const svg_canvas *c, double *x, double y, const char *fill, const char *name) {
  char text[128], room[SVG_LABEL_ROOM];
  snprintf(text, sizeof text, "class=\"key\" fill=\"%s\" stroke=\"#444\" stroke-width=\"0.3\"",
           fill);
  const char *shown = svg_fitting(name, 190, room);
  svg_add_rect(c, *x, y, 10, 8, text);
  svg_add_text(c, *x + 14, y + 8, "fill=\"#555\"", shown);
  *x += 26 + 6.0 * (double)strlen(shown);
}

/* What the colours mean: a line of what steps do, and one of what boxes are, those that hold most
 * first. The key has only what the plan has. */
static void draw_keys(const svg_canvas *c, const int seen[N_WORK]) {
  char text[64];
  double x = SVG_LEFT;
  for (int p = 0; p < N_WORK; p++)
    if (seen[p] > 0) draw_key(c, &x, SVG_KEY_TOP, work_colour[p], work_name(p));

  /* The second line: groups by bytes, as many as fit; how many do not is said. */
  report_palette_sort(c->palette);
  x = SVG_LEFT;
  for (int i = 0; i < c->palette->n; i++) {
    const report_group *group = &c->palette->group[i];
    double need = 26 + 6.0 * (double)NEAP_MIN(strlen(group->name), (size_t)31);
    if (x + need > SVG_RIGHT - 70 || i == MOST_KEYS) {
      snprintf(text, sizeof text, "and %d more", c->palette->n - i);
      svg_add_text(c, x, SVG_KEY_TOP + 26, "fill=\"#555\"", text);
      break;
    }
    snprintf(text, sizeof text, "hsl(%d,%d%%,%d%%)", group->hue, group->saturation, SVG_KEY_LIGHT);
    draw_key(c, &x, SVG_KEY_TOP + 18, text, group->name);
  }
}

/* "12.5,40.0 ", as polygons have it: tenths are finer than a screen. */
static void add_point(const svg_canvas *c, double x, double y) {
  long long a = llround(x * 10), b = llround(y * 10);
  neap_buffer_add(c->out, "%lld.%lld,%lld.%lld ", a / 10, a % 10, b / 10, b % 10);
}

/* Bytes live while each op runs. In a dag the bound counts what may overlap: then the curve stays
 * below it. */
static void draw_curve(const svg_canvas *c) {
  const neap_plan *plan = c->plan;
  size_t most = NEAP_MAX(plan->lower_bound_bytes, 1u); /* the top of the panel */
  for (int s = 0; s < plan->n_node; s++) most = NEAP_MAX(most, plan->live_bytes[s]);
  const double bottom = SVG_CURVE_TOP + SVG_CURVE_HEIGHT, scale = SVG_CURVE_HEIGHT / (double)most;
  double bound = bottom - (double)plan->lower_bound_bytes * scale;
  svg_add_text(
    c, SVG_LEFT, SVG_CURVE_TOP - 8, "fill=\"#555\"",
    "bytes live while each op runs; dashed: the least arena for these kernels and this order");
  neap_buffer_add(c->out, "<polygon points=\"");
  add_point(c, SVG_LEFT, bottom);
  /* Steps are flat: each has two points of one height. */
  for (int s = 0; s < plan->n_node; s++) {
    add_point(c, svg_x_of(c, s), bottom - (double)plan->live_bytes[s] * scale);
    add_point(c, svg_x_of(c, s + 1), bottom - (double)plan->live_bytes[s] * scale);
  }
  add_point(c, SVG_RIGHT, bottom);
  /* The bound lies over the curve: where they meet, the plan is as good as it can be. */
  neap_buffer_add(c->out, "\" fill=\"#cfd8e6\" stroke=\"#5b7394\" stroke-width=\"0.8\"/>\n");
  svg_add_line(c, bound, "stroke=\"#b03030\" stroke-dasharray=\"5 3\"");
  svg_add_bytes(c, SVG_LEFT - 6, bound + 4, "text-anchor=\"end\" fill=\"#b03030\"",
                plan->lower_bound_bytes);
  if (plan->lower_bound_bytes > 0)
    svg_add_bytes(c, SVG_LEFT - 6, bottom + 4, "text-anchor=\"end\" fill=\"#555\"", 0);
}

void svg_draw_steps(const svg_canvas *c) {
  int seen[N_WORK] = {0};
  draw_step_axis(c, seen);
  draw_keys(c, seen);
  draw_curve(c);
}
