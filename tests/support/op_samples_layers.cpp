// Samples of contractions, windows and indexing.
#include <limits>

#include "tests/support/op_samples.h"
#include "tracer/attrs.h"

namespace etch::testing {

Values ramp(const Dims& sizes) {
  Values result{DType::F32, sizes, {}};
  for (int64_t i = 0; i < num_elements(sizes); ++i)
    result.values.push_back(static_cast<double>(7 * i % 10) * 0.25 - 1);
  return result;
}

namespace {
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Attrs conv(std::array<int64_t, 2> sizes = {}) {
  ConvAttrs attrs;
  attrs.stride[0] = 2;
  attrs.padding[0] = 1;
  attrs.padding[1] = 2;
  attrs.dilation[1] = 2;
  attrs.groups = 2;
  attrs.sizes[0] = sizes[0];
  attrs.sizes[1] = sizes[1];
  return attrs.pack();
}

// Windows of 2 x 2 by steps of 2, with one row of padding above and below.
Attrs pool(std::array<int64_t, 2> sizes = {}) {
  PoolAttrs attrs;
  for (int i = 0; i < 2; ++i) {
    attrs.kernel[i] = attrs.stride[i] = 2;
    attrs.sizes[i] = sizes[i];
  }
  attrs.padding[0] = 1;
  return attrs.pack();
}
}  // namespace

std::vector<OpSample> layer_samples() {
  const Values picture = f32({1, 1, 2, 4}, {1, 2, 3, 4, 8, 7, 6, 5});
  const Attrs rows = AxisAttrs(0).pack(), columns = AxisAttrs(1).pack();
  return {
      {Op::matmul,
       {f32({2, 3}, {1, 2, 3, 4, 5, 6}), f32({3, 2}, {1, 0, -1, 2, 0.5, 1})},
       {f32({2, 2}, {0.5, 7, 2, 16})}},
      {Op::matmul,
       {ramp({2, 3, 4}), ramp({4, 2})},
       {f32({2, 3, 2}, {1.375, -2.25, -2.125, 2, -1.875, 1.25, 0.875, 1.125, 1.125, -1.5, 1.375, -2.25})},
       {},
       1e-6},
      {Op::matmul, {i64({1, 2}, {3, 4}), i64({2, 1}, {5, 6})}, {i64({1, 1}, {39})}},
      {Op::matmul, {f32({2, 0}, {}), f32({0, 2}, {})}, {f32({2, 2}, {0, 0, 0, 0})}},
      {Op::conv2d,
       {ramp({1, 2, 3, 3}), ramp({1, 2, 2, 2}), Absent()},
       {f32({1, 1, 2, 2}, {-0.625, -0.125, -0.375, 0.125})},
       ConvAttrs().pack(),
       1e-6},
      {Op::conv2d,
       {ramp({1, 4, 4, 3}), ramp({4, 2, 2, 2}), f32({0, 0.25, 0.5, 0.75})},
       {f32({1, 4, 3, 5},
            {0.75,   -1.5,   1.25,   0.375,  -0.5,  0.5,   -0.625, -0.375, -1.375, 1.5,    0,    -0.75,
             1.375,  1,      -1.5,   -0.5,   0.625, 1.5,   -1.25,  1.25,   0,      1.25,   0,    -0.75,
             -1.125, -0.25,  0.5,    0.5,    -0.25, 0.625, 0.625,  -0.5,   0.75,   0.625,  0.25, 2.125,
             0.75,   -0.875, 1.625,  -0.125, -0.25, 1.375, 1.875,  0.5,    -0.875, 1.625,  2,    0.5,
             -0.625, 0.5,    -0.125, 1.5,    2.875, 1.125, -0.125, 0.5,    1.125,  -0.125, 1.5,  1.625})},
       conv(),
       1e-6},
      {Op::conv2d_input_grad,
       {ramp({1, 4, 3, 5}), ramp({4, 2, 2, 2})},
       {f32({1, 4, 4, 3},
            {-0.3125, -1.4375, 1.1875,  -0.8125, -1.4375, 1.6875,  -0.9375, 1.6875,  -1.9375, -0.1875,
             1.6875,  -1.4375, 0.0625,  1.6875,  -0.4375, 2.0625,  -0.1875, 0.0625,  -0.5625, -1.4375,
             2.6875,  -0.4375, -0.1875, 0.0625,  -0.0625, -1.4375, 2.1875,  -0.5625, -1.4375, 2.6875,
             -0.6875, 1.6875,  -0.9375, 0.0625,  1.6875,  -0.4375, -0.3125, -1.4375, 1.1875,  -0.8125,
             -1.4375, 1.6875,  -0.9375, 1.6875,  -1.9375, -0.1875, 1.6875,  -1.4375})},
       conv({4, 3}),
       1e-6},
      {Op::conv2d_weight_grad,
       {ramp({1, 4, 3, 5}), ramp({1, 4, 4, 3})},
       {f32({4, 2, 2, 2},
            {1,       -0.875, -0.6875, 1.4375,  -1,     1.125,  2.3125, -1.5625, -1.5,    2.875,  -1.3125,
             0.8125,  2.75,   -1.375,  -1.4375, 0.9375, 1.375,  1.25,   -1.5625, -1.4375, 0.625,  0.75,
             -1.0625, 3.0625, -1.125,  -1.25,   0.9375, 1.0625, 1.25,   1.375,   1.4375,  -0.6875})},
       conv({2, 2}),
       1e-6},
      {Op::max_pool2d, {picture}, {f32({1, 1, 2, 2}, {2, 4, 8, 6}), i64({1, 1, 2, 2}, {1, 3, 4, 6})}, pool()},
      {Op::max_pool2d,
       {f32({1, 1, 2, 2}, {3, 3, kNan, 1})},
       {f32({1, 1, 2, 1}, {3, kNan}), i64({1, 1, 2, 1}, {0, 2})},
       pool(),
       0,
       Check::Values},
      {Op::max_pool2d_grad,
       {f32({1, 1, 2, 2}, {10, 20, 30, 40}), i64({1, 1, 2, 2}, {1, 3, 4, 6})},
       {f32({1, 1, 2, 4}, {0, 10, 0, 20, 30, 0, 40, 0})},
       pool({2, 4})},
      {Op::avg_pool2d, {picture}, {f32({1, 1, 2, 2}, {0.75, 1.75, 3.75, 2.75})}, pool()},
      {Op::avg_pool2d_grad,
       {f32({1, 1, 2, 2}, {4, 8, 12, 16})},
       {f32({1, 1, 2, 4}, {1, 1, 2, 2, 3, 3, 4, 4})},
       pool({2, 4})},
      {Op::index_select,
       {f32({3, 2}, {1, 2, 3, 4, 5, 6}), i64({2, 0, 2})},
       {f32({3, 2}, {5, 6, 1, 2, 5, 6})},
       rows},
      {Op::index_select, {i64({2, 2}, {1, 2, 3, 4}), i64({1})}, {i64({2, 1}, {2, 4})}, columns},
      {Op::index_add,
       {f32({3, 2}, {1, 2, 3, 4, 5, 6}), i64({2, 0, 2}), f32({3, 2}, {10, 20, 30, 40, 50, 60})},
       {f32({3, 2}, {31, 42, 3, 4, 65, 86})},
       rows},
      {Op::gather,
       {f32({2, 3}, {1, 2, 3, 4, 5, 6}), i64({2, 2}, {2, 0, 1, 1})},
       {f32({2, 2}, {3, 1, 5, 5})},
       columns},
      {Op::scatter_add,
       {f32({2, 3}, {1, 2, 3, 4, 5, 6}), i64({2, 2}, {2, 0, 1, 1}), f32({2, 2}, {10, 20, 30, 40})},
       {f32({2, 3}, {21, 2, 13, 4, 75, 6})},
       columns},
  };
}

}  // namespace etch::testing
