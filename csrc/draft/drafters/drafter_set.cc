#include "draft/drafters/drafter_set.h"

namespace swiftk {

void DrafterSet::use(std::span<const SourceId> ids) {
  active_ = static_cast<int>(ids.size());
  std::copy(ids.begin(), ids.end(), ids_.begin());
  wants_lists_ = false;
  for (const SourceId id : ids) {
    std::unique_ptr<Drafter>& drafter = made_[static_cast<int>(id)];
    if (!drafter) {
      drafter = make_drafter(id);
      drafter->set(settings_);
    }
    wants_lists_ |= drafter->wants_lists();
  }
}

void DrafterSet::set(const SourceSettings& settings) {
  settings_ = settings;
  for (const auto& drafter : made_) {
    if (drafter) drafter->set(settings);
  }
}

void DrafterSet::forget() {
  use({});
  for (auto& drafter : made_) drafter.reset();
  lists_.clear();
}

void DrafterSet::restart(int keep, bool goes_on) {
  if (!goes_on && recall_ == Recall::Nothing) lists_.clear();
  for (const auto& drafter : made_) {
    if (drafter) drafter->restart(keep, recall_ == Recall::All);
  }
}

void DrafterSet::follow(std::span<const int32_t> text, std::vector<int32_t> forced, std::span<const int32_t> proposed) {
  text_ = text;
  forced_ = std::move(forced);
  proposed_ = proposed;
  for (int i = 0; i < active_; ++i) drafter(i).follow(text);
}

Cursors DrafterSet::root() const {
  Cursors cursors;
  for (int i = 0; i < active_; ++i) cursors[i] = drafter(i).root(known());
  return cursors;
}

Cursors DrafterSet::step(const Cursors& from, int32_t token) const {
  Cursors cursors;
  for (int i = 0; i < active_; ++i) cursors[i] = drafter(i).step(known(), from[i], token);
  return cursors;
}

const ExtraRows& DrafterSet::extra_rows() {
  extra_rows_.clear();
  const std::span<const SourceId> used(ids_.data(), active_);
  for (int id = 0; id < kSourceIds && extra_rows_.empty(); ++id) {
    extra_source_ = static_cast<SourceId>(id);
    if (std::find(used.begin(), used.end(), extra_source_) != used.end()) made_[id]->extra_rows(extra_rows_);
  }
  return extra_rows_;
}

void DrafterSet::receive(std::span<const int32_t> draws, int32_t next, int taken) {
  made_[static_cast<int>(extra_source_)]->receive(known(), draws, next, taken);
}

}  // namespace swiftk
