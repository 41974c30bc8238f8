// Fused kernels of composites, with the bits of their expansions in tracer/composites.cpp.
#pragma once

#include <cstddef>

#include "tracer/op.h"

namespace etch::cpu {

/// False when the call's layout or dtype has no fused kernel.
bool run_composite(const OpCall& call, void* scratch);
size_t composite_scratch_bytes(const OpCall& call);

}  // namespace etch::cpu
