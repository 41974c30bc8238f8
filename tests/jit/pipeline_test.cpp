// The runner, and graphs at the limits of size.
#include "jit/pipeline.h"

#include <gtest/gtest.h>

#include <ctime>
#include <filesystem>
#include <functional>

#include "codegen/kernel.h"
#include "eager/cpu/executor.h"
#include "jit/executable.h"
#include "jit/passes.h"
#include "runtime/config.h"
#include "tests/jit/graph_runner.h"

namespace etch::test {
namespace {

GraphOperand whole(int buffer, const Dims& sizes) {
  GraphOperand operand;
  operand.kind = GraphOperand::Kind::Tensor;
  operand.buffer = buffer;
  operand.geometry = contiguous(sizes);
  return operand;
}

/// `layers` of a product, a bias and an activation, then as many steps backward and updates in place.
Graph training_graph(int layers) {
  Graph graph;
  const Dims sizes{64, 64}, bias{64};
  auto internal = [&](const Dims& s) {
    return whole(graph.add_buffer(GraphBuffer::Kind::Internal, num_elements(s) * 4), s);
  };
  auto emit = [&](Op op, std::vector<GraphOperand> in, GraphOperand out, Attrs attrs = {}) {
    graph.nodes.push_back({op, attrs, std::move(in), {out}, nullptr});
    return out;
  };
  int number = 0;
  auto external = [&](const Dims& s) {
    return whole(graph.add_buffer(GraphBuffer::Kind::External, num_elements(s) * 4, number++), s);
  };
  GraphOperand x = external(sizes);
  std::vector<GraphOperand> weights, biases, activations{x};
  for (int i = 0; i < layers; ++i) {
    weights.push_back(external(sizes));
    biases.push_back(external(bias));
    GraphOperand product = emit(Op::matmul, {x, weights[i]}, internal(sizes));
    product = emit(Op::add, {product, biases[i]}, internal(sizes));
    activations.push_back(x = emit(Op::tanh, {product}, internal(sizes)));
  }
  GraphOperand g = emit(Op::neg, {x}, internal(sizes));
  GraphOperand rate;
  rate.kind = GraphOperand::Kind::Scalar;
  rate.scalar = 0.125;
  for (int i = layers; i-- > 0;) {
    g = emit(Op::tanh_grad, {g, activations[i + 1]}, internal(sizes));
    GraphOperand transposed = activations[i];
    transposed.geometry.strides = {1, 64};
    GraphOperand gw = emit(Op::matmul, {transposed, g}, internal(sizes));
    GraphOperand gb = emit(Op::sum, {g}, internal(bias), {1, 0});
    GraphOperand w = weights[i];
    w.geometry.strides = {1, 64};
    GraphOperand next = emit(Op::matmul, {g, w}, internal(sizes));
    emit(Op::sub, {weights[i], emit(Op::mul, {gw, rate}, internal(sizes))}, weights[i]);
    emit(Op::sub, {biases[i], emit(Op::mul, {gb, rate}, internal(bias))}, biases[i]);
    g = next;
  }
  return graph;
}

// Of the processor: the machine may be busy.
double seconds_of(const std::function<void()>& work) {
  const std::clock_t start = std::clock();
  work();
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr double kTwoSeconds = 40;  // sanitizers are slow
#else
constexpr double kTwoSeconds = 2;
#endif

TEST(Pipeline, FiveThousandNodesTakeLessThanTwoSeconds) {
  const Graph graph = training_graph(5000 / 11);
  ASSERT_GE(graph.nodes.size(), 4900u);
  EXPECT_LT(seconds_of([&] { jit::run_passes(graph, "large", nullptr); }), kTwoSeconds);
}

TEST(Pipeline, FuseTakesLongChainsApartAtTheCap) {
  Graph graph;
  const Dims sizes{4096};
  GraphOperand x = whole(graph.add_buffer(GraphBuffer::Kind::External, 16384, 0), sizes);
  for (int i = 0; i < 5000; ++i) {
    const auto kind = i == 4999 ? GraphBuffer::Kind::Output : GraphBuffer::Kind::Internal;
    const GraphOperand y = whole(graph.add_buffer(kind, 16384, i + 1), sizes);
    graph.nodes.push_back({Op::neg, {}, {x}, {y}, nullptr});
    x = y;
  }
  Graph fused;
  const double seconds = seconds_of([&] { fused = jit::fuse(graph); });
  EXPECT_LT(seconds, kTwoSeconds);
  EXPECT_LE(fused.nodes.size(), 5000u / 60);
  verify(fused, "fuse");
}

TEST(Pipeline, SixtyOperandsSplitIntoGroupsThatCanBeLowered) {
  Graph graph;
  const Dims sizes{1024};
  std::vector<GraphOperand> inputs;
  for (int i = 0; i < 60; ++i)
    inputs.push_back(whole(graph.add_buffer(GraphBuffer::Kind::External, 4096, i), sizes));
  GraphOperand sum = inputs[0];
  for (int i = 1; i < 60; ++i) {
    const auto kind = i == 59 ? GraphBuffer::Kind::Output : GraphBuffer::Kind::Internal;
    const GraphOperand next = whole(graph.add_buffer(kind, 4096, 60 + i), sizes);
    graph.nodes.push_back({Op::add, {}, {sum, inputs[i]}, {next}, nullptr});
    sum = next;
  }
  const Graph fused = jit::fuse(graph);
  verify(fused, "fuse");
  EXPECT_LE(fused.nodes.size(), 2u);
  for (const Node& node : fused.nodes) {
    ASSERT_EQ(node.op, Op::fused);
    EXPECT_LE(node.inputs.size() + node.outputs.size(), 48u);
  }
}

TEST(Pipeline, UpdatesRunAsSoonAsTheirGradientIsComplete) {
  const Graph graph = jit::run_passes(training_graph(30), "updates", nullptr);
  // Gradients of the weights never coexist: few bytes beyond the activations.
  int updates_before_end = 0;
  for (size_t i = 0; i + 8 < graph.nodes.size(); ++i)
    for (const GraphOperand& output : graph.nodes[i].outputs)
      updates_before_end += graph.buffers[output.buffer].kind == GraphBuffer::Kind::External;
  EXPECT_GE(updates_before_end, 50);
}

TEST(Pipeline, AMemoryBudgetIsMetByRecomputing) {
  Program program{training_graph(24), {}, {}};
  for (const GraphBuffer& buffer : program.graph.buffers) {
    program.contents.emplace_back(static_cast<size_t>(buffer.bytes));
    float* data = reinterpret_cast<float*>(program.contents.back().data());
    for (int64_t i = 0; i < buffer.bytes / 4; ++i) data[i] = static_cast<float>((i * 37 % 101) - 50) * 0.01f;
  }
  cpu::register_kernels();
  const LiveSet live = outputs_of(program.graph);
  const auto unlimited = jit::compile_graph(program.graph, live, {.name = "free"});
  const int64_t budget = unlimited->statistics().arena_bytes / 2;
  const auto limited = jit::compile_graph(program.graph, live, {.name = "tight", .memory_budget = budget});
  EXPECT_LE(limited->statistics().arena_bytes, budget);
  EXPECT_EQ(difference(program.graph, run_compiled(*unlimited, program), run_compiled(*limited, program)),
            "");
}

TEST(Pipeline, SkipsAndDumpsByName) {
  ConfigGuard guard;
  const auto folder = std::filesystem::temp_directory_path() / "etch_pipeline_test";
  std::filesystem::remove_all(folder);
  config().dump_dir = folder.string();
  config().skip_passes = "cse,fuse";
  std::vector<jit::PassTime> times;
  const Graph graph = jit::run_passes(training_graph(2), "skipping", &times);
  for (const jit::PassTime& time : times) EXPECT_TRUE(time.name != "cse" && time.name != "fuse");
  for (const Node& node : graph.nodes) EXPECT_NE(node.op, Op::fused);
  EXPECT_TRUE(std::filesystem::exists(folder / "skipping.00-build.txt"));
  EXPECT_TRUE(std::filesystem::exists(folder / "skipping.00-build.dot"));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace etch::test
