/* Everything that a host can get wrong: each is a status and a message, and model and session work as before.
 *   misuse MODEL_DIR ISA */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <pthread.h>

#include "check.h"

static const int32_t kPrompt[] = {3, 1, 4, 1, 5};
enum { PROMPT = sizeof kPrompt / sizeof *kPrompt };

static int refuse(void* user, size_t done, size_t total) {
  CHECK(done <= total);
  ++*(int*)user;
  return 1;
}

static void check_loading(const char* dir) {
  swiftk_load_params params = SWIFTK_LOAD_PARAMS_INIT;
  swiftk_model* model = (swiftk_model*)&params;
  CHECK(swiftk_model_load("/no/such/model", NULL, &model) == SWIFTK_CHECKPOINT);
  CHECK(model == NULL && strstr(swiftk_last_error(), "/no/such/model"));
  CHECK_BAD(swiftk_model_load(NULL, NULL, &model));
  CHECK_BAD(swiftk_model_load(dir, NULL, NULL));
  params.dtype = "int3";
  CHECK_BAD(swiftk_model_load(dir, &params, &model));
  CHECK(strstr(swiftk_last_error(), "int3"));
  params.dtype = NULL;
  params.isa = "mmx";
  CHECK_BAD(swiftk_model_load(dir, &params, &model));
  CHECK(strstr(swiftk_last_error(), "mmx"));
  params.isa = NULL;
  params.threads = -1;
  CHECK_BAD(swiftk_model_load(dir, &params, &model));
  params.threads = 0;
  params.n_draft_tokens = 1;
  CHECK_BAD(swiftk_model_load(dir, &params, &model)); /* one token, at null */
  const int32_t token = -1;
  params.draft_tokens = &token;
  CHECK_BAD(swiftk_model_load(dir, &params, &model));
  CHECK(strstr(swiftk_last_error(), "token -1"));
  params.n_draft_tokens = 0;
  int calls = 0;
  params.progress = refuse;
  params.user = &calls;
  CHECK(swiftk_model_load(dir, &params, &model) == SWIFTK_CANCELLED);
  CHECK(model == NULL && calls == 1);
}

static void check_struct_sizes(swiftk_model* model) {
  struct {
    swiftk_session_params params;
    int32_t future;
  } longer;
  const swiftk_session_params usual = SWIFTK_SESSION_PARAMS_INIT;
  swiftk_session* session;
  memset(&longer, 0, sizeof longer); /* padding, too */
  longer.params = usual;
  longer.params.struct_size = sizeof longer;
  CHECK_OK(swiftk_session_create(model, &longer.params, &session));
  swiftk_session_free(session);
  longer.future = 1;
  CHECK(swiftk_session_create(model, &longer.params, &session) == SWIFTK_UNSUPPORTED);
  CHECK(session == NULL);
  longer.params.struct_size = 0;
  CHECK_BAD(swiftk_session_create(model, &longer.params, &session));

  swiftk_model_info info;
  memset(&info, 0x7f, sizeof info);
  info.struct_size = offsetof(swiftk_model_info, hidden); /* an older host's */
  CHECK_OK(swiftk_model_get_info(model, &info));
  CHECK(info.vocab > 0 && info.layers > 0 && info.hidden == 0x7f7f7f7f);
  info.struct_size = sizeof info;
  CHECK_OK(swiftk_model_get_info(model, &info));
  CHECK(info.hidden > 0 && info.context > 0 && info.weight_bytes > 0 && info.threads > 0);
  CHECK(strlen(info.isa) > 0 && strlen(info.dtype) > 0 && strlen(info.model_type) > 0);
  info.struct_size = 1;
  CHECK_BAD(swiftk_model_get_info(model, &info));
  CHECK_BAD(swiftk_model_get_info(model, NULL));
  CHECK_BAD(swiftk_model_get_info(NULL, &info));
}

static void check_null_session(void) {
  const int32_t *tokens, *parents;
  const swiftk_token* emitted;
  const float* logits;
  swiftk_token token;
  swiftk_stats stats = {.struct_size = sizeof stats};
  swiftk_score score = {.struct_size = sizeof score};
  size_t n, m;
  CHECK_BAD(swiftk_session_create(NULL, NULL, (swiftk_session**)&emitted));
  CHECK_BAD(swiftk_session_set_sampling(NULL, NULL));
  CHECK_BAD(swiftk_session_set_skip(NULL, NULL));
  CHECK_BAD(swiftk_session_cancel(NULL));
  CHECK_BAD(swiftk_session_clear_cancel(NULL));
  CHECK_BAD(swiftk_generate(NULL, kPrompt, PROMPT, NULL, NULL, NULL));
  CHECK_BAD(swiftk_session_get_stats(NULL, &stats));
  CHECK_BAD(swiftk_session_reuse(NULL, kPrompt, PROMPT, &n));
  CHECK_BAD(swiftk_session_max_chunk(NULL, &n));
  CHECK_BAD(swiftk_session_extend(NULL, kPrompt, PROMPT));
  CHECK_BAD(swiftk_session_sample(NULL, &token));
  CHECK_BAD(swiftk_session_draft(NULL, NULL));
  CHECK_BAD(swiftk_session_set_tree(NULL, NULL, NULL, 0));
  CHECK_BAD(swiftk_session_tree(NULL, &tokens, &parents, &n));
  CHECK_BAD(swiftk_session_verify(NULL, &emitted, &n));
  CHECK_BAD(swiftk_session_commit(NULL, 0));
  CHECK_BAD(swiftk_session_score(NULL, NULL, 1, &score));
  CHECK_BAD(swiftk_session_history(NULL, &tokens, &n));
  CHECK_BAD(swiftk_session_logits(NULL, &logits, &n, &m));
  swiftk_session_free(NULL);
  swiftk_model_release(NULL);
  CHECK(swiftk_model_retain(NULL) == NULL);
}

static void check_options(swiftk_session* session, int32_t vocab) {
  swiftk_sampling sampling = SWIFTK_SAMPLING_INIT;
  sampling.temperature = -1;
  CHECK_BAD(swiftk_session_set_sampling(session, &sampling));
  sampling.temperature = NAN;
  CHECK_BAD(swiftk_session_set_sampling(session, &sampling));
  sampling.temperature = 1;
  sampling.acceptance = 2;
  CHECK_BAD(swiftk_session_set_sampling(session, &sampling));

  const int32_t layer = 1000;
  swiftk_skip skip = SWIFTK_SKIP_INIT;
  skip.n_attn = 1;
  CHECK_BAD(swiftk_session_set_skip(session, &skip)); /* one layer, at null */
  skip.attn = &layer;
  CHECK_BAD(swiftk_session_set_skip(session, &skip));
  skip.n_attn = 0;
  skip.weights = "int4";
  CHECK_BAD(swiftk_session_set_skip(session, &skip)); /* not loaded */
  skip.weights = "int5";
  CHECK_BAD(swiftk_session_set_skip(session, &skip));
  skip.weights = "drafter,int8";
  CHECK_BAD(swiftk_session_set_skip(session, &skip));
  skip.weights = "";
  CHECK_BAD(swiftk_session_set_skip(session, &skip));
  skip.weights = NULL;
  skip.trimmed = 1;
  CHECK_BAD(swiftk_session_set_skip(session, &skip)); /* no trimmed head was loaded */
  skip.weights = "drafter";
  CHECK_BAD(swiftk_session_set_skip(session, &skip));

  const int32_t outside[] = {0, vocab}, negative[] = {-1};
  CHECK_BAD(swiftk_generate(session, outside, 2, NULL, NULL, NULL));
  CHECK_BAD(swiftk_generate(session, negative, 1, NULL, NULL, NULL));
  CHECK_BAD(swiftk_generate(session, kPrompt, 0, NULL, NULL, NULL));
  CHECK_BAD(swiftk_generate(session, NULL, PROMPT, NULL, NULL, NULL));
  CHECK_BAD(swiftk_generate(session, kPrompt, (size_t)-1, NULL, NULL, NULL));
  swiftk_generate_params params = SWIFTK_GENERATE_PARAMS_INIT;
  params.max_new_tokens = 0;
  CHECK_BAD(swiftk_generate(session, kPrompt, PROMPT, &params, NULL, NULL));
  params.max_new_tokens = 4;
  params.n_stop = 1;
  CHECK_BAD(swiftk_generate(session, kPrompt, PROMPT, &params, NULL, NULL));
  params.n_stop = 0;
  swiftk_draft_rule rule = SWIFTK_DRAFT_RULE_INIT;
  rule.width[3] = 0;
  params.rule = &rule;
  CHECK_BAD(swiftk_generate(session, kPrompt, PROMPT, &params, NULL, NULL));
  static const int32_t zeros[4096];
  CHECK_BAD(swiftk_generate(session, zeros, 4096, NULL, NULL, NULL)); /* longer than the context */
}

static void check_order(swiftk_session* session) {
  const int32_t token = 1, child = 1;
  const swiftk_token* emitted;
  swiftk_token sampled;
  size_t n;
  CHECK_BAD(swiftk_session_verify(session, &emitted, &n));
  CHECK_BAD(swiftk_session_sample(session, &sampled));
  CHECK_BAD(swiftk_session_commit(session, 1));
  CHECK_OK(swiftk_session_reuse(session, kPrompt, PROMPT, &n));
  CHECK_BAD(swiftk_session_extend(session, kPrompt, 0));
  CHECK_OK(swiftk_session_extend(session, kPrompt + n, PROMPT - n));
  CHECK_BAD(swiftk_session_draft(session, NULL)); /* nothing sampled yet */
  CHECK_OK(swiftk_session_sample(session, &sampled));
  CHECK_BAD(swiftk_session_extend(session, kPrompt, 1));
  CHECK_BAD(swiftk_session_set_tree(session, &token, &child, 1)); /* its own parent */
  CHECK_BAD(swiftk_session_set_tree(session, &token, NULL, 1));
  CHECK_BAD(swiftk_session_score(session, NULL, 0, &(swiftk_score){.struct_size = sizeof(swiftk_score)}));
  CHECK_OK(swiftk_session_set_tree(session, NULL, NULL, 0)); /* the root alone */
  CHECK_BAD(swiftk_session_verify(session, NULL, &n));
  CHECK_OK(swiftk_session_verify(session, &emitted, &n));
  CHECK(n == 1 && emitted->flags == SWIFTK_TOKEN_PLAIN);
  CHECK_BAD(swiftk_session_commit(session, 2));
  CHECK_BAD(swiftk_session_commit(session, (size_t)-1));
  CHECK_OK(swiftk_session_commit(session, 1));
}

typedef struct {
  swiftk_session* session;
  Record record;
} Meddler;

/* A callback that calls back: the session is in use. */
static int meddle(void* user, int32_t token, uint32_t flags, float logprob) {
  Meddler* m = user;
  const int32_t* tokens;
  size_t n;
  CHECK_BAD(swiftk_session_history(m->session, &tokens, &n));
  CHECK_BAD(swiftk_generate(m->session, kPrompt, PROMPT, NULL, NULL, NULL));
  return record(&m->record, token, flags, logprob);
}

static void* cancel(void* user) {
  CHECK_OK(swiftk_session_cancel(user));
  return NULL;
}

/* Another thread cancels while the third token is being handed out. */
static int cancel_at_three(void* user, int32_t token, uint32_t flags, float logprob) {
  Meddler* m = user;
  pthread_t thread;
  if (m->record.n == 2 && pthread_create(&thread, NULL, cancel, m->session) == 0) pthread_join(thread, NULL);
  return record(&m->record, token, flags, logprob);
}

static void check_cancel(swiftk_session* session) {
  swiftk_generate_params params = SWIFTK_GENERATE_PARAMS_INIT;
  Meddler whole = {session, {.n = 0}}, cut = {session, {.n = 0}}, again = {session, {.n = 0}};
  params.max_new_tokens = 60;
  params.ignore_eos = 1;
  CHECK_OK(swiftk_generate(session, kPrompt, PROMPT, &params, meddle, &whole));
  CHECK(whole.record.n == 60);

  params.speculate = 0; /* one token a round: the next round is the first to notice */
  CHECK(swiftk_generate(session, kPrompt, PROMPT, &params, cancel_at_three, &cut) == SWIFTK_CANCELLED);
  params.speculate = 1;
  CHECK(cut.record.n == 3);
  const int32_t* text;
  size_t n;
  CHECK_OK(swiftk_session_history(session, &text, &n));
  CHECK(n == PROMPT + 3 && memcmp(text + PROMPT, whole.record.token, 3 * sizeof *text) == 0);

  /* The text so far goes on to the same end. */
  int32_t longer[PROMPT + 3];
  memcpy(longer, text, sizeof longer);
  params.max_new_tokens = 57;
  CHECK_OK(swiftk_generate(session, longer, PROMPT + 3, &params, record, &again.record));
  CHECK(again.record.n == 57 && memcmp(again.record.token, whole.record.token + 3, 57 * sizeof *text) == 0);

  CHECK_OK(swiftk_session_cancel(session)); /* nothing under way: it waits for the next call */
  CHECK(swiftk_generate(session, kPrompt, PROMPT, &params, NULL, NULL) == SWIFTK_CANCELLED);
  CHECK_OK(swiftk_session_cancel(session));
  CHECK_OK(swiftk_session_clear_cancel(session));
  CHECK_OK(swiftk_generate(session, kPrompt, PROMPT, &params, NULL, NULL));
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  CHECK(swiftk_abi_version() == SWIFTK_ABI_VERSION && strlen(swiftk_version()) > 0);
  CHECK(strcmp(swiftk_last_error(), "") == 0);
  CHECK(strcmp(swiftk_status_name(SWIFTK_OK), "ok") == 0 && swiftk_status_name(-5) && swiftk_status_name(99));
  check_loading(argv[1]);
  check_null_session();
  swiftk_model* model = load_or_exit(argv[1], argv[2], NULL);
  check_struct_sizes(model);
  swiftk_model_info info = {.struct_size = sizeof info};
  CHECK_OK(swiftk_model_get_info(model, &info));
  swiftk_session_params params = SWIFTK_SESSION_PARAMS_INIT;
  swiftk_session* session;
  params.context = info.context + 1;
  CHECK_BAD(swiftk_session_create(model, &params, &session));
  params.context = 0;
  params.threads = -1;
  CHECK_BAD(swiftk_session_create(model, &params, &session));
  CHECK_OK(swiftk_session_create(model, NULL, &session));
  swiftk_model_release(model);
  check_order(session);
  check_options(session, info.vocab);
  check_cancel(session);
  swiftk_session_free(session);
  return failures > 0;
}
