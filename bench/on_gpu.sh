#!/usr/bin/env bash
# Builds swiftk on a machine with an NVIDIA GPU, proves it there, measures it, and writes bench/results/gpu.json and gpu.md
# (and copies under $OUT, if that is set). Downloads nothing; where there is no GPU it says so and ends with status 0.
#
#   bench/on_gpu.sh [--device cpu] [--tiny] [--results DIR] [PART...]
#
# Parts, by value: build smoke hardware decode speculation tests peers matmuls. Named parts alone are run; what other parts
# found stays. Each part is one script of bench/gpu/ with a limit of its own; one that fails is recorded and the rest goes on.
# --device cpu --tiny tries everything on small shapes without a GPU. SWIFTK_GPU_SECONDS: the limit of the whole (530).
set -u

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
gpu=$root/bench/gpu
work=$root/build/gpu
limit() { # seconds of a part
  case $1 in
    build) echo 150 ;; smoke) echo 60 ;; hardware) echo 60 ;; decode) echo 220 ;; speculation) echo 100 ;; tests) echo 150 ;;
    peers) echo 150 ;; matmuls) echo 60 ;; *) echo 0 ;;
  esac
}

all=(build smoke hardware decode speculation tests peers matmuls)
device=cuda
flags=()
parts=()
while [ $# -gt 0 ]; do
  case $1 in
    --device) device=$2; flags+=(--device "$2"); shift ;;
    --results) flags+=(--results "$2"); shift ;;
    --tiny) flags+=(--tiny) ;;
    *) [ "$(limit "$1")" -gt 0 ] || { echo "bench/on_gpu.sh: no part '$1', want some of: ${all[*]}" >&2; exit 2; }
       parts+=("$1") ;;
  esac
  shift
done
summary() { python3 "$gpu/summary.py" "$@" "${flags[@]}"; }

if [ "$device" = cuda ] && ! summary gpu; then
  echo "bench/on_gpu.sh: there is no NVIDIA GPU here, so there is nothing to measure"
  exit 0
fi

fresh=()
if [ ${#parts[@]} -eq 0 ]; then
  parts=("${all[@]}")
  fresh=(--fresh)
elif [ ! -x "$work/venv/bin/swiftk" ] && [ "${parts[0]}" != build ]; then
  parts=(build "${parts[@]}")
fi

maker=
finish() {
  [ -z "$maker" ] || kill "$maker" 2>/dev/null
  PYTHONPATH=$root python3 "$gpu/models.py" remove "${flags[@]}"
}

run() { # a part, within its limit and what is left of the whole
  local left=$((deadline - SECONDS)) most python=$work/venv/bin/python status=0
  most=$(limit "$1")
  [ "$most" -le "$left" ] || most=$left
  if [ "$most" -lt 5 ]; then
    summary end "$1" --status=-1
    return 1
  fi
  echo "== $1 (at most $most s)"
  [ "$1" != build ] || python=python3
  timeout -k 5 "$most" "$python" "$gpu/$1.py" "${flags[@]}" || status=$?
  summary end "$1" --status "$status"
  return "$status"
}

main() {
  local failed=0 part
  deadline=$((SECONDS + ${SWIFTK_GPU_SECONDS:-530}))
  trap finish EXIT
  summary begin "${fresh[@]}"
  case " ${parts[*]} " in
    *" decode "* | *" speculation "*) # checkpoints are made while other parts run
      PYTHONPATH=$root python3 "$gpu/models.py" make "${flags[@]}" &
      maker=$! ;;
  esac
  for part in "${parts[@]}"; do
    run "$part" || failed=1
  done
  summary show
  return "$failed"
}

export PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
mkdir -p "$work"
main 2>&1 | tee "$work/log.txt" ${OUT:+"$OUT/on_gpu.log"}
exit "${PIPESTATUS[0]}"
