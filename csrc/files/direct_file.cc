#include "files/direct_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <exception>
#include <thread>
#include <vector>

#include "base/stopwatch.h"

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

}  // namespace

// File systems in memory have no direct reads, and say so when a file is opened.
DirectFile::DirectFile(const std::string& path) : path_(path), file_(path, kDirect) {}

void DirectFile::read(size_t offset, size_t bytes, char* to) const {
  const size_t end = std::min(offset + bytes, file_.size());
  while (offset < end) {
    const ssize_t got = ::pread(file_.fd(), to, pages(end - offset), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      bad_file(path_, "cannot be read at byte " + std::to_string(offset) + ": " + std::strerror(errno));
    }
    if (got == 0) {
      bad_file(path_, "ends at byte " + std::to_string(offset) + ", it had " + std::to_string(file_.size()) +
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
  struct stat now{};
  if (::fstat(file_.fd(), &now) != 0) bad_file(path_, std::string("cannot be read: ") + std::strerror(errno));
  if (now.st_size == file_.info().st_size && nanoseconds(now) == nanoseconds(file_.info())) return;
  bad_file(path_, "was written to while the model was in use: load it again");
}

Buffer page_buffer(const Ops& ops, size_t bytes) {
  Buffer buffer(ops, bytes + DirectFile::kPage);
  if (ops.dense) ops.dense(buffer.as<char>(), buffer.bytes());
  return buffer;
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
          const Buffer memory = page_buffer(*cpu_ops(nullptr), kPiece);
          char* const to = DirectFile::on_page(memory.as<char>());
          for (size_t at; (at = next.fetch_add(kPiece)) < end;) file.read(at, std::min(kPiece, end - at), to);
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
