#include "files/family.h"

namespace swiftk {
namespace {

constexpr auto kIfAsked = Biases::IfAsked, kAlways = Biases::Always;

constexpr Family kFamilies[] = {
    {.model_type = "llama",
     .architecture = "LlamaForCausalLM",
     .max_position = 2048,
     .qkv_bias = kIfAsked,
     .o_bias = kIfAsked,
     .mlp_bias = kIfAsked,
     .gguf = {"llama", true}},
    {.model_type = "mistral",
     .architecture = "MistralForCausalLM",
     .kv_heads = 8,
     .max_position = 131072,
     .sliding = Sliding::AllOrNone},
    {.model_type = "qwen2",
     .architecture = "Qwen2ForCausalLM",
     .kv_heads = 32,
     .max_position = 32768,
     .qkv_bias = kAlways,
     .sliding = Sliding::FromLayer,
     .gguf = {"qwen2"}},
    {.model_type = "qwen3",
     .architecture = "Qwen3ForCausalLM",
     .kv_heads = 32,
     .head_dim = 128,
     .max_position = 32768,
     .qkv_bias = kIfAsked,
     .o_bias = kIfAsked,
     .qk_norm = true,
     .sliding = Sliding::FromLayer,
     .gguf = {"qwen3"}},
};

}  // namespace

std::span<const Family> families() { return kFamilies; }

}  // namespace swiftk
