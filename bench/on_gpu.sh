#!/usr/bin/env bash
# Proves and measures swiftk on a machine with an NVIDIA GPU; writes bench/results/gpu.json and gpu.md (and copies under
# $OUT, if that is set). Downloads nothing; where there is no GPU it says so and ends with status 0.
#
#   bench/gpu/prepare.sh                                     # before, on a machine without one: kernels and a wheel
#   bench/on_gpu.sh ladder                                   # what works: rungs from kernels in turn to the default
#   bench/on_gpu.sh hardware decode contexts bits            # how fast
#   bench/on_gpu.sh speculation tests
#
# Each takes less than ten minutes and goes around what the ladder found faulty; what earlier ones found stays in gpu.json.
# bench/gpu/run.py has the options (--only MODEL, --results DIR, --device cpu --tiny: small shapes without a GPU),
# bench/gpu/ladder.py the parts, their limits and what the rungs mean. Without a part all of them run.
set -u -o pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
mkdir -p "$root/build/gpu"
python3 "$root/bench/gpu/run.py" "$@" 2>&1 | tee "$root/build/gpu/log.txt" ${OUT:+"$OUT/on_gpu.log"}
exit "${PIPESTATUS[0]}"
