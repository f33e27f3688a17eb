// Damages a file of a model in many ways, and loads the model each time: an error that names what is wrong, or a model.
//   file_fuzz MODEL FILE RUNS SEED
// FILE is MODEL itself or a file in its folder; it is overwritten, and whole again at the end.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <new>
#include <random>
#include <string>

#include "base/error.h"
#include "files/model_files.h"
#include "model/model.h"

namespace {

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

class Damage {
 public:
  explicit Damage(unsigned seed) : engine_(seed) {}

  // Mostly at the beginning, where the headers are.
  std::string operator()(std::string bytes) {
    for (size_t edits = 1 + below(4); edits > 0 && !bytes.empty(); --edits) {
      const size_t region = std::min(bytes.size(), size_t{64} << below(12)), at = below(region);
      switch (below(6)) {
        case 0: bytes[at] = static_cast<char>(below(256)); break;
        case 1: bytes[at] = static_cast<char>(bytes[at] ^ 1 << below(8)); break;
        case 2: put(bytes, at, interesting(bytes.size())); break;
        case 3: bytes.resize(at); break;
        case 4: bytes.erase(at, 1 + below(16)); break;
        default: bytes.insert(at, bytes.substr(below(region), 1 + below(16)));
      }
    }
    return bytes;
  }

 private:
  size_t below(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(engine_); }

  uint64_t interesting(size_t size) {
    const uint64_t numbers[] = {0,
                                1,
                                0x7f,
                                0xffffffff,
                                0x80000000,
                                uint64_t{1} << 32,
                                size,
                                size + 1,
                                ~uint64_t{0},
                                size / 2,
                                ~uint64_t{0} >> 1,
                                uint64_t{1} << 62,
                                uint64_t{1} << 58,
                                engine_()};
    return numbers[below(std::size(numbers))];
  }

  void put(std::string& bytes, size_t at, uint64_t number) {
    for (size_t i = 0, size = below(2) ? 8 : 4; i < size && at + i < bytes.size(); ++i) {
      bytes[at + i] = static_cast<char>(number >> 8 * i);
    }
  }

  std::mt19937_64 engine_;
};

// Whether it became a model.
bool load(const std::string& model) {
  try {
    const auto files = swiftk::open_model_files(model);
    files->token_ids("eos_token");
    swiftk::LoadOptions options;
    options.threads = 1;
    return swiftk::load_model(*files, options) != nullptr;
  } catch (const swiftk::Error&) {
  } catch (const std::bad_alloc&) {
  }
  return false;
}

}  // namespace

int main(int, char** argv) {
  const std::string model = argv[1], file = argv[2], whole = read(file);
  const int runs = std::atoi(argv[3]);
  Damage damage(static_cast<unsigned>(std::atoi(argv[4])));
  if (whole.empty() || !load(model)) return std::puts("the model itself cannot be loaded"), 1;
  int loaded = 0;
  for (int i = 0; i < runs; ++i) {
    write(file, damage(whole));
    loaded += load(model);
  }
  write(file, whole);
  std::printf("%d runs, %d became models\n", runs, loaded);
  return 0;
}
