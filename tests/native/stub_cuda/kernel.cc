#include "kernel.h"

#include <algorithm>

#include "kernels.h"

namespace stub {
namespace {

constexpr Kernel kKernels[] = {
    {"embed", "ppPD", embed},
    {"rmsnorm", "pDpP", rmsnorm},
    {"qkv", "pPPpppppppp", qkv, 2},
    {"qk_norm_rope", "pppppppppp", qk_norm_rope},
    {"attention_split", "ppppPCCPpii", attention_split},
    {"attention_merge", "ppPpPi", attention_merge},
    {"attention_branch", "pppppPCCPpii", attention_branch},
    {"attention_serial", "ppppPCCPi", attention_serial},
    {"residual", "pPPpp", residual, 2},
    {"gate_up", "pPPpp", gate_up, 2},
    {"lm_head", "pPPp", lm_head, 2},
    {"norm_rows", "pDpDi", norm_rows},
    {"round_rows", "ppPi", round_rows},
    {"mean_rows", "ppii", mean_rows},
    {"read_rows", "pppll", read_rows},
    {"spread_rows", "ppppii", spread_rows},
    {"topk_partial", "VVpppiiippp", topk_partial},
    {"topk_merge", "pppppipppp", topk_merge},
    {"move_rows", "Wpill", move_rows},
    {"gate", "lppppppppppii", gate},
    {"pack", "PPiiiiiii", pack},
    {"read_probe", "Ppl", read_probe},
    {"dot_probe", "pi", dot_probe},
};

constexpr size_t kAligned = 16;  // bytes that a thread reads at once

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

// The alignment that the pointer is compiled for.
size_t Launch::alignment(int i) const {
  const auto whole = [](size_t bytes) { return bytes % kAligned == 0 ? kAligned : 1; };
  switch (function->kernel->arguments[i]) {
    case 'P': return kAligned;
    case 'D': return whole(constant("D") * sizeof(float));
    case 'V': return whole(constant("V") * sizeof(float));
    case 'C': return whole(constant("KV") * constant("HD") * swiftk::size_of(type()));
    case 'W': return constant("WIDTH") % 16 == 0 ? kAligned : 1;
    default: return 1;
  }
}

Span<char> Launch::bytes(int i, bool write, size_t element) const {
  const CUdeviceptr address = arguments[i];
  const size_t multiple = std::max(alignment(i), element);
  try {
    if (address % multiple)
      throw Violation{CUDA_ERROR_MISALIGNED_ADDRESS, text("0x%llx, want a multiple of %zu", address, multiple)};
    size_t count = 0;
    char* const data = memory->reach(address, count, write);
    return {data, count, i};
  } catch (const Violation& v) {
    throw Violation{v.code, text("argument %d: ", i) + v.text};
  }
}

void Launch::set_condition(unsigned long long handle, unsigned value) const {
  const auto at = conditions->find(handle);
  if (at == conditions->end()) throw Violation{CUDA_ERROR_ILLEGAL_ADDRESS, text("no condition %#llx", handle)};
  at->second(value);
}

DType Launch::type() const {
  if (!function->constants.type) throw Violation{CUDA_ERROR_LAUNCH_FAILED, "the pack does not say the dtype"};
  return *function->constants.type;
}

double Launch::number(const char* constant) const {
  const auto& numbers = function->constants.numbers;
  const auto at = numbers.find(constant);
  if (at == numbers.end()) throw Violation{CUDA_ERROR_LAUNCH_FAILED, text("the pack has no constant %s", constant)};
  return at->second;
}

int Launch::rows() const {
  const int n = span<const int32_t>(0)[0];
  if (n < 0) throw Violation{CUDA_ERROR_LAUNCH_FAILED, text("%d rows", n)};
  return n;
}

void Launch::expect(int axis, size_t programs) const {
  if (grid[axis] != programs) {
    throw Violation{CUDA_ERROR_LAUNCH_FAILED, text("%u programs along axis %d, want %zu", grid[axis], axis, programs)};
  }
}

void Launch::begin_early() const {
  const int weights = function->kernel->weights;
  if (weights >= 0 && has("UNIT")) bytes(weights, false, 1);
  if (has("EARLY") && number("EARLY")) memory->wait();
}

void Launch::expect_cover(int axis, size_t each, size_t items) const {
  if (grid[axis] * each < items) {
    throw Violation{CUDA_ERROR_LAUNCH_FAILED,
                    text("%u programs of %zu along axis %d do not cover %zu", grid[axis], each, axis, items)};
  }
}

}  // namespace stub
