// The text form of graphs, and Graphviz.
//
//   graph cpu slots 5
//   buffer %0 external 24 #0              kind, bytes, number in the stream if it has one
//   buffer %1 output 24
//   mul(%0:f32[2,3]{3,1}+6@0, f32=2.5) -> %1:f32[2,3]{3,1}
//   sum<1,0>(..) -> ..                    attributes in angle brackets
//   fused(..) -> .. {
//     add(..) -> ..
//   }
//
// A window is %buffer:dtype[sizes]{strides}, then +offset in elements and @slot where they are not none. A
// scalar is dtype=value (true, 7, 2.5: the value tells the kind) or dtype@slot; an absent operand is _.
#include <cmath>
#include <cstdio>
#include <map>

#include "tracer/graph.h"

namespace etch {
namespace {

std::string list(const int64_t* values, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    if (i) text += ',';
    text += std::to_string(values[i]);
  }
  return text;
}

/// Reads back as the same kind and the same double.
std::string scalar_text(const Scalar& scalar) {
  if (scalar.kind() == Scalar::Kind::Bool) return scalar.to_bool() ? "true" : "false";
  if (scalar.kind() == Scalar::Kind::Int) return std::to_string(scalar.to_int());
  const double value = scalar.to_double();
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[40];
  for (int digits = 1; digits <= 17; ++digits) {
    std::snprintf(buffer, sizeof buffer, "%.*g", digits, value);
    if (std::strtod(buffer, nullptr) == value) break;
  }
  std::string text = buffer;
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string window_text(const GraphOperand& operand) {
  const Geometry& geometry = operand.geometry;
  std::string text = "%" + std::to_string(operand.buffer) + ":" + std::string(name(operand.dtype)) + "[" +
                     list(geometry.sizes.data(), geometry.ndim()) + "]{" +
                     list(geometry.strides.data(), geometry.ndim()) + "}";
  if (operand.offset) text += "+" + std::to_string(operand.offset);
  if (operand.slot >= 0) text += "@" + std::to_string(operand.slot);
  return text;
}

std::string operand_text(const GraphOperand& operand) {
  switch (operand.kind) {
    case GraphOperand::Kind::Tensor:
      return window_text(operand);
    case GraphOperand::Kind::Scalar: {
      const std::string dtype(name(operand.dtype));
      return operand.slot >= 0 ? dtype + "@" + std::to_string(operand.slot)
                               : dtype + "=" + scalar_text(operand.scalar);
    }
    case GraphOperand::Kind::Absent:
      break;
  }
  return "_";
}

std::string operands_text(const std::vector<GraphOperand>& operands) {
  std::string text;
  for (const GraphOperand& operand : operands) {
    if (!text.empty()) text += ", ";
    text += operand_text(operand);
  }
  return text;
}

std::string head_text(const Node& node) {
  std::string text(name(node.op));
  if (node.attrs.count) text += "<" + list(node.attrs.values.data(), node.attrs.count) + ">";
  return text;
}

std::string node_text(const Node& node, const std::string& indent) {
  std::string text =
      indent + head_text(node) + "(" + operands_text(node.inputs) + ") -> " + operands_text(node.outputs);
  if (node.group) {
    text += " {\n";
    for (const Node& inner : node.group->body) text += node_text(inner, indent + "  ");
    text += indent + "}";
  }
  return text + "\n";
}

std::string_view kind_text(GraphBuffer::Kind kind) {
  return kind == GraphBuffer::Kind::External ? "external"
         : kind == GraphBuffer::Kind::Output ? "output"
                                             : "internal";
}

}  // namespace

std::string print(const Graph& graph) {
  std::string text = "graph " + to_string(graph.device) + " slots " + std::to_string(graph.num_slots) + "\n";
  for (size_t i = 0; i < graph.buffers.size(); ++i) {
    const GraphBuffer& buffer = graph.buffers[i];
    text += "buffer %" + std::to_string(i) + " " + std::string(kind_text(buffer.kind)) + " " +
            std::to_string(buffer.bytes);
    if (buffer.number >= 0) text += " #" + std::to_string(buffer.number);
    text += "\n";
  }
  for (const Node& node : graph.nodes) text += node_text(node, "");
  return text;
}

std::string print_dot(const Graph& graph) {
  std::string text = "digraph graph_ {\n  node [shape=box, fontname=monospace];\n";
  std::map<int, std::string> writer;  // of each buffer, so far
  for (size_t i = 0; i < graph.buffers.size(); ++i) {
    if (graph.buffers[i].kind != GraphBuffer::Kind::External) continue;
    const std::string id = "b" + std::to_string(i);
    text += "  " + id + " [label=\"%" + std::to_string(i) + "\", shape=ellipse];\n";
    writer[static_cast<int>(i)] = id;
  }
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    const std::string id = "n" + std::to_string(i);
    std::string label = head_text(node);
    if (node.group)
      for (const Node& inner : node.group->body) label += "\\n" + head_text(inner);
    text += "  " + id + " [label=\"" + label + "\"];\n";
    for (const GraphOperand& input : node.inputs)
      if (input.is_tensor() && writer.count(input.buffer))
        text += "  " + writer[input.buffer] + " -> " + id + " [label=\"" + window_text(input) + "\"];\n";
    for (const GraphOperand& output : node.outputs) writer[output.buffer] = id;
  }
  for (size_t i = 0; i < graph.buffers.size(); ++i) {
    const int buffer = static_cast<int>(i);
    if (graph.buffers[i].kind != GraphBuffer::Kind::Output || !writer.count(buffer)) continue;
    const std::string id = "o" + std::to_string(i);
    text += "  " + id + " [label=\"%" + std::to_string(i) + "\", shape=ellipse, style=bold];\n";
    text += "  " + writer[buffer] + " -> " + id + ";\n";
  }
  return text + "}\n";
}

}  // namespace etch
