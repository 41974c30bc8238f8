// Storages: bytes, deferral, failure, foreign memory.
#include "runtime/storage.h"

#include <thread>
#include <vector>

#include "runtime/error.h"
#include "tests/runtime/expect_error.h"

namespace etch {
namespace {

constexpr Device kCpu = Device::cpu();

int64_t bytes_in(MemoryCategory category) { return memory_stats().by_category[static_cast<int>(category)]; }

Ref<Storage> import(void* data, size_t bytes, std::function<void()> release = {}, bool stable = false,
                    size_t* offset = nullptr) {
  size_t ignored;
  return Storage::foreign(kCpu, data, bytes, std::move(release), stable, offset ? offset : &ignored);
}

TEST(Storage, OwnsCountedBytes) {
  const int64_t before = memory_stats().allocated;
  {
    Ref<Storage> storage = Storage::allocate(kCpu, 100, MemoryCategory::Parameter);
    EXPECT_EQ(storage->bytes(), 100u);
    EXPECT_EQ(storage->category(), MemoryCategory::Parameter);
    EXPECT_EQ(memory_stats().allocated - before, 128);
    Ref<Storage> second = storage;
    EXPECT_EQ(storage->use_count(), 2u);
  }
  EXPECT_EQ(memory_stats().allocated, before);
}

TEST(Storage, ChangesCategory) {
  const int64_t before = bytes_in(MemoryCategory::Gradient);
  Ref<Storage> storage = Storage::allocate(kCpu, 64);
  storage->set_category(MemoryCategory::Gradient);
  EXPECT_EQ(bytes_in(MemoryCategory::Gradient) - before, 64);
}

TEST(Storage, AFailedAllocationLeaksNothing) {
  const int64_t before = memory_stats().allocated;
  set_memory_limit(before + 64);
  EXPECT_THROW(Storage::allocate(kCpu, 1000), OutOfMemoryError);
  set_memory_limit(0);
  EXPECT_EQ(memory_stats().allocated, before);
}

TEST(Storage, WritesBumpTheVersion) {
  Ref<Storage> storage = Storage::allocate(kCpu, 8);
  EXPECT_EQ(storage->version(), 0u);
  EXPECT_EQ(storage->data_for_read(), storage->raw_data());
  EXPECT_EQ(storage->version(), 0u);
  EXPECT_EQ(storage->data_for_write(), storage->raw_data());
  EXPECT_EQ(storage->version(), 1u);
}

struct Recorder : PendingWork {
  void settle(Storage& storage) override {
    ++calls;
    storage.materialise();
    storage.pending = nullptr;
  }
  void settle_before_write(Storage&) override { ++writes; }
  int calls = 0;
  int writes = 0;
};

TEST(Storage, AHostWriteAsksTheTraceOfThisThread) {
  Recorder recorder;
  Ref<Storage> storage = Storage::allocate(kCpu, 8);
  active_work = &recorder;
  storage->data_for_read();
  EXPECT_EQ(recorder.writes, 0);
  storage->data_for_write();
  active_work = nullptr;
  EXPECT_EQ(recorder.writes, 1);
}

TEST(Storage, DeferredBytesComeWithTheFirstHostAccess) {
  Recorder recorder;
  Ref<Storage> storage = Storage::deferred(kCpu, 64);
  storage->pending = &recorder;
  storage->set_category(MemoryCategory::Activation);
  EXPECT_EQ(storage->raw_data(), nullptr);
  EXPECT_FALSE(storage->has_bytes());
  const int64_t before = bytes_in(MemoryCategory::Activation);
  EXPECT_NE(storage->data_for_read(), nullptr);
  EXPECT_NE(storage->data_for_write(), nullptr);
  EXPECT_EQ(recorder.calls, 1);
  EXPECT_EQ(bytes_in(MemoryCategory::Activation) - before, 64);
}

TEST(Storage, DeferredWithoutARecorderIsAnInternalError) {
  EXPECT_THROW(Storage::deferred(kCpu, 8)->data_for_read(), InternalError);
}

TEST(Storage, AdoptsABlock) {
  const int64_t before = memory_stats().allocated;
  {
    Ref<Storage> storage = Storage::deferred(kCpu, 64);
    void* block = allocate(kCpu, 64, MemoryCategory::Temporary);
    storage->adopt(block, MemoryCategory::Arena);
    EXPECT_EQ(storage->raw_data(), block);
    EXPECT_EQ(storage->category(), MemoryCategory::Arena);
  }
  EXPECT_EQ(memory_stats().allocated, before);
}

TEST(Storage, FailureIsRethrownAtEveryUseAndFreesTheBytes) {
  const int64_t before = memory_stats().allocated;
  Ref<Storage> storage = Storage::allocate(kCpu, 64);
  EXPECT_NO_THROW(storage->check_usable());
  storage->mark_failed(std::make_exception_ptr(IndexError("gather: expected an index below 3, got 7")));
  for (int use = 0; use < 2; ++use) {
    EXPECT_ERROR(storage->check_usable(), IndexError, "got 7");
    EXPECT_ERROR(storage->data_for_read(), IndexError, "got 7");
    EXPECT_ERROR(storage->data_for_write(), IndexError, "got 7");
  }
  EXPECT_EQ(memory_stats().allocated, before);
}

TEST(Foreign, ReleasesOnceWithTheLastReference) {
  char data[100];
  int released = 0;
  const int64_t before = memory_stats().allocated;
  Ref<Storage> storage = import(data, 100, [&] { ++released; });
  EXPECT_EQ(storage->raw_data(), data);
  EXPECT_TRUE(storage->is_foreign());
  EXPECT_TRUE(storage->is_unstable());
  EXPECT_EQ(memory_stats().allocated, before);
  Ref<Storage> second = storage;
  storage = nullptr;
  EXPECT_EQ(released, 0);
  second = nullptr;
  EXPECT_EQ(released, 1);
}

TEST(Foreign, ContainedRangesShareOneStorage) {
  char data[100];
  int released = 0;
  size_t offset = 99;
  Ref<Storage> whole = import(
      data, 100, [&] { released += 1; }, true, &offset);
  EXPECT_EQ(offset, 0u);
  EXPECT_FALSE(whole->is_unstable());
  Ref<Storage> part = import(
      data + 40, 60, [&] { released += 10; }, false, &offset);
  EXPECT_EQ(part, whole);
  EXPECT_EQ(offset, 40u);
  EXPECT_TRUE(whole->is_unstable());  // one import may change it
  whole = nullptr;
  EXPECT_EQ(released, 0);
  part = nullptr;
  EXPECT_EQ(released, 11);
}

TEST(Foreign, OverlapWithoutContainmentThrows) {
  char data[100];
  Ref<Storage> middle = import(data + 20, 40);
  EXPECT_ERROR(import(data, 30), ValueError, "import the enclosing range first");
  EXPECT_ERROR(import(data + 50, 30), ValueError, "of 30 bytes");
  EXPECT_ERROR(import(data, 100), ValueError, "expected a range inside or apart");
  EXPECT_NE(import(data, 20), middle);  // touching is no overlap
  EXPECT_NE(import(data + 60, 40), middle);
  middle = nullptr;
  EXPECT_EQ(import(data, 100)->bytes(), 100u);
}

TEST(Foreign, EmptyRangesStandAlone) {
  char data[4];
  Ref<Storage> whole = import(data, 4);
  EXPECT_NE(import(data + 1, 0), whole);
  EXPECT_EQ(import(nullptr, 0)->data_for_read(), nullptr);
}

TEST(Foreign, ChainsOfReleasesDoNotRecurse) {
  static char data[200000];
  Ref<Storage> chain;
  int released = 0;
  for (int i = 0; i < 200000; ++i)
    chain = import(data + i, 1, [previous = std::move(chain), &released]() mutable { ++released; });
  chain = nullptr;
  EXPECT_EQ(released, 200000);
}

TEST(Foreign, AThrowingReleaseIsSwallowed) {
  char data[8];
  int released = 0;
  Ref<Storage> storage = import(data, 8, [] { throw std::runtime_error("no"); });
  import(data, 8, [&] { ++released;
});
storage = nullptr;
EXPECT_EQ(released, 1);
}  // namespace

TEST(Foreign, ThreadsImportOneRange) {
  static char data[64];
  std::atomic<int> released{0}, wrong{0};
  std::vector<std::thread> threads;
  for (int id = 0; id < 4; ++id)
    threads.emplace_back([&] {
      for (int i = 0; i < 2000; ++i) {
        size_t offset;
        Ref<Storage> storage = import(
            data + 8, 16, [&] { ++released; }, true, &offset);
        wrong += static_cast<char*>(storage->raw_data()) + offset != data + 8;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(released, 8000);
  EXPECT_EQ(wrong, 0);
}

TEST(Ref, TriesToRevive) {
  Ref<Storage> storage = Storage::deferred(kCpu, 0);
  EXPECT_TRUE(storage->try_add_reference());
  EXPECT_EQ(storage->use_count(), 2u);
  EXPECT_FALSE(storage->drop_reference());
}

}  // namespace etch
}  // namespace etch
