#include "passes.h"

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
  if (!find(key)) return PassState::Direct;
  if (launch(stream)) return PassState::None;
  device_.check(device_.gpu.driver.cuStreamBeginCapture_v2(stream, kCaptureThreadLocal), "recording a pass");
  return PassState::Recording;
}

PassState PassCache::begin_loop(const RecordedKey& key, Stream stream, Conditional& again) {
  find(key);
  if (launch(stream)) return PassState::None;
  const Driver& d = device_.gpu.driver;
  Entry& entry = entries_.front();
  NodeParams node{.context = device_.gpu.context};
  GraphNode made = nullptr;
  const bool begun =
      d.cuGraphCreate(&entry.loop, 0) == 0 &&
      d.cuGraphConditionalHandleCreate(&node.handle, entry.loop, node.context, 1, kAssignDefault) == 0 &&
      d.cuGraphAddNode_v2(&made, entry.loop, nullptr, nullptr, 0, &node) == 0 &&
      d.cuStreamBeginCaptureToGraph(stream, node.bodies[0], nullptr, nullptr, 0, kCaptureThreadLocal) == 0;
  if (!begun) drop(entry);
  again = node.handle;
  return begun ? PassState::Recording : PassState::Direct;
}

bool PassCache::end(PassState state, bool complete, Stream stream) {
  if (state != PassState::Recording) return true;
  const Driver& driver = device_.gpu.driver;
  Entry& entry = entries_.front();
  const bool loop = entry.loop;
  Graph captured = nullptr;  // of a loop, its body
  Result made = driver.cuStreamEndCapture(stream, &captured);
  if (complete && made == 0) {
    made = driver.cuGraphInstantiateWithFlags(&entry.exec, loop ? entry.loop : captured, 0);
  }
  if (captured && !loop) driver.cuGraphDestroy(captured);
  if (!complete || made != 0) drop(entry);
  if (!complete) return true;
  if (loop && made != 0) return false;
  device_.check(made, "making a recorded pass");
  return launch(stream);
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
