/* registry.c: finds op records, and what they say of themselves. build/op_list.h is generated from
 * the symbols `neap_op_*` in src/ops, sorted by name; nothing else lists ops. Those of plugins and
 * scripts are added while the process runs (neap/record.h).
 *
 * INVARIANT: records are constant and all their lists end by themselves: inputs and outputs at a
 * NULL name, attributes at type NONE, kernels at one without run. So nobody counts by hand what the
 * compiler could count wrongly.
 */
#include "ops/widen.h"

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

bool neap_op_has_gradient(const neap_op *op) {
  return op->grad != NULL || op->grad_formula != NULL || op->formula != NULL || op->no_grad;
}

int neap_op_n_inputs(const neap_op *op) {
  int n = 0;
  while (n < NEAP_OP_MAX_IN && op->inputs[n].name != NULL) n++;
  return n;
}

int neap_op_n_outputs(const neap_op *op) {
  int n = 0;
  while (n < NEAP_OP_MAX_OUT && op->outputs[n].name != NULL) n++;
  return n;
}

int neap_op_n_attrs(const neap_op *op) {
  int n = 0;
  while (n < NEAP_OP_MAX_ATTR && op->attrs[n].type != NEAP_ATTR_NONE) n++;
  return n;
}

/* -1 when the record has no attribute of this name. Records have a handful: a walk beats
 * an index. */
int neap_op_attr_index(const neap_op *op, const char *name) {
  for (int i = 0; i < neap_op_n_attrs(op); i++)
    if (strcmp(op->attrs[i].name, name) == 0) return i;
  return -1;
}

/* Attribute of the op's subnet number `subnet`, in the record's order; -1: it has fewer. */
int neap_op_subnet_attr(const neap_op *op, int subnet) {
  for (int i = 0; i < neap_op_n_attrs(op); i++)
    if (op->attrs[i].type == NEAP_ATTR_NET && subnet-- == 0) return i;
  return -1;
}

/* The argument at a position of the call: past the end it is the last one declared, if that is
 * variadic, else NULL. */
static const neap_arg *arg_at(const neap_arg *args, int n, int position) {
  if (position >= 0 && position < n) return &args[position];
  return position >= n && n > 0 && (args[n - 1].flags & NEAP_ARG_VARIADIC) != 0 ? &args[n - 1]
                                                                                : NULL;
}

const neap_arg *neap_op_input(const neap_op *op, int position) {
  return arg_at(op->inputs, neap_op_n_inputs(op), position);
}
const neap_arg *neap_op_output(const neap_op *op, int position) {
  return arg_at(op->outputs, neap_op_n_outputs(op), position);
}

/* Kernels call it from many threads: whoever sets the flag first writes the message, alone. */
void neap_call_fault(const neap_call *call, const char *format, ...) {
  /* Later ones are lost: one fault stops the run. */
  if (__atomic_test_and_set(&call->fault->set, __ATOMIC_ACQ_REL)) return;
  va_list args;
  va_start(args, format);
  neap_format_list(call->fault->message, sizeof call->fault->message, format, args);
  va_end(args);
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
  const unsigned effects =
    NEAP_EFFECT_RANDOM | NEAP_EFFECT_COMMIT | NEAP_EFFECT_FAULT | NEAP_EFFECT_EXTENT;
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

/* ---- help: one page from the record ---------------------------------------------------------- */

/* As help pages say it. */
static const char *attr_type_name(neap_attr_type type) {
  static const char *const name[] = {
    [NEAP_ATTR_NONE] = "",     [NEAP_ATTR_INT] = "int",       [NEAP_ATTR_FLOAT] = "float",
    [NEAP_ATTR_BOOL] = "bool", [NEAP_ATTR_ENUM] = "one of",   [NEAP_ATTR_DTYPE] = "dtype",
    [NEAP_ATTR_INTS] = "ints", [NEAP_ATTR_FLOATS] = "floats", [NEAP_ATTR_AXIS] = "axis",
    [NEAP_ATTR_AXES] = "axes", [NEAP_ATTR_NAMES] = "names",   [NEAP_ATTR_NET] = "net"};
  return name[type];
}

/* One line an argument; nothing for an op without any. */
static void help_args(const char *title, const neap_arg *args, int n, neap_buffer *out) {
  if (n > 0) neap_buffer_add(out, "%s\n", title);
  for (int i = 0; i < n; i++)
    neap_buffer_add(out, "  %-12s %s%s%s%s\n", args[i].name, args[i].doc != NULL ? args[i].doc : "",
                    (args[i].flags & NEAP_ARG_WIDE) != 0 ? "; f32 where x is bf16 or f16" : "",
                    (args[i].flags & NEAP_ARG_OPTIONAL) != 0 ? " (optional)" : "",
                    (args[i].flags & NEAP_ARG_VARIADIC) != 0 ? " (one or more)" : "");
}

/* Axes are shown as Lua counts them, from 1; negative ones count from the end in both. */
static void help_default(const neap_attr *attr, neap_buffer *out) {
  if (attr->required) {
    neap_buffer_add(out, "required");
    return;
  }
  /* In the words in which the user would give it. */
  switch (attr->type) {
    case NEAP_ATTR_FLOAT: neap_buffer_add(out, "%g", attr->value.f); break;
    case NEAP_ATTR_BOOL: neap_buffer_add(out, "%s", attr->value.i != 0 ? "true" : "false"); break;
    case NEAP_ATTR_DTYPE:
      neap_buffer_add(out, "%s", neap_dtype_name((neap_dtype)attr->value.i));
      break;
    case NEAP_ATTR_AXIS:
      neap_buffer_add(out, "%lld", (long long)neap_axis_said(attr->value.i));
      break;
    case NEAP_ATTR_INT: neap_buffer_add(out, "%lld", (long long)attr->value.i); break;
    case NEAP_ATTR_ENUM: {
      /* The default is an index into the words, "|" between them. */
      const char *text = attr->choices;
      for (int64_t i = 0; i < attr->value.i; i++) text = strchr(text, '|') + 1;
      neap_buffer_add_n(out, text, strcspn(text, "|"));
      break;
    }
    default:
      for (int i = 0; i < attr->value.n; i++) {
        int64_t item = attr->value.ints[i];
        if (attr->type == NEAP_ATTR_AXES) item = neap_axis_said(item);
        neap_buffer_add(out, "%s%lld", i == 0 ? "{" : ",", (long long)item);
      }
      neap_buffer_add(out, attr->value.n > 0 ? "}" : "{}");
  }
}

unsigned neap_kernel_dtypes(const neap_kernel *kernel) {
  unsigned of_engine = neap_engine_at(kernel->engine)->dtypes | ~NEAP_FLOATS;
  unsigned computed = kernel->dtypes & of_engine;
  return kernel->widens && (computed & NEAP_BIT(F32)) != 0 ? computed | NEAP_HALVES : computed;
}

bool neap_kernel_computes(const neap_kernel *kernel, const neap_arg *arg, neap_dtype dtype) {
  if (arg == NULL || dtype == NEAP_DTYPE_NONE) return true;
  if ((arg->flags & (NEAP_ARG_STASH | NEAP_ARG_SCOPE)) != 0) return true;
  /* Kernels name floats; integers and bool an argument takes are the op's affair. */
  bool may_be_float = arg->dtypes == 0 || (arg->dtypes & NEAP_FLOATS) != 0;
  if (!may_be_float) return true;
  return neap_dtype_in(dtype, neap_kernel_dtypes(kernel));
}

bool neap_kernel_computes_all(const neap_kernel *kernel, const neap_op *op, int n_in,
                              const neap_type *in, int n_out, const neap_type *out) {
  for (int i = 0; i < n_in; i++)
    if (!neap_kernel_computes(kernel, neap_op_input(op, i), in[i].dtype)) return false;
  for (int k = 0; k < n_out; k++)
    if (!neap_kernel_computes(kernel, neap_op_output(op, k), out[k].dtype)) return false;
  return true;
}

const neap_kernel *neap_kernel_find(const neap_op *op, neap_engine engine, int n_in,
                                    const neap_type *in, int n_out, const neap_type *out) {
  if (op->kernels == NULL) return NULL;
  for (const neap_kernel *k = op->kernels; k->run != NULL; k++)
    if (k->engine == engine && neap_kernel_computes_all(k, op, n_in, in, n_out, out)) return k;
  return NULL;
}

/* Whether some operand is a half that the kernel does not compute itself: of the floats that it
 * lists. */
static bool has_others(const neap_kernel *kernel, int n, const neap_type *types) {
  const neap_kernel narrow = {.engine = kernel->engine, .dtypes = kernel->dtypes};
  for (int i = 0; i < n; i++)
    if (neap_dtype_in(types[i].dtype, NEAP_HALVES & ~neap_kernel_dtypes(&narrow))) return true;
  return false;
}

/* Whether some operand is a half. */
static bool has_halves(int n, const neap_type *types) {
  for (int i = 0; i < n; i++)
    if (neap_dtype_in(types[i].dtype, NEAP_HALVES)) return true;
  return false;
}

/* A kernel for halves comes first, then that for f32 on widened operands, which finds the choice as
 * it was. */
static bool ask_kernel(const neap_kernel *kernel, neap_choose *c) {
  enum { MOST = NEAP_OP_MAX_IN + NEAP_OP_MAX_OUT };
  bool halves = has_halves(c->n_in, c->in) || has_halves(c->n_out, c->out);
  bool may_widen = kernel->widens && halves && c->n_in + c->n_out <= MOST;
  bool as_wide = c->like != NULL && c->like->is_widened; /* which is followed in this, too */
  neap_choice before = *c->choice;
  neap_layout layout[MOST];
  if (may_widen) {
    neap_copy_bytes(layout, before.in, (size_t)c->n_in * sizeof *layout);
    neap_copy_bytes(layout + c->n_in, before.out, (size_t)c->n_out * sizeof *layout);
  }

  /* The kernel's own halves, where it has them; a choice to follow says which of the two ways it
   * went. */
  if (!as_wide && !has_others(kernel, c->n_in, c->in) && !has_others(kernel, c->n_out, c->out) &&
      (kernel->choose == NULL || kernel->choose(c)))
    return true;
  if (!may_widen || (c->like != NULL && !as_wide)) return false;

  /* A choose that has refused may have written into the choice and its lists of layouts: both are
   * put back. */
  *c->choice = before;
  neap_copy_bytes(before.in, layout, (size_t)c->n_in * sizeof *layout);
  neap_copy_bytes(before.out, layout + c->n_in, (size_t)c->n_out * sizeof *layout);
  return neap_widen_choose(kernel, c);
}

bool neap_kernel_choose(const neap_kernel *kernel, neap_choose *choose) {
  if (neap_engine_at(kernel->engine)->missing() != NULL) return false;
  /* Sizes that no machine has are refused here, so that no choose has to look. */
  return ask_kernel(kernel, choose) && choose->choice->scratch_bytes <= NEAP_MOST_BYTES &&
         choose->choice->stash_bytes <= NEAP_MOST_BYTES;
}

neap_status neap_kernel_bind(const neap_kernel *kernel, const neap_bind *bind, void **object,
                             neap_error *error) {
  if (kernel->bind == NULL) return NEAP_OK;
  return bind->choice->is_widened ? neap_widen_bind(kernel, bind, object, error)
                                  : kernel->bind(bind, object, error);
}

/* With `force` the list is walked twice, for `engine` and then for ref. Which walk `previous`
 * belongs to is told by its engine. */
const neap_kernel *neap_kernel_next(const neap_op *op, const neap_kernel *previous, bool force,
                                    neap_engine engine) {
  const neap_kernel *k = previous == NULL ? op->kernels : previous + 1;
  bool fallen_back = previous != NULL && previous->engine != engine;
  if (k == NULL) return NULL;
  for (; k->run != NULL; k++)
    if (!force || k->engine == (fallen_back ? NEAP_ENGINE_REF : engine)) return k;

  /* Without a kernel of the forced engine the list is walked once more, for ref alone. */
  if (!force || fallen_back || engine == NEAP_ENGINE_REF) return NULL;
  /* The engine has none that took it: plain C may. */
  for (k = op->kernels; k->run != NULL; k++)
    if (k->engine == NEAP_ENGINE_REF) return k;
  return NULL;
}

/* One line a kernel, in the order in which they are tried. */
static void help_kernels(const neap_op *op, neap_buffer *out) {
  char text[NEAP_DTYPES_TEXT];
  if (op->kernels == NULL || op->kernels[0].run == NULL) return;
  neap_buffer_add(out, "kernels\n");
  for (const neap_kernel *k = op->kernels; k->run != NULL; k++)
    neap_buffer_add(out, "  %-12s %s\n", neap_engine_name(k->engine),
                    neap_dtypes_text(neap_kernel_dtypes(k), text));
}

/* What `neap ops NAME` and neap.help print: the record, and no more than the record. */
void neap_op_print(const neap_op *op, neap_buffer *out) {
  neap_buffer_add(out, "%s: %s\n", op->name, op->summary);
  if (op->math != NULL) neap_buffer_add(out, "  %s\n", op->math);
  help_args("inputs", op->inputs, neap_op_n_inputs(op), out);
  help_args("outputs", op->outputs, neap_op_n_outputs(op), out);
  int n = neap_op_n_attrs(op);
  if (n > 0) neap_buffer_add(out, "attributes\n");
  /* Types, choices and defaults as they are checked. */
  for (int i = 0; i < n; i++) {
    const neap_attr *attr = &op->attrs[i];
    neap_buffer_add(out, "  %-12s %s%s%s, ", attr->name, attr_type_name(attr->type),
                    attr->choices != NULL ? " " : "", attr->choices != NULL ? attr->choices : "");
    help_default(attr, out);
    neap_buffer_add(out, ": %s\n", attr->doc);
  }
  if ((op->effects & (NEAP_EFFECT_CONTROL | NEAP_EFFECT_PSEUDO | NEAP_EFFECT_RELEASE)) == 0)
    neap_numbers_print(op, out);
  if ((op->effects & NEAP_EFFECT_RELEASE) == 0) help_kernels(op, out);
  if (op->example != NULL) neap_buffer_add(out, "example\n  %s\n", op->example);
  if (op->source != NULL) neap_buffer_add(out, "source\n  %s\n", op->source);
  const char *origin = neap_op_origin(op);
  if (origin != NULL) neap_buffer_add(out, "defined by\n  %s\n", origin);
}
