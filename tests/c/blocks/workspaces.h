/* workspaces.h: workspaces and scopes: blobs, names, state, files, nets by name, single ops. */
#ifndef NEAP_TESTS_BLOCKS_WORKSPACES_H
#define NEAP_TESTS_BLOCKS_WORKSPACES_H

#include "blocks/call.h"

CALL(workspace_open) { return neap_workspace_open(9, &s->out_ws, error); }
QUIET(workspace_release, neap_workspace_release(s->ws); s->ws = NULL)
CALL(workspace_write_new) {
  return neap_workspace_write(s->ws, "new", NEAP_DTYPE_F64, 1, DIM(2), (double[]){1, 2}, error);
}
CALL(workspace_write_again) {
  return neap_workspace_write(s->ws, "x", NEAP_DTYPE_F32, 2, DIM(1, 2), (float[]){1, 2}, error);
}
CALL(workspace_write_param) {
  return neap_workspace_write(s->ws, "b", NEAP_DTYPE_F32, 1, DIM(3), (float[]){1, 2, 3}, error);
}
CALL(workspace_read) {
  return neap_workspace_read(s->ws, "y", NEAP_DTYPE_F64, 4, s->number, error);
}
CALL(workspace_read_arena) {
  return neap_workspace_read(s->ws, "loss", NEAP_DTYPE_F64, 1, s->number, error);
}
CALL(workspace_shape) {
  neap_dtype dtype;
  int n_dim = 0;
  int64_t dim[NEAP_MAX_DIM] = {0};
  neap_status status = neap_workspace_shape(s->ws, "x", &dtype, &n_dim, dim, error);
  s->number[0] = n_dim, s->number[1] = (double)dim[0];
  return status;
}
CALL(workspace_touch) { return neap_workspace_touch(s->ws, "w", error); }
CALL(workspace_save) { return neap_workspace_save(s->ws, saved_path, 0, NULL, error); }
CALL(workspace_load) {
  return neap_workspace_load(s->ws, checkpoint_path, NEAP_IO_COPY, NULL, error);
}
CALL(workspace_load_mapped) {
  return neap_workspace_load(s->ws, checkpoint_path, NEAP_IO_MAP_WRITE, NULL, error);
}
CALL(workspace_export) { return neap_workspace_export(s->ws, s->net, saved_path, error); }
CALL(workspace_import) {
  return neap_workspace_import(s->ws, export_path, NEAP_IO_COPY, &s->out_net, error);
}
CALL(workspace_import_mapped) {
  return neap_workspace_import(s->ws, export_path, NEAP_IO_MAP_WRITE, &s->out_net, error);
}
CALL(workspace_assign) {
  return neap_workspace_assign(s->ws, 2, NAMES("x", "y"),
                               &(neap_bank){"fast", 4096, NEAP_BANK_ORDINARY}, false, error);
}
CALL(workspace_assign_later) {
  return neap_workspace_assign(s->ws, 2, NAMES("x", "y"),
                               &(neap_bank){"fast", 4096, NEAP_BANK_ORDINARY}, true, error);
}

CALL(workspace_feed) { return neap_workspace_feed(s->ws, "fed", &s->t, false, error); }
CALL(workspace_fetch) { return neap_workspace_fetch(s->ws, "x", &s->out_t, error); }
CALL(workspace_view) { return neap_workspace_view(s->ws, "x", &s->out_t, NULL, error); }
QUIET(workspace_generation, neap_workspace_generation(s->ws))
QUIET(workspace_retain, neap_workspace_release(neap_workspace_retain(s->ws)))
CALL(workspace_open_child) {
  return neap_workspace_open_child(s->ws, 0, NULL, NULL, &s->out_ws, error);
}
CALL(workspace_open_child_of) {
  return neap_workspace_open_child(s->ws, 2, NAMES("in", "label"), NAMES("x", "y"), &s->out_ws,
                                   error);
}
CALL(workspace_create) { return neap_workspace_create(s->ws, "made", false, error); }
CALL(workspace_create_local) { return neap_workspace_create(s->child, "x", true, error); }
QUIET(workspace_has, neap_workspace_has(s->ws, "x"))
QUIET(workspace_remove, neap_workspace_remove(s->ws, "x"))
CALL(workspace_rename) { return neap_workspace_rename(s->ws, "x", "z", error); }
CALL(workspace_forward) { return neap_workspace_forward(s->child, "seen", "x", false, error); }
CALL(workspace_feed_string) {
  return neap_workspace_feed_string(s->ws, "more_words", "text", 4, error);
}
CALL(workspace_feed_string_again) {
  return neap_workspace_feed_string(s->ws, "words", "other text", 10, error);
}
CALL(workspace_fetch_string) {
  const char *text = "";
  size_t n = 0;
  neap_status status = neap_workspace_fetch_string(s->ws, "words", &text, &n, error);
  s->number[0] = (double)n;
  return status;
}
CALL(workspace_add_net) {
  neap_status status = neap_workspace_add_net(s->ws, neap_net_retain(s->net), false, error);
  if (status != NEAP_OK) neap_net_free(s->net);
  return status;
}
CALL(workspace_new) {
  const neap_workspace_options o = {.seed = 3,
                                    .parent = s->ws,
                                    .n_forward = 1,
                                    .forward_name = NAMES("in"),
                                    .forward_target = NAMES("x")};
  return neap_workspace_new(&o, &s->out_ws, error);
}
CALL(workspace_list) {
  neap_workspace **list = NULL;
  int n = 0;
  neap_status status = neap_workspace_list(&list, &n, error);
  for (int i = 0; i < n; i++) neap_workspace_release(list[i]);
  neap_free(list);
  s->number[0] = n;
  return status;
}
QUIET(workspace_parent, s->number[0] = neap_workspace_parent(s->child) == s->ws)
QUIET(workspace_limit_total, s->number[0] = (double)neap_workspace_limit_total(s->ws, 0))
CALL(workspace_init) { return neap_workspace_init(s->ws, s->net, error); }
QUIET(workspace_seed, s->number[0] = (double)neap_workspace_seed(s->ws))
QUIET(workspace_set_seed, neap_workspace_set_seed(s->ws, 9))
QUIET(workspace_step, s->number[0] = neap_workspace_step(s->ws))
QUIET(workspace_set_step, neap_workspace_set_step(s->ws, 9))
QUIET(workspace_look_draw, s->number[0] = neap_workspace_look_draw(s->ws, true).step)
QUIET(workspace_give_draw, neap_workspace_give_draw(s->ws, NULL))
QUIET(workspace_held_bytes, s->number[0] = (double)neap_workspace_held_bytes(s->ws))
QUIET(workspace_arena_bytes, s->number[0] = (double)neap_workspace_arena_bytes(s->ws))
QUIET(workspace_trim_pool, s->number[0] = (double)neap_workspace_trim_pool(s->ws))
QUIET(workspace_finish_moves, neap_workspace_finish_moves(s->ws))
QUIET(workspace_set_poison, neap_workspace_set_poison(s->ws, true))
CALL(workspace_mark_new) {
  neap_workspace_mark *mark = NULL;
  neap_status status = neap_workspace_mark_new(s->ws, true, 1, NAMES("x"), &mark, error);
  neap_workspace_mark_free(mark);
  return status;
}
CALL(workspace_mark_undo) {
  neap_workspace_mark *mark = NULL;
  neap_status status = neap_workspace_mark_new(s->ws, true, 1, NAMES("x"), &mark, error);
  if (status == NEAP_OK) status = neap_workspace_create(s->ws, "made", false, error);
  if (mark != NULL) neap_workspace_mark_undo(mark, 1, NAMES("x"));
  neap_workspace_mark_free(mark);
  return status;
}
QUIET(workspace_mark_free, neap_workspace_mark_free(NULL))
QUIET(workspace_kind, s->number[0] = neap_workspace_kind(s->ws, "words"))
QUIET(workspace_n_blobs, s->number[0] = neap_workspace_n_blobs(s->ws))
CALL(workspace_copy_forwarded) {
  neap_workspace *child = NULL;
  neap_status status = neap_workspace_open_child(s->ws, 1, NAMES("in"), NAMES("x"), &child, error);
  if (status == NEAP_OK) status = neap_workspace_copy_forwarded(child, error);
  neap_workspace_release(child);
  return status;
}
CALL(workspace_call_op) {
  return neap_workspace_call_op(s->ws, "Mul", 2, NAMES("x", "x"), NULL, 1, NAMES("z"), error);
}
CALL(workspace_scope) {
  neap_scope *scope = NULL;
  neap_status status = neap_workspace_scope(s->ws, "scope", &scope, error);
  s->number[0] = scope == s->scope;
  return status;
}
QUIET(scope_retain, neap_scope_release(neap_scope_retain(s->scope)))
QUIET(scope_n_kept, s->number[0] = neap_scope_n_kept(s->scope))
QUIET(scope_frame_at, s->number[0] = neap_scope_frame_at(s->scope, 0) != NULL)
CALL(scope_check) { return neap_scope_check(s->scope, error); }
CALL(scope_check_bindings) {
  return neap_scope_check_bindings(s->scope, false, 1, NAMES("inner"), NAMES("x"), error);
}
QUIET(workspace_sort_blobs, neap_workspace_sort_blobs(NULL, 0))
QUIET(workspace_net, neap_workspace_net(s->ws, "train"))
QUIET(workspace_net_at, neap_workspace_net_at(s->ws, 0))
QUIET(workspace_delete_net, neap_workspace_delete_net(s->ws, "train"))
CALL(workspace_run_op) { return neap_workspace_run_op(s->ws, "z = Mul(x, x)", error); }
CALL(workspace_run_op_over) {
  return neap_workspace_run_op(s->ws, "x, m = Dropout(x) { rate = 0.3, training = true }", error);
}
CALL(workspace_create_scope) {
  neap_scope *scope = NULL;
  return neap_workspace_create_scope(s->ws, "another_scope", &scope, error);
}
CALL(workspace_empty_scope) {
  neap_scope *scope = NULL;
  return neap_workspace_create_scope(s->ws, "scope", &scope, error);
}
CALL(scope_push) {
  return neap_scope_push(s->scope, s->ws, 1, NAMES("inner"), NAMES("x"), &s->frame, error);
}
CALL(scope_reuse_last) {
  return neap_scope_reuse_last(s->scope, s->ws, 1, NAMES("label"), NAMES("y"), &s->frame, error);
}
CALL(scope_pop_gradient) {
  return neap_scope_pop_gradient(s->scope, s->ws, 1, NAMES("label"), NAMES("y"), &s->frame, error);
}
QUIET(scope_clear, neap_scope_clear(s->scope))
QUIET(scope_empty, neap_scope_empty(s->scope))
QUIET(scope_n_frames, neap_scope_n_frames(s->scope))
QUIET(scope_trim, neap_scope_trim(s->scope))
QUIET(scope_held_bytes, neap_scope_held_bytes(s->scope))
CALL(workspace_blobs) {
  int n = 0;
  neap_status status = neap_workspace_blobs(s->ws, (neap_blob_row **)&s->block, &n, error);
  s->number[0] = n;
  return status;
}
CALL(workspace_table) { return neap_workspace_table(s->ws, &s->text, error); }
CALL(workspace_svg) { return neap_workspace_svg(s->ws, &s->text, error); }

static const entry workspaces_entries[] = {
  {"neap_workspace_open", 0, call_workspace_open, NULL, false},
  {"neap_workspace_release", WS, call_workspace_release, NULL, true},
  {"neap_workspace_write", WS, call_workspace_write_new, NULL, false},
  {"neap_workspace_write", WS, call_workspace_write_again, NULL, false},
  {"neap_workspace_write", WS | NET | SESSION, call_workspace_write_param, NULL, false},
  {"neap_workspace_write", WS | NET | SESSION, call_workspace_write_again, NULL, false},
  {"neap_workspace_read", WS, call_workspace_read, NULL, false},
  {"neap_workspace_read", WS | NET | SESSION, call_workspace_read_arena, NULL, false},
  {"neap_workspace_shape", WS, call_workspace_shape, NULL, false},
  {"neap_workspace_touch", WS | NET | SESSION, call_workspace_touch, NULL, false},
  {"neap_workspace_save", WS | NET | SESSION, call_workspace_save, NULL, false},
  {"neap_workspace_load", WS | FILES, call_workspace_load, NULL, false},
  {"neap_workspace_load", WS | NET | SESSION | FILES, call_workspace_load, NULL, false},
  {"neap_workspace_load", WS | FILES, call_workspace_load_mapped, NULL, false},
  {"neap_workspace_export", WS | FORWARD | SESSION, call_workspace_export, NULL, false},
  {"neap_workspace_export", WS | NET | SESSION, call_workspace_export, NULL, false},
  {"neap_workspace_import", WS | FILES, call_workspace_import, NULL, false},
  {"neap_workspace_import", WS | FILES, call_workspace_import_mapped, NULL, false},
  {"neap_workspace_assign", WS, call_workspace_assign, NULL, false},
  {"neap_workspace_assign", WS, call_workspace_assign_later, NULL, false},
  {"neap_workspace_new", WS, call_workspace_new, NULL, false},
  {"neap_workspace_list", WS | SCOPE, call_workspace_list, NULL, false},
  {"neap_workspace_parent", WS | SCOPE, call_workspace_parent, NULL, true},
  {"neap_workspace_limit_total", WS, call_workspace_limit_total, NULL, true},
  {"neap_workspace_init", WS | NET, call_workspace_init, NULL, false},
  {"neap_workspace_seed", WS, call_workspace_seed, NULL, true},
  {"neap_workspace_set_seed", WS, call_workspace_set_seed, NULL, true},
  {"neap_workspace_step", WS, call_workspace_step, NULL, true},
  {"neap_workspace_set_step", WS, call_workspace_set_step, NULL, true},
  {"neap_workspace_look_draw", WS, call_workspace_look_draw, NULL, true},
  {"neap_workspace_give_draw", WS, call_workspace_give_draw, NULL, true},
  {"neap_workspace_held_bytes", WS, call_workspace_held_bytes, NULL, true},
  {"neap_workspace_arena_bytes", WS, call_workspace_arena_bytes, NULL, true},
  {"neap_workspace_trim_pool", WS, call_workspace_trim_pool, NULL, true},
  {"neap_workspace_finish_moves", WS, call_workspace_finish_moves, NULL, true},
  {"neap_workspace_set_poison", WS, call_workspace_set_poison, NULL, true},
  {"neap_workspace_mark_new", WS, call_workspace_mark_new, NULL, false},
  {"neap_workspace_mark_undo", WS, call_workspace_mark_undo, NULL, false},
  {"neap_workspace_mark_free", WS, call_workspace_mark_free, NULL, true},
  {"neap_workspace_kind", WS, call_workspace_kind, NULL, true},
  {"neap_workspace_n_blobs", WS, call_workspace_n_blobs, NULL, true},
  {"neap_workspace_copy_forwarded", WS, call_workspace_copy_forwarded, NULL, false},
  {"neap_workspace_call_op", WS, call_workspace_call_op, NULL, false},
  {"neap_workspace_scope", WS | SCOPE, call_workspace_scope, NULL, false},
  {"neap_scope_retain", WS | SCOPE, call_scope_retain, NULL, true},
  {"neap_scope_release", WS | SCOPE, call_scope_retain, NULL, true},
  {"neap_scope_n_kept", WS | SCOPE, call_scope_n_kept, NULL, true},
  {"neap_scope_frame_at", WS | SCOPE, call_scope_frame_at, NULL, true},
  {"neap_scope_check", WS | SCOPE, call_scope_check, NULL, false},
  {"neap_scope_check_bindings", WS | SCOPE, call_scope_check_bindings, NULL, false},
  {"neap_workspace_sort_blobs", 0, call_workspace_sort_blobs, NULL, true},
  {"neap_workspace_open_child", WS, call_workspace_open_child, NULL, false},
  {"neap_workspace_open_child", WS, call_workspace_open_child_of, NULL, false},
  {"neap_workspace_create", WS, call_workspace_create, NULL, false},
  {"neap_workspace_create", WS | SCOPE, call_workspace_create_local, NULL, false},
  {"neap_workspace_has", WS, call_workspace_has, NULL, true},
  {"neap_workspace_remove", WS, call_workspace_remove, NULL, true},
  {"neap_workspace_rename", WS, call_workspace_rename, NULL, false},
  {"neap_workspace_forward", WS | SCOPE, call_workspace_forward, NULL, false},
  {"neap_workspace_feed_string", WS, call_workspace_feed_string, NULL, false},
  {"neap_workspace_feed_string", WS, call_workspace_feed_string_again, NULL, false},
  {"neap_workspace_fetch_string", WS, call_workspace_fetch_string, NULL, false},
  {"neap_workspace_add_net", WS | NET, call_workspace_add_net, NULL, false},
  {"neap_workspace_net", WS | NET | STORED, call_workspace_net, NULL, true},
  {"neap_workspace_net_at", WS | NET | STORED, call_workspace_net_at, NULL, true},
  {"neap_workspace_delete_net", WS | NET | STORED, call_workspace_delete_net, NULL, true},
  {"neap_workspace_run_op", WS, call_workspace_run_op, NULL, false},
  {"neap_workspace_run_op", WS, call_workspace_run_op_over, NULL, false},
  {"neap_workspace_create_scope", WS, call_workspace_create_scope, NULL, false},
  {"neap_workspace_create_scope", WS | SCOPE, call_workspace_empty_scope, NULL, false},
  {"neap_scope_push", WS | SCOPE, call_scope_push, NULL, false},
  {"neap_scope_push", WS | SCOPE | DEEP, call_scope_push, NULL, false},
  {"neap_scope_reuse_last", WS | SCOPE, call_scope_reuse_last, NULL, false},
  {"neap_scope_pop_gradient", WS | SCOPE, call_scope_pop_gradient, NULL, false},
  {"neap_scope_clear", WS | SCOPE, call_scope_clear, NULL, true},
  {"neap_scope_empty", WS | SCOPE, call_scope_empty, NULL, true},
  {"neap_scope_n_frames", WS | SCOPE, call_scope_n_frames, NULL, true},
  {"neap_scope_trim", WS | SCOPE, call_scope_trim, NULL, true},
  {"neap_scope_held_bytes", WS | SCOPE, call_scope_held_bytes, NULL, true},
  {"neap_workspace_blobs", WS | NET | SESSION | SCOPE, call_workspace_blobs, NULL, false},
  {"neap_workspace_table", WS | NET | SESSION, call_workspace_table, NULL, false},
  {"neap_workspace_svg", WS | NET | SESSION, call_workspace_svg, NULL, false},
  {"neap_workspace_feed", WS | TENSOR, call_workspace_feed, NULL, false},
  {"neap_workspace_fetch", WS, call_workspace_fetch, NULL, false},
  {"neap_workspace_view", WS, call_workspace_view, NULL, false},
  {"neap_workspace_generation", WS, call_workspace_generation, NULL, true},
  {"neap_workspace_retain", WS, call_workspace_retain, NULL, true},
};

#endif
