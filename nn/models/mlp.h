// Multi-layer perceptron.
#pragma once

#include "nn/layers/linear.h"

namespace etch::nn {

struct MlpOptions {
  std::vector<int64_t> widths = {784, 1024, 1024, 10};  ///< input, hidden layers, output
};

/// Linear layers with ReLU between them: [N, ..] flattened to [N, widths.front()] -> [N, widths.back()].
/// Throws ValueError for fewer than two widths.
class Mlp : public Module {
 public:
  explicit Mlp(MlpOptions options = {});
  Tensor forward(const Tensor& x) override;

  std::vector<Linear> layers;
};

}  // namespace etch::nn
