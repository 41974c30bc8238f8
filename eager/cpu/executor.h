// The executor of the CPU.
#pragma once

#include <cstddef>

#include "tracer/op.h"

namespace etch::cpu {

/// Registers it for DeviceType::Cpu. May be called any number of times.
void register_kernels();

/// What it registers (see Executor): runs `call`; false for composites that have no kernel for this
/// call. Data that an op refuses must have been found by check_data() before.
bool run(const OpCall& call, void* scratch = nullptr);
size_t scratch_bytes(const OpCall& call);

}  // namespace etch::cpu
