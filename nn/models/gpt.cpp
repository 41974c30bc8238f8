// A small decoder-only transformer.
#include "nn/models/gpt.h"

#include <cmath>
#include <limits>

#include "eager/functional.h"

namespace etch::nn {

namespace {

GptOptions checked(GptOptions o) {
  ETCH_CHECK(o.vocabulary > 0 && o.context > 0 && o.width > 0 && o.heads > 0 && o.layers >= 0, ValueError,
             "Gpt: expected positive extents, got vocabulary ", o.vocabulary, ", context ", o.context,
             ", width ", o.width, ", heads ", o.heads, ", layers ", o.layers);
  ETCH_CHECK(o.width % o.heads == 0, ValueError, "Gpt: expected a width that heads divide, got ", o.width,
             " and ", o.heads);
  return o;
}

}  // namespace

GptBlock::GptBlock(const GptOptions& o, Tensor mask)
    : heads_(o.heads),
      norm1_(o.width),
      qkv_(o.width, 3 * o.width),
      projection_(o.width, o.width),
      norm2_(o.width),
      up_(o.width, 4 * o.width),
      down_(4 * o.width, o.width),
      mask_(std::move(mask)) {
  register_module("norm1", norm1_);
  register_module("qkv", qkv_);
  register_module("projection", projection_);
  register_module("norm2", norm2_);
  register_module("up", up_);
  register_module("down", down_);
}

Tensor GptBlock::attention(const Tensor& x) {
  const int64_t batch = x.size(0), length = x.size(1), width = x.size(2), head = width / heads_;
  // [N, T, 3 * width] -> [3, N, heads, T, head]
  const Tensor qkv = qkv_(x).view({batch, length, 3, heads_, head}).permute({2, 0, 3, 1, 4});
  const Tensor scores = qkv[0].matmul(qkv[1].transpose(-2, -1)) * (1 / std::sqrt(static_cast<double>(head)));
  const Tensor mask = length == mask_.size(0) ? mask_ : mask_[{Slice(0, length), Slice(0, length)}];
  const Tensor weights = scores.masked_fill(mask, -std::numeric_limits<double>::infinity()).softmax(-1);
  return projection_(weights.matmul(qkv[2]).transpose(1, 2).reshape({batch, length, width}));
}

Tensor GptBlock::forward(const Tensor& x) {
  const Tensor y = x + attention(norm1_(x));
  return y + down_(up_(norm2_(y)).gelu());
}

Gpt::Gpt(GptOptions o)
    : options(checked(o)),
      tokens(o.vocabulary, o.width),
      positions(o.context, o.width),
      norm(o.width),
      head({.in = o.width, .out = o.vocabulary, .bias = false}),
      position_index_(arange(o.context)) {
  register_module("tokens", tokens);
  register_module("positions", positions);
  register_buffer("position_index", position_index_, /*persistent=*/false);
  const Tensor mask = register_buffer("mask", position_index_.unsqueeze(0) > position_index_.unsqueeze(1),
                                      /*persistent=*/false);
  for (int64_t i = 0; i < o.layers; ++i) {
    blocks.emplace_back(o, mask);
    register_module("block" + std::to_string(i), blocks.back());
  }
  register_module("norm", norm);
  register_module("head", head);
}

Tensor Gpt::forward(const Tensor& x) {
  ETCH_CHECK(x.ndim() == 2 && x.size(1) <= options.context, ShapeError,
             "Gpt: expected tokens [N, T] with T <= ", options.context, ", got ", to_string(x.sizes()));
  const int64_t length = x.size(1);
  const Tensor index = length == options.context ? position_index_ : position_index_.slice(0, 0, length);
  Tensor y = tokens(x) + positions(index);
  for (GptBlock& block : blocks) y = block(y);
  return head(norm(y));
}

}  // namespace etch::nn
