// Linear and Embedding.
#include "nn/layers/linear.h"

#include <cmath>

#include "eager/functional.h"
#include "nn/init.h"

namespace etch::nn {

Linear::Linear(LinearOptions o) : options(o) {
  ETCH_CHECK(o.in > 0 && o.out > 0, ValueError, "Linear: expected positive extents, got in ", o.in, ", out ",
             o.out);
  weight = register_parameter("weight", empty({o.out, o.in}));
  const double bound = 1 / std::sqrt(static_cast<double>(o.in));
  init::uniform_(weight, -bound, bound);
  if (!o.bias) return;
  bias = register_parameter("bias", empty({o.out}));
  init::uniform_(bias, -bound, bound);
}

Tensor Linear::forward(const Tensor& x) { return linear(x, weight, bias); }

Embedding::Embedding(EmbeddingOptions o) : options(o) {
  ETCH_CHECK(o.count > 0 && o.width > 0, ValueError, "Embedding: expected positive extents, got count ",
             o.count, ", width ", o.width);
  weight = register_parameter("weight", empty({o.count, o.width}));
  init::normal_(weight);
}

Tensor Embedding::forward(const Tensor& index) { return embedding(weight, index); }

}  // namespace etch::nn
