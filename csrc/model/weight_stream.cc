#include "model/weight_stream.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/stopwatch.h"
#include "files/direct_file.h"

namespace swiftk {

WeightStream::WeightStream(const Streamed& what)
    : what_(what),
      process_(getpid()),
      memory_(page_buffer(*what.ops, what.ring)),
      ring_(DirectFile::on_page(memory_.as<char>())) {
  try {
    for (int i = 0; i < DirectFile::kReaders; ++i) threads_.emplace_back([this] { work(); });
  } catch (...) {
    stop();
    throw;
  }
}

WeightStream::~WeightStream() { stop(); }

// Threads of the process that forked this one can be neither joined nor detached here: their handles stay.
void WeightStream::stop() {
  if (process_ != getpid()) return void(new std::vector<std::thread>(std::exchange(threads_, {})));
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wanted_.notify_all();
  for (std::thread& t : threads_) t.join();
}

// A stretch lies in one piece: where the ring's end has no room for it, it goes to the beginning.
bool WeightStream::begin_next() {
  const size_t bytes = what_.stretches[next_].bytes;
  size_t at = 0;
  if (!entries_.empty()) {
    const Entry &first = entries_.front(), &last = entries_.back();
    const size_t end = last.at + last.bytes;
    const bool wrapped = last.at < first.at;
    if (end + bytes <= (wrapped ? first.at : what_.ring)) {
      at = end;
    } else if (wrapped || bytes > first.at) {
      return false;
    }
  }
  entries_.push_back({.stretch = next_, .at = at, .bytes = bytes, .missing = bytes});
  next_ = (next_ + 1) % static_cast<int>(what_.stretches.size());
  return true;
}

bool WeightStream::next_piece(Piece& piece) {
  if (paused_) return false;
  if (entries_.empty() || entries_.back().issued == entries_.back().bytes) {
    if (!begin_next()) return false;
  }
  Entry& last = entries_.back();
  piece = {&last, last.issued, std::min(DirectFile::kReadPiece, last.bytes - last.issued)};
  last.issued += piece.bytes;
  return true;
}

void WeightStream::work() {
  std::unique_lock lock(mutex_);
  for (Piece piece;;) {
    wanted_.wait(lock, [&] { return stop_ || next_piece(piece); });
    if (stop_) return;
    ++reading_;
    const size_t offset = what_.stretches[piece.entry->stretch].offset + piece.from;
    char* const to = ring_ + piece.entry->at + piece.from;
    lock.unlock();
    std::exception_ptr error;
    try {
      what_.file->read(offset, piece.bytes, to);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    --reading_;
    piece.entry->missing -= piece.bytes;
    if (error) {
      piece.entry->error = error;
      paused_ = true;
    }
    arrived_.notify_all();
  }
}

void WeightStream::restart(std::unique_lock<std::mutex>& lock, int stretch) {
  paused_ = true;
  arrived_.wait(lock, [&] { return reading_ == 0; });
  entries_.clear();
  next_ = stretch;
}

// Threads were given all that is dropped; its memory is free once they have read it.
void WeightStream::drop_until(std::unique_lock<std::mutex>& lock, int stretch) {
  const auto wanted = [&](const Entry& e) { return e.stretch == stretch && !e.error; };
  if (std::none_of(entries_.begin(), entries_.end(), wanted)) {
    if (!entries_.empty() || next_ != stretch) restart(lock, stretch);
    return;
  }
  while (!wanted(entries_.front())) {
    arrived_.wait(lock, [&] { return entries_.front().missing == 0; });
    entries_.pop_front();
  }
}

const char* WeightStream::take(int i) {
  const Stopwatch watch(waited_, Stopwatch::Add);
  std::unique_lock lock(mutex_);
  if (taken_) entries_.pop_front();
  taken_ = false;
  drop_until(lock, i);
  paused_ = false;
  wanted_.notify_all();
  arrived_.wait(lock, [&] {
    const bool there = !entries_.empty();
    return there && (entries_.front().missing == 0 || (entries_.front().error && reading_ == 0));
  });
  Entry& first = entries_.front();
  if (first.error) {
    const std::exception_ptr error = first.error;
    restart(lock, i);
    std::rethrow_exception(error);
  }
  taken_ = true;
  bytes_ += first.bytes;
  return ring_ + first.at;
}

}  // namespace swiftk
