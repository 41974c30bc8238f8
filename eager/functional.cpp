// Convolution, pooling, normalisation, losses, products: shape handling, ops, gradients.
#include "eager/functional.h"

#include "eager/apply.h"
#include "eager/gradients.h"
#include "eager/tape.h"

namespace etch {

namespace {

void check_defined(std::string_view op, std::initializer_list<const Tensor*> tensors) {
  for (const Tensor* tensor : tensors)
    ETCH_CHECK(tensor->defined(), ValueError, op, ": expected defined tensors, got an undefined one");
}

bool is_transposed(const Tensor& matrix) {
  const Dims &sizes = matrix.sizes(), &strides = matrix.strides();
  const int ndim = matrix.ndim();
  return strides[ndim - 2] == 1 && strides[ndim - 1] != 1 && sizes[ndim - 1] != 1;
}

Tensor matmul_batched(const Tensor& a, const Tensor& b);

// a x b, in memory order of its transpose if asked: a gradient should lie like the operand it belongs to.
Tensor matmul_like(const Tensor& a, const Tensor& b, bool transposed) {
  if (!transposed) return matmul_batched(a, b);
  return matmul_batched(b.transpose(-1, -2), a.transpose(-1, -2)).transpose(-1, -2);
}

// [.., M, K] x [.., K, N] with at least two dimensions each.
Tensor matmul_batched(const Tensor& a, const Tensor& b) {
  Tensor y = apply(Op::matmul, {a, b}, {}, a.dtype());
  if (needs_tape({&a, &b}))
    record_on_tape(
        "matmul", {&a, &b}, {&y},
        [a_sizes = a.sizes(), b_sizes = b.sizes(), a_transposed = is_transposed(a),
         b_transposed = is_transposed(b), saved_a = SavedTensor(b.requires_grad() ? a : Tensor(), "matmul"),
         saved_b = SavedTensor(a.requires_grad() ? b : Tensor(), "matmul")](std::span<const Tensor> gradients,
                                                                            InputGradients inputs) {
          const Tensor& g = gradients[0];
          if (inputs.needs(0))
            inputs.set(0, reduce_to(matmul_like(g, saved_b.unpack().transpose(-1, -2), a_transposed), a_sizes,
                                    g.dtype()));
          if (inputs.needs(1))
            inputs.set(1, reduce_to(matmul_like(saved_a.unpack().transpose(-1, -2), g, b_transposed), b_sizes,
                                    g.dtype()));
        });
  return y;
}

ConvAttrs conv_attrs(const Conv2dOptions& options) {
  ConvAttrs attrs;
  for (int i = 0; i < 2; ++i) {
    attrs.stride[i] = options.stride[i];
    attrs.padding[i] = options.padding[i];
    attrs.dilation[i] = options.dilation[i];
  }
  attrs.groups = options.groups;
  return attrs;
}

Tensor conv2d_input_grad(const Tensor& g, const Tensor& w, const ConvAttrs& attrs);
Tensor conv2d_weight_grad(const Tensor& g, const Tensor& x, const ConvAttrs& attrs);

Conv2dOptions options_of(const ConvAttrs& attrs) {
  return {{attrs.stride[0], attrs.stride[1]},
          {attrs.padding[0], attrs.padding[1]},
          {attrs.dilation[0], attrs.dilation[1]},
          attrs.groups};
}

// The gradients of a convolution are linear in both operands, so theirs are convolutions again.
Tensor conv2d_input_grad(const Tensor& g, const Tensor& w, const ConvAttrs& attrs) {
  Tensor gx = apply(Op::conv2d_input_grad, {g, w}, attrs.pack(), g.dtype());
  if (needs_tape({&g, &w}))
    record_on_tape("conv2d_input_grad", {&g, &w}, {&gx},
                   [g = SavedTensor(g, "conv2d_input_grad"), w = SavedTensor(w, "conv2d_input_grad"), attrs](
                       std::span<const Tensor> gradients, InputGradients inputs) {
                     const Tensor saved_w = w.unpack();
                     if (inputs.needs(0)) inputs.set(0, conv2d(gradients[0], saved_w, {}, options_of(attrs)));
                     ConvAttrs weight = attrs;
                     weight.sizes[0] = saved_w.sizes()[2];
                     weight.sizes[1] = saved_w.sizes()[3];
                     if (inputs.needs(1)) inputs.set(1, conv2d_weight_grad(g.unpack(), gradients[0], weight));
                   });
  return gx;
}

Tensor conv2d_weight_grad(const Tensor& g, const Tensor& x, const ConvAttrs& attrs) {
  Tensor gw = apply(Op::conv2d_weight_grad, {g, x}, attrs.pack(), g.dtype());
  if (needs_tape({&g, &x}))
    record_on_tape("conv2d_weight_grad", {&g, &x}, {&gw},
                   [g = SavedTensor(g, "conv2d_weight_grad"), x = SavedTensor(x, "conv2d_weight_grad"),
                    attrs](std::span<const Tensor> gradients, InputGradients inputs) {
                     const Tensor saved_x = x.unpack();
                     if (inputs.needs(0)) inputs.set(0, conv2d(saved_x, gradients[0], {}, options_of(attrs)));
                     ConvAttrs input = attrs;
                     input.sizes[0] = saved_x.sizes()[2];
                     input.sizes[1] = saved_x.sizes()[3];
                     if (inputs.needs(1)) inputs.set(1, conv2d_input_grad(g.unpack(), gradients[0], input));
                   });
  return gw;
}

// Zeros of `sizes` [N, C, H, W] with g [N, C, ..] at `indices` in their planes: max_pool2d_grad in ops that
// have gradients.
Tensor put_at(const Tensor& indices, const Tensor& g, const Dims& sizes) {
  const Dims planes{sizes[0] * sizes[1], sizes[2] * sizes[3]};
  const Dims windows{planes[0], g.sizes()[2] * g.sizes()[3]};
  return zeros(planes, {.dtype = g.dtype(), .device = g.device()})
      .scatter_add(1, indices.reshape(windows), g.reshape(windows))
      .reshape(sizes);
}

PoolAttrs pool_attrs(const Pool2dOptions& options) {
  PoolAttrs attrs;
  for (int i = 0; i < 2; ++i) {
    attrs.kernel[i] = options.kernel[i];
    attrs.stride[i] = options.stride[i] ? options.stride[i] : options.kernel[i];
    attrs.padding[i] = options.padding[i];
  }
  return attrs;
}

}  // namespace

Tensor Tensor::matmul(const Tensor& other) const {
  check_defined("matmul", {this, &other});
  ETCH_CHECK(ndim() > 0 && other.ndim() > 0, ShapeError, "matmul: expected vectors or matrices, got ",
             etch::to_string(sizes()), " and ", etch::to_string(other.sizes()));
  ETCH_CHECK(dtype() == other.dtype(), DTypeError, "matmul: expected one dtype, got ", name(dtype()), " and ",
             name(other.dtype()), "; convert with to(dtype)");
  const bool vector_a = ndim() == 1, vector_b = other.ndim() == 1;
  if (!vector_a && !vector_b) {
    // A batch against one matrix is one product of the rows taken together.
    if (ndim() > 2 && other.ndim() == 2 && is_contiguous() && numel() > 0 &&
        sizes().back() == other.sizes()[0]) {
      Dims to = sizes();
      to[ndim() - 1] = other.sizes()[1];
      return matmul_batched(reshape({-1, sizes().back()}), other).view(to);
    }
    return matmul_batched(*this, other);
  }
  const Tensor a = vector_a ? unsqueeze(0) : *this;
  const Tensor b = vector_b ? other.unsqueeze(1) : other;
  ETCH_CHECK(a.sizes().back() == b.sizes()[b.ndim() - 2], ShapeError,
             "matmul: expected [.., K] x [K, ..], got ", etch::to_string(sizes()), " and ",
             etch::to_string(other.sizes()));
  Tensor y = matmul_batched(a, b);
  if (vector_b) y = y.squeeze(-1);
  if (vector_a) y = y.squeeze(vector_b ? -1 : -2);
  return y;
}

Tensor linear(const Tensor& x, const Tensor& w, const Tensor& b) {
  ETCH_CHECK(w.ndim() == 2 && x.ndim() >= 1 && x.sizes().back() == w.sizes()[1], ShapeError,
             "linear: expected x [.., in] and w [out, in], got ", to_string(x.sizes()), " and ",
             to_string(w.sizes()));
  const Tensor y = x.matmul(w.t());
  return b.defined() ? y + b : y;
}

Tensor conv2d(const Tensor& x, const Tensor& w, const Tensor& bias, const Conv2dOptions& options) {
  check_defined("conv2d", {&x, &w});
  const ConvAttrs attrs = conv_attrs(options);
  Tensor y = apply(Op::conv2d, {x, w, bias}, attrs.pack(), x.dtype());
  if (!needs_tape({&x, &w, &bias})) return y;
  const bool need_x = x.requires_grad(), need_w = w.requires_grad();
  record_on_tape("conv2d", {&x, &w, &bias}, {&y},
                 [x = SavedTensor(need_w ? x : Tensor(), "conv2d"),
                  w = SavedTensor(need_x ? w : Tensor(), "conv2d"), x_sizes = x.sizes(), w_sizes = w.sizes(),
                  attrs](std::span<const Tensor> gradients, InputGradients inputs) {
                   const Tensor& g = gradients[0];
                   ConvAttrs with_sizes = attrs;
                   if (inputs.needs(2)) inputs.set(2, g.sum({0, 2, 3}));
                   if (inputs.needs(1)) {
                     with_sizes.sizes[0] = w_sizes[2];
                     with_sizes.sizes[1] = w_sizes[3];
                     inputs.set(1, conv2d_weight_grad(g, x.unpack(), with_sizes));
                   }
                   if (inputs.needs(0)) {
                     with_sizes.sizes[0] = x_sizes[2];
                     with_sizes.sizes[1] = x_sizes[3];
                     inputs.set(0, conv2d_input_grad(g, w.unpack(), with_sizes));
                   }
                 });
  return y;
}

Tensor max_pool2d(const Tensor& x, const Pool2dOptions& options) {
  check_defined("max_pool2d", {&x});
  PoolAttrs attrs = pool_attrs(options);
  Tensor outputs[2];
  const Arg operand(x);
  apply(Op::max_pool2d, {&operand, 1}, attrs.pack(), x.dtype(), outputs);
  if (needs_tape({&x}))
    record_on_tape(
        "max_pool2d", {&x}, {&outputs[0]},
        [indices = SavedTensor(outputs[1], "max_pool2d"), from = x.sizes(), attrs](
            std::span<const Tensor> gradients, InputGradients inputs) mutable {
          if (grad_enabled()) return inputs.set(0, put_at(indices.unpack(), gradients[0], from));
          attrs.sizes[0] = from[2];
          attrs.sizes[1] = from[3];
          inputs.set(0, apply(Op::max_pool2d_grad, {gradients[0], indices.unpack()}, attrs.pack()));
        });
  return outputs[0];
}

namespace {
Tensor avg_pool2d_grad(const Tensor& g, const PoolAttrs& attrs) {
  Tensor gx = apply(Op::avg_pool2d_grad, {g}, attrs.pack());
  if (needs_tape({&g}))
    record_on_tape("avg_pool2d_grad", {&g}, {&gx},
                   [attrs](std::span<const Tensor> gradients, InputGradients inputs) {
                     inputs.set(0, avg_pool2d(gradients[0], {{attrs.kernel[0], attrs.kernel[1]},
                                                             {attrs.stride[0], attrs.stride[1]},
                                                             {attrs.padding[0], attrs.padding[1]}}));
                   });
  return gx;
}
}  // namespace

Tensor avg_pool2d(const Tensor& x, const Pool2dOptions& options) {
  check_defined("avg_pool2d", {&x});
  PoolAttrs attrs = pool_attrs(options);
  Tensor y = apply(Op::avg_pool2d, {x}, attrs.pack(), x.dtype());
  if (needs_tape({&x})) {
    attrs.sizes[0] = x.sizes()[2];
    attrs.sizes[1] = x.sizes()[3];
    record_on_tape("avg_pool2d", {&x}, {&y},
                   [attrs](std::span<const Tensor> gradients, InputGradients inputs) {
                     inputs.set(0, avg_pool2d_grad(gradients[0], attrs));
                   });
  }
  return y;
}

Tensor global_avg_pool2d(const Tensor& x) {
  ETCH_CHECK(x.ndim() == 4, ShapeError, "global_avg_pool2d: expected [N, C, H, W], got ",
             to_string(x.sizes()));
  return x.mean({2, 3}, true);
}

namespace {
// The gradients of x, w and b of a normalisation over the axes `over`, in ops that have gradients. `scale` is
// w in the sizes that broadcast to x's. Half precision would overflow in the squares.
void set_norm_gradients(InputGradients inputs, const Tensor& given_g, const Tensor& given_x, const Tensor& w,
                        const Tensor& given_scale, double eps, const Dims& over) {
  const DType type = compute_dtype(given_x.dtype());
  const Tensor g = given_g.to(type), x = given_x.to(type), scale = given_scale.to(type);
  const Tensor centered = x - x.mean(over, true);
  const Tensor rstd = (centered.square().mean(over, true) + eps).rsqrt();
  const Tensor normal = centered * rstd;
  const auto as_w = [&](const Tensor& of_x) {
    return reduce_to(of_x, scale.sizes(), w.dtype()).reshape(w.sizes());
  };
  if (inputs.needs(0)) {
    const Tensor scaled = g * scale;
    const Tensor centered_g = scaled - scaled.mean(over, true) - normal * (scaled * normal).mean(over, true);
    inputs.set(0, (rstd * centered_g).to(given_x.dtype()));
  }
  if (inputs.needs(1)) inputs.set(1, as_w(g * normal));
  if (inputs.needs(2)) inputs.set(2, as_w(g));
}

// Where channels lie, [1, C, 1, ..], and the axes beside them.
std::pair<Dims, Dims> channel_axes(const Tensor& x) {
  Dims channel = Dims::filled(x.ndim(), 1), others;
  channel[1] = x.sizes()[1];
  for (int i = 0; i < x.ndim(); ++i)
    if (i != 1) others.push_back(i);
  return {channel, others};
}
}  // namespace

Tensor layer_norm(const Tensor& x, const Tensor& w, const Tensor& b, double eps) {
  check_defined("layer_norm", {&x, &w, &b});
  Tensor outputs[3];
  const Arg operands[] = {x, w, b, eps};
  apply(Op::layer_norm, operands, {}, x.dtype(), outputs);
  if (needs_tape({&x, &w, &b}))
    record_on_tape("layer_norm", {&x, &w, &b}, {&outputs[0]},
                   [x = SavedTensor(x, "layer_norm"), mean = SavedTensor(outputs[1], "layer_norm"),
                    rstd = SavedTensor(outputs[2], "layer_norm"), w = SavedTensor(w, "layer_norm"),
                    eps](std::span<const Tensor> gradients, InputGradients inputs) {
                     Tensor grads[3];
                     const Tensor a = x.unpack(), m = mean.unpack(), r = rstd.unpack(), scale = w.unpack();
                     if (grad_enabled())
                       return set_norm_gradients(inputs, gradients[0], a, scale, scale, eps, {-1});
                     const Arg operands[] = {gradients[0], a, m, r, scale};
                     apply(Op::layer_norm_grad, operands, {}, a.dtype(), grads);
                     for (int i = 0; i < 3; ++i) inputs.set(i, grads[i]);
                   });
  return outputs[0];
}

Tensor batch_norm(const Tensor& x, const Tensor& w, const Tensor& b, Tensor& running_mean,
                  Tensor& running_var, const BatchNormOptions& options) {
  check_defined("batch_norm", {&x, &w, &b, &running_mean, &running_var});
  if (!options.training) {
    Tensor y = apply(Op::batch_norm_eval, {x, w, b, running_mean, running_var, options.eps}, {}, x.dtype());
    if (needs_tape({&x, &w, &b}))
      record_on_tape("batch_norm_eval", {&x, &w, &b}, {&y},
                     [x = SavedTensor(x, "batch_norm_eval"), w = SavedTensor(w, "batch_norm_eval"),
                      mean = SavedTensor(running_mean, "batch_norm_eval"),
                      var = SavedTensor(running_var, "batch_norm_eval"),
                      eps = options.eps](std::span<const Tensor> gradients, InputGradients inputs) {
                       const Tensor a = x.unpack(), &g = gradients[0];
                       const auto [channel, others] = channel_axes(a);
                       const Tensor rstd = (var.unpack() + eps).rsqrt().reshape(channel);
                       if (inputs.needs(0)) inputs.set(0, g * (w.unpack().reshape(channel) * rstd));
                       if (inputs.needs(1))
                         inputs.set(1, (g * ((a - mean.unpack().reshape(channel)) * rstd)).sum(others));
                       if (inputs.needs(2)) inputs.set(2, g.sum(others));
                     });
    return y;
  }
  Tensor outputs[5] = {{}, {}, {}, running_mean, running_var};
  const Arg operands[] = {x, w, b, running_mean, running_var, options.momentum, options.eps};
  apply(Op::batch_norm, operands, {}, x.dtype(), outputs);
  if (needs_tape({&x, &w, &b}))
    record_on_tape("batch_norm", {&x, &w, &b}, {&outputs[0]},
                   [x = SavedTensor(x, "batch_norm"), mean = SavedTensor(outputs[1], "batch_norm"),
                    rstd = SavedTensor(outputs[2], "batch_norm"), w = SavedTensor(w, "batch_norm"),
                    eps = options.eps](std::span<const Tensor> gradients, InputGradients inputs) {
                     Tensor grads[3];
                     const Tensor a = x.unpack(), m = mean.unpack(), r = rstd.unpack(), scale = w.unpack();
                     if (grad_enabled()) {
                       const auto [channel, others] = channel_axes(a);
                       return set_norm_gradients(inputs, gradients[0], a, scale, scale.reshape(channel), eps,
                                                 others);
                     }
                     const Arg operands[] = {gradients[0], a, m, r, scale};
                     apply(Op::batch_norm_grad, operands, {}, a.dtype(), grads);
                     for (int i = 0; i < 3; ++i) inputs.set(i, grads[i]);
                   });
  return outputs[0];
}

Tensor cross_entropy(const Tensor& logits, const Tensor& target, CrossEntropyOptions options) {
  check_defined("cross_entropy", {&logits, &target});
  if (logits.ndim() > 2) {
    // Classes to the end, all other axes into the rows.
    Dims axes{0};
    for (int i = 2; i < logits.ndim(); ++i) axes.push_back(i);
    axes.push_back(1);
    const Tensor loss =
        cross_entropy(logits.permute(axes).reshape({-1, logits.sizes()[1]}), target.reshape({-1}), options);
    return options.reduction == Loss::None ? loss.reshape(target.sizes()) : loss;
  }
  ETCH_CHECK(target.dtype() != DType::Bool && is_integral(target.dtype()), DTypeError,
             "cross_entropy: expected integer targets, got ", name(target.dtype()));
  const Tensor labels = target.to(DType::I64);
  const Attrs attrs = CrossEntropyAttrs(options.ignore_index).pack();
  Tensor outputs[2];
  const Arg operands[] = {logits, labels};
  apply(Op::cross_entropy, operands, attrs, logits.dtype(), outputs);
  Tensor losses = outputs[0];
  if (needs_tape({&logits}))
    record_on_tape("cross_entropy", {&logits}, {&losses},
                   [x = SavedTensor(logits, "cross_entropy"), labels = SavedTensor(labels, "cross_entropy"),
                    lse = SavedTensor(outputs[1], "cross_entropy"),
                    attrs](std::span<const Tensor> gradients, InputGradients inputs) {
                     const Tensor a = x.unpack(), t = labels.unpack(), s = lse.unpack();
                     if (grad_enabled()) {  // create_graph: in ops that have gradients
                       const Tensor ignored = eq(t, CrossEntropyAttrs(attrs).ignore_index).unsqueeze(1);
                       const Tensor hits = eq(t.unsqueeze(1), arange(a.sizes()[1])).to(a.dtype());
                       const Tensor of_rows = gradients[0].unsqueeze(1).masked_fill(ignored, 0);
                       return inputs.set(0, (a.masked_fill(ignored, 0).softmax(1) - hits) * of_rows);
                     }
                     inputs.set(0, apply(Op::cross_entropy_grad, {gradients[0], a, t, s}, attrs, a.dtype()));
                   });
  if (options.reduction == Loss::None) return losses;
  const Tensor total = losses.sum();
  if (options.reduction == Loss::Sum) return total;
  return total / ne(labels, options.ignore_index).to(logits.dtype()).sum();
}

Tensor dropout(const Tensor& x, double p, bool training, Generator* generator) {
  ETCH_CHECK(p >= 0 && p <= 1, ValueError, "dropout: expected a probability in [0, 1], got ", p);
  if (!training || p == 0) return x;
  const PhiloxState state = (generator ? *generator : default_generator()).reserve(x.numel());
  return dropout_from(x, static_cast<int64_t>(state.seed), static_cast<int64_t>(state.offset), p);
}

Tensor embedding(const Tensor& weight, const Tensor& index) {
  check_defined("embedding", {&weight, &index});
  ETCH_CHECK(weight.ndim() == 2, ShapeError, "embedding: expected a weight [V, D], got ",
             to_string(weight.sizes()));
  Dims sizes = index.sizes();
  sizes.push_back(weight.sizes()[1]);
  return weight.index_select(0, index.reshape({-1})).reshape(sizes);
}

void sgd_step(Tensor& p, const Tensor& g, Tensor& momentum_buffer, double lr, double momentum,
              double dampening, double weight_decay, bool nesterov) {
  NoGrad guard;
  Tensor outputs[2] = {p, momentum_buffer};
  const Arg operands[] = {p, g, momentum_buffer, lr, momentum, 1 - dampening, weight_decay};
  apply(Op::sgd_step, operands, {nesterov}, p.dtype(), outputs);
}

void sgd_plain_step(Tensor& p, const Tensor& g, double lr, double weight_decay) {
  NoGrad guard;
  Tensor outputs[1] = {p};
  const Arg operands[] = {p, g, lr, weight_decay};
  apply(Op::sgd_plain_step, operands, {}, p.dtype(), outputs);
}

void adam_step(Tensor& p, const Tensor& g, Tensor& m, Tensor& v, double lr, double beta1, double beta2,
               double eps, double weight_decay, double bias_correction1, double bias_correction2,
               bool decoupled) {
  NoGrad guard;
  Tensor outputs[3] = {p, m, v};
  const Arg operands[] = {
      p, g, m, v, lr, 1 - beta1, 1 - beta2, eps, weight_decay, bias_correction1, bias_correction2};
  apply(Op::adam_step, operands, {decoupled}, p.dtype(), outputs);
}

}  // namespace etch
