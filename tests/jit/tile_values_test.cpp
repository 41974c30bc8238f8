// Tiles leave out what masks hide, whatever lies there: NaN, infinities, huge and tiny numbers, signed zeros.
#include <array>

#include "tests/jit/tile_attention.h"

namespace etch::tile {
namespace {

constexpr std::array<double, 9> kValues = {-0.0, 1e-42, -1e-42, 1e30, -1e30, 3e38, kInf, -kInf, NAN};

/// One value a call, in one element or one row of an operand, which the mask hides from some rows.
void compare_with(int operand, int64_t row, bool whole_row, const Tensor& mask) {
  const Sizes sizes{.batch = {2}, .queries = 150, .keys = 150};
  SCOPED_TRACE(join_text({"operand ", operand, " row ", row, whole_row ? " whole" : ""}));
  compare([](const Tensors& in) { return forward_and_backward(in, masked); },
          [&](int call) {
            Tensors in = operands(sizes, call);
            Tensor& x = in[static_cast<size_t>(operand)];
            const double value = kValues[static_cast<size_t>(call) % kValues.size()];
            if (whole_row)
              x.select(-2, row).fill_(value);
            else
              put(x, row, 5, value);
            in.push_back(mask);
            return in;
          },
          {.calls = static_cast<int>(kValues.size()) + 1});
}

class OneValue : public Tile, public ::testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Tile, OneValue, ::testing::Range(0, 4));

TEST_P(OneValue, UnderACausalMask) {
  for (int64_t row : {0, 63, 64, 100, 149})
    for (bool whole : {false, true}) compare_with(GetParam(), row, whole, causal(150, 150));
}

TEST_P(OneValue, UnderAMaskOfTheFirstColumns) {
  for (int64_t row : {0, 100}) compare_with(GetParam(), row, true, arange(150) < row_numbers(150) - 10);
}

TEST_P(OneValue, WhereAllRowsOfAColumnAreHidden) {
  for (int64_t row : {10, 140})
    compare_with(GetParam(), row, true,
                 logical_or(logical_or(arange(150) == row, arange(150) >= 128), row_numbers(150) < 0));
}

TEST_P(OneValue, WithRowsThatSeeNothing) {
  compare_with(GetParam(), 70, false, logical_or(causal(150, 150), row_numbers(150) < 70));
}

/// All operands of all calls of one magnitude, so that products underflow or overflow.
void compare_scaled(double q, double v, double gradient, const Weights& weights, const Tensor& mask,
                    int tiles = 1) {
  compare([&](const Tensors& in) { return forward_and_backward(in, weights); },
          [&](int call) {
            Tensors in = operands({.batch = {2}, .queries = 150, .keys = 150}, call);
            in[0] = in[0] * q, in[2] = in[2] * v, in[3] = in[3] * gradient;
            if (call == 2) in[2] = in[2].abs() * -1.0, in[3] = in[3].abs();
            if (call == 3) in[2] = in[2].abs(), in[3] = in[3] * 0.0;
            in.push_back(mask);
            return in;
          },
          {.tiles = tiles});
}

TEST_F(Tile, ProductsThatUnderflow) {
  for (const Tensor& mask : {causal(150, 150), arange(150) < row_numbers(150),
                             logical_and(arange(150) >= 64, row_numbers(150) >= 64)})
    for (double scale : {1e-22, 1e-25, 1e-38, 3e-44}) {
      compare_scaled(1, 1, scale, masked, mask);
      compare_scaled(1, scale, 1, masked, mask);
      compare_scaled(1, scale, scale, masked, mask);
      compare_scaled(scale, 1e-10, scale, masked, mask);
    }
}

TEST_F(Tile, ProductsThatOverflow) {
  for (double scale : {1e15, 1e19, 1e37}) {
    compare_scaled(1, scale, 1, masked, causal(150, 150));
    compare_scaled(1, scale, scale, masked, causal(150, 150));
    compare_scaled(scale, 1, 1, masked, causal(150, 150));
  }
}

TEST_F(Tile, WeightsThatVanish) {
  compare_scaled(300, 1, 1, masked, causal(150, 150));
  compare_scaled(300, 1e-40, 1e-3, plain, causal(150, 150));
  compare_scaled(
      30, 1, 1, [](const Tensor& s, const Tensors& in) { return s.masked_fill(in[4], -1e9).softmax(-1); },
      causal(150, 150));
}

TEST_F(Tile, FiniteFillsLeaveHiddenColumnsTheirWeight) {
  for (double fill : {-3.0, 0.0, 1.0})
    compare_scaled(
        1, 1e30, 1e3,
        [&](const Tensor& s, const Tensors& in) { return s.masked_fill(in[4], fill).softmax(-1); },
        causal(150, 150));
}

TEST_F(Tile, NegativeZerosOfWeightsThatAreNoSoftmax) {
  const Weights weights = [](const Tensor& s, const Tensors& in) {
    const Tensor hidden = where(in[4], -0.0, s);
    return hidden / (hidden.abs().sum({-1}, true) + 1);
  };
  compare_scaled(1, 1, 1, weights, causal(150, 150), -1);
  compare_scaled(1e-20, 1e-20, 1e-20, weights, causal(150, 150), -1);
}

TEST_F(Tile, InfinitiesInAnAddedMask) {
  for (double value : {double{kInf}, double{kNaN}, -1e9}) {
    Tensor mask = where(causal(150, 150), -kInf, 0.0);
    put(mask, 100, 3, value);
    put(mask, 3, 100, value);
    compare_scaled(
        1, 1, 1, [](const Tensor& s, const Tensors& in) { return (s + in[4].detach()).softmax(-1); }, mask);
  }
}

/// Random values of all kinds everywhere, masks with runs of hidden blocks.
TEST_F(Tile, AnyValuesAnywhere) {
  compare([](const Tensors& in) { return forward_and_backward(in, masked); },
          [](int call) {
            Generator dice(static_cast<uint64_t>(call) + 900);
            const int64_t queries = 140, keys = 270;
            Tensors in = operands({.batch = {3}, .queries = queries, .keys = keys}, call);
            for (int i = 0; i < 1 + call % 4; ++i) {
              const std::vector<int64_t> at = randint(0, 1 << 24, {4}, &dice).to_vector<int64_t>();
              Tensor x = in[static_cast<size_t>(at[0] % 4)][at[1] % 3];
              put(x, at[2] % x.size(0), at[3] % x.size(1),
                  kValues[static_cast<size_t>(at[0] / 4) % kValues.size()]);
            }
            const std::vector<int64_t> at = randint(0, keys, {6}, &dice).to_vector<int64_t>();
            Tensor mask = arange(keys) > row_numbers(queries) * (at[0] % 3) + at[1];
            mask = logical_or(mask, arange(keys) < row_numbers(queries) * (at[2] % 3) - at[3]);
            if (at[4] % 2) mask = logical_or(mask, rand({queries, keys}, {}, &dice) < 0.2);
            in.push_back(mask);
            return in;
          },
          {.calls = 150});
}

}  // namespace
}  // namespace etch::tile
