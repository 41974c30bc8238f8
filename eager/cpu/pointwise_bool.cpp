// Pointwise kernels that compute in bool.
#include "eager/cpu/pointwise_kernels.h"

namespace etch::cpu {

constinit const PointwiseTable kPointwiseBool = scalar::make_pointwise_table<bool>();

}  // namespace etch::cpu
