// NVRTC compiles the text of tracer/scalar_math.h for each supported architecture. Needs the toolkit, no
// device.
#if defined(ETCH_CUDA_HEADERS)
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <nvrtc.h>

#include <fstream>
#include <sstream>
#include <string>

namespace {

/// The entry points of NVRTC that the test calls; `handle` is null where the library is missing.
struct Nvrtc {
  void* handle = nullptr;
  decltype(&nvrtcCreateProgram) create;
  decltype(&nvrtcCompileProgram) compile;
  decltype(&nvrtcGetProgramLogSize) log_size;
  decltype(&nvrtcGetProgramLog) log;
  decltype(&nvrtcGetCUBINSize) cubin_size;
  decltype(&nvrtcDestroyProgram) destroy;

  Nvrtc() {
    for (const char* name : {"libnvrtc.so", "/usr/local/cuda/lib64/libnvrtc.so"}) {
      if (handle == nullptr) handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    }
    if (handle == nullptr) return;
    load(create, "nvrtcCreateProgram");
    load(compile, "nvrtcCompileProgram");
    load(log_size, "nvrtcGetProgramLogSize");
    load(log, "nvrtcGetProgramLog");
    load(cubin_size, "nvrtcGetCUBINSize");
    load(destroy, "nvrtcDestroyProgram");
  }
  template <class F>
  void load(F& function, const char* name) {
    function = reinterpret_cast<F>(dlsym(handle, name));
  }
};

const char kKernel[] = R"(
namespace etch::scalar {
template <class T>
__device__ T floating(T a, T b) {
  T r = exp(a) + exp2(a) + expm1(a) + log(a) + log2(a) + log10(a) + log1p(a) + tanh(a) + sigmoid(a) + erf(a) + erfc(a);
  r += sin(a) + cos(a) + tan(a) + atan(a) + pow(a, b) + sqrt(a) + rsqrt(a) + floor(a) + ceil(a) + trunc(a) + round(a);
  r += abs(a) + sign(a) + min(a, b) + max(a, b) + fmod(a, b) + remainder(a, b) + floor_divide(a, b) + copysign(a, b);
  r += fma(a, b, a) + T(isnan(a)) + T(isinf(a)) + T(isfinite(a)) + T(signbit(a)) + lowest<T>() + highest<T>();
  return r + T(cast<bool>(a)) + T(cast<u8>(a)) + T(cast<i32>(a)) + T(cast<i64>(a)) + cast<T>(cast<float>(b));
}
template <class T>
__device__ T integral(T a, T b) {
  T r = floor_divide(a, b) + remainder(a, b) + fmod(a, b) + pow(a, b) + abs(a) + sign(a) + min(a, b) + max(a, b);
  return r + lowest<T>() + highest<T>() + T(isnan(a)) + T(isinf(a)) + T(isfinite(a)) + cast<T>(cast<double>(b));
}
extern "C" __global__ void all(float* f, double* d, i32* i, i64* l, u8* b, u16* h, u32* r, u64 seed, u64 offset) {
  const u64 n = blockIdx.x * u64(blockDim.x) + threadIdx.x;
  f[n] = floating(f[n], f[n + 1]);
  d[n] = floating(d[n], d[n + 1]);
  i[n] = integral(i[n], i[n + 1]);
  l[n] = integral(l[n], l[n + 1]);
  b[n] = integral(b[n], b[n + 1]);
  h[n] = float_to_half(half_to_float(h[n])) + float_to_bfloat16(bfloat16_to_float(h[n]));
  f[n] += random_uniform(seed, offset, n) + standard_normal(seed, offset, n) + normal_from(r[n], r[n + 1]);
  random_fill(seed, offset, 4 * n, r + 4 * n, 4);
  r[n] += random_u32(seed, offset, n);
}
}  // namespace etch::scalar
)";

class ScalarMathNvrtc : public testing::TestWithParam<const char*> {};

TEST_P(ScalarMathNvrtc, CompilesEveryFunction) {
  const Nvrtc nvrtc;
  if (nvrtc.handle == nullptr) GTEST_SKIP() << "libnvrtc is not installed";
  std::ostringstream text;
  text << std::ifstream(ETCH_SOURCE_DIR "/tracer/scalar_math.h").rdbuf() << kKernel;
  nvrtcProgram program = nullptr;
  ASSERT_EQ(nvrtc.create(&program, text.str().c_str(), "scalar_math.cu", 0, nullptr, nullptr), NVRTC_SUCCESS);
  const std::string architecture = std::string("--gpu-architecture=") + GetParam();
  const char* options[] = {architecture.c_str(), "--fmad=false"};
  const nvrtcResult result = nvrtc.compile(program, 2, options);
  size_t size = 0;
  nvrtc.log_size(program, &size);
  std::string log(size, '\0');
  nvrtc.log(program, log.data());
  EXPECT_EQ(result, NVRTC_SUCCESS) << log;
  EXPECT_EQ(log.find("error"), std::string::npos) << log;
  if (result == NVRTC_SUCCESS) {
    EXPECT_EQ(nvrtc.cubin_size(program, &size), NVRTC_SUCCESS);
    EXPECT_GT(size, 1000u);
  }
  nvrtc.destroy(&program);
}

INSTANTIATE_TEST_SUITE_P(Architectures, ScalarMathNvrtc, testing::Values("sm_80", "sm_90", "sm_100"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
#endif
