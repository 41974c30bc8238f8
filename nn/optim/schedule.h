// Learning-rate schedules: each step() sets the optimiser's rate for the steps that follow.
#pragma once

#include <cstdint>
#include <vector>

#include "nn/optim/optimizer.h"

namespace etch::optim {

/// The rate as a function of the number of step() calls so far, from the optimiser's rate at construction.
/// The optimiser must outlive the schedule.
class Schedule {
 public:
  virtual ~Schedule() = default;
  Schedule(const Schedule&) = delete;
  Schedule& operator=(const Schedule&) = delete;

  /// Call it once an epoch, or once a batch: the schedule counts calls.
  void step();
  int64_t count() const { return count_; }
  /// For going on from a checkpoint.
  void set_count(int64_t count);
  virtual double lr_at(int64_t count) const = 0;

 protected:
  explicit Schedule(Optimizer& optimizer) : optimizer_(optimizer), base_(optimizer.lr()) {}
  double base() const { return base_; }
  Optimizer& optimizer() const { return optimizer_; }

 private:
  Optimizer& optimizer_;
  double base_;
  int64_t count_ = 0;
};

struct StepLrOptions {
  int64_t step_size = 1;
  double gamma = 0.1;
};
/// base * gamma^(count / step_size), whole divisions.
class StepLr : public Schedule {
 public:
  StepLr(Optimizer& optimizer, StepLrOptions options);
  double lr_at(int64_t count) const override;

 private:
  StepLrOptions options_;
};

struct MultiStepLrOptions {
  std::vector<int64_t> milestones;  ///< ascending
  double gamma = 0.1;
};
/// base * gamma^(milestones at or before count).
class MultiStepLr : public Schedule {
 public:
  MultiStepLr(Optimizer& optimizer, MultiStepLrOptions options);
  double lr_at(int64_t count) const override;

 private:
  MultiStepLrOptions options_;
};

struct CosineLrOptions {
  int64_t steps = 1;  ///< from the base rate to `low`; afterwards it stays there
  double low = 0;
};
/// low + (base - low) * (1 + cos(pi * count / steps)) / 2.
class CosineLr : public Schedule {
 public:
  CosineLr(Optimizer& optimizer, CosineLrOptions options);
  double lr_at(int64_t count) const override;

 private:
  CosineLrOptions options_;
};

struct ExponentialLrOptions {
  double gamma = 0.1;
};
/// base * gamma^count.
class ExponentialLr : public Schedule {
 public:
  ExponentialLr(Optimizer& optimizer, ExponentialLrOptions options);
  double lr_at(int64_t count) const override;

 private:
  ExponentialLrOptions options_;
};

struct LinearWarmupOptions {
  int64_t steps = 1;
  double start = 1.0 / 3;     ///< factor at count 0
  Schedule* after = nullptr;  ///< goes on from its own count 0 after `steps`; null: the base rate
};
/// base * a factor that grows from `start` to 1 in `steps`. Sets the optimiser's rate at construction. Make
/// `after` first, and call step() of the warm-up only.
class LinearWarmup : public Schedule {
 public:
  LinearWarmup(Optimizer& optimizer, LinearWarmupOptions options);
  double lr_at(int64_t count) const override;

 private:
  LinearWarmupOptions options_;
};

}  // namespace etch::optim
