// From a path to an executable: the passes in order, then memory, kernels and the plan.
#include "jit/pipeline.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>

#include "jit/cpu_plan.h"
#include "jit/graph_facts.h"
#include "jit/passes.h"
#include "jit/report.h"
#include "runtime/config.h"
#include "runtime/error.h"
#include "tracer/composites.h"

namespace etch::jit {
namespace {

// A composite that checks data which the path itself makes stays whole, or its check would be lost.
Graph expand(Graph graph) {
  const std::vector<BufferFacts> facts = buffer_facts(graph);
  Graph expanded{graph.device, graph.buffers, {}, graph.num_slots};
  for (const Node& node : graph.nodes)
    if (info(node.op).kind == OpKind::Composite &&
        (checked_operand(node) < 0 || checks_early(graph, facts, node)))
      expand_composite(node, expanded);
    else
      expanded.nodes.push_back(node);
  return expanded;
}

/// A pass that needs no options.
template <Graph (*function)(Graph)>
Graph plain(Graph graph, const PassOptions&) {
  return function(std::move(graph));
}

Graph recompute_within(Graph graph, const PassOptions& options) {
  return recompute(std::move(graph), options.memory_budget);
}

Graph tile_within(Graph graph, const PassOptions& options) {
  return tile_products(std::move(graph), options.memory_budget);
}

constexpr Pass kPasses[] = {
    {"fix_offsets", plain<fix_offsets>, true},
    {"expand_composites", plain<expand>, false},
    {"rename", plain<rename_overwritten>, true},
    {"fix_expanded_offsets", plain<fix_offsets>, true},
    {"canonicalise", plain<canonicalise>, true},
    {"cse", plain<merge_common>, true},
    {"dce", plain<eliminate_dead_code>, true},
    {"recompute", recompute_within, true},
    {"gather_pieces", plain<gather_pieces>, true},
    {"fuse", plain<fuse>, true},
    {"inline_recomputed", plain<inline_recomputed>, true},
    {"tile", tile_within, true},
    {"order", plain<order_for_memory>, true},
};

class Stopwatch {
 public:
  double ms() const {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

bool is_skipped(std::string_view pass) {
  std::string_view list = config().skip_passes;
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    if (list.substr(0, comma) == pass) return true;
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return false;
}

bool verifies() {
#ifdef NDEBUG
  return config().verify;
#else
  return true;
#endif
}

/// A name that is unique in this process and fit for a file.
std::string make_label(const std::string& name) {
  static std::atomic<int> count{0};
  std::string label = name.empty() ? "path" : name;
  for (char& c : label)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_') c = '_';
  if (label.size() > 60) label.resize(60);
  return join_text({label, "-", count.fetch_add(1)});
}

/// Checks that may run before anything is written: those of live ops whose operand no op of the call makes.
std::vector<Node> early_checks(const Graph& graph) {
  const std::vector<BufferFacts> facts = buffer_facts(graph);
  std::vector<Node> checks;
  for (const Node& node : graph.nodes)
    if (checks_early(graph, facts, node)) checks.push_back(node);
  return checks;
}

int64_t window_bytes(const GraphOperand& window) {
  int64_t count = 1;
  for (int i = 0; i < window.geometry.ndim(); ++i)
    if (window.geometry.strides[i] != 0) count *= window.geometry.sizes[i];
  return count * static_cast<int64_t>(item_size(window.dtype));
}

void append_ops(const Node& node, std::string& ops) {
  for (const Node& inner : node.group->body) {
    if (inner.group) {
      append_ops(inner, ops);
      continue;
    }
    if (!ops.empty()) ops += ' ';
    ops += name(inner.op);
  }
}

/// Of a generated kernel, or of a tiled node.
KernelFacts kernel_facts(const CpuProgram& program, size_t at) {
  const Node& node = program.graph.nodes[at];
  KernelFacts facts;
  append_ops(node, facts.ops);
  if (program.tiles[at]) {
    facts.name = name(node.op);
    for (const auto* operands : {&node.inputs, &node.outputs})
      for (const GraphOperand& operand : *operands)
        if (operand.is_tensor()) facts.bytes += window_bytes(operand);
    return facts;
  }
  facts.name = program.lowered[at].name;
  for (const GraphOperand& window : program.lowered[at].pointers) facts.bytes += window_bytes(window);
  return facts;
}

/// The passes and a plan. What passes take for the bytes alive leaves out scratch, so a budget that the plan
/// misses is tried again with as much less.
CpuProgram plan_within(const Graph& graph, std::string_view label, std::vector<PassTime>& times,
                       int64_t budget) {
  constexpr int kTries = 4;
  int64_t aim = budget;
  for (int tries = 1;; ++tries) {
    times.clear();
    CpuProgram program = lower_to_cpu(run_passes(graph, label, &times, {.memory_budget = aim}));
    const int64_t got = program.memory.arena_bytes;
    if (budget == 0 || got <= budget || tries == kTries) return program;
    aim = std::max<int64_t>(1, aim - (got - budget));
  }
}

/// One line a folder.
void warn_unwritable(const std::string& folder) {
  static std::mutex* const mutex = new std::mutex;
  static std::set<std::string>* const warned = new std::set<std::string>;
  std::lock_guard lock(*mutex);
  if (warned->insert(folder).second)
    log(0, join_text({"dump: expected a folder that can be written in ETCH_DUMP, got ", folder,
                      "; what cannot be written there is left out"}));
}

}  // namespace

std::span<const Pass> passes() { return kPasses; }

void dump(std::string_view label, std::string_view what, std::string_view text) {
  const std::string& folder = config().dump_dir;
  if (folder.empty()) return;
  std::error_code ignored;
  std::filesystem::create_directories(folder, ignored);
  std::ofstream file(std::filesystem::path(folder) / join_text({label, ".", what}));
  file << text;
  if (!file.flush()) warn_unwritable(folder);
}

Graph run_passes(Graph graph, std::string_view label, std::vector<PassTime>* times,
                 const PassOptions& options) {
  auto show = [&](std::string_view stage, int number) {
    if (!log_enabled(5) && config().dump_dir.empty()) return;
    const std::string text = print(graph);
    if (log_enabled(5)) log(5, join_text({label, " after ", stage, ":\n", text}));
    const std::string file = join_text({number < 10 ? "0" : "", number, "-", stage});
    dump(label, file + ".txt", text);
    dump(label, file + ".dot", print_dot(graph));
  };
  if (verifies()) verify(graph, "build");
  show("build", 0);
  int number = 0;
  for (const Pass& pass : passes()) {
    ++number;
    if (pass.optional && is_skipped(pass.name)) continue;
    Stopwatch watch;
    graph = pass.run(std::move(graph), options);
    if (times) times->push_back({pass.name, watch.ms(), static_cast<int>(graph.nodes.size())});
    show(pass.name, number);
    if (verifies()) verify(graph, pass.name);
  }
  return graph;
}

Ref<PlanExecutable> compile_graph(Graph graph, const LiveSet& live, const CompileOptions& options) {
  Stopwatch watch;
  ETCH_CHECK(graph.device.type == DeviceType::Cpu, DeviceError, "compile: expected a CPU graph, got ",
             to_string(graph.device));
  const std::string label = make_label(options.name);
  ExecutableStatistics statistics;
  statistics.nodes = static_cast<int>(graph.nodes.size());
  // Dead ops raise nothing, whether or not the pass that removes them runs.
  std::vector<Node> checks = early_checks(eliminate_dead_code(graph));
  CpuProgram program = plan_within(graph, label, statistics.passes, options.memory_budget);
  program.checks = std::move(checks);

  Stopwatch kernels;
  load_kernels(program, statistics);
  statistics.kernel_ms = kernels.ms();
  const size_t steps = program.graph.nodes.size();
  for (size_t i = 0; i < steps; ++i)
    if (program.tiles[i] || !program.lowered[i].name.empty())
      statistics.kernels.push_back(kernel_facts(program, i));
  statistics.steps = static_cast<int>(steps);
  statistics.arena_bytes = program.memory.arena_bytes;
  statistics.lower_bound_bytes = program.memory.lower_bound;
  statistics.output_bytes = program.memory.output_bytes;
  statistics.internal_bytes = program.memory.unshared_bytes;
  statistics.in_place = static_cast<int>(program.memory.in_place);
  std::string text = print(program.graph);
  if (!config().dump_dir.empty()) {
    dump(label, "final.txt", text);
    dump(label, "plan.json", memory_json(program.graph, program.memory));
    for (const ProgramKernel& kernel : kernels_of(program)) {
      dump(label, kernel.lowered->name + ".cpp", kernel.lowered->host_source);
      dump(label, kernel.lowered->name + ".cu", kernel.lowered->cuda_source);
    }
  }
  for (const ProgramKernel& kernel : kernels_of(program))
    kernel.lowered->host_source = kernel.lowered->cuda_source = {};
  statistics.compile_ms = watch.ms();
  Ref<PlanExecutable> executable(
      new CpuPlan(std::move(program), live, std::move(statistics), std::move(text)));
  if (log_enabled(2)) log(2, join_text({"compiled ", label, ": ", executable->report()}));
  return executable;
}

Ref<Executable> compile_path(const Path& path, const LiveSet& live, const CompileOptions& options) {
  return compile_graph(build_graph(path, live), live, options);
}

void register_with_tracer() { register_compiler(compile_path); }

}  // namespace etch::jit
