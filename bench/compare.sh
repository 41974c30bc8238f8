#!/usr/bin/env bash
# LibTorch, eager and compiled side by side: rounds that alternate, medians, ratios. One table row a model.
#
#   bench/compare.sh [BUILD_DIR] [ROUNDS] [STEPS] [MODEL...]
#
# Run it on an idle machine; LibTorch's column stays empty where build/bench/libtorch_train_step was not built.
set -euo pipefail
build=${1:-build} rounds=${2:-3} steps=${3:-10}
shift $(($# < 3 ? $# : 3))
models=("$@")
((${#models[@]})) || models=(mlp resnet18 gpt pointwise layernorm)

number() { sed -E "s/.*\"$1\": ?([0-9.e+-]+).*/\1/"; }
median() { sort -g | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}'; }

printf '%-10s %26s %26s %26s %9s %9s %9s\n' model 'LibTorch ms / MiB' 'eager ms / MiB' 'compiled ms / MiB' \
  'eager/LT' 'comp/LT' 'eager/comp'
for model in "${models[@]}"; do
  work=$(mktemp -d)
  for ((round = 0; round < rounds; ++round)); do
    if [[ -x $build/bench/libtorch_train_step ]]; then
      "$build/bench/libtorch_train_step" --model "$model" --steps "$steps" --json >>"$work/libtorch" 2>/dev/null
    fi
    for mode in eager compiled; do
      "$build/bench/train_step" --model="$model" --mode="$mode" --steps="$steps" --compile_only --json >>"$work/$mode"
    done
  done
  for mode in libtorch eager compiled; do
    [[ -s $work/$mode ]] || { echo '0 0' >"$work/$mode.row"; continue; }
    echo "$(number step_ms <"$work/$mode" | median) $(number peak_bytes <"$work/$mode" | median)" >"$work/$mode.row"
  done
  cat "$work"/{libtorch,eager,compiled}.row | awk -v model="$model" '
    {ms[NR] = $1; mib[NR] = $2 / 1048576}
    function ratio(a, b) {return b > 0 ? sprintf("%.2f", a / b) : "-"}
    END {printf "%-10s %15.2f / %8.1f %15.2f / %8.1f %15.2f / %8.1f %9s %9s %9s\n", model, ms[1], mib[1], ms[2], mib[2],
         ms[3], mib[3], ratio(ms[2], ms[1]), ratio(ms[3], ms[1]), ratio(ms[2], ms[3])}'
  rm -r "$work"
done
