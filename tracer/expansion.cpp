// Appending nodes to a graph by formulas.
#include "tracer/expansion.h"

#include <array>
#include <utility>

#include "runtime/error.h"
#include "tracer/attrs.h"

namespace etch {
namespace {

/// The operand for infer(); it borrows the geometry.
Operand described(const GraphOperand& from) {
  Operand operand;
  operand.dtype = from.dtype;
  operand.scalar = from.scalar;
  operand.present = from.kind != GraphOperand::Kind::Absent;
  if (from.is_tensor()) operand.geometry = &from.geometry;
  return operand;
}

/// The same elements with sizes that differ in dimensions of size 1 only.
Geometry with_ones(const Geometry& from, const Dims& sizes) {
  Geometry to{sizes, Dims::filled(sizes.size(), 1)};
  int at = 0;
  for (int i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 1) continue;
    while (at < from.ndim() && from.sizes[at] == 1) ++at;
    ETCH_INVARIANT(at < from.ndim() && from.sizes[at] == sizes[i]);
    to.strides[i] = from.strides[at++];
  }
  return to;
}

Expansion* owner(const Value& a, const Value& b) { return a.expansion ? a.expansion : b.expansion; }

}  // namespace

Value::Value(double number) {
  operand.kind = GraphOperand::Kind::Scalar;
  operand.scalar = number;
}

GraphOperand Expansion::fresh(const OutputSpec& spec) {
  GraphOperand operand;
  operand.kind = GraphOperand::Kind::Tensor;
  operand.dtype = spec.dtype;
  operand.geometry = spec.geometry;
  const int64_t bytes = spec.geometry.numel() * static_cast<int64_t>(item_size(spec.dtype));
  operand.buffer = graph_.add_buffer(GraphBuffer::Kind::Internal, bytes);
  return operand;
}

Value Expansion::in(int i) {
  const GraphOperand& operand = node_.inputs[i];
  const Value value{this, operand};
  if (!operand.is_tensor() || compute_dtype(operand.dtype) == operand.dtype) return value;
  return cast(value, compute_dtype(operand.dtype));
}

Value Expansion::apply(Op op, std::initializer_list<Value> inputs, const Attrs& attrs, DType given) {
  Node node{op, attrs, {}, {}, nullptr};
  std::array<Operand, kMaxInputs> operands;
  for (const Value& input : inputs) node.inputs.push_back(input.operand);
  for (size_t i = 0; i < node.inputs.size(); ++i) operands[i] = described(node.inputs[i]);
  const std::span<const Operand> span(operands.data(), node.inputs.size());
  if (info(op).kind == OpKind::Pointwise)
    for (GraphOperand& input : node.inputs)
      if (input.is_scalar()) input.dtype = compute_dtype(operand_dtype(op, span));
  std::array<OutputSpec, kMaxOutputs> specs;
  infer(op, span, attrs, given, specs.data());
  node.outputs.push_back(fresh(specs[0]));
  graph_.nodes.push_back(std::move(node));
  return {this, graph_.nodes.back().outputs[0]};
}

Value Expansion::store(int i, Value value) {
  GraphOperand output = node_.outputs[i];
  output.geometry = with_ones(output.geometry, value.operand.geometry.sizes);
  GraphOperand* last = &graph_.nodes.back().outputs[0];
  ETCH_INVARIANT(last->buffer == value.operand.buffer &&
                 last->buffer + 1 == static_cast<int>(graph_.buffers.size()));
  if (last->dtype != output.dtype) {
    cast(value, output.dtype);
    graph_.buffers.pop_back();
    graph_.nodes.back().outputs[0] = output;
    return value;
  }
  graph_.buffers.pop_back();
  *last = output;
  return {this, output};
}

#define ETCH_BINARY(function, op) \
  Value function(Value a, Value b) { return owner(a, b)->apply(Op::op, {a, b}); }
#define ETCH_UNARY(function) \
  Value function(Value a) { return a.expansion->apply(Op::function, {a}); }
ETCH_BINARY(operator+, add)
ETCH_BINARY(operator-, sub)
ETCH_BINARY(operator*, mul)
ETCH_BINARY(operator/, div)
ETCH_BINARY(eq, eq)
ETCH_BINARY(maximum, maximum)
ETCH_UNARY(exp)
ETCH_UNARY(log)
ETCH_UNARY(sqrt)
ETCH_UNARY(rsqrt)
ETCH_UNARY(square)
ETCH_UNARY(isfinite)
#undef ETCH_BINARY
#undef ETCH_UNARY

Value where(Value condition, Value a, Value b) {
  return condition.expansion->apply(Op::where, {condition, a, b});
}
Value cast(Value a, DType dtype) { return a.expansion->apply(Op::copy, {a}, {}, dtype); }

Value sum(Value a, uint64_t axes) {
  return a.expansion->apply(Op::sum, {a}, ReductionAttrs(axes, true).pack());
}
Value amax(Value a, uint64_t axes) {
  return a.expansion->apply(Op::amax, {a}, ReductionAttrs(axes, true).pack());
}

Value first(Value a, int64_t count) {
  a.operand.geometry.sizes[0] = count;
  return a;
}

Value unsqueeze(Value a, int axis) {
  Geometry& geometry = a.operand.geometry;
  geometry.sizes.insert(axis, 1);
  geometry.strides.insert(axis, 1);
  return a;
}

Value along_channels(Value a, int ndim) {
  while (a.ndim() < ndim - 1) a = unsqueeze(a, a.ndim());
  return a;
}

}  // namespace etch
