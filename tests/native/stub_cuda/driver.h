// The state after the driver's functions, and the frame that each of them runs in.
#pragma once
#include <algorithm>
#include <mutex>
#include <set>

#include "kernel.h"
#include "memory.h"
#include "stream.h"

namespace stub {

// Objects behind opaque handles, counted as a level. A handle is no address and is never used again, so one that is
// dead is known.
template <class Handle, class T>
class Handles {
 public:
  Handles(Record& record, const char* kind, uintptr_t tag) : record_(record), kind_(kind), next_(tag << 40) {}

  Handle add(std::shared_ptr<T> object) {
    next_ += 16;
    live_[next_] = std::move(object);
    record_.level(kind_, 1);
    return reinterpret_cast<Handle>(next_);
  }
  const std::shared_ptr<T>& get(Handle handle) const {
    const auto at = live_.find(reinterpret_cast<uintptr_t>(handle));
    if (at == live_.end()) {
      throw Violation{CUDA_ERROR_INVALID_HANDLE, text("%p is none of the live %s", static_cast<void*>(handle), kind_)};
    }
    return at->second;
  }
  // Handle of an object that is there; null for others.
  Handle handle(const std::shared_ptr<T>& object) const {
    const auto at = std::find_if(live_.begin(), live_.end(), [&](const auto& e) { return e.second == object; });
    return at == live_.end() ? Handle{} : reinterpret_cast<Handle>(at->first);
  }
  bool has(Handle handle) const { return live_.count(reinterpret_cast<uintptr_t>(handle)) != 0; }
  void remove(Handle handle) {
    get(handle);
    live_.erase(reinterpret_cast<uintptr_t>(handle));
    record_.level(kind_, -1);
  }
  size_t size() const { return live_.size(); }
  const char* kind() const { return kind_; }
  void clear() {
    record_.level(kind_, -static_cast<long long>(live_.size()));
    live_.clear();
  }

 private:
  Record& record_;
  const char* kind_;
  uintptr_t next_;
  std::map<uintptr_t, std::shared_ptr<T>> live_;
};

// A conditional node: its value, its body, and where the driver keeps the body's handle.
struct Loop {
  CUgraphConditionalHandle handle;
  unsigned initial, value = 0;
  std::shared_ptr<struct Graph> body;
  CUgraph body_handle = nullptr;
};

struct Graph {
  Ops ops;
  std::vector<std::shared_ptr<Loop>> loops;  // whose conditions belong to it
  CUgraph around = nullptr;                  // of a body: the graph with its node
  bool capturing = false;
  std::weak_ptr<struct GraphExec> exec;  // with loops there is one at a time
};

struct GraphExec {
  Ops ops;
};

struct Driver {
  std::mutex mutex;
  Record record;
  Memory memory{record};
  Streams streams{record, memory};
  Handles<CUstream, Stream> stream_handles{record, "streams", 0x51};
  Handles<CUevent, Event> events{record, "events", 0x52};
  Handles<CUmodule, Module> modules{record, "modules", 0x53};
  Handles<CUfunction, Function> functions{record, "functions", 0x54};
  Handles<CUgraph, Graph> graphs{record, "graphs", 0x55};
  Handles<CUgraphExec, GraphExec> execs{record, "graph_execs", 0x56};
  Conditions conditions;      // of the loops that run
  std::set<CUgraph> damaged;  // whose destruction brings the driver down
  CUgraphConditionalHandle next_condition = 0x57ull << 40;
  bool initialised = false;
  int retained = 0;                // references to the primary context
  uintptr_t context = 0x50 << 20;  // its handle: another one each time it is made

  CUcontext current_context() const;
  void check_device(CUdevice device);
  const std::shared_ptr<Stream>& stream(CUstream handle);
  void synchronise(const std::shared_ptr<Stream>& stream);
  void drop_capture(CUstream handle);  // takes the lock
  void free_body(const std::shared_ptr<Graph>& body);
  void destroy_context();
};

Driver& driver();

enum class Needs { Nothing, Init, Context };

// Counts the call, injects faults, and checks what the call needs.
void enter(Driver& driver, const char* name, Needs needs);

// Runs a driver function's body under the driver's lock; what it throws is the result.
template <class Body>
CUresult call(const char* name, Needs needs, Body&& body) noexcept {
  Driver& d = driver();
  const std::lock_guard lock(d.mutex);
  try {
    enter(d, name, needs);
    body(d);
    return CUDA_SUCCESS;
  } catch (const Violation& v) {
    d.record.log(name, v.text);
    return v.code;
  } catch (const Refusal& r) {
    return r.code;
  } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
}

template <class T>
T& out(T* pointer) {
  if (!pointer) throw Violation{CUDA_ERROR_INVALID_VALUE, "nowhere to put the result"};
  return *pointer;
}

}  // namespace stub
