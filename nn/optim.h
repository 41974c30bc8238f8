// All optimisers and learning-rate schedules: namespace optim, also reached as nn::Sgd and so on.
#pragma once

#include "nn/optim/adam.h"
#include "nn/optim/optimizer.h"
#include "nn/optim/schedule.h"
#include "nn/optim/sgd.h"

namespace etch::nn {

using namespace etch::optim;

}  // namespace etch::nn
