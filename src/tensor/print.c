/* print.c: a tensor as text, as NumPy prints arrays: nested brackets, aligned columns, "..." in the
 * middle of large ones.
 *
 * The elements that will be shown are visited twice: first to choose the notation and the width of
 * a column, then to write. A column is `left` characters up to the point and `right` from it on.
 */
#include "tensor/tensor.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ELEMENT_TEXT = 64, MAX_PRECISION = 17 };

/* A tensor on its way to text. The widths are found by the first visit and read by the second. */
typedef struct printer {
  const neap_tensor *t;
  neap_print_options options;
  neap_buffer *out;
  bool cut;         /* whether the middle of long dimensions is left out */
  bool scientific;  /* for floats */
  int digits;       /* after the point, in scientific notation: what the shown elements need */
  double low, high; /* of the magnitudes shown, zero and infinities apart */
  int left, right;  /* width of a column */
  int column;       /* where the current line is */
} printer;

/* What is done with one element at `element`, in either visit. */
typedef void visit(printer *p, const char *element);

/* Whether a gap of a dimension of n starts at *index, which then becomes the first index after
 * it. */
static bool gap(const printer *p, int64_t n, int64_t *index) {
  if (!p->cut || n <= 2 * (int64_t)p->options.edge || *index != p->options.edge) return false;
  *index = n - p->options.edge;
  return true;
}

static int64_t stride_bytes(const printer *p, int dim) {
  return p->t->stride[dim] * (int64_t)neap_dtype_bytes(p->t->dtype);
}

/* Calls `each` for every element that is shown, from dimension `dim` on. */
static void visit_shown(printer *p, int dim, const char *at, visit *each) {
  if (dim == p->t->shape.n_dim) {
    each(p, at);
    return;
  }
  int64_t n = p->t->shape.dim[dim];
  for (int64_t i = 0; i < n; i++) {
    gap(p, n, &i);
    visit_shown(p, dim + 1, at + i * stride_bytes(p, dim), each);
  }
}

/* ---- one element ----------------------------------------------------------------------------- */

/* Cuts the zeros at the end of a fixed-point number: "2.5000" to "2.5", "2.0000" to "2.". */
static void trim_zeros(char *text) {
  size_t n = strlen(text);
  if (memchr(text, '.', n) == NULL) return;
  while (text[n - 1] == '0') text[--n] = '\0';
}

/* The element without padding. */
static void element_text(const printer *p, const char *element, char text[ELEMENT_TEXT]) {
  neap_dtype dtype = p->t->dtype;
  if (dtype == NEAP_DTYPE_BOOL) {
    snprintf(text, ELEMENT_TEXT, "%s",
             neap_element_get_i64(dtype, element, 0) != 0 ? "true" : "false");
  } else if (!neap_dtype_is_float(dtype)) {
    snprintf(text, ELEMENT_TEXT, "%lld", (long long)neap_element_get_i64(dtype, element, 0));
  } else {
    double x = neap_element_get(dtype, element, 0);
    if (isnan(x))
      snprintf(text, ELEMENT_TEXT, "nan"); /* its sign means nothing */
    else if (isinf(x))
      snprintf(text, ELEMENT_TEXT, x < 0 ? "-inf" : "inf");
    else if (p->scientific)
      neap_format(text, ELEMENT_TEXT, "%.*e", p->digits, x);
    else {
      /* "#" keeps the point, which the columns stand by. */
      neap_format(text, ELEMENT_TEXT, "%#.*f", p->options.precision, x);
      trim_zeros(text);
    }
  }
}

/* Characters before the point. Words, and integers, have no point: all of them. */
static int left_of(const char *text) { return (int)strcspn(text, "."); }

/* ---- first visit: notation and width --------------------------------------------------------- */

/* Widens [low, high] to hold the element's magnitude. */
static void see_magnitude(printer *p, const char *element) {
  double x = fabs(neap_element_get(p->t->dtype, element, 0));
  if (x == 0 || !isfinite(x)) return;
  p->low = p->high == 0 ? x : fmin(p->low, x);
  p->high = fmax(p->high, x);
}

/* How many digits after the point x needs in scientific notation, at most `precision`. */
static void see_digits(printer *p, const char *element) {
  double x = neap_element_get(p->t->dtype, element, 0);
  if (!isfinite(x)) return;
  char text[ELEMENT_TEXT];
  /* Printed with all digits that may be shown; zeros at the end need not be. */
  neap_format(text, sizeof text, "%#.*e", p->options.precision, x);
  int needed = (int)strcspn(text, "e") - left_of(text) - 1;
  while (needed > 0 && text[left_of(text) + needed] == '0') needed--;
  p->digits = NEAP_MAX(p->digits, needed);
}

/* Widens the column for numbers with a point: their points stand above each other. */
static void see_width(printer *p, const char *element) {
  char text[ELEMENT_TEXT];
  element_text(p, element, text);
  int n = (int)strlen(text), left = left_of(text);
  if (left < n) { /* it has a point */
    p->left = NEAP_MAX(p->left, left);
    p->right = NEAP_MAX(p->right, n - left);
  }
}

/* Words are as wide as a column at least; they end where the column ends. */
static void see_word_width(printer *p, const char *element) {
  char text[ELEMENT_TEXT];
  element_text(p, element, text);
  p->left = NEAP_MAX(p->left, (int)strlen(text) - p->right);
}

/* NumPy's rule: scientific where fixed-point would be too long, or would round the small ones to
 * nothing. */
static void choose_format(printer *p) {
  const char *data = neap_tensor_data(p->t);
  if (neap_dtype_is_float(p->t->dtype)) {
    /* Magnitudes decide the notation, and notation the widths: one visit after the other. */
    visit_shown(p, 0, data, see_magnitude);
    p->scientific = p->high >= 1e8 || (p->high > 0 && (p->low < 1e-4 || p->high / p->low > 1000));
    if (p->scientific) visit_shown(p, 0, data, see_digits);
    visit_shown(p, 0, data, see_width);
  }
  /* "nan", "true" and integers come last: a column of numbers may be wide enough for them. */
  visit_shown(p, 0, data, see_word_width);
}

/* ---- second visit: text ---------------------------------------------------------------------- */

/* Text without line ends; keeps count of the column. */
static void put(printer *p, const char *text) {
  neap_buffer_add_n(p->out, text, strlen(text));
  p->column += (int)strlen(text);
}

/* n line ends, then blanks up to the brackets that are open. */
static void put_line_break(printer *p, int n, int indent) {
  for (int i = 0; i < n; i++) neap_buffer_add_n(p->out, "\n", 1);
  for (int i = 0; i < indent; i++) neap_buffer_add_n(p->out, " ", 1);
  p->column = indent;
}

/* Padded to the column's width: points, or ends of words, stand above each other. */
static void put_element(printer *p, const char *element) {
  char text[ELEMENT_TEXT], padded[2 * ELEMENT_TEXT];
  element_text(p, element, text);
  /* Numbers are moved so that their points meet; words end where the column ends. */
  int n = (int)strlen(text), left = left_of(text), width = p->left + p->right;
  int before = NEAP_MAX(left < n ? p->left - left : width - n, 0);
  snprintf(padded, sizeof padded, "%*s%-*s", before, "", NEAP_MAX(width - before, 0), text);
  put(p, padded);
}

/* The last dimension: elements side by side, on as many lines as it takes. */
static void put_row(printer *p, const char *at, int dim) {
  int64_t n = p->t->shape.dim[dim];
  for (int64_t i = 0; i < n; i++) {
    bool leaves_out = gap(p, n, &i);
    /* with the brackets that may close after it */
    int need = 1 + p->left + p->right + (leaves_out ? 4 : 0) + dim + 1;
    /* A line is full when the next element, with all that must follow it, would pass the width. */
    if (i > 0 && p->column + need > p->options.width)
      put_line_break(p, 1, dim + 1);
    else if (i > 0)
      put(p, " ");
    if (leaves_out) put(p, "... ");
    put_element(p, at + i * stride_bytes(p, dim));
  }
}

/* Dimension dim and those inside it, in brackets; slices of higher rank stand further apart, as
 * NumPy has it. */
static void put_block(printer *p, const char *at, int dim) {
  int n_dim = p->t->shape.n_dim;
  if (dim == n_dim) {
    put_element(p, at);
    return;
  }
  /* A row, or slices, each on lines of its own. */
  put(p, "[");
  if (dim == n_dim - 1) {
    put_row(p, at, dim);
  } else {
    int64_t n = p->t->shape.dim[dim];
    for (int64_t i = 0; i < n; i++) {
      if (i > 0) put_line_break(p, n_dim - dim - 1, dim + 1);
      if (gap(p, n, &i)) {
        put(p, "...");
        put_line_break(p, n_dim - dim - 1, dim + 1);
      }
      put_block(p, at + i * stride_bytes(p, dim), dim + 1);
    }
  }
  put(p, "]");
}

/* Appends to `out`; `options` NULL: the usual ones; `name` NULL: none. Last comes a line with name,
 * dtype, shape and bytes. Precision and edge are kept within what the text buffers hold and what
 * leaves something to show. */
void neap_tensor_print(const neap_tensor *t, const neap_print_options *options, const char *name,
                       neap_buffer *out) {
  static const neap_print_options usual = {
    .precision = 4, .threshold = 1000, .edge = 3, .width = 100};
  if (t->storage == NULL || t->dtype == NEAP_DTYPE_NONE) {
    neap_buffer_add(out, "no tensor");
    return;
  }
  int64_t elems = neap_tensor_elems(t);
  printer p = {.t = t, .options = options != NULL ? *options : usual, .out = out};
  /* What the caller asks for, within bounds. */
  p.options.precision = NEAP_MAX(NEAP_MIN(p.options.precision, (int)MAX_PRECISION), 0);
  p.options.edge = NEAP_MAX(p.options.edge, 1);
  p.cut = elems > p.options.threshold;
  if (elems == 0) {
    put(&p, "[]");
  } else {
    choose_format(&p);
    put_block(&p, neap_tensor_data(t), 0);
  }
  /* The last line says what it is. */
  neap_type type = neap_tensor_type(t);
  char shape[NEAP_SHAPE_TEXT], bytes[24];
  neap_buffer_add(out, "\n%s%s%s %s %s", name != NULL ? name : "", name != NULL ? " " : "",
                  neap_dtype_name(t->dtype), neap_shape_text(&t->shape, shape),
                  neap_bytes_text((double)neap_type_bytes(&type), bytes));
}
