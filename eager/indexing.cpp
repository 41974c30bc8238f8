// Gathering and scattering by index tensors, with their gradients.
#include "eager/apply.h"
#include "eager/tape.h"

namespace etch {

namespace {
Tensor as_index(std::string_view op, const Tensor& index) {
  ETCH_CHECK(is_integral(index.dtype()) && index.dtype() != DType::Bool, DTypeError, op,
             ": expected integer indices, got ", name(index.dtype()));
  return index.to(DType::I64);
}
Tensor zeros_of(const Dims& sizes, const Tensor& like) {
  return zeros(sizes, {.dtype = like.dtype(), .device = like.device()});
}
}  // namespace

Tensor Tensor::index_select(int64_t axis, const Tensor& positions) const {
  const int at = normalize_axis("index_select", axis, ndim());
  const Tensor index = as_index("index_select", positions);
  Tensor y = apply(Op::index_select, {*this, index}, AxisAttrs(at).pack(), dtype());
  if (needs_tape({this}))
    record_on_tape("index_select", {this}, {&y},
                   [from = sizes(), at, index = SavedTensor(index, "index_select")](
                       std::span<const Tensor> gradients, InputGradients inputs) {
                     inputs.set(0, zeros_of(from, gradients[0]).index_add(at, index.unpack(), gradients[0]));
                   });
  return y;
}

Tensor Tensor::index_add(int64_t axis, const Tensor& positions, const Tensor& source) const {
  const int at = normalize_axis("index_add", axis, ndim());
  const Tensor index = as_index("index_add", positions);
  Tensor y = apply(Op::index_add, {*this, index, source.to(dtype())}, AxisAttrs(at).pack(), dtype());
  if (needs_tape({this, &source}))
    record_on_tape("index_add", {this, &source}, {&y},
                   [at, index = SavedTensor(index, "index_add"), type = source.dtype()](
                       std::span<const Tensor> gradients, InputGradients inputs) {
                     inputs.set(0, gradients[0]);
                     if (inputs.needs(1))
                       inputs.set(1, gradients[0].index_select(at, index.unpack()).to(type));
                   });
  return y;
}

Tensor Tensor::gather(int64_t axis, const Tensor& positions) const {
  const int at = normalize_axis("gather", axis, ndim());
  const Tensor index = as_index("gather", positions);
  Tensor y = apply(Op::gather, {*this, index}, AxisAttrs(at).pack(), dtype());
  if (needs_tape({this}))
    record_on_tape("gather", {this}, {&y},
                   [from = sizes(), at, index = SavedTensor(index, "gather")](
                       std::span<const Tensor> gradients, InputGradients inputs) {
                     inputs.set(0,
                                zeros_of(from, gradients[0]).scatter_add(at, index.unpack(), gradients[0]));
                   });
  return y;
}

Tensor Tensor::scatter_add(int64_t axis, const Tensor& positions, const Tensor& source) const {
  const int at = normalize_axis("scatter_add", axis, ndim());
  const Tensor index = as_index("scatter_add", positions);
  Tensor y = apply(Op::scatter_add, {*this, index, source.to(dtype())}, AxisAttrs(at).pack(), dtype());
  if (needs_tape({this, &source}))
    record_on_tape("scatter_add", {this, &source}, {&y},
                   [at, index = SavedTensor(index, "scatter_add"), type = source.dtype(),
                    from = source.sizes()](std::span<const Tensor> gradients, InputGradients inputs) {
                     inputs.set(0, gradients[0]);
                     if (!inputs.needs(1)) return;
                     const Tensor used = gradients[0].gather(at, index.unpack()).to(type);
                     std::vector<std::pair<int64_t, int64_t>> unused;  // of a source larger than the index
                     for (int i = from.size() - 1; i >= 0; --i)
                       unused.emplace_back(0, from[i] - used.sizes()[i]);
                     inputs.set(1, used.sizes() == from ? used : pad(used, unused));
                   });
  return y;
}

}  // namespace etch
