// Weights from disk under a sanitizer: whatever is taken, in whatever order, has the file's bytes; streams end while
// threads read; a file that is cut is an error, and read again once it is whole.
//   stream_check FILE
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "files/direct_file.h"
#include "model/weight_stream.h"

namespace {

using namespace swiftk;

constexpr size_t kPage = DirectFile::kPage;
constexpr int kStretches = 13;

void check(bool good, const char* what, int i) {
  if (good) return;
  std::fprintf(stderr, "stretch %d: %s\n", i, what);
  std::exit(1);
}

std::vector<char> make(const std::string& path, std::mt19937& random, std::vector<Stretch>& stretches) {
  size_t offset = 3 * kPage;
  for (int i = 0; i < kStretches; ++i) {
    stretches.push_back({offset, kPage * (1 + random() % 2500)});
    offset += stretches.back().bytes + kPage * (random() % 3);
  }
  std::vector<char> bytes(offset - kPage / 3);  // the last page is not whole
  for (char& c : bytes) c = static_cast<char>(random());
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return bytes;
}

Streamed stream_of(const std::string& path, const std::vector<Stretch>& stretches, size_t more) {
  size_t largest = 0;
  for (const Stretch& s : stretches) largest = std::max(largest, s.bytes);
  return {.file = std::make_shared<DirectFile>(path),
          .ops = cpu_ops("baseline"),
          .stretches = stretches,
          .of_data = {},
          .ring = largest + more};
}

void take(WeightStream& stream, const Streamed& of, const std::vector<char>& bytes, int i) {
  const Stretch& its = of.stretches[i];
  const size_t there = std::min(its.bytes, bytes.size() - its.offset);
  check(std::memcmp(stream.take(i), bytes.data() + its.offset, there) == 0, "other bytes than the file's", i);
}

bool fails(WeightStream& stream, int i) {
  try {
    stream.take(i);
  } catch (const Error&) {
    return true;
  }
  return false;
}

}  // namespace

int main(int, char** argv) {
  const std::string path = argv[1];
  std::mt19937 random(7);
  std::vector<Stretch> stretches;
  const std::vector<char> bytes = make(path, random, stretches);
  for (const size_t more : {size_t{0}, 7 * kPage, size_t{9} << 20, bytes.size()}) {
    const Streamed of = stream_of(path, stretches, more);
    WeightStream stream(of);
    for (int n = 0; n < 3 * kStretches; ++n) take(stream, of, bytes, n % kStretches);
    for (int n = 0, i = 0; n < 60; ++n, i = (i + 1 + random() % 3) % kStretches) take(stream, of, bytes, i);
    for (int n = 0; n < 30; ++n) take(stream, of, bytes, static_cast<int>(random() % kStretches));
    check(::truncate(path.c_str(), static_cast<off_t>(stretches[5].offset)) == 0, "the file cannot be cut", 5);
    for (int n = 0; n < 2; ++n) {
      for (int i = 4; i < kStretches; ++i) fails(stream, i);  // what was read ahead may still be there
    }
    check(fails(stream, 7), "read of a file that is cut", 7);
    std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    for (int n = 0; n < 2 * kStretches; ++n) take(stream, of, bytes, n % kStretches);
  }
  for (int n = 0; n < 40; ++n) {
    const Streamed of = stream_of(path, stretches, random() % (size_t{16} << 20));
    WeightStream stream(of);
    if (n % 2) take(stream, of, bytes, n % kStretches);
  }
  return 0;
}
