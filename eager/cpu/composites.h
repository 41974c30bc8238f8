// Fused kernels of composites, with the bits of their expansions in tracer/composites.cpp.
#pragma once

#include <cstddef>

#include "tracer/op.h"

namespace etch::cpu {

/// False when the call's layout has no fused kernel.
bool run_composite(const OpCall& call, void* scratch);
size_t composite_scratch_bytes(const OpCall& call);

// By subject; a null scratch is taken from the allocator.
bool run_along_axis(const OpCall& call);
bool run_cross_entropy(const OpCall& call);
bool run_layer_norm(const OpCall& call);
bool run_layer_norm_grad(const OpCall& call, void* scratch);
size_t layer_norm_grad_scratch_bytes(const OpCall& call);
bool run_batch_norm(const OpCall& call, void* scratch);
size_t batch_norm_scratch_bytes(const OpCall& call);
bool run_optimizer_step(const OpCall& call);

}  // namespace etch::cpu
