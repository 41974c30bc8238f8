// The recorder's short cut: an op compared with the one that came here before, without inference or a key.
#include "runtime/parallel.h"
#include "tracer/recorder.h"

namespace etch {

namespace {

bool same_dims(const Dims& a, const Dims& b) {
  for (int i = 0; i < a.size(); ++i)
    if (a[i] != b[i]) return false;
  return true;
}

bool same_window(const RecordedOperand& expected, const Operand& operand) {
  const Geometry& geometry = *operand.geometry;
  return expected.dtype == operand.dtype && expected.geometry.ndim() == geometry.ndim() &&
         same_dims(expected.geometry.sizes, geometry.sizes) &&
         same_dims(expected.geometry.strides, geometry.strides);
}

// Compares the storages of one call with a node's numbers; those that are new to the stream stand last.
class Numbering {
 public:
  Numbering(const PathNode& node, int known) : node_(node), known_(known) {}

  // A storage that is to be made for an output.
  bool takes_fresh(int number, const Storage* made = nullptr) {
    const int index = number - known_;
    if (index != count_) return false;
    const RecordedStorage& expected = node_.new_storages[index];
    if (expected.external || (made && (expected.bytes != static_cast<int64_t>(made->bytes()) ||
                                       expected.device != made->device())))
      return false;
    fresh_[count_++] = made;
    return true;
  }
  // One that is not in the stream before this call, if `is_known` agrees.
  template <class IsKnown>
  bool takes_external(int number, const Storage& storage, IsKnown is_known) {
    const int index = number - known_;
    if (index < count_) return fresh_[index] == &storage;
    if (index > count_ || !storage.has_bytes() || is_known()) return false;
    const RecordedStorage& expected = node_.new_storages[index];
    if (!expected.external || expected.bytes != static_cast<int64_t>(storage.bytes()) ||
        expected.device != storage.device())
      return false;
    for (int i = 0; i < count_; ++i)
      if (fresh_[i] == &storage) return false;
    fresh_[count_++] = &storage;
    return true;
  }

 private:
  const PathNode& node_;
  const int known_;
  int count_ = 0;
  const Storage* fresh_[kMaxInputs + kMaxOutputs];
};

}  // namespace

bool Recorder::is_expected(const PathNode& node, Op op, std::span<const Operand> inputs, const Attrs& attrs,
                           DType given, std::span<const Operand> outputs) const {
  const RecordedOp& known = node.op;
  if (known.op != op || known.inputs.size() != inputs.size() || known.outputs.size() != outputs.size() ||
      !(known.attrs == attrs))
    return false;
  const int count = static_cast<int>(storages_.size());
  Numbering numbering(node, count);
  const auto matches = [&](const RecordedOperand& expected, const Operand& operand) {
    if (!operand.geometry)
      return operand.present
                 ? expected.kind == RecordedOperand::Kind::Scalar &&
                       expected.scalar_kind == operand.scalar.kind() && expected.dtype == operand.dtype
                 : expected.kind == RecordedOperand::Kind::Absent;
    if (expected.kind != RecordedOperand::Kind::Tensor || !same_window(expected, operand)) return false;
    const Storage& storage = *operand.storage;
    if (storage.is_unstable()) return false;
    if (expected.number < count) return storages_[expected.number].get() == &storage;
    return numbering.takes_external(expected.number, storage, [&] { return externals_.contains(&storage); });
  };
  for (size_t i = 0; i < inputs.size(); ++i)
    if (!matches(known.inputs[i], inputs[i])) return false;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (const Storage* storage = outputs[i].storage) {
      const bool made = !storage->has_bytes() && !storage->pending.load(std::memory_order_relaxed);
      if (made ? !same_window(known.outputs[i], outputs[i]) ||
                     !numbering.takes_fresh(known.outputs[i].number, storage)
               : !matches(known.outputs[i], outputs[i]))
        return false;
      continue;
    }
    // What infer() is not asked: it would say the same of the same inputs, but for the dtype that is given.
    const DTypeRule rule = info(op).rule;
    if ((rule == DTypeRule::Cast || rule == DTypeRule::Given) && known.outputs[i].dtype != given)
      return false;
    if (!numbering.takes_fresh(known.outputs[i].number)) return false;
  }
  return cursor_ != site_->root() || node.key[0] == static_cast<uint64_t>(num_threads());
}

PathNode* Recorder::foresee(Op op, std::span<const Operand> inputs, const Attrs& attrs, DType given,
                            std::span<const Operand> outputs) const {
  for (PathNode* child = cursor_->first_child.load(std::memory_order_acquire); child;
       child = child->next_sibling.load(std::memory_order_acquire)) {
    if (!is_expected(*child, op, inputs, attrs, given, outputs)) continue;
    for (const Operand& operand : inputs) check_operand(operand, op);
    for (const Operand& operand : outputs) check_operand(operand, op);
    return child;
  }
  return nullptr;
}

void Recorder::record_foreseen(PathNode& node, std::span<const Operand> inputs,
                               std::span<const Operand> outputs) {
  new_storages_.clear();
  // Only what counts is copied: reading all of an operand just written would stall.
  const auto push_value = [&](const Operand& operand) {
    OperandValue& value = values_.emplace_back();
    value.offset = operand.offset;
    if (operand.is_scalar()) value.scalar = operand.scalar;
  };
  for (size_t i = 0; i < inputs.size(); ++i) {
    push_value(inputs[i]);
    if (inputs[i].storage && node.op.inputs[i].number == static_cast<int>(storages_.size()))
      number(*inputs[i].storage, false);
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    push_value(outputs[i]);
    if (node.op.outputs[i].number == static_cast<int>(storages_.size()))
      number(*outputs[i].storage, true);
    else
      mark_written(*outputs[i].storage);
  }
  push_op(&node);
  if (const PathNode* next = node.first_child.load(std::memory_order_acquire)) {
    __builtin_prefetch(next);
    __builtin_prefetch(next->op.inputs.data());
  }
}

}  // namespace etch
