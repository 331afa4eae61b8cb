/* transform.c: what is done to the rows of a batch while they are read: pictures moved, cut, turned
 * and recoloured, numbers brought to a mean of 0, and rows mixed with each other.
 *
 * A transform is one record of the table below: how many numbers it takes, what becomes of a row's
 * shape, and how it runs. Rows are (channels,height,width) in f32; (height,width) is one channel,
 * (numbers) as many channels of one pixel.
 *
 * INVARIANT: what a transform draws depends on the seed, the epoch and the row's place in it alone.
 */
#include "io/picture.h"

#include <math.h>
#include <string.h>

enum { STREAM = 0x7261 }; /* of no op: their streams are small numbers */

/* A row on its way; `in` and `out` are two of three buffers, `room` is the third. */
typedef struct row {
  int64_t channels, height, width;
  const float *in;
  float *out, *room;
  neap_io_draw *draw;
} row;

/* ---- draws ----------------------------------------------------------------------------------- */

/* The next word of this place in the epoch. */
static uint32_t word(neap_io_draw *d) {
  uint32_t out[4];
  neap_philox(d->seed, STREAM + d->n++, d->epoch, d->place, out);
  return out[0];
}

static double uniform(neap_io_draw *d) { return word(d) * 0x1p-32; } /* [0,1) */
static double between(neap_io_draw *d, double a, double b) { return a + (b - a) * uniform(d); }
static int64_t below(neap_io_draw *d, int64_t n) { return (int64_t)(uniform(d) * (double)n); }

/* Gamma of shape a and scale 1: Marsaglia and Tsang, "A simple method for generating gamma
 * variables", ACM TOMS 26 (2000), with their boost for a below 1. */
static double gamma_of(neap_io_draw *draw, double a) {
  if (a < 1) return gamma_of(draw, a + 1) * pow(uniform(draw) + 0x1p-33, 1 / a);
  double d = a - 1.0 / 3, c = 1 / sqrt(9 * d);
  for (;;) {
    float normal[2];
    uint32_t first = word(draw);
    neap_normal_f32(first, word(draw), normal);
    /* v = (1 + c z)^3 is nearly gamma already; u decides whether it is taken. 2^-33 keeps u off
     * 0. */
    double v = 1 + c * normal[0], u = uniform(draw) + 0x1p-33;
    v = v * v * v;
    if (v > 0 && log(u) < 0.5 * normal[0] * normal[0] + d - d * v + d * log(v)) return d * v;
  }
}

/* Beta(a,a), by two of them. */
static double beta_of(neap_io_draw *draw, double a) {
  double x = gamma_of(draw, a), y = gamma_of(draw, a);
  return x + y > 0 ? x / (x + y) : 0.5;
}

/* ---- cutting --------------------------------------------------------------------------------- */

/* out, of `height` and `width`, is the part of in from (top,left) on, which may be negative: what
 * lies outside is `fill`. */
static void cut(const row *r, int64_t top, int64_t left, int64_t height, int64_t width,
                float fill) {
  /* Columns [begin,end) of the part lie within. */
  int64_t begin = NEAP_MIN(NEAP_MAX(-left, 0), width),
          end = NEAP_MAX(NEAP_MIN(r->width - left, width), begin);
  for (int64_t c = 0; c < r->channels; c++)
    for (int64_t y = 0; y < height; y++) {
      float *to = r->out + (c * height + y) * width;
      bool is_outside = top + y < 0 || top + y >= r->height;
      for (int64_t x = 0; x < width; x++)
        if (is_outside || x < begin || x >= end) to[x] = fill;
      if (!is_outside && end > begin)
        memcpy(to + begin, r->in + (c * r->height + top + y) * r->width + left + begin,
               (size_t)(end - begin) * sizeof *to);
    }
}

/* {height, width}: the middle */
static void run_crop(const row *r, const double *v, int n) {
  (void)n;
  int64_t h = (int64_t)v[0], w = (int64_t)v[1];
  cut(r, (r->height - h) / 2, (r->width - w) / 2, h, w, 0);
}

/* {height, width, pad, fill}: anywhere in the picture with `pad` pixels of `fill` around it */
static void run_random_crop(const row *r, const double *v, int n) {
  (void)n;
  int64_t h = (int64_t)v[0], w = (int64_t)v[1], pad = (int64_t)v[2];
  int64_t top = below(r->draw, r->height + 2 * pad - h + 1) - pad;
  cut(r, top, below(r->draw, r->width + 2 * pad - w + 1) - pad, h, w, (float)v[3]);
}

/* {height, width} */
static void run_resize(const row *r, const double *v, int n) {
  (void)n;
  neap_io_resize(r->in, r->channels, r->height, r->width, r->out, (int64_t)v[0], (int64_t)v[1],
                 r->room);
}

/* {height, width, least area, most area, least ratio, most ratio}: a part of that share of the
 * picture, of that width by height, resized; ten tries, then the whole picture */
static void run_random_resized_crop(const row *r, const double *v, int n) {
  (void)n;
  int64_t top = 0, left = 0, h = r->height, w = r->width;
  for (int i = 0; i < 10; i++) {
    /* The ratio by its logarithm: so 3 to 4 is as likely as 4 to 3. */
    double area = between(r->draw, v[2], v[3]) * (double)(r->height * r->width),
           ratio = exp(between(r->draw, log(v[4]), log(v[5])));
    int64_t height = llround(sqrt(area / ratio)), width = llround(sqrt(area * ratio));
    if (height < 1 || width < 1 || height > r->height || width > r->width) continue;
    h = height, w = width;
    top = below(r->draw, r->height - h + 1);
    left = below(r->draw, r->width - w + 1);
    break;
  }
  /* The part goes to the buffer of the result, then behind the room that resizing needs. */
  int64_t to_height = (int64_t)v[0], to_width = (int64_t)v[1];
  float *part =
    r->room + neap_io_resize_room(r->channels, r->height, r->width, to_height, to_width);
  row whole = *r;
  whole.out = part;
  cut(&whole, top, left, h, w, 0);
  neap_io_resize(part, r->channels, h, w, r->out, to_height, to_width, r->room);
}

/* ---- same size ------------------------------------------------------------------------------- */

/* {probability that left and right change places, the same of top and bottom} */
static void run_flip(const row *r, const double *v, int n) {
  (void)n;
  bool across = uniform(r->draw) < v[0], down = uniform(r->draw) < v[1];
  for (int64_t c = 0; c < r->channels; c++)
    for (int64_t y = 0; y < r->height; y++) {
      const float *from = r->in + (c * r->height + (down ? r->height - 1 - y : y)) * r->width;
      float *to = r->out + (c * r->height + y) * r->width;
      for (int64_t x = 0; x < r->width; x++) to[x] = from[across ? r->width - 1 - x : x];
    }
}

/* The pixel at (y,x), between pixels by linear interpolation, `fill` outside. */
static float pixel_at(const row *r, const float *plane, double y, double x, float fill) {
  double top = floor(y), left = floor(x), value = 0;
  for (int k = 0; k < 4; k++) {
    double v = top + (k >> 1), u = left + (k & 1);
    double weight = (1 - fabs(y - v)) * (1 - fabs(x - u));
    bool is_in = v >= 0 && u >= 0 && v < (double)r->height && u < (double)r->width;
    value += weight * (is_in ? plane[(int64_t)v * r->width + (int64_t)u] : fill);
  }
  return (float)value;
}

/* {most degrees, fill}: about the middle, either way */
static void run_rotate(const row *r, const double *v, int n) {
  (void)n;
  double angle = between(r->draw, -v[0], v[0]) * 3.14159265358979323846 / 180, s = sin(angle),
         c = cos(angle), cy = (double)(r->height - 1) / 2, cx = (double)(r->width - 1) / 2;
  int64_t area = r->height * r->width;
  for (int64_t y = 0; y < r->height; y++)
    for (int64_t x = 0; x < r->width; x++) {
      /* Where it came from. */
      double dy = (double)y - cy, dx = (double)x - cx, from_y = cy + c * dy - s * dx,
             from_x = cx + s * dy + c * dx;
      for (int64_t k = 0; k < r->channels; k++)
        r->out[k * area + y * r->width + x] =
          pixel_at(r, r->in + k * area, from_y, from_x, (float)v[1]);
    }
}

/* {brightness, contrast, saturation, black}: each a factor from 1 - b to 1 + b, of the distance
 * from black, from the mean grey, from a pixel's grey */
static void run_jitter(const row *r, const double *v, int n) {
  (void)n;
  static const float grey_of[3] = {0.299f, 0.587f, 0.114f};
  float f[3], black = (float)v[3];
  int64_t area = r->height * r->width;
  /* One factor for all pixels: the picture changes its look, not its parts. */
  for (int k = 0; k < 3; k++) f[k] = (float)between(r->draw, 1 - v[k], 1 + v[k]);
  double sum = 0;
  for (int64_t i = 0; i < r->channels * area; i++) {
    r->out[i] = black + f[0] * (r->in[i] - black);
    sum += r->out[i];
  }
  /* Contrast is about the mean of what brightness has left; saturation about each pixel's own
   * grey. */
  float mean = (float)(sum / (double)(r->channels * area));
  for (int64_t i = 0; i < area; i++) {
    float grey = 0;
    for (int64_t c = 0; c < r->channels; c++) {
      float *at = &r->out[c * area + i];
      *at = mean + f[1] * (*at - mean);
      grey += r->channels == 3 ? grey_of[c] * *at : *at / (float)r->channels;
    }
    for (int64_t c = 0; c < r->channels; c++) {
      float *at = &r->out[c * area + i];
      *at = grey + f[2] * (*at - grey);
    }
  }
}

/* {means, then deviations}: one of each for every channel, or one for all */
static void run_normalise(const row *r, const double *v, int n) {
  int64_t area = r->height * r->width;
  for (int64_t c = 0; c < r->channels; c++) {
    int k = n == 2 ? 0 : (int)c;
    float mean = (float)v[k], factor = (float)(1 / v[n / 2 + k]);
    for (int64_t i = c * area; i < (c + 1) * area; i++) r->out[i] = (r->in[i] - mean) * factor;
  }
}

/* ---- the table ------------------------------------------------------------------------------- */

typedef struct record {
  const char *name;
  /* A letter for each number that it takes: s a side in pixels, w pixels, p above 0, n not below 0,
   * a any. NULL: means (a), then as many deviations (p), of each channel or one for all. */
  const char *numbers;
  bool is_size;    /* the first two are the height and width that a row gets */
  bool is_picture; /* a row of numbers, which has no sides, is refused */
  void (*run)(const row *r, const double *value, int n);
} record;

/* Those without a function are of whole batches:
 *   mixup {alpha, probability}: each row is l times itself and 1 - l times another one, l from
 *   Beta(alpha,alpha) (Zhang et al., ICLR 2018);
 *   cutmix {alpha, probability}: a part of that area is another row's (Yun et al., ICCV 2019). */
static const record records[] = {
  {"crop", "ss", true, true, run_crop},
  {"random_crop", "sswa", true, true, run_random_crop},
  {"resize", "ss", true, true, run_resize},
  {"random_resized_crop", "sspppp", true, true, run_random_resized_crop},
  {"flip", "nn", false, true, run_flip},
  {"rotate", "na", false, true, run_rotate},
  {"jitter", "nnna", false, false, run_jitter},
  {"normalise", NULL, false, false, run_normalise},
  {"mixup", "pn", false, false, NULL},
  {"cutmix", "pn", false, false, NULL},
};

static const record *record_of(const neap_transform *t) {
  for (int i = 0; i < NEAP_COUNT(records); i++)
    if (strcmp(records[i].name, t->name) == 0) return &records[i];
  return NULL;
}

bool neap_io_is_mix(const neap_transform *t) { return record_of(t)->run == NULL; }

/* A row's shape as channels, height and width: what it lacks is 1. */
static void dims_of(const neap_shape *s, int64_t dim[3]) {
  dim[0] = s->n_dim == 2 ? 1 : s->dim[0];
  dim[1] = s->n_dim > 1 ? s->dim[s->n_dim - 2] : 1;
  dim[2] = s->n_dim > 1 ? s->dim[s->n_dim - 1] : 1;
}

/* How many numbers the transform takes. */
static int count_of(const record *r, const neap_transform *t, const int64_t dim[3]) {
  if (r->numbers != NULL) return (int)strlen(r->numbers);
  return t->n_value == 2 ? 2 : (int)(2 * dim[0]);
}

/* Whether number i of n may be v. */
static bool is_allowed(const record *r, int i, int n, double v) {
  enum { MOST_PIXELS = 1 << 15 };
  const char of_means = i < n / 2 ? 'a' : 'p';
  if (!isfinite(v)) return false;
  switch (r->numbers != NULL ? r->numbers[i] : of_means) {
    case 's': return v > 0 && v == floor(v) && v <= MOST_PIXELS;
    case 'w': return v >= 0 && v == floor(v) && v <= MOST_PIXELS;
    case 'p': return v > 0;
    case 'n': return v >= 0;
    default: return true;
  }
}

/* The numbers of one transform: how many, finite, and within what each may be. */
static neap_status check_values(const record *r, const neap_transform *t, const int64_t dim[3],
                                neap_error *error) {
  int need = count_of(r, t, dim);
  if (t->n_value != need)
    return neap_fail(error, NEAP_SHAPE, "%s: expects %d numbers for rows of %lld channels, got %d",
                     t->name, need, (long long)dim[0], t->n_value);
  for (int i = 0; i < need; i++)
    if (!is_allowed(r, i, need, t->value[i]))
      return neap_fail(error, NEAP_ARGUMENT, "%s: number %d can't be %g", t->name, i + 1,
                       t->value[i]);
  const double *v = t->value;
  if (r->run == run_random_resized_crop && (v[2] > v[3] || v[3] > 1 || v[4] > v[5]))
    return neap_fail(error, NEAP_ARGUMENT,
                     "%s: areas expect least and most, at most 1, ratios least and most", t->name);
  return NEAP_OK;
}

neap_status neap_io_transform_check(int n, const neap_transform *t, neap_shape *shape,
                                    int64_t *most, neap_error *error) {
  if (shape->n_dim < 1 || shape->n_dim > 3)
    return neap_fail(error, NEAP_SHAPE,
                     "transforms take rows (channels,height,width), (height,width) or (numbers)");

  /* The shape goes through the transforms as a row will; `most` is what the largest buffer on the
   * way must hold. */
  *most = neap_shape_elems(shape);
  bool has_mix = false;
  for (int i = 0; i < n; i++) {
    const record *r = record_of(&t[i]);
    int64_t dim[3];
    char text[NEAP_SHAPE_TEXT];
    dims_of(shape, dim);
    if (r == NULL) return neap_fail(error, NEAP_ARGUMENT, "no transform is called %s", t[i].name);
    NEAP_TRY(check_values(r, &t[i], dim, error));
    if (has_mix && r->run != NULL)
      return neap_fail(error, NEAP_ARGUMENT,
                       "%s stands behind what mixes rows: rows are mixed last", t[i].name);
    if (r->is_picture && shape->n_dim == 1)
      return neap_fail(error, NEAP_SHAPE,
                       "%s: expects pictures, (channels,height,width) or (height,width), got rows "
                       "%s, which have no sides",
                       t[i].name, neap_shape_text(shape, text));
    has_mix = has_mix || r->run == NULL;
    if (!r->is_size) continue;
    /* Cuts must lie within; all need something to cut from. */
    int64_t h = (int64_t)t[i].value[0], w = (int64_t)t[i].value[1],
            pad = r->run == run_random_crop ? 2 * (int64_t)t[i].value[2] : 0;
    bool is_cut = r->run == run_crop || r->run == run_random_crop;
    if (dim[1] * dim[2] == 0 || (is_cut && (h > dim[1] + pad || w > dim[2] + pad)))
      return neap_fail(error, NEAP_SHAPE, "%s: %lld rows and %lld columns can't be had from %s",
                       t[i].name, (long long)h, (long long)w, neap_shape_text(shape, text));
    /* Resizing has a part, and what lies between, in the third buffer. */
    int64_t room = neap_shape_elems(shape) + neap_io_resize_room(dim[0], dim[1], dim[2], h, w);
    shape->dim[shape->n_dim - 2] = h;
    shape->dim[shape->n_dim - 1] = w;
    *most = NEAP_MAX(*most, NEAP_MAX(room, neap_shape_elems(shape)));
  }
  return NEAP_OK;
}

neap_status neap_transform_shape(int n, const neap_transform *transform, neap_shape *row_shape,
                                 neap_error *error) {
  int64_t most;
  return neap_io_transform_check(n, transform, row_shape, &most, error);
}

float *neap_io_transform_row(int n, const neap_transform *t, const neap_shape *shape,
                             neap_io_draw *draw, float *buffer[3]) {
  int64_t dim[3];
  int at = 0;
  dims_of(shape, dim);
  for (int i = 0; i < n; i++) {
    const record *own = record_of(&t[i]);
    /* What mixes rows comes last and is of whole batches: here the row is done. */
    if (own->run == NULL) break;
    row r = {dim[0], dim[1], dim[2], buffer[at], buffer[1 - at], buffer[2], draw};
    own->run(&r, t[i].value, t[i].n_value);
    if (own->is_size) dim[1] = (int64_t)t[i].value[0], dim[2] = (int64_t)t[i].value[1];
    at = 1 - at;
  }
  return buffer[at];
}

/* ---- rows mixed ------------------------------------------------------------------------------ */

/* to = a to + (1 - a) from: rows of n numbers, that of another row `shift` on. */
static void blend(float *x, const float *copy, int64_t rows, int64_t n, int64_t shift, float a) {
  for (int64_t i = 0; i < rows; i++) {
    const float *other = copy + (i + shift) % rows * n;
    for (int64_t k = 0; k < n; k++) x[i * n + k] = a * x[i * n + k] + (1 - a) * other[k];
  }
}

void neap_io_transform_mix(const neap_transform *t, neap_io_draw *draw, int64_t rows, float *x,
                           const neap_shape *shape, float *label, int64_t n_class, float *room) {
  if (uniform(draw) >= t->value[1] || rows < 2) return;
  int64_t dim[3], n = neap_shape_elems(shape), shift = 1 + below(draw, rows - 1);
  double share = beta_of(draw, t->value[0]);
  dims_of(shape, dim);
  /* As they were, since each row goes into another one. */
  float *labels = room + rows * n;
  memcpy(room, x, (size_t)(rows * n) * sizeof *x);
  if (label != NULL) memcpy(labels, label, (size_t)(rows * n_class) * sizeof *label);
  if (strcmp(t->name, "mixup") == 0) {
    blend(x, room, rows, n, shift, (float)share);
  } else {
    /* A part of the other one, about a point anywhere, cut off at the sides. */
    double side = sqrt(1 - share);
    int64_t h = (int64_t)((double)dim[1] * side), w = (int64_t)((double)dim[2] * side),
            cy = below(draw, dim[1]), cx = below(draw, dim[2]), top = NEAP_MAX(cy - h / 2, 0),
            left = NEAP_MAX(cx - w / 2, 0), bottom = NEAP_MIN(cy - h / 2 + h, dim[1]),
            right = NEAP_MIN(cx - w / 2 + w, dim[2]);
    for (int64_t i = 0; i < rows; i++)
      for (int64_t c = 0; c < dim[0]; c++)
        if (right > left)
          for (int64_t y = top; y < bottom; y++) {
            int64_t at = (c * dim[1] + y) * dim[2] + left;
            memcpy(x + i * n + at, room + (i + shift) % rows * n + at,
                   (size_t)(right - left) * sizeof *x);
          }
    int64_t taken = NEAP_MAX(bottom - top, 0) * NEAP_MAX(right - left, 0);
    share = 1 - (double)taken / (double)(dim[1] * dim[2]);
  }
  if (label != NULL) blend(label, labels, rows, n_class, shift, (float)share);
}
