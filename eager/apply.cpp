// Dispatch: infer the outputs, then hand the call to the recorder or run it.
#include "eager/apply.h"

#include "eager/cpu/executor.h"
#include "eager/tape.h"
#include "runtime/object_pool.h"
#include "tracer/execute.h"
#include "tracer/recorder.h"

namespace etch {

namespace {

// Kernels are registered before the first op, whatever the order of static initialisation.
void register_backends() {
  static const bool registered = (cpu::register_kernels(), true);
  (void)registered;
}

Operand to_operand(const Arg& arg) {
  Operand operand;
  if (!arg.is_tensor()) {
    operand.scalar = arg.scalar();
    operand.dtype = operand.scalar.default_dtype();
    return operand;
  }
  const Tensor& tensor = arg.tensor();
  if (!tensor.defined()) return Operand::absent();
  const TensorImpl& impl = tensor.impl();
  operand.storage = impl.storage.get();
  operand.geometry = &impl.geometry;
  operand.offset = impl.offset;
  operand.dtype = impl.dtype;
  return operand;
}

}  // namespace

void Tensor::fail_undefined() {
  fail<ValueError>(
      "tensor: expected a defined tensor, got an undefined one: default-constructed, moved from, or a .grad "
      "that no backward() has reached");
}

TensorImpl::TensorImpl() = default;
TensorImpl::~TensorImpl() = default;
void TensorImpl::destroy(TensorImpl* impl) { delete impl; }
void* TensorImpl::operator new(size_t) { return ObjectPool<TensorImpl>::allocate(); }
void TensorImpl::operator delete(void* data) noexcept { ObjectPool<TensorImpl>::release(data); }

Tensor make_tensor(Ref<Storage> storage, const Geometry& geometry, int64_t offset, DType dtype) {
  Ref<TensorImpl> impl(new TensorImpl);
  impl->storage = std::move(storage);
  impl->geometry = geometry;
  impl->offset = offset;
  impl->dtype = dtype;
  return Tensor(std::move(impl));
}

void check_sizes(std::string_view op, const Dims& sizes) {
  int64_t count = 1;
  for (int64_t size : sizes) {
    ETCH_CHECK(size >= 0, ShapeError, op, ": expected sizes of 0 or more, got ", to_string(sizes));
    ETCH_CHECK(!__builtin_mul_overflow(count, size == 0 ? 1 : size, &count) && count < (int64_t{1} << 56),
               ShapeError, op, ": expected fewer than 2^56 elements, got ", to_string(sizes));
  }
}

Tensor make_empty(const Geometry& geometry, DType dtype, Device device, MemoryCategory category) {
  check_sizes("tensor", geometry.sizes);
  const size_t bytes = static_cast<size_t>(extent(geometry)) * item_size(dtype);
  return make_tensor(
      Recorder::active() ? Storage::deferred(device, bytes) : Storage::allocate(device, bytes, category),
      geometry, 0, dtype);
}

Tensor make_view(const Tensor& base, const Geometry& geometry, int64_t offset) {
  Tensor view = make_tensor(base.impl().storage, geometry, offset, base.dtype());
  view.impl().is_view = true;
  return view;
}

void apply(Op op, std::span<const Arg> operands, const Attrs& attrs, DType given, std::span<Tensor> outputs) {
  register_backends();
  Operand inputs[kMaxInputs];
  for (size_t i = 0; i < operands.size(); ++i) inputs[i] = to_operand(operands[i]);
  const std::span<const Operand> in(inputs, operands.size());
  const bool in_place = outputs[0].defined();
  OutputSpec specs[kMaxOutputs];
  Device device;
  for (const Arg& operand : operands)
    if (operand.is_tensor() && operand.tensor().defined()) {
      device = operand.tensor().device();
      break;
    }
  if (!in_place || info(op).flags & kWritesInputs) {
    const int count = infer(op, in, attrs, given, specs);
    ETCH_INVARIANT(count == static_cast<int>(outputs.size()));
  }
  Operand results[kMaxOutputs];
  Recorder* recorder = Recorder::active();
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].defined()) {
      outputs[i] = make_empty(specs[i].geometry, specs[i].dtype, device);
    } else {
      outputs[i].storage().last_writer = static_cast<uint16_t>(op);
    }
    results[i] = to_operand(outputs[i]);
  }
  const OpCall call{op, in, {results, outputs.size()}, attrs};
  if (recorder) {
    recorder->record(call);
    return;
  }
  for (const Operand& operand : in)
    if (operand.storage) {
      operand.storage->check_usable();
      if (PendingWork* pending = operand.storage->pending.load(std::memory_order_acquire)) [[unlikely]]
        pending->settle(*operand.storage);
    }
  for (const Operand& operand : call.outputs) {
    if (PendingWork* pending = operand.storage->pending.load(std::memory_order_acquire)) [[unlikely]]
      pending->settle(*operand.storage);
    operand.storage->bump_version();
  }
  execute(call);
}

Tensor apply(Op op, std::initializer_list<Arg> operands, const Attrs& attrs, DType given) {
  Tensor output;
  apply(op, {operands.begin(), operands.size()}, attrs, given, {&output, 1});
  return output;
}

DType result_type(std::span<const Arg> operands) {
  // In order of say: tensors with dimensions, 0-d tensors, scalars. A later group only counts if its kind is
  // higher.
  std::optional<DType> dimensioned, zero_d;
  std::optional<Scalar::Kind> scalar;
  for (const Arg& operand : operands) {
    if (!operand.is_tensor()) {
      scalar = scalar ? std::max(*scalar, operand.scalar().kind()) : operand.scalar().kind();
    } else if (operand.tensor().defined()) {
      std::optional<DType>& group = operand.tensor().ndim() > 0 ? dimensioned : zero_d;
      group = group ? promote(*group, operand.tensor().dtype()) : operand.tensor().dtype();
    }
  }
  const auto kind = [](DType dtype) { return dtype == DType::Bool ? 0 : is_integral(dtype) ? 1 : 2; };
  std::optional<DType> result = dimensioned;
  if (zero_d && (!result || kind(*zero_d) > kind(*result))) result = zero_d;
  if (!result)
    return Scalar(0).default_dtype() == DType::I64 && scalar ? (*scalar == Scalar::Kind::Bool  ? DType::Bool
                                                                : *scalar == Scalar::Kind::Int ? DType::I64
                                                                                               : DType::F32)
                                                             : DType::F32;
  return scalar ? promote(*result, *scalar) : *result;
}

void check_in_place(std::string_view op, const Tensor& tensor) {
  if (!grad_enabled() || !tensor.requires_grad()) return;
  ETCH_CHECK(!tensor.is_leaf(), AutogradError, op,
             ": expected a tensor that may be written in place, got a leaf that ",
             "requires gradients; use no_grad, or the op without the underscore");
  ETCH_CHECK(!tensor.impl().is_view, AutogradError, op,
             ": expected a tensor that owns its elements, got a view that ",
             "requires gradients; use the op without the underscore");
}

}  // namespace etch
