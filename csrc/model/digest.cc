#include "model/digest.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "base/checksum.h"
#include "files/direct_file.h"

namespace swiftk {
namespace {

constexpr size_t kDigestPiece = 16 << 20;  // bytes of a device's memory at a time

class Digest {
 public:
  Digest(const Model& model, Ctx& ctx) : ops_(*model.ops), ctx_(ctx), streamed_(model.streamed) {}

  void add(std::span<const int64_t> facts) {
    sum_ = checksum_of({reinterpret_cast<const char*>(facts.data()), facts.size_bytes()}, sum_);
  }
  void add(std::span<const double> numbers) {
    sum_ = checksum_of({reinterpret_cast<const char*>(numbers.data()), numbers.size_bytes()}, sum_);
  }
  void add(const Rope& r) {
    const double numbers[] = {r.theta,           double(r.size), double(r.type),     r.factor,
                              r.low_freq_factor, r.beta_fast,    r.high_freq_factor, double(r.truncate),
                              r.beta_slow,       r.scale,        r.query_beta,       double(r.original_max_position)};
    add(numbers);
    add(std::vector<double>(r.divisors.begin(), r.divisors.end()));
    add(std::vector<double>(r.long_divisors.begin(), r.long_divisors.end()));
  }
  void add(const LayerConfig& l) {
    const double numbers[] = {double(l.activation), double(l.rope), double(l.query_rope), double(l.window),
                              l.attention_scale,    l.soft_cap,     l.residual_scale};
    add(numbers);
  }
  void add(const char* name) { sum_ = checksum_of({name, std::strlen(name)}, sum_); }
  // Memory of the backend; null is told apart from what is there.
  void add(const void* data, size_t bytes) {
    const int64_t facts[] = {data != nullptr, static_cast<int64_t>(bytes)};
    add(facts);
    const char* at = static_cast<const char*>(data);
    for (size_t n; data && bytes > 0; at += n, bytes -= n) {
      n = ops_.device ? std::min(bytes, kDigestPiece) : bytes;
      if (ops_.device) {
        piece_.resize(kDigestPiece);
        ops_.download(ctx_, piece_.data(), at, n);
      }
      sum_ = checksum_of({ops_.device ? piece_.data() : at, n}, sum_);
    }
  }
  void add(const float* values, int n) { add(static_cast<const void*>(values), sizeof(float) * n); }
  void add(const Weight& w) {
    const int64_t facts[] = {w.n, w.k, w.segments};
    add(facts);
    for (const Segment& s : std::span(w.segment, w.segments)) {
      add(facts_of(s));
      if (const std::optional<size_t> place = place_of(w, s)) {
        add_of_file(*place, s.bytes);
      } else {
        add(s.data, s.bytes);
      }
    }
    add(w.bias, w.n);
  }
  uint64_t sum() const { return sum_; }

 private:
  // The place in the file of a segment that is not in memory.
  std::optional<size_t> place_of(const Weight& w, const Segment& s) const {
    const int stretch = streamed_ ? streamed_->find(w) : -1;
    if (stretch < 0) return {};
    return streamed_->stretches[stretch].offset + (static_cast<const char*>(s.data) - Streamed::page_of(w));
  }

  // As add() of memory with the same bytes.
  void add_of_file(size_t offset, size_t bytes) {
    const int64_t facts[] = {1, static_cast<int64_t>(bytes)};
    add(facts);
    piece_.resize(kDigestPiece + DirectFile::kPage);
    char* const to = DirectFile::on_page(piece_.data());
    for (size_t n; bytes > 0; offset += n, bytes -= n) {
      const size_t into = offset % DirectFile::kPage;
      n = std::min(bytes, kDigestPiece - into);
      streamed_->file->read(offset - into, into + n, to);
      sum_ = checksum_of({to + into, n}, sum_);
    }
  }

  static std::vector<int64_t> facts_of(const Segment& s) { return {static_cast<int64_t>(s.format)}; }

  const Ops& ops_;
  Ctx& ctx_;
  const std::optional<Streamed>& streamed_;
  std::vector<char> piece_;
  uint64_t sum_ = 0xcbf29ce484222325u;
};

}  // namespace

uint64_t digest_of(const Model& model, Ctx& ctx) {
  const Config& c = model.config;
  const bool whole = c.qk_norm_over == QkNorm::Whole;
  Digest digest(model, ctx);
  digest.add(model.ops->name);
  const int64_t facts[] = {static_cast<int64_t>(model.dtype), static_cast<int64_t>(model.kv_dtype),
                           static_cast<int64_t>(model.embedding_encoding)};
  digest.add(facts);
  const double numbers[] = {c.norm_eps,     c.norm_offset, c.embedding_scale,     double(c.H),
                            double(c.n_kv), double(c.d),   double(c.qk_norm_over)};
  digest.add(numbers);
  for (const Rope& rope : c.ropes) digest.add(rope);
  for (const LayerConfig& layer : c.layers) digest.add(layer);
  digest.add(model.embedding, encoded_bytes(model.embedding_encoding, size_t(c.V) * c.D));
  digest.add(std::vector<int64_t>(model.taps.begin(), model.taps.end()));
  for (const LayerWeights& layer : model.own.layers) {
    for (const float* norm : {layer.attn_norm, layer.attn_after, layer.mlp_norm, layer.mlp_after}) {
      digest.add(norm, c.D);
    }
    digest.add(layer.q_norm, whole ? c.H * c.d : c.d);
    digest.add(layer.k_norm, whole ? c.n_kv * c.d : c.d);
    for (const Weight* w : {&layer.wqkv, &layer.wo, &layer.w_gate_up, &layer.w_down}) digest.add(*w);
  }
  return digest.sum();
}

}  // namespace swiftk
