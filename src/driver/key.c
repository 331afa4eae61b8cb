/* key.c: the text a stored plan is found by: the graph without names, and all that choices and plan
 * depend on.
 *
 * INVARIANT: two nets with the same key text get the same plan; what is not in here may not
 * influence planning.
 */
#include "driver/driver_int.h"
#include "math/engine.h"

#include <stdio.h>
#include <string.h>

/* Versions of all that computes. A plan made with other libraries may promise scratch that these do
 * not keep. */
void neap_kernel_set_text(char text[160]) {
  char version[24];
  size_t at = (size_t)snprintf(text, 160, "neap %s", NEAP_VERSION);
  for (int e = 0; e < NEAP_N_ENGINE && at < 160; e++) {
    const neap_engine_record *engine = neap_engine_at((neap_engine)e);
    if (engine->version == NULL && engine->missing() == NULL) continue;
    at += (size_t)snprintf(text + at, 160 - at, "; %s %s", engine->name,
                           engine->missing() == NULL ? engine->version(version) : "none");
  }
}

/* The widest vector instructions that both the machine and the libraries here use; choices, and so
 * bytes, depend on them. */
const char *neap_instruction_set(void) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw"))
    return __builtin_cpu_supports("avx512vnni") ? "avx512-vnni" : "avx512";
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "avx2";
  return "sse4.2";
#elif defined(__aarch64__)
  return "neon";
#else
  return "generic";
#endif
}

/* Under policy `name` values of one name share bytes, so which names are equal matters, though not
 * what they are: names are numbered by first definition. Quadratic, in a policy that is there for
 * comparison. */
static void print_slots(const neap_graph *graph, neap_buffer *out) {
  neap_buffer_add(out, "slots");
  for (int v = 0; v < graph->n_value; v++) {
    int first = 0;
    while (graph->value[first].name != graph->value[v].name) first++;
    neap_buffer_add(out, " %d", first);
  }
  neap_buffer_add(out, "\n");
}

/* Banks by number, then the nodes and values that are not simply in main. */
static void print_banks(const neap_graph *graph, neap_buffer *out) {
  for (int b = 0; b < graph->n_bank; b++)
    neap_buffer_add(out, "bank %d %lld %d\n", b, (long long)graph->bank[b].bytes,
                    graph->bank[b].kind);
  if (graph->n_bank > 0)
    for (int n = 0; n < graph->n_node; n++)
      if (graph->node[n].confined) neap_buffer_add(out, "op %d bank %d\n", n, graph->node[n].bank);
  if (graph->n_bank > 0)
    for (int v = 0; v < graph->n_value; v++)
      if (graph->value[v].bank > 0 || graph->value[v].home > 0)
        neap_buffer_add(out, "value %d bank %d home %d\n", v, graph->value[v].bank,
                        graph->value[v].home);
}

/* Fixed lines first, the graph last: two keys that differ in options alone differ near the top,
 * where people look. */
void neap_key_print(const neap_graph *graph, const neap_resolved *resolved, neap_buffer *out) {
  /* What could make another plan of the same graph: planner, libraries, machine, alignment. */
  char kernels[160];
  neap_kernel_set_text(kernels);
  neap_buffer_add(out, "planner %s\nkernels %s\nisa %s\nalign %u\n", NEAP_PLANNER_VERSION, kernels,
                  neap_instruction_set(), NEAP_ALIGN);
  neap_options_print_key(&resolved->options, out);

  /* What limits come to, rather than how they were said. */
  if (resolved->total_left < SIZE_MAX)
    neap_buffer_add(out, "total leaves %zu\n", resolved->total_left);
  if (resolved->least_arena > 0) neap_buffer_add(out, "arena counts %zu\n", resolved->least_arena);
  if (resolved->no_constants) neap_buffer_add(out, "constants off\n");
  if (resolved->plan.policy == NEAP_POLICY_NAME) print_slots(graph, out);
  print_banks(graph, out);
  neap_graph_print_canonical(graph, out);
}

/* The first loss says most; later ones tend to follow from it. `what` is NULL where the message
 * itself says what was lost. */
void neap_warn(char warning[256], const char *what, const neap_error *error) {
  if (warning[0] == '\0')
    snprintf(warning, 256, "%s%s%.200s", what != NULL ? what : "", what != NULL ? ": " : "",
             error->message);
}
