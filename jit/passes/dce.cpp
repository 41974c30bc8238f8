// Dead code.
#include <vector>

#include "jit/passes.h"

namespace etch::jit {

Graph eliminate_dead_code(Graph graph) {
  std::vector<bool> needed(graph.buffers.size());
  for (size_t b = 0; b < needed.size(); ++b) needed[b] = graph.buffers[b].kind != GraphBuffer::Kind::Internal;
  std::vector<bool> alive(graph.nodes.size());
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    for (const GraphOperand& output : node.outputs) alive[i] = alive[i] || needed[output.buffer];
    if (!alive[i]) continue;
    for (const GraphOperand& input : node.inputs)
      if (input.is_tensor()) needed[input.buffer] = true;
  }
  size_t kept = 0;
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    if (alive[i]) {
      if (kept != i) graph.nodes[kept] = std::move(graph.nodes[i]);
      ++kept;
    }
  graph.nodes.resize(kept);
  return graph;
}

}  // namespace etch::jit
