/* registry.c: the ops that there are, found by name and number. build/op_list.h is generated from
 * the symbols `neap_op_*` in src/ops, sorted by name; nothing else lists ops. Those of plugins and
 * scripts are checked and added while the process runs (neap/record.h).
 *
 * INVARIANT: the list is in the order of names, and none stands there twice.
 */
#include "ops/op.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define X(name) extern const neap_op neap_op_##name;
#include "op_list.h"
#undef X

static const neap_op *const own[] = {
#define X(name) &neap_op_##name,
#include "op_list.h"
#undef X
};

/* All ops by name order: Neap's own, and those that were added. A list is never changed: adding
 * publishes another, so that readers take no lock, and the old ones stay, since somebody may read
 * them. */
typedef struct list {
  int n;
  const struct list *before;
  const neap_op *const *op;
  const char *const *origin; /* by place, NULL for Neap's own; NULL: of all */
} list;

static const list at_start = {.n = NEAP_COUNT(own), .op = own};
static const list *_Atomic now = &at_start;
static pthread_mutex_t changing = PTHREAD_MUTEX_INITIALIZER;

int neap_op_count(void) { return atomic_load(&now)->n; }
const neap_op *neap_op_at(int index) {
  const list *l = atomic_load(&now);
  return index >= 0 && index < l->n ? l->op[index] : NULL;
}

/* Where the name stands, or would: binary search, the lists are in name order. */
static int place_of(const list *l, const char *name, bool *found) {
  int low = 0, high = l->n - 1;
  while (low <= high) {
    int mid = (low + high) / 2, order = strcmp(name, l->op[mid]->name);
    *found = order == 0;
    if (*found) return mid;
    if (order < 0)
      high = mid - 1;
    else
      low = mid + 1;
  }
  *found = false;
  return low;
}

const neap_op *neap_op_find(const char *name) {
  const list *l = atomic_load(&now);
  bool found;
  int at = place_of(l, name, &found);
  return found ? l->op[at] : NULL;
}

const char *neap_op_origin(const neap_op *op) {
  const list *l = atomic_load(&now);
  bool found;
  int at = place_of(l, op->name, &found);
  return found && l->op[at] == op && l->origin != NULL ? l->origin[at] : NULL;
}

/* Near is a distance of at most 1 + a third of the length of what was typed. Of equally near names
 * the first in order; internal ops count as far away, since nobody types them. */
const char *neap_op_suggest(const char *name) {
  const char *best = NULL;
  int least = neap_text_reach(name);
  const list *l = atomic_load(&now);
  for (int i = 0; i < l->n; i++) {
    int d = l->op[i]->internal ? 64 : neap_text_distance(name, l->op[i]->name);
    if (d <= least && (best == NULL || d < least)) best = l->op[i]->name, least = d;
  }
  return best;
}

/* ---- ops that are added ---------------------------------------------------------------------- */

/* ARGUMENT: the record of `op` can't be used, because of `why`. */
static neap_status fail_record(const neap_op *op, neap_error *error, const char *why) {
  neap_fail(error, NEAP_ARGUMENT, "op %s: its record %s", op->name, why);
  if (error != NULL) snprintf(error->op, sizeof error->op, "%s", op->name);
  return NEAP_ARGUMENT;
}

static bool is_name(const char *name, bool capital) {
  if (name == NULL || name[0] == '\0' || strlen(name) > 48) return false;
  if (capital ? !(name[0] >= 'A' && name[0] <= 'Z') : !(name[0] >= 'a' && name[0] <= 'z'))
    return false;
  for (; *name != '\0'; name++)
    if (!(*name >= 'a' && *name <= 'z') && !(*name >= 'A' && *name <= 'Z') &&
        !(*name >= '0' && *name <= '9') && (capital || *name != '_'))
      return false;
  return true;
}

/* Names that say something, each once, and which only the last one may be of many. */
static const char *wrong_args(const neap_arg *args, int n) {
  for (int i = 0; i < n; i++) {
    if (!is_name(args[i].name, false))
      return "has an operand without a name such as \"x\" or \"weight_2\"";
    if ((args[i].flags & NEAP_ARG_VARIADIC) != 0 && i + 1 < n)
      return "has an operand of any number that is not its last";
    if ((args[i].flags & NEAP_ARG_SCOPE) != 0) return "has a scope, which only Neap's ops have";
    for (int k = 0; k < i; k++)
      if (strcmp(args[k].name, args[i].name) == 0) return "has one name twice";
  }
  return NULL;
}

static const char *wrong_attrs(const neap_op *op) {
  for (int i = 0; i < neap_op_n_attrs(op); i++) {
    const neap_attr *attr = &op->attrs[i];
    if (!is_name(attr->name, false) || attr->doc == NULL)
      return "has an attribute without name or doc";
    if ((unsigned)attr->type > NEAP_ATTR_AXES)
      return "has an attribute of a type that only Neap's ops have";
    if (attr->type == NEAP_ATTR_ENUM && attr->choices == NULL)
      return "has an attribute without its choices";
    if (neap_op_attr_index(op, attr->name) != i) return "has one name twice";
  }
  return NULL;
}

static bool are_pairs(const neap_op *op, const neap_pair *pair, int n) {
  if (n < 0 || n > NEAP_OP_MAX_PAIR) return false;
  for (int p = 0; p < n; p++)
    if (pair[p].in < 0 || pair[p].in >= neap_op_n_inputs(op) || pair[p].out < 0 ||
        pair[p].out >= neap_op_n_outputs(op))
      return false;
  return true;
}

/* What a record says that nobody here has read. NULL: nothing is wrong with it. */
static const char *wrong_record(const neap_op *op) {
  const unsigned effects = NEAP_EFFECT_RANDOM | NEAP_EFFECT_COMMIT | NEAP_EFFECT_FAULT |
                           NEAP_EFFECT_EXTENT | NEAP_EFFECT_CALLER;
  /* Names first: the lists end at them, and the checks below count by the lists. */
  const char *wrong = wrong_args(op->inputs, neap_op_n_inputs(op));
  if (wrong == NULL) wrong = wrong_args(op->outputs, neap_op_n_outputs(op));
  if (wrong == NULL) wrong = wrong_attrs(op);
  if (wrong != NULL) return wrong;
  if (op->summary == NULL) return "has no summary";
  if (neap_op_n_outputs(op) == 0) return "has no output";
  if (op->infer == NULL) return "has no infer";
  if ((op->effects & ~effects) != 0) return "has an effect that only Neap's ops have";
  if (!are_pairs(op, op->inplace, op->n_inplace) || !are_pairs(op, op->enforced, op->n_enforced) ||
      !are_pairs(op, op->alias, op->n_alias))
    return "has a pair of operands that are not there";
  if ((op->grad != NULL) + (op->grad_formula != NULL) + (op->formula != NULL) + op->no_grad > 1)
    return "says its gradient twice";

  /* Plain C is what all others fall back to. */
  bool has_ref = false;
  int n_kernel = 0;
  const neap_kernel *k = op->kernels;
  for (; k != NULL && k->run != NULL; k++, n_kernel++) {
    if (n_kernel == NEAP_MOST_KERNELS) return "has too many kernels";
    if ((unsigned)k->engine >= NEAP_N_ENGINE || k->dtypes == 0)
      return "has a kernel of no engine or no dtype";
    has_ref = has_ref || k->engine == NEAP_ENGINE_REF;
  }
  return has_ref ? NULL : "has no kernel of engine ref";
}

/* Publishes the list with `op` at `at`, or without what is there. False: no memory. With the
 * mutex held. */
static bool publish(int at, const neap_op *op, const char *origin) {
  const list *before = atomic_load(&now);
  const int shift = op != NULL ? 1 : -1, n = before->n + shift;
  list *l = neap_alloc(sizeof *l);
  const neap_op **ops = neap_alloc((size_t)n * sizeof *ops);
  const char **origins = neap_alloc((size_t)n * sizeof *origins);
  if (l == NULL || ops == NULL || origins == NULL) {
    neap_free(l), neap_free(ops), neap_free(origins);
    return false;
  }
  /* Those before `at` stay at their places, those behind it move up or down by one. */
  for (int i = 0; i < before->n; i++) {
    if (op == NULL && i == at) continue;
    const int to = i < at ? i : i + shift;
    ops[to] = before->op[i];
    origins[to] = before->origin != NULL ? before->origin[i] : NULL;
  }
  if (op != NULL) ops[at] = op, origins[at] = origin;

  /* The old list stays whole, and findable by `before`: who reads it now may go on. */
  *l = (list){.n = n, .before = before, .op = ops, .origin = origins};
  atomic_store(&now, l);
  return true;
}

neap_status neap_op_add(const neap_op *op, const char *origin, neap_error *error) {
  if (!is_name(op->name, true))
    return neap_fail(error, NEAP_NAME,
                     "\"%.60s\" is no name of an op: a capital first, then letters and digits, at "
                     "most 48, such as \"Cube\"",
                     op->name != NULL ? op->name : "");
  const char *wrong = wrong_record(op), *whose = neap_intern(origin);
  if (wrong != NULL) return fail_record(op, error, wrong);
  if (whose == NULL) return neap_fail_memory(error, strlen(origin), "an op");

  /* Looking and adding under one lock: two threads may add the same name. */
  pthread_mutex_lock(&changing);
  bool found, added = false;
  int at = place_of(atomic_load(&now), op->name, &found);
  const char *other = found ? neap_op_origin(atomic_load(&now)->op[at]) : NULL;
  if (!found) added = publish(at, op, whose);
  pthread_mutex_unlock(&changing);
  if (added) return NEAP_OK;
  if (!found) return neap_fail_memory(error, sizeof(list), "an op");
  return neap_fail(error, NEAP_NAME, "op %s: there is one of this name already, %s%s", op->name,
                   other != NULL ? "of " : "Neap's own", other != NULL ? other : "");
}

void neap_op_remove(const neap_op *op) {
  pthread_mutex_lock(&changing);
  bool found;
  int at = place_of(atomic_load(&now), op->name, &found);
  /* Refused memory leaves it in the list, where it does no harm. */
  if (found && atomic_load(&now)->op[at] == op && neap_op_origin(op) != NULL)
    publish(at, NULL, NULL);
  pthread_mutex_unlock(&changing);
}
