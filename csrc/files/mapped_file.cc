#include "files/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/json.h"

namespace swiftk {

void bad_file(const std::string& file, const std::string& what) {
  fail(Status::Checkpoint, printable("[checkpoint] " + file + ": " + what));
}

OpenFile::OpenFile(const std::string& path, int flags) {
  constexpr int kRead = O_RDONLY | O_CLOEXEC;
  if (flags != 0) fd_ = ::open(path.c_str(), kRead | flags);
  if (fd_ < 0) fd_ = ::open(path.c_str(), kRead);
  if (fd_ < 0) bad_file(path, std::string("cannot be opened: ") + std::strerror(errno));
  if (::fstat(fd_, &info_) == 0 && S_ISREG(info_.st_mode)) return;
  ::close(fd_);
  bad_file(path, "not a regular file");
}

OpenFile::~OpenFile() { ::close(fd_); }

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const OpenFile file(path);
  size_ = file.size();
  void* const mapped = size_ ? ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.fd(), 0) : nullptr;
  if (mapped == MAP_FAILED) bad_file(path, std::string("cannot be mapped: ") + std::strerror(errno));
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
