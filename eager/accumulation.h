// Which gradients a backward pass adds to: for those who replay it.
#pragma once

#include <vector>

#include "eager/tensor.h"

namespace etch {

/// While alive, lists the leaves that backward passes on this thread give gradients to, with the .grad that
/// was there before the first of them. Leaves and gradients that a running trace makes are left out. Scopes
/// nest; the innermost is told.
class GradientWatch {
 public:
  GradientWatch();
  ~GradientWatch();
  GradientWatch(const GradientWatch&) = delete;
  GradientWatch& operator=(const GradientWatch&) = delete;

  struct Added {
    Ref<TensorImpl> leaf, gradient;  ///< no gradient: the leaf had none

    /// Whether the leaf's gradient is what it was, or it has none again.
    bool is_unchanged() const { return Tensor(leaf).grad().ref() == gradient; }
  };
  /// The list, which is empty then, without leaves that nobody else holds any more.
  std::vector<Added> take();
  /// Before a backward pass adds to the .grad of `leaf`.
  static void note(TensorImpl& leaf);

 private:
  std::vector<Added> added_;
  std::vector<Ref<TensorImpl>> made_inside_;  // leaves whose gradient was made by the trace
  GradientWatch* previous_;
};

}  // namespace etch
