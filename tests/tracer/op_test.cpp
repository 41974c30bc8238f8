// The op table.
#include "tracer/op.h"

#include <gtest/gtest.h>

#include <set>

#include "runtime/error.h"

namespace etch {
namespace {

TEST(OpTable, EveryRowIsComplete) {
  std::set<std::string_view> names;
  for (int i = 0; i < kNumOps; ++i) {
    const OpInfo& row = info(static_cast<Op>(i));
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_GT(std::string_view(row.doc).size(), 1u) << row.name;
    EXPECT_GE(row.arity, 1) << row.name;
    EXPECT_LE(row.arity, kMaxInputs) << row.name;
    EXPECT_LE(row.outputs, kMaxOutputs) << row.name;
    const bool element = row.kind == OpKind::Pointwise || row.kind == OpKind::Generator;
    EXPECT_EQ(row.expression != nullptr, element || row.identity) << row.name;
    EXPECT_EQ(parse_op(row.name), static_cast<Op>(i));
  }
}

TEST(OpTable, RowsSayWhatOpsDefSays) {
  const OpInfo& add = info(Op::add);
  EXPECT_EQ(add.kind, OpKind::Pointwise);
  EXPECT_EQ(add.arity, 2);
  EXPECT_EQ(add.flags, kCommutative);
  EXPECT_STREQ(add.expression, "a + b");
  EXPECT_STREQ(info(Op::sum).identity, "T(0)");
  EXPECT_EQ(info(Op::sum).rule, DTypeRule::Sum);
  EXPECT_EQ(info(Op::argmax).kind, OpKind::Extremum);
  EXPECT_EQ(info(Op::batch_norm).outputs, 5);
  EXPECT_EQ(name(Op::fused), "fused");
}

TEST(OpTable, UnknownNamesAreRefused) {
  try {
    parse_op("frobnicate");
    FAIL();
  } catch (const ValueError& error) {
    EXPECT_NE(std::string_view(error.what()).find("\"frobnicate\""), std::string_view::npos);
  }
}

TEST(OpTable, InPlaceOutputsNameTheirOperand) {
  EXPECT_EQ(written_operand(Op::batch_norm, 0), -1);
  EXPECT_EQ(written_operand(Op::batch_norm, 4), 4);
  EXPECT_EQ(written_operand(Op::sgd_step, 1), 2);
  EXPECT_EQ(written_operand(Op::adam_step, 2), 3);
  EXPECT_EQ(written_operand(Op::sgd_plain_step, 0), 0);
  EXPECT_EQ(written_operand(Op::matmul, 0), -1);
  for (int i = 0; i < kNumOps; ++i) {
    const Op op = static_cast<Op>(i);
    bool writes = false;
    for (int output = 0; output < kMaxOutputs; ++output) {
      const int operand = written_operand(op, output);
      EXPECT_LT(operand, info(op).arity) << name(op);
      EXPECT_TRUE(operand < 0 || output < info(op).outputs) << name(op);
      writes |= operand >= 0;
    }
    EXPECT_EQ(writes, (info(op).flags & kWritesInputs) != 0) << name(op);
  }
}

}  // namespace
}  // namespace etch
