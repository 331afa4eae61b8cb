/* call.h: how a call is written, and the options that calls are made with. */
#ifndef NEAP_TESTS_BLOCKS_CALL_H
#define NEAP_TESTS_BLOCKS_CALL_H

#include "blocks/scene.h"

#define CALL(name) static neap_status call_##name(scene *s, neap_error *error)
/* A call without a status: it only must not ask for memory. */
#define QUIET(name, body) \
  CALL(name) {            \
    (void)s, (void)error; \
    body;                 \
    return NEAP_OK;       \
  }

static void figures_out(scene *s, const neap_figures *f) {
  s->number[0] = (double)f->arena_bytes, s->number[1] = (double)f->total_bytes,
  s->number[2] = (double)f->n_op;
  s->number[3] = (double)f->n_recomputed, s->number[4] = (double)f->lower_bound_bytes;
}

static const neap_options plain = {.threads = 1}, in_dag = {.executor = "dag"},
                          by_name = {.policy = "name"}, without_plan = {.policy = "none"},
                          in_pool = {.policy = "pool"}, dynamic = {.executor = "dynamic"},
                          in_budget = {.budget = 448}, in_total = {.total = 3000},
                          accumulated = {.accumulate = "sum"};
static const neap_mem_param caffe = {.n_exclude_blob = 1, .exclude_blob = NAMES("h")};
static const neap_options with_keeps = {.mem_param = &caffe, .n_keep = 1, .keep = NAMES("r")};
static const neap_bank bank = {"fast", 4096, NEAP_BANK_ORDINARY};
static const neap_options in_banks = {.n_banks = 1, .banks = &bank};

#endif
