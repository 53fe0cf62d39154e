#!/usr/bin/env bash
# Installs what is missing, builds everything, lints and runs all tests. Ends with the runner's summary.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/install_deps.sh --tests
options=(-DCSDSIM_BUILD_TESTS=ON -DCSDSIM_BUILD_BENCH=ON)
# Without a GPU, CUDA code is compiled once for each path in the sources; with one, for every GPU that csdsim supports.
nvidia-smi >/dev/null 2>&1 || options+=("-DCSDSIM_CUDA_ARCHITECTURES=80-real;90a-real")
cmake --preset release "${options[@]}" >/dev/null
cmake --build --preset release -j "$(nproc)"
cmake --build --preset release --target lint
ctest --preset release -j "$(nproc)"
