#include "cuda/stream.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <numeric>
#include <utility>

namespace swiftk::cuda {
namespace {

constexpr int kMaxRows = 1 << 15;  // counts that count() knows: of more rows than 256 texts and their trees have
constexpr size_t kAlign = 256;     // bytes; parts of bound rows begin on multiples of it
constexpr const char* kByKernels = "a pass is launched kernel by kernel";
constexpr const char* kInTurn = "kernels of drafts do not overlap";
constexpr const char* kBySteps = "drafts go step by step";

struct Splits {
  int keys, begin;  // keys of a split; position from which they have so many
};
constexpr Splits kSplits[] = {{256, 0}, {512, 4096}, {1024, 32768}};
constexpr int kSplitStep = 8;  // recorded passes have a multiple of so many, or a power of two below

size_t aligned(size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

int recorded_splits(int splits) {
  return splits > kSplitStep ? ceil_div(splits, kSplitStep) * kSplitStep : std::bit_ceil(unsigned(splits));
}

size_t at_least_recorded(int rows) { return std::max(rows, kRecordedRows); }

constexpr int kFar = 1 << 30;         // FAR of kernels/triton/span.py
constexpr size_t kTables = 64 << 10;  // bytes of block tables that bound rows have room for at first

// Offsets of the parts of bound rows: first their count, then the state of a spine; block tables come last.
struct RowLayout {
  RowLayout(size_t rows, size_t tiles, size_t half, size_t state) {
    const size_t ints = aligned(sizeof(int32_t) * rows), table = aligned(sizeof(float) * rows * half);
    token = kAlign + aligned(state);
    pos = token + ints;
    next = pos + ints;
    slot = next + ints;
    ancestors = slot + ints;
    views = ancestors + aligned(sizeof(uint64_t) * rows);
    tile = views + aligned(4 * sizeof(int32_t) * rows);
    cos = tile + aligned(2 * sizeof(int32_t) * tiles);
    sin = cos + table;
    tables = sin + table;
  }
  size_t token, pos, next, slot, ancestors, views, tile, cos, sin, tables;
};

// Rows of a sequence that are many and no tree are a prompt's.
struct Run {
  int begin, end;
  bool tree;
  bool prompt() const { return !tree && end - begin > kRecordedRows / 2; }
};

Run run_from(const Rows& r, int begin, int n) {
  Run run{begin, begin, r.ancestors && r.ancestors[begin]};
  while (run.end < n && &r.view(run.end) == &r.view(begin)) ++run.end;
  return run;
}

}  // namespace

int splits_for(int last) {
  int count = 0;
  for (size_t i = 0; i < std::size(kSplits) && last >= kSplits[i].begin; ++i) {
    const int end = i + 1 < std::size(kSplits) ? std::min(last + 1, kSplits[i + 1].begin) : last + 1;
    count += ceil_div(end - kSplits[i].begin, kSplits[i].keys);
  }
  return count;
}

Scratch::~Scratch() {
  if (address_) device_.gpu.driver.cuMemFree_v2(address_);
}

void Scratch::replace(size_t bytes) {
  if (address_) device_.gpu.driver.cuMemFree_v2(std::exchange(address_, 0));
  bytes_ = 0;
  device_.check(device_.gpu.driver.cuMemAlloc_v2(&address_, bytes), "memory for the work of a session");
  bytes_ = bytes;
}

Staging::~Staging() {
  for (const Turn& t : turns_) {
    if (t.copied) device_.gpu.driver.cuEventDestroy_v2(t.copied);
    if (t.data) device_.gpu.driver.cuMemFreeHost(t.data);
  }
}

char* Staging::next(size_t bytes) {
  turn_ = (turn_ + 1) % kTurns;
  Turn& t = turns_[turn_];
  const Driver& driver = device_.gpu.driver;
  if (t.copied) {
    device_.check(driver.cuEventSynchronize(t.copied), "waiting for a copy");
  } else {
    device_.check(driver.cuEventCreate(&t.copied, kEventNoTiming), "making an event");
  }
  if (bytes > t.bytes) {
    if (t.data) driver.cuMemFreeHost(std::exchange(t.data, nullptr));
    t.bytes = 0;
    void* data = nullptr;
    device_.check(driver.cuMemHostAlloc(&data, bytes, 0), "pinned memory for copies");
    t.data = static_cast<char*>(data);
    t.bytes = bytes;
  }
  return t.data;
}

void Staging::copy(Stream stream, void* to, size_t bytes) {
  const Turn& t = turns_[turn_];
  device_.check(device_.gpu.driver.cuMemcpyHtoDAsync_v2(address(to), t.data, bytes, stream), "copying to the GPU");
  device_.check(device_.gpu.driver.cuEventRecord(t.copied, stream), "recording an event");
}

QueueStream::QueueStream(const Device& device, Stream borrowed)
    : device_(device), handle_(borrowed), owned_(!borrowed) {
  if (owned_) device.check(device.gpu.driver.cuStreamCreate(&handle_, kStreamNonBlocking), "making a stream");
}

QueueStream::~QueueStream() {
  if (owned_) device_.gpu.driver.cuStreamDestroy_v2(handle_);
}

Queue::Queue(const Device& d, int host_threads, Stream borrowed)
    : device(d),
      threads(host_threads),
      stream(d, borrowed),
      y(d),
      raw(d),
      part_acc(d),
      part_ml(d),
      candidates(d),
      drawn(d),
      drawn_at(d),
      spine_drawn(d),
      moves(d),
      unpacked(d),
      staging(d),
      row_memory_(d),
      counts_(d),
      seed_memory_(d),
      passes_(d) {
  std::vector<int32_t> counts(kMaxRows + 1);
  std::iota(counts.begin(), counts.end(), 0);
  counts_.replace(sizeof(int32_t) * counts.size());
  upload(counts_.as(), counts.data(), sizeof(int32_t) * counts.size());
  seed_memory_.replace(sizeof(DrawSeed));
}

Queue::~Queue() { device.gpu.driver.cuStreamSynchronize(stream); }

const void* Queue::count(int n) const {
  return pass_ != PassState::None && n == rows_.n ? rows_.count : counts_.as<int32_t>() + n;
}

void Queue::bind(const Rows& r) { bind(r, nullptr); }

void Queue::bind_spine(const Rows& r, const SpineState& state) { bind(r, &state); }

// Lists the query tiles. Prompts after all other rows go in one go each, but in a call that may be recorded: that goes
// split by split, whatever its rows are, and has one of two numbers of tiles, what one sequence needs or what any may.
void Queue::tile_rows(const Rows& r, int n) {
  const Shape& shape = device.pack.shape();
  const int group = shape.H / shape.KV, most = device.query_rows;
  const bool recorded = n <= kRecordedRows;
  rows_.few = recorded ? n : 0;
  for (int i = 0; !recorded && i < n;) {
    const Run run = run_from(r, i, n);
    if (!run.prompt()) rows_.few = run.end;
    i = run.end;
  }
  tile_.clear();
  rows_.tree = false;
  int sequences = 0;
  for (int i = 0; i < n; ++sequences) {
    if (i == rows_.few) rows_.few_tiles = static_cast<int>(tile_.size() / 2);
    const Run run = run_from(r, i, n);
    for (int q = run.begin * group; q < run.end * group; q += most) {
      tile_.push_back(q);
      tile_.push_back(std::min(q + most, run.end * group));
    }
    rows_.tree |= run.tree;
    i = run.end;
  }
  if (recorded)
    tile_.resize(2 * (sequences == 1 ? ceil_div(rows_.rows * group, most) : rows_.rows * ceil_div(group, most)));
  rows_.tiles = static_cast<int>(tile_.size() / 2);
  if (rows_.few == n) rows_.few_tiles = rows_.tiles;
  rows_.few_rows = recorded ? rows_.rows : rows_.few;
  const int last = rows_.few > 0 ? *std::max_element(r.pos, r.pos + rows_.few) : 0;
  rows_.splits = recorded_splits(splits_for(last));
}

// Lists what rows see, and where they lie.
void Queue::view_rows(const Rows& r, int n) {
  views_.clear();
  slot_.clear();
  tables_.clear();
  for (int i = 0; i < n;) {
    const Run run = run_from(r, i, n);
    const View& view = r.view(i);
    const int32_t table = static_cast<int32_t>(tables_.size());
    int most = 0;  // slots
    for (; i < run.end; ++i) {
      slot_.push_back(view.blocks[r.slot[i] / kKvBlock] * kKvBlock + r.slot[i] % kKvBlock);
      views_.insert(views_.end(), {run.tree ? view.prefix_len : kFar, view.scratch, table, 0});
      most = std::max({most, r.slot[i], run.tree ? view.prefix_len - 1 : r.pos[i],
                       run.tree ? view.scratch + 63 - std::countl_zero(r.ancestors[i]) : 0});
    }
    tables_.insert(tables_.end(), view.blocks, view.blocks + most / kKvBlock + 1);
  }
}

// A spine brings all of its rows, but passes see the first alone, to which the gate moves the next one.
void Queue::bind(const Rows& r, const SpineState* spine) {
  const size_t n = r.n, half = device.pack.shape().HD / 2;
  rows_.n = spine ? 1 : r.n;
  rows_.rows = grid_rows(rows_.n);
  tile_rows(r, rows_.n);
  view_rows(r, r.n);
  if (spine) rows_.splits = recorded_splits(splits_for(*std::max_element(r.pos, r.pos + n)));
  reserve_rows();

  const RowLayout at(spine ? kRecordedRows : rows_.rows, rows_.tiles, half, spine ? sizeof *spine : 0);
  const size_t end = at.tables + sizeof(int32_t) * tables_.size();
  char* const host = staging.next(end);
  const int32_t count[8] = {rows_.n};
  std::memcpy(host, count, sizeof count);
  const auto put = [&](size_t offset, const void* from, size_t bytes) {
    if (from) std::memcpy(host + offset, from, bytes);
  };
  put(kAlign, spine, sizeof *spine);
  put(at.token, r.token, sizeof(int32_t) * n);
  put(at.pos, r.pos, sizeof(int32_t) * n);
  next_.assign(r.pos, r.pos + n);
  for (int32_t& p : next_) ++p;
  put(at.next, next_.data(), sizeof(int32_t) * n);
  put(at.slot, slot_.data(), sizeof(int32_t) * n);
  put(at.ancestors, r.ancestors, sizeof(uint64_t) * n);
  put(at.views, views_.data(), sizeof(int32_t) * views_.size());
  put(at.tile, tile_.data(), sizeof(int32_t) * tile_.size());
  put(at.cos, r.cos, sizeof(float) * n * half);
  put(at.sin, r.sin, sizeof(float) * n * half);
  put(at.tables, tables_.data(), sizeof(int32_t) * tables_.size());
  const size_t most =
      RowLayout(at_least_recorded(rows_.rows), at_least_recorded(rows_.tiles), half, sizeof *spine).tables;
  reserve(row_memory_, std::bit_ceil(most + std::max(kTables, sizeof(int32_t) * tables_.size())));
  char* const base = row_memory_.as<char>();
  staging.copy(stream, base, end);
  rows_.count = base;
  rows_.spine = base + kAlign;
  rows_.token = base + at.token;
  rows_.pos = base + at.pos;
  rows_.next = base + at.next;
  rows_.slot = base + at.slot;
  rows_.ancestors = base + at.ancestors;
  rows_.views = base + at.views;
  rows_.tile = base + at.tile;
  rows_.cos = base + at.cos;
  rows_.sin = base + at.sin;
  rows_.tables = base + at.tables;
}

const void* Queue::positions(const int32_t* pos, int n) {
  if (n <= rows_.n && std::equal(pos, pos + n, next_.begin())) return rows_.next;
  const size_t bytes = sizeof(int32_t) * n;
  reserve(drawn_at, sizeof(int32_t) * at_least_recorded(n));
  std::memcpy(staging.next(bytes), pos, bytes);
  staging.copy(stream, drawn_at.as(), bytes);
  return drawn_at.as();
}

// Reserves scratch memory of a pass over the bound rows, since nothing may be allocated while a pass is recorded.
void Queue::reserve_rows() {
  const Shape& s = device.pack.shape();
  const size_t rows = at_least_recorded(rows_.rows), few = at_least_recorded(rows_.few), heads = s.H, d = s.HD;
  reserve(y, rows * s.D * size_of(s.dtype));
  if (s.qk_norm) reserve(raw, rows * (heads + 2 * s.KV) * d * sizeof(float));
  reserve(part_acc, few * heads * rows_.splits * d * sizeof(float));
  reserve(part_ml, few * heads * rows_.splits * 2 * sizeof(float));
}

void Queue::reserve(Scratch& scratch, size_t bytes) {
  if (bytes <= scratch.bytes()) return;
  if (scratch.bytes() > 0) {
    synchronize();
    passes_.clear();
  }
  scratch.replace(bytes);
}

const void* Queue::draw_seed(uint64_t seed, float scale) {
  const DrawSeed wanted{seed, scale};
  if (seed_ != wanted) {
    seed_.reset();
    upload(seed_memory_.as(), &wanted, sizeof wanted);
    seed_ = wanted;
  }
  return seed_memory_.as();
}

bool Queue::begin_pass(const PassKey& key) {
  if (rows_.n > kRecordedRows) {
    pass_ = PassState::Direct;
    return false;
  }
  pass_ = passes_.begin({key, rows_.rows, rows_.tiles, rows_.splits, rows_.tree}, stream);
  if (passes_.refused()) fall_back(kByKernels);
  return pass_ == PassState::None;
}

bool Queue::end_pass(bool complete) {
  const bool done = passes_.end(std::exchange(pass_, PassState::None), complete, stream);
  if (!done) fall_back(kByKernels);
  return done;
}

PassState Queue::begin_spine(const PassKey& key, int drawn, Conditional& again) {
  if (loops_ == Loops::Refused) return PassState::Direct;
  const PassState state =
      passes_.begin_loop({key, rows_.rows, rows_.tiles, rows_.splits, rows_.tree, drawn}, stream, again);
  if (state == PassState::Recording) {
    pass_ = state;
    early_ = loops_ == Loops::Overlapping;
  } else if (state == PassState::Direct) {
    loops_ = Loops::Refused;
    fall_back(kBySteps);
  }
  return state;
}

bool Queue::end_spine(bool complete) {
  early_ = overlap_;
  const bool done = passes_.end(std::exchange(pass_, PassState::None), complete, stream);
  if (!done) {
    const bool once_more = loops_ == Loops::Overlapping;
    loops_ = once_more ? Loops::InTurn : Loops::Refused;
    fall_back(once_more ? kInTurn : kBySteps);
  }
  return done;
}

void Queue::fall_back(const char* to) {
  const std::string line = std::string(to) + ", since the driver refused: " + passes_.refusal() + "\n";
  if (fallbacks_.find(line) == std::string::npos) fallbacks_ += line;
}

// Drivers that read pageable memory in place (address translation services, GH200) may read it after the call.
void Queue::upload(void* to, const void* from, size_t bytes) {
  constexpr size_t kStaged = size_t{1} << 16;
  if (bytes <= kStaged) {
    std::memcpy(staging.next(bytes), from, bytes);
    return staging.copy(stream, to, bytes);
  }
  device.check(device.gpu.driver.cuMemcpyHtoDAsync_v2(address(to), from, bytes, stream), "copying to the GPU");
  synchronize();
}

void Queue::download(void* to, const void* from, size_t bytes) {
  device.check(device.gpu.driver.cuMemcpyDtoHAsync_v2(to, address(from), bytes, stream), "copying from the GPU");
  synchronize();
}

void Queue::synchronize() { device.check(device.gpu.driver.cuStreamSynchronize(stream), "waiting for the GPU"); }

}  // namespace swiftk::cuda
