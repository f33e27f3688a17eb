// Families of models: what a config.json of one leaves out, may ask for, and means. Nothing else names a family.
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "ops.h"

namespace swiftk {

// Layers that see a window: none; all where `sliding_window` is set; with `use_sliding_window`, those from
// `max_window_layers` on; all but each so-many-th; or with `use_sliding_window`, those without rotary positions.
// `layer_types` may say it layer by layer, but for AllOrNone.
enum class Sliding : unsigned char { Never, AllOrNone, FromLayer, AllBut, Unrotated };

// Layers whose q and k get rotary positions: all; those that `no_rope_layers` marks with 1; or those that see a window,
// and all where none does.
enum class Rotated : unsigned char { All, Listed, Sliding };

// Names of a layer's norms in a Hugging Face folder, over D values, over what a sublayer reads and over what it adds,
// and of q and k; null: it has none.
struct NormNames {
  const char *attn, *attn_after, *mlp, *mlp_after;
  const char *q = nullptr, *k = nullptr;
};

// Whether matrices have biases, and the field of config.json that says so, if any.
enum class Biases : unsigned char { Never, IfAsked, UnlessDenied, Always };
struct Bias {
  Biases when = Biases::Never;
  const char* field = "attention_bias";
  const char* also = nullptr;  // another name of the field
};

// Numbers that a family multiplies by, or divides, beside LLaMA's.
enum class Scalars : unsigned char {
  None,
  Multipliers,  // embedding_multiplier, attention_multiplier, residual_multiplier; logits_scaling divides
  Width,        // embeddings are multiplied by sqrt(hidden_size)
  WidthAndCaps  // and scores by query_pre_attn_scalar^-1/2; attn_logit_softcapping, final_logit_softcapping
};

// How llama.cpp's converter writes a family.
struct GgufFamily {
  const char* architecture = nullptr;  // general.architecture; null: as that of another family
  bool paired = false;                 // rows of q and k have rotary pairs side by side
  const char* mlp_norm = nullptr;      // null: "ffn_norm"
  int sliding_layers = 0;              // a model of so many layers alone has windows; 0: any
  // A model of so many layers multiplies scores by (hidden_size / heads)^-1/2, others by head_dim^-1/2; 0: none does.
  int scaled_layers = 0;
};

struct Family {
  const char *model_type, *architecture;
  const char* around = nullptr;  // the model_type of a config.json that has this one as its text_config
  // Values of what config.json leaves out. 0: no such value; as many KV heads as heads; heads of
  // hidden_size / heads; no window.
  int heads = 0, kv_heads = 0, head_dim = 0, vocab = 0, max_position, window = 0;
  double norm_eps = 1e-6, theta = 10000;
  bool tied_head = false;
  const char* activation_field = "hidden_act";
  Activation activation = Activation::Silu;
  Bias qkv_bias{}, o_bias{}, mlp_bias{Biases::Never, "mlp_bias"};
  QkNorm qk_norm = QkNorm::Heads;  // where it has any
  Sliding sliding = Sliding::Never;
  int period = 0;  // of AllBut, and of the layers that Listed leaves out
  Rotated rotated = Rotated::All;
  // The table of layers that see a window: the usual one, or another, without scaling, whose theta is
  // `rope_local_base_freq`; 0: the usual one's.
  bool local_table = false;
  double local_theta = 0;
  const char* rope = nullptr;  // rope_parameters
  bool partial = false;        // partial_rotary_factor may be less than 1
  bool paired = false;         // rows of q and k have rotary pairs side by side
  bool fused = false;          // q, k and v are one tensor; gate and up are
  float norm_offset = 0;       // added to weights of norms over D values, and of q and k, as they are loaded
  Scalars scalars = Scalars::None;
  float score_cap = 0, logit_cap = 0;
  NormNames norms{"input_layernorm", nullptr, "post_attention_layernorm", nullptr};
  GgufFamily gguf{};
};

std::span<const Family> families();
// For messages: of a type or an architecture that is no family's, the family whose name is most like it ("gemma4":
// "; the nearest is gemma3_text"), or nothing.
std::string nearest_to(std::string_view type);

}  // namespace swiftk
