/* op_help.c: the page of an op, as `neap ops NAME` and neap.help print it: the record, and no more
 * than the record.
 */
#include "ops/op.h"

#include <string.h>

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
