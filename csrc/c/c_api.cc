// The C ABI: models, sessions and generation. The single phases are in c_phases.cc.
#include "c/c_api.h"

#include <cstdio>

#include "base/names.h"
#include "draft/sources/alone.h"
#include "files/family.h"
#include "heads/load.h"

namespace swiftk::c_api {
namespace {

thread_local char last_error[1024] = "";  // a fixed array: reporting that memory ran out must not need memory

// Joined by colons; none of null.
std::vector<std::string> paths(const char* joined) {
  std::vector<std::string> out;
  for (std::string rest = joined ? joined : ""; !rest.empty();) {
    const size_t end = std::min(rest.find(':'), rest.size());
    out.push_back(rest.substr(0, end));
    rest.erase(0, end + 1);
  }
  return out;
}

}  // namespace

GenerateOptions generate_options(const swiftk_generate_params* given, const std::vector<int32_t>& eos_ids) {
  const auto params = read<swiftk_generate_params>(given, SWIFTK_GENERATE_PARAMS_INIT, "params");
  const auto stop = ids(params.stop_ids, params.n_stop, "stop_ids");
  GenerateOptions options{.max_new_tokens = params.max_new_tokens,
                          .stop_ids = {stop.begin(), stop.end()},
                          .speculate = params.speculate != 0};
  if (params.rule) options.rule = tree_rule(params.rule);
  if (!params.ignore_eos) options.stop_ids.insert(options.stop_ids.end(), eos_ids.begin(), eos_ids.end());
  return options;
}

Sampling sampling_of(const swiftk_sampling& in) {
  Sampling out{.temperature = in.temperature,
               .top_k = in.top_k,
               .top_p = in.top_p,
               .min_p = in.min_p,
               .typical_p = in.typical_p,
               .repetition_penalty = in.repetition_penalty,
               .frequency_penalty = in.frequency_penalty,
               .presence_penalty = in.presence_penalty,
               .min_tokens = in.min_tokens,
               .seed = in.seed};
  if (in.n_logit_bias > 0) need(in.logit_bias, "logit_bias");
  for (const auto& [token, bias] : std::span(in.logit_bias, in.n_logit_bias)) {
    if (out.logit_bias.emplace(token, bias).second) continue;
    fail(Status::InvalidArgument, "[sampling] logit_bias has token " + std::to_string(token) + " twice");
  }
  return out;
}

Acceptance acceptance_of(const swiftk_sampling& in) {
  if (in.acceptance != SWIFTK_COUPLED && in.acceptance != SWIFTK_REJECTION) {
    fail(Status::InvalidArgument, "[sampling] acceptance is " + std::to_string(in.acceptance) + ", want 0 or 1");
  }
  return in.acceptance == SWIFTK_COUPLED ? Acceptance::Coupled : Acceptance::Rejection;
}

swiftk_status remember(Status status, const char* what) noexcept {
  std::snprintf(last_error, sizeof last_error, "%s", what);
  return static_cast<swiftk_status>(status);
}

DraftSpec draft_spec(const swiftk_skip* given) {
  const swiftk_skip skip = read<swiftk_skip>(given, SWIFTK_SKIP_INIT, "skip");
  const auto attn = ids(skip.attn, skip.n_attn, "skip.attn"), mlp = ids(skip.mlp, skip.n_mlp, "skip.mlp");
  DraftSpec out{{attn.begin(), attn.end()}, {mlp.begin(), mlp.end()}, skip.exit_layer};
  if (skip.weights) read_weights(out, swiftk::names_in(skip.weights));
  out.trimmed = skip.trimmed != 0;
  out.window = skip.window;
  out.heavy = skip.heavy;
  return out;
}

TreeRule tree_rule(const swiftk_draft_rule* given) {
  const swiftk_draft_rule rule = read<swiftk_draft_rule>(given, SWIFTK_DRAFT_RULE_INIT, "rule");
  SwiftRule swift{.confidence = rule.confidence};
  std::copy_n(rule.tier, swift.tier.size(), swift.tier.begin());
  std::copy_n(rule.width, swift.width.size(), swift.width.begin());
  const TreeRule plan{.max_draft = rule.max_draft, .max_nodes = rule.max_nodes, .grows = swift};
  return swiftk::with_source(plan, rule.drafter ? rule.drafter : "plan", rule.row_price);
}

uint32_t flags_of(const Emitted& e, Origin origin) {
  const uint32_t source = static_cast<uint32_t>(e.source) << 8;
  switch (origin) {
    case Origin::Drafted: return source | SWIFTK_TOKEN_DRAFTED;
    case Origin::Bonus: return source | SWIFTK_TOKEN_BONUS;
    default: return source | SWIFTK_TOKEN_PLAIN;
  }
}

}  // namespace swiftk::c_api

using namespace swiftk::c_api;
using swiftk::fail;
using swiftk::Status;
static_assert(SWIFTK_DEVICE == static_cast<int>(Status::Device));

// The numbers of swiftk.h are the registry's.
constexpr bool is(int number, swiftk::SourceId id) { return number == static_cast<int>(id); }
using Id = swiftk::SourceId;
static_assert(
    is(SWIFTK_SOURCE_TARGET, Id::Target) && is(SWIFTK_SOURCE_PLAN, Id::Plan) && is(SWIFTK_SOURCE_SUFFIX, Id::Suffix) &&
        is(SWIFTK_SOURCE_RECYCLE, Id::Recycle) && is(SWIFTK_SOURCE_LOOKUP, Id::Lookup) &&
        is(SWIFTK_SOURCE_LOOKAHEAD, Id::Lookahead) && is(SWIFTK_SOURCE_PARALLEL, Id::Parallel) &&
        is(SWIFTK_SOURCE_TEMPLATE, Id::Template) && is(SWIFTK_SOURCE_GRAMMAR, Id::Grammar) &&
        is(SWIFTK_SOURCE_HOST, Id::Host),
    "csrc/draft/sources/registry.h lists the sources of csrc/c/swiftk.h in another order: put new ones at its end");
static_assert(swiftk::kSourceIds <= SWIFTK_SOURCES,
              "csrc/draft/sources/registry.h lists more sources than SWIFTK_SOURCES of csrc/c/swiftk.h, which sizes "
              "its structs: "
              "raise both it and SWIFTK_ABI_VERSION");

uint32_t swiftk_abi_version(void) { return SWIFTK_ABI_VERSION; }
const char* swiftk_version(void) { return SWIFTK_VERSION; }
const char* swiftk_last_error(void) { return last_error; }

const char* swiftk_status_name(swiftk_status status) {
  static const char* const names[] = {"ok",        "invalid argument", "checkpoint", "unsupported", "numerical",
                                      "cancelled", "out of memory",    "internal",   "device"};
  return status >= SWIFTK_OK && status <= SWIFTK_DEVICE ? names[status] : "unknown status";
}

const char* swiftk_source_name(int source) {
  return source >= 0 && source < swiftk::kSourceIds ? name_of(static_cast<Id>(source)) : "unknown source";
}

swiftk_status swiftk_model_load(const char* dir, const swiftk_load_params* given, swiftk_model** model) {
  return guarded([&] {
    need(model, "model") = nullptr;
    need(dir, "dir");
    const auto params = read<swiftk_load_params>(given, SWIFTK_LOAD_PARAMS_INIT, "params");
    const auto tokens = ids(params.draft_tokens, params.n_draft_tokens, "params.draft_tokens");
    swiftk::LoadOptions options{.dtype = params.dtype ? params.dtype : "auto",
                                .kv_dtype = params.kv_dtype ? params.kv_dtype : "auto",
                                .draft_weights = params.draft_weights ? params.draft_weights : "",
                                .draft_tokens = {tokens.begin(), tokens.end()},
                                .draft_memory = params.draft_memory,
                                .memory = params.memory,
                                .kv_memory = params.kv_memory,
                                .drafters = paths(params.drafter),
                                .isa = params.isa ? params.isa : "",
                                .threads = params.threads,
                                .device = params.device ? params.device : "",
                                .pack = params.pack ? params.pack : "",
                                .drafter_packs = paths(params.drafter_packs),
                                .progress = {}};
    if (params.progress) {
      options.progress = [&](size_t done, size_t total) { return params.progress(params.user, done, total) == 0; };
    }
    const auto files = swiftk::open_model_files(dir);
    std::vector<int32_t> eos_ids = files->token_ids("eos_token");
    *model = new swiftk_model{swiftk::load_with_draft_models(*files, options), std::move(eos_ids)};
  });
}

swiftk_status swiftk_model_get_info(const swiftk_model* handle, swiftk_model_info* info) {
  return guarded([&] {
    const swiftk::Model& model = *need(handle, "model").model;
    const swiftk::Config& c = model.config;
    write(info,
          swiftk_model_info{.struct_size = 0,
                            .vocab = c.V,
                            .layers = c.L,
                            .hidden = c.D,
                            .heads = c.H,
                            .kv_heads = c.n_kv,
                            .head_dim = c.d,
                            .ffn = c.F,
                            .context = c.max_position,
                            .threads = model.threads,
                            .model_type = c.family->model_type,
                            .dtype = name_of(model.own.format),
                            .isa = model.ops->name,
                            .weight_bytes = model.own.bytes,
                            .eos_ids = handle->eos_ids.data(),
                            .n_eos = handle->eos_ids.size()},
          "info");
  });
}

swiftk_model* swiftk_model_retain(swiftk_model* model) {
  if (model) model->references.fetch_add(1, std::memory_order_relaxed);
  return model;
}

void swiftk_model_release(swiftk_model* model) {
  if (model && model->references.fetch_sub(1, std::memory_order_acq_rel) == 1) delete model;
}

swiftk_status swiftk_session_create(swiftk_model* model, const swiftk_session_params* given, swiftk_session** session) {
  return guarded([&] {
    need(session, "session") = nullptr;
    need(model, "model");
    const auto params = read<swiftk_session_params>(given, SWIFTK_SESSION_PARAMS_INIT, "params");
    if (params.threads < 0) {
      fail(Status::InvalidArgument, "[session] threads is " + std::to_string(params.threads) + ", want 0 or more");
    }
    *session = new swiftk_session(*model, {.context = params.context, .threads = params.threads});
    using swiftk::Recall;
    const Recall kept = params.recall > 0 ? Recall::All : params.recall < 0 ? Recall::Nothing : Recall::Matrix;
    (*session)->session.set_recall(kept);
  });
}

void swiftk_session_free(swiftk_session* session) { delete session; }

swiftk_status swiftk_session_set_sampling(swiftk_session* session, const swiftk_sampling* given) {
  return with(session, [&](swiftk_session& s) {
    const auto in = read<swiftk_sampling>(given, SWIFTK_SAMPLING_INIT, "sampling");
    s.session.set_sampling(sampling_of(in), acceptance_of(in));
  });
}

swiftk_status swiftk_session_set_skip(swiftk_session* session, const swiftk_skip* skip) {
  return with(session, [&](swiftk_session& s) { s.session.set_skip(draft_spec(skip)); });
}

swiftk_status swiftk_session_set_sources(swiftk_session* session, const swiftk_source_settings* given) {
  return with(session, [&](swiftk_session& s) {
    const auto in = read<swiftk_source_settings>(given, SWIFTK_SOURCE_SETTINGS_INIT, "sources");
    s.session.set_sources({.suffix = {in.suffix_length, in.suffix_matches, in.suffix_ranks},
                           .lookup = {in.lookup_ngram, in.lookup_tokens},
                           .lookahead = {in.lookahead_ngram, in.lookahead_window, in.lookahead_guesses},
                           .parallel = {in.parallel_tokens}});
  });
}

swiftk_status swiftk_session_cancel(swiftk_session* session) {
  return guarded([&] { need(session, "session").session.cancel(); });
}

swiftk_status swiftk_session_clear_cancel(swiftk_session* session) {
  return guarded([&] { need(session, "session").session.clear_cancel(); });
}

swiftk_status swiftk_generate(swiftk_session* session, const int32_t* prompt, size_t n_prompt,
                              const swiftk_generate_params* params, swiftk_on_token on_token, void* user) {
  return with(session, [&](swiftk_session& s) {
    const auto report = [&](const swiftk::Emitted& e, swiftk::Origin origin, bool stops) {
      const uint32_t flags = flags_of(e, origin) | (stops ? SWIFTK_TOKEN_STOP : 0);
      return !on_token || on_token(user, e.token, flags, e.logprob) == 0;
    };
    swiftk::generate(s.session, s.planner, ids(prompt, n_prompt, "prompt"), generate_options(params, s.eos_ids), report,
                     s.stats);
  });
}

swiftk_status swiftk_session_get_stats(const swiftk_session* session, swiftk_stats* stats) {
  return with(session, [&](const swiftk_session& s) {
    const swiftk::GenerateStats& g = s.stats;
    swiftk_stats reported{
        .struct_size = 0,
        .finish = static_cast<int32_t>(g.finish),
        .prompt_tokens = g.prompt_tokens,
        .reused_tokens = g.reused_tokens,
        .new_tokens = g.new_tokens,
        .num_spec_steps = g.spec_steps,
        .num_draft_tokens = g.drafted,
        .num_accepted_draft_tokens = g.accepted[static_cast<int>(swiftk::SourceId::Plan)],
        .num_plain_steps = g.plain_steps,
        .prefill_seconds = g.prefill,
        .draft_seconds = g.draft,
        .verify_seconds = g.verify,
        .commit_seconds = g.commit,
        .cache_bytes = s.session.cache_bytes(),
        .workspace_bytes = s.session.workspace_bytes(),
        .proposed = {},
        .accepted = {},
        .num_draft_steps = g.draft_steps,
        .mean_generated_length = g.whole_steps > 0 ? static_cast<double>(g.whole_tokens) / g.whole_steps : 1.0,
        .num_draft_nodes = g.draft_nodes};
    std::copy(g.proposed.begin(), g.proposed.end(), reported.proposed);
    std::copy(g.accepted.begin(), g.accepted.end(), reported.accepted);
    write(stats, reported, "stats");
  });
}
