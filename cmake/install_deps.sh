#!/usr/bin/env bash
# Installs the Debian or Ubuntu packages that building needs, and the ones named as arguments. Says what it installs;
# does nothing, and needs no network, when all are there.
set -euo pipefail

packages=(g++ cmake ninja-build libdnnl-dev libabsl-dev nlohmann-json3-dev libgtest-dev libbenchmark-dev "$@")
if command -v dpkg >/dev/null && [[ $(dpkg --print-architecture) == amd64 ]]; then
  packages+=(libxsmm-dev)
fi

if ! command -v dpkg-query >/dev/null; then
  echo "install_deps: no dpkg here; expected these to be installed: ${packages[*]}" >&2
  exit 0
fi

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
  [[ $status == *installed* && $status != *not-installed* ]] || missing+=("$package")
done
((${#missing[@]})) || exit 0

as_root=()
if ((EUID != 0)); then
  command -v sudo >/dev/null ||
    { echo "install_deps: expected root or sudo, to run: apt-get install ${missing[*]}" >&2; exit 1; }
  as_root=(sudo)
fi
echo "Installing: ${missing[*]}"
"${as_root[@]}" apt-get -qq update </dev/null
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "${missing[@]}" \
  </dev/null
