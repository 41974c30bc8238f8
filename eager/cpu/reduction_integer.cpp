// Reductions of integer and Bool operands.
#include "eager/cpu/reduction_kernels.h"

namespace etch::cpu {

constinit const ReductionTable kReductionBool = make_reduction_table<bool>();
constinit const ReductionTable kReductionU8 = make_reduction_table<uint8_t>();
constinit const ReductionTable kReductionI32 = make_reduction_table<int32_t>();
constinit const ReductionTable kReductionI64 = make_reduction_table<int64_t>();

}  // namespace etch::cpu
