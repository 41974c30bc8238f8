// A small decoder-only transformer.
#pragma once

#include "nn/layers/linear.h"
#include "nn/layers/norm.h"

namespace etch::nn {

struct GptOptions {
  int64_t vocabulary = 512, context = 256, width = 256, heads = 8, layers = 4;
};

/// Causal self-attention and a GELU perceptron of four times the width, each behind a LayerNorm and added to
/// its input: x [N, T, width] -> [N, T, width].
class GptBlock : public Module {
 public:
  /// `mask` is bool [context, context], true where a query (row) may not see a key (column).
  GptBlock(const GptOptions& options, Tensor mask);
  Tensor forward(const Tensor& x) override;

 private:
  Tensor attention(const Tensor& x);

  int64_t heads_;
  LayerNorm norm1_;
  Linear qkv_, projection_;
  LayerNorm norm2_;
  Linear up_, down_;
  Tensor mask_;
};

/// Tokens i64 [N, T], T <= context -> logits [N, T, vocabulary]. Token plus position embedding, blocks, a
/// last LayerNorm and an output projection of its own, without bias. Throws ValueError for extents that do
/// not fit, ShapeError for longer sequences, IndexError for tokens out of range.
class Gpt : public Module {
 public:
  explicit Gpt(GptOptions options = {});
  Tensor forward(const Tensor& tokens) override;

  GptOptions options;
  Embedding tokens, positions;
  std::vector<GptBlock> blocks;
  LayerNorm norm;
  Linear head;

 private:
  Tensor position_index_;  // 0, 1, .., context - 1
};

}  // namespace etch::nn
