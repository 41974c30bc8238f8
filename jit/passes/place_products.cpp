// Products whose only use is a copy of all of them, as heads are put side by side again, are made in the
// copy's place.
#include <algorithm>
#include <optional>

#include "eager/cpu/contractions.h"
#include "jit/graph_facts.h"
#include "jit/passes.h"

namespace etch::jit {
namespace {

/// The product's elements come out the same wherever they are stored.
bool ignores_layout(const Node& product) {
  if (!product.inputs[0].is_tensor() || !product.inputs[1].is_tensor()) return false;
  const Operand inputs[2] = {describe(product.inputs[0]), describe(product.inputs[1])};
  const Operand output = describe(product.outputs[0]);
  return cpu::product_ignores_layout({product.op, inputs, {&output, 1}, product.attrs});
}

/// The window of the copy's target in which the product's elements, with the sizes of `product`, end up.
std::optional<GraphOperand> place_of(const GraphOperand& product, const Node& copy) {
  const GraphOperand& source = copy.inputs[0];
  GraphOperand place = copy.outputs[0];
  const Geometry from = source.geometry, to = place.geometry;
  if (source.dtype != place.dtype || source.dtype != product.dtype || source.offset != product.offset ||
      source.slot >= 0 || product.slot >= 0 || from.sizes != to.sizes ||
      from.ndim() != product.geometry.ndim())
    return std::nullopt;
  place.geometry = product.geometry;
  std::vector<bool> taken(from.ndim(), false);
  for (int d = 0; d < product.geometry.ndim(); ++d) {
    int match = -1;
    for (int e = 0; e < from.ndim(); ++e)
      if (!taken[e] && from.sizes[e] == product.geometry.sizes[d] &&
          (from.sizes[e] == 1 || from.strides[e] == product.geometry.strides[d]))
        match = e;
    if (match < 0) return std::nullopt;
    taken[match] = true;
    place.geometry.strides[d] = to.strides[match];
  }
  return place;
}

}  // namespace

Graph place_products(Graph graph) {
  if (graph.device.type != DeviceType::Cpu) return graph;
  const std::vector<BufferFacts> facts = buffer_facts(graph);
  std::vector<bool> gone(graph.nodes.size(), false);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& product = graph.nodes[i];
    if (product.op != Op::matmul) continue;
    const int buffer = product.outputs[0].buffer;
    const BufferFacts& f = facts[buffer];
    if (graph.buffers[buffer].kind != GraphBuffer::Kind::Internal || !f.value || f.readers.size() != 1)
      continue;
    const int reader = f.readers.front();
    const Node& copy = graph.nodes[reader];
    // A value is touched by nothing before the copy, so it may be made earlier.
    if (copy.op != Op::copy || graph.buffers[copy.outputs[0].buffer].kind != GraphBuffer::Kind::Internal ||
        !facts[copy.outputs[0].buffer].value)
      continue;
    const std::optional<GraphOperand> place = place_of(product.outputs[0], copy);
    if (!place) continue;
    Node placed = product;
    placed.outputs[0] = *place;
    if (!ignores_layout(product) || !ignores_layout(placed)) continue;
    graph.nodes[i] = std::move(placed);
    gone[reader] = true;
  }
  std::vector<Node> nodes;
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    if (!gone[i]) nodes.push_back(std::move(graph.nodes[i]));
  graph.nodes = std::move(nodes);
  return graph;
}

}  // namespace etch::jit
