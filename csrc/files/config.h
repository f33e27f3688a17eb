// The shape of a LLaMA-family model, read from a Hugging Face config.json and checked field by field.
#pragma once
#include <string>
#include <vector>

#include "files/rope.h"
#include "ops.h"

namespace swiftk {

class Json;
struct Family;

// The part of a layer's computation that differs by layer or family.
struct LayerConfig {
  Activation activation = Activation::Silu;
  int rope = 0;               // which of the model's tables; -1: none
  int query_rope = 0;         // the same of q, where it is not that of k
  int window = 0;             // sliding window; 0: none
  float attention_scale = 0;  // of q k^T
  float soft_cap = 0;         // of scores; 0: none
  float residual_scale = 1;
  bool operator==(const LayerConfig&) const = default;
};

struct Config {
  const Family* family = nullptr;     // a row of families()
  int D = 0, H = 0, n_kv = 0, d = 0;  // hidden size, heads, KV heads, head dimension
  int F = 0, V = 0, L = 0;            // FFN size, vocabulary, layers
  int max_position = 0;               // context length
  float norm_eps = 1e-6f;
  std::vector<Rope> ropes;
  std::vector<LayerConfig> layers;                                 // [L]
  float norm_offset = 0;                                           // added to weights of norms as they are loaded
  float embedding_scale = 1, logit_scale = 1, logit_soft_cap = 0;  // 0: no cap
  bool qkv_bias = false, o_bias = false, mlp_bias = false, qk_norm = false, tied_head = false;
  QkNorm qk_norm_over = QkNorm::Heads;
  bool paired = false;                         // rows of q and k have rotary pairs side by side in the file
  bool fused_qkv = false, fused_gate = false;  // q, k and v are one tensor in the file; gate and up are
  std::string dtype;                           // "float32", "bfloat16", "float16" or "" if the file does not say
};

// The configuration in a config.json. Throws Error(Checkpoint) for a missing field, Error(Unsupported) naming field,
// value and what works.
Config read_config(const Json& object);
// The object within a config.json that is of the text model, where another is around it, which reads pictures, too;
// else null.
const Json* text_model(const Json& object);
// The shape of a draft model's layers that an object of it has, whatever architecture that names.
Config layer_config(const Json& object);

// Whether layers compute what LLaMA's do, perhaps with biases, windows and norms of heads: all that kernels of a GPU
// know.
bool like_llama(const Config&);
// The rotary table of a head's layers beside a model, whose heads have so many values: the model's, where their layers
// are alike, else one of its theta without scaling.
Rope rope_of_head(const Config& model, int size);
// The longest text whose angles are not stretched; most often, there is no such bound.
int stretched_after(const Config&);

}  // namespace swiftk
