// What optimisers share: their parameters, learning rate and state.
#pragma once

#include <string_view>
#include <vector>

#include "nn/module.h"

namespace etch::optim {

using nn::NamedTensors;

/// Updates parameters in place from their gradients. State tensors are made by the constructor, in memory
/// category OptimizerState, so that every step runs the same ops. Parameters without a gradient are skipped.
/// Inside a traced function step() is deferred like any other op.
class Optimizer {
 public:
  /// Throws ValueError for no parameters, undefined or repeated ones, and for a negative or NaN lr.
  Optimizer(std::string_view name, std::vector<Tensor> parameters, double lr);
  virtual ~Optimizer();
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  virtual void step() = 0;
  /// Makes all gradients undefined, which frees their memory; or fills them with zeros.
  void zero_grad(bool set_to_none = true);

  double lr() const { return lr_; }
  /// Throws ValueError for a negative or NaN lr.
  void set_lr(double lr);
  const std::vector<Tensor>& parameters() const { return parameters_; }

  /// Learning rate, step counts and state tensors ("3.momentum_buffer" belongs to parameter 3), sharing
  /// memory with the optimiser: clone() them for a snapshot.
  NamedTensors state_dict() const;
  /// Throws ValueError listing missing and unexpected names, ShapeError for other sizes; then nothing has
  /// been changed.
  void load_state_dict(const NamedTensors& state);

 protected:
  /// One zero tensor a parameter, in its dtype and memory order.
  std::vector<Tensor>& make_state(std::string name);

  std::vector<Tensor> parameters_;
  std::vector<int64_t> steps_;  ///< updates so far, per parameter

 private:
  struct Slot {
    std::string name;
    std::vector<Tensor> tensors;
  };
  std::string name_;
  double lr_;
  std::vector<std::unique_ptr<Slot>> slots_;
};

/// sqrt of the sum of squares of all gradients; those are scaled in place so that it is at most `max_norm`.
/// Returns the norm before, 0-d f32, without a host read. Throws ValueError unless max_norm is positive.
Tensor clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm);

}  // namespace etch::optim
