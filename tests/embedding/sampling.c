/* What a host's sampling says of biases, penalties and early ends; hosts of older headers, too.   sampling MODEL_DIR
 * ISA */
#include <stddef.h>

#include "check.h"

static const int32_t kPrompt[] = {5, 9, 2, 7, 7, 1, 30, 12, 4, 8, 21};
enum { PROMPT = sizeof kPrompt / sizeof *kPrompt, LENGTH = 30 };
static const int32_t kLayers[] = {1};

static swiftk_session* make_session(swiftk_model* model, const swiftk_sampling* sampling) {
  swiftk_skip skip = SWIFTK_SKIP_INIT;
  swiftk_session* session = NULL;
  skip.attn = skip.mlp = kLayers;
  skip.n_attn = skip.n_mlp = 1;
  CHECK_OK(swiftk_session_create(model, NULL, &session));
  CHECK_OK(swiftk_session_set_sampling(session, sampling));
  CHECK_OK(swiftk_session_set_skip(session, &skip));
  return session;
}

static swiftk_generate_params params_of(int32_t speculate) {
  swiftk_generate_params params = SWIFTK_GENERATE_PARAMS_INIT;
  static swiftk_draft_rule rule = SWIFTK_DRAFT_RULE_INIT;
  rule.confidence = 0.01f; /* random weights are never sure */
  params.max_new_tokens = LENGTH;
  params.speculate = speculate;
  params.ignore_eos = 1;
  params.rule = &rule;
  return params;
}

static Record generated(swiftk_model* model, const swiftk_sampling* sampling, const swiftk_generate_params* params) {
  swiftk_session* session = make_session(model, sampling);
  Record got = {.n = 0};
  CHECK_OK(swiftk_generate(session, kPrompt, PROMPT, params, record, &got));
  swiftk_session_free(session);
  return got;
}

static int equal(const Record* a, const Record* b) {
  return a->n == b->n && memcmp(a->token, b->token, a->n * sizeof *a->token) == 0;
}

static size_t count(const Record* text, int32_t token) {
  size_t n = 0;
  for (size_t i = 0; i < text->n; ++i) n += text->token[i] == token;
  return n;
}

/* The struct as it was before it had penalties: what lies after its end is not read. */
static void check_an_older_host(swiftk_model* model) {
  swiftk_sampling sampling = SWIFTK_SAMPLING_INIT;
  const swiftk_generate_params params = params_of(0);
  sampling.temperature = 0.8f;
  sampling.seed = 3;
  const Record want = generated(model, &sampling, &params);
  sampling.struct_size = offsetof(swiftk_sampling, frequency_penalty);
  memset((char*)&sampling + sampling.struct_size, 0x7f, sizeof sampling - sampling.struct_size);
  const Record got = generated(model, &sampling, &params);
  CHECK(sampling.struct_size == sizeof(size_t) + 6 * 4 + 8);
  CHECK(got.n == LENGTH && equal(&got, &want));
}

static void check_touches(swiftk_model* model, float temperature) {
  const swiftk_generate_params plain = params_of(0), drafted = params_of(1);
  swiftk_sampling sampling = SWIFTK_SAMPLING_INIT;
  sampling.temperature = temperature;
  sampling.seed = 11;
  const Record free_text = generated(model, &sampling, &plain);

  swiftk_logit_bias bias[] = {{17, 1e30f}, {18, -100.0f}};
  sampling.logit_bias = bias;
  sampling.n_logit_bias = 2;
  const Record biased = generated(model, &sampling, &plain);
  CHECK(count(&biased, 17) == LENGTH && count(&free_text, 17) < LENGTH);

  bias[0].bias = temperature > 0 ? 4.0f : 6.0f;
  sampling.frequency_penalty = 0.5f;
  sampling.presence_penalty = 0.25f;
  const Record want = generated(model, &sampling, &plain), got = generated(model, &sampling, &drafted);
  CHECK(equal(&got, &want) && !equal(&got, &free_text) && count(&want, 17) < LENGTH);

  swiftk_session* session = make_session(model, &sampling); /* the host's array may go */
  Record again = {.n = 0};
  bias[0].token = 19;
  CHECK_OK(swiftk_generate(session, kPrompt, PROMPT, &plain, record, &again));
  CHECK(equal(&again, &want));
  swiftk_session_free(session);
}

static Record by_engine(swiftk_model* model, const swiftk_sampling* sampling, const swiftk_generate_params* params) {
  swiftk_engine* engine = NULL;
  swiftk_request request = SWIFTK_REQUEST_INIT;
  Record got = {.n = 0};
  uint64_t id;
  int32_t idle = 0;
  request.prompt = kPrompt;
  request.n_prompt = PROMPT;
  request.sampling = sampling;
  request.params = params;
  CHECK_OK(swiftk_engine_create(model, NULL, &engine));
  CHECK_OK(swiftk_engine_submit(engine, &request, &id));
  while (!idle) {
    const swiftk_event* events;
    size_t n;
    CHECK_OK(swiftk_engine_step(engine, &events, &n));
    for (size_t i = 0; i < n; ++i) record(&got, events[i].token, events[i].flags, events[i].logprob);
    CHECK_OK(swiftk_engine_idle(engine, &idle));
  }
  swiftk_engine_free(engine);
  return got;
}

/* The first ten tokens of the text all end it; none of them comes among the first eight. */
static void check_min_tokens(swiftk_model* model) {
  swiftk_sampling sampling = SWIFTK_SAMPLING_INIT;
  swiftk_generate_params params = params_of(0);
  const Record whole = generated(model, &sampling, &params);
  params.stop_ids = whole.token;
  params.n_stop = 10;
  const Record cut = generated(model, &sampling, &params);
  CHECK(cut.n == 1);
  sampling.min_tokens = 8;
  const Record held = generated(model, &sampling, &params), same = by_engine(model, &sampling, &params);
  CHECK(held.n >= 9 && equal(&held, &same));
  for (size_t i = 0; i < 10; ++i) CHECK(count(&held, whole.token[i]) == 0 || held.token[held.n - 1] == whole.token[i]);
  params.speculate = 1;
  const Record drafted = generated(model, &sampling, &params), too = by_engine(model, &sampling, &params);
  CHECK(equal(&drafted, &held) && equal(&too, &held));
}

static void rounds(swiftk_session* session, Record* got, size_t until) {
  while (got->n < until) {
    const swiftk_token* emitted;
    size_t n;
    CHECK_OK(swiftk_session_set_tree(session, NULL, NULL, 0));
    CHECK_OK(swiftk_session_verify(session, &emitted, &n));
    record(got, emitted[0].token, emitted[0].flags, emitted[0].logprob);
    CHECK_OK(swiftk_session_commit(session, 1));
  }
}

/* A saved text knows which of its tokens were generated. */
static void check_saved_text(swiftk_model* model) {
  swiftk_sampling sampling = SWIFTK_SAMPLING_INIT;
  const swiftk_generate_params params = params_of(0);
  sampling.repetition_penalty = 0.6f; /* runs in circles, but for */
  sampling.frequency_penalty = 0.3f;
  const Record want = generated(model, &sampling, &params);

  swiftk_session *from = make_session(model, &sampling), *to = make_session(model, &sampling);
  Record got = {.n = 0};
  swiftk_token first;
  size_t kept, bytes;
  CHECK_OK(swiftk_session_reuse(from, kPrompt, PROMPT, &kept));
  CHECK_OK(swiftk_session_extend(from, kPrompt, PROMPT));
  CHECK_OK(swiftk_session_sample(from, &first));
  record(&got, first.token, first.flags, first.logprob);
  rounds(from, &got, LENGTH / 2);
  CHECK_OK(swiftk_session_save(from, NULL, 0, &bytes));
  char* const state = malloc(bytes);
  CHECK_OK(swiftk_session_save(from, state, bytes, &bytes));
  CHECK_OK(swiftk_session_load(to, state, bytes));
  rounds(to, &got, LENGTH);
  CHECK(equal(&got, &want));
  free(state);
  swiftk_session_free(from);
  swiftk_session_free(to);
}

static void check_refusals(swiftk_model* model) {
  swiftk_sampling usual = SWIFTK_SAMPLING_INIT;
  swiftk_session* session = make_session(model, &usual);
  swiftk_logit_bias bias[] = {{3, 1.0f}, {3, 2.0f}};
  swiftk_sampling sampling = usual;
  sampling.frequency_penalty = 2.5f;
  CHECK_BAD(swiftk_session_set_sampling(session, &sampling));
  sampling = usual, sampling.presence_penalty = -3;
  CHECK_BAD(swiftk_session_set_sampling(session, &sampling));
  sampling = usual, sampling.min_tokens = -1;
  CHECK_BAD(swiftk_session_set_sampling(session, &sampling));
  sampling = usual, sampling.n_logit_bias = 1;
  CHECK_BAD(swiftk_session_set_sampling(session, &sampling)); /* one bias, at null */
  sampling.logit_bias = bias, sampling.n_logit_bias = 2;
  CHECK_BAD(swiftk_session_set_sampling(session, &sampling)); /* one token twice */
  bias[1].token = 1000000;
  CHECK_BAD(swiftk_session_set_sampling(session, &sampling));
  bias[1].token = 4;
  CHECK_OK(swiftk_session_set_sampling(session, &sampling));
  swiftk_session_free(session);
}

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  swiftk_model* model = load_or_exit(argv[1], argv[2], argc > 3 ? argv[3] : NULL);
  check_an_older_host(model);
  check_touches(model, 0.0f);
  check_touches(model, 0.9f);
  check_min_tokens(model);
  check_saved_text(model);
  check_refusals(model);
  swiftk_model_release(model);
  return failures > 0;
}
