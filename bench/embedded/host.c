/* A C host for bench/c_host.py: each line it reads is a prompt, "TOKENS SPECULATE id id ..."; it answers with the seconds
 * after the first token, and the tokens. No setting is changed from what the header says.
 *
 *   host MODEL_DIR */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "swiftk.h"

enum { MOST = 8192 };
static char line[16 * MOST];

typedef struct {
  int32_t token[MOST];
  int n;
  double first, last;
} Text;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}

static int hear(void* user, int32_t token, uint32_t flags, float logprob) {
  Text* text = user;
  (void)flags, (void)logprob;
  text->last = now();
  if (text->n == 0) text->first = text->last;
  text->token[text->n++] = token;
  return text->n == MOST; /* nonzero cancels */
}

static void check(swiftk_status status) {
  if (status == SWIFTK_OK) return;
  fprintf(stderr, "host: %s\n", swiftk_last_error());
  exit(1);
}

int main(int argc, char** argv) {
  swiftk_load_params load = SWIFTK_LOAD_PARAMS_INIT;
  swiftk_session_params params = SWIFTK_SESSION_PARAMS_INIT;
  swiftk_model* model;
  swiftk_session* session;
  if (argc != 2) return 2;
  load.draft_weights = "auto";
  check(swiftk_model_load(argv[1], &load, &model));
  check(swiftk_session_create(model, &params, &session));
  while (fgets(line, sizeof line, stdin)) {
    static Text text;
    static int32_t prompt[MOST];
    swiftk_generate_params generate = SWIFTK_GENERATE_PARAMS_INIT;
    size_t n = 0;
    char* at = line;
    generate.max_new_tokens = (int32_t)strtol(at, &at, 10);
    generate.speculate = (int32_t)strtol(at, &at, 10);
    generate.ignore_eos = 1;
    while (n < MOST && strspn(at, " ") > 0) prompt[n++] = (int32_t)strtol(at, &at, 10);
    text.n = 0;
    check(swiftk_generate(session, prompt, n, &generate, hear, &text));
    printf("%.6f", text.last - text.first);
    for (int i = 0; i < text.n; ++i) printf(" %d", text.token[i]);
    printf("\n");
    fflush(stdout);
  }
  swiftk_session_free(session);
  swiftk_model_release(model);
  return 0;
}
