/* registry.c: finds op records, and what they say of themselves. build/op_list.h is generated from
 * the symbols `neap_op_*` in src/ops, sorted by name; nothing else lists ops.
 *
 * INVARIANT: records are constant and all their lists end by themselves: inputs and outputs at a
 * NULL name, attributes at type NONE, kernels at one without run. So nobody counts by hand what the
 * compiler could count wrongly.
 */
#include "ops/widen.h"

#include <stdio.h>
#include <string.h>

#define X(name) extern const neap_op neap_op_##name;
#include "op_list.h"
#undef X

static const neap_op *const ops[] = {
#define X(name) &neap_op_##name,
#include "op_list.h"
#undef X
};

int neap_op_count(void) { return NEAP_COUNT(ops); }
const neap_op *neap_op_at(int index) {
  return index >= 0 && index < NEAP_COUNT(ops) ? ops[index] : NULL;
}

/* Binary search: op_list.h is in name order. */
const neap_op *neap_op_find(const char *name) {
  int low = 0, high = NEAP_COUNT(ops) - 1;
  while (low <= high) {
    int mid = (low + high) / 2, order = strcmp(name, ops[mid]->name);
    if (order == 0) return ops[mid];
    if (order < 0)
      high = mid - 1;
    else
      low = mid + 1;
  }
  return NULL;
}

/* Near is a distance of at most 1 + a third of the length of what was typed. Of equally near names
 * the first in order; internal ops count as far away, since nobody types them. */
const char *neap_op_suggest(const char *name) {
  const char *best = NULL;
  int least = neap_text_reach(name);
  for (int i = 0; i < NEAP_COUNT(ops); i++) {
    int d = ops[i]->internal ? 64 : neap_text_distance(name, ops[i]->name);
    if (d <= least && (best == NULL || d < least)) best = ops[i]->name, least = d;
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
  vsnprintf(call->fault->message, sizeof call->fault->message, format, args);
  va_end(args);
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
      for (int i = 0; i < attr->value.n; i++)
        neap_buffer_add(out, "%s%lld", i == 0 ? "{" : ",", (long long)attr->value.ints[i]);
      neap_buffer_add(out, attr->value.n > 0 ? "}" : "{}");
  }
}

unsigned neap_kernel_dtypes(const neap_kernel *kernel) {
  unsigned of_engine = neap_engine_at(kernel->engine)->dtypes | ~NEAP_FLOATS;
  unsigned own = kernel->dtypes & of_engine;
  return kernel->widens && (own & NEAP_BIT(F32)) != 0 ? own | NEAP_HALVES : own;
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

  if (!as_wide && !has_others(kernel, c->n_in, c->in) && !has_others(kernel, c->n_out, c->out) &&
      (kernel->choose == NULL || kernel->choose(c)))
    return true;
  if (!may_widen || (c->like != NULL && !as_wide)) return false;
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
}
