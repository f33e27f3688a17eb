"""How a kernel of a pass begins where launches overlap; csrc/cuda/launch.h says what that is, and why it is right."""

import triton
import triton.language as tl
from triton.language.extra import cuda


@triton.jit
def begin(EARLY: tl.constexpr):
    """Lets the next kernel start, then waits for the one before: first of all, as no memory may be used before it."""
    if EARLY:
        cuda.gdc_launch_dependents()
        cuda.gdc_wait()
