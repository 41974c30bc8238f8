// Generated kernels against hand-written loops with the same reads and writes, on one thread.
//
// Names end in the bytes that the kernel reads and writes; `hand` is the plain loop compiled with the
// library's flags at -O3.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <memory>

#include "codegen/kernel.h"
#include "tracer/attrs.h"
#include "tracer/reduction.h"

namespace etch {
namespace {

GraphOperand window(int buffer, const Geometry& geometry) {
  GraphOperand operand;
  operand.kind = GraphOperand::Kind::Tensor;
  operand.buffer = buffer;
  operand.geometry = geometry;
  return operand;
}

GraphOperand scalar(double value) {
  GraphOperand operand;
  operand.kind = GraphOperand::Kind::Scalar;
  operand.scalar = value;
  return operand;
}

/// A group with its buffers, all f32, ready to run on one thread.
class Runner {
 public:
  GraphOperand tensor(const Dims& sizes) {
    const int64_t count = num_elements(sizes);
    auto* data = static_cast<float*>(
        std::aligned_alloc(1 << 21, (static_cast<size_t>(count) * 4 + (1 << 21)) >> 21 << 21));
    for (int64_t i = 0; i < count; ++i) data[i] = static_cast<float>(i % 1000) * 1e-3f;
    buffers_.emplace_back(data);
    return window(static_cast<int>(buffers_.size()) - 1, contiguous(sizes));
  }
  GraphOperand op(Op op, std::vector<GraphOperand> inputs) {
    const GraphOperand output = window(next_++, inputs[0].geometry);
    add(op, std::move(inputs), output, {});
    return output;
  }
  GraphOperand reduce(Op op, const GraphOperand& operand, uint64_t axes) {
    Geometry geometry = operand.geometry;
    for (int i = 0; i < geometry.ndim(); ++i)
      if (axes >> i & 1) geometry.sizes[i] = 1;
    const GraphOperand output = window(next_++, contiguous(geometry.sizes));
    add(op, {operand}, output, ReductionAttrs(axes, true).pack());
    return output;
  }
  void store(Op op, std::vector<GraphOperand> inputs, const GraphOperand& output, Attrs attrs = {}) {
    add(op, std::move(inputs), output, attrs);
    fused_.outputs.push_back(output);
  }
  void build() {
    fused_.op = Op::fused;
    fused_.group = group_;
    kernel_ = codegen::lower(fused_);
    const codegen::LoweredKernel* const kernels[] = {&kernel_};
    loaded_ = codegen::load_host_kernels(kernels)[0];
    scratch_.resize(static_cast<size_t>(kernel_.scratch_bytes) + 64);
    for (const GraphOperand& operand : kernel_.pointers)
      pointers_.push_back(reinterpret_cast<char*>(data(operand)));
    pointers_.push_back(scratch_.data() + (64 - reinterpret_cast<uintptr_t>(scratch_.data()) % 64));
    for (const GraphOperand& operand : kernel_.scalars)
      scalars_.push_back(codegen::kernel_scalar(operand.scalar, operand.dtype));
  }
  void run() const {
    for (size_t i = 0; i < kernel_.phases.size(); ++i)
      loaded_.phases[i](pointers_.data(), kernel_.dims.data(), scalars_.data(), 0, kernel_.phases[i].count);
  }
  float* data(const GraphOperand& operand) const {
    return buffers_[static_cast<size_t>(operand.buffer)].get();
  }

 private:
  struct Free {
    void operator()(float* data) const { std::free(data); }
  };
  void add(Op op, std::vector<GraphOperand> inputs, const GraphOperand& output, Attrs attrs) {
    Node node;
    node.op = op;
    node.attrs = attrs;
    node.inputs = std::move(inputs);
    node.outputs = {output};
    group_->body.push_back(std::move(node));
  }
  std::vector<std::unique_ptr<float, Free>> buffers_;
  int next_ = 1000;
  std::shared_ptr<NodeGroup> group_ = std::make_shared<NodeGroup>();
  Node fused_;
  codegen::LoweredKernel kernel_;
  codegen::LoadedKernel loaded_;
  std::vector<char> scratch_;
  std::vector<char*> pointers_;
  std::vector<codegen::KernelScalar> scalars_;
};

void report(benchmark::State& state, int64_t bytes) { state.SetBytesProcessed(state.iterations() * bytes); }

/// y = a * 2 + b
void triad(benchmark::State& state, bool generated) {
  const int64_t count = state.range(0);
  Runner runner;
  const GraphOperand a = runner.tensor({count}), b = runner.tensor({count}), y = runner.tensor({count});
  runner.store(Op::add, {runner.op(Op::mul, {a, scalar(2)}), b}, y);
  runner.build();
  const float *pa = runner.data(a), *pb = runner.data(b);
  float* py = runner.data(y);
  for (auto _ : state) {
    if (generated) {
      runner.run();
    } else {
#pragma GCC ivdep
      for (int64_t i = 0; i < count; ++i) py[i] = pa[i] * 2.0f + pb[i];
    }
    benchmark::ClobberMemory();
  }
  report(state, count * 12);
}
void BM_TriadGenerated(benchmark::State& state) { triad(state, true); }
void BM_TriadHand(benchmark::State& state) { triad(state, false); }
BENCHMARK(BM_TriadGenerated)->Arg(1 << 12)->Arg(1 << 16)->Arg(1 << 24);
BENCHMARK(BM_TriadHand)->Arg(1 << 12)->Arg(1 << 16)->Arg(1 << 24);

/// gelu(tanh(1.1 x + 0.1) * sigmoid(x) - x * x) + 0.5 x
void BM_ChainGenerated(benchmark::State& state) {
  const int64_t count = state.range(0);
  Runner r;
  const GraphOperand x = r.tensor({count}), y = r.tensor({count});
  const GraphOperand t = r.op(Op::tanh, {r.op(Op::add, {r.op(Op::mul, {x, scalar(1.1)}), scalar(0.1)})});
  const GraphOperand product = r.op(Op::mul, {t, r.op(Op::sigmoid, {x})});
  const GraphOperand g = r.op(Op::gelu, {r.op(Op::sub, {product, r.op(Op::mul, {x, x})})});
  r.store(Op::add, {g, r.op(Op::mul, {x, scalar(0.5)})}, y);
  r.build();
  for (auto _ : state) r.run();
  report(state, count * 8);
}
BENCHMARK(BM_ChainGenerated)->Arg(1 << 12)->Arg(1 << 18)->Arg(1 << 24);

/// x * w[channel] on channels-last memory
void BM_ChannelsGenerated(benchmark::State& state) {
  const int64_t channels = state.range(0), rows = (1 << 24) / channels;
  Runner r;
  const GraphOperand x = r.tensor({rows, channels}), w = r.tensor({channels}), y = r.tensor({rows, channels});
  r.store(Op::mul, {x, w}, y);
  r.build();
  for (auto _ : state) r.run();
  report(state, rows * channels * 8);
}
BENCHMARK(BM_ChannelsGenerated)->Arg(8)->Arg(64)->Arg(512);

void BM_SoftmaxGenerated(benchmark::State& state) {
  const int64_t columns = state.range(0), rows = (1 << 22) / columns;
  Runner r;
  const GraphOperand x = r.tensor({rows, columns}), y = r.tensor({rows, columns});
  const GraphOperand e = r.op(Op::exp, {r.op(Op::sub, {x, r.reduce(Op::amax, x, 2)})});
  r.store(Op::div, {e, r.reduce(Op::sum, e, 2)}, y);
  r.build();
  for (auto _ : state) r.run();
  report(state, rows * columns * 8);
}
BENCHMARK(BM_SoftmaxGenerated)->Arg(10)->Arg(256)->Arg(1024)->Arg(8192);

void BM_RowSumGenerated(benchmark::State& state) {
  const int64_t columns = state.range(0), rows = (1 << 24) / columns;
  Runner r;
  const GraphOperand x = r.tensor({rows, columns}), y = r.tensor({rows, 1});
  r.store(Op::sum, {x}, y, ReductionAttrs(2, true).pack());
  r.build();
  for (auto _ : state) r.run();
  report(state, rows * columns * 4);
}
BENCHMARK(BM_RowSumGenerated)->Arg(64)->Arg(1024)->Arg(1 << 24);

void BM_RowSumInCacheGenerated(benchmark::State& state) {
  Runner r;
  const GraphOperand x = r.tensor({8, 1024}), y = r.tensor({8, 1});
  r.store(Op::sum, {x}, y, ReductionAttrs(2, true).pack());
  r.build();
  for (auto _ : state) r.run();
  report(state, 8 * 1024 * 4);
}
BENCHMARK(BM_RowSumInCacheGenerated);

/// The plainest loop that reads every byte: a bound for sums.
void BM_ReadHand(benchmark::State& state) {
  const int64_t count = state.range(0);
  Runner r;
  const GraphOperand x = r.tensor({count});
  const float* p = r.data(x);
  for (auto _ : state) {
    float lanes[64] = {};
    for (int64_t i = 0; i < count; i += 64)
      for (int l = 0; l < 64; ++l) lanes[l] += p[i + l];
    benchmark::DoNotOptimize(lanes);
  }
  report(state, count * 4);
}
BENCHMARK(BM_ReadHand)->Arg(8 * 1024)->Arg(1 << 24);

void BM_ColumnSumGenerated(benchmark::State& state) {
  const int64_t columns = state.range(0), rows = (1 << 24) / columns;
  Runner r;
  const GraphOperand x = r.tensor({rows, columns}), y = r.tensor({1, columns});
  r.store(Op::sum, {x}, y, ReductionAttrs(1, true).pack());
  r.build();
  for (auto _ : state) r.run();
  report(state, rows * columns * 4);
}
BENCHMARK(BM_ColumnSumGenerated)->Arg(8)->Arg(64)->Arg(512)->Arg(4096);

void BM_LayerNormGenerated(benchmark::State& state) {
  const int64_t columns = 1024, rows = 8192;
  Runner r;
  const GraphOperand x = r.tensor({rows, columns}), y = r.tensor({rows, columns}), w = r.tensor({columns});
  const GraphOperand mean = r.op(Op::mul, {r.reduce(Op::sum, x, 2), scalar(1.0 / columns)});
  const GraphOperand d = r.op(Op::sub, {x, mean});
  const GraphOperand v = r.op(Op::mul, {r.reduce(Op::sum, r.op(Op::square, {d}), 2), scalar(1.0 / columns)});
  r.store(Op::mul, {r.op(Op::mul, {d, r.op(Op::rsqrt, {v})}), w}, y);
  r.build();
  for (auto _ : state) r.run();
  report(state, rows * columns * 8);
}
BENCHMARK(BM_LayerNormGenerated);

}  // namespace
}  // namespace etch
