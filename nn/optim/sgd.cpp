// Stochastic gradient descent.
#include "nn/optim/sgd.h"

#include "eager/functional.h"

namespace etch::optim {

Sgd::Sgd(std::vector<Tensor> parameters, SgdOptions options)
    : Optimizer("Sgd", std::move(parameters), options.lr), options_(options) {
  ETCH_CHECK(options.momentum >= 0 && options.weight_decay >= 0, ValueError,
             "Sgd: expected momentum and weight_decay of at least 0, got ", options.momentum, " and ",
             options.weight_decay);
  ETCH_CHECK(!options.nesterov || (options.momentum > 0 && options.dampening == 0), ValueError,
             "Sgd: expected momentum above 0 and no dampening with nesterov, got momentum ", options.momentum,
             ", dampening ", options.dampening);
  if (options.momentum > 0) buffers_ = &make_state("momentum_buffer");
}

void Sgd::step() {
  NoGrad guard;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor gradient = parameters_[i].grad();
    if (!gradient.defined()) continue;
    const bool first = steps_[i]++ == 0;
    if (buffers_)
      sgd_step(parameters_[i], gradient, (*buffers_)[i], lr(), options_.momentum,
               first ? 0 : options_.dampening, options_.weight_decay, options_.nesterov);
    else
      sgd_plain_step(parameters_[i], gradient, lr(), options_.weight_decay);
  }
}

}  // namespace etch::optim
