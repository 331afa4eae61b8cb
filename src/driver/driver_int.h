/* driver_int.h: what the files of src/driver share. Private. */
#ifndef NEAP_DRIVER_INT_H
#define NEAP_DRIVER_INT_H

#include "driver/driver.h"

/* What the options come to once environment and defaults have spoken. */
typedef struct neap_resolved {
  neap_plan_options plan; /* budget: the tighter of the arena's budget and what `total` leaves it */
  size_t arena_limit;     /* the arena's budget alone; 0: none */
  size_t total_bytes;     /* 0: none */
  size_t total_left;      /* what `total` leaves for arena and constants; SIZE_MAX without one */
  /* all other regions, and what others hold beside them; known under a total */
  size_t resident_bytes;
  size_t least_arena; /* what the total counts for the arena at least: another program's */
  neap_choose_options choose;
  int n_thread;
  bool no_constants, no_recompute, inexact;
  /* the same in neap.h's words, for keys and JSON; lists are those of who asked, borrowed */
  neap_options options;
} neap_resolved;

/* A net on its way to a plan, and what comes of it. Choices stay with their graph: their text
 * refers to it. */
typedef struct neap_way {
  const neap_net *net;
  neap_graph *prepared;
  neap_resolved resolved;
  neap_choices choices;
  int section;       /* of the ladder, that the choices are of */
  int n_rung;        /* of the ladder, made on the way; 0: the plan was read */
  int64_t n_search;  /* what was looked at for all of them: the same on every machine */
  neap_graph *graph; /* laid out */
  neap_plan *plan;
  neap_buffer key;
  char key_text[33];
  neap_hash hash;
} neap_way;
/* plan.c: the whole way of w->net, all else zero. *out gets key, warning and what the store knows;
 * graph and plan stay in w. */
neap_status neap_way_go(neap_way *w, const neap_compile_options *options, neap_forecast *out,
                        neap_error *error);
/* Undoes a round of planning; the prepared graph and the key stay. */
void neap_way_drop_result(neap_way *w);
void neap_way_fini(neap_way *w); /* whatever has not been handed over */
/* ladder.c: chooses, lays out and plans: the first plan within the limits, of a fixed list. BUDGET
 * with the least that would do. */
neap_status neap_ladder_climb(neap_way *w, neap_error *error);
/* The choices of one section of the ladder, into w->choices, with nothing said of constants and
 * recomputations. PLAN error for one that the options have not. */
neap_status neap_ladder_choose(neap_way *w, int section, neap_error *error);
/* Whether recomputation may be tried. */
bool neap_way_may_recompute(const neap_way *w);
/* Whether the plan keeps to the arena's budget and, with its constants, to what the total
 * leaves. */
bool neap_way_fits(const neap_way *w);
/* The most scratch of one op: no limit above this one changes a choice. */
size_t neap_most_scratch(const neap_choices *choices);
/* stored.c: what a store keeps of a plan, and the one door through which it comes back. */
void neap_stored_print(const neap_way *w, neap_buffer *choices, neap_buffer *plan_text);
/* What tells a plan from all others of its key: of kernels, order and places. */
neap_status neap_stored_digest(const neap_way *w, char digest[33], neap_error *error);
/* Choices, graph and plan of w from the two texts, which may say anything. PLAN error that says
 * what differs; nothing is left. */
neap_status neap_stored_read(neap_way *w, const char *choices, const char *plan_text,
                             neap_error *error);

/* session.c: a session of what has been planned; takes graph and plan over. `range` NULL, or whose
 * maximum sets the room of the blobs. */
neap_status neap_session_new(neap_workspace *ws, const neap_net *net,
                             const neap_compile_options *options, const neap_range *range,
                             neap_session **out, neap_error *error);
/* within.c: sets in *options what the workspace's own limits leave a net whose program they have
 * refused, by the words of that refusal. False: another limit refused it, or nothing is left. */
bool neap_within_limits(const neap_workspace *ws, const neap_program *program,
                        const neap_error *refused, neap_compile_options *options);
/* range.c: sets reserve_bytes of the program's blobs to what the range's largest batch needs. */
void neap_range_reserve(const neap_range *range, neap_program *program);

/* mem_param.c: the options with mem_param put into policy and keep, in *out; without one they are
 * as they were. Lists in `room`. */
neap_status neap_mem_param_resolve(const neap_net *net, const neap_compile_options *options,
                                   neap_arena *room, neap_compile_options *out, neap_error *error);

/* plan.c: the engine of this name, or that the environment names where it is NULL; *force false:
 * none. ARGUMENT error for one that does not exist. */
neap_status neap_engine_asked(const char *name, bool *force, neap_engine *engine,
                              neap_error *error);
/* key.c: everything a plan depends on as text. */
void neap_key_print(const neap_graph *graph, const neap_resolved *resolved, neap_buffer *out);
/* options.c: what has been resolved as options, and the lines that a key has of them. */
neap_options neap_options_resolved(const neap_compile_options *options,
                                   const neap_resolved *resolved);
void neap_options_print_key(const neap_options *options, neap_buffer *out);
/* Keeps the first warning. */
void neap_warn(char warning[256], const char *what, const neap_error *error);

/* ---- programs for any shapes (dynamic.c) ---- */

typedef struct neap_dynamic neap_dynamic;
/* `ws` must outlive it; net and options are copied. */
neap_status neap_dynamic_new(neap_workspace *ws, const neap_net *net,
                             const neap_compile_options *options, neap_dynamic **out,
                             neap_error *error);
void neap_dynamic_free(neap_dynamic *dynamic);
/* One step with the shapes that the workspace's inputs have. A failed one leaves resident blobs as
 * they were. */
neap_status neap_dynamic_run(neap_dynamic *dynamic, neap_error *error);
/* that ran last, or will run first; until the next run */
neap_program *neap_dynamic_program(const neap_dynamic *dynamic);
size_t neap_dynamic_planned_bytes(const neap_dynamic *dynamic);
neap_dynamic_stats neap_dynamic_stats_read(const neap_dynamic *dynamic);

/* Plans and binds (session.c). */
neap_status neap_session_bind(const neap_net *net, const neap_compile_options *options,
                              neap_forecast *forecast, neap_program **program, neap_error *error);

/* ---- chains of layers (chain.c, chain_program.c, chain_run.c, chain_list.c) ---- */

typedef enum neap_chain_part {
  NEAP_CHAIN_EVALUATE,
  NEAP_CHAIN_FORWARD,
  NEAP_CHAIN_BACKWARD,
  NEAP_CHAIN_N_PART
} neap_chain_part;

typedef struct neap_chain_layer {
  const char *name;                   /* of the caller's net; texts are interned */
  const char *own_input, *own_output; /* blobs as the caller's net calls them */
  /* as the workspace does; d_input NULL: integers */
  const char *input, *output, *d_input, *d_output;
  neap_net *net; /* under the workspace's names */
  /* parameters that train, then perhaps the input */
  int n_wrt;
  /* names of their gradients, as the layer's backward makes them */
  const char **wrt, **grad;
  /* where a parameter of layers above has its gradient already; else NULL */
  const char **sum, **rounded;
  bool *begins;
  neap_range *range[NEAP_CHAIN_N_PART]; /* NULL before they are asked for */
  neap_cache cache;
} neap_chain_layer;

/* A layer at one batch. */
typedef struct neap_chain_step {
  neap_net *net; /* NULL: the layer's own */
  neap_type in, out;
  neap_session *session[NEAP_CHAIN_N_PART];
  /* blobs that the backward reads of the forward: what the cache gets, in this order */
  int n_saved;
  const char **saved;
} neap_chain_step;
typedef struct neap_chain_batch {
  int64_t n;
  neap_chain_step *step; /* by layer */
} neap_chain_batch;

/* Entry of outputs or inputs. */
typedef struct neap_chain_value {
  neap_tensor data, diff;
  bool dropped;
} neap_chain_value;
typedef struct neap_chain_parameter {
  const char *name, *layer, *grad; /* grad NULL: it does not train */
  neap_tensor attached;            /* of the user's own; {0}: a blob of the workspace */
  bool is_attached;
} neap_chain_parameter;

typedef enum neap_chain_state {
  NEAP_CHAIN_EMPTY,
  NEAP_CHAIN_EVALUATED,
  NEAP_CHAIN_FORWARDED,
  NEAP_CHAIN_DONE
} neap_chain_state;
struct neap_chain {
  neap_workspace *ws;
  neap_compile_options options;
  neap_run *run;           /* that all programs are a part of; NULL: the caller's, or none */
  int64_t n_pass, pass_ns; /* counted and timed for it: of a training pass both halves */
  int64_t max_batch;
  int n_layer, n_batch, cap_batch, n_param, cap_param;
  neap_chain_layer *layer;
  neap_chain_batch *batch; /* as they came */
  neap_chain_parameter *param;
  neap_chain_value *output, *input; /* by layer; of the last forward */
  neap_chain_state state;
  int at; /* batch of the last forward */
  /* the workspace's seed and step then: what a training forward draws by, and its backward */
  neap_draw draw;
  neap_arena room;
};

/* chain.c: `inner` with "layer "fc1": " in front of its message, into error; returns its code. */
neap_status neap_chain_in_layer(const neap_chain *chain, int i, const neap_error *inner,
                                neap_error *error);
/* chain_program.c: the sessions of one part of all layers at batch `at`, made where they are
 * missing. */
neap_status neap_chain_prepare(neap_chain *chain, int at, neap_chain_part part, neap_error *error);
/* chain.c: position of a batch, made when it is missing. */
neap_status neap_chain_find_batch(neap_chain *chain, int64_t batch, int *at, neap_error *error);
/* chain_list.c: drops the references of all entries; with `forget` what nobody holds any more
 * leaves the workspace. */
void neap_chain_let_go(neap_chain *chain, bool forget);

/* ---- eager results (eager_pool.c) ---- */

/* A dense tensor of `type`, contents undefined, whose bytes come from the pool and return to it
 * with the last reference. */
neap_status neap_eager_tensor(neap_tensor *tensor, const neap_type *type, neap_error *error);

#endif
