// The shape of a LLaMA-family model, read from a Hugging Face config.json and checked field by field.
#pragma once
#include <string>
#include <vector>

#include "ops.h"

namespace swiftk {

class Json;
struct Family;

// A rotary table.
struct Rope {
  double theta = 10000;
  int size = 0;  // leading values of a head that turn, in pairs; the others stay
  enum class Type { Default, Linear, Dynamic, Llama3, Yarn, Long } type = Type::Default;
  double factor = 1;
  double low_freq_factor = 1, high_freq_factor = 4;  // Llama3
  double beta_fast = 32, beta_slow = 1;              // Yarn: turns within the original context
  bool truncate = true;                              // Yarn: these bounds are whole pairs
  double scale = 1;                                  // of cosines and sines
  double query_beta = 0;                             // scale grows by beta log(1 + floor(pos / original))
  int original_max_position = 0;                     // all but Default and Linear; 0: none
  std::vector<float> divisors{};                     // [size / 2] of frequencies, or none
  std::vector<float> long_divisors{};                // Long: in texts that may pass the original context
};

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

// Rotary angles of one position as cos[d/2], sin[d/2]. A row must not depend on the length of the text around it, so
// dynamic scaling takes pos + 1 as the current length, as decoding token by token does. stretched: the text may pass
// the original context, which is known before its first row.
void rope_row(const Rope&, int head_dim, int pos, bool stretched, float* cos, float* sin);
// Of the pairs [size / 2] that turn, by how much from position to position, at the beginning of a text.
std::vector<double> frequencies(const Rope&);
// Whether layers compute what LLaMA's do, perhaps with biases, windows and norms of heads: all that kernels of a GPU
// and training know.
bool like_llama(const Config&);
// The longest text whose angles are not stretched; most often, there is no such bound.
int stretched_after(const Config&);

}  // namespace swiftk
