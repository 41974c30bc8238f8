// Shape rules of composites. Statistics (means, 1/std, log-sum-exps, running statistics) are of the compute
// dtype: f32 beside f16 and bf16.
#include "tracer/shape_rules.h"

#include <algorithm>

namespace etch::shape_rules {
namespace {

int64_t need_axis(const Inference& call) {
  const int axis = AxisAttrs(call.attrs).axis;
  ETCH_CHECK(axis >= 0 && axis < std::max(call.geometry(0).ndim(), 1), ShapeError, call.name(),
             ": expected an axis below ", call.geometry(0).ndim(), ", got ", axis);
  return axis;
}

void infer_along_axis(const Inference& call) {
  call.need_floating(0, "x");
  need_axis(call);
  call.give_like(0, 0, call.dtype(0));
}

void infer_along_axis_grad(const Inference& call) {
  call.need_floating(0, "g");
  need_axis(call);
  call.need_sizes(1, call.sizes(0), "y");
  call.need_dtype(1, call.dtype(0), "y");
  call.give_like(0, 1, call.dtype(0));
}

void need_labels(const Inference& call, int logits, int target) {
  call.need_ndim(logits, 2, "logits [N, C]");
  call.need_floating(logits, "logits");
  call.need_sizes(target, {call.sizes(logits)[0]}, "target");
  call.need_dtype(target, DType::I64, "target");
  ETCH_CHECK(call.sizes(logits)[1] > 0 || call.sizes(logits)[0] == 0, ShapeError, call.name(),
             ": expected at least one class, got logits ", to_string(call.sizes(logits)));
}

/// A tensor of exactly these sizes and that dtype.
void need(const Inference& call, int i, const Dims& sizes, DType dtype, std::string_view what) {
  call.need_sizes(i, sizes, what);
  call.need_dtype(i, dtype, what);
}

/// Sizes of the statistics of layer_norm: the last dimension is 1.
Dims row_sizes(const Inference& call, int x) {
  ETCH_CHECK(call.geometry(x).ndim() > 0 && call.sizes(x).back() > 0, ShapeError, call.name(),
             ": expected x [.., D] with D above 0, got ", to_string(call.sizes(x)));
  Dims sizes = call.sizes(x);
  sizes[sizes.size() - 1] = 1;
  return sizes;
}

Dims channel_sizes(const Inference& call, int x) {
  ETCH_CHECK(call.geometry(x).ndim() >= 2, ShapeError, call.name(), ": expected x [N, C, ..], got ",
             to_string(call.sizes(x)));
  return {call.sizes(x)[1]};
}

/// g, x, mean, 1/std, w -> gradients of x, w, b.
void infer_norm_grad(const Inference& call, const Dims& statistics, const Dims& parameters) {
  const DType dtype = call.dtype(1);
  need(call, 0, call.sizes(1), dtype, "g");
  need(call, 2, statistics, compute_dtype(dtype), "mean");
  need(call, 3, statistics, compute_dtype(dtype), "1/std");
  need(call, 4, parameters, dtype, "w");
  call.give_like(0, 1, dtype);
  call.give_contiguous(1, parameters, dtype);
  call.give_contiguous(2, parameters, dtype);
}

void need_like_parameter(const Inference& call, int i, std::string_view what) {
  need(call, i, call.sizes(0), call.dtype(0), what);
}

/// Operands from `first` on are scalars; all outputs are written in place.
void finish_step(const Inference& call, int first) {
  for (int i = first; i < static_cast<int>(call.inputs.size()); ++i) call.need_scalar(i, "hyperparameter");
  for (int i = 0; i < info(call.op).outputs; ++i) call.give_operand(i);
}

}  // namespace

void infer_softmax(const Inference& call) { infer_along_axis(call); }
void infer_softmax_grad(const Inference& call) { infer_along_axis_grad(call); }
void infer_log_softmax(const Inference& call) { infer_along_axis(call); }
void infer_log_softmax_grad(const Inference& call) { infer_along_axis_grad(call); }

void infer_cross_entropy(const Inference& call) {
  need_labels(call, 0, 1);
  const Dims rows{call.sizes(0)[0]};
  call.give_contiguous(0, rows, call.dtype(0));
  call.give_contiguous(1, rows, compute_dtype(call.dtype(0)));
}

void infer_cross_entropy_grad(const Inference& call) {
  need_labels(call, 1, 2);
  const Dims rows{call.sizes(1)[0]};
  need(call, 0, rows, call.dtype(1), "g");
  need(call, 3, rows, compute_dtype(call.dtype(1)), "log-sum-exp");
  call.give_like(0, 1, call.dtype(1));
}

void infer_layer_norm(const Inference& call) {
  call.need_floating(0, "x");
  const Dims rows = row_sizes(call, 0);
  const DType dtype = call.dtype(0);
  need(call, 1, {call.sizes(0).back()}, dtype, "w");
  need(call, 2, {call.sizes(0).back()}, dtype, "b");
  call.need_scalar(3, "eps");
  call.give_like(0, 0, dtype);
  for (int i = 1; i < 3; ++i) call.give_contiguous(i, rows, compute_dtype(dtype));
}

void infer_layer_norm_grad(const Inference& call) {
  call.need_floating(1, "x");
  infer_norm_grad(call, row_sizes(call, 1), {call.sizes(1).back()});
}

void infer_batch_norm(const Inference& call) {
  call.need_floating(0, "x");
  const Dims channels = channel_sizes(call, 0);
  const DType dtype = call.dtype(0), statistics = compute_dtype(dtype);
  need(call, 1, channels, dtype, "w");
  need(call, 2, channels, dtype, "b");
  need(call, 3, channels, statistics, "running mean");
  need(call, 4, channels, statistics, "running variance");
  call.need_scalar(5, "momentum");
  call.need_scalar(6, "eps");
  ETCH_CHECK(call.geometry(0).numel() >= 2 * channels[0] && channels[0] > 0, ShapeError, call.name(),
             ": expected more than one value a channel, got x ", to_string(call.sizes(0)));
  call.give_like(0, 0, dtype);
  call.give_contiguous(1, channels, statistics);
  call.give_contiguous(2, channels, statistics);
  call.give_operand(3);
  call.give_operand(4);
}

void infer_batch_norm_grad(const Inference& call) {
  call.need_floating(1, "x");
  const Dims channels = channel_sizes(call, 1);
  infer_norm_grad(call, channels, channels);
}

void infer_batch_norm_eval(const Inference& call) {
  call.need_floating(0, "x");
  const Dims channels = channel_sizes(call, 0);
  const DType dtype = call.dtype(0);
  need(call, 1, channels, dtype, "w");
  need(call, 2, channels, dtype, "b");
  need(call, 3, channels, compute_dtype(dtype), "running mean");
  need(call, 4, channels, compute_dtype(dtype), "running variance");
  call.need_scalar(5, "eps");
  call.give_like(0, 0, dtype);
}

void infer_sgd_step(const Inference& call) {
  call.need_floating(0, "the parameter");
  need_like_parameter(call, 1, "the gradient");
  need_like_parameter(call, 2, "the momentum buffer");
  finish_step(call, 3);
}

void infer_sgd_plain_step(const Inference& call) {
  call.need_floating(0, "the parameter");
  need_like_parameter(call, 1, "the gradient");
  finish_step(call, 2);
}

void infer_adam_step(const Inference& call) {
  call.need_floating(0, "the parameter");
  need_like_parameter(call, 1, "the gradient");
  need_like_parameter(call, 2, "the first moment");
  need_like_parameter(call, 3, "the second moment");
  finish_step(call, 4);
}

}  // namespace etch::shape_rules
