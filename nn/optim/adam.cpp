// Adam and AdamW.
#include "nn/optim/adam.h"

#include <cmath>

#include "eager/functional.h"

namespace etch::optim {

Adam::Adam(std::string_view name, std::vector<Tensor> parameters, AdamOptions options, bool decoupled)
    : Optimizer(name, std::move(parameters), options.lr),
      options_(options),
      decoupled_(decoupled),
      first_moments_(make_state("first_moment")),
      second_moments_(make_state("second_moment")) {
  const auto is_beta = [](double beta) { return beta >= 0 && beta < 1; };
  ETCH_CHECK(is_beta(options.beta1) && is_beta(options.beta2), ValueError, name,
             ": expected betas in [0, 1), got ", options.beta1, " and ", options.beta2);
  ETCH_CHECK(options.eps >= 0 && options.weight_decay >= 0, ValueError, name,
             ": expected eps and weight_decay of at least 0, got ", options.eps, " and ",
             options.weight_decay);
}

void Adam::step() {
  NoGrad guard;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor gradient = parameters_[i].grad();
    if (!gradient.defined()) continue;
    const double t = static_cast<double>(++steps_[i]);
    adam_step(parameters_[i], gradient, first_moments_[i], second_moments_[i], lr(), options_.beta1,
              options_.beta2, options_.eps, options_.weight_decay, 1 - std::pow(options_.beta1, t),
              1 - std::pow(options_.beta2, t), decoupled_);
  }
}

}  // namespace etch::optim
