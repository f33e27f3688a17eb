// Rows of the embedding table, as floats.
#include "isa.h"

namespace swiftk::SWIFTK_ISA {

void embed(Ctx& ctx, const EmbedArgs& a) {
  Tasks rows(a.n, 8);
  const auto job = [&](int) {
    for (int i, end; rows.next(i, end);) {
      for (; i < end; ++i) {
        const StoredRows table{.data = a.table, .encoding = a.encoding};
        float* const x = a.x + size_t(i) * a.D;
        decode(a.encoding, table.at(a.token[i], a.D), a.D, x);
        for (int j = 0; j < a.D; ++j) x[j] *= a.scale;
      }
    }
  };
  if (a.n <= 8) return job(0);
  ctx.pool.run(job);
}

}  // namespace swiftk::SWIFTK_ISA
