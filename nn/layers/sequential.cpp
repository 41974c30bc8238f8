// Sequential.
#include "nn/layers/sequential.h"

namespace etch::nn {

Tensor Sequential::forward(const Tensor& x) {
  Tensor y = x;
  for (auto& step : steps_) y = step(y);
  return y;
}

}  // namespace etch::nn
