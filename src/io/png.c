/* png.c: PNG files, by libpng's simplified interface: 8 bits a channel, palettes as colours. */
#include "io/picture.h"

#include <png.h>

#include <string.h>

neap_status neap_io_png_read(const char *path, const void *bytes, size_t n, neap_io_pixels *out,
                             neap_error *error) {
  png_image image = {.version = PNG_IMAGE_VERSION};
  if (png_image_begin_read_from_memory(&image, bytes, n) == 0)
    return neap_fail(error, NEAP_DATA, "%s: damaged PNG picture: %s", path, image.message);
  /* Grey or colours, with or without transparency, is the file's to say; 16 bits become 8. */
  image.format &= PNG_FORMAT_FLAG_COLOR | PNG_FORMAT_FLAG_ALPHA;
  image.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;
  neap_io_pixels p = {image.height, image.width, (int)PNG_IMAGE_PIXEL_CHANNELS(image.format), NULL};
  /* Its size is looked at before bytes are taken for it. */
  neap_status status = neap_io_picture_check(path, n, p.height, p.width, error);
  if (status == NEAP_OK) {
    size_t size = (size_t)(p.height * p.width) * (size_t)p.channels;
    p.data = neap_alloc(size);
    if (p.data == NULL)
      status = neap_fail_memory(error, size, "a picture");
    else if (png_image_finish_read(&image, NULL, p.data, 0, NULL) == 0)
      status = neap_fail(error, NEAP_DATA, "%s: damaged PNG picture: %s", path, image.message);
  }
  /* Safe however far it has come. */
  png_image_free(&image);
  if (status == NEAP_OK)
    *out = p;
  else
    neap_free(p.data);
  return status;
}

neap_status neap_io_png_write(const char *path, const neap_io_pixels *p, neap_io_bytes *out,
                              neap_error *error) {
  png_image image = {.version = PNG_IMAGE_VERSION,
                     .width = (png_uint_32)p->width,
                     .height = (png_uint_32)p->height,
                     .format = p->channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB};
  /* libpng is asked for the size first: with no room it only counts. */
  png_alloc_size_t n = 0;
  char *bytes = NULL;
  if (png_image_write_to_memory(&image, NULL, &n, 0, p->data, 0, NULL) != 0) bytes = neap_alloc(n);
  neap_status status = NEAP_OK;
  if (bytes == NULL)
    status = neap_fail_memory(error, n, "a picture");
  else if (png_image_write_to_memory(&image, bytes, &n, 0, p->data, 0, NULL) == 0)
    status = neap_fail(error, NEAP_IO, "%s: %s", path, image.message);
  png_image_free(&image);
  if (status == NEAP_OK)
    *out = (neap_io_bytes){bytes, n};
  else
    neap_free(bytes);
  return status;
}
