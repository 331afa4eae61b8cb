/* matmul.c: MatMul, products of stacks of matrices with NumPy's rules.
 *
 * a (...,M,K), b (...,K,N), y (...,M,N), the leading (batch) dimensions broadcast; a vector counts
 * as one row (a) or one column (b), which y then lacks. When b is a single matrix, the batch of a
 * is only more rows: one large product. Otherwise small products share the threads by batch, and
 * large ones are parallel inside.
 */
#include "ops/batches.h"
#include "ops/dnnl.h"

enum { TRANS_A, TRANS_B };

/* One product for each element of `batch`: (M,K) times (K,N), after the transposes. */
typedef struct product {
  bool trans_a, trans_b;
  int64_t m, n, k;
  neap_batches batches; /* of y */
} product;

/* Rows and columns of an operand after its transpose; a vector is a row (first) or a column. */
static void matrix_of(const neap_shape *x, bool trans, bool first, int64_t *rows,
                      int64_t *columns) {
  int n = x->n_dim;
  if (n == 1) {
    *rows = first ? 1 : x->dim[0];
    *columns = first ? x->dim[0] : 1;
    return;
  }
  *rows = x->dim[trans ? n - 1 : n - 2];
  *columns = x->dim[trans ? n - 2 : n - 1];
}

/* The product of a and b, of rank 1 or more each. A vector is never transposed. False when the
 * shapes do not fit: K differs or the batches do not broadcast. */
static bool product_of(const neap_shape *a, const neap_shape *b, const neap_attr_value *attrs,
                       product *p) {
  *p = (product){.trans_a = attrs[TRANS_A].i != 0 && a->n_dim > 1,
                 .trans_b = attrs[TRANS_B].i != 0 && b->n_dim > 1};
  int64_t k;
  matrix_of(a, p->trans_a, true, &p->m, &p->k);
  matrix_of(b, p->trans_b, false, &k, &p->n);
  return k == p->k && neap_batches_of(a, b, 2, &p->batches);
}

/* y: the broadcast batch, then M unless a is a vector, then N unless b is one. */
static neap_status infer(neap_infer *c, neap_error *error) {
  const neap_shape *a = &c->in[0].shape, *b = &c->in[1].shape;
  product p;
  char text_a[NEAP_SHAPE_TEXT], text_b[NEAP_SHAPE_TEXT];
  NEAP_TRY(neap_infer_same_dtype(c, 0, error));
  NEAP_TRY(neap_infer_rank(c, 0, 1, NEAP_MAX_DIM, error));
  NEAP_TRY(neap_infer_rank(c, 1, 1, NEAP_MAX_DIM, error));
  if (!product_of(a, b, c->attrs, &p))
    return neap_infer_fail(
      c, NEAP_SHAPE, 1, error,
      "a %s%s and b %s%s do not multiply: inner sizes must agree and batches broadcast",
      neap_shape_text(a, text_a), p.trans_a ? " transposed" : "", neap_shape_text(b, text_b),
      p.trans_b ? " transposed" : "");
  /* A vector counts as a matrix of one row or column, which the output then lacks. */
  neap_shape y = p.batches.all;
  if (a->n_dim > 1) y.dim[y.n_dim++] = p.m;
  if (b->n_dim > 1) y.dim[y.n_dim++] = p.n;
  c->out[0] = (neap_type){c->in[0].dtype, y};
  return NEAP_OK;
}

/* 2 K for each element of y. */
static void cost(const neap_infer *c, neap_cost *cost) {
  product p;
  if (product_of(&c->in[0].shape, &c->in[1].shape, c->attrs, &p))
    cost->flops = 2.0 * (double)neap_shape_elems(&c->out[0].shape) * (double)p.k;
}

typedef struct job {
  const neap_call *call;
  const product *p;
  neap_engine engine;
  int n_thread; /* inside one product */
} job;

/* Products [begin, end) of the batch, in the order of y. Matrices of an operand lie one after
 * another, so its offset is a number of matrices. */
static void multiply(void *context, int64_t begin, int64_t end) {
  const job *j = context;
  const product *p = j->p;
  neap_dtype dtype = j->call->out[0].type.dtype;
  size_t bytes = neap_dtype_bytes(dtype);
  for (int64_t i = begin; i < end; i++) {
    int64_t a, b;
    neap_batches_at(&p->batches, i, &a, &b);
    neap_gemm(dtype, j->engine, p->trans_a, p->trans_b, p->m, p->n, p->k,
              (const char *)j->call->in[0].data + (size_t)(a * p->m * p->k) * bytes,
              (const char *)j->call->in[1].data + (size_t)(b * p->k * p->n) * bytes, false,
              (char *)j->call->out[0].data + (size_t)(i * p->m * p->n) * bytes, j->n_thread);
  }
}

/* Threads work either inside each product, one product after another, or each on products of its
 * own: the first where products are large or fewer than threads. With a transposed the rows of its
 * matrices do not follow each other, so they are not merged. */
static void run(const neap_call *call) {
  enum { LARGE = 1 << 23 }; /* multiply-adds from which a library uses two threads well */
  product p;
  if (!product_of(&call->in[0].type.shape, &call->in[1].type.shape, call->attrs, &p)) return;
  if (!p.trans_a && call->in[1].type.shape.n_dim <= 2) { /* rows of all matrices of a as one */
    p.m *= neap_shape_elems(&p.batches.all);
    p.batches = (neap_batches){0};
  }
  /* Of large products each gets all threads; of many small ones each thread gets some. */
  int64_t n_batch = neap_shape_elems(&p.batches.all);
  bool inside = n_batch < call->n_thread || p.m * p.n * p.k >= LARGE;
  job j = {call, &p, call->choice->engine, inside ? call->n_thread : 1};
  if (inside)
    multiply(&j, 0, n_batch);
  else
    neap_parallel_for(n_batch, 1, call->n_thread, multiply, &j);
}

/* ---- gradient -------------------------------------------------------------------------------- */

/* Emits a product; the transposes are of the last two dimensions. */
static neap_value_id matmul(neap_grad *g, neap_value_id a, neap_value_id b, bool trans_a,
                            bool trans_b) {
  return neap_grad_emit1(
    g, "MatMul", 2, (neap_value_id[]){a, b}, NULL,
    (neap_set[]){NEAP_SET_INT("trans_a", trans_a), NEAP_SET_INT("trans_b", trans_b), {0}});
}

/* All but the last dimension as one: (...,M,K) -> (R,K). */
static neap_value_id as_rows(neap_grad *g, neap_value_id x) {
  neap_shape s = neap_grad_type(g, x).shape;
  return neap_grad_view(g, x, NEAP_SHAPE(neap_shape_span(&s, 0, s.n_dim - 1), s.dim[s.n_dim - 1]));
}

/* With A = a or a', B = b or b' and y = A B: dA = dy B', dB = A' dy, transposed where the operand
 * was, and summed over broadcast batches. Vectors take part as matrices of one row or column. */
static neap_status grad(neap_grad *g, neap_error *error) {
  (void)error;
  neap_shape sa = neap_grad_type(g, g->in[0]).shape, sb = neap_grad_type(g, g->in[1]).shape;
  product p;
  if (!product_of(&sa, &sb, g->attrs, &p)) return NEAP_OK;
  /* With vectors as matrices all have their two dimensions, so that one formula serves; the results
   * are seen as the operands were. */
  neap_shape sy = p.batches.all, ma = sa.n_dim == 1 ? NEAP_SHAPE(1, sa.dim[0]) : sa,
             mb = sb.n_dim == 1 ? NEAP_SHAPE(sb.dim[0], 1) : sb;
  sy.dim[sy.n_dim++] = p.m;
  sy.dim[sy.n_dim++] = p.n;
  neap_value_id a = neap_grad_view(g, g->in[0], ma), b = neap_grad_view(g, g->in[1], mb),
                dy = neap_grad_view(g, g->dout[0], sy);
  if (g->want[0]) {
    neap_value_id da =
      p.trans_a ? matmul(g, b, dy, p.trans_b, true) : matmul(g, dy, b, false, !p.trans_b);
    g->din[0] = neap_grad_view(g, neap_grad_reduce_to(g, da, a), sa);
  }
  if (g->want[1]) {
    /* the sum over the batch is part of the product */
    bool shared = mb.n_dim == 2 && ma.n_dim > 2 && !p.trans_a;
    neap_value_id left = shared ? as_rows(g, a) : a, right = shared ? as_rows(g, dy) : dy;
    neap_value_id db = p.trans_b ? matmul(g, right, left, true, p.trans_a)
                                 : matmul(g, left, right, !p.trans_a, false);
    g->din[1] = neap_grad_view(g, neap_grad_reduce_to(g, db, b), sb);
  }
  return NEAP_OK;
}

const neap_op neap_op_MatMul = {
  .name = "MatMul",
  .summary = "Matrix product; leading dimensions are a batch and broadcast.",
  .math = "y (...,M,N) = a (...,M,K) b (...,K,N)",
  .example = "net:MatMul({\"a\", \"b\"}, \"y\", {trans_b = true})",
  .source = "NumPy matmul; ONNX MatMul-13",
  .inputs = {{"a", "(...,M,K), or (K)"}, {"b", "(...,K,N), or (K)"}},
  .outputs = {{"y", "(...,M,N)"}},
  .attrs = {[TRANS_A] = {"trans_a", "a is (...,K,M)", NEAP_ATTR_BOOL},
            [TRANS_B] = {"trans_b", "b is (...,N,K)", NEAP_ATTR_BOOL}},
  .infer = infer,
  .cost = cost,
  .grad = grad,
  .sum = NEAP_SUM_LIBRARY,
  .mixed = NEAP_MIXED_HALF,
  .kernels =
    (const neap_kernel[]){
      {.engine = NEAP_ENGINE_DNNL, .dtypes = NEAP_BIT(F32), .widens = true, .run = run},
      {.engine = NEAP_ENGINE_BLAS, .dtypes = NEAP_WIDE, .widens = true, .run = run},
      {.engine = NEAP_ENGINE_REF,
       .dtypes = NEAP_WIDE,
       .widens = true,
       .any_team = true,
       .run = run},
      {0}},
  .cases =
    "{ {a={4,5}, b={5,3}}, {a={2,4,5}, b={2,5,3}}, {a={2,1,4,5}, b={3,5,2}}, {a={2,3,4,5}, "
    "b={5,6}}, {a={5}, b={5}}, "
    "{a={4,5}, b={5}}, {a={4}, b={4,3}}, {a={5,4}, b={3,5}, trans_a=true, trans_b=true}, "
    "{a={2,5,4}, b={5,3}, trans_a=true}, "
    "{a={3,4,5}, b={6,5}, trans_b=true}, {a={2,0}, b={0,3}}, {a={0,4,5}, b={5,3}} }",
  .long_cases = "{ {a={4,262144}, b={262144,4}} }",
};
