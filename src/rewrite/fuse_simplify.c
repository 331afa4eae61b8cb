/* fuse_simplify.c: ops that give what is there already: what changes nothing, and what has been
 * computed before. */
#include "rewrite/fuse_int.h"

#include <string.h>

/* Output 0 of node n can be input v: nobody asks for it by name, and no reader reads v too late.
 * The other outputs are unread. */
static bool can_forward(const fuser *f, int n, neap_value_id v) {
  const neap_node *node = &f->graph->node[n];
  if (v == NEAP_NO_VALUE || node->n_enforced > 0) return false;
  neap_value_id out = node->out[0];
  if (!fuse_is_stable(f, v) || !fuse_is_stable(f, out)) return false;
  if (!neap_type_equal(&f->graph->value[v].type, &f->graph->value[out].type)) return false;

  /* However many read it, they will read v. */
  if (!fuse_may_go(f, out, f->value[out].n_read)) return false;
  for (int k = 1; k < node->n_out; k++)
    if (!fuse_may_go(f, node->out[k], 0)) return false;
  return true;
}

/* Whether v is this number. */
static bool is_constant(const fuser *f, neap_value_id v, double wanted) {
  double number;
  return fuse_is_number(f, v, &number) && number == wanted;
}

/* The operand that node n passes on unchanged; NEAP_NO_VALUE when it does something. */
static neap_value_id passed_on(const fuser *f, int n) {
  neap_value_id a = fuse_in(f, n, 0), b = fuse_in(f, n, 1);

  /* Whether the shape is the same is asked by can_forward. */
  if (fuse_is_op(f, n, "Reshape") || fuse_is_op(f, n, "Flatten")) return a;
  if (fuse_is_op(f, n, "Dropout") && fuse_attr(f, n, "training")->i == 0) return a;

  /* x * 1, 1 * x and x / 1. */
  bool multiplies = fuse_is_op(f, n, "Mul");
  if ((multiplies || fuse_is_op(f, n, "Div")) && is_constant(f, b, 1)) return a;
  if (multiplies && is_constant(f, a, 1)) return b;

  /* x + 0, 0 + x and x - 0. x + -0 is x for every x; x + 0 makes 0 of -0, which nothing but a
   * division by it can tell. */
  bool adds = fuse_is_op(f, n, "Add");
  if ((adds || fuse_is_op(f, n, "Sub")) && is_constant(f, b, 0)) return a;
  if (adds && is_constant(f, a, 0)) return b;
  return NEAP_NO_VALUE;
}

neap_status fuse_identity(fuser *f, int n, bool *did, neap_error *error) {
  neap_value_id v = passed_on(f, n);
  if (!can_forward(f, n, v)) return NEAP_OK;
  *did = true;
  return fuse_forward(f, f->graph->node[n].out[0], v, error);
}

/* ---- duplicates ------------------------------------------------------------------------------ */

/* Floats by bits, so that 0 and -0 differ and a NaN equals itself. Nets never count as the same. */
static bool same_attr(neap_attr_type type, const neap_attr_value *a, const neap_attr_value *b) {
  switch (type) {
    case NEAP_ATTR_FLOAT: return memcmp(&a->f, &b->f, sizeof a->f) == 0 && a->given == b->given;
    case NEAP_ATTR_INTS:
    case NEAP_ATTR_AXES:
    case NEAP_ATTR_FLOATS: /* doubles are as wide as integers */
      return a->n == b->n && a->given == b->given &&
             (a->n == 0 || memcmp(a->ints, b->ints, (size_t)a->n * sizeof *a->ints) == 0);
    case NEAP_ATTR_NET: return false;
    default: return a->i == b->i && a->given == b->given;
  }
}

/* The same op on the same values with the same attributes; inputs in the same order, so Add(a,b) is
 * not Add(b,a). */
static bool is_same(const neap_node *a, const neap_node *b) {
  if (a->op != b->op || a->n_in != b->n_in || a->n_in == 0) return false;
  for (int i = 0; i < a->n_in; i++)
    if (a->in[i] != b->in[i]) return false;
  for (int k = 0; k < neap_op_n_attrs(a->op); k++)
    if (!same_attr(a->op->attrs[k].type, &a->attrs[k], &b->attrs[k])) return false;
  return true;
}

static void mix(uint64_t *hash, uint64_t word) {
  *hash = (*hash ^ word) * 0x9E3779B97F4A7C15u;
  *hash ^= *hash >> 32;
}

/* Equal where is_same: of the op, its operands and its attributes. */
static uint64_t hash_node(const neap_node *node) {
  uint64_t hash = (uint64_t)(uintptr_t)node->op;
  for (int i = 0; i < node->n_in; i++) mix(&hash, (uint64_t)node->in[i]);
  for (int k = 0; k < neap_op_n_attrs(node->op); k++) {
    const neap_attr_value *value = &node->attrs[k];
    switch (node->op->attrs[k].type) {
      case NEAP_ATTR_NET: break;
      case NEAP_ATTR_INTS:
      case NEAP_ATTR_AXES:
      case NEAP_ATTR_FLOATS:
        mix(&hash, (uint64_t)value->n);
        for (int i = 0; i < value->n; i++) mix(&hash, (uint64_t)value->ints[i]);
        break;
      default: mix(&hash, (uint64_t)value->i);
    }
  }
  return hash;
}

/* Whether another node's output can be the node's. */
static bool may_be_twice(const fuser *f, const neap_node *node) {
  if (node->effects != NEAP_EFFECT_NONE || node->n_sub > 0 || node->n_enforced > 0) return false;
  return node->n_in > 0 && node->n_out == 1 && fuse_is_stable(f, node->out[0]);
}

/* The table `seen` gets the nodes before n: what they read does not change any more, as only what
 * is defined behind n can yet go. At most half of its slots are taken. */
static neap_status see_nodes(fuser *f, int n, neap_error *error) {
  if (f->seen == NULL) {
    for (f->n_slot = 16; f->n_slot < 2 * (unsigned)f->graph->n_node;) f->n_slot *= 2;
    f->seen = neap_alloc(f->n_slot * sizeof *f->seen);
    if (f->seen == NULL) return graph_no_memory(error);
    for (unsigned s = 0; s < f->n_slot; s++) f->seen[s] = -1;
  }
  for (; f->n_seen < n; f->n_seen++) {
    const neap_node *node = &f->graph->node[f->n_seen];
    if (!may_be_twice(f, node)) continue;
    unsigned slot = (unsigned)hash_node(node) & (f->n_slot - 1);
    while (f->seen[slot] >= 0) slot = (slot + 1) & (f->n_slot - 1);
    f->seen[slot] = f->n_seen;
  }
  return NEAP_OK;
}

/* An earlier node that does the same; all outputs of this one are replaced by its. Ops without
 * inputs are left alone: a constant made twice costs less than one held longer. */
neap_status fuse_duplicate(fuser *f, int n, bool *did, neap_error *error) {
  const neap_node *node = &f->graph->node[n];
  if (!may_be_twice(f, node)) return NEAP_OK;
  NEAP_TRY(see_nodes(f, n, error));

  /* The earlier one keeps its place, so what reads the later one's value finds it made before. */
  unsigned slot = (unsigned)hash_node(node) & (f->n_slot - 1);
  for (; f->seen[slot] >= 0; slot = (slot + 1) & (f->n_slot - 1)) {
    const neap_node *earlier = &f->graph->node[f->seen[slot]];
    if (!is_same(earlier, node) || !can_forward(f, n, earlier->out[0])) continue;
    *did = true;
    return fuse_forward(f, node->out[0], earlier->out[0], error);
  }
  return NEAP_OK;
}
