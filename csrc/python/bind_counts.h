// An engine's counts, as dictionaries of Python.
#pragma once
#include <pybind11/pybind11.h>

#include "engine/engine.h"

namespace swiftk {

namespace py = pybind11;

inline py::dict counts(const Round& r) {
  using namespace py::literals;
  return py::dict("sequences"_a = r.sequences, "prompts"_a = r.prompts, "nodes"_a = r.nodes,
                  "prompt_rows"_a = r.prompt_rows, "tokens"_a = r.tokens, "seconds"_a = r.seconds, "draft"_a = r.draft,
                  "verify"_a = r.verify, "run"_a = r.run, "draft_steps"_a = r.draft_steps, "preempted"_a = r.preempted,
                  "waiting"_a = r.waiting);
}

inline py::dict counts(const Totals& t) {
  using namespace py::literals;
  return py::dict("submitted"_a = t.submitted, "stopped"_a = t.stopped, "full"_a = t.full, "cancelled"_a = t.cancelled,
                  "failed"_a = t.failed, "preempted"_a = t.preempted, "prefix_queries"_a = t.prefix_queries,
                  "prefix_hits"_a = t.prefix_hits, "queued_seconds"_a = t.queued);
}

inline py::dict counts(const KvUse& u) {
  using namespace py::literals;
  return py::dict("bytes"_a = u.bytes, "used_bytes"_a = u.held_bytes, "resident_bytes"_a = u.resident_bytes,
                  "blocks"_a = u.blocks, "used_blocks"_a = u.held, "cached_blocks"_a = u.cached,
                  "block_tokens"_a = kKvBlock);
}

}  // namespace swiftk
