/* picture_size.c: how large a picture a file may say it holds: what its bytes can stand for. */
#include "io/picture.h"

/* A byte of a PNG file stands for 1032 bytes at most, of which each may have 8 pixels; a bit of a
 * JPEG file for a block at least, which may cover 32x32 pixels. */
enum { MOST_PIXELS_A_BYTE = 1032 * 8, MOST_PIXELS = 1 << 28 };

/* DATA error for a size that the file can't hold or that nobody means; called before anything is
 * allocated for it. */
neap_status neap_io_picture_check(const char *path, size_t n_file, int64_t height, int64_t width,
                                  neap_error *error) {
  if (height < 1 || width < 1 || height > MOST_PIXELS / width)
    return neap_fail(error, NEAP_DATA,
                     "%s: a picture of %lld rows and %lld columns; at most 2^28 pixels are read",
                     path, (long long)height, (long long)width);
  if ((size_t)(height * width) / MOST_PIXELS_A_BYTE > n_file)
    return neap_fail(error, NEAP_DATA,
                     "%s: truncated or damaged: %zu bytes hold no picture of %lld rows and %lld "
                     "columns",
                     path, n_file, (long long)height, (long long)width);
  return NEAP_OK;
}
