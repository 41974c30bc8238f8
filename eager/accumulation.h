// Which gradients a backward pass adds to in place: for those who replay it.
#pragma once

#include <vector>

#include "eager/tensor.h"

namespace etch {

/// While alive, lists what backward passes on this thread add to where a .grad was there already. Scopes
/// nest; the innermost is told.
class GradientWatch {
 public:
  GradientWatch();
  ~GradientWatch();
  GradientWatch(const GradientWatch&) = delete;
  GradientWatch& operator=(const GradientWatch&) = delete;

  struct Added {
    Ref<TensorImpl> leaf, gradient;

    /// Whether the gradient is the leaf's still.
    bool is_there() const { return Tensor(leaf).grad().ref() == gradient; }
  };
  const std::vector<Added>& added() const { return added_; }
  static void note(TensorImpl& leaf);

 private:
  std::vector<Added> added_;
  GradientWatch* previous_;
};

}  // namespace etch
