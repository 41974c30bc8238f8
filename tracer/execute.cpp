// Running one call: bases, overlaps, and composites without a kernel of their own.
#include "tracer/execute.h"

#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "runtime/error.h"
#include "tracer/composites.h"

namespace etch {
namespace {

constexpr int kDeviceTypes = 2;
std::array<Executor, kDeviceTypes> executors{};

/// Room for operands that does not cost anything before it is used: eager ops of one element pass here.
template <int kCount>
class OperandArray {
 public:
  static_assert(std::is_trivially_copyable_v<Operand>);
  Operand* copy(std::span<const Operand> from) {
    std::memcpy(bytes_, from.data(), from.size_bytes());
    return data();
  }
  Operand* data() { return reinterpret_cast<Operand*>(bytes_); }

 private:
  alignas(Operand) std::byte bytes_[kCount * sizeof(Operand)];
};

void find_base(Operand& operand, Op op) {
  if (!operand.is_tensor() || operand.base) return;
  ETCH_INVARIANT(operand.storage);
  operand.storage->check_usable();
  operand.base = static_cast<char*>(operand.storage->raw_data());
  ETCH_CHECK(operand.base, InternalError, name(op), ": expected an operand with bytes, got a deferred one");
}

Device device_of(const OpCall& call) {
  for (const Operand& operand : call.outputs)
    if (operand.storage) return operand.storage->device();
  return Device::cpu();
}

bool same_window(const Operand& a, const Operand& b) {
  return a.data() == b.data() && a.dtype == b.dtype &&
         (a.geometry == b.geometry || *a.geometry == *b.geometry);
}

bool ranges_meet(const Operand& a, const Operand& b) {
  if (a.storage && b.storage && a.storage != b.storage) return false;
  if (a.base == b.base && a.data() == b.data()) return a.geometry->numel() > 0 && b.geometry->numel() > 0;
  const auto end = [](const Operand& operand) {
    return operand.data() + extent(*operand.geometry) * static_cast<int64_t>(item_size(operand.dtype));
  };
  return a.data() < end(b) && b.data() < end(a);
}

/// Whether `input` is read before any of its elements in `output` is written: elementwise over one window.
bool is_safe_in_place(const OpCall& call, int input, int output) {
  const OpKind kind = info(call.op).kind;
  const bool elementwise = kind == OpKind::Pointwise || kind == OpKind::Generator;
  return (elementwise || written_operand(call.op, output) == input) &&
         same_window(call.inputs[input], call.outputs[output]);
}

bool needs_copy(const OpCall& call, int input) {
  if (!call.inputs[input].is_tensor()) return false;
  for (int output = 0; output < static_cast<int>(call.outputs.size()); ++output)
    if (ranges_meet(call.inputs[input], call.outputs[output]) && !is_safe_in_place(call, input, output))
      return true;
  return false;
}

void run_expanded(const OpCall& call, Device device);

void run_now(const OpCall& call, Device device) {
  if (executor(device.type).run(call, nullptr)) return;
  ETCH_CHECK(info(call.op).kind == OpKind::Composite, InternalError, name(call.op), ": no kernel on ",
             to_string(device));
  run_expanded(call, device);
}

/// Runs a call some of whose operands a written window overlaps: on copies of those.
void run_on_copies(const OpCall& call, Device device) {
  std::array<Geometry, kMaxInputs> geometries;
  std::vector<std::unique_ptr<ScratchBuffer>> copies;
  OperandArray<kMaxInputs> moved;
  moved.copy(call.inputs);
  for (int i = 0; i < static_cast<int>(call.inputs.size()); ++i) {
    if (!needs_copy(call, i)) continue;
    const Operand& from = call.inputs[i];
    geometries[i] = {from.geometry->sizes, packed_strides_like(from.geometry->sizes, from.geometry->strides)};
    copies.push_back(std::make_unique<ScratchBuffer>(device, geometries[i].numel() * item_size(from.dtype)));
    Operand& to = moved.data()[i];
    to.storage = nullptr;
    to.base = static_cast<char*>(copies.back()->data());
    to.offset = 0;
    to.geometry = &geometries[i];
    run_now({Op::copy, {&from, 1}, {&to, 1}, Attrs{}}, device);
  }
  run_now({call.op, {moved.data(), call.inputs.size()}, call.outputs, call.attrs}, device);
}

/// Runs a call whose operands have bases.
void run_apart(const OpCall& call, Device device) {
  for (int i = 0; i < static_cast<int>(call.inputs.size()); ++i)
    if (needs_copy(call, i)) return run_on_copies(call, device);
  run_now(call, device);
}

/// The call as a node; operand number k (inputs, then outputs) stands in buffer k.
Node node_of(const OpCall& call, Graph& graph) {
  Node node{call.op, call.attrs, {}, {}, nullptr};
  const auto add = [&](const Operand& from, std::vector<GraphOperand>& list) {
    GraphOperand operand;
    const int buffer = graph.add_buffer(GraphBuffer::Kind::External, 0);
    operand.dtype = from.dtype;
    operand.scalar = from.scalar;
    if (from.is_scalar()) operand.kind = GraphOperand::Kind::Scalar;
    if (from.is_tensor()) {
      operand.kind = GraphOperand::Kind::Tensor;
      operand.buffer = buffer;
      operand.geometry = *from.geometry;
      operand.offset = from.offset;
    }
    list.push_back(operand);
  };
  for (const Operand& operand : call.inputs) add(operand, node.inputs);
  for (const Operand& operand : call.outputs) add(operand, node.outputs);
  return node;
}

/// The primitives of one composite call, with temporaries that are freed after their last use.
class ExpandedCall {
 public:
  ExpandedCall(const OpCall& call, Device device) : device_(device) {
    graph_.device = device;
    const Node node = node_of(call, graph_);
    for (const Operand& operand : call.inputs) bases_.push_back(operand.base);
    for (const Operand& operand : call.outputs) bases_.push_back(operand.base);
    expand_composite(node, graph_);
    bases_.resize(graph_.buffers.size());
    temporaries_.resize(graph_.buffers.size());
    last_use_.resize(graph_.buffers.size());
    for (size_t i = 0; i < graph_.nodes.size(); ++i)
      for (const GraphOperand& input : graph_.nodes[i].inputs)
        if (input.is_tensor()) last_use_[input.buffer] = i;
  }

  void run() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      std::array<Operand, kMaxInputs> inputs;
      for (size_t k = 0; k < node.inputs.size(); ++k) inputs[k] = operand(node.inputs[k]);
      const Operand output = operand(node.outputs[0]);
      run_apart({node.op, {inputs.data(), node.inputs.size()}, {&output, 1}, node.attrs}, device_);
      for (const GraphOperand& input : node.inputs)
        if (input.is_tensor() && last_use_[input.buffer] == i) temporaries_[input.buffer].reset();
    }
  }

 private:
  Operand operand(const GraphOperand& from) {
    Operand operand;
    operand.dtype = from.dtype;
    operand.scalar = from.scalar;
    if (!from.is_tensor()) return operand;
    char*& base = bases_[from.buffer];
    if (!base) {
      temporaries_[from.buffer] = std::make_unique<ScratchBuffer>(device_, graph_.buffers[from.buffer].bytes);
      base = static_cast<char*>(temporaries_[from.buffer]->data());
    }
    operand.base = base;
    operand.geometry = &from.geometry;
    operand.offset = from.offset;
    return operand;
  }

  Device device_;
  Graph graph_;
  std::vector<char*> bases_;  ///< of each buffer; null for temporaries not yet made
  std::vector<std::unique_ptr<ScratchBuffer>> temporaries_;
  std::vector<size_t> last_use_;
};

void run_expanded(const OpCall& call, Device device) { ExpandedCall(call, device).run(); }

}  // namespace

void register_executor(DeviceType type, Executor executor) { executors[static_cast<int>(type)] = executor; }

const Executor& executor(DeviceType type) {
  const Executor& found = executors[static_cast<int>(type)];
  ETCH_CHECK(found.run, DeviceError, "execute: expected registered kernels for ", to_string(Device{type, 0}),
             ", got none");
  return found;
}

void execute(const OpCall& call) {
  OperandArray<kMaxInputs> inputs;
  OperandArray<kMaxOutputs> outputs;
  const OpCall ready{call.op,
                     {inputs.copy(call.inputs), call.inputs.size()},
                     {outputs.copy(call.outputs), call.outputs.size()},
                     call.attrs};
  for (size_t i = 0; i < call.inputs.size(); ++i) find_base(inputs.data()[i], call.op);
  for (size_t i = 0; i < call.outputs.size(); ++i) find_base(outputs.data()[i], call.op);
  if (info(call.op).flags & (kChecksIndex | kChecksZeroDivisor)) check_data(ready);
  run_apart(ready, device_of(call));
}

}  // namespace etch
