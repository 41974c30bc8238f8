// NVRTC, where it is installed.
#include "codegen/build_nvrtc.h"

#include <gtest/gtest.h>

namespace etch::codegen {
namespace {

class Nvrtc : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!nvrtc_available()) GTEST_SKIP() << "no NVRTC";
  }
};

TEST_F(Nvrtc, CompilesToCubinAndPtx) {
  const std::string source = "extern \"C\" __global__ void f(float* x) { *x = 1; }";
  EXPECT_EQ(build_cuda(source, "sm_90").image.substr(1, 3), "ELF");
  EXPECT_NE(build_cuda(source, "compute_90").image.find(".visible .entry f"), std::string::npos);
}

TEST_F(Nvrtc, ReturnsTheLogOfFailures) {
  const CudaBinary binary = build_cuda("__global__ void f() { nonsense; }", "sm_90");
  EXPECT_TRUE(binary.image.empty());
  EXPECT_NE(binary.log.find("nonsense"), std::string::npos);
}

TEST_F(Nvrtc, RefusesUnknownArchitectures) { EXPECT_TRUE(build_cuda("", "sm_1").image.empty()); }

}  // namespace
}  // namespace etch::codegen
