// Samples through the reference interpreter.
#include "tests/support/interpreted.h"

#include <cstring>

#include "tracer/interpreter.h"
#include "tracer/path.h"

namespace etch::testing {

namespace {

// The elements of a window in row-major order.
std::vector<double> window(const std::vector<double>& buffer, const Geometry& geometry) {
  std::vector<double> values;
  for (int64_t i = 0; i < geometry.numel(); ++i) {
    int64_t rest = i, at = 0;
    for (int d = geometry.ndim() - 1; d >= 0; --d) {
      at += rest % geometry.sizes[d] * geometry.strides[d];
      rest /= geometry.sizes[d];
    }
    values.push_back(buffer[static_cast<size_t>(at)]);
  }
  return values;
}

}  // namespace

std::vector<Values> interpret_sample(const OpSample& sample) {
  SampleCall call(sample);
  RecordedOp op{sample.op, sample.attrs, {}, {}};
  Path path;
  LiveSet live;
  std::vector<std::vector<std::byte>> buffers;
  std::vector<OperandValue> values;
  std::vector<Operand> operands;
  std::vector<int> number_of(sample.operands.size(), -1);
  const auto add_storage = [&](bool external, int64_t bytes) {
    path.storages.push_back({external, bytes, Device::cpu()});
    live.push_back(!external);
    buffers.emplace_back(static_cast<size_t>(external ? bytes : 0));
    return static_cast<int>(buffers.size()) - 1;
  };
  for (size_t i = 0; i < sample.operands.size(); ++i) {
    RecordedOperand recorded{RecordedOperand::Kind::Absent, DType::F32, Scalar::Kind::Float, -1, {}};
    Operand operand = Operand::absent();
    OperandValue value;
    if (const Scalar* scalar = std::get_if<Scalar>(&sample.operands[i])) {
      recorded.kind = RecordedOperand::Kind::Scalar;
      recorded.dtype = scalar->default_dtype();
      recorded.scalar_kind = scalar->kind();
      operand = Operand();
      operand.scalar = value.scalar = *scalar;
      operand.dtype = recorded.dtype;
    } else if (const Tensor& tensor = call.tensors()[i]; tensor.defined()) {
      const int64_t bytes = tensor.numel() * static_cast<int64_t>(item_size(tensor.dtype()));
      number_of[i] = add_storage(true, bytes);
      if (bytes)
        std::memcpy(buffers.back().data(), tensor.storage().data_for_read(), static_cast<size_t>(bytes));
      recorded = {RecordedOperand::Kind::Tensor, tensor.dtype(), {}, number_of[i], tensor.impl().geometry};
      operand = Operand();
      operand.geometry = &tensor.impl().geometry;
      operand.dtype = tensor.dtype();
    }
    op.inputs.push_back(recorded);
    operands.push_back(operand);
    values.push_back(value);
  }
  OutputSpec specs[kMaxOutputs];
  const int count = infer(sample.op, operands, sample.attrs, sample.given, specs);
  for (int i = 0; i < count; ++i) {
    const int written = written_operand(sample.op, i);
    const int number =
        written >= 0
            ? number_of[written]
            : add_storage(false, extent(specs[i].geometry) * static_cast<int64_t>(item_size(specs[i].dtype)));
    op.outputs.push_back({RecordedOperand::Kind::Tensor, specs[i].dtype, {}, number, specs[i].geometry});
    values.emplace_back();
  }
  path.ops.push_back(&op);
  const std::vector<InterpretedBuffer> results = interpret(build_graph(path, live), buffers, values);
  std::vector<Values> outputs;
  for (const RecordedOperand& output : op.outputs)
    outputs.push_back({output.dtype, output.geometry.sizes,
                       window(results[static_cast<size_t>(output.number)].values, output.geometry)});
  return outputs;
}

}  // namespace etch::testing
