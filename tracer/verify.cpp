// What must hold of every graph, between any two passes.
#include <array>

#include "runtime/error.h"
#include "tracer/graph.h"

namespace etch {
namespace {

bool same_window(const GraphOperand& a, const GraphOperand& b) {
  return a.buffer == b.buffer && a.dtype == b.dtype && a.offset == b.offset && a.slot == b.slot &&
         a.geometry == b.geometry;
}

bool same_scalar(const GraphOperand& a, const GraphOperand& b) {
  return a.dtype == b.dtype && a.slot == b.slot && a.scalar.kind() == b.scalar.kind() &&
         (a.scalar.to_double() == b.scalar.to_double() || a.scalar.to_double() != a.scalar.to_double()) &&
         a.scalar.to_bool() == b.scalar.to_bool();
}

bool lists_window(const std::vector<GraphOperand>& list, const GraphOperand& operand) {
  for (const GraphOperand& other : list)
    if (other.is_tensor() && same_window(other, operand)) return true;
  return false;
}

bool lists_scalar(const std::vector<GraphOperand>& list, const GraphOperand& operand) {
  for (const GraphOperand& other : list)
    if (other.is_scalar() && same_scalar(other, operand)) return true;
  return false;
}

bool is_empty(const GraphOperand& operand) {
  for (int64_t size : operand.geometry.sizes)
    if (size == 0) return true;
  return false;
}

class Verifier {
 public:
  Verifier(const Graph& graph, std::string_view stage)
      : graph_(graph), stage_(stage), written_(graph.buffers.size()), private_to_(graph.buffers.size(), -1) {}

  void run() {
    for (const GraphBuffer& buffer : graph_.buffers)
      require(buffer.bytes >= 0, "a buffer of at least 0 bytes");
    for (node_ = 0; node_ < static_cast<int>(graph_.nodes.size()); ++node_) {
      const Node& node = graph_.nodes[node_];
      require((info(node.op).kind == OpKind::Group) == (node.group != nullptr),
              "a group on fused and tiled nodes only");
      for (const GraphOperand& input : node.inputs) check_operand(input), check_readable(input);
      for (const GraphOperand& output : node.outputs) check_output(output);
      if (node.group)
        check_group(node);
      else
        check_shape_rule(node);
      for (const GraphOperand& output : node.outputs) written_[output.buffer] = true;
    }
    node_ = -1;
    for (size_t i = 0; i < graph_.buffers.size(); ++i)
      require(
          graph_.buffers[i].kind != GraphBuffer::Kind::Output || graph_.buffers[i].bytes == 0 || written_[i],
          "output %", static_cast<int64_t>(i), " to be written");
    check_private_buffers();
  }

 private:
  template <class... Pieces>
  void require(bool holds, const Pieces&... expected) const {
    if (holds) return;
    const bool known = node_ >= 0 && node_ < static_cast<int>(graph_.nodes.size());
    const std::string place = known ? join_text({"node ", node_, " (", name(graph_.nodes[node_].op), ")"})
                                    : std::string("the graph");
    fail<InternalError>(stage_, ": ", place, ": expected ", expected...);
  }

  void check_operand(const GraphOperand& operand) const {
    require(operand.slot >= -1 && operand.slot < graph_.num_slots, "a slot below ", graph_.num_slots,
            ", got ", operand.slot);
    if (!operand.is_tensor()) return;
    require(operand.buffer >= 0 && operand.buffer < static_cast<int>(graph_.buffers.size()),
            "an existing buffer, got %", operand.buffer);
    check_bounds(operand);
  }

  /// In 128 bits, for sizes and strides may be anything.
  void check_bounds(const GraphOperand& operand) const {
    const Geometry& geometry = operand.geometry;
    require(geometry.strides.size() == geometry.ndim(), "as many strides as sizes");
    require(operand.offset >= 0, "an offset of at least 0");
    const int64_t bytes = graph_.buffers[operand.buffer].bytes;
    const int64_t room = bytes / static_cast<int64_t>(item_size(operand.dtype));
    for (int i = 0; i < geometry.ndim(); ++i)
      require(geometry.sizes[i] >= 0 && geometry.strides[i] >= 0, "sizes and strides of at least 0");
    if (is_empty(operand)) return;
    __int128 last = operand.offset, elements = 1;
    for (int i = 0; i < geometry.ndim(); ++i) {
      last += static_cast<__int128>(geometry.sizes[i] - 1) * geometry.strides[i];
      elements *= geometry.sizes[i];
      require(last < room && elements < (__int128{1} << 60), "a window within the ", bytes, " bytes of %",
              operand.buffer, ", got sizes ", to_string(geometry.sizes), " and strides ",
              to_string(geometry.strides));
    }
    require(last < room, "a window within the ", bytes, " bytes of %", operand.buffer);
  }

  void check_readable(const GraphOperand& operand) const {
    if (!operand.is_tensor() || is_empty(operand)) return;
    require(written_[operand.buffer] || graph_.buffers[operand.buffer].kind == GraphBuffer::Kind::External,
            "%", operand.buffer, " to be written before it is read");
  }

  void check_output(const GraphOperand& operand) const {
    require(operand.is_tensor(), "a tensor as output");
    check_operand(operand);
    require(!may_self_overlap(operand.geometry), "an output that does not overlap itself");
  }

  void check_shape_rule(const Node& node) const {
    std::array<Operand, kMaxInputs> operands;
    require(node.inputs.size() == info(node.op).arity, static_cast<int>(info(node.op).arity), " operands");
    for (size_t i = 0; i < node.inputs.size(); ++i) operands[i] = describe(node.inputs[i]);
    require(node.outputs.size() == info(node.op).outputs, static_cast<int>(info(node.op).outputs),
            " outputs");
    std::array<OutputSpec, kMaxOutputs> specs;
    try {
      infer(node.op, {operands.data(), node.inputs.size()}, node.attrs, node.outputs[0].dtype, specs.data());
    } catch (const Error& error) {
      require(false, "a call that fits: ", error.what());
    }
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const GraphOperand& output = node.outputs[i];
      // A pointwise op that writes in place fills all it is given.
      const bool fits = info(node.op).kind == OpKind::Pointwise
                            ? can_broadcast_to(specs[i].geometry.sizes, output.geometry.sizes)
                            : specs[i].geometry.sizes == output.geometry.sizes;
      require(output.dtype == specs[i].dtype && fits, "output ", static_cast<int64_t>(i), " as ",
              name(specs[i].dtype), to_string(specs[i].geometry.sizes), ", got ", name(output.dtype),
              to_string(output.geometry.sizes));
      const int operand = written_operand(node.op, static_cast<int>(i));
      require(operand < 0 || node.inputs[operand].buffer == output.buffer, "output ", static_cast<int64_t>(i),
              " in the buffer of operand ", operand);
    }
  }

  /// A scalar's kind is told by the dtype it is converted to.
  static Operand describe(const GraphOperand& from) {
    Operand operand;
    operand.present = from.kind != GraphOperand::Kind::Absent;
    operand.dtype = from.dtype;
    if (from.is_tensor()) operand.geometry = &from.geometry;
    operand.scalar = is_floating(from.dtype)     ? Scalar(0.0)
                     : from.dtype == DType::Bool ? Scalar(false)
                                                 : Scalar(int64_t{0});
    return operand;
  }

  void check_group(const Node& group) {
    std::vector<bool> inside(graph_.buffers.size());  // written by the body so far
    require(group.group && !group.group->body.empty(), "a body");
    for (const Node& node : group.group->body) {
      const OpKind kind = info(node.op).kind;
      if (group.op == Op::tiled)
        require(node.op == Op::matmul || node.op == Op::fused, "products and fused nodes inside, got ",
                name(node.op));
      else
        require(kind == OpKind::Pointwise || kind == OpKind::Generator || kind == OpKind::Reduction,
                "pointwise, generator and reduction nodes inside, got ", name(node.op));
      for (const GraphOperand& input : node.inputs) {
        check_operand(input);
        require(!input.is_tensor() || inside[input.buffer] || lists_window(group.inputs, input), "%",
                input.buffer, ", which ", name(node.op), " reads, among the inputs or written before");
        require(!input.is_scalar() || lists_scalar(group.inputs, input), "every scalar among the inputs");
      }
      for (const GraphOperand& output : node.outputs) check_output(output);
      if (node.op == Op::fused)
        check_group(node);
      else
        check_shape_rule(node);
      for (const GraphOperand& output : node.outputs) {
        inside[output.buffer] = true;
        if (lists_window(group.outputs, output)) continue;
        require(graph_.buffers[output.buffer].kind == GraphBuffer::Kind::Internal, "%", output.buffer,
                ", which ", name(node.op), " writes, among the outputs");
        private_to_[output.buffer] = node_;
      }
    }
    for (const GraphOperand& output : group.outputs) {
      bool made = false;
      for (const Node& node : group.group->body) made |= lists_window(node.outputs, output);
      require(made, "output %", output.buffer, " to be written by the body");
    }
  }

  /// What exists only inside one kernel is used nowhere else.
  void check_private_buffers() {
    for (node_ = 0; node_ < static_cast<int>(graph_.nodes.size()); ++node_)
      for (const auto* operands : {&graph_.nodes[node_].inputs, &graph_.nodes[node_].outputs})
        for (const GraphOperand& operand : *operands)
          if (operand.is_tensor()) {
            const int owner = private_to_[operand.buffer];
            require(owner < 0 || owner == node_, "no use of %", operand.buffer, ", which lives inside node ",
                    owner);
          }
  }

  const Graph& graph_;
  std::string_view stage_;
  std::vector<bool> written_;
  std::vector<int> private_to_;  ///< of each buffer: the only group that may use it; -1: any
  int node_ = -1;
};

}  // namespace

void verify(const Graph& graph, std::string_view stage) { Verifier(graph, stage).run(); }

}  // namespace etch
