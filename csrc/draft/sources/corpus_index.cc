#include "draft/sources/corpus_index.h"

#include <algorithm>
#include <climits>
#include <numeric>
#include <string>
#include <utility>

#include "base/error.h"

namespace swiftk {
namespace {

constexpr int kCounted = 64;  // places, evenly spread, that say what follows a run

}  // namespace

CorpusIndex::CorpusIndex(std::vector<int32_t> tokens) : tokens_(std::move(tokens)), order_(tokens_.size()) {
  const bool any = std::any_of(tokens_.begin(), tokens_.end(), [](int32_t t) { return t >= 0; });
  if (!any || tokens_.size() > INT32_MAX) {
    fail(Status::InvalidArgument,
         "[corpus] got " + std::to_string(tokens_.size()) + " tokens, want one of a text at least, and at most 2^31");
  }
  std::iota(order_.begin(), order_.end(), 0);
  const auto at = [&](int32_t place) { return tokens_.begin() + place; };
  const auto end_of = [&](int32_t place) { return at(place) + std::min<size_t>(kLongest, tokens_.size() - place); };
  std::sort(order_.begin(), order_.end(), [&](int32_t a, int32_t b) {
    const auto order = std::lexicographical_compare_three_way(at(a), end_of(a), at(b), end_of(b));
    return order != 0 ? order < 0 : a < b;
  });
}

CorpusIndex::Places CorpusIndex::narrow(Places p, int offset, int32_t wanted) const {
  const auto first = order_.begin() + p.first, end = order_.begin() + p.end;
  const auto before = [&](int32_t at, int32_t t) { return token_after(at, offset) < t; };
  const auto after = [&](int32_t t, int32_t at) { return t < token_after(at, offset); };
  const auto low = std::lower_bound(first, end, wanted, before), high = std::upper_bound(low, end, wanted, after);
  return {static_cast<int32_t>(low - order_.begin()), static_cast<int32_t>(high - order_.begin())};
}

Cursor CorpusIndex::find(std::span<const int32_t> text) const {
  for (int length = static_cast<int>(std::min<size_t>(kLongest, text.size())); length > 0; --length) {
    Places places{0, static_cast<int32_t>(order_.size())};
    for (int i = 0; i < length && !places.none(); ++i) places = narrow(places, i, text[text.size() - length + i]);
    if (!places.none()) return {places.first, length};
  }
  return {};
}

CorpusIndex::Places CorpusIndex::all_of(Cursor c) const {
  const auto same = [&](int32_t place) {
    for (int i = 0; i < c.length; ++i) {
      if (token(place, i) != token(c.at, i)) return false;
    }
    return true;
  };
  int32_t low = c.at, step = 1;
  const int32_t most = static_cast<int32_t>(order_.size());
  while (low + int64_t{step} < most && same(low + step)) low += step, step = std::min(step, INT32_MAX / 4) * 2;
  int32_t high = static_cast<int32_t>(std::min<int64_t>(most, int64_t{low} + step));
  while (low + 1 < high) {
    const int32_t middle = low + (high - low) / 2;
    (same(middle) ? low : high) = middle;
  }
  return {c.at, high};
}

Cursor CorpusIndex::step(Cursor c, int32_t next) const {
  std::vector<int32_t> run;
  if (c.at >= 0) {
    if (c.length < kLongest) {
      const Places places = narrow(all_of(c), c.length, next);
      if (!places.none()) return {places.first, c.length + 1};
    }
    for (int i = 1; i < c.length; ++i) run.push_back(token(c.at, i));
  }
  run.push_back(next);
  return find(run);
}

double CorpusIndex::follow(Cursor c, Proposals& proposals) const {
  if (c.at < 0) return 0;
  const Places places = all_of(c);
  const int64_t n = places.end - places.first, counted = std::min<int64_t>(n, kCounted);
  std::vector<std::pair<int, int32_t>> found;  // how often, and which token: in order of places equal ones are together
  for (int64_t i = 0; i < counted; ++i) {
    const int32_t next = token(places.first + static_cast<int32_t>(i * n / counted), c.length);
    if (next < 0) continue;
    if (found.empty() || found.back().second != next) found.emplace_back(0, next);
    ++found.back().first;
  }
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  for (const auto& [often, next] : found) proposals.add(next);
  return found.empty() ? 0 : static_cast<double>(found[0].first) / counted;
}

}  // namespace swiftk
