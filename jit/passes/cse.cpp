// Common subexpressions.
#include <bit>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "jit/graph_facts.h"
#include "jit/passes.h"

namespace etch::jit {
namespace {

/// A node's value as bytes: equal keys, equal results.
class Key {
 public:
  template <class T>
  void add(T value) {
    text_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  void add(const Dims& dims) {
    add(dims.size());
    for (int64_t value : dims) add(value);
  }
  void add(const GraphOperand& operand, int version) {
    add(operand.kind);
    if (operand.kind == GraphOperand::Kind::Absent) return;
    add(operand.dtype);
    add(operand.slot);
    if (operand.is_scalar()) {
      add(operand.scalar.kind());
      if (operand.slot < 0 && operand.scalar.kind() == Scalar::Kind::Float)
        add(std::bit_cast<int64_t>(operand.scalar.to_double()));
      else if (operand.slot < 0)
        add(operand.scalar.to_int());
      return;
    }
    add(operand.buffer);
    add(version);
    add(operand.offset);
    add(operand.geometry.sizes);
    add(operand.geometry.strides);
  }
  std::string&& take() { return std::move(text_); }

 private:
  std::string text_;
};

}  // namespace

Graph merge_common(Graph graph) {
  const std::vector<BufferFacts> facts = buffer_facts(graph);
  std::vector<int> version(graph.buffers.size(), 0);
  std::vector<int> renamed(graph.buffers.size());
  for (size_t b = 0; b < renamed.size(); ++b) renamed[b] = static_cast<int>(b);
  std::unordered_map<std::string, size_t> seen;
  size_t kept = 0;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    Node& node = graph.nodes[i];
    for (GraphOperand& input : node.inputs)
      if (input.is_tensor()) input.buffer = renamed[input.buffer];

    bool mergeable = !node.group && !(info(node.op).flags & kRandom) && checked_operand(node) < 0;
    for (const GraphOperand& output : node.outputs) mergeable = mergeable && facts[output.buffer].value;
    if (mergeable) {
      Key key;
      key.add(node.op);
      key.add(node.attrs.count);
      for (int a = 0; a < node.attrs.count; ++a) key.add(node.attrs[a]);
      for (const GraphOperand& input : node.inputs)
        key.add(input, input.is_tensor() ? version[input.buffer] : 0);
      for (const GraphOperand& output : node.outputs) {
        key.add(output.dtype);
        key.add(output.geometry.sizes);
        key.add(output.geometry.strides);
      }
      auto [found, fresh] = seen.try_emplace(key.take(), kept);
      if (!fresh) {
        // A value that outlives the call needs memory of its own.
        bool internal = true;
        for (const GraphOperand& output : node.outputs)
          internal = internal && graph.buffers[output.buffer].kind == GraphBuffer::Kind::Internal;
        if (internal) {
          const Node& first = graph.nodes[found->second];
          for (size_t o = 0; o < node.outputs.size(); ++o)
            renamed[node.outputs[o].buffer] = first.outputs[o].buffer;
          continue;
        }
      }
    }
    for (const GraphOperand& output : node.outputs) ++version[output.buffer];
    if (kept != i) graph.nodes[kept] = std::move(node);
    ++kept;
  }
  graph.nodes.resize(kept);
  return graph;
}

}  // namespace etch::jit
