#!/usr/bin/env bash
# Installs the library of build folder $1 into a scratch folder and builds tests/package against it with compiler $2.
set -euo pipefail

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cmake --install "$1" --prefix "$scratch/installed" >"$scratch/log"
cmake -S "$(dirname "$0")/package" -B "$scratch/build" -G Ninja -DCMAKE_PREFIX_PATH="$scratch/installed" \
  -DCMAKE_CXX_COMPILER="$2" >>"$scratch/log" || { cat "$scratch/log"; exit 1; }
cmake --build "$scratch/build"
"$scratch/build/etch_user"
