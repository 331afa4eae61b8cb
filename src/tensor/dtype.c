/* dtype.c: what a dtype is called and how wide it is; all of it generated from NEAP_DTYPE_MAP. */
#include "tensor/tensor.h"

#include <stdio.h>
#include <string.h>

/* 0 for what is no dtype, so that a bad value makes sizes 0 and not wild. */
size_t neap_dtype_bytes(neap_dtype dtype) {
  static const unsigned char bytes[] = {
#define X(symbol, name, bytes) bytes,
    NEAP_DTYPE_MAP(X)
#undef X
  };
  return (unsigned)dtype < NEAP_N_DTYPE ? bytes[dtype] : 0;
}

/* In messages, files and scripts: "f32". "unknown" for what is no dtype; a constant. */
const char *neap_dtype_name(neap_dtype dtype) {
  static const char *const names[] = {
#define X(symbol, name, bytes) name,
    NEAP_DTYPE_MAP(X)
#undef X
  };
  return (unsigned)dtype < NEAP_N_DTYPE ? names[dtype] : "unknown";
}

/* "none" is not a name one may give: it is the answer for unknown ones. */
neap_dtype neap_dtype_from_name(const char *name) {
  for (int d = NEAP_DTYPE_NONE + 1; d < NEAP_N_DTYPE; d++)
    if (strcmp(name, neap_dtype_name((neap_dtype)d)) == 0) return (neap_dtype)d;
  return NEAP_DTYPE_NONE;
}

bool neap_dtype_is_float(neap_dtype dtype) { return neap_dtype_in(dtype, NEAP_FLOATS); }

/* In the order of the list; all of them fit. */
const char *neap_dtypes_text(unsigned set, char text[NEAP_DTYPES_TEXT]) {
  size_t n = 0;
  text[0] = '\0';
  for (int d = NEAP_DTYPE_NONE + 1; d < NEAP_N_DTYPE; d++)
    if (neap_dtype_in((neap_dtype)d, set) && n < NEAP_DTYPES_TEXT)
      n += (size_t)snprintf(text + n, NEAP_DTYPES_TEXT - n, "%s%s", n == 0 ? "" : ", ",
                            neap_dtype_name((neap_dtype)d));
  return text;
}

bool neap_dtype_is_integer(neap_dtype dtype) { return neap_dtype_in(dtype, NEAP_INTEGERS); }
