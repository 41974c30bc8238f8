// From a graph after the passes to what its replay on the CPU needs: lowered groups, a memory plan, kernels.
#include <algorithm>

#include "jit/cpu_plan.h"
#include "jit/graph_facts.h"
#include "jit/passes.h"
#include "jit/piece_sum.h"

namespace etch::jit {
namespace {

/// Elements of the widest window that the node touches.
int64_t widest(const Node& node) {
  int64_t most = 0;
  for (const Node& inner : node.group->body) {
    for (const GraphOperand& in : inner.inputs)
      if (in.is_tensor()) most = std::max(most, in.geometry.numel());
    for (const GraphOperand& out : inner.outputs) most = std::max(most, out.geometry.numel());
  }
  return most;
}

/// The kernel's scratch, the tile's for all threads, or the executor's.
int64_t scratch_bytes_of(const CpuProgram& program, size_t at) {
  const Node& node = program.graph.nodes[at];
  if (node.op == Op::fused) return program.lowered[at].scratch_bytes;
  if (program.tiles[at])
    return program.threads * program.tiles[at]->scratch_floats * static_cast<int64_t>(sizeof(float));
  std::vector<Operand> operands;
  for (const GraphOperand& input : node.inputs) operands.push_back(describe(input));
  for (const GraphOperand& output : node.outputs) operands.push_back(describe(output));
  const std::span<const Operand> all(operands);
  const OpCall call{node.op, all.first(node.inputs.size()), all.subspan(node.inputs.size()), node.attrs};
  return static_cast<int64_t>(executor(DeviceType::Cpu).scratch_bytes(call));
}

/// Nodes that split_groups() makes of a group.
size_t ungrouped_size(const Node& node) {
  if (!node.group) return 1;
  size_t count = 0;
  for (const Node& inner : node.group->body) count += ungrouped_size(inner);
  return count;
}

void plan(CpuProgram& program) {
  program.scratch_bytes.resize(program.graph.nodes.size());
  for (size_t i = 0; i < program.scratch_bytes.size(); ++i)
    program.scratch_bytes[i] = scratch_bytes_of(program, i);
  program.memory = plan_memory(program.graph, program.scratch_bytes, CpuShareRule(program.graph));
}

}  // namespace

// A step may write its output over an input when every element is read only for the same element of the
// output: pointwise nodes, and groups at the level of their widest windows (a row's result may be stored
// while the row is still being read). One dtype, or the compiler could move a load behind the store.
bool CpuShareRule::may_share(int at, const GraphOperand& input, const GraphOperand& output) const {
  const Node& node = graph_.nodes[at];
  if ((node.op != Op::fused && !is_pointwise(node)) || as_piece_sum(node)) return false;
  if (input.dtype != output.dtype || !(input.geometry == output.geometry)) return false;
  for (const GraphOperand& other : node.inputs)
    if (other.is_tensor() && other.buffer == input.buffer && !same_window(other, input)) return false;
  return node.op != Op::fused || output.geometry.numel() == widest(node);
}

CpuProgram lower_to_cpu(Graph graph) {
  CpuProgram program;
  program.graph = std::move(graph);
  const std::vector<Node>& nodes = program.graph.nodes;
  program.lowered.resize(nodes.size());
  program.loaded.resize(nodes.size());
  program.tiles.resize(nodes.size());
  for (size_t i = 0; i < nodes.size(); ++i)
    if (nodes[i].op == Op::tiled) {
      program.tiles[i] = plan_tile(nodes[i]);
      ETCH_CHECK(program.tiles[i], InternalError,
                 "lower_to_cpu: expected a tiled node that plan_tile() accepts");
    } else if (nodes[i].op == Op::fused && !as_piece_sum(nodes[i])) {
      program.lowered[i] = codegen::lower(nodes[i]);
    }
  plan(program);
  return program;
}

std::vector<ProgramKernel> kernels_of(CpuProgram& program) {
  std::vector<ProgramKernel> kernels;
  for (size_t i = 0; i < program.graph.nodes.size(); ++i) {
    if (!program.lowered[i].name.empty()) kernels.push_back({i, &program.lowered[i], &program.loaded[i]});
    if (!program.tiles[i]) continue;
    for (TilePlan::Stage& stage : program.tiles[i]->stages)
      if (auto* kernel = std::get_if<TilePlan::Kernel>(&stage))
        kernels.push_back({i, &kernel->lowered, &kernel->loaded});
  }
  return kernels;
}

void load_kernels(CpuProgram& program, ExecutableStatistics& statistics) {
  Graph& graph = program.graph;
  const std::vector<ProgramKernel> kernels = kernels_of(program);
  if (kernels.empty()) return;
  std::vector<const codegen::LoweredKernel*> lowered;
  for (const ProgramKernel& kernel : kernels) lowered.push_back(kernel.lowered);
  codegen::LoadStatistics load;
  std::vector<codegen::LoadedKernel> loaded = codegen::load_host_kernels(lowered, &load);
  statistics.kernels_compiled = load.compiled;
  statistics.kernels_from_cache = load.from_cache;
  std::vector<bool> missing(graph.nodes.size(), false);
  bool all = true;
  for (size_t k = 0; k < kernels.size(); ++k) {
    const bool failed = loaded[k].phases.empty();
    if (failed) missing[kernels[k].node] = true;
    all = all && !failed;
    *kernels[k].loaded = std::move(loaded[k]);
  }
  if (all) return;
  CpuProgram split;
  split.threads = program.threads;
  split.checks = std::move(program.checks);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const size_t count = split.lowered.size() + (missing[i] ? ungrouped_size(graph.nodes[i]) : 1);
    split.lowered.resize(count);
    split.loaded.resize(count);
    split.tiles.resize(count);
    if (missing[i]) continue;
    split.lowered.back() = std::move(program.lowered[i]);
    split.loaded.back() = std::move(program.loaded[i]);
    split.tiles.back() = std::move(program.tiles[i]);
  }
  split.graph = split_groups(std::move(graph), missing);
  program = std::move(split);
  plan(program);
}

}  // namespace etch::jit
