#!/usr/bin/env bash
# Installs what is missing, builds everything, lints and runs all tests. Ends with the runner's summary.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/install_deps.sh --lint
cmake --preset release -DCSDSIM_BUILD_TESTS=ON -DCSDSIM_BUILD_BENCH=ON >/dev/null
cmake --build --preset release -j "$(nproc)"
cmake --build --preset release --target lint
ctest --preset release -j "$(nproc)"
