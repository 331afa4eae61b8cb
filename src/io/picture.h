/* picture.h: what the formats of pictures and sounds share; private to this room. */
#ifndef NEAP_IO_PICTURE_H
#define NEAP_IO_PICTURE_H

#include "io/io_int.h"

enum { NEAP_IO_QUALITY = 92 }; /* of JPEG files, where nobody says another */

/* (height,width,channels), 8 bits each; channels 1 grey, 2 grey and transparency, 3 colours, 4
 * colours and transparency. */
typedef struct neap_io_pixels {
  int64_t height, width;
  int channels;
  uint8_t *data; /* META memory of whoever has read it */
} neap_io_pixels;

bool neap_io_ends_in(const char *path, const char *ending);
bool neap_io_is_picture(const void *start, size_t n);
neap_status neap_io_picture_check(const char *path, size_t n_file, int64_t height, int64_t width,
                                  neap_error *error);
neap_status neap_io_picture_save(const char *path, const neap_tensor *dense, neap_error *error);
/* A row of a batch, (channels,height,width), 0 to 255, of a picture in a file (resize.c). */
neap_status neap_io_picture_fit(const char *path, neap_picture_fit fit, const neap_shape *row,
                                float *out, neap_error *error);

/* png.c, jpeg.c: the pixels of a file's n bytes, and the bytes of pixels. What failed has left
 * nothing. */
neap_status neap_io_png_read(const char *path, const void *bytes, size_t n, neap_io_pixels *out,
                             neap_error *error);
neap_status neap_io_png_write(const char *path, const neap_io_pixels *p, neap_io_bytes *out,
                              neap_error *error);
neap_status neap_io_jpeg_read(const char *path, const void *bytes, size_t n, neap_io_pixels *out,
                              neap_error *error);
neap_status neap_io_jpeg_write(const char *path, const neap_io_pixels *p, int quality,
                               neap_io_bytes *out, neap_error *error);

/* planes in (channels,height,width) to out (channels,to_height,to_width): each pixel the mean of
 * those below a triangle as wide as the change of size asks, which for larger pictures is linear
 * interpolation. Pixels are squares, their centres at halves. `between` has room for as many
 * numbers as neap_io_resize_room says. */
int64_t neap_io_resize_room(int64_t channels, int64_t height, int64_t width, int64_t to_height,
                            int64_t to_width);
void neap_io_resize(const float *in, int64_t channels, int64_t height, int64_t width, float *out,
                    int64_t to_height, int64_t to_width, float *between);

/* A transform with its numbers, as transform.c reads it. */
typedef struct neap_io_draw {
  uint64_t seed;
  uint32_t epoch;
  uint64_t place;
  uint32_t n; /* words drawn so far for this place */
} neap_io_draw;
bool neap_io_is_mix(const neap_transform *t); /* of a whole batch, not of a row */
/* The most elements that a row has on its way through. */
neap_status neap_io_transform_check(int n, const neap_transform *t, neap_shape *row, int64_t *most,
                                    neap_error *error);
/* Runs those that are no mixes on a row that lies in buffer[0]; each buffer has room for `most`
 * elements. The result is where what it returns points: one of the buffers. */
float *neap_io_transform_row(int n, const neap_transform *t, const neap_shape *row,
                             neap_io_draw *draw, float *buffer[3]);
/* Mixes rows of a batch with each other: x (rows, row), and label (rows, n_class), NULL for none.
 * `room` has as many elements as both. */
void neap_io_transform_mix(const neap_transform *t, neap_io_draw *draw, int64_t rows, float *x,
                           const neap_shape *row, float *label, int64_t n_class, float *room);

/* sound.c */
bool neap_io_is_sound(const void *start, size_t n);
neap_status neap_io_sound_load(const char *path, const void *bytes, size_t n, neap_io_list *list,
                               neap_error *error);
neap_status neap_io_sound_save(const char *path, const neap_tensor *dense, int n_meta,
                               const neap_io_pair *meta, neap_error *error);

#endif
