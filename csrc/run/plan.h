// A DraftSpec compiles to a Plan: the flat list of sublayers that a pass runs. The target is the plan that skips
// nothing; draft and target differ in data, never in code.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "format.h"
#include "model/model.h"

namespace swiftk {

// Sublayers left out of the draft. Every subset is legal; a bad one costs speed, never correctness.
struct DraftSpec {
  std::vector<int> attn{}, mlp{};  // layers, any order; duplicates are ignored
  int exit_layer = -1;             // layers >= exit_layer are left out whole; -1: none
  // The format that is read of each layer [L], or of all [1]; none, or empty: the model's own. The head's is the
  // last one.
  std::vector<std::optional<Format>> weights{};
  // By number a draft model that was loaded beside the model: alone, or it guides what is read of the model, where
  // `weights` says what that is: it goes on proposing, and a step reads its proposals.
  std::optional<int> draft_model{};
  bool trimmed = false;  // the vocabulary head is the trimmed one, whatever is read of the layers
  // Attention sees so many of a text's last tokens, and its first block, which takes the weight that nothing else wants
  // (StreamingLLM, 2309.17453, section 3.2); 0: all. In whole blocks, so it may see some more. Between them it sees so
  // many runs of kMassRun tokens: those to which the model attended most when it verified last (as MagicDec,
  // 2408.11049, chooses by SnapKV). The window then begins with a run.
  int window = 0, heavy = 0;
  static constexpr int kHeavyFrom = 4 * kMassRun;  // tokens of a text, of which it is noted what is heavy
  bool alone() const { return draft_model && weights.empty(); }
  bool guided() const { return draft_model && !weights.empty(); }
  DraftSpec unguided() const;  // what drafts the same tokens by itself
  bool operator==(const DraftSpec&) const = default;
};

// As hosts name it: "drafter", "drafter-2", ...
std::string name_of_draft_model(int number);

// Sets the weights that are read, by names as hosts write them: "own" or formats, and after one of them, or alone, the
// name of a draft model.
// Throws Error(InvalidArgument) for another name.
void read_weights(DraftSpec&, std::span<const std::string> names);
std::vector<std::string> names_of_weights(const DraftSpec&);

// Cross: attention whose K and V are others': it appends none.
enum class StepKind : uint8_t { Attention, Mlp, Cross };

struct Step {
  StepKind kind;
  int layer;                    // of those that were loaded
  const LayerWeights* weights;  // what this step reads
  LayerConfig config;           // and what it computes with it
  bool operator==(const Step&) const = default;
};

struct Plan {
  std::vector<Step> steps;
  const Weight* head = nullptr;
  std::span<const int32_t> tokens{};                               // that the head makes logits of; empty: all
  float embedding_scale = 1, logit_scale = 1, logit_soft_cap = 0;  // 0: no cap
  int size() const { return static_cast<int>(steps.size()); }
  const Step& operator[](int i) const { return steps[i]; }
};

// Throws Error(InvalidArgument) for a layer outside [0, L), exit_layer outside [0, L], or weights that are not loaded.
Plan compile_plan(const Model&, const DraftSpec&);

// Blocks of a text's rows, after the first one, that a draft with this window does not see.
int unseen_blocks(int window, int rows);

// Number of steps that both plans begin with, reading the same weights. Their K, V and residual rows are equal bit for
// bit.
int common_prefix(const Plan&, const Plan&);

// Bytes of the matrices that the first `steps` steps read, scales and padding left out.
size_t weight_bytes(const Plan&, int steps);

}  // namespace swiftk
