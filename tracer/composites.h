// Composites in primitives, one node at a time. The formulas, which are also the order of arithmetic that
// fused eager kernels follow bit for bit, stand in composites.cpp.
#pragma once

#include "tracer/graph.h"

namespace etch {

/// Appends the primitives of a composite node to `graph`, which has the node's buffers. The last ones write
/// node.outputs; what lies between are new internal buffers.
void expand_composite(const Node& node, Graph& graph);

}  // namespace etch
