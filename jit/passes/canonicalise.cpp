// Plain copies and fills that their readers can do without.
#include <algorithm>
#include <vector>

#include "jit/graph_facts.h"
#include "jit/passes.h"

namespace etch::jit {
namespace {

/// The window whose elements the pointwise reader's operand holds, if it reads exactly what the copy wrote.
bool forward_source(const Node& copy, GraphOperand& operand) {
  const GraphOperand& source = copy.inputs[0];
  const GraphOperand& target = copy.outputs[0];
  if (source.dtype != operand.dtype || !(operand.geometry == target.geometry)) return false;
  GraphOperand window = source;
  window.geometry = broadcast_to(source.geometry, target.geometry.sizes);
  operand = window;
  return true;
}

/// A scalar can take the place of a tensor operand if what is left fixes the dtype and sizes.
bool forward_scalar(const Node& fill, Node& reader, size_t at) {
  const GraphOperand& scalar = fill.inputs[0];
  const DType dtype = fill.outputs[0].dtype;
  if (dtype != DType::F32 && dtype != DType::F64 && dtype != DType::I64) return false;
  if (scalar.scalar.kind() == Scalar::Kind::Float ? !is_floating(dtype) : scalar.dtype == DType::Bool)
    return false;
  const DTypeRule rule = info(reader.op).rule;
  if (info(reader.op).kind != OpKind::Pointwise || (rule == DTypeRule::Where && at == 0) ||
      rule == DTypeRule::Cast || rule == DTypeRule::Given)
    return false;
  const Dims& sizes = reader.outputs[0].geometry.sizes;
  bool fixed = false;
  for (size_t i = 0; i < reader.inputs.size(); ++i) {
    const GraphOperand& other = reader.inputs[i];
    fixed |= i != at && !(rule == DTypeRule::Where && i == 0) && other.is_tensor() && other.dtype == dtype &&
             other.geometry.sizes == sizes;
  }
  if (!fixed) return false;
  reader.inputs[at] = scalar;
  reader.inputs[at].dtype = dtype;
  return true;
}

}  // namespace

Graph canonicalise(Graph graph) {
  const std::vector<BufferFacts> facts = buffer_facts(graph);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (node.op != Op::copy || !facts[node.outputs[0].buffer].value) continue;
    const GraphOperand& source = node.inputs[0];
    const BufferFacts& target = facts[node.outputs[0].buffer];
    if (source.is_tensor() && source.dtype != node.outputs[0].dtype) continue;
    for (int r : target.readers) {
      Node& reader = graph.nodes[r];
      // Only where the memory order of an operand cannot matter: reductions and contractions follow it.
      if (!is_pointwise(reader)) continue;
      if (source.is_tensor()) {
        // Nothing writes the source between the copy and this reader, nor does the reader itself.
        const std::vector<int>& writers = facts[source.buffer].writers;
        auto next = std::upper_bound(writers.begin(), writers.end(), static_cast<int>(i));
        if (next != writers.end() && *next <= r) continue;
      }
      for (size_t at = 0; at < reader.inputs.size(); ++at) {
        GraphOperand& operand = reader.inputs[at];
        if (!operand.is_tensor() || operand.buffer != node.outputs[0].buffer) continue;
        if (source.is_tensor())
          forward_source(node, operand);
        else
          forward_scalar(node, reader, at);
      }
    }
  }
  return eliminate_dead_code(std::move(graph));
}

}  // namespace etch::jit
