#include "passes.h"

#include <algorithm>

namespace swiftk::cuda {

PassState PassCache::begin(const RecordedKey& key, Stream stream) {
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.key == key; });
  if (found == entries_.end()) {
    if (entries_.size() == kMost) {
      if (entries_.back().exec) device_.gpu.driver.cuGraphExecDestroy(entries_.back().exec);
      entries_.pop_back();
    }
    entries_.push_front({key, nullptr});
    return PassState::Direct;
  }
  entries_.splice(entries_.begin(), entries_, found);
  if (GraphExec const exec = entries_.front().exec) {
    device_.check(device_.gpu.driver.cuGraphLaunch(exec, stream), "launching a recorded pass");
    return PassState::None;
  }
  device_.check(device_.gpu.driver.cuStreamBeginCapture_v2(stream, kCaptureThreadLocal), "recording a pass");
  return PassState::Recording;
}

void PassCache::end(PassState state, bool complete, Stream stream) {
  if (state != PassState::Recording) return;
  const Driver& driver = device_.gpu.driver;
  Graph graph = nullptr;
  const Result ended = driver.cuStreamEndCapture(stream, &graph);
  if (!complete || ended != 0) {
    if (graph) driver.cuGraphDestroy(graph);
    if (complete) device_.check(ended, "recording a pass");
    return;
  }
  GraphExec exec = nullptr;
  const Result made = driver.cuGraphInstantiateWithFlags(&exec, graph, 0);
  driver.cuGraphDestroy(graph);
  device_.check(made, "making a recorded pass");
  entries_.front().exec = exec;
  device_.check(driver.cuGraphLaunch(exec, stream), "launching a recorded pass");
}

void PassCache::clear() {
  for (const Entry& e : entries_) {
    if (e.exec) device_.gpu.driver.cuGraphExecDestroy(e.exec);
  }
  entries_.clear();
}

}  // namespace swiftk::cuda
