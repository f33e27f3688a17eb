#include "stream.h"

#include <algorithm>

namespace stub {
namespace {

constexpr uint64_t kForever = 100000;  // rounds of a loop

}  // namespace

uint64_t Op::turns() const {
  uint64_t sum = 0;
  for (size_t i = 0; parts && i < parts->size(); ++i) sum += (*parts)[i].turns();
  return 1 + (again ? kForever : 1) * sum;
}

std::shared_ptr<Stream> Streams::create(bool blocking) {
  all_.push_back(std::make_shared<Stream>());
  all_.back()->blocking = blocking;
  return all_.back();
}

void Streams::destroy(const std::shared_ptr<Stream>& stream) {
  if (stream->capture) throw Violation{CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "the stream is capturing"};
  reach(end(stream));
  all_.erase(std::find(all_.begin(), all_.end(), stream));
}

void Streams::clear() {
  all_ = {std::make_shared<Stream>()};
  failed = CUDA_SUCCESS;
}

void Streams::submit(const std::shared_ptr<Stream>& stream, Op op) {
  if (Capture* const capture = stream->capture.get()) {
    if (capture->broken) throw Violation{CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "the capture was spoilt before"};
    capture->ops.push_back(std::move(op));
    return;
  }
  for (const auto& other : all_) {
    if (other == stream || !other->blocking || !stream->blocking || (other != null() && stream != null())) continue;
    if (other->capture) spoil(*other->capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "work on the null stream");
    if (other->done < other->given) op.after.push_back(end(other));
  }
  op.turn = turn_ + 1;
  turn_ += op.turns();
  stream->queue.push_back(std::move(op));
  ++stream->given;
  if (record_.get("eager")) reach(end(stream));
}

void Streams::reach(const Point& point) {
  while (point.stream->done < point.number) advance(point);
}

bool Streams::advance(const Point& point) {
  Stream& stream = *point.stream;
  if (stream.done < point.number) {
    Op op = std::move(stream.queue.front());
    stream.queue.pop_front();
    run(stream, op);
    ++stream.done;
  }
  return stream.done >= point.number;
}

void Streams::run(Stream& stream, const Op& op) {
  for (const Point& point : op.after) reach(point);
  if (failed || !op.run) return;
  try {
    perform(stream, op, op.turn);
  } catch (const Violation& v) {
    failed = v.code == CUDA_ERROR_INVALID_VALUE ? CUDA_ERROR_ILLEGAL_ADDRESS : v.code;
    record_.log(op.what, v.text);
  } catch (const Refusal& r) {
    failed = r.code;
  }
}

void Streams::perform(Stream& stream, const Op& op, uint64_t turn) {
  if (!op.early) stream.open = turn;
  memory_.begin(turn, op.what, stream.open);
  op.run();
  uint64_t next = turn + 1;
  for (uint64_t round = 0; op.parts && (op.again ? op.again() : round == 0); ++round) {
    if (round == kForever) throw Violation{CUDA_ERROR_LAUNCH_TIMEOUT, "a loop that does not end"};
    for (const Op& part : *op.parts) {
      try {
        perform(stream, part, next);
      } catch (const Violation& v) {
        throw Violation{v.code, part.what + ": " + v.text};
      }
      next += part.turns();
    }
  }
}

void Streams::drain() {
  for (size_t i = 0; i < all_.size(); ++i) reach(end(all_[i]));
}

void Streams::forbid_in_capture() {
  for (const auto& stream : all_) {
    Capture* const capture = stream->capture.get();
    if (!capture || capture->mode == kCaptureRelaxed) continue;
    if (capture->mode == kCaptureThreadLocal && capture->thread != std::this_thread::get_id()) continue;
    spoil(*capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "not allowed while a stream captures");
  }
}

void Streams::spoil(Capture& capture, CUresult code, const std::string& why) {
  capture.broken = true;
  throw Violation{code, why};
}

}  // namespace stub
