/* tflite_schema.c: what the schema of TFLite's files (tensorflow/lite/schema/schema.fbs) calls its
 * operators, and which fields their tables of options have. All that the schema has stands here,
 * whether Neap has an op for it or not: what is lacking is named by its name.
 *
 * Fields are told in their order, a kind and a name each: b a byte, i an integer of 4, l of 8, f a
 * float, s a text, B, I and F lists of bytes, integers, floats; = what holds where the file says
 * nothing, if that is not 0; - a field that is no longer.
 */
#include "import/tflite_int.h"

/* By builtin code. clang-format would take a line for each. */
/* clang-format off */
static const char *const operators[] = {
  "ADD", "AVERAGE_POOL_2D", "CONCATENATION", "CONV_2D", "DEPTHWISE_CONV_2D", "DEPTH_TO_SPACE",
  "DEQUANTIZE", "EMBEDDING_LOOKUP", "FLOOR", "FULLY_CONNECTED", "HASHTABLE_LOOKUP",
  "L2_NORMALIZATION", "L2_POOL_2D", "LOCAL_RESPONSE_NORMALIZATION", "LOGISTIC", "LSH_PROJECTION",
  "LSTM", "MAX_POOL_2D", "MUL", "RELU", "RELU_N1_TO_1", "RELU6", "RESHAPE", "RESIZE_BILINEAR",
  "RNN", "SOFTMAX", "SPACE_TO_DEPTH", "SVDF", "TANH", "CONCAT_EMBEDDINGS", "SKIP_GRAM", "CALL",
  "CUSTOM", "EMBEDDING_LOOKUP_SPARSE", "PAD", "UNIDIRECTIONAL_SEQUENCE_RNN", "GATHER",
  "BATCH_TO_SPACE_ND", "SPACE_TO_BATCH_ND", "TRANSPOSE", "MEAN", "SUB", "DIV", "SQUEEZE",
  "UNIDIRECTIONAL_SEQUENCE_LSTM", "STRIDED_SLICE", "BIDIRECTIONAL_SEQUENCE_RNN", "EXP", "TOPK_V2",
  "SPLIT", "LOG_SOFTMAX", "DELEGATE", "BIDIRECTIONAL_SEQUENCE_LSTM", "CAST", "PRELU", "MAXIMUM",
  "ARG_MAX", "MINIMUM", "LESS", "NEG", "PADV2", "GREATER", "GREATER_EQUAL", "LESS_EQUAL", "SELECT",
  "SLICE", "SIN", "TRANSPOSE_CONV", "SPARSE_TO_DENSE", "TILE", "EXPAND_DIMS", "EQUAL", "NOT_EQUAL",
  "LOG", "SUM", "SQRT", "RSQRT", "SHAPE", "POW", "ARG_MIN", "FAKE_QUANT", "REDUCE_PROD",
  "REDUCE_MAX", "PACK", "LOGICAL_OR", "ONE_HOT", "LOGICAL_AND", "LOGICAL_NOT", "UNPACK",
  "REDUCE_MIN", "FLOOR_DIV", "REDUCE_ANY", "SQUARE", "ZEROS_LIKE", "FILL", "FLOOR_MOD", "RANGE",
  "RESIZE_NEAREST_NEIGHBOR", "LEAKY_RELU", "SQUARED_DIFFERENCE", "MIRROR_PAD", "ABS", "SPLIT_V",
  "UNIQUE", "CEIL", "REVERSE_V2", "ADD_N", "GATHER_ND", "COS", "WHERE", "RANK", "ELU",
  "REVERSE_SEQUENCE", "MATRIX_DIAG", "QUANTIZE", "MATRIX_SET_DIAG", "ROUND", "HARD_SWISH", "IF",
  "WHILE", "NON_MAX_SUPPRESSION_V4", "NON_MAX_SUPPRESSION_V5", "SCATTER_ND", "SELECT_V2", "DENSIFY",
  "SEGMENT_SUM", "BATCH_MATMUL", "PLACEHOLDER_FOR_GREATER_OP_CODES", "CUMSUM", "CALL_ONCE",
  "BROADCAST_TO", "RFFT2D", "CONV_3D", "IMAG", "REAL", "COMPLEX_ABS", "HASHTABLE", "HASHTABLE_FIND",
  "HASHTABLE_IMPORT", "HASHTABLE_SIZE", "REDUCE_ALL", "CONV_3D_TRANSPOSE", "VAR_HANDLE",
  "READ_VARIABLE", "ASSIGN_VARIABLE", "BROADCAST_ARGS", "RANDOM_STANDARD_NORMAL", "BUCKETIZE",
  "RANDOM_UNIFORM", "MULTINOMIAL", "GELU", "DYNAMIC_UPDATE_SLICE", "RELU_0_TO_1",
  "UNSORTED_SEGMENT_PROD", "UNSORTED_SEGMENT_MAX", "UNSORTED_SEGMENT_SUM", "ATAN2",
  "UNSORTED_SEGMENT_MIN", "SIGN", "BITCAST", "BITWISE_XOR", "RIGHT_SHIFT", "STABLEHLO_LOGISTIC",
  "STABLEHLO_ADD", "STABLEHLO_DIVIDE", "STABLEHLO_MULTIPLY", "STABLEHLO_MAXIMUM",
  "STABLEHLO_RESHAPE", "STABLEHLO_CLAMP", "STABLEHLO_CONCATENATE", "STABLEHLO_BROADCAST_IN_DIM",
  "STABLEHLO_CONVOLUTION", "STABLEHLO_SLICE", "STABLEHLO_CUSTOM_CALL", "STABLEHLO_REDUCE",
  "STABLEHLO_ABS", "STABLEHLO_AND", "STABLEHLO_COSINE", "STABLEHLO_EXPONENTIAL", "STABLEHLO_FLOOR",
  "STABLEHLO_LOG", "STABLEHLO_MINIMUM", "STABLEHLO_NEGATE", "STABLEHLO_OR", "STABLEHLO_POWER",
  "STABLEHLO_REMAINDER", "STABLEHLO_RSQRT", "STABLEHLO_SELECT", "STABLEHLO_SUBTRACT",
  "STABLEHLO_TANH", "STABLEHLO_SCATTER", "STABLEHLO_COMPARE", "STABLEHLO_CONVERT",
  "STABLEHLO_DYNAMIC_SLICE", "STABLEHLO_DYNAMIC_UPDATE_SLICE", "STABLEHLO_PAD", "STABLEHLO_IOTA",
  "STABLEHLO_DOT_GENERAL", "STABLEHLO_REDUCE_WINDOW", "STABLEHLO_SORT", "STABLEHLO_WHILE",
  "STABLEHLO_GATHER", "STABLEHLO_TRANSPOSE", "DILATE", "STABLEHLO_RNG_BIT_GENERATOR",
  "REDUCE_WINDOW", "STABLEHLO_COMPOSITE", "STABLEHLO_SHIFT_LEFT", "STABLEHLO_CBRT",
  "STABLEHLO_CASE",
};
/* clang-format on */

/* By the type of the union BuiltinOptions. Tables without fields stand in no line. */
static const char *const options[] = {
  /* Conv2D */
  [1] =
    "b padding, i stride_w, i stride_h, b fused_activation_function, "
    "i dilation_w_factor=1, i dilation_h_factor=1, b quantized_bias_type",
  /* DepthwiseConv2D */
  [2] =
    "b padding, i stride_w, i stride_h, i depth_multiplier, b fused_activation_function, "
    "i dilation_w_factor=1, i dilation_h_factor=1",
  /* ConcatEmbeddings */
  [3] = "i num_channels, I num_columns_per_channel, I embedding_dim_per_channel",
  [4] = "b type", /* LSHProjection */
  /* Pool2D */
  [5] =
    "b padding, i stride_w, i stride_h, i filter_width, i filter_height, "
    "b fused_activation_function",
  [6] = "i rank, b fused_activation_function, b asymmetric_quantize_inputs", /* SVDF */
  [7] = "b fused_activation_function, b asymmetric_quantize_inputs",         /* RNN */
  /* FullyConnected */
  [8] =
    "b fused_activation_function, b weights_format, b keep_num_dims, "
    "b asymmetric_quantize_inputs, b quantized_bias_type, B quant_spec",
  [9] = "f beta",                                            /* Softmax */
  [10] = "i axis, b fused_activation_function",              /* Concatenation */
  [11] = "b fused_activation_function, b pot_scale_int16=1", /* Add */
  [12] = "b fused_activation_function",                      /* L2Norm */
  [13] = "i radius, f bias, f alpha, f beta",                /* LocalResponseNormalization */
  /* LSTM */
  [14] =
    "b fused_activation_function, f cell_clip, f proj_clip, b kernel_type, "
    "b asymmetric_quantize_inputs",
  [15] = "-, -, b align_corners, b half_pixel_centers",         /* ResizeBilinear */
  [16] = "i subgraph",                                          /* Call */
  [17] = "I new_shape",                                         /* Reshape */
  [18] = "i ngram_size, i max_skip_size, b include_all_ngrams", /* SkipGram */
  [19] = "i block_size",                                        /* SpaceToDepth */
  [20] = "b combiner",                                          /* EmbeddingLookupSparse */
  [21] = "b fused_activation_function",                         /* Mul */
  [23] = "i axis, i batch_dims",                                /* Gather */
  [27] = "b keep_dims",                                         /* Reducer */
  [28] = "b fused_activation_function, b pot_scale_int16=1",    /* Sub */
  [29] = "b fused_activation_function",                         /* Div */
  [30] = "I squeeze_dims",                                      /* Squeeze */
  /* SequenceRNN */
  [31] = "b time_major, b fused_activation_function, b asymmetric_quantize_inputs",
  /* StridedSlice */
  [32] =
    "i begin_mask, i end_mask, i ellipsis_mask, i new_axis_mask, i shrink_axis_mask, "
    "b offset",
  [35] = "i num_splits",                    /* Split */
  [37] = "b in_data_type, b out_data_type", /* Cast */
  [40] = "b output_type",                   /* ArgMax */
  /* TransposeConv */
  [49] =
    "b padding, i stride_w, i stride_h, b fused_activation_function, "
    "b quantized_bias_type",
  [50] = "b validate_indices",                       /* SparseToDense */
  [55] = "b out_type",                               /* Shape */
  [57] = "b output_type",                            /* ArgMin */
  [58] = "f min, f max, i num_bits, b narrow_range", /* FakeQuant */
  [59] = "i values_count, i axis",                   /* Pack */
  [61] = "i axis",                                   /* OneHot */
  [64] = "i num, i axis",                            /* Unpack */
  /* BidirectionalSequenceLSTM */
  [69] =
    "b fused_activation_function, f cell_clip, f proj_clip, b merge_outputs, "
    "b time_major=1, b asymmetric_quantize_inputs",
  /* BidirectionalSequenceRNN */
  [70] =
    "b time_major, b fused_activation_function, b merge_outputs, "
    "b asymmetric_quantize_inputs",
  /* UnidirectionalSequenceLSTM */
  [71] =
    "b fused_activation_function, f cell_clip, f proj_clip, b time_major, "
    "b asymmetric_quantize_inputs, b diagonal_recurrent_tensors",
  [74] = "b align_corners, b half_pixel_centers",           /* ResizeNearestNeighbor */
  [75] = "f alpha",                                         /* LeakyRelu */
  [77] = "b mode",                                          /* MirrorPad */
  [79] = "i num_splits",                                    /* SplitV */
  [80] = "b idx_out_type=2",                                /* Unique */
  [87] = "i seq_dim, i batch_dim",                          /* ReverseSequence */
  [92] = "i then_subgraph_index, i else_subgraph_index",    /* If */
  [93] = "i cond_subgraph_index, i body_subgraph_index",    /* While */
  [94] = "i block_size",                                    /* DepthToSpace */
  [101] = "b adj_x, b adj_y, b asymmetric_quantize_inputs", /* BatchMatMul */
  [102] = "b exclusive, b reverse",                         /* Cumsum */
  [103] = "i init_subgraph_index",                          /* CallOnce */
  /* Conv3D */
  [106] =
    "b padding, i stride_d, i stride_w, i stride_h, b fused_activation_function, "
    "i dilation_d_factor=1, i dilation_w_factor=1, i dilation_h_factor=1",
  [107] = "i table_id, b key_dtype, b value_dtype", /* Hashtable */
  [111] = "s container, s shared_name",             /* VarHandle */
  [114] = "l seed, l seed2",                        /* Random */
  [115] = "F boundaries",                           /* Bucketize */
  [116] = "b approximate",                          /* Gelu */
};

const char *neap_tflite_operator_name(int code) {
  return code >= 0 && code < NEAP_COUNT(operators) ? operators[code] : NULL;
}

const char *neap_tflite_fields(int type) {
  const char *text = type >= 0 && type < NEAP_COUNT(options) ? options[type] : NULL;
  return text != NULL ? text : "";
}
