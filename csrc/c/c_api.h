// Shared by the files of the C ABI: the handles, exceptions turned into statuses, checked pointers and sized structs.
#pragma once
#include <algorithm>
#include <atomic>
#include <climits>
#include <cstring>
#include <new>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "c/swiftk.h"
#include "engine/generate.h"

struct swiftk_model {
  std::shared_ptr<const swiftk::Model> model;
  std::vector<int32_t> eos_ids;
  std::atomic<int> references{1};
};

struct swiftk_session {
  swiftk_session(const swiftk_model& model, const swiftk::SessionOptions& options)
      : session(model.model, options), eos_ids(model.eos_ids) {}
  swiftk::Session session;
  std::vector<int32_t> eos_ids;
  swiftk::Planner planner;
  swiftk::GenerateStats stats;
  std::vector<swiftk_token> emitted;
  mutable std::atomic<bool> busy{false};
};

namespace swiftk::c_api {

// Keeps the message for swiftk_last_error() and returns the status.
swiftk_status remember(Status, const char* what) noexcept;

template <class F>
swiftk_status guarded(F&& f) noexcept {
  try {
    f();
    return SWIFTK_OK;
  } catch (const Error& e) {
    return remember(e.status(), e.what());
  } catch (const std::bad_alloc&) {
    return remember(Status::OutOfMemory, "[memory] a buffer could not be allocated");
  } catch (const std::exception& e) {
    return remember(Status::Internal, e.what());
  } catch (...) {
    return remember(Status::Internal, "[swiftk] an exception of unknown type, perhaps thrown by a callback");
  }
}

template <class T>
T& need(T* pointer, const char* name) {
  if (!pointer) fail(Status::InvalidArgument, std::string("[swiftk] ") + name + " is null");
  return *pointer;
}

inline std::span<const int32_t> ids(const int32_t* data, size_t n, const char* name) {
  if (n > INT_MAX)
    fail(Status::InvalidArgument, std::string("[swiftk] ") + name + " has " + std::to_string(n) + " elements");
  if (n > 0) need(data, name);
  return {data, n};
}

inline size_t checked_size(size_t size, const char* name) {
  if (size < sizeof(size_t) || size > 65536) {
    fail(Status::InvalidArgument, std::string("[swiftk] struct_size of ") + name + " is " + std::to_string(size) +
                                      ", want its sizeof (the SWIFTK_*_INIT macros set it)");
  }
  return size;
}

// A host's struct as this library knows it. What an older, shorter one lacks keeps its default; what a newer, longer
// one has and we do not know must be zero, that is unused.
template <class T>
T read(const T* given, T value, const char* name) {
  static_assert(std::is_trivially_copyable_v<T>);
  if (!given) return value;
  const size_t size = checked_size(given->struct_size, name);
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  if (std::any_of(bytes + std::min(size, sizeof(T)), bytes + size, [](unsigned char b) { return b != 0; })) {
    fail(Status::Unsupported, std::string("[swiftk] ") + name + " sets a field that this library, ABI " +
                                  std::to_string(SWIFTK_ABI_VERSION) + ", does not know");
  }
  std::memcpy(&value, given, std::min(size, sizeof(T)));
  return value;
}

template <class T>
void write(T* given, T value, const char* name) {
  const size_t size = checked_size(need(given, name).struct_size, name);
  value.struct_size = size;
  std::memcpy(given, &value, std::min(size, sizeof(T)));
}

// Holds a session for one call: a second thread, or a callback that calls back, gets an error instead of a race.
class Use {
 public:
  explicit Use(const swiftk_session* session) : session_(need(session, "session")) {
    if (session_.busy.exchange(true, std::memory_order_acquire)) {
      fail(Status::InvalidArgument, "[swiftk] another call with this session is under way");
    }
  }
  ~Use() { session_.busy.store(false, std::memory_order_release); }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

 private:
  const swiftk_session& session_;
};

template <class F>
swiftk_status with(swiftk_session* session, F&& f) noexcept {
  return guarded([&] {
    const Use use(session);
    f(*session);
  });
}

template <class F>
swiftk_status with(const swiftk_session* session, F&& f) noexcept {
  return guarded([&] {
    const Use use(session);
    f(*session);
  });
}

GenerateOptions generate_options(const swiftk_generate_params*, const std::vector<int32_t>& eos_ids);
Sampling sampling_of(const swiftk_sampling&);
Acceptance acceptance_of(const swiftk_sampling&);
DraftSpec draft_spec(const swiftk_skip*);
TreeRule tree_rule(const swiftk_draft_rule*);
uint32_t flags_of(const Emitted&, Origin);

}  // namespace swiftk::c_api
