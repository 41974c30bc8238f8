// Tensors written out as numbers, and comparison of tensors with them.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "eager/tensor.h"

namespace etch::testing {

/// A tensor as a test writes it: row-major values, each exact in a double.
struct Values {
  DType dtype = DType::F32;
  Dims sizes;
  std::vector<double> values;

  /// As a fresh tensor, of `dtype` unless another one is asked for.
  Tensor tensor() const { return tensor(dtype); }
  Tensor tensor(DType as) const;
};

/// One dimension.
Values f32(std::vector<double> values);
Values f32(Dims sizes, std::vector<double> values);
Values i64(std::vector<double> values);
Values i64(Dims sizes, std::vector<double> values);
/// Any dtype; one dimension.
Values of(DType dtype, std::vector<double> values);
Values of(DType dtype, Dims sizes, std::vector<double> values);

/// Between -1 and 1, the same for the same seed.
std::vector<float> random_values(int64_t count, unsigned seed);

/// The elements in row-major order. i64 beyond 2^53 loses bits.
std::vector<double> values_of(const Tensor& tensor);

/// Bit equality of the elements, and equal sizes, strides and dtype.
::testing::AssertionResult same_bits(const Tensor& a, const Tensor& b);

/// Equal dtype and sizes; elements within `tolerance` times the larger of 1 and the expected magnitude. NaN
/// matches NaN, an infinity itself, and at tolerance 0 zeros match in sign.
::testing::AssertionResult close_to(const Tensor& actual, const Values& expected, double tolerance = 0);

#define EXPECT_VALUES(actual, ...) EXPECT_TRUE(::etch::testing::close_to(actual, __VA_ARGS__))

/// Reproducible, spread over [low, high], no two equal.
Values spread(const Dims& sizes, double low = -2, double high = 2, uint64_t seed = 1,
              DType dtype = DType::F64);

}  // namespace etch::testing
