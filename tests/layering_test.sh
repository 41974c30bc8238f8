#!/usr/bin/env bash
# Checks that a folder includes only itself and the folders before it in the chain, that includes are rooted at the
# repository, that each library stays behind the files meant to know it, and that no files include each other in a
# circle. Usage: layering_test.sh [ROOT]
set -euo pipefail

# Prints every violation below the folder $1 and fails if there is one.
check() {
  (cd "$1" && { find etch.h runtime tracer codegen eager nn jit tests bench examples -type f \
    \( -name '*.h' -o -name '*.cpp' -o -name '*.def' \) 2>/dev/null || true; } | sort | xargs -r awk '
    BEGIN {
      allowed["runtime"] = "runtime"
      allowed["tracer"] = allowed["runtime"] " tracer"
      allowed["codegen"] = allowed["tracer"] " codegen"
      allowed["eager"] = allowed["codegen"] " eager"
      allowed["nn"] = allowed["eager"] " nn"
      allowed["jit"] = allowed["eager"] " jit"
      all = allowed["eager"] " nn jit etch.h"
      allowed["etch.h"] = all
      allowed["tests"] = all " tests"
      allowed["bench"] = all " bench"
      allowed["examples"] = all " examples"
      for (folder in allowed) layers = layers " " folder
      layers = layers " "
    }
    function fail(text) { print text; failures++ }
    function folder_of(path, parts) { split(path, parts, "/"); return parts[1] }
    FNR == 1 { files[FILENAME] = 1 }
    /^[ \t]*#[ \t]*include[ \t]*<(dnnl|oneapi\/dnnl)/ && FILENAME !~ /^eager\/cpu\/onednn/ {
      fail(FILENAME ":" FNR ": only eager/cpu/onednn* may include oneDNN")
    }
    /^[ \t]*#[ \t]*include[ \t]*<libxsmm/ && FILENAME != "eager/cpu/tile_product.cpp" {
      fail(FILENAME ":" FNR ": only eager/cpu/tile_product.cpp may include libxsmm")
    }
    /^[ \t]*#[ \t]*include[ \t]*"[^"]+"/ {
      target = $0
      sub(/^[^"]*"/, "", target); sub(/".*$/, "", target)
      from = folder_of(FILENAME); to = folder_of(target)
      edges[FILENAME] = edges[FILENAME] " " target
      if (index(layers, " " to " ")) {
        if (!index(" " allowed[from] " ", " " to " "))
          fail(FILENAME ":" FNR ": " from " may not include " target)
      } else {
        sibling = FILENAME; sub(/[^\/]*$/, target, sibling)
        unrooted[FILENAME ":" FNR] = sibling
      }
    }
    # Depth-first search; state 1 is on the path, 2 is done.
    function visit(file, path, targets, count, i) {
      state[file] = 1
      count = split(edges[file], targets, " ")
      for (i = 1; i <= count; ++i) {
        if (!(targets[i] in files)) continue
        if (state[targets[i]] == 1) fail("circle: " path " -> " targets[i])
        else if (!state[targets[i]]) visit(targets[i], path " -> " targets[i])
      }
      state[file] = 2
    }
    END {
      for (place in unrooted) if (unrooted[place] in files)
        fail(place ": expected an include rooted at the repository, got " unrooted[place])
      for (file in files) if (!state[file]) visit(file, file)
      exit failures > 0
    }')
}

# The checker itself must find what it is for.
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch"/{runtime,tracer,nn,jit}
expect_failure() {
  if output=$(check "$scratch") || [[ $output != *"$1"* ]]; then
    echo "layering_test: expected a complaint with \"$1\", got \"$output\""
    exit 1
  fi
}
echo '#include "tracer/op.h"' >"$scratch/runtime/up.h"
expect_failure 'runtime may not include tracer/op.h'
rm "$scratch/runtime/up.h"
echo '#include "jit/b.h"' >"$scratch/nn/a.cpp"
expect_failure 'nn may not include jit/b.h'
echo '#include "b.h"' >"$scratch/nn/a.cpp"
echo >"$scratch/nn/b.h"
expect_failure 'expected an include rooted'
rm "$scratch"/nn/*
echo '#include "tracer/b.h"' >"$scratch/tracer/a.h"
echo '#include "tracer/a.h"' >"$scratch/tracer/b.h"
expect_failure 'circle: tracer/'
rm "$scratch"/tracer/*
echo '#include <dnnl.hpp>' >"$scratch/nn/a.cpp"
expect_failure 'may include oneDNN'
echo '#include <libxsmm.h>' >"$scratch/nn/a.cpp"
expect_failure 'may include libxsmm'
rm "$scratch"/nn/*
echo '#include "runtime/a.h"' >"$scratch/tracer/a.h"
echo >"$scratch/runtime/a.h"
check "$scratch"

check "${1:-$(dirname "$0")/..}"
