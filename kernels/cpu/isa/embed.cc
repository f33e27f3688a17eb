// Rows of the embedding table, as floats.
#include "isa.h"

namespace swiftk::SWIFTK_ISA {

void embed(Ctx& ctx, const EmbedArgs& a) {
  Tasks rows(a.n, 8);
  const auto job = [&](int) {
    for (int i, end; rows.next(i, end);) {
      for (; i < end; ++i) {
        const size_t from = size_t(a.token[i]) * a.D;
        float* const x = a.x + size_t(i) * a.D;
        for (int j = 0; j < a.D; ++j) x[j] = load_element(a.table, a.dtype, from + j) * a.scale;
      }
    }
  };
  if (a.n <= 8) return job(0);
  ctx.pool.run(job);
}

}  // namespace swiftk::SWIFTK_ISA
