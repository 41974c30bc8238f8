// The cost of calls beyond their kernels, on tensors of a few elements: replays of a plan, calls of compiled
// and frozen functions, and functions that never settle.
#include <benchmark/benchmark.h>

#include "eager/cpu/executor.h"
#include "eager/tensor.h"
#include "jit/compile.h"
#include "jit/executable.h"
#include "runtime/config.h"

namespace {

using namespace etch;

GraphOperand whole(int buffer, const Dims& sizes) {
  GraphOperand operand;
  operand.kind = GraphOperand::Kind::Tensor;
  operand.buffer = buffer;
  operand.geometry = contiguous(sizes);
  return operand;
}

/// `steps` kernels of two nodes, or as many single nodes, kept apart by products of one element.
void replay(benchmark::State& state, bool fused) {
  cpu::register_kernels();
  const int steps = static_cast<int>(state.range(0));
  const Dims sizes{1, 1};
  Graph graph;
  int number = 0;
  GraphOperand x = whole(graph.add_buffer(GraphBuffer::Kind::External, 4, number++), sizes);
  auto emit = [&](Op op, std::vector<GraphOperand> inputs, bool last) {
    const auto kind = last ? GraphBuffer::Kind::Output : GraphBuffer::Kind::Internal;
    GraphOperand y = whole(graph.add_buffer(kind, 4, number++), sizes);
    graph.nodes.push_back({op, {}, std::move(inputs), {y}, nullptr});
    return y;
  };
  if (!fused) config().skip_passes = "fuse";
  for (int i = 0; i < steps; ++i) {
    if (fused) {
      x = emit(Op::matmul, {x, x}, false);
      x = emit(Op::tanh, {x}, false);
      x = emit(Op::neg, {x}, i + 1 == steps);
    } else {
      x = emit(i % 2 ? Op::tanh : Op::neg, {x}, i + 1 == steps);
    }
  }
  LiveSet live(graph.buffers.size(), false);
  live.back() = true;
  Path path;
  for (const GraphBuffer& buffer : graph.buffers)
    path.storages.push_back({buffer.kind == GraphBuffer::Kind::External, buffer.bytes, Device::cpu()});
  const Ref<jit::PlanExecutable> executable = jit::compile_graph(graph, live, {});
  config().skip_passes = {};
  const Ref<Storage> input = Storage::allocate(Device::cpu(), 4);
  *static_cast<float*>(input->raw_data()) = 0.5f;
  std::vector<Storage*> storages(graph.buffers.size(), nullptr);
  storages[0] = input.get();
  for (auto _ : state) {
    const Ref<Storage> output = Storage::deferred(Device::cpu(), 4);
    storages.back() = output.get();
    executable->run(Segment{path, {}, storages, live});
    benchmark::DoNotOptimize(output->raw_data());
  }
  state.counters["steps"] = executable->statistics().steps;
  state.counters["ns_a_step"] =
      benchmark::Counter(1e-9 * executable->statistics().steps,
                         benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

BENCHMARK_CAPTURE(replay, eager_kernels, false)->Arg(1)->Arg(10)->Arg(1000);
BENCHMARK_CAPTURE(replay, fused_and_products, true)->Arg(1)->Arg(10)->Arg(500);

Tensor chain(Tensor x, int64_t ops) {
  for (int64_t i = 0; i < ops; ++i) x = i % 2 ? x.tanh() : x.neg();
  return x;
}

enum class Way { Eager, Compiled, Frozen };

/// A body of as many ops as plan steps: the same work by plain eager code, by a compiled function, frozen.
void call(benchmark::State& state, Way way) {
  const int64_t ops = state.range(0);
  config().skip_passes = "fuse";
  auto step = compile([ops](const Tensor& x) { return chain(x, ops); });
  const Tensor x = ones({1});
  auto fast = step.freeze(x);
  config().skip_passes = {};
  for (auto _ : state)
    benchmark::DoNotOptimize(way == Way::Eager ? chain(x, ops) : way == Way::Compiled ? step(x) : fast(x));
  state.counters["ns_a_step"] =
      benchmark::Counter(1e-9 * static_cast<double>(ops),
                         benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

BENCHMARK_CAPTURE(call, eager, Way::Eager)->Arg(1)->Arg(10)->Arg(1000);
BENCHMARK_CAPTURE(call, compiled, Way::Compiled)->Arg(1)->Arg(10)->Arg(1000);
BENCHMARK_CAPTURE(call, frozen, Way::Frozen)->Arg(1)->Arg(10)->Arg(1000);

/// 2000 calls of a function that takes another path at each, until it gives up.
void never_settles(benchmark::State& state, bool traced) {
  constexpr int kCalls = 2000;
  std::vector<Tensor> inputs;
  for (int64_t i = 0; i < kCalls; ++i) inputs.push_back(ones({i % 13 + 1, i / 13 % 13 + 1, i / 169 + 1}));
  for (auto _ : state) {
    auto step = compile([](const Tensor& x) { return chain(x, 40); }, {.max_paths = 16});
    for (const Tensor& x : inputs) benchmark::DoNotOptimize(traced ? step(x) : chain(x, 40));
  }
}

BENCHMARK_CAPTURE(never_settles, eager, false);
BENCHMARK_CAPTURE(never_settles, traced, true);

}  // namespace
