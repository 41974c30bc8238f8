// Sequential: modules and functions one after the other.
#pragma once

#include <concepts>

#include "nn/module.h"

namespace etch::nn {

/// Sequential(nn::Linear(784, 10), nn::ReLU(), [](const Tensor& x) { return x * 2; }). Modules are children
/// named by their position.
class Sequential : public Module {
 public:
  Sequential() = default;
  template <class First, class... Rest>
  requires(!std::derived_from<std::remove_cvref_t<First>, Sequential> ||
           sizeof...(Rest) > 0) explicit Sequential(First&& first, Rest&&... rest) {
    push_back(std::forward<First>(first));
    (push_back(std::forward<Rest>(rest)), ...);
  }

  /// A module (shared, as copies of it are) or a callable Tensor(const Tensor&).
  template <class Step>
  void push_back(Step&& step) {
    using S = std::remove_cvref_t<Step>;
    if constexpr (std::derived_from<S, Module>) {
      register_module(std::to_string(steps_.size()), step);
      auto module = std::make_shared<S>(std::forward<Step>(step));
      steps_.push_back([module](const Tensor& x) { return module->forward(x); });
    } else {
      steps_.push_back(std::forward<Step>(step));
    }
  }

  bool empty() const { return steps_.empty(); }
  size_t size() const { return steps_.size(); }
  Tensor forward(const Tensor& x) override;

 private:
  std::vector<std::function<Tensor(const Tensor&)>> steps_;
};

}  // namespace etch::nn
