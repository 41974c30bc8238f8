// Copies between layouts, casts and fills.
#include <gtest/gtest.h>

#include "tests/eager/cpu/values.h"

namespace etch::cpu {
namespace {

Numbers counted(int64_t n) {
  Numbers numbers;
  for (int64_t i = 0; i < n; ++i) numbers.push_back(static_cast<double>(i % 251));
  return numbers;
}

TEST(Copy, ConvertsBetweenAllDtypes) {
  for (int from = 0; from < kNumDTypes; ++from)
    for (int to = 0; to < kNumDTypes; ++to) {
      const Array a({3}, {0, 1, 1}, static_cast<DType>(from));
      const Array b = apply(Op::copy, {a}, {}, static_cast<DType>(to));
      EXPECT_EQ(b.dtype, static_cast<DType>(to));
      EXPECT_EQ(b.values(), (Numbers{0, 1, 1}));
    }
}

TEST(Copy, TruncatesToIntegersAndTestsForBool) {
  const Array a({4}, {-1.7, 2.9, 0, 1e-3});
  EXPECT_EQ(apply(Op::copy, {a}, {}, DType::I32).values(), (Numbers{-1, 2, 0, 0}));
  EXPECT_EQ(apply(Op::copy, {a}, {}, DType::Bool).values(), (Numbers{1, 1, 0, 1}));
}

TEST(Copy, FillsWithAScalarInTheOutputsDtype) {
  EXPECT_EQ(apply(Op::copy, {0.1}, pack_sizes({2, 2}), DType::F64).values(), (Numbers{0.1, 0.1, 0.1, 0.1}));
  EXPECT_EQ(apply(Op::copy, {3}, pack_sizes({2}), DType::BF16).values(), (Numbers{3, 3}));
  Array column({{3, 1}, {4, 1}}, DType::I64);
  apply_into(column, Op::copy, {9});
  EXPECT_EQ(column.values(), (Numbers{9, 9, 9}));
}

TEST(Copy, TransposesEveryItemSize) {
  for (const DType dtype : {DType::U8, DType::F16, DType::F32, DType::F64}) {
    for (const Dims& sizes : {Dims{37, 50}, Dims{64, 16}, Dims{4, 5}, Dims{3, 100}}) {
      Array from({sizes, {1, sizes[0]}}, dtype);
      from.set(counted(sizes[0] * sizes[1]));
      Array to(contiguous(sizes), dtype);
      apply_into(to, Op::copy, {from});
      EXPECT_EQ(to.values(), from.values());
    }
  }
}

TEST(Copy, ChangesBetweenChannelsLastAndContiguous) {
  const Dims sizes{2, 19, 7, 6};
  Array last({sizes, channels_last_strides(sizes)}, DType::F32);
  last.set(counted(num_elements(sizes)));
  Array plain(contiguous(sizes), DType::F32), back(last.geometry, DType::F32);
  apply_into(plain, Op::copy, {last});
  EXPECT_EQ(plain.values(), last.values());
  apply_into(back, Op::copy, {plain});
  EXPECT_EQ(back.values(), last.values());
}

TEST(Copy, CastsATransposedWindow) {
  Array from({{40, 60}, {1, 45}}, DType::F32);
  from.set(counted(2400));
  EXPECT_EQ(apply(Op::copy, {from}, {}, DType::F64).values(), from.values());
  Array to(contiguous({40, 60}), DType::BF16);
  apply_into(to, Op::copy, {from});
  EXPECT_EQ(to.values(), from.values());
}

TEST(Copy, ExpandsAndTakesEmptyWindows) {
  Array row({{3, 4}, {0, 1}}, DType::F32);
  row.set({1, 2, 3, 4});
  Array to(contiguous({3, 4}), DType::F32);
  apply_into(to, Op::copy, {row});
  EXPECT_EQ(to.values(), (Numbers{1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4}));
  apply_into(Array(contiguous({0, 4}), DType::F32), Op::copy, {Array({0, 4}, {})});
}

}  // namespace
}  // namespace etch::cpu
