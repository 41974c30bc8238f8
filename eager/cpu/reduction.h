// Reductions on the CPU, in the order of tracer/reduction.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "tracer/op.h"

namespace etch::cpu {

/// One reduction row for one operand dtype. Accumulators are `acc_size` bytes; elements are contiguous.
struct ReductionKernels {
  int64_t acc_size;
  void (*start)(char* acc, int64_t n);
  /// At most kReductionBlock elements into one accumulator, in lanes.
  void (*block)(char* acc, const char* in, int64_t n);
  /// `rows` runs of n elements each, `row_stride` bytes apart, into as many accumulators.
  void (*rows)(char* acc, const char* in, int64_t row_stride, int64_t rows, int64_t n);
  /// acc[i] = combine(acc[i], values[i]).
  void (*merge)(char* acc, const char* values, int64_t n);
  /// acc[i] takes element i of each row in order; rows are `row_stride` bytes apart.
  void (*columns)(char* acc, const char* in, int64_t row_stride, int64_t rows, int64_t n);
  /// Accumulators to output elements `stride` bytes apart.
  void (*store)(char* out, int64_t stride, const char* acc, int64_t n);
};

/// By op (only reduction rows are filled in).
using ReductionTable = std::array<ReductionKernels, kNumOps>;
extern const ReductionTable kReductionBool, kReductionU8, kReductionI32, kReductionI64, kReductionF16,
    kReductionBF16, kReductionF32, kReductionF64;

void run_reduction(const OpCall& call, void* scratch);
size_t reduction_scratch_bytes(const OpCall& call);
/// argmax, argmin.
void run_arg_reduction(const OpCall& call);

}  // namespace etch::cpu
