// What optimisers share.
#include "nn/optim/optimizer.h"

#include <unordered_map>
#include <unordered_set>

namespace etch::optim {

Optimizer::Optimizer(std::string_view name, std::vector<Tensor> parameters, double lr)
    : parameters_(std::move(parameters)), steps_(parameters_.size(), 0), name_(name) {
  ETCH_CHECK(!parameters_.empty(), ValueError, name_, ": expected parameters, got none");
  std::unordered_set<const TensorImpl*> seen;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    ETCH_CHECK(parameters_[i].defined(), ValueError, name_, ": expected defined parameters, got number ", i,
               " undefined");
    ETCH_CHECK(seen.insert(&parameters_[i].impl()).second, ValueError, name_,
               ": expected each parameter once, got number ", i, " again");
  }
  set_lr(lr);
}

Optimizer::~Optimizer() = default;

void Optimizer::zero_grad(bool set_to_none) {
  for (Tensor& parameter : parameters_) {
    if (set_to_none) {
      parameter.zero_grad();
    } else if (Tensor gradient = parameter.grad(); gradient.defined()) {
      NoGrad guard;
      gradient.zero_();
    }
  }
}

void Optimizer::set_lr(double lr) {
  ETCH_CHECK(lr >= 0, ValueError, name_, ": expected a learning rate of at least 0, got ", lr);
  lr_ = lr;
}

std::vector<Tensor>& Optimizer::make_state(std::string name) {
  NoGrad guard;
  auto slot = std::make_unique<Slot>();
  slot->name = std::move(name);
  for (const Tensor& parameter : parameters_) {
    Tensor state = zeros_like(parameter.detach());
    state.storage().set_category(MemoryCategory::OptimizerState);
    slot->tensors.push_back(std::move(state));
  }
  slots_.push_back(std::move(slot));
  return slots_.back()->tensors;
}

NamedTensors Optimizer::state_dict() const {
  NamedTensors result;
  result.emplace_back("lr", scalar_tensor(lr_, {.dtype = DType::F64}));
  result.emplace_back("steps", from_vector(steps_));
  for (size_t i = 0; i < parameters_.size(); ++i)
    for (const auto& slot : slots_)
      result.emplace_back(std::to_string(i) + "." + slot->name, slot->tensors[i]);
  return result;
}

void Optimizer::load_state_dict(const NamedTensors& state) {
  std::unordered_map<std::string, Tensor> given(state.begin(), state.end());
  const NamedTensors own = state_dict();
  std::string missing, unexpected;
  for (const auto& [name, tensor] : own) {
    const auto found = given.find(name);
    if (found == given.end()) {
      missing += (missing.empty() ? "" : ", ") + name;
      continue;
    }
    ETCH_CHECK(found->second.defined() && found->second.sizes() == tensor.sizes(), ShapeError, name_,
               ": load_state_dict: expected ", to_string(tensor.sizes()), " for ", name, ", got ",
               found->second.defined() ? to_string(found->second.sizes()) : "nothing");
  }
  const std::unordered_map<std::string, Tensor> known(own.begin(), own.end());
  for (const auto& [name, tensor] : state)
    if (!known.count(name)) unexpected += (unexpected.empty() ? "" : ", ") + name;
  ETCH_CHECK(missing.empty() && unexpected.empty(), ValueError, name_,
             ": load_state_dict: expected the optimiser's own names; missing: ",
             missing.empty() ? "none" : missing, "; unexpected: ", unexpected.empty() ? "none" : unexpected);

  set_lr(given["lr"].item<double>());
  steps_ = given["steps"].to_vector<int64_t>();
  NoGrad guard;
  for (size_t i = 0; i < parameters_.size(); ++i)
    for (auto& slot : slots_) slot->tensors[i].copy_(given[std::to_string(i) + "." + slot->name]);
}

Tensor clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm) {
  ETCH_CHECK(max_norm > 0, ValueError, "clip_grad_norm_: expected a positive norm, got ", max_norm);
  NoGrad guard;
  Tensor total = scalar_tensor(0.0, {.dtype = DType::F32});
  for (const Tensor& parameter : parameters)
    if (parameter.grad().defined()) total = total + parameter.grad().square().sum().to(DType::F32);
  const Tensor norm = total.sqrt();
  const Tensor scale = minimum(max_norm / (norm + 1e-6), 1.0);
  for (const Tensor& parameter : parameters)
    if (Tensor gradient = parameter.grad(); gradient.defined()) gradient.mul_(scale);
  return norm;
}

}  // namespace etch::optim
