// A progress bar with throughput on a terminal; elsewhere a plain line now and then.
#pragma once

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>

namespace etch::examples {

class Progress {
 public:
  /// `title` begins every line; nothing is printed unless `enabled`.
  Progress(std::string title, int64_t epochs, int64_t steps, int64_t batch, bool enabled)
      : title_(std::move(title)),
        epochs_(epochs),
        steps_(steps),
        batch_(batch),
        enabled_(enabled),
        terminal_(isatty(STDOUT_FILENO)) {}

  /// After `done` steps of an epoch, both counted from 1.
  void update(int64_t epoch, int64_t done, double loss) {
    const auto now = Clock::now();
    if (done == 1) {
      // The first step of an epoch only starts its clock: throughput is that of the steps after it.
      epoch_start_ = now;
      if (epoch == 1) last_ = now;
    }
    if (!enabled_) return;
    const double since = std::chrono::duration<double>(now - last_).count();
    const bool last_step = done == steps_;
    if (since < (terminal_ ? 0.1 : 5.0) && !(terminal_ ? last_step : last_step && epoch == epochs_)) return;
    last_ = now;
    const double seconds = std::chrono::duration<double>(now - epoch_start_).count();
    const double rate = seconds > 0 ? static_cast<double>((done - 1) * batch_) / seconds : 0;
    std::printf("%s%s epoch %lld/%lld %s %lld/%lld  loss %.4f  %.0f pictures/s%s", terminal_ ? "\r" : "",
                title_.c_str(), as_long(epoch), as_long(epochs_), bar(done).c_str(), as_long(done),
                as_long(steps_), loss, rate, terminal_ ? "\033[K" : "\n");
    std::fflush(stdout);
  }

  /// Leaves the bar's line.
  void finish() {
    if (enabled_ && terminal_) std::printf("\n");
  }

 private:
  using Clock = std::chrono::steady_clock;
  static long long as_long(int64_t value) { return value; }

  std::string bar(int64_t done) const {
    constexpr int64_t kWidth = 24;
    const int64_t filled = done * kWidth / steps_;
    return "[" + std::string(static_cast<size_t>(filled), '=') +
           std::string(static_cast<size_t>(kWidth - filled), ' ') + "]";
  }

  std::string title_;
  int64_t epochs_, steps_, batch_;
  bool enabled_, terminal_;
  Clock::time_point epoch_start_, last_;
};

}  // namespace etch::examples
