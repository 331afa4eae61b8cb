/* png.c: pixels to a PNG file, through libpng's simplified interface. The picture is made in memory
 * and written whole or not at all, like every file here. */
#include "io/io.h"

#include <png.h>

#include <string.h>

neap_status neap_io_write_png(const char *path, int64_t height, int64_t width, int channels,
                              const uint8_t *pixels, neap_error *error) {
  if (height < 1 || width < 1 || height > 1 << 15 || width > 1 << 15 ||
      (channels != 1 && channels != 3))
    return neap_fail(
      error, NEAP_SHAPE,
      "%s: a picture expects 1 to 32768 rows and columns and 1 or 3 channels, got (%lld,%lld,%d)",
      path, (long long)height, (long long)width, channels);
  png_image image = {.version = PNG_IMAGE_VERSION,
                     .width = (png_uint_32)width,
                     .height = (png_uint_32)height,
                     .format = channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB};
  /* libpng is asked for the size first: with no room it only counts. */
  png_alloc_size_t n = 0;
  char *bytes = NULL;
  if (png_image_write_to_memory(&image, NULL, &n, 0, pixels, 0, NULL) != 0) bytes = neap_alloc(n);
  neap_status status = NEAP_OK;
  if (bytes == NULL) {
    status = neap_fail_memory(error, n, "a picture");
  } else if (png_image_write_to_memory(&image, bytes, &n, 0, pixels, 0, NULL) == 0) {
    status = neap_fail(error, NEAP_IO, "%s: %s", path, image.message);
  } else {
    status = neap_io_write_text(path, bytes, n, error);
  }
  /* Safe however far it has come. */
  png_image_free(&image);
  neap_free(bytes);
  return status;
}
