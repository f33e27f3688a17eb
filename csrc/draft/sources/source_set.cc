#include "draft/sources/source_set.h"

namespace swiftk {

void SourceSet::use(std::span<const SourceId> ids) {
  active_ = static_cast<int>(ids.size());
  std::copy(ids.begin(), ids.end(), ids_.begin());
  wants_lists_ = false;
  for (const SourceId id : ids) {
    std::unique_ptr<Source>& source = made_[static_cast<int>(id)];
    if (!source) {
      source = make_source(id);
      source->set(settings_);
    }
    wants_lists_ |= source->wants_lists();
  }
}

void SourceSet::set(const SourceSettings& settings) {
  settings_ = settings;
  for (const auto& source : made_) {
    if (source) source->set(settings);
  }
}

void SourceSet::forget() {
  use({});
  for (auto& source : made_) source.reset();
  lists_.clear();
}

void SourceSet::restart(int keep, bool goes_on) {
  if (!goes_on && recall_ == Recall::Nothing) lists_.clear();
  for (const auto& source : made_) {
    if (source) source->restart(keep, recall_ == Recall::All);
  }
}

void SourceSet::follow(std::span<const int32_t> text, std::vector<int32_t> forced, const Expected& expected) {
  text_ = text;
  forced_ = std::move(forced);
  expected_ = expected;
  for (int i = 0; i < active_; ++i) source(i).follow(text);
}

Cursors SourceSet::root() const {
  Cursors cursors;
  for (int i = 0; i < active_; ++i) cursors[i] = source(i).root(known());
  return cursors;
}

Cursors SourceSet::step(const Cursors& from, int32_t token) const {
  Cursors cursors;
  for (int i = 0; i < active_; ++i) cursors[i] = source(i).step(known(), from[i], token);
  return cursors;
}

const ExtraRows& SourceSet::extra_rows() {
  extra_rows_.clear();
  const std::span<const SourceId> used(ids_.data(), active_);
  for (int id = 0; id < kSourceIds && extra_rows_.empty(); ++id) {
    extra_source_ = static_cast<SourceId>(id);
    if (std::find(used.begin(), used.end(), extra_source_) != used.end()) made_[id]->extra_rows(extra_rows_);
  }
  return extra_rows_;
}

void SourceSet::receive(std::span<const int32_t> draws, int32_t next, int taken) {
  made_[static_cast<int>(extra_source_)]->receive(known(), draws, next, taken);
}

}  // namespace swiftk
