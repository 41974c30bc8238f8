// Samples of generators and reductions.
#include <limits>

#include "tests/support/op_samples.h"
#include "tracer/attrs.h"

namespace etch::testing {

namespace {
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr DType kBool = DType::Bool;

Attrs reduce(std::initializer_list<int> axes, bool keepdim = false) {
  uint64_t mask = 0;
  for (int axis : axes) mask |= uint64_t{1} << axis;
  return ReductionAttrs(mask, keepdim).pack();
}

// Seed 42, offset 7: see op_sample_values.py.
OpSample random(Op op, std::vector<SampleOperand> operands, std::vector<double> expected, double tolerance) {
  operands.insert(operands.begin(), {Scalar(42), Scalar(7)});
  return {op, std::move(operands), {f32(std::move(expected))}, pack_sizes({6}), tolerance};
}
}  // namespace

std::vector<OpSample> reduction_samples() {
  const Values matrix = f32({2, 3}, {1, -2, 3, 4, 5.5, -6});
  return {
      {Op::arange, {2.0, 0.5}, {f32({2, 2.5, 3, 3.5})}, pack_sizes({4})},
      {Op::arange, {10, -3}, {i64({10, 7, 4})}, pack_sizes({3}), 0, Check::Smooth, DType::I64},
      random(Op::uniform, {},
             {0.358360469341, 0.408085584641, 0.090338170528, 0.181327164173, 0.548009037971, 0.134361922741},
             1e-11),
      random(Op::normal, {},
             {-1.200289515717, 0.782135889045, 0.917072582897, 1.991825031961, 0.728606032712, 0.81979267538},
             1e-6),
      random(Op::bernoulli, {0.4}, {1, 0, 1, 1, 0, 1}, 0),
      {Op::dropout,
       {f32({1, 2, 3, 4, 5, 6}), 42, 7, 0.25},
       {f32({1.333333333333, 2.666666666667, 0, 0, 6.666666666667, 0})},
       {},
       5e-7},

      {Op::sum, {matrix}, {f32({}, {5.5})}, reduce({0, 1})},
      {Op::sum, {matrix}, {f32({2, 3.5})}, reduce({1})},
      {Op::sum, {matrix}, {f32({1, 3}, {5, 3.5, -3})}, reduce({0}, true)},
      {Op::sum, {i64({2, 2}, {1, 2, 3, 4})}, {i64({4, 6})}, reduce({0})},
      {Op::sum, {of(kBool, {1, 0, 1})}, {i64({}, {2})}, reduce({0})},
      {Op::sum, {of(DType::F16, {2048, 1, 1})}, {of(DType::F16, {}, {2050})}, reduce({0})},
      {Op::sum, {f32({2, 0}, {})}, {f32({0, 0})}, reduce({1})},
      {Op::prod, {matrix}, {f32({-6, -132})}, reduce({1})},
      {Op::prod, {i64({0}, {})}, {i64({}, {1})}, reduce({0})},
      {Op::amax, {matrix}, {f32({3, 5.5})}, reduce({1})},
      {Op::amax, {f32({2, 2}, {1, kNan, -kInf, -kInf})}, {f32({kNan, -kInf})}, reduce({1}), 0, Check::Values},
      {Op::amax, {i64({3, -9, 2})}, {i64({}, {3})}, reduce({0})},
      {Op::amin, {matrix}, {f32({1, 3}, {1, -2, -6})}, reduce({0}, true)},
      {Op::amin, {f32({2, 2}, {1, kNan, kInf, kInf})}, {f32({kNan, kInf})}, reduce({1}), 0, Check::Values},
      {Op::any, {of(kBool, {2, 2}, {0, 1, 0, 0})}, {of(kBool, {1, 0})}, reduce({1})},
      {Op::any, {of(kBool, {0}, {})}, {of(kBool, {}, {0})}, reduce({0})},
      {Op::all, {of(kBool, {2, 2}, {1, 1, 0, 1})}, {of(kBool, {1, 0})}, reduce({1})},
      {Op::all, {of(kBool, {0}, {})}, {of(kBool, {}, {1})}, reduce({0})},
      {Op::argmax, {f32({2, 3}, {1, 7, 7, 4, 5.5, -6})}, {i64({1, 1})}, reduce({1})},
      {Op::argmax, {f32({2, 3}, {1, 7, 7, 4, 9, -6})}, {i64({}, {4})}, reduce({0, 1})},
      {Op::argmax, {f32({5, kNan, 9, kNan})}, {i64({}, {1})}, reduce({0})},
      {Op::argmin, {f32({2, 3}, {1, 7, 7, 4, 5.5, -6})}, {i64({1, 3}, {0, 1, 1})}, reduce({0}, true)},
      {Op::argmin, {i64({3, -2, -2})}, {i64({}, {1})}, reduce({0})},
  };
}

}  // namespace etch::testing
