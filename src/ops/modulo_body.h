/* ops/modulo_body.h: rows of FloorDiv and Mod for one integer type (modulo.c). All widths are
 * computed in i64 and cut to T on the way out, where a quotient that T can't hold wraps around. */

/* A zero divisor is a fault, and the element 0. */
static void OF(divide)(const neap_row *row, int64_t (*f)(int64_t x, int64_t y)) {
  const T *in0 = row->in[0], *in1 = row->in[1];
  T *out = row->out[0];
  for (int64_t i = 0; i < row->n; i++) {
    T x = in0[i * row->step[0]], y = in1[i * row->step[1]];
    if (y == 0)
      neap_call_fault(row->call, "%s of integer %lld by zero", row->call->op->name, (long long)x);
    out[i] = y == 0 ? 0 : (T)f(x, y);
  }
}

static void OF(FloorDiv)(const neap_row *row) { OF(divide)(row, floor_div); }
static void OF(Mod)(const neap_row *row) { OF(divide)(row, floor_mod); }
