// A GGUF file, as llama.cpp reads them: metadata, tensors and a tokenizer in one file, or split over several. Files
// come from anywhere: each count is checked against the bytes that are left before it is used.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "files/model_files.h"

namespace swiftk {

// The numbers of ggml's gguf.h.
enum class GgufType : uint32_t { U8, I8, U16, I16, U32, I32, F32, Bool, String, Array, U64, I64, F64 };

// A value of the metadata, as a view into the file.
struct GgufValue {
  GgufType type = GgufType::U8;  // of an array, of its elements
  bool array = false;
  uint64_t count = 1;     // of elements
  std::string_view data;  // of a string, its bytes; of an array of strings, each with its length before it

  bool number() const { return !array && type != GgufType::String; }
  bool integer() const { return number() && type != GgufType::F32 && type != GgufType::F64; }
  std::string show() const;  // for error messages
};

class GgufFile : public ModelFiles {
 public:
  // path: of a file, or of the first part of one that is split. Throws Error(Checkpoint) that names the file and what
  // is wrong with it, Error(Unsupported) for a version, a byte order or an encoding that is not read.
  explicit GgufFile(std::string path);
  ~GgufFile() override;

  // Throws Error(Unsupported) for an architecture that is no family, or metadata that change the computation in a way
  // this engine does not implement.
  Config config() const override;
  // The fields of config.json that the metadata stand for.
  const Json& json() const override;
  const Checkpoint& tensors() const override { return *tensors_; }
  const TensorNames& names() const override { return names_; }
  // Ids by the metadata. Of the end, also those that end a turn or a message, and tokens that are known to by their
  // texts. Throws Error(Checkpoint) for an id that the vocabulary does not have.
  std::vector<int32_t> token_ids(const std::string& token) const override;
  void write(const std::string& path, const std::vector<RawTensor>& tensors, const Progress&) const override;

  const std::map<std::string, GgufValue>& metadata() const { return metadata_; }
  const std::string& config_text() const;  // json() as text

 private:
  void read_parts();

  const std::string path_;
  std::vector<std::shared_ptr<MappedFile>> files_;
  std::map<std::string, GgufValue> metadata_;  // of the first part
  std::unique_ptr<Checkpoint> tensors_;
  TensorNames names_{};
  mutable std::string text_;
  mutable std::optional<Json> json_;
};

// Whether a file begins as GGUF does.
bool is_gguf(const std::string& path);

// The number that a value is. Exact for integers below 2^53.
double number_of(const GgufValue&);
// The elements of an array of numbers.
std::vector<double> numbers_of(const GgufValue&);
// The elements of an array of strings.
std::vector<std::string_view> strings_of(const GgufValue&);

}  // namespace swiftk
