// What the shape rules of single rows work on; inside tracer/ only.
#pragma once

#include <string>

#include "runtime/error.h"
#include "tracer/attrs.h"
#include "tracer/op.h"

namespace etch::shape_rules {

/// One call of infer(): operands in, specs out.
struct Inference {
  Op op;
  std::span<const Operand> inputs;
  const Attrs& attrs;
  DType given;
  OutputSpec* outputs;

  std::string_view name() const { return etch::name(op); }
  const Geometry& geometry(int i) const { return *inputs[i].geometry; }
  const Dims& sizes(int i) const { return inputs[i].geometry->sizes; }
  DType dtype(int i) const { return inputs[i].dtype; }
  /// Throws unless operand i is a tensor (or a scalar).
  void need_tensor(int i, std::string_view what) const;
  void need_scalar(int i, std::string_view what) const;
  /// Throws ShapeError unless operand i has `ndim` dimensions (or exactly these sizes).
  void need_ndim(int i, int ndim, std::string_view what) const;
  void need_sizes(int i, const Dims& expected, std::string_view what) const;
  /// Throws DTypeError unless operand i is of that dtype, or floating.
  void need_dtype(int i, DType expected, std::string_view what) const;
  void need_floating(int i, std::string_view what) const;
  /// Describes output i as a fresh tensor, or as the operand it overwrites.
  void give(int i, const Dims& sizes, const Dims& strides, DType dtype) const {
    outputs[i] = {{sizes, strides}, dtype};
  }
  void give_contiguous(int i, const Dims& sizes, DType dtype) const {
    give(i, sizes, contiguous_strides(sizes), dtype);
  }
  void give_like(int i, int operand, DType dtype) const;
  void give_operand(int i) const;
};

/// Strides of a fresh tensor of the sizes and memory order of `like`; contiguous if `like` is broadcast.
Dims strides_like(const Geometry& like);

// One rule a row.
#define ETCH_OP(name, ...) void infer_##name(const Inference& call);
#define ETCH_COMPOSITE(name, ...) void infer_##name(const Inference& call);
#include "tracer/ops.def"

}  // namespace etch::shape_rules
