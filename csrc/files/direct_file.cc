#include "files/direct_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <exception>
#include <new>
#include <thread>
#include <vector>

#include "base/stopwatch.h"
#include "files/mapped_file.h"

namespace swiftk {
namespace {

int64_t nanoseconds(const struct stat& info) {
#if defined(__APPLE__)
  const timespec at = info.st_mtimespec;
#else
  const timespec at = info.st_mtim;
#endif
  return int64_t{at.tv_sec} * 1'000'000'000 + at.tv_nsec;
}

#if defined(O_DIRECT)
constexpr int kDirect = O_DIRECT;
#else
constexpr int kDirect = 0;
#endif

// Small pages cost a read a third of its speed.
class HugePages {
 public:
  explicit HugePages(size_t bytes) : bytes_(bytes + kHuge) {
    void* const memory = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    memory_ = static_cast<char*>(memory);
#if defined(MADV_HUGEPAGE)
    ::madvise(memory_, bytes_, MADV_HUGEPAGE);
#endif
  }
  ~HugePages() { ::munmap(memory_, bytes_); }
  HugePages(const HugePages&) = delete;
  HugePages& operator=(const HugePages&) = delete;
  char* data() const { return memory_ + (kHuge - reinterpret_cast<uintptr_t>(memory_) % kHuge); }

 private:
  static constexpr size_t kHuge = size_t{2} << 20;
  const size_t bytes_;
  char* memory_;
};

}  // namespace

// File systems in memory have no direct reads, and say so when a file is opened.
DirectFile::DirectFile(const std::string& path) : path_(path) {
  if (kDirect != 0) fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | kDirect);
  direct_ = fd_ >= 0;
  if (fd_ < 0) fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd_ < 0) bad_file(path, std::string("cannot be opened: ") + std::strerror(errno));
  struct stat info{};
  if (::fstat(fd_, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd_);
    bad_file(path, "not a regular file");
  }
  size_ = static_cast<size_t>(info.st_size);
  written_ = nanoseconds(info);
}

DirectFile::~DirectFile() { ::close(fd_); }

void DirectFile::read(size_t offset, size_t bytes, char* to) const {
  const size_t end = std::min(offset + bytes, size_);
  while (offset < end) {
    const ssize_t got = ::pread(fd_, to, pages(end - offset), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      bad_file(path_, "cannot be read at byte " + std::to_string(offset) + ": " + std::strerror(errno));
    }
    if (got == 0) {
      bad_file(path_, "ends at byte " + std::to_string(offset) + ", it had " + std::to_string(size_) +
                          " when the model was loaded");
    }
    // A short read goes on from a whole page.
    const size_t whole = offset + got < end ? got / kPage * kPage : static_cast<size_t>(got);
    if (whole == 0) {
      bad_file(path_, "gave " + std::to_string(got) + " bytes of a page at byte " + std::to_string(offset));
    }
    offset += whole;
    to += whole;
  }
}

void DirectFile::check_unchanged() const {
  struct stat info{};
  if (::fstat(fd_, &info) != 0) bad_file(path_, std::string("cannot be read: ") + std::strerror(errno));
  if (static_cast<size_t>(info.st_size) == size_ && nanoseconds(info) == written_) return;
  bad_file(path_, "was written to while the model was in use: load it again");
}

double read_speed(const std::string& path, size_t bytes) {
  constexpr size_t kPiece = DirectFile::kReadPiece;
  const DirectFile file(path);
  const size_t end = std::min(bytes, file.size());
  std::atomic<size_t> next{0};
  std::array<std::exception_ptr, DirectFile::kReaders> errors;
  double seconds = 0;
  {
    const Stopwatch watch(seconds);
    std::vector<std::jthread> threads;
    for (std::exception_ptr& error : errors) {
      threads.emplace_back([&] {
        try {
          const HugePages memory(kPiece);
          for (size_t at; (at = next.fetch_add(kPiece)) < end;)
            file.read(at, std::min(kPiece, end - at), memory.data());
        } catch (...) {
          error = std::current_exception();
        }
      });
    }
  }
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  return seconds > 0 ? static_cast<double>(end) / seconds : 0;
}

}  // namespace swiftk
