// Conv2d.
#pragma once

#include "nn/module.h"

namespace etch::nn {

struct Conv2dOptions {
  int64_t in = 0, out = 0;
  Pair kernel = 1, stride = 1, padding = 0, dilation = 1;
  int64_t groups = 1;
  bool bias = true;
};

/// x [N, in, H, W] -> [N, out, H', W'], with weight [out, in / groups, KH, KW] and bias [out]. Both start
/// uniform within 1 / sqrt(in / groups * KH * KW). Throws ValueError for extents below 1 or groups that do
/// not divide in and out.
class Conv2d : public Module {
 public:
  explicit Conv2d(Conv2dOptions options);
  Tensor forward(const Tensor& x) override;

  Conv2dOptions options;
  Tensor weight, bias;
};

}  // namespace etch::nn
