// Groups around column reductions: bias gradients, batch-norm statistics.
#include <gtest/gtest.h>

#include "tests/codegen/group.h"

namespace etch::testing {
namespace {

TEST(Columns, SumsColumnsOfAnyHeight) {
  for (int64_t rows : {2, 63, 64, 65, 1000, 9000}) {
    Group g;
    g.keep(g.reduce(Op::sum, g.input(DType::F32, {rows, 37}), 1));
    EXPECT_EQ(g.lower().phases.size(), 2u);
    g.check();
  }
}

TEST(Columns, SumsManyColumns) {
  Group g;
  g.keep(g.reduce(Op::sum, g.input(DType::F32, {70, 2500}), 1, false));
  g.check();
}

// Wide enough for parts, and with elements enough to ask for memory ahead; in place as well.
TEST(Columns, StoresAndSumsInParts) {
  for (Op op : {Op::gelu, Op::square}) {
    for (bool in_place : {false, true}) {
      Group g;
      const GraphOperand x = g.input(DType::F32, {70, 1300});
      const GraphOperand y = g.op(op, {x});
      g.keep(y);
      g.keep(g.reduce(Op::sum, y, 1));
      if (in_place) g.share_memory(x, y);
      g.check();
    }
  }
}

TEST(Columns, ReducesEveryType) {
  for (int dtype = 0; dtype < kNumDTypes; ++dtype) {
    Group g;
    const GraphOperand x = g.input(static_cast<DType>(dtype), {100, 9});
    for (Op op : {Op::sum, Op::amin, Op::any}) g.keep(g.reduce(op, x, 1));
    g.check();
  }
}

TEST(Columns, BatchNormStatisticsChannelsLast) {
  Group g;
  const Dims sizes = {4, 24, 5, 6}, strides = channels_last_strides(sizes);
  const GraphOperand x = g.input(DType::F32, sizes, strides);
  const GraphOperand square = g.op(Op::square, {x}, DType::F32, sizes, strides);
  const GraphOperand sum = g.reduce(Op::sum, x, 0b1101), squares = g.reduce(Op::sum, square, 0b1101);
  const GraphOperand mean = g.op(Op::mul, {sum, g.scalar(1.0 / 120)});
  const GraphOperand second = g.op(Op::mul, {squares, g.scalar(1.0 / 120)});
  const GraphOperand variance = g.op(Op::sub, {second, g.op(Op::square, {mean})});
  g.keep(g.op(Op::rsqrt, {g.op(Op::add, {variance, g.scalar(1e-5)})}));
  g.keep(mean);
  const GraphOperand running = g.input(DType::F32, {1, 24, 1, 1});
  g.write(Op::add, {running, mean}, running);
  g.keep(running);
  g.check();
}

// One stream, whose rows are taken several at a time; the last ones are left over. A wide one asks for rows
// ahead.
TEST(Columns, SumsDifferencesAndTheirSquares) {
  for (DType dtype : {DType::F32, DType::F64, DType::BF16, DType::F16})
    for (const Dims& sizes : {Dims{131, 37}, Dims{70, 1300}, Dims{2, 5}}) {
      Group g;
      const GraphOperand x = g.input(dtype, sizes), shift = g.input(dtype, {sizes[1]});
      const GraphOperand moved = g.op(Op::sub, {x, shift}, dtype, sizes);
      g.keep(g.reduce(Op::sum, moved, 1));
      g.keep(g.reduce(Op::sum, g.op(Op::square, {moved}, dtype, sizes), 1));
      g.keep(g.reduce(Op::amax, moved, 1));
      g.check();
    }
}

TEST(Columns, StoresWhatItReduces) {
  Group g;
  const GraphOperand gradient = g.input(DType::F32, {500, 48}), y = g.input(DType::F32, {500, 48});
  const GraphOperand w = g.input(DType::F32, {48});
  const GraphOperand passed = g.op(Op::relu_grad, {gradient, y});
  const GraphOperand scaled = g.op(Op::mul, {passed, w});
  g.keep(scaled);
  g.keep(g.reduce(Op::sum, scaled, 1, false));
  g.keep(g.reduce(Op::sum, passed, 1, false));
  g.check();
}

TEST(Columns, KeepsOuterDimensions) {
  Group g;
  const GraphOperand x = g.input(DType::F32, {3, 200, 20}), w = g.input(DType::F32, {3, 1, 20});
  const GraphOperand total = g.reduce(Op::sum, g.op(Op::mul, {x, w}), 2);
  g.keep(g.op(Op::add, {total, w}));
  g.check();
}

TEST(Columns, ReducesSeveralSeparateDimensions) {
  Group g;
  g.keep(g.reduce(Op::sum, g.input(DType::F32, {7, 3, 40, 11}), 0b0101));
  g.check();
}

TEST(Columns, HandlesEmptyTensors) {
  for (const Dims& sizes : {Dims{0, 4}, Dims{4, 0}}) {
    Group g;
    g.keep(g.op(Op::add, {g.reduce(Op::sum, g.input(DType::F32, sizes), 1), g.scalar(1)}));
    g.check();
  }
}

TEST(Columns, RoundsHalfSumsOnce) {
  for (DType dtype : {DType::F16, DType::BF16}) {
    Group g;
    const GraphOperand x = g.input(dtype, {300, 17});
    g.keep(g.reduce(Op::sum, g.op(Op::square, {x}, dtype, {300, 17}), 1));
    g.check();
  }
}

TEST(Columns, RefusesFullLevelUsers) {
  Group g;
  const GraphOperand x = g.input(DType::F32, {30, 17});
  g.op(Op::sub, {x, g.reduce(Op::sum, x, 1)});
  std::string why;
  EXPECT_FALSE(g.can_lower(&why));
  EXPECT_NE(why.find("column reduction"), std::string::npos) << why;
}

}  // namespace
}  // namespace etch::testing
