// Replays beside the reference interpreter.
#include "tests/jit/program_checker.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "jit/executable.h"
#include "runtime/error.h"
#include "tests/jit/program_generator.h"
#include "tracer/interpreter.h"

namespace etch::fuzz {

namespace {

using Buffers = std::vector<std::vector<std::byte>>;

std::string& disagreement() {
  static std::string text;
  return text;
}

// The same bytes with every floating element moved by about `share` of itself.
std::vector<std::byte> nudged(std::vector<std::byte> bytes, DType dtype, double share) {
  if (!is_floating(dtype)) return bytes;
  visit_dtype(dtype, [&]<class T>() {
    if constexpr (std::is_floating_point_v<T>)
      for (size_t at = 0; at + sizeof(T) <= bytes.size(); at += sizeof(T)) {
        T value;
        std::memcpy(&value, bytes.data() + at, sizeof value);
        value += static_cast<T>(static_cast<double>(value) * share * (at / sizeof(T) % 2 ? 1 : -1));
        std::memcpy(bytes.data() + at, &value, sizeof value);
      }
  });
  return bytes;
}

double item(const void* bytes, DType dtype, size_t at) {
  double result = 0;
  visit_dtype(dtype, [&]<class T>() {
    T value;
    std::memcpy(&value, static_cast<const char*>(bytes) + at * sizeof(T), sizeof value);
    if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>)
      result = static_cast<double>(to_float(value));
    else
      result = static_cast<double>(value);
  });
  return result;
}

// Several roundings of the coarsest dtype that values of the graph pass through.
double coarsest_unit(const Graph& graph) {
  double unit = 1e-5;
  for (const Node& node : graph.nodes)
    for (const GraphOperand& output : node.outputs)
      unit = std::max(unit, output.dtype == DType::BF16 ? 8e-3 : output.dtype == DType::F16 ? 1e-3 : 0.0);
  return unit;
}

// Whether floating values become integers: one that is nearly whole may fall on either side.
bool truncates(const Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) {
    return node.op == Op::copy && is_floating(node.inputs[0].dtype) && is_integral(node.outputs[0].dtype);
  });
}

// Whether signs are taken: a value that is nearly zero, as a difference of large ones, may have either.
bool takes_signs(const Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(),
                     [](const Node& node) { return node.op == Op::sign; });
}

// Whether values hinge on how others are rounded: a divisor that is nearly zero beside its like may be zero
// itself, or have either sign; the largest of values that are nearly equal may be any of them.
bool hinges_on_rounding(const Graph& graph, const std::vector<InterpretedBuffer>& exact, double unit) {
  for (const Node& node : graph.nodes) {
    const bool divides = node.op == Op::div || node.op == Op::reciprocal || node.op == Op::rsqrt;
    if (!divides && node.op != Op::argmax && node.op != Op::argmin) continue;
    const GraphOperand& operand = node.inputs.back();
    if (!operand.is_tensor() || !is_floating(operand.dtype) ||
        graph.buffers[static_cast<size_t>(operand.buffer)].kind == GraphBuffer::Kind::External)
      continue;
    if (!divides) return true;
    double largest = 0, least = std::numeric_limits<double>::infinity();
    for (const double value : exact[static_cast<size_t>(operand.buffer)].values) {
      if (!std::isfinite(value)) continue;
      largest = std::max(largest, std::abs(value));
      least = std::min(least, std::abs(value));
    }
    if (least <= unit * largest) return true;
  }
  return false;
}

class CheckedExecutable final : public jit::PlanExecutable {
 public:
  CheckedExecutable(Graph graph, Ref<jit::PlanExecutable> plan)
      : graph_(std::move(graph)),
        unit_(coarsest_unit(graph_)),
        truncates_(truncates(graph_)),
        takes_signs_(takes_signs(graph_)),
        plan_(std::move(plan)) {
    live_ = plan_->live();
    statistics_ = plan_->statistics();
    final_graph_ = plan_->final_graph();
  }
  std::vector<jit::StepTime> step_times() const override { return plan_->step_times(); }
  std::vector<double> kernel_ms() const override { return plan_->kernel_ms(); }

  bool run(const Segment& segment) const override {
    Buffers before = contents(segment, true);
    if (!plan_->run(segment)) return false;
    const Buffers after = contents(segment, false);
    std::vector<InterpretedBuffer> rounded, exact, moved;
    try {
      rounded = interpret(graph_, before, segment.values);
      exact = interpret(graph_, before, segment.values, {.round_to_dtype = false});
      for (size_t b = 0; b < before.size(); ++b)
        before[b] = nudged(std::move(before[b]), rounded[b].dtype, 3e-6);
      moved = interpret(graph_, before, segment.values, {.round_to_dtype = false});
    } catch (const Error& error) {
      // Two dtypes in one buffer, or nudged data that an op refuses.
      return true;
    }
    if (hinges_on_rounding(graph_, exact, unit_)) return true;
    // Sums cancel: what counts is how large the values of the call are.
    double largest = 0;
    for (const InterpretedBuffer& buffer : exact)
      for (double value : buffer.values)
        if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
    for (size_t b = 0; b < after.size(); ++b)
      compare(b, after[b], rounded[b], exact[b].values, moved[b].values, largest);
    ++totals().interpreted;
    return true;
  }

 private:
  Buffers contents(const Segment& segment, bool before) const {
    Buffers buffers(graph_.buffers.size());
    for (size_t b = 0; b < buffers.size(); ++b) {
      const GraphBuffer& buffer = graph_.buffers[b];
      if (buffer.kind == GraphBuffer::Kind::Internal) continue;
      if (buffer.kind == GraphBuffer::Kind::Output &&
          (before || !segment.live[static_cast<size_t>(buffer.number)]))
        continue;
      const Storage& storage = *segment.storages[static_cast<size_t>(buffer.number)];
      buffers[b].resize(static_cast<size_t>(buffer.bytes));
      if (buffer.bytes) std::memcpy(buffers[b].data(), storage.raw_data(), buffers[b].size());
    }
    return buffers;
  }

  void compare(size_t b, const std::vector<std::byte>& got, const InterpretedBuffer& rounded,
               const std::vector<double>& exact, const std::vector<double>& moved, double largest) const {
    const size_t count = rounded.values.size();
    if (got.empty() || exact.size() != count || moved.size() != count ||
        got.size() < count * item_size(rounded.dtype))
      return;
    for (size_t i = 0; i < count; ++i) {
      const double value = item(got.data(), rounded.dtype, i);
      const double want = rounded.values[i];
      const bool settled =
          std::isnan(want) == std::isnan(exact[i]) && std::isnan(want) == std::isnan(moved[i]);
      if (!settled || (std::isnan(want) && std::isnan(value)) || value == want) continue;
      const double spread = std::max(std::abs(want - exact[i]), std::abs(exact[i] - moved[i]));
      const double allowed =
          (is_floating(rounded.dtype) ? 100 * spread + unit_ * largest : spread + truncates_) +
          2 * takes_signs_;
      if (std::abs(value - want) <= allowed || !(spread == 0 || spread < std::abs(want))) continue;
      if (disagreement().empty())
        disagreement() =
            join_text({"buffer %", static_cast<int64_t>(b), " element ", static_cast<int64_t>(i), ": ", value,
                       ", the interpreter has ", want, " (", exact[i], " unrounded) in\n", print(graph_)});
      return;
    }
  }

  Graph graph_;
  double unit_;
  bool truncates_, takes_signs_;
  Ref<jit::PlanExecutable> plan_;
};

}  // namespace

Ref<Executable> checked_compile(const Path& path, const LiveSet& live, const CompileOptions& options) {
  Graph graph = build_graph(path, live);
  Ref<jit::PlanExecutable> plan = jit::compile_graph(graph, live, options);
  return Ref<Executable>(new CheckedExecutable(std::move(graph), std::move(plan)));
}

std::string take_disagreement() { return std::exchange(disagreement(), {}); }

}  // namespace etch::fuzz
