// Launches that overlap (CUDA's programmatic dependent launch): an early kernel begins beside the end of those before
// it in its stream, and its weights are on their way when its inputs are ready.
//
// A kernel may be launched early if its pack says so (the constant EARLY). Why nothing goes wrong then:
// 1. It starts when every block of the kernel before it has let it, which a block does first of all, or has ended: so
//    all of them have begun. That kernel may be early itself, and so on, back to work that is not, which began when all
//    before it was over.
// 2. Until it waits (kernels/triton/overlap.py, wait_for_inputs() in kernels/cuda/device.cuh) it reads weights, and
//    touches registers and shared memory. Weights are written when a model is loaded, and the host waits for that.
// 3. A thread that reads or writes anything else has waited before, and so has some thread of every block. A wait ends
//    when the kernel before is complete and what it wrote is visible; that one, if it was early, has waited too, and
//    was not complete before the one before it; so all are. Then a kernel may also write over what they have read.
// 4. Work that is not early (copies, other kernels, events, the end of a recorded pass) begins when the kernel before
//    it is complete: by 3, when all are.
// They cannot lock up: by 1, all blocks of a kernel that is waited for have their room already, so they need none that
// a waiting block holds. Nor can one stream lock up another: blocks that wait do so for blocks that run.
//
// The gain: a block of a matmul holds a ring of 80 to 176 KB of weights (kernels/cuda/plan.py), so that a block of
// the next one finds room when one has ended; all rings of an H200 together hold 11 to 24 MB, which its memory delivers
// in 2.5 to 5.5 us. As much of what lies between two matmuls (a norm, the attention to a short text) costs it no time.
// Where two matmuls come in turn, the second begins in the unevenness of the first one's end.
#pragma once
#include "cuda/device.h"

namespace swiftk::cuda {

// Whether a session's kernels overlap: where the GPU can, unless SWIFTK_DEBUG says overlap=0.
bool wants_overlap(const Device&);

struct Grid {
  unsigned x, y, z;
};

Result launch(const Driver&, const Function&, const Grid&, Stream, void** parameters, bool overlap);

}  // namespace swiftk::cuda
