/* look.h: what a scene holds as text, by which two scenes are compared. */
#ifndef NEAP_TESTS_BLOCKS_LOOK_H
#define NEAP_TESTS_BLOCKS_LOOK_H

#include "blocks/scene.h"

static void look_at_net(const char *title, const neap_net *net, neap_buffer *out) {
  char *text = NULL;
  if (net == NULL) return;
  CHECK_OK(neap_net_text(net, &text, &error));
  neap_buffer_add(out, "%s:\n%s", title, text);
  neap_free(text);
}

static void look_at_bytes(const void *data, size_t n, neap_buffer *out) {
  char text[33] = "none";
  if (data != NULL) neap_hash_text(neap_hash_bytes(data, n), text);
  neap_buffer_add(out, " %d bytes %s", (int)n, text);
}

static void look_at_numbers(const neap_array *a, neap_buffer *out) {
  neap_buffer_add(out, " %d %d", (int)a->dtype, a->n_dim);
  look_at_bytes(a->data, (size_t)a->bytes, out);
}

/* A run that fails leaves what its net gives out undefined, and where that lies. */
static bool outlives_a_failed_run(const neap_blob_row *row) {
  return row->borrowed || strcmp(row->role, "parameter") == 0 || strcmp(row->role, "state") == 0 ||
         strcmp(row->role, "input") == 0;
}

static void look_at_workspace(const char *title, neap_workspace *ws, bool run, neap_buffer *out) {
  neap_blob_row *row = NULL;
  int n = 0;
  if (ws == NULL) return;

  /* waits for bytes that are under way to a bank */
  (void)neap_workspace_shape(ws, "x", NULL, NULL, NULL, NULL);
  CHECK_OK(neap_workspace_blobs(ws, &row, &n, &error));
  for (int i = 0; i < n; i++) {
    /* Where a transient blob lies, and what in it, is the plan's matter. */
    if (strcmp(row[i].kind, "transient") == 0 || (run && !outlives_a_failed_run(&row[i]))) continue;
    neap_buffer_add(out, "%s.%s %s %s %s %s", title, row[i].name, row[i].kind, row[i].role,
                    row[i].region, row[i].bank);
    for (int d = 0; d < row[i].shape.n; d++)
      neap_buffer_add(out, " %d", (int)row[i].shape.number[d]);

    /* Values too, not only where they lie: as numbers of one type, whatever the blob has. */
    if (strcmp(row[i].kind, "tensor") == 0 && row[i].bytes > 0) {
      int64_t n_elems = 1;
      for (int d = 0; d < row[i].shape.n; d++) n_elems *= row[i].shape.number[d];
      double *data = malloc((size_t)n_elems * sizeof *data);
      if (data == NULL) abort();
      neap_status status =
        neap_workspace_read(ws, row[i].name, NEAP_DTYPE_F64, n_elems, data, NULL);
      neap_buffer_add(out, " %s", neap_status_text(status));
      look_at_bytes(status == NEAP_OK ? data : NULL, (size_t)n_elems * sizeof *data, out);
      free(data);
    } else if (strcmp(row[i].kind, "string") == 0) {
      const char *text = "";
      size_t n_bytes = 0;
      CHECK_OK(neap_workspace_fetch_string(ws, row[i].name, &text, &n_bytes, &error));
      neap_buffer_add(out, " %.*s", (int)n_bytes, text);
    }
    neap_buffer_add(out, "\n");
  }
  neap_free(row);
  for (int i = 0; neap_workspace_net_at(ws, i) != NULL; i++)
    neap_buffer_add(out, "%s has net %s\n", title, neap_net_name(neap_workspace_net_at(ws, i)));
}

static void look_at_figures(const char *title, const neap_figures *f, neap_buffer *out) {
  neap_buffer_add(
    out, "%s: %d ops, arena %lld of %lld, bound %lld, total %lld, %lld steps, proved %d\n", title,
    (int)f->n_op, (long long)f->arena_bytes, (long long)f->baseline_bytes,
    (long long)f->lower_bound_bytes, (long long)f->total_bytes, (long long)f->n_step, f->proved);
}

static void look_at_session(const char *title, neap_session *session, neap_buffer *out) {
  if (session == NULL) return;
  neap_figures f = neap_session_figures(session);
  look_at_figures(title, &f, out);
}

static void look_at_chain(const char *title, const neap_chain *chain, bool run, neap_buffer *out) {
  if (chain == NULL) return;
  for (neap_list list = NEAP_LIST_PARAMS; list <= (run ? NEAP_LIST_PARAMS : NEAP_LIST_CACHES);
       list++)
    for (int i = 0; i < neap_chain_n(chain, list); i++) {
      neap_entry e = {0};
      neap_status status = neap_chain_entry(chain, list, i, &e, NULL);
      neap_buffer_add(out, "%s[%d][%d] %s %s", title, (int)list, i, neap_status_text(status),
                      status == NEAP_OK ? e.name : "");
      if (status == NEAP_OK) look_at_numbers(&e.data, out);
      if (status == NEAP_OK && !run) look_at_numbers(&e.diff, out);
      neap_buffer_add(out, "\n");
    }
}

static void look_at_micro(const char *title, const neap_micro *micro, neap_buffer *out) {
  if (micro == NULL) return;
  neap_figures f = neap_micro_figures(micro);
  look_at_figures(title, &f, out);
  neap_buffer_add(out, "%s holds %d, rows %d\n", title, (int)neap_micro_n_held(micro),
                  (int)neap_micro_rows(micro));
}

/* Elements one by one: looking must not change what there is. */
static void look_at_tensor(const char *title, const neap_tensor *t, neap_buffer *out) {
  if (t->storage == NULL) return;
  char shape[NEAP_SHAPE_TEXT];
  neap_buffer_add(out, "%s %s %s:", title, neap_dtype_name(t->dtype),
                  neap_shape_text(&t->shape, shape));
  for (int64_t i = 0; neap_tensor_is_dense(t) && i < neap_tensor_elems(t); i++)
    neap_buffer_add(out, " %g", neap_element_get(t->dtype, neap_tensor_data(t), i));
  neap_buffer_add(out, "\n");
}

static void look_at_scope(const scene *s, neap_buffer *out) {
  if (s->scope == NULL) return;
  neap_buffer_add(out, "scope has %d frames, empty %d\n", neap_scope_n_frames(s->scope),
                  neap_scope_empty(s->scope));
}

static void look_at_range(const char *title, const neap_range *range, neap_buffer *out) {
  if (range == NULL) return;
  neap_figures f = neap_range_figures(range);
  look_at_figures(title, &f, out);
}

static void look_at_plan(const char *title, const neap_memory_plan *plan, neap_buffer *out) {
  if (plan == NULL) return;
  neap_figures f = neap_memory_plan_figures(plan);
  look_at_figures(title, &f, out);
}

/* Without the time that planning took. */
static void look_at_text(const char *text, neap_buffer *out) {
  const char *time = strstr(text, "planned in ");
  int n = time != NULL ? (int)(time - text) : (int)strlen(text);
  neap_buffer_add(out, "text: %.*s%s\n", n, text, time != NULL ? strchr(time, '\n') : "");
}

/* What was there before the call. `run`: only what a failed run leaves alone. */
static char *look(const scene *s, bool run) {
  neap_buffer out = {0};

  look_at_tensor("tensor", &s->t, &out);
  look_at_net("net", s->net, &out);
  for (int i = 0; i < 2; i++) look_at_net("layer", s->layer[i], &out);
  look_at_workspace("ws", s->ws, run, &out);
  look_at_workspace("child", s->child, run, &out);
  look_at_session("session", s->session, &out);
  look_at_plan("plan", s->plan, &out);
  if (s->cache != NULL) neap_buffer_add(&out, "cache has %d\n", neap_cache_n(s->cache));
  look_at_micro("micro", s->micro, &out);
  look_at_chain("chain", s->chain, run, &out);
  look_at_scope(s, &out);
  look_at_range("range", s->range, &out);
  if (out.failed) abort();
  char *text = strdup(out.text != NULL ? out.text : "");
  neap_buffer_fini(&out);
  if (text == NULL) abort();
  return text;
}

/* That, and what the call gave. */
static char *look_at_all(const scene *s) {
  neap_buffer out = {0};
  char *before = look(s, false);
  neap_buffer_add(&out, "%s", before);
  free(before);

  look_at_tensor("out", &s->out_t, &out);
  look_at_net("out", s->out_net, &out);
  look_at_net("out2", s->out_net2, &out);
  look_at_workspace("out", s->out_ws, false, &out);
  look_at_workspace("frame", s->frame, false, &out);
  look_at_session("out", s->out_session, &out);
  look_at_micro("out", s->out_micro, &out);
  look_at_chain("out", s->out_chain, false, &out);
  look_at_range("out", s->out_range, &out);
  look_at_plan("out", s->out_plan, &out);
  if (s->text != NULL) look_at_text(s->text, &out);
  for (int i = 0; i < MOST_OUT; i++) neap_buffer_add(&out, " %.17g", s->number[i]);
  if (out.failed) abort();
  char *text = strdup(out.text);
  neap_buffer_fini(&out);
  if (text == NULL) abort();
  return text;
}

/* Whether the call gave anything. */
static bool has_results(const scene *s) {
  return s->out_t.storage || s->out_net || s->out_net2 || s->out_ws || s->frame || s->out_session ||
         s->out_micro || s->out_chain || s->out_range || s->out_plan || s->out_log || s->text ||
         s->block;
}

#endif
