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

/// The kernel's scratch, or the executor's.
int64_t scratch_bytes_of(const Node& node, const codegen::LoweredKernel& lowered) {
  if (node.op == Op::fused) return lowered.scratch_bytes;
  std::vector<Operand> operands;
  for (const GraphOperand& input : node.inputs) operands.push_back(describe(input));
  for (const GraphOperand& output : node.outputs) operands.push_back(describe(output));
  const std::span<const Operand> all(operands);
  const OpCall call{node.op, all.first(node.inputs.size()), all.subspan(node.inputs.size()), node.attrs};
  return static_cast<int64_t>(executor(DeviceType::Cpu).scratch_bytes(call));
}

void plan(CpuProgram& program) {
  program.scratch_bytes.resize(program.graph.nodes.size());
  for (size_t i = 0; i < program.scratch_bytes.size(); ++i)
    program.scratch_bytes[i] = scratch_bytes_of(program.graph.nodes[i], program.lowered[i]);
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
  for (size_t i = 0; i < nodes.size(); ++i)
    if (nodes[i].op == Op::fused && !as_piece_sum(nodes[i])) program.lowered[i] = codegen::lower(nodes[i]);
  plan(program);
  return program;
}

void load_kernels(CpuProgram& program, ExecutableStatistics& statistics) {
  Graph& graph = program.graph;
  program.loaded.resize(graph.nodes.size());
  std::vector<const codegen::LoweredKernel*> kernels;
  std::vector<size_t> at;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (program.lowered[i].name.empty()) continue;
    kernels.push_back(&program.lowered[i]);
    at.push_back(i);
  }
  if (kernels.empty()) return;
  codegen::LoadStatistics load;
  std::vector<codegen::LoadedKernel> loaded = codegen::load_host_kernels(kernels, &load);
  statistics.kernels_compiled = load.compiled;
  statistics.kernels_from_cache = load.from_cache;
  std::vector<bool> missing(graph.nodes.size(), false);
  bool all = true;
  for (size_t k = 0; k < at.size(); ++k) {
    missing[at[k]] = loaded[k].phases.empty();
    all = all && !missing[at[k]];
    program.loaded[at[k]] = std::move(loaded[k]);
  }
  if (all) return;
  std::vector<codegen::LoweredKernel> lowered;
  std::vector<codegen::LoadedKernel> functions;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const size_t count = missing[i] ? graph.nodes[i].group->body.size() : 1;
    lowered.resize(lowered.size() + count);
    functions.resize(functions.size() + count);
    if (missing[i]) continue;
    lowered.back() = std::move(program.lowered[i]);
    functions.back() = std::move(program.loaded[i]);
  }
  graph = split_groups(std::move(graph), missing);
  program.lowered = std::move(lowered);
  program.loaded = std::move(functions);
  plan(program);
}

}  // namespace etch::jit
