/* jpeg.c: JPEG files, through libjpeg.
 *
 * libjpeg ends a call that fails by longjmp. INVARIANT: nothing that this file owns is lost by
 * that: `work` holds it all, and lies outside of the frame that is left.
 */
#include "io/picture.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

#include <jerror.h>

enum { MOST_SCANS = 200 }; /* each of a progressive file costs a pass over the picture */

typedef struct work {
  struct jpeg_error_mgr manager; /* first: libjpeg hands it back as what it is told of */
  struct jpeg_progress_mgr progress;
  jmp_buf back;
  const char *path;
  neap_error *error;
  neap_status status;
  neap_io_pixels pixels;
  unsigned char *made; /* by jpeg_mem_dest: malloc's */
  unsigned long n_made;
} work;

static _Noreturn void leave(work *w, neap_status status) {
  w->status = status;
  longjmp(w->back, 1);
}

/* libjpeg's own text for what went wrong. */
static _Noreturn void fail(j_common_ptr info) {
  char text[JMSG_LENGTH_MAX];
  work *w = (work *)info->err;
  info->err->format_message(info, text);
  bool is_memory = info->err->msg_code == JERR_OUT_OF_MEMORY;
  leave(w, neap_fail(w->error, is_memory ? NEAP_MEMORY : NEAP_DATA, "%s: damaged JPEG picture: %s",
                     w->path, text));
}

/* Warnings of missing or wrong bits, which libjpeg would fill with grey, are errors; others, such
 * as bytes behind the picture, are common and harmless. */
static void warn(j_common_ptr info, int level) {
  if (level >= 0) return;
  switch (info->err->msg_code) {
    case JWRN_JPEG_EOF:
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_ARITH_BAD_CODE:
    case JWRN_MUST_RESYNC: fail(info);
    default: break;
  }
}

static void count_scans(j_common_ptr info) {
  work *w = (work *)info->err;
  if (info->is_decompressor && ((j_decompress_ptr)info)->input_scan_number > MOST_SCANS)
    leave(w, neap_fail(w->error, NEAP_DATA, "%s: a JPEG picture of more than %d scans", w->path,
                       MOST_SCANS));
}

static void begin(work *w, j_common_ptr info) {
  info->err = jpeg_std_error(&w->manager);
  w->manager.error_exit = fail;
  w->manager.emit_message = warn;
  w->progress.progress_monitor = count_scans;
}

/* Whatever fails leaves by longjmp, or by leave. */
static void read_pixels(work *w, struct jpeg_decompress_struct *info, const void *bytes, size_t n) {
  neap_io_pixels *p = &w->pixels;
  jpeg_mem_src(info, bytes, (unsigned long)n);
  jpeg_read_header(info, TRUE);
  if (info->num_components != 1 && info->num_components != 3)
    leave(w, neap_fail(w->error, NEAP_DATA,
                       "%s: a JPEG picture of %d components; grey ones and those of three are read",
                       w->path, info->num_components));
  /* Known before anything is allocated for it. */
  neap_status status =
    neap_io_picture_check(w->path, n, info->image_height, info->image_width, w->error);
  if (status != NEAP_OK) leave(w, status);
  info->out_color_space = info->num_components == 1 ? JCS_GRAYSCALE : JCS_RGB;
  *p = (neap_io_pixels){info->image_height, info->image_width, info->num_components, NULL};
  size_t row = (size_t)p->width * (size_t)p->channels;
  p->data = neap_alloc((size_t)p->height * row);
  if (p->data == NULL) leave(w, neap_fail_memory(w->error, (size_t)p->height * row, "a picture"));
  /* Line by line, each into its place. */
  jpeg_start_decompress(info);
  while (info->output_scanline < info->output_height) {
    JSAMPROW line = p->data + info->output_scanline * row;
    jpeg_read_scanlines(info, &line, 1);
  }
  jpeg_finish_decompress(info);
}

neap_status neap_io_jpeg_read(const char *path, const void *bytes, size_t n, neap_io_pixels *out,
                              neap_error *error) {
  work w = {.path = path, .error = error};
  struct jpeg_decompress_struct info = {0};
  begin(&w, (j_common_ptr)&info);
  /* Whatever of libjpeg fails comes back here a second time, with w.status set. */
  if (setjmp(w.back) == 0) {
    jpeg_create_decompress(&info);
    info.progress = &w.progress;
    read_pixels(&w, &info, bytes, n);
  }
  jpeg_destroy_decompress(&info);
  if (w.status == NEAP_OK)
    *out = w.pixels;
  else
    neap_free(w.pixels.data);
  return w.status;
}

static void write_pixels(work *w, struct jpeg_compress_struct *info, const neap_io_pixels *p,
                         int quality) {
  jpeg_mem_dest(info, &w->made, &w->n_made);
  info->image_width = (JDIMENSION)p->width;
  info->image_height = (JDIMENSION)p->height;
  info->input_components = p->channels;
  info->in_color_space = p->channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  jpeg_set_defaults(info);
  jpeg_set_quality(info, quality, TRUE);
  jpeg_start_compress(info, TRUE);
  while (info->next_scanline < info->image_height) {
    JSAMPROW line = p->data + info->next_scanline * (size_t)(p->width * p->channels);
    jpeg_write_scanlines(info, &line, 1);
  }
  jpeg_finish_compress(info);
}

neap_status neap_io_jpeg_write(const char *path, const neap_io_pixels *p, int quality,
                               neap_io_bytes *out, neap_error *error) {
  work w = {.path = path, .error = error};
  struct jpeg_compress_struct info = {0};
  begin(&w, (j_common_ptr)&info);
  if (setjmp(w.back) == 0) {
    jpeg_create_compress(&info);
    write_pixels(&w, &info, p, quality);
  }
  jpeg_destroy_compress(&info);
  /* What libjpeg has made is malloc's: the caller gets a copy of Neap's memory. */
  if (w.status == NEAP_OK) {
    *out = (neap_io_bytes){neap_alloc(w.n_made), w.n_made};
    if (out->data == NULL)
      w.status = neap_fail_memory(error, w.n_made, "a picture");
    else
      memcpy(out->data, w.made, w.n_made);
  }
  free(w.made);
  return w.status;
}
