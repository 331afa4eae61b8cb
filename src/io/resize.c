/* resize.c: pictures of another size, and pictures made to fit rows of batches. */
#include "io/picture.h"

#include <math.h>
#include <string.h>

/* ---- another size ---------------------------------------------------------------------------- */

/* The pixels below the triangle of pixel i of `to`, on a line of `from` pixels: from *first on, as
 * many as it returns, with weights that add up to 1. weight has room for most_weights. */
static int64_t most_weights(int64_t from, int64_t to) {
  return 2 * (int64_t)ceil(fmax((double)from / (double)to, 1.0)) + 2;
}

static int64_t weights_of(int64_t from, int64_t to, int64_t i, int64_t *first, float *weight) {
  /* A triangle as wide as the pixels of `in` that one of `out` stands for, and never narrower than
   * one: enlarged it is linear interpolation, reduced an average without jumps. */
  double scale = (double)from / (double)to, reach = fmax(scale, 1.0);
  double centre = ((double)i + 0.5) * scale, sum = 0;
  /* Pixel k of the line has its middle at k + 1/2. */
  int64_t begin = (int64_t)floor(centre - reach + 0.5), end = (int64_t)floor(centre + reach + 0.5);
  begin = NEAP_MAX(begin, 0), end = NEAP_MIN(end, from);
  *first = begin;
  for (int64_t k = begin; k < end; k++) {
    double w = fmax(1.0 - fabs(((double)k + 0.5 - centre) / reach), 0.0);
    weight[k - begin] = (float)w;
    sum += w;
  }
  /* At the edges a part of the triangle is cut off: the rest is made 1 again. */
  for (int64_t k = 0; k < end - begin; k++) weight[k] = (float)(weight[k] / sum);
  return end - begin;
}

/* Lines of `between`, each a sum of lines of `in`. */
static void resize_down(const float *in, int64_t height, int64_t width, float *between,
                        int64_t to_height, float *weight) {
  for (int64_t y = 0; y < to_height; y++) {
    int64_t first, n = weights_of(height, to_height, y, &first, weight);
    float *line = between + y * width;
    memset(line, 0, (size_t)width * sizeof *line);
    for (int64_t k = 0; k < n; k++) {
      const float *from = in + (first + k) * width;
      for (int64_t x = 0; x < width; x++) line[x] += weight[k] * from[x];
    }
  }
}

/* Columns of `out`, each a sum of columns of `between`. */
static void resize_across(const float *between, int64_t to_height, int64_t width, float *out,
                          int64_t to_width, float *weight) {
  for (int64_t x = 0; x < to_width; x++) {
    int64_t first, n = weights_of(width, to_width, x, &first, weight);
    for (int64_t y = 0; y < to_height; y++) {
      const float *from = between + y * width + first;
      float sum = 0;
      for (int64_t k = 0; k < n; k++) sum += weight[k] * from[k];
      out[y * to_width + x] = sum;
    }
  }
}

void neap_io_resize(const float *in, int64_t channels, int64_t height, int64_t width, float *out,
                    int64_t to_height, int64_t to_width, float *between) {
  /* Weights of one line or column at a time lie behind what is between. */
  float *weight = between + channels * to_height * width;
  for (int64_t c = 0; c < channels; c++) {
    float *lines = between + c * to_height * width;
    resize_down(in + c * height * width, height, width, lines, to_height, weight);
    resize_across(lines, to_height, width, out + c * to_height * to_width, to_width, weight);
  }
}

int64_t neap_io_resize_room(int64_t channels, int64_t height, int64_t width, int64_t to_height,
                            int64_t to_width) {
  return channels * to_height * width +
         NEAP_MAX(most_weights(height, to_height), most_weights(width, to_width));
}

/* ---- to fit a row ---------------------------------------------------------------------------- */

/* The part of a side that is taken: `have` of it, of which the row has `want`, where the other side
 * is scaled by other_want / other_have, which is more. */
static int64_t covered(int64_t want, int64_t other_have, int64_t other_want) {
  return NEAP_MAX((want * other_have + other_want / 2) / other_want, 1);
}

/* A part of a picture (channels,height,width) as floats, resized to (to_height,to_width). The two
 * blocks are one: first the part, then what lies between. */
static neap_status resize_part(const char *path, const neap_tensor *picture, int64_t top,
                               int64_t left, int64_t height, int64_t width, float *out,
                               int64_t to_height, int64_t to_width, neap_error *error) {
  int64_t channels = picture->shape.dim[0], rows = picture->shape.dim[1],
          columns = picture->shape.dim[2], n = channels * height * width;
  size_t bytes =
    (size_t)(n + neap_io_resize_room(channels, height, width, to_height, to_width)) * sizeof *out;
  float *part = neap_alloc(bytes);
  if (part == NULL) return neap_fail_memory(error, bytes, path);

  /* Bytes become floats before anything is weighed, so that weights of neighbours are not rounded
   * in between. */
  const uint8_t *from = (const uint8_t *)neap_tensor_data(picture);
  for (int64_t c = 0; c < channels; c++)
    for (int64_t y = 0; y < height; y++) {
      const uint8_t *line = from + (c * rows + top + y) * columns + left;
      for (int64_t x = 0; x < width; x++) part[(c * height + y) * width + x] = line[x];
    }
  neap_io_resize(part, channels, height, width, out, to_height, to_width, part + n);
  neap_free(part);
  return NEAP_OK;
}

/* A picture scaled as it is, in the middle of a row of zeros. */
static neap_status pad(const char *path, const neap_tensor *picture, int64_t to_height,
                       int64_t to_width, float *out, neap_error *error) {
  int64_t channels = picture->shape.dim[0], height = picture->shape.dim[1],
          width = picture->shape.dim[2];
  /* The side that is too long by its share fills the row. */
  bool is_wide = width * to_height > height * to_width;
  int64_t h = is_wide ? NEAP_MIN(covered(height, to_width, width), to_height) : to_height,
          w = is_wide ? to_width : NEAP_MIN(covered(width, to_height, height), to_width),
          top = (to_height - h) / 2, left = (to_width - w) / 2;
  float *small = neap_alloc((size_t)(channels * h * w) * sizeof *small);
  if (small == NULL) return neap_fail_memory(error, (size_t)(channels * h * w), path);
  neap_status status = resize_part(path, picture, 0, 0, height, width, small, h, w, error);
  memset(out, 0, (size_t)(channels * to_height * to_width) * sizeof *out);
  if (status == NEAP_OK)
    for (int64_t c = 0; c < channels; c++)
      for (int64_t y = 0; y < h; y++)
        memcpy(out + (c * to_height + top + y) * to_width + left, small + (c * h + y) * w,
               (size_t)w * sizeof *out);
  neap_free(small);
  return status;
}

/* The file is read whole, and its picture decoded whole: their bytes are given back before this
 * returns. */
neap_status neap_io_picture_fit(const char *path, neap_picture_fit fit, const neap_shape *row,
                                float *out, neap_error *error) {
  neap_io_bytes bytes = {0};
  neap_tensor picture = {0};
  NEAP_TRY(neap_io_read_text(path, &bytes, error));
  neap_status status =
    neap_io_decode_picture(path, bytes.data, bytes.n, (int)row->dim[0], &picture, error);
  neap_free(bytes.data);
  if (status != NEAP_OK) return status;
  int64_t height = picture.shape.dim[1], width = picture.shape.dim[2], h = row->dim[1],
          w = row->dim[2];
  if (fit == NEAP_PICTURE_PAD) {
    status = pad(path, &picture, h, w, out, error);
  } else {
    /* What is over on one side is left out evenly. */
    int64_t part_height = height, part_width = width;
    if (fit == NEAP_PICTURE_CROP && width * h > height * w)
      part_width = NEAP_MIN(covered(w, height, h), width);
    else if (fit == NEAP_PICTURE_CROP)
      part_height = NEAP_MIN(covered(h, width, w), height);
    status = resize_part(path, &picture, (height - part_height) / 2, (width - part_width) / 2,
                         part_height, part_width, out, h, w, error);
  }
  neap_tensor_fini(&picture);
  return status;
}
