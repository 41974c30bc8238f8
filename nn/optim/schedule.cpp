// Formulas of the learning-rate schedules.
#include "nn/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace etch::optim {

namespace {

void check_gamma(std::string_view op, double gamma) {
  ETCH_CHECK(gamma > 0, ValueError, op, ": expected a positive gamma, got ", gamma);
}

double power(double gamma, int64_t count) { return std::pow(gamma, static_cast<double>(count)); }

}  // namespace

void Schedule::step() { set_count(count_ + 1); }

void Schedule::set_count(int64_t count) {
  ETCH_CHECK(count >= 0, ValueError, "Schedule: expected a count of at least 0, got ", count);
  count_ = count;
  optimizer_.set_lr(lr_at(count));
}

StepLr::StepLr(Optimizer& optimizer, StepLrOptions options) : Schedule(optimizer), options_(options) {
  ETCH_CHECK(options.step_size > 0, ValueError, "StepLr: expected a positive step_size, got ",
             options.step_size);
  check_gamma("StepLr", options.gamma);
}
double StepLr::lr_at(int64_t count) const {
  return base() * power(options_.gamma, count / options_.step_size);
}

MultiStepLr::MultiStepLr(Optimizer& optimizer, MultiStepLrOptions options)
    : Schedule(optimizer), options_(std::move(options)) {
  ETCH_CHECK(std::is_sorted(options_.milestones.begin(), options_.milestones.end()), ValueError,
             "MultiStepLr: expected ascending milestones, got others");
  check_gamma("MultiStepLr", options_.gamma);
}
double MultiStepLr::lr_at(int64_t count) const {
  const auto& milestones = options_.milestones;
  return base() * power(options_.gamma,
                        std::upper_bound(milestones.begin(), milestones.end(), count) - milestones.begin());
}

CosineLr::CosineLr(Optimizer& optimizer, CosineLrOptions options) : Schedule(optimizer), options_(options) {
  ETCH_CHECK(options.steps > 0, ValueError, "CosineLr: expected positive steps, got ", options.steps);
  ETCH_CHECK(options.low >= 0, ValueError, "CosineLr: expected a lowest rate of at least 0, got ",
             options.low);
}
double CosineLr::lr_at(int64_t count) const {
  if (count >= options_.steps) return options_.low;
  const double angle = std::numbers::pi * static_cast<double>(count) / static_cast<double>(options_.steps);
  return options_.low + (base() - options_.low) * (1 + std::cos(angle)) / 2;
}

ExponentialLr::ExponentialLr(Optimizer& optimizer, ExponentialLrOptions options)
    : Schedule(optimizer), options_(options) {
  check_gamma("ExponentialLr", options.gamma);
}
double ExponentialLr::lr_at(int64_t count) const { return base() * power(options_.gamma, count); }

LinearWarmup::LinearWarmup(Optimizer& optimizer, LinearWarmupOptions options)
    : Schedule(optimizer), options_(options) {
  ETCH_CHECK(options.steps > 0 && options.start >= 0 && options.start <= 1, ValueError,
             "LinearWarmup: expected positive steps and a start in [0, 1], got ", options.steps, " and ",
             options.start);
  set_count(0);
}
double LinearWarmup::lr_at(int64_t count) const {
  if (count >= options_.steps) return options_.after ? options_.after->lr_at(count - options_.steps) : base();
  const double done = static_cast<double>(count) / static_cast<double>(options_.steps);
  return base() * (options_.start + (1 - options_.start) * done);
}

}  // namespace etch::optim
