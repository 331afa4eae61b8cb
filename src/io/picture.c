/* picture.c: pictures as tensors: which library reads a file, how large one may be, and channels.
 *
 * A library gives pixels (height,width,channels) as they are in the file, 8 bits each; grey and
 * colours are made of each other here, so that both formats do it alike.
 */
#include "io/picture.h"

#include <string.h>

bool neap_io_is_picture(const void *start, size_t n) {
  return (n >= 4 && memcmp(start, "\x89PNG", 4) == 0) ||
         (n >= 3 && memcmp(start, "\xff\xd8\xff", 3) == 0);
}

/* Grey of a colour by the weights of ITU-R BT.601, in 16 bits. */
static uint8_t grey_of(const uint8_t *rgb) {
  return (uint8_t)((rgb[0] * 19595u + rgb[1] * 38470u + rgb[2] * 7471u + 0x8000u) >> 16);
}

/* pixels (height,width,p.channels) to planes (channels,height,width). Where both are not as many,
 * the last of 2 and 4 is transparency, which goes. */
static void to_planes(const neap_io_pixels *p, int channels, uint8_t *out) {
  int64_t n = p->height * p->width;
  const uint8_t *in = p->data;
  for (int64_t i = 0; i < n; i++, in += p->channels) {
    if (channels == p->channels) {
      for (int c = 0; c < channels; c++) out[c * n + i] = in[c];
    } else if (channels == 1) {
      out[i] = p->channels >= 3 ? grey_of(in) : in[0];
    } else {
      for (int c = 0; c < channels; c++) out[c * n + i] = in[p->channels >= 3 ? c : 0];
    }
  }
}

neap_status neap_io_decode_picture(const char *path, const void *bytes, size_t n, int channels,
                                   neap_tensor *out, neap_error *error) {
  if (channels != 0 && channels != 1 && channels != 3)
    return neap_fail(error, NEAP_ARGUMENT, "%s: a picture's channels expect 1 or 3, got %d", path,
                     channels);
  if (!neap_io_is_picture(bytes, n))
    return neap_fail(error, NEAP_DATA, "%s: is neither a PNG nor a JPEG picture", path);
  /* Both begin with what the other one does not. */
  neap_io_pixels p = {0};
  neap_status status = *(const unsigned char *)bytes == 0x89
                         ? neap_io_png_read(path, bytes, n, &p, error)
                         : neap_io_jpeg_read(path, bytes, n, &p, error);
  neap_shape shape = NEAP_SHAPE(channels == 0 ? p.channels : channels, p.height, p.width);
  if (status == NEAP_OK) status = neap_tensor_new(out, NEAP_DTYPE_U8, &shape, error);
  if (status == NEAP_OK) to_planes(&p, (int)shape.dim[0], (uint8_t *)neap_tensor_data(out));
  neap_free(p.data);
  return status;
}

/* Whether the path ends so, in capitals too. */
bool neap_io_ends_in(const char *path, const char *ending) {
  size_t n = strlen(path), k = strlen(ending);
  return n >= k && strcasecmp(path + n - k, ending) == 0;
}

neap_status neap_io_write_picture(const char *path, int64_t height, int64_t width, int channels,
                                  const uint8_t *pixels, int quality, neap_error *error) {
  if (height < 1 || width < 1 || height > 1 << 15 || width > 1 << 15 ||
      (channels != 1 && channels != 3))
    return neap_fail(
      error, NEAP_SHAPE,
      "%s: a picture expects 1 to 32768 rows and columns and 1 or 3 channels, got (%lld,%lld,%d)",
      path, (long long)height, (long long)width, channels);
  if (quality < 1 || quality > 100)
    return neap_fail(error, NEAP_ARGUMENT, "%s: a picture's quality expects 1 to 100, got %d", path,
                     quality);
  /* Borrowed: neither library writes to it. */
  neap_io_pixels p = {height, width, channels, (uint8_t *)(uintptr_t)pixels};
  neap_io_bytes bytes = {0};
  bool is_jpeg = neap_io_ends_in(path, ".jpg") || neap_io_ends_in(path, ".jpeg");
  /* Made in memory and written whole or not at all, like every file here. */
  neap_status status = is_jpeg ? neap_io_jpeg_write(path, &p, quality, &bytes, error)
                               : neap_io_png_write(path, &p, &bytes, error);
  if (status == NEAP_OK) status = neap_io_write_text(path, bytes.data, bytes.n, error);
  neap_free(bytes.data);
  return status;
}

/* As it is loaded: (channels,height,width) or (height,width), u8. */
neap_status neap_io_picture_save(const char *path, const neap_tensor *dense, neap_error *error) {
  const neap_shape *s = &dense->shape;
  char text[NEAP_SHAPE_TEXT];
  if (dense->dtype != NEAP_DTYPE_U8 || s->n_dim < 2 || s->n_dim > 3 ||
      (s->n_dim == 3 && s->dim[0] != 1 && s->dim[0] != 3))
    return neap_fail(error, NEAP_ARGUMENT,
                     "%s: a picture is a u8 tensor (1,height,width), (3,height,width) or "
                     "(height,width), got %s %s; x:image(path) writes others",
                     path, neap_dtype_name(dense->dtype), neap_shape_text(s, text));
  int64_t width = s->dim[s->n_dim - 1], height = s->dim[s->n_dim - 2], n = width * height;
  int channels = s->n_dim == 3 ? (int)s->dim[0] : 1;
  const uint8_t *in = (const uint8_t *)neap_tensor_data(dense);
  if (channels == 1)
    return neap_io_write_picture(path, height, width, 1, in, NEAP_IO_QUALITY, error);
  /* Planes to pixels. */
  uint8_t *pixels = neap_alloc((size_t)n * 3);
  if (pixels == NULL) return neap_fail_memory(error, (size_t)n * 3, "a picture");
  for (int64_t i = 0; i < n; i++)
    for (int c = 0; c < 3; c++) pixels[3 * i + c] = in[c * n + i];
  neap_status status =
    neap_io_write_picture(path, height, width, 3, pixels, NEAP_IO_QUALITY, error);
  neap_free(pixels);
  return status;
}
