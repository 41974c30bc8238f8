// Nodes, edges, saved tensors, and the iterative teardown of the tape.
#include "eager/tape.h"

#include "eager/apply.h"
#include "tracer/recorder.h"

namespace etch {

namespace {
thread_local bool gradients_enabled = true;
}

bool grad_enabled() { return gradients_enabled; }
NoGrad::NoGrad() : previous_(gradients_enabled) { gradients_enabled = false; }
NoGrad::~NoGrad() { gradients_enabled = previous_; }

GradMode::GradMode(bool enabled) : previous_(gradients_enabled) { gradients_enabled = enabled; }
GradMode::~GradMode() { gradients_enabled = previous_; }

void TapeNode::destroy(TapeNode* node) {
  // A node's members may hold the last reference to other nodes; they queue here instead of recursing.
  static thread_local std::vector<TapeNode*>* queue = nullptr;
  if (queue) {
    queue->push_back(node);
    return;
  }
  std::vector<TapeNode*> pending{node};
  queue = &pending;
  while (!pending.empty()) {
    TapeNode* next = pending.back();
    pending.pop_back();
    delete next;
  }
  queue = nullptr;
}

Edge recorded_edge(const Ref<TensorImpl>& impl) {
  if (impl->autograd && impl->autograd->grad_fn)
    return {impl->autograd->grad_fn, impl->autograd->output_index, {}};
  if (impl->requires_grad) return {{}, 0, impl};
  return {};
}

void set_grad_fn(const Tensor& output, Ref<TapeNode> node, int index) {
  TensorImpl& impl = output.impl();
  if (!impl.autograd) impl.autograd = std::make_unique<AutogradMeta>();
  impl.autograd->grad_fn = std::move(node);
  impl.autograd->output_index = index;
}

void forget_retained(TensorImpl& impl) {
  if (!impl.autograd->grad_fn) return;
  std::erase_if(impl.autograd->grad_fn->retained, [&](const auto& entry) { return entry.second == &impl; });
}

void set_history(TensorImpl& impl, const Ref<TapeNode>& node) {
  if (!impl.autograd && !node) return;
  const bool retains = impl.autograd && impl.autograd->retains_grad;
  if (retains) forget_retained(impl);
  if (!impl.autograd) impl.autograd = std::make_unique<AutogradMeta>();
  impl.autograd->grad_fn = node;
  impl.autograd->output_index = 0;
  impl.autograd->retains_grad = retains && node;
  if (impl.autograd->retains_grad) node->retained.push_back({0, &impl});
}

std::string backward_name(std::string_view op) {
  std::string text;
  bool upper = true;
  for (char c : op) {
    if (c == '_') {
      upper = true;
      continue;
    }
    text += upper && c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
    upper = false;
  }
  return text + "Backward";
}

namespace {
// A tensor may be saved by a node that its own later history, or its base's, leads to (`b = w * a;
// a.add_(b)`): the tensor itself would be a cycle. Leaves that require gradients have no later history.
Tensor as_of_now(const Tensor& tensor) {
  const TensorImpl& impl = tensor.impl();
  if (impl.requires_grad || (impl.base && impl.base->requires_grad)) return tensor;
  Tensor copy = impl.is_view ? make_view(tensor, impl.geometry, impl.offset) : tensor.detach();
  if (impl.autograd && impl.autograd->grad_fn)
    set_grad_fn(copy, impl.autograd->grad_fn, impl.autograd->output_index);
  return copy;
}
}  // namespace

SavedTensor::SavedTensor(const Tensor& tensor, std::string_view saver) : saver_(saver) {
  if (!tensor.defined()) return;
  tensor_ = as_of_now(tensor);
  version_ = tensor.storage().version();
  if (tensor.storage().category() == MemoryCategory::Temporary)
    tensor.storage().set_category(MemoryCategory::Activation);
}

SavedTensor SavedTensor::output(const Tensor& tensor, std::string_view saver) {
  SavedTensor saved(tensor.detach(), saver);
  saved.is_output_ = true;
  saved.output_index_ =
      static_cast<int16_t>(tensor.impl().autograd ? tensor.impl().autograd->output_index : 0);
  return saved;
}

Tensor SavedTensor::unpack(TapeNode* owner) const {
  if (!tensor_.defined()) return {};
  const Storage& storage = tensor_.storage();
  if (storage.version() != version_) [[unlikely]] {
    const std::string writer = storage.last_writer == Storage::kNoWriter
                                   ? std::string("the host")
                                   : std::string(name(static_cast<Op>(storage.last_writer)));
    fail<AutogradError>(
        saver_, ": expected the tensor ", etch::to_string(tensor_.sizes()), " saved for backward at version ",
        version_, ", got version ", storage.version(), ": ", writer,
        " overwrote it in place (a write through a view counts for the whole tensor); clone it before, or "
        "use the op without the underscore");
  }
  if (!is_output_ || !owner || !grad_enabled()) return tensor_;
  Tensor attached = tensor_.detach();
  set_grad_fn(attached, Ref<TapeNode>(owner), output_index_);
  return attached;
}

Tensor reduce_to(const Tensor& gradient, const Dims& sizes, DType dtype) {
  Tensor result = gradient;
  if (result.sizes() != sizes) {
    const int extra = result.ndim() - sizes.size();
    Dims axes;
    for (int i = 0; i < result.ndim(); ++i)
      if (i < extra || (sizes[i - extra] == 1 && result.sizes()[i] != 1)) axes.push_back(i);
    if (!axes.empty()) result = result.sum(axes, true);
    if (result.sizes() != sizes) result = result.reshape(sizes);
  }
  return result.dtype() == dtype ? result : result.to(dtype);
}

}  // namespace etch
