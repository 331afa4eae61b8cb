/* do.c: Do, a net run in a frame of a scope. It has no kernel: graph writes the body's ops out in
 * its place, under the names that the bindings give them (build/do.c), so that plan, schedule and
 * gradient see every op. The record is the schema; the rules that its lists must keep stand in
 * net/scope.c.
 */
#include "ops/op.h"

enum { NET, INNER_BLOBS, OUTER_BLOBS_IDX, REUSE_WORKSPACE, COPY_EXTERNAL_BLOBS, SAVED_FWD_BLOBS };

/* Types of a Do are those of its body's ops, each inferred where it is written out. */
static neap_status infer(neap_infer *c, neap_error *error) {
  return neap_infer_fail(c, NEAP_GRAPH, 0, error,
                         "a Do is built op by op; nothing is to be inferred for it as a whole");
}

const neap_op neap_op_Do = {
  .name = "Do",
  .summary =
    "Runs a net in a frame of a scope: it sees the outer blobs that are bound, and what it makes "
    "besides stays in the frame.",
  .math = "outputs = net(inputs)",
  .example =
    "net:Do { bindings = { x = \"a\", y = \"b\" }, scope = \"s\", body = function(d) d:Relu(\"x\", "
    "\"y\") end }",
  .source = "Caffe2 Do",
  .inputs = {{"blobs", "outer blobs that the body reads, then the scope", NEAP_ANY,
              NEAP_ARG_VARIADIC | NEAP_ARG_SCOPE}},
  .outputs = {{"blobs", "outer blobs that the body writes, then the scope", NEAP_ANY,
               NEAP_ARG_VARIADIC | NEAP_ARG_SCOPE}},
  .attrs =
    {[NET] = {"net", "the body, a closed subnet", NEAP_ATTR_NET, .required = true},
     [INNER_BLOBS] = {"inner_blobs", "names in the body of the outer blobs", NEAP_ATTR_NAMES},
     [OUTER_BLOBS_IDX] = {"outer_blobs_idx",
                          "which outer blob each is: inputs, then outputs, without the scope",
                          NEAP_ATTR_AXES},
     [REUSE_WORKSPACE] =
       {"reuse_workspace",
        "work in the scope's top frame, if there is one, rather than in a new one", NEAP_ATTR_BOOL},
     [COPY_EXTERNAL_BLOBS] = {"copy_external_blobs", "keep copies of the bound blobs in the frame",
                              NEAP_ATTR_BOOL},
     [SAVED_FWD_BLOBS] = {"saved_fwd_blobs",
                          "blobs of the forward pass that a backward reads; informational",
                          NEAP_ATTR_NAMES}},
  .effects = NEAP_EFFECT_PSEUDO | NEAP_EFFECT_CONTROL,
  .infer = infer,
};
