// Fixed offsets, and buffers that are overwritten in full.
#include <algorithm>
#include <vector>

#include "jit/graph_facts.h"
#include "jit/passes.h"

namespace etch::jit {

Graph fix_offsets(Graph graph) {
  auto fix = [&](GraphOperand& operand) {
    if (!has_fixed_offset(graph, operand)) return;
    operand.offset = 0;
    operand.slot = -1;
  };
  for (Node& node : graph.nodes) {
    for (GraphOperand& input : node.inputs) fix(input);
    for (GraphOperand& output : node.outputs) fix(output);
  }
  return graph;
}

Graph rename_overwritten(Graph graph) {
  const size_t count = graph.buffers.size();
  // An op that writes windows of its operands in place keeps them, as does one with two windows in a buffer.
  auto starts_version = [&](const Node& node, const GraphOperand& output) {
    if (graph.buffers[output.buffer].kind == GraphBuffer::Kind::External) return false;
    if (node.group || info(node.op).flags & kWritesInputs) return false;
    int windows = 0;
    for (const GraphOperand& other : node.outputs) windows += other.buffer == output.buffer;
    return windows == 1 && covers_buffer(graph, output);
  };

  std::vector<int> versions(count, 0);
  std::vector<bool> touched(count, false);
  for (const Node& node : graph.nodes)
    for (const GraphOperand& output : node.outputs) {
      // The first write of all starts no version: there is nothing before it to part from.
      if (starts_version(node, output) && touched[output.buffer]) ++versions[output.buffer];
      touched[output.buffer] = true;
    }

  // The last version keeps the buffer, and with it the storage of an output.
  std::vector<int> current(count);
  std::vector<int> left = versions;
  std::fill(touched.begin(), touched.end(), false);
  for (size_t b = 0; b < count; ++b) {
    current[b] = static_cast<int>(b);
    if (versions[b] > 0) current[b] = graph.add_buffer(GraphBuffer::Kind::Internal, graph.buffers[b].bytes);
  }
  for (Node& node : graph.nodes) {
    for (GraphOperand& input : node.inputs)
      if (input.is_tensor()) input.buffer = current[input.buffer];
    for (GraphOperand& output : node.outputs) {
      const int b = output.buffer;
      if (versions[b] > 0 && touched[b] && starts_version(node, output)) {
        const bool last = --left[b] == 0;
        current[b] = last ? b : graph.add_buffer(GraphBuffer::Kind::Internal, graph.buffers[b].bytes);
      }
      touched[b] = true;
    }
    for (GraphOperand& output : node.outputs) output.buffer = current[output.buffer];
  }
  return graph;
}

}  // namespace etch::jit
