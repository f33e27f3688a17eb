// A converted model: its files have matrices as they lie in memory once loaded, so that a load maps them.
//
// Such files are of the kind that the model's own were, with its metadata. In place of each matrix there are blocks of
// panels, tensors "swiftk.own" and "swiftk." with the name of a copy, and beside them, as text, what they hold.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "files/checkpoint.h"

namespace swiftk {

// All matrices of the model's own weights, or of a copy, one after another.
struct PanelBlock {
  std::string name;                   // "own", or that of a copy's format
  std::vector<std::string> segments;  // the format of each, in their order
  const char* data;
  size_t bytes;
  std::shared_ptr<MappedFile> file{};
  Pour pieces{};  // in place of data
};

struct Converted {
  int layout;                        // kPanelLayout of the build that made it
  std::string dtype, draft_weights;  // the options that it was loaded with
  std::vector<PanelBlock> blocks;

  const PanelBlock* find(const std::string& name) const;
};

// Takes what is converted out of the tensors of files, and leaves promises in its place: tensors whose rows cannot be
// had. None where nothing is. Throws Error(Checkpoint) naming the file where what is there is damaged.
std::optional<Converted> take_converted(std::vector<RawTensor>&);

// The tensors that a converted model's file has in place of matrices: its blocks, and a table of what they hold. The
// table is written to `text`, which the caller keeps alive. Only names, encodings and shapes of `matrices` are used.
std::vector<RawTensor> as_tensors(const Converted&, const std::vector<RawTensor>& matrices, std::string& text);

}  // namespace swiftk
