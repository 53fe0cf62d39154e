#!/bin/sh
# Tests and measures the CUDA backend on this machine's GPU: scripts/gpu_check.sh [--out DIR] [PART ...]
#   tests       every operator, method and model against the CPU, transformers' vectors, K and V in pinned memory
#   sanitizers  the tests of operators under memcheck, racecheck, initcheck and synccheck of compute-sanitizer
#   benches     the figures of docs/gpu.md, beside torch (cuBLAS, cuDNN, FlashAttention) where it is installed
#   program     csdsim itself: profile-gpu, generate, eval, measured operator times and their reuse
# Without a PART all run; each is made for less than 8 minutes with 16 cores. tests, sanitizers and benches need a
# compiler, CMake and the CUDA toolkit only. program takes the csdsim of CSDSIM (default: build/release/csdsim), or builds it.
# Figures and logs are written to DIR (default: build/gpu/figures), one log per step. A step that fails keeps nothing else
# from running. GPU_CHECK_LIMIT: seconds after which a step is ended (default: none).
# Exit status: 0 all passed, 1 something failed or could not run, 2 wrong usage, 77 there is no GPU.
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
build=$root/build/gpu
out=$build/figures
parts=
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0" && exit 0 ;;
    --out)
      [ $# -ge 2 ] || { echo "gpu_check.sh: --out needs a folder" >&2 && exit 2; }
      out=$2
      shift
      ;;
    tests | sanitizers | benches | program) parts="$parts $1" ;;
    *) echo "gpu_check.sh: unknown part '$1'; there are tests, sanitizers, benches, program" >&2 && exit 2 ;;
  esac
  shift
done
: "${parts:=tests sanitizers benches program}"
if ! nvidia-smi >/dev/null 2>&1 && [ -z "${CSDSIM_CUDA_MODULE:-}" ]; then
  echo "no GPU (nvidia-smi), nothing was tested or measured"
  exit 77
fi
mkdir -p "$out"
PATH=$PATH:/usr/local/cuda/bin
export PATH

failed=
skipped=
# run NAME COMMAND...: what it prints goes to NAME.log; a failure to the list of them.
run() {
  name=$1
  shift
  if ! command -v "$1" >/dev/null 2>&1; then
    echo "$name: $1 is missing"
    failed="$failed $name"
    return 1
  fi
  timeout "${GPU_CHECK_LIMIT:-0}" "$@" >"$out/$name.log" 2>&1
  code=$?
  case $code in
    0) echo "$name: $(grep '[^[:space:]]' "$out/$name.log" | tail -1)" && return 0 ;;
    77) skipped="$skipped $name" ;;
    *)
      [ $code -eq 124 ] && echo "$name: ended after $GPU_CHECK_LIMIT s" || echo "$name: exit $code"
      grep -E "^  |rror" "$out/$name.log" | tail -20
      failed="$failed $name"
      ;;
  esac
  return 1
}

# Tests and benches, with what stands in for fmt, OpenBLAS and Highway.
build_bare() {
  [ -n "${built:-}" ] && return
  built=yes
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
  cmake $generator -S "$root/tests/gpu/bare" -B "$build" ${arch:+-DCSDSIM_CUDA_ARCHITECTURES=$arch} \
    >"$out/configure.log" 2>&1 || {
    tail -40 "$out/configure.log"
    exit 1
  }
  # Everything that can be built is, so that one file that does not compile costs its own tests only.
  keep="-k"
  [ -n "$generator" ] && keep="-k 0"
  # shellcheck disable=SC2086
  cmake --build "$build" -j "$(nproc)" -- $keep >"$out/build.log" 2>&1 || {
    echo "the build failed in part: $out/build.log"
    grep -E "error|FAILED" "$out/build.log" | head -20
    failed="$failed build"
  }
}

tests() {
  build_bare
  for test in operators host_copies timers attention golden model offloaded; do
    run "test_gpu_$test" "$build/tests/test_gpu_$test"
  done
}

sanitizers() {
  build_bare
  for tool in memcheck racecheck initcheck synccheck; do
    # The long prompt takes minutes under a sanitizer and runs no other code than the short ones.
    run "sanitizer_$tool" compute-sanitizer --tool "$tool" --error-exitcode 1 "$build/tests/test_gpu_operators" \
      linear "add a bias" SwiGLU norms "decode attention: groups" element-wise append "plain kernel" mma.sync "sm_90 kernel"
    run "sanitizer_${tool}_copies" compute-sanitizer --tool "$tool" --error-exitcode 1 "$build/tests/test_gpu_host_copies"
  done
}

benches() {
  build_bare
  for bench in operators methods models; do
    run "bench_$bench" "$build/csdsim_bench_gpu" "$bench"
  done
  if python3 -c "import torch" 2>/dev/null; then
    run bench_torch python3 "$root/bench/gpu/bench_torch.py"
  else
    echo "bench_torch: torch is not installed, so that nothing is measured beside csdsim's kernels"
  fi
  {
    nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem,power.limit --format=csv,noheader
    for bench in operators methods models torch; do
      [ -f "$out/bench_$bench.log" ] && cat "$out/bench_$bench.log"
    done
  } >"$out/figures.md"
  cat "$out/figures.md"
}

program() {
  csdsim=${CSDSIM:-$root/build/release/csdsim}
  if [ ! -x "$csdsim" ]; then
    (cd "$root" && cmake --preset cuda && cmake --build --preset cuda -j "$(nproc)" --target csdsim csdsim_cuda) \
      >"$out/program_build.log" 2>&1 || {
      echo "program: csdsim cannot be built here ($out/program_build.log); scripts/install_deps.sh installs what it needs"
      failed="$failed program"
      return
    }
    csdsim=$root/build/cuda/csdsim
  fi
  model=$root/models/opt-6m
  run profile_gpu "$csdsim" profile-gpu --out "$out/profile.yaml"
  run generate_gpu "$csdsim" generate --model "$model" --prompt "static int" --max-new-tokens 32 --backend cuda \
    --attention host --out "$out/generate_gpu" &&
    run generate_cpu "$csdsim" generate --model "$model" --prompt "static int" --max-new-tokens 32 --attention host \
      --out "$out/generate_cpu" &&
    run same_tokens python3 -c "import json, sys
a, b = (json.load(open(f'$out/generate_{x}/result.json'))['tokens'] for x in ('gpu', 'cpu'))
print('equal tokens' if a == b else f'GPU {a}, CPU {b}')
sys.exit(a != b)"
  run generate_drive "$csdsim" generate --model "$model" --prompt "static int" --max-new-tokens 8 --backend cuda \
    --out "$out/generate_drive"
  run generate_streams "$csdsim" generate --model "$model" --prompt "static int" --max-new-tokens 16 --system kvpr \
    --backend cuda --out "$out/generate_streams"
  run eval_gpu "$csdsim" eval --model "$model" --text "$model/sample.txt" --backend cuda --prefill 128 --decode 32 \
    --windows 2 --method sparf --ratio 1/4 --out "$out/eval_gpu"
  run measured "$csdsim" run "$root/scenarios/quickstart.yaml" --set platform.gpu.timing=measured --out "$out/measured" &&
    run measured_again "$csdsim" run "$root/scenarios/quickstart.yaml" --set platform.gpu.timing=measured \
      --set "platform.gpu.times=$out/measured/result.json" --out "$out/measured_again"
}

for part in $parts; do $part; done

[ -n "$failed" ] && echo "failed:$failed"
[ -n "$skipped" ] && echo "no GPU:$skipped measured nothing"
[ -n "$failed" ] && exit 1
[ -n "$skipped" ] && exit 77
exit 0
