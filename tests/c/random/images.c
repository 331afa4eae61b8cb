/* images.c: convolutions of 1 to 50 channels, pools, norms over channels; sequences: LSTM and
 * attention. */
#include "random/writer.h"

#include <stdio.h>
#include <string.h>

enum { MOST_PRODUCTS = 400000 }; /* multiplications of one convolution */

/* ---- images ---------------------------------------------------------------------------------- */

/* What one spatial dimension becomes; 0 or less: too small. */
static int64_t window(int64_t n, int kernel, int stride, int pad, int dilation) {
  return (n + 2 * pad - dilation * (kernel - 1) - 1 + stride) / stride;
}

static bool add_conv(writer *w) {
  static const int channels[] = {1, 3, 2, 8, 16, 5, 4, 7, 9, 12, 15, 17, 24, 32, 33, 50};
  int x = pick(w, (want){.rank = 4, .most = 8000});
  if (x < 0) return false;
  int kernel = 1 + draw_below(w, 3), stride = 1 + (draw_chance(w, 25) ? 1 : 0),
      pad = draw_below(w, kernel), dilation = 1 + (draw_chance(w, 10) ? 1 : 0);

  /* Shapes as the op's record infers them; what is too small or too slow is no net. */
  int64_t n = DIM(w, x, 0), c = DIM(w, x, 1), out = DRAW_OF(w, channels), groups = 1,
          high = window(DIM(w, x, 2), kernel, stride, pad, dilation),
          wide = window(DIM(w, x, 3), kernel, stride, pad, dilation);
  out = NEAP_MIN(out, 8 * w->recipe->size + 2);
  bool depthwise = draw_chance(w, 10), grouped = draw_chance(w, 10), biased = !draw_chance(w, 30);
  if (depthwise) groups = c, out = c;
  if (!depthwise && grouped && c % 2 == 0) groups = 2, out += out % 2;
  if (high < 1 || wide < 1 ||
      n * out * high * wide * (c / groups) * kernel * kernel > MOST_PRODUCTS)
    return false;

  /* The weight has the channels of a group; a bias mostly goes along. */
  neap_dtype dtype = w->blob[x].type.dtype;
  char p[24], b[32] = "";
  snprintf(p, sizeof p, "%s", add_param(w, TYPE(dtype, out, c / groups, kernel, kernel), UNIFORM));
  if (biased) snprintf(b, sizeof b, ", %s", add_param(w, TYPE(dtype, out), UNIFORM));
  int y = target(w, TYPE(dtype, n, out, high, wide), w->blob[x].batched, -1);
  say(w, "%s = Conv(%s, %s%s) { stride = {%d}, pad = {%d}, dilation = {%d}, groups = %d }",
      NAME(w, y), NAME(w, x), p, b, stride, pad, dilation, (int)groups);
  return true;
}

static bool add_pool(writer *w) {
  int x = pick(w, (want){.rank = 4});
  if (x < 0) return false;
  int kernel = 1 + draw_below(w, 3), stride = 1 + draw_below(w, 2),
      pad = draw_below(w, (kernel - 1) / 2 + 1);
  bool mean = draw_chance(w, 40), global = draw_chance(w, 15);
  neap_type type = w->blob[x].type;
  for (int k = 2; k < 4; k++)
    type.shape.dim[k] = global ? 1 : window(DIM(w, x, k), kernel, stride, pad, 1);
  if (type.shape.dim[2] < 1 || type.shape.dim[3] < 1) return false;
  int y = target(w, type, w->blob[x].batched, -1);
  if (global)
    say(w, "%s = GlobalAveragePool(%s)", NAME(w, y), NAME(w, x));
  else
    say(w, "%s = %s(%s) { kernel = {%d}, stride = {%d}, pad = {%d} }", NAME(w, y),
        mean ? "AveragePool" : "MaxPool", NAME(w, x), kernel, stride, pad);
  return true;
}

/* By the batch's statistics, with or without running ones, or by statistics that are state. */
static bool add_batch_norm(writer *w) {
  int x = pick(w, (want){.least_rank = 2});
  if (x < 0) return false;
  neap_dtype dtype = w->blob[x].type.dtype;
  int64_t c = DIM(w, x, 1);
  int kind = draw_below(w, 3);
  bool relu = draw_chance(w, 30);
  char gamma[24], beta[24], mean[24], var[24];
  snprintf(gamma, sizeof gamma, "%s", add_param(w, TYPE(dtype, c), NEAR_ONE));
  snprintf(beta, sizeof beta, "%s", add_param(w, TYPE(dtype, c), UNIFORM));
  if (kind > 0) {
    snprintf(mean, sizeof mean, "%s", add_state(w, TYPE(dtype, c), UNIFORM));
    snprintf(var, sizeof var, "%s", add_state(w, TYPE(dtype, c), NEAR_ONE));
  }
  w->has_norm = true;
  int y = target(w, w->blob[x].type, w->blob[x].batched, x);
  const char *also = relu ? ", relu = true" : "", *in = NAME(w, x), *out = NAME(w, y);
  if (kind == 2) {
    say(w, "%s = BatchNorm(%s, %s, %s, %s, %s) { training = false%s }", out, in, gamma, beta, mean,
        var, also);
  } else if (kind == 1) {
    say(w, "%s, mean%d, var%d = BatchNorm(%s, %s, %s) { training = true%s }", out, w->step, w->step,
        in, gamma, beta, also);
    say(w, "%s = RunningAverage(%s, mean%d)\n%s = RunningAverage(%s, var%d)", mean, mean, w->step,
        var, var, w->step);
  } else {
    say(w, "%s = BatchNorm(%s, %s, %s) { training = true%s }", out, in, gamma, beta, also);
  }
  return true;
}

static bool add_lrn(writer *w) {
  int x = pick(w, (want){.rank = 4});
  if (x < 0) return false;
  int size = 1 + 2 * draw_below(w, 3);
  int y = target(w, w->blob[x].type, w->blob[x].batched, x);
  say(w, "%s = LRN(%s) { size = %d, alpha = 0.1 }", NAME(w, y), NAME(w, x), size);
  return true;
}

/* A convolution, what often follows it, and a pool: what rewrites and blocked layouts look for. */
static bool add_block(writer *w) {
  int x = pick(w, (want){.rank = 4, .most = 3000});
  if (x < 0) return false;
  static const int channels[] = {2, 8, 16, 17, 32, 50};
  neap_dtype dtype = w->blob[x].type.dtype;
  int64_t c = DIM(w, x, 1), out = DRAW_OF(w, channels), n = DIM(w, x, 0), high = DIM(w, x, 2),
          wide = DIM(w, x, 3);
  if (n * out * high * wide * c * 9 > MOST_PRODUCTS) out = 2;
  bool norm = draw_chance(w, 40), adds = draw_chance(w, 30) && c == out,
       pools = draw_chance(w, 50) && high > 1 && wide > 1;
  char p[24], b[24], gamma[24], beta[24];
  snprintf(p, sizeof p, "%s", add_param(w, TYPE(dtype, out, c, 3, 3), UNIFORM));
  snprintf(b, sizeof b, "%s", add_param(w, TYPE(dtype, out), UNIFORM));
  int y = fresh(w, TYPE(dtype, n, out, high, wide), w->blob[x].batched);
  const char *t = NAME(w, y);
  say(w, "%s = Conv(%s, %s, %s) { pad = {1} }", t, NAME(w, x), p, b);
  if (norm) {
    snprintf(gamma, sizeof gamma, "%s", add_param(w, TYPE(dtype, out), NEAR_ONE));
    snprintf(beta, sizeof beta, "%s", add_param(w, TYPE(dtype, out), UNIFORM));
    say(w, "%s = BatchNorm(%s, %s, %s) { training = true }", t, t, gamma, beta);
    w->has_norm = true;
  }
  if (adds) say(w, "%s = Add(%s, %s)", t, t, NAME(w, x));
  say(w, "%s = Relu(%s)", t, t);
  if (!pools) return true;
  int z = fresh(w, TYPE(dtype, n, out, high / 2, wide / 2), w->blob[x].batched);
  say(w, "%s = MaxPool(%s) { kernel = {2}, stride = {2} }", NAME(w, z), t);
  return true;
}

const family image_families[] = {
  {"Conv", 4, add_conv}, {"pools", 3, add_pool},  {"BatchNorm", 2, add_batch_norm},
  {"LRN", 1, add_lrn},   {"block", 3, add_block}, {NULL, 0, NULL}};

/* ---- sequences ------------------------------------------------------------------------------- */

static bool add_lstm(writer *w) {
  int x = pick(w, (want){.rank = 3, .most = 1000});
  if (x < 0 || DIM(w, x, 2) > 40) return false;
  neap_dtype dtype = w->blob[x].type.dtype;
  int64_t t = DIM(w, x, 0), n = DIM(w, x, 1), d = DIM(w, x, 2),
          h = 1 + draw_below(w, w->recipe->size);
  bool biased = !draw_chance(w, 30), states = draw_chance(w, 30), reverse = draw_chance(w, 20);

  /* Weights of the four gates lie one below the other: 4 h rows. */
  char p[24], r[24], b[24] = "", more[64] = "";
  snprintf(p, sizeof p, "%s", add_param(w, TYPE(dtype, 4 * h, d), UNIFORM));
  snprintf(r, sizeof r, "%s", add_param(w, TYPE(dtype, 4 * h, h), UNIFORM));
  if (biased || states) snprintf(b, sizeof b, "%s", add_param(w, TYPE(dtype, 4 * h), UNIFORM));
  if (states) {
    char h0[24], c0[24];
    snprintf(h0, sizeof h0, "%s", add_state(w, TYPE(dtype, n, h), UNIFORM));
    snprintf(c0, sizeof c0, "%s", add_state(w, TYPE(dtype, n, h), UNIFORM));
    snprintf(more, sizeof more, ", %s, %s", h0, c0);
  }
  bool batched = w->blob[x].batched;
  int y = fresh(w, TYPE(dtype, t, n, h), batched), hn = fresh(w, TYPE(dtype, n, h), false),
      cn = fresh(w, TYPE(dtype, n, h), false);
  say(w, "%s, %s, %s = LSTM(%s, %s, %s%s%s%s)%s", NAME(w, y), NAME(w, hn), NAME(w, cn), NAME(w, x),
      p, r, b[0] != '\0' ? ", " : "", b, more, reverse ? " { reverse = true }" : "");
  return true;
}

static bool add_attention(writer *w) {
  int x = pick(w, (want){.rank = draw_chance(w, 25) ? 4 : 3, .most = 1500});
  if (x < 0) return false;
  int rank = RANK(w, x), k = pick_like(w, x), v = pick_like(w, x), heads = 1 + draw_below(w, 4);
  int64_t d = DIM(w, x, rank - 1);
  while (d % heads != 0) heads--;
  bool causal = draw_chance(w, 40), packed = draw_chance(w, 30) && rank == 3;
  int y = target(w, w->blob[x].type, w->blob[x].batched, -1);

  /* Heads divide the columns; of rank 4 the heads are a dimension. */
  char attrs[80] = "";
  if (rank == 3) snprintf(attrs, sizeof attrs, "heads = %d%s", heads, causal ? ", " : "");
  if (causal) strcat(attrs, "causal = true");
  if (packed) {
    neap_type wide = w->blob[x].type;
    wide.shape.dim[2] *= 3;
    int qkv = fresh(w, wide, w->blob[x].batched);
    say(w, "%s = Concat(%s, %s, %s) { axis = 2 }", NAME(w, qkv), NAME(w, x), NAME(w, k),
        NAME(w, v));
    say(w, "%s = PackedAttention(%s) { %s }", NAME(w, y), NAME(w, qkv), attrs);
  } else if (attrs[0] != '\0') {
    say(w, "%s = Attention(%s, %s, %s) { %s }", NAME(w, y), NAME(w, x), NAME(w, k), NAME(w, v),
        attrs);
  } else {
    say(w, "%s = Attention(%s, %s, %s)", NAME(w, y), NAME(w, x), NAME(w, k), NAME(w, v));
  }
  return true;
}

const family sequence_families[] = {
  {"LSTM", 3, add_lstm}, {"attention", 3, add_attention}, {NULL, 0, NULL}};
