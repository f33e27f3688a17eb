#include "kernel.h"

#include "kernels.h"

namespace stub {
namespace {

constexpr Kernel kKernels[] = {
    {"embed", "pppp", embed},
    {"rmsnorm", "pppp", rmsnorm},
    {"qkv", "ppppppppppp", qkv},
    {"qk_norm_rope", "pppppppppp", qk_norm_rope},
    {"attention_split", "pppppppppii", attention_split},
    {"attention_merge", "ppppi", attention_merge},
    {"attention_serial", "ppppppppi", attention_serial},
    {"residual", "ppppp", residual},
    {"gate_up", "ppppp", gate_up},
    {"lm_head", "pppp", lm_head},
    {"topk_partial", "ppplfiiippp", topk_partial},
    {"topk_merge", "ppppippp", topk_merge},
    {"move_rows", "ppill", move_rows},
    {"read_probe", "ppl", read_probe},
    {"dot_probe", "pi", dot_probe},
};

constexpr size_t kAligned = 16;  // bytes; kernels are compiled for pointers that are

}  // namespace

const Kernel* find_kernel(std::string_view name) {
  for (const Kernel& k : kKernels) {
    if (k.name == name) return &k;
  }
  return nullptr;
}

char* Elements::at(size_t begin, size_t n) const {
  const size_t size = swiftk::size_of(type);
  return bytes.at(begin > bytes.count / size ? bytes.count + 1 : begin * size, n * size);
}

void Elements::set(size_t i, float value) const {
  char* const to = at(i, 1);
  if (type == DType::F32) {
    *reinterpret_cast<float*>(to) = value;
  } else {
    *reinterpret_cast<uint16_t*>(to) = type == DType::BF16 ? swiftk::f32_to_bf16(value) : swiftk::f32_to_f16(value);
  }
}

void Elements::read(size_t begin, size_t n, float* to) const {
  const char* const from = at(begin, n);
  for (size_t i = 0; i < n; ++i) to[i] = swiftk::load_element(from, type, i);
}

float rounded(float value, DType type) {
  if (type == DType::F32) return value;
  return type == DType::BF16 ? swiftk::bf16_to_f32(swiftk::f32_to_bf16(value))
                             : swiftk::f16_to_f32(swiftk::f32_to_f16(value));
}

Span<char> Launch::bytes(int i) const {
  const CUdeviceptr address = arguments[i];
  try {
    if (address % kAligned) throw Violation{CUDA_ERROR_MISALIGNED_ADDRESS, text("0x%llx is not aligned to 16 bytes", address)};
    size_t count = 0;
    char* const data = memory->reach(address, count);
    return {data, count, i};
  } catch (const Violation& v) {
    throw Violation{v.code, text("argument %d: ", i) + v.text};
  }
}

double Launch::number(const char* constant) const {
  const auto& numbers = function->constants.numbers;
  const auto at = numbers.find(constant);
  if (at == numbers.end()) throw Violation{CUDA_ERROR_LAUNCH_FAILED, text("the pack has no constant %s", constant)};
  return at->second;
}

int Launch::rows() const {
  const int n = span<int32_t>(0)[0];
  if (n < 0) throw Violation{CUDA_ERROR_LAUNCH_FAILED, text("%d rows", n)};
  return n;
}

void Launch::expect(int axis, size_t programs) const {
  if (grid[axis] != programs) {
    throw Violation{CUDA_ERROR_LAUNCH_FAILED, text("%u programs along axis %d, want %zu", grid[axis], axis, programs)};
  }
}

void Launch::expect_cover(int axis, size_t each, size_t items) const {
  if (grid[axis] * each < items) {
    throw Violation{CUDA_ERROR_LAUNCH_FAILED, text("%u programs of %zu along axis %d do not cover %zu", grid[axis], each, axis,
                                                   items)};
  }
}

}  // namespace stub
