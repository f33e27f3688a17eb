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
  const Driver& driver = device_.gpu.driver;
  Entry& entry = entries_.front();
  device_.check(driver.cuGraphCreate(&entry.loop, 0), "making a graph");
  try {
    NodeParams node{.context = device_.gpu.context};
    device_.check(driver.cuGraphConditionalHandleCreate(&node.handle, entry.loop, node.context, 1, kAssignDefault),
                  "making a condition");
    GraphNode made = nullptr;
    device_.check(driver.cuGraphAddNode_v2(&made, entry.loop, nullptr, nullptr, 0, &node), "making a loop");
    device_.check(driver.cuStreamBeginCaptureToGraph(stream, node.bodies[0], nullptr, nullptr, 0, kCaptureThreadLocal),
                  "recording a loop");
    again = node.handle;
  } catch (...) {
    drop(entry);
    throw;
  }
  return PassState::Recording;
}

void PassCache::end(PassState state, bool complete, Stream stream) {
  if (state != PassState::Recording) return;
  const Driver& driver = device_.gpu.driver;
  Entry& entry = entries_.front();
  Graph captured = nullptr;  // of a loop, its body
  const Result ended = driver.cuStreamEndCapture(stream, &captured);
  Graph const pass = entry.loop ? nullptr : captured;
  Result made = ended;
  if (complete && ended == 0) made = driver.cuGraphInstantiateWithFlags(&entry.exec, entry.loop ? entry.loop : pass, 0);
  if (pass) driver.cuGraphDestroy(pass);
  if (!complete || made != 0) drop(entry);
  if (!complete) return;
  device_.check(ended, "recording a pass");
  device_.check(made, "making a recorded pass");
  launch(stream);
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
