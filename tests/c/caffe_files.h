/* caffe_files.h: files of Caffe's as their bytes: a text with every kind of value, weights of
 * layers of all three versions, and a blob. */
#ifndef NEAP_TESTS_CAFFE_FILES_H
#define NEAP_TESTS_CAFFE_FILES_H

static const char caffe_text[] =
  "name: \"net\" 'more'  # a comment\n"
  "layer { name: \"c\\n\\x41\" type: \"Convolution\" bottom: \"x\" top: \"y\"\n"
  "  convolution_param { num_output: 0x10 kernel_size: [3, 5]; pool: MAX bias_term: false } }\n"
  "layers < blobs_lr: 1.5e-3f >, mean_value: -2\n";

/* "c" of the newest version with a blob (1,2) and its shape; "d" of V1 with four sizes, in f64; "e"
 * of V0 within one of V1. */
static const char caffe_weights[] =
  "\012\003net\242\006\030\012\001c\022\001T:\020:\004\012\002"
  "\001\002*\010\000\000\200\077\000\000\000@\022\031\042\001d(\0042"
  "\022\010\001\020\001\030\001 \001B\010\000\000\000\000\000\000\360\077\022"
  "\035\012\033\012\001e\022\001t\222\003\022\010\001\020\001\030\001 \002"
  "*\010\000\000\200\077\000\000\000@";
/* (1,1,1,2) of 1 and 2 */
static const char caffe_blob[] = "\010\001\020\001\030\001 \002*\010\000\000\200\077\000\000\000@";

#endif
