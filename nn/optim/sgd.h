// Stochastic gradient descent.
#pragma once

#include "nn/optim/optimizer.h"

namespace etch::optim {

struct SgdOptions {
  double lr = 1e-3;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
};

/// With g the gradient plus weight_decay * p: b = momentum * b + (1 - dampening) * g, where the first update
/// sets b = g; then p -= lr * b, or with Nesterov p -= lr * (g + momentum * b). Without momentum p -= lr * g.
class Sgd : public Optimizer {
 public:
  /// Throws ValueError for negative options, and for Nesterov without momentum or with dampening.
  Sgd(std::vector<Tensor> parameters, SgdOptions options);
  void step() override;

 private:
  SgdOptions options_;
  std::vector<Tensor>* buffers_ = nullptr;
};

}  // namespace etch::optim
