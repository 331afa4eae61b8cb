/* cached_attention.c: CachedAttention, causal self-attention of a text that grows: the keys and
 * values of what has been read lie in a cache of N rows, which the op adds to.
 *
 * One step reads T new rows of each sequence. Their keys and values go into the cache at
 * `position`, and the queries see all rows up to their own, so that T steps of one row and one step
 * of T rows give the same. The work follows the rows that are there, not N: one plan serves all
 * lengths.
 *
 * INVARIANT: rows of the cache behind a sequence's last one are never read: what lies there, zeros
 * or rows of a text given up, has no influence.
 * INVARIANT: no byte outside the cache is touched, whatever `position` says.
 */
#include "math/attention.h"
#include "ops/op.h"

#include <string.h>

enum { HEADS, SCALE };
enum { Q, K, V, KEYS, VALUES, POSITION };
enum { Y, NEW_KEYS, NEW_VALUES };

/* ---- sizes ----------------------------------------------------------------------------------- */

/* x (B,T,H D) in heads of `depth`. */
static neap_attention_view view_of(const neap_shape *x, int64_t depth) {
  return (neap_attention_view){NULL, x->dim[1] * x->dim[2], depth, x->dim[2]};
}

/* From types that infer has checked, or checks next. */
static neap_attention sizes_of(const neap_type *in, const neap_attr_value *attrs) {
  neap_attention a = {.dtype = in[Q].dtype, .causal = true, .n_head = attrs[HEADS].i};
  a.n_batch = in[Q].shape.dim[0];
  a.n_query = in[Q].shape.dim[1];
  a.depth = in[Q].shape.dim[2] / a.n_head;
  a.n_key_head = a.depth == 0 ? 0 : in[K].shape.dim[2] / a.depth;
  a.value_depth = a.n_key_head == 0 ? 0 : in[V].shape.dim[2] / a.n_key_head;
  a.n_key = in[KEYS].shape.dim[1];
  a.scale = attrs[SCALE].given ? attrs[SCALE].f : neap_attention_default_scale(a.depth);
  return a;
}

/* ---- infer ----------------------------------------------------------------------------------- */

/* cache (B,N,W) for rows (B,T,W), of one dtype. */
static neap_status check_cache(const neap_infer *c, int cache, int rows, neap_error *error) {
  char a[NEAP_SHAPE_TEXT], b[NEAP_SHAPE_TEXT];
  const neap_shape *x = &c->in[cache].shape, *y = &c->in[rows].shape;
  NEAP_TRY(neap_infer_rank(c, cache, 3, 3, error));
  if (c->in[cache].dtype != c->in[rows].dtype)
    return neap_infer_fail(c, NEAP_DTYPE, cache, error, "the cache expects %s, as its rows, got %s",
                           neap_dtype_name(c->in[rows].dtype), neap_dtype_name(c->in[cache].dtype));
  if (x->dim[0] != y->dim[0] || x->dim[2] != y->dim[2])
    return neap_infer_fail(c, NEAP_SHAPE, cache, error,
                           "a cache (B,N,W) of rows (B,T,W) is needed, got %s for %s",
                           neap_shape_text(x, a), neap_shape_text(y, b));
  return NEAP_OK;
}

static neap_status infer(neap_infer *c, neap_error *error) {
  char text[3][NEAP_SHAPE_TEXT];
  const neap_shape *q = &c->in[Q].shape, *k = &c->in[K].shape, *v = &c->in[V].shape,
                   *position = &c->in[POSITION].shape;
  int64_t heads = c->attrs[HEADS].i;
  /* All three are read by one kernel, through strides: one rank, one dtype. */
  for (int i = Q; i <= V; i++) {
    NEAP_TRY(neap_infer_rank(c, i, 3, 3, error));
    if (c->in[i].dtype != c->in[Q].dtype)
      return neap_infer_fail(c, NEAP_DTYPE, i, error,
                             "q, k and v must have one dtype, got %s and %s",
                             neap_dtype_name(c->in[Q].dtype), neap_dtype_name(c->in[i].dtype));
  }
  /* Before sizes, which divide by what is checked here. */
  if (q->dim[2] == 0 || q->dim[2] % heads != 0)
    return neap_infer_fail(c, NEAP_SHAPE, Q, error,
                           "q %s has a width that %lld heads do not share evenly",
                           neap_shape_text(q, text[0]), (long long)heads);
  neap_attention a = sizes_of(c->in, c->attrs);

  /* Sizes were read off one operand each; the others must say the same. New rows of k and v are as
   * many as those of q, which ask about them. */
  bool fits = a.n_key_head > 0 && a.n_head % a.n_key_head == 0 &&
              k->dim[2] == a.n_key_head * a.depth && v->dim[2] == a.n_key_head * a.value_depth &&
              k->dim[0] == a.n_batch && v->dim[0] == a.n_batch && k->dim[1] == a.n_query &&
              v->dim[1] == a.n_query;
  if (!fits)
    return neap_infer_fail(c, NEAP_SHAPE, K, error, "q %s, k %s and v %s do not fit together",
                           neap_shape_text(q, text[0]), neap_shape_text(k, text[1]),
                           neap_shape_text(v, text[2]));
  /* The caches have rows as wide as k's and v's, and as many as each other. */
  NEAP_TRY(check_cache(c, KEYS, K, error));
  NEAP_TRY(check_cache(c, VALUES, V, error));
  if (c->in[VALUES].shape.dim[1] != a.n_key)
    return neap_infer_fail(
      c, NEAP_SHAPE, VALUES, error, "keys %s and values %s are caches of different lengths",
      neap_shape_text(&c->in[KEYS].shape, text[0]), neap_shape_text(&c->in[VALUES].shape, text[1]));
  if (a.n_key == 0)
    return neap_infer_fail(c, NEAP_SHAPE, KEYS, error, "a cache has at least one row, got %s",
                           neap_shape_text(&c->in[KEYS].shape, text[0]));
  /* A position for each sequence: texts of different lengths are read side by side. */
  NEAP_TRY(neap_infer_rank(c, POSITION, 1, 1, error));
  if (position->dim[0] != a.n_batch)
    return neap_infer_fail(c, NEAP_SHAPE, POSITION, error,
                           "position expects one number for each of %lld sequences, got %s",
                           (long long)a.n_batch, neap_shape_text(position, text[0]));

  /* The caches come out as they went in: they are written in place. */
  c->out[Y] = c->in[Q];
  c->out[Y].shape.dim[2] = a.n_head * a.value_depth;
  c->out[NEW_KEYS] = c->in[KEYS];
  c->out[NEW_VALUES] = c->in[VALUES];
  return NEAP_OK;
}

/* Of a full cache: how full it is, data say. */
static void cost(const neap_infer *c, neap_cost *cost) {
  neap_attention a = sizes_of(c->in, c->attrs);
  double rows = (double)(a.n_batch * a.n_query);
  cost->flops = 2 * rows * (double)a.n_head * (double)a.n_key * (double)(a.depth + a.value_depth);
  size_t elem = neap_dtype_bytes(a.dtype);
  double width = (double)(a.n_key_head * (a.depth + a.value_depth)) * (double)elem;
  cost->read_bytes =
    (double)neap_type_bytes(&c->in[Q]) + rows * width + (double)(a.n_batch * a.n_key) * width;
  cost->write_bytes = (double)neap_type_bytes(&c->out[Y]) + rows * width;
}

/* ---- choose and run -------------------------------------------------------------------------- */

/* Behind what attention needs lies one place for each sequence. */
static bool choose(neap_choose *c) {
  neap_attention a = sizes_of(c->in, c->attrs);
  a.engine = c->choice->engine;
  a.n_part = c->choice->n_thread;
  c->choice->scratch_bytes =
    neap_attention_scratch_bytes(&a, false) + (size_t)a.n_batch * sizeof(int64_t);
  return true;
}

/* Rows (B,T,W) to their places in the cache; those that have none are left out. */
static void write_rows(const neap_operand *cache, const neap_operand *rows, const int64_t *first) {
  const int64_t n_batch = rows->type.shape.dim[0], n_row = rows->type.shape.dim[1],
                n_key = cache->type.shape.dim[1];
  const size_t row_bytes = (size_t)rows->type.shape.dim[2] * neap_dtype_bytes(rows->type.dtype);
  for (int64_t b = 0; b < n_batch; b++) {
    /* Places are next to each other: rows from..to-1 of this step have one. */
    int64_t from = NEAP_MAX(0, -first[b]), to = NEAP_MIN(n_row, n_key - first[b]);
    if (from >= to) continue;
    memcpy((char *)cache->data + (size_t)(b * n_key + first[b] + from) * row_bytes,
           (const char *)rows->data + (size_t)(b * n_row + from) * row_bytes,
           (size_t)(to - from) * row_bytes);
  }
}

/* NaN for the queries that stand outside the cache. */
static void mark_outside(const neap_operand *y, const int64_t *first, int64_t n_key) {
  const int64_t n_batch = y->type.shape.dim[0], n_row = y->type.shape.dim[1],
                width = y->type.shape.dim[2];
  for (int64_t b = 0; b < n_batch; b++)
    for (int64_t t = 0; t < n_row; t++) {
      if (first[b] + t >= 0 && first[b] + t < n_key) continue;
      for (int64_t e = 0; e < width; e++)
        neap_element_set(y->type.dtype, y->data, (b * n_row + t) * width + e, (double)NAN);
    }
}

static void run(const neap_call *call) {
  neap_type in[POSITION + 1];
  for (int i = 0; i <= POSITION; i++) in[i] = call->in[i].type;
  neap_attention a = sizes_of(in, call->attrs);
  a.engine = call->choice->engine;
  a.n_part = call->choice->n_thread;
  a.scratch = call->scratch;
  /* A position far outside is as good as one just outside, and can't overflow. */
  int64_t *first =
    (int64_t *)(void *)((char *)call->scratch + neap_attention_scratch_bytes(&a, false));
  const int64_t *position = call->in[POSITION].data;
  for (int64_t b = 0; b < a.n_batch; b++)
    first[b] = NEAP_MAX(-a.n_query, NEAP_MIN(position[b], a.n_key));
  a.first = first;

  /* The new rows are written first: a query sees its own key, too. */
  write_rows(&call->out[NEW_KEYS], &call->in[K], first);
  write_rows(&call->out[NEW_VALUES], &call->in[V], first);
  /* Keys and values are the caches as they are now, seen in heads; q and y are this step's rows
   * alone. */
  a.q = view_of(&in[Q].shape, a.depth);
  a.k = view_of(&in[KEYS].shape, a.depth);
  a.v = view_of(&in[VALUES].shape, a.value_depth);
  a.y = view_of(&call->out[Y].type.shape, a.value_depth);
  a.q.data = call->in[Q].data;
  a.k.data = call->out[NEW_KEYS].data;
  a.v.data = call->out[NEW_VALUES].data;
  a.y.data = call->out[Y].data;
  neap_attention_forward(&a);
  /* A query without a place has seen what it should not, or nothing: its row is marked. */
  mark_outside(&call->out[Y], first, a.n_key);
}

/* ---- record ---------------------------------------------------------------------------------- */

#define DTYPES (NEAP_WIDE | NEAP_BIT(I64))

const neap_op neap_op_CachedAttention = {
  .name = "CachedAttention",
  .summary =
    "Causal self-attention of a text that grows: the new rows' keys and values go into a cache, "
    "and the queries see the cache up to their own row. The work follows the rows that are there.",
  .math =
    "keys[p + t] = k[t];  values[p + t] = v[t];  y[t] = softmax(scale q[t] keys[1..p + t]^T) "
    "values[1..p + t]",
  .example =
    "net:CachedAttention({\"q\", \"k\", \"v\", \"keys\", \"values\", \"position\"}, "
    "{\"y\", \"keys\", \"values\"}, {heads = 6})",
  .source = "Vaswani et al., NeurIPS 2017, section 3.2; Shazeer, 2019, on incremental decoding",
  .inputs = {{"q", "(B,T,H D): T new rows of each sequence"},
             {"k", "(B,T,G D); H a multiple of G"},
             {"v", "(B,T,G E)"},
             {"keys", "(B,N,G D): the cache"},
             {"values", "(B,N,G E)"},
             {"position",
              "(B): rows in the cache before, counted from 0; a row that would lie "
              "outside is not written, and its y is NaN",
              NEAP_BIT(I64)}},
  .outputs = {{"y", "(B,T,H E)"},
              {"keys", "the cache with the new rows"},
              {"values", "the cache with the new rows"}},
  .attrs = {[HEADS] = {"heads", "of q", NEAP_ATTR_INT, .value = {.i = 1}, .least = 1,
                       .most = 65536},
            [SCALE] = {"scale", "of the scores; 1/sqrt(D) when not given", NEAP_ATTR_FLOAT,
                       .unlike_default = true}},
  .enforced = {{KEYS, NEW_KEYS}, {VALUES, NEW_VALUES}},
  .n_enforced = 2,
  .effects = NEAP_EFFECT_COMMIT,
  .infer = infer,
  .cost = cost,
  .nan = NEAP_NAN_REACHES,
  .sum = NEAP_SUM_LIBRARY,
  .empty = NEAP_EMPTY_FILLED,
  .special = "one score of +infinity makes its query NaN; without new rows the cache stays",
  .no_grad = true,
  .kernels =
    (const neap_kernel[]){
      {.engine = NEAP_ENGINE_DNNL,
       .dtypes = NEAP_BIT(F32) | NEAP_BIT(I64),
       .choose = choose,
       .run = run},
      {.engine = NEAP_ENGINE_BLAS, .dtypes = DTYPES, .choose = choose, .run = run},
      {.engine = NEAP_ENGINE_REF, .dtypes = DTYPES, .choose = choose, .run = run},
      {0}},
  .cases =
    "{ {q={2,3,8}, k={2,3,8}, v={2,3,8}, keys={2,7,8}, values={2,7,8}, position={{2}, "
    "dtype=\"i64\", low=0, high=4}, heads=2, grad=false}, {q={1,1,8}, k={1,1,4}, v={1,1,6}, "
    "keys={1,300,4}, values={1,300,6}, position={{1}, dtype=\"i64\", low=0, high=299}, heads=4, "
    "scale=0.3, grad=false}, {q={2,0,4}, k={2,0,4}, v={2,0,4}, keys={2,3,4}, values={2,3,4}, "
    "position={{2}, dtype=\"i64\", low=0, high=3}, grad=false} }",
  .long_cases =
    "{ {q={1,1,4}, k={1,1,4}, v={1,1,4}, keys={1,262144,4}, values={1,262144,4}, position={{1}, "
    "dtype=\"i64\", low=262143, high=262143}} }",
};
