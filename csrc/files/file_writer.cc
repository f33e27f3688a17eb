#include "files/file_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "files/mapped_file.h"

namespace swiftk {

FileWriter::FileWriter(std::string path, size_t total, const Progress& progress)
    : path_(std::move(path)),
      partial_(path_ + ".partial" + std::to_string(::getpid())),
      total_(total),
      progress_(progress),
      file_(std::fopen(partial_.c_str(), "wbxe")) {
  if (!file_) failed(errno);
  // A full disk shows here and not after hours of work. File systems that set no space aside show it as they fill.
  const int reason = ::fallocate(::fileno(file_), 0, 0, static_cast<off_t>(total_)) == 0 ? 0 : errno;
  if (reason != ENOSPC && reason != EDQUOT && reason != EFBIG) return;
  give_up();
  failed(reason);
}

FileWriter::~FileWriter() {
  if (file_) give_up();
}

void FileWriter::give_up() {
  std::fclose(file_);
  ::unlink(partial_.c_str());
}

void FileWriter::failed(int reason) const {
  bad_file(path_, std::string("cannot be written: ") + std::strerror(reason));
}

void FileWriter::write(std::string_view bytes) {
  constexpr size_t kPiece = size_t{16} << 20;  // between two reports
  while (!bytes.empty()) {
    const std::string_view piece = bytes.substr(0, kPiece);
    if (std::fwrite(piece.data(), 1, piece.size(), file_) != piece.size()) failed(errno);
    ::sync_file_range(::fileno(file_), 0, 0, SYNC_FILE_RANGE_WRITE);  // the disk is not idle until the end
    bytes.remove_prefix(piece.size());
    done_ += piece.size();
    if (progress_ && !progress_(done_, total_)) fail(Status::Cancelled, "[convert] cancelled");
  }
}

void FileWriter::fill(size_t to) {
  static constexpr char kZeros[kFilePage] = {};
  while (done_ < to) write({kZeros, std::min(to - done_, sizeof kZeros)});
}

void FileWriter::finish() {
  const bool flushed = std::fflush(file_) == 0 && ::fsync(::fileno(file_)) == 0;
  if (!flushed || std::rename(partial_.c_str(), path_.c_str()) != 0) failed(errno);
  std::fclose(file_);
  file_ = nullptr;
}

}  // namespace swiftk
