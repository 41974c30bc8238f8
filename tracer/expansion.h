// Formulas over values that append nodes to a graph: what composites.cpp is written in. Inside tracer/ only.
#pragma once

#include <initializer_list>

#include "tracer/graph.h"

namespace etch {

class Expansion;

/// A window of a graph's buffer, or a scalar. Arithmetic on it appends a node; a C++ number is a constant
/// scalar.
struct Value {
  Expansion* expansion = nullptr;
  GraphOperand operand;

  Value(double number);
  Value(Expansion* owner, GraphOperand window) : expansion(owner), operand(std::move(window)) {}
  int ndim() const { return operand.geometry.ndim(); }
  int64_t size(int axis) const { return operand.geometry.sizes[axis]; }
};

class Expansion {
 public:
  Expansion(const Node& node, Graph& graph) : node_(node), graph_(graph) {}

  /// Operand i of the composite; f16 and bf16 tensors are first copied to f32.
  Value in(int i);
  /// Operand i as it is, for index operands.
  Value raw(int i) { return {this, node_.inputs[i]}; }
  const Attrs& attrs() const { return node_.attrs; }

  /// Appends a node; `given` as in infer().
  Value apply(Op op, std::initializer_list<Value> inputs, const Attrs& attrs = {}, DType given = DType::F32);
  /// Makes the value just computed output i of the composite, through a copy where the dtypes differ. Returns
  /// the value to go on with: the output, or the wider value before the copy.
  Value store(int i, Value value);

 private:
  GraphOperand fresh(const OutputSpec& spec);

  const Node& node_;
  Graph& graph_;
};

Value operator+(Value a, Value b);
Value operator-(Value a, Value b);
Value operator*(Value a, Value b);
Value operator/(Value a, Value b);
Value eq(Value a, Value b);
Value maximum(Value a, Value b);
Value exp(Value a);
Value log(Value a);
Value sqrt(Value a);
Value rsqrt(Value a);
Value square(Value a);
Value isfinite(Value a);
Value where(Value condition, Value a, Value b);
Value cast(Value a, DType dtype);
/// Reductions over a mask of axes; the axes stay with size 1.
Value sum(Value a, uint64_t axes);
Value amax(Value a, uint64_t axes);
/// The first `count` of axis 0.
Value first(Value a, int64_t count);
/// A new axis of size 1.
Value unsqueeze(Value a, int axis);
/// [C] as [C, 1, ..], to broadcast along axis 1 of `ndim` dimensions.
Value along_channels(Value a, int ndim);

}  // namespace etch
