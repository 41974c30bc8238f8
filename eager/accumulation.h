// Which gradients a backward pass adds to in place: for those who replay it.
#pragma once

#include <vector>

#include "runtime/storage.h"

namespace etch {

/// While alive, lists what backward passes on this thread add to where a .grad was there already. Scopes
/// nest; the innermost is told.
class GradientWatch {
 public:
  GradientWatch();
  ~GradientWatch();
  GradientWatch(const GradientWatch&) = delete;
  GradientWatch& operator=(const GradientWatch&) = delete;

  /// To compare with, not to follow: they may be gone.
  const std::vector<const Storage*>& added() const { return added_; }
  static void note(const Storage& gradient);

 private:
  std::vector<const Storage*> added_;
  GradientWatch* previous_;
};

}  // namespace etch
