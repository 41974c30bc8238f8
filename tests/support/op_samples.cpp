// Samples put together, and how a sample becomes a call.
#include "tests/support/op_samples.h"

#include <algorithm>

namespace etch::testing {

const std::vector<OpSample>& op_samples() {
  static const std::vector<OpSample>* const samples = [] {
    auto* all = new std::vector<OpSample>;
    for (auto* part : {pointwise_samples, reduction_samples, layer_samples, composite_samples})
      for (OpSample& sample : part()) all->push_back(std::move(sample));
    std::stable_sort(all->begin(), all->end(),
                     [](const OpSample& a, const OpSample& b) { return a.op < b.op; });
    return all;
  }();
  return *samples;
}

SampleCall::SampleCall(const OpSample& sample, std::optional<DType> floating) : sample_(sample) {
  for (const SampleOperand& operand : sample.operands) {
    const Values* values = std::get_if<Values>(&operand);
    tensors_.push_back(
        !values ? Tensor()
                : values->tensor(floating && is_floating(values->dtype) ? *floating : values->dtype));
  }
}

std::vector<Arg> SampleCall::args() const {
  std::vector<Arg> args;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const Scalar* scalar = std::get_if<Scalar>(&sample_.operands[i]);
    args.push_back(scalar ? Arg(*scalar) : Arg(tensors_[i]));
  }
  return args;
}

std::vector<Tensor> SampleCall::run() {
  std::vector<Tensor> outputs(info(sample_.op).outputs);
  for (int i = 0; i < info(sample_.op).outputs; ++i)
    if (const int operand = written_operand(sample_.op, i); operand >= 0) outputs[i] = tensors_[operand];
  const std::vector<Arg> operands = args();
  apply(sample_.op, operands, sample_.attrs, sample_.given, outputs);
  return outputs;
}

Tensor SampleCall::run_function() const { return call_pointwise(sample_.op, args()); }

#define ETCH_CALL_1 operands[0]
#define ETCH_CALL_2 operands[0], operands[1]
#define ETCH_CALL_3 operands[0], operands[1], operands[2]
#define ETCH_CALL_4 operands[0], operands[1], operands[2], operands[3]
Tensor call_pointwise(Op op, std::span<const Arg> operands) {
  switch (op) {
#define ETCH_POINTWISE(name, arity, ...) \
  case Op::name:                         \
    return name(ETCH_CALL_##arity);
#include "tracer/ops.def"
    default:
      fail<InternalError>("call_pointwise: expected a pointwise row, got ", name(op));
  }
}

}  // namespace etch::testing
