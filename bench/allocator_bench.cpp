// Allocation and storage costs on the dispatch path.
#include <benchmark/benchmark.h>

#include "runtime/allocator.h"
#include "runtime/storage.h"

namespace etch {
namespace {

void allocate_and_free(benchmark::State& state) {
  const auto bytes = static_cast<size_t>(state.range(0));
  for (auto _ : state) {
    void* data = allocate(Device::cpu(), bytes, MemoryCategory::Temporary);
    benchmark::DoNotOptimize(data);
    deallocate(Device::cpu(), data);
  }
}
BENCHMARK(allocate_and_free)->Arg(64)->Arg(4096)->Arg(64 << 10)->Arg(1 << 20)->Arg(64 << 20);
BENCHMARK(allocate_and_free)->Arg(64)->Arg(1 << 20)->Threads(2);

void storage_create_and_destroy(benchmark::State& state) {
  for (auto _ : state) {
    Ref<Storage> storage = Storage::allocate(Device::cpu(), static_cast<size_t>(state.range(0)));
    benchmark::DoNotOptimize(storage.get());
  }
}
BENCHMARK(storage_create_and_destroy)->Arg(4)->Arg(1 << 20);

void deferred_storage_create_and_destroy(benchmark::State& state) {
  for (auto _ : state) {
    Ref<Storage> storage = Storage::deferred(Device::cpu(), 4);
    benchmark::DoNotOptimize(storage.get());
  }
}
BENCHMARK(deferred_storage_create_and_destroy);

void change_category(benchmark::State& state) {
  Ref<Storage> storage = Storage::allocate(Device::cpu(), static_cast<size_t>(state.range(0)));
  for (auto _ : state) {
    storage->set_category(MemoryCategory::Gradient);
    storage->set_category(MemoryCategory::Activation);
  }
}
BENCHMARK(change_category)->Arg(4)->Arg(1 << 20);

}  // namespace
}  // namespace etch
