// The end-of-program compile of all kernels as CUDA.
#include "tests/codegen/cuda_check.h"

#include <gtest/gtest.h>

#include <map>

#include "codegen/build_nvrtc.h"

namespace etch::testing {
namespace {

std::map<std::string, std::string>& noted() {
  static auto* const kernels = new std::map<std::string, std::string>;
  return *kernels;
}

class CompileAll : public ::testing::Environment {
 public:
  void TearDown() override {
    if (noted().empty() || !codegen::nvrtc_available()) return;
    std::string source = codegen::cuda_prelude();
    for (const auto& [name, text] : noted()) source += text;
    for (const char* architecture : {"sm_80", "sm_90", "sm_100"}) {
      const codegen::CudaBinary binary = codegen::build_cuda(source, architecture);
      EXPECT_FALSE(binary.image.empty()) << architecture << ":\n" << binary.log.substr(0, 4000);
    }
  }
};

const ::testing::Environment* const registered = ::testing::AddGlobalTestEnvironment(new CompileAll);

}  // namespace

void check_cuda(const codegen::LoweredKernel& kernel) { noted()[kernel.name] = kernel.cuda_source; }

}  // namespace etch::testing
