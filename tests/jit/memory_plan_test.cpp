// Packing and in-place reuse.
#include "jit/memory_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "jit/cpu_plan.h"
#include "jit/graph_facts.h"
#include "tests/jit/random_program.h"

namespace etch::test {
namespace {

using jit::LiveRange;
using jit::MemoryPlan;

struct Never : jit::ShareRule {
  bool may_share(int, const GraphOperand&, const GraphOperand&) const override { return false; }
};

int64_t bound_of(const std::vector<LiveRange>& ranges) {
  int64_t most = 0;
  for (const LiveRange& at : ranges) {
    int64_t sum = 0;
    for (const LiveRange& r : ranges)
      if (r.first <= at.first && at.first <= r.last) sum += r.bytes;
    most = std::max(most, sum);
  }
  return most;
}

TEST(Pack, RangesThatMeetInTimeNeverMeetInSpace) {
  std::mt19937 rng(7);
  for (int round = 0; round < 50; ++round) {
    std::vector<LiveRange> ranges(1 + rng() % 60);
    for (LiveRange& r : ranges) {
      r.first = static_cast<int>(rng() % 40);
      r.last = r.first + static_cast<int>(rng() % 12);
      r.bytes = 64 * (1 + static_cast<int64_t>(rng() % 50));
    }
    const int64_t top = jit::pack(ranges);
    EXPECT_GE(top, bound_of(ranges));
    for (const LiveRange& a : ranges) {
      EXPECT_LE(a.offset + a.bytes, top);
      for (const LiveRange& b : ranges) {
        if (&a == &b || a.last < b.first || b.last < a.first) continue;
        EXPECT_TRUE(a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset);
      }
    }
  }
}

/// Forward values that wait for their backward step, as in training: within 2% of the bound.
TEST(Pack, IsCloseToTheBoundOnTrainingShapes) {
  std::mt19937 rng(11);
  for (int round = 0; round < 10; ++round) {
    std::vector<LiveRange> ranges;
    const int layers = 60;
    for (int i = 0; i < layers; ++i) {
      const int64_t bytes = 4096 << (rng() % 5);
      ranges.push_back({i, 2 * layers - i, bytes});
      ranges.push_back({i, i + 1, bytes});
      ranges.push_back({2 * layers - i, 2 * layers - i + 1, 64 * (1 + static_cast<int64_t>(rng() % 300))});
    }
    const int64_t bound = bound_of(ranges);
    EXPECT_LE(static_cast<double>(jit::pack(ranges)), 1.02 * static_cast<double>(bound));
  }
}

TEST(PlanMemory, BuffersAliveTogetherAreApart) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const Program program = random_program(seed, {.nodes = 40});
    const Graph& graph = program.graph;
    const std::vector<jit::BufferFacts> facts = jit::buffer_facts(graph);
    const MemoryPlan plan = jit::plan_memory(graph, std::vector<int64_t>(graph.nodes.size(), 0), Never());
    auto range = [&](size_t b) {
      int last = facts[b].writers.back();
      if (!facts[b].readers.empty()) last = std::max(last, facts[b].readers.back());
      return std::pair(facts[b].writers.front(), last);
    };
    for (size_t a = 0; a < graph.buffers.size(); ++a)
      for (size_t b = 0; b < a; ++b) {
        if (plan.places[a].offset < 0 || plan.places[b].offset < 0) continue;
        if (plan.places[a].output >= 0 || plan.places[b].output >= 0) continue;
        if (range(a).second < range(b).first || range(b).second < range(a).first) continue;
        const int64_t a0 = plan.places[a].offset, b0 = plan.places[b].offset;
        EXPECT_TRUE(a0 + graph.buffers[a].bytes <= b0 || b0 + graph.buffers[b].bytes <= a0)
            << "seed " << seed << ": %" << a << " and %" << b;
      }
    EXPECT_GE(plan.arena_bytes, plan.lower_bound);
  }
}

TEST(PlanMemory, ScratchHasAPlaceOfItsOwn) {
  const Graph graph = parse(
      "graph cpu slots 0\nbuffer %0 external 4096\nbuffer %1 internal 4096\nbuffer %2 output 4096\n"
      "relu(%0:f32[1024]{1}) -> %1:f32[1024]{1}\nneg(%1:f32[1024]{1}) -> %2:f32[1024]{1}\n");
  const MemoryPlan plan = jit::plan_memory(graph, {0, 1000}, Never());
  EXPECT_EQ(plan.arena_bytes, 4096 + 1024);
  EXPECT_EQ(plan.lower_bound, 4096 + 1024);
  EXPECT_EQ(plan.scratch[0], -1);
  EXPECT_EQ(std::abs(plan.scratch[1] - plan.places[1].offset), plan.scratch[1] == 0 ? 1024 : 4096);
}

TEST(PlanMemory, PointwiseResultsTakeOverDyingOperands) {
  const Graph graph = parse(
      "graph cpu slots 0\nbuffer %0 external 4096\nbuffer %1 internal 4096\nbuffer %2 internal 4096\n"
      "buffer %3 output 4096\nbuffer %4 output 4\n"
      "relu(%0:f32[1024]{1}) -> %1:f32[1024]{1}\nneg(%1:f32[1024]{1}) -> %2:f32[1024]{1}\n"
      "sum<1,0>(%2:f32[1024]{1}) -> %4:f32[]{}\nexp(%2:f32[1024]{1}) -> %3:f32[1024]{1}\n");
  const MemoryPlan plan = jit::plan_memory(graph, {0, 0, 0, 0}, jit::CpuShareRule(graph));
  EXPECT_EQ(plan.in_place, 2);
  EXPECT_EQ(plan.arena_bytes, 0) << "all of it lives in the block of the output";
  EXPECT_EQ(plan.places[1].output, 3);
}

TEST(PlanMemory, AnOperandReadTwoWaysIsNotOverwritten) {
  const Graph graph = parse(
      "graph cpu slots 0\nbuffer %0 external 64\nbuffer %1 internal 64\nbuffer %2 internal 64\nbuffer %3 "
      "output 64\n"
      "relu(%0:f32[4,4]{4,1}) -> %1:f32[4,4]{4,1}\n"
      "add(%1:f32[4,4]{4,1}, %1:f32[4,4]{1,4}) -> %2:f32[4,4]{4,1}\n"
      "matmul(%2:f32[4,4]{4,1}, %2:f32[4,4]{4,1}) -> %3:f32[4,4]{4,1}\n");
  EXPECT_EQ(jit::plan_memory(graph, {0, 0, 0}, jit::CpuShareRule(graph)).in_place, 0);
}

TEST(PlanMemory, AShiftedWindowIsNotOverwritten) {
  // One element longer: with 64-byte granules both would get blocks of the same size.
  const Graph graph = parse(
      "graph cpu slots 0\nbuffer %0 external 4096\nbuffer %1 internal 4096\nbuffer %2 internal 4092\n"
      "buffer %3 output 4092\n"
      "relu(%0:f32[1024]{1}) -> %1:f32[1024]{1}\nneg(%1:f32[1023]{1}+1) -> %2:f32[1023]{1}\n"
      "softmax<0>(%2:f32[1023]{1}) -> %3:f32[1023]{1}\n");
  EXPECT_EQ(jit::plan_memory(graph, {0, 0, 0}, jit::CpuShareRule(graph)).in_place, 0);
}

}  // namespace
}  // namespace etch::test
