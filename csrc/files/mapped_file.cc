#include "files/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/json.h"

namespace swiftk {

void bad_file(const std::string& file, const std::string& what) {
  fail(Status::Checkpoint, printable("[checkpoint] " + file + ": " + what));
}

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) bad_file(path, std::string("cannot be opened: ") + std::strerror(errno));
  struct stat info{};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd);
    bad_file(path, "not a regular file");
  }
  size_ = static_cast<size_t>(info.st_size);
  void* mapped = size_ ? ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0) : nullptr;
  const int error = errno;
  ::close(fd);
  if (mapped == MAP_FAILED) bad_file(path, std::string("cannot be mapped: ") + std::strerror(error));
  data_ = static_cast<const char*>(mapped);
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<char*>(data_), size_);
}

void MappedFile::drop(std::string_view part) const {
  const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));  // on which the file begins
  const size_t begin = (part.data() - data_ + page - 1) / page * page;
  const size_t end = (part.data() - data_ + part.size()) / page * page;
  if (begin < end) ::madvise(const_cast<char*>(data_) + begin, end - begin, MADV_DONTNEED);  // advice: may fail
}

}  // namespace swiftk
