// A file that is there whole, or not at all.
#pragma once
#include <cstdio>
#include <functional>
#include <string>
#include <string_view>

namespace swiftk {

// Bytes done and bytes in all; false: stop.
using Progress = std::function<bool(size_t done, size_t total)>;

// Headers are padded to end on it, so that what is mapped begins on a page.
inline constexpr size_t kFilePage = 4096;

// Writes beside the file, which finish() replaces. Throws Error(Checkpoint) that names the path and the system's
// reason, at once where there is no space for all of it, Error(Cancelled) where progress says so; what was written is
// then gone.
class FileWriter {
 public:
  // total: bytes of the file.
  FileWriter(std::string path, size_t total, const Progress& progress);
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  void write(std::string_view bytes);
  // Zeros up to so many bytes from the beginning.
  void fill(size_t to);
  void finish();

 private:
  [[noreturn]] void failed(int reason) const;
  void give_up();

  const std::string path_, partial_;
  const size_t total_;
  const Progress& progress_;
  std::FILE* file_ = nullptr;
  size_t done_ = 0;
};

}  // namespace swiftk
