// Views: geometry changes that share storage, with their gradients; copies of layout.
#include <algorithm>

#include "eager/apply.h"
#include "eager/tape.h"

namespace etch {

namespace {

template <class F>
Tensor taped(const char* op, const Tensor& x, Tensor result, F backward) {
  if (needs_tape({&x}))
    record_on_tape(op, {&x}, {&result}, [backward](std::span<const Tensor> gradients, InputGradients inputs) {
      inputs.set(0, backward(gradients[0]));
    });
  return result;
}

// Records a view whose gradient is `backward(gradient)`, and what it is a view of.
template <class F>
Tensor taped_view(const char* op, const Tensor& of, Tensor view, F backward) {
  const TensorImpl& impl = of.impl();
  if (grad_enabled() && (!impl.is_view || impl.base)) view.impl().base = impl.base ? impl.base : of.ref();
  return taped(op, of, std::move(view), backward);
}

// Zeros of `sizes` with `gradient` at [start, ...) by `step` of an axis: the gradient of slice.
Tensor slice_grad(const Tensor& gradient, const Dims& sizes, int axis, int64_t start, int64_t step) {
  Tensor whole = zeros(sizes, {.dtype = gradient.dtype(), .device = gradient.device()});
  Geometry window = contiguous(sizes);
  const int64_t offset = gradient.numel() ? start * window.strides[axis] : 0;
  const int64_t count = window.sizes[axis] = gradient.sizes()[axis];
  window.strides[axis] *= step;
  Tensor part = make_view(whole, window, offset);
  no_grad([&] { part.copy_(gradient); });
  return taped("slice_grad", gradient, whole, [axis, start, count, step](const Tensor& second) {
    return second.slice(axis, start, start + (count - 1) * step + 1, step);
  });
}

Dims resolve_sizes(std::string_view op, const Tensor& x, Dims sizes) {
  int64_t known = 1;
  int open = -1;
  for (int i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == -1) {
      ETCH_CHECK(open < 0, ShapeError, op, ": expected at most one -1, got ", to_string(sizes));
      open = i;
    } else {
      ETCH_CHECK(sizes[i] >= 0, ShapeError, op, ": expected sizes of 0 or more (or one -1), got ",
                 to_string(sizes));
      known *= sizes[i];
    }
  }
  if (open >= 0 && known > 0) sizes[open] = x.numel() / known;
  if (open >= 0 && known == 0) sizes[open] = 0;
  ETCH_CHECK(num_elements(sizes) == x.numel(), ShapeError, op, ": expected sizes of ", x.numel(),
             " elements as in ", to_string(x.sizes()), ", got ", to_string(sizes));
  return sizes;
}

// Strides under which the elements of `from` have `sizes`, or nothing where a copy is needed. Old dimensions
// that form one run of memory are a chunk; from the last axis on, new sizes must fill chunk after chunk
// exactly.
std::optional<Dims> view_strides(const Geometry& from, const Dims& sizes) {
  if (from.numel() == 0) return contiguous_strides(sizes);
  Dims strides = Dims::filled(sizes.size(), 1);
  int to = sizes.size() - 1;
  int64_t old_count = 1, new_count = 1;
  int64_t step = from.ndim() > 0 ? from.strides.back() : 1;
  for (int i = from.ndim() - 1; i >= 0; --i) {
    old_count *= from.sizes[i];
    const bool chunk_goes_on = i > 0 && (from.sizes[i - 1] == 1 || from.strides[i - 1] == old_count * step);
    if (chunk_goes_on) continue;
    for (; to >= 0 && (new_count < old_count || sizes[to] == 1); --to) {
      strides[to] = new_count * step;
      new_count *= sizes[to];
    }
    if (new_count != old_count) return {};
    if (i > 0) step = from.strides[i - 1];
    old_count = new_count = 1;
  }
  return strides;
}

Dims insert_axis(Dims dims, int at, int64_t value) {
  dims.insert(at, value);
  return dims;
}

Tensor copy_with_strides(const Tensor& x, const Dims& strides) {
  Tensor result = make_empty({x.sizes(), strides}, x.dtype(), x.device());
  const Arg operand(x);
  apply(Op::copy, {&operand, 1}, {}, x.dtype(), {&result, 1});
  return taped("copy", x, result, [](const Tensor& gradient) { return gradient; });
}

}  // namespace

int64_t Tensor::size(int64_t axis) const {
  ETCH_CHECK(ndim() > 0, IndexError, "size: expected at least one dimension, got a 0-d tensor");
  return sizes()[normalize_axis("size", axis, ndim())];
}

Tensor Tensor::view(const Dims& requested) const {
  const Dims to = resolve_sizes("view", *this, requested);
  const std::optional<Dims> strides = view_strides(impl().geometry, to);
  ETCH_CHECK(strides, ShapeError, "view: expected strides that allow ", etch::to_string(to),
             " without a copy, got sizes ", etch::to_string(sizes()), " with strides ",
             etch::to_string(this->strides()), "; use reshape");
  return taped_view("view", *this, make_view(*this, {to, *strides}, impl().offset),
                    [from = sizes()](const Tensor& gradient) { return gradient.reshape(from); });
}

Tensor Tensor::reshape(const Dims& requested) const {
  const Dims to = resolve_sizes("reshape", *this, requested);
  return view_strides(impl().geometry, to) ? view(to) : contiguous().view(to);
}

Tensor Tensor::flatten(int64_t from, int64_t to) const {
  if (ndim() == 0) return reshape({1});
  const int first = normalize_axis("flatten", from, ndim()), last = normalize_axis("flatten", to, ndim());
  Dims flat;
  for (int i = 0; i < ndim(); ++i) {
    if (i > first && i <= last) {
      flat[flat.size() - 1] *= sizes()[i];
    } else {
      flat.push_back(sizes()[i]);
    }
  }
  return reshape(flat);
}

Tensor Tensor::permute(const Dims& axes) const {
  ETCH_CHECK(axes.size() == ndim(), ShapeError, "permute: expected ", ndim(), " axes, got ",
             etch::to_string(axes));
  Geometry geometry;
  Dims inverse = Dims::filled(ndim(), -1);
  for (int i = 0; i < ndim(); ++i) {
    const int axis = normalize_axis("permute", axes[i], ndim());
    ETCH_CHECK(inverse[axis] < 0, ShapeError, "permute: expected distinct axes, got ", etch::to_string(axes));
    inverse[axis] = i;
    geometry.sizes.push_back(sizes()[axis]);
    geometry.strides.push_back(strides()[axis]);
  }
  return taped_view("permute", *this, make_view(*this, geometry, impl().offset),
                    [inverse](const Tensor& gradient) { return gradient.permute(inverse); });
}

Tensor Tensor::transpose(int64_t axis_a, int64_t axis_b) const {
  if (ndim() == 0) return *this;
  Dims axes;
  for (int i = 0; i < ndim(); ++i) axes.push_back(i);
  std::swap(axes[normalize_axis("transpose", axis_a, ndim())],
            axes[normalize_axis("transpose", axis_b, ndim())]);
  return permute(axes);
}

Tensor Tensor::squeeze(int64_t axis) const {
  const int at = normalize_axis("squeeze", axis, ndim());
  if (ndim() == 0 || sizes()[at] != 1) return *this;
  Geometry geometry = impl().geometry;
  geometry.sizes.erase(at);
  geometry.strides.erase(at);
  return taped_view("squeeze", *this, make_view(*this, geometry, impl().offset),
                    [at](const Tensor& gradient) { return gradient.unsqueeze(at); });
}

Tensor Tensor::squeeze() const {
  Geometry geometry = impl().geometry;
  for (int i = geometry.ndim(); i-- > 0;) {
    if (geometry.sizes[i] != 1) continue;
    geometry.sizes.erase(i);
    geometry.strides.erase(i);
  }
  if (geometry.ndim() == ndim()) return *this;
  return taped_view("squeeze", *this, make_view(*this, geometry, impl().offset),
                    [from = sizes()](const Tensor& gradient) { return gradient.reshape(from); });
}

Tensor Tensor::unsqueeze(int64_t axis) const {
  const int at = normalize_axis("unsqueeze", axis, ndim() + 1);
  const int64_t stride = at < ndim() ? sizes()[at] * strides()[at] : 1;
  const Geometry geometry{insert_axis(sizes(), at, 1), insert_axis(strides(), at, stride)};
  return taped_view("unsqueeze", *this, make_view(*this, geometry, impl().offset),
                    [at](const Tensor& gradient) { return gradient.squeeze(at); });
}

Tensor Tensor::expand(const Dims& requested) const {
  Dims to = requested;
  const int extra = to.size() - ndim();
  for (int i = 0; i < to.size(); ++i)
    if (to[i] == -1 && i >= extra) to[i] = sizes()[i - extra];
  ETCH_CHECK(can_broadcast_to(sizes(), to), ShapeError, "expand: expected sizes that ",
             etch::to_string(sizes()), " broadcasts to, got ", etch::to_string(requested));
  check_sizes("expand", to);
  if (to == sizes()) return *this;
  return taped_view(
      "expand", *this, make_view(*this, broadcast_to(impl().geometry, to), impl().offset),
      [from = sizes(), type = dtype()](const Tensor& gradient) { return reduce_to(gradient, from, type); });
}

Tensor Tensor::slice(int64_t axis, int64_t start, int64_t stop, int64_t step) const {
  ETCH_CHECK(ndim() > 0, ShapeError, "slice: expected at least one dimension, got a 0-d tensor");
  ETCH_CHECK(step > 0, ValueError, "slice: expected a positive step, got ", step,
             "; use flip for the reverse order");
  const int at = normalize_axis("slice", axis, ndim());
  const int64_t count = sizes()[at];
  const auto clip = [count](int64_t position) {
    return std::clamp<int64_t>(position < 0 ? position + count : position, 0, count);
  };
  start = clip(start);
  stop = std::max(start, clip(stop));
  step =
      std::min(step, std::max<int64_t>(count, 1));  // a longer one takes the same elements, and may overflow
  Geometry geometry = impl_->geometry;
  geometry.sizes[at] = (stop - start + step - 1) / step;
  geometry.strides[at] *= step;
  const int64_t shift = start * strides()[at];
  return taped_view("slice", *this,
                    make_view(*this, geometry, impl().offset + (geometry.numel() ? shift : 0)),
                    [from = sizes(), at, start, step](const Tensor& gradient) {
                      return slice_grad(gradient, from, at, start, step);
                    });
}

Tensor Tensor::select(int64_t axis, int64_t position) const {
  ETCH_CHECK(ndim() > 0, IndexError, "select: expected at least one dimension, got a 0-d tensor");
  const int at = normalize_axis("select", axis, ndim());
  const int64_t count = sizes()[at];
  ETCH_CHECK(position >= -count && position < count, IndexError, "select: expected a position in [", -count,
             ", ", count, ") of axis ", at, ", got ", position);
  if (position < 0) position += count;
  return slice(at, position, position + 1).squeeze(at);
}

Tensor Tensor::narrow(int64_t axis, int64_t start, int64_t length) const {
  ETCH_CHECK(ndim() > 0, IndexError, "narrow: expected at least one dimension, got a 0-d tensor");
  const int at = normalize_axis("narrow", axis, ndim());
  const int64_t count = sizes()[at];
  ETCH_CHECK(start >= -count && start <= count, IndexError, "narrow: expected a start in [", -count, ", ",
             count, "] of axis ", at, ", got ", start);
  if (start < 0) start += count;
  ETCH_CHECK(length >= 0 && length <= count - start, IndexError, "narrow: expected a length in [0, ",
             count - start, "] from ", start, " of axis ", at, ", got ", length);
  return slice(at, start, start + length);
}

std::vector<Tensor> Tensor::split(int64_t size, int64_t axis) const {
  ETCH_CHECK(size > 0, ValueError, "split: expected a size above 0, got ", size);
  const int at = normalize_axis("split", axis, ndim());
  std::vector<Tensor> parts{slice(at, 0, size)};  // one part, though empty, of an axis without positions
  for (int64_t start = size; start < sizes()[at]; start += size)
    parts.push_back(slice(at, start, start + size));
  return parts;
}

std::vector<Tensor> Tensor::chunk(int64_t count, int64_t axis) const {
  ETCH_CHECK(count > 0, ValueError, "chunk: expected a count above 0, got ", count);
  return split(std::max<int64_t>(1, (size(axis) + count - 1) / count), axis);
}

std::vector<Tensor> Tensor::unbind(int64_t axis) const {
  std::vector<Tensor> parts;
  for (int64_t i = 0; i < size(axis); ++i) parts.push_back(select(axis, i));
  return parts;
}

Tensor Tensor::operator[](std::initializer_list<Index> indices) const {
  Tensor result = *this;
  int axis = 0;
  for (const Index& index : indices) {
    switch (index.kind) {
      case Index::Kind::Position:
        result = result.select(axis, index.position);
        break;
      case Index::Kind::NewAxis:
        result = result.unsqueeze(axis++);
        break;
      case Index::Kind::Range:
        if (index.range.start || index.range.stop || index.range.step != 1)
          result = result.slice(axis, index.range.start.value_or(0),
                                index.range.stop.value_or(result.size(axis)), index.range.step);
        ++axis;
        break;
    }
  }
  return result;
}

Tensor Tensor::contiguous() const {
  return is_contiguous() ? *this : copy_with_strides(*this, contiguous_strides(sizes()));
}

Tensor Tensor::channels_last() const {
  ETCH_CHECK(ndim() == 4, ShapeError, "channels_last: expected [N, C, H, W], got ", etch::to_string(sizes()));
  return is_channels_last(impl().geometry) ? *this : copy_with_strides(*this, channels_last_strides(sizes()));
}

Tensor Tensor::clone() const { return copy_with_strides(*this, packed_strides_like(sizes(), strides())); }

Tensor Tensor::to(Device device) const {
  ETCH_CHECK(device == this->device(), DeviceError, "to: expected ", etch::to_string(this->device()),
             ", got ", etch::to_string(device));
  return *this;
}

Tensor Tensor::flip(const Axes& axes) const {
  Tensor result = *this;
  for (int64_t axis : axes) {
    if (ndim() == 0) {
      normalize_axis("flip", axis, 0);
      continue;
    }
    const int at = normalize_axis("flip", axis, ndim());
    const int64_t count = sizes()[at];
    result = result.index_select(at, arange(count - 1, -1, -1, {.dtype = DType::I64}));
  }
  return result;
}

Tensor concat(const std::vector<Tensor>& tensors, int64_t axis) {
  ETCH_CHECK(!tensors.empty(), ValueError, "concat: expected at least one tensor");
  const int at = normalize_axis("concat", axis, tensors[0].ndim());
  ETCH_CHECK(tensors[0].ndim() > 0, ShapeError,
             "concat: expected at least one dimension, got 0-d tensors; use stack");
  std::vector<Arg> args(tensors.begin(), tensors.end());
  const DType dtype = result_type(args);
  Dims sizes = tensors[0].sizes();
  sizes[at] = 0;
  bool tape = false;
  for (const Tensor& tensor : tensors) {
    Dims others = tensor.sizes();
    const bool fits = others.size() == sizes.size();
    if (fits) others[at] = sizes[at];
    ETCH_CHECK(fits && others == sizes, ShapeError, "concat: expected sizes like ",
               to_string(tensors[0].sizes()), " apart from axis ", at, ", got ", to_string(tensor.sizes()));
    sizes[at] += tensor.sizes()[at];
    tape |= needs_tape({&tensor});
  }
  const Dims strides = packed_strides_like(sizes, tensors[0].strides());
  Tensor result = make_empty({sizes, strides}, dtype, tensors[0].device());
  std::vector<int64_t> starts;
  int64_t start = 0;
  for (const Tensor& tensor : tensors) {
    Geometry window{tensor.sizes(), strides};
    Tensor part = make_view(result, window, start * strides[at]);
    no_grad([&] { part.copy_(tensor); });
    starts.push_back(start);
    start += tensor.sizes()[at];
  }
  starts.push_back(start);
  if (!tape) return result;
  auto backward = [at, starts, dtypes = [&] {
    std::vector<DType> list;
    for (const Tensor& tensor : tensors) list.push_back(tensor.dtype());
    return list;
  }()](std::span<const Tensor> gradients, InputGradients inputs) {
    for (size_t i = 0; i + 1 < starts.size(); ++i)
      if (inputs.needs(static_cast<int>(i)))
        inputs.set(static_cast<int>(i), gradients[0].slice(at, starts[i], starts[i + 1]).to(dtypes[i]));
  };
  Ref<TapeNode> node(new ClosureNode<decltype(backward)>("concat", std::move(backward)));
  for (const Tensor& tensor : tensors) node->edges.push_back(edge_of(tensor));
  set_grad_fn(result, node, 0);
  return result;
}

Tensor stack(const std::vector<Tensor>& tensors, int64_t axis) {
  ETCH_CHECK(!tensors.empty(), ValueError, "stack: expected at least one tensor");
  const int at = normalize_axis("stack", axis, tensors[0].ndim() + 1);
  std::vector<Tensor> rows;
  for (const Tensor& tensor : tensors) {
    ETCH_CHECK(tensor.sizes() == tensors[0].sizes(), ShapeError, "stack: expected sizes ",
               to_string(tensors[0].sizes()), ", got ", to_string(tensor.sizes()));
    rows.push_back(tensor.unsqueeze(at));
  }
  return concat(rows, at);
}

Tensor pad(const Tensor& x, const std::vector<std::pair<int64_t, int64_t>>& amounts, Scalar value) {
  ETCH_CHECK(static_cast<int>(amounts.size()) <= x.ndim(), ShapeError, "pad: expected at most ", x.ndim(),
             " pairs, got ", static_cast<int64_t>(amounts.size()));
  Dims sizes = x.sizes();
  for (size_t i = 0; i < amounts.size(); ++i) {
    ETCH_CHECK(amounts[i].first >= 0 && amounts[i].second >= 0, ValueError,
               "pad: expected amounts of 0 or more, got ", amounts[i].first, " and ", amounts[i].second);
    sizes[x.ndim() - 1 - static_cast<int>(i)] += amounts[i].first + amounts[i].second;
  }
  const Dims strides = packed_strides_like(sizes, x.strides());
  Tensor result = make_empty({sizes, strides}, x.dtype(), x.device());
  int64_t offset = 0;
  for (size_t i = 0; i < amounts.size(); ++i)
    offset += amounts[i].first * strides[x.ndim() - 1 - static_cast<int>(i)];
  result.fill_(value);
  Tensor inner = make_view(result, {x.sizes(), strides}, x.numel() ? offset : 0);
  no_grad([&] { inner.copy_(x); });
  if (needs_tape({&x}))
    record_on_tape("pad", {&x}, {&result},
                   [amounts, from = x.sizes()](std::span<const Tensor> gradients, InputGradients inputs) {
                     Tensor gradient = gradients[0];
                     for (size_t i = 0; i < amounts.size(); ++i) {
                       const int axis = from.size() - 1 - static_cast<int>(i);
                       gradient = gradient.slice(axis, amounts[i].first, amounts[i].first + from[axis]);
                     }
                     inputs.set(0, gradient);
                   });
  return result;
}

}  // namespace etch
