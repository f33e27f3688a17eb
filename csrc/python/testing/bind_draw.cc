// swiftk._testing.ops.draw: one draw from one row, by the row's best logits or by the whole row, for tests of their
// equality. swiftk._testing.ops.rejection: what the rejection rule makes of siblings, for tests that enumerate them.
#include <pybind11/stl.h>

#include "python/testing/bind_arrays.h"
#include "sampling/nucleus.h"
#include "sampling/rejection.h"

using namespace py::literals;

namespace swiftk {
namespace {

struct FreeCtx {
  const Ops* ops;
  void operator()(Ctx* ctx) const { ops->destroy(ctx); }
};

// The ids of the best k that are kept; none if the list does not say.
std::optional<std::vector<int32_t>> draw_row(const Floats& logits, const Sampling& s, int k, int32_t pos,
                                             const Ints& prompt, const Ints& text, const std::vector<int32_t>& path,
                                             const std::string& isa, bool whole) {
  const int vocab = static_cast<int>(logits.size());
  check(s, vocab);
  want(k >= 1 && k <= kMaxTopk && k <= vocab, "k is out of range");
  SeenTokens seen(vocab);
  for (py::ssize_t i = 0; i < prompt.size(); ++i) seen.add_prompt(prompt.at(i));
  for (py::ssize_t i = 0; i < text.size(); ++i) seen.add(text.at(i));
  const Before before{seen, path};
  const Ops* const ops = cpu_ops(isa.c_str());
  want(ops, "isa '" + isa + "' is unknown here");
  const std::unique_ptr<Ctx, FreeCtx> ctx(ops->create(nullptr, 1), {ops});

  const Wanted wanted = swiftk::wanted(s, seen.generated(), vocab, k);
  std::vector<float> scores(vocab), logit(kMaxTopk);
  std::vector<int32_t> id(kMaxTopk);
  float lse = 0, mass = 0;
  TopkArgs args{.logits = logits.data(),
                .scores = logits.data(),
                .n = 1,
                .vocab = vocab,
                .k = wanted.k,
                .scale = s.greedy() ? 1.0f : 1 / s.temperature,
                .noisy = wanted.noisy,
                .seed = s.seed,
                .stream = Stream::Target,
                .pos = &pos,
                .id = id.data(),
                .logit = logit.data(),
                .lse = &lse,
                .mass = wanted.mass ? &mass : nullptr};
  if (whole) {
    std::vector<std::pair<float, int32_t>> scratch;
    warp(s, logits.data(), vocab, before, scores.data(), scratch);
    args.scores = scores.data();
    args.k = k;
    args.scale = 1;
    args.noisy = !s.greedy();
    args.mass = nullptr;
    ops->topk(*ctx, args);
    id.resize(std::find(id.begin(), id.begin() + k, -1) - id.begin());
    return id;
  }
  ops->topk(*ctx, args);
  std::vector<ScoredToken> best;
  if (!draw_listed(s, args, wanted.row ? logits.data() : nullptr, before, k, best)) return {};
  id.clear();
  for (const ScoredToken& c : best) id.push_back(c.id);
  return id;
}

// How likely each sibling is accepted where those before were not, and what is left of p after the last.
std::pair<std::vector<double>, std::vector<double>> rejection(std::vector<double> p, std::vector<double> q,
                                                              const std::vector<int32_t>& siblings) {
  want(q.empty() || q.size() == p.size(), "p and q differ in size");
  Rejection rule(p, q);
  std::vector<double> chances;
  for (const int32_t x : siblings) {
    want(x >= 0 && static_cast<size_t>(x) < p.size(), "a sibling is out of range");
    chances.push_back(rule.chance(x));
    rule.reject(x);
  }
  return {chances, p};
}

}  // namespace
}  // namespace swiftk

void bind_draw(py::module_& m) {
  using namespace swiftk;
  m.def("draw", draw_row, "logits"_a, "sampling"_a, py::kw_only(), "k"_a = 1, "pos"_a = 0, "prompt"_a, "text"_a,
        "path"_a, "isa"_a = "", "whole"_a = false);
  m.def("rejection", rejection, "p"_a, "q"_a, "siblings"_a);
}
