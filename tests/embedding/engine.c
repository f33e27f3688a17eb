/* A server in small: texts handed in by eight threads while another one steps them; each is the text that it is alone.
 *
 *   engine MODEL_DIR ISA [THREADS] */
#include <pthread.h>

#include "check.h"

enum { CLIENTS = 8, EACH = 3, TEXTS = CLIENTS * EACH, TOKENS = 24 };

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER; /* of what is known of texts */

typedef struct {
  int32_t prompt[4];
  swiftk_sampling sampling;
  uint64_t id;
  int32_t token[TOKENS];
  int n, finish;
} Text;

typedef struct {
  swiftk_engine* engine;
  Text* texts;
} Client;

static void* submit(void* argument) {
  const Client* client = argument;
  int i;
  for (i = 0; i < EACH; ++i) {
    Text* t = &client->texts[i];
    swiftk_generate_params params = SWIFTK_GENERATE_PARAMS_INIT;
    swiftk_request request = SWIFTK_REQUEST_INIT;
    params.max_new_tokens = TOKENS;
    params.ignore_eos = 1;
    request.prompt = t->prompt;
    request.n_prompt = 4;
    request.sampling = &t->sampling;
    request.params = &params;
    pthread_mutex_lock(&guard);
    CHECK_OK(swiftk_engine_submit(client->engine, &request, &t->id));
    CHECK_OK(swiftk_engine_propose(client->engine, t->id, 4 + i, t->prompt, 4)); /* true or not, nothing changes */
    pthread_mutex_unlock(&guard);
  }
  return NULL;
}

static void make(Text* t, int i) {
  swiftk_sampling sampling = SWIFTK_SAMPLING_INIT;
  memset(t, 0, sizeof *t);
  t->prompt[0] = 5, t->prompt[1] = i + 2, t->prompt[2] = 7, t->prompt[3] = i % 3;
  sampling.temperature = i % 2 ? 0.8f : 0.0f;
  sampling.seed = (uint64_t)i;
  t->sampling = sampling;
}

static Text* find(Text* texts, uint64_t id) {
  int i;
  for (i = 0; i < TEXTS; ++i) {
    if (texts[i].id == id) return &texts[i];
  }
  return NULL;
}

static void alone(swiftk_model* model, const Text* t) {
  swiftk_session* session;
  swiftk_generate_params params = SWIFTK_GENERATE_PARAMS_INIT;
  Record r;
  int i;
  memset(&r, 0, sizeof r);
  params.max_new_tokens = TOKENS;
  params.ignore_eos = 1;
  params.speculate = 0;
  CHECK_OK(swiftk_session_create(model, NULL, &session));
  CHECK_OK(swiftk_session_set_sampling(session, &t->sampling));
  CHECK_OK(swiftk_generate(session, t->prompt, 4, &params, record, &r));
  CHECK(t->n == TOKENS && r.n == TOKENS && t->finish == SWIFTK_FINISH_LENGTH);
  for (i = 0; i < t->n; ++i) CHECK(t->token[i] == r.token[i]);
  swiftk_session_free(session);
}

/* By the planner, as default: the same tokens, through a session. */
static void by_the_planner(swiftk_model* model, const Text* t) {
  swiftk_session* session;
  swiftk_generate_params params = SWIFTK_GENERATE_PARAMS_INIT;
  Record r;
  int i, again;
  params.max_new_tokens = TOKENS;
  params.ignore_eos = 1;
  CHECK_OK(swiftk_session_create(model, NULL, &session));
  CHECK_OK(swiftk_session_set_sampling(session, &t->sampling));
  for (again = 0; again < 3; ++again) {
    memset(&r, 0, sizeof r);
    CHECK_OK(swiftk_generate(session, t->prompt, 4, &params, record, &r));
    CHECK(r.n == TOKENS);
    for (i = 0; i < t->n; ++i) CHECK(t->token[i] == r.token[i]);
  }
  swiftk_session_free(session);
}

int main(int argc, char** argv) {
  swiftk_model* model = load_or_exit(argv[1], argc > 2 ? argv[2] : NULL, NULL);
  swiftk_engine_params params = SWIFTK_ENGINE_PARAMS_INIT;
  swiftk_engine* engine;
  swiftk_request bad = SWIFTK_REQUEST_INIT;
  const swiftk_event* events;
  static Text texts[TEXTS];
  Client clients[CLIENTS];
  pthread_t threads[CLIENTS];
  size_t n, i;
  int32_t idle = 0;
  uint64_t id;
  int ended = 0, c;
  params.sequences = 4;
  params.threads = argc > 3 ? atoi(argv[3]) : 0;
  params.context = 96;
  CHECK_OK(swiftk_engine_create(model, &params, &engine));
  CHECK_BAD(swiftk_engine_submit(engine, &bad, &id));
  CHECK_BAD(swiftk_engine_submit(engine, NULL, &id));
  CHECK_BAD(swiftk_engine_propose(NULL, 1, 0, NULL, 0));
  CHECK_BAD(swiftk_engine_propose(engine, 1, 0, NULL, 1));
  CHECK_BAD(swiftk_engine_propose(engine, 1, -1, texts[0].prompt, 1));
  CHECK_OK(swiftk_engine_propose(engine, 1, 0, NULL, 0));
  CHECK_OK(swiftk_engine_step(engine, &events, &n));
  CHECK(n == 0);
  for (c = 0; c < TEXTS; ++c) make(&texts[c], c);
  for (c = 0; c < CLIENTS; ++c) {
    clients[c].engine = engine;
    clients[c].texts = texts + c * EACH;
    pthread_create(&threads[c], NULL, submit, &clients[c]);
  }
  while (ended < TEXTS) {
    CHECK_OK(swiftk_engine_step(engine, &events, &n));
    pthread_mutex_lock(&guard);
    for (i = 0; i < n; ++i) {
      Text* t = find(texts, events[i].id);
      CHECK(t && t->finish == 0);
      if (events[i].token >= 0) t->token[t->n++] = events[i].token;
      t->finish = events[i].finish;
      ended += t->finish != 0;
    }
    pthread_mutex_unlock(&guard);
  }
  for (c = 0; c < CLIENTS; ++c) pthread_join(threads[c], NULL);
  CHECK_OK(swiftk_engine_idle(engine, &idle));
  CHECK(idle == 1);
  for (c = 0; c < TEXTS; ++c) {
    alone(model, &texts[c]);
    by_the_planner(model, &texts[c]);
  }
  { /* one is cancelled, and says so */
    swiftk_generate_params long_one = SWIFTK_GENERATE_PARAMS_INIT;
    swiftk_request request = SWIFTK_REQUEST_INIT;
    int finish = 0;
    long_one.max_new_tokens = 80;
    request.prompt = texts[0].prompt;
    request.n_prompt = 4;
    request.params = &long_one;
    CHECK_OK(swiftk_engine_submit(engine, &request, &id));
    CHECK_OK(swiftk_engine_step(engine, &events, &n));
    CHECK_OK(swiftk_engine_cancel(engine, id));
    CHECK_OK(swiftk_engine_step(engine, &events, &n));
    for (i = 0; i < n; ++i) finish = events[i].id == id ? events[i].finish : finish;
    CHECK(finish == SWIFTK_FINISH_CANCELLED);
    CHECK_OK(swiftk_engine_cancel(engine, id));
  }
  swiftk_engine_free(engine);
  swiftk_engine_free(NULL);
  swiftk_model_release(model);
  return failures != 0;
}
