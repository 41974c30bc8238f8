// The interpreter's contractions, windows and indexing, by their definitions.
#include "runtime/error.h"
#include "tracer/attrs.h"
#include "tracer/interpreter_ops.h"

namespace etch::interpreter {
namespace {

/// to += a * b
void multiply_add(Number& to, Number a, Number b, DType dtype) {
  if (is_floating(dtype))
    to.f += a.f * b.f;
  else
    to.i += a.i * b.i;
}

void add(Number& to, Number a, DType dtype) {
  multiply_add(to, a, is_floating(dtype) ? Number{.f = 1} : Number{.i = 1}, dtype);
}

/// Integers wrap to their dtype.
void wrap(Array& array) {
  if (is_floating(array.dtype)) return;
  for (Number& element : array.elements) element = convert(element, DType::I64, array.dtype);
}

void matmul(const Array& a, const Array& b, Array& output) {
  const int ndim = output.sizes.size();
  const int64_t inner = a.sizes[a.sizes.size() - 1];
  // An index of the output, cut to an operand's dimensions, with 0 where it is broadcast.
  const auto cut = [&](const Dims& index, const Array& array) {
    Dims result;
    for (int i = ndim - array.sizes.size(); i < ndim; ++i)
      result.push_back(array.sizes[i - (ndim - array.sizes.size())] == 1 ? 0 : index[i]);
    return result;
  };
  if (output.elements.empty()) return;
  Dims index = Dims::filled(ndim, 0);
  do {
    Dims left = cut(index, a), right = cut(index, b);
    left[left.size() - 2] = index[ndim - 2];
    right[right.size() - 1] = index[ndim - 1];
    Number& total = output.at(index);
    for (int64_t k = 0; k < inner; ++k) {
      left[left.size() - 1] = k;
      right[right.size() - 2] = k;
      multiply_add(total, a.at(left), b.at(right), output.dtype);
    }
  } while (next_index(index, output.sizes));
  wrap(output);
}

/// Calls `visit(x index, w index, y index)` for every product in a convolution of x [N, C, H, W] by w.
template <class F>
void for_each_product(const ConvAttrs& attrs, const Dims& x, const Dims& w, const Dims& y, F visit) {
  const int64_t outputs_per_group = w[0] / attrs.groups;
  const Dims loop{y[0], y[1], y[2], y[3], w[1], w[2], w[3]};
  if (num_elements(loop) == 0) return;
  Dims at = Dims::filled(7, 0);
  do {
    const int64_t channel = at[1] / outputs_per_group * w[1] + at[4];
    const int64_t row = at[2] * attrs.stride[0] - attrs.padding[0] + at[5] * attrs.dilation[0];
    const int64_t column = at[3] * attrs.stride[1] - attrs.padding[1] + at[6] * attrs.dilation[1];
    if (row < 0 || row >= x[2] || column < 0 || column >= x[3]) continue;
    visit(Dims{at[0], channel, row, column}, Dims{at[1], at[4], at[5], at[6]},
          Dims{at[0], at[1], at[2], at[3]});
  } while (next_index(at, loop));
}

void conv2d(const Call& call, Array& output) {
  const Array &x = call.inputs[0], &w = call.inputs[1];
  for_each_product(
      ConvAttrs(call.attrs), x.sizes, w.sizes, output.sizes,
      [&](const Dims& i, const Dims& k, const Dims& o) { output.at(o).f += x.at(i).f * w.at(k).f; });
  if (!call.present[2] || output.elements.empty()) return;
  Dims index = Dims::filled(4, 0);
  do output.at(index).f += call.inputs[2].elements[index[1]].f;
  while (next_index(index, output.sizes));
}

void conv2d_input_grad(const Call& call, Array& output) {
  const Array &g = call.inputs[0], &w = call.inputs[1];
  for_each_product(
      ConvAttrs(call.attrs), output.sizes, w.sizes, g.sizes,
      [&](const Dims& i, const Dims& k, const Dims& o) { output.at(i).f += g.at(o).f * w.at(k).f; });
}

void conv2d_weight_grad(const Call& call, Array& output) {
  const Array &g = call.inputs[0], &x = call.inputs[1];
  for_each_product(
      ConvAttrs(call.attrs), x.sizes, output.sizes, g.sizes,
      [&](const Dims& i, const Dims& k, const Dims& o) { output.at(k).f += g.at(o).f * x.at(i).f; });
}

/// Calls `visit(y index, x index)` for every element of every window that lies within x.
template <class F>
void for_each_in_windows(const PoolAttrs& attrs, const Dims& x, const Dims& y, F visit) {
  const Dims loop{y[0], y[1], y[2], y[3], attrs.kernel[0], attrs.kernel[1]};
  if (num_elements(loop) == 0) return;
  Dims at = Dims::filled(6, 0);
  do {
    const int64_t row = at[2] * attrs.stride[0] - attrs.padding[0] + at[4];
    const int64_t column = at[3] * attrs.stride[1] - attrs.padding[1] + at[5];
    if (row < 0 || row >= x[2] || column < 0 || column >= x[3]) continue;
    visit(Dims{at[0], at[1], at[2], at[3]}, Dims{at[0], at[1], row, column});
  } while (next_index(at, loop));
}

void max_pool2d(const Call& call, std::vector<Array>& outputs) {
  const Array& x = call.inputs[0];
  std::vector<bool> seen(outputs[0].elements.size());
  for_each_in_windows(PoolAttrs(call.attrs), x.sizes, outputs[0].sizes, [&](const Dims& o, const Dims& i) {
    const int64_t at = outputs[0].position(o);
    const Number now = outputs[0].elements[at], other = x.at(i);
    const bool beats =
        is_floating(x.dtype) ? now.f == now.f && (other.f > now.f || other.f != other.f) : other.i > now.i;
    if (seen[at] && !beats) return;
    seen[at] = true;
    outputs[0].elements[at] = other;
    outputs[1].elements[at].i = i[2] * x.sizes[3] + i[3];
  });
}

void max_pool2d_grad(const Call& call, Array& output) {
  const Array &g = call.inputs[0], &indices = call.inputs[1];
  const int64_t plane = output.sizes[2] * output.sizes[3];
  const int64_t windows = g.sizes[2] * g.sizes[3];
  for (size_t i = 0; i < g.elements.size(); ++i) {
    const int64_t index = indices.elements[i].i;
    ETCH_CHECK(index >= 0 && index < plane, IndexError, name(call.op), ": expected indices in [0, ", plane,
               "), got ", index);
    output.elements[static_cast<int64_t>(i) / windows * plane + index].f += g.elements[i].f;
  }
}

void avg_pool2d(const Call& call, Array& output) {
  const PoolAttrs attrs(call.attrs);
  const Array& x = call.inputs[0];
  for_each_in_windows(attrs, x.sizes, output.sizes,
                      [&](const Dims& o, const Dims& i) { output.at(o).f += x.at(i).f; });
  for (Number& element : output.elements) element.f /= static_cast<double>(attrs.kernel[0] * attrs.kernel[1]);
}

void avg_pool2d_grad(const Call& call, Array& output) {
  const PoolAttrs attrs(call.attrs);
  const Array& g = call.inputs[0];
  const double area = static_cast<double>(attrs.kernel[0] * attrs.kernel[1]);
  for_each_in_windows(attrs, output.sizes, g.sizes,
                      [&](const Dims& o, const Dims& i) { output.at(i).f += g.at(o).f / area; });
}

}  // namespace

void run_contraction(const Call& call, Array& output) {
  switch (call.op) {
    case Op::conv2d:
      return conv2d(call, output);
    case Op::conv2d_input_grad:
      return conv2d_input_grad(call, output);
    case Op::conv2d_weight_grad:
      return conv2d_weight_grad(call, output);
    default:
      return matmul(call.inputs[0], call.inputs[1], output);
  }
}

void run_window(const Call& call, std::vector<Array>& outputs) {
  switch (call.op) {
    case Op::max_pool2d:
      return max_pool2d(call, outputs);
    case Op::max_pool2d_grad:
      return max_pool2d_grad(call, outputs[0]);
    case Op::avg_pool2d:
      return avg_pool2d(call, outputs[0]);
    default:
      return avg_pool2d_grad(call, outputs[0]);
  }
}

void run_indexing(const Call& call, Array& output) {
  const int axis = AxisAttrs(call.attrs).axis;
  const Array &x = call.inputs[0], &index = call.inputs[1];
  for (const Number& element : index.elements)
    ETCH_CHECK(element.i >= 0 && element.i < x.sizes[axis], IndexError, name(call.op),
               ": expected indices in [0, ", x.sizes[axis], "), got ", element.i);
  // Selecting walks the output, adding walks what is added: the source cut to the index's sizes.
  const bool adds = call.op == Op::index_add || call.op == Op::scatter_add;
  const bool by_slice = call.op == Op::index_select || call.op == Op::index_add;
  const Dims walked = !adds ? output.sizes : by_slice ? call.inputs[2].sizes : index.sizes;
  if (adds) output.elements = x.elements;
  if (num_elements(walked) == 0) return;
  Dims at = Dims::filled(walked.size(), 0);
  do {
    Dims chosen = at;
    chosen[axis] = by_slice ? index.elements[at[axis]].i : index.at(at).i;
    if (adds)
      add(output.at(chosen), call.inputs[2].at(at), output.dtype);
    else
      output.at(at) = x.at(chosen);
  } while (next_index(at, walked));
  wrap(output);
}

}  // namespace etch::interpreter
