// In-place writes under the tape: whose history changes when a tensor, its base or another view of it is
// written.
#include <atomic>
#include <mutex>

#include "eager/apply.h"
#include "eager/tape.h"

namespace etch {

namespace {

// Where a view lies in its base, in elements.
struct Window {
  Geometry base, part;
  int64_t offset = 0;  // of the first element of part, from base's

  static Window of(const TensorImpl& view) {
    return {view.base->geometry, view.geometry, view.offset - view.base->offset};
  }
};

Tensor put_window(const Tensor& whole, const Tensor& part, const Window& at, const Tensor& like);

// The part of a tensor of the base's sizes that the view shows.
Tensor take_window(const Tensor& whole, const Window& at) {
  Tensor laid_out = whole;
  if (whole.strides() != at.base.strides) {
    laid_out = make_empty(at.base, whole.dtype(), whole.device());
    no_grad([&] { laid_out.copy_(whole); });
  }
  Tensor part = make_view(laid_out, at.part, laid_out.storage_offset() + at.offset);
  if (needs_tape({&whole}))
    record_on_tape("take_window", {&whole}, {&part},
                   [at](std::span<const Tensor> gradients, InputGradients inputs) {
                     inputs.set(0, put_window({}, gradients[0], at, gradients[0]));
                   });
  return part;
}

// `whole` (undefined: zeros) with `part` (undefined: zeros) in the view's place, of the dtype of `like`.
// Where an expanded view shows one element many times, the sum of them.
Tensor put_window(const Tensor& whole, const Tensor& part, const Window& at, const Tensor& like) {
  Tensor result = make_empty(at.base, like.dtype(), like.device());
  no_grad([&] {
    whole.defined() ? result.copy_(whole) : result.zero_();
    Geometry geometry = at.part;
    Dims repeated;
    for (int i = 0; i < geometry.ndim(); ++i)
      if (geometry.strides[i] == 0 && geometry.sizes[i] > 1) {
        repeated.push_back(i);
        geometry.sizes[i] = 1;
      }
    Tensor window = make_view(result, geometry, at.offset);
    if (!part.defined()) {
      if (whole.defined()) window.zero_();
    } else {
      window.copy_(repeated.empty() ? part : part.sum(repeated, true));
    }
  });
  if (needs_tape({&whole, &part}))
    record_on_tape("put_window", {&whole, &part}, {&result},
                   [at](std::span<const Tensor> gradients, InputGradients inputs) {
                     const Tensor& g = gradients[0];
                     if (inputs.needs(0)) inputs.set(0, put_window(g, {}, at, g));
                     if (inputs.needs(1)) inputs.set(1, take_window(g, at));
                   });
  return result;
}

// The history of a base that was written through a view: the old one outside the window, the write's inside.
// Edge 0 leads to the base before, the others to what the write read.
class CopySlices final : public TapeNode {
 public:
  CopySlices(const TensorImpl& view, Ref<TapeNode> write, bool reads_written)
      : at_(Window::of(view)), write_(std::move(write)), first_(reads_written ? 1 : 0) {
    edges.push_back(recorded_edge(view.base));
    if (write_)
      for (size_t i = first_; i < write_->edges.size(); ++i) edges.push_back(write_->edges[i]);
  }

  std::string name() const override { return "CopySlices"; }

  void backward(std::span<const Tensor> gradients, InputGradients inputs) override {
    const Tensor& g = gradients[0];
    Tensor before;
    if (write_) {
      const Tensor written = take_window(g, at_);
      absl::InlinedVector<Tensor, 4> slots(write_->edges.size());
      write_->backward({&written, 1}, {{slots.data(), slots.size()}, write_->edges});
      if (first_) before = slots[0];
      for (size_t i = first_; i < slots.size(); ++i)
        inputs.set(static_cast<int>(i - first_) + 1, std::move(slots[i]));
    }
    if (inputs.needs(0)) inputs.set(0, put_window(g, before, at_, g));
  }

  void release() override {
    if (!write_) return;
    write_->release();
    write_->released = true;
  }

 private:
  Window at_;
  Ref<TapeNode>
      write_;     // as if the view were a tensor of its own; null: no gradient reaches what was written
  size_t first_;  // edge of write_ that is not the view's own old value
};

}  // namespace

void refresh_view(TensorImpl& view) {
  ETCH_CHECK(view.base, AutogradError,
             "view: expected a view made while gradients were enabled, got one of sizes ",
             to_string(view.geometry.sizes),
             " made under no_grad, whose base was written on the tape since; make the view again");
  // Threads may share a view. The old history goes after the lock: that may run anything.
  Ref<TapeNode> before;
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  if (!is_stale_view(view)) return;
  if (view.autograd) before = view.autograd->grad_fn;
  const uint32_t now = view.storage->version();
  // A leaf has no history, and an overlapping base cannot have been written through its views.
  if (!view.requires_grad && !may_self_overlap(view.base->geometry)) {
    const Edge base = recorded_edge(view.base);
    Ref<TapeNode> node;
    if (base.defined()) {
      auto backward = [at = Window::of(view)](std::span<const Tensor> gradients, InputGradients inputs) {
        inputs.set(0, put_window({}, gradients[0], at, gradients[0]));
      };
      node = Ref<TapeNode>(new ClosureNode<decltype(backward)>("as_strided", std::move(backward)));
      node->edges.push_back(base);
    }
    set_history(view, node);
  }
  std::atomic_ref(view.view_version).store(now, std::memory_order_release);
}

void rewrite_history(const Tensor& written, const Ref<TapeNode>& node, bool reads_written) {
  TensorImpl& impl = written.impl();
  if (impl.base) {
    const Edge before = recorded_edge(impl.base);
    if (!node && !before.defined()) return;
    const Ref<TapeNode> rebased(new CopySlices(impl, node, reads_written));
    set_history(*impl.base, rebased);
  } else {
    set_history(impl, node);
  }
  impl.storage->taped_version = impl.storage->version();
}

}  // namespace etch
