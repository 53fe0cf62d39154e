#!/bin/bash
# Builds the fuzz targets of tests/fuzz with clang and runs each for SECONDS (default: 60), as many at a time as there
# are cores: scripts/fuzz.sh [SECONDS [TARGET ...]]. Begins with the inputs of tests/fuzz/corpus; what it finds beside
# them stays in build/fuzz/found/TARGET. Prints the inputs that each has read. Exit status 1 if one has a finding, which
# stands in build/fuzz/findings.
set -eu
cd "$(dirname "$0")/.."
seconds=${1:-60}
shift $(($# > 0 ? 1 : 0))
[[ $seconds =~ ^[1-9][0-9]*$ ]] || { echo "scripts/fuzz.sh: $seconds: expected seconds for each target" >&2; exit 2; }
for clang in clang++-19 clang++-18 clang++-17 clang++-16 clang++; do
  command -v $clang > /dev/null && break
done
command -v $clang > /dev/null || { echo "scripts/fuzz.sh: needs clang (Debian: apt-get install clang-16)" >&2; exit 2; }
build=build/fuzz
# CMake does not change the compiler of a folder.
grep -qs "^CMAKE_CXX_COMPILER:.*[=/]$clang\$" $build/CMakeCache.txt || rm -rf $build/CMakeCache.txt $build/CMakeFiles
cmake -S . -B $build -G Ninja -D CMAKE_CXX_COMPILER=$clang -D CMAKE_BUILD_TYPE=RelWithDebInfo -D CSDSIM_FUZZ=ON \
  -D CSDSIM_WERROR=OFF -D CSDSIM_CUDA=OFF -D CMAKE_UNITY_BUILD=ON -D CMAKE_UNITY_BUILD_BATCH_SIZE=32 \
  "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1 -gline-tables-only" > /dev/null
targets=("$@")
[ $# -gt 0 ] || mapfile -t targets < <(cut -d' ' -f1 $build/fuzz_targets.txt)
program_of() { awk -v name="$1" '$1 == name { print $2 }' build/fuzz/fuzz_targets.txt; }
all=$(ls tests/fuzz/corpus | wc -l) able=$(wc -l < $build/fuzz_targets.txt)
[ "$able" -eq "$all" ] || echo "$able of $all targets: the others need clang 16 or later (Debian: clang-16)" >&2
for target in "${targets[@]}"; do
  [ -n "$(program_of "$target")" ] || { echo "scripts/fuzz.sh: there is no target $target" >&2; exit 2; }
done
mapfile -t programs < <(for target in "${targets[@]}"; do program_of "$target"; done | sort -u)
nice ninja -C $build "${programs[@]}"

# One target: what it prints goes to a file; its last line is "Done N runs in S second(s)".
fuzz_one() {
  local name=$1 seconds=$2 build=$3 log=$3/logs/$1.txt
  mkdir -p "$build/found/$name" "$build/findings" "$build/logs" "$build/tmp"
  if CSDSIM_FUZZ_TARGET=$name TMPDIR=$PWD/$build/tmp ASAN_OPTIONS=detect_stack_use_after_return=0:allocator_may_return_null=0 OPENBLAS_NUM_THREADS=1 \
    nice "$build/fuzz/$(program_of "$name")" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=3000 -max_len=16384 \
    -artifact_prefix="$build/findings/$name-" "$build/found/$name" "tests/fuzz/corpus/$name" > "$log" 2>&1; then
    echo "$name: $(grep -oE "^Done [0-9]+ runs" "$log" | grep -oE "[0-9]+") inputs, no finding"
  else
    echo "$name: FINDING: $(grep -m 1 -E "ERROR|runtime error|terminate called|what\(\)" "$log"); all of it: $log"
    return 1
  fi
}
export -f fuzz_one program_of
printf '%s\n' "${targets[@]}" | xargs -P "$(nproc)" -I NAME bash -c "fuzz_one NAME $seconds $build" || exit 1
