#!/usr/bin/env bash
# Installs what is missing, builds csdsim and does the main job: real tokens through the simulated drive, then the
# question "what do more flash channels buy?". Results land in out/.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/install_deps.sh
echo "Building csdsim (release)..."
cmake --preset release -DCSDSIM_BUILD_TESTS=OFF -DCSDSIM_BUILD_BENCH=OFF >/dev/null
cmake --build --preset release --target csdsim -j "$(nproc)"

csdsim=build/release/csdsim
echo
echo "== 1. A real model decodes through the simulated drive (scenarios/quickstart.yaml) =="
"$csdsim" run scenarios/quickstart.yaml --out out/quickstart
echo
echo "== 2. What do more channels buy? OPT-13B, batch 64, 1024+1024 tokens (scenarios/channels.yaml) =="
# Without the condition: 12 points, also with channels of 0.7 GB/s.
"$csdsim" sweep scenarios/channels.yaml -j "$(nproc)" --set 'sweep.where=channel_bandwidth == 1.4 GB/s' --resume --out out/channels
