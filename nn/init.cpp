// Bounds and deviations of the initialisers.
#include "nn/init.h"

#include <cmath>

namespace etch::nn::init {

void uniform_(Tensor& x, double low, double high) {
  NoGrad guard;
  x.uniform_(low, high);
}

void normal_(Tensor& x, double mean, double stddev) {
  NoGrad guard;
  x.normal_(mean, stddev);
}

void constant_(Tensor& x, double value) {
  NoGrad guard;
  x.fill_(value);
}

Fans fans(const Tensor& weight) {
  ETCH_CHECK(weight.ndim() >= 2, ShapeError, "init: expected a weight of at least 2 dimensions, got ",
             to_string(weight.sizes()));
  int64_t window = 1;
  for (int axis = 2; axis < weight.ndim(); ++axis) window *= weight.sizes()[axis];
  return {weight.sizes()[1] * window, weight.sizes()[0] * window};
}

double gain(Nonlinearity nonlinearity, double slope) {
  switch (nonlinearity) {
    case Nonlinearity::ReLU:
      return std::sqrt(2.0);
    case Nonlinearity::LeakyReLU:
      return std::sqrt(2.0 / (1 + slope * slope));
    case Nonlinearity::Tanh:
      return 5.0 / 3;
    case Nonlinearity::Linear:
      break;
  }
  return 1;
}

namespace {

double kaiming_stddev(const Tensor& weight, const KaimingOptions& options) {
  const Fans f = fans(weight);
  const int64_t fan = options.mode == FanMode::In ? f.in : f.out;
  return fan ? gain(options.nonlinearity, options.slope) / std::sqrt(static_cast<double>(fan)) : 0;
}

double xavier_stddev(const Tensor& weight, double gain) {
  const Fans f = fans(weight);
  return f.in + f.out ? gain * std::sqrt(2.0 / static_cast<double>(f.in + f.out)) : 0;
}

/// Uniform of the given deviation.
void fill_uniform(Tensor& x, double stddev) {
  const double bound = std::sqrt(3.0) * stddev;
  uniform_(x, -bound, bound);
}

}  // namespace

void kaiming_uniform_(Tensor& weight, KaimingOptions options) {
  fill_uniform(weight, kaiming_stddev(weight, options));
}
void kaiming_normal_(Tensor& weight, KaimingOptions options) {
  normal_(weight, 0, kaiming_stddev(weight, options));
}
void xavier_uniform_(Tensor& weight, double gain) { fill_uniform(weight, xavier_stddev(weight, gain)); }
void xavier_normal_(Tensor& weight, double gain) { normal_(weight, 0, xavier_stddev(weight, gain)); }

}  // namespace etch::nn::init
