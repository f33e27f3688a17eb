/* What the test hosts share: a check that counts failures, a tiny loader, and a recorder of generated tokens. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "swiftk.h"

enum { MAX_TOKENS = 1024 };

static int failures;

#define CHECK(condition)                                                                                  \
  do {                                                                                                    \
    if (!(condition)) {                                                                                   \
      ++failures;                                                                                         \
      fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, swiftk_last_error());           \
    }                                                                                                     \
  } while (0)
#define CHECK_OK(call) CHECK((call) == SWIFTK_OK)
#define CHECK_BAD(call) CHECK((call) == SWIFTK_INVALID_ARGUMENT && swiftk_last_error()[0] != '\0')

typedef struct {
  int32_t token[MAX_TOKENS];
  uint32_t flags[MAX_TOKENS];
  size_t n;
  size_t cancel_at; /* the callback returns nonzero after this many tokens; 0: never */
} Record;

static inline int record(void* user, int32_t token, uint32_t flags, float logprob) {
  Record* r = user;
  (void)logprob;
  r->token[r->n] = token;
  r->flags[r->n++] = flags;
  return r->n == r->cancel_at;
}

static swiftk_model* load_or_exit(const char* dir, const char* isa, const char* kv_dtype) {
  swiftk_load_params params = SWIFTK_LOAD_PARAMS_INIT;
  swiftk_model* model;
  params.isa = isa;
  params.kv_dtype = kv_dtype;
  params.threads = 1; /* thousands of tokens of a tiny model: handing work to threads would be most of the time */
  if (swiftk_model_load(dir, &params, &model) != SWIFTK_OK) {
    fprintf(stderr, "load: %s\n", swiftk_last_error());
    exit(1);
  }
  return model;
}

#endif
