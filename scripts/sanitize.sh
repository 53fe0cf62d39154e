#!/bin/bash
# Builds tests with AddressSanitizer and UBSan (preset asan-ubsan, build/asan-ubsan) and runs them. Each test case runs in
# a process of its own: AddressSanitizer does not know the stacks of SystemC's threads, and reports errors that are none
# when an exception is thrown in a process that has simulated before.
#   scripts/sanitize.sh [-j JOBS] [TEST...]     TEST: a test of tests/, test_drive for example; without any, the whole suite
# The whole suite takes long: it is for the final code of a larger change. Exits with 1 if a case has failed.
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=$(nproc)
if [ "${1:-}" = -j ]; then
  jobs=$2
  shift 2
fi
build=build/asan-ubsan
export ASAN_OPTIONS=detect_stack_use_after_return=0:strict_string_checks=1 UBSAN_OPTIONS=print_stacktrace=1
[ -f $build/build.ninja ] || cmake --preset asan-ubsan > /dev/null
ninja -C $build -j "$jobs" "$@"
tests=("$@")
[ $# -gt 0 ] || tests=($(cd $build/tests && find . -maxdepth 1 -type f -executable -name 'test_*' -printf '%f\n' | sort))
failed=0
for test in "${tests[@]}"; do
  program=$build/tests/$test cases=0 log=$(mktemp)
  while IFS= read -r name; do
    cases=$((cases + 1))
    # Catch2 reads commas and brackets of a name as parts of a filter.
    if ! "$program" "$(sed 's/[][,\\]/\\&/g' <<< "$name")" > "$log" 2>&1 < /dev/null; then
      failed=$((failed + 1))
      printf '%s: %s\n' "$test" "$name"
      cat "$log"
    fi
  done < <("$program" --list-test-names-only 2> /dev/null | sed '/^[[:space:]]*$/d')
  rm -f "$log"
  [ $cases -gt 0 ] || { echo "$test: no cases"; failed=$((failed + 1)); }
  echo "$test: $cases cases"
done
# The tests of the command line are Python programs.
[ $# -gt 0 ] || ctest --test-dir $build -j "$jobs" --output-on-failure -R _command || failed=$((failed + 1))
[ $failed -eq 0 ]
