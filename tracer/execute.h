// Running one call now, on whichever device its operands live.
#pragma once

#include <cstddef>

#include "tracer/op.h"

namespace etch {

/// A device's kernels. Operands come with `base` set; outputs never partly overlap inputs.
struct Executor {
  /// False when the device has no kernel of its own for this (composite) call; it is then run as its
  /// expansion.
  bool (*run)(const OpCall& call, void* scratch);
  /// Bytes that run() wants as `scratch` (64-byte aligned); with a null scratch it takes them from the
  /// allocator.
  size_t (*scratch_bytes)(const OpCall& call);
};
void register_executor(DeviceType type, Executor executor);
const Executor& executor(DeviceType type);

/// Runs `call`: takes bases from the storages where unset, copies operands that a written window partly
/// overlaps, expands composites that have no kernel. Output storages must have bytes. Throws what the op's
/// data checks throw, before it writes anything.
void execute(const OpCall& call);

/// Throws IndexError or ValueError for data that the op refuses (indices, labels, zero divisors), without
/// running it. Only for ops flagged kChecksIndex or kChecksZeroDivisor; the device must be the CPU.
void check_data(const OpCall& call);

}  // namespace etch
