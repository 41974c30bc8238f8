// From recorded paths to graphs.
#include <gtest/gtest.h>

#include "tracer/attrs.h"
#include "tracer/path.h"

namespace etch {
namespace {

using Kind = RecordedOperand::Kind;

RecordedOperand window(int number, Dims sizes, DType dtype = DType::F32) {
  return {Kind::Tensor, dtype, Scalar::Kind::Float, number, contiguous(sizes)};
}
RecordedOperand scalar(Scalar::Kind kind) { return {Kind::Scalar, DType::F32, kind, -1, {}}; }

TEST(BuildGraph, NumbersSlotsInStreamOrder) {
  const RecordedOp mul{Op::mul, {}, {window(0, {3}), scalar(Scalar::Kind::Int)}, {window(1, {3})}};
  const RecordedOp fill{Op::copy, pack_sizes({3}), {scalar(Scalar::Kind::Int)}, {window(2, {3}, DType::F16)}};
  const RecordedOp drop{
      Op::dropout,
      {},
      {window(1, {3}), scalar(Scalar::Kind::Int), scalar(Scalar::Kind::Int), scalar(Scalar::Kind::Float)},
      {window(3, {3})}};
  Path path;
  path.ops = {&mul, &fill, &drop};
  path.storages = {{true, 12, Device::cpu()},
                   {false, 12, Device::cpu()},
                   {false, 6, Device::cpu()},
                   {false, 12, Device::cpu()}};
  const Graph graph = build_graph(path, {false, false, true, true});
  EXPECT_EQ(print(graph), R"(graph cpu slots 10
buffer %0 external 12 #0
buffer %1 internal 12 #1
buffer %2 output 6 #2
buffer %3 output 12 #3
mul(%0:f32[3]{1}@0, f32@1) -> %1:f32[3]{1}@2
copy<3>(f32@3) -> %2:f16[3]{1}@4
dropout(%1:f32[3]{1}@5, i64@6, i64@7, f64@8) -> %3:f32[3]{1}@9
)");
  EXPECT_NO_THROW(verify(graph, "built"));
}

TEST(BuildGraph, KeepsAbsentOperandsAndEmptyPaths) {
  Path path;
  EXPECT_EQ(print(build_graph(path, {})), "graph cpu slots 0\n");
  RecordedOperand none{Kind::Absent, DType::F32, Scalar::Kind::Float, -1, {}};
  const RecordedOp conv{Op::conv2d,
                        ConvAttrs().pack(),
                        {window(0, {1, 1, 2, 2}), window(1, {1, 1, 1, 1}), none},
                        {window(2, {1, 1, 2, 2})}};
  path.ops = {&conv};
  path.storages = {{true, 16, Device::cpu()}, {true, 4, Device::cpu()}, {false, 16, Device::cpu()}};
  const Graph graph = build_graph(path, {false, false, true});
  EXPECT_EQ(graph.nodes[0].inputs[2].kind, GraphOperand::Kind::Absent);
  EXPECT_EQ(graph.nodes[0].inputs[2].slot, -1);
  EXPECT_EQ(graph.num_slots, 4);
}

}  // namespace
}  // namespace etch
