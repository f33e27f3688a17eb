// Draft models, as they are loaded beside a model: another model, or a head that reads this
// one's states.
#pragma once
#include <memory>
#include <vector>

#include "model/draft_model.h"

namespace swiftk {

// A block head's parts beside its layers. Features of the model's layers become keys and values of each of its own;
// one pass over a block of positions proposes a token for each of them (DFlash, arXiv 2602.06036), which a bias by the
// token before makes follow each other (DSpark, arXiv 2607.05147).
struct BlockParts {
  int size = 0;                         // positions of a block
  bool from_anchor = false;             // the first, where the last token stands, proposes what follows it, too
  int32_t mask = 0;                     // token at all but the first
  Weight fc;                            // [D, taps * the model's D]
  const float* feature_norm = nullptr;  // [D]
  int rank = 0;                         // of the bias; 0: none
  const float* before = nullptr;        // [the model's V, rank]
  Weight bias;                          // [its V, rank]
  // How often a place's best token is right, as it foretells: the logistic function of sure (of what its layers say
  // there, after their norm) + sure_before (of the token before).
  std::vector<float> sure;         // [D]; empty: it does not foretell
  std::vector<float> sure_before;  // [the model's V]
};

// An EAGLE head's parts beside its layers. A row is a token and the feature of the place before it: the model's own
// where it has read that place, else what the head said of it. EAGLE-3 (arXiv 2503.01840) makes features of several of
// the model's layers; its first layer reads the embedding beside them, and its logits are its own. EAGLE-1 and 2
// (2401.15077, 2406.16858) foretell what the model's last norm gives, and read logits with the model's head.
struct EagleParts {
  bool fused = false;                  // EAGLE-3
  bool normed = false;                 // of it: the residual stream begins after the norm of the feature
  int width = 0;                       // floats of what it taps, of all layers
  bool biased = false;                 // fc has a bias
  Weight fc;                           // [D, width]; of EAGLE-1 [D, 2 D]
  const float* hidden_norm = nullptr;  // [D] of features; EAGLE-3
};

// The parts of a Mixture of Attentions beside the layer over tokens, which is the draft model's own (arXiv 2410.03804).
// K and V that the model cached for a token in all its layers pass a layer whose rows are the layers; their mean,
// widened, becomes keys and values of a layer whose queries are tokens.
struct MoaParts {
  std::shared_ptr<const Model> states;  // of width 2 n_kv d of the model
  Weight widen;                         // [D, 2 n_kv d], with bias
  std::shared_ptr<const Model> cross;   // its wqkv is of q alone,
  Weight cross_kv;                      // [2 n_kv d, D] of k and v
  int last = 0;                         // layers of the model that run after it
};

struct Head final : DraftModel {
  std::unique_ptr<DraftRunner> runner(const Model& target, int number, Executor& host, int sequences,
                                      int blocks) const override;

  BlockParts block;
  EagleParts eagle;
  MoaParts moa;
};

// The shape that kernels for a head are built for, but for the dtype. The parts beside its layers must be known, their
// weights need not be.
KernelShape head_shape(const Config& layers, const Head&);

}  // namespace swiftk
