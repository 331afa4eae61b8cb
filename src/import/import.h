/* import: files of other programs as plain data, read and written. ONNX: neap/onnx.h is what users
 * call; the bytes are parsed by protobuf-c from the schema that libonnx-dev has, and what a node
 * means is said in Lua (lua/neap/onnx). TFLite: neap/tflite.h; a FlatBuffer is read in its place
 * (flat.c), since Debian has no compiler of its schemas for C, and what an operator means is said
 * in Lua (lua/neap/tflite). Caffe: neap/caffe.h; nets are texts (caffe_text.c), weights are parsed
 * from caffe.proto here (caffe_weights.c), and what a layer means is said in Lua (lua/neap/caffe).
 */
#ifndef NEAP_IMPORT_H
#define NEAP_IMPORT_H

#include "io/io.h"

#endif
