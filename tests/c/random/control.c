/* control.c: If, While and Recurrent around ops of the other families, in one another, with updates
 * of outer blobs inside. */
#include "random/writer.h"

#include <stdio.h>
#include <string.h>

/* ---- the inside of subnets ------------------------------------------------------------------- */

/* More names that an op reads, each behind ", ". */
static void also(char *more, size_t room, const char *name) {
  size_t used = strlen(more);
  snprintf(more + used, room - used, ", %s", name);
}

void add_inner(writer *w, const char *indent, const char *y, const char *x, const neap_type *type,
               char *more, size_t room) {
  static const char *const plain[] = {"Tanh",    "Relu",      "Sigmoid", "Gelu",
                                      "Softmax", "LayerNorm", "Silu"};
  const neap_shape *s = &type->shape;
  const char *op = DRAW_OF(w, plain);
  int kind = draw_below(w, 8);
  int64_t last = s->n_dim > 0 ? s->dim[s->n_dim - 1] : 0;

  /* The rank says what fits: images are convolved and pooled, sequences attended to or run through,
   * rows multiplied; elementwise ops fit all. Sizes are bounded, since a loop repeats them. The
   * type must stay as it is. */
  if (s->n_dim == 4 && kind >= 2) {
    int64_t c = s->dim[1];
    bool fits = neap_shape_elems(s) * c * 9 < 200000;
    if (kind >= 5 && fits) {
      const char *p = add_param(w, TYPE(type->dtype, c, c, 3, 3), UNIFORM);
      also(more, room, p);
      say(w, "%s%s = Conv(%s, %s) { pad = {1} }", indent, y, x, p);
    } else if (kind == 4) {
      say(w, "%s%s = LRN(%s) { size = 3, alpha = 0.1 }", indent, y, x);
    } else {
      say(w, "%s%s = MaxPool(%s) { kernel = {3}, stride = {1}, pad = {1} }", indent, y, x);
    }
  } else if (s->n_dim == 3 && kind >= 5 && neap_shape_elems(s) < 1000) {
    say(w, "%s%s = Attention(%s, %s, %s) { heads = 1%s }", indent, y, x, x, x,
        kind == 5 ? ", causal = true" : "");
  } else if (s->n_dim == 3 && kind >= 3 && last <= 12) {
    char p[24], r[24];
    snprintf(p, sizeof p, "%s", add_param(w, TYPE(type->dtype, 4 * last, last), UNIFORM));
    snprintf(r, sizeof r, "%s", add_param(w, TYPE(type->dtype, 4 * last, last), UNIFORM));
    also(more, room, p), also(more, room, r);
    say(w, "%s%s, %s_h, %s_c = LSTM(%s, %s, %s)", indent, y, y, y, x, p, r);
  } else if (s->n_dim >= 2 && kind >= 5 && last <= 40) {
    const char *p = add_param(w, TYPE(type->dtype, last, last), UNIFORM);
    also(more, room, p);
    say(w, "%s%s = FC(%s, %s)", indent, y, x, p);
  } else {
    say(w, "%s%s = %s(%s)", indent, y, s->n_dim == 0 ? "Tanh" : op, x);
  }
}

/* No later op reads it: no gradient goes through an update. */
static void hide(writer *w, const char *name) {
  for (int b = 0; b < w->n_blob; b++)
    w->blob[b].is_gone = w->blob[b].is_gone || strcmp(w->blob[b].name, name) == 0;
}

/* ---- If -------------------------------------------------------------------------------------- */

/* A new blob from both branches. */
static bool add_if(writer *w) {
  int x = pick(w, (want){.most = 4000});
  if (x < 0) return false;
  int z = pick_like(w, x), s = w->step, y;
  neap_type type = w->blob[x].type;
  char more[256] = "", name[24], other[24];
  snprintf(name, sizeof name, "%s", NAME(w, x)), snprintf(other, sizeof other, "%s", NAME(w, z));
  if (z != x) also(more, sizeof more, other);

  /* Branches of unlike lengths, which read one value more than once. */
  say(w, "subnet s%d_then", s);
  add_inner(w, "  ", "a", name, &type, more, sizeof more);
  say(w, "  b = Mul(a, %s)\n  b = Relu(b)", other);
  add_inner(w, "  ", "d", "b", &type, more, sizeof more);
  say(w, "  r = Add(d, a)\n  takes %s%s\n  gives r\nend", name, more);
  say(w, "subnet s%d_else\n  a = Copy(%s)\n  r = Sigmoid(a)\n  takes %s%s\n  gives r\nend", s, name,
      name, more);
  y = fresh(w, type, w->blob[x].batched);
  say(w, "%s = If(c, %s%s) { then_net = s%d_then, else_net = s%d_else }", NAME(w, y), name, more, s,
      s);
  w->has_control = true;
  return true;
}

/* Without else_net: writes outer blobs by name: an activation, and a state, by an update or by an
 * assignment. */
static bool add_if_by_name(writer *w) {
  int x = pick(w, (want){.unbatched = true, .most = 4000}), s = w->step;
  if (x < 0) return false;
  neap_type type = w->blob[x].type;
  char m[24], more[256] = "", y[24];
  bool assigns = draw_chance(w, 40);
  snprintf(m, sizeof m, "%s", add_state(w, type, "Uniform { low = -1, high = 1 }"));

  /* The blob that is written over must be an activation: others are copied first. */
  int out = w->blob[x].may_rewrite ? x : fresh(w, type, false);
  snprintf(y, sizeof y, "%s", NAME(w, out));
  if (out != x) say(w, "%s = Copy(%s)", y, NAME(w, x));
  say(w, "subnet s%d_then\n  a = StopGradient(%s)", s, y);
  add_inner(w, "  ", "b", "a", &type, more, sizeof more);

  /* A state within the branch: by an op that may be any, or by an update in place. */
  if (assigns)
    say(w, "  %s = Mul(%s, b)", m, m);
  else
    say(w, "  d = Add(a, b)\n  %s = Sgd(%s, d, lr)", m, m);
  say(w, "  %s = Add(%s, b)\n  takes %s, %s, lr%s\n  gives %s, %s\nend", y, y, y, m, more, y, m);
  say(w, "%s, %s = If(c, %s, %s, lr%s) { then_net = s%d_then }", y, m, y, m, more, s);

  /* An update has no gradient: what reads it later would want one. */
  if (!assigns) hide(w, m);
  w->has_control = true;
  return true;
}

/* ---- While ----------------------------------------------------------------------------------- */

/* Three iterations, bounded or not, with a state that counts and one that computes; at times a row
 * to stack, a random op, a branch, an update of an outer state. */
static bool add_while(writer *w) {
  int x = pick(w, (want){.most = 1500}), s = w->step;
  if (x < 0) return false;
  int z = pick_like(w, x);
  neap_type type = w->blob[x].type;
  bool bounded = draw_chance(w, 70), stacks = draw_chance(w, 40) && bounded,
       branches = draw_chance(w, 40), drops = draw_chance(w, 25),
       commits = draw_chance(w, 30) && !w->blob[x].batched;
  char name[24], other[24], m[24] = "", more[256] = "", takes[400], operands[400];
  snprintf(name, sizeof name, "%s", NAME(w, x)), snprintf(other, sizeof other, "%s", NAME(w, z));

  /* An outer state that the body updates is a state of the loop as well. */
  if (commits) snprintf(m, sizeof m, ", %s", add_state(w, type, "Uniform { low = -1, high = 1 }"));
  static const char inputs[] = "  input i\n  input p\n  input q\n";

  neap_buffer outer = w->body; /* the body is written first, to know what it takes */
  w->body = (neap_buffer){0};
  say(w, "subnet s%d_body\n%s  i2 = Add(i, one)", s, inputs);
  if (drops)
    say(w, "  a = Dropout(p) { rate = 0.2 }");
  else
    add_inner(w, "  ", "a", "p", &type, more, sizeof more);

  /* Within the body a branch on the outer condition, whose subnets stand in the body's text. */
  if (branches) {
    say(w, "  subnet t%d_then\n    r = Sigmoid(a)\n    takes a, q\n    gives r\n  end", s);
    say(w, "  subnet t%d_else\n    r = Mul(a, q)\n    takes a, q\n    gives r\n  end", s);
    say(w, "  b = If(c, a, q) { then_net = t%d_then, else_net = t%d_else }", s, s);
  } else {
    say(w, "  b = Mul(a, q)");
  }
  if (commits) say(w, "  u = StopGradient(a)\n  d = Relu(u)\n  %s = Sgd(%s, d, lr)", m + 2, m + 2);

  /* Body and condition take the same names; operands are what they are outside, in that order. */
  snprintf(takes, sizeof takes, "i, p%s, q, three, one, c%s%s", m, commits ? ", lr" : "", more);
  snprintf(operands, sizeof operands, "zero, %s%s, %s, three, one, c%s%s", name, m, other,
           commits ? ", lr" : "", more);
  say(w, "  n = Add(b, p)\n%s  takes %s\n  gives i2, n%s%s\nend", stacks ? "  row = Gelu(b)\n" : "",
      takes, m, stacks ? ", row" : "");
  neap_buffer body = w->body;
  w->body = outer;

  say(w, "subnet s%d_cond\n%s  more = Lt(i, three)\n  takes %s\n  gives more\nend", s, inputs,
      takes);
  neap_buffer_add_n(&w->body, body.text, strlen(body.text));
  neap_buffer_fini(&body);
  char row[32] = "", max[24] = "";
  if (stacks) snprintf(row, sizeof row, ", rows%d", s);
  int most = 3 + draw_below(w, 2);
  if (bounded) snprintf(max, sizeof max, ", max = %d", most);

  /* The loop's results: the count, the computed state, the updated one, and the stacked rows. */
  int y = fresh(w, type, w->blob[x].batched);
  say(w, "i%d, %s%s%s = While(%s) { cond_net = s%d_cond, body_net = s%d_body, n_state = %d%s }", s,
      NAME(w, y), m, row, operands, s, s, commits ? 3 : 2, max);
  if (commits) hide(w, m + 2);
  w->has_control = true;
  w->has_random = w->has_random || drops;
  return true;
}

/* ---- Recurrent ------------------------------------------------------------------------------- */

/* Over the rows of a blob, with a row as state; at times ops that the backward repeats, and a loop
 * inside. */
static bool add_recurrent(writer *w) {
  int x = pick(w, (want){.least_rank = 2, .most = 1500}), s = w->step;
  if (x < 0) return false;
  neap_type type = w->blob[x].type, row = type;
  row.shape.n_dim--;
  memmove(row.shape.dim, row.shape.dim + 1, (size_t)row.shape.n_dim * sizeof *row.shape.dim);
  bool nested = draw_chance(w, 30), bounded = draw_chance(w, 50), repeats = draw_chance(w, 40);
  char init[24], k[24], more[256] = "";
  snprintf(init, sizeof init, "%s", add_param(w, row, UNIFORM));
  snprintf(k, sizeof k, "%s", add_param(w, row, UNIFORM));

  /* The step: h is the state, x a row, k the same in each step. */
  say(w, "subnet s%d_step\n  input h\n  input x\n  input k\n  a = Mul(h, k)\n  b = Add(a, x)", s);
  add_inner(w, "  ", "n", "b", &row, more, sizeof more);

  /* A While of three iterations within each step, so that frames lie in frames. */
  if (nested) {
    say(w,
        "  subnet t%d_cond\n    input j\n    input p\n    more = Lt(j, three)\n    takes j, p, x, "
        "one, three\n    gives more\n  "
        "end",
        s);
    say(w,
        "  subnet t%d_body\n    input j\n    input p\n    j2 = Add(j, one)\n    e = Sigmoid(p)\n   "
        " f = Add(e, x)",
        s);
    say(w, "    takes j, p, x, one, three\n    gives j2, f\n  end");
    say(w,
        "  j3, o = While(zero, n, x, one, three) { cond_net = t%d_cond, body_net = t%d_body, "
        "n_state = 2%s }",
        s, s, bounded ? ", max = 3" : "");
  } else {
    say(w, "  o = Mul(n, x)");
  }
  say(w, "  takes h, x, k%s%s\n  gives n, o\nend", nested ? ", zero, one, three" : "", more);

  /* With `recompute` the backward repeats the first ops of the body rather than keep what they
   * made. */
  int y = fresh(w, type, w->blob[x].batched);
  say(w, "h%d, %s = Recurrent(%s, %s, %s%s%s) { step_net = s%d_step, n_state = 1, n_seq = 1%s }", s,
      NAME(w, y), init, NAME(w, x), k, nested ? ", zero, one, three" : "", more, s,
      repeats ? ", recompute = {0,1}" : "");
  w->has_control = true;
  return true;
}

const family control_families[] = {{"If", 2, add_if},
                                   {"If by name", 2, add_if_by_name},
                                   {"While", 2, add_while},
                                   {"Recurrent", 2, add_recurrent},
                                   {NULL, 0, NULL}};
