/* A complete host: loads a model, generates from token ids, prints them as they come. With `timeout`, a second thread
 * cancels after that many milliseconds.
 *
 *   generate MODEL_DIR tokens=1,2,3 [max=N] [temperature=T] [seed=S] [skip=layer,..] [weights=int4] [drafter=NAME]
 *            [dtype=NAME] [isa=NAME] [memory=BYTES] [timeout=MS] [device=cuda pack=FILE] */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "swiftk.h"

enum { MAX_IDS = 4096 };

typedef struct {
  swiftk_session* session;
  long milliseconds;
} Timeout;

static void* cancel_later(void* argument) {
  const Timeout* timeout = argument;
  const struct timespec pause = {timeout->milliseconds / 1000, timeout->milliseconds % 1000 * 1000000L};
  nanosleep(&pause, NULL);
  swiftk_session_cancel(timeout->session);
  return NULL;
}

static int print_token(void* user, int32_t token, uint32_t flags, float logprob) {
  (void)user, (void)logprob;
  const char* origin = flags & SWIFTK_TOKEN_DRAFTED ? "drafted" : flags & SWIFTK_TOKEN_BONUS ? "bonus" : "plain";
  const char* source = swiftk_source_name(SWIFTK_TOKEN_SOURCE(flags));
  printf("%d %s %s%s\n", token, origin, source, flags & SWIFTK_TOKEN_STOP ? " stop" : "");
  fflush(stdout);
  return 0; /* nonzero would cancel */
}

static size_t parse_ids(const char* text, int32_t* ids) {
  size_t n = 0;
  while (*text && n < MAX_IDS) {
    char* end;
    ids[n++] = (int32_t)strtol(text, &end, 10);
    text = *end == ',' ? end + 1 : end;
    if (end == text) break;
  }
  return n;
}

/* The value of `key=` among the arguments, or the fallback. */
static const char* option(int argc, char** argv, const char* key, const char* fallback) {
  const size_t length = strlen(key);
  for (int i = 2; i < argc; ++i) {
    if (strncmp(argv[i], key, length) == 0 && argv[i][length] == '=') return argv[i] + length + 1;
  }
  return fallback;
}

static int report(swiftk_status status) {
  if (status != SWIFTK_OK) fprintf(stderr, "%s: %s\n", swiftk_status_name(status), swiftk_last_error());
  return status;
}

static swiftk_status configure(swiftk_session* session, int argc, char** argv) {
  swiftk_sampling sampling = SWIFTK_SAMPLING_INIT;
  sampling.temperature = strtof(option(argc, argv, "temperature", "0"), NULL);
  sampling.seed = strtoull(option(argc, argv, "seed", "0"), NULL, 10);
  const swiftk_status status = swiftk_session_set_sampling(session, &sampling);
  if (status != SWIFTK_OK) return status;

  int32_t layers[MAX_IDS];
  swiftk_skip skip = SWIFTK_SKIP_INIT;
  skip.attn = skip.mlp = layers;
  skip.n_attn = skip.n_mlp = parse_ids(option(argc, argv, "skip", ""), layers);
  skip.weights = option(argc, argv, "weights", NULL);
  skip.trimmed = *option(argc, argv, "vocab", "") != 0;
  return swiftk_session_set_skip(session, &skip);
}

static swiftk_status run(swiftk_session* session, int argc, char** argv) {
  swiftk_status status = configure(session, argc, argv);
  if (status != SWIFTK_OK) return status;

  Timeout timeout = {session, strtol(option(argc, argv, "timeout", "0"), NULL, 10)};
  pthread_t thread;
  const int timed = timeout.milliseconds > 0 && pthread_create(&thread, NULL, cancel_later, &timeout) == 0;

  int32_t prompt[MAX_IDS];
  const size_t n = parse_ids(option(argc, argv, "tokens", ""), prompt);
  swiftk_generate_params params = SWIFTK_GENERATE_PARAMS_INIT;
  params.max_new_tokens = (int32_t)strtol(option(argc, argv, "max", "32"), NULL, 10);
  swiftk_draft_rule rule = SWIFTK_DRAFT_RULE_INIT;
  rule.drafter = option(argc, argv, "drafter", NULL);
  params.rule = &rule;
  status = swiftk_generate(session, prompt, n, &params, print_token, NULL);
  if (timed) pthread_join(thread, NULL);
  return status;
}

int main(int argc, char** argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: generate MODEL_DIR tokens=1,2,3 [max=N] [temperature=T] [seed=S] [skip=layer,..]\n");
    return 2;
  }
  swiftk_load_params params = SWIFTK_LOAD_PARAMS_INIT;
  params.dtype = option(argc, argv, "dtype", NULL);
  params.isa = option(argc, argv, "isa", NULL);
  params.device = option(argc, argv, "device", NULL);
  params.pack = option(argc, argv, "pack", NULL);
  params.draft_weights = option(argc, argv, "weights", NULL);
  params.memory = strtoull(option(argc, argv, "memory", "0"), NULL, 10);
  int32_t vocab[MAX_IDS];
  params.n_draft_tokens = parse_ids(option(argc, argv, "vocab", ""), vocab);
  params.draft_tokens = vocab;
  swiftk_model* model;
  if (report(swiftk_model_load(argv[1], &params, &model)) != SWIFTK_OK) return 1;

  swiftk_session* session = NULL;
  swiftk_status status = swiftk_session_create(model, NULL, &session);
  swiftk_model_release(model); /* the session keeps the weights */
  if (status == SWIFTK_OK) status = run(session, argc, argv);
  report(status);

  swiftk_stats stats = {.struct_size = sizeof stats};
  if (session && swiftk_session_get_stats(session, &stats) == SWIFTK_OK) {
    fprintf(stderr, "%d tokens, %d of %d drafted ones accepted in %d rounds\n", stats.new_tokens,
            stats.num_accepted_draft_tokens, stats.num_draft_tokens, stats.num_spec_steps);
  }
  swiftk_session_free(session);
  return status == SWIFTK_OK ? 0 : 1;
}
