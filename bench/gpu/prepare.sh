#!/usr/bin/env bash
# Makes ahead, on a machine without a GPU, what takes bench/on_gpu.sh long: kernels and a wheel, in build/gpu/prepared.
#
#   bench/gpu/prepare.sh [--arch sm_90] [--python python3.12]      (the Python of the machine with the GPU)
#
# Wants swiftk with its extras 'test' for python3, CUDA's toolkit (or its wheels) for kernels in CUDA C++, and, for the
# wheel, the network or what pyproject.toml lists under build-system. prepare.py has the steps.
exec python3 "$(dirname "${BASH_SOURCE[0]}")/prepare.py" "$@"
