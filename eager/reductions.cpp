// Reductions with their gradients.
#include "eager/apply.h"
#include "eager/gradients.h"
#include "eager/tape.h"

namespace etch {

namespace {

uint64_t axes_mask(std::string_view op, const Tensor& x, const Dims& axes) {
  uint64_t mask = 0;
  for (int64_t axis : axes) {
    const uint64_t bit = uint64_t{1} << normalize_axis(op, axis, x.ndim());
    ETCH_CHECK(!(mask & bit), ValueError, op, ": expected distinct axes, got ", to_string(axes));
    mask |= bit;
  }
  return axes.empty() || x.ndim() == 0 ? (uint64_t{1} << x.ndim()) - 1 : mask;
}

int64_t reduced_count(const Tensor& x, uint64_t mask) {
  int64_t count = 1;
  for (int i = 0; i < x.ndim(); ++i)
    if (mask >> i & 1) count *= x.sizes()[i];
  return count;
}

Tensor restore_axes(Tensor t, uint64_t mask, int ndim, bool keepdim) {
  if (keepdim) return t;
  for (int i = 0; i < ndim; ++i)
    if (mask >> i & 1) t = t.unsqueeze(i);
  return t;
}

Tensor reduce(Op op, const Tensor& x, uint64_t mask, bool keepdim) {
  return apply(op, {x}, ReductionAttrs(mask, keepdim).pack(), x.dtype());
}

Tensor reduce_extremum(Op op, const Tensor& x, const Dims& axes, bool keepdim) {
  const uint64_t mask = axes_mask(name(op), x, axes);
  Tensor y = reduce(op, x, mask, keepdim);
  if (!needs_tape({&x}) || !is_floating(y.dtype())) return y;
  record_on_tape(name(op), {&x}, {&y},
                 [x = SavedTensor(x, name(op)), y = SavedTensor(y.detach(), name(op)), mask, keepdim](
                     std::span<const Tensor> gradients, InputGradients inputs) {
                   const Tensor a = x.unpack();
                   inputs.set(0, share_of_ties(restore_axes(gradients[0], mask, a.ndim(), keepdim), a,
                                               restore_axes(y.unpack(), mask, a.ndim(), keepdim)));
                 });
  return y;
}

Tensor arg_reduce(Op op, const Tensor& x, std::optional<int64_t> axis, bool keepdim) {
  const Dims axes = axis ? Dims{*axis} : Dims{};
  return reduce(op, x, axes_mask(name(op), x, axes), keepdim);
}

}  // namespace

Tensor Tensor::sum(const Axes& axes, bool keepdim) const {
  const uint64_t mask = axes_mask("sum", *this, axes);
  Tensor y = reduce(Op::sum, *this, mask, keepdim);
  if (needs_tape({this}) && is_floating(y.dtype()))
    record_on_tape("sum", {this}, {&y},
                   [from = sizes(), mask, keepdim](std::span<const Tensor> gradients, InputGradients inputs) {
                     inputs.set(0, restore_axes(gradients[0], mask, from.size(), keepdim).expand(from));
                   });
  return y;
}

Tensor Tensor::prod(const Axes& axes, bool keepdim) const {
  ETCH_CHECK(!needs_tape({this}), AutogradError,
             "prod: expected a tensor without gradients (prod has none); detach() it");
  return reduce(Op::prod, *this, axes_mask("prod", *this, axes), keepdim);
}

Tensor Tensor::mean(const Axes& axes, bool keepdim) const {
  const int64_t count = reduced_count(*this, axes_mask("mean", *this, axes));
  const Tensor x = is_floating(dtype()) ? *this : to(DType::F32);
  return x.sum(axes, keepdim) / static_cast<double>(count);
}

Tensor Tensor::var(const Axes& axes, int64_t correction, bool keepdim) const {
  const int64_t count = reduced_count(*this, axes_mask("var", *this, axes));
  const Tensor x = is_floating(dtype()) ? *this : to(DType::F32);
  const Tensor centered = x - x.mean(axes, true);
  return centered.square().sum(axes, keepdim) / static_cast<double>(count - correction);
}

Tensor Tensor::amax(const Axes& axes, bool keepdim) const {
  return reduce_extremum(Op::amax, *this, axes, keepdim);
}
Tensor Tensor::amin(const Axes& axes, bool keepdim) const {
  return reduce_extremum(Op::amin, *this, axes, keepdim);
}
Tensor Tensor::any(const Axes& axes, bool keepdim) const {
  return reduce(Op::any, to(DType::Bool), axes_mask("any", *this, axes), keepdim);
}
Tensor Tensor::all(const Axes& axes, bool keepdim) const {
  return reduce(Op::all, to(DType::Bool), axes_mask("all", *this, axes), keepdim);
}
Tensor Tensor::argmax(std::optional<int64_t> axis, bool keepdim) const {
  return arg_reduce(Op::argmax, *this, axis, keepdim);
}
Tensor Tensor::argmin(std::optional<int64_t> axis, bool keepdim) const {
  return arg_reduce(Op::argmin, *this, axis, keepdim);
}

Tensor Tensor::softmax(int64_t axis) const {
  const Attrs attrs = AxisAttrs(normalize_axis("softmax", axis, ndim())).pack();
  const Tensor x = is_floating(dtype()) ? *this : to(DType::F32);
  Tensor y = apply(Op::softmax, {x}, attrs);
  if (needs_tape({&x}))
    record_on_tape("softmax", {&x}, {&y},
                   [y = SavedTensor(y.detach(), "softmax"), attrs](std::span<const Tensor> gradients,
                                                                   InputGradients inputs) {
                     refuse_create_graph("softmax");
                     inputs.set(0, apply(Op::softmax_grad, {gradients[0], y.unpack()}, attrs));
                   });
  return y;
}

Tensor Tensor::log_softmax(int64_t axis) const {
  const Attrs attrs = AxisAttrs(normalize_axis("log_softmax", axis, ndim())).pack();
  const Tensor x = is_floating(dtype()) ? *this : to(DType::F32);
  Tensor y = apply(Op::log_softmax, {x}, attrs);
  if (needs_tape({&x}))
    record_on_tape("log_softmax", {&x}, {&y},
                   [y = SavedTensor(y.detach(), "log_softmax"), attrs](std::span<const Tensor> gradients,
                                                                       InputGradients inputs) {
                     refuse_create_graph("log_softmax");
                     inputs.set(0, apply(Op::log_softmax_grad, {gradients[0], y.unpack()}, attrs));
                   });
  return y;
}

}  // namespace etch
