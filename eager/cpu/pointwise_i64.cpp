// Pointwise kernels that compute in i64.
#include "eager/cpu/pointwise_kernels.h"

namespace etch::cpu {

constinit const PointwiseTable kPointwiseI64 = scalar::make_pointwise_table<int64_t>();

}  // namespace etch::cpu
