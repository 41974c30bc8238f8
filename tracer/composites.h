// Composites in primitives, one node at a time. The formulas, which are also the order of arithmetic that
// fused eager kernels follow bit for bit, stand in composites.cpp.
#pragma once

#include <cstdint>

#include "tracer/graph.h"

namespace etch {

/// How many samples of n give batch norm's shift.
constexpr int64_t shift_samples(int64_t n) { return (n + 31) / 32; }

/// Appends the primitives of a composite node to `graph`, which has the node's buffers. The last ones write
/// node.outputs; what lies between are new internal buffers.
void expand_composite(const Node& node, Graph& graph);

}  // namespace etch
