// Reductions: literal values, the order of tracer/reduction.h written out plainly, threads.
#include "tracer/reduction.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/parallel.h"
#include "tests/eager/cpu/values.h"
#include "tests/runtime/expect_error.h"

namespace etch::cpu {
namespace {

Attrs over(uint64_t axes, bool keepdim = false) { return ReductionAttrs(axes, keepdim).pack(); }

TEST(Reduction, SumsOverAxes) {
  const Array a({2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(apply(Op::sum, {a}, over(0b10)).values(), (Numbers{6, 15}));
  EXPECT_EQ(apply(Op::sum, {a}, over(0b01)).values(), (Numbers{5, 7, 9}));
  EXPECT_EQ(apply(Op::sum, {a}, over(0b11)).values(), Numbers{21});
  const Array kept = apply(Op::sum, {a}, over(0b10, true));
  EXPECT_EQ(kept.geometry.sizes, (Dims{2, 1}));
  EXPECT_EQ(kept.values(), (Numbers{6, 15}));
  EXPECT_EQ(apply(Op::sum, {a}, over(0)).values(), a.values());
}

TEST(Reduction, KnowsEveryRow) {
  const Array a({2, 3}, {3, 1, 2, -4, 0, 6});
  EXPECT_EQ(apply(Op::prod, {a}, over(0b10)).values(), (Numbers{6, 0}));
  EXPECT_EQ(apply(Op::amax, {a}, over(0b10)).values(), (Numbers{3, 6}));
  EXPECT_EQ(apply(Op::amin, {a}, over(0b01)).values(), (Numbers{-4, 0, 2}));
  EXPECT_EQ(apply(Op::any, {a}, over(0b01)).values(), (Numbers{1, 1, 1}));
  EXPECT_EQ(apply(Op::all, {a}, over(0b01)).values(), (Numbers{1, 0, 1}));
  EXPECT_EQ(apply(Op::argmax, {a}, over(0b10)).values(), (Numbers{0, 2}));
  EXPECT_EQ(apply(Op::argmin, {a}, over(0b01, true)).values(), (Numbers{1, 1, 0}));
  EXPECT_EQ(apply(Op::argmax, {a}, over(0b11)).values(), Numbers{5});
}

TEST(Reduction, IntegersAccumulateInI64) {
  const Array a({3}, {2147483647, 2147483647, 1}, DType::I32);
  const Array sum = apply(Op::sum, {a}, over(1));
  EXPECT_EQ(sum.dtype, DType::I64);
  EXPECT_EQ(sum.values(), Numbers{4294967295.0});
  EXPECT_EQ(apply(Op::sum, {Array({3}, {1, 1, 0}, DType::Bool)}, over(1)).values(), Numbers{2});
  EXPECT_EQ(apply(Op::amax, {a}, over(1)).dtype, DType::I32);
}

TEST(Reduction, HalvesAccumulateInF32) {
  const Array a(contiguous({4096}), DType::BF16);
  a.set(Numbers(4096, 1));
  EXPECT_EQ(apply(Op::sum, {a}, over(1)).values(), Numbers{4096});  // a bf16 sum would stop at 256
}

TEST(Reduction, NothingGivesTheIdentity) {
  EXPECT_EQ(apply(Op::sum, {Array({0, 2}, {})}, over(0b01)).values(), (Numbers{0, 0}));
  EXPECT_EQ(apply(Op::prod, {Array({0}, {})}, over(0b01)).values(), Numbers{1});
  EXPECT_EQ(apply(Op::all, {Array({0}, {})}, over(0b01)).values(), Numbers{1});
  EXPECT_ERROR(apply(Op::amax, {Array({0}, {})}, over(1)), ShapeError, "amax");
}

TEST(Reduction, NanWinsAndTiesTakeTheFirst) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const Array a({5}, {1, kNan, 3, kNan, 3});
  EXPECT_TRUE(std::isnan(apply(Op::amax, {a}, over(1)).values()[0]));
  EXPECT_TRUE(std::isnan(apply(Op::amin, {a}, over(1)).values()[0]));
  EXPECT_EQ(apply(Op::argmax, {a}, over(1)).values(), Numbers{1});
  EXPECT_EQ(apply(Op::argmax, {Array({4}, {1, 3, 3, 2})}, over(1)).values(), Numbers{1});
  constexpr double kInf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(apply(Op::argmax, {Array({2}, {-kInf, -kInf})}, over(1)).values(), Numbers{0});
}

/// The order of tracer/reduction.h, element by element.
class Plain {
 public:
  Plain(const Array& in, uint64_t axes) : in_(in), order_(reduction_order(in.geometry, axes)) {}

  /// In memory order of the kept dimensions.
  std::vector<float> sums() const {
    std::vector<int> kept, outer, run;
    int inner = order_.ndim;
    if (order_.kind == ReductionOrder::Kind::Rows)
      while (inner > 0 && order_.reduced[inner - 1]) --inner;
    for (int d = 0; d < order_.ndim; ++d) (!order_.reduced[d] ? kept : d >= inner ? run : outer).push_back(d);
    std::vector<float> result;
    for (int64_t k : offsets(kept)) {
      std::vector<float> parts;
      if (order_.kind == ReductionOrder::Kind::Rows) {
        for (int64_t o : offsets(outer)) parts.push_back(sum_run(k + o, offsets(run)));
        result.push_back(outer.empty() ? parts[0] : fold(parts));
      } else {
        const std::vector<int64_t> rows = offsets(outer);
        const auto each = static_cast<size_t>(chunk_rows(static_cast<int64_t>(rows.size())));
        for (size_t at = 0; at < rows.size(); at += each) {
          std::vector<float> chunk;
          for (size_t r = at; r < std::min(at + each, rows.size()); ++r)
            chunk.push_back(element(k + rows[r]));
          parts.push_back(fold(chunk));
        }
        result.push_back(fold(parts));
      }
    }
    return result;
  }

 private:
  float element(int64_t offset) const {
    return static_cast<float>(read_element(in_.operand().data() + offset * 4, in_.dtype));
  }
  static float fold(const std::vector<float>& values) {
    float total = 0;
    for (const float value : values) total += value;
    return total;
  }
  float sum_run(int64_t base, const std::vector<int64_t>& elements) const {
    std::vector<float> blocks;
    for (size_t at = 0; at < elements.size(); at += kReductionBlock) {
      float lane[kReductionLanes] = {};
      for (size_t i = at; i < std::min<size_t>(at + kReductionBlock, elements.size()); ++i)
        lane[(i - at) % kReductionLanes] += element(base + elements[i]);
      for (int width = kReductionLanes / 2; width > 0; width /= 2)
        for (int l = 0; l < width; ++l) lane[l] += lane[l + width];
      blocks.push_back(lane[0]);
    }
    return fold(blocks);
  }
  std::vector<int64_t> offsets(const std::vector<int>& dims) const {
    std::vector<int64_t> result{0};
    for (const int d : dims) {
      std::vector<int64_t> next;
      for (const int64_t base : result)
        for (int64_t i = 0; i < order_.size[d]; ++i) next.push_back(base + i * order_.stride[d]);
      result = next;
    }
    return result;
  }

  const Array& in_;
  ReductionOrder order_;
};

TEST(Reduction, FollowsTheOrderBitForBit) {
  const std::vector<Geometry> geometries = {
      contiguous({5}),
      contiguous({70000}),
      contiguous({3, 5000}),
      contiguous({5000, 3}),
      contiguous({200, 2100}),
      contiguous({6, 7, 40}),
      contiguous({2, 40, 3, 50}),
      contiguous({1, 130, 1, 9}),
      {{4, 6, 5, 8}, channels_last_strides({4, 6, 5, 8})},
      {{9, 300}, {1, 9}},
      {{70, 90}, {200, 2}},
      {{30, 40}, {0, 1}},
      {{40, 30}, {1, 0}},
      {{2, 3000, 2}, {1, 2, 6000}},
  };
  for (const Geometry& geometry : geometries) {
    const Array in = random_array(geometry, DType::F32, 3);
    for (uint64_t axes = 0; axes < uint64_t{1} << geometry.ndim(); ++axes) {
      const Array out = apply(Op::sum, {in}, over(axes, true));
      // Kept dimensions in memory order of the operand: a window of the output with the operand's strides.
      std::vector<float> found;
      const ReductionOrder order = reduction_order(geometry, axes);
      Dims sizes, strides;
      for (int d = 0; d < order.ndim; ++d)
        if (!order.reduced[d]) {
          sizes.push_back(order.size[d]);
          strides.push_back(out.geometry.strides[order.axis[d]]);
        }
      Array window = out;
      window.geometry = {sizes, strides};
      for (const double value : window.values()) found.push_back(static_cast<float>(value));
      const std::vector<float> expected = Plain(in, axes).sums();
      ASSERT_EQ(found.size(), expected.size());
      EXPECT_EQ(std::memcmp(found.data(), expected.data(), found.size() * sizeof(float)), 0)
          << to_string(geometry.sizes) << " " << to_string(geometry.strides) << " axes " << axes;
    }
  }
}

TEST(Reduction, ShortRowsFollowTheOrderToo) {
  for (int64_t n = 1; n <= 40; ++n) {
    const Array in = random_array(contiguous({37, n}), DType::F32, static_cast<unsigned>(n));
    const std::vector<float> expected = Plain(in, 0b10).sums();
    const Numbers found = apply(Op::sum, {in}, over(0b10)).values();
    for (size_t r = 0; r < 37; ++r) ASSERT_EQ(static_cast<float>(found[r]), expected[r]) << n;
  }
}

TEST(Reduction, ArgumentsOfLongRowsAreTheFirstBest) {
  Array in(contiguous({3, 1000}), DType::F32);
  Numbers numbers(3000, 1);
  numbers[700] = numbers[900] = 2;
  numbers[1000 + 64] = -1;
  numbers[2000 + 999] = std::numeric_limits<double>::quiet_NaN();
  in.set(numbers);
  EXPECT_EQ(apply(Op::argmax, {in}, over(0b10)).values(), (Numbers{700, 0, 999}));
  EXPECT_EQ(apply(Op::argmin, {in}, over(0b10)).values(), (Numbers{0, 64, 999}));
}

TEST(Reduction, ThreadsDoNotChangeBits) {
  const int threads = num_threads();
  for (const Dims& sizes : {Dims{300000}, Dims{9000, 33}, Dims{33, 9000}, Dims{2, 60000}}) {
    const Array in = random_array(contiguous(sizes), DType::F32, 5);
    for (uint64_t axes = 1; axes < uint64_t{1} << sizes.size(); ++axes) {
      set_num_threads(1);
      const std::vector<char> one = apply(Op::sum, {in}, over(axes)).bits();
      set_num_threads(2);
      EXPECT_EQ(apply(Op::sum, {in}, over(axes)).bits(), one) << to_string(sizes);
    }
  }
  set_num_threads(threads);
}

TEST(Reduction, UsesGivenScratch) {
  const Array in = random_array(contiguous({100000}), DType::F32, 6);
  const Array out(Geometry{}, DType::F32);
  const Operand from = in.operand(), to = out.operand();
  const Attrs attrs = over(1);
  const OpCall call{Op::sum, {&from, 1}, {&to, 1}, attrs};
  ASSERT_GT(scratch_bytes(call), 0u);
  std::vector<char> scratch(scratch_bytes(call));
  run(call, scratch.data());
  EXPECT_EQ(out.bits(), apply(Op::sum, {in}, attrs).bits());
}

}  // namespace
}  // namespace etch::cpu
