#!/usr/bin/env bash
# Installs what the build needs and is missing (Debian 12 packages), and says so; with --tests also what tests and lint
# need. Root, or a user with sudo.
# With --cudnn it fetches, from the Python package index to build/cudnn, the headers by which the CUDA backend uses cuDNN
# (nvidia-cudnn-frontend), and cuDNN itself where the CUDA toolkit comes without it.
set -euo pipefail

if [ "${1:-}" = "--cudnn" ]; then
  nvcc=$(PATH=$PATH:/usr/local/cuda/bin command -v nvcc) || { echo "install_deps: no CUDA toolkit (nvcc), so that there is no use for cuDNN" >&2; exit 1; }
  wanted=(nvidia-cudnn-frontend)
  if [ ! -e "$(dirname "$nvcc")/../include/cudnn_graph.h" ]; then
    version=$("$nvcc" --version | sed -n 's/.*release \([0-9]*\).*/\1/p')
    wanted+=("nvidia-cudnn-cu$version")
  fi
  exec python3 -m pip install --quiet --no-deps --upgrade --target "$(dirname "$0")/../build/cudnn" "${wanted[@]}"
fi

packages=(g++ cmake ninja-build pkg-config libsystemc-dev libyaml-cpp-dev libfmt-dev catch2
          libcli11-dev nlohmann-json3-dev libopenblas-dev libhwy-dev libsentencepiece-dev libicu-dev libsqlite3-dev
          libmuparser-dev libnlopt-cxx-dev libnlopt-dev libboost-dev librapidcheck-dev libbenchmark-dev libjs-chart.js python3)
[ "${1:-}" = "--tests" ] && packages+=(clang clang-format dpkg-dev libboost-mpi-dev openmpi-bin chromium chromium-driver python3-selenium python3-jsonschema python3-yaml python3-matplotlib zsh fish)

if ! command -v dpkg-query >/dev/null; then
  echo "install_deps: not a Debian system; make sure that these are installed: ${packages[*]}" >&2
  exit 0
fi

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q "install ok installed" || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

sudo=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "install_deps: need root or sudo to install: ${missing[*]}" >&2; exit 1; }
  sudo=(sudo)
fi
echo "Installing with apt-get: ${missing[*]}"
"${sudo[@]}" apt-get update -qq
"${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
