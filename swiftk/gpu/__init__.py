"""A GPU: which device is meant, and its kernels, compiled to packs."""
