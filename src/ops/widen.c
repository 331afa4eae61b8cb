/* widen.c: bf16 and f16 by the kernels that a record has for f32 (`widens`), where their engine has
 * none for halves: for this op, or on this processor. Operands are widened into the scratch, in the
 * layouts that they have, the kernel runs on these twins, and what it wrote is rounded once.
 *
 * Where that takes many bytes, and the kernel says how (`splits`), it runs on a part after another:
 * rows of the batch, say, so that twins of a part are all that there is at once, in the cache.
 *
 * INVARIANT: an operand that is input and output at once has one twin, so that what is not written
 * stays as it was.
 * INVARIANT: parts follow from types and layouts alone: bits depend on no plan.
 */
#include "ops/widen.h"

#include "ops/tile.h"

#include <string.h>

enum { MOST = NEAP_OP_MAX_IN + NEAP_OP_MAX_OUT, N_SPLIT = 2 };
/* Bytes of a part that are worth its calls; twins together that are not worth splitting. */
enum { PART_BYTES = 4 << 20, FEW_BYTES = 1 << 20 };

static neap_type widened(const neap_type *type) {
  neap_type wide = *type;
  wide.dtype = neap_compute_dtype(type->dtype);
  return wide;
}

/* Bytes of the twin of an operand; padding lanes have theirs. */
static size_t twin_bytes(const neap_type *type, const neap_layout *layout) {
  neap_type wide = widened(type);
  return neap_is_half(type->dtype) ? neap_align(neap_layout_bytes(&wide, layout)) : 0;
}

/* ---- parts ----------------------------------------------------------------------------------- */

/* What a split says of operand i of n_in + n_out: ORDER SPLIT, as in neap_kernel. Behind its text
 * operands are whole. */
static char role_of(const char *split, int i, int n_in) {
  if (split == NULL) return 'w';
  const char *gap = strchr(split, '>');
  const bool is_in = i < n_in;
  const char *roles = is_in ? split : gap + 1;
  const size_t n = is_in ? (size_t)(gap - split) : strlen(roles),
               at = (size_t)(is_in ? i : i - n_in);
  return at < n ? roles[at] : 'w';
}

static bool is_part(char role) { return role == 'R' || role == 'r' || role == 'c'; }

static int dim_of(char role, const neap_shape *shape) { return role == 'c' ? shape->n_dim - 1 : 0; }

/* How many rows or columns there are to split; 0 where the operands can't be split so: rows must
 * follow one another in the layout, and columns be plain. */
static int64_t parts_of(const char *split, int n_in, int n, const neap_type *type,
                        const neap_layout *const *layout) {
  int64_t n_part = 0;
  for (int i = 0; i < n; i++) {
    const char role = role_of(split, i, n_in);
    const neap_shape *shape = &type[i].shape;
    if (type[i].dtype == NEAP_DTYPE_NONE || !is_part(role)) continue;
    if (shape->n_dim < (role == 'r' ? 1 : 2)) return 0;
    const neap_layout *l = layout[i];
    if (l->kind != NEAP_LAYOUT_PLAIN && role == 'c') return 0;
    if (l->kind == NEAP_LAYOUT_OPAQUE || (l->kind == NEAP_LAYOUT_BLOCKED && l->order[0] != 0))
      return 0;
    for (int b = 0; b < l->n_inner; b++)
      if (l->kind == NEAP_LAYOUT_BLOCKED && l->inner_dim[b] == 0) return 0;
    const int64_t own = shape->dim[dim_of(role, shape)];
    if (n_part != 0 && n_part != own) return 0; /* not what the split is for */
    n_part = own;
  }
  return n_part;
}

/* The type of a part of n rows or columns; of a whole operand its own. */
static neap_type part_type(const neap_type *type, char role, int64_t n) {
  neap_type part = *type;
  if (type->dtype != NEAP_DTYPE_NONE && is_part(role))
    part.shape.dim[dim_of(role, &part.shape)] = n;
  return part;
}

/* Twins of all operands for parts of n; sums have two while there is more than one part. */
static size_t bytes_of(const char *split, int n_in, int n_operand, const neap_type *type,
                       const neap_layout *const *layout, int64_t n, bool is_all) {
  size_t bytes = 0;
  for (int i = 0; i < n_operand; i++) {
    const char role = role_of(split, i, n_in);
    const neap_type part = part_type(&type[i], role, n);
    const size_t own = twin_bytes(&part, layout[i]);
    bytes = neap_size_add(bytes, own);
    if (role == 's' && !is_all) bytes = neap_size_add(bytes, own);
  }
  return bytes;
}

/* The largest divisor of n that is at most `most`: parts are of one size, for one kernel. */
static int64_t divisor(int64_t n, int64_t most) {
  for (int64_t p = NEAP_MIN(most, n); p > 1; p--)
    if (n % p == 0) return p;
  return 1;
}

typedef struct division {
  int split;    /* 1 + its index in the kernel's; 0: none */
  int64_t n;    /* rows or columns of a part */
  size_t bytes; /* of twins */
} division;

/* The split of the fewest bytes, no parts larger than `like` has. */
static division choose_split(const neap_kernel *kernel, int n_in, int n, const neap_type *type,
                             const neap_layout *const *layout, const neap_choice *like) {
  /* Not at all is a division as well, and the one to beat; a followed choice keeps its split. */
  division best = {.bytes = bytes_of(NULL, n_in, n, type, layout, 0, true)};
  if (best.bytes <= FEW_BYTES && like == NULL) return best;
  for (int k = 0; k < N_SPLIT; k++) {
    const char *split = kernel->splits[k];
    if (split == NULL || (like != NULL && like->split != k + 1)) continue;
    const int64_t n_all = parts_of(split, n_in, n, type, layout);
    if (n_all < 2) continue;
    /* One more row costs what two rows take more than one; sums are added up for every part. */
    const size_t one = bytes_of(split, n_in, n, type, layout, 1, true),
                 row = bytes_of(split, n_in, n, type, layout, 2, true) - one,
                 sums = bytes_of(split, n_in, n, type, layout, 1, false) - one;
    const size_t least = NEAP_MAX((size_t)PART_BYTES, 2 * sums);
    /* Parts of PART_BYTES, or of twice the bytes of the sums, which every part adds up once. */
    int64_t most = (int64_t)(least / NEAP_MAX(row, 1));
    if (like != NULL) most = NEAP_MIN(most, like->part);
    const int64_t part = divisor(n_all, NEAP_MAX(most, 1));
    const size_t bytes = bytes_of(split, n_in, n, type, layout, part, part == n_all);
    if (part < n_all && bytes < best.bytes) best = (division){k + 1, part, bytes};
  }
  return best;
}

static const char *split_of(const neap_kernel *kernel, const neap_choice *choice) {
  return choice->split > 0 ? kernel->splits[choice->split - 1] : NULL;
}

/* ---- choosing and binding -------------------------------------------------------------------- */

/* Asks the kernel about f32 operands, of parts of n where there is a split. */
static bool ask(const neap_kernel *kernel, neap_choose *c, const char *split, int64_t n,
                size_t twins) {
  neap_type type[MOST];
  neap_choice like;
  neap_choose inner = *c;
  for (int i = 0; i < c->n_in + c->n_out; i++) {
    const neap_type wide = widened(i < c->n_in ? &c->in[i] : &c->out[i - c->n_in]);
    type[i] = part_type(&wide, role_of(split, i, c->n_in), n);
  }
  inner.in = type, inner.out = type + c->n_in;
  /* A limit and a choice to follow are for all scratch: the twins' part is not the kernel's. */
  if (c->scratch_limit != SIZE_MAX) inner.scratch_limit -= NEAP_MIN(twins, c->scratch_limit);
  if (c->like != NULL) {
    like = *c->like;
    like.scratch_bytes -= like.twin_bytes;
    inner.like = &like;
  }
  return kernel->choose == NULL || kernel->choose(&inner);
}

/* Twins behind scratch that ends where it likes. */
static void take_twins(neap_choice *choice, const division *p) {
  const size_t own = choice->scratch_bytes;
  choice->is_widened = true;
  choice->split = p->split;
  choice->part = p->n;
  choice->twin_bytes = neap_size_add(neap_align(own) - own, p->bytes);
  choice->scratch_bytes = neap_size_add(own, choice->twin_bytes);
}

static const neap_layout *layout_of(const neap_choice *choice, int i, int n_in) {
  return i < n_in ? &choice->in[i] : &choice->out[i - n_in];
}

/* Whole first: the layouts of that say how it can be split. The parts may be another kernel's
 * affair, whose layouts are theirs; what can't be split in those is whole. */
bool neap_widen_choose(const neap_kernel *kernel, neap_choose *c) {
  const int n = c->n_in + c->n_out;
  neap_type type[MOST];
  const neap_layout *layout[MOST];
  if (n > MOST) return false;
  for (int i = 0; i < n; i++) {
    type[i] = i < c->n_in ? c->in[i] : c->out[i - c->n_in];
    layout[i] = layout_of(c->choice, i, c->n_in);
  }

  const neap_choice before = *c->choice;
  const size_t plain = bytes_of(NULL, c->n_in, n, type, layout, 0, true);
  if (!ask(kernel, c, NULL, 0, plain)) return false;

  division p = choose_split(kernel, c->n_in, n, type, layout, c->like);
  /* The choice for the whole is kept aside: asking about parts writes over it and its layouts. */
  if (p.split > 0) {
    const char *split = kernel->splits[p.split - 1];
    const neap_choice whole = *c->choice;
    neap_layout had[MOST];
    for (int i = 0; i < n; i++) had[i] = *layout[i];
    /* The choice's lists are in and out of the same room. */
    c->choice->scratch_bytes = before.scratch_bytes;
    bool good = ask(kernel, c, split, p.n, p.bytes) && c->choice->stash_bytes == 0 &&
                parts_of(split, c->n_in, n, type, layout) > 0;
    if (good) {
      /* The kernel for parts may have taken other layouts, with other padding. */
      p.bytes = bytes_of(split, c->n_in, n, type, layout, p.n, false);
    } else {
      *c->choice = whole;
      for (int i = 0; i < n; i++) *(i < c->n_in ? &whole.in[i] : &whole.out[i - c->n_in]) = had[i];
      p = (division){0};
    }
  }

  if (p.split == 0) p.bytes = bytes_of(NULL, c->n_in, n, type, layout, 0, true);
  take_twins(c->choice, &p);
  return true;
}

/* What the kernel is told of its choice: its own scratch ends where the twins begin. */
static neap_choice choice_of(const neap_choice *choice) {
  neap_choice own = *choice;
  own.scratch_bytes -= own.twin_bytes;
  own.twin_bytes = 0;
  own.is_widened = false;
  return own;
}

neap_status neap_widen_bind(const neap_kernel *kernel, const neap_bind *bind, void **object,
                            neap_error *error) {
  const char *split = split_of(kernel, bind->choice);
  const neap_choice choice = choice_of(bind->choice);
  neap_type type[MOST];
  neap_bind inner = *bind;
  for (int i = 0; i < bind->n_in + bind->n_out; i++) {
    const neap_type wide = widened(i < bind->n_in ? &bind->in[i] : &bind->out[i - bind->n_in]);
    type[i] = part_type(&wide, role_of(split, i, bind->n_in), bind->choice->part);
  }
  inner.in = type, inner.out = type + bind->n_in, inner.choice = &choice;
  return kernel->bind(&inner, object, error);
}

/* ---- running --------------------------------------------------------------------------------- */

/* `to` = `from` in another dtype, line by line: n_line lines of `lanes` elements, steps apart. */
typedef struct cast_job {
  neap_dtype from_dtype, to_dtype;
  const char *from;
  char *to;
  int64_t lanes, from_step, to_step;
} cast_job;

static void cast_lanes(void *context, int64_t begin, int64_t end) {
  const cast_job *j = context;
  neap_cast(j->to_dtype, j->to + begin * (int64_t)neap_dtype_bytes(j->to_dtype), j->from_dtype,
            j->from + begin * (int64_t)neap_dtype_bytes(j->from_dtype), end - begin);
}

static void cast_lines(void *context, int64_t begin, int64_t end) {
  const cast_job *j = context;
  for (int64_t l = begin; l < end; l++)
    neap_cast(j->to_dtype, j->to + l * j->to_step * (int64_t)neap_dtype_bytes(j->to_dtype),
              j->from_dtype, j->from + l * j->from_step * (int64_t)neap_dtype_bytes(j->from_dtype),
              j->lanes);
}

/* Lanes of a row or column of an operand. */
static int64_t step_of(const neap_operand *x, char role) {
  const neap_shape *shape = &x->type.shape;
  int64_t n = shape->dim[dim_of(role, shape)];
  return role == 'c' ? 1 : neap_operand_lanes(x) / NEAP_MAX(n, 1);
}

/* Between the part [at, at + n) of an operand and its dense twin. All lanes, so that padding stays
 * zero. */
static void cast(const neap_call *call, const neap_operand *own, const neap_operand *twin,
                 char role, int64_t at, bool back) {
  const int64_t lanes = neap_operand_lanes(twin),
                columns = own->type.shape.dim[NEAP_MAX(own->type.shape.n_dim - 1, 0)];
  const bool by_column = role == 'c';
  /* The twin holds the part alone and is dense; in the operand the part begins at row or column
   * `at`. */
  char *begin = own->data;
  if (is_part(role)) begin += at * step_of(own, role) * (int64_t)neap_dtype_bytes(own->type.dtype);
  const int64_t width = by_column ? twin->type.shape.dim[twin->type.shape.n_dim - 1] : lanes;
  cast_job j = {.from_dtype = back ? twin->type.dtype : own->type.dtype,
                .to_dtype = back ? own->type.dtype : twin->type.dtype,
                .from = back ? twin->data : begin,
                .to = back ? begin : twin->data,
                .lanes = width,
                .from_step = back ? width : columns,
                .to_step = back ? columns : width};

  /* Columns are pieces of lines, so there is a line for each row; rows are one run of lanes. */
  if (by_column)
    neap_parallel_for(width == 0 ? 0 : lanes / width, NEAP_GRAIN / NEAP_MAX(width, 1) + 1,
                      call->n_thread, cast_lines, &j);
  else
    neap_parallel_for(lanes, NEAP_GRAIN, call->n_thread, cast_lanes, &j);
}

typedef struct sum_job {
  float *to;
  const float *from;
} sum_job;

static void add_range(void *context, int64_t begin, int64_t end) {
  const sum_job *j = context;
  for (int64_t i = begin; i < end; i++) j->to[i] += j->from[i];
}

/* What one operand is during the run. */
typedef struct side {
  const neap_operand *own;
  char role;
  bool is_half;
  neap_operand wide;  /* what the kernel sees */
  neap_operand total; /* of sums in parts */
} side;

/* An operand that is no half, and of which the kernel sees a part: where that begins. */
static void point(side *s, int64_t at) {
  if (s->is_half || s->own->data == NULL || !is_part(s->role)) return;
  s->wide.data = (char *)s->own->data +
                 at * step_of(s->own, s->role) * (int64_t)neap_dtype_bytes(s->own->type.dtype);
}

/* The twins lie behind the kernel's own scratch, in the order of the operands. */
static void place_twins(const neap_call *call, const char *split, char *twin, side *s) {
  const bool in_parts = split != NULL;
  for (int i = 0; i < call->n_in + call->n_out; i++) {
    /* As if it were whole and no half: the kernel sees the operand itself. */
    s[i].own = i < call->n_in ? &call->in[i] : &call->out[i - call->n_in];
    s[i].role = role_of(split, i, call->n_in);
    s[i].is_half = neap_is_half(s[i].own->type.dtype);
    s[i].wide = *s[i].own;
    const neap_type part = part_type(&s[i].own->type, s[i].role, call->choice->part);
    s[i].wide.type = widened(&part);
    if (!s[i].is_half) continue;

    /* A half: its twin holds a part. Of sums there is a second, which adds up what the parts have
     * made. */
    const size_t bytes = twin_bytes(&part, &s[i].own->layout);
    if (s[i].own->data != NULL) s[i].wide.data = twin;
    if (twin != NULL) twin += bytes; /* NULL: all are empty */
    s[i].total = s[i].wide;
    if (s[i].role == 's' && in_parts) {
      if (s[i].own->data != NULL) s[i].total.data = twin;
      if (twin != NULL) twin += bytes;
    }
    /* An output in an input's bytes is made in that input's twin: the kernel works in place. */
    if (i >= call->n_in)
      for (int k = 0; k < call->n_in; k++)
        if (call->in[k].data != NULL && call->in[k].data == s[i].own->data)
          s[i].wide.data = s[k].wide.data;
  }
}

/* Rows or columns that are split: as many of every operand that is. */
static int64_t rows_of(const side *s, int n) {
  for (int i = 0; i < n; i++)
    if (is_part(s[i].role) && s[i].own->type.dtype != NEAP_DTYPE_NONE)
      return s[i].own->type.shape.dim[dim_of(s[i].role, &s[i].own->type.shape)];
  return 1;
}

/* What the part has made goes where it belongs. */
static void take_part(const neap_call *call, side *s, int64_t at, bool is_first, bool is_last) {
  if (!s->is_half || s->own->data == NULL) return;
  const bool adds = s->role == 's' && s->total.data != s->wide.data;
  const int64_t lanes = neap_operand_lanes(&s->wide);
  if (adds && is_first) {
    neap_copy_bytes(s->total.data, s->wide.data, (size_t)lanes * sizeof(float));
  } else if (adds) {
    sum_job j = {s->total.data, s->wide.data};
    neap_parallel_for(lanes, NEAP_GRAIN, call->n_thread, add_range, &j);
  }
  /* Rounded once, from what the kernel made in f32. */
  if (is_part(s->role))
    cast(call, s->own, &s->wide, s->role, at, true);
  else if (is_last)
    cast(call, s->own, adds ? &s->total : &s->wide, s->role, 0, true);
}

void neap_widen_run(const neap_kernel *kernel, const neap_call *call) {
  side s[MOST];
  neap_operand wide[MOST];
  const int n = call->n_in + call->n_out;
  const neap_choice choice = choice_of(call->choice);
  const char *split = split_of(kernel, call->choice);
  neap_call inner = *call;
  place_twins(call, split, neap_call_scratch(call, neap_align(choice.scratch_bytes)), s);

  /* Whole operands are one part of one row. */
  const int64_t part = split != NULL ? call->choice->part : 1;
  const int64_t n_all = split != NULL ? rows_of(s, n) : 1;

  inner.in = wide, inner.out = wide + call->n_in, inner.choice = &choice;
  /* Part after part: in by the casts, through the kernel, out by take_part. */
  for (int64_t at = 0; at < n_all; at += part) {
    for (int i = 0; i < n; i++) {
      point(&s[i], at);
      wide[i] = s[i].wide;
      /* What is whole is widened once. */
      if (i < call->n_in && s[i].is_half && s[i].own->data != NULL &&
          (at == 0 || is_part(s[i].role)))
        cast(call, s[i].own, &s[i].wide, s[i].role, at, false);
    }
    kernel->run(&inner);
    for (int i = call->n_in; i < n; i++) take_part(call, &s[i], at, at == 0, at + part >= n_all);
  }
}
