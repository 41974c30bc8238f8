// Initialisers: fill a tensor in place from the default generator, outside the tape.
#pragma once

#include "eager/tensor.h"

namespace etch::nn::init {

void uniform_(Tensor& x, double low = 0, double high = 1);
void normal_(Tensor& x, double mean = 0, double stddev = 1);
void constant_(Tensor& x, double value);
inline void zeros_(Tensor& x) { constant_(x, 0); }
inline void ones_(Tensor& x) { constant_(x, 1); }

enum class FanMode { In, Out };
enum class Nonlinearity { Linear, ReLU, LeakyReLU, Tanh };

/// Inputs and outputs of one element of a weight [out, in, ...]; throws ShapeError below two dimensions.
struct Fans {
  int64_t in, out;
};
Fans fans(const Tensor& weight);
/// The recommended gain: 1, sqrt(2), sqrt(2 / (1 + slope^2)), 5/3.
double gain(Nonlinearity nonlinearity, double slope = 0.01);

/// Keep the variance of activations (FanMode::In) or of gradients (Out) the same from layer to layer:
/// stddev = gain / sqrt(fan). He et al., "Delving Deep into Rectifiers", 2015.
struct KaimingOptions {
  double slope = 0;  ///< negative slope of LeakyReLU
  FanMode mode = FanMode::In;
  Nonlinearity nonlinearity = Nonlinearity::LeakyReLU;
};
void kaiming_uniform_(Tensor& weight, KaimingOptions options = {});
void kaiming_normal_(Tensor& weight, KaimingOptions options = {});

/// stddev = gain * sqrt(2 / (fan in + fan out)). Glorot and Bengio, 2010.
void xavier_uniform_(Tensor& weight, double gain = 1);
void xavier_normal_(Tensor& weight, double gain = 1);

}  // namespace etch::nn::init
