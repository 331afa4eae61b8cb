/* options.c: the options of neap.h as data, and what they come to in the words of the rooms below.
 *
 * Every face reads the one table, NEAP_OPTION_MAP: C programs through neap_options, Lua tables and
 * the command line through neap_option_at, JSON and keys by printing it in its order.
 *
 * INVARIANT: nothing else lists the options' names.
 */
#include "driver/driver_int.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the table ------------------------------------------------------------------------------- */

enum { /* as the table writes them */
       C = NEAP_FACE_C,
       MICRO = NEAP_FACE_MICRO,
       LUA = NEAP_FACE_LUA,
       WORKSPACE = NEAP_FACE_WORKSPACE,
       TRAINER = NEAP_FACE_TRAINER,
       LAYERS = NEAP_FACE_LAYERS,
       COMMAND = NEAP_FACE_COMMAND,
       ALL = NEAP_FACE_ALL
};

#define OFFSET_BYTES(name) offsetof(neap_options, name)
#define OFFSET_COUNT(name) offsetof(neap_options, name)
#define OFFSET_SWITCH(name) offsetof(neap_options, name)
#define OFFSET_CHOICE(name) offsetof(neap_options, name)
#define OFFSET_ENGINE(name) offsetof(neap_options, name)
#define OFFSET_TEXT(name) offsetof(neap_options, name)
#define OFFSET_NAMES(name) offsetof(neap_options, n_##name)
#define OFFSET_BANKS(name) offsetof(neap_options, n_##name)
#define OFFSET_MEM_PARAM(name) offsetof(neap_options, name)
#define OFFSET_INPUTS(name) offsetof(neap_options, n_##name)

/* Words of a range that are listed elsewhere. */
#define WORDS_BYTES
#define WORDS_COUNT
#define WORDS_SWITCH
#define WORDS_CHOICE
#define WORDS_ENGINE NEAP_ENGINE_WORDS
#define WORDS_TEXT
#define WORDS_NAMES
#define WORDS_BANKS
#define WORDS_MEM_PARAM
#define WORDS_INPUTS

static const neap_option table[] = {
#define X(name, type, fallback, range, key, faces, doc)                   \
  {#name,          fallback, range WORDS_##type, doc, NEAP_OPTION_##type, \
   NEAP_KEY_##key, faces,    OFFSET_##type(name)},
  NEAP_OPTION_MAP(X)
#undef X
};

const neap_option *neap_option_at(int i) {
  return i >= 0 && i < NEAP_COUNT(table) ? &table[i] : NULL;
}

const neap_option *neap_option_find(const char *name) {
  for (int i = 0; i < NEAP_COUNT(table); i++)
    if (strcmp(table[i].name, name) == 0) return &table[i];
  return NULL;
}

/* ---- fields ---------------------------------------------------------------------------------- */

/* Fields are read by their types: a pointer and the int before it are not one object. */
#define FIELD(type, options, option) (*(type *)((char *)(options) + (option)->offset))
#define FIELD_OF(type, options, option) \
  (*(const type *)((const char *)(options) + (option)->offset))

bool neap_option_given(const neap_options *options, const neap_option *option) {
  switch (option->type) {
    case NEAP_OPTION_BYTES:
    case NEAP_OPTION_COUNT: return FIELD_OF(int64_t, options, option) != 0;
    case NEAP_OPTION_SWITCH: return FIELD_OF(neap_switch, options, option) != NEAP_DEFAULT;
    case NEAP_OPTION_CHOICE:
    case NEAP_OPTION_TEXT: return FIELD_OF(char *const, options, option) != NULL;
    case NEAP_OPTION_NAMES:
    case NEAP_OPTION_BANKS:
    case NEAP_OPTION_INPUTS: return FIELD_OF(int, options, option) != 0;
    case NEAP_OPTION_MEM_PARAM: return options->mem_param != NULL;
  }
  return false;
}

/* The i-th word of a choice's range, as long as *n; NULL behind the last. */
static const char *word_at(const char *range, int i, int *n) {
  const char *at = range;
  for (; i > 0 && *at != '\0'; i--) {
    at += strcspn(at, " ");
    at += strspn(at, " ");
  }
  *n = (int)strcspn(at, " ");
  return *n > 0 ? at : NULL;
}

static bool is_word(const char *range, const char *text) {
  const char *word;
  int n;
  for (int i = 0; (word = word_at(range, i, &n)) != NULL; i++)
    if (strlen(text) == (size_t)n && strncmp(word, text, (size_t)n) == 0) return true;
  return false;
}

/* "none, name, offset or pool" */
static void list_words(const char *range, char text[128]) {
  const char *word, *next;
  int n, n_next;
  size_t at = 0;
  text[0] = '\0';
  for (int i = 0; (word = word_at(range, i, &n)) != NULL && at < 128; i++) {
    next = word_at(range, i + 1, &n_next);

    bool last_but_one = next != NULL && word_at(range, i + 2, &n_next) == NULL;
    const char *behind = ", ";
    if (last_but_one) behind = " or ";
    if (next == NULL) behind = "";
    at += (size_t)snprintf(text + at, 128 - at, "%.*s%s", n, word, behind);
  }
}

static neap_status fail_choice(const neap_option *option, const char *got, neap_error *error) {
  char words[128], near[24] = "";
  const char *word;
  int n, least = neap_text_reach(got);
  list_words(option->range, words);
  for (int i = 0; (word = word_at(option->range, i, &n)) != NULL; i++) {
    char candidate[24];
    snprintf(candidate, sizeof candidate, "%.*s", n, word);
    if (neap_text_distance(got, candidate) > least) continue;
    least = neap_text_distance(got, candidate) - 1; /* from here on only a nearer word will do */
    snprintf(near, sizeof near, "%s", candidate);
  }
  neap_fail(error, NEAP_ARGUMENT, "%s expects %s, got \"%s\"", option->name, words, got);
  if (near[0] != '\0') neap_hint(error, "did you mean \"%s\"?", near);
  return NEAP_ARGUMENT;
}

/* "1 4096", or "1": the least alone. */
static neap_status check_count(const neap_option *option, int64_t count, neap_error *error) {
  long long least = 0, most = INT64_MAX;
  int n = sscanf(option->range, "%lld %lld", &least, &most);
  if (count == 0 || (count >= least && count <= most)) return NEAP_OK; /* 0: not given */
  if (n < 2)
    return neap_fail(error, NEAP_ARGUMENT, "%s expects a number, at least %lld, got %lld",
                     option->name, least, (long long)count);
  return neap_fail(error, NEAP_ARGUMENT, "%s expects a number from %lld to %lld, got %lld",
                   option->name, least, most, (long long)count);
}

/* Whether the net has such inputs is for who plans it to say. */
static neap_status check_inputs(const neap_options *options, neap_error *error) {
  if (options->n_inputs < 0 || (options->n_inputs > 0 && options->inputs == NULL))
    return neap_fail(error, NEAP_ARGUMENT, "inputs is a list of n_inputs inputs");
  for (int i = 0; i < options->n_inputs; i++) {
    const neap_input *input = &options->inputs[i];
    if (input->name == NULL)
      return neap_fail(error, NEAP_ARGUMENT, "inputs: number %d has no name",
                       i + neap_first_number());
    NEAP_TRY(neap_type_check(&input->type, input->name, error));
  }
  return NEAP_OK;
}

static neap_status check_field(const neap_options *options, const neap_option *option,
                               neap_error *error) {
  /* By type: what the field may hold, in the words of its option. */
  const char *text;
  int64_t bytes;
  switch (option->type) {
    case NEAP_OPTION_BYTES:
      bytes = FIELD_OF(int64_t, options, option);
      if (bytes >= 0) return NEAP_OK;
      return neap_fail(error, NEAP_ARGUMENT, "%s expects bytes, which can't be negative, got %lld",
                       option->name, (long long)bytes);
    case NEAP_OPTION_COUNT: return check_count(option, FIELD_OF(int64_t, options, option), error);
    case NEAP_OPTION_SWITCH:
      if (FIELD_OF(unsigned, options, option) <= NEAP_OFF) return NEAP_OK;
      return neap_fail(error, NEAP_ARGUMENT, "%s expects NEAP_ON or NEAP_OFF, got %u", option->name,
                       FIELD_OF(unsigned, options, option));
    case NEAP_OPTION_CHOICE:
      text = FIELD_OF(char *const, options, option);
      if (text == NULL || is_word(option->range, text)) return NEAP_OK;
      return fail_choice(option, text, error);
    case NEAP_OPTION_NAMES:
      if (options->n_keep == 0 || (options->n_keep > 0 && options->keep != NULL)) return NEAP_OK;
      return neap_fail(error, NEAP_ARGUMENT, "keep is a list of n_keep names");
    case NEAP_OPTION_BANKS:
      if (options->n_banks == 0 || (options->n_banks > 0 && options->banks != NULL)) return NEAP_OK;
      return neap_fail(error, NEAP_ARGUMENT, "banks is a list of n_banks banks");
    case NEAP_OPTION_INPUTS: return check_inputs(options, error);
    case NEAP_OPTION_TEXT:
    case NEAP_OPTION_MEM_PARAM: return NEAP_OK;
  }
  return NEAP_OK;
}

neap_status neap_option_refuse(const neap_option *option, const char *who, neap_error *error) {
  return neap_fail(error, NEAP_ARGUMENT, "%s does not take the option \"%s\"", who, option->name);
}

neap_status neap_options_check(const neap_options *options, unsigned face, const char *who,
                               neap_error *error) {
  for (int i = 0; i < NEAP_COUNT(table); i++) {
    NEAP_TRY(check_field(options, &table[i], error));
    if (!(table[i].faces & face) && neap_option_given(options, &table[i]))
      return neap_option_refuse(&table[i], who, error);
  }
  return NEAP_OK;
}

/* ---- from text ------------------------------------------------------------------------------- */

/* As fail_choice finds the nearest word; NULL where none is near. */
static const char *nearest_option(const char *name) {
  const char *best = NULL;
  int least = neap_text_reach(name);
  for (int i = 0; i < NEAP_COUNT(table); i++) {
    int distance = neap_text_distance(name, table[i].name);
    if (distance > least) continue;
    best = table[i].name;
    least = distance - 1;
  }
  return best;
}

/* Bytes may have a unit and be fractions of it ("1.5 GiB"); counts are whole numbers. */
static neap_status set_number(neap_options *options, const neap_option *option, const char *text,
                              neap_error *error) {
  char *end;
  long long n = strtoll(text, &end, 10);
  double bytes = 0;

  /* 0 means "not given" in the field, so no text may say it. */
  if (option->type == NEAP_OPTION_COUNT) {
    if (end == text || *end != '\0' || n < 1)
      return neap_fail(error, NEAP_ARGUMENT, "%s expects a number, at least 1, got \"%s\"",
                       option->name, text);
    NEAP_TRY(check_count(option, n, error));
  } else {
    if (!neap_bytes_parse(text, &bytes))
      return neap_fail(error, NEAP_ARGUMENT,
                       "%s expects bytes, such as \"8MiB\", \"8MB\" or \"512\", got \"%s\"",
                       option->name, text);
    n = (long long)bytes;
    if (n < 1)
      return neap_fail(error, NEAP_ARGUMENT,
                       "%s expects at least 1 byte, got \"%s\"; not given, there is no limit",
                       option->name, text);
  }
  FIELD(int64_t, options, option) = n;
  return NEAP_OK;
}

neap_status neap_options_set(neap_options *options, const char *name, const char *text,
                             neap_error *error) {
  const neap_option *option = neap_option_find(name);
  if (option == NULL) {
    const char *near = nearest_option(name);
    neap_fail(error, NEAP_ATTRIBUTE, "there is no option \"%s\"", name);
    if (near != NULL) neap_hint(error, "did you mean \"%s\"?", near);
    return NEAP_ATTRIBUTE;
  }

  neap_options set = *options; /* a text that is refused leaves *options as it was */
  switch (option->type) {
    case NEAP_OPTION_BYTES:
    case NEAP_OPTION_COUNT: NEAP_TRY(set_number(&set, option, text, error)); break;
    case NEAP_OPTION_SWITCH: {
      bool on = strcmp(text, "true") == 0;
      if (!on && strcmp(text, "false") != 0)
        return neap_fail(error, NEAP_ARGUMENT, "%s expects true or false, got \"%s\"", name, text);
      FIELD(neap_switch, &set, option) = on ? NEAP_ON : NEAP_OFF;
      break;
    }
    case NEAP_OPTION_CHOICE:
      if (!is_word(option->range, text)) return fail_choice(option, text, error);
      /* a few words, so that the caller's text may go */
      FIELD(const char *, &set, option) = neap_intern(text);
      if (FIELD(const char *, &set, option) == NULL)
        return neap_fail_memory(error, strlen(text), "a word");
      break;
    case NEAP_OPTION_TEXT: FIELD(const char *, &set, option) = text; break;
    case NEAP_OPTION_NAMES:
    case NEAP_OPTION_BANKS:
    case NEAP_OPTION_MEM_PARAM:
    case NEAP_OPTION_INPUTS:
      return neap_fail(error, NEAP_ARGUMENT, "%s is a list, which no text gives: set the field",
                       name);
  }
  *options = set;
  return NEAP_OK;
}

/* ---- as text --------------------------------------------------------------------------------- */

/* {"x":[64,784]} */
static void print_inputs(const neap_options *options, neap_buffer *out) {
  for (int i = 0; i < options->n_inputs; i++) {
    const neap_input *input = &options->inputs[i];
    neap_buffer_add(out, i > 0 ? "," : "{");
    neap_json_text(out, input->name);
    neap_buffer_add(out, ":[");
    for (int d = 0; d < input->type.shape.n_dim; d++)
      neap_buffer_add(out, d > 0 ? ",%lld" : "%lld", (long long)input->type.shape.dim[d]);
    neap_buffer_add(out, "]");
  }
  neap_buffer_add(out, "}");
}

/* The value alone, as JSON writes it. */
static void print_value(const neap_options *options, const neap_option *option, neap_buffer *out) {
  /* In the form that both JSON and keys have; equal options print alike. */
  switch (option->type) {
    case NEAP_OPTION_BYTES:
    case NEAP_OPTION_COUNT:
      neap_buffer_add(out, "%lld", (long long)FIELD_OF(int64_t, options, option));
      break;
    case NEAP_OPTION_SWITCH:
      neap_buffer_add(out, "%s",
                      FIELD_OF(neap_switch, options, option) == NEAP_ON ? "true" : "false");
      break;
    case NEAP_OPTION_CHOICE: {
      /* A choice such as fuse, which is true, false or a word: JSON writes the first two bare. */
      const char *word = FIELD_OF(char *const, options, option);
      bool is_switch = strcmp(word, "true") == 0 || strcmp(word, "false") == 0;
      neap_buffer_add(out, is_switch ? "%s" : "\"%s\"", word);
      break;
    }
    case NEAP_OPTION_TEXT: neap_json_text(out, FIELD_OF(char *const, options, option)); break;
    case NEAP_OPTION_NAMES:
      neap_buffer_add(out, "[");
      for (int i = 0; i < options->n_keep; i++) {
        if (i > 0) neap_buffer_add(out, ",");
        neap_json_text(out, options->keep[i]);
      }
      neap_buffer_add(out, "]");
      break;
    case NEAP_OPTION_BANKS:
      neap_buffer_add(out, "[");
      for (int i = 0; i < options->n_banks; i++) {
        neap_buffer_add(out, i > 0 ? ",{\"name\":" : "{\"name\":");
        neap_json_text(out, options->banks[i].name);
        neap_buffer_add(out, ",\"bytes\":%lld,\"kind\":\"%s\"}", (long long)options->banks[i].bytes,
                        neap_bank_kind_name(options->banks[i].kind));
      }
      neap_buffer_add(out, "]");
      break;
    case NEAP_OPTION_MEM_PARAM: {
      const neap_mem_param *param = options->mem_param;
      neap_buffer_add(
        out, "{\"optimize_train\":%s,\"optimize_test\":%s,\"debug_info\":%s,\"exclude_blob\":[",
        param->no_optimize_train ? "false" : "true", param->optimize_test ? "true" : "false",
        param->debug_info ? "true" : "false");
      for (int i = 0; i < param->n_exclude_blob; i++) {
        if (i > 0) neap_buffer_add(out, ",");
        neap_json_text(out, param->exclude_blob[i]);
      }
      neap_buffer_add(out, "]}");
      break;
    }
    case NEAP_OPTION_INPUTS: print_inputs(options, out); break;
  }
}

void neap_options_print_json(const neap_options *options, neap_buffer *out) {
  int n = 0;
  neap_buffer_add(out, "{");
  for (int i = 0; i < NEAP_COUNT(table); i++) {
    if (!neap_option_given(options, &table[i])) continue;
    neap_buffer_add(out, n++ > 0 ? ",\"%s\":" : "\"%s\":", table[i].name);
    print_value(options, &table[i], out);
  }
  neap_buffer_add(out, "}");
}

void neap_options_print_key(const neap_options *options, neap_buffer *out) {
  for (int i = 0; i < NEAP_COUNT(table); i++) {
    if (table[i].key != NEAP_KEY_OWN || !neap_option_given(options, &table[i])) continue;
    neap_buffer_add(out, "%s ", table[i].name);
    print_value(options, &table[i], out);
    neap_buffer_add(out, "\n");
  }
}

/* ---- in the words of the rooms below --------------------------------------------------------- */

static bool is(const char *word, const char *want) {
  return word != NULL && strcmp(word, want) == 0;
}

/* simple and dag are orders of steps; dynamic is a way to find sizes, which needs policy pool. */
static neap_status take_executor(const neap_options *options, neap_compile_options *out,
                                 neap_error *error) {
  if (is(options->executor, "dag")) out->plan.executor = NEAP_EXECUTOR_DAG;
  if (!is(options->executor, "dynamic")) return NEAP_OK;
  if (options->policy != NULL && out->plan.policy != NEAP_POLICY_POOL)
    return neap_fail(error, NEAP_ARGUMENT,
                     "executor dynamic takes bytes from a pool; policy %s plans them",
                     options->policy);
  out->plan.policy = NEAP_POLICY_POOL;
  out->dynamic = true;
  return NEAP_OK;
}

/* f32 is what nets have anyway. */
static neap_dtype half_of(const char *word) {
  return word == NULL || is(word, "f32") ? NEAP_DTYPE_NONE : neap_dtype_from_name(word);
}

neap_status neap_options_compile(const neap_options *options, unsigned face, const char *who,
                                 neap_compile_options *out, neap_error *error) {
  /* Checked as a whole first: from here on fields hold what the table allows. */
  static const neap_options defaults;
  if (options == NULL) options = &defaults;
  NEAP_TRY(neap_options_check(options, face, who, error));
  *out = (neap_compile_options){
    .plan = {.budget_bytes = (size_t)options->budget,
             .no_in_place = options->in_place == NEAP_OFF,
             .most_steps = options->search},
    .graph = {.n_input = options->n_inputs,
              .input = options->inputs,
              .n_keep = options->n_keep,
              .keep = options->keep,
              .dtype = half_of(options->dtype),
              .keep_all = options->keep_all == NEAP_ON,
              .n_bank = options->n_banks,
              .bank = options->banks,
              .no_rewrite = options->rewrite == NEAP_OFF,
              .no_fuse = is(options->fuse, "false"),
              .fuse_pool = is(options->fuse, "pool")},
    .total_bytes = (size_t)options->total,
    .beside = options->beside,
    .soft_bytes = (size_t)options->soft,
    .n_thread = (int)options->threads,
    .engine = options->engine,
    .plain = is(options->layouts, "plain"),
    .profile = options->profile == NEAP_ON,
    .no_recompute = options->recompute == NEAP_OFF,
    .inexact = options->exact == NEAP_OFF,
    .store = options->store != NEAP_OFF ? options->db : NULL,
    .run = options->store != NEAP_OFF ? options->run : NULL,
    .script = options->script,
    .tag = options->tag,
    .mem_param = options->mem_param,
    .policy_given = options->policy != NULL,
  };

  /* What takes more than a copy: words, and words that depend on each other. */
  if (is(options->accumulate, "mean")) out->accumulate = NEAP_ACCUMULATE_MEAN;
  if (is(options->accumulate, "sum")) out->accumulate = NEAP_ACCUMULATE_SUM;
  neap_policy_from_name(options->policy != NULL ? options->policy : "offset", &out->plan.policy);
  NEAP_TRY(take_executor(options, out, error));
  if (options->soft > 0 && out->plan.policy != NEAP_POLICY_POOL)
    return neap_fail(
      error, NEAP_ARGUMENT,
      "soft is what a pool is cut down to; policy %s has none: executor dynamic does",
      neap_policy_name(out->plan.policy));
  return NEAP_OK;
}

static neap_switch switch_of(bool on) { return on ? NEAP_ON : NEAP_OFF; }

static const char *fuse_word(const neap_graph_options *options) {
  if (options->fuse_pool) return "pool";
  return options->no_fuse ? "false" : "true";
}

/* `exact` only where it matters: a dag whose kernels have a thread each, or a budget that may have
 * taken others. */
neap_options neap_options_resolved(const neap_compile_options *options, const neap_resolved *r) {
  /* What was decided, whether it was asked for or not: a run can be made again from it. */
  bool one_each = r->choose.n_thread != r->n_thread;
  return (neap_options){
    .budget = (int64_t)NEAP_MIN(r->plan.budget_bytes, (size_t)INT64_MAX),
    .total = (int64_t)options->total_bytes,
    .soft = (int64_t)options->soft_bytes,
    .policy = neap_policy_name(r->plan.policy),
    .executor = options->dynamic ? "dynamic" : neap_executor_name(r->plan.executor),
    .recompute = switch_of(!r->no_recompute),
    .exact = switch_of(!r->inexact || (r->plan.budget_bytes == 0 && !one_each)),
    .in_place = switch_of(!r->plan.no_in_place),
    .fuse = fuse_word(&options->graph),
    .rewrite = switch_of(!options->graph.no_rewrite),
    .dtype =
      options->graph.dtype != NEAP_DTYPE_NONE ? neap_dtype_name(options->graph.dtype) : "f32",
    .engine = r->choose.force ? neap_engine_name(r->choose.engine) : "free",
    .layouts = r->choose.plain ? "plain" : "free",
    .threads = r->n_thread,
    .search = r->plan.most_steps,
    .n_keep = options->graph.n_keep,
    .keep = options->graph.keep,
    .keep_all = switch_of(options->graph.keep_all),
    .n_banks = options->graph.n_bank,
    .banks = options->graph.bank,
    .profile = switch_of(options->profile),
    .store = switch_of(options->store != NULL),
    .tag = options->tag,
  };
}
