// Pointwise kernels that compute in i32.
#include "eager/cpu/pointwise_kernels.h"

namespace etch::cpu {

constinit const PointwiseTable kPointwiseI32 = scalar::make_pointwise_table<int32_t>();

}  // namespace etch::cpu
