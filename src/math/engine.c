/* engine.c: the list of engines, and the record of the one that needs no library. */
#include "math/engine.h"

#include <string.h>

static const char *never_missing(void) { return NULL; }

const neap_engine_record neap_engine_ref = {
  .name = "ref",
  .doc = "plain C and vector loops of Neap's own, for every op and dtype",
  .dtypes = NEAP_ANY,
  .missing = never_missing,
};

#define X(VALUE, name) extern const neap_engine_record neap_engine_##name;
NEAP_ENGINES(X)
#undef X

static const neap_engine_record *const engines[] = {
#define X(VALUE, name) &neap_engine_##name,
  NEAP_ENGINES(X)
#undef X
};

const neap_engine_record *neap_engine_at(neap_engine engine) {
  return (unsigned)engine < NEAP_N_ENGINE ? engines[engine] : NULL;
}

const char *neap_engine_name(neap_engine engine) {
  return (unsigned)engine < NEAP_N_ENGINE ? engines[engine]->name : "?";
}

bool neap_engine_from_name(const char *name, neap_engine *engine) {
  for (int e = 0; e < NEAP_N_ENGINE; e++)
    if (strcmp(name, engines[e]->name) == 0) {
      *engine = (neap_engine)e;
      return true;
    }
  return false;
}

/* NULL when none is near: a distance of at most 1 + a third of the length. */
static const char *nearest(const char *name) {
  const char *best = NULL;
  int least = neap_text_reach(name);
  for (int e = 0; e < NEAP_N_ENGINE; e++) {
    int d = neap_text_distance(name, engines[e]->name);
    if (d > least) continue;
    best = engines[e]->name;
    least = d - 1; /* of equally near names the first */
  }
  return best;
}

neap_status neap_engine_take(const char *name, neap_engine *engine, neap_error *error) {
  if (!neap_engine_from_name(name, engine)) {
    neap_buffer expected = {0};
    for (int e = 0; e < NEAP_N_ENGINE; e++)
      neap_buffer_add(&expected, "%s%s", e == 0 ? "" : ", ", engines[e]->name);
    neap_fail(error, NEAP_ARGUMENT, "unknown engine \"%s\", expected %s or free", name,
              expected.failed ? "one" : expected.text);
    neap_buffer_fini(&expected);
    if (nearest(name) != NULL) neap_hint(error, "did you mean \"%s\"?", nearest(name));
    return NEAP_ARGUMENT;
  }
  const char *why = engines[*engine]->missing();
  if (why == NULL) return NEAP_OK;
  return neap_fail(error, NEAP_ARGUMENT, "engine %s can't be had: %s", name, why);
}
