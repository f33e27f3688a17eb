/* The C ABI of swiftk. C99; usable from C, C++ and anything with a foreign function interface.
 *
 * Nothing here aborts, prints, throws or touches signals. Every call that can fail returns a status;
 * swiftk_last_error() says what was found, where, and what is supported. A failed call leaves model and session usable.
 *
 * Threads: a model may be shared by any number of threads. A session belongs to one thread at a time; a call while
 * another is under way (also from within a callback) fails with SWIFTK_INVALID_ARGUMENT. swiftk_session_cancel() may
 * come from anywhere.
 *
 * Structs begin with their size and only ever grow at the end, so a host built against an older header keeps working:
 * initialise them with the SWIFTK_*_INIT macros. A null pointer to parameters means their defaults. */
#ifndef SWIFTK_H
#define SWIFTK_H

#include <stddef.h>
#include <stdint.h>

#if !defined(_WIN32)
#define SWIFTK_API __attribute__((visibility("default")))
#elif defined(SWIFTK_BUILD)
#define SWIFTK_API __declspec(dllexport)
#else
#define SWIFTK_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define SWIFTK_ABI_VERSION 2
SWIFTK_API uint32_t swiftk_abi_version(void); /* of the library: equal to SWIFTK_ABI_VERSION of a header that fits it */
SWIFTK_API const char* swiftk_version(void);

/* ---- Status ---- */

typedef int32_t swiftk_status;
enum {
  SWIFTK_OK = 0,
  SWIFTK_INVALID_ARGUMENT = 1, /* an option, token id, length or pointer */
  SWIFTK_CHECKPOINT = 2,       /* a file is missing, truncated, or does not fit the config */
  SWIFTK_UNSUPPORTED = 3,      /* a field of the config that this engine does not implement */
  SWIFTK_NUMERICAL = 4,        /* NaN or infinite logits */
  SWIFTK_CANCELLED = 5,
  SWIFTK_OUT_OF_MEMORY = 6,
  SWIFTK_INTERNAL = 7,
  SWIFTK_DEVICE = 8 /* the accelerator or its driver is absent, or reports an error */
};
SWIFTK_API const char* swiftk_status_name(swiftk_status status); /* "invalid argument", ...; never null */
/* Message of the last call that failed on this thread; "" before the first. Valid until the next failure on this
 * thread. */
SWIFTK_API const char* swiftk_last_error(void);

/* ---- Models ---- */

typedef struct swiftk_model swiftk_model;

typedef struct swiftk_load_params {
  size_t struct_size;
  /* Of the weights: null or "auto" (as the file has them), "float32", "bfloat16" or "float16"; or "int8" or "int4", to
   * which the CPU rounds them as it loads. With "auto" a CPU keeps quantised weights as they are, and matmuls round
   * activations to 8 bits. "float32" and the other two decode them. */
  const char* dtype;
  const char* isa;   /* null: the best of this machine; else "baseline", "avx2", "avx512", "avx512bf16", "amx" */
  int32_t threads;   /* 0: one per core this process may use */
  int (*progress)(void* user, size_t bytes_done, size_t bytes_total); /* null, or called as it loads; nonzero cancels */
  void* user;
  const char* device; /* null or "cpu"; "cuda" or "cuda:N": the N-th GPU, with the kernels of pack */
  const char* pack;   /* file that `swiftk pack` made for this GPU's architecture and this model */
  /* Copies in fewer bits that drafts may read: "int8", "int4", "int3", joined by commas; "auto": int4, or int3, if one
   * fits; null or "own": none. They cost memory, at most draft_memory bytes (0: a quarter of what is available).
   * "upper", alone or among them, costs none: it is the upper bytes of weights whose dtype is "float16". On a CPU a
   * draft model is read in the first of them that has few bits. */
  const char* draft_weights;
  size_t draft_memory;
  /* Null, or the folder of a draft model: another model, or a head. Several are joined by colons, and are then
   * "drafter", "drafter-2", ... where skip sets name weights. */
  const char* drafter;
  const char* drafter_packs; /* on a GPU: what `swiftk pack --drafter` made; several files are joined by colons, in the
                              * order of the draft models */
  /* Of keys and values: null or "auto" (the weights'; float16 where weights are in 8 bits or fewer), "float32",
   * "bfloat16", "float16" or "int8" (rounded, with a scale for each). It changes the texts. */
  const char* kv_dtype;
  /* [n_draft_tokens], or null: tokens whose rows make up a trimmed vocabulary head. Drafts that read it propose these
   * tokens alone. Needs a CPU. */
  const int32_t* draft_tokens;
  size_t n_draft_tokens;
  /* Most bytes of memory that this process may have, on a CPU; 0: what is free. Where weights do not fit, and the model
   * was converted (`swiftk convert`), layers that do not fit are read from its file for each pass. */
  size_t memory;
  size_t kv_memory; /* that keys and values have of it; 0: of 512 tokens, and an eighth of what is left at most */
} swiftk_load_params;
#define SWIFTK_LOAD_PARAMS_INIT \
  {sizeof(swiftk_load_params), NULL, NULL, 0, NULL, NULL, NULL, NULL, NULL, 0, NULL, NULL, NULL, NULL, 0, 0, 0}

typedef struct swiftk_model_info {
  size_t struct_size;
  int32_t vocab, layers, hidden, heads, kv_heads, head_dim, ffn, context;
  int32_t threads;
  const char* model_type; /* these strings live as long as the model */
  const char* dtype;      /* of the weights; where they are in 8 bits or fewer, the format of most of them: "q4_k" */
  const char* isa;
  uint64_t weight_bytes;
  const int32_t* eos_ids; /* [n_eos] from generation_config.json, else config.json, else the tokenizer's files */
  size_t n_eos;
} swiftk_model_info;

/* Loads a Hugging Face directory. *model gets one reference. */
SWIFTK_API swiftk_status swiftk_model_load(const char* dir, const swiftk_load_params* params, swiftk_model** model);
SWIFTK_API swiftk_status swiftk_model_get_info(const swiftk_model* model, swiftk_model_info* info);
/* References may be taken and dropped from any thread; null is allowed. Sessions hold the weights themselves. */
SWIFTK_API swiftk_model* swiftk_model_retain(swiftk_model* model);
SWIFTK_API void swiftk_model_release(swiftk_model* model);

/* ---- Sessions: one sequence each ---- */

typedef struct swiftk_session swiftk_session;

typedef struct swiftk_session_params {
  size_t struct_size;
  int32_t context; /* most tokens of text; 0: the model's */
  int32_t threads; /* 0: the model's */
  /* What sources keep when another text begins. 0: the matrix of "recycle" and "template";
   * positive: the texts of "suffix", too; negative: nothing. */
  int32_t recall;
} swiftk_session_params;
#define SWIFTK_SESSION_PARAMS_INIT {sizeof(swiftk_session_params), 0, 0, 0}

enum { SWIFTK_COUPLED = 0, SWIFTK_REJECTION = 1 };

typedef struct swiftk_logit_bias {
  int32_t token;
  float bias; /* finite */
} swiftk_logit_bias;

/* The order is vLLM's: min_tokens, logit_bias, repetition, frequency and presence penalty, then temperature, top_k,
 * top_p, min_p and typical_p. Log-probabilities of tokens are those before all of it. */
typedef struct swiftk_sampling {
  size_t struct_size;
  float temperature;        /* 0: greedy */
  float top_p;              /* 1: off */
  float min_p;              /* 0: off */
  int32_t top_k;            /* 0: off */
  float repetition_penalty; /* 1: off */
  int32_t acceptance; /* coupled: the same seed gives the same tokens, however they are drafted. rejection: as in the
                         papers */
  uint64_t seed;
  /* -2..2, 0: off. The logit of a token that was generated before loses presence_penalty once, and frequency_penalty as
   * often as the token was generated. The prompt does not count. */
  float frequency_penalty;
  float presence_penalty;
  const swiftk_logit_bias*
      logit_bias; /* [n_logit_bias] added to the logits of these tokens, none named twice; copied */
  size_t n_logit_bias;
  /* Ids that end the text, the model's and those of swiftk_generate_params, are impossible before so many new tokens.
   * In the single phases the host decides where a text ends, so this does nothing there. */
  int32_t min_tokens;
  float typical_p; /* 1: off */
} swiftk_sampling;
#define SWIFTK_SAMPLING_INIT \
  {sizeof(swiftk_sampling), 0.0f, 1.0f, 0.0f, 0, 1.0f, SWIFTK_COUPLED, 0, 0.0f, 0.0f, NULL, 0, 0, 1.0f}

/* Sublayers that drafts leave out. Any set is legal: a bad one costs speed, never a different token. */
typedef struct swiftk_skip {
  size_t struct_size;
  const int32_t* attn; /* [n_attn] layers */
  size_t n_attn;
  const int32_t* mlp; /* [n_mlp] layers */
  size_t n_mlp;
  int32_t exit_layer; /* layers from here on are left out whole; -1: none */
  /* What drafts read: a copy that was loaded ("int4"); null: the model's own. "drafter": none of it, the draft model
   * that was loaded beside the model drafts, and nothing is left out. "int4,drafter": it proposes for that copy. */
  const char* weights;
  int32_t trimmed; /* nonzero: drafts read the trimmed head that was loaded */
  int32_t window;  /* tokens at the end of the text that drafts see, and its first 64; 0: all of the text */
  int32_t heavy;   /* beside a window: runs of 512 tokens before it that the last verification attended to most */
} swiftk_skip;
#define SWIFTK_SKIP_INIT {sizeof(swiftk_skip), NULL, 0, NULL, 0, -1, NULL, 0, 0, 0}

/* What sources do (see swiftk_draft_rule). Beside the ranges given,
 * (lookahead_ngram - 1) * (lookahead_window + lookahead_guesses) is at most 64, the nodes of a tree. */
typedef struct swiftk_source_settings {
  size_t struct_size;
  int32_t suffix_length;     /* 1..64: shortest match that proposes */
  int32_t suffix_matches;    /* 1..64: ever shorter ones that are looked at for one list */
  int32_t suffix_ranks;      /* 1..8: tokens of a list */
  int32_t lookup_ngram;      /* 1..16: of the text's last tokens that are looked for, at most */
  int32_t lookup_tokens;     /* 1..63: copied, at most */
  int32_t lookahead_ngram;   /* 2..16: N */
  int32_t lookahead_window;  /* 2..63: W */
  int32_t lookahead_guesses; /* 1..8: G */
  int32_t parallel_tokens;   /* 1..63 */
} swiftk_source_settings;
#define SWIFTK_SOURCE_SETTINGS_INIT {sizeof(swiftk_source_settings), 1, 12, 4, 2, 10, 5, 7, 7, 7}

SWIFTK_API swiftk_status swiftk_session_create(swiftk_model* model, const swiftk_session_params* params,
                                               swiftk_session** session);
SWIFTK_API void swiftk_session_free(swiftk_session* session); /* null is allowed */
SWIFTK_API swiftk_status swiftk_session_set_sampling(swiftk_session* session, const swiftk_sampling* sampling);
SWIFTK_API swiftk_status swiftk_session_set_skip(swiftk_session* session, const swiftk_skip* skip);
/* Where this changes what a source keeps, it restarts. No token changes. */
SWIFTK_API swiftk_status swiftk_session_set_sources(swiftk_session* session, const swiftk_source_settings* settings);
/* Ends the call under way with SWIFTK_CANCELLED, or the next one if there is none; swiftk_session_clear_cancel() takes
 * a cancellation back that came too late. The text keeps every token that was handed out. */
SWIFTK_API swiftk_status swiftk_session_cancel(swiftk_session* session);
SWIFTK_API swiftk_status swiftk_session_clear_cancel(swiftk_session* session);

/* ---- Generation ---- */

enum {                           /* flags of a token */
       SWIFTK_TOKEN_DRAFTED = 1, /* accepted from the draft */
       SWIFTK_TOKEN_BONUS = 2,   /* the target's own token at the end of an accepted draft */
       SWIFTK_TOKEN_PLAIN = 4,   /* nothing was drafted */
       SWIFTK_TOKEN_STOP = 8     /* a stop id: the last token */
};

/* Who proposed a token: in bits 8 to 15 of its flags. Sources without a constant have a name all the same. */
enum {
  SWIFTK_SOURCE_TARGET = 0, /* nobody but the model */
  SWIFTK_SOURCE_PLAN = 1,
  SWIFTK_SOURCE_SUFFIX = 2,
  SWIFTK_SOURCE_RECYCLE = 3,
  SWIFTK_SOURCE_LOOKUP = 4,
  SWIFTK_SOURCE_LOOKAHEAD = 5,
  SWIFTK_SOURCE_PARALLEL = 6,
  SWIFTK_SOURCE_TEMPLATE = 7,
  SWIFTK_SOURCE_GRAMMAR = 8, /* of hosts in Python alone */
  SWIFTK_SOURCE_HOST = 9,    /* swiftk_engine_propose() */
  SWIFTK_SOURCES = 16        /* room for more */
};
#define SWIFTK_TOKEN_SOURCE(flags) ((int)((flags) >> 8 & 0xff))
SWIFTK_API const char* swiftk_source_name(int source); /* "target", "plan", "suffix", ...; never null */

/* What drafts, and how far. The plan: when to stop, and how many siblings a drafted token brings, width[i] for the
 * first confidence <= tier[i], else width[3].
 *
 * Sources cost no draft step, need no skip set and leave the plan out; of the fields before `drafter` they take
 * max_draft and max_nodes. "suffix" finds where the text repeats itself, "recycle" (arXiv 2408.08696) keeps what the
 * model listed after each token: their proposals become nodes where they are worth row_price, by fixed tables of how
 * often they are right; nothing is measured. "lookup" (prompt lookup as transformers has it), "lookahead" (2402.02057),
 * "parallel" (2305.10427) and "template" (the tree of 2408.08696, cut to 63 nodes) take all that they propose, as their
 * papers do. */
typedef struct swiftk_draft_rule {
  size_t struct_size;
  float confidence;  /* drafting ends after a token less likely than this; 0: never early */
  int32_t max_draft; /* tokens on the path */
  int32_t max_nodes; /* root, path and siblings: 1..64 */
  float tier[3];
  int32_t width[4];
  const char* drafter; /* null or "plan", "suffix", "recycle", "lookup", "lookahead", "parallel", "template" */
  float row_price;     /* tokens that a node of "suffix" or "recycle" must bring: what a row costs, of a plain step */
} swiftk_draft_rule;
#define SWIFTK_DRAFT_RULE_INIT \
  {sizeof(swiftk_draft_rule), 0.8f, 25, 64, {0.5f, 0.8f, 0.95f}, {10, 5, 3, 1}, NULL, 0.04f}

typedef struct swiftk_generate_params {
  size_t struct_size;
  int32_t max_new_tokens;
  int32_t ignore_eos;      /* nonzero: the model's end-of-text ids do not stop */
  const int32_t* stop_ids; /* [n_stop] further ids that stop; the one that does is the last token handed out */
  size_t n_stop;
  int32_t speculate;             /* 0: decode plainly. So does the plan without a skip set. The tokens are the same. */
  const swiftk_draft_rule* rule; /* null: defaults */
} swiftk_generate_params;
#define SWIFTK_GENERATE_PARAMS_INIT {sizeof(swiftk_generate_params), 128, 0, NULL, 0, 1, NULL}

/* logprob: under the model's own distribution, before penalties and temperature. Nonzero ends the call with
 * SWIFTK_CANCELLED after this token. */
typedef int (*swiftk_on_token)(void* user, int32_t token, uint32_t flags, float logprob);

/* Replaces the text by `prompt` (the longest cached prefix is kept), then generates until a stop id, max_new_tokens or
 * the end of the context. The text then holds the prompt and exactly the tokens handed out. on_token may be null. */
SWIFTK_API swiftk_status swiftk_generate(swiftk_session* session, const int32_t* prompt, size_t n_prompt,
                                         const swiftk_generate_params* params, swiftk_on_token on_token, void* user);

enum { SWIFTK_FINISH_NONE = 0, SWIFTK_FINISH_STOP = 1, SWIFTK_FINISH_LENGTH = 2 };

typedef struct swiftk_stats { /* counters and seconds are of the last swiftk_generate() */
  size_t struct_size;
  int32_t finish;
  int32_t prompt_tokens, reused_tokens; /* reused: found in the cache */
  int32_t new_tokens;
  int32_t num_spec_steps;            /* rounds with something to verify */
  int32_t num_draft_tokens;          /* places of the text that the plan drafted, one a draft step */
  int32_t num_accepted_draft_tokens; /* of the plan's: never more. All that were accepted: the sum of accepted[] */
  int32_t num_plain_steps;
  double prefill_seconds, draft_seconds, verify_seconds, commit_seconds;
  uint64_t cache_bytes, workspace_bytes; /* of the session now */
  int32_t proposed[SWIFTK_SOURCES];      /* nodes of trees by who proposed them, siblings and all */
  int32_t accepted[SWIFTK_SOURCES];
  int32_t num_draft_steps;
  double mean_generated_length; /* tokens per target pass after the prompt's; a last block that was cut left out */
  int32_t num_draft_nodes;      /* nodes of trees that draft steps read: more than one a step, where steps are wide.
                                   Before this field was here num_draft_tokens counted them. */
} swiftk_stats;
SWIFTK_API swiftk_status swiftk_session_get_stats(const swiftk_session* session, swiftk_stats* stats);

/* ---- Single phases, for hosts that schedule by themselves ----
 *
 * reuse, extend (in chunks), sample; then rounds of draft or set_tree, verify, commit. What a pointer out of a session
 * points to is valid until the next call with that session. */

typedef struct swiftk_token {
  int32_t token;
  uint32_t flags;
  float logprob;
} swiftk_token;

/* Starts a new text; *kept tokens of it are cached already (all but the last at most), the caller extends by the
 * others. */
SWIFTK_API swiftk_status swiftk_session_reuse(swiftk_session* session, const int32_t* tokens, size_t n, size_t* kept);
SWIFTK_API swiftk_status swiftk_session_max_chunk(const swiftk_session* session, size_t* n);
SWIFTK_API swiftk_status swiftk_session_extend(swiftk_session* session, const int32_t* tokens,
                                               size_t n); /* n <= max_chunk */
SWIFTK_API swiftk_status swiftk_session_sample(swiftk_session* session, swiftk_token* token);
/* A token that the host chose instead, by the logits of the last row of extend(). */
SWIFTK_API swiftk_status swiftk_session_put(swiftk_session* session, int32_t token);
SWIFTK_API swiftk_status swiftk_session_draft(swiftk_session* session, const swiftk_draft_rule* rule);
/* Nodes are numbered from 1, the root being 0; parents[i] <= i is the parent of node i + 1. */
SWIFTK_API swiftk_status swiftk_session_set_tree(swiftk_session* session, const int32_t* tokens, const int32_t* parents,
                                                 size_t n);
/* The tree with its root: parents[0] is -1. */
SWIFTK_API swiftk_status swiftk_session_tree(const swiftk_session* session, const int32_t** tokens,
                                             const int32_t** parents, size_t* n);
SWIFTK_API swiftk_status swiftk_session_verify(swiftk_session* session, const swiftk_token** emitted, size_t* n);
SWIFTK_API swiftk_status swiftk_session_commit(swiftk_session* session, size_t n); /* the first n emitted tokens */
/* Tokens that the host chose instead, by the logits of verify(): all but the last are nodes of the tree, each a child
 * of the one before, the first of the root; the last, after them, may be any token. Grammars and samplers of a host's
 * own go this way, one token at a time (n = 1, without a tree) or along trees. */
SWIFTK_API swiftk_status swiftk_session_commit_tokens(swiftk_session* session, const int32_t* tokens, size_t n);

typedef struct swiftk_score {
  size_t struct_size;
  int32_t rows, matches;
  double seconds;
} swiftk_score;
/* How well a skip set would have drafted the last `window` (1 or more) tokens of the text; changes nothing. */
SWIFTK_API swiftk_status swiftk_session_score(swiftk_session* session, const swiftk_skip* skip, int32_t window,
                                              swiftk_score* score);

SWIFTK_API swiftk_status swiftk_session_history(const swiftk_session* session, const int32_t** tokens, size_t* n);
/* [rows, vocab] of the last extend (one row, also after sample or put), verify (a row per node of the tree) or score
 * (the rows of its last pass). Fails where there are none: once the text or its tree has changed. */
SWIFTK_API swiftk_status swiftk_session_logits(const swiftk_session* session, const float** logits, size_t* rows,
                                               size_t* vocab);

/* The text and what is cached of it, for a session of the same model, kernels and dtype, in this process or another
 * one. Sampling is not part of it. save() writes at most `capacity` bytes to `state`, which may be null, and reports
 * how many it takes; too small a capacity is an error. */
SWIFTK_API swiftk_status swiftk_session_save(swiftk_session* session, void* state, size_t capacity, size_t* bytes);
SWIFTK_API swiftk_status swiftk_session_load(swiftk_session* session, const void* state, size_t bytes);

/* ---- Engines: many texts at a time ----
 *
 * Texts are handed in, and every step() is a round of all that are under way. A text is the same whoever shares its
 * rounds. One thread steps; submit, cancel and propose may come from any. */

typedef struct swiftk_engine swiftk_engine;

typedef struct swiftk_engine_params {
  size_t struct_size;
  int32_t context;   /* most tokens of a text; 0: the model's, or fewer where half of the free memory holds no more */
  int32_t sequences; /* texts that step together; others wait */
  /* Most bytes of keys and values. 0: for one text of full length and all others of an eighth of it, but at most half
     of the memory that is free now. Memory is taken as it fills, and given back once no text is under way: half of the
     bytes may stay for prompts that begin alike. */
  size_t kv_memory;
  int32_t threads; /* 0: the model's */
} swiftk_engine_params;
#define SWIFTK_ENGINE_PARAMS_INIT {sizeof(swiftk_engine_params), 0, 16, 0, 0}

typedef struct swiftk_request {
  size_t struct_size;
  const int32_t* prompt; /* [n_prompt] */
  size_t n_prompt;
  const swiftk_sampling* sampling;      /* null: greedy */
  const swiftk_generate_params* params; /* null: defaults. Without a rule, drafting is by the clock */
  const swiftk_skip* skip;              /* with a rule: what its plan leaves out; null: no plan drafts */
} swiftk_request;
#define SWIFTK_REQUEST_INIT {sizeof(swiftk_request), NULL, 0, NULL, NULL, NULL}

enum { SWIFTK_FINISH_CANCELLED = 3, SWIFTK_FINISH_FAILED = 4 };

/* A token of a text, or its end, or both. */
typedef struct swiftk_event {
  uint64_t id;
  int32_t token; /* -1: none */
  uint32_t flags;
  float logprob;
  int32_t finish;       /* SWIFTK_FINISH_NONE: it goes on */
  swiftk_status status; /* why it failed */
} swiftk_event;

SWIFTK_API swiftk_status swiftk_engine_create(swiftk_model* model, const swiftk_engine_params* params,
                                              swiftk_engine** engine);
SWIFTK_API void swiftk_engine_free(swiftk_engine* engine); /* null is allowed */
SWIFTK_API swiftk_status swiftk_engine_submit(swiftk_engine* engine, const swiftk_request* request, uint64_t* id);
SWIFTK_API swiftk_status swiftk_engine_cancel(swiftk_engine* engine, uint64_t id); /* no error if it has ended */
/* What source HOST of a text proposes from the next round on, from position `at` of the text, prompt included: as far
 * as it has come true by then. In place of what it was given before; no error if the text has ended. */
SWIFTK_API swiftk_status swiftk_engine_propose(swiftk_engine* engine, uint64_t id, int32_t at, const int32_t* tokens,
                                               size_t n);
/* One round. Events are valid until the next step; none where nothing is under way. */
SWIFTK_API swiftk_status swiftk_engine_step(swiftk_engine* engine, const swiftk_event** events, size_t* n);
SWIFTK_API swiftk_status swiftk_engine_idle(const swiftk_engine* engine, int32_t* idle);

#ifdef __cplusplus
}
#endif

#endif
