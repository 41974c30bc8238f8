// Attention in random programs.
#include <array>
#include <cmath>
#include <limits>

#include "tests/jit/program_helpers.h"
#include "tests/jit/program_table.h"

namespace etch::fuzz {

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

template <size_t kCount>
int64_t any_of(Dice& dice, const std::array<int64_t, kCount>& numbers) {
  return numbers[static_cast<size_t>(dice.below(kCount))];
}

// The elements of x over and over, and noise so that rows differ; once in a while something else among it.
Tensor spread(Dice& dice, const Tensor& x, const Dims& sizes) {
  const int64_t count = num_elements(sizes);
  const float scale = dice.one_in(8) ? 1e-20f : dice.one_in(8) ? 30.0f : 1.0f;
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(scale * static_cast<float>(dice.unit() * 2 - 1));
  if (dice.one_in(3))
    values[static_cast<size_t>(dice.below(static_cast<int>(count)))] =
        static_cast<float>(special(dice.below(7)));
  const Tensor noise = from_vector(values, sizes);
  if (x.numel() == 0 || dice.one_in(3)) return noise;
  const int64_t times = (count + x.numel() - 1) / x.numel();
  const Tensor flat = cast(x, 0).reshape({1, -1}).expand({times, x.numel()}).reshape({-1});
  return flat.slice(0, 0, count).reshape(sizes) * 0.25 + noise;
}

// True where hidden: [queries, keys] or, of each sequence its own, [.., 1, keys].
Tensor hidden(Dice& dice, const Dims& batch, int64_t queries, int64_t keys, int call) {
  const int64_t kind = dice.below(7), shift = dice.below(40), moves = dice.one_in(2) ? call * 9 : 0;
  Dims sizes = {queries, keys};
  if (kind == 0) {  // padding
    sizes = batch;
    if (batch.size() > 1 && dice.one_in(2)) sizes[sizes.size() - 1] = 1;
    sizes.push_back(1);
    sizes.push_back(keys);
  }
  std::vector<uint8_t> values;
  for (int64_t i = 0; i < num_elements(sizes); ++i) {
    const int64_t row = i / keys, column = i % keys;
    bool hides = column > row + moves;  // causal
    if (kind == 0) hides = column >= keys - (shift + moves) * (1 + row);
    if (kind == 1) hides = hides || column < row - shift;
    if (kind == 2) hides = column < row + moves;
    if (kind == 3) hides = hides || row < shift + moves;
    if (kind == 4) hides = dice.one_in(3) || column > row + 70;
    if (kind == 5) hides = column / 64 == (row / 64 + moves) % 3;
    values.push_back(hides);
  }
  Tensor mask = from_vector(values, sizes) != 0;
  return dice.one_in(4) ? logical_not(logical_not(mask)) : mask;
}

}  // namespace

Tensor attention(World& w, const Tensor& a, const Tensor& b, const Tensor& c, double kind, int call) {
  Dice dice(static_cast<uint64_t>(std::llround(kind * 64) + 64));
  const Dims batch =
      std::array<Dims, 5>{{{2}, {3}, {2, 1}, {1, 2}, {2, 2}}}[static_cast<size_t>(dice.below(5))];
  const int64_t queries = any_of<7>(dice, {17, 40, 63, 64, 65, 70, 130}),
                keys = dice.one_in(2) ? queries : any_of<6>(dice, {17, 66, 70, 128, 150, 200}),
                width = any_of<3>(dice, {17, 24, 32});
  Dims groups = batch;  // whose heads share keys and values
  if (dice.one_in(3)) groups[groups.size() - 1] = 1;
  const auto and_last = [](Dims sizes, int64_t rows, int64_t columns) {
    sizes.push_back(rows);
    sizes.push_back(columns);
    return sizes;
  };
  Tensor q = spread(dice, a, and_last(batch, queries, width)) + param(w, dice.below(4)).sum() * 0.1,
         k = spread(dice, b, and_last(groups, keys, width)),
         v = spread(dice, c, and_last(groups, keys, width));
  if (dice.one_in(3)) k = k * param(w, 2).sum();
  if (dice.one_in(4)) v = v.transpose(-2, -1).contiguous().transpose(-2, -1);
  if (dice.one_in(3)) v = v + param(w, 2).sum();
  Tensor scores = q.matmul(k.transpose(-2, -1));
  if (!dice.one_in(3)) scores = scores * (0.25 + 0.01 * call);
  if (dice.one_in(6)) scores = scores + spread(dice, c, and_last(batch, queries, keys));
  if (dice.one_in(8)) scores = scores + randn(scores.sizes());
  if (dice.one_in(8)) keep(w, scores);
  Tensor mask;
  if (!dice.one_in(5)) {
    mask = hidden(dice, batch, queries, keys, call);
    const double fill = dice.one_in(3)   ? special(dice.below(7))
                        : dice.one_in(4) ? (call % 2 ? -kInf : -3.0)
                                         : -kInf;
    switch (dice.below(5)) {
      case 0:
        scores = where(logical_not(mask), scores, fill);
        break;
      case 1:
        scores = scores + where(mask, fill, 0.0);
        break;
      case 2:
        scores = scores.masked_fill(mask, 0.5).masked_fill(hidden(dice, batch, queries, keys, call), fill);
        break;
      default:
        scores = scores.masked_fill(mask, fill);
    }
  }
  Tensor weights = dice.one_in(10)   ? scores.relu()
                   : dice.one_in(10) ? scores.softmax(-2)
                   : dice.one_in(10) ? scores / (scores.abs().sum({-1}, true) + 1.0)
                                     : scores.softmax(-1);
  if (dice.one_in(8)) keep(w, weights);
  if (dice.one_in(6)) weights = dropout(weights, 0.25, true, dice.one_in(2) ? &w.own : nullptr);
  if (dice.one_in(8)) target(v).mul_(0.5);
  Tensor result = weights.matmul(v);
  if (dice.one_in(8)) result = result + weights.sum({-1}, true);
  if (dice.one_in(3))
    backward(result);
  else if (dice.one_in(4))
    backward_twice(result * result);
  if (dice.one_in(6) && mask.defined()) mask.copy_(logical_not(mask));
  if (dice.one_in(6)) target(dice.one_in(2) ? k : v).mul_(2.0);
  return result;
}

}  // namespace etch::fuzz
