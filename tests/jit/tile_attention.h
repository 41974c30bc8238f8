// What the tests of tiles share: attention in parts, masks, compiled beside eager.
#pragma once

#include <cmath>
#include <functional>
#include <limits>

#include "eager/cpu/tile_product.h"
#include "runtime/parallel.h"
#include "tests/jit/contract.h"

namespace etch::tile {

using Tensors = std::vector<Tensor>;
using Body = std::function<Tensors(const Tensors& in)>;
using Inputs = std::function<Tensors(int call)>;
using Weights = std::function<Tensor(const Tensor& scores, const Tensors& in)>;

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline const float kNaN = std::nanf("");

/// With a compiler, on one thread: tiles want a batch for each.
class Tile : public ::testing::Test {
 protected:
  Tile() { set_num_threads(1); }
  ~Tile() override { set_num_threads(threads_); }

  Settings settings_;
  int threads_ = num_threads();
};

/// Tiled nodes that a function's executables run.
template <class Step>
int tiles(const Step& step) {
  int found = 0;
  const nlohmann::json paths = report(step)["paths"];
  for (const auto& path : paths)
    for (const auto& executable : path["executables"])
      if (executable.contains("kernels"))
        for (const auto& kernel : executable["kernels"]) found += kernel["name"] == "tiled";
  return found;
}

/// Without its library there are none.
inline int where_there_are_tiles(int count) { return cpu::has_tile_product(64) ? count : 0; }

struct Expected {
  int tiles = 1;  ///< at least, in all executables; 0: none; -1: any number
  int calls = 4;
};

/// Calls the body compiled and eagerly on the same inputs. Floating ones are leaves of each call's own.
inline void compare_at(int64_t memory_budget, const Body& body, const Inputs& inputs,
                       const Expected& expected) {
  auto step = compile(body, {.name = "tile", .memory_budget = memory_budget});
  const auto fresh = [&](int call) {
    Tensors in = inputs(call);
    for (Tensor& x : in)
      if (is_floating(x.dtype())) x = x.detach().requires_grad_();
    return in;
  };
  for (int call = 0; call < expected.calls; ++call) {
    const Tensors got = step(fresh(call)), want = eagerly([&] { return body(fresh(call)); });
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      SCOPED_TRACE(
          join_text({"budget ", memory_budget, ", call ", call, ", result ", static_cast<int64_t>(i)}));
      expect_same(got[i].detach(), want[i].detach());
      if (::testing::Test::HasFailure()) return;
    }
  }
  EXPECT_GE(step.compiled_calls(), expected.calls - 1);
  if (expected.tiles < 0) return;
  const int found = tiles(step), least = where_there_are_tiles(expected.tiles);
  EXPECT_TRUE(expected.tiles == 0 ? found == 0 : found >= least) << found << "\n" << step.explain();
}

/// With the weights kept for the backward, and computed again.
inline void compare(const Body& body, const Inputs& inputs, const Expected& expected = {}) {
  for (int64_t memory_budget : {0, 1}) compare_at(memory_budget, body, inputs, expected);
}

struct Sizes {
  Dims batch = {2, 2};
  int64_t queries = 129, keys = 129, width = 24;

  Dims and_last(int64_t a, int64_t b) const {
    Dims sizes = batch;
    sizes.push_back(a);
    sizes.push_back(b);
    return sizes;
  }
};

/// The same numbers for the same seed.
inline Tensor noise(const Dims& sizes, int seed) {
  Generator generator(static_cast<uint64_t>(seed));
  return randn(sizes, {}, &generator);
}

/// q, k, v and the gradient of the result; of each call its own.
inline Tensors operands(const Sizes& s, int call) {
  return {noise(s.and_last(s.queries, s.width), 10 * call), noise(s.and_last(s.keys, s.width), 10 * call + 1),
          noise(s.and_last(s.keys, s.width), 10 * call + 2),
          noise(s.and_last(s.queries, s.width), 10 * call + 3)};
}

inline Tensor row_numbers(int64_t count) { return arange(count).reshape({count, 1}); }
/// True where hidden.
inline Tensor causal(int64_t queries, int64_t keys) { return arange(keys) > row_numbers(queries); }
inline Tensor outside_window(int64_t queries, int64_t keys, int64_t width) {
  const Tensor distance = row_numbers(queries) - arange(keys);
  return logical_or(distance >= width, distance < 0);
}
/// [sequences, 1, 1, keys]: those from a number on that falls from sequence to sequence.
inline Tensor padding(int64_t sequences, int64_t keys, int64_t from, int64_t step) {
  return arange(keys) >= (from - arange(sequences) * step).reshape({sequences, 1, 1, 1});
}

/// weights(q k^T / sqrt(width)) v; in: q, k, v, the gradient, what the weights need.
inline Tensor attention(const Tensors& in, const Weights& weights) {
  const double scale = 1 / std::sqrt(static_cast<double>(in[0].size(-1)));
  return weights(in[0].matmul(in[1].transpose(-2, -1)) * scale, in).matmul(in[2]);
}

/// The result and the gradients of q, k and v.
inline Tensors forward_and_backward(const Tensors& in, const Weights& weights) {
  const Tensor result = attention(in, weights);
  result.backward(in[3].detach());
  return {result, in[0].grad(), in[1].grad(), in[2].grad()};
}

/// Forward and backward; `more` follows q, k, v and the gradient.
inline void compare_attention(const Sizes& sizes, const Weights& weights, const Inputs& more = nullptr,
                              const Expected& expected = {}) {
  compare([&](const Tensors& in) { return forward_and_backward(in, weights); },
          [&](int call) {
            Tensors in = operands(sizes, call);
            if (more)
              for (Tensor& x : more(call)) in.push_back(std::move(x));
            return in;
          },
          expected);
}

inline Inputs always(const Tensor& x) {
  return [x](int) { return Tensors{x}; };
}

inline Tensor plain(const Tensor& scores, const Tensors&) { return scores.softmax(-1); }
/// in[4] is true where hidden.
inline Tensor masked(const Tensor& scores, const Tensors& in) {
  return scores.masked_fill(in[4], -kInf).softmax(-1);
}

/// One element of each matrix.
inline void put(Tensor x, int64_t row, int64_t column, double value) {
  x.select(-2, row).select(-1, column).fill_(value);
}

}  // namespace etch::tile
