#include "sources.h"

namespace swiftk {
namespace {

constexpr int kRecalled = 1 << 20;  // tokens of earlier texts that are too many

}  // namespace

void Sources::use(std::span<const SourceId> ids) {
  active_ = static_cast<int>(ids.size());
  std::copy(ids.begin(), ids.end(), ids_.begin());
}

bool Sources::uses(SourceId id) const {
  const auto end = ids_.begin() + active_;
  return std::find(ids_.begin(), end, id) != end;
}

void Sources::set(const SourceSettings& settings) {
  settings_ = settings;
  pool_.set(settings.lookahead);
  jacobi_.set(settings.parallel);
}

void Sources::forget() {
  suffixes_.clear();
  recycler_.clear();
  pool_.clear();
  jacobi_.clear();
  known_ = 0;
}

// An automaton forgets nothing but all: what was kept of the text is taken in again.
void Sources::restart(int keep, bool goes_on) {
  pool_.clear();
  jacobi_.clear();
  if (!goes_on && recall_ == Recall::Nothing) recycler_.clear();
  if (keep >= known_) return;
  known_ = 0;
  if (recall_ == Recall::All && suffixes_.size() < kRecalled) {
    suffixes_.separate();
  } else {
    suffixes_.clear();
  }
}

void Sources::follow(std::span<const int32_t> text) {
  text_ = text;
  if (uses(SourceId::Suffix)) {
    while (known_ < static_cast<int>(text.size())) suffixes_.append(text[known_++]);
  }
  if (uses(SourceId::Lookahead) && !pool_.started()) pool_.start(text);
  if (uses(SourceId::Parallel) && !jacobi_.started()) jacobi_.start(text);
}

Cursors Sources::root() const {
  Cursors cursors;
  for (int i = 0; i < active_; ++i) {
    switch (ids_[i]) {
      case SourceId::Suffix: cursors[i] = suffixes_.root(); break;
      case SourceId::Recycle: cursors[i] = recycler_.step(text_.back()); break;
      case SourceId::Lookup: cursors[i] = PromptLookup::root(text_, settings_.lookup); break;
      case SourceId::Lookahead: cursors[i] = pool_.root(text_.back()); break;
      case SourceId::Template: cursors[i] = TemplateTree::root(text_.back()); break;
      default: break;
    }
  }
  return cursors;
}

Cursors Sources::step(const Cursors& from, int32_t token) const {
  Cursors cursors;
  for (int i = 0; i < active_; ++i) {
    switch (ids_[i]) {
      case SourceId::Suffix: cursors[i] = suffixes_.step(from[i], token); break;
      case SourceId::Recycle: cursors[i] = recycler_.step(token); break;
      case SourceId::Lookup: cursors[i] = PromptLookup::step(text_, settings_.lookup, from[i], token); break;
      case SourceId::Lookahead: cursors[i] = pool_.step(from[i], token); break;
      case SourceId::Template: cursors[i] = TemplateTree::step(recycler_, from[i], token); break;
      default: break;
    }
  }
  return cursors;
}

void Sources::guess(int i, const Cursors& at, const Sampling& sampling, int32_t pos, Guesses& guesses) const {
  switch (ids_[i]) {
    case SourceId::Suffix: return suffixes_.guess(at[i], settings_.suffix, guesses);
    case SourceId::Recycle: return recycler_.guess(at[i], sampling, pos, guesses);
    case SourceId::Lookup: return PromptLookup::guess(text_, at[i], guesses);
    case SourceId::Lookahead: return pool_.guess(at[i], guesses);
    case SourceId::Template: return TemplateTree::guess(recycler_, at[i], guesses);
    default: return guesses.start(0);
  }
}

const Scouts& Sources::scouts() {
  scouts_.clear();
  if (scouting() == SourceId::Lookahead) pool_.scouts(scouts_);
  if (scouting() == SourceId::Parallel) jacobi_.scouts(scouts_);
  return scouts_;
}

void Sources::learn(int32_t root, int32_t root_draw, std::span<const int32_t> draws, int taken) {
  if (scouting() == SourceId::Lookahead) pool_.learn(root, root_draw, draws);
  if (scouting() == SourceId::Parallel) jacobi_.learn(draws, taken);
}

}  // namespace swiftk
