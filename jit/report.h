// Plans and figures as JSON.
#pragma once

#include <string>

#include "jit/memory_plan.h"
#include "tracer/graph.h"

namespace etch::jit {

/// Places of all buffers, and the bytes alive at each step.
std::string memory_json(const Graph& graph, const MemoryPlan& plan);

}  // namespace etch::jit
