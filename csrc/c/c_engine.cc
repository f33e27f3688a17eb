// The C ABI: engines.
#include "c/c_api.h"
#include "engine/engine.h"

using namespace swiftk::c_api;
using swiftk::fail;
using swiftk::Status;

struct swiftk_engine {
  swiftk_engine(const swiftk_model& model, const swiftk::EngineOptions& options)
      : engine(model.model, options), eos_ids(model.eos_ids) {}
  swiftk::Engine engine;
  std::vector<int32_t> eos_ids;
  std::vector<swiftk_event> events;
  std::atomic<bool> stepping{false};
};

static_assert(SWIFTK_FINISH_CANCELLED == static_cast<int>(swiftk::Finish::Cancelled));
static_assert(SWIFTK_FINISH_FAILED == static_cast<int>(swiftk::Finish::Failed));

namespace {

swiftk::Request request_of(const swiftk_engine& engine, const swiftk_request& given) {
  const auto sampling = read<swiftk_sampling>(given.sampling, SWIFTK_SAMPLING_INIT, "sampling");
  const auto params = read<swiftk_generate_params>(given.params, SWIFTK_GENERATE_PARAMS_INIT, "params");
  const swiftk::GenerateOptions options = generate_options(given.params, engine.eos_ids);
  const auto prompt = ids(given.prompt, given.n_prompt, "prompt");
  swiftk::Request r{.prompt = {prompt.begin(), prompt.end()},
                    .sampling = sampling_of(sampling),
                    .acceptance = acceptance_of(sampling),
                    .max_new_tokens = options.max_new_tokens};
  r.sampling.stop_ids = options.stop_ids;
  using swiftk::DraftBy;
  r.draft_by = !options.speculate ? DraftBy::Nothing : params.rule ? DraftBy::Rule : DraftBy::Planner;
  if (options.rule) r.rule = *options.rule;
  if (params.rule) {
    r.always = true;
    r.plans = given.skip ? swiftk::Plans::Fixed : swiftk::Plans::None;
    if (given.skip) r.skips = {draft_spec(given.skip)};
  }
  return r;
}

// A token each, and the end with the last of them.
void report(const swiftk::Turn& turn, std::vector<swiftk_event>& out) {
  const bool stops = turn.finish == swiftk::Finish::Stop;
  swiftk_event event{.id = turn.id, .token = -1, .flags = 0, .logprob = 0, .finish = 0, .status = SWIFTK_OK};
  if (turn.tokens.empty()) out.push_back(event);
  for (const swiftk::Emitted& e : turn.tokens) {
    event.token = e.token;
    event.flags = flags_of(e, turn.origin(e));
    event.logprob = e.logprob;
    out.push_back(event);
  }
  if (stops) out.back().flags |= SWIFTK_TOKEN_STOP;
  out.back().finish = static_cast<int32_t>(turn.finish);
  out.back().status = static_cast<swiftk_status>(turn.status);
}

}  // namespace

swiftk_status swiftk_engine_create(swiftk_model* model, const swiftk_engine_params* given, swiftk_engine** engine) {
  return guarded([&] {
    need(engine, "engine") = nullptr;
    need(model, "model");
    const auto params = read<swiftk_engine_params>(given, SWIFTK_ENGINE_PARAMS_INIT, "params");
    *engine = new swiftk_engine(*model, {.context = params.context,
                                         .sequences = params.sequences,
                                         .kv_memory = params.kv_memory,
                                         .threads = params.threads});
  });
}

void swiftk_engine_free(swiftk_engine* engine) { delete engine; }

swiftk_status swiftk_engine_submit(swiftk_engine* engine, const swiftk_request* given, uint64_t* id) {
  return guarded([&] {
    swiftk_engine& e = need(engine, "engine");
    uint64_t& out = need(id, "id");
    out = e.engine.submit(request_of(e, read<swiftk_request>(&need(given, "request"), SWIFTK_REQUEST_INIT, "request")));
  });
}

swiftk_status swiftk_engine_cancel(swiftk_engine* engine, uint64_t id) {
  return guarded([&] { need(engine, "engine").engine.cancel(id); });
}

swiftk_status swiftk_engine_propose(swiftk_engine* engine, uint64_t id, int32_t at, const int32_t* tokens, size_t n) {
  return guarded([&] {
    swiftk_engine& e = need(engine, "engine");
    if (n > 0) need(tokens, "tokens");
    e.engine.propose(id, {at, std::vector<int32_t>(tokens, tokens + n)});
  });
}

swiftk_status swiftk_engine_step(swiftk_engine* engine, const swiftk_event** events, size_t* n) {
  return guarded([&] {
    swiftk_engine& e = need(engine, "engine");
    need(events, "events"), need(n, "n");
    if (e.stepping.exchange(true, std::memory_order_acquire)) {
      fail(Status::InvalidArgument, "[swiftk] another step of this engine is under way");
    }
    struct Guard {
      std::atomic<bool>& flag;
      ~Guard() { flag.store(false, std::memory_order_release); }
    } const guard{e.stepping};
    e.events.clear();
    for (const swiftk::Turn& turn : e.engine.step()) report(turn, e.events);
    *events = e.events.data();
    *n = e.events.size();
  });
}

swiftk_status swiftk_engine_idle(const swiftk_engine* engine, int32_t* idle) {
  return guarded([&] { need(idle, "idle") = need(engine, "engine").engine.idle(); });
}
