#!/bin/bash
# What tests/fuzz prints of a program compiles as a test: printed_programs_test.sh FUZZ COMPILER.
set -e
root=$(cd "$(dirname "$0")/.." && pwd)
file=$(mktemp --suffix=.cpp)
trap 'rm -f "$file"' EXIT
"$1" --seed 1 --print 25 >"$file"
"$2" -std=c++20 -fsyntax-only -I "$root" "$file"
