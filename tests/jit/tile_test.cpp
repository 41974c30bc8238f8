// Attention written out becomes tiles, which give eager's bits.
#include "tests/jit/tile_attention.h"

#include "eager/functional.h"
#include "runtime/allocator.h"

namespace etch::tile {
namespace {

// --- Masks

TEST_F(Tile, WithoutAMask) { compare_attention({}, plain); }

TEST_F(Tile, ForwardOnly) {
  compare([](const Tensors& in) { return Tensors{attention(in, masked).detach()}; },
          [](int call) {
            Tensors in = operands({}, call);
            for (Tensor& x : in) x = x.detach();
            in.push_back(causal(129, 129));
            return in;
          },
          {.tiles = 1});
}

TEST_F(Tile, KernelsWithoutNumbers) {
  compare(
      [](const Tensors& in) {
        return Tensors{in[0].matmul(in[1].transpose(-2, -1)).softmax(-1).matmul(in[2])};
      },
      [](int call) { return operands({}, call); });
}

TEST_F(Tile, CausalMask) { compare_attention({}, masked, always(causal(129, 129))); }

TEST_F(Tile, VisiblePolarity) {
  compare_attention(
      {}, [](const Tensor& s, const Tensors& in) { return where(in[4], s, -kInf).softmax(-1); },
      always(logical_not(causal(129, 129))));
}

TEST_F(Tile, PaddingOfKeys) {
  compare_attention({.batch = {3, 2}, .queries = 70, .keys = 200}, masked, always(padding(3, 200, 200, 67)));
}

TEST_F(Tile, PaddingThatShrinksFromSequenceToSequence) {
  compare_attention({.batch = {3, 2}, .queries = 70, .keys = 200}, masked, always(padding(3, 200, 60, -67)));
}

TEST_F(Tile, MaskOfEachSequence) {
  compare_attention({.batch = {2, 2}, .queries = 200, .keys = 200}, masked,
                    always(logical_or(causal(200, 200), padding(2, 200, 150, 60))));
}

TEST_F(Tile, SlidingWindow) {
  for (int64_t width : {1, 3, 64, 65, 100})
    compare_attention({.queries = 300, .keys = 300}, masked, always(outside_window(300, 300, width)));
}

TEST_F(Tile, MaskWithHolesInBlocksAndElsewhere) {
  compare_attention({.queries = 200, .keys = 260}, masked, [](int call) {
    Tensor mask = noise({200, 260}, 77 + call) > 0.5;
    mask.slice(1, 64, 128).fill_(true);
    mask.slice(1, 192, 260).slice(0, 0, 100).fill_(true);
    return Tensors{mask};
  });
}

TEST_F(Tile, FullyHiddenRows) {
  compare_attention({}, masked, [](int call) {
    Tensor mask = causal(129, 129);
    mask.slice(0, 0, call == 1 ? 129 : 10 * call).fill_(true);
    return Tensors{mask};
  });
}

TEST_F(Tile, MaskThatChangesFromCallToCall) {
  compare_attention({.queries = 130, .keys = 200}, masked,
                    [](int call) {
                      return Tensors{call % 3 == 0   ? causal(130, 200)
                                     : call % 3 == 1 ? outside_window(130, 200, 20)
                                                     : logical_not(causal(130, 200))};
                    },
                    {.calls = 8});
}

TEST_F(Tile, MaskMadeByTheBody) {
  compare_attention(
      {},
      [](const Tensor& s, const Tensors& in) {
        return s.masked_fill(arange(129) + in[4] > row_numbers(129), -kInf).softmax(-1);
      },
      [](int call) { return Tensors{scalar_tensor(int64_t{10} * call)}; }, {.tiles = -1});
}

TEST_F(Tile, MaskOfWholeRowsOrOfOneNumber) {
  compare_attention({}, masked, always(row_numbers(129) < 70));
  compare_attention({}, masked, [](int call) { return Tensors{arange(1) < call % 2}; });
}

TEST_F(Tile, ConditionMadeOfTheScores) {
  compare_attention({},
                    [](const Tensor& s, const Tensors& in) {
                      return where(s > 0.0, s, -kInf).masked_fill(in[4], -kInf).softmax(-1);
                    },
                    always(causal(129, 129)), {.tiles = -1});
}

TEST_F(Tile, WindowOfALargerMask) {
  const Tensor all = causal(400, 400);
  compare_attention({.queries = 150, .keys = 180}, masked, [&](int call) {
    return Tensors{all.slice(0, 40 * call, 40 * call + 150).slice(1, 10, 190)};
  });
}

TEST_F(Tile, MaskWhoseRowsAreItsColumnsInMemory) {
  compare_attention({.queries = 150, .keys = 150}, masked,
                    always(logical_not(causal(150, 150)).transpose(0, 1)));
}

TEST_F(Tile, AnyFill) {
  for (double fill : {-1e9, 0.0, -0.0, 3.0, 1e30, double{kInf}, double{kNaN}})
    compare_attention(
        {}, [&](const Tensor& s, const Tensors& in) { return s.masked_fill(in[4], fill).softmax(-1); },
        always(causal(129, 129)));
}

TEST_F(Tile, FillThatChangesFromCallToCall) {
  double fill = 0;
  auto step = compile([&](const Tensors& in) {
    return forward_and_backward(
        in, [&](const Tensor& s, const Tensors&) { return s.masked_fill(in[4], fill).softmax(-1); });
  });
  for (int call = 0; call < 6; ++call) {
    fill = call % 2 ? -3.0 : -kInf;
    const auto in = [&] {
      Tensors all = operands({}, call);
      for (Tensor& x : all) x = x.detach().requires_grad_();
      all.push_back(causal(129, 129));
      return all;
    };
    const Tensors got = step(in()), want = eagerly([&] { return step(in()); });
    for (size_t i = 0; i < got.size(); ++i) expect_same(got[i].detach(), want[i].detach());
  }
  EXPECT_GE(tiles(step), where_there_are_tiles(1));
}

TEST_F(Tile, AddedMask) {
  compare_attention(
      {}, [](const Tensor& s, const Tensors& in) { return (s + in[4].detach()).softmax(-1); },
      always(where(causal(129, 129), -kInf, 0.0)));
}

// --- Sizes and strides

TEST_F(Tile, LengthsThatBlocksDoNotDivide) {
  for (int64_t length : {17, 63, 64, 65, 70, 129, 200})
    for (int64_t width : {17, 33, 96})
      compare_attention({.batch = {2}, .queries = length, .keys = length, .width = width}, masked,
                        always(causal(length, length)), {.tiles = -1});
}

TEST_F(Tile, BatchesOfAnyRank) {
  for (const Dims& batch : {Dims{5}, Dims{1, 3}, Dims{3, 1}, Dims{2, 2}}) {
    SCOPED_TRACE(to_string(batch));
    compare_attention({.batch = batch, .queries = 70, .keys = 70}, masked, always(causal(70, 70)));
  }
}

TEST_F(Tile, OtherKeysThanQueries) {
  for (auto [queries, keys] :
       {std::pair(70, 200), std::pair(200, 70), std::pair(64, 128), std::pair(17, 130)})
    compare_attention({.queries = queries, .keys = keys}, masked, always(causal(queries, keys)));
}

TEST_F(Tile, OperandsOutOfOneProjection) {
  compare(
      [](const Tensors& in) {
        const Tensor heads = in[0].permute({2, 0, 3, 1, 4});  // [3, B, H, T, D] of [B, T, 3, H, D]
        const Tensor result = attention({heads[0], heads[1], heads[2], {}, in[2]}, masked);
        result.transpose(1, 2).reshape({2, 100, 96}).backward(in[1].detach());
        return Tensors{result, in[0].grad()};
      },
      [](int call) {
        return Tensors{noise({2, 100, 3, 4, 24}, call), noise({2, 100, 96}, call + 50), causal(100, 100)};
      });
}

/// With lines that are not keys.
Inputs stored_as_columns(size_t operand) {
  return [operand](int call) {
    Tensors in = operands({.queries = 200, .keys = 200}, call);
    in[operand] = in[operand].transpose(-2, -1).contiguous();
    if (call > 1) put(in[operand], 3, 150, call > 2 ? kInf : kNaN);
    in.push_back(causal(200, 200));
    return in;
  };
}

TEST_F(Tile, KeysStoredAsColumns) {
  compare(
      [](const Tensors& in) {
        const Tensor result = masked(in[0].matmul(in[1].detach()), in).matmul(in[2]);
        result.backward(in[3].detach());
        return Tensors{result, in[0].grad(), in[2].grad()};
      },
      stored_as_columns(1));
}

TEST_F(Tile, ValuesStoredAsColumns) {
  compare(
      [](const Tensors& in) {
        const Tensor values = in[2].detach().transpose(-2, -1);
        const Tensor result = masked(in[0].matmul(in[1].transpose(-2, -1)), in).matmul(values);
        result.backward(in[3].detach());
        return Tensors{result, in[0].grad(), in[1].grad()};
      },
      stored_as_columns(2));
}

TEST_F(Tile, OneKeyForAllHeads) {
  compare(
      [](const Tensors& in) {
        const Dims all = {3, 2, 80, 24};
        const Tensor result = attention({in[0], in[1].expand(all), in[2].expand(all), {}, in[4]}, masked);
        result.backward(in[3].detach());
        return Tensors{result, in[0].grad(), in[1].grad(), in[2].grad()};
      },
      [](int call) {
        return Tensors{noise({3, 2, 80, 24}, call), noise({3, 1, 80, 24}, call + 1),
                       noise({3, 1, 80, 24}, call + 2), noise({3, 2, 80, 24}, call + 3), causal(80, 80)};
      },
      {.tiles = -1});
}

TEST_F(Tile, OneKeyForAGroupOfHeads) {
  compare(
      [](const Tensors& in) {
        const Tensor result = attention(in, masked);
        result.backward(in[3].detach());
        return Tensors{result, in[0].grad(), in[1].grad(), in[2].grad()};
      },
      [](int call) {
        return Tensors{noise({2, 2, 3, 80, 24}, call), noise({2, 2, 1, 80, 24}, call + 1),
                       noise({2, 2, 1, 80, 24}, call + 2), noise({2, 2, 3, 80, 24}, call + 3),
                       causal(80, 80)};
      },
      {.tiles = 2});
}

// Products of few columns are the library's, which adds up long sums in parts.
TEST_F(Tile, SumsInAnotherOrderMakeNone) {
  compare_attention({.queries = 40, .keys = 600, .width = 16}, plain, nullptr, {.tiles = 0});
}

TEST_F(Tile, LongChains) {
  compare_attention({.batch = {2}, .queries = 80, .keys = 900, .width = 20}, masked, always(causal(80, 900)),
                    {.tiles = -1});
  compare_attention({.batch = {2}, .queries = 80, .keys = 100, .width = 500}, masked, always(causal(80, 100)),
                    {.tiles = -1});
}

// --- Weights of other kinds

TEST_F(Tile, ScaledAfterTheMask) {
  compare_attention(
      {}, [](const Tensor& s, const Tensors& in) { return (s.masked_fill(in[4], -kInf) * 0.3).softmax(-1); },
      always(causal(129, 129)));
}

TEST_F(Tile, CappedScores) {
  compare_attention(
      {},
      [](const Tensor& s, const Tensors& in) {
        return ((s / 5).tanh() * 5).masked_fill(in[4], -kInf).softmax(-1);
      },
      always(causal(129, 129)));
}

TEST_F(Tile, Bias) {
  const auto biased = [](const Tensor& s, const Tensors& in) {
    return (s + in[5]).masked_fill(in[4], -kInf).softmax(-1);
  };
  for (const Dims& sizes : {Dims{129, 129}, Dims{2, 1, 129}, Dims{2, 2, 129, 129}})
    compare(
        [&](const Tensors& in) {
          Tensors results = forward_and_backward(in, biased);
          results.push_back(in[5].grad());
          return results;
        },
        [&](int call) {
          Tensors in = operands({}, call);
          in.push_back(causal(129, 129));
          in.push_back(noise(sizes, call + 5));
          return in;
        },
        {.tiles = -1});
}

TEST_F(Tile, TwoPartsOfOneTensor) {
  for (bool by_the_body : {false, true})
    compare_attention(
        {},
        [&](const Tensor& s, const Tensors& in) {
          const Tensor bias = by_the_body ? in[5].detach() * 2.0 : in[5].detach();
          return (s + bias[0] * bias[1]).masked_fill(in[4], -kInf).softmax(-1) * (bias[1] - bias[0]);
        },
        [](int call) {
          return Tensors{causal(129, 129), noise({2, 2, 2, 129, 129}, call)};
        },
        {.tiles = -1});
}

TEST_F(Tile, ThreeDimensionsOfBatches) {
  compare_attention({.batch = {2, 1, 2}, .queries = 70, .keys = 70}, masked, always(causal(70, 70)),
                    {.tiles = -1});
}

TEST_F(Tile, EveryOtherHeadOfALargerTensor) {
  compare(
      [](const Tensors& in) {
        Tensors every;
        for (size_t i = 0; i < 3; ++i) every.push_back(in[i].slice(1, 0, 4, 2).slice(-1, 8, 28));
        const Tensor result = attention({every[0], every[1], every[2], {}, in[4]}, masked);
        result.backward(in[3].detach().slice(1, 0, 2).slice(-1, 0, 20));
        return Tensors{result, in[0].grad(), in[1].grad(), in[2].grad()};
      },
      [](int call) {
        Tensors in = operands({.batch = {2, 4}, .width = 40}, call);
        in.push_back(causal(129, 129));
        return in;
      });
}

TEST_F(Tile, KeysThatAreTheQueriesAndTheValues) {
  compare(
      [](const Tensors& in) {
        const Tensor result = attention({in[0], in[0], in[0], {}, in[4]}, masked);
        result.backward(in[0].detach());
        return Tensors{result, in[0].grad()};
      },
      [](int call) {
        Tensors in = operands({}, call);
        in.push_back(causal(129, 129));
        return in;
      },
      {.tiles = -1});
}

TEST_F(Tile, BiasOfAnotherOrder) {
  compare_attention(
      {},
      [](const Tensor& s, const Tensors& in) {
        return (s + in[5].detach()).masked_fill(in[4], -kInf).softmax(-1);
      },
      [](int call) {
        return Tensors{causal(129, 129), noise({129, 2, 129, 2}, call).permute({3, 1, 2, 0})};
      },
      {.tiles = -1});
}

TEST_F(Tile, RowsOfTheBiasSummed) {
  compare_attention(
      {},
      [](const Tensor& s, const Tensors& in) {
        return (s + in[5].detach().sum({-1}, true)).masked_fill(in[4], -kInf).softmax(-1);
      },
      [](int call) {
        return Tensors{causal(129, 129), noise({2, 2, 129, 129}, call)};
      },
      {.tiles = -1});
}

TEST_F(Tile, NoiseOnTheScores) {
  Generator generator(3);
  compare_attention({},
                    [&](const Tensor& s, const Tensors& in) {
                      generator.set_state({3, static_cast<uint64_t>(in[0].numel())});
                      return (s + randn(s.sizes(), {}, &generator)).masked_fill(in[4], -kInf).softmax(-1);
                    },
                    always(causal(129, 129)), {.tiles = -1});
}

TEST_F(Tile, Dropout) {
  Generator generator(3);
  compare_attention({},
                    [&](const Tensor& s, const Tensors& in) {
                      generator.set_state({3, 8});
                      return dropout(masked(s, in), 0.3, true, &generator);
                    },
                    always(causal(129, 129)), {.tiles = -1});
}

TEST_F(Tile, TwoMasksOfOneTensor) {
  compare_attention(
      {},
      [](const Tensor& s, const Tensors& in) {
        return s.masked_fill(in[4][0], 0.5).masked_fill(in[4][1], -kInf).softmax(-1);
      },
      [](int) {
        Tensor masks = zeros({2, 129, 129}, {.dtype = DType::Bool});
        masks[0].slice(1, 64, 129).fill_(true);
        masks[1].slice(1, 0, 20).fill_(true);
        return Tensors{masks};
      },
      {.tiles = -1});
}

TEST_F(Tile, TheSameMaskBothWays) {
  const Weights all[] = {[](const Tensor& s, const Tensors& in) {
                           return where(in[4], s.masked_fill(in[4], 0.5), -kInf).softmax(-1);
                         },
                         [](const Tensor& s, const Tensors& in) {
                           return where(in[4], s, 0.5).masked_fill(in[4], -kInf).softmax(-1);
                         },
                         [](const Tensor& s, const Tensors& in) {
                           return (where(in[4], s, 0.5) + where(in[4], 0.25, s)).softmax(-1);
                         },
                         [](const Tensor& s, const Tensors& in) {
                           return (where(in[4], 0.25, s) + where(in[4], s, -kInf)).softmax(-1);
                         }};
  for (const Weights& weights : all)
    for (const Tensor& mask : {causal(129, 129), logical_not(causal(129, 129))})
      compare_attention({}, weights, always(mask), {.tiles = -1});
}

TEST_F(Tile, ScoresBehindTwoMasks) {
  compare_attention(
      {},
      [](const Tensor& s, const Tensors& in) {
        return (s.masked_fill(in[4], 0.5) + s.masked_fill(in[5], 0.25)).softmax(-1);
      },
      [](int) {
        return Tensors{causal(129, 129), arange(129) < row_numbers(129)};
      },
      {.tiles = -1});
}

TEST_F(Tile, SoftmaxOfColumns) {
  for (int64_t keys : {129, 100})
    compare_attention(
        {.queries = 129, .keys = keys},
        [](const Tensor& s, const Tensors& in) { return s.masked_fill(in[4], -kInf).softmax(-2); },
        always(causal(129, keys)), {.tiles = -1});
}

TEST_F(Tile, SoftmaxOverHeads) {
  for (int64_t heads : {1, 2})
    compare_attention(
        {.batch = {4, heads}, .queries = 70, .keys = 70},
        [](const Tensor& s, const Tensors& in) { return s.masked_fill(in[4], -2.0).softmax(1); },
        always(causal(70, 70)), {.tiles = -1});
}

TEST_F(Tile, WithoutASoftmax) {
  compare_attention(
      {}, [](const Tensor& s, const Tensors& in) { return s.masked_fill(in[4], 0.0).relu().square(); },
      always(causal(129, 129)), {.tiles = -1});
}

TEST_F(Tile, RowsDividedByTheirLargest) {
  compare_attention({},
                    [](const Tensor& s, const Tensors& in) {
                      const Tensor hidden = s.masked_fill(in[4], 0.0);
                      return hidden / (hidden.abs().sum({-1}, true) + 1);
                    },
                    always(causal(129, 129)), {.tiles = -1});
}

TEST_F(Tile, LogarithmOfTheSoftmax) {
  compare_attention(
      {}, [](const Tensor& s, const Tensors& in) { return s.masked_fill(in[4], -1e4).log_softmax(-1); },
      always(causal(129, 129)), {.tiles = -1});
}

}  // namespace
}  // namespace etch::tile
