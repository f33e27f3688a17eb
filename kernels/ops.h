// THE CONTRACT between the runtime and a backend: argument structs with shapes in comments, and `Ops`, a table of
// functions.
//
// Every compute op is row exact: the bits it writes for a row depend on that row's inputs alone, never on how many rows
// are in the call, which rows they are, which cache slots they use, or how many threads run. Attention is also path
// exact: it sees keys by logical position, so a tree row has the bits of the same token decoded alone. Layouts of
// packed weights and of the cache belong to the backend. Kernels check nothing; callers validate at the edge.
//
// Pointers are to memory of the backend (Ops::allocate), but for the arrays of Rows, PackArgs, MoveArgs, SpineArgs,
// the slots of ReadArgs and WriteArgs, and what topk writes, which are the host's. Residual rows and logits are fp32.
// What one op hands to the next (q, attention's out, h) has room for floats, and is stored as the backend likes.
#pragma once
#include <cstddef>
#include <cstdint>

#include "encoding.h"
#include "format.h"
#include "gate_rule.h"
#include "noise.h"
#include "tensor.h"

namespace swiftk {

struct Ctx;     // a backend's threads (or stream) and scratch memory; one per session, used by one thread at a time
struct Device;  // what a backend allocates from and runs on where that is not the host

// Rows of a matrix that are stored in one format. Made by Ops::pack.
struct Segment {
  const void* data = nullptr;
  size_t bytes = 0;
  Format format = Format::F32;
};

// A packed matrix y[n] = W[n, k] x[k] + bias: its rows one segment after another. Most have one; parts of a matrix
// whose formats differ (q, k and v; gate and up) have one each, which a device does not read.
struct Weight {
  static constexpr int kMostSegments = 3;
  Segment segment[kMostSegments];
  int segments = 1;
  const float* bias = nullptr;  // [n], in the packed row order, or null
  int n = 0, k = 0;

  const void* data() const { return segment[0].data; }  // of the first
  Format format() const { return segment[0].format; }
};

// Tokens whose K and V lie side by side. Divides the splits of every attention kernel, so bits do not depend on where a
// block lies.
inline constexpr int kKvBlock = 64;
inline constexpr int kMassRun = 512;

// A sequence as its rows see it. Its slot s is place s % kKvBlock of block blocks[s / kKvBlock].
struct View {
  const int32_t* blocks = nullptr;
  int prefix_len = 0;      // used with ancestors only
  int scratch = 0;         // slot of scratch row 0; used with ancestors only
  bool stretched = false;  // which of two rotary tables it has, for the caller who makes cos and sin;
  int skipped = 0;         // and places of the text that lie between its blocks and are not seen: pos leaves them out
  // Null, or [runs of kMassRun positions]: to each is added what the queries of the first rows, as many as go together,
  // give of their attention to it. Where a backend cannot say, nothing is added.
  float* mass = nullptr;
  // The caller may keep K and V of layers with a sliding window in another store: then these are the text's blocks
  // there. Kernels read `blocks` alone.
  const int32_t* panes = nullptr;
};

// Rows are tokens with a sequence, a logical position, a cache slot and a set of visible keys. Those of a sequence are
// neighbours.
//   Visible to row i: positions 0..prefix_len-1 at slots 0..prefix_len-1, then, in ascending order of j, the scratch
//   rows j < 64 with bit j set in ancestors[i] (itself included) at slots scratch + j, whose positions are prefix_len,
//   prefix_len + 1, ... in that order; pos[i] is the last of them. ancestors[i] == 0, and ancestors == null for all
//   rows: causal, slot == position everywhere.
struct Rows {
  int n = 0;
  const int32_t* token = nullptr;       // [n]
  const int32_t* pos = nullptr;         // [n]
  const int32_t* slot = nullptr;        // [n] where this row's K and V are written
  const uint64_t* ancestors = nullptr;  // [n] or null
  const int32_t* sequence = nullptr;    // [n] rising from 0, or null: all rows are of views[0]
  const View* views = nullptr;          // [sequences]
  const float* cos = nullptr;           // [tables, n, d/2] rotary tables of these rows, scaling included
  const float* sin = nullptr;           // [tables, n, d/2]

  const View& view(int row) const { return views[sequence ? sequence[row] : 0]; }
};

struct KvShape {
  int n_kv = 0, d = 0;       // KV heads, head dimension
  int blocks = 0;            // of kKvBlock tokens
  DType dtype = DType::F32;  // I8: on the host alone
  int layers = 1;  // whose blocks lie beside each other: from one block of a layer to its next is as far as so many
  size_t slots() const { return size_t(blocks) * kKvBlock; }
};

// K and V of one layer; layout private to the backend.
struct KvLayer {
  void* data = nullptr;
  KvShape shape;
};

struct EmbedArgs {
  const void* table;     // [V, D] row-major, as in the checkpoint; on a device as one packed part
  Encoding encoding;     // of its rows; a device has the dtype of its kernels
  const int32_t* token;  // [n]
  int n, D;
  float* x;         // [n, D]
  float scale = 1;  // of what the table holds
};

// The values that one RMSNorm of q and k takes together: those of a head, before or after it is rotated; or those of
// all heads of q, and those of all heads of k.
enum class QkNorm : uint8_t { Heads, RotatedHeads, Whole };

// q, k, v = W rmsnorm(x), or W x; optional RMSNorm of q and k; rotary embedding (halves rotated, as Hugging Face does:
// element i pairs with i + d/2) or none; k and v are stored at rows.slot in the cache's dtype.
// n_heads may be 0: k and v alone; or kv.shape.n_kv: q alone (on a device, where its kernels were built for that).
struct QkvArgs {
  const float* x;     // [n, w.k]
  const float* norm;  // [w.k]; null: x as it is
  float eps;
  Weight w;             // [(H + 2 n_kv) d, D], packed with group = d from (q, k, v)
  const float* q_norm;  // [d], or [H d] of Whole, or null
  const float* k_norm;  // [d], or [n_kv d], or null
  const Rows* rows;
  KvLayer kv;
  int n_heads;
  float* q;                          // [n, H, d]
  int rope = 0;                      // which of the rows' rotary tables k takes; -1: none
  int query_rope = 0;                // the same of q
  QkNorm norm_over = QkNorm::Heads;  // a device has this one alone
  const Weight* next = nullptr;      // of the op that reads weights next: a hint, for threads that wait; or null
};

// out = softmax(scores) v over the visible keys whose position is > pos - window (window 0: all), where scores are
// scale q k^T, or soft_cap tanh(scale q k^T / soft_cap).
struct AttentionArgs {
  const float* q;  // [n, H, d]
  const Rows* rows;
  KvLayer kv;
  int n_heads;
  int window;
  float scale;
  float* out;          // [n, H, d]
  float soft_cap = 0;  // 0: none
};

// x += scale (W in + bias), or x += scale rmsnorm(W in + bias)
struct ResidualArgs {
  const float* in;  // [n, K]
  Weight w;         // [D, K]
  int n;
  float* x;  // [n, D], updated in place
  float scale = 1;
  const float* norm = nullptr;  // [D] or null
  float eps = 0;
  const Weight* next = nullptr;  // as of QkvArgs
};

enum class Activation : uint8_t { Silu, GeluTanh };

// h = activation(Wg y) * (Wu y), y = rmsnorm(x), or x as it is
struct GateUpArgs {
  const float* x;     // [n, D]
  const float* norm;  // [D]; null: x as it is
  float eps;
  Weight w;  // [2F, D], packed interleaved from (gate, up) with group = kGateGroup; or gate and up as two segments
  int n;
  float* h;  // [n, F]
  Activation activation = Activation::Silu;
  const Weight* next = nullptr;  // as of QkvArgs
};
inline constexpr int kGateGroup = 32;

// logits = scale W rmsnorm(x), or scale W x; or soft_cap tanh(these / soft_cap)
struct LmHeadArgs {
  const float* x;     // [n, D]
  const float* norm;  // [D]; null: x as it is
  float eps;
  Weight w;  // [V, D]
  int n;
  float* logits;  // [n, V]
  float scale = 1;
  float soft_cap = 0;  // 0: none
};

// out = rmsnorm(x), which some drafters read beside another row.
struct NormArgs {
  const float* x;     // [n, D]
  const float* norm;  // [D]
  float eps;
  int n, D;
  float* out;     // [n, D]; may be x
  size_t stride;  // floats from a row of it to the next
};

// out = the mean of each `group` rows of x.
struct MeanArgs {
  const float* x;  // [n, group, width]
  int n, group, width;
  float* out;  // [n, width]
};

// Logits of some tokens among those of all: logits[token[j]] = own[j], row by row; others stay.
struct SpreadArgs {
  const float* own;      // [n, own_vocab]
  const int32_t* token;  // [own_vocab], none twice
  int n, own_vocab, vocab;
  float* logits;  // [n, vocab]
};

// Per row, the k largest of scale * scores + noise, best first, ties to the lowest id. scale * scores is rounded to
// f32; noise is gumbel(seed, pos, token, stream) of noise.h if `noisy`, else 0. What is -inf or NaN never wins: where
// fewer than k are left, id is -1 and logit -inf. scale > 0.
struct TopkArgs {
  const float* logits;  // [n, V]
  const float* scores;  // [n, V]; may be `logits`
  int n, vocab, k;      // 1 <= k <= kMaxTopk
  float scale;
  bool noisy;
  uint64_t seed;
  Stream stream;
  const int32_t* pos;     // [n] position of the token that is drawn
  int32_t* id;            // [n, k]
  float* logit;           // [n, k] logits[id]
  float* lse;             // [n] log sum exp(logits); NaN or infinite if a logit is
  float* mass = nullptr;  // [n] or null: sum exp(scale * logits - the largest of them); no noise
};
inline constexpr int kMaxTopk = 64;

// Copies slot from[i] to slot to[i], for i = 0, 1, ... in turn, in every layer. Slots are of the whole cache: block
// times kKvBlock plus place.
struct MoveArgs {
  KvLayer kv;          // the first layer
  size_t layer_bytes;  // from one layer to the next
  int layers;
  const int32_t *from, *to;  // [n]
  int n;
};

// K and V of cached tokens as floats: of each KV head its K, then its V. Slots are as in MoveArgs.
struct ReadArgs {
  KvLayer kv;
  const int32_t* slot;  // [n]
  int n;
  size_t stride;  // floats from a row of `out` to the next
  float* out;     // [n, n_kv, 2, d]
};

// The other way: slots receive K and V, rounded to the cache's dtype.
struct WriteArgs {
  KvLayer kv;
  const int32_t* slot;  // [n]
  int n;
  size_t stride;    // floats from a row of `in` to the next
  const float* in;  // [n, n_kv, 2, d]
};

// Which matrix it is: a backend may lay them out in different ways.
enum class Matrix : uint8_t { Qkv, Output, GateUp, Down, Head, Embedding };

// The source of a packed matrix: row-major parts, cut into groups of `group` rows that are laid out one after
// another (q heads, k heads, v heads) or, interleaved, in turn (gate, up, gate, up, ...). A group may be padded by the
// backend.
struct PackArgs {
  Matrix role = Matrix::Head;
  StoredRows part[3];  // each [rows, k]
  int k;
  int group;  // rows per group; the last group of a part may be short. 0: the whole part
  bool interleave;
  Format format;   // to which they are converted: rounded to nearest even, or quantised
  bool fragments;  // of formats in blocks, by the CPU's table: as a GPU reads them
  void* dst;       // packed_bytes() bytes, from Ops::allocate
};

// A run of steps over rows that were bound, as far as it can be recorded: calls with equal keys make the same launches.
struct PassKey {
  uint64_t steps;               // a hash of the steps
  const void *x, *kv, *logits;  // null where the pass has none
  bool operator==(const PassKey&) const = default;
};

// A draft in one go: a node's row goes through the ops of a pass and a topk, which make its candidate children; of them
// and those before, the rule chooses whose row is next (gate_rule.h), until it chooses none or there are no more rows.
struct SpineArgs {
  // Row i is what belongs to depth i (pos, cos, sin) and to the i-th node that is read (slot); the root's token and
  // ancestors are there, too. Not bound. n: most steps.
  const Rows* rows;
  PassKey pass;             // of a step's pass, whose rows are one
  void (*issue)(void* of);  // calls the ops of that pass
  void* of;
  TopkArgs draw;  // of a step (n = 1, pos unused). What the steps drew goes to id and logit [rows->n, k], lse [rows->n]
  GateRule gate;
  const int32_t* stop_ids;  // [stops] nothing is read after
  int stops;
};

struct Probe {
  double read_bytes_per_s;  // sequential reads of memory, all threads
  size_t read_bytes;        // of the memory that was read in turn: far larger than the caches, if there was room
  // Peak of the multiply-add that matmuls of weights stored as `dtype` use (2 flops each), all threads.
  double flops_per_s;
};

inline constexpr int kFewRows = 8;  // of Ops::few_rows, where nothing says better

struct Ops {
  const char* name;   // "baseline", "avx2", "avx512", "avx512bf16", "amx", "cuda"
  Device* device;     // null: the host. Handed back to the functions that take one
  int draws;          // rows a topk call should take: 1 where it costs by the row, more where it waits for a device
  bool shares_table;  // a device's packed head serves as the table of embed, too
  int kv_planes;      // parts of a layer's cache, one after another, in each of which blocks lie one after another
  bool kv_together;   // blocks of all layers lie beside each other (KvShape::layers), so that memory fills in turn
  int (*few_rows)(Format);  // that pass over weights of this format without arithmetic counting much: an estimate

  Ctx* (*create)(Device*, int threads);
  // One whose ops are in turn with those of another ctx, of any table for the same device, which outlives it: with
  // rows, scratch memory and recorded passes of its own. Null on the host, where such ops may have the other ctx
  // itself.
  Ctx* (*beside)(Device*, Ctx& other);
  void (*destroy)(Ctx*);
  // 64-byte aligned and zeroed; on the host lazily by the system, with huge pages where they help. Throws bad_alloc.
  void* (*allocate)(Device*, size_t bytes);
  void (*release)(Device*, void*, size_t bytes);
  // Null on a device. Gives whole pages of a range back to the system: they hold nothing, and take no memory until they
  // are written again.
  void (*discard)(void*, size_t bytes);
  // Null on a device. Says, before any of it is written, that a range will be filled from end to end: huge pages serve
  // it.
  void (*dense)(void*, size_t bytes);
  // Copies, in turn with the ops. Host memory may be used again, or read, when the call returns.
  void (*upload)(Ctx&, void* to, const void* from_host, size_t bytes);
  void (*download)(Ctx&, void* to_host, const void* from, size_t bytes);
  void (*copy)(Ctx&, void* to, const void* from, size_t bytes);
  void (*fill)(Ctx&, void* to, int byte, size_t bytes);

  size_t (*packed_bytes)(const Device*, const PackArgs&);  // dst and part pointers unused
  void (*pack)(Ctx&, const PackArgs&);
  size_t (*kv_bytes)(const KvShape&);  // of one layer; of all whose blocks lie beside each other

  // Makes rows known before the ops that take them; they stay bound, in host memory too, until the next call.
  void (*bind)(Ctx&, const Rows&);
  // True: the pass was recorded before and now runs. False: the caller runs the ops, then calls end_pass, with false if
  // it did not come to the end of them. That says false where the ops were to be recorded and could not be: they have
  // not run, and the caller begins once more.
  bool (*begin_pass)(Ctx&, const PassKey&);
  bool (*end_pass)(Ctx&, bool complete);

  void (*embed)(Ctx&, const EmbedArgs&);
  void (*rmsnorm_qkv_rope_append)(Ctx&, const QkvArgs&);
  void (*attention)(Ctx&, const AttentionArgs&);  // prefill, decode and verify are one op
  void (*o_proj_residual)(Ctx&, const ResidualArgs&);
  void (*rmsnorm_gate_up_act)(Ctx&, const GateUpArgs&);
  void (*down_proj_residual)(Ctx&, const ResidualArgs&);
  void (*rmsnorm_lm_head)(Ctx&, const LmHeadArgs&);
  // What draft models need beside these. linear: x += W in + bias, of any shape on the host, on a
  // device of those that its kernels were built for; `in` is fp32.
  void (*linear)(Ctx&, const ResidualArgs&);
  void (*rmsnorm)(Ctx&, const NormArgs&);
  void (*mean)(Ctx&, const MeanArgs&);
  void (*spread)(Ctx&, const SpreadArgs&);
  void (*topk)(Ctx&, const TopkArgs&);
  void (*move_rows)(Ctx&, const MoveArgs&);
  void (*read_rows)(Ctx&, const ReadArgs&);
  void (*write_rows)(Ctx&, const WriteArgs&);  // null on a device
  // Null where steps cost nothing between them. Returns the steps taken, after which no rows are bound; 0: this spine
  // has to be drafted step by step.
  int (*draft_spine)(Ctx&, const SpineArgs&);
  // Null where there are none. What is done in a slower way since a device refused the usual one, and why: lines.
  const char* (*fallbacks)(Ctx&);

  // Takes about a second, and at most so many bytes of the host's memory meanwhile.
  void (*probe)(Ctx&, DType, size_t memory, Probe*);
};

// The CPU table for an instruction set ("baseline", "avx2", "avx512", "avx512bf16", "amx"); null or "": the best of
// this machine. Returns null if the name is unknown or this machine cannot run it.
const Ops* cpu_ops(const char* isa);

// Names that cpu_ops() accepts on this machine, best first, ended by null.
const char* const* cpu_isas();

// Bytes of the last caches before memory, of all processors together: those that share one count it once. 0 if the
// system does not say. `processors` is the folder that has cpu0/cache, cpu1/cache and so on.
size_t last_caches(const char* processors = "/sys/devices/system/cpu");

}  // namespace swiftk
