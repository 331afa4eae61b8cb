/* fit_batch.c: the largest batch whose plan fits: planned, never allocated.
 *
 * Bytes grow with the batch nearly in a straight line, so two plans say where the limit lies; the
 * plans there say exactly.
 *
 * INVARIANT: what is given fits, and one more does not (or is more than `max`): both have been
 * planned.
 */
#include "driver/driver_int.h"

/* Guesses by the line before the search halves: bytes that grow in steps can mislead it for
 * ever. */
enum { MOST_GUESSES = 12, MOST_GROWTH = 16 };

/* A plan that fits: its batch, and the share of the limit that it uses, 1 at the limit; 0: none. */
typedef struct point {
  int64_t n;
  double used;
} point;

typedef struct search {
  int64_t low, high; /* `low` fits, `high` does not; high 0: none known */
  int64_t max;
  int n_plan;
  point before, last; /* the last two that fit */
  bool has_store;     /* the one that is found is to be stored */
  neap_beside beside; /* what lies beside a micro-batch, once it is known */
  char warning[256];  /* the first one of all tries */
} search;

/* Where the line through two points meets the limit; 0 when it does not rise. */
static double cross(point a, point b) {
  if (a.n == 0 || b.n == 0 || a.n == b.n) return 0;
  double slope = (b.used - a.used) / (double)(b.n - a.n);
  return slope > 0 ? (double)a.n + (1 - a.used) / slope : 0;
}

/* The next batch to plan, above `low` and below `high`: where the line crosses, or, when guesses
 * have been many, halfway. */
static int64_t next_guess(const search *s) {
  /* No further than MOST_GROWTH times what fits: the line through two small batches is rough, and a
   * plan of a batch that is far too large takes long. */
  int64_t far = s->low > s->max / MOST_GROWTH ? s->max : s->low * MOST_GROWTH;
  int64_t least = s->low + 1, most = s->high > 0 ? s->high - 1 : NEAP_MIN(far, s->max);
  double guess = s->n_plan <= MOST_GUESSES ? cross(s->before, s->last) : 0;
  if (guess <= 0 && s->high > 0) guess = (double)(s->low + (s->high - s->low) / 2);
  if (guess <= 0) guess = 2 * (double)s->low; /* nothing is known above */
  if (guess >= (double)most) return NEAP_MAX(most, least);
  return NEAP_MAX((int64_t)guess, least);
}

/* Whether the answer is known: `low` fits, and one more does not or is not asked for. */
static bool is_found(const search *s) { return s->low >= s->max || s->high == s->low + 1; }

/* The larger share of the two limits that a plan uses. */
static double share(const neap_forecast *forecast, const neap_compile_options *options) {
  size_t budget = options->plan.budget_bytes, total = options->total_bytes;
  double arena = budget > 0 ? (double)forecast->plan->arena_bytes / (double)budget : 0;
  size_t held = forecast->total_bytes + options->beside.bytes, has = forecast->plan->arena_bytes;
  /* One arena serves both programs: of the other one's only what goes beyond this one's counts. */
  if (options->beside.arena_bytes > has) held += options->beside.arena_bytes - has;
  return NEAP_MAX(arena, total > 0 ? (double)held / (double)total : 0);
}

/* ---- micro-batches --------------------------------------------------------------------------- */

/* Parameters and accumulators are the same blobs in both programs, and so is the arena, which keeps
 * to the budget in each. The total is the micro-batch's to refuse, which can say the least of
 * both. */
static neap_status add_beside(const neap_net *net, const neap_compile_options *options,
                              neap_beside *beside, neap_error *error) {
  /* Planned without the total: that is what its bytes are to be counted for. */
  neap_forecast forecast;
  NEAP_TRY(neap_driver_plan(net, options, &forecast, error));
  const size_t *region = forecast.plan->region_bytes;
  beside->arena_bytes = NEAP_MAX(beside->arena_bytes, region[NEAP_REGION_ARENA]);
  beside->bytes += forecast.total_bytes - region[NEAP_REGION_ARENA] -
                   region[NEAP_REGION_PARAMETER] - region[NEAP_REGION_GRADIENT];
  neap_forecast_fini(&forecast);
  return NEAP_OK;
}

/* The net that joins what is held to the update is not asked: it reads hold's blobs and nothing
 * else. Names to keep are the update's: hold has none of them. Without the store: these are
 * figures, and whoever compiles the nets hears what the store has to say of them. */
neap_status neap_driver_beside(const neap_net *update, const neap_net *hold,
                               const neap_compile_options *options, neap_beside *beside,
                               neap_error *error) {
  neap_compile_options without = *options;
  without.total_bytes = 0;
  without.store = NULL;
  *beside = (neap_beside){0};
  NEAP_TRY(add_beside(update, &without, beside, error));
  without.graph.n_keep = 0;
  return hold != NULL ? add_beside(hold, &without, beside, error) : NEAP_OK;
}

/* The same by the options of a micro-batch, whose inputs and names to keep are not the update's. */
static neap_status find_beside(const neap_fit_by *fit, const neap_net *net,
                               const neap_compile_options *options, neap_beside *beside,
                               neap_error *error) {
  neap_arena room = {0};
  neap_compile_options own;
  neap_status status = neap_mem_param_resolve(net, options, &room, &own, error);
  own.graph.n_input = own.graph.n_keep = own.graph.n_loss = own.graph.n_diff = 0;
  if (status == NEAP_OK) status = neap_driver_beside(fit->update, fit->hold, &own, beside, error);
  neap_arena_fini(&room);
  return status;
}

/* ---- the search ------------------------------------------------------------------------------ */

/* Plans a batch of n. *used: see share. A try leaves nothing in the store: of all that are planned
 * the user asked for one. */
static neap_status plan_batch(const neap_fit_by *fit, search *s, int64_t n, bool is_try,
                              neap_forecast *out, double *used, neap_error *error) {
  /* The caller says which net a batch has, and by which options. */
  const neap_net *net;
  neap_compile_options options;
  *out = (neap_forecast){0};
  NEAP_TRY(fit->net(fit->context, n, &net, &options, error));
  if (fit->update != NULL && n == 1) NEAP_TRY(find_beside(fit, net, &options, &s->beside, error));

  /* One arena serves all that lies beside; what else it holds adds up. */
  if (fit->update != NULL) {
    options.beside.bytes += s->beside.bytes;
    options.beside.arena_bytes = NEAP_MAX(options.beside.arena_bytes, s->beside.arena_bytes);
  }
  s->has_store = options.store != NULL;
  if (is_try) options.store = NULL;
  NEAP_TRY(neap_driver_plan(net, &options, out, error));
  *used = share(out, &options);
  return NEAP_OK;
}

/* Each try replaces *best where it fits. */
static neap_status find(const neap_fit_by *fit, search *s, neap_forecast *best, neap_error *error) {
  while (!is_found(s)) {
    /* A batch of 1 first: where not even that fits, its refusal says what would do. */
    int64_t n = s->n_plan == 0 ? 1 : next_guess(s);
    NEAP_ASSERT(n > s->low && (s->high == 0 || n < s->high),
                "a batch between %lld, which fits, and %lld, which does not; got %lld",
                (long long)s->low, (long long)s->high, (long long)n);

    /* A refusal for want of bytes is an answer; anything else ends the search. */
    neap_error refused = {0};
    neap_forecast forecast;
    double used = 0;
    neap_status status = plan_batch(fit, s, n, true, &forecast, &used, &refused);
    s->n_plan++;
    if (s->warning[0] == '\0') memcpy(s->warning, forecast.warning, sizeof s->warning);

    if (status == NEAP_OK) {
      neap_forecast_fini(best);
      *best = forecast;
      s->low = n;
      s->before = s->last;
      s->last = (point){n, used};
    } else if (n > 1 && status == NEAP_BUDGET) {
      s->high = n;
    } else {
      if (error != NULL && error->code == NEAP_OK) *error = refused;
      return status;
    }
  }
  NEAP_ASSERT(s->last.n == s->low && s->low >= 1, "a batch that was planned, and fits; got %lld",
              (long long)s->low);
  return NEAP_OK;
}

neap_status neap_driver_fit(const neap_fit_by *fit, int64_t *batch, neap_forecast *out,
                            neap_error *error) {
  search s = {.max = fit->max};
  neap_forecast best = {0};
  if (fit->max < 1)
    return neap_fail(error, NEAP_ARGUMENT, "fit_batch: max expects at least 1, got %lld",
                     (long long)fit->max);
  neap_status status = find(fit, &s, &best, error);

  /* Planned once more, to be stored: a plan alone is no row, which needs its net and key. */
  if (status == NEAP_OK && s.has_store) {
    double used;
    neap_forecast_fini(&best);
    status = plan_batch(fit, &s, s.low, false, &best, &used, error);
    if (s.warning[0] == '\0') memcpy(s.warning, best.warning, sizeof s.warning);
  }

  /* What the store had to say is the search's to tell, whichever plan is given. */
  if (status == NEAP_OK) *batch = s.low;
  memcpy(best.warning, s.warning, sizeof best.warning);
  if (status == NEAP_OK && out != NULL)
    *out = best;
  else
    neap_forecast_fini(&best);
  return status;
}

/* ---- one net at all batches ------------------------------------------------------------------ */

typedef struct source {
  const neap_net *net;
  const neap_compile_options *options;
  neap_arena room; /* of the last answer */
} source;

static neap_status at_batch(void *context, int64_t n, const neap_net **net,
                            neap_compile_options *options, neap_error *error) {
  source *s = context;
  neap_arena_fini(&s->room);
  s->room = (neap_arena){0};
  *net = s->net;
  *options = *s->options;
  return neap_batch_inputs(s->net, n, &options->graph, &s->room, error);
}

neap_status neap_driver_fit_net(const neap_net *net, const neap_compile_options *options,
                                int64_t max, int64_t *batch, neap_forecast *out,
                                neap_error *error) {
  source s = {.net = net, .options = options};
  const neap_fit_by fit = {.net = at_batch, .context = &s, .max = max};
  neap_status status = neap_driver_fit(&fit, batch, out, error);
  neap_arena_fini(&s.room);
  return status;
}
