// The reference interpreter: every graph's meaning in float64 and int64, by loops over logical indices. It
// shares no code with kernels but the element expressions of ops.def, and is the oracle of the tests.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "tracer/graph.h"
#include "tracer/path.h"

namespace etch {

struct InterpreterOptions {
  /// Every node's results are rounded to its dtype, as kernels do; else floating values stay float64
  /// throughout.
  bool round_to_dtype = true;
};

/// What a buffer holds after the last node. `values` are its elements as computed (float64; integers beyond
/// 2^53 lose digits), `bytes` the same in its dtype. Both are empty for internal buffers, and for buffers no
/// node names.
struct InterpretedBuffer {
  DType dtype = DType::F32;
  std::vector<double> values;
  std::vector<std::byte> bytes;
};

/// Runs the graph. `buffers` has one entry a buffer of the graph: the bytes of externals (as many as the
/// graph says), nothing for others, whose elements start as NaN or -1. `values` are the slots: an offset in
/// elements for a tensor operand, a scalar for a scalar one. Elements of one buffer have one dtype
/// throughout. Composites run as their expansions, groups as their bodies. Throws InternalError for inputs
/// that do not fit the graph, and what the ops throw for their data (IndexError, ValueError).
std::vector<InterpretedBuffer> interpret(const Graph& graph,
                                         const std::vector<std::vector<std::byte>>& buffers,
                                         std::span<const OperandValue> values = {},
                                         const InterpreterOptions& options = {});

}  // namespace etch
