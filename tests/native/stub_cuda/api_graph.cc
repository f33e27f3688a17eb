// Driver functions: stream capture and graphs. A graph is a list of operations with the arguments they were captured
// with; an operation may be a loop over those of another graph, its body.
#include <algorithm>

#include "driver.h"

namespace stub {
namespace {

constexpr int kConditionalNode = 13, kWhile = 1;
constexpr unsigned kAssignDefault = 1;

// As `begin` and its relatives: the stream starts to capture, into a graph that is there or a new one.
void begin_capture(Driver& d, CUstream stream, int mode, std::shared_ptr<Graph> into) {
  const auto& s = d.stream(stream);
  if (mode < kCaptureGlobal || mode > kCaptureRelaxed) throw Violation{CUDA_ERROR_INVALID_VALUE, text("mode %d", mode)};
  if (s == d.streams.null()) throw Violation{CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "the null stream cannot capture"};
  if (s->capture) throw Violation{CUDA_ERROR_ILLEGAL_STATE, "the stream is capturing already"};
  if (into) into->capturing = true;
  s->capture = std::make_unique<Capture>(Capture{mode, std::this_thread::get_id(), false, {}, std::move(into)});
  d.record.add("captures");
}

// A node that runs its body as long as a kernel in it wants to: by default it does at every launch of its graph.
Op loop_op(Driver& d, const std::shared_ptr<Loop>& loop, const std::weak_ptr<Graph>& of) {
  const auto begin = [&d, loop, of] {
    if (of.expired())
      throw Violation{CUDA_ERROR_ILLEGAL_ADDRESS, "the graph that its condition belongs to was destroyed"};
    loop->value = loop->initial;
    d.conditions[loop->handle] = [loop](unsigned value) { loop->value = value; };
  };
  const auto again = [&d, loop] {
    if (loop->value) {
      d.record.add("loop_rounds");
    } else {
      d.conditions.erase(loop->handle);
    }
    return loop->value != 0;
  };
  Op op{"loop", begin, {}};
  op.parts = {loop->body, &loop->body->ops};
  op.again = again;
  return op;
}

bool overlaps(const Ops& ops) {
  return std::any_of(ops.begin(), ops.end(), [](const Op& op) { return op.early; });
}

// Early launches in the body of a loop, which may be refused at any of these points.
void check_edges(Driver& d, const Ops& graph, Refused here) {
  if (d.record.get("refused_edges") != here) return;
  for (const Op& op : graph) {
    if (op.again && overlaps(*op.parts)) throw Refusal{CUDA_ERROR_NOT_SUPPORTED};
  }
}

}  // namespace

void Driver::drop_capture(CUstream handle) {
  const std::lock_guard lock(mutex);
  if (!stream_handles.has(handle)) return;
  auto& capture = stream_handles.get(handle)->capture;
  if (capture && capture->into) free_body(capture->into);
  capture.reset();
}

// A body whose capture fails is freed with it, though the graph around it has it still: to destroy that one would free
// it once more (github.com/NVIDIA/cuda-python/issues/2918). So nobody has to.
void Driver::free_body(const std::shared_ptr<Graph>& body) {
  body->capturing = false;
  if (!body->around || damaged.count(body->around)) return;
  record.add("damaged_graphs");
  damaged.insert(body->around);
  graphs.remove(graphs.handle(body));
  graphs.remove(body->around);
}

}  // namespace stub

using namespace stub;

EXPORTED CUresult cuStreamBeginCapture_v2(CUstream stream, int mode) {
  return call("cuStreamBeginCapture_v2", Needs::Context, [&](Driver& d) { begin_capture(d, stream, mode, nullptr); });
}

EXPORTED CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode*, const void*,
                                              size_t count, int mode) {
  return call("cuStreamBeginCaptureToGraph", Needs::Context, [&](Driver& d) {
    const auto& into = d.graphs.get(graph);
    if (count) throw Violation{CUDA_ERROR_INVALID_VALUE, "the stub captures behind no nodes"};
    if (into->capturing) throw Violation{CUDA_ERROR_ILLEGAL_STATE, "the graph takes another capture"};
    begin_capture(d, stream, mode, into);
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
    if (s->capture->into && d.record.get("refused_edges") == kAtEnd && overlaps(s->capture->ops)) {
      throw Refusal{CUDA_ERROR_NOT_SUPPORTED};
    }
    if (s->capture->broken) throw Refusal{CUDA_ERROR_STREAM_CAPTURE_INVALIDATED};
    const auto capture = std::move(s->capture);
    if (capture->into) {
      capture->into->capturing = false;
      for (Op& op : capture->ops) capture->into->ops.push_back(std::move(op));
      *graph = d.graphs.handle(capture->into);
      return;
    }
    *graph = d.graphs.add(std::make_shared<Graph>(Graph{std::move(capture->ops), {}, nullptr, false, {}}));
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

EXPORTED CUresult cuGraphCreate(CUgraph* graph, unsigned flags) {
  return call("cuGraphCreate", Needs::Context, [&](Driver& d) {
    if (flags) throw Violation{CUDA_ERROR_INVALID_VALUE, "flags must be 0"};
    out(graph) = d.graphs.add(std::make_shared<Graph>());
  });
}

EXPORTED CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle* handle, CUgraph graph, CUcontext context,
                                                 unsigned value, unsigned flags) {
  return call("cuGraphConditionalHandleCreate", Needs::Context, [&](Driver& d) {
    const auto& g = d.graphs.get(graph);
    if (context != d.current_context()) throw Violation{CUDA_ERROR_INVALID_CONTEXT, "not the current context"};
    if (flags != kAssignDefault) throw Violation{CUDA_ERROR_INVALID_VALUE, "the stub assigns the default"};
    out(handle) = d.next_condition += 16;
    g->loops.push_back(std::make_shared<Loop>(Loop{*handle, value, 0, nullptr, nullptr}));
  });
}

EXPORTED CUresult cuGraphAddNode_v2(CUgraphNode* node, CUgraph graph, const CUgraphNode*, const void*, size_t count,
                                    CUgraphNodeParams* params) {
  return call("cuGraphAddNode_v2", Needs::Context, [&](Driver& d) {
    const auto& g = d.graphs.get(graph);
    const CUgraphNodeParams& p = out(params);
    if (p.type != kConditionalNode || p.kind != kWhile || p.size != 1 || count)
      throw Violation{CUDA_ERROR_INVALID_VALUE, "the stub adds loops of one body behind nothing"};
    for (const long long rest : p.padding) {
      if (rest) throw Violation{CUDA_ERROR_INVALID_VALUE, "what is reserved must be 0"};
    }
    const auto at = std::find_if(g->loops.begin(), g->loops.end(), [&](auto& l) { return l->handle == p.handle; });
    if (at == g->loops.end() || p.context != d.current_context())
      throw Violation{CUDA_ERROR_INVALID_VALUE, "the handle is of another graph or context"};
    const std::shared_ptr<Loop> loop = *at;
    if (loop->body) throw Violation{CUDA_ERROR_INVALID_VALUE, "the handle has a node already"};
    loop->body = std::make_shared<Graph>();
    loop->body->around = graph;
    loop->body_handle = d.graphs.add(loop->body);
    params->bodies = &loop->body_handle;
    g->ops.push_back(loop_op(d, loop, g));
    out(node) = reinterpret_cast<CUgraphNode>(reinterpret_cast<uintptr_t>(graph) + g->ops.size());
  });
}

EXPORTED CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long flags) {
  return call("cuGraphInstantiateWithFlags", Needs::Context, [&](Driver& d) {
    if (flags & ~15ull) throw Violation{CUDA_ERROR_INVALID_VALUE, text("flags %#llx", flags)};
    const auto& g = d.graphs.get(graph);
    if (g->around) throw Violation{CUDA_ERROR_INVALID_VALUE, "the body of a loop"};
    if (!g->loops.empty() && !g->exec.expired())
      throw Violation{CUDA_ERROR_INVALID_VALUE, "a graph with a condition is instantiated once at a time"};
    for (const auto& loop : g->loops) {
      if (!loop->body) throw Violation{CUDA_ERROR_INVALID_VALUE, "a condition without a node"};
      if (loop->body->capturing) throw Violation{CUDA_ERROR_ILLEGAL_STATE, "its body is being captured"};
    }
    check_edges(d, g->ops, kAtInstantiation);
    const auto made = std::make_shared<GraphExec>(GraphExec{g->ops});
    g->exec = made;
    out(exec) = d.execs.add(made);
    d.record.add("instantiations");
  });
}

EXPORTED CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  return call("cuGraphLaunch", Needs::Context, [&](Driver& d) {
    const auto graph = d.execs.get(exec);
    const auto& s = d.stream(stream);
    if (s->capture) d.streams.spoil(*s->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "the stub nests no graphs");
    check_edges(d, graph->ops, kAtGraphLaunch);
    Op op{"graph", [&d] { d.record.add("graph_launches"); }, {}};
    op.parts = {graph, &graph->ops};
    d.streams.submit(s, std::move(op));
  });
}

EXPORTED CUresult cuGraphDestroy(CUgraph graph) {
  return call("cuGraphDestroy", Needs::Context, [&](Driver& d) {
    if (d.damaged.count(graph)) throw Violation{CUDA_ERROR_UNKNOWN, "its body was freed: a driver crashes here"};
    const auto g = d.graphs.get(graph);
    if (g->around) throw Violation{CUDA_ERROR_INVALID_VALUE, "the body of a loop goes with the graph around it"};
    for (const auto& loop : g->loops) {
      if (loop->body) d.graphs.remove(loop->body_handle);
    }
    d.graphs.remove(graph);
  });
}

EXPORTED CUresult cuGraphExecDestroy(CUgraphExec exec) {
  return call("cuGraphExecDestroy", Needs::Context, [&](Driver& d) { d.execs.remove(exec); });
}
