// Groups around row reductions: softmax, layer norm, losses, full sums.
#include <gtest/gtest.h>

#include "tests/codegen/group.h"

namespace etch::testing {
namespace {

TEST(Rows, SumsRowsOfAnyLength) {
  for (int64_t length : {1, 2, 31, 32, 33, 100, 4096, 4097, 10000}) {
    Group g;
    g.keep(g.reduce(Op::sum, g.input(DType::F32, {5, length}), 2));
    g.check();
  }
}

TEST(Rows, ReducesByEveryOp) {
  Group g;
  const GraphOperand x = g.input(DType::F32, {6, 75});
  for (Op op : {Op::sum, Op::prod, Op::amax, Op::amin, Op::any, Op::all}) g.keep(g.reduce(op, x, 2, false));
  g.check();
}

TEST(Rows, ReducesEveryType) {
  for (int dtype = 0; dtype < kNumDTypes; ++dtype) {
    Group g;
    const GraphOperand x = g.input(static_cast<DType>(dtype), {6, 75});
    for (Op op : {Op::sum, Op::amax, Op::all}) g.keep(g.reduce(op, x, 2, false));
    g.check();
  }
}

TEST(Rows, PropagatesNanAndInfinity) {
  Group g;
  const GraphOperand x = g.input(DType::F32, {40, 65});
  g.add_specials(x);
  g.keep(g.reduce(Op::amax, x, 2));
  g.keep(g.reduce(Op::amin, x, 2));
  g.keep(g.reduce(Op::sum, x, 2));
  g.check();
}

void softmax(Group& g, const GraphOperand& x, uint64_t axes) {
  const Dims sizes = x.geometry.sizes, strides = x.geometry.strides;
  const GraphOperand top = g.reduce(Op::amax, x, axes);
  const GraphOperand moved = g.op(Op::sub, {x, top}, x.dtype, sizes, strides);
  const GraphOperand e = g.op(Op::exp, {moved}, x.dtype, sizes, strides);
  const GraphOperand total = g.reduce(Op::sum, e, axes);
  g.keep(g.op(Op::div, {e, total}, x.dtype, sizes, strides));
}

TEST(Rows, Softmax) {
  for (int64_t length : {10, 256, 5000}) {
    Group g;
    softmax(g, g.input(DType::F32, {9, length}), 2);
    EXPECT_EQ(g.lower().phases.size(), 1u);
    g.check();
  }
}

// Operands of other widths than the sums: in parts, whose ends are not those of lanes and blocks.
TEST(Rows, MaskedSoftmaxOfAnyLength) {
  for (int64_t length : {7, 32, 100, 511, 513, 1100, 4096, 4611}) {
    Group g;
    const GraphOperand x = g.input(DType::F32, {5, length}), mask = g.input(DType::Bool, {5, length});
    g.add_specials(x);
    softmax(g, g.op(Op::where, {mask, g.scalar(-1e9), x}, DType::F32, {5, length}), 2);
    g.check();
  }
}

TEST(Rows, SumsOfComparedIntegersBesideSumsOfFloats) {
  for (int64_t length : {40, 700, 5000}) {
    Group g;
    const GraphOperand x = g.input(DType::F32, {5, length}), i = g.input(DType::I64, {length}),
                       label = g.input(DType::I64, {5, 1});
    const GraphOperand hit = g.op(Op::eq, {i, label}, DType::Bool, {5, length});
    g.keep(g.reduce(Op::amax, x, 2));
    g.keep(g.reduce(Op::sum, g.op(Op::where, {hit, x, g.scalar(0.0)}, DType::F32, {5, length}), 2));
    g.keep(g.op(Op::sub, {x, g.op(Op::copy, {hit}, DType::F32, {5, length})}));
    g.check();
  }
}

TEST(Rows, SoftmaxInBfloat16) {
  Group g;
  softmax(g, g.input(DType::BF16, {9, 70}), 2);
  g.check();
}

TEST(Rows, SoftmaxMayTakeOverItsInput) {
  for (int64_t length : {40, 6000}) {
    Group g;
    const GraphOperand x = g.input(DType::F32, {9, length});
    softmax(g, x, 2);
    g.share_memory(x, g.body().back().outputs[0]);
    g.check();
  }
}

TEST(Rows, LayerNorm) {
  Group g;
  const Dims sizes = {3, 7, 96};
  const GraphOperand x = g.input(DType::F32, sizes), w = g.input(DType::F32, {96}),
                     b = g.input(DType::F32, {96});
  const GraphOperand mean = g.op(Op::mul, {g.reduce(Op::sum, x, 4), g.scalar(1.0 / 96)});
  const GraphOperand d = g.op(Op::sub, {x, mean});
  const GraphOperand variance =
      g.op(Op::mul, {g.reduce(Op::sum, g.op(Op::square, {d}), 4), g.scalar(1.0 / 96)});
  const GraphOperand r = g.op(Op::rsqrt, {g.op(Op::add, {variance, g.scalar(1e-5)})});
  const GraphOperand normal = g.op(Op::mul, {d, r});
  const GraphOperand y = g.op(Op::add, {g.op(Op::mul, {normal, w}), b});
  for (const GraphOperand& kept : {y, mean, r}) g.keep(kept);
  g.check();
}

TEST(Rows, UsesReductionsWithSqueezedSizes) {
  Group g;
  const GraphOperand x = g.input(DType::F32, {8, 50});
  const GraphOperand total = g.reduce(Op::sum, x, 2, false);
  const GraphOperand logs = g.op(Op::log, {total});
  g.keep(logs);
  g.keep(g.op(Op::sub, {x, Group::view(logs, {8, 1}, {1, 1})}));
  g.check();
}

TEST(Rows, FullSumOfALargeTensorIsSplit) {
  Group g;
  const GraphOperand x = g.input(DType::F32, {300, 1000});
  const GraphOperand y = g.op(Op::tanh, {x});
  const GraphOperand total = g.reduce(Op::sum, y, 3, false);
  g.keep(y);
  g.keep(g.op(Op::mul, {total, g.scalar(0.5)}));
  EXPECT_EQ(g.lower().phases.size(), 2u);
  g.check();
}

TEST(Rows, FullSumWithABroadcastOperand) {
  for (int64_t rows : {3, 700}) {
    Group g;
    const GraphOperand x = g.input(DType::F32, {rows, 33}), w = g.input(DType::F32, {33});
    const GraphOperand y = g.op(Op::mul, {x, w});
    g.keep(y);
    g.keep(g.reduce(Op::sum, y, 3, false));
    g.keep(g.reduce(Op::amax, x, 3, false));
    g.check();
  }
}

TEST(Rows, CombinesRunsThatKeptDimensionsSeparate) {
  for (int64_t length : {20, 9000}) {
    Group g;
    const GraphOperand x = g.input(DType::F32, {6, 3, length});
    g.keep(g.reduce(Op::sum, g.op(Op::exp, {x}), 5));
    g.check();
  }
}

TEST(Rows, ReducesTransposedOperandsInMemoryOrder) {
  Group g;
  const GraphOperand x = g.input(DType::F32, {60, 7}, {1, 60});
  g.keep(g.reduce(Op::sum, x, 1));
  g.check();
}

TEST(Rows, ReducesStridedWindows) {
  Group g;
  const GraphOperand x = g.input(DType::F32, {5, 40}, {200, 3}, 7);
  g.keep(g.reduce(Op::sum, x, 2));
  g.check();
}

TEST(Rows, DrawsRandomNumbersInsideOfRows) {
  Group g;
  const GraphOperand x = g.input(DType::F32, {5, 41});
  const GraphOperand dropped =
      g.op(Op::dropout, {x, g.scalar(5, DType::I64), g.scalar(9, DType::I64), g.scalar(0.4, DType::F64)});
  g.keep(dropped);
  g.keep(g.reduce(Op::sum, dropped, 2));
  g.check();
}

TEST(Rows, HandlesEmptyRowsAndNoRows) {
  for (const Dims& sizes : {Dims{4, 0}, Dims{0, 4}}) {
    Group g;
    const GraphOperand total = g.reduce(Op::sum, g.input(DType::F32, sizes), 2);
    g.keep(g.op(Op::add, {total, g.scalar(1)}));
    g.check();
  }
}

TEST(Rows, IgnoresDimensionsOfSizeOne) {
  Group g;
  const GraphOperand x = g.input(DType::F32, {1, 6, 1, 50});
  g.keep(g.reduce(Op::sum, x, 0b1101));
  g.check();
}

TEST(Rows, ReductionOfOneElementIsPointwise) {
  Group g;
  const GraphOperand x = g.input(DType::F32, {40, 1});
  g.add_specials(x);
  const GraphOperand total = g.reduce(Op::sum, x, 2);
  g.keep(g.op(Op::exp, {total}));
  g.keep(total);
  g.check();
}

TEST(Rows, RowLevelInputsMeetFullLevelOnes) {
  Group g;
  const GraphOperand x = g.input(DType::F32, {8, 50}), bias = g.input(DType::F32, {8, 1});
  const GraphOperand twice = g.op(Op::mul, {bias, g.scalar(2)});
  const GraphOperand y = g.op(Op::add, {x, twice});
  g.keep(g.op(Op::add, {g.reduce(Op::amax, y, 2), bias}));
  g.check();
}

TEST(Rows, RefusesOtherAxesAndOrders) {
  std::string why;
  Group axes;
  const GraphOperand x = axes.input(DType::F32, {8, 50});
  axes.reduce(Op::sum, x, 1);
  axes.reduce(Op::sum, x, 2);
  EXPECT_FALSE(axes.can_lower(&why));
  EXPECT_NE(why.find("axes"), std::string::npos) << why;
  Group orders;
  orders.reduce(Op::sum, orders.input(DType::F32, {8, 50}), 3);
  orders.reduce(Op::sum, orders.input(DType::F32, {8, 50}, {1, 8}), 3);
  EXPECT_FALSE(orders.can_lower(&why));
  EXPECT_NE(why.find("memory orders"), std::string::npos) << why;
}

}  // namespace
}  // namespace etch::testing
