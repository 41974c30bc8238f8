// The text of a few kernels, compared with files in tests/codegen/golden. ETCH_UPDATE_GOLDEN=1 rewrites them.
#include <gtest/gtest.h>

#include <cstdlib>

#include "codegen/build_host.h"
#include "tests/codegen/group.h"

namespace etch::testing {
namespace {

void compare(const std::string& name, const std::string& text) {
  const std::string path = std::string(ETCH_SOURCE_DIR) + "/tests/codegen/golden/" + name;
  if (std::getenv("ETCH_UPDATE_GOLDEN")) {
    ASSERT_TRUE(codegen::write_file(path, text)) << path;
    return;
  }
  std::string expected;
  ASSERT_TRUE(codegen::read_file(path, &expected)) << path << "; ETCH_UPDATE_GOLDEN=1 writes it";
  EXPECT_EQ(expected, text) << path << "; ETCH_UPDATE_GOLDEN=1 rewrites it";
}

TEST(Emit, PointwiseWithABroadcastOperand) {
  Group g;
  const GraphOperand x = g.input(DType::BF16, {4, 64}), w = g.input(DType::BF16, {4, 1});
  const GraphOperand y = g.op(Op::mul, {x, w}, DType::BF16, {4, 64});
  g.keep(g.op(Op::copy, {y}));
  const codegen::LoweredKernel kernel = g.lower();
  compare("pointwise.cpp.txt", kernel.host_source);
  compare("pointwise.cu.txt", kernel.cuda_source);
}

TEST(Emit, Softmax) {
  Group g;
  const GraphOperand x = g.input(DType::F32, {4, 64});
  const GraphOperand e = g.op(Op::exp, {g.op(Op::sub, {x, g.reduce(Op::amax, x, 2)})});
  g.keep(g.op(Op::div, {e, g.reduce(Op::sum, e, 2)}));
  compare("softmax.cpp.txt", g.lower().host_source);
}

TEST(Emit, RowSumOfAMaskedOperand) {
  Group g;
  const GraphOperand x = g.input(DType::F32, {4, 64}), mask = g.input(DType::Bool, {4, 64});
  g.keep(g.reduce(Op::sum, g.op(Op::where, {mask, g.scalar(0.0), x}, DType::F32, {4, 64}), 2));
  const codegen::LoweredKernel kernel = g.lower();
  compare("masked_sum.cpp.txt", kernel.host_source);
  compare("masked_sum.cu.txt", kernel.cuda_source);
}

TEST(Emit, SplitSum) {
  Group g;
  g.keep(g.reduce(Op::sum, g.op(Op::square, {g.input(DType::F32, {1 << 17})}), 1, false));
  compare("split_sum.cpp.txt", g.lower().host_source);
}

TEST(Emit, ColumnSum) {
  Group g;
  g.keep(g.reduce(Op::sum, g.input(DType::F32, {100, 64}), 1));
  const codegen::LoweredKernel kernel = g.lower();
  compare("column_sum.cpp.txt", kernel.host_source);
  compare("column_sum.cu.txt", kernel.cuda_source);
}

TEST(Emit, ColumnSumOfACostlyValue) {
  Group g;
  const GraphOperand x = g.input(DType::F32, {100, 64});
  const GraphOperand y = g.op(Op::exp, {x});
  g.keep(y);
  g.keep(g.reduce(Op::sum, y, 1));
  compare("column_sum_of_exp.cpp.txt", g.lower().host_source);
}

}  // namespace
}  // namespace etch::testing
