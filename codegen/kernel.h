// From a fusion group to a kernel that can be called.
//
// A kernel's source depends on structure alone (ops, dtypes, number of loop dimensions, kinds of strides);
// extents, strides, scalars and addresses are arguments. So one kernel serves every batch size.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tracer/graph.h"

namespace etch::codegen {

/// A scalar argument, already converted to the type the kernel computes in.
union KernelScalar {
  double f64;
  float f32;
  int64_t i64;
};

/// `scalar` in the type that kernels compute in for `dtype` (a GraphOperand's).
KernelScalar kernel_scalar(const Scalar& scalar, DType dtype);

/// Iterations [begin, end) of one phase. `pointers[i]` is the first element of window i; the last one is
/// scratch if the kernel asks for any.
using HostFunction = void (*)(char* const* pointers, const int64_t* dims, const KernelScalar* scalars,
                              int64_t begin, int64_t end);

/// Phases run one after another; within one, iterations may run in any order and on any thread.
struct KernelPhase {
  int64_t count = 0;
  int64_t grain = 1;  ///< least number of iterations worth a thread
};

/// A group made ready: structural source plus the arguments of this group.
struct LoweredKernel {
  std::string name;         ///< a valid C identifier made from the ops and a hash of the structure
  std::string host_source;  ///< functions <name>_0, <name>_1, .. (a phase each), without the shared prelude
  std::string cuda_source;  ///< __global__ functions of the same names
  /// Windows, in argument order; duplicates removed. Two of one geometry may share memory (a written one that
  /// takes over an input's bytes): an iteration reads an element before it writes it. Any other overlap with
  /// a written window is not allowed.
  std::vector<GraphOperand> pointers;
  std::vector<bool> written;  ///< of each pointer
  std::vector<int64_t> dims;
  int run = -1;  ///< the dim that is the length of the rows, if one is; windows do not depend on it
  std::vector<GraphOperand> scalars;
  std::vector<KernelPhase> phases;
  int64_t scratch_bytes = 0;
  /// Pairs (read, written) of pointers into one buffer that the kernel treats as the same elements: the
  /// caller must check that their addresses are equal, or else run the group op by op.
  std::vector<std::pair<int, int>> same_address;
};

/// Whether the body can become one kernel; fills `why` (may be null) if not. The rules are in
/// codegen/lower.cpp.
bool can_lower(const std::vector<Node>& body, std::string* why = nullptr);
/// `fused` is a node with op fused. Throws InternalError unless can_lower().
LoweredKernel lower(const Node& fused);

/// Text before all kernels of a translation unit.
const std::string& host_prelude();
const std::string& cuda_prelude();

/// A loaded kernel: one function a phase. Empty where no compiler was found.
struct LoadedKernel {
  std::vector<HostFunction> phases;
};

struct LoadStatistics {
  int kernels = 0, compiled = 0, from_cache = 0;
  double compile_ms = 0;
};

/// Loads all kernels, compiling those that neither this process nor the disk cache has: as few translation
/// units, in parallel. Returns empty kernels (and logs once) when there is no compiler. Thread-safe.
std::vector<LoadedKernel> load_host_kernels(std::span<const LoweredKernel* const> kernels,
                                            LoadStatistics* statistics = nullptr);

}  // namespace etch::codegen
