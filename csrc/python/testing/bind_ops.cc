// swiftk._testing.ops: single ops on arrays, for tests and benchmarks. Arrays of 16-bit floats cross as uint16 (bf16)
// and float16.
#include <pybind11/stl.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>

#include "python/testing/bind_arrays.h"

using namespace py::literals;

void bind_draw(py::module_& m);  // bind_draw.cc
void bind_ops(py::module_& m);

namespace swiftk {
namespace {

using Release = py::call_guard<py::gil_scoped_release>;

class Kernels {
 public:
  Kernels(const std::string& isa, int threads) : ops_(cpu_ops(isa.c_str())) {
    want(ops_, "isa '" + isa + "' is not available on this machine");
    want(threads >= 1, "threads is " + std::to_string(threads) + ", want 1 or more");
    ctx_ = ops_->create(ops_->device, threads);
  }
  ~Kernels() {
    if (ctx_) ops_->destroy(ctx_);
  }
  Kernels(const Kernels&) = delete;
  Kernels& operator=(const Kernels&) = delete;

  std::unique_ptr<PackedWeight> pack(const std::vector<py::array>& parts, const std::string& format, int group,
                                     bool interleave, std::optional<Floats> bias, bool fragments) {
    want(!parts.empty() && parts.size() <= 3, "parts want 1 to 3 matrices");
    PackArgs args{};
    args.group = group;
    args.interleave = interleave;
    args.format = parse_format(format);
    args.fragments = fragments;
    want(!fragments || (in_blocks(args.format) && !exact_blocks(args.format)), "fragments are of copies in blocks");
    const Encoding blocks = facts(args.format).exact.value_or(Encoding::F32);  // what arrays of bytes are
    const auto encoding = [&](const py::array& part) {
      return py::isinstance<py::array_t<uint8_t>>(part) ? blocks : encoding_of(dtype_of(part));
    };
    const auto width = [&](const py::array& part) {
      const EncodingFacts& its = facts(encoding(part));
      return plain(encoding(part)) ? part.shape(1) : part.shape(1) / its.bytes * its.block;
    };
    args.k = static_cast<int>(width(parts[0]));
    int n = 0;
    for (size_t i = 0; i < parts.size(); ++i) {
      const py::array& part = parts[i];
      want(part.ndim() == 2 && width(part) == args.k, "parts differ in width");
      want(part.flags() & py::array::c_style, "parts want C order");
      args.part[i] = {part.data(), static_cast<int>(part.shape(0)), encoding(part)};
      n += args.part[i].rows;
    }
    auto w = std::make_unique<PackedWeight>();
    const auto memory = std::make_shared<Memory>(ops_, ops_->packed_bytes(ops_->device, args));
    if (ops_->dense) ops_->dense(memory->data(), memory->bytes());
    w->memory = {memory};
    args.dst = memory->data();
    ops_->pack(*ctx_, args);
    want(!bias || bias->size() == n, "bias wants one element per row");
    w->bias = bias;
    w->weight = {.segment = {{args.dst, memory->bytes(), args.format}},
                 .bias = bias ? w->bias->data() : nullptr,
                 .n = n,
                 .k = args.k};
    return w;
  }

  // A matrix whose segments are these.
  std::unique_ptr<PackedWeight> join(const std::vector<const PackedWeight*>& parts, std::optional<Floats> bias) {
    want(!parts.empty() && parts.size() <= Weight::kMostSegments, "join wants 1 to 3 matrices");
    auto w = std::make_unique<PackedWeight>();
    Weight& out = w->weight;
    out.segments = 0;
    out.k = parts[0]->weight.k;
    for (const PackedWeight* part : parts) {
      want(part->weight.segments == 1 && part->weight.k == out.k, "joined matrices have one segment of the same width");
      w->memory.push_back(part->memory[0]);
      out.segment[out.segments++] = part->weight.segment[0];
      out.n += part->weight.n;
    }
    want(!bias || bias->size() == out.n, "bias wants one element per row");
    w->bias = bias;
    out.bias = bias ? w->bias->data() : nullptr;
    return w;
  }

  // Every byte 0xff: NaN in each dtype, and NaN as a scale.
  std::unique_ptr<Cache> cache(int n_kv, int d, int capacity, const std::string& dtype) {
    auto c = std::make_unique<Cache>();
    c->layer.shape = {n_kv, d, (capacity + kKvBlock - 1) / kKvBlock, parse_kv_dtype(dtype)};
    c->memory = std::make_unique<Memory>(ops_, ops_->kv_bytes(c->layer.shape));
    c->layer.data = c->memory->data();
    std::memset(c->layer.data, 0xff, c->memory->bytes());
    return c;
  }

  // Stores k, v [n, n_kv, d] at slots [n]. Backends hide their layout, so rows go in by the op itself: as its bias.
  void set_rows(const Cache& cache, const Ints& slot, const Floats& k, const Floats& v) {
    const KvShape& s = cache.layer.shape;
    const size_t width = size_t(s.n_kv) * s.d;
    const py::ssize_t n = slot.size();
    want(k.size() == py::ssize_t(n * width) && v.size() == k.size(), "k and v want shape [n, n_kv, d]");
    PackArgs args{.part = {},
                  .k = 1,
                  .group = s.d,
                  .interleave = false,
                  .format = Format::F32,
                  .fragments = false,
                  .dst = nullptr};
    const std::vector<float> zeros(2 * width), one(s.d, 1.0f);
    args.part[0] = {zeros.data(), static_cast<int>(2 * width)};
    const Memory packed(ops_, ops_->packed_bytes(ops_->device, args));
    args.dst = packed.data();
    ops_->pack(*ctx_, args);
    std::vector<float> bias(2 * width);
    for (py::ssize_t i = 0; i < n; ++i) {
      want(slot.at(i) >= 0 && slot.at(i) < s.blocks * kKvBlock, "slot out of range");
      const int32_t block = slot.at(i) / kKvBlock, place = slot.at(i) % kKvBlock;
      const View view{&block};
      std::copy_n(k.data() + i * width, width, bias.begin());
      std::copy_n(v.data() + i * width, width, bias.begin() + width);
      const Rows rows{.n = 1,
                      .token = nullptr,
                      .pos = &place,
                      .slot = &place,
                      .views = &view,
                      .cos = one.data(),
                      .sin = zeros.data()};
      const Weight w{.segment = {{args.dst, packed.bytes(), Format::F32}},
                     .bias = bias.data(),
                     .n = static_cast<int>(2 * width),
                     .k = 1};
      ops_->rmsnorm_qkv_rope_append(*ctx_, {.x = one.data(),
                                            .norm = one.data(),
                                            .eps = 0,
                                            .w = w,
                                            .q_norm = nullptr,
                                            .k_norm = nullptr,
                                            .rows = &rows,
                                            .kv = cache.layer,
                                            .n_heads = 0,
                                            .q = nullptr});
    }
  }

  Floats embed(const py::array& table, const Ints& token, float scale) {
    want(table.ndim() == 2 && (table.flags() & py::array::c_style), "table wants two dimensions in C order");
    for (py::ssize_t i = 0; i < token.size(); ++i)
      want(token.at(i) >= 0 && token.at(i) < table.shape(0), "token out of range");
    const int n = static_cast<int>(token.size()), D = static_cast<int>(table.shape(1));
    Floats x({n, D});
    ops_->embed(*ctx_, {table.data(), encoding_of(dtype_of(table)), token.data(), n, D, x.mutable_data(), scale});
    return x;
  }

  Floats qkv(const Floats& x, const Floats& norm, float eps, const PackedWeight& w, const RowSet& rows,
             const Cache& cache, int n_heads, std::optional<Floats> q_norm, std::optional<Floats> k_norm, int rope,
             std::optional<int> query_rope, const std::string& norm_over) {
    static const std::map<std::string, QkNorm> kOver{
        {"heads", QkNorm::Heads}, {"rotated heads", QkNorm::RotatedHeads}, {"whole", QkNorm::Whole}};

    const int n = rows_of(x, w.weight.k), d = cache.layer.shape.d;
    want(n == rows.rows.n, "x and rows differ in number");
    want(w.weight.n == (n_heads + 2 * cache.layer.shape.n_kv) * d, "weight does not fit the heads");
    check_slots(rows, cache);
    Floats q({n, n_heads, d});
    const QkvArgs args{.x = x.data(),
                       .norm = norm.data(),
                       .eps = eps,
                       .w = w.weight,
                       .q_norm = data_or_null(q_norm),
                       .k_norm = data_or_null(k_norm),
                       .rows = &rows.rows,
                       .kv = cache.layer,
                       .n_heads = n_heads,
                       .q = q.mutable_data(),
                       .rope = rope,
                       .query_rope = query_rope.value_or(rope),
                       .norm_over = kOver.at(norm_over)};
    const py::gil_scoped_release release;
    ops_->rmsnorm_qkv_rope_append(*ctx_, args);
    return q;
  }

  Floats attention(const Floats& q, const RowSet& rows, const Cache& cache, int window, float scale, float soft_cap) {
    want(q.ndim() == 3 && q.shape(0) == rows.rows.n && q.shape(2) == cache.layer.shape.d, "q wants shape [n, H, d]");
    want(q.shape(1) % cache.layer.shape.n_kv == 0, "heads are not a multiple of KV heads");
    check_slots(rows, cache);
    Floats out({q.shape(0), q.shape(1), q.shape(2)});
    const AttentionArgs args{.q = q.data(),
                             .rows = &rows.rows,
                             .kv = cache.layer,
                             .n_heads = static_cast<int>(q.shape(1)),
                             .window = window,
                             .scale = scale,
                             .out = out.mutable_data(),
                             .soft_cap = soft_cap};
    const py::gil_scoped_release release;
    ops_->attention(*ctx_, args);
    return out;
  }

  Floats residual(const Floats& in, const PackedWeight& w, const Floats& x, bool down, float scale,
                  std::optional<Floats> norm, float eps) {
    const int n = rows_of(in, w.weight.k);
    want(rows_of(x, w.weight.n) == n, "x and in differ in rows");
    Floats out({n, w.weight.n});
    std::copy_n(x.data(), x.size(), out.mutable_data());
    const ResidualArgs args{in.data(), w.weight, n, out.mutable_data(), scale, data_or_null(norm), eps};
    const py::gil_scoped_release release;
    (down ? ops_->down_proj_residual : ops_->o_proj_residual)(*ctx_, args);
    return out;
  }

  Floats gate_up(const Floats& x, std::optional<Floats> norm, float eps, const PackedWeight& w, bool gelu) {
    const int n = rows_of(x, w.weight.k);
    Floats h({n, w.weight.n / 2});
    const GateUpArgs args{x.data(),
                          data_or_null(norm),
                          eps,
                          w.weight,
                          n,
                          h.mutable_data(),
                          gelu ? Activation::GeluTanh : Activation::Silu};
    const py::gil_scoped_release release;
    ops_->rmsnorm_gate_up_act(*ctx_, args);
    return h;
  }

  Floats lm_head(const Floats& x, const Floats& norm, float eps, const PackedWeight& w, float scale, float soft_cap) {
    const int n = rows_of(x, w.weight.k);
    Floats logits({n, w.weight.n});
    const LmHeadArgs args{x.data(), norm.data(), eps, w.weight, n, logits.mutable_data(), scale, soft_cap};
    const py::gil_scoped_release release;
    ops_->rmsnorm_lm_head(*ctx_, args);
    return logits;
  }

  Floats rmsnorm(const Floats& x, const Floats& norm, float eps, int stride) {
    const int n = rows_of(x, static_cast<int>(norm.size())), D = static_cast<int>(norm.size());
    want(stride >= D, "stride wants at least " + std::to_string(D));
    Floats out({n, stride});
    std::fill_n(out.mutable_data(), out.size(), 0.0f);
    ops_->rmsnorm(*ctx_, {x.data(), norm.data(), eps, n, D, out.mutable_data(), static_cast<size_t>(stride)});
    return out;
  }

  Floats mean(const Floats& x, int group) {
    want(x.ndim() == 2 && group > 0 && x.shape(0) % group == 0, "x wants two dimensions, of whole groups");
    const int n = static_cast<int>(x.shape(0)) / group, width = static_cast<int>(x.shape(1));
    Floats out({n, width});
    ops_->mean(*ctx_, {x.data(), n, group, width, out.mutable_data()});
    return out;
  }

  Floats spread(const Floats& own, const Ints& token, const Floats& logits) {
    const int n = rows_of(own, static_cast<int>(token.size())), vocab = static_cast<int>(logits.shape(1));
    want(logits.shape(0) == n, "logits want as many rows");
    for (py::ssize_t i = 0; i < token.size(); ++i) want(token.at(i) >= 0 && token.at(i) < vocab, "token out of range");
    Floats out({n, vocab});
    std::copy_n(logits.data(), logits.size(), out.mutable_data());
    const int wide = static_cast<int>(token.size());
    ops_->spread(*ctx_, {own.data(), token.data(), n, wide, vocab, out.mutable_data()});
    return out;
  }

  py::tuple topk(const Floats& logits, int k, std::optional<Floats> scores, float scale, std::optional<uint64_t> seed,
                 uint32_t stream, std::optional<Ints> pos) {
    want(logits.ndim() == 2 && k >= 1 && k <= kMaxTopk && k <= logits.shape(1), "k is out of range");
    const int n = static_cast<int>(logits.shape(0)), vocab = static_cast<int>(logits.shape(1));
    want(!scores || (scores->ndim() == 2 && scores->shape(0) == n && scores->shape(1) == vocab),
         "scores want logits' shape");
    want(!pos || pos->size() == n, "pos wants one element per row");
    want(!seed || pos, "noise wants pos");
    py::array_t<int32_t> id({n, k});
    Floats logit({n, k}), lse(n), mass(n);
    const TopkArgs args{.logits = logits.data(),
                        .scores = scores ? scores->data() : logits.data(),
                        .n = n,
                        .vocab = vocab,
                        .k = k,
                        .scale = scale,
                        .noisy = seed.has_value(),
                        .seed = seed.value_or(0),
                        .stream = static_cast<Stream>(stream),
                        .pos = pos ? pos->data() : nullptr,
                        .id = id.mutable_data(),
                        .logit = logit.mutable_data(),
                        .lse = lse.mutable_data(),
                        .mass = mass.mutable_data()};
    {
      const py::gil_scoped_release release;
      ops_->topk(*ctx_, args);
    }
    return py::make_tuple(id, logit, lse, mass);
  }

  void move_row(const Cache& cache, int from, int to) {
    const int capacity = cache.layer.shape.blocks * kKvBlock;
    want(from >= 0 && from < capacity && to >= 0 && to < capacity, "slot out of range");
    const int32_t source = from, target = to;
    ops_->move_rows(*ctx_, {.kv = cache.layer, .layer_bytes = 0, .layers = 1, .from = &source, .to = &target, .n = 1});
  }

  Floats read_rows(const Cache& cache, const Ints& slot, int stride) {
    const KvShape& s = cache.layer.shape;
    const int width = s.n_kv * 2 * s.d, n = static_cast<int>(slot.size());
    for (py::ssize_t i = 0; i < n; ++i) want(slot.at(i) >= 0 && slot.at(i) < s.blocks * kKvBlock, "slot out of range");
    want(stride >= width, "stride wants at least " + std::to_string(width));
    Floats out({n, stride});
    std::fill_n(out.mutable_data(), out.size(), 0.0f);
    ops_->read_rows(*ctx_, {.kv = cache.layer,
                            .slot = slot.data(),
                            .n = n,
                            .stride = static_cast<size_t>(stride),
                            .out = out.mutable_data()});
    return out;
  }

  void write_rows(const Cache& cache, const Ints& slot, const Floats& rows) {
    const KvShape& s = cache.layer.shape;
    const int width = s.n_kv * 2 * s.d, n = static_cast<int>(slot.size());
    for (py::ssize_t i = 0; i < n; ++i) want(slot.at(i) >= 0 && slot.at(i) < s.blocks * kKvBlock, "slot out of range");
    want(rows.ndim() == 2 && rows.shape(0) == n && rows.shape(1) >= width, "rows want [slots, K and V or more]");
    const auto stride = static_cast<size_t>(rows.shape(1));
    ops_->write_rows(*ctx_, {.kv = cache.layer, .slot = slot.data(), .n = n, .stride = stride, .in = rows.data()});
  }

  py::dict probe(const std::string& dtype, size_t memory) {
    Probe p;
    {
      const py::gil_scoped_release release;
      ops_->probe(*ctx_, parse_dtype(dtype), memory, &p);
    }
    return py::dict("read_bytes_per_s"_a = p.read_bytes_per_s, "read_bytes"_a = p.read_bytes,
                    "flops_per_s"_a = p.flops_per_s);
  }

  std::string name() const { return ops_->name; }

 private:
  static int rows_of(const Floats& x, int width) {
    want(x.ndim() == 2 && x.shape(0) > 0 && x.shape(1) == width,
         "array wants shape [n, " + std::to_string(width) + "]");
    return static_cast<int>(x.shape(0));
  }

  static void check_slots(const RowSet& rows, const Cache& cache) {
    want(rows.cos.shape(rows.cos.ndim() - 1) == cache.layer.shape.d / 2, "cos does not fit d");
    for (const auto& blocks : rows.blocks) {
      for (const int32_t b : blocks) want(b >= 0 && b < cache.layer.shape.blocks, "block out of range");
    }
    const Rows& r = rows.rows;
    for (int i = 0; i < r.n; ++i) {
      const View& view = r.view(i);
      const int capacity = static_cast<int>(rows.blocks[&view - r.views].size()) * kKvBlock;
      const uint64_t mask = r.ancestors ? r.ancestors[i] : 0;
      const int last = mask ? view.prefix_len - 1 : r.pos[i];
      want(r.slot[i] >= 0 && r.slot[i] < capacity && last < capacity, "slot out of range");
      want(!mask || view.scratch + 63 - std::countl_zero(mask) < capacity, "scratch out of range");
    }
  }

  const Ops* ops_;
  Ctx* ctx_ = nullptr;
};

}  // namespace
}  // namespace swiftk

void bind_ops(py::module_& parent) {
  using namespace swiftk;
  py::module_ m = parent.def_submodule("ops", "Single ops on arrays, for tests and benchmarks.");
  py::class_<PackedWeight>(m, "PackedWeight")
      .def_property_readonly("bytes", [](const PackedWeight& w) { return w.memory[0]->bytes(); })
      .def_property_readonly("data", [](const PackedWeight& w) {
        return py::bytes(static_cast<const char*>(w.memory[0]->data()), w.memory[0]->bytes());
      });
  py::class_<Cache>(m, "Cache").def_property_readonly("data", [](const Cache& c) {
    return py::bytes(static_cast<const char*>(c.layer.data), c.memory->bytes());
  });
  py::class_<RowSet>(m, "Rows").def(py::init(&make_rows), "pos"_a, "slot"_a, "cos"_a, "sin"_a,
                                    "ancestors"_a = py::none(), "prefix_len"_a = 0, "scratch"_a = 0,
                                    "sequence"_a = py::none(), "views"_a = py::none());
  py::class_<Kernels>(m, "Kernels")
      .def(py::init<const std::string&, int>(), "isa"_a = "", "threads"_a = 1)
      .def_property_readonly("name", &Kernels::name)
      .def("pack", &Kernels::pack, "parts"_a, "format"_a, "group"_a = 0, "interleave"_a = false, "bias"_a = py::none(),
           "fragments"_a = false)
      .def("join", &Kernels::join, "parts"_a, "bias"_a = py::none())
      .def("cache", &Kernels::cache, "n_kv"_a, "d"_a, "capacity"_a, "dtype"_a)
      .def("set_rows", &Kernels::set_rows, "cache"_a, "slot"_a, "k"_a, "v"_a)
      .def("embed", &Kernels::embed, "table"_a, "token"_a, "scale"_a = 1.0f)
      .def("qkv", &Kernels::qkv, "x"_a, "norm"_a, "eps"_a, "w"_a, "rows"_a, "cache"_a, "n_heads"_a,
           "q_norm"_a = py::none(), "k_norm"_a = py::none(), "rope"_a = 0, "query_rope"_a = py::none(),
           "norm_over"_a = "heads")
      .def("attention", &Kernels::attention, "q"_a, "rows"_a, "cache"_a, "window"_a, "scale"_a, "soft_cap"_a = 0.0f)
      .def("residual", &Kernels::residual, "input"_a, "w"_a, "x"_a, "down"_a = false, "scale"_a = 1.0f,
           "norm"_a = py::none(), "eps"_a = 0.0f)
      .def("gate_up", &Kernels::gate_up, "x"_a, "norm"_a, "eps"_a, "w"_a, "gelu"_a = false)
      .def("lm_head", &Kernels::lm_head, "x"_a, "norm"_a, "eps"_a, "w"_a, "scale"_a = 1.0f, "soft_cap"_a = 0.0f)
      .def("rmsnorm", &Kernels::rmsnorm, "x"_a, "norm"_a, "eps"_a, "stride"_a)
      .def("mean", &Kernels::mean, "x"_a, "group"_a)
      .def("spread", &Kernels::spread, "own"_a, "token"_a, "logits"_a)
      .def("topk", &Kernels::topk, "logits"_a, "k"_a, "scores"_a = py::none(), "scale"_a = 1.0f, "seed"_a = py::none(),
           "stream"_a = 0, "pos"_a = py::none())
      .def("move_row", &Kernels::move_row, "cache"_a, "from_slot"_a, "to_slot"_a)
      .def("read_rows", &Kernels::read_rows, "cache"_a, "slot"_a, "stride"_a)
      .def("write_rows", &Kernels::write_rows, "cache"_a, "slot"_a, "rows"_a)
      .def("probe", &Kernels::probe, "dtype"_a, "memory"_a = size_t{1} << 40);
  bind_draw(m);
  m.def("last_caches", &last_caches, "processors"_a = "/sys/devices/system/cpu");
  m.def(
      "decode",
      [](const std::string& encoding, const std::string& bytes) {
        const EncodingFacts& its = facts(encoding_named(encoding).value());
        std::vector<float> out(bytes.size() / its.bytes * its.block);
        decode(*encoding_named(encoding), bytes.data(), out.size(), out.data());
        return py::array_t<float>(static_cast<py::ssize_t>(out.size()), out.data());
      },
      "encoding"_a, "bytes"_a);
  m.def("isas", [] {
    std::vector<std::string> names;
    for (const char* const* name = cpu_isas(); *name; ++name) names.emplace_back(*name);
    return names;
  });
}
