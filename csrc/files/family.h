// Families of models: what a config.json of one leaves out, may ask for, and means. Nothing else names a family.
#pragma once
#include <span>

namespace swiftk {

// Layers that see a window: none; all where `sliding_window` is set; or with `use_sliding_window`, those from
// `max_window_layers` on. `layer_types` may say it layer by layer, but for AllOrNone.
enum class Sliding : unsigned char { Never, AllOrNone, FromLayer };

// Names of a layer's norms over D values, over what a sublayer reads and over what it adds, in a Hugging Face folder;
// null: it has none.
struct NormNames {
  const char *attn, *attn_after, *mlp, *mlp_after;
};

// Whether matrices have biases.
enum class Biases : unsigned char { Never, IfAsked, Always };

// How llama.cpp's converter writes a family.
struct GgufFamily {
  const char* architecture = nullptr;  // general.architecture; null: as that of another family
  bool paired = false;                 // rows of q and k have rotary pairs side by side
};

struct Family {
  const char *model_type, *architecture;
  // Values of what config.json leaves out. 0: as many KV heads as heads; heads of hidden_size / heads.
  int kv_heads = 0, head_dim = 0, max_position;
  // attention_bias asks for the first two, mlp_bias for the last.
  Biases qkv_bias = Biases::Never, o_bias = Biases::Never, mlp_bias = Biases::Never;
  bool qk_norm = false;  // of each head
  Sliding sliding = Sliding::Never;
  NormNames norms{"input_layernorm", nullptr, "post_attention_layernorm", nullptr};
  GgufFamily gguf{};
};

std::span<const Family> families();

}  // namespace swiftk
