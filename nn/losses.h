// The losses of eager/functional.h under the names users look for.
#pragma once

#include "eager/functional.h"

namespace etch::nn {

using etch::binary_cross_entropy;
using etch::binary_cross_entropy_with_logits;
using etch::cross_entropy;
using etch::CrossEntropyOptions;
using etch::l1_loss;
using etch::Loss;
using etch::mse_loss;

}  // namespace etch::nn
