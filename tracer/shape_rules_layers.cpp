// Shape rules of contractions, windows and indexing.
#include "tracer/shape_rules.h"

namespace etch::shape_rules {
namespace {

void need_numeric_pair(const Inference& call) {
  call.need_tensor(0, "the first operand");
  call.need_tensor(1, "the second operand");
  ETCH_CHECK(call.dtype(0) == call.dtype(1), DTypeError, call.name(),
             ": expected operands of one dtype, got ", name(call.dtype(0)), " and ", name(call.dtype(1)));
  ETCH_CHECK(call.dtype(0) != DType::Bool && call.dtype(0) != DType::U8, DTypeError, call.name(),
             ": expected a floating dtype, i32 or i64, got ", name(call.dtype(0)));
}

/// How many places a window of `kernel` elements, `dilation` apart, has in a padded axis.
int64_t window_places(const Inference& call, int64_t size, int64_t kernel, int64_t stride, int64_t padding,
                      int64_t dilation, const Dims& sizes) {
  ETCH_CHECK(stride > 0 && padding >= 0 && dilation > 0 && kernel > 0, ValueError, call.name(),
             ": expected kernel, stride and dilation above 0 and padding of at least 0, got ", kernel, ", ",
             stride, ", ", dilation, " and ", padding);
  const int64_t reach = dilation * (kernel - 1) + 1;
  const int64_t padded = size + 2 * padding;
  ETCH_CHECK(padded >= reach, ShapeError, call.name(), ": expected a kernel reaching at most ", padded,
             " (the padded input), got ", reach, " for sizes ", to_string(sizes));
  return (padded - reach) / stride + 1;
}

/// Sizes of conv2d's output, with all checks of x and w.
Dims conv_output(const Inference& call, const ConvAttrs& attrs, const Dims& x, const Dims& w) {
  ETCH_CHECK(attrs.groups > 0 && w[0] % attrs.groups == 0, ValueError, call.name(),
             ": expected groups that divide the output channels, got ", attrs.groups, " for weights ",
             to_string(w));
  ETCH_CHECK(x[1] == w[1] * attrs.groups, ShapeError, call.name(),
             ": expected x [N, C, H, W] and w [O, C/groups, KH, KW], got ", to_string(x), " and ",
             to_string(w), " with groups ", attrs.groups);
  Dims sizes{x[0], w[0]};
  for (int i = 0; i < 2; ++i)
    sizes.push_back(
        window_places(call, x[2 + i], w[2 + i], attrs.stride[i], attrs.padding[i], attrs.dilation[i], x));
  return sizes;
}

void need_floating_pair(const Inference& call, std::string_view first, std::string_view second) {
  call.need_ndim(0, 4, first);
  call.need_ndim(1, 4, second);
  call.need_floating(0, first);
  call.need_dtype(1, call.dtype(0), second);
}

void need_output_sizes(const Inference& call, const Dims& expected) {
  ETCH_CHECK(call.sizes(0) == expected, ShapeError, call.name(), ": expected a gradient of sizes ",
             to_string(expected), ", got ", to_string(call.sizes(0)));
}

Dims pool_output(const Inference& call, const PoolAttrs& attrs, const Dims& x) {
  Dims sizes{x[0], x[1]};
  for (int i = 0; i < 2; ++i) {
    sizes.push_back(window_places(call, x[2 + i], attrs.kernel[i], attrs.stride[i], attrs.padding[i], 1, x));
    ETCH_CHECK(attrs.padding[i] * 2 <= attrs.kernel[i], ValueError, call.name(),
               ": expected padding of at most half the kernel, got ", attrs.padding[i], " for kernel ",
               attrs.kernel[i]);
  }
  return sizes;
}

/// Channels-last if operand 0 is, else contiguous.
void give_pooled(const Inference& call, int i, const Dims& sizes, DType dtype) {
  const bool last = is_channels_last(call.geometry(0)) && !is_contiguous(call.geometry(0));
  call.give(i, sizes, last ? channels_last_strides(sizes) : contiguous_strides(sizes), dtype);
}

PoolAttrs pool_forward(const Inference& call) {
  call.need_ndim(0, 4, "x [N, C, H, W]");
  return PoolAttrs(call.attrs);
}

/// Checks g against the windows of x; gives x's sizes.
Dims pool_backward(const Inference& call) {
  call.need_ndim(0, 4, "g [N, C, H', W']");
  call.need_floating(0, "g");
  const PoolAttrs attrs(call.attrs);
  const Dims x{call.sizes(0)[0], call.sizes(0)[1], attrs.sizes[0], attrs.sizes[1]};
  need_output_sizes(call, pool_output(call, attrs, x));
  return x;
}

int checked_axis(const Inference& call) {
  call.need_tensor(0, "x");
  const int axis = AxisAttrs(call.attrs).axis;
  ETCH_CHECK(axis >= 0 && axis < call.geometry(0).ndim(), ShapeError, call.name(),
             ": expected an axis below ", call.geometry(0).ndim(), ", got ", axis, " for x ",
             to_string(call.sizes(0)));
  return axis;
}

/// index agrees with x in rank and is no larger outside the axis.
void need_elementwise_index(const Inference& call, int axis) {
  call.need_dtype(1, DType::I64, "index");
  call.need_ndim(1, call.geometry(0).ndim(), "index");
  for (int i = 0; i < call.geometry(0).ndim(); ++i)
    ETCH_CHECK(i == axis || call.sizes(1)[i] <= call.sizes(0)[i], ShapeError, call.name(),
               ": expected an index no larger than x ", to_string(call.sizes(0)), " outside axis ", axis,
               ", got ", to_string(call.sizes(1)));
}

}  // namespace

void infer_matmul(const Inference& call) {
  need_numeric_pair(call);
  const Dims &a = call.sizes(0), &b = call.sizes(1);
  const int m = a.size() - 2, k = b.size() - 2;
  ETCH_CHECK(m >= 0 && k >= 0 && a[m + 1] == b[k], ShapeError, call.name(),
             ": expected [.., M, K] x [.., K, N], got ", to_string(a), " and ", to_string(b));
  Dims a_batch = a, b_batch = b;
  a_batch.resize(m);
  b_batch.resize(k);
  Dims sizes = broadcast_sizes(call.name(), a_batch, b_batch);
  sizes.push_back(a[m]);
  sizes.push_back(b[k + 1]);
  call.give_contiguous(0, sizes, call.dtype(0));
}

void infer_conv2d(const Inference& call) {
  need_floating_pair(call, "x [N, C, H, W]", "w [O, C/groups, KH, KW]");
  const Dims sizes = conv_output(call, ConvAttrs(call.attrs), call.sizes(0), call.sizes(1));
  if (call.inputs[2].present) {
    call.need_sizes(2, {sizes[1]}, "bias");
    call.need_dtype(2, call.dtype(0), "bias");
  }
  call.give(0, sizes, channels_last_strides(sizes), call.dtype(0));
}

void infer_conv2d_input_grad(const Inference& call) {
  need_floating_pair(call, "g [N, O, H', W']", "w [O, C/groups, KH, KW]");
  const ConvAttrs attrs(call.attrs);
  const Dims& w = call.sizes(1);
  const Dims x{call.sizes(0)[0], w[1] * attrs.groups, attrs.sizes[0], attrs.sizes[1]};
  need_output_sizes(call, conv_output(call, attrs, x, w));
  call.give(0, x, channels_last_strides(x), call.dtype(0));
}

void infer_conv2d_weight_grad(const Inference& call) {
  need_floating_pair(call, "g [N, O, H', W']", "x [N, C, H, W]");
  const ConvAttrs attrs(call.attrs);
  const Dims& x = call.sizes(1);
  ETCH_CHECK(attrs.groups > 0 && x[1] % attrs.groups == 0, ValueError, call.name(),
             ": expected groups that divide the channels, got ", attrs.groups, " for x ", to_string(x));
  const Dims w{call.sizes(0)[1], x[1] / attrs.groups, attrs.sizes[0], attrs.sizes[1]};
  need_output_sizes(call, conv_output(call, attrs, x, w));
  call.give_contiguous(0, w, call.dtype(0));
}

void infer_max_pool2d(const Inference& call) {
  const Dims sizes = pool_output(call, pool_forward(call), call.sizes(0));
  ETCH_CHECK(call.dtype(0) != DType::Bool, DTypeError, call.name(), ": expected a numeric dtype, got bool");
  give_pooled(call, 0, sizes, call.dtype(0));
  give_pooled(call, 1, sizes, DType::I64);
}

void infer_max_pool2d_grad(const Inference& call) {
  const Dims x = pool_backward(call);
  call.need_sizes(1, call.sizes(0), "indices");
  call.need_dtype(1, DType::I64, "indices");
  give_pooled(call, 0, x, call.dtype(0));
}

void infer_avg_pool2d(const Inference& call) {
  const Dims sizes = pool_output(call, pool_forward(call), call.sizes(0));
  call.need_floating(0, "x");
  give_pooled(call, 0, sizes, call.dtype(0));
}

void infer_avg_pool2d_grad(const Inference& call) {
  give_pooled(call, 0, pool_backward(call), call.dtype(0));
}

void infer_index_select(const Inference& call) {
  const int axis = checked_axis(call);
  call.need_ndim(1, 1, "index");
  call.need_dtype(1, DType::I64, "index");
  Dims sizes = call.sizes(0);
  sizes[axis] = call.sizes(1)[0];
  call.give_contiguous(0, sizes, call.dtype(0));
}

void infer_index_add(const Inference& call) {
  const int axis = checked_axis(call);
  call.need_ndim(1, 1, "index");
  call.need_dtype(1, DType::I64, "index");
  Dims source = call.sizes(0);
  source[axis] = call.sizes(1)[0];
  call.need_sizes(2, source, "source");
  call.need_dtype(2, call.dtype(0), "source");
  call.give_like(0, 0, call.dtype(0));
}

void infer_gather(const Inference& call) {
  need_elementwise_index(call, checked_axis(call));
  call.give_like(0, 1, call.dtype(0));
}

void infer_scatter_add(const Inference& call) {
  const int axis = checked_axis(call);
  need_elementwise_index(call, axis);
  call.need_dtype(2, call.dtype(0), "source");
  call.need_ndim(2, call.geometry(1).ndim(), "source");
  for (int i = 0; i < call.geometry(1).ndim(); ++i)
    ETCH_CHECK(call.sizes(1)[i] <= call.sizes(2)[i], ShapeError, call.name(),
               ": expected a source at least as large as index ", to_string(call.sizes(1)), ", got ",
               to_string(call.sizes(2)));
  call.give_like(0, 0, call.dtype(0));
}

}  // namespace etch::shape_rules
