// A Hugging Face folder: config.json, model.safetensors or its shards, and the tokenizer's files.
#pragma once
#include <optional>

#include "files/model_files.h"

namespace swiftk {

inline constexpr TensorNames kHfNames{.embedding = "model.embed_tokens",
                                      .final_norm = "model.norm",
                                      .head = "lm_head",
                                      .layers = "model.layers.",
                                      .q = "self_attn.q_proj",
                                      .k = "self_attn.k_proj",
                                      .v = "self_attn.v_proj",
                                      .qkv = "self_attn.qkv_proj",
                                      .o = "self_attn.o_proj",
                                      .gate = "mlp.gate_proj",
                                      .up = "mlp.up_proj",
                                      .gate_up = "mlp.gate_up_proj",
                                      .down = "mlp.down_proj"};

class HfFolder : public ModelFiles {
 public:
  // tensors: in place of the folder's, if there are any.
  explicit HfFolder(std::string dir, std::vector<RawTensor> tensors = {});

  Config config() const override { return read_config(json()); }
  const Json& json() const override;
  // model.safetensors, or the shards that model.safetensors.index.json names.
  const Checkpoint& tensors() const override;
  const TensorNames& names() const override { return kHfNames; }
  // "eos_token_id" (one id, several, or null) of generation_config.json, else of config.json, else of its text_config;
  // where none of them names one, the id of the tokenizer's "eos_token" (tokenizer_config.json,
  // special_tokens_map.json).
  std::vector<int32_t> token_ids(const std::string& token) const override;
  // path: of a folder, which gets a model.safetensors.
  void write(const std::string& path, const std::vector<RawTensor>& tensors, const Progress&) const override;

 private:
  std::vector<RawTensor> read_weights() const;

  std::string dir_;
  std::vector<RawTensor> given_;
  mutable std::optional<Json> json_;
  mutable std::optional<Checkpoint> tensors_;
};

}  // namespace swiftk
