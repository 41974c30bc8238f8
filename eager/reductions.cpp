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

namespace {

/// softmax and log_softmax: their gradients need the output alone.
class SoftmaxNode final : public TapeNode {
 public:
  SoftmaxNode(Op op, const Tensor& x, int axis) : op_(op), axis_(axis) { edges.push_back(edge_of(x)); }
  void save(const Tensor& y) { y_ = SavedTensor::output(y, etch::name(op_)); }

  std::string name() const override { return backward_name(etch::name(op_)); }

  void backward(std::span<const Tensor> gradients, InputGradients inputs) override {
    const Tensor &g = gradients[0], y = y_.unpack(this);
    const bool log = op_ == Op::log_softmax;
    if (!grad_enabled())
      inputs.set(0, apply(log ? Op::log_softmax_grad : Op::softmax_grad, {g, y}, AxisAttrs(axis_).pack()));
    else if (log)  // with create_graph: in ops that have gradients
      inputs.set(0, g - y.exp() * g.sum(axis_, true));
    else
      inputs.set(0, y * (g - (g * y).sum(axis_, true)));
  }

  void release() override { y_.reset(); }

 private:
  Op op_;
  int axis_;
  SavedTensor y_;
};

Tensor along_axis(Op op, const Tensor& of, int64_t axis) {
  const int at = normalize_axis(name(op), axis, of.ndim());
  const Tensor x = is_floating(of.dtype()) ? of : of.to(DType::F32);
  Tensor y = apply(op, {x}, AxisAttrs(at).pack());
  if (needs_tape({&x})) {
    SoftmaxNode* node = new SoftmaxNode(op, x, at);
    set_grad_fn(y, Ref<TapeNode>::first(node), 0);
    node->save(y);
  }
  return y;
}

}  // namespace

Tensor Tensor::softmax(int64_t axis) const { return along_axis(Op::softmax, *this, axis); }
Tensor Tensor::log_softmax(int64_t axis) const { return along_axis(Op::log_softmax, *this, axis); }

}  // namespace etch
