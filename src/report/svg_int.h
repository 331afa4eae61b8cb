/* svg_int.h: what the files of a plan's drawing share (svg.c says what is drawn): the canvas, and
 * the elements that panels are made of. Nobody else includes it. */
#ifndef NEAP_REPORT_SVG_INT_H
#define NEAP_REPORT_SVG_INT_H

#include "report/report_int.h"

/* All in pixels, from the left and the top. */
enum {
  SVG_WIDTH = 1180,
  SVG_LEFT = 92,
  SVG_RIGHT = SVG_WIDTH - 24,
  SVG_ARENA_TOP = 64,
  SVG_ARENA_HEIGHT = 460,
  SVG_AXIS_TOP = SVG_ARENA_TOP + SVG_ARENA_HEIGHT + 4,
  SVG_KEY_TOP = SVG_AXIS_TOP + 29,
  SVG_CURVE_TOP = SVG_KEY_TOP + 51,
  SVG_CURVE_HEIGHT = 90,
  SVG_BARS_TOP = SVG_CURVE_TOP + SVG_CURVE_HEIGHT + 44,
  SVG_KEY_LIGHT = 76, /* percent, of the colours of the key */
  /* bytes: of a label as wide as the picture, some of its letters of two */
  SVG_LABEL_ROOM = 2 * SVG_WIDTH / 6
};

/* A plan and where it is drawn: the whole, or the plan of a subnet in a column of it. */
typedef struct svg_canvas {
  neap_buffer *out;
  const neap_plan *plan;
  const neap_graph *graph;
  double left, right; /* the pixels that its steps share */
  /* the whole: where its steps begin, from 0 to 1, and 1 behind the last; NULL: all are as wide */
  const double *edge;
  const int64_t *step_ns;  /* the axis is time; NULL: steps */
  const char *times_of;    /* whose time; NULL: nothing is said of it */
  report_palette *palette; /* what colours mean */
  int node;                /* that owns the subnet; -1: the whole */
  size_t base_bytes;       /* address of its frame */
  size_t all_bytes;        /* of the whole arena */
  const char *owner;       /* name of the op that owns the subnet; NULL: the whole */
} svg_canvas;

/* ---- elements (svg.c) ------------------------------------------------------------------------ */

/* ATTRIBUTE="1.25"; negative numbers are drawn as 0. */
void svg_add_number(const svg_canvas *c, const char *attribute, double value);
/* Text between tags or in quotes. */
void svg_add_escaped(const svg_canvas *c, const char *text);
/* `attributes` are XML, also below. */
void svg_add_text(const svg_canvas *c, double x, double y, const char *attributes,
                  const char *text);
void svg_add_bytes(const svg_canvas *c, double x, double y, const char *attributes, size_t bytes);
/* A tag that is not closed yet: for "/>" or a title inside. */
void svg_open_rect(const svg_canvas *c, double x, double y, double width, double height,
                   const char *attributes);
void svg_add_rect(const svg_canvas *c, double x, double y, double width, double height,
                  const char *attributes);
/* From the left of the picture to its right. */
void svg_add_line(const svg_canvas *c, double y, const char *attributes);
const char *svg_name_of(const svg_canvas *c, int v);
/* What of `text` fits into `width` pixels: all of it, else its beginning and, where there is room,
 * its end. "" when no more than a few characters would. Either `text` itself, or in `room`. */
const char *svg_fitting(const char *text, double width, char room[SVG_LABEL_ROOM]);
/* Where a step begins; `step` may be one past the last. */
double svg_x_of(const svg_canvas *c, int step);
/* The step behind a stretch that is folded and begins at `step`; `step` itself where none does. */
int svg_fold_end(const svg_canvas *c, int step);

/* ---- panels ---------------------------------------------------------------------------------- */

void svg_draw_arena(const svg_canvas *c); /* svg_arena.c */
/* The frame around the peak's column, over what has been drawn there. */
void svg_draw_peak(const svg_canvas *c); /* svg_arena.c */
/* The strip below the arena, the key and the curve of live bytes. After the arena, whose boxes the
 * key lists. */
void svg_draw_steps(const svg_canvas *c); /* svg_steps.c */

#endif
