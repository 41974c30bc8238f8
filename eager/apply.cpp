// Dispatch: infer the outputs, then hand the call to the recorder or run it.
#include "eager/apply.h"

#include "eager/cpu/executor.h"
#include "eager/tape.h"
#include "runtime/object_pool.h"
#include "tracer/execute.h"
#include "tracer/promotion.h"
#include "tracer/recorder.h"

namespace etch {

namespace {

// Kernels are registered before the first op, whatever the order of static initialisation.
void register_backends() {
  static const bool registered = (cpu::register_kernels(), true);
  (void)registered;
}

// Room for objects that costs nothing before it is used: one op uses little of what the largest needs.
template <class T, int kCount>
union Room {
  static_assert(std::is_trivially_destructible_v<T>);
  Room() {}
  T items[kCount];
};

// Written where it is used: a copy right after these narrow writes would stall.
void set_operand(Operand& operand, const Tensor& tensor) {
  new (&operand) Operand;
  const TensorImpl& impl = tensor.impl();
  operand.storage = impl.storage.get();
  operand.geometry = &impl.geometry;
  operand.offset = impl.offset;
  operand.dtype = impl.dtype;
}
void set_operand(Operand& operand, const Arg& arg) {
  if (arg.is_tensor()) {
    if (arg.tensor().defined()) return set_operand(operand, arg.tensor());
    operand = Operand::absent();
    return;
  }
  new (&operand) Operand;
  operand.scalar = arg.scalar();
  operand.dtype = operand.scalar.default_dtype();
}

}  // namespace

void Tensor::fail_undefined() {
  fail<ValueError>(
      "tensor: expected a defined tensor, got an undefined one: default-constructed, moved from, or a .grad "
      "that no backward() has reached");
}

TensorImpl::TensorImpl() = default;
TensorImpl::~TensorImpl() {
  if (autograd && autograd->retains_grad) forget_retained(*this);
}
void TensorImpl::destroy(TensorImpl* impl) { delete impl; }
void* TensorImpl::operator new(size_t) { return ObjectPool<TensorImpl>::allocate(); }
void TensorImpl::operator delete(void* data) noexcept { ObjectPool<TensorImpl>::release(data); }

Tensor make_tensor(Ref<Storage> storage, const Geometry& geometry, int64_t offset, DType dtype) {
  Ref<TensorImpl> impl = Ref<TensorImpl>::first(new TensorImpl);
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
  view.impl().view_version = base.storage().version();
  return view;
}

namespace {

// Checks the call and makes the outputs that are undefined, as infer() describes them.
void infer_outputs(Op op, std::span<const Arg> operands, std::span<const Operand> in, const Attrs& attrs,
                   DType given, std::span<Tensor> outputs) {
  Room<OutputSpec, kMaxOutputs> specs;
  // Callers that write in place have checked already.
  if (!outputs[0].defined() || info(op).flags & kWritesInputs) {
    const int count = infer(op, in, attrs, given, specs.items);
    ETCH_INVARIANT(count == static_cast<int>(outputs.size()));
  }
  Device device;
  for (const Arg& operand : operands)
    if (operand.is_tensor() && operand.tensor().defined()) {
      device = operand.tensor().device();
      break;
    }
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].defined())
      outputs[i].storage().last_writer = static_cast<uint16_t>(op);
    else
      outputs[i] = make_empty(specs.items[i].geometry, specs.items[i].dtype, device);
  }
}

// Defers the call if the recorder knows it already: then its outputs are known too.
bool defer_foreseen(Recorder& recorder, Op op, std::span<const Operand> in, const Attrs& attrs, DType given,
                    std::span<Tensor> outputs) {
  Room<Operand, kMaxOutputs> results;
  const std::span<Operand> out(results.items, outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].defined())
      set_operand(out[i], outputs[i]);
    else
      new (&out[i]) Operand;
  }
  PathNode* node = recorder.foresee(op, in, attrs, given, out);
  if (!node) return false;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].defined()) {
      outputs[i].storage().last_writer = static_cast<uint16_t>(op);
      continue;
    }
    const RecordedOperand& known = node->op.outputs[i];
    const RecordedStorage& room = recorder.foreseen_storage(*node, static_cast<int>(i));
    Ref<Storage> storage = Storage::deferred(room.device, static_cast<size_t>(room.bytes));
    out[i].storage = storage.get();
    outputs[i] = make_tensor(std::move(storage), known.geometry, 0, known.dtype);
  }
  recorder.record_foreseen(*node, in, out);
  return true;
}

}  // namespace

void apply(Op op, std::span<const Arg> operands, const Attrs& attrs, DType given, std::span<Tensor> outputs) {
  register_backends();
  Room<Operand, kMaxInputs> inputs;
  for (size_t i = 0; i < operands.size(); ++i) set_operand(inputs.items[i], operands[i]);
  const std::span<const Operand> in(inputs.items, operands.size());
  Recorder* recorder = Recorder::active();
  if (recorder && defer_foreseen(*recorder, op, in, attrs, given, outputs)) return;
  Room<Operand, kMaxOutputs> results;
  uint32_t written_in_place = 0;  // a bit an output
  for (size_t i = 0; i < outputs.size(); ++i) written_in_place |= uint32_t{outputs[i].defined()} << i;
  infer_outputs(op, operands, in, attrs, given, outputs);
  for (size_t i = 0; i < outputs.size(); ++i) set_operand(results.items[i], outputs[i]);
  const OpCall call{op, in, {results.items, outputs.size()}, attrs};
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
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!(written_in_place >> i & 1)) continue;
    Storage& storage = *call.outputs[i].storage;
    if (PendingWork* pending = storage.pending.load(std::memory_order_acquire)) [[unlikely]]
      pending->settle(storage);
    storage.bump_version();
  }
  execute(call);
}

Tensor apply(Op op, std::initializer_list<Arg> operands, const Attrs& attrs, DType given) {
  Tensor output;
  apply(op, {operands.begin(), operands.size()}, attrs, given, {&output, 1});
  return output;
}

DType result_type(std::span<const Arg> operands) {
  Promotion promotion;
  for (const Arg& operand : operands) {
    if (!operand.is_tensor())
      promotion.add_scalar(operand.scalar().kind());
    else if (operand.tensor().defined())
      promotion.add_tensor(operand.tensor().dtype(), operand.tensor().ndim());
  }
  return promotion.result();
}

}  // namespace etch
