// The interpreter's machine: buffers, windows, rounding, and the order of nodes.
#include "tracer/interpreter.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "runtime/error.h"
#include "tracer/attrs.h"
#include "tracer/composites.h"
#include "tracer/interpreter_ops.h"

namespace etch {
namespace interpreter {
namespace {

Number load(const std::byte* from, DType dtype) {
  return visit_dtype(dtype, [&]<class T>() -> Number {
    T value;
    std::memcpy(&value, from, sizeof value);
    if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>)
      return {.f = to_float(value)};
    else if constexpr (std::is_floating_point_v<T>)
      return {.f = static_cast<double>(value)};
    else
      return {.i = static_cast<int64_t>(value)};
  });
}

void save(Number number, DType dtype, std::byte* to) {
  visit_dtype(dtype, [&]<class T>() {
    T value{};
    if constexpr (std::is_same_v<T, Half>)
      value = to_half(static_cast<float>(number.f));
    else if constexpr (std::is_same_v<T, BFloat16>)
      value = to_bfloat16(static_cast<float>(number.f));
    else if constexpr (std::is_floating_point_v<T>)
      value = static_cast<T>(number.f);
    else
      value = static_cast<T>(number.i);
    std::memcpy(to, &value, sizeof value);
  });
}

/// Elements of one buffer; its dtype is that of the first window on it.
struct Cells {
  bool known = false;
  DType dtype = DType::F32;
  std::vector<Number> elements;
};

/// Labels are checked before the composite becomes primitives that cannot.
void check_labels(const Call& call) {
  const int64_t classes = call.inputs[0].sizes[1];
  for (const Number& label : call.inputs[1].elements)
    ETCH_CHECK((label.i >= 0 && label.i < classes) || label.i == CrossEntropyAttrs(call.attrs).ignore_index,
               IndexError, name(call.op), ": expected labels in [0, ", classes, "), got ", label.i);
}

class Machine {
 public:
  Machine(const Graph& graph, const std::vector<std::vector<std::byte>>& bytes,
          std::span<const OperandValue> values, const InterpreterOptions& options)
      : graph_(graph), bytes_(bytes), values_(values), options_(options), cells_(graph.buffers.size()) {
    ETCH_CHECK(bytes.size() == graph.buffers.size(), InternalError, "interpret: expected ",
               static_cast<int64_t>(graph.buffers.size()), " buffers, got ",
               static_cast<int64_t>(bytes.size()));
    ETCH_CHECK(static_cast<int>(values.size()) >= graph.num_slots, InternalError, "interpret: expected ",
               graph.num_slots, " values, got ", static_cast<int64_t>(values.size()));
    for (size_t i = 0; i < bytes.size(); ++i)
      ETCH_CHECK(graph.buffers[i].kind != GraphBuffer::Kind::External ||
                     static_cast<int64_t>(bytes[i].size()) == graph.buffers[i].bytes,
                 InternalError, "interpret: expected ", graph.buffers[i].bytes, " bytes for %",
                 static_cast<int64_t>(i), ", got ", static_cast<int64_t>(bytes[i].size()));
  }

  void run(const Node& node) {
    if (node.group) {
      for (const Node& inner : node.group->body) run(inner);
      return;
    }
    if (info(node.op).kind == OpKind::Composite) return run_composite(node);
    const Call call = read_call(node);
    std::vector<Array> outputs;
    for (const GraphOperand& output : node.outputs)
      outputs.push_back(Array::filled(output.dtype, output.geometry.sizes));
    switch (info(node.op).kind) {
      case OpKind::Pointwise:
        run_pointwise(call, outputs[0]);
        break;
      case OpKind::Generator:
        run_generator(call, outputs[0]);
        break;
      case OpKind::Reduction:
        run_reduction(call, outputs[0]);
        break;
      case OpKind::Extremum:
        run_extremum(call, outputs[0]);
        break;
      case OpKind::Contraction:
        run_contraction(call, outputs[0]);
        break;
      case OpKind::Window:
        run_window(call, outputs);
        break;
      default:
        run_indexing(call, outputs[0]);
    }
    for (size_t i = 0; i < outputs.size(); ++i) write(node.outputs[i], outputs[i]);
  }

  std::vector<InterpretedBuffer> results() {
    std::vector<InterpretedBuffer> results(bytes_.size());
    for (size_t i = 0; i < bytes_.size(); ++i) {
      if (graph_.buffers[i].kind == GraphBuffer::Kind::Internal || !cells_[i].known) continue;
      const DType dtype = cells_[i].dtype;
      results[i].dtype = dtype;
      results[i].bytes.resize(graph_.buffers[i].bytes);
      for (size_t k = 0; k < cells_[i].elements.size(); ++k) {
        results[i].values.push_back(to_double(cells_[i].elements[k], dtype));
        save(cells_[i].elements[k], dtype, results[i].bytes.data() + k * item_size(dtype));
      }
    }
    return results;
  }

 private:
  void run_composite(const Node& node) {
    if (node.op == Op::cross_entropy) check_labels(read_call(node));
    Graph expanded{graph_.device, graph_.buffers, {}, graph_.num_slots};
    expand_composite(node, expanded);
    std::swap(graph_.buffers, expanded.buffers);
    cells_.resize(graph_.buffers.size());
    for (const Node& primitive : expanded.nodes) run(primitive);
    std::swap(graph_.buffers, expanded.buffers);
    cells_.resize(graph_.buffers.size());
  }

  Call read_call(const Node& node) {
    Call call{node.op, node.attrs, {}, {}};
    for (const GraphOperand& input : node.inputs) {
      call.present.push_back(input.kind != GraphOperand::Kind::Absent);
      call.inputs.push_back(input.is_tensor() ? read(input) : scalar(input));
    }
    return call;
  }

  Array scalar(const GraphOperand& operand) const {
    const Scalar value = operand.slot >= 0 ? values_[operand.slot].scalar : operand.scalar;
    Number number = number_of(value, operand.dtype);
    if (options_.round_to_dtype) number = round(number, operand.dtype);
    return Array::filled(operand.dtype, {}, number);
  }

  Cells& cells(const GraphOperand& operand) {
    Cells& cells = cells_[operand.buffer];
    if (!cells.known) {
      cells.known = true;
      cells.dtype = operand.dtype;
      const size_t item = item_size(operand.dtype);
      const Number nothing = is_floating(operand.dtype)
                                 ? Number{.f = std::numeric_limits<double>::quiet_NaN()}
                                 : Number{.i = -1};
      cells.elements.assign(graph_.buffers[operand.buffer].bytes / item, nothing);
      if (graph_.buffers[operand.buffer].kind == GraphBuffer::Kind::External)
        for (size_t i = 0; i < cells.elements.size(); ++i)
          cells.elements[i] = load(bytes_[operand.buffer].data() + i * item, operand.dtype);
    }
    ETCH_CHECK(cells.dtype == operand.dtype, InternalError, "interpret: expected %", operand.buffer, " as ",
               name(cells.dtype), ", got ", name(operand.dtype));
    return cells;
  }

  /// Calls `visit(element, position)` for the window's elements in row-major order.
  template <class F>
  void for_each(const GraphOperand& operand, F visit) {
    Cells& all = cells(operand);
    const Geometry& geometry = operand.geometry;
    if (geometry.numel() == 0) return;
    const int64_t start = operand.offset + (operand.slot >= 0 ? values_[operand.slot].offset : 0);
    Dims index = Dims::filled(geometry.ndim(), 0);
    int64_t position = 0;
    do {
      int64_t at = start;
      for (int i = 0; i < geometry.ndim(); ++i) at += index[i] * geometry.strides[i];
      ETCH_CHECK(at >= 0 && at < static_cast<int64_t>(all.elements.size()), InternalError,
                 "interpret: expected a window within %", operand.buffer, ", got element ", at);
      visit(all.elements[at], position++);
    } while (next_index(index, geometry.sizes));
  }

  Array read(const GraphOperand& operand) {
    Array array = Array::filled(operand.dtype, operand.geometry.sizes);
    for_each(operand, [&](Number& element, int64_t position) { array.elements[position] = element; });
    return array;
  }

  void write(const GraphOperand& operand, const Array& array) {
    for_each(operand, [&](Number& element, int64_t position) {
      element = array.elements[position];
      if (options_.round_to_dtype) element = round(element, operand.dtype);
    });
  }

  Graph graph_;
  const std::vector<std::vector<std::byte>>& bytes_;
  std::span<const OperandValue> values_;
  InterpreterOptions options_;
  std::vector<Cells> cells_;
};

}  // namespace
}  // namespace interpreter

std::vector<InterpretedBuffer> interpret(const Graph& graph,
                                         const std::vector<std::vector<std::byte>>& buffers,
                                         std::span<const OperandValue> values,
                                         const InterpreterOptions& options) {
  interpreter::Machine machine(graph, buffers, values, options);
  for (const Node& node : graph.nodes) machine.run(node);
  return machine.results();
}

}  // namespace etch
