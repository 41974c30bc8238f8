// What the interpreter's ops work on: arrays in logical order. Inside tracer/ only.
#pragma once

#include <cstdint>
#include <vector>

#include "tracer/op.h"

namespace etch::interpreter {

/// A number as float64 or int64; which of the two its dtype says.
union Number {
  double f;
  int64_t i;
};

inline double to_double(Number number, DType dtype) {
  return is_floating(dtype) ? number.f : static_cast<double>(number.i);
}
/// In `to`: floating values stay unrounded, integers wrap, floating to integer truncates and clamps.
Number convert(Number number, DType from, DType to);
/// Rounded to a floating dtype; others are unchanged.
Number round(Number number, DType dtype);
Number number_of(const Scalar& scalar, DType dtype);

/// Elements in row-major order of `sizes`.
struct Array {
  DType dtype = DType::F32;
  Dims sizes;
  std::vector<Number> elements;

  static Array filled(DType dtype, const Dims& sizes, Number value = {.i = 0});
  Number& at(const Dims& index) { return elements[position(index)]; }
  Number at(const Dims& index) const { return elements[position(index)]; }
  int64_t position(const Dims& index) const;
};

/// Steps through all indices of `sizes` in row-major order; start with zeros, false at the end.
bool next_index(Dims& index, const Dims& sizes);

/// A call with its operands read. Scalars are 0-d arrays of the dtype they compute in.
struct Call {
  Op op;
  const Attrs& attrs;
  std::vector<Array> inputs;
  std::vector<bool> present;
};

void run_pointwise(const Call& call, Array& output);
void run_generator(const Call& call, Array& output);
void run_reduction(const Call& call, Array& output);
void run_extremum(const Call& call, Array& output);
void run_contraction(const Call& call, Array& output);
void run_window(const Call& call, std::vector<Array>& outputs);
void run_indexing(const Call& call, Array& output);

}  // namespace etch::interpreter
