// Builds, runs and compares groups.
#include "tests/codegen/group.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/codegen/cuda_check.h"
#include "tracer/attrs.h"

namespace etch::testing {
namespace {

template <class T>
T from_float(float value) {
  if constexpr (std::is_same_v<T, Half>) return to_half(value);
  if constexpr (std::is_same_v<T, BFloat16>) return to_bfloat16(value);
  if constexpr (std::is_arithmetic_v<T>) return static_cast<T>(value);
}

}  // namespace

int Group::add_buffer(DType dtype, const Geometry& geometry, int64_t offset) {
  const int64_t elements = offset + std::max<int64_t>(extent(geometry), 1) + 3;
  std::vector<char>& bytes = memory_.emplace_back(static_cast<size_t>(elements) * item_size(dtype));
  visit_dtype(dtype, [&]<class T>() {
    for (int64_t i = 0; i < elements; ++i) {
      const uint64_t bits = random_();
      T value;
      if constexpr (std::is_same_v<T, bool>)
        value = bits >> 40 & 1;
      else if constexpr (std::is_integral_v<T>)
        value = static_cast<T>(static_cast<int64_t>(bits >> 33 & 31) - (std::is_signed_v<T> ? 15 : 0));
      else
        value = from_float<T>(static_cast<float>(static_cast<double>(bits >> 11) * 0x1p-53 * 4 - 2));
      std::memcpy(bytes.data() + i * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
    }
  });
  return static_cast<int>(memory_.size()) - 1;
}

GraphOperand Group::input(DType dtype, const Dims& sizes, const Dims& strides, int64_t offset) {
  GraphOperand operand;
  operand.kind = GraphOperand::Kind::Tensor;
  operand.dtype = dtype;
  operand.geometry = strides.empty() ? contiguous(sizes) : Geometry{sizes, strides};
  operand.offset = offset;
  operand.buffer = add_buffer(dtype, operand.geometry, offset);
  return operand;
}

GraphOperand Group::view(GraphOperand operand, const Dims& sizes, const Dims& strides, int64_t offset) {
  operand.geometry = {sizes, strides};
  operand.offset += offset;
  return operand;
}

GraphOperand Group::scalar(Scalar value, DType dtype) {
  GraphOperand operand;
  operand.kind = GraphOperand::Kind::Scalar;
  operand.dtype = dtype;
  operand.scalar = value;
  return operand;
}

GraphOperand Group::scalar_slot(Scalar value, DType dtype) {
  GraphOperand operand = scalar({}, dtype);
  operand.slot = static_cast<int>(slots_.size());
  slots_.push_back(value);
  return operand;
}

GraphOperand Group::offset_slot(GraphOperand operand, int64_t offset) {
  operand.slot = static_cast<int>(slots_.size());
  slots_.push_back(offset);
  return operand;
}

void Group::write(Op op, std::vector<GraphOperand> inputs, const GraphOperand& output) {
  Node node;
  node.op = op;
  node.inputs = std::move(inputs);
  node.outputs = {output};
  body_.push_back(std::move(node));
}

GraphOperand Group::op(Op op, std::vector<GraphOperand> inputs, DType dtype, const Dims& sizes,
                       const Dims& strides) {
  const GraphOperand output = input(dtype, sizes, strides);
  write(op, std::move(inputs), output);
  return output;
}

GraphOperand Group::op(Op op, std::vector<GraphOperand> inputs) {
  const auto first =
      std::find_if(inputs.begin(), inputs.end(), [](const GraphOperand& o) { return o.is_tensor(); });
  const Dims sizes = first->geometry.sizes;
  return this->op(op, std::move(inputs), DType::F32, sizes);
}

GraphOperand Group::reduce(Op op, const GraphOperand& operand, uint64_t axes, bool keepdim) {
  Dims sizes;
  for (int i = 0; i < operand.geometry.ndim(); ++i) {
    if (!(axes >> i & 1)) sizes.push_back(operand.geometry.sizes[i]);
    if ((axes >> i & 1) && keepdim) sizes.push_back(1);
  }
  DType dtype = operand.dtype;
  if (info(op).rule == DTypeRule::Sum && is_integral(dtype)) dtype = DType::I64;
  if (info(op).rule == DTypeRule::Bool) dtype = DType::Bool;
  const GraphOperand output = this->op(op, {operand}, dtype, sizes);
  body_.back().attrs = ReductionAttrs(axes, keepdim).pack();
  return output;
}

void Group::add_specials(const GraphOperand& operand) {
  const float specials[] = {NAN, INFINITY, -INFINITY, 0.0f, -0.0f, 1e-40f, 3e38f, -1e-39f};
  const int64_t elements = static_cast<int64_t>(memory_[operand.buffer].size() / item_size(operand.dtype));
  visit_dtype(operand.dtype, [&]<class T>() {
    for (int64_t i = 0; i < elements; i += 7) {
      const T value = from_float<T>(specials[i / 7 % 8]);
      std::memcpy(memory_[operand.buffer].data() + i * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
    }
  });
}

codegen::LoweredKernel Group::lower() const {
  auto group = std::make_shared<NodeGroup>();
  group->body = body_;
  Node fused;
  fused.op = Op::fused;
  fused.group = std::move(group);
  fused.outputs = outputs_;
  return codegen::lower(fused);
}

void Group::run(const codegen::LoweredKernel& kernel, const codegen::LoadedKernel& loaded, Memory& memory,
                int pieces) {
  std::vector<char*> pointers;
  for (const GraphOperand& operand : kernel.pointers) {
    int buffer = operand.buffer;
    for (const auto& [input, output] : shared_)
      if (buffer == output) buffer = input;
    const int64_t offset = operand.offset + (operand.slot >= 0 ? slots_[operand.slot].to_int() : 0);
    pointers.push_back(memory[buffer].data() + offset * static_cast<int64_t>(item_size(operand.dtype)));
  }
  std::vector<char> scratch(static_cast<size_t>(kernel.scratch_bytes) + 64);
  pointers.push_back(scratch.data() + (64 - reinterpret_cast<uintptr_t>(scratch.data()) % 64));
  std::vector<codegen::KernelScalar> scalars;
  for (const GraphOperand& operand : kernel.scalars)
    scalars.push_back(
        codegen::kernel_scalar(operand.slot >= 0 ? slots_[operand.slot] : operand.scalar, operand.dtype));
  ASSERT_EQ(loaded.phases.size(), kernel.phases.size());
  for (size_t phase = 0; phase < kernel.phases.size(); ++phase) {
    const int64_t count = kernel.phases[phase].count;
    // Backwards, so that no piece can lean on an earlier one.
    for (int piece = pieces; piece-- > 0;)
      loaded.phases[phase](pointers.data(), kernel.dims.data(), scalars.data(), count * piece / pieces,
                           count * (piece + 1) / pieces);
  }
}

void Group::compare(const Memory& expected, const Memory& got, const std::string& what) const {
  for (const GraphOperand& output : outputs_) {
    int buffer = output.buffer;
    for (const auto& [from, to] : shared_)
      if (buffer == to) buffer = from;
    int shown = 0;
    for_each_index(output.geometry.sizes, [&](const Dims& index, int64_t) {
      int64_t at = output.offset + (output.slot >= 0 ? slots_[output.slot].to_int() : 0);
      for (int i = 0; i < index.size(); ++i) at += index[i] * output.geometry.strides[i];
      visit_dtype(output.dtype, [&]<class T>() {
        T a, b;
        std::memcpy(&a, expected[output.buffer].data() + at * static_cast<int64_t>(sizeof(T)), sizeof(T));
        std::memcpy(&b, got[buffer].data() + at * static_cast<int64_t>(sizeof(T)), sizeof(T));
        if (std::memcmp(&a, &b, sizeof(T)) == 0 || shown == 3) return;
        double x = 0, y = 0;
        if constexpr (std::is_arithmetic_v<T>)
          x = static_cast<double>(a), y = static_cast<double>(b);
        else
          x = to_float(a), y = to_float(b);
        if (std::isnan(x) && std::isnan(y)) return;
        ++shown;
        ADD_FAILURE() << what << ": buffer " << output.buffer << " at " << to_string(index) << ": expected "
                      << x << ", got " << y;
      });
    });
    if (shown > 0) return;
  }
}

void Group::check() {
  std::string why;
  ASSERT_TRUE(can_lower(&why)) << why;
  const codegen::LoweredKernel kernel = lower();
  check_cuda(kernel);
  const codegen::LoweredKernel* const kernels[] = {&kernel};
  const codegen::LoadedKernel loaded = codegen::load_host_kernels(kernels)[0];
  ASSERT_FALSE(loaded.phases.empty());
  Memory expected = memory_;
  run_reference(body_, expected, slots_);
  for (int pieces : {1, 3, 8}) {
    Memory got = memory_;
    run(kernel, loaded, got, pieces);
    compare(expected, got, "in " + std::to_string(pieces) + " pieces, kernel\n" + kernel.host_source);
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace etch::testing
