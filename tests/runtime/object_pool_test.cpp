// The object pool over threads.
#include "runtime/object_pool.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>
#include <vector>

namespace etch {
namespace {

struct Item {
  int64_t words[5];
};
using Items = ObjectPool<Item>;

TEST(ObjectPool, LiveObjectsAreApart) {
  std::set<void*> live;
  for (int i = 0; i < 1000; ++i) {
    void* item = Items::allocate();
    new (item) Item{{i, i, i, i, i}};
    EXPECT_TRUE(live.insert(item).second);
  }
  for (void* item : live) EXPECT_EQ(static_cast<Item*>(item)->words[0], static_cast<Item*>(item)->words[4]);
  for (void* item : live) Items::release(item);
}

#ifndef __SANITIZE_ADDRESS__
TEST(ObjectPool, ReusesTheLastReleased) {
  void* item = Items::allocate();
  Items::release(item);
  EXPECT_EQ(Items::allocate(), item);
  Items::release(item);
}

struct Shared {
  char bytes[100];
};
TEST(ObjectPool, AThreadsObjectsReturnWhenItEnds) {
  std::set<void*> released;
  std::thread([&] {
    std::vector<void*> items;
    for (int i = 0; i < 64; ++i) items.push_back(ObjectPool<Shared>::allocate());
    for (void* item : items) ObjectPool<Shared>::release(item);
    released.insert(items.begin(), items.end());
  }).join();
  void* item = ObjectPool<Shared>::allocate();
  EXPECT_TRUE(released.contains(item));
  ObjectPool<Shared>::release(item);
}
#endif

TEST(ObjectPool, ObjectsCrossThreads) {
  std::vector<std::thread> threads;
  std::vector<std::vector<void*>> made(4);
  for (auto& items : made)
    threads.emplace_back([&items] {
      for (int i = 0; i < 5000; ++i) items.push_back(new (Items::allocate()) Item{});
    });
  for (std::thread& thread : threads) thread.join();
  threads.clear();
  std::set<void*> unique;
  for (auto& items : made) unique.insert(items.begin(), items.end());
  EXPECT_EQ(unique.size(), 20000u);
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&items = made[(i + 1) % 4]] {
      for (void* item : items) {
        static_cast<Item*>(item)->words[0] = 1;
        Items::release(item);
      }
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace etch
