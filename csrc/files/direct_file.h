// A file that is read past the page cache, where the system can: what is read once a pass would only push out of the
// cache what others read.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace swiftk {

class DirectFile {
 public:
  // A disk is fast only while several large reads wait for it.
  static constexpr int kReaders = 4;                     // threads
  static constexpr size_t kReadPiece = size_t{4} << 20;  // bytes that one of them reads
  static constexpr size_t kPage = 4096;                  // offsets, lengths and addresses are multiples of it
  static size_t pages(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }  // whole ones
  static char* on_page(char* memory) {
    return memory + pages(reinterpret_cast<uintptr_t>(memory)) - reinterpret_cast<uintptr_t>(memory);
  }

  // Throws Error(Checkpoint) naming the path and the system's reason.
  explicit DirectFile(const std::string& path);
  ~DirectFile();
  DirectFile(const DirectFile&) = delete;
  DirectFile& operator=(const DirectFile&) = delete;

  // Reads bytes [offset, offset + bytes), or up to the file's end, to `to`. Any number of threads may read. Throws
  // Error(Checkpoint) naming the path, the place and the system's reason, or that the file ends before what was there
  // when it was opened.
  void read(size_t offset, size_t bytes, char* to) const;
  // Throws Error(Checkpoint) if the file was written to, or has another size, since it was opened.
  void check_unchanged() const;

  size_t size() const { return size_; }
  const std::string& path() const { return path_; }
  bool direct() const { return direct_; }  // whether the page cache is passed by

 private:
  const std::string path_;
  int fd_ = -1;
  bool direct_ = false;
  size_t size_ = 0;
  int64_t written_ = 0;  // when it was last, in nanoseconds
};

// Bytes per second at which a file's first `bytes` are read in large pieces past the page cache, several at a time:
// what a disk can do. Throws as DirectFile does.
double read_speed(const std::string& path, size_t bytes);

}  // namespace swiftk
