#include "files/family.h"

namespace swiftk {
namespace {

constexpr auto kNever = Biases::Never, kIfAsked = Biases::IfAsked, kAlways = Biases::Always;
constexpr NormNames kBefore{"input_layernorm", nullptr, "post_attention_layernorm", nullptr};

constexpr Family kFamilies[] = {
    {.model_type = "llama",
     .architecture = "LlamaForCausalLM",
     .kv_heads = 0,
     .head_dim = 0,
     .max_position = 2048,
     .qkv_bias = kIfAsked,
     .o_bias = kIfAsked,
     .mlp_bias = kIfAsked,
     .qk_norm = false,
     .sliding = Sliding::Never,
     .norms = kBefore},
    {.model_type = "mistral",
     .architecture = "MistralForCausalLM",
     .kv_heads = 8,
     .head_dim = 0,
     .max_position = 131072,
     .qkv_bias = kNever,
     .o_bias = kNever,
     .mlp_bias = kNever,
     .qk_norm = false,
     .sliding = Sliding::AllOrNone,
     .norms = kBefore},
    {.model_type = "qwen2",
     .architecture = "Qwen2ForCausalLM",
     .kv_heads = 32,
     .head_dim = 0,
     .max_position = 32768,
     .qkv_bias = kAlways,
     .o_bias = kNever,
     .mlp_bias = kNever,
     .qk_norm = false,
     .sliding = Sliding::FromLayer,
     .norms = kBefore},
    {.model_type = "qwen3",
     .architecture = "Qwen3ForCausalLM",
     .kv_heads = 32,
     .head_dim = 128,
     .max_position = 32768,
     .qkv_bias = kIfAsked,
     .o_bias = kIfAsked,
     .mlp_bias = kNever,
     .qk_norm = true,
     .sliding = Sliding::FromLayer,
     .norms = kBefore},
};

}  // namespace

std::span<const Family> families() { return kFamilies; }

}  // namespace swiftk
