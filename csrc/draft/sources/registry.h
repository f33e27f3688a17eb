// All sources of tokens. A source that costs no step of a model is a line here and a file of that name beside it.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

// The order numbers them, for hosts, too: a new one stands at the end. Hosts and Python read names here.
#define SWIFTK_EACH_SOURCE(X) \
  X(Suffix, suffix)           \
  X(Recycle, recycle)         \
  X(Lookup, lookup)           \
  X(Lookahead, lookahead)     \
  X(Parallel, parallel)       \
  X(Template, template)       \
  X(Grammar, grammar)         \
  X(Host, host)               \
  X(Corpus, corpus)

namespace swiftk {

// Target: the whole model's own, Plan: the draft plan's.
#define SWIFTK_ID(id, name) id,
enum class SourceId : uint8_t { Target, Plan, SWIFTK_EACH_SOURCE(SWIFTK_ID) };
#undef SWIFTK_ID
#define SWIFTK_ONE(id, name) +1
inline constexpr int kSourceIds = 2 SWIFTK_EACH_SOURCE(SWIFTK_ONE);
#undef SWIFTK_ONE

// A list of proposals is as long as this, and as many words say how sure its source is of it.
inline constexpr int kProposalBuckets = 16, kProposalRanks = 8;

inline constexpr int kMostSources = 4;  // that are asked at a time

// How often proposals are right before any was seen: the best by a line through logits, over buckets; the others share
// what it leaves.
struct Trust {
  float level, slope, second, ratio;
};

class Source;

#define SWIFTK_MAKE(id, name) std::unique_ptr<Source> make_##name();
SWIFTK_EACH_SOURCE(SWIFTK_MAKE)
#undef SWIFTK_MAKE

std::unique_ptr<Source> make_source(SourceId);
// None: as its paper has it, all that it proposes is taken, whatever rows cost.
std::optional<Trust> trust_of(SourceId);
const char* name_of(SourceId);
// By name: the plan or a source. Throws Error(InvalidArgument) for another one.
SourceId source_named(const std::string& name);

}  // namespace swiftk
