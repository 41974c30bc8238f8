// The ordered list of passes and its runner.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "jit/executable.h"
#include "tracer/graph.h"

namespace etch::jit {

/// What passes are told beside the graph.
struct PassOptions {
  int64_t memory_budget = 0;  ///< bytes; 0: none
};

struct Pass {
  std::string_view name;
  Graph (*run)(Graph, const PassOptions&);
  bool optional;  ///< results are right without it (ETCH_SKIP_PASSES)
};
std::span<const Pass> passes();

/// Runs every pass that ETCH_SKIP_PASSES leaves; times, logs, dumps (under `label`) and verifies.
Graph run_passes(Graph graph, std::string_view label, std::vector<PassTime>* times,
                 const PassOptions& options = {});

/// Writes `text` to the folder of ETCH_DUMP as "<label>.<what>", if there is one.
void dump(std::string_view label, std::string_view what, std::string_view text);

}  // namespace etch::jit
