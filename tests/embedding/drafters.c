/* Sources: the tokens of plain decoding, cut where that is cut, and who proposed each of them.
 *   drafters MODEL_DIR ISA */
#include "check.h"

/* A text that repeats itself, so that each of them finds something. */
static const int32_t kPrompt[] = {5, 9, 2, 7, 7, 1, 5, 9, 2, 7, 7, 1, 5, 9, 2, 7};
enum { PROMPT = sizeof kPrompt / sizeof *kPrompt, LENGTH = 90 };

static const struct {
  const char* name;
  int source;
} kDrafters[] = {{"suffix", SWIFTK_SOURCE_SUFFIX},
                 {"recycle", SWIFTK_SOURCE_RECYCLE},
                 {"lookup", SWIFTK_SOURCE_LOOKUP},
                 {"lookahead", SWIFTK_SOURCE_LOOKAHEAD},
                 {"parallel", SWIFTK_SOURCE_PARALLEL},
                 {"template", SWIFTK_SOURCE_TEMPLATE}};
enum { DRAFTERS = sizeof kDrafters / sizeof *kDrafters };

static swiftk_session* make_session(swiftk_model* model, int32_t context, int32_t recall, float temperature) {
  swiftk_session_params params = SWIFTK_SESSION_PARAMS_INIT;
  swiftk_sampling sampling = SWIFTK_SAMPLING_INIT;
  swiftk_session* session = NULL;
  params.context = context;
  params.recall = recall;
  sampling.temperature = temperature;
  sampling.seed = 3;
  CHECK_OK(swiftk_session_create(model, &params, &session));
  CHECK_OK(swiftk_session_set_sampling(session, &sampling));
  return session;
}

static swiftk_stats stats_of(const swiftk_session* session) {
  swiftk_stats stats = {.struct_size = sizeof stats};
  CHECK_OK(swiftk_session_get_stats(session, &stats));
  return stats;
}

/* null: plainly. */
static Record generate(swiftk_session* session, const char* drafter, int32_t most, const int32_t* stop) {
  swiftk_generate_params params = SWIFTK_GENERATE_PARAMS_INIT;
  swiftk_draft_rule rule = SWIFTK_DRAFT_RULE_INIT;
  Record got = {.n = 0};
  rule.drafter = drafter;
  params.rule = &rule;
  params.speculate = drafter != NULL;
  params.max_new_tokens = most;
  params.ignore_eos = 1;
  params.stop_ids = stop;
  params.n_stop = stop != NULL;
  CHECK_OK(swiftk_generate(session, kPrompt, PROMPT, &params, record, &got));
  return got;
}

static int same(const Record* got, const Record* whole) {
  return got->n <= whole->n && memcmp(got->token, whole->token, got->n * sizeof *got->token) == 0;
}

/* Flags and counters report the same: this source, and nobody else, proposed what was accepted. */
static void check_sources(const swiftk_session* session, const Record* got, int source, float temperature) {
  const swiftk_stats stats = stats_of(session);
  int32_t accepted = 0;
  for (size_t i = 0; i < got->n; ++i) {
    const int drafted = (got->flags[i] & SWIFTK_TOKEN_DRAFTED) != 0;
    CHECK(SWIFTK_TOKEN_SOURCE(got->flags[i]) == (drafted ? source : SWIFTK_SOURCE_TARGET));
    accepted += drafted;
  }
  CHECK(stats.accepted[source] == accepted && stats.num_accepted_draft_tokens == 0);
  CHECK(stats.proposed[source] >= accepted && stats.num_draft_tokens == 0);
  CHECK(stats.num_spec_steps > 0 && stats.proposed[source] > 0);
  CHECK(accepted > 0 || temperature > 0 || source == SWIFTK_SOURCE_PARALLEL);
  CHECK(stats.num_spec_steps + stats.num_plain_steps + accepted == stats.new_tokens - 1);
  for (int other = 0; other < SWIFTK_SOURCES; ++other) {
    CHECK(other == source || (stats.proposed[other] == 0 && stats.accepted[other] == 0));
  }
}

static void check_drafter(swiftk_model* model, const Record* whole, const char* name, int source, float temperature) {
  swiftk_session* session = make_session(model, 0, -1, temperature);
  Record got = generate(session, name, LENGTH, NULL);
  CHECK(got.n == LENGTH && same(&got, whole));
  check_sources(session, &got, source, temperature);
  for (int32_t n = 1; n < LENGTH; n += 7) {
    got = generate(session, name, n, NULL);
    CHECK(got.n == (size_t)n && same(&got, whole) && stats_of(session).finish == SWIFTK_FINISH_LENGTH);
    size_t first = 0;
    while (whole->token[first] != whole->token[n]) ++first;
    got = generate(session, name, LENGTH, &whole->token[n]);
    CHECK(got.n == first + 1 && same(&got, whole) && stats_of(session).finish == SWIFTK_FINISH_STOP);
  }
  swiftk_session_free(session);
  for (int32_t room = 1; room <= 9; ++room) {
    session = make_session(model, PROMPT + room, 0, temperature);
    got = generate(session, name, LENGTH, NULL);
    CHECK(got.n == (size_t)room && same(&got, whole));
    swiftk_session_free(session);
  }
}

/* One phase after the other, and the same sources in their tokens. */
static void check_phases(swiftk_model* model, const Record* whole, const char* name, int source) {
  swiftk_session* session = make_session(model, 0, 0, 0.0f);
  swiftk_draft_rule rule = SWIFTK_DRAFT_RULE_INIT;
  rule.drafter = name;
  size_t kept, n, at = 1;
  swiftk_token first;
  CHECK_OK(swiftk_session_reuse(session, kPrompt, PROMPT, &kept));
  CHECK_OK(swiftk_session_extend(session, kPrompt, PROMPT));
  CHECK_OK(swiftk_session_sample(session, &first));
  while (at < LENGTH / 2) {
    const swiftk_token* emitted;
    CHECK_OK(swiftk_session_draft(session, &rule));
    CHECK_OK(swiftk_session_verify(session, &emitted, &n));
    for (size_t i = 0; i < n && at + i < whole->n; ++i) {
      CHECK(emitted[i].token == whole->token[at + i]);
      CHECK(SWIFTK_TOKEN_SOURCE(emitted[i].flags) == (i + 1 < n ? source : SWIFTK_SOURCE_TARGET));
    }
    at += n;
    CHECK_OK(swiftk_session_commit(session, n));
  }
  swiftk_session_free(session);
}

/* The same text again is as new where the session is to remember nothing; a matrix stays unless said otherwise. */
static void check_recall(swiftk_model* model) {
  for (int32_t recall = -1; recall < 2; ++recall) {
    for (int i = 0; i < DRAFTERS; ++i) {
      const int source = kDrafters[i].source;
      const int matrix = source == SWIFTK_SOURCE_RECYCLE || source == SWIFTK_SOURCE_TEMPLATE;
      swiftk_session* session = make_session(model, 0, recall, 0.0f);
      generate(session, kDrafters[i].name, LENGTH, NULL);
      const int32_t before = stats_of(session).accepted[source];
      generate(session, kDrafters[i].name, LENGTH, NULL);
      const int32_t again = stats_of(session).accepted[source];
      const int stays = matrix ? recall >= 0 : source == SWIFTK_SOURCE_SUFFIX && recall > 0;
      CHECK(stays ? again > before : again == before);
      swiftk_session_free(session);
    }
  }
}

static void check_settings(swiftk_model* model, const Record* whole) {
  swiftk_session* session = make_session(model, 0, 0, 0.0f);
  swiftk_source_settings settings = SWIFTK_SOURCE_SETTINGS_INIT;
  settings.parallel_tokens = 20;
  settings.lookahead_ngram = 3;
  settings.lookahead_window = 9;
  CHECK_OK(swiftk_session_set_sources(session, &settings));
  Record got = generate(session, "parallel", LENGTH, NULL);
  CHECK(got.n == LENGTH && same(&got, whole) && stats_of(session).proposed[SWIFTK_SOURCE_PARALLEL] > 10 * LENGTH);
  got = generate(session, "lookahead", LENGTH, NULL);
  CHECK(got.n == LENGTH && same(&got, whole));
  settings.lookahead_window = 26;
  CHECK_BAD(swiftk_session_set_sources(session, &settings));
  CHECK(strstr(swiftk_last_error(), "is 66, want at most 64"));
  settings.suffix_ranks = 9;
  CHECK_BAD(swiftk_session_set_sources(session, &settings));
  CHECK(strstr(swiftk_last_error(), "suffix_ranks is 9, want 1..8"));
  CHECK_OK(swiftk_session_set_sources(session, NULL));
  got = generate(session, "parallel", LENGTH, NULL);
  CHECK(same(&got, whole) && stats_of(session).proposed[SWIFTK_SOURCE_PARALLEL] <= 7 * LENGTH);
  swiftk_session_free(session);
}

static void check_misuse(swiftk_model* model) {
  swiftk_session* session = make_session(model, 0, 0, 0.0f);
  swiftk_generate_params params = SWIFTK_GENERATE_PARAMS_INIT;
  swiftk_draft_rule rule = SWIFTK_DRAFT_RULE_INIT;
  params.rule = &rule;
  rule.drafter = "auto"; /* which learns, and lives in the Python package */
  CHECK_BAD(swiftk_generate(session, kPrompt, PROMPT, &params, NULL, NULL));
  CHECK(strstr(swiftk_last_error(), "auto") && strstr(swiftk_last_error(), "lookahead"));
  rule.drafter = "target";
  CHECK_BAD(swiftk_generate(session, kPrompt, PROMPT, &params, NULL, NULL));
  rule.drafter = "suffix";
  rule.row_price = -1;
  CHECK_BAD(swiftk_generate(session, kPrompt, PROMPT, &params, NULL, NULL));
  rule.row_price = 0;
  rule.max_nodes = 1 << 30;
  CHECK_BAD(swiftk_generate(session, kPrompt, PROMPT, &params, NULL, NULL));
  rule.max_nodes = 64;
  CHECK_OK(swiftk_generate(session, kPrompt, PROMPT, &params, NULL, NULL));
  rule.drafter = "parallel";
  rule.struct_size = offsetof(swiftk_draft_rule, drafter); /* an older host's */
  CHECK_OK(swiftk_generate(session, kPrompt, PROMPT, &params, NULL, NULL));
  CHECK(stats_of(session).num_spec_steps == 0); /* the plan, which skips nothing */
  swiftk_session_free(session);
}

static void check_names(void) {
  for (int i = 0; i < DRAFTERS; ++i) CHECK(!strcmp(swiftk_source_name(kDrafters[i].source), kDrafters[i].name));
  CHECK(!strcmp(swiftk_source_name(SWIFTK_SOURCE_TARGET), "target"));
  CHECK(!strcmp(swiftk_source_name(SWIFTK_SOURCE_PLAN), "plan"));
  CHECK(!strcmp(swiftk_source_name(-1), "unknown source") && !strcmp(swiftk_source_name(255), "unknown source"));
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  swiftk_model* model = load_or_exit(argv[1], argv[2], NULL);
  check_names();
  for (int warm = 0; warm < 2; ++warm) {
    const float temperature = warm ? 0.9f : 0.0f;
    swiftk_session* session = make_session(model, 0, 0, temperature);
    const Record whole = generate(session, NULL, LENGTH + 64, NULL);
    CHECK(stats_of(session).num_spec_steps == 0);
    swiftk_session_free(session);
    for (int i = 0; i < DRAFTERS; ++i) {
      check_drafter(model, &whole, kDrafters[i].name, kDrafters[i].source, temperature);
      if (!warm) check_phases(model, &whole, kDrafters[i].name, kDrafters[i].source);
    }
    if (!warm) check_settings(model, &whole);
  }
  check_recall(model);
  check_misuse(model);
  swiftk_model_release(model);
  return failures > 0;
}
