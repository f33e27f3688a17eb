// Driver functions: streams and events.
#include "driver.h"

namespace stub {

const std::shared_ptr<Stream>& Driver::stream(CUstream handle) {
  const auto number = reinterpret_cast<uintptr_t>(handle);
  return number <= 1 ? streams.null() : stream_handles.get(handle);  // 1 is CU_STREAM_LEGACY
}

void Driver::synchronise(const std::shared_ptr<Stream>& stream) {
  record.add("syncs");
  streams.reach(streams.end(stream));
  if (streams.failed) throw Refusal{streams.failed};
}

namespace {

void forbid_capturing(Driver& d, Stream& stream) {
  if (!stream.capture) return;
  d.streams.spoil(*stream.capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "the stream is capturing");
}

const std::shared_ptr<Mark>& mark_of(Driver& d, CUevent event) {
  const auto& mark = d.events.get(event)->mark;
  if (mark && mark->captured) throw Violation{CUDA_ERROR_CAPTURED_EVENT, "the event was recorded in a capture"};
  return mark;
}

// Each query lets the device do one operation.
void query(Driver& d, const Point& point) {
  const bool reached = point.stream->done >= point.number;
  if (!reached) d.streams.advance(point);
  if (d.streams.failed) throw Refusal{d.streams.failed};
  if (!reached) throw Refusal{CUDA_ERROR_NOT_READY};
}

CUresult elapsed(const char* name, float* milliseconds, CUevent begin, CUevent end) {
  return call(name, Needs::Context, [&](Driver& d) {
    const auto &from = mark_of(d, begin), &to = mark_of(d, end);
    const bool timed = d.events.get(begin)->timing && d.events.get(end)->timing;
    if (!from || !to || !timed)
      throw Violation{CUDA_ERROR_INVALID_HANDLE, "an event without a record or without timing"};
    for (const auto& mark : {from, to}) {
      if (mark->point.stream->done < mark->point.number) throw Refusal{CUDA_ERROR_NOT_READY};
    }
    out(milliseconds) = std::chrono::duration<float, std::milli>(to->time - from->time).count();
  });
}

}  // namespace
}  // namespace stub

using namespace stub;

EXPORTED CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
  return call("cuStreamCreate", Needs::Context, [&](Driver& d) {
    if (flags & ~kStreamNonBlocking) throw Violation{CUDA_ERROR_INVALID_VALUE, text("flags %#x", flags)};
    out(stream) = d.stream_handles.add(d.streams.create(!(flags & kStreamNonBlocking)));
  });
}

EXPORTED CUresult cuStreamDestroy_v2(CUstream stream) {
  return call("cuStreamDestroy_v2", Needs::Context, [&](Driver& d) {
    d.streams.destroy(d.stream_handles.get(stream));
    d.stream_handles.remove(stream);
  });
}

EXPORTED CUresult cuStreamSynchronize(CUstream stream) {
  return call("cuStreamSynchronize", Needs::Context, [&](Driver& d) {
    const auto& s = d.stream(stream);
    d.streams.forbid_in_capture();
    forbid_capturing(d, *s);
    d.synchronise(s);
  });
}

EXPORTED CUresult cuStreamQuery(CUstream stream) {
  return call("cuStreamQuery", Needs::Context, [&](Driver& d) {
    const auto& s = d.stream(stream);
    d.streams.forbid_in_capture();
    forbid_capturing(d, *s);
    query(d, d.streams.end(s));
  });
}

EXPORTED CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
  return call("cuStreamWaitEvent", Needs::Context, [&](Driver& d) {
    if (flags) throw Violation{CUDA_ERROR_INVALID_VALUE, text("flags %#x", flags)};
    const auto& s = d.stream(stream);
    const auto& mark = d.events.get(event)->mark;
    if (!mark) return;
    if (s->capture || mark->captured) {
      if (s == mark->point.stream && mark->captured) return;  // in order anyway
      throw Violation{CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "the stub captures one stream at a time"};
    }
    d.streams.submit(s, {"wait", nullptr, {mark->point}});
  });
}

EXPORTED CUresult cuEventCreate(CUevent* event, unsigned flags) {
  return call("cuEventCreate", Needs::Context, [&](Driver& d) {
    if (flags & ~3u) throw Violation{CUDA_ERROR_INVALID_VALUE, text("flags %#x", flags)};
    out(event) = d.events.add(std::make_shared<Event>(Event{!(flags & kEventDisableTiming), nullptr}));
  });
}

EXPORTED CUresult cuEventDestroy_v2(CUevent event) {
  return call("cuEventDestroy_v2", Needs::Context, [&](Driver& d) { d.events.remove(event); });
}

EXPORTED CUresult cuEventRecord(CUevent event, CUstream stream) {
  return call("cuEventRecord", Needs::Context, [&](Driver& d) {
    const auto& e = d.events.get(event);
    const auto& s = d.stream(stream);
    const auto mark = std::make_shared<Mark>();
    mark->captured = s->capture != nullptr;
    mark->point = {s, s->given + 1};
    e->mark = mark;
    d.streams.submit(s, {"record", [mark] { mark->time = std::chrono::steady_clock::now(); }, {}});
  });
}

EXPORTED CUresult cuEventSynchronize(CUevent event) {
  return call("cuEventSynchronize", Needs::Context, [&](Driver& d) {
    d.streams.forbid_in_capture();
    d.record.add("syncs");
    if (const auto& mark = mark_of(d, event)) d.streams.reach(mark->point);
    if (d.streams.failed) throw Refusal{d.streams.failed};
  });
}

EXPORTED CUresult cuEventQuery(CUevent event) {
  return call("cuEventQuery", Needs::Context, [&](Driver& d) {
    d.streams.forbid_in_capture();
    if (const auto& mark = mark_of(d, event)) query(d, mark->point);
  });
}

EXPORTED CUresult cuEventElapsedTime(float* milliseconds, CUevent begin, CUevent end) {
  return elapsed("cuEventElapsedTime", milliseconds, begin, end);
}

EXPORTED CUresult cuEventElapsedTime_v2(float* milliseconds, CUevent begin, CUevent end) {
  return elapsed("cuEventElapsedTime_v2", milliseconds, begin, end);
}
