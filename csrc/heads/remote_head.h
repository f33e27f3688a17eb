// A head away from its model, whose layers are at a server: that reports what the head reads of each token of a text.
// Here are the model's embedding, last norm and vocabulary head, and the layers that run after a Mixture of Attentions.
// One text at a time; used by one thread at a time.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "text/workspace.h"

namespace swiftk {

class RemoteHead {
 public:
  // target: the model's folder, of which no layer is read but those that run after the head; options name one head.
  // context: most tokens of a text; 0: the model's. Throws Error(Unsupported) for a draft model that needs nothing of
  // the model's states.
  RemoteHead(const std::string& target, LoadOptions options, int context);

  // Another text, of which nothing is known but the length of its prompt.
  void begin(const Sampling&, int prompt);
  // Takes the server's features of its tokens from `first` on, as DraftRunner::report() wrote them.
  void know(int first, std::span<const float> reported);
  // Up to `count` tokens after a text: its first known() + 1 tokens are the server's, the others were proposed.
  std::vector<int32_t> propose(std::span<const int32_t> text, int count);

  // The same as a tree, by EAGLE-2's rule: its tokens, and of each the parent, 0 for the text's end, else one more than
  // the place of an earlier one.
  std::pair<std::vector<int32_t>, std::vector<int32_t>> grow(std::span<const int32_t> text, const TreeRule&);
  // The token after a text whose tokens from known() on no server verifies: they count as they are. Until the next
  // begin() nothing more is known. Throws Error(Unsupported) where !alone().
  int32_t next(std::span<const int32_t> text);

  int last_layers() const { return static_cast<int>(w_.model->own.layers.size()); }  // of the model that are here
  bool alone() const;                   // whether it may go on without the server
  int known() const { return known_; }  // leading tokens of the text
  int width() const { return width_; }  // floats that are given of each
  int context() const { return s_.most_text; }
  const Model& model() const { return *w_.model; }
  const DraftModel& draft_model() const { return *w_.model->draft_models[0]; }

 private:
  RemoteHead(const std::shared_ptr<const Model>&, int context);

  size_t settled() const { return known_ + unverified_ + 1; }  // leading tokens of the text that nothing changes
  void follow(std::span<const int32_t> settled);
  // Whether the tree is a chain of these, as far as it goes.
  bool along(std::span<const int32_t> ahead) const;
  // The text that is settled, and a tree with the tokens after it; false: there is no room for them.
  bool hang(std::span<const int32_t> text);
  // The nodes of a chain, which all were read, become text.
  void settle();
  // Reads what the tree has since the last step, and plans `choices` children of each node from `root` on.
  void read_beam(int root, int choices);
  // Reads what the tree has since the last step, and draws what follows its last node.
  int32_t step();

  const int width_;
  Workspace w_;
  Sequence s_;
  int known_ = 0, prompt_ = 0, unverified_ = 0;
};

}  // namespace swiftk
