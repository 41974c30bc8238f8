// What passes ask about a graph: who reads and writes a buffer, and which nodes must keep their order.
#pragma once

#include <cstdint>
#include <vector>

#include "tracer/graph.h"

namespace etch::jit {

/// The accesses of one buffer, as node positions in order, each node once.
struct BufferFacts {
  std::vector<int> writers;
  std::vector<int> readers;
  /// Internal or output, written by one operand of one node, in full, before every read.
  bool value = false;
};
std::vector<BufferFacts> buffer_facts(const Graph& graph);

/// The same elements of the same buffer whatever the slots hold.
bool same_window(const GraphOperand& a, const GraphOperand& b);

/// The operand without address and without what its slot holds. Borrows the geometry.
Operand describe(const GraphOperand& operand);

/// The slot of a window as large as its buffer can only hold zero.
bool has_fixed_offset(const Graph& graph, const GraphOperand& operand);

/// The operand whose data the node checks, or -1: the op checks nothing, or nothing that integers are not.
int checked_operand(const Node& node);
/// The node's data check can be made before the first write of a call: its operand is an external that no
/// node writes, or a scalar.
bool checks_early(const Graph& graph, const std::vector<BufferFacts>& facts, const Node& node);

/// For each node the nodes that must run before and after it, each once, in rising order. A node that may
/// raise when it runs keeps its place among the writes to externals and outputs.
struct Dependences {
  std::vector<std::vector<int>> before;
  std::vector<std::vector<int>> after;
};
Dependences dependences(const Graph& graph, const std::vector<BufferFacts>& facts);

/// Bytes of internal and output buffers alive while each node runs, in-place reuse not counted.
std::vector<int64_t> live_bytes(const Graph& graph);

/// Contractions, windows and indexing: what splits a graph into fused stretches.
bool is_heavy(const Node& node);
/// Pointwise rows and generators: one element of output from one element of each operand.
bool is_pointwise(const Node& node);

}  // namespace etch::jit
