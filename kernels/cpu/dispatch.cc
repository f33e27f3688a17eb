// The instruction sets that this machine runs, and their tables.
#include <array>
#include <cstring>

#include "ops.h"
#ifdef SWIFTK_HAVE_AMX
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace swiftk {

#define SWIFTK_DECLARE(isa) \
  namespace isa {           \
  extern const Ops kOps;    \
  }
SWIFTK_DECLARE(baseline)
#ifdef SWIFTK_HAVE_AVX2
SWIFTK_DECLARE(avx2)
#endif
#ifdef SWIFTK_HAVE_AVX512
SWIFTK_DECLARE(avx512)
#endif
#ifdef SWIFTK_HAVE_AVX512BF16
SWIFTK_DECLARE(avx512bf16)
#endif
#ifdef SWIFTK_HAVE_AMX
SWIFTK_DECLARE(amx)
#endif
#undef SWIFTK_DECLARE

namespace {

// __builtin_cpu_supports asks the system, too: without its support for the wide registers the answer is no.
#ifdef __x86_64__
[[maybe_unused]] bool has_avx2() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}
[[maybe_unused]] bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}
[[maybe_unused]] bool has_avx512bf16() {
  return has_avx512() && __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni");
}
#endif
#ifdef SWIFTK_HAVE_AMX
// Linux lets a process use tiles once it has asked (Documentation/arch/x86/xstate.rst); older ones do not know the
// call.
bool has_amx() {
  constexpr long kRequest = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return has_avx512bf16() && __builtin_cpu_supports("amx-tile") && __builtin_cpu_supports("amx-bf16") &&
         syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
}
#endif

struct Available {
  std::array<const Ops*, 5> ops{};  // best first
  std::array<const char*, 6> names{};
  int n = 0;

  Available() {
#ifdef SWIFTK_HAVE_AMX
    if (has_amx()) add(amx::kOps);
#endif
#ifdef SWIFTK_HAVE_AVX512BF16
    if (has_avx512bf16()) add(avx512bf16::kOps);
#endif
#ifdef SWIFTK_HAVE_AVX512
    if (has_avx512()) add(avx512::kOps);
#endif
#ifdef SWIFTK_HAVE_AVX2
    if (has_avx2()) add(avx2::kOps);
#endif
    add(baseline::kOps);
  }

  void add(const Ops& table) {
    names[n] = table.name;
    ops[n++] = &table;
  }
};

const Available& available() {
  static const Available a;
  return a;
}

}  // namespace

const Ops* cpu_ops(const char* isa) {
  const Available& a = available();
  if (!isa || !*isa) return a.ops[0];
  for (int i = 0; i < a.n; ++i) {
    if (std::strcmp(isa, a.names[i]) == 0) return a.ops[i];
  }
  return nullptr;
}

const char* const* cpu_isas() { return available().names.data(); }

}  // namespace swiftk
