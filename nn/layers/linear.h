// Linear and Embedding.
#pragma once

#include "nn/module.h"

namespace etch::nn {

struct LinearOptions {
  int64_t in = 0, out = 0;
  bool bias = true;
};

/// x [.., in] -> [.., out]: x times the transposed weight [out, in], plus bias [out]. Both start uniform
/// within 1 / sqrt(in). Throws ValueError for extents below 1.
class Linear : public Module {
 public:
  explicit Linear(LinearOptions options);
  Linear(int64_t in, int64_t out) : Linear(LinearOptions{.in = in, .out = out}) {}
  Tensor forward(const Tensor& x) override;

  LinearOptions options;
  Tensor weight, bias;
};

struct EmbeddingOptions {
  int64_t count = 0, width = 0;
};

/// i64 indices [..] in [0, count) -> rows of weight [count, width]: [.., width]. The weight starts standard
/// normal. Throws IndexError for an index out of range.
class Embedding : public Module {
 public:
  explicit Embedding(EmbeddingOptions options);
  Embedding(int64_t count, int64_t width) : Embedding(EmbeddingOptions{.count = count, .width = width}) {}
  Tensor forward(const Tensor& index) override;

  EmbeddingOptions options;
  Tensor weight;
};

}  // namespace etch::nn
