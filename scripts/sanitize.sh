#!/bin/sh
# Builds tests with AddressSanitizer and UBSan (preset asan-ubsan, build/asan-ubsan) and runs them; the first finding of a
# test ends it.
#   scripts/sanitize.sh [-j JOBS] [TEST...]     TEST: a test of tests/, test_drive for example; without any, the whole suite
# The whole suite takes long: it is for the final code of a larger change.
set -eu
cd "$(dirname "$0")/.."
jobs=$(nproc)
if [ "${1:-}" = -j ]; then
  jobs=$2
  shift 2
fi
build=build/asan-ubsan
# SystemC's threads have stacks that AddressSanitizer does not know.
export ASAN_OPTIONS=detect_stack_use_after_return=0:strict_string_checks=1 UBSAN_OPTIONS=print_stacktrace=1
[ -f $build/build.ninja ] || cmake --preset asan-ubsan > /dev/null
if [ $# -eq 0 ]; then
  ninja -C $build -j "$jobs"
  exec ctest --test-dir $build -j "$jobs" --output-on-failure
fi
ninja -C $build -j "$jobs" "$@"
for test in "$@"; do
  echo "$test"
  $build/tests/"$test"
done
