// A draft model, as it lies beside a model: what passes know of it, whatever its kind.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "model/model.h"

namespace swiftk {

class DraftRunner;
class Executor;

struct DraftModel {
  virtual ~DraftModel() = default;
  // Runs it, as the number-th draft model of `target`, on the threads of `host`, which is the target's. sequences: that
  // draft together; blocks: of K and V that all may hold.
  virtual std::unique_ptr<DraftRunner> runner(const Model& target, int number, Executor& host, int sequences,
                                              int blocks) const = 0;

  std::string kind;                     // its name (heads/head.h)
  std::shared_ptr<const Model> layers;  // its own; a head's embedding and vocabulary head are the model's
  std::vector<int> taps;                // layers of the model whose outputs it reads, ascending
  int V = 0;                            // tokens that it has logits of
  std::vector<int32_t> tokens;          // [V] the model's ids of them; empty: they are the model's own
  int reported = 0;  // floats of each token of a text that its runner away from the model has to be given; 0: none

  int reach = 0;          // tokens ahead that it can propose
  bool opens = false;     // a draft's first step costs what others do not: they follow from it
  bool serial = false;    // a node that follows another of its step takes a pass more
  bool alone = false;     // it goes on without the model's states of tokens that it proposed itself
  bool reads_kv = false;  // it reads what the model cached of a text in all layers

  double reading = 0;      // multiply-adds for a token of a text that it reads, as a share of the model's own
  size_t bytes = 0;        // of memory that it adds
  size_t read_bytes = 0;   // by a pass
  size_t block_bytes = 0;  // of its K and V of as many tokens as a block has
};

}  // namespace swiftk
