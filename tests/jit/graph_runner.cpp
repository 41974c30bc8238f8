// Two ways to run a graph.
#include "tests/jit/graph_runner.h"

#include <cstring>

#include "eager/cpu/executor.h"
#include "runtime/config.h"
#include "tracer/execute.h"

namespace etch::test {
namespace {

void register_once() {
  static const bool done = [] {
    cpu::register_kernels();
    return true;
  }();
  (void)done;
}

Operand operand_of(const GraphOperand& operand, const Program& program, Contents& contents) {
  Operand result;
  result.dtype = operand.dtype;
  result.present = operand.kind != GraphOperand::Kind::Absent;
  const bool slot = operand.slot >= 0;
  if (operand.is_tensor()) {
    result.geometry = &operand.geometry;
    result.base = contents[operand.buffer].data();
    result.offset = operand.offset + (slot ? program.values[operand.slot].offset : 0);
  } else {
    result.scalar = slot ? program.values[operand.slot].scalar : operand.scalar;
  }
  return result;
}

void run_node(const Node& node, const Program& program, Contents& contents) {
  if (node.group) {
    for (const Node& inner : node.group->body) run_node(inner, program, contents);
    return;
  }
  std::vector<Operand> inputs, outputs;
  for (const GraphOperand& input : node.inputs) inputs.push_back(operand_of(input, program, contents));
  for (const GraphOperand& output : node.outputs) outputs.push_back(operand_of(output, program, contents));
  execute({node.op, inputs, outputs, node.attrs});
}

}  // namespace

Contents run_nodes(const Graph& graph, const Program& program) {
  register_once();
  Contents contents(graph.buffers.size());
  for (size_t b = 0; b < contents.size(); ++b) {
    contents[b].assign(static_cast<size_t>(graph.buffers[b].bytes) + 64, '\x7F');
    if (graph.buffers[b].kind == GraphBuffer::Kind::External)
      std::memcpy(contents[b].data(), program.contents[b].data(),
                  static_cast<size_t>(graph.buffers[b].bytes));
  }
  for (const Node& node : graph.nodes) run_node(node, program, contents);
  return contents;
}

LiveSet outputs_of(const Graph& graph) {
  LiveSet live(graph.buffers.size(), false);
  for (size_t b = 0; b < live.size(); ++b) live[b] = graph.buffers[b].kind == GraphBuffer::Kind::Output;
  return live;
}

Contents run_compiled(const jit::PlanExecutable& executable, const Program& program, bool* refused,
                      LiveSet live) {
  register_once();
  const Graph& graph = program.graph;
  if (live.empty()) live = outputs_of(graph);
  std::vector<Ref<Storage>> storages;
  std::vector<Storage*> pointers;
  Path path;
  for (size_t b = 0; b < graph.buffers.size(); ++b) {
    const GraphBuffer& buffer = graph.buffers[b];
    const size_t bytes = static_cast<size_t>(buffer.bytes);
    const bool external = buffer.kind == GraphBuffer::Kind::External;
    storages.push_back(external ? Storage::allocate(Device::cpu(), bytes)
                                : Storage::deferred(Device::cpu(), bytes));
    if (external) std::memcpy(storages.back()->raw_data(), program.contents[b].data(), bytes);
    pointers.push_back(storages.back().get());
    path.storages.push_back({external, buffer.bytes, Device::cpu()});
  }
  const bool ran = executable.run(Segment{path, program.values, pointers, live});
  if (refused) *refused = !ran;
  Contents contents(graph.buffers.size());
  for (size_t b = 0; b < contents.size(); ++b)
    if (storages[b]->has_bytes()) {
      const char* data = static_cast<const char*>(storages[b]->raw_data());
      contents[b].assign(data, data + graph.buffers[b].bytes);
    }
  return contents;
}

namespace {

DType dtype_of_buffer(const Graph& graph, int buffer) {
  for (const Node& node : graph.nodes)
    for (const auto* operands : {&node.outputs, &node.inputs})
      for (const GraphOperand& operand : *operands)
        if (operand.is_tensor() && operand.buffer == buffer) return operand.dtype;
  return DType::U8;
}

/// The same bits, or both NaN: which NaN an operation on two of them gives is the compiler's choice.
template <class T>
bool same_element(const char* a, const char* b) {
  if (std::memcmp(a, b, sizeof(T)) == 0) return true;
  if constexpr (std::is_floating_point_v<T>) {
    T x, y;
    std::memcpy(&x, a, sizeof(T));
    std::memcpy(&y, b, sizeof(T));
    return x != x && y != y;
  }
  if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Half>) {
    T x, y;
    std::memcpy(&x, a, sizeof(T));
    std::memcpy(&y, b, sizeof(T));
    return to_float(x) != to_float(x) && to_float(y) != to_float(y);
  }
  return false;
}

}  // namespace

std::string difference(const Graph& graph, const Contents& expected, const Contents& got) {
  for (size_t b = 0; b < graph.buffers.size(); ++b) {
    const GraphBuffer& buffer = graph.buffers[b];
    if (buffer.kind == GraphBuffer::Kind::Internal) continue;
    if (got[b].size() < static_cast<size_t>(buffer.bytes)) return join_text({"buffer ", b, " was not made"});
    const int64_t at = visit_dtype(dtype_of_buffer(graph, static_cast<int>(b)), [&]<class T>() -> int64_t {
      for (int64_t i = 0; i < buffer.bytes; i += sizeof(T))
        if (!same_element<T>(&expected[b][i], &got[b][i])) return i;
      return -1;
    });
    if (at >= 0) return join_text({"buffer ", b, " differs at byte ", at});
  }
  return {};
}

struct ConfigGuard::Saved {
  Config config;
};
ConfigGuard::ConfigGuard() : saved_(new Saved{config()}) {}
ConfigGuard::~ConfigGuard() {
  config() = saved_->config;
  delete saved_;
}

}  // namespace etch::test
