// Attention: splits of fixed absolute positions, tile by tile with the softmax kept up as it goes, merged in order. A
// query row is computed on its own; tiles of which it sees nothing change nothing and are passed over.
#include <cmath>

#include "kernels.h"

namespace stub {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

int64_t split_start(int64_t s) { return s <= 16 ? 256 * s : 4096 + 2048 * (s - 16); }

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

// Arguments 0 to 6 of both kernels that read the cache.
class Attention {
 public:
  Attention(const Launch& launch, int window)
      : H(launch.constant("H")),
        KV(launch.constant("KV")),
        HD(launch.constant("HD")),
        rows(launch.rows()),
        launch_(launch),
        keys_(launch.constant("KEYS")),
        window_(window),
        scale_(static_cast<float>(launch.number("SCALE"))),
        meta_(launch.span<const int32_t>(1)),
        pos_(launch.span<const int32_t>(2)),
        tree_(meta_[3] != 0),
        q_(launch.elements(4)),
        k_(launch.elements(5)),
        v_(launch.elements(6)),
        query_(HD),
        key_(HD) {
    if (tree_) ancestors_ = launch.span<const uint64_t>(3);
  }

  int position(int row) const { return pos_[row]; }

  // A head of a row over a split.
  State split(int row, int head, int64_t s) {
    State state(HD);
    q_.read((size_t(row) * H + head) * HD, HD, query_.data());
    const int64_t end = std::min<int64_t>(split_start(s + 1), int64_t{pos_[row]} + 1);
    for (int64_t p = split_start(s); p < end; p += keys_)
      step(state, row, head / (H / KV), p, std::min(p + keys_, end));
    return state;
  }

  const int H, KV, HD, rows;

 private:
  // Where a row finds the key of a visible position.
  size_t slot(int row, int64_t position) const {
    const int prefix = meta_[1], scratch = meta_[2];
    if (!tree_ || position < prefix) return position;
    uint64_t mask = ancestors_[row];
    for (int64_t i = position - prefix; i > 0; --i) mask &= mask - 1;
    if (!mask)
      throw Violation{CUDA_ERROR_LAUNCH_FAILED, text("row %d has no ancestor at position %ld", row, long(position))};
    return scratch + std::countr_zero(mask);
  }

  void step(State& state, int row, int kv_head, int64_t begin, int64_t end) {
    at_.clear();
    score_.clear();
    float top = state.m;
    if (window_ > 0) begin = std::max(begin, int64_t{pos_[row]} - window_ + 1);
    for (int64_t p = begin; p < end; ++p) {
      at_.push_back((slot(row, p) * KV + kv_head) * HD);
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
  const int keys_, window_;
  const float scale_;
  const Span<const int32_t> meta_, pos_;
  const bool tree_;
  Span<const uint64_t> ancestors_;
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

void attention_split(const Launch& launch) {
  Attention attention(launch, launch.int32(9));
  const Span<float> acc = launch.span<float>(7), ml = launch.span<float>(8);
  const int splits = launch.int32(10), H = attention.H, HD = attention.HD;
  launch.expect(0, splits);
  launch.expect(1, attention.KV);
  launch.expect_cover(2, launch.constant("QROWS"), size_t(attention.rows) * (H / attention.KV));
  for (int row = 0; row < attention.rows; ++row) {
    if (attention.position(row) >= split_start(splits)) {
      throw Violation{CUDA_ERROR_LAUNCH_FAILED,
                      text("%d splits end before position %d", splits, attention.position(row))};
    }
    for (int head = 0; head < H; ++head) {
      for (int s = 0; s < splits; ++s) {
        const State state = attention.split(row, head, s);
        const size_t at = part(H, splits, row, head, s);
        std::copy(state.acc.begin(), state.acc.end(), acc.at(at * HD, HD));
        ml[2 * at] = state.m;
        ml[2 * at + 1] = state.l;
      }
    }
  }
}

void attention_merge(const Launch& launch) {
  const int H = launch.constant("H"), HD = launch.constant("HD"), splits = launch.int32(4), rows = launch.rows();
  const Span<const float> acc = launch.span<const float>(1), ml = launch.span<const float>(2);
  const Elements out = launch.output(3);
  launch.expect_cover(0, 1, rows);
  launch.expect(1, H);
  for (int row = 0; row < rows; ++row) {
    for (int head = 0; head < H; ++head) {
      State all(HD);
      for (int s = 0; s < splits; ++s) {
        const size_t at = part(H, splits, row, head, s);
        merge(all, acc.at(at * HD, HD), ml[2 * at], ml[2 * at + 1]);
      }
      store(out, size_t(row) * H + head, all);
    }
  }
}

void attention_serial(const Launch& launch) {
  Attention attention(launch, launch.int32(8));
  const Elements out = launch.output(7);
  const int H = attention.H;
  launch.expect(0, attention.KV);
  launch.expect_cover(1, launch.constant("QROWS"), size_t(attention.rows) * (H / attention.KV));
  for (int row = 0; row < attention.rows; ++row) {
    for (int head = 0; head < H; ++head) {
      State all(attention.HD);
      for (int s = 0; split_start(s) <= attention.position(row); ++s) {
        const State one = attention.split(row, head, s);
        merge(all, one.acc.data(), one.m, one.l);
      }
      store(out, size_t(row) * H + head, all);
    }
  }
}

}  // namespace stub
