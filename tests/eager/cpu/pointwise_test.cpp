// Pointwise kernels: literal values, layouts, dtypes, and one set of bits whichever path runs.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "runtime/parallel.h"
#include "tests/eager/cpu/values.h"
#include "tests/runtime/expect_error.h"

namespace etch::cpu {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

TEST(Pointwise, AddsArraysAndScalars) {
  const Array a({3}, {1, 2, 3}), b({3}, {10, 20, 30});
  EXPECT_EQ(apply(Op::add, {a, b}).values(), (Numbers{11, 22, 33}));
  EXPECT_EQ(apply(Op::add, {a, 0.5}).values(), (Numbers{1.5, 2.5, 3.5}));
  EXPECT_EQ(apply(Op::sub, {1, a}).values(), (Numbers{0, -1, -2}));
}

TEST(Pointwise, BroadcastsRowsColumnsAndSingles) {
  const Array a({2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(apply(Op::mul, {a, Array({3}, {1, 10, 100})}).values(), (Numbers{1, 20, 300, 4, 50, 600}));
  EXPECT_EQ(apply(Op::mul, {a, Array({2, 1}, {1, 10})}).values(), (Numbers{1, 2, 3, 40, 50, 60}));
  EXPECT_EQ(apply(Op::mul, {Array({2, 1}, {1, 2}), Array({1, 3}, {3, 4, 5})}).values(),
            (Numbers{3, 4, 5, 6, 8, 10}));
  EXPECT_EQ(apply(Op::mul, {a, Array(Dims{}, {2})}).values(), (Numbers{2, 4, 6, 8, 10, 12}));
}

TEST(Pointwise, TakesZeroDimensionalAndEmptyOperands) {
  EXPECT_EQ(apply(Op::add, {Array(Dims{}, {2}), Array(Dims{}, {3})}).values(), Numbers{5});
  EXPECT_TRUE(apply(Op::add, {Array({0, 3}, {}), Array({3}, {1, 2, 3})}).values().empty());
}

TEST(Pointwise, ReadsStridedOperands) {
  Array transposed({{3, 2}, {1, 3}}, DType::F32);
  transposed.set({1, 2, 3, 4, 5, 6});
  const Array b({3, 2}, {10, 20, 30, 40, 50, 60});
  EXPECT_EQ(apply(Op::add, {b, transposed}).values(), (Numbers{11, 22, 33, 44, 55, 66}));
  const Array sum = apply(Op::add, {transposed, b});
  EXPECT_EQ(sum.geometry.strides, (Dims{1, 3}));
  EXPECT_EQ(sum.values(), (Numbers{11, 22, 33, 44, 55, 66}));
}

TEST(Pointwise, WritesStridedOutputsAndInPlace) {
  Array window({{2, 2}, {5, 2}}, DType::F32, 1);
  window.set({1, 2, 3, 4});
  apply_into(window, Op::mul, {window, 3.0});
  EXPECT_EQ(window.values(), (Numbers{3, 6, 9, 12}));
}

TEST(Pointwise, HonoursNanAndInfinity) {
  const Array a({4}, {kNan, 1, kInf, -kInf}), b({4}, {1, kNan, 0, 0});
  const Numbers larger = apply(Op::maximum, {a, b}).values();
  EXPECT_TRUE(std::isnan(larger[0]) && std::isnan(larger[1]));
  EXPECT_EQ(larger[2], kInf);
  EXPECT_EQ(apply(Op::isnan, {a}).values(), (Numbers{1, 0, 0, 0}));
  EXPECT_EQ(apply(Op::isinf, {a}).values(), (Numbers{0, 0, 1, 1}));
  EXPECT_EQ(apply(Op::isfinite, {a}).values(), (Numbers{0, 1, 0, 0}));
  EXPECT_TRUE(std::isnan(apply(Op::relu, {a}).values()[0]));
}

TEST(Pointwise, IntegersWrapAndDivideLikePython) {
  const Array a({4}, {7, -7, 2147483647, 5}, DType::I32), b({4}, {2, 2, 1, -3}, DType::I32);
  EXPECT_EQ(apply(Op::floor_divide, {a, b}).values(), (Numbers{3, -4, 2147483647, -2}));
  EXPECT_EQ(apply(Op::remainder, {a, b}).values(), (Numbers{1, 1, 0, -1}));
  EXPECT_EQ(apply(Op::add, {a, b}).values(), (Numbers{9, -5, -2147483648.0, 2}));
  EXPECT_EQ(apply(Op::neg, {Array({1}, {3}, DType::U8)}).values(), Numbers{253});
}

TEST(Pointwise, BoolsAddAndMultiplyAsLogic) {
  const Array a({4}, {0, 0, 1, 1}, DType::Bool), b({4}, {0, 1, 0, 1}, DType::Bool);
  EXPECT_EQ(apply(Op::add, {a, b}).values(), (Numbers{0, 1, 1, 1}));
  EXPECT_EQ(apply(Op::mul, {a, b}).values(), (Numbers{0, 0, 0, 1}));
  EXPECT_EQ(apply(Op::logical_xor, {a, b}).values(), (Numbers{0, 1, 1, 0}));
}

TEST(Pointwise, WhereChoosesByABoolOrANumber) {
  const Array mask({2, 1}, {1, 0}, DType::Bool), b({3}, {1, 2, 3});
  EXPECT_EQ(apply(Op::where, {mask, b, -1.0}).values(), (Numbers{1, 2, 3, -1, -1, -1}));
  EXPECT_EQ(apply(Op::where, {true, b, -1.0}).values(), (Numbers{1, 2, 3}));
}

TEST(Pointwise, ClampsBetweenArraysAndScalars) {
  const Array a({4}, {-2, 0.5, 3, kNan});
  const Numbers kept = apply(Op::clamp, {a, -1.0, 1.0}).values();
  EXPECT_EQ(Numbers(kept.begin(), kept.begin() + 3), (Numbers{-1, 0.5, 1}));
  EXPECT_TRUE(std::isnan(kept[3]));
  EXPECT_EQ(apply(Op::clamp, {Array({2}, {5, 5}), 0.0, Array({2}, {1, 9})}).values(), (Numbers{1, 5}));
}

TEST(Pointwise, HalvesComputeInF32AndRoundOnce) {
  for (const DType dtype : {DType::F16, DType::BF16}) {
    const Array a({3}, {1, 2, 3}, dtype), b({3}, {0.5, 0.25, -3}, dtype);
    EXPECT_EQ(apply(Op::add, {a, b}).values(), (Numbers{1.5, 2.25, 0}));
    EXPECT_EQ(apply(Op::lt, {a, b}).values(), (Numbers{0, 0, 0}));
    EXPECT_EQ(apply(Op::where, {Array({3}, {1, 0, 1}, DType::Bool), a, 7.0}).values(), (Numbers{1, 7, 3}));
  }
  const Array third = apply(Op::div, {Array({1}, {1}, DType::F16), 3.0});
  EXPECT_EQ(third.values()[0], to_float(to_half(1.0f / 3.0f)));
}

TEST(Pointwise, RefusesDtypesTheRowDoesNotComputeIn) {
  const Array out({1}, {0}, DType::I32);
  EXPECT_ERROR(apply_into(out, Op::exp, {out}), DTypeError, "exp: expected a dtype");
}

// Every row with random operands: the vectorised loop over many elements, single elements, and gathered
// blocks.
struct Row {
  Op op;
  int arity;
  DTypeRule rule;
};
constexpr Row kRows[] = {
#define ETCH_POINTWISE(name, arity, rule, ...) {Op::name, arity, DTypeRule::rule},
#include "tracer/ops.def"
};

bool takes(DTypeRule rule, DType dtype) {
  if (rule == DTypeRule::Float) return is_floating(dtype);
  return rule != DTypeRule::Numeric || dtype != DType::Bool;
}

/// Element i of each input alone.
std::vector<char> one_by_one(Op op, const std::vector<Array>& inputs, DType given) {
  std::vector<char> bits;
  for (int64_t i = 0; i < inputs[0].geometry.numel(); ++i) {
    std::vector<Input> single;
    for (const Array& input : inputs) {
      Array one(Geometry{}, input.dtype);
      std::memcpy(one.bytes->data(), input.at(i), item_size(input.dtype));
      single.push_back(one);
    }
    const std::vector<char> element = apply(op, single, {}, given).bits();
    bits.insert(bits.end(), element.begin(), element.end());
  }
  return bits;
}

TEST(Pointwise, AllPathsGiveTheSameBitsForEveryRowAndDtype) {
  for (const Row& row : kRows) {
    for (int d = 0; d < kNumDTypes; ++d) {
      const auto dtype = static_cast<DType>(d);
      if (!takes(row.rule, dtype)) continue;
      std::vector<Array> flat;
      std::vector<Input> flat_inputs, strided, mixed;
      for (int k = 0; k < row.arity; ++k) {
        const DType own = k == 0 && row.rule == DTypeRule::Where ? DType::Bool : dtype;
        const double low = is_floating(own) ? -3 : own == DType::Bool ? 0 : 1;
        flat.push_back(random_array(contiguous({7, 83}), own, k + 1, low, own == DType::Bool ? 2 : 5));
        Array gaps({{7, 83}, {1, 9}}, own);
        apply_into(gaps, Op::copy, {flat.back()});
        flat_inputs.push_back(flat.back());
        strided.push_back(gaps);
        mixed.push_back(k % 2 ? gaps : flat.back());
      }
      const DType given = dtype;
      const std::vector<char> expected = apply(row.op, flat_inputs, {}, given).bits();
      EXPECT_EQ(one_by_one(row.op, flat, given), expected) << name(row.op) << " " << name(dtype);
      EXPECT_EQ(apply(row.op, strided, {}, given).bits(), expected) << name(row.op) << " " << name(dtype);
      EXPECT_EQ(apply(row.op, mixed, {}, given).bits(), expected) << name(row.op) << " " << name(dtype);
    }
  }
}

TEST(Pointwise, ThreadsDoNotChangeBits) {
  const Array a = random_array(contiguous({3, 50001}), DType::F32, 1);
  const Array b = random_array(contiguous({50001}), DType::F32, 2);
  const int threads = num_threads();
  set_num_threads(1);
  const std::vector<char> one = apply(Op::gelu_grad, {a, b}).bits();
  set_num_threads(2);
  EXPECT_EQ(apply(Op::gelu_grad, {a, b}).bits(), one);
  set_num_threads(threads);
}

}  // namespace
}  // namespace etch::cpu
