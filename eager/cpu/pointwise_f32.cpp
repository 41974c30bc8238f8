// Pointwise kernels that compute in f32.
#include "eager/cpu/pointwise_kernels.h"

namespace etch::cpu {

constinit const PointwiseTable kPointwiseF32 = scalar::make_pointwise_table<float>();

}  // namespace etch::cpu
