// Pointwise kernels that compute in f64.
#include "eager/cpu/pointwise_kernels.h"

namespace etch::cpu {

constinit const PointwiseTable kPointwiseF64 = scalar::make_pointwise_table<double>();

}  // namespace etch::cpu
