// Tiles among the rest: the tape, writes, threads, memory, frozen calls, machines without a compiler.
#include <atomic>
#include <thread>

#include "eager/grad.h"
#include "runtime/allocator.h"
#include "tests/jit/tile_attention.h"

namespace etch::tile {
namespace {

const Sizes kSizes{.batch = {2, 2}, .queries = 130, .keys = 130};

Tensors leaves(int call) {
  Tensors in = operands(kSizes, call);
  for (Tensor& x : in) x = x.detach().requires_grad_();
  in.push_back(causal(130, 130));
  return in;
}

Inputs with_causal_mask(const Sizes& sizes = kSizes) {
  return [sizes](int call) {
    Tensors in = operands(sizes, call);
    in.push_back(causal(sizes.queries, sizes.keys));
    return in;
  };
}

TEST_F(Tile, BackwardOutsideTheTrace) {
  auto step = compile([](const Tensors& in) { return attention(in, masked); });
  for (int call = 0; call < 4; ++call) {
    const Tensors a = leaves(call), b = leaves(call);
    step(a).backward(a[3].detach());
    eagerly([&] {
      attention(b, masked).backward(b[3].detach());
      return 0;
    });
    for (size_t i = 0; i < 3; ++i) expect_same(a[i].grad(), b[i].grad());
  }
}

TEST_F(Tile, HeadsAreStoredTogetherAtOnce) {
  const auto together = [](const Tensor& heads) {
    return heads.transpose(-3, -2).reshape({heads.size(0), heads.size(2), heads.size(1) * heads.size(3)});
  };
  auto step = compile([&](const Tensors& in) { return together(attention(in, plain)); });
  for (int call = 0; call < 3; ++call) {
    const Tensors in = operands({}, call);
    expect_same(step(in), eagerly([&] { return together(attention(in, plain)); }));
  }
  EXPECT_EQ(report(step)["paths"][0]["executables"][0]["steps"], where_there_are_tiles(1) ? 1 : 4);
  compare(
      [&](const Tensors& in) {
        const Tensor result = together(attention(in, plain));
        (result * result).sum().backward();
        return Tensors{result, in[0].grad(), in[1].grad(), in[2].grad()};
      },
      [](int call) { return operands({}, call); });
}

TEST_F(Tile, TwoBackwards) {
  compare(
      [](const Tensors& in) {
        const Tensor result = attention(in, masked);
        result.backward(in[3].detach(), {.retain_graph = true});
        result.backward(in[3].detach() * 0.5);
        return Tensors{result, in[0].grad(), in[1].grad(), in[2].grad()};
      },
      with_causal_mask(), {.tiles = -1});
}

TEST_F(Tile, SecondGradients) {
  compare(
      [](const Tensors& in) {
        const Tensor result = attention(in, masked);
        const Tensors first = grad((result * in[3]).sum(), {in[0], in[2]}, {}, {.create_graph = true});
        (first[0].square().sum() + first[1].square().sum()).backward();
        return Tensors{result, in[0].grad(), in[1].grad(), in[2].grad(), in[3].grad()};
      },
      with_causal_mask({.batch = {2}, .queries = 80, .keys = 80}), {.tiles = -1});
}

TEST_F(Tile, WeightsThatAreReturned) {
  compare(
      [](const Tensors& in) {
        const Tensor weights = masked(in[0].matmul(in[1].transpose(-2, -1)), in);
        weights.matmul(in[2]).backward(in[3].detach());
        return Tensors{weights, in[0].grad(), in[1].grad(), in[2].grad()};
      },
      with_causal_mask());
}

TEST_F(Tile, ScoresThatAreReturned) {
  compare(
      [](const Tensors& in) {
        const Tensor scores = in[0].matmul(in[1].transpose(-2, -1));
        masked(scores, in).matmul(in[2]).backward(in[3].detach());
        return Tensors{scores, in[0].grad(), in[1].grad(), in[2].grad()};
      },
      with_causal_mask(), {.tiles = -1});
}

TEST_F(Tile, WeightsThatAHandleKeepsAlive) {
  Tensor kept;
  compare(
      [&](const Tensors& in) {
        kept = masked(in[0].matmul(in[1].transpose(-2, -1)), in);
        const Tensor result = kept.matmul(in[2]);
        result.backward(in[3].detach());
        return Tensors{kept, in[0].grad(), in[1].grad(), in[2].grad()};
      },
      with_causal_mask());
}

TEST_F(Tile, TwoReadersOfTheScores) {
  compare(
      [](const Tensors& in) {
        const Tensor scores = in[0].matmul(in[1].transpose(-2, -1));
        const Tensor result = (masked(scores, in) + scores.tanh()).matmul(in[2]) + scores.matmul(in[2]);
        result.backward(in[3].detach());
        return Tensors{result, in[0].grad(), in[1].grad(), in[2].grad()};
      },
      with_causal_mask(), {.tiles = -1});
}

TEST_F(Tile, TwoReadersOfTheWeights) {
  compare(
      [](const Tensors& in) {
        const Tensor weights = masked(in[0].matmul(in[1].transpose(-2, -1)), in);
        const Tensor result = weights.matmul(in[2]) + weights.matmul(in[1]);
        (result.square() + weights.sum({-1}, true)).backward(in[3].detach());
        return Tensors{result, in[0].grad(), in[1].grad(), in[2].grad()};
      },
      with_causal_mask(), {.tiles = -1});
}

TEST_F(Tile, TwoLayers) {
  compare(
      [](const Tensors& in) {
        const Tensor first = attention(in, masked);
        const Tensor result = attention({first, in[1], first, in[3], in[4]}, masked);
        result.backward(in[3].detach());
        return Tensors{result, in[0].grad(), in[1].grad(), in[2].grad()};
      },
      with_causal_mask());
}

/// An operand changes after the attention, and attention is computed again.
void compare_with_a_write(size_t written, bool by_the_body) {
  SCOPED_TRACE(
      join_text({"operand ", static_cast<int64_t>(written), by_the_body ? " made by the body" : ""}));
  compare(
      [&](const Tensors& in) {
        Tensors own;
        for (const Tensor& x : in) own.push_back(x.detach());
        if (by_the_body) own[written] = written == 4 ? logical_not(logical_not(own[4])) : own[written] * 1.5;
        const Tensor result = attention(own, masked);
        own[written].copy_(written == 4 ? logical_not(own[4]) : own[written] * 2.0);
        return Tensors{result, attention(own, masked), own[written]};
      },
      [](int call) {
        Tensors in = with_causal_mask()(call);
        in[4] = in[4].clone();
        return in;
      },
      {.tiles = -1});
}

TEST_F(Tile, OperandsWrittenAfterwards) {
  for (size_t written : {0, 1, 2, 4})
    for (bool by_the_body : {false, true}) compare_with_a_write(written, by_the_body);
}

TEST_F(Tile, OperandsWrittenInTheMidst) {
  for (size_t written : {0, 1, 2, 4})
    for (bool by_the_body : {false, true})
      compare(
          [&](const Tensors& in) {
            Tensors own;
            for (const Tensor& x : in) own.push_back(x.detach());
            if (by_the_body)
              own[written] = written == 4 ? logical_not(logical_not(own[4])) : own[written] * 1.5;
            const Tensor weights = masked(own[0].matmul(own[1].transpose(-2, -1)), own);
            own[written].copy_(written == 4 ? logical_not(own[4]) : own[written] * 2.0);
            return Tensors{weights.matmul(own[2]), own[written]};
          },
          [](int call) {
            Tensors in = with_causal_mask()(call);
            in[4] = in[4].clone();
            return in;
          },
          {.tiles = -1});
}

/// The tape does not see the mask change: backward reads what it is by then, the weights stay what they were.
TEST_F(Tile, MaskWrittenBetweenForwardAndBackward) {
  const auto body = [](const Tensors& in) {
    Tensor mask = in[4];
    const Tensor result = attention(in, masked);
    mask.copy_(logical_not(mask));
    try {
      result.backward(in[3].detach());
    } catch (const AutogradError&) {
      return Tensors{result};
    }
    return Tensors{result, in[0].grad(), in[1].grad(), in[2].grad()};
  };
  compare(body,
          [](int call) {
            Tensors in = with_causal_mask()(call);
            in[4] = in[4].clone();
            return in;
          },
          {.tiles = -1});
}

TEST_F(Tile, AWriteBetweenForwardAndBackwardIsRefusedAsEver) {
  const auto body = [](const Tensors& in) {
    const Tensor keys = in[1] * 1.0;
    const Tensor result = attention({in[0], keys, in[2], {}, in[4]}, masked);
    Tensor late = keys;
    late.mul_(2);
    result.backward(in[3].detach());
  };
  auto step = compile(body, {.memory_budget = 1});
  for (int call = 0; call < 3; ++call) EXPECT_THROW(step(leaves(call)), AutogradError);
}

TEST_F(Tile, ParametersUpdatedInTheSameStep) {
  for (int64_t memory_budget : {0, 1}) {
    Tensors traced = leaves(1), eager = leaves(1);
    const auto body = [](const Tensors& in) {
      const Tensor x = in[3].detach();
      const Tensor result = attention({x.matmul(in[0]), x.matmul(in[1]), x.matmul(in[2]), {}, in[4]}, masked);
      result.square().sum().backward();
      no_grad([&] {
        for (size_t i = 0; i < 3; ++i) {
          Tensor p = in[i];
          p.sub_(p.grad() * 0.01);
          p.zero_grad();
        }
        return 0;
      });
    };
    for (Tensors* all : {&traced, &eager})
      for (size_t i = 0; i < 3; ++i)
        (*all)[i] = (noise({24, 24}, static_cast<int>(i)) * 0.2).detach().requires_grad_();
    auto step = compile(body, {.memory_budget = memory_budget});
    for (int call = 0; call < 5; ++call) {
      step(traced);
      eagerly([&] {
        body(eager);
        return 0;
      });
    }
    for (size_t i = 0; i < 3; ++i) expect_same(traced[i].detach(), eager[i].detach());
    EXPECT_GE(tiles(step), where_there_are_tiles(1));
  }
}

TEST_F(Tile, SeveralThreads) {
  for (int count : {2, 4}) {
    set_num_threads(count);
    compare([](const Tensors& in) { return forward_and_backward(in, masked); }, with_causal_mask());
  }
}

TEST_F(Tile, ThreadsThatChangeFromCallToCall) {
  auto step = compile([](const Tensors& in) { return forward_and_backward(in, masked); });
  for (int call = 0; call < 9; ++call) {
    set_num_threads(1 + call % 3);
    const Tensors got = step(leaves(call)),
                  want = eagerly([&] { return forward_and_backward(leaves(call), masked); });
    for (size_t i = 0; i < got.size(); ++i) expect_same(got[i].detach(), want[i].detach());
  }
}

TEST_F(Tile, ThreadsThatChangeDuringCalls) {
  const Tensors in = leaves(0);
  const Tensor want = eagerly([&] { return attention(in, masked).detach(); });
  auto step = compile([&] { return attention(in, masked).detach(); });
  for (int call = 0; call < 2; ++call) step();
  std::atomic<bool> done{false};
  std::thread changes([&] {
    for (int i = 0; !done; ++i) set_num_threads(1 + i % 4);
  });
  for (int call = 0; call < 300; ++call) expect_same(step(), want);
  done = true;
  changes.join();
}

TEST_F(Tile, CallsFromSeveralThreads) {
  auto step = compile([](const Tensors& in) { return attention(in, masked).detach(); });
  std::vector<Tensors> in;
  Tensors want, got(4);
  for (int call = 0; call < 4; ++call) {
    in.push_back(leaves(call));
    want.push_back(eagerly([&] { return attention(in.back(), masked).detach(); }));
    expect_same(step(in.back()), want.back());
  }
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 10; ++i) got[t] = step(in[t]);
    });
  for (std::thread& thread : threads) thread.join();
  for (size_t t = 0; t < 4; ++t) expect_same(got[t], want[t]);
}

TEST_F(Tile, TheirTimeIsReported) {
  config().log_level = 3;
  ::testing::internal::CaptureStderr();
  auto step = compile([](const Tensors& in) { return attention(in, masked).detach(); });
  for (int call = 0; call < 3; ++call) step(leaves(call));
  (void)::testing::internal::GetCapturedStderr();
  if (cpu::has_tile_product(64)) {
    expect_part(step.explain(), "tiled: 2 runs");
  }
}

TEST_F(Tile, FewerBatchesThanThreadsMakeNone) {
  set_num_threads(4);
  compare([](const Tensors& in) { return forward_and_backward(in, masked); },
          with_causal_mask({.batch = {2}, .queries = 70, .keys = 70}), {.tiles = 0});
}

TEST_F(Tile, WithoutThePass) {
  config().skip_passes = "tile";
  compare([](const Tensors& in) { return forward_and_backward(in, masked); }, with_causal_mask(),
          {.tiles = 0});
}

TEST_F(Tile, WithoutOtherPasses) {
  for (const char* pass :
       {"order", "cse", "canonicalise", "recompute", "inline_recomputed", "rename", "dce"}) {
    SCOPED_TRACE(pass);
    config().skip_passes = pass;
    compare([](const Tensors& in) { return forward_and_backward(in, masked); }, with_causal_mask(),
            {.tiles = -1});
  }
}

TEST_F(Tile, WithoutACompiler) {
  config().cxx = "none";
  compare([](const Tensors& in) { return forward_and_backward(in, masked); }, with_causal_mask(),
          {.tiles = 0});
}

TEST_F(Tile, FrozenCalls) {
  auto step = compile([](const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask) {
    return attention({q, k, v, {}, mask}, masked);
  });
  const auto in = [](int call) { return with_causal_mask()(call); };
  const Tensors first = in(0);
  auto fast = step.freeze(first[0], first[1], first[2], first[4]);
  for (int call = 1; call < 4; ++call) {
    Tensors x = in(call);
    if (call == 2) x[4] = outside_window(130, 130, 20);
    if (call == 3) put(x[2], 129, 0, NAN);
    expect_same(fast(x[0], x[1], x[2], x[4]), eagerly([&] {
                  return attention({x[0], x[1], x[2], {}, x[4]}, masked);
                }));
  }
}

TEST_F(Tile, OutOfMemoryLeavesThingsAsTheyWere) {
  Tensor counter = zeros({1});
  auto step = compile([&](const Tensors& in) {
    counter.add_(1);
    return attention(in, masked).detach();
  });
  for (int call = 0; call < 2; ++call) step(leaves(call));
  const Tensors in = leaves(5);
  const int64_t before = memory_stats().allocated;
  set_memory_limit(before + (1 << 14));
  EXPECT_THROW(step(in), OutOfMemoryError);
  set_memory_limit(0);
  EXPECT_EQ(memory_stats().allocated, before);
  expect_values(counter, {2});
  expect_same(step(in), eagerly([&] { return attention(leaves(5), masked).detach(); }));
  expect_values(counter, {3});
}

TEST_F(Tile, LessMemoryThanTheScoresTake) {
  const Sizes sizes{.batch = {2, 2}, .queries = 512, .keys = 512, .width = 32};
  auto step =
      compile([](const Tensors& in) { return forward_and_backward(in, masked); }, {.memory_budget = 1});
  const auto run = [&] {
    Tensors in = with_causal_mask(sizes)(0);
    for (size_t i = 0; i < 4; ++i) in[i] = in[i].detach().requires_grad_();
    step(in);
  };
  for (int call = 0; call < 2; ++call) run();
  const int64_t before = memory_stats().allocated;
  set_memory_limit(before + (4 << 20));  // one matrix of scores
  if (cpu::has_tile_product(64)) run();
  set_memory_limit(0);
}

TEST_F(Tile, OtherDTypesAreLeftAlone) {
  for (DType dtype : {DType::F64, DType::F16, DType::BF16})
    compare([](const Tensors& in) { return forward_and_backward(in, masked); },
            [&](int call) {
              Tensors in = with_causal_mask()(call);
              for (size_t i = 0; i < 4; ++i) in[i] = in[i].to(dtype);
              return in;
            },
            {.tiles = 0});
}

TEST_F(Tile, ConvertedOperands) {
  compare(
      [](const Tensors& in) {
        const Tensor result =
            attention({in[0].to(DType::F32), in[1].to(DType::F32), in[2].to(DType::F32), {}, in[4]}, masked);
        result.backward(in[3].detach());
        return Tensors{result.to(DType::BF16), in[0].grad(), in[1].grad(), in[2].grad()};
      },
      [&](int call) {
        Tensors in = with_causal_mask()(call);
        for (size_t i = 0; i < 3; ++i) in[i] = in[i].to(DType::BF16);
        return in;
      },
      {.tiles = -1});
}

/// Equal keys: the weights are even among the visible, so row i is the mean of values 0 to i.
TEST_F(Tile, EvenWeightsGiveMeans) {
  auto step = compile([](const Tensors& in) { return attention(in, masked); });
  const int64_t n = 128;
  const Tensor values = row_numbers(n).to(DType::F32).expand({2, n, 24}).contiguous();
  for (int call = 0; call < 3; ++call) {
    const Tensor got = step(Tensors{noise({2, n, 24}, call), ones({2, n, 24}), values, {}, causal(n, n)});
    for (int64_t row : {0, 1, 63, 64, 100, 127})
      EXPECT_NEAR(got[1].select(0, row).select(0, 7).item<float>(), static_cast<double>(row) / 2, 1e-3)
          << row;
  }
  EXPECT_GE(tiles(step), where_there_are_tiles(1));
}

TEST_F(Tile, GradientsAgreeWithDifferences) {
  auto step = compile([](const Tensors& in) { return forward_and_backward(in, masked); });
  Tensors got;
  for (int call = 0; call < 3; ++call) got = step(leaves(0));
  const auto loss = [](size_t which, double by) {
    Tensors in = leaves(0);
    for (size_t i = 0; i < 4; ++i) in[i] = in[i].detach().to(DType::F64);
    in[which][{1, 1, 100, 3}] += by;
    return (attention(in, masked) * in[3]).sum().item<double>();
  };
  for (size_t which : {0, 1, 2}) {
    const double slope = (loss(which, 1e-5) - loss(which, -1e-5)) / 2e-5;
    EXPECT_GT(std::abs(slope), 1e-3);
    EXPECT_NEAR((got[which + 1][{1, 1, 100, 3}].item<float>()), slope, 1e-4 * std::abs(slope)) << which;
  }
}

}  // namespace
}  // namespace etch::tile
