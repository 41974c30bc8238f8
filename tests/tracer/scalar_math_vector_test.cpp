// The compiler that builds kernels vectorises a plain loop over every scalar function, from the pasted text
// alone.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "etch_build_config.h"

namespace {

struct Loop {
  const char *to, *from, *value;
};
const Loop kLoops[] = {
    {"float", "float", "exp(a)"},
    {"float", "float", "exp2(a)"},
    {"float", "float", "expm1(a)"},
    {"float", "float", "log(a)"},
    {"float", "float", "log2(a)"},
    {"float", "float", "log10(a)"},
    {"float", "float", "log1p(a)"},
    {"float", "float", "tanh(a)"},
    {"float", "float", "sigmoid(a)"},
    {"float", "float", "erf(a)"},
    {"float", "float", "erfc(a)"},
    {"float", "float", "sin(a)"},
    {"float", "float", "cos(a)"},
    {"float", "float", "tan(a)"},
    {"float", "float", "atan(a)"},
    {"float", "float", "pow(a, b)"},
    {"float", "float", "sqrt(a)"},
    {"float", "float", "rsqrt(a)"},
    {"float", "float", "floor(a) + ceil(a) + trunc(a) + round(a)"},
    {"float", "float", "max(a, b) + min(a, b)"},
    {"float", "float", "sign(a) + abs(a) + copysign(a, b)"},
    {"double", "double", "max(a, b) + min(a, b) + sqrt(a) + abs(a)"},
    {"bool", "float", "isnan(a)"},
    {"bool", "float", "isfinite(a)"},
    {"float", "u16", "half_to_float(a)"},
    {"u16", "float", "float_to_half(a)"},
    {"float", "u16", "bfloat16_to_float(a)"},
    {"u16", "float", "float_to_bfloat16(a)"},
    {"i32", "float", "cast<i32>(a)"},
    {"u8", "float", "cast<u8>(a)"},
    {"bool", "float", "cast<bool>(a)"},
    {"i32", "i32", "floor_divide(a, b)"},
    {"i32", "i32", "remainder(a, b)"},
    {"u32", "u32", "random_u32(7, 8, i)"},
    {"float", "u32", "standard_normal(7, 8, i)"},
};

TEST(ScalarMathVector, EveryLoopIsVectorised) {
#if !defined(__AVX2__)
  GTEST_SKIP() << "rounding needs SSE4.1, fma needs AVX2's companions";
#endif
  if (access(ETCH_BUILD_CXX, X_OK) != 0) GTEST_SKIP() << "no compiler at " ETCH_BUILD_CXX;
  std::string path = testing::TempDir() + "scalar_math_vector_XXXXXX.cpp";
  const int file = mkstemps(path.data(), 4);
  ASSERT_GE(file, 0);
  close(file);
  std::ostringstream text;
  text << std::ifstream(ETCH_SOURCE_DIR "/tracer/scalar_math.h").rdbuf() << "namespace etch::scalar {\n";
  const std::string header = text.str();
  const auto first_line = std::count(header.begin(), header.end(), '\n') + 1;
  std::ofstream source(path);
  source << header;
  int name = 0;
  for (const Loop& loop : kLoops) {
    source << "extern \"C\" void loop" << name++ << "(" << loop.to << "* __restrict out, const " << loop.from
           << "* __restrict x, const " << loop.from
           << "* __restrict y, i64 n) { for (i64 i = 0; i < n; ++i) { "
           << "const auto a = x[i], b = y[i]; (void)a; (void)b; out[i] = " << loop.value << "; } }\n";
  }
  source << "}\n";
  source.close();
  const bool clang = std::string(ETCH_BUILD_CXX_ID) == "Clang";
  const std::string command =
      std::string(ETCH_BUILD_CXX " -std=c++20 -O3 " ETCH_BUILD_MARCH_FLAGS " " ETCH_BUILD_NUMERIC_FLAGS
                                 " -w -c -o /dev/null ") +
      (clang ? "-Rpass=loop-vectorize " : "-fopt-info-vec ") + path + " 2>&1";
  std::string output;
  FILE* pipe = popen(command.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  char buffer[4096];
  while (size_t n = fread(buffer, 1, sizeof buffer, pipe)) output.append(buffer, n);
  EXPECT_EQ(pclose(pipe), 0) << output;
  unlink(path.c_str());

  std::set<long> lines;
  const std::regex remark("\\.cpp:(\\d+):\\d+: .*(loop vectorized using|vectorized loop)");
  for (std::sregex_iterator m(output.begin(), output.end(), remark), end; m != end; ++m) {
    lines.insert(std::stol((*m)[1]));
  }
  long line = first_line;
  for (const Loop& loop : kLoops) EXPECT_TRUE(lines.contains(line++)) << loop.value;
}

}  // namespace
