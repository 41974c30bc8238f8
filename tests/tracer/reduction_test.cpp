// The memory order of reductions.
#include "tracer/reduction.h"

#include <gtest/gtest.h>

namespace etch {
namespace {

using Kind = ReductionOrder::Kind;

TEST(ReductionOrder, InnermostReducedMeansRows) {
  const ReductionOrder order = reduction_order(contiguous({4, 5}), 0b10);
  EXPECT_EQ(order.kind, Kind::Rows);
  EXPECT_EQ(order.ndim, 2);
  EXPECT_EQ(order.size[1], 5);
  EXPECT_TRUE(order.reduced[1]);
  EXPECT_FALSE(order.reduced[0]);
}

TEST(ReductionOrder, InnermostKeptMeansColumns) {
  EXPECT_EQ(reduction_order(contiguous({4, 5}), 0b01).kind, Kind::Columns);
}

TEST(ReductionOrder, FollowsMemoryNotAxes) {
  const Geometry transposed{{4, 5}, {1, 4}};
  EXPECT_EQ(reduction_order(transposed, 0b01).kind, Kind::Rows);
  const Dims sizes{2, 3, 4, 5};
  const ReductionOrder order = reduction_order({sizes, channels_last_strides(sizes)}, 0b1101);
  EXPECT_EQ(order.kind, Kind::Columns);
  EXPECT_EQ(order.axis[0], 0);
  EXPECT_EQ(order.axis[1], 2);
  EXPECT_EQ(order.axis[2], 3);
  EXPECT_EQ(order.axis[3], 1);
}

TEST(ReductionOrder, DropsDimensionsOfSizeOneAndPutsBroadcastInnermost) {
  const Geometry geometry{{3, 1, 4, 2}, {0, 7, 2, 1}};
  const ReductionOrder order = reduction_order(geometry, 0b0001);
  ASSERT_EQ(order.ndim, 3);
  EXPECT_EQ(order.axis[2], 0);
  EXPECT_EQ(order.kind, Kind::Rows);
}

TEST(ReductionOrder, ASingleElementIsAColumn) {
  const ReductionOrder order = reduction_order(contiguous({1, 1}), 0b11);
  EXPECT_EQ(order.ndim, 0);
  EXPECT_EQ(order.kind, Kind::Columns);
}

TEST(ReductionOrder, ChunksGrowWithTheRows) {
  EXPECT_EQ(chunk_rows(1), 64);
  EXPECT_EQ(chunk_rows(64 * 128), 64);
  EXPECT_EQ(chunk_rows(64 * 128 + 1), 65);
}

}  // namespace
}  // namespace etch
