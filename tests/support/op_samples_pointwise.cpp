// Samples of the pointwise rows.
#include <cmath>
#include <limits>

#include "tests/support/op_samples.h"

namespace etch::testing {

namespace {
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kF32 = 5e-7;  // a few units in the last place of f32
constexpr DType kBool = DType::Bool;

// Comparisons see NaN, equal and ordered pairs.
OpSample comparison(Op op, std::vector<double> expected) {
  return {op,
          {f32({1, 2, 3, kNan, kInf, -0.0}), f32({2, 2, 2, kNan, kInf, 0.0})},
          {of(kBool, std::move(expected))}};
}
OpSample logic(Op op, std::vector<double> expected) {
  return {op, {f32({0, 0, 2, -3, kNan}), f32({0, 1, 0, 5, 0})}, {of(kBool, std::move(expected))}};
}
// A unary function at a few points, and at special values.
OpSample function(Op op, std::vector<double> at, std::vector<double> expected, double tolerance = kF32) {
  return {op, {f32(std::move(at))}, {f32(std::move(expected))}, {}, tolerance};
}
OpSample special(Op op, std::vector<double> at, std::vector<double> expected) {
  return {op, {f32(std::move(at))}, {f32(std::move(expected))}, {}, 0, Check::Values};
}
}  // namespace

std::vector<OpSample> pointwise_samples() {
  return {
      {Op::add, {f32({2, 2}, {1, 2, 3, 4}), f32({10, 20})}, {f32({2, 2}, {11, 22, 13, 24})}},
      {Op::add, {i64({1, 2}), 5}, {i64({6, 7})}},
      {Op::add, {of(kBool, {0, 1, 1}), of(kBool, {0, 0, 1})}, {of(kBool, {0, 1, 1})}},
      {Op::add, {of(DType::U8, {250, 3}), of(DType::U8, {10, 4})}, {of(DType::U8, {4, 7})}},
      {Op::sub, {f32({2, 1}, {5, 7}), f32({1, 3}, {1, 2, 4})}, {f32({2, 3}, {4, 3, 1, 6, 5, 3})}},
      {Op::sub, {1.5, f32({1, 2})}, {f32({0.5, -0.5})}},
      {Op::mul, {f32({1.5, -2, 0.25}), f32({4, 3, -8})}, {f32({6, -6, -2})}},
      {Op::mul,
       {of(DType::F16, {300, 0.5}), of(DType::F16, {300, 3})},
       {of(DType::F16, {kInf, 1.5})},
       {},
       0,
       Check::Values},
      {Op::mul, {of(kBool, {0, 1, 1}), of(kBool, {1, 0, 1})}, {of(kBool, {0, 0, 1})}},
      {Op::div, {f32({7, -1, 3}), f32({2, 4, -8})}, {f32({3.5, -0.25, -0.375})}},
      {Op::div, {f32({1, -1, 0}), f32({0, 0, 0})}, {f32({kInf, -kInf, kNan})}, {}, 0, Check::Values},
      {Op::floor_divide, {f32({7, -7, 7, -7}), f32({2, 2, -2, -2})}, {f32({3, -4, -4, 3})}},
      {Op::floor_divide, {i64({7, -7, 7, -7}), i64({2, 2, -2, -2})}, {i64({3, -4, -4, 3})}},
      {Op::remainder, {f32({7.5, -7.5, 7.5, -7.5}), f32({2, 2, -2, -2})}, {f32({1.5, 0.5, -0.5, -1.5})}},
      {Op::remainder, {i64({7, -7, 7, -7}), i64({2, 2, -2, -2})}, {i64({1, 1, -1, -1})}},
      {Op::pow,
       {f32({2, 3, 1.5, 0.25}), f32({3, -1, 2.5, 0.5})},
       {f32({8, 0.333333333333, 2.755675960631, 0.5})},
       {},
       kF32},
      {Op::pow, {f32({-2, 3, 0.5}), 3.0}, {f32({-8, 27, 0.125})}, {}, kF32},
      {Op::pow, {i64({-2, 3, 0, 1}), i64({3, 4, 0, -1})}, {i64({-8, 81, 1, 1})}},
      {Op::pow, {f32({0, 0, kInf, 1}), f32({0, 2, 2, kNan})}, {f32({1, 0, kInf, 1})}, {}, 0, Check::Values},
      {Op::minimum, {f32({1, 5, -2}), f32({3, 2, -4})}, {f32({1, 2, -4})}},
      {Op::minimum,
       {f32({kNan, 1, kInf}), f32({1, kNan, -kInf})},
       {f32({kNan, kNan, -kInf})},
       {},
       0,
       Check::Values},
      {Op::maximum, {f32({1, 5, -2}), f32({3, 2, -4})}, {f32({3, 5, -2})}},
      {Op::maximum,
       {f32({kNan, 1, kInf}), f32({1, kNan, -kInf})},
       {f32({kNan, kNan, kInf})},
       {},
       0,
       Check::Values},
      {Op::tie_share, {f32({2, 0, -3})}, {f32({1, 0.5, 0})}},
      {Op::neg, {f32({1, -2.5, 0})}, {f32({-1, 2.5, -0.0})}},
      {Op::neg, {i64({4, -9})}, {i64({-4, 9})}},
      {Op::abs, {f32({1, -2.5, -0.5})}, {f32({1, 2.5, 0.5})}},
      {Op::abs, {i64({4, -9})}, {i64({4, 9})}},
      {Op::sign, {f32({3, -0.5, 8})}, {f32({1, -1, 1})}},
      special(Op::sign, {0, kNan, -kInf}, {0, kNan, -1}),
      {Op::square, {f32({3, -1.5, 0.5})}, {f32({9, 2.25, 0.25})}},
      {Op::reciprocal, {f32({4, -0.5, 0.125})}, {f32({0.25, -2, 8})}},
      {Op::clamp, {f32({-3, 0.5, 7}), -1.0, 2.0}, {f32({-1, 0.5, 2})}},
      {Op::clamp, {f32({-3, 0.5, 7}), f32({-2, 0, 1}), f32({1, 1, 5})}, {f32({-2, 0.5, 5})}},
      {Op::clamp, {f32({kNan, kInf, -kInf}), -1.0, 1.0}, {f32({kNan, 1, -1})}, {}, 0, Check::Values},
      {Op::where, {of(kBool, {1, 0, 1}), f32({1, 2, 3}), f32({-1, -2, -3})}, {f32({1, -2, 3})}},
      {Op::where, {of(kBool, {2, 1}, {1, 0}), f32({2, 2}, {1, 2, 3, 4}), 0.0}, {f32({2, 2}, {1, 2, 0, 0})}},
      {Op::copy, {f32({1.5, -2.75, 300})}, {f32({1.5, -2.75, 300})}},
      {Op::copy, {f32({1.5, -2.75, 100})}, {i64({1, -2, 100})}, {}, 0, Check::Values, DType::I64},
      {Op::copy, {f32({0, -2, kNan})}, {of(kBool, {0, 1, 1})}, {}, 0, Check::Values, kBool},
      {Op::copy,
       {f32({1.0009765625, 1.00048828125, 70000})},
       {of(DType::F16, {1.0009765625, 1, kInf})},
       {},
       0,
       Check::Values,
       DType::F16},

      function(Op::exp, {0, 1, -2.5, 10}, {1, 2.718281828459, 0.082084998624, 22026.465794806718}),
      special(Op::exp, {kInf, -kInf, 1000, kNan}, {kInf, 0, kInf, kNan}),
      function(Op::expm1, {1e-6, 1, -2.5}, {1e-06, 1.718281828459, -0.917915001376}),
      function(Op::log, {1, 10, 0.3}, {0, 2.302585092994, -1.20397276459}),
      special(Op::log, {0, -1, kInf}, {-kInf, kNan, kInf}),
      function(Op::log1p, {1e-6, 10, -0.7}, {9.99999e-07, 2.397895272798, -1.20397276459}),
      function(Op::sqrt, {4, 2, 0.09}, {2, 1.414213562373, 0.30000000596}),
      special(Op::sqrt, {0, -1, kInf}, {0, kNan, kInf}),
      function(Op::rsqrt, {4, 2, 0.09}, {0.5, 0.707106781187, 3.333333267106}),
      function(Op::sin, {0.5, 3, -10}, {0.479425538604, 0.14112000806, 0.544021110889}),
      function(Op::cos, {0.5, 3, -10}, {0.87758256189, -0.9899924966, -0.839071529076}),
      function(Op::tanh, {0.01, 0.5, -3}, {0.009999666457, 0.46211715726, -0.995054753687}),
      special(Op::tanh, {kInf, -kInf, 0, kNan}, {1, -1, 0, kNan}),
      {Op::tanh_grad, {f32({1, 2, -3}), f32({0.5, -0.25, 0})}, {f32({0.75, 1.875, -3})}},
      function(Op::erf, {0.01, 0.5, -2}, {0.011283415304, 0.520499877813, -0.995322265019}),
      function(Op::sigmoid, {0, 2, -5}, {0.5, 0.880797077978, 0.006692850924}),
      special(Op::sigmoid, {kInf, -kInf, kNan}, {1, 0, kNan}),
      {Op::sigmoid_grad, {f32({1, 2, -4}), f32({0.5, 0.25, 0.75})}, {f32({0.25, 0.375, -0.75})}},
      {Op::relu, {f32({1.5, -2, 3})}, {f32({1.5, 0, 3})}},
      {Op::relu, {i64({4, -4})}, {i64({4, 0})}},
      special(Op::relu, {0, kNan, kInf, -kInf}, {0, kNan, kInf, 0}),
      {Op::relu_grad, {f32({1, 2, 3}), f32({0.5, -1, 4})}, {f32({1, 0, 3})}},
      {Op::relu_grad, {f32({1, 2}), f32({0, kNan})}, {f32({0, 0})}, {}, 0, Check::Values},
      function(Op::gelu, {0.5, 2, -1}, {0.345731230637, 1.954499736104, -0.158655253931}),
      {Op::gelu_grad,
       {f32({1, 2, -1}), f32({0.5, 2, -1})},
       {f32({0.867495124656, 2.170463602156, 0.083315470588})},
       {},
       kF32},
      function(Op::silu, {0.5, 2, -1}, {0.311229665601, 1.761594155956, -0.26894142137}),
      function(Op::floor, {1.5, -1.5, 2.75}, {1, -2, 2}, 0),
      function(Op::ceil, {1.5, -1.5, 2.25}, {2, -1, 3}, 0),
      {Op::round, {f32({0.75, -1.25, 2.75})}, {f32({1, -1, 3})}},
      special(Op::round, {0.5, 1.5, 2.5, -0.5}, {0, 2, 2, -0.0}),
      function(Op::trunc, {1.75, -1.75, 2.25}, {1, -1, 2}, 0),

      comparison(Op::eq, {0, 1, 0, 0, 1, 1}),
      comparison(Op::ne, {1, 0, 1, 1, 0, 0}),
      comparison(Op::lt, {1, 0, 0, 0, 0, 0}),
      comparison(Op::le, {1, 1, 0, 0, 1, 1}),
      comparison(Op::gt, {0, 0, 1, 0, 0, 0}),
      comparison(Op::ge, {0, 1, 1, 0, 1, 1}),
      {Op::eq, {i64({1, 2}), 2}, {of(kBool, {0, 1})}},
      logic(Op::logical_and, {0, 0, 0, 1, 0}),
      logic(Op::logical_or, {0, 1, 1, 1, 1}),
      logic(Op::logical_xor, {0, 1, 1, 0, 1}),
      {Op::logical_not, {f32({0, 2, -0.0, kNan})}, {of(kBool, {1, 0, 1, 0})}},
      {Op::isnan, {f32({0, kNan, kInf})}, {of(kBool, {0, 1, 0})}},
      {Op::isinf, {f32({0, kNan, kInf, -kInf})}, {of(kBool, {0, 0, 1, 1})}},
      {Op::isfinite, {f32({0, kNan, kInf, -kInf})}, {of(kBool, {1, 0, 0, 0})}},
  };
}

}  // namespace etch::testing
