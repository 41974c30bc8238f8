// The tape's side of Tensor: whether and where it is on the tape, .grad, hooks, and what may be written.
#include "eager/apply.h"
#include "eager/tape.h"

namespace etch {

namespace {
// For questions, which never throw.
void refresh_if_possible(TensorImpl& impl) {
  if (is_stale_view(impl) && impl.base) [[unlikely]]
    refresh_view(impl);
}
}  // namespace

Edge edge_of(const Tensor& tensor) {
  refresh_if_possible(tensor.impl());
  return recorded_edge(tensor.ref());
}

bool Tensor::requires_grad() const {
  refresh_if_possible(impl());
  return impl_->requires_grad || (impl_->autograd && impl_->autograd->grad_fn);
}

Tensor& Tensor::requires_grad_(bool value) {
  ETCH_CHECK(!value || is_floating(dtype()), DTypeError, "requires_grad_: expected a floating dtype, got ",
             name(dtype()));
  ETCH_CHECK(is_leaf(), AutogradError, "requires_grad_: expected a leaf, got the result of ", grad_fn(),
             "; detach() it first");
  impl().requires_grad = value;
  return *this;
}

bool Tensor::is_leaf() const {
  refresh_if_possible(impl());
  return !(impl_->autograd && impl_->autograd->grad_fn);
}

const Tensor& Tensor::grad() const {
  static const Tensor* const kNone = new Tensor;
  refresh_if_possible(impl());
  return impl().autograd ? impl_->autograd->grad : *kNone;
}

void Tensor::set_grad(Tensor grad) {
  if (!impl().autograd) {
    if (!grad.defined()) return;
    impl().autograd = std::make_unique<AutogradMeta>();
  }
  if (grad.defined()) {
    ETCH_CHECK(grad.sizes() == sizes(), ShapeError, "set_grad: expected sizes ", etch::to_string(sizes()),
               ", got ", etch::to_string(grad.sizes()));
  }
  impl().autograd->grad = std::move(grad);
}

std::string Tensor::grad_fn() const { return is_leaf() ? "" : impl().autograd->grad_fn->name(); }

void Tensor::retain_grad() {
  ETCH_CHECK(
      requires_grad(), AutogradError,
      "retain_grad: expected a tensor that requires gradients, got one of sizes ", etch::to_string(sizes()),
      " that does not; call requires_grad_() on it or on what it is computed ", "from, outside no_grad");
  if (is_leaf()) return;
  impl().autograd->retains_grad = true;
  impl().autograd->grad_fn->retained.push_back({impl().autograd->output_index, impl_.get()});
}

Tensor Tensor::detach() const {
  const TensorImpl& self = impl();
  Tensor result = make_tensor(self.storage, self.geometry, self.offset, self.dtype);
  return result;
}

// The hooks of a result go when backward frees its part of the tape; those of a leaf stay as long as it. So a
// leaf's hook, or one whose backward never runs, must not hold its own tensor: neither would ever go.
void Tensor::register_hook(std::function<Tensor(const Tensor&)> hook) {
  ETCH_CHECK(
      requires_grad(), AutogradError,
      "register_hook: expected a tensor that requires gradients, got one of sizes ", etch::to_string(sizes()),
      " that does not; call requires_grad_() on it or on what it is computed ", "from, outside no_grad");
  ETCH_CHECK(hook, ValueError, "register_hook: expected a function, got an empty one");
  if (is_leaf()) {
    if (!impl().autograd) impl().autograd = std::make_unique<AutogradMeta>();
    impl().autograd->leaf_hooks.push_back(std::move(hook));
    return;
  }
  impl().autograd->grad_fn->hooks.push_back({impl().autograd->output_index, std::move(hook)});
}

void check_in_place(std::string_view op, const Tensor& tensor, bool source_on_tape) {
  if (!grad_enabled()) return;
  const TensorImpl& impl = tensor.impl();
  const bool on_tape = tensor.requires_grad();
  ETCH_CHECK(
      !on_tape || !tensor.is_leaf(), AutogradError, op,
      ": expected a tensor that may be written in place, got a leaf that requires gradients; use no_grad, "
      "or the op without the underscore");
  if (!impl.is_view || !(on_tape || source_on_tape)) return;
  ETCH_CHECK(impl.base, AutogradError, op,
             ": expected a view made while gradients were enabled, got one made under no_grad or by a custom "
             "function, whose base would not take part in the gradient; make the view outside no_grad, or "
             "clone() it");
  ETCH_CHECK(
      !impl.base->requires_grad || Tensor(impl.base).grad_fn().size(), AutogradError, op,
      ": expected a tensor that may be written in place, got a view of a leaf that requires gradients; "
      "use no_grad, or a view of its clone()");
  ETCH_CHECK(!may_self_overlap(impl.base->geometry), ShapeError, op,
             ": expected a view of distinct elements, got one of a broadcast tensor of strides ",
             to_string(impl.base->geometry.strides), "; clone() that first");
}

}  // namespace etch
