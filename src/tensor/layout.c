/* layout.c: how a value's elements lie in memory: bytes, equality, text. See neap_layout in
 * tensor.h. */
#include "tensor/tensor.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* By kind, then by order and blocks; an opaque layout is known by its hash and size alone. */
bool neap_layout_equal(const neap_layout *a, const neap_layout *b) {
  if (a->kind != b->kind) return false;
  if (a->kind == NEAP_LAYOUT_PLAIN) return true;
  if (a->kind == NEAP_LAYOUT_OPAQUE) return a->hash == b->hash && a->bytes == b->bytes;
  return a->n_inner == b->n_inner && memcmp(a->order, b->order, sizeof a->order) == 0 &&
         memcmp(a->inner_dim, b->inner_dim, a->n_inner) == 0 &&
         memcmp(a->inner_block, b->inner_block, a->n_inner) == 0;
}

/* Elements of dimension d, rounded up to the product of its inner blocks. */
static int64_t padded_dim(const neap_shape *shape, const neap_layout *layout, int d) {
  int64_t block = 1;
  for (int i = 0; i < layout->n_inner; i++)
    if (layout->inner_dim[i] == d) block *= layout->inner_block[i];
  return neap_count_add(shape->dim[d], block - 1) / block * block;
}

/* Padding included; an opaque layout carries its bytes, which no shape tells. NEAP_SIZE_TOO_LARGE
 * when there are more. */
size_t neap_layout_bytes(const neap_type *type, const neap_layout *layout) {
  if (layout->kind == NEAP_LAYOUT_OPAQUE) return layout->bytes;
  if (layout->kind == NEAP_LAYOUT_PLAIN) return neap_type_bytes(type);
  neap_shape padded = type->shape;
  for (int d = 0; d < padded.n_dim; d++) padded.dim[d] = padded_dim(&type->shape, layout, d);
  return neap_type_bytes(&(neap_type){type->dtype, padded});
}

/* Only blocks pad. */
bool neap_layout_is_padded(const neap_type *type, const neap_layout *layout) {
  return layout->kind == NEAP_LAYOUT_BLOCKED &&
         neap_layout_bytes(type, layout) != neap_type_bytes(type);
}

/* Dimensions are letters from a: "abcd:16b" is nChw16c, "acdb" channels last, "abcd:16b16a"
 * OIhw16i16o. */
const char *neap_layout_text(const neap_layout *layout, int n_dim, char text[NEAP_LAYOUT_TEXT]) {
  size_t n = 0;
  if (layout->kind == NEAP_LAYOUT_PLAIN) return strcpy(text, "plain");
  if (layout->kind == NEAP_LAYOUT_OPAQUE) {
    snprintf(text, NEAP_LAYOUT_TEXT, "opaque:%016" PRIx64, layout->hash);
    return text;
  }
  /* The outer order first, one letter a dimension; then, behind a colon, the inner blocks from the
   * outermost in. */
  for (int d = 0; d < n_dim; d++) text[n++] = (char)('a' + layout->order[d]);
  text[n] = '\0';
  for (int i = 0; i < layout->n_inner; i++)
    n += (size_t)snprintf(text + n, NEAP_LAYOUT_TEXT - n, "%s%d%c", i == 0 ? ":" : "",
                          layout->inner_block[i], 'a' + layout->inner_dim[i]);
  return text;
}

/* Reads what neap_layout_text writes; the bytes of an opaque layout are not in its text and come
 * from the caller. False, with *layout undefined, for anything else. That the letters are a
 * permutation is not checked here. */
bool neap_layout_from_text(const char *text, size_t opaque_bytes, neap_layout *layout) {
  memset(layout, 0, sizeof *layout);
  if (strcmp(text, "plain") == 0) return true;
  /* What only a library knows is known by its hash. */
  if (strncmp(text, "opaque:", 7) == 0) {
    char *end;
    layout->kind = NEAP_LAYOUT_OPAQUE;
    layout->hash = strtoull(text + 7, &end, 16);
    layout->bytes = opaque_bytes;
    return end != text + 7 && *end == '\0';
  }
  /* A letter for each dimension, in the order of memory. */
  layout->kind = NEAP_LAYOUT_BLOCKED;
  int n = 0;
  for (; *text >= 'a' && *text < 'a' + NEAP_MAX_DIM && n < NEAP_MAX_DIM; text++)
    layout->order[n++] = (uint8_t)(*text - 'a');
  if (n == 0) return false;
  if (*text == ':') text++;
  /* Then the inner blocks: a size that fits its byte, and the letter of a dimension that there
   * is. */
  while (*text >= '0' && *text <= '9' && layout->n_inner < 4) {
    char *end;
    unsigned long block = strtoul(text, &end, 10);
    if (block < 1 || block > UINT8_MAX || *end < 'a' || *end >= 'a' + n) return false;
    layout->inner_block[layout->n_inner] = (uint8_t)block;
    layout->inner_dim[layout->n_inner] = (uint8_t)(*end - 'a');
    layout->n_inner++;
    text = end + 1;
  }
  return *text == '\0';
}
