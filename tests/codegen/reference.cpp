// The slow evaluator of group bodies.
#include "tests/codegen/reference.h"

#include <cstdlib>
#include <cstring>

#include "tracer/attrs.h"
#include "tracer/reduction.h"
#include "tracer/scalar_math.h"

namespace etch::testing {

/// A number with the type it has in a register: floating in `f`, else in `i`.
struct Number {
  bool floating = false;
  bool single = false;
  double f = 0;
  int64_t i = 0;
};

}  // namespace etch::testing

// The expressions of ops.def are written for code inside of this namespace.
namespace etch::scalar {
namespace {

using testing::Number;

template <class T>
T get(const Number& n) {
  if (!n.floating) return cast<T>(static_cast<i64>(n.i));
  return n.single ? cast<T>(static_cast<float>(n.f)) : cast<T>(n.f);
}

template <class T>
Number number(T value) {
  if constexpr (kFloating<T>)
    return {true, sizeof(T) == 4, static_cast<double>(value), 0};
  else
    return {false, false, 0, static_cast<int64_t>(value)};
}

template <class T>
constexpr bool fits(DTypeRule rule) {
  if (rule == DTypeRule::Float || rule == DTypeRule::Given) return kFloating<T>;
  if (rule == DTypeRule::Numeric) return !kSame<T, bool>;
  return true;
}

template <class T>
Number pointwise(Op op, const Number* n, i64 i) {
  switch (op) {
#define ETCH_POINTWISE(name, arity, rule, expression, ...)                           \
  case Op::name:                                                                     \
    if constexpr (fits<T>(DTypeRule::rule)) {                                        \
      [[maybe_unused]] const T a = get<T>(n[0]), b = get<T>(n[1]), c = get<T>(n[2]); \
      if constexpr (DTypeRule::rule == DTypeRule::Bool)                              \
        return number(static_cast<bool>(expression));                                \
      else                                                                           \
        return number(static_cast<T>(expression));                                   \
    }                                                                                \
    break;
#define ETCH_GENERATOR(name, ...)
#define ETCH_REDUCTION(...)
#define ETCH_OP(...)
#define ETCH_COMPOSITE(...)
#include "tracer/ops.def"
    default:
      break;
  }
  if constexpr (kFloating<T>) {
    const u64 a = static_cast<u64>(n[0].i), b = static_cast<u64>(n[1].i);
    if (op == Op::uniform) return number(T(uniform01(random_u32(a, b, i))));
    if (op == Op::normal) return number(T(standard_normal(a, b, i)));
    if (op == Op::bernoulli) return number(T(uniform01(random_u32(a, b, i)) < get<float>(n[2])));
    if (op == Op::dropout) {
      const T x = get<T>(n[0]), p = get<T>(n[3]);
      const float u = uniform01(random_u32(static_cast<u64>(n[1].i), static_cast<u64>(n[2].i), i));
      return number(u < float(p) ? T(0) : x * (T(1) / (T(1) - p)));
    }
  }
  if (op == Op::arange) {
    if (n[0].floating) return number(T(get<T>(n[0]) + get<T>(n[1]) * T(i)));
    return number(T(n[0].i + n[1].i * T(i)));
  }
  std::abort();
}

template <class T>
T combine(Op op, T a, T b) {
  switch (op) {
#define ETCH_POINTWISE(...)
#define ETCH_GENERATOR(...)
#define ETCH_REDUCTION(name, rule, identity, expression, ...) \
  case Op::name:                                              \
    return static_cast<T>(expression);
#define ETCH_OP(...)
#define ETCH_COMPOSITE(...)
#include "tracer/ops.def"
    default:
      std::abort();
  }
}

template <class T>
T start(Op op) {
  switch (op) {
#define ETCH_POINTWISE(...)
#define ETCH_GENERATOR(...)
#define ETCH_REDUCTION(name, rule, identity, expression, ...) \
  case Op::name:                                              \
    return identity;
#define ETCH_OP(...)
#define ETCH_COMPOSITE(...)
#include "tracer/ops.def"
    default:
      std::abort();
  }
}

/// Elements of one result, given as runs (Rows) or as rows (Columns), in the order of tracer/reduction.h.
template <class T>
T reduce_runs(Op op, const std::vector<std::vector<T>>& runs) {
  T result = start<T>(op);
  for (const std::vector<T>& run : runs) {
    T total = start<T>(op);
    for (size_t block = 0; block < run.size(); block += kReductionBlock) {
      std::vector<T> lanes(kReductionLanes, start<T>(op));
      for (size_t j = block; j < run.size() && j < block + kReductionBlock; ++j)
        lanes[(j - block) % kReductionLanes] = combine<T>(op, lanes[(j - block) % kReductionLanes], run[j]);
      for (size_t w = kReductionLanes / 2; w >= 1; w /= 2)
        for (size_t l = 0; l < w; ++l) lanes[l] = combine<T>(op, lanes[l], lanes[l + w]);
      total = combine<T>(op, total, lanes[0]);
    }
    if (runs.size() == 1) return total;
    result = combine<T>(op, result, total);
  }
  return result;
}

template <class T>
T reduce_chunks(Op op, const std::vector<T>& rows) {
  const size_t size = static_cast<size_t>(chunk_rows(static_cast<int64_t>(rows.size())));
  T result = start<T>(op);
  for (size_t chunk = 0; chunk < rows.size(); chunk += size) {
    T partial = start<T>(op);
    for (size_t i = chunk; i < rows.size() && i < chunk + size; ++i)
      partial = combine<T>(op, partial, rows[i]);
    result = combine<T>(op, result, partial);
  }
  return result;
}

}  // namespace
}  // namespace etch::scalar

namespace etch::testing {
namespace {

template <class F>
auto with_compute_type(DType dtype, F f) {
  switch (compute_dtype(dtype)) {
    case DType::Bool:
      return f.template operator()<bool>();
    case DType::U8:
      return f.template operator()<uint8_t>();
    case DType::I32:
      return f.template operator()<int32_t>();
    case DType::I64:
      return f.template operator()<scalar::i64>();
    case DType::F64:
      return f.template operator()<double>();
    default:
      return f.template operator()<float>();
  }
}

Number load(const char* at, DType dtype) {
  return visit_dtype(dtype, [&]<class T>() -> Number {
    T value;
    std::memcpy(&value, at, sizeof(T));
    if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>)
      return {true, true, to_float(value), 0};
    else if constexpr (std::is_floating_point_v<T>)
      return {true, sizeof(T) == 4, value, 0};
    else
      return {false, false, 0, static_cast<int64_t>(value)};
  });
}

void store(char* at, DType dtype, const Number& number) {
  visit_dtype(dtype, [&]<class T>() {
    T value;
    if constexpr (std::is_same_v<T, Half>)
      value = to_half(scalar::get<float>(number));
    else if constexpr (std::is_same_v<T, BFloat16>)
      value = to_bfloat16(scalar::get<float>(number));
    else if constexpr (std::is_same_v<T, int64_t>)
      value = scalar::get<scalar::i64>(number);
    else
      value = scalar::get<T>(number);
    std::memcpy(at, &value, sizeof(T));
  });
}

struct Reader {
  Memory& memory;
  const std::vector<Scalar>& slots;

  char* address(const GraphOperand& operand, const Geometry& geometry, const Dims& index) const {
    int64_t at = operand.offset + (operand.slot >= 0 ? slots[operand.slot].to_int() : 0);
    for (int i = 0; i < index.size(); ++i) at += index[i] * geometry.strides[i];
    return memory[operand.buffer].data() + at * static_cast<int64_t>(item_size(operand.dtype));
  }
  Number scalar(const GraphOperand& operand) const {
    const Scalar value = operand.slot >= 0 ? slots[operand.slot] : operand.scalar;
    if (is_integral(operand.dtype)) return {false, false, 0, value.to_int()};
    return {true, operand.dtype != DType::F64,
            operand.dtype == DType::F64 ? value.to_double() : static_cast<float>(value.to_double()), 0};
  }
};

DType compute_type(const Node& node) {
  if (info(node.op).rule != DTypeRule::Bool) return node.outputs[0].dtype;
  for (const GraphOperand& input : node.inputs)
    if (input.is_tensor()) return input.dtype;
  return node.inputs[0].dtype;
}

void run_pointwise(const Node& node, const Reader& reader) {
  const GraphOperand& output = node.outputs[0];
  const Dims& sizes = output.geometry.sizes;
  std::vector<Geometry> wide;
  for (const GraphOperand& input : node.inputs)
    wide.push_back(input.is_tensor() ? broadcast_to(input.geometry, sizes) : Geometry{});
  std::vector<std::pair<char*, Number>> results;
  for_each_index(sizes, [&](const Dims& index, int64_t linear) {
    Number args[4];
    for (size_t i = 0; i < node.inputs.size(); ++i)
      args[i] = node.inputs[i].is_scalar()
                    ? reader.scalar(node.inputs[i])
                    : load(reader.address(node.inputs[i], wide[i], index), node.inputs[i].dtype);
    const Number result =
        node.op == Op::copy ? args[0] : with_compute_type(compute_type(node), [&]<class T>() {
          return scalar::pointwise<T>(node.op, args, linear);
        });
    results.emplace_back(reader.address(output, output.geometry, index), result);
  });
  for (const auto& [at, result] : results) store(at, output.dtype, result);
}

void run_reduction(const Node& node, const Reader& reader) {
  const GraphOperand &input = node.inputs[0], &output = node.outputs[0];
  const ReductionAttrs attrs(node.attrs);
  const ReductionOrder order = reduction_order(input.geometry, attrs.axes);
  const bool rows = order.kind == ReductionOrder::Kind::Rows;
  int run_from = order.ndim;
  while (rows && run_from > 0 && order.reduced[run_from - 1]) --run_from;
  Dims outer, run;
  std::vector<int> outer_axes, run_axes;
  for (int i = 0; i < order.ndim; ++i) {
    if (!order.reduced[i]) continue;
    (i < run_from ? outer : run).push_back(order.size[i]);
    (i < run_from ? outer_axes : run_axes).push_back(order.axis[i]);
  }
  for_each_index(output.geometry.sizes, [&](const Dims& index, int64_t) {
    Dims at = Dims::filled(input.geometry.ndim(), 0);
    for (int axis = 0, from = 0; axis < at.size(); ++axis) {
      const bool reduced = attrs.axes >> axis & 1;
      if (!reduced) at[axis] = index[from];
      if (!reduced || attrs.keepdim) ++from;
    }
    const DTypeRule rule = info(node.op).rule;
    const DType type = rule == DTypeRule::Bool                              ? DType::Bool
                       : rule == DTypeRule::Sum && is_integral(input.dtype) ? DType::I64
                                                                            : input.dtype;
    const Number result = with_compute_type(type, [&]<class T>() {
      std::vector<std::vector<T>> runs;
      for_each_index(outer, [&](const Dims& o, int64_t) {
        for (int i = 0; i < o.size(); ++i) at[outer_axes[static_cast<size_t>(i)]] = o[i];
        runs.emplace_back();
        for_each_index(run, [&](const Dims& r, int64_t) {
          for (int i = 0; i < r.size(); ++i) at[run_axes[static_cast<size_t>(i)]] = r[i];
          runs.back().push_back(scalar::get<T>(load(reader.address(input, input.geometry, at), input.dtype)));
        });
      });
      if (rows) return scalar::number(scalar::reduce_runs<T>(node.op, runs));
      std::vector<T> all;
      for (const auto& one : runs) all.insert(all.end(), one.begin(), one.end());
      return scalar::number(scalar::reduce_chunks<T>(node.op, all));
    });
    store(reader.address(output, output.geometry, index), output.dtype, result);
  });
}

}  // namespace

void run_reference(const std::vector<Node>& body, Memory& memory, const std::vector<Scalar>& slots) {
  const Reader reader{memory, slots};
  for (const Node& node : body) {
    if (info(node.op).kind == OpKind::Reduction)
      run_reduction(node, reader);
    else
      run_pointwise(node, reader);
  }
}

}  // namespace etch::testing
