#!/bin/sh
# Builds the CUDA backend on a machine with a compiler, CMake and the CUDA toolkit, runs tests/gpu, and writes the figures
# of docs/gpu.md. Usage: scripts/gpu_check.sh [DIR]   DIR: for figures.md and the logs (default: build/gpu/figures)
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
build=$root/build/gpu
out=${1:-$build/figures}
mkdir -p "$out"
PATH=$PATH:/usr/local/cuda/bin
export PATH

generator=
command -v ninja >/dev/null 2>&1 && generator="-G Ninja"
# The present GPU's architecture is enough here.
arch=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -1 | tr -d .)
case $arch in
  90) arch=90a-real ;;
  [0-9]*) arch=$arch-real ;;
  *) arch= ;;
esac
# shellcheck disable=SC2086
cmake $generator -S "$root/tests/gpu/bare" -B "$build" ${arch:+-DCSDSIM_CUDA_ARCHITECTURES=$arch} >"$out/configure.log" 2>&1 &&
  cmake --build "$build" -j "$(nproc)" >"$out/build.log" 2>&1 || {
  tail -40 "$out/configure.log" "$out/build.log"
  exit 1
}
status=0
for test in operators model; do
  "$build/tests/test_gpu_$test" >"$out/test_$test.log" 2>&1
  code=$?
  echo "test_gpu_$test: exit $code, $(tail -1 "$out/test_$test.log")"
  [ $code -eq 0 ] || { [ $code -eq 77 ] || grep -v "^[a-z].*:$" "$out/test_$test.log" | tail -30; status=$code; }
done
[ $status -eq 77 ] && { echo "no GPU: nothing was measured"; exit 77; }
{
  nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
  "$build/csdsim_bench_gpu"
  if python3 -c "import torch" 2>/dev/null; then python3 "$root/bench/gpu/bench_torch.py"; fi
} >"$out/figures.md" 2>"$out/bench.log" || status=1
cat "$out/figures.md" "$out/bench.log"
exit $status
