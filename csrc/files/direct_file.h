// A file that is read past the page cache, where the system can: what is read once a pass would only push out of the
// cache what others read.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/buffer.h"
#include "files/mapped_file.h"

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

  // Reads bytes [offset, offset + bytes), or up to the file's end, to `to`. Any number of threads may read. Throws
  // Error(Checkpoint) naming the path, the place and the system's reason, or that the file ends before what was there
  // when it was opened.
  void read(size_t offset, size_t bytes, char* to) const;
  // Throws Error(Checkpoint) if the file was written to, or has another size, since it was opened.
  void check_unchanged() const;

  size_t size() const { return file_.size(); }
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
  const OpenFile file_;
};

// Memory for so many bytes of a DirectFile, from DirectFile::on_page() on. Its pages are large where the system has
// such: small ones cost a read a third of its speed.
Buffer page_buffer(const Ops&, size_t bytes);

// Bytes per second at which a file's first `bytes` are read in large pieces past the page cache, several at a time:
// what a disk can do. Throws as DirectFile does.
double read_speed(const std::string& path, size_t bytes);

}  // namespace swiftk
