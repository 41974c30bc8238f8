// Strides, broadcasting and overlap.
#include "runtime/shape.h"

#include "tests/runtime/expect_error.h"

namespace etch {
namespace {

TEST(Dims, EditsKeepOrder) {
  Dims dims = {2, 3, 5};
  dims.insert(1, 7);
  EXPECT_EQ(dims, Dims({2, 7, 3, 5}));
  dims.erase(0);
  EXPECT_EQ(dims, Dims({7, 3, 5}));
  EXPECT_EQ(to_string(dims), "[7, 3, 5]");
  EXPECT_EQ(to_string(Dims{}), "[]");
  EXPECT_EQ(num_elements(Dims{}), 1);
}

TEST(Dims, TakesAtMostEight) { EXPECT_ERROR(Dims::filled(9, 1), ShapeError, "at most 8 dimensions"); }

TEST(Strides, RowMajor) {
  EXPECT_EQ(contiguous_strides({2, 3, 4}), Dims({12, 4, 1}));
  EXPECT_EQ(contiguous_strides({}), Dims{});
  EXPECT_EQ(contiguous_strides({2, 0, 4}), Dims({4, 4, 1}));
}

TEST(Strides, ChannelsLast) {
  EXPECT_EQ(channels_last_strides({2, 3, 4, 5}), Dims({60, 1, 15, 3}));
  EXPECT_ERROR(channels_last_strides({2, 3}), ShapeError, "expected 4 dimensions, got [2, 3]");
  EXPECT_TRUE(is_channels_last({{2, 3, 4, 5}, {60, 1, 15, 3}}));
  EXPECT_TRUE(is_channels_last({{1, 3, 4, 5}, {999, 1, 15, 3}}));
  EXPECT_FALSE(is_channels_last({{2, 3, 4, 5}, {60, 20, 5, 1}}));
  EXPECT_FALSE(is_channels_last({{3, 4, 5}, {1, 15, 3}}));
}

TEST(Strides, PackedKeepMemoryOrder) {
  EXPECT_EQ(packed_strides_like({2, 3}, {3, 1}), Dims({3, 1}));
  EXPECT_EQ(packed_strides_like({2, 3}, {1, 2}), Dims({1, 2}));
  EXPECT_EQ(packed_strides_like({2, 3}, {1, 20}), Dims({1, 2}));                        // gaps go
  EXPECT_EQ(packed_strides_like({2, 3, 4, 5}, {600, 1, 60, 6}), Dims({60, 1, 15, 3}));  // channels last
  EXPECT_EQ(packed_strides_like({2, 0, 4}, {1, 2, 2}), Dims({4, 4, 1}));                // empty
  EXPECT_EQ(packed_strides_like({}, {}), Dims{});
}

TEST(Strides, PackedPlaceBroadcastAndSingleDimsRowMajor) {
  EXPECT_EQ(packed_strides_like({3, 4}, {0, 1}), Dims({4, 1}));
  EXPECT_EQ(packed_strides_like({3, 4}, {1, 0}), Dims({4, 1}));
  EXPECT_EQ(packed_strides_like({3, 4}, {0, 0}), Dims({4, 1}));
  EXPECT_EQ(packed_strides_like({2, 1, 3}, {3, 77, 1}), Dims({3, 3, 1}));
  EXPECT_EQ(packed_strides_like({2, 1, 4, 5}, {20, 1, 5, 1}), Dims({20, 20, 5, 1}));
  EXPECT_EQ(packed_strides_like({2, 3, 4}, {1, 0, 2}), Dims({1, 8, 2}));
}

TEST(Strides, PackedAreDense) {
  const Dims sizes = {2, 3, 1, 4};
  for (int64_t a : {0, 1, 5})
    for (int64_t b : {0, 1, 2, 40})
      for (int64_t c : {0, 1, 3}) {
        const Dims packed = packed_strides_like(sizes, {a, b, 7, c});
        EXPECT_TRUE(is_dense({sizes, packed})) << to_string(packed);
        EXPECT_EQ(packed_strides_like(sizes, packed), packed);
      }
}

TEST(Geometry, Contiguous) {
  EXPECT_TRUE(is_contiguous({{2, 3}, {3, 1}}));
  EXPECT_FALSE(is_contiguous({{2, 3}, {1, 2}}));
  EXPECT_TRUE(is_contiguous({{2, 1, 3}, {3, 100, 1}}));  // size 1 does not matter
  EXPECT_TRUE(is_contiguous({{2, 0}, {9, 9}}));          // empty
  EXPECT_TRUE(is_contiguous({{}, {}}));
  EXPECT_FALSE(is_contiguous({{3}, {0}}));
  EXPECT_EQ(contiguous({2, 3}).strides, Dims({3, 1}));
}

TEST(Geometry, Dense) {
  EXPECT_TRUE(is_dense({{2, 3}, {1, 2}}));
  EXPECT_TRUE(is_dense({{2, 3, 4}, {3, 1, 6}}));
  EXPECT_FALSE(is_dense({{2, 3}, {4, 1}}));  // gap
  EXPECT_FALSE(is_dense({{2, 3}, {0, 1}}));
  EXPECT_FALSE(is_dense({{2, 2}, {1, 1}}));
  EXPECT_TRUE(is_dense({{1, 0}, {3, 3}}));
}

TEST(Geometry, Extent) {
  EXPECT_EQ(extent({{2, 3}, {3, 1}}), 6);
  EXPECT_EQ(extent({{2, 3}, {10, 2}}), 15);
  EXPECT_EQ(extent({{5}, {0}}), 1);
  EXPECT_EQ(extent({{}, {}}), 1);
  EXPECT_EQ(extent({{4, 0}, {3, 1}}), 0);
}

TEST(Geometry, SelfOverlap) {
  EXPECT_FALSE(may_self_overlap({{2, 3}, {3, 1}}));
  EXPECT_FALSE(may_self_overlap({{2, 3}, {1, 2}}));
  EXPECT_TRUE(may_self_overlap({{3}, {0}}));
  EXPECT_FALSE(may_self_overlap({{1, 3}, {0, 1}}));
  EXPECT_TRUE(may_self_overlap({{3, 3}, {2, 1}}));  // windows that slide
  EXPECT_TRUE(may_self_overlap({{2, 2}, {1, 1}}));
  EXPECT_FALSE(may_self_overlap({{0, 2}, {0, 0}}));
}

TEST(Broadcast, Sizes) {
  EXPECT_EQ(broadcast_sizes("add", {2, 3}, {3}), Dims({2, 3}));
  EXPECT_EQ(broadcast_sizes("add", {4, 1, 3}, {2, 1}), Dims({4, 2, 3}));
  EXPECT_EQ(broadcast_sizes("add", {}, {2}), Dims({2}));
  EXPECT_EQ(broadcast_sizes("add", {0, 3}, {1, 3}), Dims({0, 3}));
  EXPECT_ERROR(broadcast_sizes("add", {2, 3}, {4}), ShapeError,
               "add: expected shapes that broadcast, got [2, 3] and [4]");
  EXPECT_ERROR(broadcast_sizes("add", {0}, {2}), ShapeError, "got [0] and [2]");
}

TEST(Broadcast, Geometry) {
  const Geometry wide = broadcast_to({{3, 1}, {1, 1}}, {2, 3, 4});
  EXPECT_EQ(wide.sizes, Dims({2, 3, 4}));
  EXPECT_EQ(wide.strides, Dims({0, 1, 0}));
  EXPECT_TRUE(can_broadcast_to({3, 1}, {2, 3, 4}));
  EXPECT_FALSE(can_broadcast_to({2, 3}, {3}));
  EXPECT_FALSE(can_broadcast_to({2}, {3}));
  EXPECT_TRUE(can_broadcast_to({}, {0}));
}

TEST(Axis, CountsFromTheEndWhenNegative) {
  EXPECT_EQ(normalize_axis("sum", -1, 3), 2);
  EXPECT_EQ(normalize_axis("sum", 0, 0), 0);
  EXPECT_EQ(normalize_axis("sum", -1, 0), 0);
  EXPECT_ERROR(normalize_axis("sum", 2, 2), IndexError,
               "sum: expected an axis from -2 to 1 for 2 dimensions, got 2");
  EXPECT_ERROR(normalize_axis("sum", -2, 0), IndexError, "from -1 to 0");
}

}  // namespace
}  // namespace etch
