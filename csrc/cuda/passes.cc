#include "cuda/passes.h"

#include <algorithm>
#include <utility>

namespace swiftk::cuda {

bool PassCache::find(const RecordedKey& key) {
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.key == key; });
  if (found != entries_.end()) {
    entries_.splice(entries_.begin(), entries_, found);
    return true;
  }
  if (entries_.size() == kMost) {
    drop(entries_.back());
    entries_.pop_back();
  }
  entries_.push_front({key});
  return false;
}

bool PassCache::launch(Stream stream) {
  GraphExec const exec = entries_.front().exec;
  if (exec) device_.check(device_.gpu.driver.cuGraphLaunch(exec, stream), "launching a recorded pass");
  return exec;
}

PassState PassCache::begin(const RecordedKey& key, Stream stream) {
  refused_ = 0;
  if (!find(key)) return PassState::Direct;
  if (launch(stream)) return PassState::None;
  Entry& entry = entries_.front();
  if (entry.refused) return PassState::Direct;
  entry.refused =
      !accepts(device_.gpu.driver.cuStreamBeginCapture_v2(stream, kCaptureThreadLocal), "beginning a recording");
  return entry.refused ? PassState::Direct : PassState::Recording;
}

PassState PassCache::begin_loop(const RecordedKey& key, Stream stream, Conditional& again) {
  refused_ = 0;
  find(key);
  if (launch(stream)) return PassState::None;
  const Driver& d = device_.gpu.driver;
  Entry& entry = entries_.front();
  NodeParams node{.context = device_.gpu.context};
  GraphNode made = nullptr;
  const bool begun =
      accepts(d.cuGraphCreate(&entry.loop, 0), "making a graph") &&
      accepts(d.cuGraphConditionalHandleCreate(&node.handle, entry.loop, node.context, 1, kAssignDefault),
              "making a condition") &&
      accepts(d.cuGraphAddNode_v2(&made, entry.loop, nullptr, nullptr, 0, &node), "making a loop") &&
      accepts(d.cuStreamBeginCaptureToGraph(stream, node.bodies[0], nullptr, nullptr, 0, kCaptureThreadLocal),
              "beginning a recording");
  if (!begun) drop(entry);
  again = node.handle;
  return begun ? PassState::Recording : PassState::Direct;
}

bool PassCache::accepts(Result result, const char* doing) {
  if (result != 0 && refused_ == 0) {
    refused_ = result;
    refused_doing_ = doing;
  }
  return result == 0;
}

std::string PassCache::refusal() const {
  return std::string(refused_doing_) + ": " + device_.gpu.driver.describe(refused_);
}

bool PassCache::end(PassState state, bool complete, Stream stream) {
  if (state != PassState::Recording) return true;
  const Driver& driver = device_.gpu.driver;
  Entry& entry = entries_.front();
  const bool loop = entry.loop;
  Graph captured = nullptr;  // the pass, or a loop's body
  const bool whole = accepts(driver.cuStreamEndCapture(stream, &captured), "ending a recording");
  // Where a body cannot be recorded, the driver frees it, and crashes when the graph around it is destroyed, which has
  // it still (github.com/NVIDIA/cuda-python/issues/2918). So that graph is left behind.
  if (!whole) entry.loop = nullptr;
  const bool made = complete && !refused() &&
                    accepts(driver.cuGraphInstantiateWithFlags(&entry.exec, loop ? entry.loop : captured, 0),
                            "making a graph ready") &&
                    accepts(driver.cuGraphLaunch(entry.exec, stream), "launching a graph for the first time");
  if (captured && !loop) driver.cuGraphDestroy(captured);
  if (!made) drop(entry);
  entry.refused = complete && !made;
  return made || !complete;
}

void PassCache::drop(Entry& entry) {
  const Driver& driver = device_.gpu.driver;
  if (entry.exec) driver.cuGraphExecDestroy(std::exchange(entry.exec, nullptr));
  if (entry.loop) driver.cuGraphDestroy(std::exchange(entry.loop, nullptr));
}

void PassCache::clear() {
  for (Entry& e : entries_) drop(e);
  entries_.clear();
}

}  // namespace swiftk::cuda
