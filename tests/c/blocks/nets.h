/* nets.h: nets: read, built op by op, marked and undone, typed, written, cloned. */
#ifndef NEAP_TESTS_BLOCKS_NETS_H
#define NEAP_TESTS_BLOCKS_NETS_H

#include "blocks/call.h"

CALL(net_read) { return neap_net_read(train_text, &s->out_net, error); }
CALL(net_read_loops) {
  char text[sizeof loops_text + 20];
  snprintf(text, sizeof text, loops_text, ", max = 20");
  return neap_net_read(text, &s->out_net, error);
}
CALL(net_read_image) { return neap_net_read(image_text, &s->out_net, error); }
CALL(net_read_scopes) { return neap_net_read(scopes_text, &s->out_net, error); }
CALL(net_new) { return neap_net_new("fresh", &s->out_net, error); }
CALL(net_add_op) {
  return neap_net_add_text(s->net, error, "more_%d = Tanh(%s) on cpu:1", 3, "loss");
}
CALL(net_add_input) { return neap_net_add_text(s->net, error, "input more f32 (4,%d)", 3); }
CALL(net_add_param) {
  return neap_net_add_text(s->net, error, "param more f32 (4,3) = Gaussian { std = 0.5 }");
}
CALL(net_add_bank) { return neap_net_add_text(s->net, error, "bank fast h, r"); }
CALL(net_add_outputs) { return neap_net_add_text(s->net, error, "outputs loss, h"); }
CALL(net_add_keep) { return neap_net_add_text(s->net, error, "keep r"); }
CALL(net_add_gradient) {
  return neap_net_add_gradient(s->net, "u", 0, NULL, NULL, "file.lua:3", error);
}
CALL(net_add_gradient_of) {
  return neap_net_add_gradient_of(s->net, "u", 2, NAMES("w", "x"), NAMES("gw", "gx"), true, NULL,
                                  error);
}
QUIET(net_name, s->number[0] = neap_net_name(s->net)[0])
CALL(net_text) { return neap_net_text(s->net, &s->text, error); }
QUIET(net_retain, neap_net_free(neap_net_retain(s->net)))
QUIET(net_free, neap_net_free(s->net); s->net = NULL)
CALL(net_expand) { return neap_net_expand(s->net, NULL, &s->out_net, error); }

CALL(net_declare) {
  return neap_net_declare(s->net, "more", NEAP_ROLE_PARAMETER,
                          &(neap_type){NEAP_DTYPE_F32, {1, {3}}}, true, "Constant",
                          (neap_set[]){NEAP_SET_FLOAT("value", 2), {0}}, "a:1", error);
}
CALL(net_add) {
  const neap_net_call relu = {
    .type = "Relu", .n_in = 1, .in = NAMES("h"), .n_out = 1, .out = NAMES("more"), .typed = true};
  int at = 0;
  neap_status status = neap_net_add(s->net, &relu, &at, error);
  s->number[0] = at;
  return status;
}
CALL(net_set_outputs) { return neap_net_set_outputs(s->net, 2, NAMES("loss", "h"), error); }
CALL(net_keep) { return neap_net_keep(s->net, "h", error); }
CALL(net_assign) { return neap_net_assign(s->net, "h", "fast", error); }
CALL(net_gradient) {
  return neap_net_gradient(s->net, "total", 1, NAMES("w"), false, "a:2", error);
}
CALL(net_clone) { return neap_net_clone(s->net, &s->out_net, error); }
CALL(net_new_sub) {
  neap_net *sub = NULL;
  return neap_net_new_sub(s->net, "sub", &sub, error);
}
CALL(net_new_closed_sub) {
  neap_net *sub = NULL;
  return neap_net_new_closed_sub(s->net, "sub", &sub, error);
}
CALL(net_copy_sub) {
  neap_net *sub = NULL;
  return neap_net_copy_sub(s->net, s->layer[0], &sub, error);
}
CALL(net_set_sub_interface) {
  return neap_net_set_sub_interface(s->sub, 1, NAMES("p"), 1, NAMES("p"), error);
}
CALL(net_take_type) {
  return neap_net_take_type(s->sub, "p", &(neap_type){NEAP_DTYPE_F32, {1, {3}}}, error);
}
QUIET(net_mark, neap_net_end_mark(s->net, neap_net_mark(s->net), true))
QUIET(net_end_mark, neap_net_end_mark(s->net, neap_net_mark(s->net), false))
CALL(net_type_of) {
  neap_type type = {0};
  neap_status status = neap_net_type_of(s->net, "h2", &type, error);
  s->number[0] = type.shape.n_dim;
  return status;
}
CALL(net_check_types) { return neap_net_check_types(s->net, error); }
CALL(net_check_types_of_scopes) { return neap_net_check_types(s->net, error); }
QUIET(net_version, neap_net_version(s->net))
QUIET(net_is_train, s->number[0] = neap_net_is_train(s->net))
QUIET(net_n_ops, s->number[0] = neap_net_n_ops(s->net))
QUIET(net_op_at, s->number[0] = neap_net_op_at(s->net, 1)->n_in)
QUIET(net_n_blobs, s->number[0] = neap_net_n_blobs(s->net))
QUIET(net_blob_at, s->number[0] = neap_net_blob_at(s->net, 1)->role)
QUIET(net_find_blob, s->number[0] = neap_net_find_blob(s->net, "h")->role)
QUIET(net_n_inits, s->number[0] = neap_net_n_inits(s->net))
QUIET(net_init_at, s->number[0] = neap_net_init_at(s->net, 0) != NULL)
QUIET(net_n_sub_inputs, s->number[0] = neap_net_n_sub_inputs(s->sub))
QUIET(net_sub_input_at, s->number[0] = neap_net_sub_input_at(s->sub, 0) != NULL)
QUIET(net_n_outputs, s->number[0] = neap_net_n_outputs(s->net))
QUIET(net_output_at, s->number[0] = neap_net_output_at(s->net, 0)[0])
CALL(net_text_with) { return neap_net_text_with(s->net, true, &s->text, error); }
QUIET(net_is_scope, s->number[0] = neap_net_is_scope(s->net, "s"))
/* They look a name up, which they intern first. */
CALL(net_local) {
  const char *name = neap_net_local(s->net, "s", "w");
  s->number[0] = name != NULL;
  return name != NULL ? NEAP_OK : neap_fail_memory(error, 30, "a name");
}
CALL(net_has_local) {
  bool has = neap_net_has_local(s->net, "s.1/w");
  s->number[0] = has;
  return has ? NEAP_OK : neap_fail_memory(error, 30, "a name");
}

static const entry nets_entries[] = {
  {"neap_net_read", 0, call_net_read, NULL, false},
  {"neap_net_read", 0, call_net_read_loops, NULL, false},
  {"neap_net_read", 0, call_net_read_image, NULL, false},
  {"neap_net_read", 0, call_net_read_scopes, NULL, false},
  {"neap_net_new", 0, call_net_new, NULL, false},
  {"neap_net_add_text", NET, call_net_add_op, NULL, false},
  {"neap_net_add_text", NET, call_net_add_input, NULL, false},
  {"neap_net_add_text", NET, call_net_add_param, NULL, false},
  {"neap_net_add_text", NET, call_net_add_bank, NULL, false},
  {"neap_net_add_text", NET, call_net_add_outputs, NULL, false},
  {"neap_net_add_text", NET, call_net_add_keep, NULL, false},
  {"neap_net_add_gradient", FORWARD, call_net_add_gradient, NULL, false},
  {"neap_net_add_gradient_of", FORWARD, call_net_add_gradient_of, NULL, false},
  {"neap_net_name", NET, call_net_name, NULL, true},
  {"neap_net_text", NET, call_net_text, NULL, false},
  {"neap_net_text", LOOPS, call_net_text, NULL, false},
  {"neap_net_retain", NET, call_net_retain, NULL, true},
  {"neap_net_free", NET, call_net_free, NULL, true},
  {"neap_net_expand", NET, call_net_expand, NULL, false},
  {"neap_net_expand", LOOPS, call_net_expand, NULL, false},
  {"neap_net_expand", SCOPES, call_net_expand, NULL, false},
  {"neap_net_declare", NET, call_net_declare, NULL, false},
  {"neap_net_add", NET, call_net_add, NULL, false},
  {"neap_net_set_outputs", NET, call_net_set_outputs, NULL, false},
  {"neap_net_keep", NET, call_net_keep, NULL, false},
  {"neap_net_assign", NET, call_net_assign, NULL, false},
  {"neap_net_gradient", FORWARD | TOTAL, call_net_gradient, NULL, false},
  {"neap_net_clone", NET, call_net_clone, NULL, false},
  {"neap_net_new_sub", NET, call_net_new_sub, NULL, false},
  {"neap_net_new_closed_sub", NET, call_net_new_closed_sub, NULL, false},
  {"neap_net_copy_sub", NET | LAYERS, call_net_copy_sub, NULL, false},
  {"neap_net_set_sub_interface", NET | SUB, call_net_set_sub_interface, NULL, false},
  {"neap_net_take_type", NET | SUB, call_net_take_type, NULL, false},
  {"neap_net_mark", NET, call_net_mark, NULL, true},
  {"neap_net_end_mark", NET, call_net_end_mark, NULL, true},
  {"neap_net_type_of", NET, call_net_type_of, NULL, false},
  {"neap_net_check_types", LOOPS, call_net_check_types, NULL, false},
  {"neap_net_check_types", SCOPES, call_net_check_types_of_scopes, NULL, false},
  {"neap_net_version", NET, call_net_version, NULL, true},
  {"neap_net_is_train", NET, call_net_is_train, NULL, true},
  {"neap_net_n_ops", NET, call_net_n_ops, NULL, true},
  {"neap_net_op_at", NET, call_net_op_at, NULL, true},
  {"neap_net_n_blobs", NET, call_net_n_blobs, NULL, true},
  {"neap_net_blob_at", NET, call_net_blob_at, NULL, true},
  {"neap_net_find_blob", NET, call_net_find_blob, NULL, true},
  {"neap_net_n_inits", NET, call_net_n_inits, NULL, true},
  {"neap_net_init_at", NET, call_net_init_at, NULL, true},
  {"neap_net_n_sub_inputs", NET | SUB, call_net_n_sub_inputs, NULL, true},
  {"neap_net_sub_input_at", NET | SUB, call_net_sub_input_at, NULL, true},
  {"neap_net_n_outputs", NET, call_net_n_outputs, NULL, true},
  {"neap_net_output_at", NET, call_net_output_at, NULL, true},
  {"neap_net_text_with", NET, call_net_text_with, NULL, false},
  {"neap_net_is_scope", SCOPES, call_net_is_scope, NULL, true},
  {"neap_net_local", SCOPES, call_net_local, NULL, false},
  {"neap_net_has_local", SCOPES, call_net_has_local, NULL, false},
};

#endif
