// Views and layout: geometry, sharing, what errs; joins and copies.
#include <gtest/gtest.h>

#include "eager/functional.h"
#include "tests/runtime/expect_error.h"
#include "tests/support/values.h"

namespace etch::testing {
namespace {

Tensor counting(const Dims& sizes) { return arange(num_elements(sizes)).to(DType::F32).view(sizes); }

TEST(Slices, ClipLikePythons) {
  const Tensor x = counting({6});
  EXPECT_VALUES(x.slice(0, 1, 4), f32({1, 2, 3}));
  EXPECT_VALUES(x.slice(0, -2, 100), f32({4, 5}));
  EXPECT_VALUES(x.slice(-1, -100, -4), f32({0, 1}));
  EXPECT_VALUES(x.slice(0, 0, 6, 4), f32({0, 4}));
  EXPECT_VALUES(x.slice(0, 4, 2), f32({0}, {}));
  EXPECT_VALUES(x.slice(0, 1, 6, 2).slice(0, 1, 3, 1), f32({3, 5}));
  EXPECT_ERROR(x.slice(0, 0, 3, -1), ValueError, "use flip");
  EXPECT_ERROR(x.slice(1, 0, 3), IndexError, "slice: expected an axis");
  EXPECT_ERROR(scalar_tensor(1).slice(0, 0, 1), ShapeError, "slice");
}

TEST(Slices, IndexListsMixPositionsRangesAndNewAxes) {
  const Tensor x = counting({2, 3, 4});
  EXPECT_VALUES((x[{1, Slice(0, 2), -1}]), f32({15, 19}));
  EXPECT_VALUES((x[{Slice(), 0, Slice({}, {}, 3)}]), f32({2, 2}, {0, 3, 12, 15}));
  EXPECT_EQ((x[{kNewAxis, Slice(1, {}), kNewAxis}]).sizes(), (Dims{1, 1, 1, 3, 4}));
  EXPECT_VALUES(x[1][2][3], f32({}, {23}));
  EXPECT_ERROR(x[2], IndexError, "select: expected a position in [-2, 2) of axis 0, got 2");
  EXPECT_ERROR((x[{0, 0, 0, 0}]), IndexError, "select");
}

TEST(Views, ShareStorage) {
  Tensor x = counting({2, 3});
  x.view({3, 2}).fill_(7);
  EXPECT_VALUES(x, f32({2, 3}, {7, 7, 7, 7, 7, 7}));
  EXPECT_EQ(&x.transpose(0, 1).storage(), &x.storage());
  EXPECT_EQ(x.slice(0, 1, 2).storage_offset(), 3);
}

TEST(Views, ViewNeedsStridesThatFit) {
  const Tensor x = counting({4, 6});
  EXPECT_EQ(x.view({2, 2, 3, 2}).strides(), (Dims{12, 6, 2, 1}));
  EXPECT_EQ(x.t().view({6, 2, 2}).strides(), (Dims{1, 12, 6}));
  EXPECT_EQ(x.slice(1, 0, 3).view({2, 2, 3}).strides(), (Dims{12, 6, 1}));
  EXPECT_EQ(x.view({-1}).sizes(), (Dims{24}));
  EXPECT_EQ(x.view({1, 24, 1}).sizes(), (Dims{1, 24, 1}));
  EXPECT_ERROR(x.t().view({24}), ShapeError,
               "view: expected strides that allow [24] without a copy, got sizes [6, 4]");
  EXPECT_ERROR(x.slice(1, 0, 3).view({12}), ShapeError, "use reshape");
  EXPECT_ERROR(x.view({5, 5}), ShapeError, "view: expected sizes of 24 elements as in [4, 6], got [5, 5]");
  EXPECT_ERROR(x.view({-1, -1}), ShapeError, "at most one -1");
  EXPECT_ERROR(x.view({-1, 5}), ShapeError, "view");
}

TEST(Views, ReshapeCopiesOnlyWhereItMust) {
  const Tensor x = counting({2, 3});
  EXPECT_EQ(&x.reshape({6}).storage(), &x.storage());
  const Tensor copy = x.t().reshape({6});
  EXPECT_NE(&copy.storage(), &x.storage());
  EXPECT_VALUES(copy, f32({0, 3, 1, 4, 2, 5}));
  EXPECT_VALUES(x.reshape({3, -1}), f32({3, 2}, {0, 1, 2, 3, 4, 5}));
}

TEST(Views, EmptyAndZeroDimensional) {
  EXPECT_EQ(zeros({0, 3}).view({3, 0, 2}).sizes(), (Dims{3, 0, 2}));
  EXPECT_EQ(zeros({0, 3}).reshape({-1, 3}).sizes(), (Dims{0, 3}));
  EXPECT_EQ(zeros({}).view({1, 1}).sizes(), (Dims{1, 1}));
  EXPECT_EQ(zeros({1}).view({}).sizes(), Dims{});
  EXPECT_EQ(zeros({}).flatten().sizes(), (Dims{1}));
  EXPECT_EQ(zeros({}).unsqueeze(0).sizes(), (Dims{1}));
  EXPECT_EQ(zeros({}).permute({}).sizes(), Dims{});
}

TEST(Views, ATensorWithoutDimensionsHasNoAxes) {
  const Tensor x = scalar_tensor(1.0);
  EXPECT_ERROR(x.size(0), IndexError, "size: expected at least one dimension");
  EXPECT_ERROR(x.unbind(), IndexError, "at least one dimension");
  EXPECT_ERROR(x.chunk(2), IndexError, "at least one dimension");
}

TEST(Views, NarrowCountsFromEitherEndAndStaysInside) {
  const Tensor x = counting({2, 3});
  EXPECT_VALUES(x.narrow(1, -2, 2), f32({2, 2}, {1, 2, 4, 5}));
  EXPECT_VALUES(x.narrow(0, 1, 1), f32({1, 3}, {3, 4, 5}));
  EXPECT_EQ(x.narrow(1, 3, 0).sizes(), (Dims{2, 0}));
  EXPECT_ERROR(x.narrow(1, 2, 2), IndexError, "narrow: expected a length in [0, 1] from 2 of axis 1, got 2");
  EXPECT_ERROR(x.narrow(1, -4, 1), IndexError, "narrow: expected a start in [-3, 3] of axis 1, got -4");
  EXPECT_ERROR(scalar_tensor(1.0).narrow(0, 0, 1), IndexError, "at least one dimension");
}

TEST(Views, OfOthersSizesPartsOfAnAxisAndWithoutAxesOfOne) {
  const Tensor x = counting({2, 3});
  EXPECT_EQ(x.view_as(zeros({3, 2})).sizes(), (Dims{3, 2}));
  EXPECT_EQ(x.expand_as(zeros({4, 2, 3})).sizes(), (Dims{4, 2, 3}));
  EXPECT_VALUES(x.narrow(1, 1, 2), f32({2, 2}, {1, 2, 4, 5}));
  EXPECT_VALUES(x.unbind(1).at(2), f32({2, 5}));
  EXPECT_EQ(x.unbind(-1).size(), 3u);
  Tensor padded = zeros({1, 2, 1, 3, 1});
  EXPECT_EQ(padded.squeeze().sizes(), (Dims{2, 3}));
  padded.squeeze().fill_(2);
  EXPECT_EQ(padded.sum().item<float>(), 12);
  EXPECT_EQ(ones({1, 1}).squeeze().sizes(), Dims{});
  EXPECT_TRUE(x.squeeze().is_same(x));
}

TEST(Views, PermuteTransposeSqueezeExpandCheckTheirAxes) {
  const Tensor x = counting({2, 3, 1});
  EXPECT_VALUES(x.permute({2, 1, 0}), f32({1, 3, 2}, {0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(x.squeeze(-1).sizes(), (Dims{2, 3}));
  EXPECT_EQ(x.squeeze(0).sizes(), (Dims{2, 3, 1}));
  EXPECT_EQ(x.expand({4, -1, 3, 5}).sizes(), (Dims{4, 2, 3, 5}));
  EXPECT_EQ(x.expand({2, 3, 5}).strides(), (Dims{3, 1, 0}));
  EXPECT_ERROR(x.permute({0, 1}), ShapeError, "permute: expected 3 axes");
  EXPECT_ERROR(x.permute({0, 1, 1}), ShapeError, "distinct axes");
  EXPECT_ERROR(x.transpose(0, 3), IndexError, "transpose");
  EXPECT_ERROR(x.expand({2, 4, 1}), ShapeError,
               "expand: expected sizes that [2, 3, 1] broadcasts to, got [2, 4, 1]");
}

TEST(Views, SplitAndChunkCoverTheAxis) {
  const Tensor x = counting({5, 2});
  const std::vector<Tensor> parts = x.split(2);
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_VALUES(parts[2], f32({1, 2}, {8, 9}));
  EXPECT_EQ(x.chunk(2)[0].size(0), 3);
  EXPECT_EQ(x.chunk(2, 1).size(), 2u);
  EXPECT_ERROR(x.split(0), ValueError, "split");
}

TEST(Copies, ContiguousCloneAndChannelsLast) {
  const Tensor x = counting({2, 3}), t = x.t();
  EXPECT_TRUE(x.contiguous().is_same(x));
  EXPECT_TRUE(t.contiguous().is_contiguous());
  EXPECT_VALUES(t.contiguous(), f32({3, 2}, {0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(t.clone().strides(), t.strides());
  EXPECT_NE(&x.clone().storage(), &x.storage());
  const Tensor picture = counting({1, 2, 2, 2}).channels_last();
  EXPECT_EQ(picture.strides(), (Dims{8, 1, 4, 2}));
  EXPECT_VALUES(picture, f32({1, 2, 2, 2}, {0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(picture.data<float>()[1], 4);
  EXPECT_ERROR(x.channels_last(), ShapeError, "channels_last: expected [N, C, H, W], got [2, 3]");
}

TEST(Copies, FlipReverses) {
  EXPECT_VALUES(counting({2, 3}).flip({1}), f32({2, 3}, {2, 1, 0, 5, 4, 3}));
  EXPECT_VALUES(counting({2, 3}).flip({0, -1}), f32({2, 3}, {5, 4, 3, 2, 1, 0}));
  EXPECT_VALUES(zeros({0, 2}).flip({0}), f32({0, 2}, {}));
}

TEST(Joins, ConcatPromotesAndChecks) {
  EXPECT_VALUES(concat({i64({1}).tensor(), f32({2.5}).tensor()}), f32({1, 2.5}));
  EXPECT_VALUES(concat({counting({2, 1}), counting({2, 2})}, -1), f32({2, 3}, {0, 0, 1, 1, 2, 3}));
  EXPECT_VALUES(concat({zeros({0, 2}), counting({1, 2})}), f32({1, 2}, {0, 1}));
  EXPECT_ERROR(concat({zeros({2, 2}), zeros({3, 3})}, 1), ShapeError,
               "concat: expected sizes like [2, 2] apart from axis 1, got [3, 3]");
  EXPECT_ERROR(concat({zeros({})}), ShapeError, "use stack");
  EXPECT_ERROR(concat(std::vector<Tensor>{}), ValueError, "concat");
}

TEST(Joins, StackAndPad) {
  EXPECT_VALUES(stack({scalar_tensor(1.0), scalar_tensor(2.0)}), f32({1, 2}));
  EXPECT_VALUES(stack({counting({2}), counting({2})}, 1), f32({2, 2}, {0, 0, 1, 1}));
  EXPECT_ERROR(stack({zeros({2}), zeros({3})}), ShapeError, "stack: expected sizes [2], got [3]");
  EXPECT_VALUES(pad(counting({1, 2}), {{1, 0}, {0, 1}}, 9), f32({2, 3}, {9, 0, 1, 9, 9, 9}));
  EXPECT_VALUES(pad(zeros({0}), {{1, 1}}, 2), f32({2, 2}));
  EXPECT_ERROR(pad(zeros({2}), {{1, 0}, {1, 0}}), ShapeError, "pad");
  EXPECT_ERROR(pad(zeros({2}), {{-1, 0}}), ValueError, "pad");
}

TEST(Indexing, SelectsGathersAndScatters) {
  const Tensor x = counting({3, 2});
  EXPECT_VALUES(x.index_select(0, i64({0}, {}).tensor()), f32({0, 2}, {}));
  EXPECT_VALUES(x.index_select(1, of(DType::U8, {1}).tensor()), f32({3, 1}, {1, 3, 5}));
  EXPECT_VALUES(zeros({3}).scatter_add(0, i64({1, 1}).tensor(), f32({2, 3}).tensor()), f32({0, 5, 0}));
  EXPECT_ERROR(x.index_select(0, i64({3}).tensor()), IndexError, "index_select");
  EXPECT_ERROR(x.index_select(0, i64({-1}).tensor()), IndexError, "index_select");
  EXPECT_ERROR(x.gather(1, i64({1, 1}, {2}).tensor()), IndexError, "gather");
  EXPECT_ERROR(x.index_select(0, f32({0}).tensor()), DTypeError, "expected integer indices, got f32");
  EXPECT_ERROR(x.gather(0, i64({0}).tensor()), ShapeError, "gather");
  EXPECT_ERROR(x.index_add(0, i64({0}).tensor(), zeros({2, 2})), ShapeError, "index_add");
}

TEST(Indexing, MaskedFillAndEmbedding) {
  const Tensor x = counting({2, 2});
  EXPECT_VALUES(x.masked_fill(x > 1, -1), f32({2, 2}, {0, 1, -1, -1}));
  EXPECT_VALUES(embedding(x, i64({2, 1}, {1, 0}).tensor()), f32({2, 1, 2}, {2, 3, 0, 1}));
  EXPECT_ERROR(embedding(x, i64({5}).tensor()), IndexError, "expected");
}

}  // namespace
}  // namespace etch::testing
