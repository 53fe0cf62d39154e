#!/usr/bin/env bash
# Makes the Debian package of build/release, installs it on a clean Debian 12 in a folder (debootstrap, chroot), with what
# it depends on, and runs the first scenario there: scripts/package.sh [MIRROR]. Root; takes a few minutes. The package
# stays in build/release.
set -euo pipefail
cd "$(dirname "$0")/.."
mirror=${1:-http://deb.debian.org/debian}
[ "$(id -u)" -eq 0 ] || { echo "scripts/package.sh: needs root, for chroot" >&2; exit 2; }
command -v debootstrap > /dev/null || { echo "scripts/package.sh: needs debootstrap (apt-get install debootstrap)" >&2; exit 2; }
[ -x build/release/csdsim ] || { echo "scripts/package.sh: no build/release/csdsim: run scripts/run.sh first" >&2; exit 2; }

(cd build/release && cpack --config CPackConfig.cmake > /dev/null)
package=$(ls -t build/release/csdsim_*.deb | head -n 1)
echo "$package: $(du -h "$package" | cut -f1)"

root=$(mktemp -d)
trap 'rm -rf --one-file-system "$root"' EXIT
debootstrap --variant=minbase bookworm "$root" "$mirror" > "$root.log" 2>&1 || { cat "$root.log" >&2; exit 1; }
rm "$root.log"
cp "$package" "$root/csdsim.deb"
cp /etc/resolv.conf "$root/etc/resolv.conf"
in_root() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive http_proxy="${http_proxy:-}" "$@"; }
in_root apt-get update -qq
in_root apt-get install -y -qq -o Dpkg::Use-Pty=0 --no-install-recommends /csdsim.deb > /dev/null
in_root csdsim --version
in_root csdsim run /usr/share/csdsim/scenarios/quickstart.yaml -q > "$root/said"
tail -n 2 "$root/said"
in_root apt-get remove -y -qq -o Dpkg::Use-Pty=0 csdsim > /dev/null
echo "The package installs, runs and is removed on a clean Debian 12."
