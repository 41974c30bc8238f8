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

// Both have a gradient of their own: that of the formula is NaN or off at the ends of the range.
Tensor binary_cross_entropy(const Tensor& p, const Tensor& target, Loss reduction) {
  constexpr std::string_view kName = "binary_cross_entropy";
  check_floating(kName, p, target);
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
  return reduce(losses, reduction);
}

Tensor binary_cross_entropy_with_logits(const Tensor& logits, const Tensor& target, Loss reduction) {
  constexpr std::string_view kName = "binary_cross_entropy_with_logits";
  check_floating(kName, logits, target);
  const Tensor losses =
      no_grad([&] { return logits.relu() - logits * target + logits.abs().neg().exp().log1p(); });
  if (needs_tape({&logits, &target}))
    record_on_tape(kName, {&logits, &target}, {&losses},
                   [x = SavedTensor(logits, kName), t = SavedTensor(target, kName), type = logits.dtype(),
                    target_type = target.dtype()](std::span<const Tensor> gradients, InputGradients inputs) {
                     const Tensor &g = gradients[0], a = x.unpack();
                     if (inputs.needs(0)) inputs.set(0, (g * (a.sigmoid() - t.unpack())).to(type));
                     if (inputs.needs(1)) inputs.set(1, (g * -a).to(target_type));
                   });
  return reduce(losses, reduction);
}

}  // namespace etch
