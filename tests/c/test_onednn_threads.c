/* The engine dnnl where oneDNN's calls of OpenMP can't be replaced (src/math/onednn_threads.c): no
 * loaded object has its code. So every kernel is made for one thread and runs on that of the
 * caller, whatever OpenMP would give it, and OpenMP's settings are the caller's own again.
 *
 * This program has a dl_iterate_phdr of its own, which shows nothing while the tests run. */
#include "check.h"

#include "math/blas.h"
#include "math/onednn.h"

#include <dlfcn.h>
#include <link.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int visitor(struct dl_phdr_info *info, size_t size, void *context);

static bool hides;
static _Atomic int n_hidden;

int dl_iterate_phdr(visitor *visit, void *context) {
  n_hidden += hides;
  if (hides) return 0;
  int (*real)(visitor *, void *);
  *(void **)&real = dlsym(RTLD_NEXT, "dl_iterate_phdr");
  return real == NULL ? 0 : real(visit, context);
}

enum { GIVE_UP_S = 120 }; /* a kernel that waits for threads that never come */
enum { N = 4, C = 32, SIZE = 24 };

static bool has_dnnl(void) { return neap_engine_at(NEAP_ENGINE_DNNL)->missing() == NULL; }

static bool same_hash(neap_hash a, neap_hash b) { return a.high == b.high && a.low == b.low; }

/* x (4,32,24,24), w (32,32,3,3) -> y like x: enough work for several threads. */
static neap_onednn_case conv_case(const neap_type in[2], const neap_type out[1], int n_thread) {
  neap_onednn_case c = {.kind = NEAP_ONEDNN_CONV,
                        .n_thread = n_thread,
                        .n_in = 2,
                        .n_out = 1,
                        .in = in,
                        .out = out,
                        .n_space = 2,
                        .groups = 1,
                        .scratch_limit = SIZE_MAX};
  for (int d = 0; d < 2; d++) {
    c.kernel[d] = 3;
    c.stride[d] = c.dilation[d] = c.begin[d] = c.end[d] = 1;
  }
  return c;
}

/* Runs it on numbers in the layouts that oneDNN wants, whatever they mean; the hash of y. */
static neap_hash convolve(int n_thread) {
  neap_type in[2] = {{NEAP_DTYPE_F32, NEAP_SHAPE(N, C, SIZE, SIZE)},
                     {NEAP_DTYPE_F32, NEAP_SHAPE(C, C, 3, 3)}},
            out[1] = {in[0]};
  neap_onednn_case c = conv_case(in, out, n_thread);
  neap_onednn *kernel = NULL;
  neap_hash hash = {0};
  CHECK(neap_onednn_ask(&c));
  CHECK_OK(neap_onednn_make(&c, &kernel, NULL));
  size_t bytes[] = {neap_layout_bytes(&in[0], &c.in_layout[0]),
                    neap_layout_bytes(&in[1], &c.in_layout[1]),
                    neap_layout_bytes(&out[0], &c.out_layout[0]), c.scratch_bytes};
  void *block[4];
  for (int i = 0; i < 4; i++) {
    block[i] = aligned_alloc(64, neap_align(bytes[i]) + 64);
    float *x = block[i];
    for (size_t k = 0; i < 2 && k < bytes[i] / sizeof *x; k++)
      x[k] = (float)((k * 7 + (size_t)i) % 13) / 13 - 0.5f;
  }
  if (kernel != NULL) {
    CHECK(neap_onednn_run(kernel, block, &block[2], block[3]));
    hash = neap_hash_words(block[2], bytes[2]);
  }
  neap_onednn_free(kernel);
  for (int i = 0; i < 4; i++) free(block[i]);
  return hash;
}

TEST(the_version_says_that_kernels_have_one_thread) {
  char version[24];
  if (!has_dnnl()) return;
  const char *text = neap_engine_at(NEAP_ENGINE_DNNL)->version(version);
  CHECK(strstr(text, " alone") != NULL);
  CHECK(n_hidden > 0);
}

TEST(kernels_made_for_many_threads_give_the_bits_of_one) {
  if (!has_dnnl()) return;
  neap_hash one = convolve(1), three = convolve(3);
  CHECK(same_hash(one, three));
}

TEST(the_callers_openmp_is_as_before_and_is_not_used) {
  if (!has_dnnl()) return;
  neap_hash one = convolve(1), inside[2];
  omp_set_num_threads(3);
  CHECK(same_hash(one, convolve(3)));
  CHECK_EQ(omp_get_max_threads(), 3);
  /* On two threads of the caller's own at once; a kernel that waited for helpers would never
   * end. */
#pragma omp parallel num_threads(2)
  inside[omp_get_thread_num()] = convolve(3);
  CHECK(same_hash(one, inside[0]) && same_hash(one, inside[1]));
  CHECK_EQ(omp_get_max_threads(), 3);
}

TEST(products_are_cut_among_neaps_own_threads_all_the_same) {
  enum { M = 300, K = 200 };
  if (!has_dnnl()) return;
  float *a = malloc(M * K * sizeof *a), *c = malloc(M * M * sizeof *c),
        *want = malloc(M * M * sizeof *want);
  for (int i = 0; i < M * K; i++) a[i] = (float)(i % 17) / 17;
  neap_gemm(NEAP_DTYPE_F32, NEAP_ENGINE_REF, false, true, M, M, K, a, a, false, want, 1);
  neap_gemm(NEAP_DTYPE_F32, NEAP_ENGINE_DNNL, false, true, M, M, K, a, a, false, c, 3);
  for (int i = 0; i < M * M; i++) CHECK_NEAR(c[i], want[i], 1e-3);
  free(a);
  free(c);
  free(want);
}

int main(int argc, char **argv) {
  alarm(GIVE_UP_S);
  hides = true;
  int failed = RUN(argc, argv, T(the_version_says_that_kernels_have_one_thread),
                   T(kernels_made_for_many_threads_give_the_bits_of_one),
                   T(the_callers_openmp_is_as_before_and_is_not_used),
                   T(products_are_cut_among_neaps_own_threads_all_the_same));
  hides = false;
  return failed;
}
