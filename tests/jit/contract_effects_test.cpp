// Flushes, liveness and writes: what comes out of a traced function, and in which order things happen.
#include <utility>

#include "tests/jit/contract.h"

namespace etch {
namespace {

using Effects = Contract;

TEST_F(Effects, HostEffectsHappenAtEveryCall) {
  std::vector<int> seen;
  auto step = compile([&](const Tensor& x) {
    seen.push_back(static_cast<int>(seen.size()));
    return x + 1;
  });
  for (int i = 0; i < 4; ++i) step(tensor({1}));
  EXPECT_EQ(seen, (std::vector<int>{0, 1, 2, 3}));
}

TEST_F(Effects, AHostWriteDoesNotReachEarlierReads) {
  auto step = compile([](Tensor buffer) {
    const Tensor y = buffer * 2;
    buffer.set({0}, 100);
    const Tensor z = buffer * 2;
    buffer.mutable_data<float>()[1] = -1;
    return concat({y, z, buffer * 1});
  });
  for (int i = 0; i < 4; ++i) expect_values(step(tensor({1, 2})), {2, 4, 200, 4, 100, -1});
  EXPECT_EQ(report(step)["paths"][0]["flushed_because"], "the host wrote to a tensor in use");
  EXPECT_NE(std::string(report(step)["paths"][0]["flushed_at"]).find("contract_effects_test.cpp:"),
            std::string::npos);
}

TEST_F(Effects, HostReadsSeePendingWritesThroughViews) {
  auto reading = compile([](Tensor buffer) {
    buffer.slice(0, 0, 2).mul_(10);
    const double sum = buffer.to_vector<double>()[0] + buffer.data<float>()[1];
    return buffer * sum;
  });
  for (int i = 0; i < 4; ++i) expect_values(reading(tensor({1, 2, 3})), {300, 600, 90});
}

TEST_F(Effects, ExplicitFlushComputesEverything) {
  auto step = compile([](const Tensor& x) {
    const Tensor y = x * 2;
    const bool before = y.storage().has_bytes();
    flush();
    EXPECT_FALSE(before);
    EXPECT_TRUE(y.storage().has_bytes());
    return y + 1;
  });
  for (int i = 0; i < 4; ++i) expect_values(step(tensor({1})), {3});
  EXPECT_EQ(report(step)["paths"][0]["flushed_because"], "etch::flush()");
}

TEST_F(Effects, LongStreamsAreFlushedOnTheWay) {
  auto step = compile(
      [](Tensor x) {
        for (int i = 0; i < 100'050; ++i) x.add_(1);
        return x * 1;
      },
      {.compile_at = 9});
  expect_values(step(tensor({0})), {100'050});
  EXPECT_EQ(path_count(step), 2u);
  EXPECT_EQ(report(step)["paths"][0]["flushed_because"], "the stream grew too long");
}

TEST_F(Effects, ExternalsThatNobodyElseHoldsAreNotKeptBeyondALimit) {
  config().poison = false;
  auto step = compile([](Tensor sum) {
    for (int i = 0; i < 12; ++i) {
      Tensor batch = empty({1 << 24});  // 64 MiB, mostly untouched
      batch.set({0}, i);
      sum.add_(batch.slice(0, 0, 1));
    }
  });
  empty_cache();
  reset_peak_memory();
  const int64_t before = memory_stats().allocated;
  Tensor sum = tensor({0});
  step(sum);
  expect_values(sum, {66});
  EXPECT_LT(memory_stats().peak_allocated - before, int64_t{7} * (64 << 20));
  empty_cache();
}

TEST_F(Effects, OnlyWhatIsStillReachableIsMaterialised) {
  auto step = compile([](const Tensor& x) { return ((x * 2 + 1).relu() - 3).exp(); });
  const Tensor x = ones({1024});
  for (int i = 0; i < 4; ++i) {
    const int64_t before = memory_stats().allocated;
    const Tensor y = step(x);
    EXPECT_EQ(memory_stats().allocated - before, 4096) << "call " << i;
  }
}

TEST_F(Effects, StoredTensorsAndGradientsComeOut) {
  struct Member {
    Tensor stored;
    Tensor run(const Tensor& x) {
      stored = x * 3;
      return x.sum();
    }
  } member;
  std::vector<Tensor> list;
  Tensor captured, w = tensor({1, 2}).requires_grad_();
  auto step = compile([&](const Tensor& x) {
    list.push_back(x + 1);
    captured = x * 2;
    (w * x).sum().backward();
    return member.run(x);
  });
  for (int i = 1; i <= 4; ++i) {
    const double v = i;
    expect_values(step(tensor({static_cast<float>(i), 1})), {v + 1});
    expect_values(list.back(), {v + 1, 2});
    expect_values(captured, {2 * v, 2});
    expect_values(member.stored, {3 * v, 3});
    expect_values(w.grad(), {v * (v + 1) / 2, v});
  }
  for (int i = 0; i < 4; ++i) expect_values(list[i], {i + 2.0, 2});
}

TEST_F(Effects, SavedTensorsOfATapeUsedLaterComeOut) {
  Tensor w = ramp({3}).requires_grad_();
  auto forward = compile([&](const Tensor& x) { return (w * x).tanh().exp().sum(); });
  for (int i = 0; i < 4; ++i) {
    const Tensor x = ramp({3}, i * 0.1, 0.2);
    w.zero_grad();
    forward(x).backward();
    const Tensor got = w.grad();
    w.zero_grad();
    eagerly([&] {
      (w * x).tanh().exp().sum().backward();
      return 0;
    });
    expect_same(got, w.grad());
  }
  EXPECT_EQ(forward.compile_count(), 1);
}

TEST_F(Effects, ARandomSubsetOfIntermediatesNeedsFewCompiles) {
  unsigned mask = 1;
  std::vector<Tensor> kept;
  auto body = [&](const Tensor& x) {
    Tensor y = x;
    for (int i = 0; i < 8; ++i) {
      y = y * 1.5 + i;
      if (mask >> i & 1) kept.push_back(y);
    }
    return y;
  };
  auto step = compile(body);
  for (int call = 0; call < 40; ++call) {
    mask = mask * 1664525u + 1013904223u;
    mask = (mask >> 3) & 0xff;
    kept.clear();
    const Tensor y = step(ramp({4}));
    const std::vector<Tensor> got = std::exchange(kept, {});
    const Tensor expected = eagerly([&] { return body(ramp({4})); });
    expect_same(y, expected);
    ASSERT_EQ(got.size(), kept.size());
    for (size_t i = 0; i < got.size(); ++i) expect_same(got[i], kept[i]);
    mask += static_cast<unsigned>(call) * 77u;
  }
  EXPECT_LE(step.compile_count(), 4);
  EXPECT_GE(step.compiled_calls(), 30);
}

TEST_F(Effects, OutputsOfEarlierCallsNeverChange) {
  auto step = compile([](const Tensor& x) { return std::pair(x + 1, (x * 2).slice(0, 1, 3)); });
  std::vector<std::pair<Tensor, Tensor>> all;
  for (int i = 0; i < 6; ++i) all.push_back(step(ramp({4}, i, 1)));
  for (int i = 0; i < 6; ++i) {
    expect_same(all[i].first, ramp({4}, i + 1, 1));
    expect_same(all[i].second, ramp({2}, 2 * i + 2, 2));
  }
}

TEST_F(Effects, WritesToExternalsAndViewsHappenInProgramOrder) {
  auto body = [](Tensor x) {
    const Tensor before = x.slice(0, 1, 3) * 10;
    x.slice(0, 0, 2).add_(1);
    Tensor copy = x.clone();
    x.t().mul_(2);
    copy.select(0, 0).fill_(-1);
    return concat({before, x * 1, copy}, 0);
  };
  auto step = compile(body);
  for (int i = 0; i < 4; ++i) {
    Tensor x = ramp({4, 3}, i), y = ramp({4, 3}, i);
    const Tensor expected = eagerly([&] { return body(y); });
    expect_same(step(x), expected);
    expect_same(x, y);
  }
  EXPECT_EQ(step.compile_count(), 1);
}

TEST_F(Effects, ReturnedInputsViewsAndAliasesStayThose) {
  auto step = compile([](const Tensor& x) {
    const Tensor y = x * 2;
    return std::tuple(x, x.t(), y, y.slice(0, 0, 1), y);
  });
  for (int i = 0; i < 4; ++i) {
    const Tensor x = ramp({2, 2}, i);
    auto [same, transposed, y, window, again] = step(x);
    EXPECT_TRUE(same.is_same(x));
    EXPECT_EQ(&transposed.storage(), &x.storage());
    EXPECT_EQ(&window.storage(), &y.storage());
    EXPECT_TRUE(again.is_same(y));
    window.fill_(7);
    EXPECT_EQ(y.to_vector<double>()[0], 7);
  }
}

TEST_F(Effects, ForeignMemoryIsReadWhenTheOpIsWritten) {
  float raw[2] = {1, 2};
  const Tensor blob = from_blob(raw, {2});
  auto step = compile([&](float next) {
    const Tensor y = blob * 2;
    raw[0] = next;
    const Tensor z = blob * 2;
    return concat({y, z});
  });
  for (int i = 0; i < 4; ++i) {
    raw[0] = 1;
    expect_values(step(static_cast<float>(i + 5)), {2, 4, 2.0 * (i + 5), 4});
  }
}

TEST_F(Effects, ForeignMemoryIsReadByTheCallThatLeavesTheKnownPaths) {
  config().poison = true;
  std::vector<float> raw(1000, 0.5f);
  const Tensor blob = from_blob(raw.data(), {1000});
  auto step = compile(
      [&](const Tensor& x, int64_t count) {
        const Tensor y = x * 2;
        return blob.slice(0, 0, count).sum() + y;
      },
      {.max_paths = 1});
  for (int i = 0; i < 3; ++i) expect_values(step(tensor({1}), 10), {7});
  for (int64_t count : {1000, 900, 800}) expect_values(step(tensor({1}), count), {0.5 * count + 2});
}

TEST_F(Effects, WritesToForeignMemoryHappenAtTheOp) {
  float raw[2] = {1, 2};
  Tensor blob = from_blob(raw, {2});
  auto step = compile([&](const Tensor& x) {
    blob.add_(x * 2);
    const float seen = raw[0];
    return blob * seen;
  });
  for (int i = 0; i < 4; ++i) {
    raw[0] = 1;
    raw[1] = 2;
    expect_values(step(tensor({1, 1})), {9, 12});
  }
}

TEST_F(Effects, StableForeignMemoryIsAnOrdinaryExternal) {
  float raw[2] = {1, 2};
  const Tensor blob = from_blob(raw, {2}, {.stable = true});
  auto step = compile([&] { return blob * 2; });
  for (int i = 0; i < 4; ++i) {
    raw[0] = static_cast<float>(i);  // between calls nobody reads it
    expect_values(step(), {2.0 * i, 4});
  }
  EXPECT_EQ(step.compile_count(), 1);
}

TEST_F(Effects, TensorsWithoutElementsNeedNoArena) {
  auto step = compile([](Tensor flags, const Tensor& x) { flags.add_(x.to(DType::Bool)); });
  for (int i = 0; i < 3; ++i) step(zeros({0, 2}, {.dtype = DType::Bool}), ones({0, 2}));
  EXPECT_EQ(step.compiled_calls(), 2);
}

TEST_F(Effects, WhatAnInPlaceOpCannotComputeIsRefusedAtTheOp) {
  auto step = compile([](Tensor flags) {
    EXPECT_THROW(flags.relu_(), DTypeError);
    return flags.to(DType::F32) + 1;
  });
  for (int i = 0; i < 3; ++i) expect_values(step(ones({2}, {.dtype = DType::Bool})), {2, 2});
}

TEST_F(Effects, DisabledMeansPlainEager) {
  config().disable = true;
  auto step = compile([](const Tensor& x) {
    const Tensor y = x * 2;
    EXPECT_TRUE(y.storage().has_bytes());
    return y;
  });
  for (int i = 0; i < 3; ++i) expect_values(step(tensor({1})), {2});
  EXPECT_EQ(path_count(step), 0u);
}

}  // namespace
}  // namespace etch
