/* What swiftk.h promises of tokens: the same with and without drafts and phase by phase, every stop exactly where plain
 * decoding stops, and a text that holds what was handed out.   contract MODEL_DIR ISA */
#include "check.h"

static const int32_t kPrompt[] = {5, 9, 2, 7, 7, 1, 30, 12, 4, 8, 21};
enum { PROMPT = sizeof kPrompt / sizeof *kPrompt, LENGTH = 24 };
static const int32_t kLayers[] = {1};

static swiftk_session* make_session(swiftk_model* model, int32_t context, float temperature) {
  swiftk_session_params params = SWIFTK_SESSION_PARAMS_INIT;
  swiftk_sampling sampling = SWIFTK_SAMPLING_INIT;
  swiftk_skip skip = SWIFTK_SKIP_INIT;
  swiftk_session* session = NULL;
  params.context = context;
  sampling.temperature = temperature;
  sampling.seed = 7;
  skip.attn = skip.mlp = kLayers;
  skip.n_attn = skip.n_mlp = 1;
  CHECK_OK(swiftk_session_create(model, &params, &session));
  CHECK_OK(swiftk_session_set_sampling(session, &sampling));
  CHECK_OK(swiftk_session_set_skip(session, &skip));
  return session;
}

static swiftk_generate_params params_of(int32_t max_new_tokens, int32_t speculate) {
  swiftk_generate_params params = SWIFTK_GENERATE_PARAMS_INIT;
  static swiftk_draft_rule rule = SWIFTK_DRAFT_RULE_INIT;
  rule.confidence = 0.01f; /* random weights are never sure */
  params.max_new_tokens = max_new_tokens;
  params.speculate = speculate;
  params.ignore_eos = 1;
  params.rule = &rule;
  return params;
}

static void check_history(const swiftk_session* session, const Record* got) {
  const int32_t* history;
  size_t n;
  CHECK_OK(swiftk_session_history(session, &history, &n));
  CHECK(n == PROMPT + got->n);
  CHECK(memcmp(history, kPrompt, sizeof kPrompt) == 0);
  CHECK(memcmp(history + PROMPT, got->token, got->n * sizeof *history) == 0);
}

static int32_t finish_of(const swiftk_session* session) {
  swiftk_stats stats = {.struct_size = sizeof stats};
  CHECK_OK(swiftk_session_get_stats(session, &stats));
  return stats.finish;
}

/* Every length and every stop id cut the one long text where plain decoding would have cut it. */
static void check_stops(swiftk_session* session, const Record* whole, int32_t speculate) {
  for (int32_t n = 1; n <= LENGTH; ++n) {
    Record got = {.n = 0};
    const swiftk_generate_params params = params_of(n, speculate);
    CHECK_OK(swiftk_generate(session, kPrompt, PROMPT, &params, record, &got));
    CHECK(got.n == (size_t)n && memcmp(got.token, whole->token, n * sizeof *got.token) == 0);
    CHECK(finish_of(session) == SWIFTK_FINISH_LENGTH);
    check_history(session, &got);
  }
  for (size_t i = 0; i < LENGTH; ++i) {
    size_t first = 0;
    while (whole->token[first] != whole->token[i]) ++first;
    Record got = {.n = 0};
    swiftk_generate_params params = params_of(LENGTH, speculate);
    params.stop_ids = &whole->token[i];
    params.n_stop = 1;
    CHECK_OK(swiftk_generate(session, kPrompt, PROMPT, &params, record, &got));
    CHECK(got.n == first + 1 && memcmp(got.token, whole->token, got.n * sizeof *got.token) == 0);
    CHECK(finish_of(session) == SWIFTK_FINISH_STOP && (got.flags[first] & SWIFTK_TOKEN_STOP));
    check_history(session, &got);
  }
}

static void check_cancelling_callback(swiftk_session* session, const Record* whole) {
  const swiftk_generate_params params = params_of(LENGTH, 1);
  for (size_t n = 1; n <= LENGTH; ++n) {
    Record got = {.cancel_at = n};
    CHECK(swiftk_generate(session, kPrompt, PROMPT, &params, record, &got) == SWIFTK_CANCELLED);
    CHECK(got.n == n && memcmp(got.token, whole->token, n * sizeof *got.token) == 0);
    check_history(session, &got);
  }
}

static void check_context_end(swiftk_model* model, const Record* whole, float temperature) {
  for (int32_t room = 1; room <= 12; ++room) {
    swiftk_session* session = make_session(model, PROMPT + room, temperature);
    const swiftk_generate_params params = params_of(LENGTH, 1);
    Record got = {.n = 0};
    CHECK_OK(swiftk_generate(session, kPrompt, PROMPT, &params, record, &got));
    CHECK(got.n == (size_t)room && memcmp(got.token, whole->token, got.n * sizeof *got.token) == 0);
    CHECK(finish_of(session) == SWIFTK_FINISH_LENGTH);
    swiftk_session_free(session);
  }
}

static void prefill(swiftk_session* session, Record* got) {
  size_t kept, chunk;
  swiftk_token first;
  CHECK_OK(swiftk_session_reuse(session, kPrompt, PROMPT, &kept));
  CHECK_OK(swiftk_session_max_chunk(session, &chunk));
  CHECK(kept < PROMPT && chunk >= 4);
  while (kept < PROMPT) { /* uneven chunks: how a prompt is cut must not show */
    const size_t n = PROMPT - kept < 4 ? PROMPT - kept : 4;
    CHECK_OK(swiftk_session_extend(session, kPrompt + kept, n));
    kept += n;
  }
  CHECK_OK(swiftk_session_sample(session, &first));
  CHECK(first.flags == SWIFTK_TOKEN_PLAIN);
  record(got, first.token, first.flags, first.logprob);
}

/* The phases one by one; every third round commits one token only, every fourth gives a tree of its own. */
static void check_phases(swiftk_session* session, const Record* whole) {
  swiftk_draft_rule rule = SWIFTK_DRAFT_RULE_INIT;
  rule.confidence = 0.01f;
  Record got = {.n = 0};
  prefill(session, &got);
  for (int round = 0; got.n < LENGTH; ++round) {
    const int32_t *tokens, *parents;
    const swiftk_token* emitted;
    const float* logits;
    size_t nodes, n, rows, vocab;
    if (round % 4 == 3) { /* right, wrong, right: path and sibling */
      const int32_t next[] = {whole->token[got.n] ^ 1, whole->token[got.n], whole->token[got.n + 1]};
      const int32_t parent[] = {0, 0, 2};
      CHECK_OK(swiftk_session_set_tree(session, next, parent, 3));
    } else {
      CHECK_OK(swiftk_session_draft(session, &rule));
    }
    CHECK_OK(swiftk_session_tree(session, &tokens, &parents, &nodes));
    CHECK(nodes >= 1 && parents[0] == -1 && tokens[0] == got.token[got.n - 1]);
    CHECK_OK(swiftk_session_verify(session, &emitted, &n));
    CHECK(n >= 1 && n <= nodes && (round % 4 != 3 || n == 3));
    CHECK_OK(swiftk_session_logits(session, &logits, &rows, &vocab));
    CHECK(rows == nodes && vocab > 1 && logits[rows * vocab - 1] == logits[rows * vocab - 1]);
    if (round % 3 == 2) n = 1;
    for (size_t i = 0; i < n; ++i) record(&got, emitted[i].token, emitted[i].flags, emitted[i].logprob);
    CHECK_OK(swiftk_session_commit(session, n));
    check_history(session, &got);
  }
  CHECK(memcmp(got.token, whole->token, LENGTH * sizeof *got.token) == 0);

  swiftk_score score = {.struct_size = sizeof score};
  CHECK_OK(swiftk_session_score(session, NULL, 16, &score)); /* a draft that skips nothing agrees with itself */
  CHECK(score.rows == 16 && score.matches == 16 && score.seconds > 0);
  check_history(session, &got);
}

static void check_tokens(swiftk_model* model, float temperature) {
  swiftk_session* session = make_session(model, 0, temperature);
  swiftk_session* fresh = make_session(model, 0, temperature);
  Record whole = {.n = 0};
  swiftk_generate_params params = params_of(LENGTH + 40, 0); /* room for the blocks of check_phases */
  CHECK_OK(swiftk_generate(fresh, kPrompt, PROMPT, &params, record, &whole));
  CHECK(whole.n == LENGTH + 40 && whole.flags[LENGTH] == SWIFTK_TOKEN_PLAIN);
  swiftk_session_free(fresh);

  Record got = {.n = 0};
  params = params_of(LENGTH + 40, 1);
  CHECK_OK(swiftk_generate(session, kPrompt, PROMPT, &params, record, &got));
  CHECK(got.n == whole.n && memcmp(got.token, whole.token, got.n * sizeof *got.token) == 0);
  swiftk_stats stats = {.struct_size = sizeof stats};
  CHECK_OK(swiftk_session_get_stats(session, &stats));
  CHECK(stats.num_spec_steps > 0 && stats.num_draft_tokens > 0 && stats.cache_bytes > 0 && stats.workspace_bytes > 0);
  size_t drafted = 0;
  for (size_t i = 0; i < got.n; ++i) drafted += got.flags[i] & SWIFTK_TOKEN_DRAFTED;
  CHECK(drafted == (size_t)stats.num_accepted_draft_tokens && drafted > 0);
  CHECK(stats.num_accepted_draft_tokens <= stats.num_draft_tokens && stats.num_draft_steps == stats.num_draft_tokens);
  CHECK(stats.num_draft_nodes == stats.num_draft_tokens); /* a chain */
  CHECK(stats.mean_generated_length >= 1 && stats.mean_generated_length <= stats.new_tokens);

  check_stops(session, &whole, 0);
  check_stops(session, &whole, 1);
  check_cancelling_callback(session, &whole);
  check_context_end(model, &whole, temperature);
  check_phases(session, &whole);
  swiftk_session_free(session);
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  swiftk_model* model = load_or_exit(argv[1], argv[2], NULL);
  check_tokens(model, 0.0f);
  check_tokens(model, 0.9f);
  swiftk_model_release(model);
  return failures > 0;
}
