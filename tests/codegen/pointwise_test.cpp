// Pointwise and generator groups.
#include <gtest/gtest.h>

#include "tests/codegen/group.h"

namespace etch::testing {
namespace {

TEST(Pointwise, AddsContiguousTensors) {
  Group g;
  g.keep(g.op(Op::add, {g.input(DType::F32, {7, 130}), g.input(DType::F32, {7, 130})}));
  g.check();
}

TEST(Pointwise, ContiguousOperandsAreOneLoop) {
  Group g;
  g.keep(g.op(Op::add, {g.input(DType::F32, {7, 5, 13}), g.input(DType::F32, {7, 5, 13})}));
  EXPECT_EQ(g.lower().dims, (std::vector<int64_t>{7 * 5 * 13}));
}

TEST(Pointwise, ExtentsAreNoPartOfTheSource) {
  const auto source = [](int64_t rows, int64_t columns) {
    Group g;
    g.keep(g.op(Op::add, {g.input(DType::F32, {rows, columns}), g.input(DType::F32, {columns})}));
    return g.lower().host_source;
  };
  EXPECT_EQ(source(3, 4), source(100, 200));
}

TEST(Pointwise, Broadcasts) {
  Group g;
  const GraphOperand x = g.input(DType::F32, {4, 5, 33});
  const GraphOperand sum = g.op(Op::add, {x, g.input(DType::F32, {5, 1})});
  g.keep(g.op(Op::mul, {sum, g.input(DType::F32, {33})}));
  g.check();
}

TEST(Pointwise, LongCostlyLoopsRunInParts) {
  Group g;
  const GraphOperand x = g.input(DType::F32, {3, 40001}), w = g.input(DType::F32, {3, 1});
  g.keep(g.op(Op::exp, {g.op(Op::mul, {x, w})}));
  g.check();
}

TEST(Pointwise, ManyRowsRunInParts) {
  for (int64_t columns : {3, 64, 1300}) {
    Group g;
    const Dims sizes = {90'000 / columns, columns};
    const GraphOperand x = g.input(DType::F32, sizes), row = g.input(DType::F32, {columns});
    g.keep(g.op(Op::mul, {g.op(Op::sub, {x, row}), row}));
    g.check();
  }
}

TEST(Pointwise, BroadcastsChannelsOfChannelsLast) {
  Group g;
  const Dims sizes = {2, 19, 3, 5};
  const GraphOperand x = g.input(DType::F32, sizes, channels_last_strides(sizes));
  const GraphOperand w = g.input(DType::F32, {1, 19, 1, 1});
  g.keep(g.op(Op::mul, {x, w}, DType::F32, sizes, channels_last_strides(sizes)));
  EXPECT_EQ(g.lower().phases[0].count, 2 * 19 * 3 * 5);
  g.check();
}

TEST(Pointwise, ReadsTransposedAndSlicedWindows) {
  Group g;
  const GraphOperand t = g.input(DType::F32, {9, 14}, {1, 9});
  const GraphOperand slice = g.input(DType::F32, {9, 14}, {40, 2}, 5);
  g.keep(g.op(Op::sub, {t, slice}));
  g.check();
}

TEST(Pointwise, WritesStridedWindows) {
  Group g;
  g.keep(g.op(Op::neg, {g.input(DType::F32, {6, 8})}, DType::F32, {6, 8}, {2, 31}));
  g.check();
}

TEST(Pointwise, HandlesEightDimensions) {
  Group g;
  const Dims sizes = {2, 3, 2, 2, 3, 2, 2, 3};
  const Dims reversed = {1, 2, 6, 12, 24, 72, 144, 288};
  g.keep(g.op(Op::add, {g.input(DType::F32, sizes), g.input(DType::F32, sizes, reversed)}));
  g.check();
}

TEST(Pointwise, KeepsSeveralOutputs) {
  Group g;
  const GraphOperand x = g.input(DType::F32, {50});
  const GraphOperand y = g.op(Op::exp, {x});
  const GraphOperand z = g.op(Op::mul, {y, y});
  g.keep(y);
  g.keep(z);
  g.check();
  EXPECT_EQ(g.lower().pointers.size(), 3u);
}

TEST(Pointwise, RoundsHalfTypesAfterEveryOp) {
  for (DType dtype : {DType::F16, DType::BF16}) {
    Group g;
    const GraphOperand x = g.input(dtype, {77}), y = g.input(dtype, {77});
    const GraphOperand product = g.op(Op::mul, {x, y}, dtype, {77});
    const GraphOperand sum = g.op(Op::add, {product, g.scalar(0.1, dtype)}, dtype, {77});
    g.keep(g.op(Op::tanh, {sum}, dtype, {77}));
    g.check();
  }
}

TEST(Pointwise, CastsBetweenAllTypes) {
  for (int from = 0; from < kNumDTypes; ++from) {
    Group g;
    const GraphOperand x = g.input(static_cast<DType>(from), {41});
    for (int to = 0; to < kNumDTypes; ++to) g.keep(g.op(Op::copy, {x}, static_cast<DType>(to), {41}));
    g.check();
  }
}

TEST(Pointwise, ComparesAndSelects) {
  Group g;
  const GraphOperand x = g.input(DType::F32, {90}), y = g.input(DType::F32, {90});
  const GraphOperand less = g.op(Op::lt, {x, y}, DType::Bool, {90});
  g.keep(less);
  const GraphOperand flags = g.input(DType::Bool, {90});
  const GraphOperand both = g.op(Op::add, {less, flags}, DType::Bool, {90});
  g.keep(g.op(Op::where, {both, x, g.scalar(3)}));
  g.check();
}

TEST(Pointwise, ComputesIntegers) {
  for (DType dtype : {DType::U8, DType::I32, DType::I64}) {
    Group g;
    const GraphOperand x = g.input(dtype, {65}), y = g.input(dtype, {65});
    const GraphOperand product = g.op(Op::mul, {x, y}, dtype, {65});
    g.keep(g.op(Op::sub, {product, g.scalar(200, dtype)}, dtype, {65}));
    g.keep(g.op(Op::floor_divide, {x, g.scalar(3, dtype)}, dtype, {65}));
    g.check();
  }
}

TEST(Pointwise, KeepsNanAndInfinity) {
  Group g;
  const GraphOperand x = g.input(DType::F32, {300});
  g.add_specials(x);
  for (Op op :
       {Op::exp, Op::log, Op::tanh, Op::relu, Op::sqrt, Op::sigmoid, Op::erf, Op::sign, Op::reciprocal})
    g.keep(g.op(op, {x}));
  g.keep(g.op(Op::maximum, {x, g.scalar(0.5)}));
  g.keep(g.op(Op::isnan, {x}, DType::Bool, {300}));
  g.check();
}

TEST(Pointwise, ComputesDoubles) {
  Group g;
  const GraphOperand x = g.input(DType::F64, {33});
  g.keep(g.op(Op::exp, {g.op(Op::add, {x, g.scalar(0.1, DType::F64)}, DType::F64, {33})}, DType::F64, {33}));
  g.check();
}

TEST(Pointwise, TakesScalarsAndOffsetsFromTheCall) {
  Group g;
  GraphOperand x = g.input(DType::F32, {100});
  x = g.offset_slot(Group::view(x, {40}, {1}), 17);
  g.keep(g.op(Op::mul, {x, g.scalar_slot(2.5)}));
  g.check();
}

TEST(Pointwise, GeneratesByRowMajorIndex) {
  Group g;
  const Dims sizes = {5, 7, 3}, turned = {1, 5, 35};
  const GraphOperand seed = g.scalar_slot(1234567890123, DType::I64), offset = g.scalar_slot(77, DType::I64);
  g.keep(g.op(Op::arange, {g.scalar(3, DType::I64), g.scalar(2, DType::I64)}, DType::I64, sizes, turned));
  g.keep(g.op(Op::arange, {g.scalar(0.5, DType::F64), g.scalar(0.1, DType::F64)}, DType::F32, sizes));
  g.keep(g.op(Op::uniform, {seed, offset}, DType::F32, sizes, turned));
  g.keep(g.op(Op::normal, {seed, offset}, DType::F16, sizes));
  const GraphOperand x = g.input(DType::F32, sizes);
  g.keep(g.op(Op::dropout, {x, seed, offset, g.scalar(0.3, DType::F64)}));
  g.keep(g.op(Op::bernoulli, {seed, offset, g.scalar(0.3, DType::F64)}, DType::F32, sizes));
  g.check();
}

TEST(Pointwise, HandlesEmptyAndZeroDimensional) {
  Group empty;
  empty.keep(empty.op(Op::neg, {empty.input(DType::F32, {3, 0, 2})}));
  empty.check();
  Group single;
  single.keep(single.op(Op::add, {single.input(DType::F32, {}), single.scalar(1)}));
  single.check();
  Group ones;
  ones.keep(ones.op(Op::add, {ones.input(DType::F32, {1, 1, 4}), ones.input(DType::F32, {1})}));
  ones.check();
}

TEST(Pointwise, UpdatesInPlace) {
  Group g;
  const GraphOperand p = g.input(DType::F32, {200}), gradient = g.input(DType::F32, {200});
  const GraphOperand step = g.op(Op::mul, {gradient, g.scalar(0.1)});
  g.write(Op::sub, {p, step}, p);
  g.write(Op::mul, {p, g.scalar(0.5)}, p);
  g.keep(p);
  g.check();
  EXPECT_TRUE(g.lower().same_address.empty());
}

TEST(Pointwise, NamesPairsWhoseOffsetsMustAgree) {
  Group g;
  const GraphOperand buffer = g.input(DType::F32, {200});
  const GraphOperand from = g.offset_slot(Group::view(buffer, {50}, {1}), 30);
  const GraphOperand to = g.offset_slot(Group::view(buffer, {50}, {1}), 30);
  g.write(Op::exp, {from}, to);
  g.keep(to);
  const codegen::LoweredKernel kernel = g.lower();
  ASSERT_EQ(kernel.same_address.size(), 1u);
  EXPECT_FALSE(kernel.written[kernel.same_address[0].first]);
  EXPECT_TRUE(kernel.written[kernel.same_address[0].second]);
  g.check();
}

TEST(Pointwise, OutputsMayTakeOverAnInputsMemory) {
  Group g;
  const GraphOperand x = g.input(DType::F32, {1000}), y = g.input(DType::F32, {1000});
  const GraphOperand first = g.op(Op::mul, {y, g.scalar(2)});
  const GraphOperand second = g.op(Op::add, {x, y});
  g.keep(first);
  g.keep(second);
  g.share_memory(x, first);
  g.check();
}

TEST(Pointwise, WritesInterleavedSlicesOfOneBuffer) {
  Group g;
  const GraphOperand all = g.input(DType::F32, {10, 12});
  const GraphOperand x = g.input(DType::F32, {10, 4});
  for (int i = 0; i < 3; ++i) {
    const GraphOperand slice = Group::view(all, {10, 4}, {12, 1}, 4 * i);
    g.write(Op::add, {x, g.scalar(i)}, slice);
    g.keep(slice);
  }
  g.check();
}

TEST(Pointwise, RefusesShiftedAndReshapedReadsOfItsWrites) {
  std::string why;
  Group shifted;
  const GraphOperand buffer = shifted.input(DType::F32, {100});
  shifted.write(Op::add, {Group::view(buffer, {99}, {1}), Group::view(buffer, {99}, {1}, 1)},
                Group::view(buffer, {99}, {1}, 1));
  EXPECT_FALSE(shifted.can_lower(&why));
  EXPECT_NE(why.find("other indices"), std::string::npos) << why;

  Group turned;
  const GraphOperand y = turned.op(Op::exp, {turned.input(DType::F32, {8, 8})});
  turned.op(Op::neg, {Group::view(y, {8, 8}, {1, 8})});
  EXPECT_FALSE(turned.can_lower(&why));
  EXPECT_NE(why.find("other elements"), std::string::npos) << why;

  Group sizes;
  sizes.op(Op::exp, {sizes.input(DType::F32, {8})});
  sizes.op(Op::exp, {sizes.input(DType::F32, {9})});
  EXPECT_FALSE(sizes.can_lower(&why));
  EXPECT_NE(why.find("sizes of its own"), std::string::npos) << why;
}

TEST(Pointwise, RefusesDivisorsThatNeedChecks) {
  Group g;
  g.op(Op::floor_divide, {g.input(DType::I32, {8}), g.input(DType::I32, {8})}, DType::I32, {8});
  EXPECT_FALSE(g.can_lower());
}

}  // namespace
}  // namespace etch::testing
