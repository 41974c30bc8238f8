// At least one call with literal results for every row of tracer/ops.def.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "eager/apply.h"
#include "tests/support/values.h"

namespace etch::testing {

struct Absent {};
using SampleOperand = std::variant<Values, Scalar, Absent>;

/// Where the gradients of a sample may be checked.
enum class Check {
  Smooth,  ///< no kink or special value near the operands
  Values,  ///< values only
};

/// One call of an op, with what it must give. Literals are worked out by hand or by PyTorch
/// (op_sample_values.py), never by Etch.
struct OpSample {
  Op op;
  std::vector<SampleOperand> operands;
  std::vector<Values> expected;  ///< one an output, in-place ones included
  Attrs attrs = {};
  double tolerance = 0;
  Check check = Check::Smooth;
  DType given = DType::F32;
};

/// All samples, ordered by row. A row without one is missing here; a test looks for it.
const std::vector<OpSample>& op_samples();
/// -1, 0.75, 0, -0.75, 1, 0.25, ...: exact, no two neighbours equal (f32).
Values ramp(const Dims& sizes);
/// The parts.
std::vector<OpSample> pointwise_samples();
std::vector<OpSample> reduction_samples();  ///< and generators
std::vector<OpSample> layer_samples();      ///< contractions, windows, indexing
std::vector<OpSample> composite_samples();

/// The operands of a sample as tensors; floating ones in `floating` if given. Written-to operands are fresh
/// each time.
class SampleCall {
 public:
  explicit SampleCall(const OpSample& sample, std::optional<DType> floating = {});

  /// Calls apply(). One tensor an output.
  std::vector<Tensor> run();
  /// Calls the public pointwise function named like the row.
  Tensor run_function() const;

  std::span<Tensor> tensors() { return tensors_; }
  std::vector<Arg> args() const;

 private:
  const OpSample& sample_;
  std::vector<Tensor> tensors_;  ///< one an operand; undefined for scalars and absent ones
};

/// The public function of a pointwise row.
Tensor call_pointwise(Op op, std::span<const Arg> operands);

}  // namespace etch::testing
