// Losses of elements: squared and absolute differences, binary cross entropy.
#include <limits>

#include "eager/functional.h"
#include "eager/tape.h"

namespace etch {

namespace {

void check_pair(std::string_view op, const Tensor& x, const Tensor& target) {
  ETCH_CHECK(x.defined() && target.defined(), ValueError, op,
             ": expected defined tensors, got an undefined one");
  ETCH_CHECK(x.sizes() == target.sizes(), ShapeError, op, ": expected equal sizes, got ",
             to_string(x.sizes()), " and ", to_string(target.sizes()));
}

void check_floating(std::string_view op, const Tensor& x, const Tensor& target) {
  check_pair(op, x, target);
  ETCH_CHECK(is_floating(x.dtype()) && is_floating(target.dtype()), DTypeError, op,
             ": expected floating dtypes, got ", name(x.dtype()), " and ", name(target.dtype()),
             "; convert with to(dtype)");
}

Tensor reduce(const Tensor& losses, Loss reduction) {
  return reduction == Loss::None ? losses : reduction == Loss::Sum ? losses.sum() : losses.mean();
}

void check_weight(std::string_view op, std::string_view which, const Tensor& weight, const Tensor& target) {
  if (!weight.defined()) return;
  ETCH_CHECK(is_floating(weight.dtype()), DTypeError, op, ": expected a ", which,
             " of a floating dtype, got ", name(weight.dtype()), "; convert with to(dtype)");
  ETCH_CHECK(can_broadcast_to(weight.sizes(), target.sizes()), ShapeError, op, ": expected a ", which,
             " that broadcasts to ", to_string(target.sizes()), ", got ", to_string(weight.sizes()));
}

Tensor reduce_weighted(std::string_view op, const Tensor& losses, const BinaryCrossEntropyOptions& options) {
  check_weight(op, "weight", options.weight, losses);
  return reduce(options.weight.defined() ? losses * options.weight : losses, options.reduction);
}

Tensor log_from_below(const Tensor& p) {
  return p.log().clamp(-100.0, std::numeric_limits<double>::infinity());
}

}  // namespace

Tensor mse_loss(const Tensor& x, const Tensor& target, Loss reduction) {
  check_pair("mse_loss", x, target);
  return reduce((x - target).square(), reduction);
}

Tensor l1_loss(const Tensor& x, const Tensor& target, Loss reduction) {
  check_pair("l1_loss", x, target);
  return reduce((x - target).abs(), reduction);
}

Tensor binary_cross_entropy(const Tensor& p, const Tensor& target, Loss reduction) {
  return binary_cross_entropy(p, target, {.reduction = reduction, .weight = {}, .pos_weight = {}});
}

// All have a gradient of their own: that of the formula is NaN or off at the ends of the range.
Tensor binary_cross_entropy(const Tensor& p, const Tensor& target, const BinaryCrossEntropyOptions& options) {
  constexpr std::string_view kName = "binary_cross_entropy";
  check_floating(kName, p, target);
  ETCH_CHECK(!options.pos_weight.defined(), ValueError, kName,
             ": expected no pos_weight, got one; use binary_cross_entropy_with_logits");
  const Tensor losses = no_grad([&] {
    const Tensor no = log_from_below(1.0 - p), yes = log_from_below(p);
    return target * (no - yes) - no;
  });
  if (needs_tape({&p, &target}))
    record_on_tape(kName, {&p, &target}, {&losses},
                   [p = SavedTensor(p, kName), t = SavedTensor(target, kName), type = p.dtype(),
                    target_type = target.dtype()](std::span<const Tensor> gradients, InputGradients inputs) {
                     const Tensor &g = gradients[0], x = p.unpack();
                     if (inputs.needs(0)) {
                       const Tensor spread =
                           ((1.0 - x) * x).clamp(1e-12, std::numeric_limits<double>::infinity());
                       inputs.set(0, (g * (x - t.unpack()) / spread).to(type));
                     }
                     if (inputs.needs(1))
                       inputs.set(1, (g * (log_from_below(1.0 - x) - log_from_below(x))).to(target_type));
                   });
  return reduce_weighted(kName, losses, options);
}

namespace {

constexpr std::string_view kWithLogits = "binary_cross_entropy_with_logits";

// log(1 + exp(-|x|)): what softplus(x) and softplus(-x) have beyond relu(x) and relu(-x).
Tensor soft_part(const Tensor& x) { return x.abs().neg().exp().log1p(); }

Tensor plain_losses(const Tensor& logits, const Tensor& target) {
  const Tensor losses = no_grad([&] { return logits.relu() - logits * target + soft_part(logits); });
  if (needs_tape({&logits, &target}))
    record_on_tape(
        kWithLogits, {&logits, &target}, {&losses},
        [x = SavedTensor(logits, kWithLogits), t = SavedTensor(target, kWithLogits), type = logits.dtype(),
         target_type = target.dtype()](std::span<const Tensor> gradients, InputGradients inputs) {
          const Tensor &g = gradients[0], a = x.unpack();
          if (inputs.needs(0)) inputs.set(0, (g * (a.sigmoid() - t.unpack())).to(type));
          if (inputs.needs(1)) inputs.set(1, (g * -a).to(target_type));
        });
  return losses;
}

// w * t * softplus(-x) + (1 - t) * softplus(x), and its derivatives, without differences of large numbers.
Tensor losses_of_weighted_positives(const Tensor& logits, const Tensor& target, const Tensor& weight) {
  const Tensor losses = no_grad([&] {
    const Tensor positive = target * weight, negative = 1.0 - target;
    return negative * logits.relu() + positive * logits.neg().relu() +
           (negative + positive) * soft_part(logits);
  });
  if (needs_tape({&logits, &target, &weight}))
    record_on_tape(
        kWithLogits, {&logits, &target, &weight}, {&losses},
        [saved_x = SavedTensor(logits, kWithLogits), saved_t = SavedTensor(target, kWithLogits),
         saved_w = SavedTensor(weight, kWithLogits)](std::span<const Tensor> gradients,
                                                     InputGradients inputs) {
          const Tensor &g = gradients[0], x = saved_x.unpack(), t = saved_t.unpack(), w = saved_w.unpack();
          if (inputs.needs(0))
            inputs.set(0, (g * ((1.0 - t) * x.sigmoid() - t * w * x.neg().sigmoid())).to(x.dtype()));
          const Tensor soft = soft_part(x), of_positive = x.neg().relu() + soft;
          if (inputs.needs(1)) inputs.set(1, (g * (w * of_positive - (x.relu() + soft))).to(t.dtype()));
          if (inputs.needs(2)) inputs.set(2, reduce_to(g * t * of_positive, w.sizes(), w.dtype()));
        });
  return losses;
}

}  // namespace

Tensor binary_cross_entropy_with_logits(const Tensor& logits, const Tensor& target, Loss reduction) {
  return binary_cross_entropy_with_logits(logits, target,
                                          {.reduction = reduction, .weight = {}, .pos_weight = {}});
}

Tensor binary_cross_entropy_with_logits(const Tensor& logits, const Tensor& target,
                                        const BinaryCrossEntropyOptions& options) {
  check_floating(kWithLogits, logits, target);
  check_weight(kWithLogits, "pos_weight", options.pos_weight, target);
  const Tensor losses = options.pos_weight.defined()
                            ? losses_of_weighted_positives(logits, target, options.pos_weight)
                            : plain_losses(logits, target);
  return reduce_weighted(kWithLogits, losses, options);
}

}  // namespace etch
