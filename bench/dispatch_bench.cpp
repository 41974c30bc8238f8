// Host time of one small op: eager dispatch, the tape, and deferral inside a known traced path.
#include <benchmark/benchmark.h>

#include <ctime>

#include "eager/tensor.h"
#include "jit/compile.h"

namespace etch {
namespace {

constexpr int kChain = 200;

// Seconds this thread has run: others on the machine do not count.
double thread_seconds() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Adds a counter of seconds an op of the chain.
void per_op(benchmark::State& state) {
  state.counters["per_op"] = benchmark::Counter(static_cast<double>(state.iterations() * kChain),
                                                benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

void eager_add(benchmark::State& state) {
  const Tensor a = ones({1}), b = ones({1});
  for (auto _ : state) benchmark::DoNotOptimize(a + b);
}
BENCHMARK(eager_add);

void eager_add_scalar(benchmark::State& state) {
  const Tensor a = ones({1});
  for (auto _ : state) benchmark::DoNotOptimize(a + 1.0);
}
BENCHMARK(eager_add_scalar);

void eager_add_in_place(benchmark::State& state) {
  Tensor a = ones({1});
  const Tensor b = ones({1});
  for (auto _ : state) a += b;
}
BENCHMARK(eager_add_in_place);

void eager_add_with_grad(benchmark::State& state) {
  const Tensor a = ones({1}).requires_grad_(), b = ones({1});
  for (auto _ : state) benchmark::DoNotOptimize(a + b);
}
BENCHMARK(eager_add_with_grad);

void eager_mul_with_grad(benchmark::State& state) {
  const Tensor a = ones({1}).requires_grad_(), b = ones({1}).requires_grad_();
  for (auto _ : state) benchmark::DoNotOptimize(a * b);
}
BENCHMARK(eager_mul_with_grad);

void eager_view(benchmark::State& state) {
  const Tensor a = ones({2, 3});
  for (auto _ : state) benchmark::DoNotOptimize(a.t());
}
BENCHMARK(eager_view);

// Its forward and teardown are left out.
void eager_backward_of_a_chain(benchmark::State& state) {
  const Tensor a = ones({1}).requires_grad_(), b = ones({1});
  for (auto _ : state) {
    Tensor y = a;
    for (int i = 0; i < kChain; ++i) y = y * b;
    const double start = thread_seconds();
    y.backward();
    state.SetIterationTime(thread_seconds() - start);
  }
  per_op(state);
}
BENCHMARK(eager_backward_of_a_chain)->UseManualTime();

// Deferral and matching of known ops; the flush is not counted.
void deferred(benchmark::State& state, bool with_tape) {
  const Tensor a = ones({1}).requires_grad_(with_tape), b = ones({1});
  double seconds = 0;
  auto chain = compile([&] {
    const double start = thread_seconds();
    Tensor y = a;
    for (int i = 0; i < kChain; ++i) y = y + b;
    seconds = thread_seconds() - start;
    return y;
  });
  for (int i = 0; i < 5; ++i) chain();
  for (auto _ : state) {
    chain();
    state.SetIterationTime(seconds);
  }
  per_op(state);
}
void deferred_add(benchmark::State& state) { deferred(state, false); }
void deferred_add_with_grad(benchmark::State& state) { deferred(state, true); }
BENCHMARK(deferred_add)->UseManualTime();
BENCHMARK(deferred_add_with_grad)->UseManualTime();

// A whole call of a known path, with its flush and kernels.
void traced_call_of_a_chain(benchmark::State& state) {
  const Tensor a = ones({1}), b = ones({1});
  auto chain = compile([&] {
    Tensor y = a;
    for (int i = 0; i < kChain; ++i) y = y + b;
    return y;
  });
  for (int i = 0; i < 5; ++i) chain();
  for (auto _ : state) benchmark::DoNotOptimize(chain());
  per_op(state);
}
BENCHMARK(traced_call_of_a_chain);

void empty_traced_call(benchmark::State& state) {
  auto nothing = compile([] {});
  for (auto _ : state) nothing();
}
BENCHMARK(empty_traced_call);

}  // namespace
}  // namespace etch
