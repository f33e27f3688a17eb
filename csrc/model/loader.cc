// Every tensor is found and checked first, so a bad file fails at once, then packed one after another.
#include "model/loader.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "base/error.h"
#include "base/machine.h"
#include "base/names.h"
#include "cuda/backend.h"

namespace swiftk {
namespace {

size_t elements(const VectorJob& job) {
  size_t n = 0;
  for (const TensorView& part : job.parts) n += part.shape[0];
  return n;
}

size_t lines(size_t bytes) { return (bytes + 63) / 64 * 64; }  // whole cache lines, as packed matrices begin on one

// The format of a copy of the weights. None stands for the model's own weights.
using Form = std::optional<Format>;

// The share of all elements up to which a head is no burden for drafts.
constexpr double kSmallHead = 0.1;

size_t rounded(size_t floats) { return (floats + 15) / 16 * 16; }  // vectors start on cache lines

// The elements of a vector in their order in the model.
std::vector<float> elements_of(const TensorView& t) {
  std::vector<float> out(t.shape[0]);
  const std::shared_ptr<const void> made = t.make ? t.make() : nullptr;
  StoredRows rows = t.rows();
  if (made) rows.data = made.get();
  for (int i = 0; i < rows.rows; ++i) decode(t.encoding, rows.at(i, 1), 1, &out[i]);
  return out;
}

class Loader {
 public:
  // Weights for drafts alone need no other form than the one that drafts read. Those for a file need not all fit in
  // memory.
  enum class Purpose : uint8_t { Passes, Drafts, File };
  // shape: of what a GPU's kernels have to be built for, but for the dtype.
  Loader(const Checkpoint& checkpoint, const LoadOptions& options, Model& model, Manifest jobs, KernelShape shape,
         Purpose purpose)
      : checkpoint_(checkpoint),
        options_(options),
        model_(model),
        jobs_(std::move(jobs)),
        shape_(std::move(shape)),
        purpose_(purpose),
        converted_(checkpoint.converted()),
        dtype_(options.dtype),
        draft_weights_(options.draft_weights) {}

  void run() {
    choose();
    options_.survey ? measure() : load();
  }

  static Converted panels(const std::shared_ptr<Loader>& self) {
    self->choose();
    Converted out{kPanelLayout, self->dtype_.empty() ? "auto" : self->dtype_, "", {}};
    out.blocks.push_back(packed_later(self, {}));
    std::vector<Format> copies;
    for (const Weights& copy : self->model_.copies) {
      out.blocks.push_back(packed_later(self, copies.emplace_back(copy.format)));
    }
    if (self->own_form_ == Format::Planes) copies.push_back(Format::Upper);
    for (const Format copy : copies) {
      if (!out.draft_weights.empty()) out.draft_weights += ',';
      out.draft_weights += name_of(copy);
    }
    return out;
  }

 private:
  void choose() {
    check_vectors();
    model_.converted = converted_ != nullptr;
    if (converted_) follow(*converted_);
    choose_kind();
    const DType first = element_of(jobs_.matrices.front().parts.front().encoding);
    model_.dtype = shape_.dtype = dtype_of(rounds() ? "auto" : dtype_, by_parts() ? DType::F32 : first);
    model_.kv_dtype = kv_dtype_of(options_.kv_dtype, by_parts() ? DType::F16 : model_.dtype);
    if (model_.ops->device && model_.kv_dtype != model_.dtype) {
      fail(Status::Unsupported, std::string("[load] kv_dtype is ") + name_of(model_.kv_dtype) + ", on a GPU want " +
                                    name_of(model_.dtype) + ", the weights' dtype");
    }
    if (model_.ops->device) cuda::check_pack(*model_.ops, shape_);
    own_form_ = model_.own.format = by_parts() ? most_common() : format_of(model_.dtype);
    choose_tokens();
    purpose_ == Purpose::Drafts ? choose_form() : choose_copies();
    measure_own();
  }

  void load() {
    total_ = jobs_.bytes + (copies_embedding() ? jobs_.embedding.bytes : 0);
    for (const MatrixJob& job : jobs_.matrices) {
      for (const TensorView& part : job.parts) total_ += part.bytes * model_.copies.size();
    }
    const Context ctx = context();
    load_vectors(*ctx);
    const Block own = model_.ops->device ? Block{} : block_of({});
    std::vector<Block> blocks;
    for (Weights& copy : model_.copies) {
      copy.layers = model_.own.layers;  // norms and biases
      copy.head = model_.own.head;
      blocks.push_back(block_of(copy.format));
    }
    for (const MatrixJob& listed : jobs_.matrices) {
      const auto [job, made] = converted_ ? Ready{listed, {}} : ready(listed);
      load_matrix(*ctx, job, {}, model_.own, own);
      for (size_t i = 0; i < blocks.size(); ++i) {
        load_matrix(*ctx, job, model_.copies[i].format, model_.copies[i], blocks[i]);
      }
      if (job.head() && trims()) load_trimmed(*ctx, job);
      if (!converted_) drop(job.parts);
    }
    model_.own.read_bytes = model_.own.bytes;
    for (Weights& copy : model_.copies) copy.read_bytes = copy.bytes + shared_bytes();
    if (own_form_ == Format::Planes) model_.copies.push_back(upper_of(model_.own));
    if (jobs_.embedding.shape.empty()) return;
    model_.ops->device ? load_embedding(*ctx) : keep_embedding();
  }

  static bool automatic(const std::string& name) { return name.empty() || name == "auto"; }

  // Blocks that weights are rounded to are no type of elements.
  bool rounds() const { return dtype_ == "int8" || dtype_ == "int4"; }

  // A converted model is loaded as it was when it was converted.
  void follow(const Converted& made) {
    if (model_.ops->device) {
      fail(Status::Unsupported, "[load] the model was converted for a CPU; on a GPU want the one that it was made of");
    }
    if (options_.last_layers >= 0) {
      fail(Status::Unsupported, "[load] a converted model is read whole; want the one that it was made of");
    }
    if (!automatic(dtype_) && dtype_ != made.dtype) {
      fail(Status::InvalidArgument, "[load] dtype is '" + dtype_ + "', the model was converted with '" + made.dtype +
                                        "': want auto, or the model that it was made of");
    }
    dtype_ = made.dtype;
    if (draft_weights_ == "auto") draft_weights_ = made.draft_weights;
  }

  void check_vectors() const {
    for (const VectorJob& job : jobs_.vectors) {
      for (const TensorView& part : job.parts) {
        if (plain(part.encoding)) continue;
        fail(Status::Unsupported,
             "[load] tensor " + part.name + " is a vector in " + facts(part.encoding).name + ", want F32, BF16 or F16");
      }
    }
  }

  void choose_kind() {
    if (purpose_ == Purpose::Drafts) return;
    if (rounds() && model_.ops->device) {
      fail(Status::Unsupported, "[load] dtype '" + dtype_ + "' needs the CPU; on a GPU want bfloat16 or float16");
    }
    if (rounds()) {
      own_kind_ = dtype_ == "int8" ? Kind::Int8 : Kind::Int4;
    } else if (!model_.ops->device && automatic(dtype_) && has_blocks()) {
      own_kind_ = Kind::AsStored;
    }
  }
  bool by_parts() const { return own_kind_ != Kind::Same; }

  static DType dtype_of(const std::string& name, DType otherwise) {
    if (automatic(name)) return otherwise;
    if (const std::optional<DType> found = dtype_named(name)) return *found;
    fail(Status::InvalidArgument,
         "[load] dtype is '" + name + "', want auto, float32, bfloat16 or float16, or int8 or int4");
  }
  static DType kv_dtype_of(const std::string& name, DType otherwise) {
    if (automatic(name)) return otherwise;
    if (const std::optional<DType> found = kv_dtype_named(name)) return *found;
    fail(Status::InvalidArgument,
         "[load] kv_dtype is '" + name + "', want auto, float32, bfloat16 or float16, or int8");
  }

  static std::vector<Format> parse_forms(const std::string& asked) {
    std::vector<Format> forms;
    for (const std::string& name : names_in(asked)) {
      const std::optional<Format> found = format_named(name);
      if (!found || !of_drafts(*found)) {
        std::string names;
        for (int i = 0; i < kFormatCount; ++i) {
          if (of_drafts(static_cast<Format>(i))) names += std::string(names.empty() ? "" : ", ") + kFormats[i].name;
        }
        fail(Status::InvalidArgument, "[load] draft_weights has '" + name + "', want auto, own, or some of " + names);
      }
      if (std::find(forms.begin(), forms.end(), *found) == forms.end()) forms.push_back(*found);
    }
    return forms;
  }

  bool has_blocks() const {
    for (const MatrixJob& job : jobs_.matrices) {
      for (const TensorView& part : job.parts) {
        if (!plain(part.encoding)) return true;
      }
    }
    return false;
  }

  // The format in which most elements of all matrices are packed.
  Format most_common() const {
    double elements[kFormatCount] = {};
    for (const MatrixJob& job : jobs_.matrices) {
      for (const TensorView& part : job.parts) {
        elements[static_cast<int>(form_in({}, job, part))] += static_cast<double>(part.shape[0] * part.shape[1]);
      }
    }
    return static_cast<Format>(std::max_element(elements, elements + kFormatCount) - elements);
  }

  // The format that holds a part exactly. Encodings that no format holds are decoded to float32.
  static Format as_it_is(const TensorView& part) { return format_of(part.encoding).value_or(Format::F32); }

  // All matrices of a form, one after another: with a mapping each, those of a small model would lie on small pages,
  // from which two cores of a Xeon read a matrix of 1.8 MB at 18 GB/s, and from huge ones at 26.
  struct Block {
    char* memory = nullptr;        // to be packed into; null: into memory of their own
    const char* panels = nullptr;  // packed already, in a file
  };
  Block block_of(Form form) {
    if (!converted_) return {allocate(bytes_of(form))};
    const PanelBlock& block = packed_before(form);
    if (block.file) model_.mappings.push_back(block.file);
    return {nullptr, block.data};
  }

  static std::string block_name(Form form) { return form ? name_of(*form) : "own"; }
  std::vector<std::string> segments_of(Form form) const {
    std::vector<std::string> segments;
    for (const MatrixJob& job : jobs_.matrices) {
      for (const PackArgs& segment : describe(job, form)) segments.emplace_back(name_of(segment.format));
    }
    return segments;
  }

  // A converted file is untrusted: its panels are used only if they lie exactly as this build would pack them.
  const PanelBlock& packed_before(Form form) const {
    const std::string name = block_name(form);
    const PanelBlock* const block = converted_->find(name);
    if (!block) {
      fail(Status::InvalidArgument, "[load] draft_weights has " + name + ", the model was converted with " +
                                        (converted_->draft_weights.empty() ? "none" : converted_->draft_weights) +
                                        ": convert it again, from the model that it was made of");
    }
    if (converted_->layout != kPanelLayout || block->segments != segments_of(form) || block->bytes != bytes_of(form)) {
      const std::string file = block->file ? block->file->path() : "the host's tensors";
      fail(Status::Checkpoint, "[load] " + file + ": panels of " + name +
                                   " are not those that this build makes: convert the model again, from the one that "
                                   "it was made of");
    }
    return *block;
  }

  static PanelBlock packed_later(const std::shared_ptr<Loader>& self, Form form) {
    if (self->converted_) return self->packed_before(form);
    PanelBlock block{block_name(form), self->segments_of(form), nullptr, self->bytes_of(form)};
    block.pieces = [self, form](const Sink& sink) { self->pack_to(sink, form); };
    return block;
  }

  // All matrices of a form, one after another through the same memory.
  void pack_to(const Sink& sink, Form form) const {
    size_t most = 0;
    for (const MatrixJob& job : jobs_.matrices) {
      for (const PackArgs& segment : describe(job, form)) most = std::max(most, packed_bytes(segment));
    }
    const Buffer memory(*model_.ops, most);
    const Context ctx = context();
    for (const MatrixJob& listed : jobs_.matrices) {
      const auto [job, made] = ready(listed);
      for (PackArgs& segment : describe(job, form)) {
        const size_t bytes = packed_bytes(segment);
        segment.dst = std::memset(memory.as<char>(), 0, bytes);  // as new memory is
        model_.ops->pack(*ctx, segment);
        sink({memory.as<char>(), bytes});
      }
      drop(job.parts);
    }
  }

  using Context = std::unique_ptr<Ctx, void (*)(Ctx*)>;
  Context context() const { return {model_.ops->create(model_.ops->device, model_.threads), model_.ops->destroy}; }

  char* allocate(size_t bytes) {
    char* const memory = model_.storage.emplace_back(*model_.ops, bytes).as<char>();
    if (model_.ops->dense) model_.ops->dense(memory, bytes);
    return memory;
  }

  // The device's table is a copy of its own, unless the head, which is the same, serves as one.
  bool copies_embedding() const {
    return model_.ops->device && !jobs_.embedding.shape.empty() &&
           !(model_.ops->shares_table && model_.config.tied_head);
  }

  void measure_own() {
    for (const MatrixJob& job : jobs_.matrices) {
      size_t& its = job.head() ? model_.own.head_bytes : model_.own.largest;
      its = std::max(its, bytes_of(job, {}));
    }
  }

  void measure() {
    model_.own.bytes = model_.own.read_bytes = bytes_of({});
    for (Weights& copy : model_.copies) {
      copy.bytes = bytes_of(copy.format);
      copy.read_bytes = copy.bytes + shared_bytes();
    }
    if (own_form_ == Format::Planes) model_.copies.push_back(upper_of(model_.own));
    model_.trimmed.bytes = trimmed_bytes();
    model_.embedding_encoding = jobs_.embedding.encoding;
  }

  // Out of the page cache: all that is made of them is made.
  void drop(const std::vector<TensorView>& parts) const {
    for (const TensorView& part : parts) checkpoint_.drop(part);
  }

  void finished(const TensorView& tensor) {
    done_ += tensor.bytes;
    if (options_.progress && !options_.progress(done_, total_)) fail(Status::Cancelled, "[load] cancelled");
  }

  // All norms and biases share one buffer.
  void load_vectors(Ctx& ctx) {
    size_t floats = 0;
    for (const VectorJob& job : jobs_.vectors) floats += rounded(elements(job));
    const float* const base = model_.storage.emplace_back(*model_.ops, floats * sizeof(float)).as<float>();
    std::vector<float> staged(floats);
    float* dst = staged.data();
    for (const VectorJob& job : jobs_.vectors) {
      *job.out = base + (dst - staged.data());
      float* end = dst;
      const size_t part_size = job.parts[0].shape[0], turn = job.group ? job.group : SIZE_MAX;
      std::vector<std::vector<float>> parts;
      for (const TensorView& part : job.parts) parts.push_back(elements_of(part));
      for (size_t begin = 0; begin < part_size; begin += std::min(turn, part_size - begin)) {
        for (const std::vector<float>& part : parts) {
          const size_t stop = part.size() - begin > turn ? begin + turn : part.size();
          for (size_t i = begin; i < stop; ++i)  // an offset of 0 is not added: -0 would lose its sign
            *end++ = job.offset == 0 ? part[i] : part[i] + job.offset;
        }
      }
      dst += rounded(elements(job));
      for (const TensorView& part : job.parts) finished(part);
      drop(job.parts);
    }
    model_.ops->upload(ctx, model_.storage.back().as<float>(), staged.data(), floats * sizeof(float));
  }

  // With the rows that have to be made, which live as long as the others of the pair.
  using Ready = std::pair<MatrixJob, std::vector<std::shared_ptr<const void>>>;
  static Ready ready(MatrixJob job) {
    std::vector<std::shared_ptr<const void>> made;
    for (TensorView& part : job.parts) {
      if (part.make) part.data = made.emplace_back(part.make()).get();
    }
    return {std::move(job), std::move(made)};
  }

  // Its segments, but for where they go: one, or one for each part where these differ in format. None where the form
  // has the model's own.
  std::vector<PackArgs> describe(const MatrixJob& job, Form form) const {
    std::vector<PackArgs> segments;
    if (form && job.head() && shares_head(job)) return segments;
    const size_t parts = job.parts.size();
    for (size_t i = 0; i < parts; ++i) {
      const Format format = form_in(form, job, job.parts[i]);
      const auto alike = [&](const TensorView& part) { return form_in(form, job, part) == format; };
      const bool together = std::all_of(job.parts.begin(), job.parts.end(), alike);
      PackArgs& args = segments.emplace_back();
      args.role = job.role;
      args.k = static_cast<int>(job.parts[0].shape[1]);
      args.group = job.group;
      args.format = format;
      if (!together) {
        args.part[0] = job.parts[i].rows();
        continue;
      }
      args.interleave = job.interleave;
      for (size_t j = 0; j < parts; ++j) args.part[j] = job.parts[j].rows();
      break;
    }
    return segments;
  }

  size_t packed_bytes(const PackArgs& segment) const {
    return lines(model_.ops->packed_bytes(model_.ops->device, segment));
  }

  // The head's errors reach the logits undiluted: in int8, 1 % more bytes, it makes int4 say what the target says on
  // 97.8 % of tokens instead of 95.1 %, int3 on 94.3 % instead of 89.6 % (the grown demo model at T = 1). Of a large
  // vocabulary that would be much of what a draft reads.
  bool fine_head() const {
    const Ops& ops = *model_.ops;
    return jobs_.head_share() <= kSmallHead && (!ops.device || cuda::reads_head(ops, Format::Int8));
  }

  // A copy would be no smaller.
  bool shares_head(const MatrixJob& head) const {
    return by_parts() && fine_head() && facts(form_in({}, head, head.parts[0])).bits <= facts(Format::Int8).bits;
  }
  // The bytes of the model's own weights that all copies share: the head's, or none.
  size_t shared_bytes() const {
    size_t sum = 0;
    for (const MatrixJob& job : jobs_.matrices) {
      if (job.head() && shares_head(job)) sum += packed_bytes(describe(job, {})[0]);
    }
    return sum;
  }

  // Whether int4 keeps a part in six bits. The choice is that of llama.cpp's Q4_K_M (llama-quant.cpp): the head, and v
  // and down of some layers.
  bool finer(const MatrixJob& job, const TensorView& part) const {
    if (job.head()) return true;
    const int n = model_.config.L, there = static_cast<int>(model_.own.layers.size());
    const int i = n - there + job.layer, eighth = n / 8;
    const bool more = i < eighth || i >= 7 * n / 8 || (i - eighth) % 3 == 2;
    return more && (job.role == Matrix::Down || (job.role == Matrix::Qkv && &part == &job.parts.back()));
  }

  // The format in which a form has a part of a matrix.
  Format form_in(Form form, const MatrixJob& job, const TensorView& part) const {
    if (!form && own_kind_ == Kind::AsStored) return as_it_is(part);
    if (!form && own_kind_ == Kind::Int8) return Format::Q8_0;
    if (!form && own_kind_ == Kind::Int4) return finer(job, part) ? Format::Q6_K : Format::Q4_K;
    const Format format = form.value_or(own_form_);
    return in_blocks(format) && job.head() && fine_head() ? Format::Int8 : format;
  }

  size_t bytes_of(const MatrixJob& job, Form form) const {
    size_t sum = 0;
    for (const PackArgs& segment : describe(job, form)) sum += packed_bytes(segment);
    return sum;
  }
  size_t bytes_of(Form form) const {
    size_t sum = 0;
    for (const MatrixJob& job : jobs_.matrices) sum += bytes_of(job, form);
    return sum;
  }

  // Memory that this load may take on the host.
  size_t memory_left() const {
    const size_t free = available_memory(), has = resident_memory();
    return options_.memory == 0 ? free : std::min(free, options_.memory - std::min(options_.memory, has));
  }

  void check_memory(const char* what, size_t need, size_t have) const {
    if (need <= have || options_.survey) return;
    char text[160];
    std::snprintf(text, sizeof text, "[load] %s need %.3f GB of memory, %.3f GB are available", what, need / 1e9,
                  have / 1e9);
    const char* const instead = "; a converted model (`swiftk convert`) is read from disk where it does not fit";
    fail(Status::OutOfMemory, std::string(text) + (converted_ ? "" : instead));
  }

  // Four bits cost the heads of the demo model 2 % of the tokens that they foretell, and their steps three quarters of
  // their time.
  void choose_form() {
    const std::string& asked = draft_weights_;
    if (asked == "auto") {
      own_form_ = Format::Int4;
    } else if (!asked.empty() && asked != "own") {
      const std::vector<Format> forms = parse_forms(asked);
      const auto few = std::find_if(forms.begin(), forms.end(), in_blocks);
      if (few != forms.end()) own_form_ = *few;
    }
    if (!model_.ops->device) check_memory("the weights", bytes_of({}), available_memory());
  }

  // The host's memory is handed out before it exists: unchecked, a model too large would end the process, not the load.
  // A device says no by itself.
  void choose_copies() {
    const Ops& ops = *model_.ops;
    const size_t have = ops.device ? cuda::free_memory(*ops.device) : memory_left();
    const size_t own =
        (converted_ ? 0 : bytes_of({}) + (copies_embedding() ? jobs_.embedding.bytes : 0)) + trimmed_bytes();
    const bool at_once = purpose_ != Purpose::File;
    if (at_once && !ops.device) check_memory("the weights", own, have);
    const std::string& asked = draft_weights_;
    if (asked.empty() || asked == "own") return;
    // Weights that do not fit are read from a converted file: memory is for copies first.
    const bool fits = own <= have && bytes_of({}) <= have;
    const size_t left = fits ? have - own : have, share = fits ? left / 4 : left - left / 4;
    const size_t most = options_.draft_memory ? options_.draft_memory : share;
    if (asked == "auto") {
      for (const Format format : {Format::Int4, Format::Int3}) {
        const size_t bytes = bytes_of(format);
        const bool good = has_kernels(format) && bytes <= std::min(most, left) && (!fits || pays(bytes, own));
        if (good && model_.copies.empty()) model_.copies.emplace_back().format = format;
      }
      return;
    }
    size_t need = 0;
    for (const Format format : parse_forms(asked)) {
      if (format == Format::Upper) {
        want_float16();
        own_form_ = Format::Planes;
        continue;
      }
      if (!has_kernels(format)) {
        const std::string name = name_of(format);
        fail(Status::InvalidArgument, "[load] draft_weights has " + name + ", " + options_.pack +
                                          " has no kernels for it: `swiftk pack --draft-weights " + name +
                                          "` builds them");
      }
      model_.copies.emplace_back().format = format;
      need += bytes_of(format);
    }
    const size_t room = at_once ? left : need;  // a file has its own
    check_memory("copies for drafting", need, std::min(room, options_.draft_memory ? most : room));
  }

  bool trims() const { return !model_.trimmed.tokens.empty(); }

  void choose_tokens() {
    if (purpose_ == Purpose::Drafts) return;
    const MatrixJob& head = head_job();
    model_.trimmed.pays = !model_.ops->device && jobs_.head_share() > kSmallHead && !(converted_ && head.parts[0].make);
    std::vector<int32_t> tokens = options_.draft_tokens;
    if (tokens.empty()) return;
    if (model_.ops->device) fail(Status::Unsupported, "[load] a trimmed head, draft_vocab, needs the CPU");
    std::sort(tokens.begin(), tokens.end());
    tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
    const int V = model_.config.V;
    if (tokens.front() < 0 || tokens.back() >= V) {
      fail(Status::InvalidArgument, "[load] draft_vocab has token " +
                                        std::to_string(tokens.front() < 0 ? tokens.front() : tokens.back()) +
                                        ", want 0.." + std::to_string(V - 1));
    }
    model_.trimmed.tokens = std::move(tokens);
  }

  const MatrixJob& head_job() const {
    return *std::find_if(jobs_.matrices.begin(), jobs_.matrices.end(), [](const MatrixJob& job) { return job.head(); });
  }

  size_t trimmed_bytes() const { return trims() ? packed_bytes(describe_trimmed(head_job())) : 0; }

  // In the format of the whole head where that has few bits, so that both heads say the same bits; else in int8.
  PackArgs describe_trimmed(const MatrixJob& head) const {
    const Format own = form_in({}, head, head.parts[0]);
    PackArgs args = describe(head, {})[0];
    args.format = facts(own).bits <= facts(Format::Int8).bits ? own : Format::Int8;
    args.part[0].rows = static_cast<int>(model_.trimmed.tokens.size());
    return args;
  }

  void load_trimmed(Ctx& ctx, const MatrixJob& head) {
    const TensorView& part = head.parts[0];
    const std::shared_ptr<const void> made = part.data ? nullptr : part.make();  // throws for panels of a converted one
    StoredRows all = part.rows();
    if (made) all.data = made.get();
    PackArgs args = describe_trimmed(head);
    const size_t row = encoded_bytes(all.encoding, args.k);
    std::vector<char> rows(row * model_.trimmed.tokens.size());
    char* to = rows.data();
    for (const int32_t token : model_.trimmed.tokens) to = std::copy_n(all.at(token, args.k), row, to);
    args.part[0].data = rows.data();
    pack(ctx, {args}, model_.trimmed.weight, model_.trimmed.bytes, {});
  }

  // A draft that is most of the time nearly as good as a plain step, but costs three fifths of one, gains little.
  static bool pays(size_t copy, size_t own) { return 5 * copy <= 3 * own; }

  void want_float16() const {
    if (model_.ops->device) {
      fail(Status::Unsupported, "[load] draft_weights 'upper' needs the CPU; a GPU has copies in fewer bits");
    }
    if (model_.dtype == DType::F16) return;
    const std::string got = name_of(model_.dtype);
    fail(Status::InvalidArgument,
         "[load] draft_weights 'upper' is the upper byte of float16, weights are " + got + "; want dtype 'float16'");
  }

  // The same memory, of which upper planes are half.
  Weights upper_of(const Weights& own) const {
    Weights upper = own;
    upper.format = Format::Upper;
    upper.bytes = upper.read_bytes = 0;
    for (const MatrixJob& job : jobs_.matrices) {
      const bool whole = job.head() && fine_head();
      job.in(upper).segment[0].format = whole ? Format::Planes : Format::Upper;
      upper.read_bytes += packed_bytes(describe(job, Format::Planes)[0]) / (whole ? 1 : 2);
    }
    return upper;
  }

  bool has_kernels(Format copy) const { return !model_.ops->device || cuda::reads(*model_.ops, copy); }

  // Adds the bytes it takes to those of `weights`.
  void load_matrix(Ctx& ctx, const MatrixJob& job, Form form, Weights& weights, Block block) {
    const std::vector<PackArgs> segments = describe(job, form);
    if (segments.empty()) {
      job.in(weights) = job.in(model_.own);
    } else {
      pack(ctx, segments, job.in(weights), weights.bytes, block);
    }
    for (const TensorView& part : job.parts) finished(part);
  }

  void pack(Ctx& ctx, const std::vector<PackArgs>& segments, Weight& out, size_t& sum, Block block) {
    out.segments = out.n = 0;
    for (PackArgs args : segments) {
      const size_t bytes = model_.ops->packed_bytes(model_.ops->device, args);
      const void* panels = block.panels ? block.panels + sum : nullptr;
      if (!panels) {
        panels = args.dst = block.memory ? block.memory + sum : allocate(bytes);
        model_.ops->pack(ctx, args);
      }
      sum += lines(bytes);
      out.segment[out.segments++] = {panels, bytes, args.format};
      out.n += args.part[0].rows + args.part[1].rows + args.part[2].rows;
      out.k = args.k;
    }
  }

  // A device reads rows of a packed matrix: of the head, where they are one.
  void load_embedding(Ctx& ctx) {
    Weight table = model_.own.head;
    if (copies_embedding()) {
      const auto [job, made] = ready({Matrix::Embedding, {jobs_.embedding}, 0, false});
      pack(ctx, describe(job, format_of(model_.dtype)), table, model_.own.bytes, {});
      finished(jobs_.embedding);
      drop(job.parts);
    }
    model_.embedding = table.data();
    model_.embedding_encoding = encoding_of(model_.dtype);
  }

  // Rows of the embedding are read out of the file; its pages come and go with use.
  void keep_embedding() {
    const TensorView& table = jobs_.embedding;
    if (table.make) model_.made = table.make();
    model_.embedding = table.make ? model_.made.get() : table.data;
    model_.embedding_encoding = table.encoding;
    for (const auto& file : checkpoint_.files()) {
      if (file.get() == table.file) model_.mappings.push_back(file);
    }
  }

  const Checkpoint& checkpoint_;
  const LoadOptions& options_;
  Model& model_;
  Manifest jobs_;
  KernelShape shape_;
  const Purpose purpose_;
  const Converted* const converted_;  // null: rows are packed
  std::string dtype_, draft_weights_;
  enum class Kind : uint8_t { Same, AsStored, Int8, Int4 };
  Kind own_kind_ = Kind::Same;     // same: all in
  Format own_form_ = Format::F32;  // planes: drafts may read the upper ones
  size_t done_ = 0, total_ = 0;    // bytes of tensors
};

}  // namespace

void load_weights(const ModelFiles& files, const LoadOptions& options, Model& model) {
  Loader(files.tensors(), options, model, Manifest(files, model, options.last_layers), {.config = model.config},
         Loader::Purpose::Passes)
      .run();
}

void load_tensors(const Checkpoint& checkpoint, const LoadOptions& options, Model& layers, Manifest jobs,
                  const KernelShape& shape) {
  Loader(checkpoint, options, layers, std::move(jobs), shape, Loader::Purpose::Drafts).run();
}

Converted pack_by_matrix(const Checkpoint& checkpoint, const LoadOptions& options, Model& model, Manifest jobs) {
  return Loader::panels(std::make_shared<Loader>(checkpoint, options, model, std::move(jobs),
                                                 KernelShape{.config = model.config}, Loader::Purpose::File));
}

}  // namespace swiftk
