/* hold.c: gradient accumulation over several batches: two nets that stand between micro-batches and
 * their update (split.c).
 *
 * What was accumulated before lies in state of its own, "@held/" and the gradient's name, so that
 * checkpoints have it, and a batch that fails half way has not touched it. `hold` ends a batch
 * without an update; `join` comes before one. Both are sums with two weights:
 *
 *   hold:  held     = kept * held + added * gradient
 *   join:  gradient = kept * held + added * gradient
 *
 * INVARIANT: what has weight 0 and is the total of the sum is not read: kept = 0 begins a new
 * accumulation, whatever lies there.
 */
#include "net/net_int.h"

static const neap_set zero[] = {NEAP_SET_FLOAT("value", 0), {0}};

/* The state that holds gradient `name`; NULL when memory is refused. */
static const char *held_name(const char *name) {
  return neap_intern_format("%s%s", NEAP_HELD_PREFIX, name);
}

static neap_status add_gradient(neap_net *to, const neap_net_blob *gradient, bool hold,
                                neap_error *error) {
  const char *g = gradient->name, *held = held_name(g);
  if (held == NULL) return neap_fail_memory(error, 64, "a name");

  /* Both are declared, since they lie in the workspace when this net runs. */
  NEAP_TRY(neap_net_declare(to, g, NEAP_ROLE_GRADIENT, &gradient->type, false, "Constant", zero,
                            NULL, error));
  NEAP_TRY(neap_net_declare(to, held, NEAP_ROLE_STATE, &gradient->type, false, "Constant", zero,
                            NULL, error));

  /* The first input is the total, which is written in place; then what is added, its
   * weight, and the total's. */
  const neap_net_call call = {
    .type = "WeightedAccumulate",
    .n_in = 4,
    .in = hold ? (const char *[]){held, g, NEAP_MICRO_ADDED, NEAP_MICRO_KEPT}
               : (const char *[]){g, held, NEAP_MICRO_KEPT, NEAP_MICRO_ADDED},
    .n_out = 1,
    .out = hold ? &held : &g};
  return neap_net_add(to, &call, NULL, error);
}

static neap_status build(const neap_net *update, bool hold, neap_net **out, neap_error *error) {
  const neap_type scalar = {NEAP_DTYPE_F32, {0}};
  neap_buffer name = {0};
  neap_buffer_add(&name, "%s_%s", update->name, hold ? "hold" : "join");
  neap_status status =
    name.failed ? neap_fail_memory(error, 64, "a name") : neap_net_new(name.text, out, error);
  neap_buffer_fini(&name);
  NEAP_TRY(status);

  /* The weights are inputs, so that one plan serves every batch. */
  NEAP_TRY(neap_net_declare(*out, NEAP_MICRO_KEPT, NEAP_ROLE_INPUT, &scalar, false, NULL, NULL,
                            NULL, error));
  NEAP_TRY(neap_net_declare(*out, NEAP_MICRO_ADDED, NEAP_ROLE_INPUT, &scalar, false, NULL, NULL,
                            NULL, error));

  /* One sum for each gradient that the update reads. */
  for (int i = 0; i < update->n_cell; i++)
    if (update->cell[i].blob.role == NEAP_ROLE_GRADIENT)
      NEAP_TRY(add_gradient(*out, &update->cell[i].blob, hold, error));
  return NEAP_OK;
}

neap_status neap_net_split_hold(const neap_net *update, neap_net **hold, neap_net **join,
                                neap_error *error) {
  neap_net *first = NULL, *second = NULL;
  neap_status status = build(update, true, &first, error);
  if (status == NEAP_OK) status = build(update, false, &second, error);
  /* Both nets or none. */
  if (status != NEAP_OK) {
    neap_net_free(first);
    neap_net_free(second);
    return status;
  }
  *hold = first;
  *join = second;
  return NEAP_OK;
}
