#!/bin/sh
# Builds the CUDA backend on a machine with a compiler, CMake and the CUDA toolkit, runs tests/gpu, and writes the figures
# of docs/gpu.md. Usage: scripts/gpu_check.sh [DIR]   DIR: for figures.md and the logs (default: build/gpu/figures)
# A test or bench that fails is reported at the end and keeps nothing else from running. Exit status: 0 all passed, 1
# something failed, 77 there is no GPU. A step that hangs ends after its limit: GPU_CHECK_LIMIT seconds, else 120.
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
build=$root/build/gpu
out=${1:-$build/figures}
limit=${GPU_CHECK_LIMIT:-120}
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
cmake $generator -S "$root/tests/gpu/bare" -B "$build" ${arch:+-DCSDSIM_CUDA_ARCHITECTURES=$arch} >"$out/configure.log" 2>&1 || {
  tail -40 "$out/configure.log"
  exit 1
}
failed=
# Everything that can be built is, so that one file that does not compile costs its own tests only.
keep="-k"
[ -n "$generator" ] && keep="-k 0"
# shellcheck disable=SC2086
cmake --build "$build" -j "$(nproc)" -- $keep >"$out/build.log" 2>&1 || {
  echo "the build failed in part: $out/build.log"
  grep -E "error|FAILED" "$out/build.log" | head -20
  failed=" build"
}

skipped=
# run NAME COMMAND...: what it prints goes to NAME.log; a failure to the list of them.
run() {
  name=$1
  shift
  if [ ! -x "$1" ] && ! command -v "$1" >/dev/null 2>&1; then
    echo "$name: was not built"
    failed="$failed $name"
    return
  fi
  timeout "$limit" "$@" >"$out/$name.log" 2>&1
  code=$?
  case $code in
    0) echo "$name: $(tail -1 "$out/$name.log")" ;;
    77) skipped="$skipped $name" ;;
    *)
      [ $code -eq 124 ] && echo "$name: stopped after $limit s" || echo "$name: exit $code"
      grep -E "^  |error" "$out/$name.log" | tail -20
      failed="$failed $name"
      ;;
  esac
}
for test in operators attention golden model offloaded; do
  run "test_gpu_$test" "$build/tests/test_gpu_$test"
done
if [ -n "$skipped" ]; then
  echo "no GPU:$skipped measured nothing${failed:+; failed:$failed}"
  [ -n "$failed" ] && exit 1
  exit 77
fi
run bench_operators "$build/csdsim_bench_gpu" operators
run bench_methods "$build/csdsim_bench_gpu" methods
run bench_models "$build/csdsim_bench_gpu" models
python3 -c "import torch" 2>/dev/null && run bench_torch python3 "$root/bench/gpu/bench_torch.py"
{
  nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
  for bench in operators methods models torch; do
    [ -f "$out/bench_$bench.log" ] && cat "$out/bench_$bench.log"
  done
} >"$out/figures.md"
cat "$out/figures.md"
echo "${failed:+failed:$failed}"
[ -z "$failed" ]
