// From a recorded path to its graph.
//
// Slots are operand positions in stream order, the inputs and then the outputs of each op. What a scalar is
// converted to before use: in pointwise rows the dtype they compute in (f32 for f16 and bf16; for `copy` that
// of its output); elsewhere i64 for integers and bools, f64 for floating values, and the element's expression
// casts.
#include <array>

#include "tracer/path.h"

namespace etch {
namespace {

Scalar scalar_of(Scalar::Kind kind) {
  if (kind == Scalar::Kind::Bool) return false;
  if (kind == Scalar::Kind::Int) return int64_t{0};
  return 0.0;
}

DType scalar_dtype(const RecordedOp& op, const RecordedOperand& scalar) {
  if (info(op.op).kind != OpKind::Pointwise)
    return scalar.scalar_kind == Scalar::Kind::Float ? DType::F64 : DType::I64;
  if (op.op == Op::copy) return compute_dtype(op.outputs[0].dtype);
  std::array<Operand, kMaxInputs> operands;
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    operands[i].dtype = op.inputs[i].dtype;
    if (op.inputs[i].kind == RecordedOperand::Kind::Tensor) operands[i].geometry = &op.inputs[i].geometry;
    operands[i].scalar = scalar_of(op.inputs[i].scalar_kind);
  }
  return compute_dtype(operand_dtype(op.op, {operands.data(), op.inputs.size()}));
}

GraphOperand graph_operand(const RecordedOp& op, const RecordedOperand& recorded, int slot) {
  GraphOperand operand;
  if (recorded.kind == RecordedOperand::Kind::Absent) return operand;
  operand.slot = slot;
  if (recorded.kind == RecordedOperand::Kind::Scalar) {
    operand.kind = GraphOperand::Kind::Scalar;
    operand.dtype = scalar_dtype(op, recorded);
    operand.scalar = scalar_of(recorded.scalar_kind);
    return operand;
  }
  operand.kind = GraphOperand::Kind::Tensor;
  operand.dtype = recorded.dtype;
  operand.buffer = recorded.number;
  operand.geometry = recorded.geometry;
  return operand;
}

}  // namespace

Graph build_graph(const Path& path, const LiveSet& live) {
  Graph graph;
  if (!path.storages.empty()) graph.device = path.storages[0].device;
  for (size_t i = 0; i < path.storages.size(); ++i) {
    const RecordedStorage& storage = path.storages[i];
    const bool kept = i < live.size() && live[i];
    const auto kind = storage.external ? GraphBuffer::Kind::External
                      : kept           ? GraphBuffer::Kind::Output
                                       : GraphBuffer::Kind::Internal;
    graph.add_buffer(kind, storage.bytes, static_cast<int>(i));
  }
  int slot = 0;
  for (const RecordedOp* op : path.ops) {
    Node node{op->op, op->attrs, {}, {}, nullptr};
    for (const RecordedOperand& input : op->inputs) node.inputs.push_back(graph_operand(*op, input, slot++));
    for (const RecordedOperand& output : op->outputs)
      node.outputs.push_back(graph_operand(*op, output, slot++));
    graph.nodes.push_back(std::move(node));
  }
  graph.num_slots = slot;
  return graph;
}

}  // namespace etch
