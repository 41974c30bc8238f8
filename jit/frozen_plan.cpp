// Calls of a frozen path: checks of the inputs, then the executable.
#include "jit/frozen_plan.h"

#include <absl/container/inlined_vector.h>

#include <algorithm>

#include "eager/apply.h"
#include "jit/freeze.h"
#include "runtime/config.h"
#include "runtime/error.h"
#include "tracer/recorder.h"

namespace etch::detail {

FrozenPlan::FrozenPlan(std::shared_ptr<Site> site, std::span<const Tensor> examples,
                       std::span<const Tensor> copies, std::span<const Tensor> results,
                       std::span<const Tensor> earlier, const FlushCapture& capture,
                       std::vector<RandomSlots> random, uint64_t drawn,
                       std::span<const GradientWatch::Added> gradients)
    : site_(std::move(site)),
      path_(capture.end->path.get()),
      executable_(capture.executable),
      live_(capture.live),
      external_(capture.stream.external),
      values_(capture.stream.values),
      storages_(capture.stream.storages.size(), nullptr),
      random_(std::move(random)),
      drawn_(drawn) {
  for (size_t n = 0; n < storages_.size(); ++n) {
    const Ref<Storage>& storage = capture.stream.storages[n];
    const bool is_input = std::any_of(copies.begin(), copies.end(), [&](const Tensor& copy) {
      return copy.defined() && copy.impl().storage == storage;
    });
    if (live_[n]) fresh_.push_back(static_cast<int>(n));
    if (!external_[n] || is_input) continue;
    storages_[n] = storage.get();
    captured_.push_back(storage);
    captured_set_.insert(storage.get());
  }
  for (const Tensor& copy : copies) {
    Input& input = inputs_.emplace_back();
    if (!copy.defined()) continue;
    const auto of_copy =
        std::find(capture.stream.storages.begin(), capture.stream.storages.end(), copy.impl().storage);
    if (of_copy != capture.stream.storages.end())
      input.number = static_cast<int>(of_copy - capture.stream.storages.begin());
    input.adds_gradient = std::any_of(gradients.begin(), gradients.end(),
                                      [&](const auto& added) { return added.leaf == copy.ref(); });
  }
  set_inputs(examples, copies);
  size_t slot = 0;
  for (const RecordedOp* op : path_->ops) {
    for (const auto* operands : {&op->inputs, &op->outputs})
      for (const RecordedOperand& operand : *operands) {
        const size_t at = slot++;
        if (operand.kind != RecordedOperand::Kind::Tensor || !external_[operand.number]) continue;
        if (operands == &op->outputs) writes_.push_back({operand.number, static_cast<uint16_t>(op->op)});
        for (size_t i = 0; i < inputs_.size(); ++i)
          if (inputs_[i].number == operand.number && inputs_[i].shares < 0) shifts_.push_back({at, i});
      }
  }
  for (const Shift& shift : shifts_) values_[shift.slot].offset -= inputs_[shift.input].offset;
  std::vector<bool> written(storages_.size());
  for (const Write& write : writes_) written[static_cast<size_t>(write.number)] = true;
  for (size_t n = 0; n < storages_.size(); ++n)
    if (written[n] && storages_[n]) captured_writes_.push_back({storages_[n], storages_[n]->taped_version});
  for (size_t i = 0; i < inputs_.size(); ++i)
    if (inputs_[i].number >= 0 && written[static_cast<size_t>(inputs_[i].number)] && !inputs_[i].writes_leaf)
      written_inputs_.push_back(i);
  set_results(copies, results, earlier, capture);
}

void FrozenPlan::set_inputs(std::span<const Tensor> examples, std::span<const Tensor> copies) {
  for (size_t i = 0; i < copies.size(); ++i) {
    if (!copies[i].defined()) continue;
    Input& input = inputs_[i];
    input.defined = true;
    input.geometry = copies[i].impl().geometry;
    input.offset = copies[i].storage_offset();
    input.bytes = copies[i].storage().bytes();
    input.dtype = copies[i].dtype();
    input.device = copies[i].device();
    // Freezing would have failed, had the body written it otherwise than under no_grad.
    input.writes_leaf = copies[i].requires_grad() && grad_enabled();
    for (size_t j = i; j-- > 0;)
      if (examples[j].defined() && &examples[j].storage() == &examples[i].storage())
        input.shares = static_cast<int>(j);
  }
}

void FrozenPlan::set_results(std::span<const Tensor> copies, std::span<const Tensor> results,
                             std::span<const Tensor> earlier, const FlushCapture& capture) {
  // An input, a view of one, what the path makes, or a tensor that was there before.
  for (size_t r = 0; r < results.size(); ++r) {
    Result& result = results_.emplace_back();
    const Tensor& tensor = results[r];
    if (!tensor.defined()) continue;
    result.geometry = tensor.impl().geometry;
    result.offset = tensor.storage_offset();
    result.dtype = tensor.dtype();
    result.has_base = static_cast<bool>(tensor.impl().base);
    for (size_t i = 0; i < copies.size() && result.from == Result::From::Nothing; ++i) {
      if (!copies[i].defined() || &copies[i].storage() != &tensor.storage()) continue;
      result.from = tensor.is_same(copies[i]) ? Result::From::InputItself : Result::From::Input;
      result.at = i;
      result.offset -= inputs_[i].offset;
    }
    if (result.from != Result::From::Nothing) continue;
    const auto number = std::find_if(fresh_.begin(), fresh_.end(), [&](int n) {
      return capture.stream.storages[n] == tensor.impl().storage;
    });
    if (number != fresh_.end()) {
      result.from = Result::From::Fresh;
      result.at = static_cast<size_t>(*number);
      result.is_view = tensor.impl().is_view && !result.has_base;
    } else {
      result.from = tensor.is_same(earlier[r]) ? Result::From::CapturedItself : Result::From::Captured;
      result.captured = tensor;
    }
  }
  set_fresh_views(results);
}

void FrozenPlan::set_fresh_views(std::span<const Tensor> results) {
  std::vector<const TensorImpl*> bases;
  for (size_t r = 0; r < results.size(); ++r) {
    Result& result = results_[r];
    if (result.from != Result::From::Fresh || !result.has_base) continue;
    const TensorImpl* base = results[r].impl().base.get();
    const auto known = std::find(bases.begin(), bases.end(), base);
    result.from = Result::From::BaseView;
    if (known == bases.end()) {
      bases.push_back(base);
      bases_.push_back({result.at, base->geometry, base->offset, base->dtype});
      result.at = bases.size() - 1;
    } else {
      result.at = static_cast<size_t>(known - bases.begin());
    }
  }
  for (size_t r = 0; r < results.size(); ++r) {
    Result& result = results_[r];
    if (!results[r].defined()) continue;
    const auto base = std::find(bases.begin(), bases.end(), &results[r].impl());
    if (result.from == Result::From::Fresh && base != bases.end()) {
      result.from = Result::From::Base;
      result.at = static_cast<size_t>(base - bases.begin());
      continue;
    }
    for (size_t before = 0; before < r && result.from != Result::From::Earlier; ++before)
      if (results[r].is_same(results[before])) {
        result.from = Result::From::Earlier;
        result.at = before;
      }
  }
}

void FrozenPlan::check_gradients(std::span<const Tensor* const> inputs) const {
  constexpr std::string_view kRemedy = ", call the function itself, or freeze it again";
  const auto expect_none = [&](const Tensor& leaf, int input) {
    ETCH_CHECK(
        !leaf.grad().defined(), TraceError, site_->options().name, ": frozen call: expected ",
        input < 0 ? "the captured tensor" : join_text({"input ", input}), " ", to_string(leaf.sizes()),
        " without a .grad, as when the function was frozen, since it would add to it, got one with; set "
        "it to none before",
        kRemedy);
  };
  for (const GradientWatch::Added& added : gradients_) {
    const Tensor leaf(added.leaf);
    if (!added.gradient)
      expect_none(leaf, -1);
    else
      ETCH_CHECK(added.is_unchanged(), TraceError, site_->options().name,
                 ": frozen call: expected the .grad of the captured tensor ", to_string(leaf.sizes()),
                 " that was there when the function was frozen, since it adds to it, got ",
                 leaf.grad().defined() ? "another one" : "none", "; zero it in place inside the body",
                 kRemedy);
  }
  for (size_t i = 0; i < inputs_.size(); ++i)
    if (inputs_[i].adds_gradient) expect_none(*inputs[i], static_cast<int>(i));
}

void FrozenPlan::check_tape(std::span<const Tensor* const> inputs) const {
  if (!grad_enabled()) return;
  for (const size_t i : written_inputs_)
    ETCH_CHECK(!inputs[i]->requires_grad(), AutogradError, site_->options().name, ": frozen call, input ",
               static_cast<int64_t>(i),
               ": expected a tensor that does not require gradients, since the function writes it and the "
               "tape would not see that, got one of sizes ",
               to_string(inputs[i]->sizes()), " that does; call under no_grad, or pass its detach()");
  for (const CapturedWrite& write : captured_writes_)
    ETCH_CHECK(write.storage->taped_version == write.taped_version, AutogradError, site_->options().name,
               ": frozen call: expected the captured tensors that it writes as they were, got one that was "
               "written on the tape since; call under no_grad, or freeze the function again");
}

void FrozenPlan::check(size_t at, std::span<const Tensor* const> inputs) const {
  const Input& expected = inputs_[at];
  const Tensor& tensor = *inputs[at];
  const auto input = [&] {
    return join_text({site_->options().name, ": frozen call, input ", static_cast<int64_t>(at)});
  };
  constexpr std::string_view kRemedy = "; call the function itself, or freeze it for such inputs";
  ETCH_CHECK(tensor.defined() == expected.defined, ValueError, input(), ": expected ",
             expected.defined ? "a tensor" : "an undefined tensor", ", got ",
             expected.defined ? "an undefined one" : "a tensor", kRemedy);
  if (!expected.defined) return;
  const TensorImpl& impl = tensor.impl();
  ETCH_CHECK(impl.dtype == expected.dtype, DTypeError, input(), ": expected ", name(expected.dtype), ", got ",
             name(impl.dtype), kRemedy);
  ETCH_CHECK(impl.geometry.sizes == expected.geometry.sizes, ShapeError, input(), ": expected sizes ",
             to_string(expected.geometry.sizes), ", got ", to_string(impl.geometry.sizes), kRemedy);
  ETCH_CHECK(impl.geometry.strides == expected.geometry.strides, ShapeError, input(), ": expected strides ",
             to_string(expected.geometry.strides), ", got ", to_string(impl.geometry.strides), kRemedy);
  Storage& storage = *impl.storage;
  ETCH_CHECK(storage.device() == expected.device, DeviceError, input(), ": expected a tensor on ",
             to_string(expected.device), ", got one on ", to_string(storage.device()), kRemedy);
  ETCH_CHECK(storage.bytes() == expected.bytes, ShapeError, input(), ": expected a window into ",
             static_cast<int64_t>(expected.bytes), " bytes, got one into ",
             static_cast<int64_t>(storage.bytes()), kRemedy);
  check_current(storage);
  if (expected.shares >= 0) {
    const Tensor& first = *inputs[static_cast<size_t>(expected.shares)];
    const Input& other = inputs_[static_cast<size_t>(expected.shares)];
    ETCH_CHECK(&first.storage() == &storage &&
                   impl.offset - first.storage_offset() == expected.offset - other.offset,
               ValueError, input(), ": expected a window beside input ", expected.shares,
               "'s, as in the example, got another one", kRemedy);
    return;
  }
  for (size_t i = 0; i < at; ++i)
    ETCH_CHECK(!inputs_[i].defined || &inputs[i]->storage() != &storage, ValueError, input(),
               ": expected memory of its own, as in the example, got that of input ", static_cast<int64_t>(i),
               "; pass a copy");
  ETCH_CHECK(!captured_set_.contains(&storage), ValueError, input(),
             ": expected memory of its own, got a tensor that the function uses from outside; pass a copy");
}

void FrozenPlan::check_current(const Storage& storage) const {
  storage.check_usable();
  if (storage.pending.load(std::memory_order_acquire)) [[unlikely]]
    fail<TraceError>(site_->options().name,
                     ": frozen call: expected tensors that are computed, got one that a traced function on "
                     "another thread has not computed yet; call etch::flush() there before");
}

void FrozenPlan::run_one_by_one(std::span<const OperandValue> values,
                                std::span<Storage* const> storages) const {
  Stream stream{{values.begin(), values.end()}, {}, external_};
  for (size_t n = 0; n < storages.size(); ++n)
    stream.storages.push_back(storages[n] ? Ref<Storage>(storages[n])
                                          : Storage::deferred(path_->storages[n].device,
                                                              static_cast<size_t>(path_->storages[n].bytes)));
  stream.run_one_by_one(path_->ops, live_);
}

void FrozenPlan::run(std::span<const Tensor* const> inputs, std::span<Tensor> results,
                     SourceLocation where) const {
  if (Recorder* recorder = Recorder::active()) recorder->flush(FlushReason::FrozenCall, where);
  for (size_t i = 0; i < inputs.size(); ++i) check(i, inputs);
  for (const Ref<Storage>& storage : captured_) check_current(*storage);
  check_gradients(inputs);
  check_tape(inputs);

  absl::InlinedVector<Storage*, 64> storages(storages_.begin(), storages_.end());
  for (size_t i = 0; i < inputs_.size(); ++i)
    if (inputs_[i].number >= 0) storages[static_cast<size_t>(inputs_[i].number)] = &inputs[i]->storage();
  absl::InlinedVector<Ref<Storage>, 4> fresh;
  for (const int number : fresh_) {
    const RecordedStorage& storage = path_->storages[static_cast<size_t>(number)];
    fresh.push_back(Storage::deferred(storage.device, static_cast<size_t>(storage.bytes)));
    storages[static_cast<size_t>(number)] = fresh.back().get();
  }
  absl::InlinedVector<OperandValue, 64> own;
  std::span<const OperandValue> values = values_;
  if (!shifts_.empty() || !random_.empty()) {
    own.assign(values_.begin(), values_.end());
    values = own;
  }
  for (const Shift& shift : shifts_) own[shift.slot].offset += inputs[shift.input]->storage_offset();
  if (!random_.empty()) {
    const PhiloxState state = default_generator().reserve(static_cast<int64_t>(drawn_) * 4);
    for (const RandomSlots& at : random_) {
      own[at.seed].scalar = Scalar(static_cast<int64_t>(state.seed));
      own[at.offset].scalar = Scalar(static_cast<int64_t>(state.offset + at.start));
    }
  }
  for (const Write& write : writes_) {
    Storage& storage = *storages[static_cast<size_t>(write.number)];
    storage.bump_version();
    storage.last_writer = write.op;
  }
  if (config().disable || !executable_->run({*path_, values, storages, live_}))
    run_one_by_one(values, storages);
  make_results(inputs, storages, results);
}

// A view of a tensor that is not on the tape takes part in later writes as the body's would; of one that is,
// its history would be wrong, so the tape refuses such writes.
static Tensor view_of(const Tensor& of, const Geometry& geometry, int64_t offset, bool has_base) {
  Tensor view = make_view(of, geometry, offset);
  const TensorImpl& impl = of.impl();
  if (has_base && grad_enabled() && (!impl.is_view || impl.base)) {
    const Ref<TensorImpl> base = impl.base ? impl.base : of.ref();
    if (!Tensor(base).requires_grad()) view.impl().base = base;
  }
  return view;
}

void FrozenPlan::make_results(std::span<const Tensor* const> inputs, std::span<Storage* const> storages,
                              std::span<Tensor> results) const {
  absl::InlinedVector<Tensor, 2> bases;
  for (const Base& base : bases_)
    bases.push_back(make_tensor(Ref<Storage>(storages[base.number]), base.geometry, base.offset, base.dtype));
  for (size_t r = 0; r < results.size(); ++r) {
    const Result& result = results_[r];
    switch (result.from) {
      case Result::From::Nothing:
        break;
      case Result::From::Fresh:
        results[r] =
            make_tensor(Ref<Storage>(storages[result.at]), result.geometry, result.offset, result.dtype);
        if (result.is_view) {
          results[r].impl().is_view = true;
          results[r].impl().view_version = storages[result.at]->version();
        }
        break;
      case Result::From::Base:
        results[r] = bases[result.at];
        break;
      case Result::From::BaseView:
        results[r] = make_view(bases[result.at], result.geometry, result.offset);
        results[r].impl().base = bases[result.at].ref();
        break;
      case Result::From::Earlier:
        results[r] = results[result.at];
        break;
      case Result::From::Input:
        results[r] = view_of(*inputs[result.at], result.geometry,
                             result.offset + inputs[result.at]->storage_offset(), result.has_base);
        break;
      case Result::From::InputItself:
        results[r] = *inputs[result.at];
        break;
      case Result::From::Captured:
        results[r] = view_of(result.captured, result.geometry, result.offset, result.has_base);
        break;
      case Result::From::CapturedItself:
        results[r] = result.captured;
        break;
    }
  }
}

size_t count_results(const FrozenPlan& plan) { return plan.count_results(); }
void run_frozen(const FrozenPlan& plan, std::span<const Tensor* const> inputs, std::span<Tensor> results,
                SourceLocation where) {
  plan.run(inputs, results, where);
}

}  // namespace etch::detail
