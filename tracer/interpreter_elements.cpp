// The interpreter's arrays, and its pointwise rows, generators and reductions: the table's expressions
// compiled for double and int64.
#include <limits>

#include "runtime/error.h"
#include "tracer/attrs.h"
#include "tracer/interpreter_ops.h"
#include "tracer/scalar_math.h"

// Expressions of ops.def call the functions of this namespace by their plain names.
namespace etch::scalar {
namespace {

/// T is double or i64. Float rows never see integers.
template <class T>
T pointwise_element(Op op, [[maybe_unused]] T a, [[maybe_unused]] T b, [[maybe_unused]] T c) {
  switch (op) {
#define ETCH_POINTWISE(name, arity, rule, expression, ...)                                   \
  case Op::name:                                                                             \
    if constexpr (kFloating<T> || DTypeRule::rule != DTypeRule::Float) return T(expression); \
    break;
#include "tracer/ops.def"
    default:
      break;
  }
  fail<InternalError>("interpret: no expression for ", etch::name(op));
}

template <class T>
T combine(Op op, T a, T b) {
  switch (op) {
#define ETCH_REDUCTION(name, rule, identity, combination, ...) \
  case Op::name:                                               \
    return T(combination);
#include "tracer/ops.def"
    default:
      fail<InternalError>("interpret: no combination for ", etch::name(op));
  }
}

template <class T>
T identity_of(Op op) {
  switch (op) {
#define ETCH_REDUCTION(name, rule, identity, ...) \
  case Op::name:                                  \
    return T(identity);
#include "tracer/ops.def"
    default:
      fail<InternalError>("interpret: no identity for ", etch::name(op));
  }
}

/// Draws from Philox. Seeds and offsets are integers, probabilities double.
double random_element(Op op, const etch::interpreter::Call& call, i64 i, double x) {
  using T = double;
  const auto integer = [&](int k) { return call.inputs[k].elements[0].i; };
  const auto number = [&](int k) {
    return etch::interpreter::to_double(call.inputs[k].elements[0], call.inputs[k].dtype);
  };
  switch (op) {
    case Op::uniform:
      return uniform01(random_u32(integer(0), integer(1), i));
    case Op::normal:
      return standard_normal(integer(0), integer(1), i);
    case Op::bernoulli:
      return T(uniform01(random_u32(integer(0), integer(1), i)) < float(number(2)));
    case Op::dropout:
      return uniform01(random_u32(integer(1), integer(2), i)) < float(number(3)) ? 0.0
                                                                                 : x * (1 / (1 - number(3)));
    default:
      fail<InternalError>("interpret: no element for ", etch::name(op));
  }
}

}  // namespace
}  // namespace etch::scalar

namespace etch::interpreter {
namespace {

template <class T>
T get(Number number) {
  if constexpr (std::is_same_v<T, double>)
    return number.f;
  else
    return number.i;
}

template <class T>
Number put(T value) {
  if constexpr (std::is_same_v<T, double>)
    return {.f = value};
  else
    return {.i = value};
}

/// The array as `dtype`, its sizes expanded.
Array expand(const Array& array, const Dims& sizes, DType dtype) {
  Array result = Array::filled(dtype, sizes);
  if (result.elements.empty()) return result;
  const Geometry from = broadcast_to(contiguous(array.sizes), sizes);
  Dims index = Dims::filled(sizes.size(), 0);
  int64_t position = 0;
  do {
    int64_t at = 0;
    for (int i = 0; i < sizes.size(); ++i) at += index[i] * from.strides[i];
    result.elements[position++] = convert(array.elements[at], array.dtype, dtype);
  } while (next_index(index, sizes));
  return result;
}

/// Operands have one dtype except for the first of Where; scalars have the compute dtype of it.
DType computed_in(const Call& call) {
  const size_t first = info(call.op).rule == DTypeRule::Where;
  for (size_t i = first; i < call.inputs.size(); ++i)
    if (is_floating(call.inputs[i].dtype)) return DType::F64;
  return info(call.op).rule == DTypeRule::Float ? DType::F64 : call.inputs[first].dtype;
}

template <class T>
void pointwise(const Call& call, DType computed, Array& output) {
  Array operands[3];
  for (size_t k = 0; k < call.inputs.size(); ++k)
    operands[k] = expand(call.inputs[k], output.sizes, computed);
  const DType given = std::is_same_v<T, double> ? DType::F64 : DType::I64;
  for (size_t i = 0; i < output.elements.size(); ++i) {
    T values[3] = {};
    for (size_t k = 0; k < call.inputs.size(); ++k) values[k] = get<T>(operands[k].elements[i]);
    const T result = scalar::pointwise_element<T>(call.op, values[0], values[1], values[2]);
    output.elements[i] = convert(put(result), given, output.dtype);
  }
}

template <class T>
void reduce(const Call& call, DType computed, Array& output) {
  const Array& x = call.inputs[0];
  const ReductionAttrs attrs(call.attrs);
  output.elements.assign(output.elements.size(), put(scalar::identity_of<T>(call.op)));
  Dims index = Dims::filled(x.sizes.size(), 0);
  for (const Number& element : x.elements) {
    Dims to;
    for (int i = 0; i < index.size(); ++i)
      if (!(attrs.axes >> i & 1) || attrs.keepdim) to.push_back(attrs.axes >> i & 1 ? 0 : index[i]);
    Number& result = output.at(to);
    result = put(scalar::combine<T>(call.op, get<T>(result), get<T>(convert(element, x.dtype, computed))));
    next_index(index, x.sizes);
  }
  const DType given = std::is_same_v<T, double> ? DType::F64 : DType::I64;
  for (Number& element : output.elements) element = convert(element, given, output.dtype);
}

/// Whether b comes before a as the extremum; NaN wins, the first of equals stays.
bool beats(Op op, double a, double b) {
  if (a != a) return false;
  if (b != b) return true;
  return op == Op::argmax ? b > a : b < a;
}
bool beats(Op op, Number a, Number b, DType dtype) {
  if (is_floating(dtype)) return beats(op, a.f, b.f);
  return op == Op::argmax ? b.i > a.i : b.i < a.i;
}

}  // namespace

Number convert(Number number, DType from, DType to) {
  return visit_dtype(to, [&]<class T>() -> Number {
    constexpr bool storage_only = std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;
    if constexpr (storage_only || std::is_floating_point_v<T>) {
      if (is_floating(from)) return number;
      // An integer takes its dtype's value at once, so that it is rounded once.
      if constexpr (std::is_same_v<T, double>)
        return {.f = static_cast<double>(number.i)};
      else
        return {.f = static_cast<float>(number.i)};
    } else {
      const T value = is_floating(from) ? scalar::cast<T>(number.f) : scalar::cast<T>(number.i);
      return {.i = static_cast<int64_t>(value)};
    }
  });
}

Number round(Number number, DType dtype) {
  switch (dtype) {
    case DType::F16:
      return {.f = to_float(to_half(static_cast<float>(number.f)))};
    case DType::BF16:
      return {.f = to_float(to_bfloat16(static_cast<float>(number.f)))};
    case DType::F32:
      return {.f = static_cast<float>(number.f)};
    default:
      return number;
  }
}

Number number_of(const Scalar& scalar, DType dtype) {
  if (is_floating(dtype)) return {.f = scalar.to_double()};
  if (scalar.kind() == Scalar::Kind::Float) return convert({.f = scalar.to_double()}, DType::F64, dtype);
  return convert({.i = scalar.to_int()}, DType::I64, dtype);
}

Array Array::filled(DType dtype, const Dims& sizes, Number value) {
  return {dtype, sizes, std::vector<Number>(num_elements(sizes), value)};
}

int64_t Array::position(const Dims& index) const {
  int64_t at = 0;
  for (int i = 0; i < sizes.size(); ++i) at = at * sizes[i] + index[i];
  return at;
}

bool next_index(Dims& index, const Dims& sizes) {
  for (int i = sizes.size() - 1; i >= 0; --i) {
    if (++index[i] < sizes[i]) return true;
    index[i] = 0;
  }
  return false;
}

void run_pointwise(const Call& call, Array& output) {
  if (call.op == Op::copy) {
    output = expand(call.inputs[0], output.sizes, output.dtype);
    return;
  }
  const DType computed = computed_in(call);
  if (info(call.op).flags & kChecksZeroDivisor && !is_floating(computed))
    for (const Number& divisor : call.inputs[1].elements)
      ETCH_CHECK(divisor.i != 0, ValueError, name(call.op), ": expected non-zero integer divisors, got 0");
  if (is_floating(computed))
    pointwise<double>(call, DType::F64, output);
  else
    pointwise<int64_t>(call, computed, output);
}

void run_generator(const Call& call, Array& output) {
  for (size_t i = 0; i < output.elements.size(); ++i) {
    const auto index = static_cast<int64_t>(i);
    if (call.op != Op::arange) {
      const double x = call.op == Op::dropout ? call.inputs[0].elements[i].f : 0;
      output.elements[i] = {.f = scalar::random_element(call.op, call, index, x)};
      continue;
    }
    const Array &start = call.inputs[0], &step = call.inputs[1];
    if (is_floating(output.dtype) || is_floating(start.dtype) || is_floating(step.dtype)) {
      const DType type = is_floating(output.dtype) ? DType::F64 : output.dtype;
      const Number a = convert(start.elements[0], start.dtype, type),
                   b = convert(step.elements[0], step.dtype, type);
      output.elements[i] = is_floating(type) ? Number{.f = a.f + b.f * static_cast<double>(index)}
                                             : convert({.i = a.i + b.i * index}, DType::I64, type);
    } else {
      output.elements[i] =
          convert({.i = start.elements[0].i + step.elements[0].i * index}, DType::I64, output.dtype);
    }
  }
}

void run_reduction(const Call& call, Array& output) {
  const DType dtype = call.inputs[0].dtype;
  if (info(call.op).rule == DTypeRule::Bool)
    reduce<int64_t>(call, DType::Bool, output);
  else if (is_floating(dtype))
    reduce<double>(call, DType::F64, output);
  else
    reduce<int64_t>(call, DType::I64, output);
}

void run_extremum(const Call& call, Array& output) {
  const Array& x = call.inputs[0];
  const ReductionAttrs attrs(call.attrs);
  std::vector<Number> best(output.elements.size());
  std::vector<int64_t> count(output.elements.size(), 0);
  Dims index = Dims::filled(x.sizes.size(), 0);
  for (const Number& element : x.elements) {
    Dims to;
    for (int i = 0; i < index.size(); ++i)
      if (!(attrs.axes >> i & 1) || attrs.keepdim) to.push_back(attrs.axes >> i & 1 ? 0 : index[i]);
    const int64_t at = output.position(to);
    if (count[at] == 0 || beats(call.op, best[at], element, x.dtype)) {
      best[at] = element;
      output.elements[at].i = count[at];
    }
    ++count[at];
    next_index(index, x.sizes);
  }
}

}  // namespace etch::interpreter
