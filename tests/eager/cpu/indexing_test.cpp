// Indexing: values, order of sums, refused indices.
#include <gtest/gtest.h>

#include "runtime/parallel.h"
#include "tests/eager/cpu/values.h"

namespace etch::cpu {
namespace {

Attrs along(int axis) { return AxisAttrs(axis).pack(); }
Array index(const Dims& sizes, const Numbers& values) { return Array(sizes, values, DType::I64); }

TEST(Indexing, SelectsSlicesAlongAnyAxis) {
  const Array x({3, 2}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(apply(Op::index_select, {x, index({2}, {2, 0})}, along(0)).values(), (Numbers{5, 6, 1, 2}));
  EXPECT_EQ(apply(Op::index_select, {x, index({3}, {1, 1, 0})}, along(1)).values(),
            (Numbers{2, 2, 1, 4, 4, 3, 6, 6, 5}));
  Array transposed({{2, 3}, {1, 2}}, DType::F32);
  transposed.set({1, 3, 5, 2, 4, 6});
  EXPECT_EQ(apply(Op::index_select, {transposed, index({1}, {1})}, along(0)).values(), (Numbers{2, 4, 6}));
}

TEST(Indexing, AddsSlicesInOrder) {
  const Array x({2, 2}, {1, 1, 1, 1}), source({3, 2}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(apply(Op::index_add, {x, index({3}, {1, 1, 0}), source}, along(0)).values(),
            (Numbers{6, 7, 5, 7}));
  // 1e8 + 1 + 1 stays 1e8 only when the ones come one after another.
  const Array big({1}, {1e8}), ones({2}, {1, 1});
  EXPECT_EQ(apply(Op::index_add, {big, index({2}, {0, 0}), ones}, along(0)).values(), Numbers{1e8});
}

TEST(Indexing, GathersAndScattersElements) {
  const Array x({2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(apply(Op::gather, {x, index({2, 2}, {2, 0, 1, 1})}, along(1)).values(), (Numbers{3, 1, 5, 5}));
  EXPECT_EQ(apply(Op::gather, {x, index({1, 3}, {1, 0, 1})}, along(0)).values(), (Numbers{4, 2, 6}));
  const Array zeros({2, 3}, {0, 0, 0, 0, 0, 0}), source({2, 2}, {1, 2, 3, 4});
  EXPECT_EQ(apply(Op::scatter_add, {zeros, index({2, 2}, {2, 2, 0, 1}), source}, along(1)).values(),
            (Numbers{0, 0, 3, 3, 4, 0}));
  EXPECT_EQ(
      apply(Op::scatter_add,
            {Array({2}, {1, 2}, DType::I32), index({2}, {0, 0}), Array({3}, {5, 6, 7}, DType::I32)}, along(0))
          .values(),
      (Numbers{12, 2}));
}

TEST(Indexing, InPlaceAndAliasedOperands) {
  const Array x({3}, {1, 2, 3});
  apply_into(x, Op::index_add, {x, index({3}, {2, 0, 1}), x}, along(0));
  EXPECT_EQ(x.values(), (Numbers{3, 5, 4}));
  const Array y({3}, {1, 2, 3});
  apply_into(y, Op::gather, {y, index({3}, {2, 1, 0})}, along(0));
  EXPECT_EQ(y.values(), (Numbers{3, 2, 1}));
}

TEST(Indexing, EmptyIndexSelectsNothing) {
  const Array x({2}, {1, 2});
  EXPECT_TRUE(apply(Op::index_select, {x, index({0}, {})}, along(0)).values().empty());
  EXPECT_EQ(apply(Op::index_add, {x, index({0}, {}), Array({0}, {})}, along(0)).values(), (Numbers{1, 2}));
}

TEST(Indexing, ThreadsDoNotChangeBits) {
  const Array x = random_array(contiguous({50, 300}), DType::F32, 1);
  Array where(contiguous({2000}), DType::I64);
  for (int64_t i = 0; i < 2000; ++i) write_element(where.at(i), DType::I64, static_cast<double>(i * 7 % 50));
  const Array source = random_array(contiguous({2000, 300}), DType::F32, 2);
  const int threads = num_threads();
  set_num_threads(1);
  const std::vector<char> one = apply(Op::index_add, {x, where, source}, along(0)).bits();
  set_num_threads(2);
  EXPECT_EQ(apply(Op::index_add, {x, where, source}, along(0)).bits(), one);
  set_num_threads(threads);
}

}  // namespace
}  // namespace etch::cpu
