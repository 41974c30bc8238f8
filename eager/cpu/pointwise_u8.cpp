// Pointwise kernels that compute in u8.
#include "eager/cpu/pointwise_kernels.h"

namespace etch::cpu {

constinit const PointwiseTable kPointwiseU8 = scalar::make_pointwise_table<uint8_t>();

}  // namespace etch::cpu
