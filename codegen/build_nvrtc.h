// Compiling CUDA source through NVRTC, loaded at run time.
#pragma once

#include <string>
#include <string_view>

namespace etch::codegen {

/// Whether libnvrtc can be loaded on this machine.
bool nvrtc_available();

struct CudaBinary {
  std::string image;  ///< cubin, or PTX for "compute_" architectures; empty on failure
  std::string log;    ///< what NVRTC said
};
/// Compiles for an architecture such as "sm_90" with the arithmetic that host kernels have (no contraction).
/// Thread-safe.
CudaBinary build_cuda(const std::string& source, std::string_view architecture);

}  // namespace etch::codegen
