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
#include "report/svg_int.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum {
  BAR_HEIGHT = 26,
  BAR_RIGHT = SVG_RIGHT - 90, /* room for the sum behind the longest bar */
  LEAST_FOLD = 4              /* steps */
};

/* ---- elements -------------------------------------------------------------------------------- */

/* ATTRIBUTE="1.25" */
void svg_add_number(const svg_canvas *c, const char *attribute, double value) {
  long long hundredths = llround(fmax(value, 0) * 100);
  neap_buffer_add(c->out, " %s=\"%lld.%02lld\"", attribute, hundredths / 100, hundredths % 100);
}

/* Text between tags or in quotes. Control characters are not allowed in XML, not even as
 * entities. */
void svg_add_escaped(const svg_canvas *c, const char *text) {
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
void svg_add_text(const svg_canvas *c, double x, double y, const char *attributes,
                  const char *text) {
  neap_buffer_add(c->out, "<text");
  svg_add_number(c, "x", x);
  svg_add_number(c, "y", y);
  neap_buffer_add(c->out, " %s>", attributes);
  svg_add_escaped(c, text);
  neap_buffer_add(c->out, "</text>\n");
}

void svg_add_bytes(const svg_canvas *c, double x, double y, const char *attributes, size_t bytes) {
  char text[24];
  svg_add_text(c, x, y, attributes, neap_bytes_text((double)bytes, text));
}

/* A tag that is not closed yet: for "/>" or a title inside. */
void svg_open_rect(const svg_canvas *c, double x, double y, double width, double height,
                   const char *attributes) {
  neap_buffer_add(c->out, "<rect");
  svg_add_number(c, "x", x);
  svg_add_number(c, "y", y);
  svg_add_number(c, "width", width);
  svg_add_number(c, "height", height);
  neap_buffer_add(c->out, " %s", attributes);
}

void svg_add_rect(const svg_canvas *c, double x, double y, double width, double height,
                  const char *attributes) {
  svg_open_rect(c, x, y, width, height, attributes);
  neap_buffer_add(c->out, "/>\n");
}

void svg_add_line(const svg_canvas *c, double y, const char *attributes) {
  neap_buffer_add(c->out, "<line x1=\"%d\" x2=\"%d\"", SVG_LEFT, SVG_RIGHT);
  svg_add_number(c, "y1", y);
  svg_add_number(c, "y2", y);
  neap_buffer_add(c->out, " %s/>\n", attributes);
}

const char *svg_name_of(const svg_canvas *c, int v) {
  return c->graph->value[v].name != NULL ? c->graph->value[v].name : "?";
}

static bool is_inside_character(char c) { return ((unsigned char)c & 0xC0u) == 0x80u; }

/* What of `text` fits into `width` pixels, 6.3 a character: all of it, else its beginning and,
 * where there is room, its end, which is where names differ ("block1/co…_grad"). "" when no more
 * than a few characters would. */
const char *svg_fitting(const char *text, double width, char room[SVG_LABEL_ROOM]) {
  int n = (int)strlen(text), most = (int)(width / 6.3);
  if (n <= most) return text;
  if (most < 5) return "";

  /* The ellipsis is as wide as two characters. */
  int end = most < 12 ? 0 : most / 3, head = most - 2 - end, tail = n - end;

  /* A character of several bytes is not cut. */
  while (head > 0 && is_inside_character(text[head])) head--;
  while (tail < n && is_inside_character(text[tail])) tail++;
  snprintf(room, SVG_LABEL_ROOM, "%.*s…%s", head, text, text + tail);
  return room;
}

/* Where a step begins; `step` may be one past the last. */
double svg_x_of(const svg_canvas *c, int step) {
  double share = (double)step / NEAP_MAX(c->plan->n_node, 1);
  return c->left + (c->edge != NULL ? c->edge[step] : share) * (c->right - c->left);
}

/* Whether the arena holds nothing while a step runs, or less than half a pixel shows. */
static bool is_empty(const neap_plan *plan, int step) {
  return (double)plan->live_bytes[step] * 2 * SVG_ARENA_HEIGHT <= (double)plan->arena_bytes &&
         plan->live_bytes[step] < plan->arena_bytes;
}

/* The step behind a stretch that is folded and begins at `step`; `step` itself where none does. A
 * short one is as it is. */
int svg_fold_end(const svg_canvas *c, int step) {
  /* Time has its own widths; and a stretch is folded as a whole, from its first step on. */
  int end = step;
  if (c->step_ns != NULL || (step > 0 && is_empty(c->plan, step - 1))) return step;

  /* Three steps or fewer would save no room. */
  while (end < c->plan->n_node && is_empty(c->plan, end)) end++;
  return end - step >= LEAST_FOLD ? end : step;
}

/* Fills edge[0] to edge[n_node]: by time, else a column for each step and each fold. */
static void find_edges(const svg_canvas *c, double *edge) {
  int n = c->plan->n_node;
  double all = 0;
  edge[0] = 0;
  for (int s = 0; s < n;) {
    int end = svg_fold_end(c, s);

    /* A fold is as wide as a step, or as the number of its steps needs. */
    double width = end > s ? fmax(1, n / 28.0) : 1;
    if (end == s) end = s + 1;
    if (c->step_ns != NULL) width = (double)NEAP_MAX(c->step_ns[s], 0);

    /* Steps of a fold divide its column, so that boxes inside it still stand in order. */
    for (int k = s + 1; k <= end; k++) edge[k] = all + width * (k - s) / (end - s);
    all += width;
    s = end;
  }

  /* Shares of the whole width; where no time was measured at all steps are of one width. */
  for (int s = 0; s <= n; s++) edge[s] = all > 0 ? edge[s] / all : (double)s / NEAP_MAX(n, 1);
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
static void draw_bar(const svg_canvas *c, const bar *b, int n, neap_report_piece *piece, double y,
                     size_t most) {
  char text[160], room[SVG_LABEL_ROOM];
  double x = SVG_LEFT, scale = (BAR_RIGHT - SVG_LEFT) / (double)NEAP_MAX(most, 1u);

  /* The largest first: the pieces that have room for a name stand together. */
  qsort(piece, (size_t)n, sizeof *piece, compare_pieces);

  /* The region's name on the left, then its pieces, each as wide as its bytes. */
  svg_add_text(c, SVG_LEFT - 6, y + 14, "text-anchor=\"end\" fill=\"#555\"", b->label);
  for (int i = 0; i < n; i++) {
    double width = (double)piece[i].bytes * scale;
    neap_buffer_add(c->out, "<g class=\"%s\"><title>", b->kind);
    svg_add_escaped(c, piece[i].name);
    neap_buffer_add(c->out, "\n%s</title>\n", neap_bytes_text((double)piece[i].bytes, text));
    snprintf(text, sizeof text, "fill=\"%s\" stroke=\"#fff\" stroke-width=\"0.5\"", b->colour);
    svg_add_rect(c, x, y, width, BAR_HEIGHT - 6, text);

    /* A piece too narrow for its name has it in its title. */
    const char *label = svg_fitting(piece[i].name, width - 4, room);
    if (label[0] != '\0') svg_add_text(c, x + 3, y + 14, "", label);
    neap_buffer_add(c->out, "</g>\n");
    x += width;
  }

  /* The sum behind the last piece, with what there is to say of it. */
  char bytes[24];
  snprintf(text, sizeof text, "%s%s", neap_bytes_text((double)b->bytes, bytes), b->note);
  svg_add_text(c, x + 6, y + 14, "fill=\"#555\"", text);
}

/* Storages of a region, each once. `seen` is by value, zeroed. */
static int find_pieces(const svg_canvas *c, neap_region region, bool *seen,
                       neap_report_piece *piece) {
  int n = 0;
  for (int v = 0; v < c->plan->n_value; v++) {
    const neap_place *place = &c->plan->place[v];
    /* Versions of one storage are the same bytes. */
    if (place->region != region || place->bytes == 0 || seen[place->storage]) continue;
    seen[place->storage] = true;
    piece[n++] = (neap_report_piece){svg_name_of(c, v), place->bytes};
  }
  return n;
}

static const char *const region_colour[NEAP_N_REGION] = {
  [NEAP_REGION_PARAMETER] = "#8fb4dc", [NEAP_REGION_GRADIENT] = "#e0a48f",
  [NEAP_REGION_STATE] = "#bfa8dd",     [NEAP_REGION_IO] = "#c4c4c4",
  [NEAP_REGION_CONSTANT] = "#d8cd8c",  [NEAP_REGION_FRAME] = "#9fd0c0"};

/* Whether the region has a bar: it holds bytes, and not those of the arena or of an owner's
 * operands. */
static bool has_bar(const svg_canvas *c, int region) {
  return region_colour[region] != NULL && c->plan->region_bytes[region] > 0;
}

static int count_bars(const svg_canvas *c, int n_other) {
  int n = n_other > 0;
  for (int r = 0; r < NEAP_N_REGION; r++) n += has_bar(c, r);
  return n;
}

/* All bars have one scale, that of the longest. */
static void draw_bars(const svg_canvas *c, int n_other, const neap_report_piece *other) {
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

  /* A bar for each region that holds something, from the top down. */
  double y = SVG_BARS_TOP;
  if (most > 0)
    svg_add_text(c, SVG_LEFT, SVG_BARS_TOP - 8, "fill=\"#555\"",
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
static void draw_head(const svg_canvas *c, int height) {
  const neap_plan *plan = c->plan;
  char text[512], arena[24], bound[24], baseline[24];

  /* The pattern that hatches scratch, and white paper under all of it. */
  neap_buffer_add(c->out,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
                  "height=\"%d\" font-family=\"sans-serif\" ",
                  SVG_WIDTH, height, SVG_WIDTH, height);
  neap_buffer_add(
    c->out,
    "font-size=\"10.5\">\n"
    "<defs><pattern id=\"hatch\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" "
    "patternTransform=\"rotate(45)\">"
    "<rect width=\"6\" height=\"6\" fill=\"#f4f4f4\"/><path d=\"M0 0V6\" "
    "stroke=\"#999\"/></pattern></defs>\n"
    "<rect width=\"%d\" height=\"%d\" fill=\"white\"/>\n",
    SVG_WIDTH, height);

  /* What is drawn, then its figures, in the words of explain. */
  /* How good the plan is, in the line below. */
  snprintf(text, sizeof text, "%.400s, %s, batch %lld", c->graph->name,
           c->graph->train ? "training" : "inference", (long long)neap_graph_batch(c->graph));
  svg_add_text(c, SVG_LEFT, 24, "font-size=\"16\" font-weight=\"bold\"", text);
  if (c->step_ns != NULL && c->times_of != NULL) {
    char room[SVG_LABEL_ROOM];
    svg_add_text(c, SVG_RIGHT, 24, "text-anchor=\"end\" fill=\"#555\"",
                 svg_fitting(c->times_of, (SVG_RIGHT - SVG_LEFT) / 2, room));
  }
  snprintf(text, sizeof text,
           "%s %s, least for these kernels and this order %s%s, without reuse %s; policy %s, %s; "
           "hatched: scratch",
           plan->policy == NEAP_POLICY_POOL ? "peak forecast of the pool" : "arena",
           neap_bytes_text((double)plan->arena_bytes, arena),
           neap_bytes_text((double)plan->lower_bound_bytes, bound), plan->proved ? " (proved)" : "",
           neap_bytes_text((double)plan->baseline_bytes, baseline), neap_policy_name(plan->policy),
           neap_executor_name(plan->executor));
  svg_add_text(c, SVG_LEFT, 44, "fill=\"#555\"", text);
}

/* Later panels lie over earlier ones: the peak's frame over the boxes that it marks. */
static void draw_all(const svg_canvas *c, int n_other, const neap_report_piece *other) {
  draw_head(c, SVG_BARS_TOP + count_bars(c, n_other) * BAR_HEIGHT + 16);
  svg_draw_arena(c);
  svg_draw_steps(c);
  svg_draw_peak(c);
  draw_bars(c, n_other, other);
  neap_buffer_add(c->out, "</svg>\n");
}

void neap_report_svg(const neap_plan *plan, const neap_graph *graph, const neap_drawing *drawing,
                     int n_other, const neap_report_piece *other, neap_buffer *out) {
  double *edge = neap_alloc(((size_t)plan->n_node + 1) * sizeof *edge);
  report_palette palette;
  svg_canvas c = {.out = out,
                  .plan = plan,
                  .graph = graph,
                  .left = SVG_LEFT,
                  .right = SVG_RIGHT,
                  .edge = edge,
                  .step_ns = drawing != NULL ? drawing->step_ns : NULL,
                  .times_of = drawing != NULL ? drawing->times_of : NULL,
                  .palette = &palette,
                  .node = -1,
                  .all_bytes = plan->arena_bytes};

  /* Columns first: all three panels stand on them. */
  bool good = report_palette_init(&palette, graph, drawing != NULL && drawing->by_layer);
  if (good && edge != NULL) {
    find_edges(&c, edge);
    draw_all(&c, n_other, other);
  } else {
    out->failed = true;
  }

  /* A group that got no memory makes the picture wrong, though it is whole. */
  out->failed |= palette.failed;
  report_palette_fini(&palette);
  neap_free(edge);
}
