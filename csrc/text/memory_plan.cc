#include "text/memory_plan.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/machine.h"
#include "draft/token_tree.h"
#include "files/mapped_file.h"
#include "model/draft_model.h"
#include "text/kv_memory.h"

namespace swiftk {
namespace {

constexpr size_t kAhead = size_t{16} << 20;      // bytes read ahead, beside the matrix in use and the next one
constexpr size_t kUnplanned = size_t{16} << 20;  // for texts, their statistics, and rows of the embedding
constexpr int kLeastContext = 512;               // tokens of a text, where a host names none
// K and V, and rows under way, have this part of what is left at most, where a host does not name them.
constexpr size_t kShare = 8;

// Of a row of a pass, with its logits.
size_t row_bytes(const Config& c) { return sizeof(float) * (2 * size_t(c.H) * c.d + c.F + 3 * size_t(c.D) + c.V); }

// The least and the most that K and V are to have.
std::pair<size_t, size_t> kv_wanted(const Model& m, const LoadOptions& o) {
  if (o.kv_memory > 0) return {o.kv_memory, o.kv_memory};
  const int context = o.context > 0 ? o.context : m.config.max_position;
  const auto bytes = [&](int blocks) { return kv_bytes_in_all(m, shared_room(m, blocks, o.sequences)); };
  const int least = o.context > 0 ? context : std::min(context, kLeastContext);
  return {bytes(whole_blocks(least)), bytes(wanted_blocks(context, o.sequences))};
}

std::string megabytes(size_t bytes) { return std::to_string(bytes / 1'000'000) + " MB"; }

[[noreturn]] void too_little(const MemoryPlan& plan, size_t need, bool streams) {
  fail(Status::OutOfMemory, "[load] memory is " + std::to_string(plan.limit) + " bytes, want at least " +
                                std::to_string(need) + " bytes: this process has " + megabytes(plan.process) +
                                ", drafts need " + megabytes(plan.drafts) + ", the head " + megabytes(plan.head) +
                                ", K and V " + megabytes(plan.kv) + ", rows under way " + megabytes(plan.work) +
                                (streams ? ", weights that are read ahead " + megabytes(plan.ahead)
                                         : ", layers " + megabytes(plan.layers) +
                                               "; a converted model (`swiftk "
                                               "convert`) is read from disk where it does not fit"));
}

}  // namespace

MemoryPlan plan_memory(const Model& m, const LoadOptions& o, size_t there) {
  if (m.ops->device) {
    if (o.memory == 0) return {};
    fail(Status::Unsupported, "[load] memory is " + std::to_string(o.memory) + ", which needs the CPU");
  }
  MemoryPlan plan;
  const size_t fits = available_memory() + std::min(resident_memory(), there), own = m.own.bytes;
  for (const Weights& copy : m.copies) plan.drafts += copy.bytes;
  for (const auto& its : m.draft_models) plan.drafts += o.survey ? its->bytes : 0;  // else a part of the process
  plan.drafts += o.survey ? m.trimmed.bytes : 0;
  plan.head = m.own.head_bytes;
  plan.layers = own - plan.head;
  if (o.memory == 0 && own + plan.drafts <= fits) return {};
  trim_heap();
  for (const auto& file : m.mappings) file->drop({file->data(), file->size()});
  const size_t before = resident_memory();
  plan.process = before - std::min(before, there);
  plan.limit = o.memory > 0 ? o.memory : plan.process + fits - fits / 16;  // the system has a use for some
  const auto [least_kv, most_kv] = kv_wanted(m, o);
  const size_t row = row_bytes(m.config);
  plan.kv = least_kv;
  plan.rows = 2 * std::max(TokenTree::kMaxNodes, o.sequences);  // as many of prompts as of trees
  plan.work = plan.rows * row + kUnplanned + o.sequences * sizeof(int32_t) * m.config.V;
  plan.ahead = m.own.largest + std::min(kAhead, plan.layers / 8);
  const size_t beside = plan.process + plan.drafts + plan.head + plan.kv + plan.work;
  const bool streams = m.converted || o.survey;
  const size_t need = beside + (streams ? std::min(plan.ahead, plan.layers) : plan.layers);
  if (need > plan.limit && o.survey && o.memory == 0) {
    plan.streamed = std::exchange(plan.layers, 0);
    return plan;
  }
  if (need > plan.limit) too_little(plan, need, streams);
  size_t left = plan.limit - beside;
  const auto take = [&](size_t& part, size_t bytes) { part += bytes, left -= bytes; };
  const size_t share = (plan.limit - need) / kShare;
  take(plan.kv, std::min(most_kv - std::min(most_kv, least_kv), share));
  const int more = static_cast<int>(std::min<size_t>(kPromptRows - plan.rows, share / row));
  plan.rows += more;
  take(plan.work, more * row);
  if (left >= plan.layers) {
    plan.ahead = 0;
    return plan;
  }
  plan.ahead = std::min(left, plan.ahead + m.own.largest);
  plan.streamed = plan.layers - (left - plan.ahead);
  plan.layers -= plan.streamed;
  return plan;
}

}  // namespace swiftk
