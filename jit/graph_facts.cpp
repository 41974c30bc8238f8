// Readers, writers and order of nodes.
#include "jit/graph_facts.h"

#include <algorithm>

namespace etch::jit {
namespace {

void add_once(std::vector<int>& list, int node) {
  if (list.empty() || list.back() != node) list.push_back(node);
}

void sort_unique(std::vector<int>& list) {
  std::sort(list.begin(), list.end());
  list.erase(std::unique(list.begin(), list.end()), list.end());
}

}  // namespace

std::vector<BufferFacts> buffer_facts(const Graph& graph) {
  const size_t count = graph.buffers.size();
  std::vector<BufferFacts> facts(count);
  std::vector<int> writes(count, 0);
  std::vector<bool> full(count, false);
  for (int i = 0; i < static_cast<int>(graph.nodes.size()); ++i) {
    const Node& node = graph.nodes[i];
    for (const GraphOperand& input : node.inputs)
      if (input.is_tensor()) add_once(facts[input.buffer].readers, i);
    for (const GraphOperand& output : node.outputs) {
      add_once(facts[output.buffer].writers, i);
      ++writes[output.buffer];
      full[output.buffer] = covers_buffer(graph, output);
    }
  }
  for (size_t b = 0; b < count; ++b) {
    BufferFacts& f = facts[b];
    f.value = graph.buffers[b].kind != GraphBuffer::Kind::External && writes[b] == 1 && full[b] &&
              (f.readers.empty() || f.readers.front() > f.writers.front());
  }
  return facts;
}

bool same_window(const GraphOperand& a, const GraphOperand& b) {
  return a.is_tensor() && b.is_tensor() && a.buffer == b.buffer && a.dtype == b.dtype &&
         a.offset == b.offset && a.slot == b.slot && a.geometry == b.geometry;
}

Operand describe(const GraphOperand& operand) {
  Operand result;
  result.dtype = operand.dtype;
  result.present = operand.kind != GraphOperand::Kind::Absent;
  if (operand.is_tensor()) result.geometry = &operand.geometry;
  result.scalar = operand.scalar;
  return result;
}

bool has_fixed_offset(const Graph& graph, const GraphOperand& operand) {
  return operand.is_tensor() && operand.geometry.numel() > 0 &&
         extent(operand.geometry) * static_cast<int64_t>(item_size(operand.dtype)) ==
             graph.buffers[operand.buffer].bytes;
}

int checked_operand(const Node& node) {
  if (node.group) return -1;
  const uint8_t flags = info(node.op).flags;
  if (flags & kChecksZeroDivisor) return is_integral(node.outputs[0].dtype) ? 1 : -1;
  return flags & kChecksIndex ? 1 : -1;
}

bool checks_early(const Graph& graph, const std::vector<BufferFacts>& facts, const Node& node) {
  const int at = checked_operand(node);
  if (at < 0) return false;
  const GraphOperand& operand = node.inputs[at];
  return operand.is_scalar() || (graph.buffers[operand.buffer].kind == GraphBuffer::Kind::External &&
                                 facts[operand.buffer].writers.empty());
}

Dependences dependences(const Graph& graph, const std::vector<BufferFacts>& facts) {
  struct State {
    std::vector<int> writers, readers;  // since the last exclusive access; several readers share one
  };
  const int count = static_cast<int>(graph.nodes.size());
  Dependences result;
  result.before.resize(count);
  result.after.resize(count);
  // The last state stands for "what a raised error leaves visible": writers of externals and outputs read
  // it, nodes that may raise write it.
  std::vector<State> states(graph.buffers.size() + 1);
  State& effects = states.back();
  for (int i = 0; i < count; ++i) {
    std::vector<int>& before = result.before[i];
    const Node& node = graph.nodes[i];
    auto read = [&](State& state) {
      before.insert(before.end(), state.writers.begin(), state.writers.end());
      add_once(state.readers, i);
    };
    auto write = [&](State& state) {
      before.insert(before.end(), state.writers.begin(), state.writers.end());
      before.insert(before.end(), state.readers.begin(), state.readers.end());
      state.writers.assign(1, i);
      state.readers.clear();
    };
    for (const GraphOperand& input : node.inputs)
      if (input.is_tensor()) read(states[input.buffer]);
    bool is_visible = false;
    for (const GraphOperand& output : node.outputs) {
      write(states[output.buffer]);
      is_visible |= graph.buffers[output.buffer].kind != GraphBuffer::Kind::Internal;
    }
    if (is_visible) read(effects);
    if (checked_operand(node) >= 0 && !checks_early(graph, facts, node)) write(effects);
    sort_unique(before);
    if (!before.empty() && before.back() == i) before.pop_back();
    for (int b : before) result.after[b].push_back(i);
  }
  return result;
}

std::vector<int64_t> live_bytes(const Graph& graph) {
  const int count = static_cast<int>(graph.nodes.size());
  std::vector<int64_t> change(count + 1, 0);
  const std::vector<BufferFacts> facts = buffer_facts(graph);
  for (size_t b = 0; b < facts.size(); ++b) {
    const GraphBuffer& buffer = graph.buffers[b];
    if (buffer.kind == GraphBuffer::Kind::External || facts[b].writers.empty()) continue;
    int last = facts[b].writers.back();
    if (!facts[b].readers.empty()) last = std::max(last, facts[b].readers.back());
    if (buffer.kind == GraphBuffer::Kind::Output) last = count - 1;
    change[facts[b].writers.front()] += buffer.bytes;
    change[last + 1] -= buffer.bytes;
  }
  std::vector<int64_t> live(count);
  int64_t sum = 0;
  for (int i = 0; i < count; ++i) live[i] = sum += change[i];
  return live;
}

bool is_heavy(const Node& node) {
  if (node.group) return false;
  switch (info(node.op).kind) {
    case OpKind::Contraction:
    case OpKind::Window:
    case OpKind::Indexing:
    case OpKind::Composite:
      return true;
    default:
      return false;
  }
}

bool is_pointwise(const Node& node) {
  if (node.group) return false;
  const OpKind kind = info(node.op).kind;
  return kind == OpKind::Pointwise || kind == OpKind::Generator;
}

}  // namespace etch::jit
