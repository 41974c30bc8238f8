// Pointwise rows, generators and copies on the CPU.
#pragma once

#include <array>

#include "eager/cpu/loop.h"

namespace etch::cpu {

/// n elements of the compute type; input i is one element for all when bit i of `scalars` is set.
using PointwiseKernel = void (*)(char* out, const char* const* in, unsigned scalars, int64_t n);
/// By op; null where the row does not compute in the type.
using PointwiseTable = std::array<PointwiseKernel, kNumOps>;

extern const PointwiseTable kPointwiseBool, kPointwiseU8, kPointwiseI32, kPointwiseI64, kPointwiseF32,
    kPointwiseF64;

void run_pointwise(const OpCall& call);
/// The copy row: any layout, any cast; a scalar fills.
void run_copy(const OpCall& call);
void run_generator(const OpCall& call);

/// A scalar as an element of `dtype`, in up to 8 bytes.
void store_scalar(const Scalar& scalar, DType dtype, void* to);
/// n contiguous elements cast from one dtype to another.
using CastKernel = void (*)(char* to, const char* from, int64_t n);
CastKernel cast_kernel(DType from, DType to);

}  // namespace etch::cpu
