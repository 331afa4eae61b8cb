/* onednn.c: the oneDNN engine: asks for layouts and bytes, makes kernels, runs them. Its
 * neighbours: layouts in onednn_md.c, problems in onednn_desc.c, threads in onednn_threads.c, and
 * what differs between the library's versions in onednn_v2.c and onednn_v3.c. Nobody else includes
 * dnnl.h.
 *
 * A kernel is a primitive and one memory object per argument, made once; a run only sets their
 * addresses. oneDNN clears padding lanes whenever an address is set, so an address is set only when
 * it has changed.
 */
#include "math/onednn_int.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

struct neap_onednn {
  dnnl_primitive_t primitive;
  dnnl_stream_t stream;
  int n_thread, n_arg;
  bool meets; /* its shares wait for each other */
  onednn_arg arg[ONEDNN_MAX_ARG];
  dnnl_memory_t memory[ONEDNN_MAX_ARG];
  void *address[ONEDNN_MAX_ARG]; /* what memory[i] points at */
};

/* ---- engine and threads ---------------------------------------------------------------------- */

/* oneDNN's engine holds no memory of a problem's size and is safe to share, so the process has
 * one. */
static dnnl_engine_t the_engine;
static dnnl_primitive_attr_t the_attr; /* scratch is the caller's */
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Made once a process, never destroyed. Without the attributes the engine is not used either:
 * scratch that oneDNN took itself would be bytes no plan knows of. */
static void make_engine(void) {
  if (dnnl_engine_create(&the_engine, dnnl_cpu, 0) != dnnl_success) the_engine = NULL;
  if (dnnl_primitive_attr_create(&the_attr) != dnnl_success ||
      dnnl_primitive_attr_set_scratchpad_mode(the_attr, dnnl_scratchpad_mode_user) != dnnl_success)
    the_engine = NULL;
}

/* Whether oneDNN can be used; starts it at the first call, from whichever thread. */
static bool have_engine(void) {
  return pthread_once(&once, make_engine) == 0 && the_engine != NULL;
}

/* ---- threads --------------------------------------------------------------------------------- */

static bool is_product(neap_onednn_kind kind) {
  return kind <= NEAP_ONEDNN_CONV_GRAD_WEIGHT ||
         (kind >= NEAP_ONEDNN_FC && kind <= NEAP_ONEDNN_FC_GRAD_WEIGHT);
}

/* Multiply-adds of a product or convolution: outputs times what each sums over; of all else,
 * elements. */
static double work_of(const neap_onednn_case *c) {
  double most = 0, n = 1;
  for (int i = 0; i < c->n_in + c->n_out; i++) {
    const neap_type *type = i < c->n_in ? &c->in[i] : &c->out[i - c->n_in];
    if (neap_dtype_is_float(type->dtype))
      most = NEAP_MAX(most, (double)neap_shape_elems(&type->shape));
  }
  /* Each output is a sum over all of the weight but its first dimension, whichever operand is asked
   * for. */
  bool by_weight = c->kind == NEAP_ONEDNN_CONV_GRAD_WEIGHT || c->kind == NEAP_ONEDNN_FC_GRAD_WEIGHT;
  if (!is_product(c->kind)) return most;
  const neap_shape *w = by_weight ? &c->out[0].shape : &c->in[1].shape;

  const neap_shape *y = &c->in[0].shape; /* of a gradient of the input: dy, of y's shape */
  if (by_weight) y = &c->in[1].shape;
  if (c->kind == NEAP_ONEDNN_CONV || c->kind == NEAP_ONEDNN_FC) y = &c->out[0].shape;
  for (int d = 1; d < w->n_dim; d++) n *= (double)w->dim[d];
  /* Multiply-adds: each element of y is a sum of n products. */
  return n * (double)neap_shape_elems(y);
}

/* Of the threads that the case asks for, as many as have enough to do: to wake one and to wait for
 * it takes some microseconds. */
static int threads_of(const neap_onednn_case *c) {
  double least = is_product(c->kind) ? 1 << 18 : NEAP_GRAIN, n = work_of(c) / least;
  return onednn_threads(n < c->n_thread ? NEAP_MAX((int)n, 1) : c->n_thread);
}

/* ---- asking ---------------------------------------------------------------------------------- */

/* Bytes of what the forward leaves for the backward (the workspace); 0 when the problem lists
 * none. */
static size_t stash_bytes(const onednn_problem *p) {
  for (int i = 0; i < p->n_arg; i++)
    if (p->arg[i].arg == DNNL_ARG_WORKSPACE) return onednn_arg_bytes(p->pd, DNNL_ARG_WORKSPACE);
  return 0;
}

/* oneDNN falls back on loops of its own, slower than ours: their names begin with "ref". */
static bool is_fast(const_dnnl_primitive_desc_t pd) {
  const char *name = NULL;
  return dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name) == dnnl_success &&
         name != NULL && strncmp(name, "ref", 3) != 0;
}

/* Writes the layouts that oneDNN has chosen into the case. False when one of them is none of ours
 * (transformed weights, say): then nobody but oneDNN could read the value. */
static bool take_layouts(neap_onednn_case *c, const onednn_problem *p) {
  for (int i = 0; i < p->n_arg; i++) {
    const onednn_arg *a = &p->arg[i];
    /* Told to oneDNN as it is; or dense for oneDNN, whatever ours is. */
    if (a->keeps_given) continue;
    neap_layout *layout = a->is_out ? &c->out_layout[a->position] : &c->in_layout[a->position];
    const neap_type *type = a->is_out ? &c->out[a->position] : &c->in[a->position];
    onednn_form form;
    if (a->keeps_plain)
      memset(layout, 0, sizeof *layout);
    else if (!onednn_arg_form(p->pd, a->arg, &form) ||
             !onednn_layout(&form, type, onednn_groups(c, a->is_out, a->position), layout) ||
             neap_layout_bytes(type, layout) != onednn_arg_bytes(p->pd, a->arg))
      return false;
  }
  return true;
}

/* Elements with every dimension in blocks of 16, as oneDNN may lay it out. */
static int64_t most_elems(const neap_shape *shape) {
  int64_t n = 1;
  for (int d = 0; d < shape->n_dim; d++) {
    bool may_be_blocked = d < 2 && shape->n_dim > 2;
    n = neap_count_mul(
      n, may_be_blocked ? neap_count_add(shape->dim[d], 15) / 16 * 16 : shape->dim[d]);
  }
  return n;
}

/* Whether every operand has elements, and not so many that oneDNN loses count, which is kept in 32
 * bits in many of its kernels (asked about larger operands, it divides by zero): it is not asked
 * about others. A stash, u8 among floats, is left out: its size is oneDNN's to say. */
static bool can_count(const neap_onednn_case *c) {
  for (int i = 0; i < c->n_in + c->n_out; i++) {
    const neap_type *type = i < c->n_in ? &c->in[i] : &c->out[i - c->n_in];
    bool is_stash = type->dtype == NEAP_DTYPE_U8 && !c->quantised;
    if (type->dtype == NEAP_DTYPE_NONE || is_stash) continue;
    /* oneDNN may round channels up to blocks, and counts the padding too. */
    if (neap_shape_elems(&type->shape) == 0 || most_elems(&type->shape) > INT32_MAX) return false;
  }
  return true;
}

/* The bytes of a problem whose layouts are fixed. */
static bool ask_bytes(neap_onednn_case *c) {
  onednn_problem p;
  bool good = onednn_describe(c, false, the_engine, the_attr, &p) && is_fast(p.pd);
  if (good) {
    c->scratch_bytes = onednn_arg_bytes(p.pd, DNNL_ARG_SCRATCHPAD);
    c->stash_bytes = stash_bytes(&p);
  }
  /* The descriptor was needed for its answers alone. */
  if (p.pd != NULL) dnnl_primitive_desc_destroy(p.pd);
  return good;
}

/* One algorithm. Free layouts first, then the bytes of the same problem with its layouts fixed. */
static bool ask_algorithm(neap_onednn_case *c) {
  onednn_problem p;
  bool good =
    onednn_describe(c, true, the_engine, the_attr, &p) && is_fast(p.pd) && take_layouts(c, &p);
  if (p.pd != NULL) dnnl_primitive_desc_destroy(p.pd);
  /* Asked again even so: the way that make will go, which may end at another kernel with other
   * bytes (see onednn.h). */
  return good && ask_bytes(c);
}

/* Why Winograd's F(4x4, 3x3) does not beat the direct kernels; NULL: it does. It must spread the
 * transform of the weights over enough tiles of 4 x 4 outputs, and over enough channels that of x
 * and y. The bounds are measured (one core, AVX-512, f32): above them 1.4 to 2.7 times the speed
 * forward and for x, 1.1 to 2.2 for w; below, down to half. With few tiles of many channels (the
 * last layers of a net, where memory peaks) the scratch is largest and the gain least. Source:
 * Lavin and Gray, "Fast algorithms for convolutional neural networks", arXiv 1509.09308. */
static const char *winograd_refusal(const neap_onednn_case *c) {
  enum { MIN_TILES = 128, MIN_CHANNELS = 32, MIN_CHANNELS_WEIGHT = 64 };
  bool by_weight = c->kind == NEAP_ONEDNN_CONV_GRAD_WEIGHT;
  /* Only of a 3 x 3 window that steps by one do such tiles overlap as the transform needs. */
  if (c->n_space != 2 || c->groups != 1) return "Winograd is for images, of one group";
  for (int d = 0; d < 2; d++)
    if (c->kernel[d] != 3 || c->stride[d] != 1 || c->dilation[d] != 1)
      return "Winograd needs a window of 3 x 3 that steps by one";
  const neap_shape *w = by_weight ? &c->out[0].shape : &c->in[1].shape,
                   *y = by_weight ? &c->in[1].shape : &c->out[0].shape;
  int64_t least = by_weight ? MIN_CHANNELS_WEIGHT : MIN_CHANNELS;
  if (w->dim[0] < least || w->dim[1] < least || w->dim[0] % 16 != 0 || w->dim[1] % 16 != 0)
    return "too few channels for Winograd, or not whole blocks of 16";
  bool has_tiles = y->dim[0] * ((y->dim[2] + 3) / 4) * ((y->dim[3] + 3) / 4) >= MIN_TILES;
  return has_tiles ? NULL : "fewer tiles than pay for Winograd's transforms";
}

/* The same convolution by Winograd, where it pays and keeps to the limit of scratch. */
static bool take_winograd(neap_onednn_case *c) {
  neap_onednn_case other = *c;
  other.algorithm = NEAP_ONEDNN_WINOGRAD;
  c->why = winograd_refusal(c);
  if (c->why != NULL) return false;
  c->why = "oneDNN has no Winograd kernel for it";
  const bool has_direct = c->has_direct;
  if (!ask_algorithm(&other)) return false;
  /* Tiles of 4 x 4: 36 products where the direct kernel has 144. */
  c->other = "winograd";
  c->other_scratch_bytes = other.scratch_bytes;
  c->other_work = 0.25;
  c->why = "Winograd would take more scratch than there may be";
  if (other.scratch_bytes > other.scratch_limit) return false;
  other.other = has_direct ? "direct" : NULL;
  other.other_scratch_bytes = c->direct_scratch_bytes;
  other.other_work = 4;
  *c = other;
  c->why = "a quarter of the multiplications of the direct kernel";
  return true;
}

/* Direct first; Winograd replaces it where it pays and its scratch keeps to the limit. Where there
 * is no direct kernel it may be the only one. It is asked on a copy, so that its refusal leaves the
 * direct answer whole. */
bool neap_onednn_ask(neap_onednn_case *c) {
  if (!have_engine() || !can_count(c)) return false;
  /* oneDNN answers for a number of threads: the one that will run it. */
  onednn_enter(threads_of(c), false);
  neap_onednn_case direct = *c;
  direct.algorithm = NEAP_ONEDNN_DIRECT;
  bool good = ask_algorithm(&direct);
  c->has_direct = good;
  c->direct_scratch_bytes = direct.scratch_bytes;
  const bool is_conv = c->kind <= NEAP_ONEDNN_CONV_GRAD_WEIGHT && !c->quantised;
  if (is_conv && take_winograd(c)) {
    good = true;
  } else {
    direct.why = c->why;
    direct.other = c->other;
    direct.other_scratch_bytes = c->other_scratch_bytes;
    direct.other_work = c->other_work;
    *c = direct;
  }
  onednn_leave();
  return good;
}

bool neap_onednn_sums_bytes(void) {
  const unsigned isa = (unsigned)dnnl_get_effective_cpu_isa();
  const unsigned wide = (unsigned)dnnl_cpu_isa_avx512_core_vnni,
                 narrow = (unsigned)dnnl_cpu_isa_avx2_vnni;
  return (isa & wide) == wide || (isa & narrow) == narrow;
}

bool neap_onednn_ask_algorithm(neap_onednn_case *c) {
  if (!have_engine() || !can_count(c)) return false;
  onednn_enter(threads_of(c), false);
  bool good = ask_algorithm(c);
  onednn_leave();
  return good;
}

bool neap_onednn_ask_bytes(neap_onednn_case *c) {
  if (!have_engine() || !can_count(c)) return false;
  onednn_enter(threads_of(c), false);
  bool good = ask_bytes(c);
  onednn_leave();
  return good;
}

/* ---- making ---------------------------------------------------------------------------------- */

/* Bytes that an operand has by its layout; a stash has what the choice gave it. */
static size_t promised_bytes(const neap_onednn_case *c, const onednn_arg *a) {
  const neap_type *type = a->is_out ? &c->out[a->position] : &c->in[a->position];
  if (a->arg == DNNL_ARG_WORKSPACE) return a->is_out ? c->stash_bytes : neap_type_bytes(type);
  return neap_layout_bytes(type,
                           a->is_out ? &c->out_layout[a->position] : &c->in_layout[a->position]);
}

/* That the primitive wants the bytes that the plan has laid out. Another oneDNN, processor or
 * number of threads may want other bytes; its kernel would then write past its room. */
static neap_status check_promises(const neap_onednn_case *c, const onednn_problem *p,
                                  neap_error *error) {
  size_t scratch = onednn_arg_bytes(p->pd, DNNL_ARG_SCRATCHPAD);
  if (scratch != c->scratch_bytes)
    return neap_fail(error, NEAP_PLAN, "oneDNN needs %zu bytes of scratch, the plan promised %zu",
                     scratch, c->scratch_bytes);
  for (int i = 0; i < p->n_arg; i++) {
    /* Scratch was compared above. */
    if (p->arg[i].position < 0) continue;
    size_t want = onednn_arg_bytes(p->pd, p->arg[i].arg), promised = promised_bytes(c, &p->arg[i]);
    if (want != promised)
      return neap_fail(error, NEAP_PLAN,
                       "oneDNN needs %zu bytes for operand %d, the plan promised %zu", want,
                       p->arg[i].position, promised);
  }
  return NEAP_OK;
}

/* Kernels that add up over images or rows, and matmul, which may share a long sum: their
 * threads wait for each other's sums, in generated code. */
static bool shares_meet(const neap_onednn_case *c) {
  return c->kind == NEAP_ONEDNN_CONV_GRAD_WEIGHT || c->kind == NEAP_ONEDNN_FC_GRAD_WEIGHT ||
         onednn_is_matmul(c);
}

/* A memory object without an address for the next argument of k. */
static bool add_memory(neap_onednn *k, const_dnnl_primitive_desc_t pd, const onednn_arg *arg) {
  if (!onednn_arg_memory(pd, arg->arg, the_engine, &k->memory[k->n_arg])) return false;
  k->arg[k->n_arg++] = *arg;
  return true;
}

/* Fills k; what has been made when it fails is freed with k. Scratch, when there is any, is one
 * more argument, the last. */
static neap_status make_kernel(const neap_onednn_case *c, const onednn_problem *p, neap_onednn *k,
                               neap_error *error) {
  static const onednn_arg scratch = {.arg = DNNL_ARG_SCRATCHPAD, .position = ONEDNN_SCRATCH};
  NEAP_TRY(check_promises(c, p, error));
  /* Here oneDNN generates code; running it makes nothing more. */
  bool good = dnnl_primitive_create(&k->primitive, p->pd) == dnnl_success &&
              dnnl_stream_create(&k->stream, the_engine, dnnl_stream_default_flags) == dnnl_success;
  for (int i = 0; i < p->n_arg; i++)
    if (good) good = add_memory(k, p->pd, &p->arg[i]);
  if (good && c->scratch_bytes > 0) good = add_memory(k, p->pd, &scratch);
  return good ? NEAP_OK
              : neap_fail(error, NEAP_INTERNAL,
                          "oneDNN could not make a kernel that it had agreed to");
}

neap_status neap_onednn_make(const neap_onednn_case *c, neap_onednn **out, neap_error *error) {
  onednn_problem p = {0};
  neap_status status;
  *out = NULL;
  if (!have_engine()) return neap_fail(error, NEAP_INTERNAL, "oneDNN could not be started");
  neap_onednn *k = neap_alloc_zeroed(sizeof *k);
  if (k == NULL) return neap_fail_memory(error, sizeof *k, "a oneDNN kernel");
  k->n_thread = threads_of(c);
  k->meets = shares_meet(c);
  /* As when it was asked, so that it comes to the same kernel. */
  onednn_enter(threads_of(c), false);
  if (onednn_describe(c, false, the_engine, the_attr, &p))
    status = make_kernel(c, &p, k, error);
  else
    status = neap_fail(error, NEAP_PLAN, "oneDNN has no kernel for the layouts of the plan");
  /* The primitive keeps what it needs of the descriptor. */
  if (p.pd != NULL) dnnl_primitive_desc_destroy(p.pd);
  onednn_leave();
  if (status != NEAP_OK)
    neap_onednn_free(k);
  else
    *out = k;
  return status;
}

/* Takes a kernel that was made in part, too. */
void neap_onednn_free(neap_onednn *k) {
  if (k == NULL) return;
  for (int i = 0; i < k->n_arg; i++) dnnl_memory_destroy(k->memory[i]);
  if (k->stream != NULL) dnnl_stream_destroy(k->stream);
  if (k->primitive != NULL) dnnl_primitive_destroy(k->primitive);
  neap_free(k);
}

/* ---- running --------------------------------------------------------------------------------- */

/* The results are there when it returns: on the processor a primitive is executed at once, by this
 * thread and its helpers. */
bool neap_onednn_run(neap_onednn *k, void *const *in, void *const *out, void *scratch) {
  dnnl_exec_arg_t args[ONEDNN_MAX_ARG];
  onednn_enter(k->n_thread, k->meets);
  for (int i = 0; i < k->n_arg; i++) {
    const onednn_arg *a = &k->arg[i];
    void *address = a->position == ONEDNN_SCRATCH ? scratch
                    : a->is_out                   ? out[a->position]
                                                  : in[a->position];
    /* Setting costs a pass over the padding lanes; in a planned program addresses stay the same
     * from run to run. */
    if (address != k->address[i]) onednn_memory_set(k->memory[i], address, k->stream);
    k->address[i] = address;
    args[i] = (dnnl_exec_arg_t){a->arg, k->memory[i]};
  }
  /* What threads could not be had shows when they are left. */
  dnnl_status_t status = dnnl_primitive_execute(k->primitive, k->stream, k->n_arg, args);
  return onednn_leave() && status == dnnl_success;
}

/* A product cut along the longer side of C, in units of CUT rows or columns. oneDNN's own cut goes
 * along K when C is flat, and its threads then wait for each other: two took longer than one
 * (measured, 16 to 128 rows). */
enum { CUT = 16 };

/* C (M,N) = alpha op(A) op(B) + beta C, row by row with the leading dimensions lda, ldb, ldc. */
typedef struct cut_product {
  bool ta, tb, by_rows;
  int64_t m, n, k, lda, ldb, ldc;
  float alpha, beta;
  const float *a, *b;
  float *c;
  _Atomic bool failed;
} cut_product;

/* C (m,n), a part of p's, with what stands at a, b, c; on one thread. */
static bool multiply_part(const cut_product *p, int64_t m, int64_t n, int64_t k, const float *a,
                          int64_t lda, const float *b, float beta, float *c) {
  char ta = p->ta ? 'T' : 'N', tb = p->tb ? 'T' : 'N';
  onednn_enter(1, false);
  dnnl_status_t status = dnnl_sgemm(ta, tb, m, n, k, p->alpha, a, lda, b, p->ldb, beta, c, p->ldc);
  return onednn_leave() && status == dnnl_success;
}

/* To turn A round, oneDNN reads down its columns. Rows a multiple of 4 KiB apart, as the gates of
 * LSTM are, then fall upon the same few lines of the cache, which costs a tenth to a fifth of the
 * product (measured). */
static bool is_aliased(const cut_product *p, int64_t m, int64_t n) {
  enum { PAGE_ELEMS = 4096 / sizeof(float), LEAST = 64 };
  return p->ta && p->lda % PAGE_ELEMS == 0 && NEAP_MIN(m, NEAP_MIN(n, p->k)) >= LEAST;
}

/* As multiply_part for all of K, by copies of blocks of A whose rows are a little further apart. */
static bool multiply_copied(const cut_product *p, int64_t m, int64_t n, const float *a,
                            const float *b, float *c) {
  enum { BLOCK = 128, ROW = BLOCK + 16 };
  float copy[BLOCK * ROW];
  for (int64_t i = 0; i < m; i += BLOCK)
    for (int64_t l = 0; l < p->k; l += BLOCK) {
      /* Rows of the copy fall upon different lines of the cache. */
      int64_t wide = NEAP_MIN(m - i, BLOCK), deep = NEAP_MIN(p->k - l, BLOCK);
      for (int64_t r = 0; r < deep; r++)
        memcpy(copy + r * ROW, a + (l + r) * p->lda + i, (size_t)wide * sizeof *copy);
      /* The first block sets C as it is asked, the others add to that. */
      if (!multiply_part(p, wide, n, deep, copy, ROW, b + (p->tb ? l : l * p->ldb),
                         l == 0 ? p->beta : 1, c + i * p->ldc))
        return false;
    }
  return true;
}

/* Units [begin, end). */
static void multiply_cut(void *context, int64_t begin, int64_t end) {
  cut_product *p = context;
  int64_t from = begin * CUT, m = p->m, n = p->n, to = NEAP_MIN(end * CUT, p->by_rows ? m : n);
  const float *a = p->a, *b = p->b;
  float *c = p->c;
  /* Where the part begins in A or B, whichever way that lies, and in C. */
  if (p->by_rows)
    a += p->ta ? from : from * p->lda, c += from * p->ldc, m = to - from;
  else
    b += p->tb ? from * p->ldb : from, c += from, n = to - from;
  bool good = is_aliased(p, m, n) ? multiply_copied(p, m, n, a, b, c)
                                  : multiply_part(p, m, n, p->k, a, p->lda, b, p->beta, c);
  if (!good) p->failed = true;
}

/* As neap_gemm_f32 (math/blas.h). False, C untouched, when oneDNN refuses. */
static bool gemm_f32(bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
                     int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc,
                     int n_thread) {
  enum { LEAST = 1 << 18 }; /* multiply-adds that are worth a thread */
  cut_product p = {.ta = ta,
                   .tb = tb,
                   .by_rows = m > n,
                   .m = m,
                   .n = n,
                   .k = k,
                   .lda = lda,
                   .ldb = ldb,
                   .ldc = ldc,
                   .alpha = alpha,
                   .beta = beta,
                   .a = a,
                   .b = b,
                   .c = c};
  int64_t n_unit = (NEAP_MAX(m, n) + CUT - 1) / CUT,
          grain = LEAST / NEAP_MAX(CUT * NEAP_MIN(m, n) * k, 1) + 1;
  neap_parallel_for(n_unit, grain, n_thread, multiply_cut, &p);
  return !p.failed;
}

/* ---- the engine ------------------------------------------------------------------------------ */

/* A oneDNN on threads of another kind (TBB, SYCL) would take as many as it likes, and be told
 * nothing of Neap's. */
static const char *missing(void) {
  if (dnnl_version()->cpu_runtime != DNNL_RUNTIME_OMP) return "this oneDNN is not built for OpenMP";
  return have_engine() ? NULL : "oneDNN could not be started";
}

/* "2.6.3"; "2.6.3 alone" where its kernels have one thread. */
static const char *version(char text[24]) {
  const dnnl_version_t *v = dnnl_version();
  snprintf(text, 24, "%d.%d.%d%s", v->major, v->minor, v->patch,
           onednn_threads(2) == 1 ? " alone" : "");
  return text;
}

/* Few rows: the loop takes 0.6 to 1.1 of oneDNN's time at this depth, twice as much at 256
 * (measured on one core with AVX-512, 1 to 32 rows). */
const neap_engine_record neap_engine_dnnl = {
  .name = "dnnl",
  .doc = "primitives and matrix products of oneDNN, in layouts of its own",
  .dtypes = NEAP_BIT(F32) | NEAP_HALVES,
  .missing = missing,
  .version = version,
  .gemm_f32 = gemm_f32,
  .few_rows_depth = 1024,
};
