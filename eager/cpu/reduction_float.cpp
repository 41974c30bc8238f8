// Reductions of floating operands.
#include "eager/cpu/reduction_kernels.h"

namespace etch::cpu {

constinit const ReductionTable kReductionF16 = make_reduction_table<Half>();
constinit const ReductionTable kReductionBF16 = make_reduction_table<BFloat16>();
constinit const ReductionTable kReductionF32 = make_reduction_table<float>();
constinit const ReductionTable kReductionF64 = make_reduction_table<double>();

}  // namespace etch::cpu
