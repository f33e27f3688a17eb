// Driver functions: stream capture and graphs. A graph is a list of operations with the arguments they were captured
// with.
#include "driver.h"

namespace stub {

void Driver::drop_capture(CUstream handle) {
  const std::lock_guard lock(mutex);
  if (stream_handles.has(handle)) stream_handles.get(handle)->capture.reset();
}

}  // namespace stub

using namespace stub;

EXPORTED CUresult cuStreamBeginCapture_v2(CUstream stream, int mode) {
  return call("cuStreamBeginCapture_v2", Needs::Context, [&](Driver& d) {
    const auto& s = d.stream(stream);
    if (mode < kCaptureGlobal || mode > kCaptureRelaxed)
      throw Violation{CUDA_ERROR_INVALID_VALUE, text("mode %d", mode)};
    if (s == d.streams.null()) throw Violation{CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "the null stream cannot capture"};
    if (s->capture) throw Violation{CUDA_ERROR_ILLEGAL_STATE, "the stream is capturing already"};
    s->capture = std::make_unique<Capture>(Capture{mode, std::this_thread::get_id(), false, {}});
    d.record.add("captures");
  });
}

// A capture is over however its end fails, but for the wrong thread.
EXPORTED CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  const CUresult result = call("cuStreamEndCapture", Needs::Context, [&](Driver& d) {
    out(graph) = nullptr;
    const auto& s = d.stream(stream);
    if (!s->capture) throw Violation{CUDA_ERROR_ILLEGAL_STATE, "the stream is not capturing"};
    if (s->capture->mode != kCaptureRelaxed && s->capture->thread != std::this_thread::get_id()) {
      throw Violation{CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, "another thread began the capture"};
    }
    const auto capture = std::move(s->capture);
    if (capture->broken) throw Refusal{CUDA_ERROR_STREAM_CAPTURE_INVALIDATED};
    *graph = d.graphs.add(std::make_shared<Graph>(Graph{std::move(capture->ops)}));
  });
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD) driver().drop_capture(stream);
  return result;
}

EXPORTED CUresult cuStreamIsCapturing(CUstream stream, int* status) {
  return call("cuStreamIsCapturing", Needs::Context, [&](Driver& d) {
    const auto& capture = d.stream(stream)->capture;
    out(status) = !capture ? 0 : capture->broken ? 2 : 1;
  });
}

EXPORTED CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode* nodes, size_t* count) {
  return call("cuGraphGetNodes", Needs::Context, [&](Driver& d) {
    const size_t size = d.graphs.get(graph)->ops.size();
    for (size_t i = 0; nodes && i < out(count); ++i) {
      nodes[i] = i < size ? reinterpret_cast<CUgraphNode>(reinterpret_cast<uintptr_t>(graph) + 1 + i) : nullptr;
    }
    out(count) = nodes ? std::min(*count, size) : size;
  });
}

EXPORTED CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long flags) {
  return call("cuGraphInstantiateWithFlags", Needs::Context, [&](Driver& d) {
    if (flags & ~15ull) throw Violation{CUDA_ERROR_INVALID_VALUE, text("flags %#llx", flags)};
    out(exec) = d.execs.add(std::make_shared<GraphExec>(GraphExec{d.graphs.get(graph)->ops}));
    d.record.add("instantiations");
  });
}

EXPORTED CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  return call("cuGraphLaunch", Needs::Context, [&](Driver& d) {
    const auto graph = d.execs.get(exec);
    const auto& s = d.stream(stream);
    if (s->capture) d.streams.spoil(*s->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "the stub nests no graphs");
    Op op{"graph", [&d] { d.record.add("graph_launches"); }, {}};
    op.parts = {graph, &graph->ops};
    d.streams.submit(s, std::move(op));
  });
}

EXPORTED CUresult cuGraphDestroy(CUgraph graph) {
  return call("cuGraphDestroy", Needs::Context, [&](Driver& d) { d.graphs.remove(graph); });
}

EXPORTED CUresult cuGraphExecDestroy(CUgraphExec exec) {
  return call("cuGraphExecDestroy", Needs::Context, [&](Driver& d) { d.execs.remove(exec); });
}
