// Weights in few bits: the host quantises, as it does for itself, in the order in which kernels read them.
#include <memory>

#include "base/buffer.h"
#include "cuda/issue.h"

namespace swiftk::cuda {
namespace {

const Ops& host() { return *cpu_ops(nullptr); }

// The packing that the host is asked for. A tile of rows never crosses a panel: the halves of a head, which qkv.py of
// kernels/triton reads side by side, are groups of their own; gate and up lie one after the other.
PackArgs for_host(PackArgs a) {
  a.fragments = true;
  a.interleave = false;
  if (a.role == Matrix::Qkv) a.group /= 2;
  if (a.role == Matrix::GateUp) a.group = 0;
  return a;
}

}  // namespace

size_t copy_bytes(const PackArgs& a) { return host().packed_bytes(nullptr, for_host(a)); }

void pack_copy(Ctx& ctx, const PackArgs& a) {
  const Issue s(ctx);
  const std::unique_ptr<Ctx, void (*)(Ctx*)> threads(host().create(nullptr, s.queue.threads), host().destroy);
  const Buffer packed(host(), copy_bytes(a));
  PackArgs args = for_host(a);
  args.dst = packed.as<void>();
  host().pack(*threads, args);
  s.queue.upload(a.dst, args.dst, packed.bytes());
  s.queue.synchronize();
}

}  // namespace swiftk::cuda
