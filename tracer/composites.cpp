// Composites in primitives: formulas whose order of operations is the definition of their bits.
//
// What holds for all of them, and for fused eager kernels that stand in for them:
// - Every line below is one primitive op after another, as written, each rounded to its dtype; sums and
// maxima run
//   in the order of tracer/reduction.h over the memory order of their operand, which for an intermediate is
//   that of its first full-size operand. `sum` and `amax` keep reduced axes with size 1.
// - n, D and other constants, and operands that are scalars, are converted to the dtype computed in before
// use.
// - f16 and bf16 tensors are cast to f32 first and results are cast back at the end; in between everything is
// f32.
// - Statistics go on in the dtype they are stored in, which is the one computed in.
#include "tracer/composites.h"

#include "tracer/attrs.h"
#include "tracer/expansion.h"

namespace etch {
namespace {

// Along one axis; `axis` is the mask of it.

void expand_softmax(Expansion& e) {
  const uint64_t axis = uint64_t{1} << AxisAttrs(e.attrs()).axis;
  const Value x = e.in(0);
  const Value numerator = exp(x - amax(x, axis));
  e.store(0, numerator / sum(numerator, axis));
}

void expand_softmax_grad(Expansion& e) {
  const uint64_t axis = uint64_t{1} << AxisAttrs(e.attrs()).axis;
  const Value g = e.in(0), y = e.in(1);
  e.store(0, y * (g - sum(g * y, axis)));
}

void expand_log_softmax(Expansion& e) {
  const uint64_t axis = uint64_t{1} << AxisAttrs(e.attrs()).axis;
  const Value x = e.in(0);
  const Value shifted = x - amax(x, axis);
  e.store(0, shifted - log(sum(exp(shifted), axis)));
}

void expand_log_softmax_grad(Expansion& e) {
  const uint64_t axis = uint64_t{1} << AxisAttrs(e.attrs()).axis;
  const Value g = e.in(0), y = e.in(1);
  const Value total = sum(g, axis);
  e.store(0, g - exp(y) * total);
}

// Cross entropy compares class numbers with labels instead of gathering, so that it is one fused row
// reduction.

/// [N, C] bools: the class is the row's label.
Value is_label(Expansion& e, const Value& logits, const Value& target) {
  Value start(0.0), step(1.0);
  start.operand.scalar = int64_t{0};
  step.operand.scalar = int64_t{1};
  start.operand.dtype = step.operand.dtype = DType::I64;
  const Value classes = e.apply(Op::arange, {start, step}, pack_sizes({logits.size(1)}), DType::I64);
  return eq(classes, target);
}

/// [N, 1] bools: the row does not count.
Value is_ignored(Expansion& e, const Value& target) {
  Value ignore(0.0);
  ignore.operand.scalar = CrossEntropyAttrs(e.attrs()).ignore_index;
  return eq(target, ignore);
}

void expand_cross_entropy(Expansion& e) {
  const Value logits = e.in(0), target = unsqueeze(e.raw(1), 1);
  const Value highest = amax(logits, 0b10);
  const Value log_sum_exp = e.store(1, log(sum(exp(logits - highest), 0b10)) + highest);
  const Value picked = sum(where(is_label(e, logits, target), logits, 0.0), 0b10);
  const Value loss = log_sum_exp - picked;
  e.store(0, where(is_ignored(e, target), 0.0, loss));
}

void expand_cross_entropy_grad(Expansion& e) {
  const Value g = unsqueeze(e.in(0), 1), logits = e.in(1), target = unsqueeze(e.raw(2), 1);
  const Value softmax = exp(logits - unsqueeze(e.in(3), 1));
  const Value onehot = cast(is_label(e, logits, target), softmax.operand.dtype);
  const Value gradient = (softmax - onehot) * g;
  e.store(0, where(is_ignored(e, target), 0.0, gradient));
}

void expand_layer_norm(Expansion& e) {
  const Value x = e.in(0), w = e.in(1), b = e.in(2), eps = e.in(3);
  const uint64_t last = uint64_t{1} << (x.ndim() - 1);
  const double D = static_cast<double>(x.size(x.ndim() - 1));
  const Value mean = e.store(1, sum(x, last) / D);
  const Value centred = x - mean;
  const Value variance = sum(square(centred), last) / D;
  const Value inverse_std = e.store(2, rsqrt(variance + eps));
  e.store(0, centred * inverse_std * w + b);
}

void expand_layer_norm_grad(Expansion& e) {
  const Value g = e.in(0), x = e.in(1), mean = e.in(2), inverse_std = e.in(3), w = e.in(4);
  const uint64_t last = uint64_t{1} << (x.ndim() - 1);
  const double D = static_cast<double>(x.size(x.ndim() - 1));
  const Value normal = (x - mean) * inverse_std;
  const Value scaled = g * w;
  const Value mean_scaled = sum(scaled, last) / D;
  const Value mean_product = sum(scaled * normal, last) / D;
  const Value shifted = scaled - mean_scaled;
  const Value slope = normal * mean_product;
  e.store(0, (shifted - slope) * inverse_std);
  e.store(1, sum(g * normal, last - 1));
  e.store(2, sum(g, last - 1));
}

// Batch norm: `rows` are all axes but the channels; n values a channel.
//
// One sweep gives mean and variance: sums of x - shift and of its square, where the shift is the mean of the
// first samples. What is lost to cancellation is a factor of 1 + (shift - mean)^2 / variance, and since those
// samples are at least a 32nd of all, that is 32 at most, wherever the mean lies.

uint64_t all_but_channels(const Value& x) { return ((uint64_t{1} << x.ndim()) - 1) & ~uint64_t{2}; }
double values_per_channel(const Value& x) {
  return static_cast<double>(x.operand.geometry.numel()) / static_cast<double>(x.size(1));
}

void expand_batch_norm(Expansion& e) {
  const Value x = e.in(0), w = along_channels(e.in(1), x.ndim()), b = along_channels(e.in(2), x.ndim());
  const Value momentum = e.in(5), eps = e.in(6);
  const Value running_mean = along_channels(e.in(3), x.ndim());
  const Value running_variance = along_channels(e.in(4), x.ndim());
  const uint64_t rows = all_but_channels(x);
  const double n = values_per_channel(x);
  Value few = first(e.raw(0), shift_samples(x.size(0)));
  if (few.operand.dtype != x.operand.dtype) few = cast(few, x.operand.dtype);
  const Value near = sum(few, rows) / values_per_channel(few);
  const Value shift = where(isfinite(near), near, 0.0);
  const Value moved = x - shift;
  const Value step = sum(moved, rows) / n;
  const Value spread = sum(square(moved), rows) / n;
  const Value mean = e.store(1, shift + step);
  const Value variance = maximum(spread - square(step), 0.0);
  const Value inverse_std = e.store(2, rsqrt(variance + eps));
  e.store(0, (x - mean) * inverse_std * w + b);
  e.store(3, running_mean + (mean - running_mean) * momentum);
  const Value unbiased = variance * (n / (n - 1));
  e.store(4, running_variance + (unbiased - running_variance) * momentum);
}

void expand_batch_norm_grad(Expansion& e) {
  const Value g = e.in(0), x = e.in(1);
  const Value mean = along_channels(e.in(2), x.ndim()), inverse_std = along_channels(e.in(3), x.ndim());
  const Value w = along_channels(e.in(4), x.ndim());
  const uint64_t rows = all_but_channels(x);
  const double n = values_per_channel(x);
  const Value normal = (x - mean) * inverse_std;
  const Value g_b = e.store(2, sum(g, rows));
  const Value g_w = e.store(1, sum(g * normal, rows));
  const Value shifted = g - g_b / n;
  const Value slope = normal * (g_w / n);
  const Value difference = shifted - slope;
  const Value scale = w * inverse_std;
  e.store(0, difference * scale);
}

void expand_batch_norm_eval(Expansion& e) {
  const Value x = e.in(0), w = along_channels(e.in(1), x.ndim()), b = along_channels(e.in(2), x.ndim());
  const Value running_mean = along_channels(e.in(3), x.ndim());
  const Value inverse_std = rsqrt(along_channels(e.in(4), x.ndim()) + e.in(5));
  const Value centred = x - running_mean;
  e.store(0, centred * inverse_std * w + b);
}

// Optimisers. With a momentum buffer of zeros and no dampening the first step is PyTorch's.

void expand_sgd_step(Expansion& e) {
  const Value p = e.in(0), g = e.in(1), buffer = e.in(2);
  const Value lr = e.in(3), momentum = e.in(4), undamped = e.in(5), weight_decay = e.in(6);
  const bool nesterov = e.attrs()[0] != 0;
  const Value decayed = g + p * weight_decay;
  const Value kept = buffer * momentum;
  const Value moved = e.store(1, kept + decayed * undamped);
  const Value step = nesterov ? decayed + moved * momentum : moved;
  e.store(0, p - step * lr);
}

void expand_sgd_plain_step(Expansion& e) {
  const Value p = e.in(0), g = e.in(1), lr = e.in(2), weight_decay = e.in(3);
  e.store(0, p - (g + p * weight_decay) * lr);
}

void expand_adam_step(Expansion& e) {
  const Value p = e.in(0), g = e.in(1), m = e.in(2), v = e.in(3);
  const Value lr = e.in(4), rate1 = e.in(5), rate2 = e.in(6), eps = e.in(7), weight_decay = e.in(8);
  const Value correction1 = e.in(9), correction2 = e.in(10);
  const bool decoupled = e.attrs()[0] != 0;
  const Value decay = p * weight_decay;
  const Value decayed_p = decoupled ? p - decay * lr : p;
  const Value gradient = decoupled ? g : g + decay;
  const Value new_m = e.store(1, m + (gradient - m) * rate1);
  const Value new_v = e.store(2, v + (square(gradient) - v) * rate2);
  const Value denominator = sqrt(new_v / correction2) + eps;
  e.store(0, decayed_p - new_m / correction1 / denominator * lr);
}

}  // namespace

void expand_composite(const Node& node, Graph& graph) {
  bool empty = true;
  for (const GraphOperand& output : node.outputs) empty &= output.geometry.numel() == 0;
  if (empty) return;
  Expansion expansion(node, graph);
  switch (node.op) {
#define ETCH_COMPOSITE(name, ...) \
  case Op::name:                  \
    return expand_##name(expansion);
#include "tracer/ops.def"
    default:
      fail<InternalError>("expand_composite: expected a composite, got ", name(node.op));
  }
}

Graph expand_composites(const Graph& graph) {
  Graph expanded{graph.device, graph.buffers, {}, graph.num_slots};
  for (const Node& node : graph.nodes)
    if (info(node.op).kind == OpKind::Composite)
      expand_composite(node, expanded);
    else
      expanded.nodes.push_back(node);
  return expanded;
}

}  // namespace etch
