// Compiles the CUDA text of every kernel that tests make, where NVRTC is installed.
#pragma once

#include "codegen/kernel.h"

namespace etch::testing {

/// Notes the kernel; all noted ones are compiled for several architectures at the end of the program, and a
/// failure fails the test program.
void check_cuda(const codegen::LoweredKernel& kernel);

}  // namespace etch::testing
