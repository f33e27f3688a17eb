// A head away from its model, whose layers are at a server: that reports what the head reads of each token of a text.
// Here are the model's embedding, last norm and vocabulary head. One text at a time; used by one thread at a time.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "text/workspace.h"

namespace swiftk {

class RemoteHead {
 public:
  // target: the model's folder, of which no layer is read; options name one head. context: most tokens of a text; 0:
  // the model's. Throws Error(Unsupported) for a draft model that needs nothing of the model's states, or its layers.
  RemoteHead(const std::string& target, LoadOptions options, int context);

  // Another text, of which nothing is known but the length of its prompt.
  void begin(const Sampling&, int prompt);
  // Takes the server's features of its tokens from `first` on, as DraftRunner::report() wrote them.
  void know(int first, std::span<const float> reported);
  // Up to `count` tokens after a text: its first known() + 1 tokens are the server's, the others were proposed.
  std::vector<int32_t> propose(std::span<const int32_t> text, int count);

  int known() const { return known_; }  // leading tokens of the text
  int width() const { return width_; }  // floats that are given of each
  int context() const { return s_.most_text; }
  const Model& model() const { return *w_.model; }
  const DraftModel& draft_model() const { return *w_.model->draft_models[0]; }

 private:
  RemoteHead(const std::shared_ptr<const Model>&, int context);

  void follow(std::span<const int32_t> verified);
  // Whether the tree is a chain of these, as far as it goes.
  bool along(std::span<const int32_t> ahead) const;
  // Reads what the tree has since the last step, and draws what follows its last node.
  int32_t step();

  const int width_;
  Workspace w_;
  Sequence s_;
  int known_ = 0, prompt_ = 0;
};

}  // namespace swiftk
