// Conv2d.
#include "nn/layers/conv.h"

#include <cmath>

#include "eager/functional.h"
#include "nn/init.h"

namespace etch::nn {

Conv2d::Conv2d(Conv2dOptions o) : options(o) {
  ETCH_CHECK(o.in > 0 && o.out > 0 && o.groups > 0 && o.in % o.groups == 0 && o.out % o.groups == 0,
             ValueError, "Conv2d: expected positive channels that groups divide, got in ", o.in, ", out ",
             o.out, ", groups ", o.groups);
  const Pair k = o.kernel, s = o.stride, p = o.padding, d = o.dilation;
  ETCH_CHECK(k.height > 0 && k.width > 0 && s.height > 0 && s.width > 0 && d.height > 0 && d.width > 0 &&
                 p.height >= 0 && p.width >= 0,
             ValueError,
             "Conv2d: expected kernel, stride and dilation above 0 and padding not below, got kernel ",
             k.height, "x", k.width, ", stride ", s.height, "x", s.width, ", dilation ", d.height, "x",
             d.width, ", padding ", p.height, "x", p.width);
  weight = register_parameter("weight", empty({o.out, o.in / o.groups, k.height, k.width}));
  const double bound = 1 / std::sqrt(static_cast<double>(init::fans(weight).in));
  init::uniform_(weight, -bound, bound);
  if (!o.bias) return;
  bias = register_parameter("bias", empty({o.out}));
  init::uniform_(bias, -bound, bound);
}

Tensor Conv2d::forward(const Tensor& x) {
  return conv2d(x, weight, bias,
                {.stride = {options.stride.height, options.stride.width},
                 .padding = {options.padding.height, options.padding.width},
                 .dilation = {options.dilation.height, options.dilation.width},
                 .groups = options.groups});
}

}  // namespace etch::nn
