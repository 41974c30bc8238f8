// Every row of the op table: literal values, gradients, and gradients of gradients.
#include "tests/support/op_samples.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include <set>

#include "tests/support/differentiable.h"

namespace etch::testing {
namespace {

std::string describe(const OpSample& sample) {
  std::string text = std::string(name(sample.op)) + "(";
  for (const SampleOperand& operand : sample.operands) {
    if (text.back() != '(') text += ", ";
    if (const Values* values = std::get_if<Values>(&operand))
      text += std::string(name(values->dtype)) + to_string(values->sizes);
    else
      text += std::holds_alternative<Scalar>(operand) ? "scalar" : "absent";
  }
  return text + ")";
}

bool has_floating_tensor(const OpSample& sample) {
  for (const Values& values : tensor_operands(sample))
    if (is_floating(values.dtype)) return true;
  return false;
}

TEST(OpSamples, EveryRowHasOne) {
  std::set<Op> covered;
  for (const OpSample& sample : op_samples()) covered.insert(sample.op);
  for (int i = 0; i < kNumOps; ++i)
    EXPECT_TRUE(covered.count(static_cast<Op>(i))) << "no sample of " << name(static_cast<Op>(i));
}

TEST(OpSamples, GiveTheLiteralValues) {
  for (const OpSample& sample : op_samples()) {
    SCOPED_TRACE(describe(sample));
    const std::vector<Tensor> outputs = SampleCall(sample).run();
    ASSERT_EQ(outputs.size(), sample.expected.size());
    for (size_t i = 0; i < outputs.size(); ++i)
      EXPECT_VALUES(outputs[i], sample.expected[i], sample.tolerance);
  }
}

TEST(OpSamples, PublicFunctionsGiveTheLiteralValuesToo) {
  for (const OpSample& sample : op_samples()) {
    if (info(sample.op).kind != OpKind::Pointwise || sample.op == Op::copy) continue;
    SCOPED_TRACE(describe(sample));
    EXPECT_VALUES(SampleCall(sample).run_function(), sample.expected[0], sample.tolerance);
  }
}

TEST(OpSamples, RowsWithoutAGradientAreMeantToHaveNone) {
  const auto ends_with = [](std::string_view text, std::string_view end) {
    return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
  };
  for (const OpSample& sample : op_samples()) {
    const std::string_view row = name(sample.op);
    const OpKind kind = info(sample.op).kind;
    if (kind == OpKind::Pointwise || kind == OpKind::Generator || differentiable_form(sample)) continue;
    EXPECT_TRUE(ends_with(row, "_grad") || ends_with(row, "_step") || row == "any" || row == "all" ||
                row == "argmax" || row == "argmin" || row == "prod")
        << row;
  }
}

TEST(OpSamples, GradientsAreCentralDifferences) {
  for (const OpSample& sample : op_samples()) {
    const Function function = differentiable_form(sample);
    if (!function || sample.check != Check::Smooth || !has_floating_tensor(sample)) continue;
    SCOPED_TRACE(describe(sample));
    EXPECT_TRUE(gradients_match(function, tensor_operands(sample)));
  }
}

TEST(OpSamples, GradientsOfGradientsAreCentralDifferences) {
  for (const OpSample& sample : op_samples()) {
    const Function function = differentiable_form(sample);
    if (!function || sample.check != Check::Smooth || !has_floating_tensor(sample)) continue;
    SCOPED_TRACE(describe(sample));
    EXPECT_TRUE(second_gradients_match(function, tensor_operands(sample)));
  }
}

// One operand at a time shrunk to size 1 in its last axis, and each lost to a leading axis.
TEST(OpSamples, GradientsOfBroadcastOperandsAreCentralDifferences) {
  for (const OpSample& sample : op_samples()) {
    if (info(sample.op).kind != OpKind::Pointwise || sample.check != Check::Smooth) continue;
    const Function function = differentiable_form(sample);
    std::vector<Values> operands = tensor_operands(sample);
    if (!function || !has_floating_tensor(sample) || operands.size() < 2) continue;
    for (Values& narrow : operands) {
      if (narrow.sizes.size() != 1) continue;
      SCOPED_TRACE(describe(sample));
      const Values whole = narrow;
      narrow = {whole.dtype, {1}, {whole.values[0]}};
      EXPECT_TRUE(gradients_match(function, operands)) << "size 1";
      narrow = {whole.dtype, {}, {whole.values[0]}};
      EXPECT_TRUE(gradients_match(function, operands)) << "0-d";
      narrow = {whole.dtype, {2, 1, whole.sizes[0]}, whole.values};
      for (double value : whole.values) narrow.values.push_back(value);
      EXPECT_TRUE(gradients_match(function, operands)) << "more dimensions";
      narrow = whole;
    }
  }
}

// Half of the memory order: the operand comes in as a transposed or strided window.
TEST(OpSamples, StridedOperandsGiveTheSameValues) {
  for (const OpSample& sample : op_samples()) {
    SCOPED_TRACE(describe(sample));
    SampleCall call(sample);
    for (Tensor& tensor : call.tensors()) {
      if (!tensor.defined() || tensor.ndim() == 0 || info(sample.op).flags & kWritesInputs) continue;
      Tensor wide = stack({tensor, tensor}, -1);
      tensor = wide.select(-1, 1);
    }
    const std::vector<Tensor> outputs = call.run();
    for (size_t i = 0; i < outputs.size(); ++i)
      EXPECT_VALUES(outputs[i], sample.expected[i],
                    std::max(sample.tolerance, info(sample.op).kind == OpKind::Reduction ? 1e-6 : 0.0));
  }
}

// The gradient of a sum comes in as one element that stands for many, and so may any operand.
TEST(OpSamples, ExpandedOperandsAreTheirClones) {
  for (const OpSample& sample : op_samples()) {
    if (info(sample.op).flags & kWritesInputs) continue;
    SCOPED_TRACE(describe(sample));
    for (size_t k = 0; k < SampleCall(sample).tensors().size(); ++k)
      for (int axes = 1; axes <= 2; ++axes) {
        SampleCall expanded(sample), cloned(sample);
        const Tensor whole = expanded.tensors()[k];
        if (!whole.defined() || whole.ndim() == 0) continue;
        Tensor narrow = whole;
        for (int axis = 0; axis < whole.ndim(); ++axis)
          if (axes == 1 || axis + 2 >= whole.ndim()) narrow = narrow.slice(axis, 0, 1);
        expanded.tensors()[k] = narrow.expand(whole.sizes());
        cloned.tensors()[k] =
            from_vector(narrow.expand(whole.sizes()).to_vector<double>(), whole.sizes()).to(whole.dtype());
        const std::vector<Tensor> outputs = expanded.run(), wanted = cloned.run();
        for (size_t i = 0; i < outputs.size(); ++i) {
          const auto got = outputs[i].to_vector<double>(), want = wanted[i].to_vector<double>();
          ASSERT_EQ(got.size(), want.size());
          for (size_t e = 0; e < got.size(); ++e) {
            const bool same = got[e] == want[e] || (got[e] != got[e] && want[e] != want[e]);
            EXPECT_TRUE(same || std::abs(got[e] - want[e]) <= 1e-5 * (1 + std::abs(want[e])))
                << "operand " << k << ", output " << i << ", element " << e << ": " << got[e] << ", not "
                << want[e];
          }
        }
      }
  }
}

}  // namespace
}  // namespace etch::testing
