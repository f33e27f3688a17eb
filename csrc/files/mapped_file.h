// A file in memory, read-only.
#pragma once
#include <sys/stat.h>

#include <cstddef>
#include <string>
#include <string_view>

namespace swiftk {

// Throws Error(Checkpoint) "[checkpoint] file: what".
[[noreturn]] void bad_file(const std::string& file, const std::string& what);

// A regular file that is open for reading. Throws Error(Checkpoint) naming the path and the system's reason.
class OpenFile {
 public:
  // flags: of open(), left out where the file system refuses them.
  explicit OpenFile(const std::string& path, int flags = 0);
  ~OpenFile();
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int fd() const { return fd_; }
  const struct stat& info() const { return info_; }  // as it was opened
  size_t size() const { return static_cast<size_t>(info_.st_size); }

 private:
  int fd_ = -1;
  struct stat info_{};
};

// Read-only mmap of a whole file. Throws Error(Checkpoint) naming the path and the system's reason.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  const char* data() const { return data_; }
  size_t size() const { return size_; }
  const std::string& path() const { return path_; }
  // Takes the whole pages of a part out of this process's memory. They come back where they are read.
  void drop(std::string_view part) const;

 private:
  std::string path_;
  const char* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace swiftk
