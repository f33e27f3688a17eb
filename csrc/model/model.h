// A loaded model: config, packed weights and the ops table that reads them. Immutable after load; shared between
// sessions.
#pragma once
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "files/kernel_shape.h"
#include "files/model_files.h"
#include "ops.h"

namespace swiftk {

// Biases are indexed by logical row in packed order, padding left out: q, k, v one after another; gate and up in turns
// of kGateGroup rows, the last turn short if kGateGroup does not divide F.
struct LayerWeights {
  const float* attn_norm = nullptr;   // [D], over what attention reads, or null
  Weight wqkv;                        // [(H + 2 n_kv) d, D]
  const float* q_norm = nullptr;      // [d], or [H d] of QkNorm::Whole, or null
  const float* k_norm = nullptr;      // [d], or [n_kv d], or null
  Weight wo;                          // [D, H d]
  const float* attn_after = nullptr;  // [D], over what attention adds, or null
  const float* mlp_norm = nullptr;    // [D] or null
  Weight w_gate_up;                   // [2F, D] interleaved
  Weight w_down;                      // [D, F]
  const float* mlp_after = nullptr;   // [D] or null
};

inline size_t bytes_of(const Weight& w) { return size_t(w.n) * w.k * facts(w.format()).bits / 8; }
inline double elements(const Weight& w) { return static_cast<double>(w.n) * w.k; }
inline double elements(const LayerWeights& w) {
  return elements(w.wqkv) + elements(w.wo) + elements(w.w_gate_up) + elements(w.w_down);
}

// The checkpoint's own, whose matrices may differ in format, or a copy, all in one, but for the head, which may be in a
// finer one.
struct Weights {
  Format format = Format::F32;  // of the copy; of most of its own
  std::vector<LayerWeights> layers;
  Weight head;            // [V, D]
  size_t bytes = 0;       // of memory; none where it is a part of the own ones'
  size_t read_bytes = 0;  // by a pass over all of them
  size_t largest = 0;     // bytes of the largest matrix of a layer
  size_t head_bytes = 0;
};

// Rows of the vocabulary head, of some tokens alone: drafts that read it propose no others (FR-Spec, Zhao et al. 2025).
struct TrimmedHead {
  Weight weight;                // [tokens, D]
  std::vector<int32_t> tokens;  // ascending; none: there is no such head
  size_t bytes = 0;             // of memory
  bool pays = false;            // whether one could be made, and drafts would read much less by it
};

class DirectFile;

// Whole pages of a file.
struct Stretch {
  size_t offset = 0, bytes = 0;
};

// Matrices of layers that stay in a file (residency.h). Their weights point to where it is mapped, which tells them
// apart.
struct Streamed {
  std::shared_ptr<const DirectFile> file;
  const Ops* ops = nullptr;
  std::vector<Stretch> stretches{};      // one for each matrix, in the order of the model's steps
  std::map<const void*, int> of_data{};  // which stretch a matrix lies in, by where its weights point to
  size_t ring = 0;                       // bytes of memory for what is read ahead

  int find(const Weight&) const;              // the stretch that the matrix lies in; -1: it is in memory
  static const char* page_of(const Weight&);  // where the first page of its stretch is mapped
};

// How the memory is used that a process may have for a model, in bytes (text/memory_plan.h).
struct MemoryPlan {
  size_t limit = 0;                            // of all; 0: as much as there is, and all weights are in memory
  size_t process = 0;                          // what the process had before
  size_t drafts = 0;                           // copies, trimmed heads, draft models
  size_t head = 0;                             // the model's own
  size_t kv = 0;                               // K and V, at most
  size_t work = 0;                             // rows under way and their logits, rows of the embedding
  size_t ahead = 0;                            // weights that are read ahead
  size_t layers = 0;                           // weights of the model's own layers,
  size_t streamed = 0;                         // and those which are read from the file for each pass
  int rows = std::numeric_limits<int>::max();  // of a pass, at most: no bytes, but what they allow
};

struct DraftModel;
inline constexpr int kMostDraftModels = 8;

struct LoadOptions {
  // The dtype of the packed weights: "float32", "bfloat16" or "float16"; or "auto": as in the file, where the host also
  // keeps quantised blocks; or "int8" or "int4": the host rounds weights to such blocks.
  std::string dtype;
  // The dtype of keys and values: "float32", "bfloat16" or "float16"; or "" or "auto": that of the weights, and float16
  // where these are quantised. A device takes that of the weights alone.
  std::string kv_dtype{};
  // Copies beside them: names joined by commas ("int4,int3"); "" or "own": none; "auto": int4, or int3, if one fits.
  // "upper" is no copy, but the upper bytes of float16 weights, which are then packed so that they can be read alone.
  std::string draft_weights;
  std::vector<int32_t> draft_tokens{};  // of a trimmed head, in any order; on the host alone
  size_t draft_memory = 0;              // most bytes of all copies; 0: a quarter of the memory that is available
  // Most bytes that the process may have; 0: what is free. Where its weights do not fit, a converted model's layers are
  // read from its file for each pass.
  size_t memory = 0;
  // Bytes that a bounded model keeps for K and V. 0: it keeps them for a text of `context` tokens (0: of 512), and of
  // what is left an eighth at most, as far as a text of that length (0: of the model's) and `sequences` want it.
  size_t kv_memory = 0;
  int context = 0, sequences = 1;
  std::vector<std::string> drafters{};  // folders of draft models
  std::string isa;                      // "" : what SWIFTK_DEBUG says, else the best of this machine
  int threads = 0;                      // 0: one per core this process may use
  std::string device;                   // "" or "cpu"; "cuda" or "cuda:N": the N-th GPU, with the kernels of `pack`
  std::string pack;                     // file that swiftk pack made
  // The same for the layers of draft models, one after the other: of each one, of a Mixture of Attentions three.
  std::vector<std::string> drafter_packs{};
  // Of the model's layers so many alone, the last ones, for a head that drafts away from it; -1: all. Plans have steps
  // of those alone.
  int last_layers = -1;
  // Sizes alone: every tensor is found and checked, no weight is read, and the model has bytes but no weights.
  bool survey = false;
  std::shared_ptr<const void> owner{};  // of weights that a host application has in memory; kept as long as the model
  // Called after each tensor with bytes done and bytes in all; returning false cancels the load (Error(Cancelled)).
  Progress progress;
};

struct Model {
  Config config;
  std::shared_ptr<const Ops> backend;  // owns ops where they belong to a device; goes last
  const Ops* ops = nullptr;
  int threads = 1;
  DType dtype = DType::F32;  // of its own weights' elements
  DType kv_dtype = DType::F32;
  const void* embedding = nullptr;  // [V, D] in the checkpoint's file; on a device a packed copy
  Encoding embedding_encoding = Encoding::F32;
  const float* final_norm = nullptr;  // [D]
  Weights own;
  std::vector<Weights> copies;
  TrimmedHead trimmed;
  std::vector<std::shared_ptr<const DraftModel>> draft_models;
  std::vector<int> taps;  // layers whose outputs they read, ascending
  MemoryPlan memory;
  std::optional<Streamed> streamed;
  bool converted = false;  // its matrices lie in a file as they are wanted in memory

  // Throws Error(InvalidArgument) for a format that was not loaded.
  const Weights& stored(Format) const;

  std::vector<Buffer> storage;                        // owns what the pointers above point to
  std::vector<std::shared_ptr<MappedFile>> mappings;  // keeps the embedding table mapped,
  std::shared_ptr<const void> owner;                  // or in the host's memory,
  std::shared_ptr<const void> made;                   // or in that where it was made
};

// The ops that options ask for: the host's, or a device's with the kernels of a pack, which the model then owns.
void open_backend(const LoadOptions&, Model&);

// Known before any weight is loaded: for a given dtype from the config alone, for "auto" by the header of the weights,
// too.
KernelShape kernel_shape(const ModelFiles&, const std::string& dtype);

// The model alone, without the draft models that options name, and before it has weights.
std::shared_ptr<Model> open_model(const ModelFiles&, const LoadOptions&);
// The same with its weights.
std::shared_ptr<Model> load_model(const ModelFiles&, const LoadOptions&);

}  // namespace swiftk
