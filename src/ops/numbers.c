/* numbers.c: what op records promise of numbers, in words. The enumerations are in
 * neap/record.h; a record says only what is not usual for its class of ops, and here is what is
 * usual.
 */
#include "ops/op.h"

typedef struct promise {
  const char *name, *text;
} promise;

/* ORDER NAN, ORDER INFINITY, ORDER EMPTY, ORDER SUM: as the enumerations in neap/record.h. */
static const promise nans[] = {
  {"spreads", "makes NaN what is computed from it"},
  {"reaches", "makes NaN what is computed from it, and perhaps what lies beside that"},
  {"decides", "is compared like a number"},
  {"stops", "stops the run"}};

static const promise infinities[] = {
  {"usual", ""},
  {"exact", "give what f64 gives, or infinity where that is too large"},
  {"reaches", "give what f64 gives, or infinity where that is too large; times 0 NaN"},
  {"overflows", "give what f64 gives, or infinity or NaN where a step to it is too large"},
  {"vanishes", "give what f64 gives, or 0 where a square that divides is too large"},
  {"blurs", "give another result than f64, since they have too few digits"}};

static const promise empties[] = {{"usual", ""},
                                  {"none", "give nothing"},
                                  {"zero", "give what zeros in their place would"},
                                  {"one", "give what ones in their place would"},
                                  {"mean", "have no mean, which is NaN; their sum is 0"},
                                  {"filled", "give a constant"},
                                  {"identity", "give identity matrices"},
                                  {"refused", "are an error where a result would need elements"}};

static const struct {
  promise is;
  double error;
} sums[] = {{{"none", ""}, 0},
            {{"double", "in double"}, 1e-6},
            {{"runs", "in double, of short runs in the dtype"}, 1e-5},
            {{"library", "as the engine's library makes them"}, 2e-4}};

const char *neap_nan_name(neap_nan nan) { return nans[nan].name; }
const char *neap_infinity_name(neap_infinity infinity) { return infinities[infinity].name; }
const char *neap_empty_name(neap_empty empty) { return empties[empty].name; }
const char *neap_sum_name(neap_sum sum) { return sums[sum].is.name; }
double neap_sum_error(neap_sum sum) { return sums[sum].error; }

neap_infinity neap_op_infinity(const neap_op *op, const neap_kernel *kernel) {
  if (kernel != NULL && kernel->infinity != NEAP_INFINITY_USUAL) return kernel->infinity;
  /* What a record leaves out follows from what it says of NaN. */
  if (op->infinity != NEAP_INFINITY_USUAL) return op->infinity;
  return op->nan == NEAP_NAN_REACHES ? NEAP_INFINITY_REACHES : NEAP_INFINITY_EXACT;
}

neap_empty neap_op_empty(const neap_op *op) {
  if (op->empty != NEAP_EMPTY_USUAL) return op->empty;
  return op->sum != NEAP_SUM_NONE ? NEAP_EMPTY_ZERO : NEAP_EMPTY_NONE;
}

static bool takes_floats(const neap_op *op) {
  for (int i = 0; i < neap_op_n_inputs(op); i++)
    if (op->inputs[i].dtypes == 0 || (op->inputs[i].dtypes & NEAP_FLOATS) != 0) return true;
  return false;
}

static void print(neap_buffer *out, const char *what, const char *text) {
  neap_buffer_add(out, "  %-12s %s\n", what, text);
}

/* The record's own line of infinities, then one for each kernel that says otherwise. */
static void print_infinities(const neap_op *op, neap_buffer *out) {
  neap_infinity usual = neap_op_infinity(op, NULL);
  print(out, "infinities", infinities[usual].text);
  if (op->kernels == NULL) return;
  for (const neap_kernel *k = op->kernels; k->run != NULL; k++) {
    neap_infinity own = neap_op_infinity(op, k);
    if (own != usual)
      neap_buffer_add(out, "  %-12s by %s they %s\n", "", neap_engine_name(k->engine),
                      infinities[own].text);
  }
}

void neap_numbers_print(const neap_op *op, neap_buffer *out) {
  /* An op that only makes numbers has nothing to say of those it is given. */
  if (neap_op_n_inputs(op) == 0) return;
  neap_buffer_add(out, "numbers\n");
  if (takes_floats(op)) {
    print(out, "NaN", nans[op->nan].text);
    print_infinities(op, out);
  }
  print(out, "empties", empties[neap_op_empty(op)].text);
  if (op->sum != NEAP_SUM_NONE)
    neap_buffer_add(out, "  %-12s %s; in f32 right to %.0e of a million terms\n", "sums",
                    sums[op->sum].is.text, sums[op->sum].error);
  if (op->special != NULL) print(out, "special", op->special);
}
