// What a compiled path says about itself.
#include "jit/report.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "jit/executable.h"
#include "jit/graph_facts.h"
#include "runtime/allocator.h"

namespace etch::jit {
namespace {

std::string milliseconds(double ms) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.2f ms", ms);
  return text;
}

std::string rate(int64_t bytes, double ms) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f GB/s", static_cast<double>(bytes) / ms * 1e-6);
  return text;
}

double ratio(int64_t a, int64_t b) { return b == 0 ? 1.0 : static_cast<double>(a) / static_cast<double>(b); }

}  // namespace

std::string memory_json(const Graph& graph, const MemoryPlan& plan) {
  nlohmann::json json;
  json["arena_bytes"] = plan.arena_bytes;
  json["lower_bound_bytes"] = plan.lower_bound;
  const std::vector<BufferFacts> facts = buffer_facts(graph);
  for (size_t b = 0; b < graph.buffers.size(); ++b) {
    if (plan.places[b].offset < 0 || facts[b].writers.empty()) continue;
    int last = facts[b].writers.back();
    if (!facts[b].readers.empty()) last = std::max(last, facts[b].readers.back());
    json["buffers"].push_back({{"buffer", b},
                               {"bytes", graph.buffers[b].bytes},
                               {"first", facts[b].writers.front()},
                               {"last", last},
                               {"offset", plan.places[b].offset},
                               {"output", plan.places[b].output}});
  }
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    json["steps"].push_back({{"op", std::string(name(graph.nodes[i].op))}, {"live_bytes", plan.live[i]}});
  return json.dump(1);
}

std::string PlanExecutable::report() const {
  const ExecutableStatistics& s = statistics_;
  char packing[32];
  std::snprintf(packing, sizeof(packing), "%.3f", ratio(s.arena_bytes, s.lower_bound_bytes));
  std::string text = join_text({s.nodes,
                                " ops -> ",
                                s.steps,
                                " steps, ",
                                s.kernels.size(),
                                " kernels; arena ",
                                print_bytes(s.arena_bytes),
                                " (",
                                packing,
                                " of the bound; internals side by side ",
                                print_bytes(s.internal_bytes),
                                "), outputs ",
                                print_bytes(s.output_bytes),
                                ", ",
                                s.in_place,
                                " in place; compiled in ",
                                milliseconds(s.compile_ms),
                                " (kernels ",
                                milliseconds(s.kernel_ms),
                                ": ",
                                s.kernels_compiled,
                                " built, ",
                                s.kernels_from_cache,
                                " from the cache)\n"});
  const std::vector<double> times = kernel_ms();
  for (size_t k = 0; k < s.kernels.size(); ++k) {
    const KernelFacts& kernel = s.kernels[k];
    text += join_text({"  ", kernel.name, " ", print_bytes(kernel.bytes)});
    if (times[k] > 0) text += join_text({", ", milliseconds(times[k]), ", ", rate(kernel.bytes, times[k])});
    text += join_text({": ", kernel.ops, "\n"});
  }
  for (const StepTime& time : step_times())
    if (time.runs > 0)
      text += join_text({"  ", time.kind, ": ", time.runs, " runs, ", milliseconds(time.ms), "; ",
                         milliseconds(time.call_ms), " a call\n"});
  return text;
}

std::string PlanExecutable::report_json() const {
  const ExecutableStatistics& s = statistics_;
  nlohmann::json json = {{"ops", s.nodes},
                         {"steps", s.steps},
                         {"arena_bytes", s.arena_bytes},
                         {"lower_bound_bytes", s.lower_bound_bytes},
                         {"output_bytes", s.output_bytes},
                         {"internal_bytes", s.internal_bytes},
                         {"in_place", s.in_place},
                         {"compile_ms", s.compile_ms},
                         {"kernel_ms", s.kernel_ms},
                         {"kernels_compiled", s.kernels_compiled},
                         {"kernels_from_cache", s.kernels_from_cache}};
  for (const PassTime& pass : s.passes)
    json["passes"].push_back({{"name", std::string(pass.name)}, {"ms", pass.ms}, {"nodes", pass.nodes}});
  for (const KernelFacts& kernel : s.kernels)
    json["kernels"].push_back({{"name", kernel.name}, {"ops", kernel.ops}, {"bytes", kernel.bytes}});
  for (const StepTime& time : step_times())
    json["step_times"].push_back(
        {{"kind", time.kind}, {"runs", time.runs}, {"ms", time.ms}, {"call_ms", time.call_ms}});
  return json.dump(1);
}

}  // namespace etch::jit
