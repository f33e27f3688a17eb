// Attention: splits of fixed absolute positions, tile by tile with the softmax kept up as it goes, merged in order. A
// query row is computed on its own; tiles of which it sees nothing change nothing and are passed over.
#include <cmath>

#include "kernels.h"
#include "ops.h"

namespace stub {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Splits {
  int64_t keys, begin;
};
constexpr Splits kSplits[] = {{1024, 32768}, {512, 4096}, {256, 0}};

int64_t split_start(int64_t s) {
  int64_t at = 0;
  for (; s > 0; --s) at += std::find_if(kSplits, std::end(kSplits), [&](Splits x) { return at >= x.begin; })->keys;
  return at;
}

struct State {
  explicit State(int d) : acc(d) {}
  float m = -kInfinity, l = 0;
  std::vector<float> acc;
};

void merge(State& to, const float* acc, float m, float l) {
  if (l == 0) return;
  const float top = std::max(to.m, m), keep = std::exp(to.m - top), take = std::exp(m - top);
  to.m = top;
  to.l = to.l * keep + l * take;
  for (size_t i = 0; i < to.acc.size(); ++i) to.acc[i] = to.acc[i] * keep + acc[i] * take;
}

constexpr int kFar = 1 << 30, kInBlock = swiftk::kKvBlock;

// The kernels that read the cache share this. Views, tables, q, K and V are neighbours among the arguments.
class Attention {
 public:
  Attention(const Launch& launch, int pos, int views, int window)
      : H(launch.constant("H")),
        KV(launch.constant("KV")),
        HD(launch.constant("HD")),
        keys(launch.constant("KEYS")),
        launch_(launch),
        window_(launch.int32(window)),
        scale_(static_cast<float>(launch.number("SCALE"))),
        pos_(launch.span<const int32_t>(pos)),
        views_(launch.span<const int32_t>(views)),
        tables_(launch.span<const int32_t>(views + 1)),
        q_(launch.elements(views + 2)),
        k_(launch.elements(views + 3)),
        v_(launch.elements(views + 4)),
        query_(HD),
        key_(HD) {}

  int prefix(int row) const { return views_[4 * row]; }
  int scratch(int row) const { return views_[4 * row + 1]; }
  // The end of the keys that a row's sequence has at slot == position: in whole tiles, where it is a tree.
  int64_t shared_end(int row) const { return prefix(row) < kFar ? prefix(row) / keys * keys : INT64_MAX; }
  int position(int row) const { return pos_[row]; }

  // A head of a row goes on over a split's positions from `begin` on, up to `limit`; `slot` of a position is its key's.
  template <class Slot>
  void go_on(State& state, int row, int head, int64_t s, int64_t begin, int64_t limit, Slot slot) {
    q_.read((size_t(row) * H + head) * HD, HD, query_.data());
    const int64_t end = std::min({split_start(s + 1), int64_t{pos_[row]} + 1, limit});
    for (int64_t p = std::max(split_start(s), begin); p < end; p += keys)
      step(state, row, head / (H / KV), p, std::min(p + keys, end), slot);
  }

  // A split of which all keys are at slot == position.
  State split(int row, int head, int64_t s, int64_t limit = INT64_MAX) {
    State state(HD);
    go_on(state, row, head, s, 0, limit, [](int64_t p) { return p; });
    return state;
  }

  const int H, KV, HD, keys;

 private:
  template <class Slot>
  void step(State& state, int row, int kv_head, int64_t begin, int64_t end, Slot slot) {
    at_.clear();
    score_.clear();
    float top = state.m;
    if (window_ > 0) begin = std::max(begin, int64_t{pos_[row]} - window_ + 1);
    for (int64_t p = begin; p < end; ++p) {
      const size_t there = slot(p), block = tables_[views_[4 * row + 2] + there / kInBlock];
      at_.push_back(((block * kInBlock + there % kInBlock) * KV + kv_head) * HD);
      k_.read(at_.back(), HD, key_.data());
      float sum = 0;
      for (int i = 0; i < HD; ++i) sum += query_[i] * key_[i];
      score_.push_back(sum * scale_);
      top = std::max(top, score_.back());
    }
    if (at_.empty()) return;
    const float alpha = top == -kInfinity ? 1 : std::exp(state.m - top);
    float sum = 0;
    for (float& s : score_) sum += s = std::exp(s - top);
    state.l = state.l * alpha + sum;
    state.m = top;
    for (float& a : state.acc) a *= alpha;
    for (size_t j = 0; j < at_.size(); ++j) {
      v_.read(at_[j], HD, key_.data());
      const float p = rounded(score_[j], launch_.type());
      for (int i = 0; i < HD; ++i) state.acc[i] += p * key_[i];
    }
  }

  const Launch& launch_;
  const int window_;
  const float scale_;
  const Span<const int32_t> pos_, views_, tables_;
  const Elements q_, k_, v_;
  std::vector<float> query_, key_, score_;  // score_ and at_: of a tile's keys
  std::vector<size_t> at_;                  // their first elements in the cache
};

// acc [rows, H, splits, HD] and ml [rows, H, splits, 2].
size_t part(int H, int splits, size_t row, int head, int s) { return (row * H + head) * splits + s; }

void store(const Elements& out, size_t head, const State& state) {
  const size_t d = state.acc.size();
  for (size_t i = 0; i < d; ++i) out.set(head * d + i, state.acc[i] / state.l);
}

}  // namespace

namespace {

// Calls does(row, head) for every query of every tile. A tile is of one sequence.
template <class Does>
void each_query(const Launch& launch, const Attention& attention, Does does) {
  const Span<const int32_t> tiles = launch.span<const int32_t>(0), views = launch.span<const int32_t>(2);
  const int group = attention.H / attention.KV, most = launch.constant("QROWS");
  launch.expect(1, attention.KV);
  for (unsigned tile = 0; tile < launch.grid[0]; ++tile) {
    const int begin = tiles[2 * tile], end = tiles[2 * tile + 1];
    if (end - begin > most) throw Violation{CUDA_ERROR_LAUNCH_FAILED, text("tile %u has %d rows", tile, end - begin)};
    for (int r = begin; r < end; ++r) {
      for (int i = 0; i < 3; ++i) {
        if (i != 1 && views[4 * (r / group) + i] != views[4 * (begin / group) + i]) {
          throw Violation{CUDA_ERROR_LAUNCH_FAILED, text("tile %u has rows of two sequences", tile)};
        }
      }
      for (int kv = 0; kv < attention.KV; ++kv) does(r / group, kv * group + r % group);
    }
  }
}

}  // namespace

void attention_split(const Launch& launch) {
  Attention attention(launch, 1, 2, 9);
  const Span<float> acc = launch.span<float>(7), ml = launch.span<float>(8);
  const int splits = launch.int32(10), H = attention.H, HD = attention.HD;
  launch.expect(2, splits);
  each_query(launch, attention, [&](int row, int head) {
    if (attention.position(row) >= split_start(splits)) {
      throw Violation{CUDA_ERROR_LAUNCH_FAILED,
                      text("%d splits end before position %d", splits, attention.position(row))};
    }
    for (int s = 0; split_start(s) <= attention.position(row); ++s) {
      const State state = attention.split(row, head, s, attention.shared_end(row));
      const size_t at = part(H, splits, row, head, s);
      if (state.l > 0) std::copy(state.acc.begin(), state.acc.end(), acc.at(at * HD, HD));
      ml[2 * at] = state.m;
      ml[2 * at + 1] = state.l;
    }
  });
}

void attention_merge(const Launch& launch) {
  const int H = launch.constant("H"), HD = launch.constant("HD"), splits = launch.int32(5), rows = launch.rows();
  const Span<const int32_t> pos = launch.span<const int32_t>(1);
  const Span<const float> acc = launch.span<const float>(2), ml = launch.span<const float>(3);
  const Elements out = launch.output(4);
  launch.expect_cover(0, 1, rows);
  launch.expect(1, H);
  for (int row = 0; row < rows; ++row) {
    for (int head = 0; head < H; ++head) {
      State all(HD);
      for (int s = 0; split_start(s) <= pos[row]; ++s) {
        const size_t at = part(H, splits, row, head, s);
        merge(all, acc.at(at * HD, HD), ml[2 * at], ml[2 * at + 1]);
      }
      store(out, size_t(row) * H + head, all);
    }
  }
}

void attention_branch(const Launch& launch) {
  Attention attention(launch, 1, 3, 10);
  const Span<const uint64_t> ancestors = launch.span<const uint64_t>(2);
  const Span<float> acc = launch.span<float>(8), ml = launch.span<float>(9);
  const int splits = launch.int32(11), H = attention.H, HD = attention.HD, rows = launch.rows();
  launch.expect_cover(0, 1, rows);
  launch.expect(1, attention.KV);
  launch.expect_cover(2, launch.constant("QROWS"), H / attention.KV);
  for (int row = 0; row < rows; ++row) {
    const int prefix = attention.prefix(row), scratch = attention.scratch(row);
    const int64_t own = attention.shared_end(row);
    const auto slot = [&](int64_t position) -> size_t {
      if (position < prefix) return position;
      uint64_t mask = ancestors[row];
      for (int64_t i = position - prefix; i > 0; --i) mask &= mask - 1;
      if (!mask)
        throw Violation{CUDA_ERROR_LAUNCH_FAILED, text("row %d has no ancestor at position %ld", row, long(position))};
      return scratch + std::countr_zero(mask);
    };
    for (int head = 0; head < H; ++head) {
      for (int s = 0; split_start(s) <= attention.position(row); ++s) {
        if (split_start(s + 1) <= own) continue;
        const size_t at = part(H, splits, row, head, s);
        State one(HD);
        merge(one, acc.at(at * HD, HD), ml[2 * at], ml[2 * at + 1]);
        attention.go_on(one, row, head, s, own, INT64_MAX, slot);
        if (one.l > 0) std::copy(one.acc.begin(), one.acc.end(), acc.at(at * HD, HD));
        ml[2 * at] = one.m;
        ml[2 * at + 1] = one.l;
      }
    }
  }
}

void attention_serial(const Launch& launch) {
  Attention attention(launch, 1, 2, 8);
  const Elements out = launch.output(7);
  each_query(launch, attention, [&](int row, int head) {
    State all(attention.HD);
    for (int s = 0; split_start(s) <= attention.position(row); ++s) {
      const State one = attention.split(row, head, s);
      merge(all, one.acc.data(), one.m, one.l);
    }
    store(out, size_t(row) * attention.H + head, all);
  });
}

}  // namespace stub
