// What a compiled path is, beyond what the recorder sees of it: figures for benches and reports.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tracer/path.h"

namespace etch::jit {

struct KernelFacts {
  std::string name;
  std::string ops;    ///< names of the body's ops in order
  int64_t bytes = 0;  ///< loaded and stored by one run, each window once
};

struct PassTime {
  std::string_view name;
  double ms = 0;
  int nodes = 0;  ///< after the pass
};

struct ExecutableStatistics {
  int nodes = 0;  ///< of the recorded path
  int steps = 0;  ///< of one replay
  int64_t arena_bytes = 0;
  int64_t lower_bound_bytes = 0;  ///< no packing needs fewer than this in the arena
  int64_t output_bytes = 0;       ///< storages that the call returns or leaves behind
  int64_t internal_bytes = 0;     ///< what the internals would take side by side
  int in_place = 0;               ///< buffers written over a dying operand
  double compile_ms = 0;          ///< all of it: passes, kernels, plan
  double kernel_ms = 0;           ///< of it: building and loading kernels
  int kernels_compiled = 0, kernels_from_cache = 0;
  std::vector<PassTime> passes;
  std::vector<KernelFacts> kernels;
};

/// Time that replays spent, by kind of step ("fused", "conv2d", ...), in milliseconds; filled at ETCH_LOG=3
/// and above.
struct StepTime {
  std::string kind;
  int64_t runs = 0;
  double ms = 0;
  double call_ms = 0;  ///< of one call: the sum of its steps' medians over their latest runs
};

class PlanExecutable : public Executable {
 public:
  const LiveSet& live() const override { return live_; }
  std::string report() const override;
  std::string report_json() const override;
  const ExecutableStatistics& statistics() const { return statistics_; }
  /// The graph after the last pass, as text.
  const std::string& final_graph() const { return final_graph_; }
  virtual std::vector<StepTime> step_times() const = 0;
  /// Median milliseconds of the latest runs of each of statistics().kernels; zeros unless timed, as
  /// step_times().
  virtual std::vector<double> kernel_ms() const = 0;

 protected:
  LiveSet live_;
  ExecutableStatistics statistics_;
  std::string final_graph_;
};

/// Runs the passes, plans memory, loads kernels. `graph` as build_graph() gives it.
Ref<PlanExecutable> compile_graph(Graph graph, const LiveSet& live, const CompileOptions& options);
/// The compiler that register_with_tracer() registers.
Ref<Executable> compile_path(const Path& path, const LiveSet& live, const CompileOptions& options);
void register_with_tracer();

}  // namespace etch::jit
