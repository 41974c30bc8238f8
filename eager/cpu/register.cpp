// Makes the CPU's kernels known.
#include "eager/cpu/executor.h"
#include "tracer/execute.h"

namespace etch::cpu {

void register_kernels() { register_executor(DeviceType::Cpu, {run, scratch_bytes}); }

}  // namespace etch::cpu
