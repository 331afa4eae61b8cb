/* window.h: what Conv and the pools share: the geometry of a sliding window, and the plain kernels
 * of Conv.
 *
 * Every windowed op has the attributes kernel, stride, pad and dilation at positions 0 to 3, so
 * that one reader serves all. Geometry is in three spatial dimensions, depth, height, width; ranks
 * 3 and 4 have leading ones.
 */
#ifndef NEAP_OPS_WINDOW_H
#define NEAP_OPS_WINDOW_H

#include "ops/fused.h"

enum {
  NEAP_WINDOW_KERNEL,
  NEAP_WINDOW_STRIDE,
  NEAP_WINDOW_PAD,
  NEAP_WINDOW_DILATION,
  NEAP_WINDOW_N_ATTR
};

#define NEAP_WINDOW_ATTRS(kernel_doc, kernel_required)                                           \
  [NEAP_WINDOW_KERNEL] =                                                                         \
    {"kernel",   kernel_doc,     NEAP_ATTR_INTS, .required = (kernel_required),                  \
     .least = 1, .most = 1 << 20},                                                               \
  [NEAP_WINDOW_STRIDE] = {"stride", "step of the window, one for all dimensions or one each",    \
                          NEAP_ATTR_INTS, .least = 1, .most = 1 << 20},                          \
  [NEAP_WINDOW_PAD] = {"pad",                                                                    \
                       "zeros around x: one for all, one each, or all begins and then all ends", \
                       NEAP_ATTR_INTS, .most = 1 << 20},                                         \
  [NEAP_WINDOW_DILATION] = {"dilation",                                                          \
                            "distance of the window's elements, one for all or one each",        \
                            NEAP_ATTR_INTS, .least = 1, .most = 1 << 20}

/* x (N,C,in...), y (N,C',out...). INVARIANT: all lists are filled, unused leading dimensions with 1
 * (pads with 0). */
typedef struct neap_window {
  int n;                   /* spatial dimensions of x: 1 to 3 */
  int64_t batch, channels; /* N, C of x */
  int64_t in[3], out[3], kernel[3], stride[3], dilation[3];
  int64_t begin[3], end[3];      /* padding before and after */
  int64_t n_in, n_out, n_kernel; /* products of in, out, kernel */
  /* windows share x out evenly and have sizes of their own, of which `kernel` is the largest */
  bool adaptive;
} neap_window;

/* Geometry of checked attributes; `kernel` NULL: from the attribute. y NULL: `out` is left 0. */
neap_window neap_window_of(const neap_attr_value *attrs, const neap_shape *x, const neap_shape *y,
                           const int64_t *kernel);
/* As neap_window_of for input 0 = x, with every check and `out` computed; `kernel` NULL: a pool's,
 * from the attribute, which then is the default stride too. `ceil`: sizes are rounded up, but the
 * last window starts inside x or its leading padding (PyTorch's rule). */
neap_status neap_window_infer(const neap_infer *infer, const int64_t *kernel, bool ceil,
                              neap_window *window, neap_error *error);
/* The lists kernel, stride, pad and dilation of an op with n spatial dimensions: their lengths and
 * the range of their numbers. */
neap_status neap_window_check_lists(const neap_infer *infer, int n, neap_error *error);
/* The shape (N, channels, out...). */
neap_shape neap_window_shape(const neap_window *window, int64_t channels);

/* Channels that lie side by side in a layout of (N,C,spatial) where planes are plain but for that:
 * 1 plain, a block's, or all of them; 0 for any other layout. Elements of one plane are as many
 * steps apart. */
int64_t neap_window_side_by_side(const neap_layout *layout, const neap_shape *shape);
/* Whether all channels of a pixel lie side by side, and the pixels in order. */
bool neap_window_channels_last(const neap_layout *layout, const neap_shape *shape);
/* Whether each output reads one element, its own: x is then its own column matrix. */
bool neap_window_is_pointwise(const neap_window *window);
/* The window of a oneDNN problem. */
void neap_window_to_case(neap_onednn_case *c, const neap_window *window);

/* Outputs [*from, *to) of one dimension whose element `tap` falls on x positions [low, high). */
static inline void neap_window_range(const neap_window *w, int d, int64_t tap, int64_t low,
                                     int64_t high, int64_t *from, int64_t *to) {
  /* x position = o * s + shift */
  int64_t shift = tap * w->dilation[d] - w->begin[d], s = w->stride[d];
  /* The first o with o s + shift at low or behind it, and the first at high: both rounded up. */
  int64_t a = low - shift, b = high - shift;
  *from = a <= 0 ? 0 : (a + s - 1) / s;
  *to = b <= 0 ? 0 : NEAP_MIN((b + s - 1) / s, w->out[d]);
}

/* ---- kernels of Conv: operands as in the records (conv.c) ------------------------------------ */

/* conv.c: checks of x, weight and bias; 2 N O L C/g K flops; window and groups of a oneDNN
 * problem */
neap_status neap_conv_infer(neap_infer *infer, neap_error *error);
void neap_conv_cost(const neap_infer *infer, neap_cost *cost);
void neap_conv_describe(neap_onednn_case *c, const neap_op *op, const neap_attr_value *attrs);
/* The attribute `kernel` of Conv or ConvTranspose, where given, says what input 1 does, and a
 * window has elements; input 0 has as many dimensions. */
neap_status neap_conv_check_kernel(const neap_infer *infer, neap_error *error);
/* The window that slides over x and gives y, of all ops that convolve; for ConvTranspose x is what
 * comes out. */
neap_window neap_conv_window(const neap_op *op, const neap_attr_value *attrs, const neap_shape *x,
                             const neap_shape *y, const neap_shape *weight);
/* conv_transpose.c: padding that ConvTranspose finds from the shapes */
void neap_conv_transpose_pads(const neap_attr_value *attrs, neap_window *window);
/* Attributes 0 to 4 of Conv and of what is fused from it. */
enum { NEAP_CONV_GROUPS = NEAP_WINDOW_N_ATTR, NEAP_CONV_N_ATTR };
#define NEAP_CONV_ATTRS                                                                         \
  NEAP_WINDOW_ATTRS("size of the window; checked against the weight's", false),                 \
    [NEAP_CONV_GROUPS] = {"groups",      "channels are convolved in this many separate groups", \
                          NEAP_ATTR_INT, .value = {.i = 1},                                     \
                          .least = 1,    .most = 1 << 30}
/* Whether a grouped convolution is better off with a product by group: see there. */
bool neap_conv_is_ragged(const neap_op *op, const neap_attr_value *attrs, const neap_type *in,
                         const neap_type *out);
/* Outputs [from, from + n) of row (od, oh) of the plane that filter `o` makes of an image, in
 * groups of group_o filters over group_c channels. */
typedef struct neap_conv_row {
  const neap_window *w;
  int64_t group_c, group_o;
  int64_t image, o, od, oh, from, n;
} neap_conv_row;
/* What one tap gives outputs [first, first + n) of the row: x is read at `x`, `x` + the window's
 * last stride and so on, all inside; its weight stands at `weight`. */
typedef void (*neap_conv_tap)(void *context, int64_t x, int64_t weight, int64_t first, int64_t n);
/* All taps of a row but those that only meet padding, in the order of the weight. */
void neap_conv_each_tap(const neap_conv_row *row, neap_conv_tap tap, void *context);
/* conv_ref.c: plain loops, sums in double */
void neap_conv_ref_forward(const neap_call *call);
void neap_conv_ref_grad_input(const neap_call *call);
void neap_conv_ref_grad_weight(const neap_call *call);
/* conv_gemm.c: one matrix product an image over an unrolled copy of x, which is the scratch */
bool neap_conv_gemm_choose(neap_choose *choose);
bool neap_conv_gemm_choose_grad_input(neap_choose *choose);
bool neap_conv_gemm_choose_grad_weight(neap_choose *choose);
void neap_conv_gemm_forward(const neap_call *call);
void neap_conv_gemm_grad_input(const neap_call *call);
void neap_conv_gemm_grad_weight(const neap_call *call);

/* y (N,O,spatial) += b (O), where input 2 of a convolution is there; layouts, dtypes as below. */
void neap_conv_add_bias(const neap_call *call);
/* db (O) = sum of dy (N,O,spatial) over all else, in a layout of which neap_window_side_by_side
 * knows; any float. Where output 1 is not wanted, nothing. */
void neap_conv_sum_bias(const neap_call *call);

#endif
