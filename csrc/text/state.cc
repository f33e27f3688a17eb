#include "text/state.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>

#include "base/checksum.h"

namespace swiftk {
namespace {

constexpr char kMagic[8] = {'s', 'w', 'i', 'f', 't', 'k', 's', '5'};

struct Header {
  char magic[8];
  char kernels[32];   // whose bits these are
  uint64_t checksum;  // of what follows the header
  uint64_t round;
  int32_t layers, n_kv, d, V, dtype;
  int32_t text, cached;  // tokens
  int32_t features;      // floats of each token that a draft model reads
  int32_t prompt;        // leading tokens that were not generated
  int32_t stretched;
  int32_t gone;  // leading blocks that are left out of layers with windows
};

Header header_of(const Workspace& w, const Sequence& s) {
  const Model& model = *w.model;
  Header h{};
  std::memcpy(h.magic, kMagic, sizeof kMagic);
  std::strncpy(h.kernels, model.ops->name, sizeof h.kernels - 1);
  h.layers = model.config.L;
  h.n_kv = model.config.n_kv;
  h.d = model.config.d;
  h.V = model.config.V;
  h.dtype = static_cast<int32_t>(model.kv_dtype);
  h.features = w.pool.features();
  h.text = s.position();
  h.cached = s.cached;
  h.prompt = s.position() - s.seen.generated();
  h.round = s.round;
  h.stretched = s.stretched;
  h.gone = std::max(s.gone, w.pool.first_seen(s.cached - kLookBack));
  return h;
}

std::vector<std::span<char>> parts_of(const Workspace& w, const Sequence& s, const Header& h) {
  return w.pool.parts(std::span(s.blocks).first(blocks_for(h.cached)), h.gone);
}

// Makes room for a text that is about to be read. Blocks that are left out of layers with windows get no panes.
void make_room(Workspace& w, Sequence& s, const Header& h) {
  w.go_back(s, 0);
  s.cached = h.cached;
  s.gone = h.gone;
  if (!w.reserve(s, h.cached)) fail(Status::OutOfMemory, "[state] there are too few blocks for its text");
}

void want(bool ok, const std::string& what) {
  if (!ok) fail(Status::InvalidArgument, "[state] " + what);
}

}  // namespace

std::vector<char> save_state(Workspace& w, const Sequence& s) {
  Header header = header_of(w, s);
  const std::span<const std::byte> text = std::as_bytes(std::span(s.text));
  std::vector<char> out(sizeof header + text.size());
  std::copy_n(reinterpret_cast<const char*>(text.data()), text.size(), out.data() + sizeof header);
  for (const std::span<char> part : parts_of(w, s, header)) {
    out.resize(out.size() + part.size());
    w.model->ops->download(w.executor.ctx(), out.data() + out.size() - part.size(), part.data(), part.size());
  }
  header.checksum = checksum_of({out.data() + sizeof header, out.size() - sizeof header});
  std::memcpy(out.data(), &header, sizeof header);
  return out;
}

void load_state(Workspace& w, Sequence& s, std::span<const char> state) {
  Header h;
  want(state.size() >= sizeof h, "it has " + std::to_string(state.size()) + " bytes, fewer than its header");
  std::memcpy(&h, state.data(), sizeof h);
  want(std::memcmp(h.magic, kMagic, sizeof kMagic) == 0, "these are not the bytes of a saved text");
  const Header mine = header_of(w, s);
  want(std::memcmp(h.kernels, mine.kernels, sizeof h.kernels) == 0,
       "it is of the kernels '" + std::string(h.kernels, strnlen(h.kernels, sizeof h.kernels)) + "', want '" +
           mine.kernels + "': others have other bits");
  want(h.layers == mine.layers && h.n_kv == mine.n_kv && h.d == mine.d && h.V == mine.V && h.dtype == mine.dtype,
       "it is of a model of another shape or dtype");
  want(h.features == mine.features, "it keeps " + std::to_string(h.features) +
                                        " features of each token, this model's " + "draft model reads " +
                                        std::to_string(mine.features));
  want(h.text >= 0 && h.cached >= 0 && h.cached <= h.text && h.prompt >= 0 && h.prompt <= h.text,
       "its lengths cannot be");
  want(h.text <= s.most_text, "its text has " + std::to_string(h.text) + " tokens, want at most the context of " +
                                  std::to_string(s.most_text));
  want(h.stretched == mine.stretched,
       "it was made with a context on the other side of the model's original one, whose rotary positions differ");
  want(h.gone >= w.pool.first_seen(h.cached - kLookBack) && h.gone <= w.pool.first_seen(h.cached),
       "its layers with windows have other blocks than the next token sees");
  const size_t bytes = sizeof h + sizeof(int32_t) * h.text + w.pool.parts_bytes(blocks_for(h.cached), h.gone);
  want(state.size() == bytes, "it has " + std::to_string(state.size()) + " bytes, want " + std::to_string(bytes));
  want(checksum_of(state.subspan(sizeof h)) == h.checksum, "its checksum differs: it is damaged");
  std::vector<int32_t> text(h.text);
  std::memcpy(text.data(), state.data() + sizeof h, sizeof(int32_t) * h.text);
  want(std::all_of(text.begin(), text.end(), [&](int32_t t) { return t >= 0 && t < h.V; }), "a token is out of range");

  const char* from = state.data() + sizeof h + sizeof(int32_t) * h.text;
  make_room(w, s, h);
  for (const std::span<char> part : parts_of(w, s, h)) {
    w.model->ops->upload(w.executor.ctx(), part.data(), from, part.size());
    from += part.size();
  }
  s.text = std::move(text);
  s.text.reserve(s.most_text + 1);
  s.round = h.round;
  s.seen.reset();
  for (int32_t i = 0; i < h.text; ++i) i < h.prompt ? s.seen.add_prompt(s.text[i]) : s.seen.add(s.text[i]);
  s.sources.restart(0, false);
  s.forget_tree();
}

}  // namespace swiftk
