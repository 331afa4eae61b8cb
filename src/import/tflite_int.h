/* tflite_int.h: what the files that read TFLite share; private to this room. */
#ifndef NEAP_IMPORT_TFLITE_INT_H
#define NEAP_IMPORT_TFLITE_INT_H

#include "import/flat_int.h"

/* "CONV_2D", by its code; NULL: the schema has no such operator. */
const char *neap_tflite_operator_name(int code);
/* The fields of a table of options, by its type in the union: tflite_schema.c says how. "" for a
 * table without fields, and for a type that the schema has not. */
const char *neap_tflite_fields(int type);

#endif
