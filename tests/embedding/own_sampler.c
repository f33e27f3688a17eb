/* A host with a sampler of its own: through the phases, token by token and along trees; and texts saved and loaded.
 *
 *   own_sampler MODEL_DIR ISA */
#include "check.h"

enum { TOKENS = 40, PROMPT = 8 };

static const int32_t prompt[PROMPT] = {5, 9, 2, 7, 7, 1, 30, 12};

/* The second best: no sampler of swiftk's. */
static int32_t choose(const float* logits, size_t vocab) {
  size_t best = 0, second = 1, i;
  if (logits[1] > logits[0]) best = 1, second = 0;
  for (i = 2; i < vocab; ++i) {
    if (logits[i] > logits[best]) {
      second = best, best = i;
    } else if (logits[i] > logits[second]) {
      second = i;
    }
  }
  return (int32_t)second;
}

static const float* logits_of(swiftk_session* session, size_t* rows, size_t* vocab) {
  const float* logits = NULL;
  CHECK_OK(swiftk_session_logits(session, &logits, rows, vocab));
  return logits;
}

static int32_t begin(swiftk_session* session) {
  size_t kept, rows, vocab;
  const float* logits;
  CHECK_OK(swiftk_session_reuse(session, prompt, PROMPT, &kept));
  CHECK_OK(swiftk_session_extend(session, prompt + kept, PROMPT - kept));
  logits = logits_of(session, &rows, &vocab);
  CHECK(rows == 1);
  CHECK_OK(swiftk_session_put(session, choose(logits, vocab)));
  CHECK_BAD(swiftk_session_put(session, 1)); /* nothing to follow */
  return 0;
}

static void one_by_one(swiftk_session* session, size_t until) {
  const int32_t *text, *first;
  const swiftk_token* emitted;
  const float* logits;
  size_t n, rows, vocab;
  swiftk_draft_rule none = SWIFTK_DRAFT_RULE_INIT;
  none.max_draft = 0;
  for (;;) {
    int32_t token;
    CHECK_OK(swiftk_session_history(session, &text, &n));
    if (n >= until) return;
    CHECK_OK(swiftk_session_draft(session, &none));
    CHECK_BAD(swiftk_session_logits(session, &logits, &rows, &vocab)); /* those of the round before are stale */
    CHECK_OK(swiftk_session_verify(session, &emitted, &n));
    logits = logits_of(session, &rows, &vocab);
    CHECK(rows == 1);
    token = choose(logits, vocab);
    first = &token;
    CHECK_OK(swiftk_session_commit_tokens(session, first, 1));
    CHECK_BAD(swiftk_session_commit_tokens(session, first, 1)); /* no tree any more */
    CHECK_BAD(swiftk_session_logits(session, &logits, &rows, &vocab));
  }
}

/* Trees of the known text and of wrong tokens beside it: as many tokens a round as the host finds right. */
static void by_trees(swiftk_session* session, const int32_t* known, size_t until) {
  const int32_t* text;
  const swiftk_token* emitted;
  const float* logits;
  size_t n, rows, vocab, round = 0;
  for (;; ++round) {
    int32_t tokens[8], parents[8], chosen[9];
    size_t size = 0, at, depth, count = 0, node = 0, width = round % 5;
    CHECK_OK(swiftk_session_history(session, &text, &n));
    if (n >= until) return;
    for (depth = 0; depth < width && n + depth < until; ++depth) {
      const int32_t parent = depth == 0 ? 0 : parents[size - 1] + 2 - (depth == 1);
      tokens[size] = (known[n + depth] + 1) % 100; /* a wrong one first, so that the right ones are off the spine */
      parents[size++] = parent;
      tokens[size] = known[n + depth];
      parents[size++] = parent;
    }
    CHECK_OK(swiftk_session_set_tree(session, tokens, parents, size));
    CHECK_OK(swiftk_session_verify(session, &emitted, &at));
    logits = logits_of(session, &rows, &vocab);
    CHECK(rows == size + 1);
    for (;;) {
      size_t child;
      chosen[count] = choose(logits + node * vocab, vocab);
      for (child = 0; child < size; ++child) {
        if ((size_t)parents[child] == node && tokens[child] == chosen[count]) break;
      }
      ++count;
      if (child == size || n + count >= until) break;
      node = child + 1;
    }
    {
      int32_t wrong[2];
      wrong[0] = -1, wrong[1] = 3;
      CHECK_BAD(swiftk_session_commit_tokens(session, wrong, 1));
      wrong[0] = 101; /* in no tree here */
      CHECK_BAD(swiftk_session_commit_tokens(session, wrong, 2));
    }
    CHECK_OK(swiftk_session_commit_tokens(session, chosen, count));
  }
}

static void save_and_load(swiftk_session* from, swiftk_session* to) {
  size_t bytes = 0, again = 0, n;
  char* state;
  const int32_t* text;
  CHECK_OK(swiftk_session_save(from, NULL, 0, &bytes));
  state = malloc(bytes);
  CHECK_BAD(swiftk_session_save(from, state, bytes - 1, &again));
  CHECK_OK(swiftk_session_save(from, state, bytes, &again));
  CHECK(again == bytes);
  CHECK_BAD(swiftk_session_load(to, state, bytes - 1));
  CHECK_BAD(swiftk_session_load(to, state, 3));
  state[bytes / 2] ^= 1;
  CHECK_BAD(swiftk_session_load(to, state, bytes));
  state[bytes / 2] ^= 1;
  state[0] ^= 1;
  CHECK_BAD(swiftk_session_load(to, state, bytes));
  state[0] ^= 1;
  CHECK_OK(swiftk_session_load(to, state, bytes));
  CHECK_OK(swiftk_session_history(to, &text, &n));
  CHECK(n == PROMPT + TOKENS / 2);
  free(state);
}

int main(int argc, char** argv) {
  swiftk_session *alone, *along, *later;
  const int32_t *want, *got;
  int32_t known[PROMPT + TOKENS];
  size_t n;
  swiftk_model* model = load_or_exit(argv[1], argc > 2 ? argv[2] : NULL, argc > 3 ? argv[3] : NULL);
  CHECK_OK(swiftk_session_create(model, NULL, &alone));
  CHECK_OK(swiftk_session_create(model, NULL, &along));
  CHECK_OK(swiftk_session_create(model, NULL, &later));
  begin(alone);
  one_by_one(alone, PROMPT + TOKENS / 2);
  save_and_load(alone, later);
  one_by_one(alone, PROMPT + TOKENS);
  one_by_one(later, PROMPT + TOKENS);
  CHECK_OK(swiftk_session_history(alone, &want, &n));
  CHECK(n == PROMPT + TOKENS);
  memcpy(known, want, sizeof known);
  CHECK_OK(swiftk_session_history(later, &got, &n));
  CHECK(n == PROMPT + TOKENS && memcmp(got, known, sizeof known) == 0);
  begin(along);
  by_trees(along, known, PROMPT + TOKENS);
  CHECK_OK(swiftk_session_history(along, &got, &n));
  CHECK(n == PROMPT + TOKENS && memcmp(got, known, sizeof known) == 0);
  swiftk_session_free(alone);
  swiftk_session_free(along);
  swiftk_session_free(later);
  swiftk_model_release(model);
  return failures != 0;
}
