// Activations laid out for the panel kernel, normalised on the way if the op begins with an RMSNorm.
//
// Tokens are cut into chunks of as many as a kernel takes; each lies as panel.h says (Tokens). Small inputs are laid
// out before the threads start; large ones by all threads, which costs two barriers.
#pragma once
#include <algorithm>
#include <cmath>
#include <optional>

#include "ctx.h"
#include "panel.h"
#include "quantise.h"
#include "vec_math.h"

namespace swiftk::SWIFTK_ISA {

class Activations {
 public:
  // x [n, k], for weights of a format. norm [k] or null.
  Activations(Ctx& ctx, const float* x, int n, int k, Format f, const float* norm, float eps)
      : x_(x),
        norm_(norm),
        eps_(eps),
        n_(n),
        k_(k),
        lines_(line_count(k, f)),
        format_(f),
        panel_(panel_format(f)),
        tokens_(panel_.tokens),
        columns_(ceil_div(k, kColumns)),
        starts_(ctx.scratch.take<int>(n + 1)),
        chunks_(cut()),
        rows_left_(norm ? n : 0),
        tiles_left_(chunks_ * columns_) {
    constexpr int kSerial = 16384;
    packed_ = ctx.scratch.take<char>(n * token_bytes());
    scale_ = ctx.scratch.take<float>(n);
    ready_ = int64_t{n} * k_ <= kSerial || ctx.pool.size() == 1;
    if (!ready_) return;
    compute_scales();
    pack_tiles();
  }

  // Called by every thread before it reads.
  void finish(ThreadPool& pool) {
    if (ready_) return;
    if (norm_) {
      compute_scales();
      pool.barrier();
    }
    pack_tiles();
    pool.barrier();
  }

  // out[token * stride + i] = row i of the panel times the token, for all tokens. A panel that is passed over once
  // streams from memory. One that is passed over again, for more tokens or more of its rows, is found in the cache,
  // where the passes over the panel before have brought it, each its share: memory is read all the time, not by every
  // first pass alone.
  void multiply(const char* panel, float* out, size_t stride) const {
    const size_t bytes = stream_bytes(k_, format_), line = layout_of(format_).line;
    int done = 0;  // passes
    for (int c = 0; c < chunks_; ++c) {
      const int begin = starts_[c], count = starts_[c + 1] - begin;
      const Ahead ahead = passes_ == 1 ? Ahead{panel + (count < far_tokens(tokens_) ? kPrefetchAhead : kFetchFar), line}
                                       : Ahead{panel + bytes + bytes * done / passes_, line / passes_};
      panel_.kernel(count)(panel, lines_, packed_ + begin * token_bytes(), out + begin * stride, stride, ahead);
      done += panel_passes(count, tokens_);
    }
  }

 private:
  static constexpr int kColumns = 1024;  // of k, per tile
  static constexpr int kStep = 16;       // of k, that one token contributes at a time

  // Fills starts_ and counts passes; how many chunks there are.
  int cut() {
    int chunks = 0;
    for (int at = 0; at < n_; ++chunks) {
      const int count = first_chunk(n_ - at, tokens_, panel_.most_tokens);
      passes_ += panel_passes(count, tokens_);
      starts_[chunks] = at;
      at += count;
    }
    starts_[chunks] = n_;
    return chunks;
  }
  size_t token_bytes() const {
    switch (tokens_) {
      case Tokens::Tiles: return size_t{4} * kTileLines * ceil_div(lines_, kTileLines);
      case Tokens::Groups: return size_t{4} * token_words(format_) * lines_;
      case Tokens::Pairs: return size_t{4} * lines_;
      default: return size_t{4} * layout_of(format_).columns * lines_;
    }
  }

  void compute_scales() {
    for (int i, end; rows_left_.next(i, end);) scale_[i] = rms_scale(x_ + size_t(i) * k_, k_, eps_);
  }

  void pack_tiles() {
    for (int i, end; tiles_left_.next(i, end);) {
      const int c = i / columns_, first = i % columns_ * kColumns;
      const int begin = starts_[c], count = starts_[c + 1] - begin, last = std::min(first + kColumns, k_);
      tokens_ == Tokens::Groups  ? quantise_tile(begin, count, first, last)
      : tokens_ == Tokens::Tiles ? pack_rows(begin, count, first, last)
                                 : pack_tile(begin, count, first, last);
    }
  }

  // Columns [first, last) of tokens [begin, begin + count), as groups of bytes.
  void quantise_tile(int begin, int count, int first, int last) {
    int32_t* const out = reinterpret_cast<int32_t*>(packed_ + begin * token_bytes());
    for (int k = first; k < last; k += kGroup) {
      int32_t* const group = out + size_t(k / kGroup) * token_words(format_) * count;
      for (int m = 0; m < count; ++m) {
        alignas(64) float y[kGroup];
        for (int i = 0; i < kGroup; i += kStep) read_step(begin + m, k + i, y + i);
        const QuantisedGroup q = quantise_group(y);
        for (int i = 0; i < kQuads; ++i) group[i * count + m] = q.quads[i];
        int32_t* const rest = group + kQuads * count + m;
        rest[0] = -(scales_halves(format_) ? q.sum[0] : q.sum[0] + q.sum[1]) * code_zero(format_);
        rest[count] = std::bit_cast<int32_t>(q.scale);
        if (scales_halves(format_)) rest[2 * count] = -q.sum[1] * code_zero(format_);
        if (layout_of(format_).minima) {
          rest[2 * count] = std::bit_cast<int32_t>(q.scale * static_cast<float>(q.sum[0] + q.sum[1]));
        }
      }
    }
  }

  // Columns [first, last) of tokens [begin, begin + count): read along k, written across tokens.
  void pack_tile(int begin, int count, int first, int last) {
    alignas(64) int32_t tile[kMaxTokens][kStep];
    const int step = tokens_ == Tokens::Pairs ? kStep / 2 : kStep;  // words per token
    int32_t* const out = reinterpret_cast<int32_t*>(packed_ + begin * token_bytes());
    const int words = static_cast<int>(token_bytes() / 4);
    for (int k = first; k < last; k += kStep) {
      for (int m = 0; m < count; ++m) {
        alignas(64) float y[kStep];
        read_step(begin + m, k, y);
        store_step(y, tile[m]);
      }
      const int word = k / kStep * step, stop = std::min(step, words - word);
      for (int j = 0; j < stop; ++j) {
        for (int m = 0; m < count; ++m) out[size_t(word + j) * count + m] = tile[m][j];
      }
    }
  }

  // Columns [first, last) of tokens [begin, begin + count), for tiles; zeros up to the end of the last one.
  void pack_rows(int begin, int count, int first, int last) {
    constexpr int kWide = 2 * kTileLines;
    for (int k = first; k < last; k += kWide) {
      int32_t* out = reinterpret_cast<int32_t*>(packed_ + begin * token_bytes()) + size_t(k / 2) * count;
      for (int m = 0; m < count; ++m, out += kTileLines) {
        for (int half = 0; half < kWide; half += kStep) {
          alignas(64) float y[kStep];
          read_step(begin + m, k + half, y);
          store_step(y, out + half / 2);
        }
      }
    }
  }

  // kStep normalised elements of a token, zeros after the last.
  void read_step(int row, int k, float* y) const {
    const float* const x = x_ + size_t(row) * k_ + k;
    if (k + kStep <= k_) {
      for (int i = 0; i < kStep; i += W)
        store(y + i, norm_ ? load(x + i) * scale_[row] * load(norm_ + k + i) : load(x + i));
    } else {
      for (int i = 0; i < kStep; ++i) y[i] = k + i >= k_ ? 0.0f : norm_ ? x[i] * scale_[row] * norm_[k + i] : x[i];
    }
  }

  void store_step(const float* y, int32_t* words) const {
#if defined(__AVX512BF16__)
    if (tokens_ != Tokens::Floats) {
      const Vec v = format_ == Format::Upper ? load(y) * kUpperTokens : load(y);
      const __m256bh rounded = _mm512_cvtneps_pbh((__m512)v);
      std::memcpy(words, &rounded, sizeof rounded);
      return;
    }
#endif
    std::memcpy(words, y, kStep * sizeof *y);
  }

  const float* const x_;
  const float* const norm_;
  const float eps_;
  const int n_, k_, lines_;
  const Format format_;
  const PanelFormat& panel_;
  const Tokens tokens_;
  const int columns_;
  int passes_ = 0;     // of all chunks over a panel
  int* const starts_;  // [chunks + 1] the first token of each chunk
  const int chunks_;
  Tasks rows_left_, tiles_left_;
  char* packed_;
  float* scale_;  // [n]
  bool ready_;
};

// The product of a matrix, whose segments may differ in format, and activations.
class Product {
 public:
  // x [n, w.k]. norm [w.k] or null.
  Product(Ctx& ctx, const float* x, int n, const Weight& w, const float* norm, float eps) : count_(w.segments) {
    for (int i = 0; i < count_; ++i) {
      const Segment& s = w.segment[i];
      Part& part = part_[i];
      part.panel = panel_bytes(w.k, s.format);
      part.data = static_cast<const char*>(s.data);
      part.end = (i > 0 ? part_[i - 1].end : 0) + static_cast<int>(s.bytes / part.panel);
      for (int j = 0; j < i && !part.x; ++j) {
        if (w.segment[j].format == s.format) part.x = part_[j].x;
      }
      if (!part.x) part.x = &part.own.emplace(ctx, x, n, w.k, s.format, norm, eps);
    }
  }

  // Called by every thread before it reads.
  void finish(ThreadPool& pool) {
    for (int i = 0; i < count_; ++i) {
      if (part_[i].own) part_[i].own->finish(pool);
    }
  }

  // out[token * stride + i] = row i of a panel of the matrix times the token, for all tokens.
  void multiply(int panel, float* out, size_t stride) const {
    int i = 0;
    while (i + 1 < count_ && panel >= part_[i].end) ++i;
    const Part& part = part_[i];
    const int first = i > 0 ? part_[i - 1].end : 0;
    part.x->multiply(part.data + (panel - first) * part.panel, out, stride);
  }

 private:
  struct Part {
    std::optional<Activations> own;
    const Activations* x = nullptr;  // its own, or those of an earlier segment of the same format
    const char* data;
    size_t panel;  // bytes of one
    int end;       // panels up to the end of the segment
  };
  Part part_[Weight::kMostSegments];
  const int count_;
};

inline constexpr size_t kExpected = size_t{64} << 10;  // bytes that a thread fetches at most while it waits

// A thread will read the run of the matrix that Runs hands out as its number says, if threads begin in order.
inline void expect(Ctx& ctx, int thread, const Weight* next) {
  if (!next) return;
  const Segment& s = next->segment[0];
  const double part = 0.5 / ctx.pool.size(), left = s.bytes * std::pow(1 - part, thread);
  ctx.pool.expect(thread, static_cast<const char*>(s.data) + (s.bytes - static_cast<size_t>(left)),
                  std::min(kExpected, static_cast<size_t>(left * part)));
}

// W rmsnorm(x) + bias, panel by panel: done(first row, count, out [n, 32]). norm null: of x itself. next: what is read
// after it, or null.
template <class Done>
void each_panel(Ctx& ctx, const float* in, int n, const Weight& w, const float* norm, float eps, const Weight* next,
                Done&& done) {
  Product x(ctx, in, n, w, norm, eps);
  float* const outs = ctx.scratch.take<float>(size_t(ctx.pool.size()) * n * kPanelRows);
  Runs tasks(panels_of(w.n), ctx.pool.size());
  ctx.pool.run([&](int thread) {
    x.finish(ctx.pool);
    float* const out = outs + size_t(thread) * n * kPanelRows;
    for (int panel, end; tasks.next(panel, end);) {
      for (; panel < end; ++panel) {
        x.multiply(panel, out, kPanelRows);
        const int first = panel * kPanelRows, count = std::min(kPanelRows, w.n - first);
        for (int i = 0; w.bias && i < n; ++i) {
          for (int j = 0; j < count; ++j) out[i * kPanelRows + j] += w.bias[first + j];
        }
        done(first, count, out);
      }
    }
    expect(ctx, thread, next);
  });
}

}  // namespace swiftk::SWIFTK_ISA
