// Multi-layer perceptron.
#include "nn/models/mlp.h"

namespace etch::nn {

Mlp::Mlp(MlpOptions options) {
  ETCH_CHECK(options.widths.size() >= 2, ValueError, "Mlp: expected at least two widths, got ",
             options.widths.size());
  for (size_t i = 0; i + 1 < options.widths.size(); ++i) {
    layers.emplace_back(options.widths[i], options.widths[i + 1]);
    register_module("layer" + std::to_string(i), layers.back());
  }
}

Tensor Mlp::forward(const Tensor& x) {
  Tensor y = layers[0](x.ndim() > 2 ? x.flatten(1) : x);
  for (size_t i = 1; i < layers.size(); ++i) y = layers[i](y.relu());
  return y;
}

}  // namespace etch::nn
