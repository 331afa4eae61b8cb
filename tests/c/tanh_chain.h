/* tanh_chain.h: a deep net of small layers, whose activations are nearly all that it needs: what
 * budgets, recomputation and eviction are tried on. */
#ifndef NEAP_TESTS_TANH_CHAIN_H
#define NEAP_TESTS_TANH_CHAIN_H

#include "mlp.h"

/* Twelve layers of FC and Tanh, trained. */
static inline neap_status build_chain_from(const char *first, neap_net **out, neap_error *error) {
  NEAP_TRY(neap_net_new("chain", out, error));
  NEAP_TRY(neap_net_add_text(*out, error, "%s\nstate lr f32 () = Constant { value = 0.1 }", first));
  for (int i = 0; i < 12; i++)
    NEAP_TRY(neap_net_add_text(
      *out, error, "param w%d f32 (16,16) = Xavier\ns%d = FC(h%d, w%d)\nh%d = Tanh(s%d)", i, i, i,
      i, i + 1, i));
  NEAP_TRY(neap_net_add_text(*out, error, "sq = Mul(h12, h12)\nloss = Mean(sq)"));
  NEAP_TRY(neap_net_add_gradient(*out, "loss", 0, NULL, NULL, NULL, error));
  for (int i = 0; i < 12; i++)
    NEAP_TRY(neap_net_add_text(*out, error, "w%d = Sgd(w%d, w%d_grad, lr)", i, i, i));
  return neap_net_add_text(*out, error, "outputs loss");
}

static inline neap_status build_chain(neap_net **out, neap_error *error) {
  return build_chain_from("input h0 f32 (64,16)", out, error);
}

#endif
