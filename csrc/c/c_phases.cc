// The C ABI: the single phases of a session, for hosts that schedule by themselves.
#include <algorithm>

#include "c/c_api.h"

using namespace swiftk::c_api;
using swiftk::Emitted;
using swiftk::fail;
using swiftk::Origin;
using swiftk::Status;

namespace {

swiftk_token token(const Emitted& e, Origin otherwise) {
  return {e.token, flags_of(e, e.drafted() ? Origin::Drafted : otherwise), e.logprob};
}

}  // namespace

swiftk_status swiftk_session_reuse(swiftk_session* session, const int32_t* tokens, size_t n, size_t* kept) {
  return with(session, [&](swiftk_session& s) {
    size_t& out = need(kept, "kept");
    out = s.session.reuse(ids(tokens, n, "tokens"));
  });
}

swiftk_status swiftk_session_max_chunk(const swiftk_session* session, size_t* n) {
  return with(session, [&](const swiftk_session& s) { need(n, "n") = s.session.max_chunk(); });
}

swiftk_status swiftk_session_extend(swiftk_session* session, const int32_t* tokens, size_t n) {
  return with(session, [&](swiftk_session& s) { s.session.extend(ids(tokens, n, "tokens")); });
}

swiftk_status swiftk_session_sample(swiftk_session* session, swiftk_token* out) {
  return with(session, [&](swiftk_session& s) {
    need(out, "token");
    *out = token(s.session.sample(), Origin::Plain);
  });
}

swiftk_status swiftk_session_put(swiftk_session* session, int32_t token) {
  return with(session, [&](swiftk_session& s) { s.session.put(token); });
}

swiftk_status swiftk_session_commit_tokens(swiftk_session* session, const int32_t* tokens, size_t n) {
  return with(session, [&](swiftk_session& s) { s.session.commit_tokens(ids(tokens, n, "tokens")); });
}

swiftk_status swiftk_session_save(swiftk_session* session, void* state, size_t capacity, size_t* bytes) {
  return with(session, [&](swiftk_session& s) {
    size_t& out = need(bytes, "bytes");
    const std::vector<char> saved = s.session.save();
    out = saved.size();
    if (!state) return;
    if (capacity < saved.size()) {
      fail(Status::InvalidArgument,
           "[state] capacity is " + std::to_string(capacity) + ", want " + std::to_string(saved.size()) + " bytes");
    }
    std::memcpy(state, saved.data(), saved.size());
  });
}

swiftk_status swiftk_session_load(swiftk_session* session, const void* state, size_t bytes) {
  return with(session,
              [&](swiftk_session& s) { s.session.load({&need(static_cast<const char*>(state), "state"), bytes}); });
}

swiftk_status swiftk_session_draft(swiftk_session* session, const swiftk_draft_rule* rule) {
  return with(session, [&](swiftk_session& s) { s.session.draft(tree_rule(rule)); });
}

swiftk_status swiftk_session_set_tree(swiftk_session* session, const int32_t* tokens, const int32_t* parents,
                                      size_t n) {
  return with(session,
              [&](swiftk_session& s) { s.session.set_tree(ids(tokens, n, "tokens"), ids(parents, n, "parents")); });
}

swiftk_status swiftk_session_tree(const swiftk_session* session, const int32_t** tokens, const int32_t** parents,
                                  size_t* n) {
  return with(session, [&](const swiftk_session& s) {
    need(tokens, "tokens"), need(parents, "parents"), need(n, "n");
    *tokens = s.session.tree().tokens();
    *parents = s.session.tree().parents();
    *n = s.session.tree().size();
  });
}

swiftk_status swiftk_session_verify(swiftk_session* session, const swiftk_token** emitted, size_t* n) {
  return with(session, [&](swiftk_session& s) {
    need(emitted, "emitted"), need(n, "n");
    const Origin last = s.session.tree().size() > 1 ? Origin::Bonus : Origin::Plain;
    s.emitted.clear();
    for (const Emitted& e : s.session.verify()) s.emitted.push_back(token(e, last));
    *emitted = s.emitted.data();
    *n = s.emitted.size();
  });
}

swiftk_status swiftk_session_commit(swiftk_session* session, size_t n) {
  return with(session, [&](swiftk_session& s) { s.session.commit(static_cast<int>(std::min<size_t>(n, INT_MAX))); });
}

swiftk_status swiftk_session_score(swiftk_session* session, const swiftk_skip* skip, int32_t window,
                                   swiftk_score* out) {
  return with(session, [&](swiftk_session& s) {
    need(out, "score");
    const std::span<const swiftk::Outcome> outcomes = s.session.score(draft_spec(skip), window);
    const auto matches = std::count_if(outcomes.begin(), outcomes.end(), [](const auto& o) { return o.rank == 0; });
    write(out,
          swiftk_score{.struct_size = 0,
                       .rows = static_cast<int32_t>(outcomes.size()),
                       .matches = static_cast<int32_t>(matches),
                       .seconds = s.session.last().score},
          "score");
  });
}

swiftk_status swiftk_session_history(const swiftk_session* session, const int32_t** tokens, size_t* n) {
  return with(session, [&](const swiftk_session& s) {
    need(tokens, "tokens"), need(n, "n");
    *tokens = s.session.history().data();
    *n = s.session.history().size();
  });
}

swiftk_status swiftk_session_logits(const swiftk_session* session, const float** logits, size_t* rows, size_t* vocab) {
  return with(session, [&](const swiftk_session& s) {
    need(logits, "logits"), need(rows, "rows"), need(vocab, "vocab");
    const std::span<const float> all = s.session.logits();
    *logits = all.data();
    *vocab = s.session.model().config.V;
    *rows = all.size() / *vocab;
  });
}
